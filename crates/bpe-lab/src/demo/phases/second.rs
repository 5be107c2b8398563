//! One second of a load, as the phases store it.

use bpe::observe;
use serde::{Deserialize, Serialize};

use crate::demo::work::Work;
use crate::sysbench::Interval;

/// One second.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Second {
    /// Its end, in seconds since the test began.
    pub t: f64,
    pub qps: f64,
    pub p95_ms: f64,
    /// InnoDB's reads, and the reads served by the extension.
    pub reads: u64,
    pub hits: u64,
    /// Reads that reached the disk with the data files.
    pub disk_reads: Option<u64>,
}

impl Second {
    /// Combines the figures of sysbench, the server and the volume.
    pub fn new(interval: &Interval, work: &Work) -> Second {
        Second {
            t: interval.t,
            qps: interval.qps,
            p95_ms: interval.p95_ms,
            reads: work.innodb_reads,
            hits: work.hits,
            disk_reads: work.disk_reads,
        }
    }
}

/// Percent of InnoDB's reads that the extension served; 0 if there were none.
pub fn hit_ratio(of: &[Second]) -> f64 {
    let hits = of.iter().map(|one| one.hits).sum();
    let reads = of.iter().map(|one| one.reads).sum();
    observe::percent(hits, reads).unwrap_or(0.0)
}
