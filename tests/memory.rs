//! `Bpe_memory_bytes` is what the server's resident memory grows by, and little compared with the pool.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::ensure;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::{Outcome, Place, Server, Suite, note, sql};

const POOL: u64 = 128 << 20;
/// Eight times the pool, as is usual.
const CACHE: u64 = 1 << 30;
/// Rows of 3,500 bytes: twice the pool.
const ROWS: u32 = 64_000;

fn main() -> ExitCode {
    Suite::new("memory")
        .each("grows_by_what_is_said", grows_by_what_is_said)
        .each("of_a_disabled_plugin", of_a_disabled_plugin)
        .run()
}

/// Reads everything three times, so that the pool is full and every path of the server has been taken.
fn exercise(server: &Server) -> Outcome {
    let mut connection = server.connect()?;
    for _ in 0..2 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
        connection.query_drop("SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)")?;
    }
    Ok(())
}

/// Resident bytes once they have come to rest.
fn resident(server: &Server) -> u64 {
    let mut last = server.resident_bytes();
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(300));
        let now = server.resident_bytes();
        if now.abs_diff(last) < 64 << 10 {
            return now;
        }
        last = now;
    }
    last
}

fn grows_by_what_is_said(place: &Place) -> Outcome {
    let server = place.start(place.installable()?.buffer_pool(POOL))?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 3500, "")?;
    exercise(&server)?;
    exercise(&server)?;
    place.install(&server, CACHE)?;
    // What a page of SHOW STATUS takes for the first time is not the extension's.
    server.status("bpe%")?;
    let before = resident(&server);
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    exercise(&server)?;
    exercise(&server)?;
    let after = resident(&server);
    let said = sql::figure(&server, "memory_bytes")?;
    let grown = after.saturating_sub(before);
    ensure!(sql::figure(&server, "pages_cached")? > 8000, "not filled");
    let off = (grown as f64 - said as f64) / said as f64 * 100.0;
    let share = said as f64 / POOL as f64 * 100.0;
    note(format!(
        "Bpe_memory_bytes {:.2} MiB, resident memory grew by {:.2} MiB ({off:+.1} %); {share:.2} % of a pool of {} MiB \
         with a cache of {} MiB",
        said as f64 / 1048576.0,
        grown as f64 / 1048576.0,
        POOL >> 20,
        CACHE >> 20
    ));
    ensure!(share < 4.0, "Bpe_memory_bytes is {share:.2} % of the pool");
    // The server's own allocations come and go by some hundred KiB.
    ensure!(
        grown.abs_diff(said) < said / 10 + (512 << 10),
        "Bpe_memory_bytes {said}, resident memory grew by {grown}"
    );
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the memory is given back", Duration::from_secs(20), || {
        Ok(server.resident_bytes() < before + grown / 3)
    })?;
    server.stop()?;
    Ok(())
}

fn of_a_disabled_plugin(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    server.status("%")?;
    let before = resident(&server);
    place.install(&server, CACHE)?;
    server.status("bpe%")?;
    let grown = resident(&server).saturating_sub(before);
    note(format!(
        "a disabled plugin: {} KiB resident, library code included",
        grown >> 10
    ));
    ensure!(grown < 8 << 20, "{grown} bytes");
    server.stop()?;
    Ok(())
}
