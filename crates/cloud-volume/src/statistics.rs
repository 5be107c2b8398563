//! Counters of the volume.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Totals since the volume was mounted. Subtract two to get an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Statistics {
    /// Read requests of the kernel that reached the volume. Reads served by the kernel's page cache are not counted.
    pub reads: u64,
    pub writes: u64,
    /// fsync and fdatasync calls, including those without anything to flush.
    pub fsyncs: u64,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// Reads and writes as counted against the IOPS cap: a large one counts as several.
    pub billed_ios: u64,
    /// Total time that requests waited for the caps or a stall, in microseconds.
    pub queue_wait_us: u64,
    /// Wall-clock time during which at least one request waited for the caps or a stall, in microseconds.
    pub throttled_us: u64,
    /// Requests that currently wait for the caps, or for their latency.
    pub queued: u64,
    /// Requests that a fault failed, or stored only partly.
    pub faults: u64,
    /// Number of power losses.
    pub power_losses: u64,
    /// Memory of the old contents that a power loss would restore.
    pub unsynced_bytes: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) reads: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) fsyncs: AtomicU64,
    pub(crate) read_bytes: AtomicU64,
    pub(crate) written_bytes: AtomicU64,
    pub(crate) billed_ios: AtomicU64,
    pub(crate) queue_wait: AtomicU64,
    pub(crate) throttled: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) power_losses: AtomicU64,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Statistics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Statistics {
            reads: get(&self.reads),
            writes: get(&self.writes),
            fsyncs: get(&self.fsyncs),
            read_bytes: get(&self.read_bytes),
            written_bytes: get(&self.written_bytes),
            billed_ios: get(&self.billed_ios),
            queue_wait_us: get(&self.queue_wait) / 1000,
            throttled_us: get(&self.throttled) / 1000,
            faults: get(&self.faults),
            power_losses: get(&self.power_losses),
            queued: 0,
            unsynced_bytes: 0,
        }
    }
}

pub(crate) fn add(counter: &AtomicU64, amount: u64) {
    counter.fetch_add(amount, Ordering::Relaxed);
}
