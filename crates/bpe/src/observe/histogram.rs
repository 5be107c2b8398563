//! Latency histograms from `bpe_report('latency')`: counts since the cache was opened, by buckets in nanoseconds.
//!
//! A bucket is a quarter of a power of two, so its lower bound follows from its upper one. The difference of two
//! readings is the histogram of the time between. Only that yields the quantiles of that time.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

/// Counts by upper bound in nanoseconds (exclusive).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Histogram {
    buckets: BTreeMap<u64, u64>,
    /// Sum of all latencies in nanoseconds.
    sum_ns: u64,
}

/// Page reads since the cache was opened, with the server's waiting time, by any source.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// Reads of the control group, which the data disk answers in every state.
    pub control: Histogram,
    pub others: Histogram,
}

/// Microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Quantiles {
    pub p50: f64,
    pub p95: f64,
    pub p99: f64,
}

impl Histogram {
    /// Parses one member of the report; `None` if it is malformed.
    pub fn of(report: &Value) -> Option<Self> {
        let pair = |bucket: &Value| Some((bucket.get(0)?.as_u64()?, bucket.get(1)?.as_u64()?));
        let buckets = report.get("buckets")?.as_array()?.iter().map(pair);
        Some(Self {
            buckets: buckets.collect::<Option<_>>()?,
            sum_ns: report["sum_ns"].as_u64().unwrap_or(0),
        })
    }

    pub fn count(&self) -> u64 {
        let counts = self.buckets.values();
        counts.fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Counts since `earlier`; all counts if the counters were reset since.
    pub fn since(&self, earlier: &Self) -> Self {
        let old = |upper: &u64| earlier.buckets.get(upper).copied().unwrap_or(0);
        let begun_anew = earlier
            .buckets
            .iter()
            .any(|(upper, count)| self.buckets.get(upper).is_none_or(|now| now < count));
        if begun_anew {
            return self.clone();
        }
        let buckets = self.buckets.iter();
        Self {
            buckets: buckets
                .map(|(upper, count)| (*upper, count - old(upper)))
                .filter(|(_, count)| *count > 0)
                .collect(),
            sum_ns: self.sum_ns.saturating_sub(earlier.sum_ns),
        }
    }

    /// The sum of two histograms.
    pub fn and(mut self, other: &Self) -> Self {
        for (upper, count) in &other.buckets {
            let sum = self.buckets.entry(*upper).or_default();
            *sum = sum.saturating_add(*count);
        }
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self
    }

    /// Mean in microseconds; `None` without reads.
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum_ns as f64 / count as f64 / 1000.0)
    }

    /// `None` without reads.
    pub fn quantiles(&self) -> Option<Quantiles> {
        Some(Quantiles {
            p50: self.quantile(0.50)?,
            p95: self.quantile(0.95)?,
            p99: self.quantile(0.99)?,
        })
    }

    /// Interpolates within the bucket, like the plugin.
    fn quantile(&self, q: f64) -> Option<f64> {
        let wanted = q * self.count() as f64;
        let mut below = 0.0;
        for (&upper, &count) in &self.buckets {
            let count = count as f64;
            if below + count >= wanted {
                let (low, high) = (lower_bound(upper) as f64, upper as f64);
                return Some((low + (high - low) * (wanted - below) / count) / 1000.0);
            }
            below += count;
        }
        None
    }
}

/// Lower bound of the bucket with the exclusive upper bound `upper`.
fn lower_bound(upper: u64) -> u64 {
    let highest = upper.saturating_sub(1);
    if highest < 4 {
        return highest;
    }
    upper - (1 << (highest.ilog2() - 2))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn histogram(buckets: &[(u64, u64)]) -> Histogram {
        Histogram {
            buckets: buckets.iter().copied().collect(),
            sum_ns: buckets.iter().map(|(upper, count)| upper * count).sum(),
        }
    }

    #[test]
    fn bounds_follow_from_each_other() {
        // As in crates/cache's histogram: 4..5, 7..8, 8..10, 1024..1280, 1792..2048.
        for (upper, low) in [
            (1, 0),
            (4, 3),
            (5, 4),
            (8, 7),
            (10, 8),
            (1280, 1024),
            (2048, 1792),
        ] {
            assert_eq!(lower_bound(upper), low, "{upper}");
        }
    }

    #[test]
    fn reads_the_report_and_nothing_else() {
        let report = json!({"count": 3, "sum_ns": 9, "buckets": [[1280, 2], [2048, 1]]});
        let wanted = Histogram {
            sum_ns: 9,
            ..histogram(&[(1280, 2), (2048, 1)])
        };
        assert_eq!(Histogram::of(&report), Some(wanted));
        assert_eq!(Histogram::of(&json!({})), None);
        assert_eq!(Histogram::of(&json!({"buckets": [["a", 1]]})), None);
    }

    #[test]
    fn quantiles_of_the_time_between() {
        // A thousand fast reads, then a hundred slow ones: only the latter count.
        let before = histogram(&[(1280, 1000)]);
        let now = histogram(&[(1280, 1000), (2_097_152, 100)]);
        let quantiles = now.since(&before).quantiles().unwrap();
        assert!(quantiles.p50 > 1835.0 && quantiles.p50 < 2097.2);
        assert!(quantiles.p50 < quantiles.p95 && quantiles.p95 < quantiles.p99);
        assert_eq!(now.since(&now).quantiles(), None);
        // A reopened cache counts from zero.
        assert_eq!(histogram(&[(8, 5)]).since(&now).count(), 5);
        assert_eq!(Histogram::default().since(&now).count(), 0);
    }

    #[test]
    fn hostile_counts_do_not_overflow() {
        let max = u64::MAX;
        let report = json!({"sum_ns": max, "buckets": [[0, max], [3, max], [4, max], [max, max]]});
        let one = Histogram::of(&report).unwrap();
        let both = one.clone().and(&one);
        assert_eq!(both.count(), max);
        assert_eq!(both.since(&one), Histogram::default());
        assert!(both.mean().is_some() && both.quantiles().is_some());
    }

    #[test]
    fn two_kinds_of_reads_are_one() {
        let fast = histogram(&[(1000, 3)]);
        let both = fast.clone().and(&histogram(&[(1000, 1), (9000, 4)]));
        assert_eq!(both.count(), 8);
        assert_eq!(both.mean(), Some(5.0));
        assert_eq!(both.since(&fast).mean(), Some(37.0 / 5.0));
        assert_eq!(Histogram::default().mean(), None);
    }
}
