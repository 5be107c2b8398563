//! The views, and their data besides the figures.

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

/// Data of a view besides the figures.
#[derive(Debug, Clone, Default)]
pub enum Table {
    #[default]
    None,
    /// Rows of the view's report.
    Rows(Vec<Value>),
    Sentences(Vec<Sentence>),
    /// Why there are no rows, as a message.
    Missing(String),
    /// Recovery result of the last start, during the server's first hour.
    Persisted(String),
}
