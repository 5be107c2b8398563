//! Watching a server: a [`Sample`] is one reading of it, [`Figures`] are what two readings say, an [`Observer`] takes them.
//!
//! `bpe status`, `bpe top` and the console show these and compute no rate of their own; nor does `bpe-lab`. A reading takes a few short
//! statements, `SHOW GLOBAL STATUS`, a report and one `SELECT`, whoever looks, so that looking costs the server next to nothing.
//! [`explain`] says in words what the figures mean.

use std::time::Duration;

use crate::connection::{self, Target};
use crate::failure::Failure;
use crate::server::Server;

pub mod explain;
mod figures;
mod histogram;
pub mod kept;
mod rules;
mod sample;
mod sentence;
mod waits;

#[cfg(test)]
pub use figures::tests as figures_tests;
pub use figures::{Figures, percent};
pub use histogram::Quantiles;
pub use sample::Sample;
pub use sentence::{Level, Sentence};
pub use waits::Waits;

/// How long an answer is waited for. A server that is stopped or hangs is told from one that is busy by this.
const LIMIT: Duration = Duration::from_secs(10);

/// Watches one server over a connection of its own.
pub struct Observer {
    target: Target,
    limit: Duration,
    server: Option<Server>,
    before: Option<Sample>,
}

impl Observer {
    /// Reads the option files, but does not connect yet.
    ///
    /// # Errors
    /// When the options do not tell which server is meant.
    pub fn new(args: &connection::Args) -> Result<Self, Failure> {
        Ok(Self::of(args.target()?))
    }

    pub fn of(target: Target) -> Self {
        Self::with_limit(target, LIMIT)
    }

    /// Waits so long for an answer.
    pub fn with_limit(target: Target, limit: Duration) -> Self {
        Self {
            target,
            limit,
            server: None,
            before: None,
        }
    }

    /// The server, connected if it was not: for questions beside the samples. After an error that comes of the connection,
    /// call [`Observer::disconnect`].
    ///
    /// # Errors
    /// When it cannot be reached.
    pub fn server(&mut self) -> Result<&mut Server, Failure> {
        let server = match self.server.take() {
            Some(server) => server,
            None => Server::open(&mut self.target, Some(self.limit))?,
        };
        Ok(self.server.insert(server))
    }

    /// The next call connects anew.
    pub fn disconnect(&mut self) {
        self.server = None;
        self.before = None;
    }

    /// Takes a reading.
    ///
    /// # Errors
    /// When the server cannot be reached or does not answer; the next call connects anew.
    pub fn sample(&mut self) -> Result<Sample, Failure> {
        let sample = self.server().and_then(Sample::take);
        if sample.is_err() {
            self.disconnect();
        }
        sample
    }

    /// The reading that figures were made of last.
    pub fn last(&self) -> Option<&Sample> {
        self.before.as_ref()
    }

    /// Takes a reading; what it and the one before say. `None` for the first one, after an error too, and when the server was
    /// restarted meanwhile.
    ///
    /// # Errors
    /// As [`Observer::sample`].
    pub fn figures(&mut self) -> Result<Option<Figures>, Failure> {
        let now = self.sample()?;
        let before = self.before.replace(now.clone());
        Ok(before
            .filter(|before| before.count("uptime") <= now.count("uptime"))
            .map(|before| Figures::between(&before, &now)))
    }
}
