//! Client waits between two readings, on any disk: the basis for comparing two states.
//!
//! While a control group exists (`bpe_bypass_timeout`), the plugin times page reads and groups them by the server's
//! state at their beginning.

use super::histogram::{Histogram, Quantiles, Reads};
use super::sample::Sample;

/// Excludes reads that were not timed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Waits {
    /// Latency of page reads that missed InnoDB's pool, without the control group; `None` if there were none.
    pub read_us: Option<Quantiles>,
    pub read_mean_us: Option<f64>,
    /// Latency of the control group's reads.
    pub control_read_us: Option<Quantiles>,
    pub row_lock_waits_per_s: f64,
}

impl Waits {
    /// Waits of the time from `before` to `now`.
    pub fn between(before: &Sample, now: &Sample) -> Self {
        let seconds = (now.taken - before.taken).as_secs_f64().max(1e-3);
        let grown = |of: fn(&Reads) -> &Histogram| match (&before.reads, &now.reads) {
            (Some(before), Some(now)) => {
                let [serving, bypass] =
                    std::array::from_fn(|at| of(&now[at]).since(of(&before[at])));
                serving.and(&bypass)
            }
            // Without an earlier histogram, the later one also covers the time before.
            _ => Histogram::default(),
        };
        let others = grown(|reads| &reads.others);
        Self {
            read_us: others.quantiles(),
            read_mean_us: others.mean(),
            control_read_us: grown(|reads| &reads.control).quantiles(),
            row_lock_waits_per_s: now.growth(before, "innodb_row_lock_waits") as f64 / seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::super::figures::tests::sample;
    use super::*;

    #[test]
    fn reads_are_of_the_time_between() {
        let reads = |count: u64, upper: u64, sum_ns: u64| {
            Histogram::of(&json!({ "sum_ns": sum_ns, "buckets": [[upper, count]] })).unwrap()
        };
        let start = Instant::now();
        let mut before = sample(start, 0, &[("innodb_row_lock_waits", 5)]);
        let mut now = sample(start, 2000, &[("innodb_row_lock_waits", 9)]);
        let serving = Reads {
            control: reads(10, 1_048_576, 9_000_000),
            others: reads(10, 98_304, 900_000),
        };
        before.reads = Some([serving.clone(), Reads::default()]);
        let waits = Waits::between(&before, &now);
        assert_eq!((waits.read_us, waits.read_mean_us), (None, None));
        assert_eq!(waits.row_lock_waits_per_s, 2.0);
        // Bypass has begun: its reads go to the data disk.
        let bypassed = Reads {
            control: Histogram::default(),
            others: reads(10, 1_048_576, 10_000_000),
        };
        let mut later = serving.clone();
        later.others = reads(100, 98_304, 9_000_000);
        now.reads = Some([later, bypassed]);
        let waits = Waits::between(&before, &now);
        assert_eq!(waits.read_mean_us, Some(181.0));
        let quantiles = waits.read_us.unwrap();
        assert!(
            quantiles.p50 < 98.4 && quantiles.p95 > 900.0,
            "{quantiles:?}"
        );
        assert_eq!(waits.control_read_us, None);
        now.reads = Some([Reads::default(), serving]);
        assert!(Waits::between(&before, &now).control_read_us.is_some());
    }
}
