//! The watcher thread polls the server: figures at every interval, and the table of the current view.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::view::{Table, View};
use crate::connect::report;
use crate::observe::explain::{Circumstances, explain};
use crate::observe::persisted::Persisted;
use crate::observe::{Figures, Observer};
use crate::support::failure::{Exit, Failure};

#[derive(Debug)]
pub enum Update {
    /// The first reading has no figures, because they describe the time between two readings.
    Reading(Option<Box<Figures>>, View, Table),
    Table(View, Table),
    Lost(Failure),
}

pub struct Watcher {
    pub updates: Receiver<Update>,
    views: Sender<View>,
}

impl Watcher {
    /// The thread ends after the watcher is dropped, once its current query has returned, or with the process.
    pub fn start(mut observer: Observer, view: View, interval: Duration) -> Self {
        let (sender, updates) = channel();
        let (views, wanted) = channel();
        std::thread::spawn(move || watch(&mut observer, view, interval, &sender, &wanted));
        Self { updates, views }
    }

    /// Selects the table to fetch, at once and with every later reading.
    pub fn look_at(&self, view: View) {
        let _ = self.views.send(view);
    }
}

fn watch(
    observer: &mut Observer,
    mut view: View,
    interval: Duration,
    updates: &Sender<Update>,
    wanted: &Receiver<View>,
) {
    let mut figures = None;
    loop {
        let due = Instant::now() + interval;
        let update = read(observer, view, &mut figures).unwrap_or_else(Update::Lost);
        if updates.send(update).is_err() {
            return;
        }
        loop {
            match wanted.recv_timeout(due.saturating_duration_since(Instant::now())) {
                Ok(other) => {
                    view = other;
                    let table = table(observer, view, figures.as_ref());
                    if updates.send(Update::Table(view, table)).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Takes one reading.
///
/// # Errors
/// The server is unreachable; the next reading connects again.
pub fn read(
    observer: &mut Observer,
    view: View,
    figures: &mut Option<Figures>,
) -> Result<Update, Failure> {
    let now = observer.figures();
    *figures = match now {
        Ok(now) => now,
        Err(error) => {
            *figures = None;
            return Err(error);
        }
    };
    let table = table(observer, view, figures.as_ref());
    Ok(Update::Reading(figures.clone().map(Box::new), view, table))
}

fn table(observer: &mut Observer, view: View, figures: Option<&Figures>) -> Table {
    let asked = match view {
        View::Overview => match figures.filter(|figures| figures.state == "active") {
            None => return Table::None,
            Some(figures) => observer
                .server()
                .and_then(|server| Persisted::read(server, figures.uptime_s))
                .map(|kept| {
                    kept.map_or(Table::None, |kept| Table::Persisted(kept.sentence().text))
                }),
        },
        View::Explain => match figures {
            None => return Table::None,
            Some(figures) => observer
                .server()
                .and_then(|server| Circumstances::read(server, figures))
                .map(|about| Table::Sentences(explain(figures, &about))),
        },
        View::Devices => rows(observer, "devices").map(Table::Rows),
        View::Instances => rows(observer, "instances").map(Table::Rows),
        View::Files => rows(observer, "files").map(|mut rows| {
            rows.sort_by_key(|row| std::cmp::Reverse(row["hits"].as_u64()));
            Table::Rows(rows)
        }),
    };
    asked.unwrap_or_else(|error| {
        // A late answer could be taken for the next one.
        if error.exit != Exit::No {
            observer.disconnect();
        }
        Table::Missing(error.to_string())
    })
}

fn rows(observer: &mut Observer, name: &str) -> Result<Vec<Value>, Failure> {
    match report::ask(observer.server()?, name, "does not tell this")? {
        Value::Array(rows) => Ok(rows),
        _ => Ok(Vec::new()),
    }
}
