//! Errors of traces.

use std::io;

use thiserror::Error;

/// Maximum number of events of a trace: page numbers share a 32-bit word with the operation.
pub const MAX_EVENTS: usize = 1 << 31;

/// Why a trace is unusable. Records are counted from 1, offsets are those of the uncompressed bytes.
#[derive(Debug, Error)]
pub enum TraceError {
    #[error("cannot read {name}: {source}")]
    Unreadable { name: String, source: io::Error },
    #[error("{name} is empty, so there is nothing to replay")]
    Empty { name: String },
    #[error(
        "{name} is cut off, or is not a trace: after {records} whole records of 16 bytes, {left} bytes are left"
    )]
    Truncated {
        name: String,
        records: u64,
        left: usize,
    },
    #[error(
        "{name} is cut off or damaged: its zstd compression cannot be undone after record {records} ({source})"
    )]
    Compression {
        name: String,
        records: u64,
        source: io::Error,
    },
    #[error("{name} is not a trace: record {record}, at byte {offset}, {what}")]
    Foreign {
        name: String,
        record: u64,
        offset: u64,
        what: String,
    },
    #[error("{name} has more than {MAX_EVENTS} events, which is more than can be replayed")]
    TooLong { name: String },
    #[error("the traces have file numbers so high that they cannot be kept apart")]
    OutOfFiles,
}
