//! HEAD

mod batch;
mod in_flight;
mod reclaim;
mod recovery;
mod segment_log;
mod stream;
mod sweep;
pub(crate) mod threads;
pub(crate) mod writer;
