//! Errors, as messages for the user.

use std::path::PathBuf;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Errors of this crate. Each message says what happened and, where known, how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server is not on this host and was not, or could not be, provided.
    #[error("{flavour} is not available: {reason}")]
    Unavailable {
        flavour: &'static str,
        reason: String,
    },
    /// The data directory could not be initialised.
    #[error("could not initialise the data directory {}: {reason}\n{log}", datadir.display())]
    Initialise {
        datadir: PathBuf,
        reason: String,
        /// Tail of the server's error log.
        log: String,
    },
    /// The server ended during its start, or did not answer in time.
    #[error("the server did not start: {reason}\nlast lines of its error log:\n{log}")]
    Start {
        reason: String,
        /// Tail of the server's error log.
        log: String,
    },
    /// The server did not stop cleanly.
    #[error("the server did not stop cleanly: {reason}\nlast lines of its error log:\n{log}")]
    Stop {
        reason: String,
        /// Tail of the server's error log.
        log: String,
    },
    /// A statement failed, or the connection broke.
    #[error("{statement}: {source}")]
    Sql {
        /// The statement, shortened.
        statement: String,
        source: mysql::Error,
    },
    /// An operation on files or processes failed.
    #[error("{what}: {source}")]
    Io {
        what: String,
        source: std::io::Error,
    },
}

/// Adds the failed operation to an I/O error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Io {
            what: what(),
            source,
        })
    }
}

/// Displayed bytes of a log line: the server dumps a damaged page in one line.
const SHOWN: usize = 300;
/// Displayed errors besides the last lines: after a crash those are a stack and advice.
const ERRORS: usize = 5;

/// The last `lines` lines of a server's error log, preceded by the last errors before them; empty if the log is
/// unreadable.
pub fn tail(path: &std::path::Path, lines: usize) -> String {
    tail_since(path, 0, lines)
}

/// Like [`tail`], without the first `start` bytes.
pub(crate) fn tail_since(path: &std::path::Path, start: u64, lines: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes[bytes.len().min(start as usize)..]);
    let shown: Vec<String> = text
        .lines()
        .map(|line| line.chars().take(SHOWN).collect())
        .collect();
    let (before, last) = shown.split_at(shown.len().saturating_sub(lines));
    let is_error = |line: &&String| line.contains("[ERROR]") || line.contains("ssertion");
    let errors: Vec<&String> = before.iter().filter(is_error).collect();
    let errors = &errors[errors.len().saturating_sub(ERRORS)..];
    errors
        .iter()
        .copied()
        .chain(last)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_tail_of_a_log_begins_with_its_errors() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("error.log");
        let stack = " #1 0x7f <unknown>\n".repeat(20);
        let dump = "0".repeat(40_000);
        std::fs::write(&log, format!("up\n[ERROR] page 83\n{dump}\n{stack}")).unwrap();
        let tail = super::tail(&log, 3);
        assert!(tail.starts_with("[ERROR] page 83\n #1"), "{tail}");
        assert_eq!(tail.lines().count(), 4);
        assert!(super::tail(&log, 21).lines().all(|line| line.len() <= 300));
        assert_eq!(super::tail(&folder.path().join("none"), 3), "");
    }
}
