//! Runs the tests of the product in tiers.
//!
//! A run has four stages: [`machine`] reports missing requirements of the host, [`build`] compiles every test program
//! once, [`steps`] and [`trials`] choose the steps, and [`pool`] runs them. [`report`] informs the user and stores the
//! evidence. [`tables`] generates tables of the documents from it.
//!
//! A *step* is one process that gives a verdict. A *trial* is a step that is one test inside a server: the programs of
//! `tests/` list their trials, and each trial is a separate process. A *subject* is the unit of selection and display:
//! the part of a trial's name before the first `::`, or the name of a step.

mod build;
mod machine;
mod pool;
mod report;
mod steps;
mod tables;
mod trials;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::{Parser, ValueEnum};
use rustix::fs::Mode;

use crate::report::Report;
use crate::steps::Step;
use crate::trials::Choice;

/// Runs the tests in tiers.
#[derive(Parser)]
#[command(name = "run-tests")]
struct Arguments {
    /// How much of the tests runs
    #[arg(default_value = "test")]
    tier: Tier,
    /// Subjects to run instead, with all of their trials
    #[arg(long, value_delimiter = ' ')]
    only: Vec<String>,
    /// The number that takes turns between servers and sixths; the count of commits if not given
    #[arg(long)]
    turn: Option<u64>,
    /// The package whose unit tests `check` runs; that of the first changed file if not given
    #[arg(long)]
    package: Option<String>,
    /// The commit that `ci` compares with, to see whether a change asks for all canaries
    #[arg(long, env = "BPE_TEST_BASE", default_value = "HEAD~10")]
    base: String,
    /// Shows what every step prints, as it ends
    #[arg(long)]
    verbose: bool,
    /// Names what would run, and runs nothing
    #[arg(long)]
    list: bool,
    /// Writes the tables of the documents from the evidence of a whole run, and runs nothing
    #[arg(long, value_name = "EVIDENCE")]
    tables: Option<PathBuf>,
}

/// Ascending: each runs what the one before runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Tier {
    /// Format, lints, documents, unit tests of one package
    Check,
    /// All unit tests, bounded models, one trial of each subject
    Test,
    /// `test`, and one sixth of `full`
    Ci,
    /// Everything
    Full,
}

/// Changes below these affect coherence or the restart, and add all canaries to `ci`.
const OF_COHERENCE: [&str; 4] = [
    "crates/coherence/src/",
    "crates/plugin/src/hooks/",
    "crates/plugin/src/platform/mount_id.rs",
    "crates/plugin/src/restart/",
];

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("run-tests: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether everything passed.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let root = workspace();
    std::env::set_current_dir(&root).with_context(|| format!("{}", root.display()))?;
    // The product refuses folders that others can write to, and the servers' user reads what is built.
    rustix::process::umask(Mode::WGRP | Mode::WOTH);
    if let Some(evidence) = &arguments.tables {
        tables::write(evidence)?;
        return Ok(true);
    }
    let tier = arguments.tier;
    let turn = match arguments.turn {
        Some(turn) => turn,
        None => commits().unwrap_or(0),
    };
    let mut report = Report::new(tier_name(tier), turn, arguments.verbose)?;
    let missing = machine::look(tier == Tier::Check);
    for lack in &missing {
        report.lack(lack);
    }
    if tier == Tier::Check && arguments.only.is_empty() {
        let package = arguments.package.clone().or_else(changed_package);
        pool::run(steps::check(package.as_deref()), &mut report);
        return report.end();
    }

    let all_canaries = tier == Tier::Full || tier == Tier::Ci && touches_coherence(&arguments.base);
    let choice = match (tier, arguments.only.is_empty()) {
        (_, false) => Choice::Subjects(arguments.only.clone()),
        (Tier::Full, _) => Choice::All { turn },
        (Tier::Ci, _) => Choice::Sixth { turn, all_canaries },
        (_, _) => Choice::One { turn },
    };
    if let Choice::Sixth { turn, all_canaries } = choice {
        let sixth = turn % 6;
        report.say(&format!(
            "This is sixth {sixth} of the full tier, by the count of commits ({turn}); `make ci TURN={turn}` repeats it."
        ));
        if all_canaries {
            report.say(&format!(
                "Coherence or the restart changed since {}: every canary runs, on one server at least.",
                arguments.base
            ));
        }
    }
    let before = Instant::now();
    let mut chosen: Vec<Step> = steps::all()
        .into_iter()
        .filter(|step| choice.takes_step(step))
        .collect();
    // All schedules include the bounded ones.
    if chosen.iter().any(|step| step.name == steps::ALL_SCHEDULES) {
        chosen.retain(|step| step.name != steps::FEW_SCHEDULES);
    }
    let with_dist = chosen.iter().any(|step| step.needs_dist);
    // A build of the command includes the page's files: none runs while they are written. Lints and the release build
    // use different folders of cargo, so neither waits for the other's lock.
    let mut stages = [vec![build::page()], vec![build::release(with_dist)]];
    if arguments.only.is_empty() && !arguments.list {
        stages[0].extend(steps::documents());
        stages[1].push(steps::lints());
    }
    for stage in stages {
        pool::run(stage, &mut report);
        if report.has_failed() {
            return report.end();
        }
    }
    let Some(programs) = build::programs(with_dist, &mut report)? else {
        return report.end();
    };
    report.compiled(before.elapsed());
    let others = [programs.unit_tests(), programs.whole_programs()].concat();
    if tier == Tier::Full {
        report.rules(programs.rules()?);
        // `make test` alternates between two servers.
        for turn in 0..2 {
            let of_test = Choice::One { turn };
            let steps = others.iter().filter(|step| of_test.takes_step(step));
            report.of_test(steps.map(|step| step.name.clone()));
            let trials = trials::chosen(&programs, &of_test);
            report.of_test(trials.into_iter().map(|step| step.name));
        }
    }
    chosen.extend(others.into_iter().filter(|step| choice.takes_step(step)));
    chosen.extend(trials::chosen(&programs, &choice));
    ensure!(
        !chosen.is_empty(),
        "no subject is named {:?}; `--list` names them",
        arguments.only
    );
    if arguments.list {
        for step in &chosen {
            println!("{}", step.name);
        }
        return Ok(true);
    }
    // A user who names subjects may have requested hours of them.
    let patience = if arguments.only.is_empty() {
        pool::PATIENCE
    } else {
        Duration::from_secs(24 * 3600)
    };
    pool::run_for(steps::longest_first(chosen), patience, &mut report);
    report.end()
}

fn tier_name(tier: Tier) -> &'static str {
    match tier {
        Tier::Check => "check",
        Tier::Test => "test",
        Tier::Ci => "ci",
        Tier::Full => "full",
    }
}

/// The checkout that this run is of. A build of before may be used again after the checkout was renamed.
fn workspace() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).join("../..")
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The count of commits up to this one; none outside a repository.
fn commits() -> Option<u64> {
    git(&["rev-list", "--count", "HEAD"])?.trim().parse().ok()
}

/// Whether a file that affects coherence or the restart changed since a commit. An unknown state counts as changed.
fn touches_coherence(base: &str) -> bool {
    git(&["diff", "--name-only", base]).is_none_or(|changed| {
        changed
            .lines()
            .any(|path| OF_COHERENCE.iter().any(|prefix| path.starts_with(prefix)))
    })
}

/// The package of the first file that differs from the last commit, or that the last commit changed.
fn changed_package() -> Option<String> {
    let changed = [
        &["diff", "--name-only", "HEAD"][..],
        &["diff", "--name-only", "HEAD~1"],
    ]
    .into_iter()
    .filter_map(git)
    .collect::<String>();
    changed.lines().find_map(|path| {
        let name = path.strip_prefix("crates/")?.split('/').next()?;
        Path::new("crates")
            .join(name)
            .join("Cargo.toml")
            .is_file()
            .then(|| name.to_owned())
    })
}
