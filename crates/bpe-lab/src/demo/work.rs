//! What disks and extension did.

use bpe_command::observe::percent;
use serde::{Deserialize, Serialize};

/// What the disks and the extension did during a test: differences of counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Hits and misses of the extension.
    pub hits: u64,
    pub misses: u64,
    /// Pages that the extension took in, turned away, gave up for others, and dropped because they
    /// were written.
    pub admitted: u64,
    pub rejected: u64,
    pub evicted: u64,
    pub invalidated: u64,
    /// Bytes written to the cache.
    pub cache_bytes_written: u64,
    /// Requests that reached the disk with the data files; None where the data is on the fast disk.
    pub disk_reads: Option<u64>,
    pub disk_writes: Option<u64>,
    /// Reads that InnoDB asked for.
    pub innodb_reads: u64,
    /// Pages that InnoDB flushed.
    pub innodb_pages_written: u64,
    /// Committed transactions waiting for purge, before and after: work put off to later.
    pub history_before: u64,
    pub history_after: u64,
}

impl Work {
    /// Percent of the page reads that the extension served.
    pub fn hit_ratio(&self) -> Option<f64> {
        percent(self.hits, self.hits + self.misses)
    }
}
