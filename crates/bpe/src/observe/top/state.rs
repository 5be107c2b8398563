//! State of `bpe top`: all data that a frame is drawn from.

use std::collections::VecDeque;
use std::time::Instant;

use super::view::{Table, View};
use super::watcher::Update;
use crate::observe::Figures;

/// Readings kept for the small charts; also the limit on wider terminals.
const MAX_POINTS: usize = 300;

/// Newest first, as the charts require.
#[derive(Debug, Default)]
pub struct History(VecDeque<u64>);

impl History {
    fn push(&mut self, value: f64) {
        self.0.truncate(MAX_POINTS - 1);
        self.0.push_front(value.max(0.0).round() as u64);
    }

    pub fn latest(&self, most: usize) -> Vec<u64> {
        self.0.iter().take(most).copied().collect()
    }
}

#[derive(Debug, Default)]
pub struct Histories {
    pub qps: History,
    /// Percent.
    pub hit_ratio: History,
    pub cache_reads: History,
    pub data_reads: History,
}

#[derive(Debug)]
pub struct Unreachable {
    pub since: Instant,
    /// Error of the last attempt.
    pub error: String,
}

#[derive(Debug)]
pub struct TopState {
    /// Server and address.
    pub title: String,
    pub view: View,
    /// Seconds between two readings.
    pub interval: u64,
    pub paused: bool,
    pub figures: Option<Figures>,
    pub histories: Histories,
    pub table: Table,
    pub lost: Option<Unreachable>,
    /// Rows of the table above the first visible one.
    pub scrolled: usize,
}

impl TopState {
    pub fn new(title: String, view: View, interval: u64) -> Self {
        Self {
            title,
            view,
            interval,
            paused: false,
            figures: None,
            histories: Histories::default(),
            table: Table::None,
            lost: None,
            scrolled: 0,
        }
    }

    /// Applies an update. While paused, only a lost server is shown.
    pub fn take(&mut self, update: Update) {
        match update {
            Update::Lost(failure) => {
                let since = self
                    .lost
                    .as_ref()
                    .map_or_else(Instant::now, |lost| lost.since);
                self.lost = Some(Unreachable {
                    since,
                    error: failure.what,
                });
            }
            Update::Table(view, table) if view == self.view => self.table = table,
            Update::Table(..) => {}
            Update::Reading(figures, view, table) => {
                self.lost = None;
                if self.paused {
                    return;
                }
                if let Some(figures) = figures {
                    self.remember(&figures);
                    self.figures = Some(*figures);
                }
                if view == self.view {
                    self.table = table;
                }
            }
        }
    }

    fn remember(&mut self, figures: &Figures) {
        let all = &mut self.histories;
        all.qps.push(figures.qps);
        all.cache_reads.push(figures.cache_reads_per_s);
        all.data_reads.push(figures.data_reads_per_s);
        all.hit_ratio.push(figures.hit_ratio_percent.unwrap_or(0.0));
    }

    /// Moves by this many views, and wraps around.
    pub fn turn(&mut self, by: isize) {
        let all = View::ALL.len() as isize;
        self.turn_to((self.view.number() as isize + by).rem_euclid(all) as usize);
    }

    /// Switches to the view of this number from 0, if it exists.
    pub fn turn_to(&mut self, number: usize) {
        if let Some((view, _)) = View::ALL.get(number).filter(|(view, _)| *view != self.view) {
            self.view = *view;
            self.table = Table::None;
            self.scrolled = 0;
        }
    }

    /// Scrolls at most to the last row.
    pub fn scroll(&mut self, by: isize) {
        let rows = match &self.table {
            Table::Rows(rows) => rows.len(),
            Table::Sentences(sentences) => sentences.len(),
            Table::None | Table::Missing(_) | Table::Persisted(_) => 0,
        };
        self.scrolled = self
            .scrolled
            .saturating_add_signed(by)
            .min(rows.saturating_sub(1));
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::observe::explain::tests::good;
    use crate::support::failure::Failure;
    use serde_json::json;

    pub fn reading(table: Table, view: View) -> Update {
        Update::Reading(Some(Box::new(good())), view, table)
    }

    #[test]
    fn a_lost_server_is_remembered_until_it_answers() {
        let mut state = TopState::new("s".into(), View::Overview, 1);
        state.take(Update::Lost(Failure::step("gone")));
        let since = state.lost.as_ref().unwrap().since;
        state.take(Update::Lost(Failure::step("still gone")));
        let lost = state.lost.as_ref().unwrap();
        assert_eq!((lost.since, lost.error.as_str()), (since, "still gone"));
        state.take(Update::Reading(None, View::Overview, Table::None));
        assert!(state.lost.is_none());
    }

    #[test]
    fn paused_state_keeps_its_figures_and_drops_other_tables() {
        let mut state = TopState::new("s".into(), View::Files, 1);
        state.paused = true;
        state.take(reading(Table::None, View::Files));
        assert!(state.figures.is_none());
        state.paused = false;
        let rows = || Table::Rows(vec![json!({}), json!({})]);
        state.take(reading(rows(), View::Devices));
        assert!(state.figures.is_some() && matches!(state.table, Table::None));
        state.take(Update::Table(View::Files, rows()));
        state.scroll(isize::MAX);
        assert_eq!(state.scrolled, 1);
        state.scroll(isize::MIN);
        assert_eq!(state.scrolled, 0);
        assert_eq!(state.histories.qps.latest(5), [2000]);
    }
}
