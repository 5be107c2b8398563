//! Work of the disks and the extension.

use bpe::observe::percent;
use serde::{Deserialize, Serialize};

/// Counter differences over a test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    /// Hits and misses of the extension.
    pub hits: u64,
    pub misses: u64,
    /// Pages that the extension admitted, rejected, evicted for others, and invalidated because they were written.
    pub admitted: u64,
    pub rejected: u64,
    pub evicted: u64,
    pub invalidated: u64,
    /// Bytes written to the cache.
    pub cache_bytes_written: u64,
    /// Requests to the disk with the data files; `None` if the data is on the fast disk.
    pub disk_reads: Option<u64>,
    pub disk_writes: Option<u64>,
    /// Page reads by InnoDB.
    pub innodb_reads: u64,
    /// Pages that InnoDB flushed.
    pub innodb_pages_written: u64,
    /// Committed transactions waiting for purge, before and after: deferred work.
    pub history_before: u64,
    pub history_after: u64,
}

impl Work {
    /// Percent of the page reads that the extension served.
    pub fn hit_ratio(&self) -> Option<f64> {
        percent(self.hits, self.hits + self.misses)
    }
}
