//! What can go wrong, in words for the person at the terminal.

use std::path::PathBuf;

/// Errors of this crate. Each message says what happened and, where known, what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server is not on this machine and was not, or could not be, provided.
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
    /// The server ended, or did not answer in time, while starting.
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

/// Adds what was being done to an I/O error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Result<T, Error> {
        self.map_err(|source| Error::Io {
            what: what(),
            source,
        })
    }
}

/// The last `lines` lines of a text file; empty when it cannot be read.
pub(crate) fn tail(path: &std::path::Path, lines: usize) -> String {
    let bytes = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<&str> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}
