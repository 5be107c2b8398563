//! Cache disks that return other data than was written. No page in the cache file carries a checksum: the proof is in memory,
//! so that even an intact older version of the same page is detected.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cached_pages::{self, Damage};
use integration_tests::ledger::Ledger;
use integration_tests::{Options, Outcome, Place, Server, Suite, note, sql, stuck, verification};

const CACHE: u64 = 24 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("damage")
        .in_turn("files_put_in_place_of_it", files_put_in_place_of_it)
        .in_turn("every_damage_is_found_out", every_damage_is_found_out)
        .in_turn(
            "without_proof_every_damage_is_noticed",
            without_proof_every_damage_is_noticed,
        )
}

fn options(place: &Place, library: &Path) -> Options {
    place.early_with(library, CACHE)
}

fn cache_file(place: &Place) -> anyhow::Result<PathBuf> {
    place.cache_files().pop().context("no cache file")
}

/// Damages pages in the cache file several times under load; returns the number of pages.
fn damage_under_load(
    place: &Place,
    server: &Server,
    ledger: &Ledger,
    how: Damage,
) -> anyhow::Result<usize> {
    let file = cache_file(place)?;
    let before = cached_pages::scan(&file)?;
    ensure!(before.len() > 100, "only {} pages found", before.len());
    ledger.run(server, Duration::from_millis(700))?;
    let mut damaged = 0;
    ledger.run_while(server, Duration::from_millis(2500), || {
        for _ in 0..3 {
            damaged += cached_pages::damage(&file, &before, how)?;
            std::thread::sleep(Duration::from_millis(600));
        }
        Ok(())
    })?;
    Ok(damaged)
}

fn every_damage_is_found_out(place: &Place) -> Outcome {
    let server = place.start(options(place, place.library()?))?;
    let ledger = Ledger::small(&server)?;
    ledger.run_until_above(&server, Duration::from_secs(1), "pages_cached", 300)?;
    for how in Damage::ALL {
        let before = sql::figure(&server, "failed_proofs")?;
        let damaged = damage_under_load(place, &server, &ledger, how)?;
        ensure!(damaged > 0, "{how:?}: no page was damaged");
        ledger
            .run_until_above(&server, Duration::ZERO, "failed_proofs", before)
            .with_context(|| format!("{how:?}: {damaged} pages damaged, none found out"))?;
        let found = sql::figure(&server, "failed_proofs")? - before;
        let reason = sql::status(&server, "state_reason")?;
        note(format!(
            "{how:?}: {damaged} pages damaged, {found} found out; '{reason}'"
        ));
        ledger.verify(&server)?;
        // A disk that returns wrong data is suspended after 32 errors and the reads in flight.
        ensure!(
            found <= 64,
            "{how:?}: {found} errors until it was left alone"
        );
        if how == Damage::ALL[0] {
            // The disk is used again automatically.
            sql::wait_until("pages are cached again", Duration::from_secs(60), || {
                ledger.run(&server, Duration::from_millis(500))?;
                Ok(sql::figure(&server, "pages_cached")? > 300
                    && sql::status(&server, "state_reason")?.is_empty())
            })?;
        } else {
            server.sql("SET GLOBAL bpe_enabled = OFF")?;
            server.sql("SET GLOBAL bpe_enabled = ON")?;
            sql::expect_state(&server, "active")?;
            ledger.run(&server, Duration::from_millis(1000))?;
        }
    }
    let clean = verification::stop_and_verify(place, server, &ledger, place.options())?;
    note(format!(
        "clean without the plugin: {} files, {} tables",
        clean.files, clean.tables
    ));
    Ok(())
}

/// The same with a canary that trusts the disk's answers: the tests detect each kind of damage.
fn without_proof_every_damage_is_noticed(place: &Place) -> Outcome {
    for how in Damage::ALL {
        let place = Place::new(place.installation.flavour)?;
        let options = place.canary(CACHE, "checks")?;
        let server = place.start(options)?;
        let ledger = Ledger::small(&server)?;
        ledger.run_until_above(&server, Duration::from_secs(1), "pages_cached", 300)?;
        let outcome = (0..4).try_for_each(|_| {
            damage_under_load(&place, &server, &ledger, how)?;
            ledger.verify(&server)?;
            verification::check_tables(&server).map(|_| ())
        });
        server.kill();
        let error =
            stuck::noticed(outcome, "it was not noticed").with_context(|| format!("{how:?}"))?;
        let text = format!("{error:#}");
        note(format!(
            "{how:?}, noticed: {}",
            text.chars().take(150).collect::<String>()
        ));
    }
    Ok(())
}

/// The file of an earlier run overwrites the live cache file, and another file takes over its name.
fn files_put_in_place_of_it(place: &Place) -> Outcome {
    let library = place.library()?;
    let server = place.start(options(place, library))?;
    let ledger = Ledger::small(&server)?;
    ledger.run_and_kill(server, Duration::from_secs(2))?;
    let earlier = place.root().join("earlier");
    std::fs::copy(cache_file(place)?, &earlier)?;

    let server = place.start(options(place, library))?;
    sql::expect_state(&server, "active")?;
    ledger.settle(&server)?;
    ledger.run(&server, Duration::from_secs(2))?;
    let live = cache_file(place)?;
    ledger.run_while(&server, Duration::from_secs(3), || {
        // Overwrites the bytes, as a restore of the disk's image would.
        let status = std::process::Command::new("dd")
            .arg(format!("if={}", earlier.display()))
            .arg(format!("of={}", live.display()))
            .args(["bs=1M", "conv=notrunc", "status=none"])
            .status()?;
        ensure!(status.success(), "dd ended with {status}");
        Ok(())
    })?;
    let proofs = sql::figure(&server, "failed_proofs")?;
    ensure!(proofs > 0, "the file of an earlier run was not found out");
    ledger.verify(&server)?;
    ledger.run_while(&server, Duration::from_secs(3), || {
        // Replaces the name; the server has the other file open.
        std::fs::rename(&earlier, &live)?;
        Ok(())
    })?;
    ledger.verify(&server)?;
    note(format!(
        "{proofs} failed proofs; after another file was put under its name: '{}'",
        sql::status(&server, "state_reason")?
    ));
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    ledger.run_until_above(&server, Duration::from_secs(1), "hits", 0)?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}
