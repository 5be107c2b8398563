//! Executes a run, in a dedicated thread.

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use bpe::change::switch;
use bpe::console::{Level, now_ms, shortened};
use bpe::failure::Failure;
use bpe::notifier::Notifier;
use bpe::server::Server;
use bpe::state::state;

use super::load::{Load, Side, mean};
use super::run::{Mode, Phase, Point, State, Work};
use super::state::Experience;
use crate::sysbench::Interval;
use crate::sysbench::settled::Rule;

/// Seconds of uncounted load before each measured phase.
const LEAD: u64 = 3;
/// Maximum seconds for filling the cache. The minimum is the length of a phase.
const MAX_WARM: u64 = 150;
/// Filling ends when the hit ratio meets this rule.
const FILLED: Rule = Rule {
    window: 5,
    rise: 1.0,
};
/// Timeout for the switch while another change is in progress.
const SWITCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Checks the server's prerequisites for a comparison, which operates the switch.
///
/// # Errors
/// The missing prerequisite.
pub fn check(server: &mut Server) -> Result<(), Failure> {
    let variables = server.variables("bpe\\_%")?;
    let unset = |name: &str| {
        variables
            .get(name)
            .is_none_or(|value| value.is_empty() || value == "0")
    };
    if unset("bpe_path") || unset("bpe_size") {
        return Err(
            Failure::refused("the extension has no path and size on this server yet, so a comparison cannot switch it on")
                .advise("switch it on once in the console"),
        );
    }
    Ok(())
}

/// Discards progress messages: the points have the phase.
struct Silent;

impl Notifier for Silent {
    fn line(&mut self, _: &str) {}
}

impl Experience {
    /// Executes the started run, and stores the result.
    pub(super) fn run(&self, work: Work) {
        let result = caught(|| self.phases(work));
        let stopped = self.stop.load(Ordering::SeqCst);
        self.update(|run| {
            run.state = match &result {
                Ok(()) if stopped => State::Stopped,
                Ok(()) => State::Done,
                Err(error) => {
                    run.error = Some(shortened(format!("{error:#}")));
                    State::Failed
                }
            };
            if run.mode == Mode::Manual {
                let side = |enabled: bool| {
                    let seconds: Vec<_> = run
                        .points
                        .iter()
                        .filter(|point| point.enabled == enabled)
                        .map(interval)
                        .collect();
                    mean(seconds.iter())
                };
                (run.off, run.on) = (side(false), side(true));
            }
            run.gain_percent = gain(run.off, run.on);
        });
        if let Err(error) = &result {
            self.server
                .note(Level::Error, format!("the test failed: {error:#}"));
        }
        self.keep();
        self.server.show_run(None);
    }

    fn phases(&self, work: Work) -> Result<()> {
        let (mode, threads, seconds) = {
            let runs = self.runs();
            let run = runs.run.as_ref().context("no run was begun")?;
            (run.mode, run.threads, run.seconds)
        };
        let load = match work {
            Work::Statements(statements) => Load::Statements(self.server.target(), statements),
            Work::Test(workload) => {
                let bench = self.bench.as_ref().map_err(|why| anyhow!("{why}"))?;
                let tables = bench.tables.clone().map_err(|why| anyhow!("{why}"))?;
                Load::Test(bench, tables, workload)
            }
        };
        if mode == Mode::Manual {
            return self.phase(&load, Phase::Manual, threads, seconds).map(drop);
        }
        let was_on = self.is_on()?;
        let result = caught(|| self.compare(&load, threads, seconds));
        // Restores the switch after every outcome.
        if let Err(error) = self.restore(was_on) {
            let side = if was_on { "on" } else { "off" };
            self.server.note(
                Level::Error,
                format!(
                    "after the comparison the extension could not be switched {side} again, as it was before: {error:#}"
                ),
            );
        }
        result
    }

    fn compare(&self, load: &Load, threads: u64, seconds: u64) -> Result<()> {
        self.switch(false)?;
        let off = self.measured(load, Phase::Off, threads, seconds)?;
        if self.is_stopped() {
            self.update(|run| run.off = off);
            return Ok(());
        }
        self.expect(false)?;
        self.update(|run| run.off = off);
        self.switch(true)?;
        self.warm(load, threads, seconds)?;
        if self.is_stopped() {
            return Ok(());
        }
        let on = self.measured(load, Phase::On, threads, seconds)?;
        if !self.is_stopped() {
            self.expect(true)?;
        }
        self.update(|run| run.on = on);
        Ok(())
    }

    fn ask(&self) -> Result<Server> {
        self.server.open().map_err(|failure| anyhow!("{failure}"))
    }

    /// Whether the switch is on.
    fn is_on(&self) -> Result<bool> {
        let value = self
            .ask()?
            .variable("bpe_enabled")
            .map_err(|failure| anyhow!("{failure}"))?;
        Ok(value.as_deref() == Some("ON"))
    }

    fn restore(&self, was_on: bool) -> Result<()> {
        if self.is_on()? == was_on {
            return Ok(());
        }
        self.switch(was_on)
    }

    /// Fails if the extension was in the wrong state in a measured phase: another client may have switched it outside this
    /// console.
    fn expect(&self, on: bool) -> Result<()> {
        let (now, reason) = state(&mut self.ask()?).map_err(|failure| anyhow!("{failure}"))?;
        fits(on, &now, &reason)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Runs a phase after its lead. `None` if it was stopped.
    fn measured(
        &self,
        load: &Load,
        phase: Phase,
        threads: u64,
        seconds: u64,
    ) -> Result<Option<Side>> {
        self.update(|run| run.phase = Phase::Prepare);
        load.run(threads, LEAD, &mut |interval| {
            self.second(Phase::Prepare, interval)
        })?;
        if self.is_stopped() {
            return Ok(None);
        }
        self.phase(load, phase, threads, seconds)
    }

    fn phase(&self, load: &Load, phase: Phase, threads: u64, seconds: u64) -> Result<Option<Side>> {
        self.update(|run| run.phase = phase);
        load.run(threads, seconds, &mut |interval| {
            self.second(phase, interval)
        })
    }

    /// Runs the load until the hit ratio has stopped rising.
    fn warm(&self, load: &Load, threads: u64, seconds: u64) -> Result<()> {
        self.update(|run| run.phase = Phase::Warm);
        let mut ratios: Vec<f64> = Vec::new();
        let mut idle = 0;
        let least = seconds.min(MAX_WARM) as f64;
        load.run(threads, MAX_WARM, &mut |interval| {
            match self
                .server
                .latest()
                .and_then(|figures| figures.hit_ratio_percent)
            {
                Some(ratio) => {
                    ratios.push(ratio);
                    idle = 0;
                }
                // All pages are in InnoDB's pool.
                None => idle += 1,
            }
            let go_on = self.second(Phase::Warm, interval);
            if interval.t >= least
                && (idle >= 2 * FILLED.window || FILLED.is_met(ratios.iter().copied()))
            {
                return ControlFlow::Break(());
            }
            go_on
        })
        .map(drop)
    }

    /// Publishes a second to the pages.
    fn second(&self, phase: Phase, interval: &Interval) -> ControlFlow<()> {
        let enabled = self
            .server
            .latest()
            .is_some_and(|figures| figures.state == "active");
        let mut shown = None;
        self.update(|run| {
            let point = Point {
                run: run.id.clone(),
                at_ms: now_ms(),
                phase,
                qps: interval.qps,
                p95_ms: interval.p95_ms,
                enabled,
            };
            shown = serde_json::to_value(&point).ok();
            run.points.push(point);
        });
        self.server.show_run(shown);
        if self.is_stopped() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Operates the switch as the console does.
    fn switch(&self, on: bool) -> Result<()> {
        self.update(|run| run.phase = Phase::Prepare);
        let end = Instant::now() + SWITCH_TIMEOUT;
        let _changing = loop {
            match self.server.begin_change() {
                Some(changing) => break changing,
                None if Instant::now() > end => bail!("somebody else is changing the server"),
                None => std::thread::sleep(Duration::from_millis(200)),
            }
        };
        let mut server = self
            .server
            .open_to_change()
            .map_err(|failure| anyhow!("{failure}"))?;
        let reopen = || Err(Failure::step("not tried"));
        switch::plan(&mut server, on, None, None, &self.places)
            .and_then(|plan| plan.carry_out(&mut server, &mut Silent, &reopen))
            .map_err(|failure| anyhow!("switching {}: {failure}", if on { "on" } else { "off" }))
    }
}

/// Converts a panic to a failure of the run.
fn caught(work: impl FnOnce() -> Result<()>) -> Result<()> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| bail!("the console failed at this; its terminal shows where"))
}

fn fits(on: bool, state: &str, reason: &str) -> Result<()> {
    if (state == "active") == on {
        return Ok(());
    }
    let (state, reason) = match (state, reason) {
        ("", _) => ("not installed any more", String::new()),
        (state, "") => (state, String::new()),
        (state, reason) => (state, format!(" ({reason})")),
    };
    bail!(
        "the extension is {state}{reason} at the end of the measurement with it {}: the result would be none",
        if on { "on" } else { "off" }
    )
}

fn interval(point: &Point) -> Interval {
    Interval {
        t: 0.0,
        qps: point.qps,
        p95_ms: point.p95_ms,
    }
}

fn gain(off: Option<Side>, on: Option<Side>) -> Option<f64> {
    let (off, on) = (off?, on?);
    (off.qps > 0.0).then(|| (on.qps / off.qps - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_is_of_one_state() {
        assert!(fits(true, "active", "").is_ok() && fits(false, "disabled", "").is_ok());
        assert!(fits(false, "active", "").is_err());
        let text = fits(true, "passive", "no disk").unwrap_err().to_string();
        assert!(text.contains("passive (no disk)"), "{text}");
        assert!(fits(true, "", "").is_err());
    }

    #[test]
    fn a_panic_is_a_failure() {
        assert!(caught(|| Ok(())).is_ok());
        assert!(caught(|| panic!("on purpose")).is_err());
    }

    #[test]
    fn gains_are_of_off() {
        let side = |qps| Some(Side { qps, p95_ms: 1.0 });
        assert_eq!(gain(side(100.0), side(250.0)), Some(150.0));
        assert_eq!(gain(side(100.0), side(50.0)), Some(-50.0));
        assert_eq!(gain(side(0.0), side(50.0)), None);
        assert_eq!(gain(None, side(50.0)), None);
    }
}
