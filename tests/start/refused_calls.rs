//! Servers whose kernel refuses system calls, as under a container engine's seccomp profile. They start, read correctly, and
//! report the missing calls.
//!
//! This program is also the launcher: with `--refuse` it forbids the calls and becomes the server.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::{Flavour, Options, Outcome, Place, Server, Suite, note, sql, verification};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

const REFUSE: &str = "--refuse";
/// Large enough for all data.
const CACHE: u64 = 64 << 20;

/// Calls that Docker and containerd forbid by default since 2023.
const RINGS: [i64; 3] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that a profile for an older kernel may not know, except for the calls that glibc itself needs.
const NEWER: [i64; 8] = [
    libc::SYS_statx,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_openat2,
    libc::SYS_close_range,
    libc::SYS_faccessat2,
    libc::SYS_memfd_create,
    libc::SYS_membarrier,
];

/// Replaces this program, if started with `--refuse`, by a server with refused calls. Returns otherwise, and exits on failure.
pub fn become_refused_if_asked() {
    let arguments: Vec<_> = std::env::args().collect();
    if arguments.get(1).is_some_and(|first| first == REFUSE) {
        let error = become_refused(&arguments[2..]);
        eprintln!("refused_calls: {error:#}");
        std::process::exit(1);
    }
}

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("refused_calls")
        .each("all_asynchronous_requests", all_asynchronous_requests)
        // MySQL uses no io_uring.
        .with(Flavour::MariaDb1011, "io_uring", rings)
        .each(
            "no_asynchronous_requests_left",
            no_asynchronous_requests_left,
        )
        .in_turn("newer_calls", newer_calls)
}

/// Becomes the server; returns only on failure. `words`: the calls with their errors, as `425:1,206:11`, and the server's
/// command.
fn become_refused(words: &[String]) -> anyhow::Error {
    match forbid(words) {
        Ok(command) => Command::new(&command[0]).args(&command[1..]).exec().into(),
        Err(error) => error,
    }
}

fn forbid(words: &[String]) -> anyhow::Result<&[String]> {
    let (calls, command) = words.split_first().context("which calls")?;
    ensure!(!command.is_empty(), "no command");
    let mut by_error: BTreeMap<u32, BTreeMap<i64, Vec<_>>> = BTreeMap::new();
    for refusal in calls.split(',') {
        let (call, error) = refusal.split_once(':').context("which error")?;
        let rules = by_error.entry(error.parse()?).or_default();
        rules.insert(call.parse()?, Vec::new());
    }
    for (error, rules) in by_error {
        let filter = SeccompFilter::new(
            rules,
            SeccompAction::Allow,
            SeccompAction::Errno(error),
            TargetArch::try_from(std::env::consts::ARCH)?,
        )?;
        let program: BpfProgram = filter.try_into()?;
        seccompiler::apply_filter(&program)?;
    }
    Ok(command)
}

/// A call, and the error that it returns.
type Refusal = (i64, i32);

fn forbidden(calls: &[i64]) -> Vec<Refusal> {
    calls.iter().map(|&call| (call, libc::EPERM)).collect()
}

/// Options of a server whose calls are refused.
fn refused(place: &Place, calls: &[Refusal]) -> anyhow::Result<Options> {
    let launcher = std::env::current_exe()?.display().to_string();
    let calls: Vec<_> = calls
        .iter()
        .map(|(call, error)| format!("{call}:{error}"))
        .collect();
    Ok(place
        .early(CACHE)?
        .wrapper(&[&launcher, REFUSE, &calls.join(",")]))
}

/// Runs such a server, kills it, and starts it again. Returns the asynchronous mode that it reports, and the recovered pages.
fn live(place: &Place, calls: &[Refusal]) -> anyhow::Result<(String, u64)> {
    let server = place.start(refused(place, calls)?)?;
    ensure!(is_filtered(&server)?, "nothing is refused");
    let ledger = Ledger::small(&server)?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 100)?;
    ledger.verify(&server)?;
    server.kill();
    let server = place.start(refused(place, calls)?)?;
    sql::expect_state(&server, "active")?;
    let kept = sql::figure(&server, "pages_inherited")?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 100)?;
    ensure!(sql::figure(&server, "failed_proofs")? == 0, "failed proofs");
    let mode = sql::status(&server, "async_mode")?;
    note(format!("asynchronous mode '{mode}', {kept} pages kept"));
    // Without asynchronous reads, cache reads have no timeout; the devices' report says so.
    let devices = sql::report(&server, "devices")?;
    let unbounded = devices.to_string().contains("no asynchronous reads");
    let refused = calls.iter().any(|call| call.0 == libc::SYS_io_setup);
    ensure!(unbounded == refused, "{devices:#}");
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok((mode, kept))
}

/// Whether the kernel filters the server's calls.
fn is_filtered(server: &Server) -> anyhow::Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    Ok(status.lines().any(|line| line == "Seccomp:\t2"))
}

fn rings(place: &Place) -> Outcome {
    let (_, kept) = live(place, &forbidden(&RINGS))?;
    ensure!(kept > 0, "nothing was kept");
    Ok(())
}

fn all_asynchronous_requests(place: &Place) -> Outcome {
    let calls = [&RINGS[..], &[libc::SYS_io_setup]].concat();
    let (_, kept) = live(place, &forbidden(&calls))?;
    ensure!(kept > 0, "nothing was kept");
    Ok(())
}

/// As in a container without io_uring, on a host whose `fs.aio-max-nr` is exhausted.
fn no_asynchronous_requests_left(place: &Place) -> Outcome {
    let mut calls = forbidden(&RINGS);
    calls.push((libc::SYS_io_setup, libc::EAGAIN));
    let (_, kept) = live(place, &calls)?;
    ensure!(kept > 0, "nothing was kept");
    Ok(())
}

/// Birth times and mount ids of files are unavailable.
fn newer_calls(place: &Place) -> Outcome {
    live(place, &forbidden(&NEWER))?;
    Ok(())
}
