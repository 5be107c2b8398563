//! One test: sysbench, with counters read at the beginning and the end of the measured time.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Context, Result};

use super::super::args::Workload;
use super::super::plan::Times;
use super::super::progress::Stage;
use super::super::rig::live;
use super::super::sysbench::{Interval, Summary, Sysbench};

/// Result of a test. `C` are the counters of the locks.
pub struct Measured<C> {
    /// Statements per second, without the lead.
    pub qps: f64,
    /// sysbench's own summary, including the lead.
    pub summary: Summary,
    /// Seconds between the two readings.
    pub seconds: f64,
    pub before: C,
    pub after: C,
}

/// Runs `workload` for lead and test in one process: each start of sysbench prepares thousands of statements, which takes
/// longer than the lead. Reads the counters when the lead is over and at the end.
///
/// # Errors
/// sysbench or a reading fails.
pub fn measure<C>(
    sysbench: &Sysbench,
    workload: Workload,
    times: Times,
    log: &str,
    stage: &Stage,
    mut read: impl FnMut() -> Result<C>,
) -> Result<Measured<C>> {
    let (lead, end) = (times.lead as f64, (times.lead + times.test) as f64);
    let mut before: Option<(Instant, C)> = None;
    let mut after: Option<(Instant, C)> = None;
    let (intervals, summary) =
        sysbench.run(workload, times.lead + times.test, log, &mut |interval| {
            if before.is_none() && interval.t >= lead {
                before = Some((Instant::now(), read()?));
            }
            if after.is_none() && interval.t >= end {
                after = Some((Instant::now(), read()?));
            }
            stage.message(&live(interval));
            Ok(ControlFlow::Continue(()))
        })?;
    let summary = summary.context("the test ended early")?;
    let (begun, before) = before.context("sysbench told of no second of the test")?;
    // sysbench does not always report the last second.
    let (ended, after) = match after {
        Some(after) => after,
        None => (Instant::now(), read()?),
    };
    Ok(Measured {
        qps: mean(&intervals, lead, end).unwrap_or(summary.qps),
        summary,
        seconds: (ended - begun).as_secs_f64(),
        before,
        after,
    })
}

/// Mean QPS of the seconds that end after `lead` and by `end`.
fn mean(intervals: &[Interval], lead: f64, end: f64) -> Option<f64> {
    let counted: Vec<f64> = intervals
        .iter()
        .filter(|interval| interval.t > lead && interval.t <= end)
        .map(|interval| interval.qps)
        .collect();
    (!counted.is_empty()).then(|| counted.iter().sum::<f64>() / counted.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lead_does_not_count() {
        let second = |t, qps| Interval {
            t,
            qps,
            p95_ms: 0.0,
        };
        let seconds = [
            second(1.0, 10.0),
            second(2.0, 100.0),
            second(3.0, 200.0),
            second(4.0, 1.0),
        ];
        assert_eq!(mean(&seconds, 1.0, 3.0), Some(150.0));
        assert_eq!(mean(&seconds, 9.0, 12.0), None);
    }
}
