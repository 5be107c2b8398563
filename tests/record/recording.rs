//! Recordings of page reads and writes. They match InnoDB's activity with the extension on or off, and they end. Switching on
//! and off beside them keeps every row right.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mysql::{self, prelude::Queryable};
use integration_tests::trace::{self, CREATE_FUNCTION, Recording, ask, hook_mode};
use integration_tests::{Outcome, Place, Server, Suite, note, sql, verification};

const CACHE: u64 = 64 << 20;
/// Rows of 1,000 bytes: three times the pool.
const ROWS: u32 = 24_000;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("recording")
        .all("off_and_installed_at_run_time", off_at_run_time)
        .in_turn("off_and_loaded_early", off_early)
        .in_turn("on_and_loaded_early", on_early)
        .each("on_and_installed_at_run_time", on_at_run_time)
        .each("without_native_asynchronous_io", without_asynchronous_io)
        .in_turn("small_pages", small_pages)
        .in_turn("ends_by_itself", ends_by_itself)
        .in_turn("one_at_a_time", one_at_a_time)
        .in_turn("a_full_ring_counts_what_is_lost", full_ring)
        .in_turn("outlives_what_is_not_a_switching_off", switching)
        .in_turn("begun_and_ended_by_several_sessions", several_sessions)
}

/// The server's own counts of pages read and written.
fn pages(server: &Server) -> anyhow::Result<(u64, u64)> {
    let status = server.status("Innodb_pages_%")?;
    let of = |name: &str| -> anyhow::Result<u64> {
        let value = status
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        Ok(value.with_context(|| format!("no {name}"))?.1.parse()?)
    };
    Ok((of("Innodb_pages_read")?, of("Innodb_pages_written")?))
}

/// Fails unless both are equal within 5 % and 40 pages.
fn close(what: &str, recorded: u64, counted: u64) -> Outcome {
    ensure!(
        recorded.abs_diff(counted) <= counted / 20 + 40,
        "{recorded} page {what} recorded, the server counts {counted}"
    );
    Ok(())
}

/// Records while a table is read and written, and compares with the server's counts.
fn record_and_compare(server: &Server, page_size: u64) -> anyhow::Result<Recording> {
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    sql::write_dirty_pages(server)?;
    let before = pages(server)?;
    let mut recording = Recording::start(server)?;
    recording.during(|| {
        sql::read_all(&mut connection, "d.t", ROWS)?;
        connection.query_drop("UPDATE d.t SET v = v + 1 WHERE id % 5 = 0")?;
        connection.query_drop("SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)")?;
        // A new file, whose pages are written before they are ever read.
        sql::fill(&mut connection, "d.fresh", ROWS / 4, 1000, "")?;
        sql::write_dirty_pages(server)?;
        sql::read_all(&mut connection, "d.t", ROWS)?;
        Ok(())
    })?;
    recording.stop()?;
    let after = pages(server)?;
    let (reads, writes) = (after.0 - before.0, after.1 - before.1);
    note(format!(
        "{} page reads and {} page writes recorded, the server counts {reads} and {writes}; {} lost",
        recording.reads(),
        recording.writes(),
        recording.lost
    ));
    ensure!(reads > 2000 && writes > 500, "too little happened");
    ensure!(recording.lost == 0, "{} lost", recording.lost);
    ensure!(
        recording.page_sizes == [page_size],
        "{:?}",
        recording.page_sizes
    );
    close("reads", recording.reads(), reads)?;
    close("writes", recording.writes(), writes)?;
    Ok(recording)
}

/// The extension stays off; the hooks are on only during the recording.
fn recorded_while_off(server: &Server) -> Outcome {
    ensure!(hook_mode(server)? == 0);
    record_and_compare(server, 16384)?;
    ensure!(hook_mode(server)? == 0, "the hooks are still on");
    sql::expect_state(server, "disabled")?;
    ensure!(sql::figure(server, "memory_bytes")? == 0, "memory is kept");
    // Recording and extension do not affect each other.
    let mut connection = server.connect()?;
    ensure!(ask(&mut connection, "summary")?["recording"] == false);
    Ok(())
}

fn off_at_run_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    server.sql(CREATE_FUNCTION)?;
    recorded_while_off(&server)?;
    server.stop()?;
    Ok(())
}

fn off_early(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    recorded_while_off(&server)?;
    server.stop()?;
    Ok(())
}

fn on(server: &Server) -> Outcome {
    let mode = hook_mode(server)?;
    let before = sql::figure(server, "hits")?;
    record_and_compare(server, 16384)?;
    let hits = sql::figure(server, "hits")? - before;
    ensure!(hits > 500, "only {hits} hits");
    ensure!(hook_mode(server)? == mode && mode != 0);
    sql::expect_state(server, "active")?;
    Ok(())
}

fn on_early(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    on(&server)?;
    server.stop()?;
    Ok(())
}

fn on_at_run_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    place.install(&server, CACHE)?;
    server.sql(CREATE_FUNCTION)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    on(&server)?;
    server.stop()?;
    Ok(())
}

fn without_asynchronous_io(place: &Place) -> Outcome {
    let options = place.early_disabled(CACHE)?;
    let server = place.start(options.option("--innodb-use-native-aio=OFF"))?;
    server.sql(CREATE_FUNCTION)?;
    recorded_while_off(&server)?;
    server.stop()?;
    Ok(())
}

/// Page numbers use the page size of the server.
fn small_pages(place: &Place) -> Outcome {
    let place = Place::initialised(place.installation.flavour, &["--innodb-page-size=4096"])?;
    let options = place.early_disabled(CACHE)?;
    let server = place.start(options.option("--innodb-page-size=4096"))?;
    server.sql(CREATE_FUNCTION)?;
    let recording = record_and_compare(&server, 4096)?;
    let last = recording.events.iter().map(|event| event.page).max();
    ensure!(last > Some(5000), "the last page is {last:?}");
    server.stop()?;
    Ok(())
}

fn ends_by_itself(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    let mut recording = Recording::start(&server)?;
    ensure!(hook_mode(&server)? != 0);
    ensure!(sql::figure(&server, "memory_bytes")? > 4 << 20);
    recording.drain()?;
    let name = recording.name.clone();
    drop(recording);
    sql::wait_until("the recording ends", Duration::from_secs(20), || {
        Ok(hook_mode(&server)? == 0)
    })?;
    sql::wait_until("its memory is given back", Duration::from_secs(5), || {
        Ok(sql::figure(&server, "memory_bytes")? == 0)
    })?;
    let mut connection = server.connect()?;
    let answer = ask(&mut connection, &format!("trace-next {name} 0"))?;
    ensure!(answer["error"].is_string(), "{answer}");

    // Uninstalling does not wait for the recording, and the function is harmless afterwards.
    Recording::start(&server)?;
    server.sql(place.uninstall_statement())?;
    let answer = ask(&mut connection, "trace-start")?;
    ensure!(
        answer["error"].to_string().contains("not installed"),
        "{answer}"
    );
    ensure!(hook_mode(&server)? == 0);
    server.stop()?;
    Ok(())
}

fn one_at_a_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    server.sql(CREATE_FUNCTION)?;
    let mut connection = server.connect()?;
    let answer = ask(&mut connection, "trace-start")?;
    ensure!(
        answer["error"].to_string().contains("not installed"),
        "without the plugin: {answer}"
    );
    server.sql(place.install_statement())?;
    let mut first = Recording::start(&server)?;
    let second = ask(&mut connection, "trace-start")?;
    ensure!(second["error"].to_string().contains("another"), "{second}");
    for wrong in [
        "trace-next 0 0",
        "trace-stop 0",
        "trace-stop 0000000000000000",
    ] {
        let answer = ask(&mut connection, wrong)?;
        ensure!(answer["error"].is_string(), "{wrong}: {answer}");
    }
    for unknown in ["trace-next", "trace-start x y", "trace-next a b", "trace-"] {
        ensure!(ask(&mut connection, unknown).is_err(), "{unknown}");
    }
    ensure!(!first.drain()?, "it goes on");
    first.stop()?;
    ensure!(first.ended.as_deref() == Some("asked for"));
    Recording::start(&server)?.stop()?;
    server.stop()?;
    Ok(())
}

/// A slow client loses events, and gets their number.
fn full_ring(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    sql::write_dirty_pages(&server)?;
    let mut recording = Recording::start(&server)?;
    let name = recording.name.clone();
    let before = pages(&server)?;
    // Requesting the same events again acknowledges nothing, and keeps the recording alive.
    let (mut rounds, mut lost) = (0, 0);
    loop {
        // In parts: on a busy machine one scan takes longer than the timeout of a recording without requests.
        for from in (1..=ROWS).step_by(ROWS as usize / 8) {
            connection.query_drop(format!(
                "SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY) WHERE id BETWEEN {from} AND {}",
                from + ROWS / 8 - 1
            ))?;
            let answer = ask(&mut connection, &format!("trace-next {name} 0"))?;
            ensure!(answer["first"] == 0, "{answer}");
            lost = answer["lost"].as_u64().unwrap_or(0);
        }
        rounds += 1;
        if lost > 1000 {
            break;
        }
        ensure!(rounds < 2000, "it never fills");
    }
    recording.stop()?;
    let reads = pages(&server)?.0 - before.0;
    note(format!(
        "{} events kept and {} lost of {reads} page reads",
        recording.events.len(),
        recording.lost
    ));
    ensure!(recording.events.len() == 1 << 18, "the ring's size");
    close("reads", recording.reads() + recording.lost, reads)?;
    server.stop()?;
    Ok(())
}

/// Enabling and rebuilding do not affect a recording; disabling ends it at once.
fn switching(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    let ledger = Ledger::create(&server, 2, 5000, 2500, 4)?.paced();
    let mut recording = Recording::start(&server)?;
    let counts = ledger.run_while(&server, Duration::from_secs(12), || {
        recording.during(|| {
            std::thread::sleep(Duration::from_secs(1));
            server.sql("SET GLOBAL bpe_enabled = ON")?;
            sql::expect_state(&server, "active")?;
            std::thread::sleep(Duration::from_secs(3));
            for size in [CACHE / 2, CACHE] {
                server.sql(&format!("SET GLOBAL bpe_size = {size}"))?;
                sql::wait_until("rebuilt", Duration::from_secs(20), || {
                    Ok(sql::status(&server, "state")? == "active"
                        && ask(&mut server.connect()?, "summary")?["cache"]["bytes_capacity"]
                            .as_u64()
                            <= Some(size))
                })?;
                std::thread::sleep(Duration::from_millis(1500));
            }
            Ok(())
        })?;
        ensure!(recording.ended.is_none(), "{:?}", recording.ended);
        let with_cache = recording.events.len();
        ensure!(with_cache > 1000, "only {with_cache} events");
        server.sql("SET GLOBAL bpe_enabled = OFF")?;
        sql::wait_until("off", Duration::from_secs(10), || {
            Ok(hook_mode(&server)? == 0)
        })?;
        ensure!(recording.drain()?, "it goes on");
        ensure!(
            recording
                .ended
                .as_deref()
                .is_some_and(|why| why.contains("bpe_enabled")),
            "{:?}",
            recording.ended
        );
        // Enable while recording, and the recording ends first.
        let mut second = Recording::start(&server)?;
        server.sql("SET GLOBAL bpe_enabled = ON")?;
        second.during(|| {
            std::thread::sleep(Duration::from_secs(1));
            Ok(())
        })?;
        second.stop()?;
        sql::expect_state(&server, "active")?;
        Ok(())
    })?;
    note(counts.to_string());
    let before = sql::figure(&server, "hits")?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", before)?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// In every order, rows stay right, and at the end the hooks have the expected mode.
fn several_sessions(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    let load = Duration::from_secs(14);
    let counts = ledger.run_while(&server, load, || {
        std::thread::scope(|scope| {
            let sessions: Vec<_> = (0..4u64)
                .map(|number| {
                    let server = &server;
                    scope.spawn(move || -> anyhow::Result<usize> {
                        let mut connection = server.connect()?;
                        let mut random = fastrand::Rng::with_seed(number);
                        let until = std::time::Instant::now() + Duration::from_secs(12);
                        let mut events = 0;
                        while std::time::Instant::now() < until {
                            match random.u8(0..4) {
                                choice @ (0 | 1) => {
                                    let (on, bits) = (random.bool(), random.u32(0..2));
                                    let setting = match (choice, on) {
                                        (0, true) => "bpe_enabled = ON".into(),
                                        (0, false) => "bpe_enabled = OFF".into(),
                                        _ => format!("bpe_size = {}", CACHE << bits),
                                    };
                                    // Another session may be changing it: a clear error, not a failure.
                                    match connection.query_drop(format!("SET GLOBAL {setting}")) {
                                        Ok(()) | Err(mysql::Error::MySqlError(_)) => {}
                                        Err(error) => return Err(error.into()),
                                    }
                                }
                                _ => {
                                    if let Ok(mut recording) = Recording::start(server) {
                                        for _ in 0..random.u8(0..10) {
                                            std::thread::sleep(Duration::from_millis(20));
                                            if recording.drain()? {
                                                break;
                                            }
                                        }
                                        if recording.ended.is_none() && random.u8(0..4) != 0 {
                                            recording.stop()?;
                                        }
                                        events += recording.events.len();
                                    }
                                }
                            }
                            std::thread::sleep(Duration::from_millis(random.u64(0..60)));
                        }
                        Ok(events)
                    })
                })
                .collect();
            let mut events = 0;
            for session in sessions {
                events += session
                    .join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("panicked")))?;
            }
            ensure!(events > 1000, "only {events} events recorded");
            note(format!("{events} events recorded in between"));
            Ok(())
        })
    })?;
    note(counts.to_string());
    ledger.verify(&server)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the hooks are off", Duration::from_secs(20), || {
        Ok(trace::hook_mode(&server)? == 0)
    })?;
    // Everything still works.
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    ledger.run(&server, Duration::from_secs(2))?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}
