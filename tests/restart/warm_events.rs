//! Events while the server is down: unchanged files are trusted afterwards, and all others are rejected.
//!
//! `BPE_CRASH_CYCLES` is the number of kills per server (5; `make crashes` uses 200).

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::{self, Mount};
use integration_tests::taken::{self, Reads, Taken};
use integration_tests::verification::Compared;
use integration_tests::{
    Options, Outcome, Place, Server, Suite, note, place, sql, trace, verification,
};

/// Large enough for all data.
const CACHE: u64 = 64 << 20;
/// Rows of a table besides the ledger's, and their bytes.
const ROWS: u32 = 600;
const WIDTH: u32 = 1300;
const CHANGED: &str = "it was changed while the server was down";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warm_events")
        .each("rejected_files_are_loaded", rejected_files_are_loaded)
        .in_turn("files_touched", files_touched)
        .in_turn(
            "a_server_that_believes_everything_is_noticed",
            a_server_that_believes_everything_is_noticed,
        )
        .each("another_server", another_server)
        .each("other_runs", other_runs)
        .in_turn("cache_disk_absent", cache_disk_absent)
        .in_turn("other_settings", other_settings)
        .each("killed_under_load", killed_under_load)
        .in_turn("a_second_server", a_second_server)
        .in_turn("mounted_anew", mounted_anew)
        .in_turn("data_without_change_stamps", data_without_change_stamps)
        .in_turn("cache_disk_hangs", cache_disk_hangs)
}

/// Options by which pages of rejected files are not loaded in the background.
fn options(place: &Place) -> anyhow::Result<Options> {
    Ok(unloaded(loading(place)?))
}

/// The same, with the background loads.
fn loading(place: &Place) -> anyhow::Result<Options> {
    place.early(CACHE)
}

fn unloaded(options: Options) -> Options {
    options.option("--bpe-warm-io-capacity=0")
}

/// A server that has cached its data, including these tables.
fn filled(place: &Place, tables: &[&str]) -> anyhow::Result<(Server, Ledger)> {
    filled_by(options(place)?, place, tables)
}

fn filled_by(options: Options, place: &Place, tables: &[&str]) -> anyhow::Result<(Server, Ledger)> {
    let server = place.start(options)?;
    let mut connection = server.connect()?;
    for table in tables {
        sql::fill(&mut connection, &format!("d.{table}"), ROWS, WIDTH, "")?;
    }
    let ledger = Ledger::small(&server)?;
    for table in tables {
        sql::read_all(&mut connection, &format!("d.{table}"), ROWS)?;
    }
    ledger.verify(&server)?;
    Ok((server, ledger))
}

/// Every row of the table has this version; returns how its pages were read.
fn read(server: &Server, table: &str, version: u64) -> anyhow::Result<Reads> {
    let name = format!("d.{table}");
    let rows = u64::from(ROWS);
    let sums = sql::read_all(&mut server.connect()?, &name, ROWS)?;
    ensure!(
        sums == (rows * (rows + 1) / 2, rows * version),
        "{name}: sums {sums:?}, expected version {version}"
    );
    Reads::of(server, &name)
}

/// As [`read`], after a kill. Recovery may have read and changed any file: the pool is emptied, and only later reads count.
fn read_after_recovery(server: &Server, ledger: &Ledger, table: &str) -> anyhow::Result<Reads> {
    ledger.settle(server)?;
    ledger.verify(server)?;
    // A file that has not been opened has no figures.
    let before = Reads::of(server, &format!("d.{table}")).ok();
    let reads = read(server, table, 0)?;
    let before = before.map_or((0, 0), |before| (before.hits, before.misses));
    note(format!("recovery: {before:?}"));
    Ok(Reads {
        hits: reads.hits - before.0,
        misses: reads.misses - before.1,
    })
}

/// Checks everything, with the plugin and without.
fn finish(place: &Place, server: Server, ledger: &Ledger) -> Outcome {
    verification::stop_and_verify(place, server, ledger, place.options())?;
    Ok(())
}

fn data_file(place: &Place, table: &str) -> PathBuf {
    place.data().join(format!("d/{table}.ibd"))
}

/// Overwrites a file with the contents of another, and restores its times as far as possible.
fn write_over(from: &Path, to: &Path) -> Outcome {
    let before = fs::metadata(to)?;
    let mut target = File::options().write(true).truncate(true).open(to)?;
    std::io::copy(&mut File::open(from)?, &mut target)?;
    let times = FileTimes::new()
        .set_accessed(before.accessed()?)
        .set_modified(before.modified()?);
    target.set_times(times)?;
    let after = fs::metadata(to)?;
    ensure!(
        (before.ino(), before.mtime_nsec(), before.len())
            == (after.ino(), after.mtime_nsec(), after.len())
    );
    Ok(())
}

/// Changes to the tables' files, in the order of the later reads.
const CHANGED_FILES: [&str; 7] = [
    "touched", "mode", "owner", "same", "older", "moved", "linked",
];
const OTHERS: [&str; 3] = ["new", "read", "rest"];

/// What a server reports after each file was changed, or only appeared to be.
struct Seen {
    server: Server,
    ledger: Ledger,
    taken: Taken,
    reads: Vec<(&'static str, Reads)>,
}

/// Fails if rows are wrong.
fn touch_files(
    place: &Place,
    options: &dyn Fn(&Place) -> anyhow::Result<Options>,
) -> anyhow::Result<Seen> {
    let tables = || CHANGED_FILES.into_iter().chain(OTHERS);
    let (server, ledger) = filled(place, &tables().collect::<Vec<_>>())?;
    server.stop()?;
    let older = place.root().join("older");
    fs::copy(data_file(place, "older"), &older)?;
    let server = place.start(options(place)?)?;
    server.sql("UPDATE d.older SET v = v + 1")?;
    for table in tables() {
        read(&server, table, u64::from(table == "older"))?;
    }
    Taken::by(&server)?.expect_warm()?;
    server.stop()?;
    place.expect_left()?;

    let path = |table| data_file(place, table);
    let now = std::time::SystemTime::now();
    File::options()
        .write(true)
        .open(path("touched"))?
        .set_modified(now)?;
    fs::set_permissions(path("mode"), fs::Permissions::from_mode(0o600))?;
    chown(
        path("owner"),
        Some(fs::metadata(path("owner"))?.uid()),
        None,
    )?;
    let aside = place.root().join("aside");
    fs::copy(path("same"), &aside)?;
    write_over(&aside, &path("same"))?;
    write_over(&older, &path("older"))?;
    fs::rename(path("moved"), place.root().join("moved"))?;
    fs::rename(place.root().join("moved"), path("moved"))?;
    fs::hard_link(path("linked"), place.root().join("linked"))?;
    fs::remove_file(place.root().join("linked"))?;
    // Another file with the same name and times.
    place::copy_folder(&path("new"), &aside.with_extension("new"))?;
    fs::rename(aside.with_extension("new"), path("new"))?;
    // Reading changes nothing.
    fs::read(path("read"))?;

    let server = place.start(options(place)?)?;
    let reads = tables()
        .map(|table| Ok((table, read(&server, table, 0)?)))
        .collect::<anyhow::Result<_>>()?;
    ledger.verify(&server)?;
    let taken = Taken::by(&server)?;
    note(format!("{taken:?}, {reads:?}"));
    Ok(Seen {
        server,
        ledger,
        taken,
        reads,
    })
}

fn files_touched(place: &Place) -> Outcome {
    let seen = touch_files(place, &options)?;
    seen.taken.expect_warm()?;
    for table in CHANGED_FILES {
        let why = seen.taken.lost(&format!("d.{table}"));
        ensure!(why == Some(CHANGED), "{table}: {why:?}");
    }
    ensure!(seen.taken.lost_pages > 120, "{:?}", seen.taken);
    ensure!(sql::figure(&seen.server, "warm_pages_loaded")? == 0);
    for (table, reads) in seen.reads {
        let right = if ["read", "rest"].contains(&table) {
            reads.are_warm() && seen.taken.lost(&format!("d.{table}")).is_none()
        } else {
            reads.are_cold()
        };
        ensure!(right, "{table}: {reads:?}");
    }
    finish(place, seen.server, &seen.ledger)
}

/// The loader reads the pages of rejected files from the current files; they are trusted after the next start.
fn rejected_files_are_loaded(place: &Place) -> Outcome {
    let (server, ledger) = filled(place, &["touched", "written", "rest"])?;
    server.stop()?;
    let server = place.start(place.options())?;
    server.sql("UPDATE d.written SET v = v + 1")?;
    server.stop()?;
    File::options()
        .write(true)
        .open(data_file(place, "touched"))?
        .set_modified(std::time::SystemTime::now())?;
    let server = place.start(loading(place)?)?;
    // Read only the first pages of the files.
    for table in ["touched", "written"] {
        server.sql(&format!(
            "CREATE TABLE d.opened_{table} SELECT id FROM d.{table} WHERE id = 1"
        ))?;
    }
    let taken = Taken::by(&server)?;
    for table in ["d.touched", "d.written"] {
        ensure!(taken.lost(table) == Some(CHANGED), "{table}: {taken:?}");
    }
    let loaded = taken::expect_loaded(&server)?;
    // The server may have read the other table for its statistics.
    ensure!(loaded > 40, "{loaded} pages were loaded");
    for (table, version) in [("touched", 0), ("written", 1)] {
        let before = Reads::of(&server, &format!("d.{table}"))?;
        let after = read(&server, table, version)?;
        note(format!("{loaded} loaded; {table}: {before:?}, {after:?}"));
        let now = Reads {
            hits: after.hits - before.hits,
            misses: after.misses - before.misses,
        };
        ensure!(now.are_warm(), "{table}: {before:?}, then {after:?}");
    }
    ledger.verify(&server)?;
    server.stop()?;
    let server = place.start(options(place)?)?;
    let touched = read(&server, "touched", 0)?;
    let written = read(&server, "written", 1)?;
    let taken = Taken::by(&server)?;
    note(format!("{touched:?}, {written:?}; {taken:?}"));
    ensure!(
        touched.are_warm() && written.are_warm() && taken.lost.is_empty(),
        "{touched:?}, {written:?}, {taken:?}"
    );
    finish(place, server, &ledger)
}

/// A canary that ignores file attributes serves the former contents of the older file.
fn a_server_that_believes_everything_is_noticed(place: &Place) -> Outcome {
    let blind = |place: &Place| {
        let options = place.canary(CACHE, "inherit-blindly")?;
        Ok(unloaded(options))
    };
    let error = touch_files(place, &blind)
        .err()
        .context("pages of the file before were believed, and nothing was wrong")?;
    let text = format!("{:#}", error.root_cause());
    note(format!("noticed: {text}"));
    ensure!(text.contains("d.older"), "{error:#}");
    Ok(())
}

/// A server without the plugin writes to a table, and recreates another one.
fn another_server(place: &Place) -> Outcome {
    for crash in [false, true] {
        let (server, ledger) = if crash {
            let server = place.start(options(place)?)?;
            server.sql("DROP DATABASE ledger")?;
            server.sql("UPDATE d.written SET v = 0")?;
            let ledger = Ledger::small(&server)?;
            for table in ["written", "anew", "rest"] {
                read(&server, table, 0)?;
            }
            // The changes are written before the kill.
            ledger.run(&server, Duration::from_secs(1))?;
            (server, ledger)
        } else {
            filled(place, &["written", "anew", "rest"])?
        };
        if crash {
            server.kill();
        } else {
            server.stop()?;
        }
        let server = place.start(place.options())?;
        ledger.settle(&server)?;
        server.sql("UPDATE d.written SET v = v + 1")?;
        if crash {
            // Otherwise the change may be in the redo log only, with the file unchanged.
            server.sql("FLUSH TABLES d.written FOR EXPORT; UNLOCK TABLES")?;
        }
        server.sql("DROP TABLE d.anew")?;
        sql::fill(&mut server.connect()?, "d.anew", ROWS, WIDTH, "")?;
        if crash {
            server.kill();
        } else {
            server.stop()?;
        }
        let server = place.start(options(place)?)?;
        let written = read(&server, "written", 1)?;
        let anew = read(&server, "anew", 0)?;
        let rest = read(&server, "rest", 0)?;
        ledger.verify(&server)?;
        let taken = Taken::by(&server)?;
        note(format!(
            "killed: {crash}; {written:?}, {anew:?}, {rest:?}; {taken:?}"
        ));
        ensure!(taken.lost("d.written") == Some(CHANGED), "{taken:?}");
        ensure!(taken.lost("d.rest").is_none(), "{taken:?}");
        // After a kill, the next server recovers, and may read and write any file.
        if !crash {
            ensure!(
                written.are_cold() && anew.are_cold(),
                "{written:?}, {anew:?}"
            );
            taken.expect_warm()?;
            ensure!(taken.lost("ledger.t0").is_none(), "{taken:?}");
            ensure!(rest.are_warm(), "{rest:?}");
        }
        finish(place, server, &ledger)?;
    }
    Ok(())
}

/// Runs the server's program for another purpose; it must end without a kill.
fn run_for(place: &Place, options: Options) -> Outcome {
    match place.start(options) {
        Ok(server) => {
            server.kill();
            anyhow::bail!("it runs")
        }
        Err(error) if error.to_string().contains("it ended with") => Ok(()),
        Err(error) => Err(error),
    }
}

/// Other runs of the server with the same configuration, and failed starts, consume nothing.
fn other_runs(place: &Place) -> Outcome {
    let (server, ledger) = filled(place, &["rest"])?;
    let mut server = Some(server);
    for crash in [false, true] {
        match server.take() {
            Some(server) if crash => ledger.run_and_kill(server, Duration::from_secs(1))?,
            Some(server) => {
                ledger.run(&server, Duration::from_secs(1))?;
                server.stop()?;
                Default::default()
            }
            None => unreachable!(),
        };
        // `--wsrep-recover` as Galera's scripts run it before each start; it recovers InnoDB.
        let mut runs: Vec<(&str, &[&str])> = vec![
            ("help", &["--help", "--verbose"]),
            ("a bad option", &["--no-such-option"]),
            ("a bad value", &["--innodb-data-file-path=nonsense"]),
        ];
        let of_one: &[(&str, &[&str])] = if place.is_mysql() {
            &[
                ("validation", &["--validate-config"]),
                ("initialisation", &["--initialize-insecure"]),
            ]
        } else {
            &[
                ("recovery", &["--wsrep-recover"]),
                ("bootstrap", &["--bootstrap"]),
            ]
        };
        runs.extend(of_one);
        for (what, arguments) in runs {
            let options = arguments
                .iter()
                .fold(options(place)?, |options, one| options.option(*one));
            run_for(place, options).context(what)?;
            place.expect_left().context(what)?;
        }
        let port = std::net::TcpListener::bind("127.0.0.1:0")?;
        let taken = options(place)?.port(port.local_addr()?.port());
        run_for(place, taken).context("a port in use")?;
        place.expect_left().context("a port in use")?;
        let next = place.start(options(place)?)?;
        let rest = read_after_recovery(&next, &ledger, "rest")?;
        ledger.verify(&next)?;
        let taken = Taken::by(&next)?;
        note(format!("killed: {crash}; {rest:?}; {taken:?}"));
        taken.expect_warm()?;
        ensure!(rest.are_warm(), "{rest:?}");
        server = Some(next);
    }
    finish(place, server.context("a server")?, &ledger)
}

/// The cache disk is absent at one start, whose server writes rows, and present at the next. The first of them has stopped
/// tracking files, so no former page is served.
fn cache_disk_absent(place: &Place) -> Outcome {
    let (server, ledger) = filled(place, &["written", "rest"])?;
    server.stop()?;
    // A trailing slash requires an existing directory.
    let options = |place: &Place| {
        let path = format!("--bpe-path={}/", place.cache().display());
        options(place).map(|options| options.option(path))
    };
    for comes_back in [false, true] {
        let away = place.root().join("away");
        fs::rename(place.cache(), &away)?;
        let server = place.start(options(place)?)?;
        sql::wait_until("it has failed", Duration::from_secs(30), || {
            Ok(sql::status(&server, "state")? == "failed")
        })?;
        server.sql("UPDATE d.written SET v = v + 1")?;
        ensure!(sql::figure(&server, "pages_inherited")? == 0);
        if comes_back {
            // The disk returns while the server runs. The persisted pages no longer match the files.
            fs::rename(&away, place.cache())?;
            sql::wait_until("it is used", Duration::from_secs(60), || {
                Ok(sql::status(&server, "state")? == "active")
            })?;
            read(&server, "written", 2)?;
            ledger.verify(&server)?;
            Taken::by(&server)?.expect_cold()?;
            return finish(place, server, &ledger);
        }
        ledger.verify(&server)?;
        server.stop()?;
        fs::rename(&away, place.cache())?;
        place.expect_left()?;
        let server = place.start(options(place)?)?;
        let written = read(&server, "written", 1)?;
        let rest = read(&server, "rest", 0)?;
        ledger.verify(&server)?;
        let taken = Taken::by(&server)?;
        note(format!("{written:?}, {rest:?}; {taken:?}"));
        taken.expect_nothing_trusted()?;
        ensure!(
            written.are_cold() && rest.are_cold(),
            "{written:?}, {rest:?}"
        );
        server.stop()?;
    }
    Ok(())
}

/// Another size starts with an empty cache and logs it. An empty `bpe_persist_path` in between removes the persisted state.
fn other_settings(place: &Place) -> Outcome {
    let (server, ledger) = filled(place, &["rest"])?;
    server.stop()?;
    let larger = || {
        let options = place.early(CACHE * 2)?;
        anyhow::Ok(options)
    };
    for (what, options, warm) in [
        ("larger", larger()?, false),
        ("as large", larger()?, true),
        ("as before", options(place)?, false),
        ("off", options(place)?.option("--bpe-persist-path="), false),
        ("on again", options(place)?, false),
        (
            "instances",
            options(place)?.option("--bpe-instances=3"),
            false,
        ),
    ] {
        let server = place.start(options)?;
        let rest = read(&server, "rest", 0)?;
        ledger.verify(&server)?;
        let taken = Taken::by(&server)?;
        note(format!("{what}: {rest:?}; {taken:?}"));
        if warm {
            taken.expect_warm().context(what)?;
            ensure!(rest.are_warm(), "{what}: {rest:?}");
        } else {
            taken.expect_cold().context(what)?;
        }
        ledger.verify(&server)?;
        server.stop()?;
        if what == "off" {
            place.expect_nothing_left()?;
        } else {
            place.expect_left().context(what)?;
        }
    }
    Ok(())
}

/// Number of kills per server.
fn kills() -> usize {
    let wanted = std::env::var("BPE_CRASH_CYCLES").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Interval, in rounds, of the comparison with the data files and the check of tables. The last round has both as well.
const LOOK_EVERY: usize = 20;

/// After each kill the cached pages are there at once, and right.
fn killed_under_load(place: &Place) -> Outcome {
    /// Includes MySQL's growing undo logs.
    const ROOM: u64 = 512 << 20;
    let options = |place: &Place| anyhow::Ok(place.early(ROOM)?);
    let (mut server, ledger) = filled_by(options(place)?, place, &["rest"])?;
    server.sql(trace::CREATE_FUNCTION)?;
    let mut random = fastrand::Rng::new();
    let seed = random.get_seed();
    let (mut least, mut all_hits) = (u64::MAX, 0);
    let mut sums = Compared::default();
    for round in 0..kills() {
        let context = || format!("round {round}, seed {seed}");
        let time = Duration::from_millis(random.u64(300..2500));
        ledger.run_and_kill(server, time)?;
        server = place.start(options(place)?)?;
        let rest = read_after_recovery(&server, &ledger, "rest").with_context(context)?;
        ledger.verify(&server).with_context(context)?;
        let taken = Taken::by(&server)?;
        let hits = sql::figure(&server, "hits")?;
        note(format!("{hits} hits, {rest:?}; {taken:?}"));
        taken.expect_warm().with_context(context)?;
        ensure!(hits > 300 && rest.are_warm(), "{hits} hits; {}", context());
        (least, all_hits) = (least.min(hits), all_hits + hits);
        if (round + 1) % LOOK_EVERY == 0 || round + 1 == kills() {
            verification::check_tables(&server).with_context(context)?;
            verification::compare_cached(&server, &mut sums).with_context(context)?;
            ensure!(sums.wrong == 0, "{sums:?}; {}", context());
        }
    }
    note(format!(
        "{} kills, {all_hits} hits in the first moments after them, {least} at least; {sums:?}",
        kills()
    ));
    ensure!(sums.compared > 0, "{sums:?}");
    finish(place, server, &ledger)
}

/// InnoDB refuses a second server on the same data directory; its start takes nothing from the running one.
fn a_second_server(place: &Place) -> Outcome {
    let (server, ledger) = filled(place, &["rest"])?;
    let second = || -> anyhow::Result<Options> {
        let options = place.options_of("data", "run-second");
        let library = place.library()?;
        Ok(place::extended(options, library, &place.cache(), CACHE))
    };
    ledger.run_while(&server, Duration::from_secs(3), || {
        let patience = Duration::from_secs(15);
        let refused = place.start(second()?.start_timeout(patience));
        ensure!(refused.is_err(), "two servers run on one data directory");
        Ok(())
    })?;
    sql::expect_state(&server, "active")?;
    ledger.verify(&server)?;
    place.expect_left()?;
    server.stop()?;
    place.expect_left()?;
    let server = place.start(options(place)?)?;
    let rest = read(&server, "rest", 0)?;
    ledger.verify(&server)?;
    let taken = Taken::by(&server)?;
    note(format!("{rest:?}; {taken:?}"));
    taken.expect_warm()?;
    ensure!(rest.are_warm(), "{rest:?}");
    finish(place, server, &ledger)
}

/// A remount after a clean stop costs nothing, also with another device number. After a kill the files are rejected and their
/// pages loaded.
fn mounted_anew(place: &Place) -> Outcome {
    const OTHER_MOUNT: &str =
        "its file system was mounted again, and the server was not stopped cleanly before";
    let mut mount = Mount::image(&place.root().join("disk"), 512 << 20)?;
    let data = mount.path().join("data");
    place::copy_folder(&place.data(), &data)?;
    let start = || -> anyhow::Result<Server> {
        let options = place.options_of(&data.display().to_string(), "run");
        let options = place::extended(options, place.library()?, &place.cache(), CACHE);
        place.start(options)
    };
    let mut server = start()?;
    let ledger = Ledger::small(&server)?;
    ledger.verify(&server)?;
    for (kill, what) in [
        (false, "as it was"),
        (false, "anew"),
        (false, "elsewhere"),
        (true, "as it was"),
        (true, "anew"),
        (false, "anew"),
    ] {
        let context = || format!("killed: {kill}, mounted {what}");
        taken::expect_written(&server)?;
        if kill {
            ledger.run_and_kill(server, Duration::from_secs(1))?;
        } else {
            ledger.run(&server, Duration::from_secs(1))?;
            server.stop()?;
        }
        match what {
            "anew" => mount.mount_anew()?,
            "elsewhere" => mount.mount_elsewhere()?,
            _ => {}
        }
        server = start()?;
        ledger.settle(&server)?;
        ledger.verify(&server).with_context(context)?;
        let taken = Taken::by(&server)?;
        note(format!("{}: {taken:?}", context()));
        let is_rejected = kill && what == "anew";
        for table in ["ledger.t0", "ledger.t1"] {
            let why = taken.lost(table);
            // A kill may come between a write and its stamp.
            let is_right = match why {
                Some(why) if is_rejected => why == OTHER_MOUNT,
                Some(why) => kill && why == CHANGED,
                None => !is_rejected,
            };
            ensure!(is_right, "{}: {table}: {why:?}", context());
        }
        if is_rejected {
            taken.expect_nothing_trusted().with_context(context)?;
            taken::expect_loaded(&server).with_context(context)?;
            ledger.verify(&server).with_context(context)?;
        } else {
            taken.expect_warm().with_context(context)?;
        }
    }
    server.stop()?;
    Ok(())
}

/// Data on a file system without reliable change stamps: all files are rejected, and their pages are loaded.
fn data_without_change_stamps(place: &Place) -> Outcome {
    const NO_STAMPS: &str = "its file system has no change stamps that prove anything";
    let memory = Mount::memory(&place.root().join("memory"), 768 << 20)?;
    let fuse = mounts::disk_with_faults(place, "fuse")?;
    for folder in [memory.path(), fuse.mountpoint()] {
        let context = || folder.display().to_string();
        let data = folder.join("data");
        place::copy_folder(&place.data(), &data)?;
        let start = || -> anyhow::Result<Server> {
            let options = place.options_of(&data.display().to_string(), "run");
            let options = place::extended(options, place.library()?, &place.cache(), CACHE);
            place.start(options)
        };
        let server = start().with_context(context)?;
        let ledger = Ledger::small(&server)?;
        ledger.verify(&server)?;
        taken::expect_written(&server)?;
        server.stop()?;
        let server = start().with_context(context)?;
        ledger.verify(&server).with_context(context)?;
        let taken = Taken::by(&server)?;
        note(format!("{}: {taken:?}", context()));
        taken.expect_nothing_trusted().with_context(context)?;
        for table in ["ledger.t0", "ledger.t1"] {
            let why = taken.lost(table);
            ensure!(why == Some(NO_STAMPS), "{}: {table}: {why:?}", context());
        }
        taken::expect_loaded(&server).with_context(context)?;
        ledger.verify(&server).with_context(context)?;
        server.stop()?;
        for file in place.cache_files().into_iter().chain(place.kept()) {
            fs::remove_file(file)?;
        }
    }
    fuse.unmount()?;
    Ok(())
}

/// A cache disk that does not answer does not prevent the server's start.
fn cache_disk_hangs(place: &Place) -> Outcome {
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
    let held_up = sql::summary_figure(&server, "/inherited/attach_ms")?;
    note(format!("the start was held up for {held_up} ms"));
    // The expected wait is about a second; the bound allows for a busy machine.
    ensure!(held_up < 10_000, "{held_up} ms");
    ledger.run(&server, Duration::from_secs(1))?;
    ledger.verify(&server)?;
    disk.resume();
    sql::wait_until("it is used", Duration::from_secs(60), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    ledger.run_until_above(&server, Duration::from_secs(1), "pages_cached", 500)?;
    ledger.verify(&server)?;
    server.stop()?;
    let server = start()?;
    ledger.verify(&server)?;
    note(format!("the one after it: {:?}", Taken::by(&server)?));
    server.stop()?;
    let server = start()?;
    ledger.verify(&server)?;
    Taken::by(&server)?.expect_warm()?;
    server.stop()?;
    disk.unmount()?;
    Ok(())
}
