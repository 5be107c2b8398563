//! Killed servers, hosts that lose power, and disks that lose unsynced writes. Committed data is there afterwards, and no
//! former cache contents are trusted.
//!
//! `BPE_CRASH_CYCLES` is the number of kills per server (5; `make crashes` uses 200). `BPE_CRASH_PLAIN` runs the tests of kills
//! and of the data disk without the plugin, to find out whether the server alone causes a failure.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use cloud_volume::{CloudVolume, Options as VolumeOptions, Profile, Volume};
use integration_tests::ledger::Ledger;
use integration_tests::{
    Options, Outcome, Place, Server, Suite, churn, lapses, note, place, skip, sql, verification,
};

/// Smaller than the data, so that pages compete for slots.
const CACHE: u64 = 16 << 20;
const REBUILT: [&str; 2] = ["ledger.t0", "churn.many"];

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("crashes")
        .each("killed_again_and_again", killed_again_and_again)
        .each("data_disk_loses_power", data_disk_loses_power)
        .each("cache_disk_loses_power", cache_disk_loses_power)
        .in_turn(
            "a_cache_that_outlives_power_loss_is_noticed",
            a_cache_that_outlives_power_loss_is_noticed,
        )
}

fn cycles() -> usize {
    std::env::var("BPE_CRASH_CYCLES")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(5)
}

/// Whether to test the servers alone, without the plugin.
fn without_the_plugin() -> bool {
    std::env::var_os("BPE_CRASH_PLAIN").is_some()
}

fn ledger(server: &Server) -> anyhow::Result<Ledger> {
    let ledger = Ledger::small(server)?;
    churn::prepare(server)?;
    Ok(ledger)
}

fn with_plugin(options: Options, library: &Path, cache: &Path) -> Options {
    place::extended(options, library, cache, CACHE)
}

/// Undo tablespaces that are truncated often; MariaDB does so only after [`truncate_undo`]. A MariaDB 10.11 initialised without
/// undo tablespaces has none.
fn small_undo(options: Options, place: &Place) -> Options {
    let options = options.option("--innodb-max-undo-log-size=10485760");
    if place.is_mysql() {
        options
            .option("--innodb-undo-log-truncate=ON")
            .option("--innodb-purge-rseg-truncate-frequency=1")
    } else {
        options
            .option("--innodb-undo-log-truncate=OFF")
            .option("--innodb-undo-tablespaces=2")
    }
}

/// Makes MariaDB truncate its undo tablespaces from now on. Only for a server about to be killed: 10.11.19 without the plugin
/// sometimes hangs when it truncates them with a small pool (`docs/evidence/reliability.md`).
fn truncate_undo(server: &Server) -> Outcome {
    Ok(server.sql("SET GLOBAL innodb_undo_log_truncate = ON")?)
}

/// Gives the place's server undo tablespaces.
fn with_undo_tablespaces(place: &Place) -> Outcome {
    if place.is_mysql() {
        return Ok(());
    }
    place.initialise_again(&["--innodb-undo-tablespaces=2"])
}

/// Checks that committed transactions are there, and that every other one is there as a whole or not at all.
fn settle(server: &Server, ledger: &Ledger) -> Outcome {
    ledger.settle(server)?;
    ledger.verify(server)?;
    churn::settle(server)
}

fn killed_again_and_again(place: &Place) -> Outcome {
    with_undo_tablespaces(place)?;
    let plain = without_the_plugin();
    let options = || {
        let options = if plain {
            place.options()
        } else {
            place.early(CACHE)?
        };
        anyhow::Ok(small_undo(options, place))
    };
    let mut server = place.start(options()?)?;
    let ledger = ledger(&server)?;
    let mut random = fastrand::Rng::new();
    let seed = random.get_seed();
    let (mut statements, mut in_recovery, mut hits) = (0, 0, 0);
    for cycle in 0..cycles() {
        let context = || format!("cycle {cycle}, seed {seed}");
        let mut time = Duration::from_millis(random.u64(100..2500));
        if statements == 0 && cycle + 1 == cycles() {
            // On a slow machine no statement may have completed.
            time += Duration::from_secs(20);
        }
        if !plain {
            sql::expect_state(&server, "active")?;
            hits += sql::figure(&server, "hits")?;
        }
        truncate_undo(&server)?;
        ledger
            .run_beside_and_kill(server, time, |server| {
                statements += churn::until_killed(server, &REBUILT)?;
                Ok(())
            })
            .with_context(context)?;
        // Sometimes the server is killed again before recovery has completed.
        while random.u32(0..3) == 0 {
            let patience = Duration::from_millis(random.u64(50..1500));
            match place.start(options()?.start_timeout(patience)) {
                Ok(server) => server.kill(),
                Err(_) => in_recovery += 1,
            }
        }
        server = place.start(options()?).with_context(context)?;
        settle(&server, &ledger).with_context(context)?;
    }
    note(format!(
        "{} kills under the load and {in_recovery} during recovery, {statements} statements that change files; \
         {hits} hits in between",
        cycles()
    ));
    ensure!(statements > 0, "no statement changed a file");
    ledger.run(&server, Duration::from_secs(1))?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    if !plain {
        place.expect_left()?;
    }
    verification::innochecksum(&place.installation, &place.data())?;
    let server = place.start(small_undo(place.roomy(), place))?;
    settle(&server, &ledger)?;
    server.stop()?;
    Ok(())
}

/// A disk that loses unsynced writes at a power loss, over the directory `backing` of the place.
fn volatile_disk(place: &Place, name: &str, backing: &Path) -> anyhow::Result<Volume> {
    let folder = place.root().join(name);
    std::fs::create_dir_all(&folder)?;
    std::fs::create_dir_all(backing)?;
    let options = VolumeOptions {
        profile: Profile::unlimited(),
        forget_unsynced: true,
        ..VolumeOptions::default()
    };
    CloudVolume::mount_with(backing, &folder, options)
        .map_err(|error| skip(format!("no FUSE file system: {error}")))
}

/// Options of a server whose data directory is on the disk and whose commits are synced.
fn on_the_disk(place: &Place, volume: &Volume) -> Options {
    let data = volume.mountpoint().join("data");
    place
        .options_of(&data.display().to_string(), "run")
        .option("--innodb-flush-log-at-trx-commit=1")
}

/// Moves the place's data directory to a separate disk.
fn data_disk(place: &Place) -> anyhow::Result<Volume> {
    let backing = place.root().join("data-disk");
    std::fs::create_dir(&backing)?;
    std::fs::rename(place.data(), backing.join("data"))?;
    volatile_disk(place, "disk", &backing)
}

fn data_disk_loses_power(place: &Place) -> Outcome {
    with_undo_tablespaces(place)?;
    let volume = data_disk(place)?;
    let without = || small_undo(on_the_disk(place, &volume), place);
    // Each server gets a disk that it survives without the plugin (docs/evidence/reliability.md).
    // - With O_DIRECT, MySQL does not sync its doublewrite files (storage/innobase/buf/buf0dblwr.cc, is_fsync_required). With
    //   innodb_flush_method=fsync, some pages are not repaired either. MySQL alone does not survive torn pages, so its disk
    //   writes whole pages, in any order.
    // - MariaDB repairs most torn pages. Sometimes it does not sync a file. `lapses` compensates for both.
    let plain = without_the_plugin();
    let options = || {
        if plain {
            return anyhow::Ok(without());
        }
        let library = place.library()?;
        Ok(with_plugin(without(), library, &place.cache()))
    };
    let mut server = place.start(options()?)?;
    let ledger = ledger(&server)?;
    let mut random = fastrand::Rng::new();
    let seed = random.get_seed();
    let (mut reverted, mut statements, mut hits) = (0, 0, 0);
    for round in 0..4u64 {
        let time = Duration::from_millis(800 + 400 * round);
        if !plain {
            sql::expect_state(&server, "active")?;
            hits += sql::figure(&server, "hits")?;
        }
        truncate_undo(&server)?;
        ledger.run_beside_and_kill(server, time, |server| {
            statements += churn::until_killed(server, &REBUILT)?;
            Ok(())
        })?;
        let torn = (round % 2 == 1).then(|| random.u64(..));
        reverted += match torn {
            _ if !place.is_mysql() => lapses::lose_power(&volume, torn)?,
            Some(seed) => volume.power_loss_reordered(seed, 16384)?,
            None => volume.power_loss()?,
        };
        server = place.start(options()?)?;
        settle(&server, &ledger)
            .with_context(|| format!("after power loss {round}, seed {seed}"))?;
    }
    note(format!(
        "4 power losses that took something from {reverted} files; {statements} statements that change files; {hits} \
         hits before the loads"
    ));
    ensure!(reverted > 0, "everything was synced, nothing was lost");
    verification::check_tables(&server)?;
    server.stop()?;
    verification::innochecksum(&place.installation, &volume.mountpoint().join("data"))?;
    let server = place.start(without().buffer_pool(place::ROOMY))?;
    settle(&server, &ledger)?;
    server.stop()?;
    volume.unmount()?;
    Ok(())
}

/// The cache disk loses power, once while the server keeps running and once together with the server.
fn cache_disk_loses_power(place: &Place) -> Outcome {
    let volume = volatile_disk(place, "fast", &place.root().join("fast-backing"))?;
    let options = || {
        let library = place.library()?;
        anyhow::Ok(with_plugin(place.options(), library, volume.mountpoint()))
    };
    let mut server = place.start(options()?)?;
    let ledger = ledger(&server)?;
    ledger.run(&server, Duration::from_secs(2))?;
    ensure!(
        sql::figure(&server, "pages_cached")? > 100,
        "nothing is cached"
    );
    for torn in [None, Some(5)] {
        let mut reverted = 0;
        ledger.run_while(&server, Duration::from_secs(4), || {
            std::thread::sleep(Duration::from_secs(1));
            reverted = match torn {
                None => volume.power_loss()?,
                Some(seed) => volume.power_loss_torn(seed)?,
            };
            Ok(())
        })?;
        ensure!(reverted > 0, "the cache file was as synced");
        ledger.verify(&server)?;
        note(format!(
            "the cache disk forgot: {} device errors, {} failed proofs, '{}'",
            sql::figure(&server, "device_errors")?,
            sql::figure(&server, "failed_proofs")?,
            sql::status(&server, "state_reason")?
        ));
        // The extension uses the disk again automatically.
        let mut hits = sql::figure(&server, "hits")?;
        sql::wait_until("there are hits again", Duration::from_secs(60), || {
            ledger.run(&server, Duration::from_millis(500))?;
            let now = sql::figure(&server, "hits")?;
            let again = now > hits + 20;
            hits = now;
            Ok(again)
        })?;
    }
    ledger.run_and_kill(server, Duration::from_millis(1500))?;
    volume.power_loss_torn(6)?;
    server = place.start(options()?)?;
    sql::expect_state(&server, "active")?;
    settle(&server, &ledger)?;
    verification::check_tables(&server)?;
    server.stop()?;
    ensure!(place::cache_files_in(volume.mountpoint()).len() == 1);
    volume.unmount()?;
    Ok(())
}

/// A cached page is newer than in the data file, whose disk then loses the write. A cache that survived the power loss would
/// serve that page to recovery. Recovery would consider the log record applied, the page would never be written, and the update
/// would be lost. The canary library is such a cache and loses updates; the product does not.
fn a_cache_that_outlives_power_loss_is_noticed(place: &Place) -> Outcome {
    let volume = data_disk(place)?;
    let without = || {
        // The canary library intercepts synchronous calls only.
        on_the_disk(place, &volume).option("--innodb-use-native-aio=OFF")
    };
    let right = || {
        let library = place.library()?;
        anyhow::Ok(with_plugin(without(), library, &place.cache()))
    };
    let folder = place.root().join("kept");
    std::fs::create_dir(&folder)?;
    let wrong = || {
        let options = place::leaving_out(without(), &place.cache(), CACHE, "persist")?;
        anyhow::Ok(options.environment("BPE_CANARY_FOLDER", &folder.display().to_string()))
    };
    let server = place.start(right()?)?;
    let ledger = ledger(&server)?;
    server.stop()?;
    let round = |options: &dyn Fn() -> anyhow::Result<Options>| -> Outcome {
        // The kept pages must come from this round: later writes to the data files made older ones stale.
        std::fs::remove_dir_all(&folder)?;
        std::fs::create_dir(&folder)?;
        let server = place.start(options()?)?;
        ledger.run_and_kill(server, Duration::from_millis(2500))?;
        let reverted = volume.power_loss()?;
        let server = place.start(options()?)?;
        server.stop()?;
        note(format!("power loss took something from {reverted} files"));
        // Without any cache: the data files decide.
        let server = place.start(without().buffer_pool(place::ROOMY))?;
        settle(&server, &ledger)?;
        verification::check_tables(&server)?;
        server.stop()?;
        Ok(())
    };
    for time in 0..2 {
        round(&right).with_context(|| format!("power loss {time} with the product"))?;
    }
    // Each round detects it with a probability of 0.2 to 0.5, less on a slow machine.
    for time in 1..=40 {
        if let Err(error) = round(&wrong) {
            let text = format!("{error:#}");
            note(format!(
                "a cache that is believed after power loss, found out in round {time}: {}",
                text.lines().next().unwrap_or_default()
            ));
            return Ok(());
        }
    }
    anyhow::bail!("a cache that is believed after power loss was not found out")
}
