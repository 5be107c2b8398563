//! Fills the report of the sides and phases from the results.

use bpe::size;
use maud::PreEscaped;

use super::args::SideName;
use super::results::{PoolRun, Results, Test};
use crate::report::{Card, Chart, Method, Part, Report, Section, Series, Table, number, percent};
use crate::sysbench::{Interval, Workload};

const SIDES: [SideName; 3] = [SideName::Off, SideName::On, SideName::Ceiling];
const REFERENCE: &str = "RDS for MySQL with its buffer pool extension, as published: the same three commands with 64 threads and \
                         30 tables, 8 cores and 16 GB, data about 25 times the buffer pool.";

fn side_words(side: SideName) -> &'static str {
    match side {
        SideName::Off => "extension off",
        SideName::On => "extension on",
        SideName::Ceiling => "ceiling: all data on the fast disk",
    }
}

/// The whole report.
pub fn report(results: &Results) -> Report<'_> {
    let environment = &results.environment;
    let method = match results.runs.iter().any(|run| run.phases.restarts.is_some()) {
        true => include_str!("phases/restart/method.html"),
        false => include_str!("sides.html"),
    };
    Report {
        version: environment.version.clone(),
        title: format!(
            "What the buffer pool extension does for {}",
            environment.server
        ),
        tab: format!("measured on {}", environment.server),
        facts: format!(
            "Data on an emulated cloud volume ({}), the extension's cache on the local disk of this machine. {}.",
            results.volume,
            environment.time()
        ),
        warning: environment.quick.then(|| {
            "A --quick run: short tests on little data, so expect several percent of noise.".into()
        }),
        sections: results.runs.iter().map(section).collect(),
        method: Some(Method {
            prose: PreEscaped(method.into()),
            commands: &results.commands,
            options: Vec::new(),
            environment,
            sharing: "Server, sysbench and the emulated volume share the cores, which costs the faster sides most.",
            reference: Some(REFERENCE),
        }),
    }
}

fn section(run: &PoolRun) -> Section {
    let mut parts = vec![Part {
        notes: notes(run),
        ..Part::default()
    }];
    if run.is_tested() {
        parts[0].cards = Workload::ALL.map(|workload| card(run, workload)).into();
        parts[0].table = Some(table(run));
    }
    let each = |title, chart: &dyn Fn(Workload) -> Option<Chart>| Part {
        title,
        charts: Workload::ALL.into_iter().filter_map(chart).collect(),
        ..Part::default()
    };
    parts.extend([
        each("Throughput over time", &|workload| {
            over_time(run, workload, "QPS", |interval| interval.qps)
        }),
        each("Latency over time", &|workload| {
            over_time(run, workload, "p95 ms", |interval| interval.p95_ms)
        }),
        each("Hit ratio over time", &|workload| {
            hits_over_time(run, workload)
        }),
    ]);
    parts.extend(filling(run));
    parts.retain(|part| !part.charts.is_empty() || !part.notes.is_empty() || part.table.is_some());
    parts.extend(run.phases.parts());
    Section {
        title: format!("Buffer pool {}", size::human(run.pool)),
        facts: format!(
            "Data {} ({:.1} × pool) in {} tables, cache {} ({} × pool), {} client threads.",
            size::human(run.data),
            run.data as f64 / run.pool as f64,
            run.tables,
            size::human(run.cache),
            run.cache / run.pool,
            run.threads
        ),
        parts,
    }
}

fn card(run: &PoolRun, workload: Workload) -> Card {
    let bars = SIDES
        .iter()
        .filter_map(|side| Some((side.title(), run.qps(*side, workload)?)));
    Card {
        title: workload.title(),
        figure: percent(run.gain(workload), true, 0),
        note: format!(
            "queries per second by the extension; the reference: {}",
            percent(Some(workload.reference_gain()), true, 0)
        ),
        bars: bars.collect(),
    }
}

fn table(run: &PoolRun) -> Table {
    let mut table = Table::new(&[
        "sysbench test",
        "QPS off",
        "QPS on",
        "QPS ceiling",
        "gain",
        "reference",
        "of ceiling",
        "hit ratio",
        "disk reads saved",
        "p95 ms off",
        "p95 ms on",
        "p95 ms ceiling",
    ]);
    for workload in Workload::ALL {
        let p95 = |side| number(run.test(side, workload).map(|test| test.summary.p95_ms), 0);
        let hits = run
            .test(SideName::On, workload)
            .and_then(|test| test.work.hit_ratio());
        let mut row = vec![workload.script().to_owned()];
        row.extend(SIDES.map(|side| number(run.qps(side, workload), 0)));
        row.extend([
            percent(run.gain(workload), true, 0),
            percent(Some(workload.reference_gain()), true, 0),
            percent(run.of_ceiling(workload), false, 0),
            percent(hits, false, 1),
            percent(run.reads_saved(workload), false, 0),
        ]);
        row.extend(SIDES.map(p95));
        table.rows.push(row);
    }
    table
}

fn notes(run: &PoolRun) -> Vec<String> {
    let memory = run.memory.as_ref().map(|memory| {
        format!(
            "Memory: the extension used {} ({:.1} % of the pool); InnoDB's pool was lowered to {} \
             for it.",
            size::human(memory.extension),
            memory.extension as f64 * 100.0 / run.pool as f64,
            size::human(memory.pool_left)
        )
    });
    let warmup = run.warmup.as_ref().map(|warmup| {
        format!(
            "Time to warm: {:.0} s from an empty cache{}.",
            warmup.seconds,
            if warmup.settled {
                ""
            } else {
                ", and the hit ratio was still rising"
            }
        )
    });
    memory.into_iter().chain(warmup).collect()
}

fn over_time(
    run: &PoolRun,
    workload: Workload,
    unit: &'static str,
    value: fn(&Interval) -> f64,
) -> Option<Chart> {
    let tests = SIDES
        .iter()
        .filter_map(|side| Some((*side, run.test(*side, workload)?)));
    let series = tests.clone().map(|(side, test)| {
        let lead = test.lead.iter().map(|one| (one.t, value(one)));
        let counted = test.intervals.iter();
        let counted = counted.map(|one| (one.t + lead_end(test), value(one)));
        Series {
            name: side_words(side).into(),
            class: side.title(),
            points: lead.chain(counted).collect(),
        }
    });
    let chart = Chart {
        title: workload.title().into(),
        unit,
        series: series.collect(),
        lead: tests.map(|(_, test)| lead_end(test)).fold(0.0, f64::max),
        ..Chart::default()
    };
    (!chart.series.is_empty()).then_some(chart)
}

fn hits_over_time(run: &PoolRun, workload: Workload) -> Option<Chart> {
    let test = run.test(SideName::On, workload)?;
    let seconds = (1..).map(f64::from);
    let chart = Chart {
        title: workload.title().into(),
        lead: lead_end(test),
        ..Chart::hit_ratio(seconds.zip(test.hits.iter().copied()))
    };
    (!test.hits.is_empty()).then_some(chart)
}

fn lead_end(test: &Test) -> f64 {
    test.lead.last().map_or(0.0, |interval| interval.t)
}

fn filling(run: &PoolRun) -> Option<Part> {
    let points = &run.warmup.as_ref()?.points;
    Some(Part {
        title: "Filling the empty cache",
        charts: vec![
            Chart::throughput(
                Workload::ReadOnly.script(),
                points.iter().map(|point| (point.t, point.qps)),
            ),
            Chart::hit_ratio(points.iter().map(|point| (point.t, point.hit_ratio))),
        ],
        ..Part::default()
    })
}
