//! The same library file in every available server series, old and new: loaded both ways, switched under load, killed, compared
//! with the data files, and disabled after a failure.
//!
//! `BPE_LIBRARY` names the file, for example the one of a release.

use std::path::Path;
use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::verification::{Compared, check_tables, compare_cached};
use integration_tests::{
    Flavour, Options, Outcome, Place, Server, Suite, library, note, skip_allowed, sql, trace,
};

const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    let mut suite = Suite::new("series");
    for flavour in Flavour::ALL {
        suite = suite.with(flavour, "serves", serves).with(
            flavour,
            "a_panic_does_not_reach_the_server",
            panics,
        );
    }
    suite
}

/// Options that make all page reads and writes of this server visible.
fn visible(place: &Place, options: Options) -> Options {
    match place.installation.flavour {
        // It submits asynchronous requests by its own copy of libaio.
        Flavour::MariaDb114Upstream => options.option("--innodb-use-native-aio=OFF"),
        _ => options,
    }
}

/// A library built on a newer Debian cannot be loaded on an older one; a release can.
fn fits(place: &Place, library: &Path) -> Outcome {
    /// Minor version of Debian 11's glibc 2.
    const BULLSEYE: u32 = 31;
    if place.installation.flavour != Flavour::MariaDb105 {
        return Ok(());
    }
    let bytes = std::fs::read(library)?;
    let needed = String::from_utf8_lossy(&bytes)
        .split("GLIBC_2.")
        .skip(1)
        .filter_map(|rest| {
            let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
            rest[..digits].parse::<u32>().ok()
        })
        .max();
    match needed {
        Some(needed) if needed > BULLSEYE => Err(skip_allowed(format!(
            "{} needs glibc 2.{needed}, and Debian 11 has 2.{BULLSEYE}; `make release` builds one that needs 2.28",
            library.display()
        ))),
        _ => Ok(()),
    }
}

fn compared(server: &Server) -> anyhow::Result<Compared> {
    let mut sums = Compared::default();
    compare_cached(server, &mut sums)?;
    ensure!(sums.wrong == 0, "{sums:?}");
    Ok(sums)
}

fn serves(place: &Place) -> Outcome {
    fits(place, place.library()?)?;
    let server = place.start(visible(place, place.installable()?))?;
    place.install(&server, CACHE)?;
    let ledger = Ledger::create(&server, 2, 4000, 2500, 4)?;
    ledger.run(&server, Duration::from_secs(1))?;
    for _ in 0..3 {
        server.sql("SET GLOBAL bpe_enabled = ON")?;
        sql::expect_state(&server, "active")?;
        ledger.run_while(&server, Duration::from_millis(1500), || {
            std::thread::sleep(Duration::from_millis(700));
            server.sql("SET GLOBAL bpe_enabled = OFF")?;
            Ok(server.sql("SET GLOBAL bpe_enabled = ON")?)
        })?;
    }
    ledger.verify(&server)?;
    ledger.verify(&server)?;
    server.sql(trace::CREATE_FUNCTION)?;
    let by_sql = (compared(&server)?, sql::figure(&server, "hits")?);
    ensure!(by_sql.1 > 0 && by_sql.0.compared > 0, "{by_sql:?}");
    server.sql(place.uninstall_statement())?;
    server.stop()?;

    let server = place.start(visible(place, place.early(CACHE)?))?;
    sql::expect_state(&server, "active")?;
    ledger.run_and_kill(server, Duration::from_millis(1500))?;
    let server = place.start(visible(place, place.early(CACHE)?))?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    ledger.verify(&server)?;
    let early = (compared(&server)?, sql::figure(&server, "hits")?);
    ensure!(early.1 > 0 && early.0.compared > 0, "{early:?}");
    ensure!(sql::figure(&server, "failed_proofs")? == 0);
    let tables = check_tables(&server)?;
    note(format!(
        "{}: by SQL {by_sql:?}, early and after a kill {early:?}, {tables} tables",
        place.installation.version
    ));
    server.stop()?;
    Ok(())
}

/// The first hook panics before the server's own call. The call is made, and the extension is disabled.
fn panics(place: &Place) -> Outcome {
    fits(place, &library::canary()?)?;
    let server = place.start(visible(place, place.canary(CACHE, "no-panic")?))?;
    let ledger = Ledger::create(&server, 1, 2000, 2500, 2)?;
    ledger.run(&server, Duration::from_secs(1))?;
    ledger.verify(&server)?;
    let state = sql::status(&server, "state")?;
    let reason = sql::status(&server, "state_reason")?;
    ensure!(state == "failed", "{state}: {reason}");
    ensure!(reason.contains("internal error"), "{reason}");
    server.stop()?;
    Ok(())
}
