//! Renders a report for the terminal.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table as Grid, presets};

use super::schema::{Report, Table};

/// Titles, tables and notes. The page has the charts.
pub fn text(report: &Report) -> String {
    // Writing to a string cannot fail.
    let mut out = format!("\n{}\n{}\n", report.title, report.facts);
    for section in &report.sections {
        let _ = write!(out, "\n{}\n{}\n", section.title, section.facts);
        for part in &section.parts {
            if part.table.is_none() && part.notes.is_empty() {
                continue;
            }
            if !part.title.is_empty() {
                let _ = writeln!(out, "\n{}", part.title);
            }
            if let Some(table) = &part.table {
                let _ = writeln!(out, "{table}");
            }
            for note in &part.notes {
                let _ = writeln!(out, "{note}");
            }
        }
    }
    if let Some(warning) = &report.warning {
        let _ = writeln!(out, "\n{warning}");
    }
    out
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let mut grid = Grid::new();
        grid.load_preset(presets::UTF8_FULL_CONDENSED)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_header(&self.header);
        for row in &self.rows {
            grid.add_row(row.iter().enumerate().map(|(column, text)| {
                let alignment = match column {
                    0 => CellAlignment::Left,
                    _ => CellAlignment::Right,
                };
                Cell::new(text).set_alignment(alignment)
            }));
        }
        // `say!` would escape spaces that do not break.
        f.write_str(&grid.to_string().replace('\u{a0}', " "))
    }
}
