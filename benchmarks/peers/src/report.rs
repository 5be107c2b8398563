//! Medians of the rounds, as a table or as JSON.

use anyhow::Result;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::side::Figures;

/// One cache.
#[derive(Debug)]
pub struct Row {
    name: &'static str,
    pub rounds: Vec<Figures>,
}

impl Row {
    pub fn new(name: &'static str) -> Row {
        Row {
            name,
            rounds: Vec::new(),
        }
    }

    fn median(&self, figure: impl Fn(&Figures) -> f64) -> f64 {
        median(self.rounds.iter().map(figure).collect())
    }

    fn medians(&self) -> Medians {
        Medians {
            read_hit_ratio: self.median(|f| f.read_hit_ratio),
            operations_per_cpu_second: self.median(|f| f.operations_per_cpu_second),
            resident_bytes: self.median(|f| f.resident_bytes as f64),
            resident_bytes_per_page: self.median(|f| f.resident_bytes_per_page),
            pages_cached: self.median(|f| f.pages_cached as f64),
            device_bytes_per_1000: self.median(|f| f.device_bytes_per_1000),
            kernel_bytes_per_1000: self.median(|f| f.kernel_bytes_per_1000),
            dropped: self.median(|f| f.dropped as f64),
        }
    }
}

/// See `Figures`.
#[derive(Clone, Copy, Debug, Serialize)]
struct Medians {
    read_hit_ratio: f64,
    operations_per_cpu_second: f64,
    resident_bytes: f64,
    resident_bytes_per_page: f64,
    pages_cached: f64,
    device_bytes_per_1000: f64,
    kernel_bytes_per_1000: f64,
    dropped: f64,
}

#[derive(Serialize)]
struct JsonRow<'a> {
    name: &'a str,
    #[serde(flatten)]
    medians: Medians,
    rounds: &'a [Figures],
}

#[derive(Serialize)]
struct Json<'a> {
    cache_pages: u64,
    memory_bytes: u64,
    caches: Vec<JsonRow<'a>>,
}

/// The mean of the two in the middle, of an even number.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => 0.0,
        n => (values[(n - 1) / 2] + values[n / 2]) / 2.0,
    }
}

/// Bytes of memory that each cache was given.
fn memory_bytes(rows: &[Row]) -> u64 {
    rows.first()
        .and_then(|row| row.rounds.first())
        .map_or(0, |figures| figures.memory_bytes)
}

/// # Errors
/// If a figure is no number.
pub fn json(rows: &[Row], pages: u64) -> Result<String> {
    let caches = rows.iter().map(|row| JsonRow {
        name: row.name,
        medians: row.medians(),
        rounds: &row.rounds,
    });
    let json = Json {
        cache_pages: pages,
        memory_bytes: memory_bytes(rows),
        caches: caches.collect(),
    };
    Ok(serde_json::to_string_pretty(&json)?)
}

pub fn table(rows: &[Row], pages: u64) -> String {
    const MIB: f64 = (1 << 20) as f64;
    let mut table = Table::new();
    table.load_preset(presets::ASCII_MARKDOWN).set_header([
        "cache",
        "read hits",
        "operations per CPU second",
        "memory (RSS)",
        "memory per cached page",
        "pages cached",
        "written per 1,000 events",
        "dropped, queue full",
    ]);
    let first = rows.first().map(Row::medians);
    for row in rows {
        let m = row.medians();
        // How much the extension has, relative to this one.
        let times = |figure: fn(&Medians) -> f64| match first {
            Some(first) if figure(&m) > 0.0 => figure(&first) / figure(&m),
            _ => 0.0,
        };
        let relative = |text: String, times: f64| {
            if std::ptr::eq(row, &rows[0]) {
                text
            } else {
                format!("{text} (x {times:.2})")
            }
        };
        table.add_row([
            row.name.to_string(),
            format!("{:.1} %", m.read_hit_ratio * 100.0),
            relative(
                format!("{:.0}", m.operations_per_cpu_second),
                times(|m| m.operations_per_cpu_second),
            ),
            format!("{:.1} MiB", m.resident_bytes / MIB),
            relative(
                format!("{:.0} B", m.resident_bytes_per_page),
                times(|m| m.resident_bytes_per_page),
            ),
            format!("{:.0}", m.pages_cached),
            format!("{:.2} MiB", m.device_bytes_per_1000 / MIB),
            format!("{:.0}", m.dropped),
        ]);
    }
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "{pages} pages of 16 KiB on disk, {:.1} MiB of memory given to each; medians of {} rounds\n\n{table}\n\n\
         (x N): the extension has N times as much. Memory is the growth of the resident set since before the cache was\n\
         opened; written bytes are each cache's own account of its device.\n",
        memory_bytes(rows) as f64 / MIB,
        rows.first().map_or(0, |row| row.rounds.len()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures(operations_per_cpu_second: f64) -> Figures {
        Figures {
            events: 10,
            read_hit_ratio: 0.5,
            operations_per_cpu_second,
            resident_bytes: 1 << 20,
            pages_cached: 64,
            resident_bytes_per_page: 16384.0,
            device_bytes_per_1000: 0.0,
            kernel_bytes_per_1000: 0.0,
            dropped: 0,
            memory_bytes: 2 << 20,
        }
    }

    #[test]
    fn medians() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }

    #[test]
    fn both_forms_show_the_median() {
        let mut rows = [Row::new("extension"), Row::new("other")];
        rows[0].rounds = vec![figures(900.0), figures(100.0), figures(300.0)];
        rows[1].rounds = vec![figures(100.0)];
        let text = table(&rows, 5000);
        assert!(
            text.contains("100 (x 3.00)") && text.contains("2.0 MiB of memory"),
            "{text}"
        );
        let json: serde_json::Value = serde_json::from_str(&json(&rows, 5000).unwrap()).unwrap();
        assert_eq!(json["caches"][0]["operations_per_cpu_second"], 300.0);
        assert_eq!(json["caches"][0]["rounds"].as_array().unwrap().len(), 3);
    }
}
