//! Runs a comparison on a production server.
//!
//! One connection turns the switch, polls once a second, and restores everything. If it is lost, a new connection
//! restores. If this process is killed, the server ends bypass after `bpe_bypass_timeout`, which is a few seconds
//! longer than a slice.

use std::thread::sleep;
use std::time::{Duration, Instant};

use super::limit::{Hurt, Limit, Second};
use super::measurement::Slice;
use super::options::CompareOptions;
use super::report::{Comparison, ENOUGH, Ended, Found, Row, rows};
use super::saved_settings::SavedSettings;
use super::schedule::{Schedule, Side};
use super::{checks, notes};
use crate::connect::Target;
use crate::observe::{Figures, Observer, Sample};
use crate::support::failure::Failure;

/// Seconds of monitoring before the first slice, for a baseline of the unchanged server.
const WATCHED: u64 = 5;
/// Interval between checks for a stop request.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum replication lag in seconds.
const MAX_LAG: u64 = 30;

/// One second of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Starts at 1; 0 during the baseline.
    pub pair: usize,
    pub side: Side,
    pub statements_per_s: f64,
}

/// Receives the progress, and may stop the comparison.
pub trait Audience {
    fn second(&mut self, _now: &Now) {}

    /// A pair is complete.
    fn pair(&mut self, _so_far: &Comparison) {}

    fn is_interrupted(&self) -> bool;
}

/// Why it ended early.
enum Early {
    Interrupted,
    Hurt(f64, Hurt),
    Failed(Failure),
}

impl From<Failure> for Early {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Runs a comparison. An early end also returns the results so far; see [`Comparison::ended`] and [`Comparison::why`].
///
/// # Errors
/// It was refused before any change, or the original state could not be restored.
pub fn run(
    target: Target,
    wish: &CompareOptions,
    audience: &mut dyn Audience,
) -> Result<Comparison, Failure> {
    let mut observer = Observer::of(target);
    let server = observer.server()?;
    let checked = checks::check(server)?;
    let name = format!(
        "{} {}, {}",
        server.flavour, server.version_text, server.address
    );
    let began = Instant::now();
    let mut run = Runner {
        wish,
        audience,
        limit: Limit::new(wish.limit),
        name,
        began,
        pairs: Vec::new(),
        last: None,
    };
    // Nothing has changed yet, so every error is a refusal.
    match run.watch(&mut observer) {
        Ok(()) => {}
        Err(Early::Failed(failure)) => return Err(failure),
        Err(_) => return Err(Failure::refused("stopped before anything was changed")),
    }
    let mut held = SavedSettings::take(&mut observer, &checked, wish)?;
    let result = run.all(&mut held);
    let restored = held.put_back();
    let mut report = run.report();
    report.notes.extend(notes::of_timeout(&checked.timeout));
    report.ended = match result {
        Ok(()) => Ended::Complete,
        Err(Early::Interrupted) => {
            report.why = Some("it was told to stop".to_owned());
            Ended::Interrupted
        }
        Err(Early::Hurt(after, hurt)) => {
            report.hurt(after, hurt);
            Ended::BypassHurt
        }
        Err(Early::Failed(failure)) => {
            report.why = Some(failure.what);
            Ended::Failed
        }
    };
    if let Err(missing) = restored {
        report.ended = Ended::Failed;
        report.why = Some(match report.why {
            Some(why) => format!("{why}; {missing}"),
            None => missing,
        });
    }
    Ok(report)
}

struct Runner<'a> {
    wish: &'a CompareOptions,
    audience: &'a mut dyn Audience,
    limit: Limit,
    name: String,
    began: Instant,
    /// Serving and bypass slices, in measured order.
    pairs: Vec<(Slice, Slice)>,
    /// The newest reading while serving.
    last: Option<Figures>,
}

impl Runner<'_> {
    /// Takes the baseline. Refuses an idle server.
    fn watch(&mut self, observer: &mut Observer) -> Result<(), Early> {
        let mut readings = vec![observer.sample()?];
        let begin = Instant::now();
        for second in 1..=WATCHED {
            self.wait_until(begin + Duration::from_secs(second))?;
            readings.push(observer.sample()?);
            self.tell(0, Side::Serving, &readings);
        }
        let (first, last) = (&readings[0], &readings[readings.len() - 1]);
        checks::check_load(first, last, readings.len() - 1)?;
        self.serving(&readings);
        Ok(())
    }

    fn all(&mut self, held: &mut SavedSettings<'_>) -> Result<(), Early> {
        let order = Schedule::new(fastrand::bool).take(self.wish.pairs);
        for (number, sides) in order.enumerate() {
            let behind = checks::seconds_behind(held.server()?);
            if let Some(behind) = behind.filter(|behind| *behind > MAX_LAG) {
                return Err(
                    Failure::step(format!("this replica has fallen {behind} s behind")).into(),
                );
            }
            let [first, second] = sides;
            let one = self.slice(held, number + 1, first)?;
            let other = self.slice(held, number + 1, second)?;
            self.pairs.push(match first {
                Side::Serving => (one, other),
                Side::Bypass => (other, one),
            });
            let so_far = self.report();
            self.audience.pair(&so_far);
        }
        Ok(())
    }

    fn slice(
        &mut self,
        held: &mut SavedSettings<'_>,
        pair: usize,
        side: Side,
    ) -> Result<Slice, Early> {
        held.switch(side)?;
        let begin = Instant::now();
        let mut readings = vec![held.sample()?];
        let mut seconds = Vec::new();
        for second in 1..=self.wish.slice {
            self.wait_until(begin + Duration::from_secs(second))?;
            let reading = held.sample()?;
            held.expect(side, &reading)?;
            seconds.push(second_of(&readings[readings.len() - 1], &reading));
            readings.push(reading);
            self.tell(pair, side, &readings);
            if side == Side::Bypass {
                if let Some(hurt) = self.limit.exceeded(&seconds) {
                    return Err(Early::Hurt(begin.elapsed().as_secs_f64(), hurt));
                }
            }
        }
        // Requests that waited or were read ahead at the switch belong to the previous slice.
        readings.remove(0);
        if side == Side::Serving {
            self.serving(&readings);
        }
        Slice::of(&readings).ok_or_else(|| Failure::step("the slice is too short").into())
    }

    /// Records the server's performance while serving.
    fn serving(&mut self, readings: &[Sample]) {
        if let (Some(slice), [first, .., last]) = (Slice::of(readings), readings) {
            self.limit.served(Second {
                seconds: (last.taken - first.taken).as_secs_f64(),
                statements_per_s: slice.statements_per_s(),
                threads_running: slice.threads_running(),
            });
            self.last = Some(Figures::between(first, last));
        }
    }

    fn tell(&mut self, pair: usize, side: Side, readings: &[Sample]) {
        if let [.., before, now] = readings {
            self.audience.second(&Now {
                pair,
                side,
                statements_per_s: second_of(before, now).statements_per_s,
            });
        }
    }

    fn wait_until(&self, end: Instant) -> Result<(), Early> {
        loop {
            if self.audience.is_interrupted() {
                return Err(Early::Interrupted);
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            sleep(left.min(POLL_INTERVAL));
        }
    }

    fn report(&self) -> Comparison {
        let figures = rows(&self.pairs);
        Comparison {
            server: self.name.clone(),
            ended: Ended::Complete,
            why: None,
            verdict: figures.first().map_or(Found::TooFewPairs, verdict),
            pairs: self.pairs.len() as u64,
            pairs_wanted: self.wish.pairs as u64,
            pairs_for_a_verdict: ENOUGH as u64,
            slice_s: self.wish.slice,
            seconds: self.began.elapsed().as_secs_f64(),
            refill: self.wish.refill,
            hurt_after_s: None,
            hurt_percent: None,
            notes: notes::of(self.wish, self.last.as_ref(), &figures),
            figures,
        }
    }
}

fn verdict(statements: &Row) -> Found {
    statements.found
}

fn second_of(before: &Sample, now: &Sample) -> Second {
    let figures = Figures::between(before, now);
    Second {
        seconds: figures.interval_s,
        statements_per_s: figures.qps,
        threads_running: figures.threads_running as f64,
    }
}
