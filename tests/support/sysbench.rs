//! sysbench against a private server.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::{Server, process};

use crate::harness::skip;

/// The data set of one server.
pub struct Sysbench {
    pub tables: u32,
    pub rows: u32,
    logs: PathBuf,
}

/// A run in progress.
pub struct Run {
    child: Child,
    log: PathBuf,
}

/// sysbench's summary of a run.
#[derive(Debug)]
pub struct Summary {
    pub transactions: u64,
    /// Deadlocks, which sysbench repeats.
    pub repeated: u64,
    pub reconnects: u64,
    /// The longest transaction in milliseconds.
    pub longest_ms: f64,
    pub p95_ms: f64,
}

impl Sysbench {
    /// Creates and fills the tables in database `sbtest`; logs go to the directory `logs`.
    pub fn prepare(
        server: &Server,
        logs: &Path,
        tables: u32,
        rows: u32,
    ) -> anyhow::Result<Sysbench> {
        let present = Command::new("sysbench")
            .arg("--version")
            .stdout(Stdio::null())
            .status();
        if !present.is_ok_and(|status| status.success()) {
            return Err(skip("sysbench is not installed: apt-get install sysbench"));
        }
        server.sql("CREATE DATABASE sbtest")?;
        let sysbench = Sysbench {
            tables,
            rows,
            logs: logs.to_path_buf(),
        };
        let run = sysbench.start(server, "oltp_read_write", "prepare", &["--threads=2"])?;
        run.wait()?;
        Ok(sysbench)
    }

    /// Starts a test of `seconds` with `threads` threads.
    pub fn run(
        &self,
        server: &Server,
        script: &str,
        threads: u32,
        seconds: u64,
    ) -> anyhow::Result<Run> {
        self.start(
            server,
            script,
            "run",
            &[
                &format!("--threads={threads}"),
                &format!("--time={seconds}"),
                "--events=0",
                "--rand-type=special",
                "--rand-spec-pct=15",
            ],
        )
    }

    fn start(
        &self,
        server: &Server,
        script: &str,
        action: &str,
        options: &[&str],
    ) -> anyhow::Result<Run> {
        let log = self.logs.join(format!("sysbench-{script}-{action}.log"));
        let output = std::fs::File::create(&log)?;
        let mut command = Command::new("sysbench");
        command
            .arg(script)
            .args([
                "--db-driver=mysql",
                "--mysql-user=root",
                "--mysql-db=sbtest",
            ])
            .arg(format!("--mysql-socket={}", server.socket().display()))
            .arg(format!("--tables={}", self.tables))
            .arg(format!("--table-size={}", self.rows))
            .args(options)
            .arg(action)
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output);
        let child = process::spawn(command, libc::SIGKILL).context("sysbench")?;
        Ok(Run { child, log })
    }
}

impl Run {
    /// Whether it still runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end and returns its output. A failed statement (other than by a deadlock) is an error.
    fn wait(mut self) -> anyhow::Result<String> {
        let ended = process::wait_at_most(&mut self.child, Duration::from_secs(600));
        if !ended {
            process::end(&mut self.child, libc::SIGTERM, Duration::from_secs(5));
        }
        let status = self.child.wait()?;
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let fatal: Vec<&str> = text
            .lines()
            .filter(|line| line.contains("FATAL") || line.contains("ALERT"))
            .take(4)
            .collect();
        ensure!(
            ended && status.success(),
            "sysbench failed ({status}): {}",
            fatal.join("; ")
        );
        Ok(text)
    }

    /// Waits for the end of a test.
    pub fn finish(self) -> anyhow::Result<Summary> {
        let text = self.wait()?;
        parse(&text).with_context(|| format!("sysbench printed no summary:\n{text}"))
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        process::end(&mut self.child, libc::SIGTERM, Duration::from_secs(5));
    }
}

fn parse(text: &str) -> Option<Summary> {
    let after = |key: &str| -> Option<f64> {
        let line = text
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(key))?;
        line[key.len()..].split_whitespace().next()?.parse().ok()
    };
    Some(Summary {
        transactions: after("transactions:")? as u64,
        repeated: after("ignored errors:")? as u64,
        reconnects: after("reconnects:")? as u64,
        longest_ms: after("max:")?,
        p95_ms: after("95th percentile:")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_read() {
        let text = "    transactions:                        25646  (1276.48 per sec.)
    ignored errors:                      3      (0.15 per sec.)
    reconnects:                          0      (0.00 per sec.)
         max:                                  301.20
         95th percentile:                       81.48\n";
        let summary = parse(text).unwrap();
        assert_eq!(summary.transactions, 25646);
        assert_eq!((summary.repeated, summary.reconnects), (3, 0));
        assert_eq!((summary.longest_ms, summary.p95_ms), (301.2, 81.48));
        assert!(parse("FATAL: no").is_none());
    }
}
