//! Counts the instructions of a crate's operations, for its bench `instructions`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use super::options::{Options, Outcome};

/// Maximum ratio of a count to the noted one. Compilers and processors differ by some percent.
const SLACK: f64 = 1.3;
const CALLS: u32 = 1000;
const MEASURE: &str = "--measure=";

/// One call of an operation. The number of the call varies its arguments.
pub type Act = dyn FnMut(u32);
/// Creates the fixture of an operation.
pub type Prepare = fn() -> Outcome<Box<Act>>;

/// Returns the count of an operation by its name.
pub type CountOf<'a> = dyn Fn(&str) -> Option<f64> + 'a;

/// The operations of one crate, and the location of their noted counts.
pub struct Bench {
    pub krate: &'static str,
    /// The crate's directory.
    pub folder: &'static str,
    pub operations: &'static [(&'static str, Prepare)],
    /// Remark for the user, derived from several counts.
    pub remark: fn(&CountOf<'_>) -> Option<String>,
}

/// Entry point of the program.
pub fn main(bench: &Bench) -> ExitCode {
    match bench.run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("instructions: {error}");
            ExitCode::FAILURE
        }
    }
}

/// All counted instructions are in here. Unmangled, so that valgrind finds the name.
#[unsafe(no_mangle)]
#[inline(never)]
fn bpe_measured(calls: u32, act: &mut Act) {
    for call in 0..calls {
        act(black_box(call));
    }
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
        // valgrind counts each byte of REP MOVSB, which libc uses for large copies only on some processors.
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

impl Bench {
    fn run(&self) -> Outcome<bool> {
        let options = Options::read(1.0)?;
        let first = options.rest.first().map(String::as_str);
        if let Some(name) = first.and_then(|argument| argument.strip_prefix(MEASURE)) {
            return self.measure(name).map(|()| true);
        }
        let record = match first {
            None => false,
            Some("--record") => true,
            Some(other) => {
                return Err(format!("unknown argument '{other}'; there is only --record").into());
            }
        };
        if options.quick {
            // Probably a debug build, whose counts are meaningless.
            for (name, _) in self.operations {
                self.measure(name)?;
            }
            println!(
                "{} operations work; `cargo bench` counts them",
                self.operations.len()
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
        for (name, _) in self.operations {
            counts.push((*name, count(name)?));
        }
        if record {
            return self.note(&counts).map(|()| true);
        }
        self.compare(&counts, &self.noted()?)
    }

    /// Runs the operation. Under valgrind, this is the counted part.
    fn measure(&self, name: &str) -> Outcome {
        let (_, prepare) = self
            .operations
            .iter()
            .find(|(other, _)| *other == name)
            .ok_or_else(|| format!("there is no operation '{name}'"))?;
        let mut act = prepare()?;
        // Exclude one-time work, such as a thread's buffer, from the count.
        (0..CALLS / 10).for_each(&mut *act);
        bpe_measured(CALLS, &mut *act);
        Ok(())
    }

    fn notes(&self) -> PathBuf {
        Path::new(self.folder).join("benches/instructions.txt")
    }

    /// The noted counts. Format of a line: count, tab, operation.
    fn noted(&self) -> Outcome<BTreeMap<String, f64>> {
        let path = self.notes();
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

    fn note(&self, counts: &[(&str, f64)]) -> Outcome {
        let mut text = format!(
            "# Instructions of each operation: cargo bench -p {} --bench instructions -- --record\n",
            self.krate
        );
        for (name, count) in counts {
            writeln!(text, "{count:.0}\t{name}")?;
        }
        std::fs::write(self.notes(), &text)?;
        print!("{text}");
        Ok(())
    }

    /// Prints a table. Returns whether all counts are within the limit.
    fn compare(&self, counts: &[(&str, f64)], noted: &BTreeMap<String, f64>) -> Outcome<bool> {
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
        if let Some(remark) = (self.remark)(&of) {
            println!("{remark}");
        }
        let passed = counts.len() - failed;
        let result = if failed == 0 { "ok" } else { "FAILED" };
        println!("test result: {result}. {passed} passed; {failed} failed");
        if failed > 0 {
            eprintln!(
                "more than {SLACK} times the instructions that are noted in {}: find out why, or note them anew with --record",
                self.notes().display()
            );
        }
        Ok(failed == 0)
    }
}
