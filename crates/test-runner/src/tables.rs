//! Generates the tables of `docs/evidence/reliability.md` from the evidence of a whole run.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, ensure};
use serde::Deserialize;

const DOCUMENT: &str = "docs/evidence/reliability.md";
const BEGIN: &str = "<!-- from the evidence: make tables -->\n";
const END: &str = "<!-- end -->\n";
/// Number of subjects with a separate row; the last row sums the others.
const LONGEST_SUBJECTS: usize = 10;

/// The fields of the evidence that the tables need.
#[derive(Deserialize)]
struct Evidence {
    commit: String,
    seconds: u64,
    building_seconds: u64,
    steps: Vec<Step>,
    rules: Vec<(String, String)>,
    canaries: Vec<Canary>,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    seconds: f64,
    result: String,
    in_test: bool,
}

/// A disabled rule, and the step that detected it.
#[derive(Deserialize)]
struct Canary {
    rule: String,
    by: String,
    in_test: bool,
}

/// A row of the second table.
struct Subject {
    name: String,
    steps: usize,
    in_test: usize,
    seconds: f64,
}

/// Replaces the tables in the document. Fails if no step detected the absence of some rule.
pub fn write(evidence: &Path) -> anyhow::Result<()> {
    let text = std::fs::read(evidence).with_context(|| format!("{}", evidence.display()))?;
    let evidence: Evidence = serde_json::from_slice(&text).context("no evidence of a whole run")?;
    let document = std::fs::read_to_string(DOCUMENT).context(DOCUMENT)?;
    let (before, rest) = document.split_once(BEGIN).context("no place for tables")?;
    let (_, after) = rest.split_once(END).context("the tables do not end")?;
    let new = format!("{before}{BEGIN}\n{}\n{END}{after}", evidence.tables());
    std::fs::write(DOCUMENT, new).context(DOCUMENT)?;
    let unnoticed: Vec<&str> = evidence
        .rules
        .iter()
        .map(|(rule, _)| rule.as_str())
        .filter(|rule| evidence.canaries.iter().all(|canary| canary.rule != *rule))
        .collect();
    ensure!(
        unnoticed.is_empty(),
        "nothing notices the absence of {unnoticed:?}"
    );
    Ok(())
}

impl Evidence {
    fn tables(&self) -> String {
        let failed = self.steps.iter().filter(|step| step.result == "failed");
        let mut text = format!(
            "`make test-full` on {}: {} steps, {} failed, {} minutes, {} of them building.\n\n",
            self.commit,
            self.steps.len(),
            failed.count(),
            self.seconds / 60,
            self.building_seconds / 60,
        );
        text.push_str("| rule | without it | noticed by | in `make test` |\n|---|---|---|---|\n");
        for (rule, without) in self.every_rule() {
            let of_rule = |canary: &&Canary| canary.rule == rule;
            let noticed: Vec<&Canary> = self.canaries.iter().filter(of_rule).collect();
            let mut by: Vec<String> = noticed.iter().map(|canary| canary.subject()).collect();
            by.sort();
            by.dedup();
            let in_test = noticed.iter().any(|canary| canary.in_test);
            let yes = if in_test { "yes" } else { "" };
            let _ = writeln!(text, "| `{rule}` | {without} | {} | {yes} |", by.join(", "));
        }
        text.push_str(
            "\n| subject | steps | of them in `make test` | seconds |\n|---|---:|---:|---:|\n",
        );
        let mut subjects: Vec<Subject> = self.subjects().into_iter().map(Subject::new).collect();
        subjects.sort_by(|one, other| other.seconds.total_cmp(&one.seconds));
        let rest = subjects.split_off(subjects.len().min(LONGEST_SUBJECTS));
        if !rest.is_empty() {
            subjects.push(Subject {
                name: format!("{} others", rest.len()),
                steps: rest.iter().map(|subject| subject.steps).sum(),
                in_test: rest.iter().map(|subject| subject.in_test).sum(),
                seconds: rest.iter().map(|subject| subject.seconds).sum(),
            });
        }
        for Subject {
            name,
            steps,
            in_test,
            seconds,
        } in subjects
        {
            let _ = writeln!(text, "| {name} | {steps} | {in_test} | {seconds:.0} |");
        }
        text
    }

    /// The rules of `coherence::canary` and those of the restart model.
    fn every_rule(&self) -> BTreeMap<&str, &str> {
        let of_models = self
            .canaries
            .iter()
            .map(|canary| (canary.rule.as_str(), ""));
        let named = self.rules.iter();
        of_models
            .chain(named.map(|(rule, without)| (rule.as_str(), without.as_str())))
            .collect()
    }

    fn subjects(&self) -> BTreeMap<&str, Vec<&Step>> {
        let mut subjects: BTreeMap<&str, Vec<&Step>> = BTreeMap::new();
        for step in &self.steps {
            let subject = step.name.split("::").next().unwrap_or_default();
            subjects.entry(subject).or_default().push(step);
        }
        subjects
    }
}

impl Subject {
    fn new((name, steps): (&str, Vec<&Step>)) -> Subject {
        Subject {
            name: name.to_owned(),
            steps: steps.len(),
            in_test: steps.iter().filter(|step| step.in_test).count(),
            seconds: steps.iter().map(|step| step.seconds).sum(),
        }
    }
}

impl Canary {
    fn subject(&self) -> String {
        format!("`{}`", self.by.split("::").next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_each_rule_and_who_notices() {
        let evidence: Evidence = serde_json::from_value(serde_json::json!({
            "commit": "abc", "seconds": 600, "building_seconds": 60,
            "steps": [
                {"name": "ddl::a", "seconds": 1.5, "result": "passed", "in_test": true},
                {"name": "ddl::b", "seconds": 2.5, "result": "failed", "in_test": false},
            ],
            "rules": [["writes", "a write drops nothing"], ["token", "no token"]],
            "canaries": [
                {"rule": "writes", "by": "ddl::a", "after": "after 3 schedules", "in_test": true},
                {"rule": "sync", "by": "ddl::b", "after": "", "in_test": false},
            ],
        }))
        .unwrap();
        let tables = evidence.tables();
        for line in [
            "`make test-full` on abc: 2 steps, 1 failed, 10 minutes, 1 of them building.",
            "| `writes` | a write drops nothing | `ddl` | yes |",
            "| `token` | no token |  |  |",
            "| `sync` |  | `ddl` |  |",
            "| ddl | 2 | 1 | 4 |",
        ] {
            assert!(tables.lines().any(|one| one == line), "{line}: {tables}");
        }
    }
}
