//! Counters for readers outside the engine. They are independent of each other, so all are `Relaxed`. A sum of several
//! may combine values of slightly different moments.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::common::measure::histogram::HistogramSnapshot;

/// A counter that costs one relaxed addition.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Keeps two values off one cache line (and off the line that the prefetcher fetches with it).
#[derive(Default, Debug)]
#[repr(align(128))]
pub(crate) struct CachePadded<T>(pub T);

/// Totals of an extension since it was opened.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Statistics {
    pub hits: u64,
    /// Bytes of the pages of `hits` in the data files: uncompressed, except for tables with compressed pages.
    pub hit_bytes: u64,
    /// Of `hits`: served from memory, before the page was written to a device.
    pub hits_staged: u64,
    /// Of `hits`: the caller read the device (`locate`, `prove_page`).
    pub hits_located: u64,
    pub misses: u64,
    /// Of `misses`, by reason.
    pub misses_absent: u64,
    /// Of `misses_absent`: pages with an earlier read, as far as the policy's counters remember: the last accesses to
    /// about 1.8 times the pages that fit. A cache of that size would have served many of them.
    pub misses_returned: u64,
    pub misses_device_failed: u64,
    pub misses_device_error: u64,
    pub misses_reclaimed: u64,
    pub misses_invalidated: u64,
    pub misses_failed_proof: u64,
    pub misses_collision: u64,
    pub misses_unsuitable: u64,
    /// Cached pages that `locate` did not return, because no device request or no memory for one was free.
    pub misses_no_request: u64,
    pub pages_cached: u64,
    /// Bytes the cached pages take on the devices (approximate) and in staging.
    pub bytes_cached: u64,
    pub bytes_capacity: u64,
    /// Uncompressed bytes of the pages on the devices per byte that they take there: 1 without compression.
    pub compression_ratio: f64,
    /// Compression attempts, successful or not.
    pub compress_attempts: u64,
    /// Of `compress_attempts`: the result was stored.
    pub compressed: u64,
    pub compress_nanos: u64,
    /// Pages stored without an attempt, because their files do not shrink.
    pub compress_left_alone: u64,
    /// Pages stored uncompressed, because compression had used up its share of the writer's time.
    pub compress_no_time: u64,
    pub pages_staged: u64,
    /// Insert candidates.
    pub offered: u64,
    pub admitted: u64,
    /// Rejected by the policy.
    pub rejected: u64,
    /// Bytes of the rejected pages.
    pub bytes_rejected: u64,
    /// Of `rejected`: the page's group was at its limit.
    pub rejected_by_limit: u64,
    /// Candidates that were already cached.
    pub already_cached: u64,
    /// Rejected because the page was written after the read or write of its bytes.
    pub stale_offers: u64,
    pub dropped_staging_full: u64,
    /// Rejected because the daily write limit was used up.
    pub rejected_write_limit: u64,
    /// Pages evicted to make room.
    pub evicted: u64,
    /// Pages evicted because the directory had no free way for another.
    pub evicted_directory_full: u64,
    /// Pages dropped because their device failed.
    pub purged: u64,
    pub reinserted: u64,
    pub invalidated: u64,
    pub failed_proofs: u64,
    /// Bytes of inserted pages written to devices, after compression.
    pub bytes_written_user: u64,
    /// All bytes written to devices: inserted and re-inserted pages, padding, segment footers.
    pub bytes_written_total: u64,
    /// Bytes written to devices per byte of admitted and written pages; 0 before the first.
    pub write_amplification: f64,
    /// Bytes written to devices in the last 24 hours, including those of earlier extensions.
    pub bytes_written_in_a_day: u64,
    pub bytes_read: u64,
    pub device_errors: u64,
    /// Device reads that exceeded the timeout.
    pub reads_given_up: u64,
    /// Device reads that were skipped because the disk was saturated.
    pub reads_busy: u64,
    pub memory_bytes: u64,
    pub lock_accesses: u64,
    /// Of `lock_accesses`: found the lock held.
    pub lock_waits: u64,
    /// Reads served by the cache, from lookup to proof.
    pub read_latency: HistogramSnapshot,
}

/// One instance. `accesses` counts page reads that looked up a page here.
#[derive(Clone, Debug, Default, Serialize)]
pub struct InstanceStatistics {
    pub accesses: u64,
    pub lock_accesses: u64,
    pub lock_waits: u64,
    pub hits: u64,
    pub misses: u64,
    pub pages: u64,
    pub staged: u64,
    pub capacity: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceStatistics {
    pub path: PathBuf,
    pub bytes: u64,
    pub segment_bytes: u64,
    pub segments: u64,
    pub free_segments: u64,
    pub pages: u64,
    pub bytes_written: u64,
    pub bytes_read: u64,
    pub reads: u64,
    pub writes: u64,
    pub errors: u64,
    /// Reads that exceeded the timeout.
    pub reads_given_up: u64,
    /// Reads that were skipped because the disk was saturated.
    pub reads_busy: u64,
    /// Reads that the engine's own thread submitted, because the submission might have blocked the caller.
    pub reads_handed_over: u64,
    /// Maximum number of requests in flight on the disk; 0: unknown.
    pub request_slots: u64,
    /// The device serves reads and takes writes.
    pub active: bool,
    /// Display text: "active", "failed: <reason>; ...", and remarks, for example that the file was deleted.
    pub state: String,
    pub direct_io: bool,
    /// Recent average time of a write of 256 KiB, in microseconds.
    pub write_us: f64,
}
