//! Bypass: reads go to the data files while the cache stays. Pages served afterwards are current.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::trace::{CREATE_FUNCTION, Recording, ask};
use integration_tests::verification::{Compared, compare_cached};
use integration_tests::{Outcome, Place, Server, Suite, note, sql, verification};

const CACHE: u64 = 128 << 20;
/// Rows of 1,000 bytes: three times the pool.
const ROWS: u32 = 24_000;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("bypass")
        .each(
            "contents_stay_and_writes_drop",
            contents_stay_and_writes_drop,
        )
        .in_turn("refill_keeps_what_is_written", refill_keeps_what_is_written)
        .in_turn("ends_by_itself", ends_by_itself)
        .each("set_in_the_configuration", set_in_the_configuration)
        .in_turn("off_and_on_while_bypassed", off_and_on_while_bypassed)
        .in_turn("recorded_while_bypassed", recorded_while_bypassed)
        .in_turn("killed_while_bypassed", killed_while_bypassed)
        .each("bad_values", bad_values)
        .in_turn("a_control_group_is_read_in_both_modes", control_group)
        .each("switched_at_random_under_load", switched_at_random)
}

fn set(server: &Server, variable: &str, value: &str) -> Outcome {
    Ok(server.sql(&format!("SET GLOBAL bpe_{variable} = {value}"))?)
}

fn expect(server: &Server, variable: &str, value: &str) -> Outcome {
    let shown = server.value(&format!("SELECT @@GLOBAL.bpe_{variable}"))?;
    ensure!(
        shown.as_deref() == Some(value),
        "bpe_{variable} is {shown:?}, not {value}"
    );
    Ok(())
}

/// Fills a table and caches all of it.
fn warm(server: &Server) -> Outcome {
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    sql::write_dirty_pages(server)?;
    for _ in 0..2 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    let (hits, _) = read(server)?;
    ensure!(hits > 1000, "only {hits} hits of a table that is cached");
    Ok(())
}

/// Reads the rows one by one; returns hits and misses. The sum of `v` must be `versions`.
fn read_versions(server: &Server, versions: u64) -> anyhow::Result<(u64, u64)> {
    let figures = || anyhow::Ok((sql::figure(server, "hits")?, sql::figure(server, "misses")?));
    let before = figures()?;
    let sums = sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
    let ids = u64::from(ROWS) * u64::from(ROWS + 1) / 2;
    ensure!(sums == (ids, versions), "{sums:?}, not {versions}");
    let after = figures()?;
    Ok((after.0 - before.0, after.1 - before.1))
}

fn read(server: &Server) -> anyhow::Result<(u64, u64)> {
    read_versions(server, 0)
}

fn nothing_differs(server: &Server) -> Outcome {
    let mut sums = Compared::default();
    compare_cached(server, &mut sums)?;
    ensure!(sums.wrong == 0 && sums.compared > 100, "{sums:?}");
    Ok(())
}

fn log_says(place: &Place, text: &str) -> Outcome {
    let log = std::fs::read_to_string(place.root().join("run/error.log"))?;
    ensure!(log.contains(text), "the log does not say '{text}': {log}");
    Ok(())
}

fn contents_stay_and_writes_drop(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    warm(&server)?;
    set(&server, "bypass", "ON")?;
    sql::expect_state(&server, "bypass")?;
    ensure!(sql::figure(&server, "state_number")? == 4);
    ensure!(sql::status(&server, "bypass")? == "on");
    ensure!(sql::status(&server, "state_reason")?.contains("bpe_bypass = ON"));
    let cached = sql::figure(&server, "pages_cached")?;
    // A read that began before the bypass is counted at its end.
    let mut data_reads = sql::figure(&server, "data_reads")?;
    sql::wait_until("no read is counted", Duration::from_secs(10), || {
        std::thread::sleep(Duration::from_millis(200));
        let before = std::mem::replace(&mut data_reads, sql::figure(&server, "data_reads")?);
        Ok(before == data_reads)
    })?;
    ensure!(read(&server)? == (0, 0), "reads were looked up");
    ensure!(sql::figure(&server, "data_reads")? == data_reads);
    let kept = sql::figure(&server, "pages_cached")?;
    ensure!(kept + 50 >= cached, "{kept} of {cached} pages were kept");
    nothing_differs(&server)?;

    // Each written page is dropped, and none is admitted.
    server.sql("UPDATE d.t SET v = v + 1 WHERE id % 200 < 20")?;
    sql::write_dirty_pages(&server)?;
    let dropped = sql::summary_figure(&server, "/bypass_dropped")?;
    let left = sql::figure(&server, "pages_cached")?;
    note(format!("{dropped} of {cached} pages dropped, {left} left"));
    ensure!(dropped > 100 && left < kept - 100, "{dropped}, {left}");
    let versions = u64::from(ROWS / 10);
    ensure!(read_versions(&server, versions)? == (0, 0));
    nothing_differs(&server)?;

    set(&server, "bypass", "OFF")?;
    sql::expect_state(&server, "active")?;
    let (hits, misses) = read_versions(&server, versions)?;
    ensure!(
        hits > 500,
        "{hits} hits and {misses} misses after the bypass"
    );
    ensure!(read_versions(&server, versions)?.0 > hits);
    nothing_differs(&server)?;
    ensure!(sql::figure(&server, "failed_proofs")? == 0);
    log_says(place, "bypass begins")?;
    log_says(place, "bpe_bypass was set to OFF")?;
    server.stop()?;
    verification::innochecksum(&place.installation, &place.data())?;
    Ok(())
}

/// Writes all pages in bypass. Returns the percentage of cached pages that remain, and the misses afterwards.
fn left_after(server: &Server, bypass: &str, versions: u64) -> anyhow::Result<(u64, u64)> {
    read_versions(server, versions - u64::from(ROWS))?;
    let before = sql::figure(server, "pages_cached")?;
    set(server, "bypass", bypass)?;
    server.sql("UPDATE d.t SET v = v + 1")?;
    sql::write_dirty_pages(server)?;
    ensure!(read_versions(server, versions)? == (0, 0));
    let left = sql::figure(server, "pages_cached")? * 100 / before.max(1);
    set(server, "bypass", "OFF")?;
    let (hits, misses) = read_versions(server, versions)?;
    nothing_differs(server)?;
    note(format!(
        "after {bypass}: {left} % of {before} pages left, {hits} hits, {misses} misses"
    ));
    Ok((left, misses))
}

fn refill_keeps_what_is_written(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    warm(&server)?;
    let rows = u64::from(ROWS);
    let refilled = left_after(&server, "REFILL", rows)?;
    let dropped = left_after(&server, "ON", 2 * rows)?;
    // A busy disk admits fewer pages.
    ensure!(
        refilled.0 > 60 && dropped.0 < 60,
        "{refilled:?}, {dropped:?}"
    );
    ensure!(refilled.1 < dropped.1, "{refilled:?}, {dropped:?}");
    server.stop()?;
    Ok(())
}

fn ends_by_itself(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    set(&server, "bypass_timeout", "2")?;
    let mut last = Instant::now();
    for value in ["ON", "ON", "REFILL"] {
        std::thread::sleep(Duration::from_millis(700));
        last = Instant::now();
        set(&server, "bypass", value)?;
    }
    sql::wait_until("bypass ends", Duration::from_secs(30), || {
        let now = server.value("SELECT @@GLOBAL.bpe_bypass")?;
        Ok(now.as_deref() == Some("OFF"))
    })?;
    let lasted = last.elapsed();
    ensure!(lasted >= Duration::from_secs(2), "after {lasted:?}");
    sql::expect_state(&server, "active")?;
    ensure!(sql::status(&server, "bypass")? == "off");
    expect(&server, "bypass_timeout", "2")?;
    log_says(place, "(bpe_bypass_timeout)")?;
    set(&server, "bypass_timeout", "0")?;
    set(&server, "bypass", "ON")?;
    ensure!(sql::report(&server, "summary")?["bypass_seconds_left"].is_null());
    sql::expect_state(&server, "bypass")?;
    server.stop()?;
    Ok(())
}

fn set_in_the_configuration(place: &Place) -> Outcome {
    let options = place.early(CACHE)?.option("--bpe-bypass=REFILL");
    let options = options.option("--bpe-bypass-timeout=3600");
    let server = place.start(options)?;
    sql::expect_state(&server, "bypass")?;
    expect(&server, "bypass", "REFILL")?;
    let left = sql::summary_figure(&server, "/bypass_seconds_left")?;
    ensure!((3000..=3600).contains(&left), "{left} s left");
    sql::fill(&mut server.connect()?, "d.t", ROWS, 1000, "")?;
    sql::write_dirty_pages(&server)?;
    ensure!(read(&server)? == (0, 0), "reads were looked up");
    set(&server, "bypass", "OFF")?;
    let (hits, _) = read(&server)?;
    ensure!(hits > 500, "only {hits} hits");
    server.stop()?;
    Ok(())
}

fn off_and_on_while_bypassed(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    set(&server, "bypass", "ON")?;
    sql::expect_state(&server, "disabled")?;
    ensure!(sql::status(&server, "bypass")? == "on");
    set(&server, "enabled", "ON")?;
    sql::expect_state(&server, "bypass")?;
    set(&server, "bypass", "OFF")?;
    sql::expect_state(&server, "active")?;
    warm(&server)?;
    set(&server, "bypass", "ON")?;
    set(&server, "enabled", "OFF")?;
    sql::expect_state(&server, "disabled")?;
    ensure!(ask(&mut server.connect()?, "summary")?["hook_mode"] == 0);
    expect(&server, "bypass", "ON")?;
    set(&server, "enabled", "ON")?;
    sql::expect_state(&server, "bypass")?;
    ensure!(read(&server)? == (0, 0));
    ensure!(
        sql::figure(&server, "pages_cached")? == 0,
        "it begins empty"
    );
    // A rebuild.
    set(&server, "instances", "3")?;
    sql::wait_until("it is rebuilt", Duration::from_secs(30), || {
        Ok(sql::summary_figure(&server, "/instances")? == 3)
    })?;
    sql::expect_state(&server, "bypass")?;
    set(&server, "bypass", "OFF")?;
    read(&server)?;
    ensure!(read(&server)?.0 > 500);
    nothing_differs(&server)?;
    server.stop()?;
    Ok(())
}

fn recorded_while_bypassed(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    warm(&server)?;
    set(&server, "bypass", "ON")?;
    let mut recording = Recording::start(&server)?;
    recording.during(|| {
        ensure!(read(&server)? == (0, 0), "reads were looked up");
        set(&server, "bypass", "OFF")?;
        ensure!(read(&server)?.0 > 500);
        set(&server, "bypass", "ON")?;
        server.sql("UPDATE d.t SET v = v + 1 WHERE id % 200 < 20")?;
        sql::write_dirty_pages(&server)
    })?;
    recording.stop()?;
    note(format!(
        "{} reads and {} writes recorded",
        recording.reads(),
        recording.writes()
    ));
    ensure!(recording.reads() > 2000 && recording.writes() > 100);
    sql::expect_state(&server, "bypass")?;
    set(&server, "bypass", "OFF")?;
    ensure!(read_versions(&server, u64::from(ROWS / 10))?.0 > 500);
    nothing_differs(&server)?;
    server.stop()?;
    Ok(())
}

fn killed_while_bypassed(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    warm(&server)?;
    set(&server, "bypass", "ON")?;
    server.sql("UPDATE d.t SET v = v + 1 WHERE id % 200 < 20")?;
    server.kill();
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    sql::expect_state(&server, "active")?;
    expect(&server, "bypass", "OFF")?;
    let versions = u64::from(ROWS / 10);
    read_versions(&server, versions)?;
    ensure!(read_versions(&server, versions)?.0 > 500);
    nothing_differs(&server)?;
    server.stop()?;
    Ok(())
}

fn bad_values(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    set(&server, "bypass", "ON")?;
    for statement in [
        "SET GLOBAL bpe_bypass = 'sometimes'",
        "SET GLOBAL bpe_bypass = 3",
        "SET GLOBAL bpe_bypass = ''",
        "SET GLOBAL bpe_bypass = NULL",
        "SET SESSION bpe_bypass = OFF",
        "SET GLOBAL bpe_bypass_timeout = 'soon'",
        "SET GLOBAL bpe_bypass_timeout = 1.5",
    ] {
        sql::refusal(&server, statement)?;
        expect(&server, "bypass", "ON")?;
        expect(&server, "bypass_timeout", "0")?;
    }
    for (given, taken) in [
        ("100000", "86400"),
        ("-1", "0"),
        ("60", "60"),
        ("DEFAULT", "0"),
    ] {
        let _ = sql::warnings(&server, &format!("SET GLOBAL bpe_bypass_timeout = {given}"))?;
        expect(&server, "bypass_timeout", taken)?;
    }
    for (given, taken) in [
        ("2", "REFILL"),
        ("'on'", "ON"),
        ("refill", "REFILL"),
        ("DEFAULT", "OFF"),
    ] {
        set(&server, "bypass", given)?;
        expect(&server, "bypass", taken)?;
    }
    sql::expect_state(&server, "active")?;
    server.stop()?;
    Ok(())
}

/// Reads timed so far: serving and in bypass, for the control group and for all others.
fn timed(server: &Server) -> anyhow::Result<[u64; 4]> {
    let latency = ask(&mut server.connect()?, "latency")?;
    let of = |mode: &str, group: &str| {
        let count = latency[mode][group]["count"].as_u64();
        count.with_context(|| format!("{mode} {group}: {latency}"))
    };
    Ok([
        of("serving", "control")?,
        of("serving", "others")?,
        of("bypass", "control")?,
        of("bypass", "others")?,
    ])
}

fn control_group(place: &Place) -> Outcome {
    // Extents of 256 KiB, so that some extents of a small table are in the group.
    let place = Place::initialised(place.installation.flavour, &["--innodb-page-size=4096"])?;
    let options = place.early(CACHE)?;
    let server = place.start(options.option("--innodb-page-size=4096"))?;
    server.sql(CREATE_FUNCTION)?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, 1600, "")?;
    sql::write_dirty_pages(&server)?;
    sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
    sql::wait_for_smaller_pages(&server)?;
    read(&server)?;
    read(&server)?;
    ensure!(timed(&server)? == [0; 4], "there is no control group yet");
    let scan = || server.sql("SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)");

    set(&server, "bypass_timeout", "3600")?;
    read(&server)?;
    ensure!(
        timed(&server)? == [0; 4],
        "a timeout alone compares nothing"
    );
    set(&server, "bypass", "OFF")?;
    let data_reads = sql::figure(&server, "data_reads")?;
    let (hits, _) = read(&server)?;
    scan()?;
    let serving = timed(&server)?;
    let read_there = sql::figure(&server, "data_reads")? - data_reads;
    ensure!(hits > 1000 && serving[1] >= hits, "{hits}, {serving:?}");
    let one_in = (serving[0] + serving[1]) / serving[0].max(1);
    ensure!((16..=256).contains(&one_in), "{serving:?}");
    ensure!(read_there >= serving[0], "{read_there}, {serving:?}");

    set(&server, "bypass", "ON")?;
    let data_reads = sql::figure(&server, "data_reads")?;
    ensure!(read(&server)? == (0, 0), "reads were looked up");
    scan()?;
    let bypassed = timed(&server)?;
    let read_there = sql::figure(&server, "data_reads")? - data_reads;
    note(format!("serving {serving:?}, bypassed {bypassed:?}"));
    ensure!(bypassed[2] > 0 && bypassed[3] > 1000, "{bypassed:?}");
    ensure!(
        read_there.abs_diff(bypassed[2] + bypassed[3]) <= 10,
        "{read_there} data reads, {bypassed:?}"
    );
    nothing_differs(&server)?;
    set(&server, "bypass", "OFF")?;
    set(&server, "bypass_timeout", "0")?;
    let before = timed(&server)?;
    let (with_all, _) = read(&server)?;
    ensure!(
        with_all >= hits,
        "{with_all} hits without a group, {hits} with"
    );
    ensure!(timed(&server)? == before);
    nothing_differs(&server)?;
    server.stop()?;
    Ok(())
}

/// The ledger's clients read, write and check while bypass is switched, and cached pages are compared with the files.
fn switched_at_random(place: &Place) -> Outcome {
    let server = place.start(place.early(64 << 20)?)?;
    server.sql(CREATE_FUNCTION)?;
    let ledger = Ledger::create(&server, 2, 5000, 2500, 6)?.paced();
    ledger.run(&server, Duration::from_secs(2))?;
    let mut random = fastrand::Rng::new();
    let (seed, mut switched, mut sums) = (random.get_seed(), 0, Compared::default());
    let before = sql::figure(&server, "hits")?;
    let over = AtomicBool::new(false);
    ledger.run_while(&server, Duration::from_secs(12), || {
        std::thread::scope(|scope| {
            let comparing = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    compare_cached(&server, &mut sums)?;
                }
                anyhow::Ok(())
            });
            let until = Instant::now() + Duration::from_secs(9);
            let mut switch = || -> Outcome {
                while Instant::now() < until {
                    set(
                        &server,
                        "bypass",
                        ["OFF", "ON", "OFF", "REFILL"][random.usize(..4)],
                    )?;
                    set(&server, "bypass_timeout", ["3600", "0"][random.usize(..2)])?;
                    switched += 1;
                    std::thread::sleep(Duration::from_millis(random.u64(..250)));
                }
                Ok(())
            };
            let outcome = switch();
            over.store(true, Ordering::Relaxed);
            comparing
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("panicked")))?;
            outcome
        })
    })?;
    note(format!("switched {switched} times, seed {seed}; {sums:?}"));
    ensure!(sums.wrong == 0 && sums.compared > 500, "{sums:?}");
    set(&server, "bypass", "OFF")?;
    ensure!(sql::figure(&server, "hits")? > before);
    ensure!(sql::figure(&server, "failed_proofs")? == 0);
    ensure!(sql::figure(&server, "audit_suspicions")? == 0);
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}
