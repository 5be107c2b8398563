//! Runs steps concurrently, as many as the host can sustain.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use crate::machine;
use crate::report::Report;
use crate::steps::{Load, Outcome, Step};

/// Far above the time of any step of a tier; only a hanging step reaches it.
pub const PATIENCE: Duration = Duration::from_secs(40 * 60);
/// Polling interval for the end of a step.
const LOOK: Duration = Duration::from_millis(10);

/// Runs all steps, and reports each at its end.
pub fn run(steps: Vec<Step>, report: &mut Report) {
    run_for(steps, PATIENCE, report);
}

/// The same with another time limit per step.
pub fn run_for(steps: Vec<Step>, patience: Duration, report: &mut Report) {
    let all = machine::places();
    // Number of places of one processor.
    let of_one = (all / machine::processors()).max(1);
    let weight = |step: &Step| match step.load {
        Load::Third => 1,
        Load::One => of_one,
        Load::Alone => all,
    };
    let mut waiting = steps;
    report.expect(&waiting);
    let (mut free, mut running) = (all, 0);
    let (ends, ended) = mpsc::channel();
    while !waiting.is_empty() || running > 0 {
        // The first step that fits: smaller steps may overtake steps that need a whole processor.
        while let Some(next) = waiting.iter().position(|step| weight(step) <= free) {
            let step = waiting.remove(next);
            free -= weight(&step);
            running += 1;
            report.begins(&step);
            let (output, notes) = report.files();
            let ends = ends.clone();
            std::thread::spawn(move || {
                let outcome = execute(step, patience, output, notes);
                let _ = ends.send(outcome);
            });
        }
        if let Ok(outcome) = ended.recv_timeout(Duration::from_secs(1)) {
            free += weight(&outcome.step);
            running -= 1;
            report.ended(outcome);
        }
        report.tick();
    }
}

fn execute(step: Step, patience: Duration, output: PathBuf, notes: PathBuf) -> Outcome {
    let began = Instant::now();
    let (passed, processor) = match start(&step, &output, &notes) {
        Ok(child) => passes(child, patience, &output),
        Err(error) => {
            append(
                &output,
                &format!("{} cannot be started: {error}\n", step.program.display()),
            );
            (false, Duration::ZERO)
        }
    };
    Outcome {
        passed,
        took: began.elapsed(),
        processor,
        step,
        output,
        notes,
    }
}

fn start(step: &Step, output: &Path, notes: &Path) -> std::io::Result<Child> {
    let file = File::create(output)?;
    let mut command = Command::new(&step.program);
    command
        .args(&step.arguments)
        .envs(step.environment.iter().map(|(name, value)| (name, value)))
        .env("BPE_TEST_REPORT", notes)
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file);
    if std::env::var_os("CI").is_some() {
        command.env("BPE_REQUIRE_ALL", "1");
    }
    if let Some(folder) = &step.folder {
        command.current_dir(folder);
    }
    command.spawn()
}

/// Waits for the end of the step, and kills it if it hangs. Returns whether it passed, and its processor time.
fn passes(mut child: Child, patience: Duration, output: &Path) -> (bool, Duration) {
    let until = Instant::now() + patience;
    let process = Pid::from_child(&child);
    while !has_ended(process) {
        if Instant::now() >= until {
            append(
                output,
                &format!("killed: it ran for {} minutes\n", patience.as_secs() / 60),
            );
            let _ = child.kill();
            let _ = child.wait();
            return (false, Duration::ZERO);
        }
        std::thread::sleep(LOOK);
    }
    let processor = processor_time(process).unwrap_or_default();
    let passed = match child.wait() {
        Ok(status) if status.success() => true,
        Ok(status) => {
            append(output, &format!("ended with {status}\n"));
            false
        }
        Err(error) => {
            append(output, &format!("cannot be waited for: {error}\n"));
            false
        }
    };
    (passed, processor)
}

/// Whether a child has ended. It stays unreaped, so that the kernel keeps its processor time.
fn has_ended(process: Pid) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    // On an error the wait for it says why.
    !matches!(waitid(WaitId::Pid(process), options), Ok(None))
}

/// Processor time of an unreaped process and of its reaped descendants, from proc(5): fields 14 to 17 of `stat`.
fn processor_time(process: Pid) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name of the program, field 2, may contain blanks and parentheses.
    let fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11).take(4);
    let ticks: u64 = fields
        .map(|field| field.parse::<u64>().ok())
        .sum::<Option<_>>()?;
    let second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_millis(ticks * 1000 / second))
}

fn append(path: &Path, text: &str) {
    use std::io::Write;
    let file = File::options().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(text.as_bytes()));
}
