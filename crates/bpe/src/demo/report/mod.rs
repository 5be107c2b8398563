//! `report.html`: one file without any request to elsewhere.

mod chart;
mod page;
mod sections;

use super::results::Results;

/// The whole page.
pub fn html(results: &Results) -> String {
    page::page(results).into_string()
}
