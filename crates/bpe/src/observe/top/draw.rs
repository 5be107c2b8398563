//! Draws a frame: title, views, alerts, the current view, and the keys.
//!
//! Drawing never fails on a small terminal. Content that does not fit is cut off, and the least important content is lowest.

use interface::Untrusted;
use interface::untrusted::{is_visible, one_line};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Paragraph, Wrap};

use super::parts::dim;
use super::state::TopState;
use super::view::View;
use super::{overview, tables};
use crate::support::terminal::coloured;

/// Maximum number of characters shown of a state.
const MAX_STATE_WIDTH: usize = 20;
/// Minimum height of a frame that explains the keys.
const MIN_HEIGHT: u16 = 8;

pub fn frame(frame: &mut Frame<'_>, state: &TopState) {
    let news = news(state);
    let area = frame.area();
    let keys = u16::from(area.height >= MIN_HEIGHT);
    let lines = news.as_ref().map_or(0, |news| {
        let columns = usize::from(area.width.max(1));
        news.width().div_ceil(columns).clamp(1, 3) as u16
    });
    let [title, views, wrong, body, last] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(lines),
        Constraint::Fill(1),
        Constraint::Length(keys),
    ])
    .areas(area);
    frame.render_widget(title_line(state, title.width), title);
    frame.render_widget(view_line(state), views);
    if let Some(news) = news {
        frame.render_widget(Paragraph::new(news).wrap(Wrap { trim: true }), wrong);
    }
    match state.view {
        View::Overview => overview::draw(frame, body, state),
        _ => tables::draw(frame, body, state),
    }
    let help = "q quit   Tab, arrows, 1-5 view   up, down scroll   p pause";
    frame.render_widget(Line::styled(help, dim()), last);
    for cell in &mut frame.buffer_mut().content {
        if !cell.symbol().chars().all(is_visible) {
            cell.set_char(char::REPLACEMENT_CHARACTER);
        }
    }
}

/// The state comes first, because the server's address may not fit.
fn title_line(state: &TopState, width: u16) -> Line<'static> {
    let name = "bpe top  ";
    let extension = match &state.figures {
        Some(figures) => Untrusted::new(&figures.state)
            .cut_at(MAX_STATE_WIDTH)
            .to_string(),
        None => "...".to_owned(),
    };
    let style = match extension.as_str() {
        "active" => coloured(Color::Green),
        "failed" => coloured(Color::Red),
        _ => coloured(Color::Yellow),
    };
    let pause = if state.paused { "PAUSED, " } else { "" };
    let right = format!("{pause}every {} s", state.interval);
    let others = name.len() + extension.chars().count() + 2 + 2 + right.len();
    let room = usize::from(width).saturating_sub(others);
    let server = shortened(&state.title, room);
    let gap = room - server.chars().count() + 2;
    Line::from(vec![
        Span::styled(name, Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(extension, style.add_modifier(Modifier::BOLD)),
        Span::raw(format!("  {server}{}", " ".repeat(gap))),
        Span::styled(right, dim()),
    ])
}

/// A server and its address in at most `room` columns. A long text loses its middle, because the end of a path is most specific.
fn shortened(title: &str, room: usize) -> String {
    let length = title.chars().count();
    if length <= room {
        return title.to_owned();
    }
    let Some(kept) = room.checked_sub(1) else {
        return String::new();
    };
    // "MariaDB 10.11.19, " stays whole if the address keeps as many characters.
    let server = title
        .split_once(", ")
        .map_or(0, |(server, _)| server.chars().count() + 2);
    let head = server.min(kept / 2);
    let tail = length - (kept - head);
    title
        .chars()
        .take(head)
        .chain(['…'])
        .chain(title.chars().skip(tail))
        .collect()
}

fn view_line(state: &TopState) -> Line<'static> {
    let mut spans = Vec::new();
    for (number, (view, name)) in View::ALL.iter().enumerate() {
        let style = if *view == state.view {
            Style::new().add_modifier(Modifier::REVERSED)
        } else {
            Style::new()
        };
        spans.push(Span::styled(format!(" {} {name} ", number + 1), style));
    }
    Line::from(spans)
}

/// The most important alert.
fn news(state: &TopState) -> Option<Line<'static>> {
    let alarming = coloured(Color::Red).add_modifier(Modifier::BOLD);
    if let Some(lost) = &state.lost {
        let text = format!(
            "No connection to the server for {} s: {}. The figures are the last ones known; trying again every {} s.",
            lost.since.elapsed().as_secs(),
            one_line(&lost.error),
            state.interval
        );
        return Some(Line::styled(text, alarming));
    }
    let figures = state.figures.as_ref()?;
    let text = match (figures.state.as_str(), figures.state_reason.as_str()) {
        ("active", "") => return None,
        ("not installed", _) => {
            "The extension is not installed on this server: `bpe doctor` says whether it would help.".to_owned()
        }
        ("disabled", "") => {
            "The extension is switched off: SET GLOBAL bpe_enabled = ON switches it on.".to_owned()
        }
        (_, reason) => Untrusted::new(reason).to_string(),
    };
    Some(Line::styled(text, coloured(Color::Yellow)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_loses_the_middle() {
        let title = "MariaDB 10.11.19, socket /a/long/path/run/mysqld.sock";
        assert_eq!(shortened(title, title.len()), title);
        assert_eq!(
            shortened(title, 45),
            "MariaDB 10.11.19, …/long/path/run/mysqld.sock"
        );
        assert_eq!(shortened(title, 20), "MariaDB 1…ysqld.sock");
        assert_eq!(shortened("näme, ü", 5), "nä…\u{20}ü");
        assert_eq!(
            (shortened(title, 1), shortened(title, 0)),
            ("…".into(), String::new())
        );
        for room in 0..60 {
            assert_eq!(
                shortened(title, room).chars().count(),
                room.min(title.len())
            );
        }
    }
}
