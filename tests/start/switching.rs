//! Switching off and on under a running load.

use std::time::{Duration, Instant};

use anyhow::ensure;
use integration_tests::deterministic::{self, Load};
use integration_tests::ledger::Ledger;
use integration_tests::place::ROOMY;
use integration_tests::probe;
use integration_tests::sysbench::Sysbench;
use integration_tests::taken::{Reads, Taken};
use integration_tests::{Flavour, Outcome, Place, Server, Suite, note, sql, verification};

const CACHE: u64 = 128 << 20;
const TIMES: u32 = 10;
/// A stall of this length is an error; a shorter one is a figure in the report.
const FAR_TOO_LONG: Duration = Duration::from_secs(5);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("switching")
        .one_at_a_time()
        .each("ten_times_under_sysbench", ten_times_early)
        .with(
            Flavour::MariaDb1011,
            "ten_times_under_sysbench_installed_at_run_time",
            ten_times_at_run_time,
        )
        .with(
            Flavour::MySql97,
            "ten_times_under_sysbench_installed_at_run_time",
            ten_times_at_run_time,
        )
        .each("equal_checksums_with_and_without", equal_checksums)
        .in_turn("hundred_times_in_a_row", hundred_times)
        .in_turn(
            "switched_off_removes_contents",
            switched_off_removes_contents,
        )
}

fn ten_times_early(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?.buffer_pool(16 << 20))?;
    ten_times(place, server)
}

fn ten_times_at_run_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?.buffer_pool(16 << 20))?;
    place.install(&server, CACHE)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    ten_times(place, server)
}

fn ten_times(place: &Place, server: Server) -> Outcome {
    // With a small redo log the server sometimes stops all statements to flush, with or without the extension.
    server.sql(match place.installation.flavour {
        Flavour::MySql97 => "SET GLOBAL innodb_redo_log_capacity = 512 * 1024 * 1024",
        _ => "SET GLOBAL innodb_log_file_size = 512 * 1024 * 1024",
    })?;
    let sysbench = Sysbench::prepare(&server, place.root(), 4, 30_000)?;
    let mut switches = Vec::new();
    let (summary, stalls) = probe::during(&server, || {
        let mut run = sysbench.run(&server, "oltp_read_write", 8, 20)?;
        std::thread::sleep(Duration::from_secs(2));
        for _ in 0..TIMES {
            for (value, pause) in [("OFF", 500), ("ON", 800)] {
                ensure!(run.is_running(), "sysbench ended before the switching");
                let started = Instant::now();
                server.sql(&format!("SET GLOBAL bpe_enabled = {value}"))?;
                switches.push((value, started.elapsed()));
                std::thread::sleep(Duration::from_millis(pause));
            }
        }
        ensure!(run.is_running(), "sysbench ended during the switching");
        run.finish()
    })?;
    sql::expect_state(&server, "active")?;
    ensure!(sql::figure(&server, "hits")? > 0, "no hits");
    ensure!(summary.reconnects == 0, "{} reconnects", summary.reconnects);
    let longest = |value| {
        let times = switches.iter().filter(|(which, _)| *which == value);
        times
            .map(|(_, time)| time.as_secs_f64() * 1e3)
            .fold(0.0, f64::max)
    };
    note(format!(
        "switching under load: probe {stalls}; sysbench longest transaction {:.1} ms, p95 {:.1} ms, {} transactions; \
         longest SET OFF {:.1} ms, SET ON {:.1} ms",
        summary.longest_ms,
        summary.p95_ms,
        summary.transactions,
        longest("OFF"),
        longest("ON")
    ));
    ensure!(stalls.longest < FAR_TOO_LONG, "stall: {stalls}");

    verification::check_tables(&server)?;
    server.stop()?;
    place.expect_left()?;
    verification::innochecksum(&place.installation, &place.data())?;
    let server = place.start(place.roomy())?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}

/// The same load on a server without the plugin, and on one where the extension is switched off and on continuously.
fn equal_checksums(place: &Place) -> Outcome {
    let load = Load {
        tables: 4,
        rows: 8000,
        width: 1000,
        clients: 4,
        statements: 2500,
    };
    integration_tests::place::copy_folder(&place.data(), &place.root().join("plain"))?;
    let plain = place.start(place.options_of("plain", "run-plain").buffer_pool(ROOMY))?;
    deterministic::prepare(&plain, load)?;
    deterministic::run(&plain, load)?;
    let expected = deterministic::checksums(&plain, load)?;
    plain.stop()?;

    let server = place.start(place.early(CACHE)?)?;
    deterministic::prepare(&server, load)?;
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut switched = 0;
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            let result = deterministic::run(&server, load);
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            result
        });
        while !done.load(std::sync::atomic::Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(300));
            server.sql("SET GLOBAL bpe_enabled = OFF")?;
            std::thread::sleep(Duration::from_millis(100));
            server.sql("SET GLOBAL bpe_enabled = ON")?;
            switched += 1;
        }
        worker
            .join()
            .unwrap_or_else(|_| Err(anyhow::anyhow!("the load panicked")))
    })?;
    note(format!("switched {switched} times during the load"));
    let with = deterministic::checksums(&server, load)?;
    ensure!(with == expected, "{with:?} with, {expected:?} without");
    verification::check_tables(&server)?;
    server.stop()?;
    verification::innochecksum(&place.installation, &place.data())?;
    let server = place.start(place.roomy())?;
    ensure!(deterministic::checksums(&server, load)? == expected);
    server.stop()?;
    Ok(())
}

/// Switching leaks nothing: no descriptor, no thread, no growing memory.
fn hundred_times(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 10_000, 1000, "")?;
    let mut after_ten = None;
    for number in 0..100 {
        server.sql("SET GLOBAL bpe_enabled = OFF")?;
        server.sql("SET GLOBAL bpe_enabled = ON")?;
        if number == 10 {
            after_ten = Some((
                descriptors(&server)?,
                threads(&server)?,
                server.resident_bytes(),
            ));
        }
    }
    let (descriptors_then, threads_then, memory_then) = after_ten.unwrap_or_default();
    let (descriptors_now, threads_now) = (descriptors(&server)?, threads(&server)?);
    ensure!(
        descriptors_now <= descriptors_then + 4,
        "descriptors: {descriptors_then}, then {descriptors_now}"
    );
    ensure!(
        threads_now <= threads_then + 4,
        "threads: {threads_then}, then {threads_now}"
    );
    let grown = server.resident_bytes().saturating_sub(memory_then);
    note(format!(
        "90 more switchings: {} KiB more resident",
        grown >> 10
    ));
    ensure!(grown < 16 << 20, "resident memory grew by {grown} bytes");
    ensure!(place.cache_files().len() == 1, "{:?}", place.cache_files());
    sql::read_all(&mut connection, "d.t", 10_000)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the cache file is gone", Duration::from_secs(20), || {
        Ok(place.cache_files().is_empty())
    })?;
    server.stop()?;
    Ok(())
}

fn descriptors(server: &Server) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{}/fd", server.pid()))?.count())
}

fn threads(server: &Server) -> anyhow::Result<usize> {
    Ok(std::fs::read_dir(format!("/proc/{}/task", server.pid()))?.count())
}

/// Pages cached before OFF are never served after it. A server that stops while the extension is off persists nothing.
fn switched_off_removes_contents(place: &Place) -> Outcome {
    const ROWS: u32 = 600;
    let sum = u64::from(ROWS) * (u64::from(ROWS) + 1) / 2;
    let server = place.start(place.early(CACHE)?)?;
    sql::fill(&mut server.connect()?, "d.rest", ROWS, 1300, "")?;
    let ledger = Ledger::small(&server)?;
    // Each read evicts the other table from the pool.
    let read = |version: u64| -> anyhow::Result<Reads> {
        let sums = sql::read_all(&mut server.connect()?, "d.rest", ROWS)?;
        ensure!(sums == (sum, version * u64::from(ROWS)), "{sums:?}");
        ledger.verify(&server)?;
        Reads::of(&server, "d.rest")
    };
    read(0)?;
    ensure!(read(0)?.hits > 20, "nothing was cached");
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("its file is removed", Duration::from_secs(60), || {
        Ok(place.cache_files().is_empty())
    })?;
    ensure!(sql::figure(&server, "memory_bytes")? == 0);
    server.sql("UPDATE d.rest SET v = v + 1")?;
    ledger.run(&server, Duration::from_secs(1))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    let first = read(1)?;
    let second = read(1)?;
    Taken::by(&server)?.expect_cold()?;
    ensure!(
        first.are_cold() && second.hits > first.hits + 20,
        "{first:?}, then {second:?}"
    );
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    ledger.verify(&server)?;
    server.stop()?;
    place.expect_nothing_left()
}
