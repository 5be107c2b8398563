//! What was switched off is kept for `bpe_keep` seconds: afterwards it is used again, and compared before it is served.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::taken::Reads;
use integration_tests::verification::Compared;
use integration_tests::{
    Options, Outcome, Place, Server, Suite, mounts, note, sql, trace, verification,
};

/// Room for all data.
const CACHE: u64 = 64 << 20;
/// Rows of a table besides the ledger's, and their bytes.
const ROWS: u32 = 600;
const WIDTH: u32 = 1300;
/// A disk that did not answer in time is left alone for a minute at most. A busy machine takes its time besides.
const PATIENCE: Duration = Duration::from_secs(600);

fn main() -> ExitCode {
    Suite::new("keeping")
        .each("changed_while_off", changed_while_off)
        .each("a_server_that_believes_it_is_noticed", believed)
        .each("killed_afterwards", killed_afterwards)
        .each("again_and_again_under_load", again_and_again)
        .each("until_its_time_is_over", until_its_time_is_over)
        .each("other_settings", other_settings)
        .each("while_its_disk_does_not_answer", disk_does_not_answer)
        .run()
}

fn options(place: &Place) -> anyhow::Result<Options> {
    Ok(kept(place.early(CACHE)?))
}

fn kept(options: Options) -> Options {
    options
        .option("--bpe-admission=all")
        .option("--bpe-keep=300")
}

fn filled(server: &Server) -> anyhow::Result<Ledger> {
    let mut connection = server.connect()?;
    for table in ["d.written", "d.rest"] {
        sql::fill(&mut connection, table, ROWS, WIDTH, "")?;
    }
    let ledger = Ledger::small(server)?;
    for table in ["d.written", "d.rest"] {
        sql::read_all(&mut connection, table, ROWS)?;
    }
    Ok(ledger)
}

/// Every row of the table has this version.
fn check(server: &Server, table: &str, version: u64) -> Outcome {
    let rows = u64::from(ROWS);
    let sums = sql::read_all(&mut server.connect()?, table, ROWS)?;
    ensure!(
        sums == (rows * (rows + 1) / 2, rows * version),
        "{table}: sums {sums:?}, expected version {version}"
    );
    Ok(())
}

/// The same, and how its pages were read since the file is known.
fn read(server: &Server, table: &str, version: u64) -> anyhow::Result<Reads> {
    check(server, table, version)?;
    Reads::of(server, table)
}

/// Waits until the cache disk is read from. One that did not answer in time is not, for a while.
fn expect_answers(server: &Server) -> Outcome {
    sql::wait_until("the cache disk answers", PATIENCE, || {
        Ok(sql::figure(server, "devices_failed")? == 0)
    })
}

/// Reads until pages of this table are served: a busy disk takes in less than it is offered.
fn expect_cached(
    server: &Server,
    ledger: &Ledger,
    table: &str,
    version: u64,
) -> anyhow::Result<Reads> {
    let first = Reads::of(server, table)?;
    let mut now = first;
    sql::wait_until("pages of the table are served", PATIENCE, || {
        evict(server, ledger)?;
        now = read(server, table, version)?;
        Ok(now.hits > first.hits + 20)
    })?;
    Ok(now)
}

/// What is cached is that of the data files.
fn compare(server: &Server) -> Outcome {
    server.sql(trace::CREATE_FUNCTION)?;
    let mut sums = Compared::default();
    sql::wait_until("cached pages are compared", PATIENCE, || {
        verification::compare_cached(server, &mut sums)?;
        Ok(sums.compared > 0 || sums.wrong > 0)
    })?;
    ensure!(sums.compared > 0 && sums.wrong == 0, "{sums:?}");
    Ok(())
}

/// Other pages than these are in the pool then.
fn evict(server: &Server, ledger: &Ledger) -> Outcome {
    ledger.verify(server)?;
    check(server, "d.other", 0)
}

/// Changes what is cached while the extension is off. The rows as they are then, if they are served so.
fn change_while_off(server: &Server) -> anyhow::Result<Ledger> {
    let ledger = off_and_on(server)?;
    expect_answers(server)?;
    check(server, "d.written", 1)?;
    ledger.verify(server)?;
    Ok(ledger)
}

fn off_and_on(server: &Server) -> anyhow::Result<Ledger> {
    sql::fill(&mut server.connect()?, "d.other", ROWS, WIDTH, "")?;
    let ledger = filled(server)?;
    for table in ["d.written", "d.rest"] {
        expect_cached(server, &ledger, table, 0)?;
    }
    evict(server, &ledger)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::expect_state(server, "disabled")?;
    server.sql("UPDATE d.written SET v = v + 1")?;
    ledger.run(server, Duration::from_secs(2))?;
    server.sql("FLUSH TABLES d.written FOR EXPORT; UNLOCK TABLES")?;
    evict(server, &ledger)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(server, "active")?;
    Ok(ledger)
}

/// The next process is told that nothing was compared yet.
fn killed_afterwards(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let ledger = off_and_on(&server)?;
    server.kill();
    let server = place.start(options(place)?)?;
    check(&server, "d.written", 1)?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

fn changed_while_off(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let ledger = change_while_off(&server)?;
    let first = read(&server, "d.rest", 0)?;
    let second = expect_cached(&server, &ledger, "d.rest", 0)?;
    let (verified, doubtful) = (
        sql::figure(&server, "pages_verified")?,
        sql::figure(&server, "pages_doubtful")?,
    );
    note(format!(
        "{first:?}, then {second:?}; {verified} pages verified, {doubtful} doubtful"
    ));
    ensure!(first.are_cold() && verified > 20, "{first:?}, {verified}");
    ensure!(second.hits > first.hits + 20, "{first:?}, {second:?}");
    compare(&server)?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// A library that believes what was kept shows rows of before.
fn believed(place: &Place) -> Outcome {
    // What the cache disk does not answer in time would be read from the data files.
    let options = kept(place.canary(CACHE, "inherit-blindly")?).option("--bpe-read-timeout=0");
    let server = place.start(options)?;
    let error = change_while_off(&server)
        .err()
        .context("pages of before were believed, and nothing was wrong")?;
    note(format!("noticed: {:#}", error.root_cause()));
    ensure!(
        format!("{error:#}").contains("expected version 1"),
        "{error:#}"
    );
    server.kill();
    Ok(())
}

fn again_and_again(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let ledger = filled(&server)?;
    let mut verified = 0;
    let counts = ledger.run_beside(&server, || {
        for pause in [10, 50, 200, 500, 1000].into_iter().cycle().take(20) {
            server.sql("SET GLOBAL bpe_enabled = OFF")?;
            std::thread::sleep(Duration::from_millis(pause));
            server.sql("SET GLOBAL bpe_enabled = ON")?;
            std::thread::sleep(Duration::from_millis(1100 - pause));
            // The ledger's files may all have been written, and so be new. Nobody writes this one.
            check(&server, "d.rest", 0)?;
            verified = verified.max(sql::figure(&server, "pages_verified")?);
        }
        Ok(())
    })?;
    note(format!("{counts}; {verified} pages verified"));
    ensure!(verified > 0);
    sql::expect_state(&server, "active")?;
    ledger.verify(&server)?;
    compare(&server)?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

fn expect_gone(place: &Place, what: &str) -> Outcome {
    sql::wait_until(what, PATIENCE, || Ok(place.cache_files().is_empty()))
}

/// It takes room and memory as long as it is kept, which is shown, and no longer.
fn until_its_time_is_over(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let ledger = filled(&server)?;
    let memory = || sql::figure(&server, "memory_bytes");
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    std::thread::sleep(Duration::from_secs(2));
    ensure!(place.cache_files().len() == 1);
    ensure!(memory()? > 0);
    server.sql("SET GLOBAL bpe_keep = 1")?;
    expect_gone(place, "the time is over")?;
    ensure!(memory()? == 0, "{} bytes", memory()?);
    // Another engine is built then.
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    ledger.run_until_above(&server, Duration::from_secs(1), "hits", 0)?;
    server.sql("SET GLOBAL bpe_keep = 0")?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    expect_gone(place, "it is not kept")?;
    server.sql("SET GLOBAL bpe_keep = 300")?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql(place.uninstall_statement())?;
    expect_gone(place, "it is uninstalled")?;
    server.sql(place.install_statement())?;
    // A server that stops while it is off leaves nothing either.
    sql::expect_state(&server, "active")?;
    ledger.verify(&server)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.stop()?;
    place.expect_nothing_left()
}

/// What was kept is laid out in another way: it goes, and what is wanted comes.
fn other_settings(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let ledger = filled(&server)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql(&format!("SET GLOBAL bpe_size = {}", 2 * CACHE))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let capacity = sql::figure(&server, "capacity_bytes")?;
    ensure!(capacity > CACHE, "{capacity} bytes");
    ensure!(place.cache_files().len() == 1, "{:?}", place.cache_files());
    ledger.run_until_above(&server, Duration::from_secs(1), "hits", 0)?;
    ensure!(sql::figure(&server, "pages_verified")? == 0);
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}

/// A disk that does not answer in time has not failed: what it holds is kept, and served once it answers.
fn disk_does_not_answer(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "late")?;
    let server = place.start(place.installable()?)?;
    place.install(&server, CACHE)?;
    let path = volume.mountpoint().display();
    for setting in [
        &format!("path = '{path}'"),
        "admission = 'all'",
        "keep = 300",
        "enabled = ON",
    ] {
        server.sql(&format!("SET GLOBAL bpe_{setting}"))?;
    }
    let ledger = filled(&server)?;
    ledger.run_until_above(&server, Duration::from_secs(1), "hits", 0)?;
    server.sql("SET GLOBAL bpe_read_timeout = 100")?;
    volume.stall(Duration::from_secs(20));
    ledger.run_until_above(&server, Duration::ZERO, "reads_given_up", 0)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let cached = sql::figure(&server, "pages_cached")?;
    note(format!(
        "{cached} pages cached; '{}'",
        sql::status(&server, "state_reason")?
    ));
    ensure!(cached > 0, "nothing was kept");
    // None is given up any more.
    server.sql("SET GLOBAL bpe_read_timeout = 0")?;
    expect_answers(&server)?;
    ledger.run_until_above(&server, Duration::ZERO, "pages_verified", 0)?;
    compare(&server)?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    volume.unmount()?;
    Ok(())
}
