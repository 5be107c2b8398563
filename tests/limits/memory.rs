//! `Bpe_memory_bytes` equals the growth of the server's resident memory, and is small compared with the pool.

use std::time::{Duration, Instant};

use anyhow::ensure;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::{Outcome, Place, Server, Suite, note, sql};

const MIB: u64 = 1 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("memory")
        .in_turn("grows_by_what_is_said", grows_by_what_is_said)
        .in_turn("grows_by_no_more_under_load", grows_by_no_more_under_load)
        .in_turn("of_a_disabled_plugin", of_a_disabled_plugin)
}

/// Resident bytes once they have settled.
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

/// Resident bytes of the C library's arenas, each aligned to 64 MiB, and its heap. Server and extension share them, and they
/// keep the memory of a burst for an unlimited time.
fn kept_by_malloc(server: &Server) -> u64 {
    const ARENA: u64 = 64 * MIB;
    let path = format!("/proc/{}/smaps", server.pid());
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let mut is_malloc = false;
    let mut kib = 0;
    for line in text.lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[..] {
            [range, rights, "00000000", "00:00", "0", ref name @ ..] => {
                let start = range.split('-').next().unwrap_or_default();
                let start = u64::from_str_radix(start, 16).unwrap_or(1);
                is_malloc = rights == "rw-p" && name.is_empty() && start % ARENA == 0
                    || name.first() == Some(&"[heap]");
            }
            ["Rss:", rss, "kB"] if is_malloc => kib += rss.parse().unwrap_or(0),
            [first, ..] if !first.ends_with(':') => is_malloc = false,
            _ => {}
        }
    }
    kib << 10
}

/// Growth at the moment of enabling, without other load.
fn grows_by_what_is_said(place: &Place) -> Outcome {
    const POOL: u64 = 512 * MIB;
    const CACHE: u64 = 8 * POOL;
    let server = place.start(place.installable()?.buffer_pool(POOL))?;
    place.install(&server, CACHE)?;
    // The first SHOW STATUS allocates memory of the server.
    server.status("bpe%")?;
    let before = resident(&server);
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let grown = resident(&server).saturating_sub(before);
    let said = sql::figure(&server, "memory_bytes")?;
    let off = (grown as f64 - said as f64) / said as f64 * 100.0;
    let share = said as f64 / POOL as f64 * 100.0;
    note(format!(
        "Bpe_memory_bytes {:.2} MiB, resident memory grew by {:.2} MiB ({off:+.1} %); {share:.2} % of a pool of {} MiB \
         with a cache of {} MiB",
        said as f64 / MIB as f64,
        grown as f64 / MIB as f64,
        POOL / MIB,
        CACHE / MIB
    ));
    ensure!(share < 4.0, "Bpe_memory_bytes is {share:.2} % of the pool");
    ensure!(
        off.abs() < 10.0,
        "Bpe_memory_bytes {said}, resident memory grew by {grown}"
    );
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the memory is given back", Duration::from_secs(20), || {
        Ok(server.resident_bytes() < before + grown / 3)
    })?;
    server.stop()?;
    Ok(())
}

/// Under load with a full cache, memory stays within the reported figure.
fn grows_by_no_more_under_load(place: &Place) -> Outcome {
    const POOL: u64 = 64 * MIB;
    const CACHE: u64 = 512 * MIB;
    /// Rows of 3,500 bytes: twice the pool.
    const ROWS: u32 = 32_000;
    const MOST_KEPT: u64 = 16 * MIB;
    let server = place.start(place.installable()?.buffer_pool(POOL))?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 3500, "")?;
    let mut exercise = || -> Outcome {
        for _ in 0..3 {
            sql::read_all(&mut connection, "d.t", ROWS)?;
            connection.query_drop("SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)")?;
        }
        Ok(())
    };
    exercise()?;
    place.install(&server, CACHE)?;
    server.status("bpe%")?;
    let before = resident(&server);
    let kept_before = kept_by_malloc(&server);
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    exercise()?;
    ensure!(sql::figure(&server, "pages_cached")? > 4000, "not filled");
    // Memory of a burst is released gradually, by threads that may also wait for a busy machine's processors.
    let end = Instant::now() + Duration::from_secs(30);
    loop {
        let said_before = sql::figure(&server, "memory_bytes")?;
        let grown = resident(&server).saturating_sub(before);
        let said = sql::figure(&server, "memory_bytes")?.max(said_before);
        let kept = kept_by_malloc(&server).saturating_sub(kept_before);
        // The server's own memory varies by a MiB.
        let is_said = grown < said + said / 10 + MIB + kept && kept < MOST_KEPT;
        if is_said || Instant::now() > end {
            let told = format!(
                "filled: Bpe_memory_bytes {:.2} MiB, resident memory grew by {:.2} MiB, of it {:.2} MiB in malloc's arenas",
                said as f64 / MIB as f64,
                grown as f64 / MIB as f64,
                kept as f64 / MIB as f64
            );
            ensure!(is_said, "{told}");
            note(told);
            break;
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    server.stop()?;
    Ok(())
}

fn of_a_disabled_plugin(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    server.status("%")?;
    let before = resident(&server);
    place.install(&server, 1024 * MIB)?;
    server.status("bpe%")?;
    let grown = resident(&server).saturating_sub(before);
    note(format!(
        "a disabled plugin: {} KiB resident, library code included",
        grown >> 10
    ));
    ensure!(grown < 8 * MIB, "{grown} bytes");
    server.stop()?;
    Ok(())
}
