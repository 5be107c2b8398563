//! Bypass, off and on again under oltp_read_write. Bypass keeps the cache, and off empties it. One continuous load runs
//! through both.

use std::ops::ControlFlow;
use std::time::Instant;

use anyhow::{Context, Result};
use private_server::Server;
use serde::{Deserialize, Serialize};

use super::second::{Second, hit_ratio};
use crate::demo::bench::Bench;
use crate::demo::observer::Observer;
use crate::demo::rig::{Rig, live};
use crate::report::{Chart, Part, Table, number, percent};
use crate::sysbench::{Summary, Workload};

/// Seconds at the beginning for clients to connect and prepare their statements. No part includes them.
const LEAD: f64 = 1.0;

const NO_BYPASS: &str = "this bpe.so has no bpe_bypass: that part is left out";

/// Source of page reads, in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    #[default]
    Serving,
    Bypass,
    /// After bypass.
    ServingAgain,
    Off,
    /// After off, which emptied the cache.
    OnAgain,
}

/// Measurements.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Switching {
    pub seconds: Vec<Second>,
    /// In order; the first part has no statement.
    pub parts: Vec<Span>,
    pub summary: Summary,
}

/// The time between two switches. Means are over its seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Span {
    pub state: State,
    /// Seconds since the test began.
    pub t: f64,
    /// Duration of the statement that began it, milliseconds.
    pub took_ms: Option<f64>,
    pub seconds: usize,
    pub qps: f64,
    /// Percent of InnoDB's reads that the extension served: 0 in bypass.
    pub hit_ratio: f64,
    pub disk_reads_per_s: Option<f64>,
    /// The same for its first second.
    pub first_qps: f64,
    pub first_hit_ratio: f64,
}

/// An executed switch.
struct Switched {
    to: State,
    t: f64,
    took_ms: f64,
}

/// How a state begins and is presented.
struct Step {
    state: State,
    title: &'static str,
    /// Label at its beginning in a chart.
    mark: &'static str,
    /// Position of its statement in the test, fraction of the time.
    at: f64,
    statement: &'static str,
}

/// The test, in order. Nothing leads to the first state. Bypass refills, as in `bpe compare`: written pages stay in the cache.
#[rustfmt::skip]
const STEPS: [Step; 5] = [
    Step { state: State::Serving, title: "serving", mark: "serving", at: 0.0, statement: "" },
    Step { state: State::Bypass, title: "bypass", mark: "bypass", at: 0.2, statement: "SET GLOBAL bpe_bypass = REFILL" },
    Step { state: State::ServingAgain, title: "serving again", mark: "serving", at: 0.4, statement: "SET GLOBAL bpe_bypass = OFF" },
    Step { state: State::Off, title: "off", mark: "off", at: 0.6, statement: "SET GLOBAL bpe_enabled = OFF" },
    Step { state: State::OnAgain, title: "on again, empty", mark: "on", at: 0.75, statement: "SET GLOBAL bpe_enabled = ON" },
];

impl State {
    fn step(self) -> &'static Step {
        &STEPS[self as usize]
    }
}

/// The steps that this library supports, after the first one.
fn steps(bypass: bool) -> &'static [Step] {
    if bypass { &STEPS[1..] } else { &STEPS[3..] }
}

/// # Errors
/// A statement of the load or a switch fails.
pub fn run(bench: &Bench, rig: &mut Rig) -> Result<Switching> {
    let server = rig.server()?;
    let volume = rig.volume.as_ref();
    let bypass = !server.variables("bpe\\_bypass")?.is_empty();
    if !bypass {
        bench.progress.say(&format!("on: {NO_BYPASS}"));
    }
    let all = bench.plan.times.switch;
    let stage = bench.progress.stage("on: switching under load", all);
    let mut observer = Observer::new(server)?;
    let mut before = observer.snapshot(volume)?;
    let mut due = steps(bypass).iter().peekable();
    let mut switched: Vec<Switched> = Vec::new();
    let mut seconds: Vec<Second> = Vec::new();
    let name = bench.log_name("on-switching");
    let sysbench = bench.sysbench(server.socket());
    let (_, summary) = sysbench.run(Workload::ReadWrite, all, &name, &mut |interval| {
        let now = observer.snapshot(volume)?;
        let work = now.since(&before);
        before = now;
        seconds.push(Second::new(interval, &work));
        let is_due = |step: &&Step| interval.t >= step.at * all as f64;
        if let Some(to) = due.next_if(is_due) {
            switched.push(switch(server, to, interval.t)?);
            // Work during the switch belongs to neither part, and off resets the counters.
            before = observer.snapshot(volume)?;
        }
        let state = switched.last().map_or(State::Serving, |last| last.to);
        stage.message(&format!("{}: {}", state.step().title, live(interval)));
        Ok(ControlFlow::Continue(()))
    })?;
    let result = Switching {
        parts: parts(&seconds, &switched),
        seconds,
        summary: summary.context("the test ended early")?,
    };
    stage.finish(&format!("on: {}", result.switched()));
    Ok(result)
}

fn switch(server: &Server, to: &Step, t: f64) -> Result<Switched> {
    let begun = Instant::now();
    server.sql(to.statement)?;
    Ok(Switched {
        to: to.state,
        t,
        took_ms: begun.elapsed().as_secs_f64() * 1000.0,
    })
}

fn parts(seconds: &[Second], switched: &[Switched]) -> Vec<Span> {
    let begins = std::iter::once((State::Serving, LEAD, None));
    let begins = begins.chain(
        switched
            .iter()
            .map(|one| (one.to, one.t, Some(one.took_ms))),
    );
    let ends = switched.iter().map(|one| one.t).chain([f64::INFINITY]);
    begins
        .zip(ends)
        .map(|((state, t, took_ms), end)| {
            let of: Vec<Second> = seconds
                .iter()
                .filter(|one| one.t > t && one.t <= end)
                .copied()
                .collect();
            let first = of.first().copied().unwrap_or_default();
            let mean = |sum: f64| sum / of.len().max(1) as f64;
            let reads: Option<u64> = of.iter().map(|one| one.disk_reads).sum();
            Span {
                state,
                t,
                took_ms,
                seconds: of.len(),
                qps: mean(of.iter().map(|one| one.qps).sum()),
                hit_ratio: hit_ratio(&of),
                disk_reads_per_s: reads.map(|reads| mean(reads as f64)),
                first_qps: first.qps,
                first_hit_ratio: hit_ratio(&[first]),
            }
        })
        .collect()
}

impl Switching {
    /// Describes the duration of each switch.
    fn switched(&self) -> String {
        let took: Vec<String> = self
            .parts
            .iter()
            .filter_map(|part| {
                Some(format!(
                    "{} in {:.0} ms",
                    part.state.step().mark,
                    part.took_ms?
                ))
            })
            .collect();
        format!(
            "switched under load ({}), no statement failed",
            took.join(", ")
        )
    }

    fn span(&self, state: State) -> Option<&Span> {
        self.parts.iter().find(|part| part.state == state)
    }

    /// The part of the report.
    pub fn part(&self) -> Part {
        let mut table = Table::new(&[
            "oltp_read_write",
            "seconds",
            "QPS",
            "hit ratio",
            "disk reads/s",
            "QPS, first second",
            "hit ratio, first second",
        ]);
        for span in &self.parts {
            table.rows.push(vec![
                span.state.step().title.into(),
                number(Some(span.seconds as f64), 0),
                number(Some(span.qps), 0),
                percent(Some(span.hit_ratio), false, 1),
                number(span.disk_reads_per_s, 0),
                number(Some(span.first_qps), 0),
                percent(Some(span.first_hit_ratio), false, 1),
            ]);
        }
        let seconds = self.seconds.iter();
        let qps = Chart::throughput(
            Workload::ReadWrite.script(),
            seconds.clone().map(|one| (one.t, one.qps)),
        );
        let hits = Chart::hit_ratio(seconds.map(|one| (one.t, hit_ratio(&[*one]))));
        let switched = self.parts.iter().filter(|span| span.took_ms.is_some());
        let marks = switched.map(|span| (span.t, span.state.step().mark.to_owned()));
        let marked = |chart| Chart {
            marks: marks.clone().collect(),
            lead: LEAD,
            ..chart
        };
        Part {
            title: "Switching under load",
            table: Some(table),
            notes: self.notes(),
            charts: [qps, hits].map(marked).into(),
            ..Part::default()
        }
    }

    fn notes(&self) -> Vec<String> {
        let repeated = match self.summary.repeated {
            0 => String::new(),
            n => format!(" ({n} transactions were repeated after a deadlock, as is usual)"),
        };
        let mut words = self.switched();
        words[..1].make_ascii_uppercase();
        let mut notes = vec![format!("{words}{repeated}.")];
        let ratio = |of: f64| percent(Some(of), false, 1);
        let first = |state| Some(ratio(self.span(state)?.first_hit_ratio));
        let before = self.span(State::Serving).map(|part| ratio(part.hit_ratio));
        if let (Some(before), Some(first)) = (before, first(State::ServingAgain)) {
            notes.push(format!(
                "Bypass keeps what is cached: the hit ratio was {before} before it and {first} in the first second after it."
            ));
        }
        if self.span(State::Bypass).is_none() {
            notes.push(format!("Bypass: {NO_BYPASS}."));
        }
        if let Some(first) = first(State::OnAgain) {
            notes.push(format!(
                "Off empties the cache: the hit ratio was {first} in the first second after on."
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds: bypass after the third, serving again after the fifth, off after the seventh, on after the eighth.
    fn measured() -> Switching {
        let second = |t: u32, qps, hits, disk_reads| Second {
            t: t.into(),
            qps,
            p95_ms: 1.0,
            hits,
            reads: hits + disk_reads,
            disk_reads: Some(disk_reads),
        };
        let seconds = vec![
            second(1, 1.0, 1, 99),
            second(2, 390.0, 90, 10),
            second(3, 410.0, 90, 10),
            second(4, 100.0, 0, 80),
            second(5, 120.0, 0, 120),
            second(6, 400.0, 85, 15),
            second(7, 400.0, 95, 5),
            second(8, 100.0, 0, 0),
            second(9, 110.0, 10, 90),
            second(10, 190.0, 30, 70),
        ];
        let switched = |to, t: u32| Switched {
            to,
            t: t.into(),
            took_ms: t.into(),
        };
        let switches: Vec<_> = steps(true)
            .iter()
            .zip([3, 5, 7, 8])
            .map(|(to, t)| switched(to.state, t))
            .collect();
        Switching {
            parts: parts(&seconds, &switches),
            seconds,
            summary: Summary::default(),
        }
    }

    #[test]
    fn each_part_has_its_own_seconds() {
        let all = measured().parts;
        let of = |state| all.iter().find(|part| part.state == state).unwrap();
        let seconds: Vec<_> = all.iter().map(|part| part.seconds).collect();
        assert_eq!(seconds, [2, 2, 2, 1, 2], "the first second counts nowhere");
        assert_eq!(
            (of(State::Serving).qps, of(State::Serving).took_ms),
            (400.0, None)
        );
        let bypass = of(State::Bypass);
        assert_eq!((bypass.qps, bypass.first_qps), (110.0, 100.0));
        assert_eq!(
            (bypass.hit_ratio, bypass.disk_reads_per_s),
            (0.0, Some(100.0))
        );
        assert_eq!((bypass.t, bypass.took_ms), (3.0, Some(3.0)));
        let again = of(State::ServingAgain);
        assert_eq!((again.first_hit_ratio, again.hit_ratio), (85.0, 90.0));
        assert_eq!(of(State::Off).hit_ratio, 0.0, "nothing was read");
        assert_eq!(of(State::OnAgain).first_hit_ratio, 10.0);
    }

    #[test]
    fn words_and_marks_say_what_bypass_keeps_and_off_loses() {
        let measured = measured();
        let notes = measured.notes().join(" ").replace('\u{a0}', " ");
        for part in [
            "(bypass in 3 ms, serving in 5 ms, off in 7 ms, on in 8 ms), no statement failed.",
            "90.0 % before it and 85.0 % in the first second after it",
            "10.0 % in the first second after on",
        ] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        let part = measured.part();
        for chart in part.charts {
            let marks: Vec<_> = chart.marks.iter().map(|mark| mark.1.as_str()).collect();
            assert_eq!(marks, ["bypass", "serving", "off", "on"]);
        }
        let table = part.table.unwrap();
        assert!(table.rows.iter().all(|row| row.len() == table.header.len()));
        assert_eq!(table.rows.len(), 5);
    }

    #[test]
    fn an_old_library_is_only_switched_off_and_on() {
        let mut measured = measured();
        measured
            .parts
            .retain(|part| ![State::Bypass, State::ServingAgain].contains(&part.state));
        let left: Vec<_> = steps(false).iter().map(|step| step.state).collect();
        assert_eq!(left, [State::Off, State::OnAgain]);
        let notes = measured.notes().join(" ");
        for part in ["has no bpe_bypass", "(off in 7 ms, on in 8 ms)"] {
            assert!(notes.contains(part), "{part}: {notes}");
        }
        assert!(!notes.contains("Bypass keeps"), "{notes}");
    }

    #[test]
    fn the_switches_come_in_their_order() {
        assert!(
            STEPS
                .iter()
                .all(|step| step.state.step().title == step.title)
        );
        let at: Vec<_> = steps(true).iter().map(|step| step.at).collect();
        assert!(
            at.is_sorted() && at.iter().all(|at| (0.1..0.9).contains(at)),
            "{at:?}"
        );
    }
}
