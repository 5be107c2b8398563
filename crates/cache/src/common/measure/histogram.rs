//! Latency histogram: counts from which any quantile can be estimated.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

const SUB_BUCKETS: usize = 4;
const BUCKETS: usize = 40 * SUB_BUCKETS;

/// Latency histogram on atomics. A bucket is a quarter of a power of two in nanoseconds; values up to 18 minutes.
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

    /// `Relaxed` here and in `snapshot`: counters that order no other memory.
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
    /// Microseconds below which the share `q` (0..=1) of the values is, interpolated within a bucket; 0 if there are
    /// none.
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

    /// Values recorded since `earlier`.
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

    /// (upper bound in nanoseconds, count) of each non-empty bucket.
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

/// Lower (inclusive) and upper (exclusive) bound in nanoseconds.
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
