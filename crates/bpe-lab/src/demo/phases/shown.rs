//! A phase as table and report show it.

use crate::demo::report::chart::Chart;

/// What table and report show of a phase.
pub trait Shown {
    /// In a few words.
    fn title(&self) -> &'static str;
    /// Its table: the names of the columns, and the rows.
    fn rows(&self) -> (&'static [&'static str], Vec<Vec<String>>);
    /// Sentences.
    fn notes(&self) -> Vec<String>;
    fn charts(&self) -> Vec<Chart>;
}
