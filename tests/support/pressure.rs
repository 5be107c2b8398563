//! Two loads at once: the ledger detects stale pages, and sysbench detects failed statements. Both must continue whatever
//! happens to the cache.

use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::Server;

use crate::ledger::{Counts, Ledger};
use crate::place::Place;
use crate::sysbench::Sysbench;
use crate::verification;

const SYSBENCH_THREADS: u32 = 2;

/// The tables of both.
pub struct Pressure {
    pub ledger: Ledger,
    sysbench: Sysbench,
}

impl Pressure {
    /// 25 MB for the ledger, which is paced, and 5 MB for sysbench: more than three times the pool.
    pub fn create(place: &Place, server: &Server) -> anyhow::Result<Pressure> {
        Ok(Pressure {
            ledger: Ledger::create(server, 2, 5000, 2500, 6)?.paced(),
            sysbench: Sysbench::prepare(server, place.root(), 2, 10_000)?,
        })
    }

    /// Runs both for `time`; every statement of both must succeed.
    pub fn run(&self, server: &Server, time: Duration) -> anyhow::Result<Counts> {
        self.run_while(server, time, || Ok(()))
    }

    /// The same, while the closure runs once in this thread. The longest step counted is that of either load.
    pub fn run_while(
        &self,
        server: &Server,
        time: Duration,
        meanwhile: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Counts> {
        let seconds = time.as_secs().max(1);
        let beside = self
            .sysbench
            .run(server, "oltp_read_write", SYSBENCH_THREADS, seconds)?;
        let counts = self.ledger.run_while(server, time, meanwhile)?;
        let summary = beside.finish().context("beside the ledger")?;
        ensure!(
            summary.reconnects == 0 && summary.transactions > 0,
            "sysbench: {summary:?}"
        );
        let longest = (summary.longest_ms * 1000.0) as u64;
        counts
            .longest_us
            .fetch_max(longest, std::sync::atomic::Ordering::Relaxed);
        Ok(counts)
    }

    /// Checks every row, every table by the server's own check, and after a clean stop every file by innochecksum.
    pub fn stop_and_verify(&self, place: &Place, server: Server) -> anyhow::Result<()> {
        self.ledger.verify(&server)?;
        verification::check_tables(&server)?;
        server.stop()?;
        verification::innochecksum(&place.installation, &place.data())?;
        Ok(())
    }
}
