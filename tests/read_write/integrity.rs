//! Mixed load with pool and cache far smaller than the data, clean stops and crashes. At the end the servers' own checks run on
//! a server without the plugin.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::{Outcome, Place, Server, Suite, note, place, sql, verification};

/// Smaller than the data, so that pages compete for slots.
const CACHE: u64 = 24 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("integrity")
        .all("mixed_load_and_clean_stop", mixed_load)
        .each("installed_at_run_time", installed_at_run_time)
        .in_turn("compressed_and_all_admitted", compressed)
        .each("crashes", crashes)
        .in_turn(
            "crash_of_a_server_with_the_plugin_then_without",
            crash_then_without,
        )
}

/// Steps of a load: about ten seconds on two busy cores. A slow machine runs as many.
const STEPS: u64 = 20_000;
/// The same where every page that is read is compressed and written.
const COMPRESSED_STEPS: u64 = 12_000;

/// 4 tables of 5,000 rows of 2,600 bytes: 64 MiB on disk, eight times the pool.
fn ledger(server: &Server) -> anyhow::Result<Ledger> {
    let ledger = Ledger::create(server, 4, 5000, 2600, 8)?;
    assert!(ledger.bytes() > 6 * place::POOL && ledger.bytes() > 2 * CACHE);
    Ok(ledger)
}

/// Checks the activity counters, as proof that the test exercised the cache.
fn expect_work(server: &Server) -> Outcome {
    let [hits, misses, invalidated, evicted, proofs, errors] = [
        "hits",
        "misses",
        "invalidated",
        "evicted",
        "failed_proofs",
        "device_errors",
    ]
    .map(|name| sql::figure(server, name));
    let (hits, misses, invalidated, evicted) = (hits?, misses?, invalidated?, evicted?);
    note(format!(
        "{hits} hits, {misses} misses, {invalidated} invalidated, {evicted} evicted"
    ));
    ensure!(hits > 1000, "only {hits} hits");
    ensure!(invalidated > 100, "only {invalidated} invalidated");
    ensure!(evicted > 0, "nothing evicted: the cache was not too small");
    ensure!(
        proofs? == 0 && errors? == 0,
        "failed proofs or device errors"
    );
    Ok(())
}

/// Clean stop; innochecksum on every file; a start without the plugin; every table and every row.
fn stop_and_verify(place: &Place, server: Server, ledger: &Ledger) -> Outcome {
    let clean = verification::stop_and_verify(place, server, ledger, place.options())?;
    note(format!(
        "clean without the plugin: {} files, {} tables",
        clean.files, clean.tables
    ));
    Ok(())
}

fn mixed_load(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let ledger = ledger(&server)?;
    let counts = ledger.run_steps(&server, STEPS)?;
    note(counts.to_string());
    expect_work(&server)?;
    stop_and_verify(place, server, &ledger)
}

fn installed_at_run_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    let ledger = ledger(&server)?;
    // Install and enable in the middle of the load.
    ledger.run_while(&server, Duration::from_secs(4), || {
        std::thread::sleep(Duration::from_secs(2));
        place.install(&server, CACHE)?;
        server.sql("SET GLOBAL bpe_enabled = ON")?;
        Ok(())
    })?;
    let counts = ledger.run_steps(&server, STEPS)?;
    note(counts.to_string());
    expect_work(&server)?;
    stop_and_verify(place, server, &ledger)
}

fn compressed(place: &Place) -> Outcome {
    let server = place.start(
        place
            .early(CACHE)?
            .option("--bpe-compression=lz4")
            .option("--bpe-instances=4"),
    )?;
    let ledger = ledger(&server)?;
    let counts = ledger.run_steps(&server, COMPRESSED_STEPS)?;
    note(counts.to_string());
    expect_work(&server)?;
    stop_and_verify(place, server, &ledger)
}

/// Repeated kills under load, with recovery through the plugin.
fn crashes(place: &Place) -> Outcome {
    let mut server = place.start(place.early(CACHE)?)?;
    let ledger = ledger(&server)?;
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..3 {
        let time = Duration::from_millis(random.u64(1500..4500));
        ledger.run_and_kill(server, time)?;
        server = place.start(place.early(CACHE)?)?;
        sql::expect_state(&server, "active")?;
        ledger.settle(&server)?;
        ledger.run(&server, Duration::from_secs(1))?;
    }
    stop_and_verify(place, server, &ledger)
}

/// A crash loses no data that only the cache holds: recovery without the plugin.
fn crash_then_without(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let ledger = ledger(&server)?;
    ledger.run_and_kill(server, Duration::from_secs(6))?;
    ensure!(place.cache_files().len() == 1, "{:?}", place.cache_files());
    let server = place.start(place.roomy())?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    ledger.run(&server, Duration::from_secs(3))?;
    server.stop()?;
    // The cache file of the crash is still there, and is not trusted.
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    ledger.run(&server, Duration::from_secs(5))?;
    stop_and_verify(place, server, &ledger)
}
