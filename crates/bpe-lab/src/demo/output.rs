//! Writes and prints the outcome of a demonstration.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::workspace;
use crate::report::{Report, html, text};

/// Writes the figures into the file `json`, and shows the report.
///
/// # Errors
/// A file cannot be written.
pub fn store(figures: &impl Serialize, report: &Report, json: &Path) -> Result<()> {
    write(json, serde_json::to_string_pretty(figures)?)?;
    show(report, json)
}

/// Prints the report, and writes its page beside the file `json` that it was made from.
///
/// # Errors
/// The page cannot be written.
pub fn show(report: &Report, json: &Path) -> Result<()> {
    let page = json.with_file_name("report.html");
    write(&page, html(report))?;
    print!("{}", text(report));
    println!(
        "\nReport with charts: {}\nFigures as JSON:    {}",
        workspace::shown(&page),
        workspace::shown(json)
    );
    Ok(())
}

/// Writes a file, never through a link.
///
/// # Errors
/// It cannot be written.
pub fn write(path: &Path, text: String) -> Result<()> {
    let mut options = File::options();
    options
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_NOFOLLOW);
    options
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("cannot write {}", path.display()))
}
