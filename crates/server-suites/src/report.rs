//! The result: a JSON file that grows with each completed suite, and tables generated from it.

use std::fs;
use std::path::Path;

use anyhow::Context;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};

use crate::traffic::Traffic;
use crate::verdict::{Finding, Verdict};

/// Result of one suite with the extension.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SuiteResult {
    pub suite: String,
    pub passed: usize,
    pub failed: usize,
    pub skipped: usize,
    /// Disabled by the suite's own lists.
    pub disabled: usize,
    /// Excluded by our list.
    pub excluded: usize,
    pub findings: Vec<Finding>,
    pub traffic: Traffic,
    /// The extension's error log lines that the suite attributes to no test.
    pub at_shutdown: Vec<String>,
    pub seconds: u64,
    /// Of `seconds`: runs without the extension, and repetitions.
    pub seconds_comparing: u64,
    /// Why the suite was not completed.
    pub incomplete: Option<String>,
}

impl SuiteResult {
    /// Whether something happened that must not happen with the extension.
    pub fn has_fault(&self) -> bool {
        self.incomplete.is_some()
            || self
                .findings
                .iter()
                .any(|finding| finding.verdict.is_fault())
            || !self.at_shutdown.is_empty()
    }

    fn count(&self, verdicts: &[Verdict]) -> usize {
        self.findings
            .iter()
            .filter(|finding| verdicts.contains(&finding.verdict))
            .count()
    }
}

/// Results of all suites of one server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Results {
    pub server: String,
    pub version: String,
    pub plugin: String,
    /// Options of `mysql-test-run.pl`.
    pub options: String,
    pub suites: Vec<SuiteResult>,
}

impl Results {
    /// The results of an earlier run in `file` if it had the same versions; otherwise empty results.
    pub fn read_or_begin(file: &Path, server: &str, version: &str, options: String) -> Results {
        let begun = Results {
            server: server.into(),
            version: version.into(),
            plugin: env!("CARGO_PKG_VERSION").into(),
            options,
            suites: Vec::new(),
        };
        let known = fs::read(file)
            .ok()
            .and_then(|text| serde_json::from_slice::<Results>(&text).ok());
        match known {
            Some(known) if known.version == begun.version && known.plugin == begun.plugin => {
                Results {
                    suites: known.suites,
                    ..begun
                }
            }
            _ => begun,
        }
    }

    /// Adds a suite, or replaces its earlier result.
    pub fn add(&mut self, result: SuiteResult) {
        self.suites.retain(|known| known.suite != result.suite);
        self.suites.push(result);
    }

    /// Writes `results.json` and `results.md`.
    ///
    /// # Errors
    /// Errors of writing the files.
    pub fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let json = serde_json::to_string_pretty(self)?;
        fs::write(folder.join("results.json"), json).context("cannot write results.json")?;
        fs::write(folder.join("results.md"), self.markdown()).context("cannot write results.md")?;
        Ok(())
    }

    /// The table, and every test that neither passed nor was skipped with and without the extension.
    pub fn markdown(&self) -> String {
        let mut text = format!("{}, version {}\n\n", self.server, self.version);
        text += &table(self.suites.iter(), presets::ASCII_MARKDOWN).to_string();
        text += "\n";
        for suite in &self.suites {
            for finding in &suite.findings {
                text += &format!("\n- `{}`: {}", finding.test, describe(finding));
            }
            if let Some(reason) = &suite.incomplete {
                text += &format!(
                    "\n- suite {} did not come to its end: {reason}",
                    suite.suite
                );
            }
        }
        text + "\n"
    }
}

/// Describes a finding in one line.
pub fn describe(finding: &Finding) -> String {
    let reason = match finding.reason.as_str() {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    format!(
        "{} (failed {} of {} with, {} of {} without){reason}",
        finding.verdict.words(),
        finding.with.failed,
        finding.with.runs,
        finding.without.failed,
        finding.without.runs,
    )
}

/// One line per suite, and their sums.
pub fn table<'a>(suites: impl Iterator<Item = &'a SuiteResult>, preset: &str) -> Table {
    let mut table = Table::new();
    table.load_preset(preset).set_header([
        "suite",
        "passed",
        "fails with only",
        "failed once",
        "flaky",
        "fails without too",
        "skipped",
        "disabled",
        "excluded",
        "hits",
        "page reads",
        "taken in",
        "dropped",
        "minutes",
    ]);
    let mut sums = [0u64; 13];
    for suite in suites {
        let figures = [
            suite.passed as u64,
            suite.count(&[Verdict::FailsWith, Verdict::SkippedWith]) as u64,
            suite.count(&[Verdict::FailedOnce]) as u64,
            suite.count(&[Verdict::Flaky]) as u64,
            suite.count(&[Verdict::FailsWithout]) as u64,
            suite.skipped as u64,
            suite.disabled as u64,
            suite.excluded as u64,
            suite.traffic.hits,
            suite.traffic.reads,
            suite.traffic.taken_in,
            suite.traffic.dropped,
            suite.seconds,
        ];
        for (sum, figure) in sums.iter_mut().zip(figures) {
            *sum += figure;
        }
        table.add_row(row(&suite.suite, &figures));
    }
    table.add_row(row("all", &sums));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(name: &str, figures: &[u64; 13]) -> Vec<String> {
    let minutes = format!("{:.1}", figures[12] as f64 / 60.0);
    std::iter::once(name.to_owned())
        .chain(figures[..12].iter().map(u64::to_string))
        .chain([minutes])
        .collect()
}
