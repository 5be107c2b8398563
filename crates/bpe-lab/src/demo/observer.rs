//! Counters of the server and the volume, read once a second during the load.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use bpe::connection::{self, Target};
use bpe::observe::{self, Sample};
use private_server::Server;

use super::volume::Volume;
use super::work::Work;

/// Timeout for an answer of a server under load.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);

/// A monitoring connection.
pub struct Observer(observe::Observer);

/// Counters at one moment. The extension's counters are 0 without it.
pub struct Snapshot {
    sample: Sample,
    history: u64,
    disk_reads: Option<u64>,
    disk_writes: Option<u64>,
}

/// Returns the address of a private server, for the library of `bpe`.
///
/// # Errors
/// The socket's path is unusable.
pub fn target_of(server: &Server) -> Result<Target> {
    connection::Args {
        socket: Some(server.socket().display().to_string()),
        user: Some("root".to_owned()),
        no_defaults: true,
        ..connection::Args::default()
    }
    .target()
    .map_err(|failure| anyhow!("{failure}"))
}

impl Observer {
    /// Connects.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn new(server: &Server) -> Result<Observer> {
        let mut observer = observe::Observer::with_limit(target_of(server)?, ANSWER_TIMEOUT);
        observer.server()?;
        Ok(Observer(observer))
    }

    /// Reads all counters. `volume` is the emulated disk of the data files, if any.
    ///
    /// # Errors
    /// The server or the volume does not answer.
    pub fn snapshot(&mut self, volume: Option<&Volume>) -> Result<Snapshot> {
        let sample = self.0.sample()?;
        let history = self
            .0
            .server()?
            .value(
                "SELECT count FROM information_schema.innodb_metrics \
                 WHERE name = 'trx_rseg_history_len'",
            )
            .context("reading InnoDB's metrics")?;
        let disk = volume.map(Volume::statistics).transpose()?;
        Ok(Snapshot {
            sample,
            history: history.and_then(|text| text.parse().ok()).unwrap_or(0),
            disk_reads: disk.as_ref().map(|disk| disk.reads),
            disk_writes: disk.as_ref().map(|disk| disk.writes),
        })
    }
}

impl Snapshot {
    /// Bytes of the cached pages.
    pub fn bytes_cached(&self) -> u64 {
        self.sample.count("bpe_bytes_cached")
    }

    /// Memory of the extension, bytes.
    pub fn memory(&self) -> u64 {
        self.sample.count("bpe_memory_bytes")
    }

    /// Differences to an earlier snapshot.
    pub fn since(&self, earlier: &Snapshot) -> Work {
        let more = |name: &str| self.sample.growth(&earlier.sample, name);
        let both = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Work {
            hits: more("bpe_hits"),
            misses: more("bpe_misses"),
            admitted: more("bpe_admitted"),
            rejected: more("bpe_rejected"),
            evicted: more("bpe_evicted"),
            invalidated: more("bpe_invalidated"),
            cache_bytes_written: more("bpe_bytes_written"),
            disk_reads: both(self.disk_reads, earlier.disk_reads),
            disk_writes: both(self.disk_writes, earlier.disk_writes),
            innodb_reads: more("innodb_data_reads"),
            innodb_pages_written: more("innodb_pages_written"),
            history_before: earlier.history,
            history_after: self.history,
        }
    }
}
