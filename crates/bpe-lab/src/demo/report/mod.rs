//! `report.html`: one file without any request to elsewhere.

pub mod chart;
mod page;
mod sections;

use super::results::Results;

pub use page::{date, frame};

/// The whole page.
pub fn html(results: &Results) -> String {
    page::page(results).into_string()
}
