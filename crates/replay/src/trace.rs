//! Traces: recorded page reads and writes of a server's data files.
//!
//! A trace file is a sequence of 16-byte little-endian records, plain or compressed with zstd:
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | number of the file |
//! | 4..8 | number of the first page; pages have 16 KiB |
//! | 8 | operation: 0 read, 1 write |
//! | 9 | number of pages, at least 1 |
//! | 10..12 | 0 |
//! | 12..16 | sequence number; ignored |
//!
//! In memory an event takes four bytes. Pages are numbered in the order of their first appearance, so that a policy can
//! keep its data in a plain array. A record of several pages becomes as many events.

mod error;
mod events;
mod file;
mod writer;

pub use error::{MAX_EVENTS, TraceError};
pub use events::{Event, Operation, PAGE_BYTES, Trace, TracePage};
pub use writer::{RECORD_BYTES, TraceWriter};
