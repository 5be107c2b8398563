//! The final table, in the reference's format.

use std::fmt::Write;

use bpe::size;
use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets};

use super::args::{SideName, Workload};
use super::numbers::{number, percent};
use super::phases::Shown;
use super::results::{PoolRun, Results};

/// One table for each pool size, with its notes.
pub fn text(results: &Results) -> String {
    let mut out = String::new();
    for run in &results.runs {
        let _ = write!(out, "\n{}", heading(results, run));
        if run.is_tested() {
            let _ = write!(out, "\n{}", table(run));
        }
        for line in notes(run) {
            let _ = write!(out, "\n{line}");
        }
        for phase in run.phases.shown() {
            let (header, rows) = phase.rows();
            let mut table = with_header(header);
            rows.into_iter().for_each(|row| add_row(&mut table, 0, row));
            let _ = write!(out, "\n\n{}\n{table}", phase.title());
        }
        out.push('\n');
    }
    if results.quick {
        out.push_str("\nA --quick run: short tests, so expect several percent of noise.\n");
    }
    out
}

fn heading(results: &Results, run: &PoolRun) -> String {
    format!(
        "{}, pool {}, data {} ({:.1} x pool), cache {} ({} x pool), {} threads",
        results.server,
        size::human(run.pool),
        size::human(run.data),
        run.data as f64 / run.pool as f64,
        size::human(run.cache),
        run.cache / run.pool,
        run.threads,
    )
}

/// An empty table in the common style.
pub fn with_header(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(presets::UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_header(header);
    table
}

fn table(run: &PoolRun) -> Table {
    let mut table = with_header(&[
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
    ]);
    for workload in Workload::ALL {
        let qps = |side| number(run.qps(side, workload), 0);
        let p95 = |side| number(run.test(side, workload).map(|test| test.summary.p95_ms), 0);
        let hits = run
            .test(SideName::On, workload)
            .and_then(|test| test.work.hit_ratio());
        let cells = [
            workload.script().to_owned(),
            qps(SideName::Off),
            qps(SideName::On),
            qps(SideName::Ceiling),
            percent(run.gain(workload), true, 0),
            percent(Some(workload.reference_gain()), true, 0),
            percent(run.of_ceiling(workload), false, 0),
            percent(hits, false, 1),
            percent(run.reads_saved(workload), false, 0),
            p95(SideName::Off),
            p95(SideName::On),
        ];
        add_row(&mut table, 0, cells);
    }
    table
}

/// Adds a row with a name in this column, and figures in the others.
pub fn add_row(table: &mut Table, name: usize, cells: impl IntoIterator<Item = String>) {
    table.add_row(cells.into_iter().enumerate().map(|(column, text)| {
        let cell = Cell::new(text);
        if column == name {
            cell
        } else {
            cell.set_alignment(CellAlignment::Right)
        }
    }));
}

/// Lines below a table. The report uses them, too.
pub fn notes(run: &PoolRun) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(memory) = &run.memory {
        notes.push(format!(
            "Memory: the extension used {} ({:.1} % of the pool); InnoDB's pool was lowered to {} \
             for it.",
            size::human(memory.extension),
            memory.extension as f64 * 100.0 / run.pool as f64,
            size::human(memory.pool_left)
        ));
    }
    if let Some(warmup) = &run.warmup {
        notes.push(format!(
            "Time to warm: {:.0} s from an empty cache{}.",
            warmup.seconds,
            if warmup.settled {
                ""
            } else {
                ", and the hit ratio was still rising"
            }
        ));
    }
    notes.extend(run.phases.shown().flat_map(Shown::notes));
    notes
}
