//! `report.html`: one self-contained file.

pub mod chart;
mod page;
mod picture;
mod sections;

use super::phases::Shown;
use super::results::Results;

pub use page::{date, frame};

/// The whole page.
pub fn html(results: &Results) -> String {
    page::page(results).into_string()
}

/// The curves of the restarts as a self-contained picture, if there were any.
pub fn restarts(results: &Results) -> Option<String> {
    let restarts = results
        .runs
        .iter()
        .filter_map(|run| run.phases.restarts.as_ref());
    let charts: Vec<_> = restarts.flat_map(Shown::charts).collect();
    (!charts.is_empty()).then(|| picture::svg(&charts))
}
