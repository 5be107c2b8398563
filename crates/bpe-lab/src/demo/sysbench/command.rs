//! Runs a sysbench command to its end: reads its lines, writes its log, and enforces its limits.

use std::fs::File;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use private_server::process;

use super::output::{self, Tail};

/// Additional seconds for a user's script to start and to end. After them it is killed.
pub const SPARE: Duration = Duration::from_secs(60);
/// Interval of the checks whether to end a script.
const LOOK: Duration = Duration::from_millis(100);
/// Interval of the checks when it is about to end.
const SOON: Duration = Duration::from_millis(20);
/// Time for reading the remaining output of a finished program, while other processes still print to it.
const REST: Duration = Duration::from_secs(2);
/// Maximum bytes of the output in its log.
const LOGGED: usize = 64 << 20;
/// Maximum bytes of a log. Only errors can exceed `LOGGED`, since the program writes them directly.
pub const LONGEST: u64 = 256 << 20;

/// When to end a command that does not end.
pub struct Bounds<'a> {
    pub end: Instant,
    pub stopped: &'a dyn Fn() -> bool,
    /// Maximum bytes of its log.
    pub longest: u64,
}

/// Runs the command with its log in the directory `logs`. Returns the end of its output; `None` if it was ended early. With
/// bounds, no process of its group survives.
///
/// # Errors
/// The command cannot be run, fails, or exceeds its bounds.
pub fn run(
    mut command: Command,
    logs: &Path,
    name: &str,
    bounds: Option<&Bounds>,
    each_line: &mut dyn FnMut(&str) -> Result<ControlFlow<()>>,
) -> Result<Option<String>> {
    let log_path = logs.join(format!("{name}.log"));
    let mut log =
        File::create(&log_path).with_context(|| format!("cannot make {}", log_path.display()))?;
    writeln!(log, "{command:?}")?;
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.try_clone()?);
    let mut child = process::spawn(command, libc::SIGKILL).context("cannot start sysbench")?;
    let lines = child.stdout.take().context("sysbench's output");
    let lines = lines.and_then(output::lines).inspect_err(|_| {
        let _ = process::end_group(&mut child, Duration::ZERO);
    })?;
    let mut text = Tail::default();
    let mut logged = 0;
    let mut status = None;
    let mut looked = Instant::now();
    let ended = loop {
        match bounds.map(|bounds| bounds.look(&log)) {
            None | Some(Ok(ControlFlow::Continue(()))) => {}
            Some(over) => break over,
        }
        if status.is_none() && looked.elapsed() >= LOOK {
            looked = Instant::now();
            if process::has_exited(&child) {
                // Its child processes may print, or hold its output open, indefinitely.
                status = Some(process::end_group(&mut child, Duration::ZERO));
            }
        } else if status.is_some() && looked.elapsed() >= REST {
            break Ok(ControlFlow::Continue(()));
        }
        let line = match lines.recv_timeout(LOOK) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => continue,
            Err(RecvTimeoutError::Disconnected) => break Ok(ControlFlow::Continue(())),
        };
        if logged < LOGGED {
            logged += line.len() + 1;
            let _ = writeln!(log, "{line}");
            if logged >= LOGGED {
                let _ = writeln!(log, "(what was printed from here on is left out)");
            }
        }
        match each_line(&line) {
            Ok(ControlFlow::Continue(())) => {}
            ended => break ended,
        }
        text.push(&line);
    };
    // The program may continue without printing.
    let ended = match (ended, bounds) {
        (Ok(ControlFlow::Continue(())), Some(bounds)) if status.is_none() => {
            bounds.wait(&child, &log)
        }
        (ended, _) => ended,
    };
    if !matches!(ended, Ok(ControlFlow::Continue(()))) {
        if status.is_none() {
            let _ = process::end_group(&mut child, Duration::ZERO);
        }
        return ended.map(|_| None);
    }
    let status = match (status, bounds) {
        (Some(status), _) => status,
        (None, Some(_)) => process::end_group(&mut child, Duration::ZERO),
        (None, None) => child.wait(),
    };
    let status = status.context("waiting for sysbench")?;
    if !status.success() {
        let text = output::end_of(&log_path);
        let fatal: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("FATAL"))
            .take(3)
            .collect();
        bail!(
            "sysbench {name} failed ({status}): {}",
            if fatal.is_empty() {
                log_path.display().to_string()
            } else {
                fatal.join("; ")
            }
        );
    }
    Ok(Some(text.into_text()))
}

impl Bounds<'_> {
    fn look(&self, log: &File) -> Result<ControlFlow<()>> {
        if (self.stopped)() {
            return Ok(ControlFlow::Break(()));
        }
        if Instant::now() > self.end {
            bail!(
                "the script had not ended {} s after its time, and was killed",
                SPARE.as_secs()
            );
        }
        if log.metadata().is_ok_and(|meta| meta.len() > self.longest) {
            bail!(
                "the script had printed more than {} MiB of errors, and was killed",
                self.longest >> 20
            );
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Waits until the program has exited. Does not reap it.
    fn wait(&self, child: &Child, log: &File) -> Result<ControlFlow<()>> {
        while !process::has_exited(child) {
            match self.look(log) {
                Ok(ControlFlow::Continue(())) => std::thread::sleep(SOON),
                over => return over,
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn within(stopped: &dyn Fn() -> bool) -> Bounds<'_> {
        Bounds {
            end: Instant::now() + Duration::from_secs(40),
            stopped,
            longest: LONGEST,
        }
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let run = |script: &str, bounds: &Bounds| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let mut lines = 0;
            let result = super::run(command, folder.path(), "test", Some(bounds), &mut |_| {
                lines += 1;
                Ok(ControlFlow::Continue(()))
            });
            (result, lines)
        };
        let silent = "sleep 600 & wait";
        // It exceeds its time, with much output or none.
        for script in [silent, "while :; do echo x; done"] {
            let over = Bounds {
                end: Instant::now() + Duration::from_millis(200),
                ..within(&|| false)
            };
            let (result, _) = run(script, &over);
            let text = result.unwrap_err().to_string();
            assert!(text.contains("had not ended"), "{text}");
        }
        assert!(run(silent, &within(&|| true)).0.unwrap().is_none());
        // Also without further output.
        let looks = Cell::new(0);
        let soon = || looks.replace(looks.get() + 1) > 20;
        let quiet = "exec >&- 2>&-; sleep 600";
        assert!(run(quiet, &within(&soon)).0.unwrap().is_none());
        let errors = Bounds {
            longest: 1 << 20,
            ..within(&|| false)
        };
        let (result, _) = run("while :; do echo x; done >&2", &errors);
        let text = result.unwrap_err().to_string();
        assert!(text.contains("1 MiB of errors"), "{text}");
        // The exit counts, even if other processes can still print, inside or outside its process group.
        for others in [
            "sleep 600 & echo one",
            "while :; do echo one; done & echo one",
            "setsid sh -c 'echo one; exec sleep 20' & sleep 1",
            "setsid sh -c 'for n in $(seq 200); do echo one; sleep 0.1; done' & sleep 1",
        ] {
            let (result, lines) = run(others, &within(&|| false));
            let text = result.unwrap().unwrap();
            assert!(
                lines > 0 && text.lines().all(|line| line == "one"),
                "{others}"
            );
        }
        // Invalid UTF-8 is replaced.
        let free = within(&|| false);
        let (result, lines) = run("printf 'one\\n\\377\\nthree\\n'", &free);
        assert_eq!((result.unwrap().unwrap().lines().count(), lines), (3, 3));
        assert!(run("echo FATAL: no; exit 3", &free).0.is_err());
    }
}
