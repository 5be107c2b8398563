//! `bpe top --once`: a frame as text.

use std::io;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;

use super::state::TopState;
use super::view::{Table, View};
use super::{draw, watcher};
use crate::observe::Observer;
use crate::support::failure::Failure;
use crate::support::terminal;

/// Default columns without a terminal.
const WIDTH: usize = 100;
/// Lines around a view, and lines of the overview.
const AROUND: usize = 4;
const OVERVIEW: usize = 22;

/// Takes two readings, an interval apart. Returns whether the extension is active.
///
/// # Errors
/// The server does not answer.
pub fn fill(
    state: &mut TopState,
    observer: &mut Observer,
    interval: Duration,
) -> Result<bool, Failure> {
    let mut figures = None;
    watcher::read(observer, View::Overview, &mut figures)?;
    std::thread::sleep(interval);
    state.take(watcher::read(observer, state.view, &mut figures)?);
    Ok(figures.is_some_and(|figures| figures.state == "active"))
}

/// The whole frame without colours, with as many lines as it needs.
///
/// # Errors
/// None that the state could cause.
pub fn text(state: &TopState) -> io::Result<String> {
    let width = terminal::width().unwrap_or(WIDTH);
    let rows = match &state.table {
        Table::Rows(rows) => rows.len() + 1,
        Table::Sentences(sentences) => sentences
            .iter()
            .map(|sentence| {
                let lines = |text: &str| {
                    text.chars()
                        .count()
                        .div_ceil(width.saturating_sub(12).max(1))
                };
                lines(&sentence.text) + sentence.origin().map_or(0, |text| lines(&text)) + 2
            })
            .sum(),
        Table::None | Table::Missing(_) | Table::Persisted(_) => OVERVIEW,
    };
    let size = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
    drawn(state, size(width), size(rows + AROUND + 3))
}

fn drawn(state: &TopState, width: u16, height: u16) -> io::Result<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    let frame = terminal.draw(|frame| draw::frame(frame, state))?;
    // The last line explains keys, which are useless here.
    let text = lines(frame.buffer, height.saturating_sub(1));
    Ok(text.trim_end().to_owned())
}

fn lines(buffer: &Buffer, height: u16) -> String {
    let mut text = String::new();
    for y in 0..height {
        let row: String = (0..buffer.area.width)
            .map(|x| buffer[(x, y)].symbol())
            .collect();
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::json;

    use super::*;
    use crate::observe::explain::tests::good;
    use crate::observe::explain::{Circumstances, explain};
    use crate::observe::top::state::{Unreachable, tests::reading};

    fn showing(view: View, table: Table) -> TopState {
        let mut state = TopState::new("MariaDB 10.11.19, socket /run/x".into(), view, 1);
        state.take(reading(table, view));
        state
    }

    fn contains(text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn the_overview_fits_the_usual_terminal() {
        let state = showing(View::Overview, Table::None);
        let text = drawn(&state, 80, 24).unwrap();
        contains(
            &text,
            &[
                "MariaDB 10.11.19",
                "active",
                "every 1 s",
                "Queries/s           2,000",
                "90.0 %",
                "p99                 not timed          320 us         4.32 ms",
                "900 ms waited less each second",
                "[###################-] 969 MiB of 1 GiB",
                "3.1 % of InnoDB's pool of 128 MiB",
                "0 disk errors",
            ],
        );
        assert!(text.lines().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn what_was_kept_is_said_at_first() {
        let kept = "92.0 % of the cache was kept when the server was started.";
        let state = showing(View::Overview, Table::Persisted(kept.into()));
        contains(&drawn(&state, 100, 26).unwrap(), &[kept, "0 disk errors"]);
    }

    #[test]
    fn the_state_is_seen_however_long_the_address_is() {
        for state in ["active", "not installed"] {
            for (width, height) in [(80, 24), (60, 20), (36, 10)] {
                let title = format!("MariaDB 10.11.19, socket /{}/mysqld.sock", "x".repeat(200));
                let mut showing = TopState::new(title, View::Overview, 1);
                showing.take(reading(Table::None, View::Overview));
                if let Some(figures) = &mut showing.figures {
                    figures.state = state.into();
                }
                let text = drawn(&showing, width, height).unwrap();
                let first = text.lines().next().unwrap_or_default();
                assert!(first.starts_with(&format!("bpe top  {state}  ")), "{first}");
                assert!(first.ends_with("every 1 s"), "{first}");
                if width >= 60 {
                    contains(first, &["MariaDB", "…", "d.sock  every"]);
                    contains(&text, &["data disk\n", "4.32 ms\n"]);
                }
            }
        }
    }

    #[test]
    fn frames_show_no_invisible_characters() {
        let hostile = "x\u{1b}[2K\u{202e}\u{200b}e\u{200d}y\n\u{e0041}";
        let devices = json!([{"path": hostile, "state": hostile, "instance": hostile}]);
        let rows = devices.as_array().cloned().unwrap_or_default();
        let sentences = explain(&good(), &Circumstances::default());
        for (view, table) in [
            (View::Overview, Table::Persisted(hostile.into())),
            (View::Devices, Table::Rows(rows.clone())),
            (View::Instances, Table::Rows(rows)),
            (View::Files, Table::Missing(hostile.into())),
            (View::Explain, Table::Sentences(sentences)),
        ] {
            let mut state = showing(view, table);
            state.title = hostile.into();
            if let Some(figures) = &mut state.figures {
                (figures.state, figures.state_reason) = (hostile.into(), hostile.into());
            }
            let text = drawn(&state, 100, 24).unwrap();
            let bad = text
                .chars()
                .find(|c| *c != '\n' && !interface::untrusted::is_visible(*c));
            assert_eq!(bad, None, "{text:?}");
        }
    }

    #[test]
    fn no_size_is_too_small() {
        for view in View::ALL {
            let mut state = showing(view.0, Table::Missing("why".into()));
            state.lost = Some(Unreachable {
                since: Instant::now(),
                error: "gone".into(),
            });
            for (width, height) in [(1, 1), (5, 3), (20, 7), (40, 12), (300, 90)] {
                drawn(&state, width, height).unwrap();
            }
        }
    }

    #[test]
    fn what_is_wrong_comes_first() {
        let mut state = showing(View::Overview, Table::None);
        if let Some(figures) = &mut state.figures {
            figures.state = "failed".into();
            figures.state_reason = "no space left on /mnt".into();
        }
        contains(
            &drawn(&state, 80, 24).unwrap(),
            &["failed", "no space left on /mnt"],
        );
        state.lost = Some(Unreachable {
            since: Instant::now(),
            error: "connection refused".into(),
        });
        contains(
            &drawn(&state, 80, 24).unwrap(),
            &[
                "No connection to the server for 0 s: connection refused",
                "trying again",
            ],
        );
    }

    #[test]
    fn tables_and_sentences() {
        let devices = json!([{"path": "/mnt/a.cache", "state": "active", "active": true, "bytes": 1 << 30, "errors": 2}]);
        let rows =
            |value: serde_json::Value| Table::Rows(value.as_array().cloned().unwrap_or_default());
        contains(
            &text(&showing(View::Devices, rows(devices))).unwrap(),
            &["/mnt/a.cache", "1 GiB"],
        );
        let instances = json!([{"instance": 0, "share": 75.0, "hits": 1000, "misses": 1000, "pages": 7, "lock_waits": 1, "lock_accesses": 100}]);
        contains(
            &text(&showing(View::Instances, rows(instances))).unwrap(),
            &["75.0 %", "50.0 %", "1.0 %"],
        );
        let files: Vec<_> = (0..200)
            .map(|n| json!({"file": format!("./t/{n}.ibd"), "hits": n, "hit_ratio": 12.5, "cached_bytes": 16384}))
            .collect();
        let mut state = showing(View::Files, Table::Rows(files));
        contains(
            &text(&state).unwrap(),
            &["./t/0.ibd", "./t/199.ibd", "16 KiB", "12.5 %"],
        );
        state.scroll(150);
        let scrolled = drawn(&state, 80, 24).unwrap();
        contains(&scrolled, &["./t/150.ibd"]);
        assert!(!scrolled.contains("./t/149.ibd"));
        let long =
            json!([{"path": format!("/mnt/{}/the-end.cache", "x".repeat(90)), "active": true}]);
        contains(
            &drawn(&showing(View::Devices, rows(long)), 80, 24).unwrap(),
            &["…", "x/the-end.cache "],
        );
        let sentences = explain(&good(), &Circumstances::default());
        let state = showing(View::Explain, Table::Sentences(sentences));
        contains(
            &text(&state).unwrap(),
            &[
                "+ It helps: of 1,000",
                "hit_ratio_percent 90",
                "device_errors 0",
            ],
        );
        let empty = showing(View::Files, Table::Rows(Vec::new()));
        contains(&text(&empty).unwrap(), &["not active"]);
    }
}
