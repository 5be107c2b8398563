//! Measures the latency of a small transaction while something else happens to the server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use private_server::Server;
use private_server::mysql::prelude::Queryable;

/// Time between two transactions of the probe.
const PAUSE: Duration = Duration::from_millis(2);

/// Measurements of the probe.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stalls {
    pub transactions: u64,
    /// The longest transaction.
    pub longest: Duration,
    /// Transactions of more than 200 ms.
    pub over_200_ms: u64,
}

impl std::fmt::Display for Stalls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "longest of {} transactions {:.1} ms, {} over 200 ms",
            self.transactions,
            self.longest.as_secs_f64() * 1e3,
            self.over_200_ms
        )
    }
}

/// Runs `body` beside a probe that repeatedly updates one row and commits. A failed statement of the probe is an error.
pub fn during<T>(
    server: &Server,
    body: impl FnOnce() -> anyhow::Result<T>,
) -> anyhow::Result<(T, Stalls)> {
    let mut connection = server.connect()?;
    connection.query_drop("CREATE DATABASE IF NOT EXISTS probe")?;
    connection.query_drop(
        "CREATE TABLE IF NOT EXISTS probe.t (id INT PRIMARY KEY, n BIGINT NOT NULL) ENGINE=InnoDB",
    )?;
    connection.query_drop("REPLACE INTO probe.t VALUES (1, 0)")?;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let probe = scope.spawn(|| {
            let mut stalls = Stalls::default();
            while !done.load(Ordering::Relaxed) {
                let started = Instant::now();
                connection.query_drop("UPDATE probe.t SET n = n + 1 WHERE id = 1")?;
                let took = started.elapsed();
                stalls.transactions += 1;
                stalls.longest = stalls.longest.max(took);
                stalls.over_200_ms += u64::from(took > Duration::from_millis(200));
                std::thread::sleep(PAUSE);
            }
            Ok::<_, private_server::mysql::Error>(stalls)
        });
        let result = body();
        done.store(true, Ordering::Relaxed);
        let stalls = probe
            .join()
            .map_err(|_| anyhow::anyhow!("the probe panicked"))?;
        Ok((result?, stalls?))
    })
}
