//! Instructions of each operation, counted by valgrind's callgrind: the same on a busy machine as on a quiet one, so that
//! continuous integration can hold on to them.
//!
//! `cargo bench -p extension --bench instructions [-- --record]`
//!
//! Fails when an operation takes more than 1.3 times the instructions noted in `benches/instructions.txt`; `--record`
//! notes them anew. Without valgrind it says that it was skipped (a failure if BPE_REQUIRE_ALL=1, as in continuous
//! integration). What the kernel does for a system call is not counted.
//!
//! The program runs itself under valgrind, once for each operation, and only what happens within `bpe_measured` is counted.
//! Own code and not gungraun: that wants a runner installed in just its version, and its newer versions want Rust 1.88.

#[allow(dead_code, reason = "each bench uses a part")]
mod common;
#[path = "instructions/operations.rs"]
mod operations;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use common::options::{Options, Outcome};
use operations::{Act, OPERATIONS};

/// More than this times what is noted is too much. Compilers and processors differ by some percent.
const SLACK: f64 = 1.3;
const CALLS: u32 = 1000;
const MEASURE: &str = "--measure=";

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that is counted happens in here. By its plain name for valgrind.
#[unsafe(no_mangle)]
#[inline(never)]
fn bpe_measured(calls: u32, act: &mut Act) {
    for call in 0..calls {
        act(black_box(call));
    }
}

fn run() -> Outcome<bool> {
    let options = Options::read(1.0)?;
    let first = options.rest.first().map(String::as_str);
    if let Some(name) = first.and_then(|argument| argument.strip_prefix(MEASURE)) {
        return measure(name).map(|()| true);
    }
    let record = match first {
        None => false,
        Some("--record") => true,
        Some(other) => {
            return Err(format!("unknown argument '{other}'; there is only --record").into());
        }
    };
    if options.quick {
        // A debug build, most likely, whose counts say nothing.
        for (name, _) in OPERATIONS {
            measure(name)?;
        }
        println!(
            "{} operations work; `cargo bench` counts them",
            OPERATIONS.len()
        );
        return Ok(true);
    }
    if let Err(error) = Command::new("valgrind")
        .arg("--version")
        .stdout(Stdio::null())
        .status()
    {
        println!(
            "skipped: instructions: valgrind does not start ({error}); `scripts/install-dependencies tests` installs it"
        );
        let required = std::env::var("BPE_REQUIRE_ALL").is_ok_and(|value| value == "1");
        let result = if required {
            "FAILED. 0 passed; 1 failed"
        } else {
            "ok. 1 passed; 0 failed"
        };
        println!("test result: {result}");
        return Ok(!required);
    }
    let mut counts = Vec::new();
    for (name, _) in OPERATIONS {
        counts.push((name, count(name)?));
    }
    if record {
        return note(&counts).map(|()| true);
    }
    compare(&counts, &noted()?)
}

/// Runs the operation; under valgrind, this is what it counts.
fn measure(name: &str) -> Outcome {
    let (_, prepare) = OPERATIONS
        .into_iter()
        .find(|(other, _)| *other == name)
        .ok_or_else(|| format!("there is no operation '{name}'"))?;
    let mut act = prepare()?;
    // What happens only once, such as a thread's buffer, is not to be counted.
    (0..CALLS / 10).for_each(&mut *act);
    bpe_measured(CALLS, &mut *act);
    Ok(())
}

/// Instructions of one call of the operation.
fn count(name: &str) -> Outcome<f64> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("callgrind");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--toggle-collect=bpe_measured"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(std::env::current_exe()?)
        .args(["--bench", &format!("{MEASURE}{name}")])
        // valgrind counts each byte of REP MOVSB, which libc uses for large copies on some processors only.
        .env(
            "GLIBC_TUNABLES",
            "glibc.cpu.x86_rep_movsb_threshold=1073741824",
        )
        .output()?;
    let counted = std::fs::read_to_string(&file).unwrap_or_default();
    let sum = counted
        .lines()
        .find_map(|line| line.strip_prefix("summary: ")?.trim().parse::<u64>().ok())
        .filter(|&sum| output.status.success() && sum > 0)
        .ok_or_else(|| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!(
                "valgrind did not count '{name}' ({}):\n{said}",
                output.status
            )
        })?;
    Ok(sum as f64 / f64::from(CALLS))
}

fn notes() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("benches/instructions.txt")
}

/// What is noted: a count, a tab, the operation.
fn noted() -> Outcome<BTreeMap<String, f64>> {
    let path = notes();
    let text = std::fs::read_to_string(&path).map_err(|error| {
        format!(
            "cannot read '{}': {error}; note anew with --record",
            path.display()
        )
    })?;
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (count, name) = line
                .split_once('\t')
                .ok_or_else(|| format!("'{}': no count in '{line}'", path.display()))?;
            Ok((name.to_owned(), count.parse()?))
        })
        .collect()
}

fn note(counts: &[(&str, f64)]) -> Outcome {
    let mut text = String::from(
        "# Instructions of each operation: cargo bench -p extension --bench instructions -- --record\n",
    );
    for (name, count) in counts {
        writeln!(text, "{count:.0}\t{name}")?;
    }
    std::fs::write(notes(), &text)?;
    print!("{text}");
    Ok(())
}

/// Prints a table. Whether no count is too high.
fn compare(counts: &[(&str, f64)], noted: &BTreeMap<String, f64>) -> Outcome<bool> {
    println!(
        "{:<44} {:>12} {:>8} {:>6}",
        "operation", "instructions", "noted", "ratio"
    );
    let mut failed = 0;
    for (name, count) in counts {
        let Some(noted) = noted.get(*name) else {
            println!(
                "{name:<44} {count:>12.0} {:>8} {:>6}  not noted: use --record",
                "-", "-"
            );
            failed += 1;
            continue;
        };
        let ratio = count / noted;
        let verdict = if ratio > SLACK {
            failed += 1;
            "  TOO MANY"
        } else if ratio < 1.0 / SLACK {
            "  far fewer: note anew with --record"
        } else {
            ""
        };
        println!("{name:<44} {count:>12.0} {noted:>8.0} {ratio:>6.2}{verdict}");
    }
    let of = |wanted: &str| {
        counts
            .iter()
            .find(|(name, _)| *name == wanted)
            .map(|(_, count)| *count)
    };
    if let (Some(hit), Some(checksum)) = (of("read, hit"), of("hash of a page")) {
        println!("a hit without its checksum: {:.0}", hit - checksum);
    }
    let passed = counts.len() - failed;
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {result}. {passed} passed; {failed} failed");
    if failed > 0 {
        eprintln!(
            "more than {SLACK} times the instructions that are noted in {}: find out why, or note them anew with --record",
            notes().display()
        );
    }
    Ok(failed == 0)
}
