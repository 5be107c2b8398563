//! The parts of the page that show one run: cards, table, charts.

use bpe::size;
use maud::{Markup, html};

use super::chart::{Chart, Series};
use crate::demo::args::{SideName, Workload};
use crate::demo::numbers::{number, percent};
use crate::demo::phases::Shown;
use crate::demo::results::{PoolRun, Test};
use crate::demo::sysbench::Interval;
use crate::demo::table::notes;

const SIDES: [SideName; 3] = [SideName::Off, SideName::On, SideName::Ceiling];

fn class(side: SideName) -> &'static str {
    side.title()
}

fn side_words(side: SideName) -> &'static str {
    match side {
        SideName::Off => "extension off",
        SideName::On => "extension on",
        SideName::Ceiling => "ceiling: all data on the fast disk",
    }
}

/// One run with one size of the pool.
pub fn run(run: &PoolRun) -> Markup {
    html! {
        section {
            h2 { "Buffer pool " (size::human(run.pool)) }
            p.facts {
                "Data " (size::human(run.data)) " (" (number(Some(run.data as f64 / run.pool as f64), 1))
                " × pool) in " (run.tables) " tables, cache " (size::human(run.cache)) " ("
                (run.cache / run.pool) " × pool), " (run.threads) " client threads."
            }
            @if run.is_tested() {
                div.cards { @for workload in Workload::ALL { (card(run, workload)) } }
                (table(run))
            }
            ul.notes { @for note in notes(run) { li { (note) } } }
            @if run.is_tested() {
                h3 { "Throughput over time" }
                div.charts {
                    @for workload in Workload::ALL {
                        (over_time(run, workload, "QPS", |interval| interval.qps))
                    }
                }
                h3 { "Latency over time" }
                div.charts {
                    @for workload in Workload::ALL {
                        (over_time(run, workload, "p95 ms", |interval| interval.p95_ms))
                    }
                }
            }
            @if run.side(SideName::On).is_some_and(|side| side.tests.iter().any(|test| !test.hits.is_empty())) {
                h3 { "Hit ratio over time" }
                div.charts { @for workload in Workload::ALL { (hits_over_time(run, workload)) } }
            }
            @if run.warmup.is_some() {
                h3 { "Filling the empty cache" }
                div.charts { (warmup(run)) }
            }
            @for shown in run.phases.shown() { (phase(shown)) }
        }
    }
}

fn card(run: &PoolRun, workload: Workload) -> Markup {
    let best = SIDES
        .iter()
        .filter_map(|side| run.qps(*side, workload))
        .fold(1.0, f64::max);
    html! {
        article.card {
            h3 { (workload.title()) }
            p.gain { (percent(run.gain(workload), true, 0)) }
            p.reference {
                "queries per second by the extension; the reference: "
                (percent(Some(workload.reference_gain()), true, 0))
            }
            dl.bars {
                @for side in SIDES {
                    @if let Some(qps) = run.qps(side, workload) {
                        dt { (side.title()) }
                        dd {
                            span.bar.(class(side)) style=(format!("width:{:.1}%", qps / best * 100.0)) {}
                            span.value { (number(Some(qps), 0)) }
                        }
                    }
                }
            }
        }
    }
}

fn table(run: &PoolRun) -> Markup {
    let p95 = |side, workload| number(run.test(side, workload).map(|test| test.summary.p95_ms), 0);
    html! {
        div.scroll { table {
            thead {
                tr {
                    th rowspan="2" { "Test" }
                    th colspan="3" { "Queries per second" }
                    th colspan="3" { "Extension on" }
                    th colspan="2" { "Reads" }
                    th colspan="3" { "p95 latency, ms" }
                }
                tr {
                    th { "off" } th { "on" } th { "ceiling" }
                    th { "gain" } th { "reference" } th { "of ceiling" }
                    th { "hit ratio" } th { "disk reads saved" }
                    th { "off" } th { "on" } th { "ceiling" }
                }
            }
            tbody {
                @for workload in Workload::ALL {
                    tr {
                        th scope="row" { (workload.script()) }
                        @for side in SIDES { td { (number(run.qps(side, workload), 0)) } }
                        td.strong { (percent(run.gain(workload), true, 0)) }
                        td { (percent(Some(workload.reference_gain()), true, 0)) }
                        td { (percent(run.of_ceiling(workload), false, 0)) }
                        td {
                            (percent(
                                run.test(SideName::On, workload)
                                    .and_then(|test| test.work.hit_ratio()),
                                false, 1))
                        }
                        td { (percent(run.reads_saved(workload), false, 0)) }
                        @for side in SIDES { td { (p95(side, workload)) } }
                    }
                }
            }
        } }
    }
}

fn over_time(
    run: &PoolRun,
    workload: Workload,
    unit: &'static str,
    value: impl Fn(&Interval) -> f64,
) -> Markup {
    let mut lead = 0.0_f64;
    let mut series = Vec::new();
    for side in SIDES {
        let Some(test) = run.test(side, workload) else {
            continue;
        };
        lead = lead.max(lead_end(test));
        let before = lead_end(test);
        let points = test
            .lead
            .iter()
            .map(|interval| (interval.t, value(interval)))
            .chain(
                test.intervals
                    .iter()
                    .map(|interval| (interval.t + before, value(interval))),
            )
            .collect();
        series.push(Series {
            name: side_words(side).into(),
            class: class(side),
            points,
        });
    }
    if series.is_empty() {
        return html! {};
    }
    Chart {
        title: workload.title().into(),
        unit,
        series,
        marks: Vec::new(),
        lead,
        top: None,
    }
    .markup()
}

fn hits_over_time(run: &PoolRun, workload: Workload) -> Markup {
    let Some(test) = run.test(SideName::On, workload) else {
        return html! {};
    };
    let seconds = (1..).map(f64::from);
    Chart {
        title: workload.title().into(),
        unit: "%",
        series: vec![Series {
            name: "page reads served by the extension".into(),
            class: "hit",
            points: seconds.zip(test.hits.iter().copied()).collect(),
        }],
        marks: Vec::new(),
        lead: lead_end(test),
        top: Some(100.0),
    }
    .markup()
}

fn lead_end(test: &Test) -> f64 {
    test.lead.last().map_or(0.0, |interval| interval.t)
}

fn warmup(run: &PoolRun) -> Markup {
    let Some(warmup) = &run.warmup else {
        return html! {};
    };
    let qps = warmup.points.iter().map(|point| (point.t, point.qps));
    let hits = warmup.points.iter().map(|point| (point.t, point.hit_ratio));
    html! {
        (Chart {
            title: "Throughput".into(),
            unit: "QPS",
            series: vec![Series {
                name: "oltp_read_only".into(),
                class: "on",
                points: qps.collect(),
            }],
            marks: Vec::new(),
            lead: 0.0,
            top: None,
        }
        .markup())
        (Chart {
            title: "Hit ratio".into(),
            unit: "%",
            series: vec![Series {
                name: "page reads served by the extension".into(),
                class: "hit",
                points: hits.collect(),
            }],
            marks: Vec::new(),
            lead: 0.0,
            top: Some(100.0),
        }
        .markup())
    }
}

fn phase(phase: &dyn Shown) -> Markup {
    let (header, rows) = phase.rows();
    html! {
        h3 { (phase.title()) }
        div.charts { @for chart in phase.charts() { (chart.markup()) } }
        div.scroll { table {
            thead { tr { @for name in header { th { (name) } } } }
            tbody {
                @for row in &rows {
                    tr {
                        @for (column, cell) in row.iter().enumerate() {
                            @if column == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                        }
                    }
                }
            }
        } }
    }
}
