//! A result as a self-contained page, in the style of the demonstration's report.

use super::load::Side;
use super::run::{Mode, Phase, Point, Run, State};
use crate::report::{Chart, Part, Report, Section, Series, Table, date, number, percent};

/// The whole page.
pub fn html(run: &Run) -> String {
    let title = format!("{} on {}", run.title(), run.server_version);
    let each = match run.mode {
        Mode::Compare => " each, with the extension off and then on",
        Mode::Manual => "",
    };
    let part = Part {
        table: Some(table(run)),
        notes: gain(run).into_iter().collect(),
        charts: vec![
            chart(run, "Statements a second", "QPS", |point| point.qps),
            chart(run, "Latency, 95th percentile", "ms", |point| point.p95_ms),
        ],
        ..Part::default()
    };
    crate::report::html(&Report {
        version: env!("CARGO_PKG_VERSION").into(),
        tab: title.clone(),
        title,
        facts: format!(
            "{}. {} client threads, {} s{each}.",
            date(run.at_ms / 1000),
            run.threads,
            run.seconds
        ),
        warning: match run.state {
            State::Stopped => Some("It was stopped before its end.".into()),
            State::Failed => {
                let error = run.error.as_deref().unwrap_or_default();
                Some(format!("It failed: {error}"))
            }
            State::Running | State::Done => None,
        },
        sections: vec![Section {
            parts: vec![part],
            ..Section::default()
        }],
        method: None,
    })
}

fn table(run: &Run) -> Table {
    let of = |side: Option<Side>, value: fn(Side) -> f64| number(side.map(value), 0);
    let row = |name: &str, value| vec![name.into(), of(run.off, value), of(run.on, value)];
    Table {
        rows: vec![
            row("Statements a second", |side| side.qps),
            row("Latency p95, ms", |side| side.p95_ms),
        ],
        ..Table::new(&["", "Extension off", "Extension on"])
    }
}

fn gain(run: &Run) -> Option<String> {
    let gain = percent(Some(run.gain_percent?), true, 0);
    let reference = run.reference_gain_percent.map(|reference| {
        let reference = percent(Some(reference), true, 0);
        format!(" (the reference: {reference}, on 8 cores and 16 GB)")
    });
    Some(format!("Gain: {gain}{}", reference.unwrap_or_default()))
}

/// A comparison overlays off and on; a manual run shows them in sequence.
fn chart(run: &Run, title: &str, unit: &'static str, value: fn(&Point) -> f64) -> Chart {
    let series = |name: &str, class: &'static str, wanted: &dyn Fn(&Point) -> bool| {
        let mut begun = (run.mode == Mode::Manual)
            .then(|| run.points.first().map(|point| point.at_ms))
            .flatten();
        let points = run
            .points
            .iter()
            .filter(|point| wanted(point))
            .map(|point| {
                let begun = *begun.get_or_insert(point.at_ms);
                (
                    point.at_ms.saturating_sub(begun) as f64 / 1000.0,
                    value(point),
                )
            })
            .collect();
        Series {
            name: name.to_owned(),
            class,
            points,
        }
    };
    let is_off = |point: &Point| match run.mode {
        Mode::Compare => point.phase == Phase::Off,
        Mode::Manual => !point.enabled,
    };
    let is_on = |point: &Point| match run.mode {
        Mode::Compare => point.phase == Phase::On,
        Mode::Manual => point.enabled,
    };
    Chart {
        title: title.to_owned(),
        unit,
        series: vec![
            series("extension off", "off", &is_off),
            series("extension on", "on", &is_on),
        ],
        ..Chart::default()
    }
}

#[cfg(test)]
mod tests {
    use super::super::run::Test;
    use super::*;

    #[test]
    fn a_result_is_one_page() {
        let point = |phase, at_ms, qps| Point {
            run: "1".into(),
            at_ms,
            phase,
            qps,
            p95_ms: 5.0,
            enabled: phase == Phase::On,
        };
        let run = Run {
            id: "1".into(),
            at_ms: 1_772_373_900_000,
            server: "demo".into(),
            server_version: "MariaDB <10.11>".into(),
            test: Test::ReadOnly,
            mode: Mode::Compare,
            threads: 64,
            seconds: 10,
            state: State::Done,
            phase: Phase::On,
            points: vec![
                point(Phase::Off, 1_772_373_901_000, 100.0),
                point(Phase::Off, 1_772_373_902_000, 110.0),
                point(Phase::Warm, 1_772_373_903_000, 50.0),
                point(Phase::On, 1_772_373_904_000, 300.0),
            ],
            off: Some(Side {
                qps: 105.0,
                p95_ms: 50.0,
            }),
            on: Some(Side {
                qps: 300.0,
                p95_ms: 9.0,
            }),
            gain_percent: Some(185.7),
            reference_gain_percent: Some(80.0),
            error: None,
        };
        let text = html(&run);
        for part in [
            "oltp_read_only on MariaDB &lt;10.11&gt;",
            "+186",
            "+80",
            "2026-03-01 14:05 UTC",
            "[1.0,110.0]",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!text.contains("http"), "nothing may be fetched");
        assert!(
            !text.contains("50.0]]"),
            "filling the cache is not measured"
        );
    }
}
