//! The other views: devices, instances and files as tables, and the explanation.

use interface::untrusted::one_line;
use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Row, Table as Grid, Wrap};
use serde_json::Value;

use super::parts::{dim, note, percent};
use super::state::TopState;
use super::view::{Table, View};
use crate::observe::{Level, Sentence};
use crate::support::size::human;
use crate::support::terminal::{coloured, grouped, microseconds};

/// A column: title, width (0: the remaining space), and its text for a row.
type Column = (&'static str, u16, fn(&Value) -> String);

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let columns: &[Column] = match state.view {
        View::Devices => &DEVICES,
        View::Instances => &INSTANCES,
        View::Files => &FILES,
        View::Overview | View::Explain => &[],
    };
    match &state.table {
        Table::None if state.figures.is_none() => {
            note(frame, area, "\nThe first figures come after one interval.");
        }
        Table::None | Table::Persisted(_) => {}
        Table::Missing(why) => note(frame, area, &format!("\n{why}")),
        Table::Sentences(sentences) => explanation(frame, area, sentences, state.scrolled),
        Table::Rows(rows) if rows.is_empty() => {
            note(
                frame,
                area,
                "\nNothing to show while the extension is not active.",
            );
        }
        Table::Rows(rows) => grid(frame, area, columns, rows, state.scrolled),
    }
}

fn grid(frame: &mut Frame<'_>, area: Rect, columns: &[Column], rows: &[Value], scrolled: usize) {
    let wide = |(_, width, _): &Column| match width {
        0 => Constraint::Fill(1),
        width => Constraint::Length(*width),
    };
    let taken: u16 = columns.iter().map(|(_, width, _)| width + 1).sum();
    let room = usize::from((area.width + 1).saturating_sub(taken));
    let aligned = |width: u16, text: String| match width {
        0 => Line::from(shortened(&text, room)),
        _ => Line::from(text).right_aligned(),
    };
    let head = columns
        .iter()
        .map(|(name, width, _)| aligned(*width, (*name).to_owned()));
    let shown = rows.iter().skip(scrolled).map(|row| {
        let bad = row["active"] == false;
        let cells = columns
            .iter()
            .map(|(_, width, cell)| aligned(*width, cell(row)));
        Row::new(cells).style(if bad {
            coloured(Color::Red)
        } else {
            Style::new()
        })
    });
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let grid = Grid::new(shown, columns.iter().map(wide))
        .header(Row::new(head).style(bold))
        .column_spacing(1);
    frame.render_widget(grid, area);
}

/// Keeps the end of a path, which distinguishes files.
fn shortened(path: &str, room: usize) -> String {
    let length = path.chars().count();
    if length <= room || room < 2 {
        return path.to_owned();
    }
    let end: String = path.chars().skip(length + 1 - room).collect();
    format!("…{end}")
}

fn number(row: &Value, name: &str) -> f64 {
    row[name].as_f64().unwrap_or(0.0)
}

fn text(row: &Value, name: &str) -> String {
    one_line(row[name].as_str().unwrap_or_default())
}

fn bytes(row: &Value, name: &str) -> String {
    human(number(row, name) as u64)
}

fn share(part: f64, of: f64) -> String {
    percent((of > 0.0).then(|| part * 100.0 / of))
}

const DEVICES: [Column; 7] = [
    ("Cache file", 0, |row| text(row, "path")),
    ("State", 14, |row| text(row, "state")),
    ("Size", 9, |row| bytes(row, "bytes")),
    ("Read", 9, |row| bytes(row, "bytes_read")),
    ("Written", 9, |row| bytes(row, "bytes_written")),
    ("Write", 8, |row| microseconds(number(row, "write_us"))),
    ("Errors", 6, |row| {
        grouped(number(row, "errors") + number(row, "reads_given_up"))
    }),
];

const INSTANCES: [Column; 7] = [
    ("Instance", 0, |row| one_line(&row["instance"].to_string())),
    ("Share", 8, |row| percent(row["share"].as_f64())),
    ("Hits", 13, |row| grouped(number(row, "hits"))),
    ("Misses", 13, |row| grouped(number(row, "misses"))),
    ("Hit ratio", 9, |row| {
        share(
            number(row, "hits"),
            number(row, "hits") + number(row, "misses"),
        )
    }),
    ("Pages", 11, |row| grouped(number(row, "pages"))),
    ("Lock held", 9, |row| {
        share(number(row, "lock_waits"), number(row, "lock_accesses"))
    }),
];

const FILES: [Column; 6] = [
    ("Data file", 0, |row| text(row, "file")),
    ("Hits", 13, |row| grouped(number(row, "hits"))),
    ("Misses", 13, |row| grouped(number(row, "misses"))),
    ("Hit ratio", 9, |row| percent(row["hit_ratio"].as_f64())),
    ("Cached", 9, |row| bytes(row, "cached_bytes")),
    ("Rule", 12, |row| rule(row)),
];

/// The first word of the rule for a file, and its limit.
fn rule(row: &Value) -> String {
    let rule = text(row, "rule");
    let mut words = rule.split_whitespace();
    match (words.next(), words.next()) {
        (Some("limit"), Some(percent)) => format!("limit {percent}"),
        (Some("not"), _) => "not included".to_owned(),
        (Some(word), _) => word.to_owned(),
        (None, _) => String::new(),
    }
}

fn explanation(frame: &mut Frame<'_>, area: Rect, sentences: &[Sentence], scrolled: usize) {
    let mut lines = Vec::new();
    for sentence in sentences.iter().skip(scrolled) {
        let (mark, color) = match sentence.level {
            Level::Good => ("+ ", Color::Green),
            Level::Note => ("- ", Color::Yellow),
            Level::Bad => ("! ", Color::Red),
        };
        lines.push(Line::from(vec![
            Span::styled(mark, coloured(color).add_modifier(Modifier::BOLD)),
            Span::raw(one_line(&sentence.text)),
        ]));
        let origin = sentence.origin();
        lines.extend(origin.map(|text| Line::styled(format!("  {text}"), dim())));
    }
    let text = Paragraph::new(lines).wrap(Wrap { trim: false });
    frame.render_widget(text, area);
}
