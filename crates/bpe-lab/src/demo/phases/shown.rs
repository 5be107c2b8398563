//! Presentation of a phase in table and report.

use crate::demo::report::chart::Chart;

/// A phase that table and report can present.
pub trait Shown {
    /// A short title.
    fn title(&self) -> &'static str;
    /// The table: column names and rows.
    fn rows(&self) -> (&'static [&'static str], Vec<Vec<String>>);
    /// Sentences below the table.
    fn notes(&self) -> Vec<String>;
    fn charts(&self) -> Vec<Chart>;
}
