//! The load of an experience: one of the reference's three tests by sysbench, or the user's statements.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use bpe::connection::{Target, plain};

use crate::sysbench::{Interval, Sysbench, Tables, Workload};

/// The database with the tables of the tests; their names and structure are sysbench's.
pub const DATABASE: &str = "sbtest";
/// Deadlock and lock wait timeout: normal under load, counted as a statement with its duration.
const EXPECTED_ERRORS: [u16; 2] = [1213, 1205];
/// Timeout of a statement, and of the end of a run.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// Name of sysbench's output files.
const LOG: &str = "experience";
/// Maximum latencies kept per second. Further statements count, but do not affect the quantile.
const MAX_LATENCIES: usize = 1 << 20;

/// sysbench and its environment.
pub struct Bench {
    pub program: PathBuf,
    pub socket: PathBuf,
    pub user: String,
    /// Tables of sysbench's tests, or the reason why the tests cannot run.
    pub tables: Result<Tables, String>,
    /// Directory for its outputs.
    pub logs: PathBuf,
}

pub enum Load<'a> {
    Test(&'a Bench, Tables, Workload),
    Statements(&'a Target, Vec<String>),
}

/// Statements a second and the 95th percentile of their latency (sysbench: of transactions) over a time.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Side {
    pub qps: f64,
    pub p95_ms: f64,
}

impl Load<'_> {
    /// Runs the load for `seconds`. `each` receives every second as it passes, and may end the load; the result is then
    /// `None`.
    ///
    /// # Errors
    /// The load fails; the error has sysbench's or the server's message.
    pub fn run(
        &self,
        threads: u64,
        seconds: u64,
        each: &mut dyn FnMut(&Interval) -> ControlFlow<()>,
    ) -> Result<Option<Side>> {
        match self {
            Load::Test(bench, tables, workload) => {
                let sysbench = Sysbench {
                    program: &bench.program,
                    socket: &bench.socket,
                    user: &bench.user,
                    tables: *tables,
                    prepares: true,
                    logs: &bench.logs,
                };
                let each = &mut |interval: &Interval| Ok(each(interval));
                let (_, summary) = sysbench.run_with(*workload, threads, seconds, LOG, each)?;
                Ok(summary.map(|summary| Side {
                    qps: summary.qps,
                    p95_ms: summary.p95_ms,
                }))
            }
            Load::Statements(target, statements) => {
                repeat(target, statements, threads, seconds, each)
            }
        }
    }
}

/// Work of the clients in the current second.
#[derive(Default)]
struct Second {
    statements: u64,
    milliseconds: Vec<f32>,
}

/// Runs this many clients, each of which executes the statements in turn, repeatedly.
fn repeat(
    target: &Target,
    statements: &[String],
    threads: u64,
    seconds: u64,
    each: &mut dyn FnMut(&Interval) -> ControlFlow<()>,
) -> Result<Option<Side>> {
    let over = AtomicBool::new(false);
    let now = Mutex::new(Second::default());
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let client = |number: u64| {
        let result = run_client(target, statements, number, &over, &now);
        if let Err(error) = result {
            over.store(true, Ordering::SeqCst);
            failed
                .lock()
                .unwrap_or_else(|e| e.into_inner())
                .get_or_insert(error);
        }
    };
    let mut sum = Sum::default();
    let mut ended_early = false;
    std::thread::scope(|scope| -> Result<()> {
        for number in 0..threads {
            let client = &client;
            std::thread::Builder::new()
                .name("client".into())
                .spawn_scoped(scope, move || client(number))
                .inspect_err(|_| over.store(true, Ordering::SeqCst))
                .context("cannot start a thread")?;
        }
        let begun = Instant::now();
        let mut since = begun;
        while begun.elapsed() < Duration::from_secs(seconds) && !over.load(Ordering::SeqCst) {
            let next = begun + next_tick(begun.elapsed()).min(Duration::from_secs(seconds));
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let second = std::mem::take(&mut *now.lock().unwrap_or_else(|e| e.into_inner()));
            let now = Instant::now();
            let took = (now - since).as_secs_f64();
            since = now;
            let interval = Interval {
                t: (now - begun).as_secs_f64().round(),
                qps: second.statements as f64 / took,
                p95_ms: quantile(second.milliseconds, 0.95),
            };
            sum.add(second.statements, took, interval.p95_ms);
            let go_on = each(&interval);
            if go_on.is_break() {
                ended_early = true;
                break;
            }
        }
        over.store(true, Ordering::SeqCst);
        Ok(())
    })?;
    if let Some(error) = failed.into_inner().unwrap_or_else(|e| e.into_inner()) {
        bail!("{error}");
    }
    Ok(sum.side().filter(|_| !ended_early))
}

/// Returns the end of the second at this moment, or of the next one if less than half of it is left. A thread that wakes up
/// late skips the missed part, so it never measures tiny intervals.
fn next_tick(elapsed: Duration) -> Duration {
    let next = Duration::from_secs(elapsed.as_secs() + 1);
    if next - elapsed < Duration::from_millis(500) {
        next + Duration::from_secs(1)
    } else {
        next
    }
}

/// Totals over the intervals of a run. An interval is about one second, and the lengths differ.
#[derive(Default)]
struct Sum {
    statements: u64,
    seconds: f64,
    /// Sum over the seconds in which a statement ended.
    p95: f64,
    busy: u64,
}

impl Sum {
    fn add(&mut self, statements: u64, seconds: f64, p95_ms: f64) {
        self.statements += statements;
        self.seconds += seconds;
        if statements > 0 {
            self.p95 += p95_ms;
            self.busy += 1;
        }
    }

    fn side(&self) -> Option<Side> {
        (self.seconds > 0.0).then(|| Side {
            qps: self.statements as f64 / self.seconds,
            p95_ms: self.p95 / self.busy.max(1) as f64,
        })
    }
}

fn run_client(
    target: &Target,
    statements: &[String],
    number: u64,
    over: &AtomicBool,
    now: &Mutex<Second>,
) -> Result<(), String> {
    let mut connection = target
        .clone()
        .connect(Some(STATEMENT_TIMEOUT))
        .map_err(|failure| failure.to_string())?;
    // The clients start with different statements.
    let mut at = number as usize % statements.len();
    while !over.load(Ordering::Relaxed) {
        let begun = Instant::now();
        match connection.execute(&statements[at]) {
            Err(mysql::Error::MySqlError(error)) if EXPECTED_ERRORS.contains(&error.code) => {}
            Err(error) => return Err(format!("{} (statement: {})", plain(&error), statements[at])),
            Ok(()) => {}
        }
        let took = begun.elapsed().as_secs_f32() * 1000.0;
        let mut second = now.lock().unwrap_or_else(|e| e.into_inner());
        second.statements += 1;
        if second.milliseconds.len() < MAX_LATENCIES {
            second.milliseconds.push(took);
        }
        drop(second);
        at = (at + 1) % statements.len();
    }
    Ok(())
}

fn quantile(mut values: Vec<f32>, share: f64) -> f64 {
    values.sort_by(f32::total_cmp);
    let at = (values.len() as f64 * share).ceil() as usize;
    values
        .get(at.saturating_sub(1))
        .map_or(0.0, |value| f64::from(*value))
}

/// Means over seconds; the latency only over seconds that have one. `None` if there are no seconds.
pub fn mean<'a>(intervals: impl Iterator<Item = &'a Interval>) -> Option<Side> {
    let (mut count, mut busy, mut qps, mut p95) = (0.0, 0.0_f64, 0.0, 0.0);
    for interval in intervals {
        count += 1.0;
        qps += interval.qps;
        if interval.qps > 0.0 {
            busy += 1.0;
            p95 += interval.p95_ms;
        }
    }
    (count > 0.0).then(|| Side {
        qps: qps / count,
        p95_ms: p95 / busy.max(1.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_and_means() {
        assert_eq!(quantile((1..=100).map(|n| n as f32).collect(), 0.95), 95.0);
        assert_eq!(quantile(vec![], 0.95), 0.0);
        assert_eq!(quantile(vec![7.0], 0.95), 7.0);
        let second = |qps| Interval {
            t: 0.0,
            qps,
            p95_ms: 2.0,
        };
        assert_eq!(
            mean([second(10.0), second(30.0)].iter()),
            Some(Side {
                qps: 20.0,
                p95_ms: 2.0
            })
        );
        assert_eq!(mean([].iter()), None);
        let idle = Interval::default();
        let half = mean([second(10.0), idle].iter()).unwrap();
        assert_eq!((half.qps, half.p95_ms), (5.0, 2.0));
    }

    #[test]
    fn sums_are_of_statements_and_time() {
        let mut sum = Sum::default();
        assert_eq!(sum.side(), None);
        sum.add(100, 1.0, 4.0);
        // A late timer: a rate of one million for a microsecond is one statement.
        sum.add(1, 0.000_001, 8.0);
        sum.add(0, 1.0, 0.0);
        let side = sum.side().unwrap();
        assert!((side.qps - 50.5).abs() < 0.01, "{side:?}");
        assert_eq!(side.p95_ms, 6.0);
    }

    #[test]
    fn missed_ticks_are_skipped() {
        let ms = Duration::from_millis;
        for (now, next) in [(0, 1), (1, 1), (1000, 2), (1499, 2), (1900, 3), (7200, 8)] {
            assert_eq!(next_tick(ms(now)), Duration::from_secs(next), "{now}");
        }
    }
}
