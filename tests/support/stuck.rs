//! Activity of a server that does not answer: distinguishes its own stalls from the plugin's.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use private_server::Server;
use private_server::mysql::{self, Conn, prelude::Queryable};

/// Time limit of a load's statement, after which the server counts as stuck. The tests' faults and limits delay a statement by
/// some seconds at most.
pub const PATIENCE: Duration = Duration::from_secs(150);
/// Time limit of the queries about a stuck server.
const LIMIT: Duration = Duration::from_secs(20);
/// Distinct stacks shown, and frames of each.
const STACKS: usize = 24;
const FRAMES: usize = 12;

/// A connection whose statements fail after [`PATIENCE`].
///
/// # Errors
/// Errors of the client library.
pub fn connect(server: &Server) -> Result<Conn, mysql::Error> {
    server.connect_within(PATIENCE)
}

/// Whether the statement failed because no answer arrived.
pub fn is_timeout(error: &mysql::Error) -> bool {
    let below = match error {
        mysql::Error::IoError(error) => Some(error),
        mysql::Error::CodecError(codec) => codec.source().and_then(|source| source.downcast_ref()),
        _ => None,
    };
    below.is_some_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

/// The damage that a load noticed on a server with a rule left out. A missing answer is no damage: a busy machine has them too.
///
/// # Errors
/// The load noticed nothing (`unnoticed` says so), or a statement had no answer in time.
pub fn noticed(load: anyhow::Result<()>, unnoticed: &'static str) -> anyhow::Result<anyhow::Error> {
    let error = load.err().context(unnoticed)?;
    if has_no_answer(&error) {
        return Err(error.context("a missing answer proves nothing"));
    }
    Ok(error)
}

/// Whether a test failed because a statement had no answer in time.
pub fn has_no_answer(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref())
        .any(is_timeout)
}

/// The statements in progress, and the stacks of the server's threads; those in the plugin come first.
pub fn report(server: &Server) -> String {
    let statements = match statements(server) {
        Ok(lines) => lines.join("\n"),
        Err(error) => format!("no list of statements: {error}"),
    };
    format!(
        "no answer for {} s\nstatements under way:\n{statements}\n{}",
        PATIENCE.as_secs(),
        stacks(server.pid())
    )
}

fn statements(server: &Server) -> Result<Vec<String>, mysql::Error> {
    type Row = (u64, Option<String>, Option<String>, Option<String>);
    let rows: Vec<Row> = server.connect_within(LIMIT)?.query(
        "SELECT id, CAST(time AS CHAR), state, LEFT(info, 70) FROM information_schema.processlist",
    )?;
    Ok(rows
        .into_iter()
        .map(|(id, time, state, info)| {
            let text = |part: Option<String>| part.unwrap_or_default();
            format!("  {id}: {} s, {}: {}", text(time), text(state), text(info))
        })
        .collect())
}

fn stacks(pid: u32) -> String {
    let printed = Command::new("timeout")
        .args(["60", "gdb", "-batch", "-p", &pid.to_string()])
        .args(["-ex", "thread apply all backtrace 30"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output();
    match printed {
        Ok(output) if !output.stdout.is_empty() => {
            grouped(&String::from_utf8_lossy(&output.stdout))
        }
        _ => "no stacks: gdb is missing or may not look".into(),
    }
}

/// Groups equal stacks of a debugger's output, one line each.
fn grouped(output: &str) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for thread in output.split("\nThread ").skip(1) {
        let frames: Vec<&str> = thread
            .lines()
            .filter(|line| line.starts_with('#'))
            .filter_map(function)
            .take(FRAMES)
            .collect();
        let ours = if ["bpe.so", "libbpe_plugin.so"]
            .iter()
            .any(|name| thread.contains(name))
        {
            "in the plugin: "
        } else {
            ""
        };
        *counts
            .entry(format!("{ours}{}", frames.join(" < ")))
            .or_default() += 1;
    }
    let mut lines: Vec<(String, usize)> = counts.into_iter().collect();
    lines.sort_by_key(|(stack, _)| !stack.starts_with("in the plugin"));
    let lines: Vec<String> = lines
        .into_iter()
        .take(STACKS)
        .map(|(stack, threads)| format!("  {threads} x {stack}"))
        .collect();
    format!("threads:\n{}", lines.join("\n"))
}

/// The function in a line such as `#1  0x000055d0 in pwrite (fd=3) from /lib/libc.so.6`.
fn function(line: &str) -> Option<&str> {
    let rest = line
        .trim_start_matches('#')
        .trim_start_matches(|c: char| c.is_ascii_digit());
    let rest = rest.trim_start();
    let rest = rest.split_once(" in ").map_or(rest, |(_, rest)| rest);
    rest.split(" (").next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_answer_is_told_from_a_lost_connection() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let log_in = || {
            let options = mysql::OptsBuilder::new()
                .socket(Some(path.display().to_string()))
                .read_timeout(Some(Duration::from_millis(20)));
            Conn::new(options).map(drop).unwrap_err()
        };
        assert!(is_timeout(&log_in()), "{}", log_in());
        drop(listener);
        assert!(!is_timeout(&log_in()));
    }

    #[test]
    fn equal_stacks_are_one_line_and_ours_come_first() {
        let output = "[New LWP 2]\n\
            \nThread 3 (LWP 3):\n#0  0x01 in futex () from /lib/libc.so.6\n#1  0x02 in ?? ()\n\
            \nThread 2 (LWP 2):\n#0  0x01 in futex () from /lib/libc.so.6\n#1  0x09 in ?? ()\n\
            \nThread 1 (LWP 1):\n#0  poll (fds=1) at poll.c\n#1  0x5 in look () from /x/libbpe_plugin.so\n";
        assert_eq!(
            grouped(output),
            "threads:\n  1 x in the plugin: poll < look\n  2 x futex < ??"
        );
    }
}
