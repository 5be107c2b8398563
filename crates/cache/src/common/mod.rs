//! HEAD

pub(crate) mod budget;
pub mod canary;
pub(crate) mod config;
pub(crate) mod group;
pub(crate) mod measure;
pub(crate) mod memory;
pub(crate) mod page;
pub(crate) mod rate_limiter;
pub(crate) mod sizing;
pub(crate) mod statistics;
pub(crate) mod sync;
pub(crate) mod thread;
pub(crate) mod violations;
pub(crate) mod wake;
