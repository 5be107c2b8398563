//! Runs the tests of a program, several at a time, and reports the skipped ones with their reasons.
//!
//! The output is that of `cargo test`. In addition, every test appends its skip reason and its figures to the file that
//! `BPE_TEST_REPORT` names; `crates/test-runner` shows them at the end.
//!
//! `make test` runs the first test of each subject: it takes seconds, and checks the subject's main promise. A test on several
//! servers runs on all of them in the full tier, except those of [`Suite::in_turn`].

use std::cell::RefCell;
use std::io::Write;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use private_server::Flavour;

use crate::place::Place;

/// Result of a test; `?` works on every error.
pub type Outcome = anyhow::Result<()>;

/// The reason why a test did not complete.
#[derive(Debug)]
struct Skipped {
    reason: String,
    /// Even CI may lack this.
    allowed: bool,
}

impl std::fmt::Display for Skipped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "skipped: {}", self.reason)
    }
}

impl std::error::Error for Skipped {}

/// The error of a test that cannot run on this host. With `CI` in the environment it is a failure.
pub fn skip(reason: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Skipped {
        reason: reason.into(),
        allowed: false,
    })
}

/// The error of a test that may be skipped even in CI.
pub fn skip_allowed(reason: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Skipped {
        reason: reason.into(),
        allowed: true,
    })
}

/// Servers that CI must have. MariaDB 11.8, and 11.4 as its vendor builds it, are tested where available.
const REQUIRED: [Flavour; 2] = [Flavour::MariaDb1011, Flavour::MySql97];

/// Kind of the trials of [`Suite::in_turn`]. `--list` prints it before the name.
const IN_TURN: &str = "in turn";

thread_local! {
    static RUNNING: RefCell<String> = RefCell::default();
}

/// Notes a figure for the report at the end.
pub fn note(text: impl AsRef<str>) {
    let name = RUNNING.with_borrow(Clone::clone);
    report("figure", &name, text.as_ref());
}

/// Notes for the evidence that a test omits a rule and must detect it.
pub fn note_canary(rule: &str) {
    report("canary", rule, "");
}

fn report(kind: &str, test: &str, text: &str) {
    let line = format!("{kind}\t{test}\t{}\n", text.replace(['\n', '\t'], " "));
    let file = std::env::var_os("BPE_TEST_REPORT").and_then(|path| {
        std::fs::File::options()
            .append(true)
            .create(true)
            .open(path)
            .ok()
    });
    match file {
        Some(mut file) => drop(file.write_all(line.as_bytes())),
        None => eprint!("    {line}"),
    }
}

/// Tests that run at a time: they mostly wait for servers and disks, even on two cores.
const AT_A_TIME: usize = 3;

/// The tests of one program.
pub struct Suite {
    subject: &'static str,
    at_a_time: usize,
    trials: Vec<Trial>,
}

impl Suite {
    /// An empty suite.
    pub fn new(subject: &'static str) -> Suite {
        Suite {
            subject,
            at_a_time: AT_A_TIME,
            trials: Vec::new(),
        }
    }

    /// A test for MariaDB 10.11 and MySQL 9.7.
    pub fn each(self, name: &str, test: fn(&Place) -> Outcome) -> Suite {
        REQUIRED
            .into_iter()
            .fold(self, |suite, flavour| suite.with(flavour, name, test))
    }

    /// A test for the same two servers, of code that does not differ between them. The full tier runs it on one of them. The number
    /// of commits determines which one.
    pub fn in_turn(self, name: &str, test: fn(&Place) -> Outcome) -> Suite {
        let (before, mut suite) = (self.trials.len(), self.each(name, test));
        for trial in suite.trials.split_off(before) {
            suite.trials.push(trial.with_kind(IN_TURN));
        }
        suite
    }

    /// A test for MariaDB 10.11, MySQL 9.7 and, where available, MariaDB 11.8.
    pub fn all(self, name: &str, test: fn(&Place) -> Outcome) -> Suite {
        self.each(name, test).with(Flavour::MariaDb118, name, test)
    }

    /// A test for one server.
    pub fn with(
        self,
        flavour: Flavour,
        name: &str,
        test: impl FnOnce(&Place) -> Outcome + Send + 'static,
    ) -> Suite {
        self.plain(&format!("{}::{name}", flavour.name()), move || {
            let place = Place::new(flavour).map_err(|error| match error.downcast_ref() {
                Some(private_server::Error::Unavailable { .. }) if REQUIRED.contains(&flavour) => {
                    skip(error.to_string())
                }
                Some(private_server::Error::Unavailable { .. }) => skip_allowed(error.to_string()),
                _ => error,
            })?;
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(&place)))
                .unwrap_or_else(|panic| Err(anyhow::anyhow!("{}", text_of_panic(&*panic))));
            outcome.map_err(|error| {
                if error.is::<Skipped>() {
                    error
                } else {
                    place.keep_for_inspection();
                    error.context(place.last_words())
                }
            })
        })
    }

    /// A test that needs no server.
    pub fn plain(mut self, name: &str, test: impl FnOnce() -> Outcome + Send + 'static) -> Suite {
        let full = format!("{}::{name}", self.subject);
        self.trials
            .push(Trial::ignorable_test(full.clone(), move || {
                RUNNING.with_borrow_mut(|running| running.clone_from(&full));
                let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test))
                    .unwrap_or_else(|panic| Err(anyhow::anyhow!("{}", text_of_panic(&*panic))));
                conclude(&full, outcome)
            }));
        self
    }

    /// One test at a time: they measure durations. `make test` still runs them beside others; the noted figures include those
    /// of the same load without the disturbance.
    pub fn one_at_a_time(self) -> Suite {
        Suite {
            at_a_time: 1,
            ..self
        }
    }
}

/// Runs the tests of these subjects. The command line sets the number of parallel tests, or the subject that it names.
pub fn run(suites: impl IntoIterator<Item = Suite>) -> ExitCode {
    let mut arguments = Arguments::from_args();
    let filter = arguments.filter.clone().unwrap_or_default();
    let suites: Vec<Suite> = suites.into_iter().collect();
    let named = suites
        .iter()
        .find(|suite| filter.starts_with(suite.subject));
    let at_a_time = named.map_or(AT_A_TIME, |suite| suite.at_a_time);
    arguments.test_threads.get_or_insert(at_a_time);
    let trials = suites.into_iter().flat_map(|suite| suite.trials).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn text_of_panic(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    format!("panicked: {}", text.unwrap_or("without a text"))
}

fn conclude(name: &str, outcome: Outcome) -> Result<Completion, Failed> {
    match outcome {
        Ok(()) => Ok(Completion::Completed),
        Err(error) => match error.downcast_ref::<Skipped>() {
            Some(skipped) if skipped.allowed || std::env::var_os("CI").is_none() => {
                report("skipped", name, &skipped.reason);
                Ok(Completion::ignored_with(&skipped.reason))
            }
            Some(skipped) => Err(Failed::from(format!(
                "nothing may be skipped in CI: {}",
                skipped.reason
            ))),
            None => Err(Failed::from(chain(&error))),
        },
    }
}

/// The error with its causes, without backtrace.
fn chain(error: &anyhow::Error) -> String {
    let causes: Vec<String> = error.chain().map(ToString::to_string).collect();
    causes.join("\n  caused by: ")
}
