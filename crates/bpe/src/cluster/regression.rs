//! Whether a change made a server worse, judged by the server's own figures.
//!
//! The statement rate does not count, because applications change their demand at any time. Neither does the hit ratio,
//! which starts at 0 in a new cache.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::probe::NodeState;
use crate::connect::state::is_on;
use crate::observe::{Figures, Observer, are_piled_up};
use crate::support::failure::Failure;

/// Minimum number of reads for a latency.
const MIN_READS: f64 = 200.0;
/// Factor over the previous latency.
const MAX_LATENCY_RATIO: f64 = 2.0;

/// A server's figures over some seconds.
#[derive(Clone, Debug)]
pub struct Window {
    pub figures: Figures,
    /// Mean over the seconds.
    pub threads_running: f64,
    /// At the end of the window.
    pub seen: NodeState,
}

/// The figure in which a server is worse.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Regression {
    /// `restart`, `state`, `replication`, `lag`, `errors`, `threads`, `cache-latency` or `data-latency`.
    pub figure: &'static str,
    pub text: String,
}

impl Window {
    /// Watches a server for this time, and for at least two readings.
    ///
    /// # Errors
    /// The server does not answer, or `interrupted` returns true.
    pub fn of(
        observer: &mut Observer,
        length: Duration,
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, Failure> {
        let begin = Instant::now();
        let first = observer.sample()?;
        let mut threads = Vec::new();
        loop {
            std::thread::sleep(Duration::from_secs(1).min(length));
            if interrupted() {
                return Err(Failure::step("interrupted"));
            }
            let last = observer.sample()?;
            threads.push(last.number("threads_running"));
            if begin.elapsed() >= length {
                let seen = NodeState::of(observer.server()?)?;
                return Ok(Self {
                    figures: Figures::between(&first, &last),
                    threads_running: threads.iter().sum::<f64>() / threads.len() as f64,
                    seen,
                });
            }
        }
    }
}

/// The figure in which the server is worse; `None` if there is none. `on`: the server was switched on, or changed while on.
pub fn judge(before: &Window, after: &Window, on: bool, max_lag_s: f64) -> Option<Regression> {
    let worse = |figure, text: String| Some(Regression { figure, text });
    let (was, is) = (&before.figures, &after.figures);
    if is.uptime_s < was.uptime_s {
        return worse(
            "restart",
            format!("it was started anew {} s ago", is.uptime_s),
        );
    }
    if on && !is_on(&is.state) {
        return worse(
            "state",
            format!("the extension is {}: {}", is.state, is.state_reason),
        );
    }
    let now = &after.seen.membership;
    if before.seen.membership.in_step && !now.in_step {
        return worse("replication", format!("it is {}", now.describe()));
    }
    if let Some(lag) = now.late_s() {
        let earlier = before.seen.membership.late_s().unwrap_or(0.0);
        if lag > max_lag_s && lag > earlier {
            return worse(
                "lag",
                format!("it is {lag:.0} s behind, {earlier:.0} s before"),
            );
        }
    }
    let troubles = |figures: &Figures| {
        let others = figures.audit_suspicions;
        let others = others.saturating_add(figures.reads_given_up);
        figures.errors().saturating_add(others)
    };
    // Reopening the cache resets these counters.
    let known = if is_on(&was.state) { troubles(was) } else { 0 };
    if on && troubles(is) > known {
        return worse(
            "errors",
            format!(
                "{} errors of cache disks, {} failed proofs, {} reads given up, {} data files that somebody else changed",
                is.device_errors, is.failed_proofs, is.reads_given_up, is.audit_suspicions
            ),
        );
    }
    let (threads, usual) = (after.threads_running, before.threads_running);
    if are_piled_up(threads, usual) {
        return worse(
            "threads",
            format!("{threads:.0} threads run at a time, {usual:.0} before"),
        );
    }
    let many = |figures: &Figures, rate: f64| rate * figures.interval_s >= MIN_READS;
    if let (true, Some(cache), Some(data)) = (on, &is.cache_read_us, &is.data_read_us) {
        let of_both = many(is, is.cache_reads_per_s) && many(is, is.data_reads_per_s);
        if of_both && cache.p50 > MAX_LATENCY_RATIO * data.p50 {
            return worse(
                "cache-latency",
                format!(
                    "a read of the cache takes {:.0} us, one of the data disk {:.0} us (p50)",
                    cache.p50, data.p50
                ),
            );
        }
    }
    if let (Some(earlier), Some(later)) = (&was.data_read_us, &is.data_read_us) {
        let of_both = many(was, was.data_reads_per_s) && many(is, is.data_reads_per_s);
        if of_both && later.p95 > MAX_LATENCY_RATIO * earlier.p95 {
            return worse(
                "data-latency",
                format!(
                    "a read of the data disk takes {:.0} us, {:.0} us before (p95)",
                    later.p95, earlier.p95
                ),
            );
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::group::tests::replica;
    use super::super::warmth::Warmth;
    use super::*;
    use crate::observe::Quantiles;
    use crate::observe::figures_tests::sample;

    fn window(state: &str) -> Window {
        let start = Instant::now();
        let mut of = Figures::between(&sample(start, 0, &[]), &sample(start, 10_000, &[]));
        of.state = state.to_owned();
        Window {
            figures: of,
            threads_running: 4.0,
            seen: NodeState {
                membership: replica(1, 9),
                warmth: Warmth::default(),
            },
        }
    }

    fn figure(before: &Window, after: &Window) -> Option<&'static str> {
        judge(before, after, true, 10.0).map(|worse| worse.figure)
    }

    #[test]
    fn what_makes_a_server_worse_off() {
        let (before, after) = (window("disabled"), window("active"));
        assert_eq!(figure(&before, &after), None);
        assert_eq!(figure(&before, &window("passive")), Some("state"));
        let changed = |change: fn(&mut Window)| {
            let mut after = after.clone();
            change(&mut after);
            figure(&before, &after)
        };
        assert_eq!(
            changed(|after| after.seen.membership.in_step = false),
            Some("replication")
        );
        assert_eq!(
            changed(|after| after.seen.membership.lag_s = Some(30.0)),
            Some("lag")
        );
        let late_on_purpose = |after: &mut Window| {
            after.seen.membership.delay_s = 3600;
            after.seen.membership.lag_s = Some(3605.0);
        };
        assert_eq!(changed(late_on_purpose), None);
        let mut earlier = before.clone();
        earlier.figures.uptime_s = 1000;
        let mut later = after.clone();
        later.figures.uptime_s = 12;
        assert_eq!(figure(&earlier, &later), Some("restart"));
        assert_eq!(
            changed(|after| after.figures.device_errors = 1),
            Some("errors")
        );
        assert_eq!(changed(|after| after.threads_running = 7.0), None);
        assert_eq!(
            changed(|after| after.threads_running = 9.0),
            Some("threads")
        );
        // A lower statement rate and no hits yet do not count.
        assert_eq!(
            changed(|after| {
                after.figures.qps = 0.0;
                after.figures.hit_ratio_percent = Some(0.0);
            }),
            None
        );
        let slow = |after: &mut Window| {
            let quantiles = |us| {
                Some(Quantiles {
                    p50: us,
                    p95: us,
                    p99: us,
                })
            };
            after.figures.interval_s = 10.0;
            after.figures.cache_reads_per_s = 100.0;
            after.figures.data_reads_per_s = 100.0;
            after.figures.cache_read_us = quantiles(900.0);
            after.figures.data_read_us = quantiles(400.0);
        };
        assert_eq!(changed(slow), Some("cache-latency"));
        let mut earlier = after.clone();
        slow(&mut earlier);
        earlier.figures.cache_read_us = None;
        let mut later = earlier.clone();
        later.figures.data_read_us = Some(Quantiles {
            p50: 900.0,
            p95: 900.0,
            p99: 900.0,
        });
        assert_eq!(figure(&earlier, &later), Some("data-latency"));
    }
}
