//! Parser of `mysql-test-run.pl`'s output about each test, line by line.
//!
//! ```text
//! innodb_zip.blob '4k'                     w2 [ pass ]    123
//! innodb_zip.restart                       w1 [ fail ]  Found warnings/errors in server log file!
//! [ 35%] innodb.log_alter_table                    [ skipped ]  Test needs debug binaries.
//! ```

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Result of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    Passed,
    Failed,
    /// The suite decided that the test cannot run here.
    Skipped,
    /// The suite's own lists, or our exclusions, disable it.
    Disabled,
}

/// Result of one test, with its output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    pub status: Status,
    /// Whether the test started. Most skipped tests do not, because their requirements are known to be missing.
    pub begun: bool,
    /// Text after the status: a reason, or empty.
    pub reason: String,
    /// The lines after a failed test.
    pub details: Vec<String>,
}

/// All tests of one run, by name with combination.
pub type Outcomes = BTreeMap<String, Outcome>;

/// Maximum number of stored lines of a failed test.
const MOST_DETAILS: usize = 80;

/// Parser that receives a run's output line by line.
#[derive(Debug, Default)]
pub struct Reader {
    pub outcomes: Outcomes,
    /// Error log lines at shutdown that the suite attributes to no test.
    pub at_shutdown: Vec<String>,
    /// Whether the suite was completed.
    pub completed: bool,
    failing: Option<String>,
    in_shutdown: bool,
}

impl Reader {
    /// Parses the next line. Returns the test's name and result if the line has one.
    pub fn line(&mut self, line: &str) -> Option<(String, Status)> {
        if line.starts_with("Completed: ") {
            self.completed = true;
        }
        if let Some((name, status, begun, reason)) = parse(line) {
            self.failing = (status == Status::Failed).then(|| name.clone());
            self.in_shutdown = false;
            let outcome = Outcome {
                status,
                begun,
                reason: reason.to_owned(),
                details: Vec::new(),
            };
            // With --repeat a test has several lines; a single failure is decisive.
            let known = self.outcomes.get(&name);
            if known.is_none_or(|known| known.status != Status::Failed) {
                self.outcomes.insert(name.clone(), outcome);
            }
            return Some((name, status));
        }
        if line.starts_with("***Warnings generated in error logs during shutdown") {
            self.in_shutdown = true;
            self.failing = None;
        } else if line.starts_with("-----") {
            self.in_shutdown = false;
            self.failing = None;
        }
        if self.in_shutdown && !line.trim().is_empty() {
            self.at_shutdown.push(line.to_owned());
        }
        if let Some(outcome) = self
            .failing
            .as_ref()
            .and_then(|name| self.outcomes.get_mut(name))
        {
            if outcome.details.len() < MOST_DETAILS && !line.trim().is_empty() {
                outcome.details.push(line.to_owned());
            }
        }
        None
    }
}

/// Parses a line about a test: name with combination, status, whether it started, and reason.
fn parse(line: &str) -> Option<(String, Status, bool, &str)> {
    let line = line.trim_end();
    // MySQL prints the completed share, `[ 35%] `.
    let line = match line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("%] "))
    {
        Some((share, rest)) if share.trim().parse::<u8>().is_ok() => rest,
        _ => line,
    };
    let (left, right) = line.split_once(" [ ")?;
    let (status, reason) = right.split_once(" ]")?;
    let status = match status {
        "pass" | "retry-pass" => Status::Passed,
        "fail" | "retry-fail" => Status::Failed,
        "skipped" => Status::Skipped,
        "disabled" => Status::Disabled,
        _ => return None,
    };
    // A started test has a worker, `w2`.
    let begun = left
        .split_whitespace()
        .next_back()
        .and_then(|word| word.strip_prefix('w'))
        .is_some_and(|number| number.parse::<u32>().is_ok());
    let (test, combination) = match left.split_once(" '") {
        Some((test, rest)) => (test, rest.split_once('\'').map(|(inside, _)| inside)?),
        None => (left.split_whitespace().next()?, ""),
    };
    let (suite, name) = test.split_once('.')?;
    if suite.contains(char::is_whitespace) || name.contains(char::is_whitespace) || name.is_empty()
    {
        return None;
    }
    let name = match combination {
        "" => test.to_owned(),
        combination => format!("{test} '{combination}'"),
    };
    Some((name, status, begun, reason.trim()))
}

/// Argument for MariaDB's `mysql-test-run.pl`: `suite.test,combination`.
pub fn argument_with_combination(name: &str) -> String {
    match name.split_once(" '") {
        Some((test, combination)) => format!("{test},{}", combination.trim_end_matches('\'')),
        None => name.to_owned(),
    }
}

/// The name without its combination.
pub fn without_combination(name: &str) -> &str {
    name.split(" '").next().unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_both_servers_are_understood() {
        let cases = [
            (
                "innodb_zip.page_size '16k,strict_full_crc32' w1 [ pass ]    385",
                "innodb_zip.page_size '16k,strict_full_crc32'",
                Status::Passed,
                true,
                "385",
            ),
            (
                "innodb.alter_table                       w1 [ fail ]  Found warnings/errors in server log file!",
                "innodb.alter_table",
                Status::Failed,
                true,
                "Found warnings/errors in server log file!",
            ),
            (
                "[ 35%] innodb.log_alter_table                    [ skipped ]  Test needs debug binaries.",
                "innodb.log_alter_table",
                Status::Skipped,
                false,
                "Test needs debug binaries.",
            ),
            (
                "[  4%] clone.x 'mix'   w12  [ disabled ]   BUG#1",
                "clone.x 'mix'",
                Status::Disabled,
                true,
                "BUG#1",
            ),
        ];
        for (line, name, status, begun, reason) in cases {
            assert_eq!(
                parse(line),
                Some((name.into(), status, begun, reason)),
                "{line}"
            );
        }
    }

    #[test]
    fn other_lines_are_not_taken_for_tests() {
        for line in [
            "[100%] shutdown_report                          w0  [ pass ]       ",
            "Completed: All 57 tests were successful.",
            "2026-11-22  3:57:06 0 [Warning] InnoDB: x.y [ fail ] z",
            "",
        ] {
            assert_eq!(parse(line), None, "{line}");
        }
    }

    #[test]
    fn the_lines_behind_a_failure_belong_to_it() {
        let mut reader = Reader::default();
        for line in [
            "a.one  w1 [ fail ]",
            "        Test ended at x",
            "@@ -1 +1 @@",
            "a.two  w1 [ pass ]  3",
            "***Warnings generated in error logs during shutdown after running tests: a.two",
            "",
            "x [Warning] y",
            "--------------------",
            "Completed: Failed 1/2 tests, 50.00% were successful.",
        ] {
            reader.line(line);
        }
        assert!(reader.completed);
        assert_eq!(reader.outcomes["a.one"].details.len(), 2);
        assert_eq!(reader.outcomes["a.two"].status, Status::Passed);
        assert_eq!(reader.at_shutdown[1], "x [Warning] y");
    }

    #[test]
    fn a_combination_can_be_asked_for() {
        assert_eq!(argument_with_combination("a.b '4k,x'"), "a.b,4k,x");
        assert_eq!(argument_with_combination("a.b"), "a.b");
        assert_eq!(without_combination("a.b '4k,x'"), "a.b");
    }
}
