//! Incidents of cache disks: the effect, the message to the administrator, and its delay. The documents have one row for each
//! incident.
//!
//! Each incident begins and ends under a load that checks every answer. No statement of the load may fail.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cloud_volume::{Fault, Operation, Profile};
use integration_tests::pressure::Pressure;
use integration_tests::volumes::{FileSystem, Volume};
use integration_tests::{Outcome, Place, Server, Suite, mounts, note, sql};

const CACHE: u64 = 64 << 20;
/// Expected delay of the message. Incidents without a message are checked after it.
const TOLD_BY: Duration = Duration::from_secs(5);
/// Duration of an incident. On a busy machine the message may take that long.
const LASTS: Duration = Duration::from_secs(15);
/// Time limit until the extension has recovered from the incident.
const OVER: Duration = Duration::from_secs(90);
/// Latency of a read from a disk that is slower by a factor of 100.
const SLOW: Duration = Duration::from_millis(10);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("disk_incidents")
        .in_turn("told_on_a_real_disk", told_on_a_real_disk)
        .in_turn("told_on_an_emulated_disk", told_on_an_emulated_disk)
}

/// An incident, and how it begins and ends.
struct Incident<'a> {
    name: &'a str,
    begin: &'a dyn Fn() -> Outcome,
    end: &'a dyn Fn() -> Outcome,
    /// Expected in the state's reason; empty where no message is needed.
    told: &'a str,
    /// Cached pages are served during the incident.
    serves: bool,
}

fn started(place: &Place, cache: &Path) -> anyhow::Result<Server> {
    place.initialise_again(&[])?;
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    server.sql(&format!("SET GLOBAL bpe_path = '{}'", cache.display()))?;
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    Ok(server)
}

/// Runs one incident under load.
fn meet(server: &Server, load: &Pressure, incident: &Incident<'_>) -> Outcome {
    let mut looked = (String::new(), String::new());
    let hits = |before: u64| -> anyhow::Result<u64> { Ok(sql::figure(server, "hits")? - before) };
    let before = sql::figure(server, "hits")?;
    let (mut meanwhile, mut took) = (0, Duration::ZERO);
    let counts = load.run_while(server, LASTS, || {
        (incident.begin)()?;
        let begun = Instant::now();
        let mut is_told = false;
        while !is_told && begun.elapsed() < LASTS {
            std::thread::sleep(Duration::from_millis(200));
            looked = (
                sql::status(server, "state")?,
                sql::status(server, "state_reason")?,
            );
            is_told = match incident.told {
                "" => begun.elapsed() >= TOLD_BY,
                told => looked.1.contains(told),
            };
        }
        took = begun.elapsed();
        std::thread::sleep(Duration::from_secs(1));
        meanwhile = hits(before)?;
        Ok(())
    });
    // Must come first: every operation on a frozen file system hangs.
    (incident.end)()?;
    let counts = counts?;
    let ended = Instant::now();
    sql::wait_until("the incident is over", OVER, || {
        let before = sql::figure(server, "hits")?;
        load.run(server, Duration::from_secs(1))?;
        let reason = sql::status(server, "state_reason")?;
        let is_well = reason.is_empty() || reason == looked.1 && incident.told.is_empty();
        Ok(is_well && hits(before)? > 0)
    })?;
    let longest = Duration::from_micros(counts.longest_us.load(Ordering::Relaxed));
    note(format!(
        "{}: after {took:.1?} {}, '{}'; {meanwhile} hits meanwhile; longest step {longest:?}; hits again {:.0} s after its end",
        incident.name,
        looked.0,
        looked.1,
        ended.elapsed().as_secs_f64()
    ));
    ensure!(
        !incident.serves || meanwhile > 0,
        "{}: no hits",
        incident.name
    );
    ensure!(
        looked.1.contains(incident.told),
        "{}: {looked:?}",
        incident.name
    );
    Ok(())
}

fn run(command: &mut Command) -> Outcome {
    let output = command.output().context("a program is missing")?;
    ensure!(output.status.success(), "{command:?}: {output:?}");
    Ok(())
}

/// ext4 on a loop device.
fn told_on_a_real_disk(place: &Place) -> Outcome {
    let volume = Volume::create(place.root(), "fast", FileSystem::Ext4, 256 << 20)?;
    let cache = volume.top();
    run(Command::new("chmod").arg("700").arg(&cache))?;
    let server = started(place, &cache)?;
    let load = Pressure::create(place, &server)?;
    load.run(&server, Duration::from_secs(3))?;
    let fsfreeze = |how: &str| run(Command::new("fsfreeze").arg(how).arg(volume.folder()));
    let filler = volume.folder().join("filler");
    meet(
        &server,
        &load,
        &Incident {
            name: "filled by another program",
            begin: &|| {
                let file = std::fs::File::create(&filler)?;
                (0..)
                    .take_while(|at| file.write_all_at(&[1; 65536], at * 65536).is_ok())
                    .count();
                Ok(())
            },
            end: &|| Ok(std::fs::remove_file(&filler)?),
            told: "",
            serves: true,
        },
    )?;
    meet(
        &server,
        &load,
        &Incident {
            name: "frozen (fsfreeze)",
            begin: &|| fsfreeze("--freeze"),
            end: &|| fsfreeze("--unfreeze"),
            told: "look whether its file system is frozen",
            serves: true,
        },
    )?;
    load.stop_and_verify(place, server)
}

/// A FUSE file system with faults on command.
fn told_on_an_emulated_disk(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "emulated")?;
    let server = started(place, volume.mountpoint())?;
    let load = Pressure::create(place, &server)?;
    load.run(&server, Duration::from_secs(3))?;
    let usual = volume.profile();
    let well = || {
        volume.clear_faults();
        Ok(())
    };
    let incidents = [
        Incident {
            name: "set read-only (writes fail)",
            begin: &|| {
                volume.add_fault(Fault::error(Operation::Write));
                Ok(())
            },
            end: &well,
            told: "Input/output error",
            serves: false,
        },
        Incident {
            name: "detached (all requests fail)",
            begin: &|| {
                volume.add_fault(Fault::error(Operation::Any));
                Ok(())
            },
            end: &well,
            told: "Input/output error",
            serves: false,
        },
        Incident {
            name: "slower by a hundred",
            begin: &|| {
                volume.set_profile(Profile {
                    latency: SLOW,
                    ..Profile::unlimited()
                });
                Ok(())
            },
            end: &|| {
                volume.set_profile(usual.clone());
                Ok(())
            },
            told: "",
            serves: true,
        },
        Incident {
            name: "silent (no request is answered)",
            begin: &|| {
                volume.stall(LASTS);
                Ok(())
            },
            end: &|| {
                volume.resume();
                Ok(())
            },
            told: "not answered",
            serves: false,
        },
    ];
    for incident in &incidents {
        meet(&server, &load, incident)?;
    }
    load.stop_and_verify(place, server)?;
    volume.unmount()?;
    Ok(())
}
