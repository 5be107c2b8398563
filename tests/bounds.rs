//! No client waits longer for a cache disk than `bpe_read_timeout`, also when the disk has no free request, so that whoever
//! submits one more waits in the kernel.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, ensure};
use cloud_volume::{CloudVolume, Options as VolumeOptions, Profile, Volume};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::{self, Mount};
use integration_tests::{Outcome, Place, Server, Suite, note, skip, sql, verification};

const CACHE: u64 = 64 << 20;
/// Asynchronous requests that the cache disk can have under way.
const SLOTS: u16 = 4;
const CLIENTS: u32 = 64;
const BOUND: Duration = Duration::from_millis(500);
/// How long the cache disk answers nothing.
const STALL: Duration = Duration::from_secs(30);
/// How long a step of a client may take meanwhile: what 64 clients on a busy machine need, and the bound several times.
const PATIENCE: Duration = Duration::from_secs(15);

fn main() -> ExitCode {
    Suite::new("bounds")
        .each("few_slots_of_a_file_system", few_slots_of_a_file_system)
        .each("few_slots_of_a_disk", few_slots_of_a_disk)
        .run()
}

/// A volume with few slots, in a folder of the place.
fn volume(place: &Place, slots: Option<u16>) -> anyhow::Result<Volume> {
    let (backing, folder) = (place.root().join("backing"), place.root().join("volume"));
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

/// The file system refuses `RWF_NOWAIT`, and says how many requests it takes where fusectl is mounted.
fn few_slots_of_a_file_system(place: &Place) -> Outcome {
    mounts::fuse_control()?;
    let volume = volume(place, Some(SLOTS))?;
    hangs(place, &volume, volume.mountpoint())?;
    volume.unmount()?;
    Ok(())
}

/// A disk with few requests below ext4, as a real one: here `RWF_NOWAIT` is known, and does not help.
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
    server.sql(&format!(
        "SET GLOBAL bpe_read_timeout = {}",
        BOUND.as_millis()
    ))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    server.sql("CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'")?;
    let ledger = Ledger::create(&server, 2, 5120, 2500, CLIENTS)?;
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
        sql::figure(&server, "reads_busy")?
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
    // It is read from again when it answers.
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

/// A figure of the one device.
fn number(server: &Server, field: &str) -> anyhow::Result<u64> {
    let report: serde_json::Value = serde_json::from_str(&report(server)?)?;
    report
        .get(0)
        .and_then(|device| device.get(field)?.as_u64())
        .with_context(|| format!("the report has no {field}: {report}"))
}
