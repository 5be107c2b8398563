//! Copies of the data: backups under load, exported tables, and replaced data directories. The data files are always complete,
//! so a reader that bypasses the plugin gets everything. After a copy replaces files, the copy is served and not the pages
//! cached of the former files.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::place::{ROOMY, copy_folder};
use integration_tests::{
    Options, Outcome, Place, Server, Suite, copies, note, replacement, sql, stuck, verification,
};

/// Larger than the data: cached pages stay cached.
const CACHE: u64 = 96 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("backup")
        .each("backup_under_load", backup_under_load)
        .in_turn(
            "a_cache_that_holds_back_writes_is_noticed",
            a_cache_that_holds_back_writes_is_noticed,
        )
        .in_turn("exported_copies_come_back", exported_copies_come_back)
        .in_turn(
            "a_cache_that_outlives_imports_is_noticed",
            a_cache_that_outlives_imports_is_noticed,
        )
        .in_turn("data_directory_replaced", data_directory_replaced)
        .in_turn(
            "a_cache_that_outlives_replacement_is_noticed",
            a_cache_that_outlives_replacement_is_noticed,
        )
}

/// Options of a server with a canary library for this rule.
fn wrong(place: &Place, rule: &str) -> anyhow::Result<Options> {
    let folder = place.root().join("kept");
    std::fs::create_dir_all(&folder)?;
    Ok(place
        .canary(CACHE, rule)?
        .option("--innodb-use-native-aio=OFF")
        .environment("BPE_CANARY_FOLDER", &folder.display().to_string()))
}

/// Takes a backup under load and restores it. An idle table is equal. Every other row is one that was committed during the
/// backup, and the sums are those of one moment.
fn backup_and_restore(place: &Place, options: Options) -> Outcome {
    let server = place.start(options)?;
    let ledger = Ledger::small(&server)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "rest.t", 4000, 1300, "")?;
    connection.query_drop("UPDATE rest.t SET v = v + 1, pad = REVERSE(pad) WHERE id % 3 = 0")?;
    let checksum = |server: &Server| -> anyhow::Result<Option<(String, Option<String>)>> {
        Ok(server
            .connect()?
            .query_first("CHECKSUM TABLE rest.t EXTENDED")?)
    };
    let expected = checksum(&server)?;
    // When the backup begins, the pages written here have left the pool: they are in the cache and in the data files.
    ledger.run(&server, Duration::from_millis(2500))?;
    let earliest = ledger.versions();
    let counts = ledger.run_while(&server, Duration::from_millis(3500), || {
        std::thread::sleep(Duration::from_millis(500));
        copies::of_running(place, &server, &place.data(), &place.root().join("copy"))
    })?;
    ensure!(sql::figure(&server, "hits")? > 0, "no hits");
    note(format!("beside the backup: {counts}"));

    let restored = place.start(place.options_of("copy", "run-copy").buffer_pool(ROOMY))?;
    ledger.verify_copy(&restored, &earliest)?;
    let found = checksum(&restored)?;
    ensure!(found == expected, "{found:?} instead of {expected:?}");
    verification::check_tables(&restored)?;
    restored.stop()?;
    verification::innochecksum(&place.installation, &place.root().join("copy"))?;
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}

fn backup_under_load(place: &Place) -> Outcome {
    backup_and_restore(place, place.early(CACHE)?)
}

/// The same with a canary that holds writes back in the cache.
fn a_cache_that_holds_back_writes_is_noticed(place: &Place) -> Outcome {
    expect_noticed(
        place,
        "the copy was right although pages were held back",
        |place| backup_and_restore(place, wrong(place, "write-back")?),
    )
}

/// The trial fails. A server with wrong pages may also loop instead of answering: then a try on another data directory decides.
fn expect_noticed(
    place: &Place,
    unnoticed: &'static str,
    trial: impl Fn(&Place) -> Outcome,
) -> Outcome {
    const MORE_TRIES: usize = 2;
    let mut noticed = stuck::noticed(trial(place), unnoticed);
    for _ in 0..MORE_TRIES {
        let Some(error) = noticed
            .as_ref()
            .err()
            .filter(|error| stuck::has_no_answer(error))
        else {
            break;
        };
        note(format!("tried again: {error:#}"));
        let place = Place::new(place.installation.flavour)?;
        noticed = stuck::noticed(trial(&place), unnoticed);
    }
    let text = format!("{:#}", noticed?);
    note(format!(
        "noticed: {}",
        text.chars().take(160).collect::<String>()
    ));
    Ok(())
}

const ROWS: u32 = 6000;
const WIDTH: u32 = 1300;

/// Copies of a table from several moments replace each other under load, older ones and newer ones.
fn exported_copies_come_back(place: &Place) -> Outcome {
    import_and_compare(place, place.early(CACHE)?)
}

/// A canary that trusts pages by file name serves the former contents after a copy replaces the file.
fn a_cache_that_outlives_imports_is_noticed(place: &Place) -> Outcome {
    expect_noticed(
        place,
        "pages of the tables before were believed, and nothing was wrong",
        |place| import_and_compare(place, wrong(place, "persist")?),
    )
}

fn import_and_compare(place: &Place, options: Options) -> Outcome {
    let server = place.start(options)?;
    let ledger = Ledger::create(&server, 1, 2000, 2000, 4)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, WIDTH, "")?;
    let folder = place.data().join("d");
    let aside = |time: u64| place.root().join(format!("aside-{time}"));
    ledger.run_while(&server, Duration::from_secs(8), || {
        for time in 0..3 {
            replacement::set_aside(&mut connection, &folder, &aside(time))?;
            connection.query_drop("UPDATE d.t SET v = v + 1, pad = REVERSE(pad)")?;
        }
        for time in [0, 2, 1, 2, 0] {
            // The cache holds pages of the previous copy, some of them changed since.
            sql::read_all(&mut connection, "d.t", ROWS)?;
            connection.query_drop("UPDATE d.t SET v = v + 100 WHERE id % 50 = 7")?;
            replacement::put_back(&mut connection, &folder, &aside(time))?;
            for _ in 0..2 {
                let (_, versions) = sql::read_all(&mut connection, "d.t", ROWS)?;
                ensure!(
                    versions == time * u64::from(ROWS),
                    "the copy of time {time} has versions that sum up to {versions}"
                );
            }
        }
        Ok(())
    })?;
    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == ROWS);
    ensure!(sql::figure(&server, "failed_proofs")? == 0, "failed proofs");
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// Makes the data directory equal to the copy. Files that exist in both keep their inodes.
fn replace_in_place(from: &Path, to: &Path) -> Outcome {
    for entry in std::fs::read_dir(to)? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?;
        if from.join(name).exists() {
            continue;
        }
        if path.is_dir() {
            std::fs::remove_dir_all(path)?;
        } else {
            std::fs::remove_file(path)?;
        }
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            std::fs::create_dir_all(&target)?;
            replace_in_place(&entry.path(), &target)?;
        } else if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

/// An older copy replaces a replica's data directory, once after a clean stop and once after a crash.
fn replace_and_compare(place: &Place, options: impl Fn() -> anyhow::Result<Options>) -> Outcome {
    let server = place.start(options()?)?;
    let ledger = Ledger::small(&server)?;
    ledger.run(&server, Duration::from_secs(1))?;
    server.stop()?;
    let copy = place.root().join("copy");
    // The copy must be complete, also under a canary library.
    copy_folder(&place.data(), &copy)?;
    let then = ledger.versions();
    for crash in [true, false] {
        let server = place.start(options()?)?;
        if crash {
            ledger.run_and_kill(server, Duration::from_secs(2))?;
        } else {
            ledger.run(&server, Duration::from_secs(2))?;
            server.stop()?;
        }
        replace_in_place(&copy, &place.data())?;
        ledger.put_back(&then);
        let server = place.start(options()?)?;
        sql::expect_state(&server, "active")?;
        ledger.verify(&server).with_context(|| {
            format!("replaced after a {}", if crash { "crash" } else { "stop" })
        })?;
        ledger.run(&server, Duration::from_secs(1))?;
        ledger.verify(&server)?;
        verification::check_tables(&server)?;
        server.stop()?;
        replace_in_place(&copy, &place.data())?;
        ledger.put_back(&then);
    }
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}

fn data_directory_replaced(place: &Place) -> Outcome {
    replace_and_compare(place, || place.early(CACHE))
}

/// The same with a canary that keeps its pages and trusts them by file name.
fn a_cache_that_outlives_replacement_is_noticed(place: &Place) -> Outcome {
    expect_noticed(place, "the pages kept were not noticed", |place| {
        replace_and_compare(place, || wrong(place, "persist"))
    })
}
