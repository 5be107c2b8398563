//! Attribution of failures to the extension.
//!
//! Every test runs with the extension. Passed tests need no comparison. Failed and skipped tests run without it. Those
//! that then pass run more times in both ways, because the servers' tests also fail by chance.

use serde::{Deserialize, Serialize};

use crate::outcome::{Outcome, Outcomes, Status};

/// Attribution of a test that did not pass with the extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// It fails with the extension, and never failed without it.
    FailsWith,
    /// It is skipped with the extension, but runs without it.
    SkippedWith,
    /// It failed with the extension once, and in no later run.
    FailedOnce,
    /// It fails occasionally, also without the extension.
    Flaky,
    /// It fails without the extension as well.
    FailsWithout,
}

impl Verdict {
    /// Whether the extension is presumed at fault.
    pub fn is_fault(self) -> bool {
        matches!(self, Verdict::FailsWith | Verdict::SkippedWith)
    }

    pub fn words(self) -> &'static str {
        match self {
            Verdict::FailsWith => "fails with the extension only",
            Verdict::SkippedWith => "skipped with the extension only",
            Verdict::FailedOnce => "failed once with the extension, then never again",
            Verdict::Flaky => "fails now and then, without the extension too",
            Verdict::FailsWithout => "fails without the extension too",
        }
    }
}

/// Failures of a number of runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tries {
    pub runs: u32,
    pub failed: u32,
}

impl Tries {
    pub fn count(&mut self, outcome: Option<&Outcome>) {
        match outcome.map(|outcome| outcome.status) {
            Some(Status::Passed) => self.runs += 1,
            Some(Status::Failed) => {
                self.runs += 1;
                self.failed += 1;
            }
            _ => {}
        }
    }
}

/// A test that did not pass with the extension.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finding {
    pub test: String,
    pub verdict: Verdict,
    pub with: Tries,
    pub without: Tries,
    /// Output of the suite about the first run with the extension.
    pub reason: String,
    pub details: Vec<String>,
}

/// Tests that started with the extension and did not pass: failed ones first, then self-skipped ones.
pub fn not_passed(with: &Outcomes) -> Vec<&str> {
    let of = |wanted: fn(&Outcome) -> bool| {
        with.iter()
            .filter(move |(_, outcome)| wanted(outcome))
            .map(|(name, _)| name.as_str())
    };
    of(|outcome| outcome.status == Status::Failed)
        .chain(of(|outcome| {
            outcome.status == Status::Skipped && outcome.begun
        }))
        .collect()
}

/// Those of them with a different result without the extension.
pub fn different<'a>(with: &'a Outcomes, without: &Outcomes) -> Vec<&'a str> {
    not_passed(with)
        .into_iter()
        .filter(|name| {
            let here = with[*name].status;
            match without.get(*name).map(|outcome| outcome.status) {
                Some(Status::Failed) => false,
                Some(Status::Passed) => true,
                // Skipped, or absent: the same if it was skipped with the extension.
                _ => here == Status::Failed,
            }
        })
        .collect()
}

/// Judges the tests that did not pass with the extension, except those skipped in both ways. `again` are further runs
/// with and without it.
pub fn judge(with: &Outcomes, without: &Outcomes, again: &[(Outcomes, Outcomes)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for name in not_passed(with) {
        let first = &with[name];
        let (mut here, mut there) = (Tries::default(), Tries::default());
        for (with, without) in
            std::iter::once((with, without)).chain(again.iter().map(|(a, b)| (a, b)))
        {
            here.count(with.get(name));
            there.count(without.get(name));
        }
        let verdict = match first.status {
            Status::Failed if there.failed > 0 && there.failed == there.runs => {
                Verdict::FailsWithout
            }
            Status::Failed if there.failed > 0 => Verdict::Flaky,
            Status::Failed if here.failed == 1 && here.runs > 1 => Verdict::FailedOnce,
            Status::Failed => Verdict::FailsWith,
            _ if there.runs > 0 && here.runs == 0 => Verdict::SkippedWith,
            _ => continue,
        };
        findings.push(Finding {
            test: name.to_owned(),
            verdict,
            with: here,
            without: there,
            reason: first.reason.clone(),
            details: first.details.clone(),
        });
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(all: &[(&str, Status)]) -> Outcomes {
        all.iter()
            .map(|(name, status)| {
                let outcome = Outcome {
                    status: *status,
                    begun: true,
                    reason: String::new(),
                    details: Vec::new(),
                };
                ((*name).to_owned(), outcome)
            })
            .collect()
    }

    #[test]
    fn verdicts() {
        use Status::{Disabled, Failed, Passed, Skipped};
        let with = outcomes(&[
            ("s.always", Failed),
            ("s.both", Failed),
            ("s.chance", Failed),
            ("s.disabled", Disabled),
            ("s.here", Skipped),
            ("s.never", Skipped),
            ("s.once", Failed),
            ("s.passes", Passed),
        ]);
        let without = outcomes(&[
            ("s.always", Passed),
            ("s.both", Failed),
            ("s.chance", Passed),
            ("s.here", Passed),
            ("s.never", Skipped),
            ("s.once", Passed),
        ]);
        assert_eq!(
            different(&with, &without),
            ["s.always", "s.chance", "s.once", "s.here"]
        );
        let again = (
            outcomes(&[
                ("s.always", Failed),
                ("s.chance", Failed),
                ("s.once", Passed),
                ("s.here", Skipped),
            ]),
            outcomes(&[
                ("s.always", Passed),
                ("s.chance", Failed),
                ("s.once", Passed),
                ("s.here", Passed),
            ]),
        );
        let findings = judge(&with, &without, &[again]);
        let found: Vec<_> = findings
            .iter()
            .map(|finding| (finding.test.as_str(), finding.verdict))
            .collect();
        assert_eq!(
            found,
            [
                ("s.always", Verdict::FailsWith),
                ("s.both", Verdict::FailsWithout),
                ("s.chance", Verdict::Flaky),
                ("s.once", Verdict::FailedOnce),
                ("s.here", Verdict::SkippedWith),
            ]
        );
        assert_eq!(findings[0].with, Tries { runs: 2, failed: 2 });
    }

    #[test]
    fn what_does_not_run_without_the_extension_is_no_excuse() {
        let with = outcomes(&[("s.x", Status::Failed)]);
        let findings = judge(&with, &Outcomes::new(), &[]);
        assert_eq!(findings[0].verdict, Verdict::FailsWith);
    }
}
