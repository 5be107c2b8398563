//! Monitoring of a server: a [`Sample`] is one reading, [`Figures`] describe the time between two, and an [`Observer`] takes them.
//!
//! `bpe status`, `bpe top`, the console and `bpe-lab` show these figures and compute no rates themselves. A reading
//! takes a few short statements, `SHOW GLOBAL STATUS`, a report and one `SELECT`. So every reader costs the server next
//! to nothing.
//!
//! Reading order: `sample`, `histogram`, `figures` and `waits` (numbers); `sentence`, [`persisted`], `rules` and [`explain`]
//! (words); [`status`] and [`top`] (subcommands).

use std::time::Duration;

use crate::connect::server::Server;
use crate::connect::{self, Target};
use crate::support::failure::Failure;

pub mod explain;
mod figures;
mod histogram;
pub mod persisted;
mod rules;
mod sample;
mod sentence;
pub mod status;
pub mod top;
mod waits;

#[cfg(test)]
pub use figures::tests as figures_tests;
pub use figures::{Figures, are_piled_up, percent};
pub use histogram::Quantiles;
pub use sample::Sample;
pub use sentence::{Level, Sentence};
pub use waits::Waits;

/// Answer timeout. It distinguishes a stopped or hung server from a busy one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Monitors one server over a dedicated connection.
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
    /// The options do not identify a server.
    pub fn new(args: &connect::Args) -> Result<Self, Failure> {
        Ok(Self::of(args.target()?))
    }

    pub fn of(target: Target) -> Self {
        Self::with_limit(target, ANSWER_TIMEOUT)
    }

    /// Uses this answer timeout.
    pub fn with_limit(target: Target, limit: Duration) -> Self {
        Self {
            target,
            limit,
            server: None,
            before: None,
        }
    }

    /// The server, connected if necessary, for queries besides the samples. Call [`Observer::disconnect`] after a connection error.
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

    /// Closes the connection; the next call connects again.
    pub fn disconnect(&mut self) {
        self.server = None;
        self.before = None;
    }

    /// Takes a reading.
    ///
    /// # Errors
    /// The server is unreachable or does not answer; the next call connects again.
    pub fn sample(&mut self) -> Result<Sample, Failure> {
        let sample = self.server().and_then(Sample::take);
        if sample.is_err() {
            self.disconnect();
        }
        sample
    }

    /// The newest reading that figures were computed from.
    pub fn last(&self) -> Option<&Sample> {
        self.before.as_ref()
    }

    /// Takes a reading and computes the figures since the previous one. Returns `None` for the first reading, after an
    /// error, and after a restart of the server.
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
