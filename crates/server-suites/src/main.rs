//! Runs the servers' own test suites with the extension enabled, and re-runs failed tests without it.
//!
//! [`sandbox`] runs `mysql-test-run.pl`, [`outcome`] parses its output, [`verdict`] separates the extension's failures
//! from others, [`traffic`] proves that the extension was in the path, [`selection`] selects the tests, and [`report`]
//! stores the result.
//!
//! The exit status is 0 only if no test fails, or is skipped, with the extension alone, every suite was completed, and
//! pages were served from the cache.

mod outcome;
mod report;
mod sandbox;
mod selection;
mod traffic;
mod verdict;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, ensure};
use clap::Parser;
use private_server::Flavour;

use crate::outcome::{Outcomes, Status};
use crate::report::{Results, SuiteResult};
use crate::sandbox::{Mode, Run, Sandbox};
use crate::traffic::Traffic;

/// Runs a server's own test suites with the extension on, and looks at what fails without it.
#[derive(Parser)]
struct Arguments {
    /// mariadb-10.5, mariadb-10.11, mariadb-11.8 or mysql-9.7
    #[arg(long, default_value = "mariadb-10.11", value_parser = flavour)]
    server: Flavour,
    /// Suites, with commas between; all that are known to exercise InnoDB's files if not given
    #[arg(long, value_delimiter = ',')]
    suites: Vec<String>,
    /// Tests (suite.test) instead of whole suites
    #[arg(long, value_delimiter = ',', conflicts_with = "suites")]
    tests: Vec<String>,
    /// Only the tests that continuous integration runs
    #[arg(long, conflicts_with_all = ["suites", "tests"])]
    quick: bool,
    /// The library under test
    #[arg(long, default_value = "dist/bpe.so")]
    library: PathBuf,
    /// Logs, results and data directories go here, in a folder of the server's name
    #[arg(long, default_value = "target/server-suites")]
    output: PathBuf,
    /// Servers at the same time
    #[arg(long, default_value_t = 2)]
    parallel: u32,
    /// How often a test that differs is run again, with and without the extension
    #[arg(long, default_value_t = 3)]
    reruns: u32,
    /// Data directories in memory: faster, but asynchronous I/O of the data files is not truly so
    #[arg(long)]
    in_memory: bool,
    /// More arguments for mysql-test-run.pl
    #[arg(last = true)]
    extra: Vec<String>,
}

fn flavour(name: &str) -> Result<Flavour, String> {
    Flavour::from_name(name).ok_or_else(|| {
        let known: Vec<_> = Flavour::ALL.iter().map(|known| known.name()).collect();
        format!("known servers are {}", known.join(", "))
    })
}

fn main() -> ExitCode {
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("server-suites: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Returns whether all checks passed.
fn run(arguments: Arguments) -> anyhow::Result<bool> {
    let library = arguments.library.canonicalize().with_context(|| {
        format!(
            "there is no library at {}; make build makes it",
            arguments.library.display()
        )
    })?;
    let suite = arguments
        .server
        .provide_test_suite(&mut |line| eprintln!("{line}"))?;
    let folder = arguments.output.join(arguments.server.name());
    let sandbox = Sandbox::new(
        suite,
        &folder.join("run"),
        &library,
        selection::exclusions(arguments.server),
        arguments.parallel,
        arguments.in_memory,
        arguments.extra,
    )?;
    let version = sandbox.suite().version.clone();
    println!(
        "{} {version}, {}",
        arguments.server.name(),
        library.display()
    );
    let mut results = Results::read_or_begin(
        &folder.join("results.json"),
        arguments.server.name(),
        &version,
        sandbox.describe(Mode::With),
    );
    let mut done = Vec::new();
    for (name, what) in work(
        &arguments.suites,
        &arguments.tests,
        arguments.quick,
        &sandbox,
    )? {
        let result = one_suite(&sandbox, &name, &what, &folder, arguments.reruns)?;
        results.add(result.clone());
        results.write(&folder)?;
        done.push(result);
    }
    Ok(conclude(&done))
}

/// Names of the runs, each with the arguments for `mysql-test-run.pl`.
fn work(
    suites: &[String],
    tests: &[String],
    quick: bool,
    sandbox: &Sandbox,
) -> anyhow::Result<Vec<(String, Vec<String>)>> {
    let flavour = sandbox.suite().flavour;
    let folder = sandbox.outside(&sandbox.suite().folder);
    if quick {
        let (there, missing) = selection::quick(flavour, &folder);
        if !missing.is_empty() {
            let missing = missing.join(", ");
            // The lists were made for these flavours.
            ensure!(
                !matches!(flavour, Flavour::MariaDb1011 | Flavour::MySql97),
                "there is no {missing}: correct the list in quick/"
            );
            println!("this series does not have {missing}");
        }
        // Without a name mysql-test-run.pl would run all of its tests.
        ensure!(!there.is_empty(), "{} has none of them", folder.display());
        return Ok(vec![("quick".into(), there)]);
    }
    if !tests.is_empty() {
        return Ok(vec![("tests".into(), tests.to_vec())]);
    }
    let suites = if suites.is_empty() {
        selection::suites(flavour)
    } else {
        suites.to_vec()
    };
    suites
        .into_iter()
        .map(|suite| Ok((suite.clone(), selection::arguments(&suite, &folder)?)))
        .collect()
}

fn one_suite(
    sandbox: &Sandbox,
    name: &str,
    what: &[String],
    folder: &Path,
    reruns: u32,
) -> anyhow::Result<SuiteResult> {
    let attempt = |mode: Mode, what: &[String], number: u32| -> anyhow::Result<Run> {
        let log = folder.join(format!("{name}.{}.{number}.log", mode.name()));
        println!("{name}, {} the extension, run {number}", mode.name());
        let mut what = what.to_vec();
        if selection::runs_alone(name) {
            // The last of two such options takes effect.
            what.push("--parallel=1".into());
        }
        sandbox.run(mode, &what, &log, &mut |test, status| {
            if status == Status::Failed {
                println!("  failed {} the extension: {test}", mode.name());
            }
        })
    };
    let flavour = sandbox.suite().flavour;
    let with = attempt(Mode::With, what, 0)?;
    let mut comparing = 0;
    let again = names(flavour, &verdict::not_passed(&with.outcomes));
    let without = if again.is_empty() {
        Outcomes::new()
    } else {
        let run = attempt(Mode::Without, &again, 0)?;
        comparing += run.took.as_secs();
        run.outcomes
    };
    let different = names(flavour, &verdict::different(&with.outcomes, &without));
    let mut more = Vec::new();
    if !different.is_empty() {
        for number in 1..=reruns {
            let with = attempt(Mode::With, &different, number)?;
            let without = attempt(Mode::Without, &different, number)?;
            comparing += with.took.as_secs() + without.took.as_secs();
            more.push((with.outcomes, without.outcomes));
        }
    }
    let findings = verdict::judge(&with.outcomes, &without, &more);
    let count = |status| {
        with.outcomes
            .values()
            .filter(|outcome| outcome.status == status)
            .count()
    };
    let excluded = with
        .outcomes
        .iter()
        .filter(|(test, outcome)| {
            outcome.status == Status::Disabled
                && selection::is_excluded(flavour, outcome::without_combination(test))
        })
        .count();
    Ok(SuiteResult {
        suite: name.to_owned(),
        passed: count(Status::Passed),
        failed: count(Status::Failed),
        skipped: count(Status::Skipped),
        disabled: count(Status::Disabled) - excluded,
        excluded,
        findings,
        traffic: with.traffic,
        at_shutdown: with.at_shutdown,
        seconds: with.took.as_secs() + comparing,
        seconds_comparing: comparing,
        incomplete: with.incomplete,
    })
}

/// Tests as arguments. MariaDB's suite can run a single combination of a test.
fn names(flavour: Flavour, tests: &[&str]) -> Vec<String> {
    let mut names: Vec<String> = tests
        .iter()
        .map(|test| {
            if flavour.is_mysql() {
                outcome::without_combination(test).to_owned()
            } else {
                outcome::argument_with_combination(test)
            }
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

fn conclude(done: &[SuiteResult]) -> bool {
    println!(
        "{}",
        report::table(done.iter(), comfy_table::presets::UTF8_BORDERS_ONLY)
    );
    let mut traffic = Traffic::default();
    for suite in done {
        traffic += &suite.traffic;
        for finding in &suite.findings {
            println!("{}: {}", finding.test, report::describe(finding));
            if finding.verdict.is_fault() || finding.verdict == verdict::Verdict::FailedOnce {
                for line in &finding.details {
                    println!("    {line}");
                }
            }
        }
        for line in &suite.at_shutdown {
            println!("{}, in an error log: {line}", suite.suite);
        }
        if let Some(reason) = &suite.incomplete {
            println!("{} did not come to its end: {reason}", suite.suite);
        }
    }
    println!(
        "{} of {} page reads were served by {} caches, which took in {} pages and dropped {} because they were written; {} \
         failed proofs, {} device errors",
        traffic.hits,
        traffic.reads,
        traffic.caches,
        traffic.taken_in,
        traffic.dropped,
        traffic.failed_proofs,
        traffic.device_errors
    );
    if traffic.hits == 0 {
        println!("no page was served from the cache: this run shows nothing");
    }
    let faults = done.iter().filter(|suite| suite.has_fault()).count();
    let passed: usize = done.iter().map(|suite| suite.passed).sum();
    let failed: usize = done
        .iter()
        .flat_map(|suite| &suite.findings)
        .filter(|finding| finding.verdict.is_fault())
        .count();
    let skipped: usize = done.iter().map(|suite| suite.skipped).sum();
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    faults == 0 && traffic.hits > 0
}
