//! The views, and what they show beside the figures.

use serde_json::Value;

use crate::observe::Sentence;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum View {
    Overview,
    Devices,
    Instances,
    Files,
    Explain,
}

impl View {
    pub const ALL: [(Self, &str); 5] = [
        (Self::Overview, "Overview"),
        (Self::Devices, "Devices"),
        (Self::Instances, "Instances"),
        (Self::Files, "Files"),
        (Self::Explain, "Does it help?"),
    ];

    pub fn number(self) -> usize {
        let found = Self::ALL.iter().position(|(view, _)| *view == self);
        found.unwrap_or(0)
    }
}

/// What a view shows beside the figures.
#[derive(Debug, Clone, Default)]
pub enum Table {
    #[default]
    None,
    /// Of the report that belongs to the view.
    Rows(Vec<Value>),
    Sentences(Vec<Sentence>),
    /// Why there is none, for people.
    Missing(String),
    /// What was kept of the cache at the server's start, while that is news.
    Kept(String),
}
