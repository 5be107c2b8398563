//! Persisted pages must not be lost without need, nor without a log message.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::taken::{self, Taken};
use integration_tests::{Options, Outcome, Place, Server, Suite, mounts, place, sql};

/// Large enough for all data.
const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warm_gaps")
        .in_turn("not_switched_on_in_between", not_switched_on_in_between)
        .each("uninstalled_and_installed", uninstalled_and_installed)
        .each("after_a_disk_that_hung", after_a_disk_that_hung)
        .in_turn("another_size_is_said", another_size_is_said)
        .in_turn(
            "pages_of_a_killed_server_count",
            pages_of_a_killed_server_count,
        )
}

fn options(place: &Place) -> anyhow::Result<Options> {
    place.early(CACHE)
}

fn filled(place: &Place) -> anyhow::Result<(Server, Ledger)> {
    let server = place.start(options(place)?)?;
    let ledger = Ledger::small(&server)?;
    ledger.verify(&server)?;
    taken::expect_written(&server)?;
    Ok((server, ledger))
}

/// A run with `bpe_enabled=OFF` in the configuration keeps the persisted state.
fn not_switched_on_in_between(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    server.stop()?;
    let server = place.start(place.early_disabled(CACHE)?)?;
    sql::expect_state(&server, "disabled")?;
    server.stop()?;
    place.expect_left()?;
    let server = place.start(options(place)?)?;
    ledger.verify(&server)?;
    Taken::by(&server)?.expect_warm()?;
    server.stop()?;
    Ok(())
}

/// After uninstall and reinstall, the plugin persists its cache as after the first installation.
fn uninstalled_and_installed(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    for _ in 0..2 {
        place.install(&server, CACHE)?;
        server.sql("SET GLOBAL bpe_enabled = ON")?;
        place.expect_left()?;
        server.sql(place.uninstall_statement())?;
        sql::wait_until("nothing is left", Duration::from_secs(300), || {
            Ok(place.expect_nothing_left().is_ok())
        })?;
    }
    server.stop()?;
    Ok(())
}

/// A cache disk that hung at the start, and was used later, is recovered by the next server.
fn after_a_disk_that_hung(place: &Place) -> Outcome {
    let disk = mounts::disk_with_faults(place, "fast")?;
    let start = || -> anyhow::Result<Server> {
        let options = place::extended(place.options(), place.library()?, disk.mountpoint(), CACHE);
        place.start(options)
    };
    let server = start()?;
    let ledger = Ledger::small(&server)?;
    ledger.verify(&server)?;
    server.stop()?;
    disk.stall(Duration::from_secs(600));
    let server = start()?;
    ledger.run(&server, Duration::from_secs(1))?;
    disk.resume();
    sql::wait_until("it is used", Duration::from_secs(300), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    ledger.run_until_above(&server, Duration::from_secs(1), "pages_cached", 500)?;
    taken::expect_written(&server)?;
    server.stop()?;
    let server = start()?;
    ledger.verify(&server)?;
    let taken = Taken::by(&server)?;
    taken.expect_warm()?;
    ensure!(taken.files > 3, "{taken:?}");
    server.stop()?;
    disk.unmount()?;
    Ok(())
}

/// A cache that starts empty because of a changed setting logs it.
fn another_size_is_said(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    server.stop()?;
    let before = std::fs::metadata(place.root().join("run/error.log"))?.len();
    let server = place.start(place.early(CACHE * 2)?)?;
    ledger.verify(&server)?;
    Taken::by(&server)?.expect_cold()?;
    let log = std::fs::read(server.log())?;
    let log = String::from_utf8_lossy(&log[before as usize..]).into_owned();
    let said = |line: &str| line.contains("bpe") && line.contains("bpe_size");
    ensure!(log.lines().any(said), "nothing is said of it: {log}");
    server.stop()?;
    Ok(())
}

/// `Bpe_pages_trusted` counts the pages of trusted files, also if the previous server was killed early.
fn pages_of_a_killed_server_count(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    server.kill();
    let server = place.start(options(place)?)?;
    ledger.verify(&server)?;
    let taken = Taken::by(&server)?;
    ensure!(
        taken.files > 3 && taken.trusted > 300 && taken.trusted <= taken.pages,
        "{taken:?}"
    );
    server.stop()?;
    Ok(())
}
