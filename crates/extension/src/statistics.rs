//! Counters that are read from outside, and the latency histogram.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

/// A counter that costs one relaxed addition.
#[derive(Default, Debug)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
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
    /// Of `misses_absent`: pages that had been asked for before, as far as admission's counters remember: those of the last
    /// accesses to about 2.4 times the pages that fit. A cache of that size would have had many of them.
    pub misses_returned: u64,
    pub misses_device_failed: u64,
    pub misses_device_error: u64,
    pub misses_reclaimed: u64,
    pub misses_invalidated: u64,
    pub misses_failed_proof: u64,
    pub misses_collision: u64,
    pub misses_unsuitable: u64,
    /// `locate` answered no although the page is cached (staged, compressed, not aligned). Not a miss: the caller may `read`.
    pub not_locatable: u64,
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
    /// Turned away by admission.
    pub rejected: u64,
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
    /// Frequency of the pages that newcomers had to exceed of late (moving average, mean over the instances).
    pub admission_threshold: f64,
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

const SUB_BUCKETS: usize = 4;
const BUCKETS: usize = 40 * SUB_BUCKETS;

/// Histogram of latencies on atomics: powers of two of nanoseconds, each cut into four; values up to 18 minutes.
pub struct LatencyHistogram {
    counts: Box<[AtomicU64; BUCKETS]>,
    nanos: AtomicU64,
}

/// Counts of a [`LatencyHistogram`] at one moment.
#[derive(Clone, Debug, Default, Serialize)]
pub struct HistogramSnapshot {
    counts: Vec<u64>,
    pub count: u64,
    pub sum_nanos: u64,
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        LatencyHistogram::new()
    }
}

impl LatencyHistogram {
    pub fn new() -> LatencyHistogram {
        LatencyHistogram {
            counts: Box::new([const { AtomicU64::new(0) }; BUCKETS]),
            nanos: AtomicU64::new(0),
        }
    }

    pub fn record(&self, nanos: u64) {
        self.counts[bucket(nanos)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> HistogramSnapshot {
        let counts: Vec<u64> = self
            .counts
            .iter()
            .map(|c| c.load(Ordering::Relaxed))
            .collect();
        HistogramSnapshot {
            count: counts.iter().sum(),
            counts,
            sum_nanos: self.nanos.load(Ordering::Relaxed),
        }
    }
}

impl HistogramSnapshot {
    /// Microseconds below which the share `q` (0..=1) of the values lies, interpolated within a bucket; 0 if there are none.
    pub fn quantile(&self, q: f64) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let wanted = q.clamp(0.0, 1.0) * self.count as f64;
        let mut below = 0.0;
        for (i, &count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            if below + count as f64 >= wanted {
                let (low, high) = bounds(i);
                return (low + (high - low) * ((wanted - below) / count as f64)) / 1000.0;
            }
            below += count as f64;
        }
        bounds(BUCKETS - 1).1 / 1000.0
    }

    /// Mean in microseconds; 0 if there are no values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 {
            0.0
        } else {
            self.sum_nanos as f64 / self.count as f64 / 1000.0
        }
    }

    /// What was recorded since `earlier`.
    pub fn since(&self, earlier: &HistogramSnapshot) -> HistogramSnapshot {
        let old = earlier.counts.iter().copied().chain(std::iter::repeat(0));
        HistogramSnapshot {
            counts: self
                .counts
                .iter()
                .zip(old)
                .map(|(new, old)| new.saturating_sub(old))
                .collect(),
            count: self.count.saturating_sub(earlier.count),
            sum_nanos: self.sum_nanos.saturating_sub(earlier.sum_nanos),
        }
    }

    /// (upper bound in nanoseconds, count) of each bucket that holds something.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        let filled = self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0);
        filled
            .map(|(i, &count)| (bounds(i).1 as u64, count))
            .collect()
    }
}

fn bucket(nanos: u64) -> usize {
    if nanos < SUB_BUCKETS as u64 {
        return nanos as usize;
    }
    let power = nanos.ilog2() as usize;
    let sub = (nanos >> (power - 2)) as usize & (SUB_BUCKETS - 1);
    ((power - 1) * SUB_BUCKETS + sub).min(BUCKETS - 1)
}

/// Nanoseconds from (inclusive) and to (exclusive).
fn bounds(bucket: usize) -> (f64, f64) {
    let low = |b: usize| {
        if b < SUB_BUCKETS {
            b as f64
        } else {
            let (power, sub) = (b / SUB_BUCKETS + 1, b % SUB_BUCKETS);
            (1u64 << power) as f64 + (sub as u64 * (1u64 << (power - 2))) as f64
        }
    };
    (low(bucket), low(bucket + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_within_the_bounds_of_its_bucket() {
        for nanos in (0..4000)
            .chain((0..40).map(|p| 1u64 << p))
            .chain((2..40).map(|p| (1u64 << p) - 1))
        {
            let (low, high) = bounds(bucket(nanos));
            assert!(
                low <= nanos as f64 && (nanos as f64) < high,
                "{nanos}: {low}..{high}"
            );
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_close() {
        let h = LatencyHistogram::new();
        let apart = if cfg!(miri) { 50 } else { 1 };
        (1..=100_000 / apart).for_each(|n| h.record(n * 10 * apart));
        let s = h.snapshot();
        for (q, micros) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let got: f64 = s.quantile(q);
            assert!((got - micros).abs() < micros * 0.05, "{q}: {got}");
        }
        assert!((s.mean() - 500.0).abs() < 1.0);
    }

    #[test]
    fn an_empty_histogram_and_a_difference() {
        let h = LatencyHistogram::new();
        let before = h.snapshot();
        assert_eq!((before.quantile(0.5), before.mean()), (0.0, 0.0));
        h.record(5000);
        let difference = h.snapshot().since(&before);
        assert_eq!((difference.count, difference.sum_nanos), (1, 5000));
        assert_eq!(difference.buckets().len(), 1);
        assert_eq!(h.snapshot().since(&HistogramSnapshot::default()).count, 1);
    }
}
