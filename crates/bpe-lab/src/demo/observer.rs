//! Counters of the server and the volume, read once a second beside the load.

use std::collections::HashMap;

use anyhow::{Context, Result};
use private_server::Server;
use private_server::mysql::{self, prelude::Queryable};

use super::results::Work;
use super::volume::Volume;

/// A connection that only looks.
pub struct Observer {
    connection: mysql::Conn,
}

/// Counters at one moment. Those of the extension are 0 without it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Snapshot {
    pub hits: u64,
    pub misses: u64,
    pub admitted: u64,
    pub rejected: u64,
    pub evicted: u64,
    pub invalidated: u64,
    pub cache_bytes_written: u64,
    pub bytes_cached: u64,
    pub memory: u64,
    pub innodb_reads: u64,
    pub innodb_pages_written: u64,
    pub history: u64,
    pub disk_reads: Option<u64>,
    pub disk_writes: Option<u64>,
}

impl Observer {
    /// Connects.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn new(server: &Server) -> Result<Observer> {
        Ok(Observer {
            connection: server.connect()?,
        })
    }

    /// All counters now. `volume` is the disk with the data files, if it is emulated.
    ///
    /// # Errors
    /// When the server or the volume does not answer.
    pub fn snapshot(&mut self, volume: Option<&Volume>) -> Result<Snapshot> {
        let rows: Vec<(String, String)> = self
            .connection
            .query(
                "SHOW GLOBAL STATUS WHERE Variable_name LIKE 'Bpe\\_%' \
                 OR Variable_name IN ('Innodb_data_reads', 'Innodb_pages_written')",
            )
            .context("reading the server's status")?;
        let status: HashMap<String, String> = rows
            .into_iter()
            .map(|(name, value)| (name.to_lowercase(), value))
            .collect();
        let number = |name: &str| -> u64 {
            status
                .get(name)
                .and_then(|value| value.parse().ok())
                .unwrap_or(0)
        };
        let history: Option<u64> = self
            .connection
            .query_first(
                "SELECT count FROM information_schema.innodb_metrics \
                 WHERE name = 'trx_rseg_history_len'",
            )
            .context("reading InnoDB's metrics")?;
        let disk = volume.map(Volume::statistics).transpose()?;
        Ok(Snapshot {
            hits: number("bpe_hits"),
            misses: number("bpe_misses"),
            admitted: number("bpe_admitted"),
            rejected: number("bpe_rejected"),
            evicted: number("bpe_evicted"),
            invalidated: number("bpe_invalidated"),
            cache_bytes_written: number("bpe_bytes_written"),
            bytes_cached: number("bpe_bytes_cached"),
            memory: number("bpe_memory_bytes"),
            innodb_reads: number("innodb_data_reads"),
            innodb_pages_written: number("innodb_pages_written"),
            history: history.unwrap_or(0),
            disk_reads: disk.as_ref().map(|disk| disk.reads),
            disk_writes: disk.as_ref().map(|disk| disk.writes),
        })
    }
}

impl Snapshot {
    /// What happened between `earlier` and this one. Counters that were reset meanwhile (the
    /// extension was switched) count as nothing.
    pub fn since(&self, earlier: &Snapshot) -> Work {
        let both = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Work {
            hits: self.hits.saturating_sub(earlier.hits),
            misses: self.misses.saturating_sub(earlier.misses),
            admitted: self.admitted.saturating_sub(earlier.admitted),
            rejected: self.rejected.saturating_sub(earlier.rejected),
            evicted: self.evicted.saturating_sub(earlier.evicted),
            invalidated: self.invalidated.saturating_sub(earlier.invalidated),
            cache_bytes_written: self
                .cache_bytes_written
                .saturating_sub(earlier.cache_bytes_written),
            disk_reads: both(self.disk_reads, earlier.disk_reads),
            disk_writes: both(self.disk_writes, earlier.disk_writes),
            innodb_reads: self.innodb_reads.saturating_sub(earlier.innodb_reads),
            innodb_pages_written: self
                .innodb_pages_written
                .saturating_sub(earlier.innodb_pages_written),
            history_before: earlier.history,
            history_after: self.history,
        }
    }
}
