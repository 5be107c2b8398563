//! No client waits longer for a cache disk than the read timeout. This includes a disk without a free request slot, where the
//! next submission blocks in the kernel.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cloud_volume::{CloudVolume, Options as VolumeOptions, Profile, Volume};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::{self, Mount};
use integration_tests::mysql::prelude::Queryable;
use integration_tests::place::{copy_folder, extended};
use integration_tests::{
    Flavour, Options, Outcome, Place, Server, Suite, note, skip, sql, trace, verification,
};

const CACHE: u64 = 64 << 20;
/// Asynchronous requests that the cache disk can have in flight.
const SLOTS: u16 = 4;
const CLIENTS: u32 = 64;
/// How long the cache disk does not answer.
const STALL: Duration = Duration::from_secs(30);
/// Time limit of a client's step during the stall: the need of 64 clients on a busy machine, and several times the timeout.
const PATIENCE: Duration = Duration::from_secs(15);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("bounds")
        .in_turn("few_slots_of_a_file_system", few_slots_of_a_file_system)
        .in_turn("few_slots_of_a_disk", few_slots_of_a_disk)
        .with(
            Flavour::MariaDb1011,
            "late_reads_are_made_together",
            late_reads_are_made_together,
        )
}

/// A volume with few slots, in a directory of the place.
fn volume(place: &Place, slots: Option<u16>) -> anyhow::Result<Volume> {
    volume_in(place, "volume", slots)
}

fn volume_in(place: &Place, name: &str, slots: Option<u16>) -> anyhow::Result<Volume> {
    let (backing, folder) = (
        place.root().join(format!("backing-{name}")),
        place.root().join(name),
    );
    std::fs::create_dir_all(&backing)?;
    std::fs::create_dir_all(&folder)?;
    let options = VolumeOptions {
        profile: Profile::unlimited(),
        slots,
        ..VolumeOptions::default()
    };
    CloudVolume::mount_with(&backing, &folder, options)
        .map_err(|error| skip(format!("no FUSE file system: {error}")))
}

/// The file system refuses `RWF_NOWAIT`. Its request limit can be read where fusectl is mounted.
fn few_slots_of_a_file_system(place: &Place) -> Outcome {
    mounts::fuse_control()?;
    let volume = volume(place, Some(SLOTS))?;
    hangs(place, &volume, volume.mountpoint())?;
    volume.unmount()?;
    Ok(())
}

/// A disk with few requests below ext4, as a real one: `RWF_NOWAIT` is supported, and does not help.
fn few_slots_of_a_disk(place: &Place) -> Outcome {
    let volume = volume(place, None)?;
    let folder = place.root().join("disk");
    let image: PathBuf = volume.mountpoint().join("image");
    let mut mount = Mount::image_in(&image, &folder, 256 << 20)?;
    mount.set_requests(u32::from(SLOTS))?;
    let result = hangs(place, &volume, mount.path());
    volume.resume();
    drop(mount);
    result?;
    volume.unmount()?;
    Ok(())
}

/// The cache disk hangs under many clients.
fn hangs(place: &Place, volume: &Volume, cache: &Path) -> Outcome {
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    server.sql(&format!("SET GLOBAL bpe_path = '{}'", cache.display()))?;
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    server.sql(trace::CREATE_FUNCTION)?;
    let ledger = Ledger::create(&server, 2, 5120, 2500, CLIENTS)?.paced();
    ledger.run(&server, Duration::from_secs(6))?;
    let hits = sql::figure(&server, "hits")?;
    ensure!(hits > 0, "nothing was served from the cache before");
    let mut while_it_hangs = String::new();
    let counts = ledger.run_while(&server, STALL + Duration::from_secs(2), || {
        std::thread::sleep(Duration::from_secs(1));
        volume.stall(STALL);
        std::thread::sleep(STALL / 2);
        while_it_hangs = sql::status(&server, "state_reason")?;
        Ok(())
    })?;
    let longest = Duration::from_micros(counts.longest_us.load(Ordering::Relaxed));
    let given_up = sql::figure(&server, "reads_given_up")?;
    note(format!(
        "{CLIENTS} clients, {SLOTS} requests, hung for {STALL:?}: longest step {longest:?}; {counts}; {given_up} reads given \
         up; '{while_it_hangs}'"
    ));
    ensure!(
        longest < PATIENCE,
        "a client waited {longest:?} for a disk that answered nothing for {STALL:?}"
    );
    ensure!(
        while_it_hangs.contains("does not answer"),
        "the reason given while it hangs: '{while_it_hangs}'"
    );
    ensure!(given_up > 0, "nothing was read while it hung");
    ensure!(
        number(&server, "request_slots")? == u64::from(SLOTS),
        "the device is said to have other requests: {}",
        report(&server)?
    );
    let handed_over = number(&server, "reads_handed_over")?;
    note(format!(
        "{handed_over} reads were handed over, {} turned away",
        sql::summary_figure(&server, "/cache/reads_busy")?
    ));
    ensure!(
        handed_over > 0,
        "every read was submitted by whoever wanted it"
    );
    ensure!(
        sql::figure(&server, "device_errors")? == 0,
        "{}",
        report(&server)?
    );
    // The disk is used again when it answers.
    sql::wait_until("read from again", Duration::from_secs(60), || {
        let before = sql::figure(&server, "hits")?;
        ledger.run(&server, Duration::from_secs(1))?;
        Ok(sql::status(&server, "state_reason")?.is_empty()
            && sql::figure(&server, "hits")? > before)
    })?;
    ledger.verify(&server)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("no thread is left behind", Duration::from_secs(60), || {
        Ok(integration_tests::library::threads(&server)? == ["bpe-controller"])
    })?;
    verification::check_tables(&server)?;
    server.stop()?;
    verification::innochecksum(&place.installation, &place.data())?;
    Ok(())
}

fn report(server: &Server) -> anyhow::Result<String> {
    let report = server.value("SELECT bpe_report('devices')")?;
    report.context("no report")
}

/// A figure of the only device.
fn number(server: &Server, field: &str) -> anyhow::Result<u64> {
    let report: serde_json::Value = serde_json::from_str(&report(server)?)?;
    report
        .get(0)
        .and_then(|device| device.get(field)?.as_u64())
        .with_context(|| format!("the report has no {field}: {report}"))
}

/// Rows of the scanned table, and bytes of each: several times the pool.
const ROWS: u32 = 16_000;
const WIDTH: u32 = 2000;
/// Profile in which each request takes `time`.
fn slowed_down(time: Duration) -> Profile {
    Profile {
        latency: time,
        ..Profile::unlimited()
    }
}

/// One thread harvests for all clients. It must not issue the fallback reads one after the other: on a data disk that takes
/// three seconds for each, all of them are in flight together.
fn late_reads_are_made_together(place: &Place) -> Outcome {
    let cache = volume(place, None)?;
    let data = volume_in(place, "slow", None)?;
    copy_folder(&place.data(), &data.mountpoint().join("data"))?;
    let options = place.options_of("slow/data", "run");
    let options = extended(options, place.library()?, cache.mountpoint(), CACHE);
    let server = with_a_cached_table(place, options)?;
    let stop = AtomicBool::new(false);
    let together = std::thread::scope(|scope| -> anyhow::Result<u64> {
        // Scans the whole table; the server reads ahead by extents of 64 pages.
        let scanner = scope.spawn(|| scan(&server, &stop, ROWS));
        let mut together = 0;
        let outcome = while_it_hangs(&server, &cache, || {
            let slow = Duration::from_secs(3);
            data.set_profile(slowed_down(slow));
            // Until the first read is answered, the client waits and requests nothing else.
            let begun = Instant::now();
            while begun.elapsed() < slow {
                together = together.max(data.statistics().queued);
                std::thread::sleep(Duration::from_millis(20));
            }
            data.set_profile(Profile::unlimited());
            cache.resume();
            Ok(())
        });
        stop.store(true, Ordering::Relaxed);
        scanner.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        outcome.map(|()| together)
    })?;
    note(format!("{together} reads under way together"));
    ensure!(
        together >= 8,
        "no more than {together} reads of the data disk were under way together"
    );
    ensure!(sql::verify_pads(&mut server.connect()?, "d.t", WIDTH)? == ROWS);
    server.stop()?;
    cache.unmount()?;
    data.unmount()?;
    Ok(())
}

/// A server whose table is several times its pool, and cached.
fn with_a_cached_table(place: &Place, options: Options) -> anyhow::Result<Server> {
    // Otherwise at most eight requests are in flight, because the disk's limit is unknown.
    mounts::fuse_control()?;
    let server = place.start(options)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, WIDTH, "")?;
    for _ in 0..2 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    Ok(server)
}

/// Scans the table, `rows` rows at a time; returns the longest time of one statement.
fn scan(server: &Server, stop: &AtomicBool, rows: u32) -> anyhow::Result<Duration> {
    let mut connection = server.connect_within(STALL * 4)?;
    let (mut from, mut longest) = (1, Duration::ZERO);
    while !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        let to = from + rows - 1;
        connection.query_drop(format!(
            "SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY) WHERE id BETWEEN {from} AND {to}"
        ))?;
        longest = longest.max(started.elapsed());
        from = if to < ROWS { to + 1 } else { 1 };
    }
    Ok(longest)
}

/// Slows the cache disk down to 200 ms a read, so that some are in flight, and lets it hang after a while.
fn while_it_hangs(server: &Server, cache: &Volume, then: impl FnOnce() -> Outcome) -> Outcome {
    let read_ahead = || -> anyhow::Result<u64> {
        let status = server.status("Innodb_buffer_pool_read_ahead%")?;
        let ahead = |(name, _): &(&String, &String)| !name.ends_with("evicted");
        let counts = status.iter().filter(ahead);
        counts.map(|(_, count)| Ok(count.parse::<u64>()?)).sum()
    };
    let before = (read_ahead()?, sql::figure(server, "hits")?);
    cache.set_profile(slowed_down(Duration::from_millis(200)));
    std::thread::sleep(Duration::from_secs(4));
    // At pages that were not read ahead, a scan needs an extent of single reads before read-ahead starts again.
    let slowed = Instant::now();
    let (ahead, hits) = loop {
        let (ahead, hits) = (
            read_ahead()? - before.0,
            sql::figure(server, "hits")? - before.1,
        );
        if ahead > 64 && hits > 64 || slowed.elapsed() > Duration::from_secs(60) {
            break (ahead, hits);
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    cache.stall(STALL);
    let outcome = then();
    cache.set_profile(Profile::unlimited());
    let given_up = sql::figure(server, "reads_given_up")?;
    note(format!(
        "{ahead} pages read ahead and {hits} hits before it hung, {given_up} reads given up"
    ));
    ensure!(
        ahead > 64 && hits > 64,
        "nothing was read ahead from the cache"
    );
    ensure!(given_up > 0, "nothing was read while it hung");
    outcome
}
