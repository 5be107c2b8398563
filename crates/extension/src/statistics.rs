//! Counters that are read from outside. Each stands for itself, so all are `Relaxed`: a sum over several may be of moments that lie
//! a little apart.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::measure::histogram::HistogramSnapshot;

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
pub(crate) struct Padded<T>(pub T);

/// Totals of an extension. Counters count from the time it was opened.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Statistics {
    pub hits: u64,
    /// Bytes of the pages of `hits`, as the data files have them: uncompressed, but for those of tables with compressed pages.
    pub hit_bytes: u64,
    /// Of `hits`: served from memory, before the page was written to a device.
    pub hits_staged: u64,
    /// Of `hits`: read by the caller itself (`locate`, `prove`).
    pub hits_located: u64,
    pub misses: u64,
    /// Of `misses`, by reason.
    pub misses_absent: u64,
    /// Of `misses_absent`: pages that had been asked for before, as far as the policy's counters remember: those of the last
    /// accesses to about 1.8 times the pages that fit. A cache of that size would have had many of them.
    pub misses_returned: u64,
    pub misses_device_failed: u64,
    pub misses_device_error: u64,
    pub misses_reclaimed: u64,
    pub misses_invalidated: u64,
    pub misses_failed_proof: u64,
    pub misses_collision: u64,
    pub misses_unsuitable: u64,
    /// Cached pages that `locate` did not give, as no request to the device or no memory for one was free.
    pub misses_no_request: u64,
    pub pages_cached: u64,
    /// Bytes the cached pages take on the devices (approximate) and in staging.
    pub bytes_cached: u64,
    pub bytes_capacity: u64,
    /// Bytes of the pages on the devices for each byte they take there: 1 without compression.
    pub compression_ratio: f64,
    /// Pages that were compressed, whether that helped or not.
    pub compress_attempts: u64,
    /// Of `compress_attempts`: stored compressed.
    pub compressed: u64,
    pub compress_nanos: u64,
    /// Pages of files that do not shrink, which are left alone.
    pub compress_left_alone: u64,
    /// Pages stored as they are because compression had taken its share of the writer's time.
    pub compress_no_time: u64,
    pub pages_staged: u64,
    pub offered: u64,
    pub admitted: u64,
    /// Turned away by the policy.
    pub rejected: u64,
    /// Bytes of these.
    pub bytes_rejected: u64,
    /// Of `rejected`: their group had as much of the cache as it may.
    pub rejected_by_limit: u64,
    /// Offered when already cached.
    pub already_cached: u64,
    /// Turned away because the page was written meanwhile.
    pub stale_offers: u64,
    pub dropped_staging_full: u64,
    /// Turned away because the daily write limit is used up.
    pub rejected_write_limit: u64,
    /// Pages dropped to make room.
    pub evicted: u64,
    /// Pages dropped because the directory had no place for another.
    pub evicted_directory_full: u64,
    /// Pages dropped because the device they lay on failed.
    pub purged: u64,
    pub reinserted: u64,
    pub invalidated: u64,
    pub failed_proofs: u64,
    /// Bytes of offered pages written to devices, as stored.
    pub bytes_written_user: u64,
    /// All bytes written to devices: offered and re-inserted pages, padding, segment footers.
    pub bytes_written_total: u64,
    /// Bytes written to devices for each byte of the pages that were let in and written: 0 before the first.
    pub write_amplification: f64,
    /// Bytes written to devices in the last 24 hours, by extensions before this one too.
    pub bytes_written_in_a_day: u64,
    pub bytes_read: u64,
    pub device_errors: u64,
    /// Reads of devices that were not answered within the timeout.
    pub reads_given_up: u64,
    /// Reads of devices that were not made because the disk could take no more just then.
    pub reads_busy: u64,
    pub memory_bytes: u64,
    pub lock_accesses: u64,
    /// Of `lock_accesses`: found the lock held.
    pub lock_waits: u64,
    /// Reads served by the cache, from lookup to proof.
    pub read_latency: HistogramSnapshot,
}

/// One instance. `accesses` are page reads that looked for a page here.
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
    /// Reads that were not answered within the timeout.
    pub reads_given_up: u64,
    /// Reads that were not made because the disk could take no more just then.
    pub reads_busy: u64,
    /// Reads that a thread of ours submitted, as whoever wanted them might have had to wait for that.
    pub reads_handed_over: u64,
    /// Requests that the disk can have under way; 0: not known.
    pub request_slots: u64,
    /// The device serves reads and takes writes.
    pub active: bool,
    /// For people: "active", "failed: <reason>; ...", and remarks such as that the file was deleted.
    pub state: String,
    pub direct_io: bool,
    /// Average microseconds of late that a write of 256 KiB takes.
    pub write_us: f64,
}
