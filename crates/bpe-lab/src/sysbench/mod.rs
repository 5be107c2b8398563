//! The load of demonstrations and the experience: sysbench with the reference's commands.
//!
//! [`Sysbench`] runs one of the reference's tests ([`Workload`]) on its tables, and reads the output line by line: an
//! [`Interval`] a second, and a [`Summary`] at the end. [`settled`] detects when its curves stop changing.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use private_server::process;
use serde::{Deserialize, Serialize};

pub use workload::{THREADS, Tables, Workload};

pub mod settled;
mod workload;

/// One second of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// Seconds since the test began.
    pub t: f64,
    pub qps: f64,
    /// 95th percentile of the transactions' latency in this second, milliseconds.
    pub p95_ms: f64,
}

/// sysbench's summary at the end of a test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub qps: f64,
    pub tps: f64,
    /// Statements run.
    pub queries: u64,
    /// Latency of transactions, milliseconds.
    pub average_ms: f64,
    pub p95_ms: f64,
    pub max_ms: f64,
    /// Transactions repeated after a deadlock or a lock wait timeout, which is normal.
    pub repeated: u64,
    pub reconnects: u64,
}

/// The server's address, and the tables.
pub struct Sysbench<'a> {
    pub program: &'a Path,
    pub socket: &'a Path,
    /// Logs in without a password.
    pub user: &'a str,
    pub tables: Tables,
    /// Whether each client prepares its statements for every table before it begins, which takes seconds.
    pub prepares: bool,
    /// Folder for the outputs.
    pub logs: &'a Path,
}

/// Option that makes clients skip preparing their statements.
pub const UNPREPARED: &str = "--db-ps-mode=disable";

/// The options that belong to the test itself, also shown in the report.
pub fn test_options(tables: &Tables, threads: u64) -> Vec<String> {
    vec![
        format!("--tables={}", tables.count),
        format!("--table-size={}", tables.rows),
        format!("--threads={threads}"),
        "--rand-type=special".into(),
        "--rand-spec-pct=15".into(),
    ]
}

impl Sysbench<'_> {
    /// Creates and fills the tables in their database, `threads` at a time. Calls `tick` whenever a table is started, with
    /// the number started so far.
    ///
    /// # Errors
    /// sysbench fails; the error has its message.
    pub fn prepare(&self, threads: u64, tick: &mut dyn FnMut(u64)) -> Result<()> {
        let mut command = self.command("oltp_read_only");
        command.args([
            format!("--tables={}", self.tables.count),
            format!("--table-size={}", self.tables.rows),
            format!("--threads={threads}"),
            "prepare".into(),
        ]);
        let mut begun = 0;
        run(command, self.logs, "prepare", &mut |line| {
            if line.starts_with("Creating table") {
                begun += 1;
                tick(begun);
            }
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(())
    }

    /// Runs a test for `seconds`. `each` receives every second as it passes, and may end the test early; there is no summary
    /// then.
    ///
    /// # Errors
    /// A statement fails (other than by a deadlock, which sysbench repeats), or sysbench does.
    pub fn run(
        &self,
        workload: Workload,
        seconds: u64,
        name: &str,
        each: &mut dyn FnMut(&Interval) -> Result<ControlFlow<()>>,
    ) -> Result<(Vec<Interval>, Option<Summary>)> {
        self.run_with(workload, THREADS, seconds, name, each)
    }

    /// Like [`Sysbench::run`], with this number of client threads.
    ///
    /// # Errors
    /// As [`Sysbench::run`].
    pub fn run_with(
        &self,
        workload: Workload,
        threads: u64,
        seconds: u64,
        name: &str,
        each: &mut dyn FnMut(&Interval) -> Result<ControlFlow<()>>,
    ) -> Result<(Vec<Interval>, Option<Summary>)> {
        let mut command = self.command(workload.script());
        command.args(test_options(&self.tables, threads));
        if !self.prepares {
            command.arg(UNPREPARED);
        }
        command.args([
            format!("--time={seconds}"),
            "--events=0".into(),
            "--report-interval=1".into(),
            "run".into(),
        ]);
        let mut intervals = Vec::new();
        let output = run(command, self.logs, name, &mut |line| {
            let Some(interval) = parse_interval(line) else {
                return Ok(ControlFlow::Continue(()));
            };
            let go_on = each(&interval);
            intervals.push(interval);
            go_on
        })?;
        let Some(output) = output else {
            return Ok((intervals, None));
        };
        let summary = parse_summary(&output)
            .with_context(|| format!("sysbench printed no summary; see {name}.log"))?;
        Ok((intervals, Some(summary)))
    }

    fn command(&self, script: &str) -> Command {
        let mut command = Command::new(self.program);
        command
            .arg(script)
            .arg("--db-driver=mysql")
            .arg(format!("--mysql-user={}", self.user))
            .arg(format!("--mysql-db={}", self.tables.database))
            .arg(format!("--mysql-socket={}", self.socket.display()));
        command
    }
}

/// Finds a program in $PATH or in the system directories for root.
pub fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// Runs a command to its end, with its log in the directory `logs`. Returns its output; `None` if `each_line` ended it.
///
/// # Errors
/// The command cannot be run, or fails; the error has its messages.
fn run(
    mut command: Command,
    logs: &Path,
    name: &str,
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
    let output = child.stdout.take().context("sysbench's output")?;
    let mut text = String::new();
    for line in BufReader::new(output).split(b'\n') {
        let line = String::from_utf8_lossy(&line.context("sysbench's output")?).into_owned();
        let _ = writeln!(log, "{line}");
        let go_on = each_line(&line);
        if !matches!(go_on, Ok(ControlFlow::Continue(()))) {
            let _ = process::end_group(&mut child, Duration::ZERO);
            return go_on.map(|_| None);
        }
        text += &line;
        text.push('\n');
    }
    let status = child.wait().context("waiting for sysbench")?;
    if !status.success() {
        let log = std::fs::read(&log_path).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let fatal = log.lines().filter(|line| line.contains("FATAL")).take(3);
        let fatal: Vec<&str> = fatal.collect();
        bail!(
            "sysbench {name} failed ({status}): {}",
            if fatal.is_empty() {
                log_path.display().to_string()
            } else {
                fatal.join("; ")
            }
        );
    }
    Ok(Some(text))
}

/// `[ 2s ] thds: 64 tps: 10.0 qps: 160.5 (r/w/o: ...) lat (ms,95%): 95.81 err/s: 0.00 ...`
fn parse_interval(line: &str) -> Option<Interval> {
    let rest = line.strip_prefix('[')?;
    let (time, rest) = rest.split_once("s ]")?;
    let after = |key: &str| -> Option<f64> {
        let start = rest.find(key)? + key.len();
        rest[start..].split_whitespace().next()?.parse().ok()
    };
    Some(Interval {
        t: time.trim().parse().ok()?,
        qps: after(" qps:")?,
        p95_ms: after("lat (ms,95%):")?,
    })
}

fn parse_summary(output: &str) -> Option<Summary> {
    // "    queries:      410336 (20423.76 per sec.)"
    let count_and_rate = |key: &str| -> Option<(u64, f64)> {
        let line = output
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(key))?;
        let mut words = line[key.len()..].split_whitespace();
        let count = words.next()?.parse().ok()?;
        let rate = words.next()?.trim_start_matches('(').parse().ok()?;
        Some((count, rate))
    };
    let latency = |key: &str| -> Option<f64> {
        let start = output.find("Latency (ms):")?;
        let line = output[start..]
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(key))?;
        line[key.len()..].trim().parse().ok()
    };
    let (queries, qps) = count_and_rate("queries:")?;
    Some(Summary {
        qps,
        tps: count_and_rate("transactions:")?.1,
        queries,
        average_ms: latency("avg:")?,
        p95_ms: latency("95th percentile:")?,
        max_ms: latency("max:")?,
        repeated: count_and_rate("ignored errors:").map_or(0, |found| found.0),
        reconnects: count_and_rate("reconnects:").map_or(0, |found| found.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_ends_or_reports_its_errors() {
        let folder = tempfile::tempdir().unwrap();
        let run = |script: &str, answer: fn() -> Result<ControlFlow<()>>| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            let mut lines = 0;
            let result = super::run(command, folder.path(), "test", &mut |_| {
                lines += 1;
                answer()
            });
            (result, lines)
        };
        let go_on = || Ok(ControlFlow::Continue(()));
        // Invalid UTF-8 is replaced.
        let (result, lines) = run("printf 'one\\n\\377\\nthree\\n'", go_on);
        assert_eq!((result.unwrap().unwrap().lines().count(), lines), (3, 3));
        let (result, _) = run("echo one; exec sleep 600", || Ok(ControlFlow::Break(())));
        assert!(result.unwrap().is_none());
        let (result, _) = run("echo one; exec sleep 600", || bail!("observed"));
        assert_eq!(result.unwrap_err().to_string(), "observed");
        let (result, _) = run("echo FATAL: no >&2; exit 3", go_on);
        assert!(result.unwrap_err().to_string().ends_with("FATAL: no"));
    }

    #[test]
    fn an_interval_is_read() {
        let line = "[ 12s ] thds: 64 tps: 1070.31 qps: 17423.44 (r/w/o: 15252.37/0.00/2171.07) \
                    lat (ms,95%): 95.81 err/s: 0.00 reconn/s: 0.00";
        let expected = Interval {
            t: 12.0,
            qps: 17423.44,
            p95_ms: 95.81,
        };
        assert_eq!(parse_interval(line), Some(expected));
        assert_eq!(parse_interval("Threads started!"), None);
        assert_eq!(parse_interval("[ xs ] qps: 1"), None);
    }

    #[test]
    fn a_summary_is_read() {
        let output = "SQL statistics:
    queries performed:
        read:                            359044
        total:                           410336
    transactions:                        25646  (1276.48 per sec.)
    queries:                             410336 (20423.76 per sec.)
    ignored errors:                      3      (0.15 per sec.)
    reconnects:                          0      (0.00 per sec.)

Latency (ms):
         min:                                    2.11
         avg:                                   49.97
         max:                                  301.20
         95th percentile:                       81.48
         sum:                              1281521.22
";
        let summary = parse_summary(output).unwrap();
        assert_eq!(summary.qps, 20423.76);
        assert_eq!(summary.tps, 1276.48);
        assert_eq!(summary.queries, 410336);
        assert_eq!((summary.average_ms, summary.max_ms), (49.97, 301.2));
        assert_eq!(summary.p95_ms, 81.48);
        assert_eq!((summary.repeated, summary.reconnects), (3, 0));
        assert_eq!(parse_summary("FATAL: no"), None);
    }
}
