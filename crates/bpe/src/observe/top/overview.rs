//! The first view: rates over time, latencies of the three sources of a page, and the cache's activity.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline};

use super::parts::{dim, note, percent};
use super::state::{History, TopState};
use super::view::Table;
use crate::observe::{Figures, Quantiles};
use crate::support::size::human;
use crate::support::terminal::{coloured, grouped, microseconds};

const LABEL: usize = 14;
const VALUE: usize = 11;
const CHARTS: u16 = 4;
/// Columns of a page source, and the minimum for its figures.
const CELL: usize = 15;
const MIN_CELL: usize = 9;
/// Columns of the bar that shows the fill level of the cache.
const BAR: usize = 20;

pub fn draw(frame: &mut Frame<'_>, area: Rect, state: &TopState) {
    let Some(figures) = &state.figures else {
        note(frame, area, "\nThe first figures come after one interval.");
        return;
    };
    // On a low terminal, drop blank lines first, then the lowest parts.
    let gap = u16::from(area.height > 19);
    let mut left = area;
    let mut next = |height: u16| {
        let height = height.min(left.height);
        let part = Rect { height, ..left };
        left.y += height;
        left.height -= height;
        part
    };
    next(gap);
    let charts = next(CHARTS);
    next(gap);
    let places = next(6);
    next(gap);
    let rest = next(u16::MAX);
    draw_charts(frame, charts, state, figures);
    frame.render_widget(
        Paragraph::new(places_table(figures, places.width.into())),
        places,
    );
    let mut lines = lines(figures);
    if let Table::Persisted(kept) = &state.table {
        lines.push(Line::raw(kept.clone()));
    }
    frame.render_widget(Paragraph::new(lines), rest);
}

fn draw_charts(frame: &mut Frame<'_>, area: Rect, state: &TopState, figures: &Figures) {
    let all = &state.histories;
    let ratio = percent(figures.hit_ratio_percent);
    let charts: [(&str, String, &History, Option<u64>, Color); CHARTS as usize] = [
        ("Queries/s", rate(figures.qps), &all.qps, None, Color::Blue),
        ("Hit ratio", ratio, &all.hit_ratio, Some(100), Color::Green),
        (
            "Cache reads/s",
            rate(figures.cache_reads_per_s),
            &all.cache_reads,
            None,
            Color::Green,
        ),
        (
            "Data reads/s",
            rate(figures.data_reads_per_s),
            &all.data_reads,
            None,
            Color::Magenta,
        ),
    ];
    for (row, (label, value, history, most, color)) in area.rows().zip(charts) {
        let [text, chart] = Layout::horizontal([
            Constraint::Length((LABEL + VALUE + 2) as u16),
            Constraint::Fill(1),
        ])
        .areas(row);
        let line = Line::from(vec![
            Span::styled(format!("{label:<LABEL$}"), dim()),
            Span::styled(
                format!("{value:>VALUE$}"),
                Style::new().add_modifier(Modifier::BOLD),
            ),
        ]);
        frame.render_widget(line, text);
        let data = history.latest(chart.width.into());
        let sparkline = Sparkline::default()
            .data(&data)
            .direction(RenderDirection::RightToLeft)
            .style(coloured(color));
        let sparkline = match most {
            Some(most) => sparkline.max(most),
            None => sparkline,
        };
        frame.render_widget(sparkline, chart);
    }
}

/// Sources of pages. The pool's latency is not measured.
fn places_table(figures: &Figures, width: usize) -> Vec<Line<'static>> {
    // Three columns with a gap between them; shrink them before the last one is cut off.
    let cell = (width.saturating_sub(LABEL + 2) / 3).clamp(MIN_CELL, CELL);
    let row = |label: &str, cells: [String; 3]| {
        let [pool, cache, data] = cells;
        Line::from(vec![
            Span::styled(format!("{label:<LABEL$}"), dim()),
            Span::raw(format!("{pool:>cell$} {cache:>cell$} {data:>cell$}")),
        ])
    };
    let reads = [
        figures.pool_reads_per_s,
        figures.cache_reads_per_s,
        figures.data_reads_per_s,
    ];
    let all: f64 = reads.iter().sum();
    let share = |part: f64| {
        if all > 0.0 {
            percent(Some(part * 100.0 / all))
        } else {
            "-".to_owned()
        }
    };
    let latency = |label: &str, of: fn(&Quantiles) -> f64| {
        let shown = |quantiles: &Option<Quantiles>| {
            quantiles
                .as_ref()
                .map_or_else(|| "-".to_owned(), |quantiles| microseconds(of(quantiles)))
        };
        row(
            label,
            [
                "not timed".to_owned(),
                shown(&figures.cache_read_us),
                shown(&figures.data_read_us),
            ],
        )
    };
    let memory = if cell < CELL {
        "memory"
    } else {
        "InnoDB's memory"
    };
    let head = format!(
        "{:<LABEL$}{memory:>cell$} {:>cell$} {:>cell$}",
        "Pages from", "cache", "data disk"
    );
    vec![
        Line::styled(head, Style::new().add_modifier(Modifier::BOLD)),
        row("per second", reads.map(rate)),
        row("share", reads.map(share)),
        latency("p50", |q| q.p50),
        latency("p95", |q| q.p95),
        latency("p99", |q| q.p99),
    ]
}

fn lines(figures: &Figures) -> Vec<Line<'static>> {
    let line = |label: &str, text: String| {
        Line::from(vec![
            Span::styled(format!("{label:<LABEL$}"), dim()),
            Span::raw(text),
        ])
    };
    let of_pool = figures.memory_bytes as f64 * 100.0 / (figures.pool_bytes as f64).max(1.0);
    let saved = figures.saved_ms_per_s.map_or_else(
        || "time not known".to_owned(),
        |saved| {
            let way = if saved < 0.0 { "more" } else { "less" };
            let time = if saved == 0.0 {
                "0 ms".to_owned()
            } else {
                microseconds(saved.abs() * 1000.0)
            };
            format!("{time} waited {way} each second")
        },
    );
    let trouble = figures.errors().saturating_add(figures.reads_given_up);
    let mut lines = vec![
        line(
            "Saved",
            format!(
                "{saved}, {}/s; {} reads in all",
                human(figures.saved_bytes_per_s as u64),
                grouped(figures.saved_reads_total as f64)
            ),
        ),
        line(
            "Cache",
            format!(
                "{} {} of {}, {} pages",
                bar(figures),
                human(figures.bytes_cached),
                human(figures.capacity_bytes),
                grouped(figures.pages_cached as f64)
            ),
        ),
        line(
            "Memory",
            format!(
                "{}, {of_pool:.1} % of InnoDB's pool of {}",
                human(figures.memory_bytes),
                human(figures.pool_bytes)
            ),
        ),
        line(
            "Written",
            format!(
                "cache {}/s ({} in 24 h), InnoDB {}/s",
                human(figures.cache_written_bytes_per_s as u64),
                human(figures.cache_written_bytes_24h),
                human(figures.data_written_bytes_per_s as u64)
            ),
        ),
        line(
            "Pages/s",
            format!(
                "{} admitted, {} rejected, {} evicted, {} changed",
                rate(figures.admitted_per_s),
                rate(figures.rejected_per_s),
                rate(figures.evicted_per_s),
                rate(figures.invalidated_per_s)
            ),
        ),
        line(
            "Server",
            format!(
                "{} transactions/s, {} of {} connections at work, up {} s",
                rate(figures.tps),
                figures.threads_running,
                figures.connections,
                grouped(figures.uptime_s as f64)
            ),
        ),
        line(
            "Trouble",
            format!(
                "{} disk errors, {} failed proofs, {} reads given up, locks held {}",
                grouped(figures.device_errors as f64),
                grouped(figures.failed_proofs as f64),
                grouped(figures.reads_given_up as f64),
                percent(figures.lock_wait_percent)
            ),
        )
        .style(if trouble > 0 {
            coloured(Color::Red)
        } else {
            Style::new()
        }),
    ];
    if figures.latency_refused {
        lines.push(Line::styled(
            "The server gives its read latencies only to accounts with the PROCESS privilege",
            dim(),
        ));
    }
    lines
}

fn bar(figures: &Figures) -> String {
    let share = figures.bytes_cached as f64 / (figures.capacity_bytes as f64).max(1.0);
    let full = ((share * BAR as f64).round() as usize).min(BAR);
    format!("[{}{}]", "#".repeat(full), "-".repeat(BAR - full))
}

/// One decimal for small numbers.
pub fn rate(number: f64) -> String {
    if number > 0.0 && number < 9.95 {
        format!("{number:.1}")
    } else {
        grouped(number)
    }
}
