//! Measurements: the content of `cluster.json`, the source of table and report.

use serde::{Deserialize, Serialize};

use super::load::{REQUEST_TIMEOUT, Request};
use super::name::ClusterName;
use super::plan::{ClusterPlan, IOPS, Standby};
use crate::report::Environment;
use crate::sysbench::settled::recovery;

/// Percent of the previous throughput that counts as recovered.
pub const THROUGHPUT: f64 = 95.0;
/// Target for a warm standby: seconds from the promotion until recovery.
pub const WITHIN: f64 = 10.0;
/// Seconds evaluated after the promotion.
pub const MINUTE: f64 = 60.0;
/// Minimum free processor time, percent. Below it, the machine is the limit and the run proves nothing.
pub const FREE: f64 = 10.0;

/// All failovers of one demonstration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figures {
    #[serde(flatten)]
    pub environment: Environment,
    pub cluster: ClusterName,
    /// Server options that form the cluster.
    pub options: Vec<String>,
    /// Bytes.
    pub pool: u64,
    pub data: u64,
    pub cache: u64,
    /// I/Os per second of each volume.
    pub iops: u64,
    /// The load in words, and its requested statements per second.
    pub load: String,
    pub wanted: f64,
    pub failovers: Vec<Failover>,
}

/// One failover. Times are in seconds since the promotion.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Failover {
    pub standby: Standby,
    /// Time of the kill: a negative number.
    pub killed: f64,
    /// Statements per second before the kill: the median of the measured seconds.
    pub qps_before: f64,
    /// 95th percentile of the latency, milliseconds. Lost requests count as [`REQUEST_TIMEOUT`].
    pub p95_before: Option<f64>,
    pub p95_after: Option<f64>,
    /// When the throughput reached [`THROUGHPUT`] percent again.
    pub back: Option<f64>,
    /// Unanswered statements due between kill and promotion, and in the minute after the promotion.
    pub lost_to_the_outage: u64,
    pub lost_to_slowness: u64,
    /// Reads of the standby's data volume in the minute after the promotion.
    pub disk_reads: u64,
    /// Percent of InnoDB's reads that the extension served: on the old primary, and on the new one in its first ten seconds.
    pub hits_before: Option<f64>,
    pub hits_after: Option<f64>,
    /// Percent of free processor time before the kill, and in the minute after the promotion.
    pub free_before: Option<f64>,
    pub free_after: Option<f64>,
    pub keeping: Option<Keeping>,
    pub curve: Vec<Second>,
}

/// Cost of keeping the standby warm, in the seconds measured before the kill.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Keeping {
    /// Seconds until it was first warm, and the cost of that.
    pub first_seconds: f64,
    pub first_reads: u64,
    pub first_bytes: u64,
    /// `Bpe_warm_percent` when the primary was killed.
    pub percent: f64,
    /// The duration of the measurements below.
    pub seconds: f64,
    /// Reads of the standby's data volume by the warming, and their bytes.
    pub reads: u64,
    pub bytes: u64,
    /// All I/Os of that volume, and its capacity.
    pub volume_ios: u64,
    pub volume_could: u64,
    /// Statements of the warming on the primary, and all statements of the primary.
    pub statements: u64,
    pub primary_statements: u64,
}

/// One second of the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Second {
    /// Its end.
    pub t: f64,
    /// Statements answered in it.
    pub qps: f64,
    /// 95th percentile of the requests due in it.
    pub p95_ms: Option<f64>,
}

/// Moments of the load's clock.
#[derive(Clone, Copy, Debug)]
pub struct Moments {
    /// When measuring began.
    pub begun: f64,
    pub killed: f64,
    pub promoted: f64,
    pub ended: f64,
}

impl Figures {
    /// Everything known before the first failover.
    pub fn begin(plan: &ClusterPlan, environment: Environment, options: Vec<String>) -> Figures {
        Figures {
            environment,
            cluster: plan.name,
            options,
            pool: plan.size.pool,
            data: 0,
            cache: plan.size.cache,
            iops: IOPS,
            load: plan.demand.description(plan.size.tables()),
            wanted: plan.demand.statements(),
            failovers: Vec::new(),
        }
    }

    /// The failover with this standby.
    pub fn of(&self, standby: Standby) -> Option<&Failover> {
        self.failovers.iter().find(|one| one.standby == standby)
    }
}

impl Failover {
    /// Evaluates the requests of the load.
    pub fn of_requests(standby: Standby, requests: &[Request], at: Moments) -> Failover {
        let curve = curve(requests, at);
        let measured: Vec<f64> = curve
            .iter()
            .filter(|one| one.t - 1.0 >= at.begun - at.promoted && one.t <= at.killed - at.promoted)
            .map(|one| one.qps)
            .collect();
        let qps_before = median(measured).unwrap_or(0.0);
        let due = |from: f64, to: f64| {
            requests
                .iter()
                .filter(move |one| one.due >= from && one.due < to)
        };
        let lost = |from, to| {
            let lost = due(from, to).filter(|one| one.answered.is_none());
            lost.map(|one| u64::from(one.statements)).sum()
        };
        let minute = (at.promoted + MINUTE).min(at.ended - REQUEST_TIMEOUT.as_secs_f64());
        Failover {
            standby,
            killed: at.killed - at.promoted,
            qps_before,
            p95_before: p95(due(at.begun, at.killed - REQUEST_TIMEOUT.as_secs_f64())),
            p95_after: p95(due(at.promoted, minute)),
            back: back(&curve, qps_before),
            lost_to_the_outage: lost(at.killed - REQUEST_TIMEOUT.as_secs_f64(), at.promoted),
            lost_to_slowness: lost(at.promoted, minute),
            disk_reads: 0,
            hits_before: None,
            hits_after: None,
            free_before: None,
            free_after: None,
            keeping: None,
            curve,
        }
    }

    /// Whether the processors were the limit, so that the result proves nothing.
    pub fn is_void(&self) -> bool {
        [self.free_before, self.free_after]
            .iter()
            .any(|free| free.is_some_and(|free| free < FREE))
    }

    /// Seconds from the kill until the throughput recovered.
    pub fn back_since_the_kill(&self) -> Option<f64> {
        Some(self.back? - self.killed)
    }
}

/// Returns the whole seconds around the promotion.
fn curve(requests: &[Request], at: Moments) -> Vec<Second> {
    let first = (at.begun - at.promoted).ceil() as i64;
    let last = (at.ended - at.promoted).floor() as i64;
    let mut curve: Vec<Second> = (first..last)
        .map(|second| Second {
            t: (second + 1) as f64,
            ..Second::default()
        })
        .collect();
    let index = |t: f64| {
        let index = (t - at.promoted).floor() as i64 - first;
        usize::try_from(index).ok()
    };
    let mut due: Vec<Vec<&Request>> = vec![Vec::new(); curve.len()];
    for request in requests {
        let answered = request.answered.and_then(index);
        if let Some(second) = answered.and_then(|index| curve.get_mut(index)) {
            second.qps += f64::from(request.statements);
        }
        if let Some(of) = index(request.due).and_then(|index| due.get_mut(index)) {
            of.push(request);
        }
    }
    for (second, due) in curve.iter_mut().zip(due) {
        second.p95_ms = p95(due.into_iter());
    }
    curve
}

/// 95th percentile of all requests. Lost ones count as [`REQUEST_TIMEOUT`], their minimum.
fn p95<'a>(requests: impl Iterator<Item = &'a Request>) -> Option<f64> {
    let lost = REQUEST_TIMEOUT.as_secs_f64() * 1000.0;
    let mut took: Vec<f64> = requests
        .map(|one| one.answered.map_or(lost, |at| (at - one.due) * 1000.0))
        .collect();
    let index = (took.len() * 95).div_ceil(100).checked_sub(1)?;
    let (_, value, _) = took.select_nth_unstable_by(index, f64::total_cmp);
    Some(*value)
}

/// When the throughput after the promotion reached [`THROUGHPUT`] percent of that before.
fn back(curve: &[Second], before: f64) -> Option<f64> {
    let after = curve.iter().filter(|one| one.t > 0.0);
    recovery(
        after.map(|one| (one.t, one.qps)),
        before * THROUGHPUT / 100.0,
    )
}

/// The median.
fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten requests per second for 30 seconds. The primary dies at 10 and is replaced at 13. The new one answers half of its
    /// requests until 17, and then all.
    fn failover() -> Failover {
        let requests: Vec<Request> = (0..300)
            .map(|number| {
                let due = f64::from(number) / 10.0;
                let is_answered = match due {
                    due if due < 10.0 => true,
                    due if due < 13.0 => false,
                    due if due < 17.0 => number % 2 == 0,
                    _ => true,
                };
                Request {
                    due,
                    answered: is_answered.then_some(due + 0.01),
                    statements: 2,
                }
            })
            .collect();
        let at = Moments {
            begun: 2.0,
            killed: 10.0,
            promoted: 13.0,
            ended: 30.0,
        };
        Failover::of_requests(Standby::Warm, &requests, at)
    }

    #[test]
    fn seconds_count_from_the_promotion() {
        let failover = failover();
        assert_eq!((failover.killed, failover.qps_before), (-3.0, 20.0));
        let first = failover.curve.first().unwrap();
        let last = failover.curve.last().unwrap();
        assert_eq!((first.t, last.t), (-10.0, 17.0));
        let at = |t: f64| failover.curve.iter().find(|one| one.t == t).unwrap().qps;
        assert_eq!(
            (at(-3.0), at(-1.0), at(1.0), at(6.0)),
            (20.0, 0.0, 10.0, 20.0)
        );
        assert_eq!(failover.back, Some(5.0));
        assert_eq!(failover.back_since_the_kill(), Some(8.0));
    }

    #[test]
    fn what_is_lost_has_a_reason() {
        let failover = failover();
        assert_eq!(failover.lost_to_the_outage, 60);
        assert_eq!(failover.lost_to_slowness, 40);
        assert!(failover.p95_before.unwrap() < 11.0);
        assert_eq!(failover.p95_after, Some(1000.0), "20 of 160 were lost");
    }

    #[test]
    fn a_busy_machine_shows_nothing() {
        let mut failover = failover();
        assert!(!failover.is_void());
        (failover.free_before, failover.free_after) = (Some(40.0), Some(FREE - 0.1));
        assert!(failover.is_void());
    }

    #[test]
    fn it_may_never_be_back() {
        let second = |t: u32, qps| Second {
            t: t.into(),
            qps,
            p95_ms: None,
        };
        let curve: Vec<Second> = (1..9)
            .map(|t| second(t, if t == 4 { 100.0 } else { 80.0 }))
            .collect();
        assert_eq!(back(&curve, 100.0), None);
        assert_eq!(back(&[], 100.0), None);
    }
}
