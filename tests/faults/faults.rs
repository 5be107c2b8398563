//! Cache files that disappear, shrink or change, and cache disks that fail, stall or fill up, under a load that must not be
//! affected.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use cloud_volume::{Effect, Fault, Operation, Volume};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::Mount;
use integration_tests::mysql::{self, prelude::Queryable};
use integration_tests::place::READ_TIMEOUT;
use integration_tests::pressure::Pressure;
use integration_tests::{
    Flavour, Options, Outcome, Place, Server, Suite, mounts, note, place, sql, trace,
};

const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("faults")
        .in_turn("cache_file_deleted", cache_file_deleted)
        .in_turn("cache_file_truncated", cache_file_truncated)
        .in_turn("cache_file_overwritten", cache_file_overwritten)
        .in_turn("cache_disk_full", cache_disk_full)
        .in_turn("cache_disk_fails", cache_disk_fails)
        .in_turn(
            "cache_disk_fails_now_and_then",
            cache_disk_fails_now_and_then,
        )
        .in_turn("cache_disk_tears_writes", cache_disk_tears_writes)
        .in_turn("cache_disk_stalls", cache_disk_stalls)
        .with(
            Flavour::MariaDb1011,
            "cache_disk_stalls_without_a_bound",
            cache_disk_stalls_without_a_bound,
        )
        .with(
            Flavour::MariaDb1011,
            "frozen_file_system_is_told",
            frozen_file_system_is_told,
        )
        .in_turn("one_of_two_disks_fails", one_of_two_disks_fails)
        .in_turn(
            "only_reads_or_only_writes_fail",
            only_reads_or_only_writes_fail,
        )
        .in_turn("threads_are_refused", threads_are_refused)
        .in_turn("memory_is_refused", memory_is_refused)
        .in_turn("data_disk_fails", data_disk_fails)
        .in_turn("data_disk_fails_to_write", data_disk_fails_to_write)
}

fn ledger(server: &Server) -> anyhow::Result<Ledger> {
    Ok(Ledger::create(server, 2, 5000, 2500, 6)?.paced())
}

fn started(place: &Place, path: &Path, size: u64) -> anyhow::Result<Server> {
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    server.sql(&format!("SET GLOBAL bpe_path = '{}'", path.display()))?;
    server.sql(&format!("SET GLOBAL bpe_size = {size}"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    Ok(server)
}

/// After off and on, the cache must work as before.
fn as_good_as_new(server: &Server, ledger: &Ledger) -> Outcome {
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(server, "active")?;
    ledger.run_until_above(server, Duration::from_secs(2), "hits", 0)?;
    ensure!(sql::figure(server, "device_errors")? == 0);
    ledger.verify(server)
}

fn device(server: &Server) -> String {
    let _ = server.sql(trace::CREATE_FUNCTION);
    server
        .value("SELECT bpe_report('devices')")
        .ok()
        .flatten()
        .unwrap_or_default()
}

fn cache_file_deleted(place: &Place) -> Outcome {
    let server = started(place, &place.cache(), CACHE)?;
    let ledger = ledger(&server)?;
    ledger.run_while(&server, Duration::from_secs(10), || {
        std::thread::sleep(Duration::from_secs(2));
        let files = place.cache_files();
        std::fs::remove_file(files.first().context("no cache file")?)?;
        Ok(())
    })?;
    note(format!(
        "some seconds after it was deleted: {}",
        device(&server)
    ));
    ledger.verify(&server)?;
    as_good_as_new(&server, &ledger)?;
    server.stop()?;
    place.expect_left()?;
    Ok(())
}

fn cache_file_truncated(place: &Place) -> Outcome {
    let server = started(place, &place.cache(), CACHE)?;
    let ledger = ledger(&server)?;
    ledger.run_while(&server, Duration::from_secs(14), || {
        let files = place.cache_files();
        let path = files.first().context("no cache file")?;
        let file = std::fs::File::options().write(true).open(path)?;
        for length in [CACHE / 2, 4096, 0] {
            std::thread::sleep(Duration::from_secs(2));
            file.set_len(length)?;
        }
        Ok(())
    })?;
    note(format!(
        "after it was truncated: {} device errors; {}",
        sql::figure(&server, "device_errors")?,
        device(&server)
    ));
    ledger.verify(&server)?;
    as_good_as_new(&server, &ledger)?;
    server.stop()?;
    Ok(())
}

/// Other bytes in the cache file: every change is detected.
fn cache_file_overwritten(place: &Place) -> Outcome {
    let server = started(place, &place.cache(), CACHE)?;
    let ledger = ledger(&server)?;
    ledger.run(&server, Duration::from_secs(3))?;
    ledger.run_while(&server, Duration::from_secs(8), || {
        let files = place.cache_files();
        let path = files.first().context("no cache file")?;
        let file = std::fs::File::options().read(true).write(true).open(path)?;
        let length = file.metadata()?.len();
        let mut random = fastrand::Rng::with_seed(3);
        for round in 0..40 {
            // Flipped bits, and pieces moved to other places.
            for _ in 0..30 {
                let at = random.u64(0..length - 70_000);
                let mut bytes = vec![0u8; if round % 2 == 0 { 1 } else { 16384 }];
                file.read_exact_at(&mut bytes, at)?;
                if round % 2 == 0 {
                    bytes[0] ^= 0x10;
                    file.write_all_at(&bytes, at)?;
                } else {
                    file.write_all_at(&bytes, random.u64(0..length - 70_000) & !0xfff)?;
                }
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    })?;
    ledger.run_until_above(&server, Duration::ZERO, "failed_proofs", 0)?;
    ledger.verify(&server)?;
    let proofs = sql::figure(&server, "failed_proofs")?;
    note(format!("{proofs} failed proofs"));
    as_good_as_new(&server, &ledger)?;
    server.stop()?;
    Ok(())
}

fn cache_disk_full(place: &Place) -> Outcome {
    let mount = Mount::image(&place.root().join("small"), 192 << 20)?;
    let server = started(place, mount.path(), CACHE)?;
    let ledger = ledger(&server)?;
    ledger.run_while(&server, Duration::from_secs(6), || {
        std::thread::sleep(Duration::from_secs(1));
        // Another process fills the free space.
        let filler = std::fs::File::create(mount.path().join("filler"))?;
        let mut at = 0;
        while filler.write_all_at(&[1; 65536], at).is_ok() {
            at += 65536;
        }
        Ok(())
    })?;
    ledger.verify(&server)?;
    sql::expect_state(&server, "active")?;
    ensure!(
        sql::figure(&server, "device_errors")? == 0,
        "{}",
        device(&server)
    );
    // The cache no longer fits; it fits again when there is space.
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the cache file is gone", Duration::from_secs(20), || {
        Ok(place::files_in(mount.path()).len() == 1)
    })?;
    let filler = std::fs::File::options()
        .append(true)
        .open(mount.path().join("filler"))?;
    let mut block = vec![1u8; 65536];
    while std::io::Write::write_all(&mut &filler, &block).is_ok() {
        block.fill(2);
    }
    drop(filler);
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains("free"), "{said}");
    std::fs::remove_file(mount.path().join("filler"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    as_good_as_new(&server, &ledger)?;
    server.stop()?;
    Ok(())
}

fn cache_disk_fails(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "faulty")?;
    let server = started(place, volume.mountpoint(), CACHE)?;
    let load = Pressure::create(place, &server)?;
    load.run(&server, Duration::from_secs(3))?;
    let goes_on = |name| {
        load.ledger
            .run_until_above(&server, Duration::ZERO, name, 0)
    };
    goes_on("hits")?;
    volume.add_fault(Fault::error(Operation::Any));
    load.run(&server, Duration::from_secs(6))?;
    goes_on("device_errors")?;
    let errors = sql::figure(&server, "device_errors")?;
    note(format!(
        "failing: {errors} device errors; {}",
        device(&server)
    ));
    load.ledger.verify(&server)?;
    // The extension recovers automatically when the disk does.
    volume.clear_faults();
    let mut hits = sql::figure(&server, "hits")?;
    sql::wait_until("there are hits again", Duration::from_secs(60), || {
        load.run(&server, Duration::from_secs(1))?;
        let now = sql::figure(&server, "hits")?;
        let again = now > hits + 50;
        hits = now;
        Ok(again)
    })?;
    load.stop_and_verify(place, server)?;
    volume
        .unmount()
        .context("the volume is still in use after the stop")?;
    Ok(())
}

fn cache_disk_fails_now_and_then(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "faulty")?;
    let server = started(place, volume.mountpoint(), CACHE)?;
    let load = Pressure::create(place, &server)?;
    for (operation, every) in [(Operation::Read, 40), (Operation::Write, 3)] {
        volume.clear_faults();
        volume.add_fault(Fault {
            every,
            ..Fault::error(operation)
        });
        load.run(&server, Duration::from_secs(4))?;
    }
    ensure!(
        sql::figure(&server, "device_errors")? > 0,
        "no device errors counted"
    );
    load.stop_and_verify(place, server)?;
    volume.unmount()?;
    Ok(())
}

fn cache_disk_tears_writes(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "faulty")?;
    let server = started(place, volume.mountpoint(), CACHE)?;
    let load = Pressure::create(place, &server)?;
    volume.add_fault(Fault {
        effect: Effect::TornSilently,
        every: 2,
        ..Fault::error(Operation::Write)
    });
    load.run(&server, Duration::from_secs(8))?;
    // Torn writes are detected.
    load.ledger
        .run_until_above(&server, Duration::ZERO, "failed_proofs", 0)?;
    let proofs = sql::figure(&server, "failed_proofs")?;
    note(format!("{proofs} failed proofs"));
    load.stop_and_verify(place, server)?;
    volume.unmount()?;
    Ok(())
}

/// How long the disk of these tests does not answer.
const STALL: Duration = Duration::from_secs(12);

/// A disk does not answer for a while: no client waits for it, and the cache continues with its contents.
fn cache_disk_stalls(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "faulty")?;
    let server = started(place, volume.mountpoint(), CACHE)?;
    let load = Pressure::create(place, &server)?;
    load.run(&server, Duration::from_secs(3))?;
    let cached = sql::figure(&server, "pages_cached")?;
    let (longest, reason) = longest_while_stalled(&server, &load, &volume)?;
    ensure!(
        reason.contains("does not answer"),
        "the reason given while it stalls: '{reason}'"
    );
    ensure!(
        longest < STALL / 2,
        "a client waited {longest:?} for a disk that answered nothing for {STALL:?}"
    );
    ensure!(
        sql::figure(&server, "reads_given_up")? > 0,
        "nothing was read while it stalled"
    );
    // The extension uses the disk again automatically, with its contents.
    sql::wait_until("read from again", Duration::from_secs(30), || {
        let before = sql::figure(&server, "hits")?;
        load.run(&server, Duration::from_secs(1))?;
        Ok(sql::status(&server, "state_reason")?.is_empty()
            && sql::figure(&server, "hits")? > before)
    })?;
    let kept = sql::figure(&server, "pages_cached")?;
    // Pages that were written during the stall are gone.
    ensure!(kept >= cached / 4, "{kept} of {cached} pages kept");
    load.ledger.verify(&server)?;
    // Switching off does not wait for the disk.
    volume.stall(Duration::from_secs(4));
    let started = std::time::Instant::now();
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    note(format!(
        "SET OFF while it stalls: {:.1} ms",
        started.elapsed().as_secs_f64() * 1e3
    ));
    ensure!(
        started.elapsed() < Duration::from_secs(3),
        "switching off waited for the disk"
    );
    load.stop_and_verify(place, server)?;
    volume.unmount()?;
    Ok(())
}

/// Runs the load while the disk stalls. Returns the longest step of a client, and the reported reason.
fn longest_while_stalled(
    server: &Server,
    load: &Pressure,
    volume: &Volume,
) -> anyhow::Result<(Duration, String)> {
    let mut reason = String::new();
    let (counts, stalls) = integration_tests::probe::during(server, || {
        load.run_while(server, STALL + Duration::from_secs(1), || {
            std::thread::sleep(Duration::from_secs(1));
            volume.stall(STALL);
            std::thread::sleep(STALL / 2);
            reason = sql::status(server, "state_reason")?;
            Ok(())
        })
    })?;
    let longest =
        Duration::from_micros(counts.longest_us.load(std::sync::atomic::Ordering::Relaxed));
    note(format!(
        "cache disk stalled for {STALL:?}: longest step {longest:?}, probe {stalls}; {counts}; '{reason}'"
    ));
    Ok((longest, reason))
}

/// Without the read timeout clients do wait. This shows that the test above can fail.
fn cache_disk_stalls_without_a_bound(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "faulty")?;
    let options = place.canary(CACHE, "none")?.environment(READ_TIMEOUT, "0");
    let server = place.start(options)?;
    server.sql(&format!(
        "SET GLOBAL bpe_path = '{}'",
        volume.mountpoint().display()
    ))?;
    sql::expect_state(&server, "active")?;
    let load = Pressure::create(place, &server)?;
    load.run(&server, Duration::from_secs(3))?;
    let (longest, _) = longest_while_stalled(&server, &load, &volume)?;
    ensure!(longest > STALL / 2, "nobody waited longer than {longest:?}");
    load.stop_and_verify(place, server)?;
    volume.unmount()?;
    Ok(())
}

/// Frozen as by backup agents and volume snapshots: writes wait, reads are answered.
fn frozen_file_system_is_told(place: &Place) -> Outcome {
    let mount = Mount::image(&place.root().join("fast"), 192 << 20)?;
    let server = started(place, mount.path(), CACHE)?;
    let load = Pressure::create(place, &server)?;
    load.run(&server, Duration::from_secs(3))?;
    let frozen = mount.freeze()?;
    let reason = || sql::status(&server, "state_reason");
    sql::wait_until("it is told", Duration::from_secs(30), || {
        load.run(&server, Duration::from_secs(1))?;
        Ok(reason()?.contains("look whether its file system is frozen"))
    })?;
    ensure!(sql::figure(&server, "devices_failed")? == 1);
    let before = sql::figure(&server, "hits")?;
    load.run(&server, Duration::from_secs(2))?;
    let hits = sql::figure(&server, "hits")? - before;
    note(format!("{hits} hits while it is frozen: {}", reason()?));
    ensure!(hits > 0, "what is cached is not read while it is frozen");
    let told = |text: &str| {
        let log = || Ok(std::fs::read_to_string(server.log())?.contains(text));
        sql::wait_until("the log tells", Duration::from_secs(10), log)
    };
    told("look whether its file system is frozen")?;
    drop(frozen);
    sql::wait_until("it is over", Duration::from_secs(30), || {
        load.run(&server, Duration::from_millis(500))?;
        Ok(reason()?.is_empty() && sql::figure(&server, "devices_failed")? == 0)
    })?;
    told("is used again, after")?;
    load.stop_and_verify(place, server)
}

fn one_of_two_disks_fails(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "faulty")?;
    let both = format!(
        "{}:{}",
        volume.mountpoint().display(),
        place.cache().display()
    );
    let server = started(place, Path::new(&both), CACHE)?;
    let load = Pressure::create(place, &server)?;
    load.run(&server, Duration::from_secs(3))?;
    volume.add_fault(Fault::error(Operation::Any));
    load.run(&server, Duration::from_secs(4))?;
    sql::expect_state(&server, "active")?;
    let before = sql::figure(&server, "hits")?;
    load.run(&server, Duration::from_secs(3))?;
    ensure!(
        sql::figure(&server, "hits")? > before,
        "the other disk is not used any more"
    );
    note(device(&server));
    load.stop_and_verify(place, server)?;
    volume.unmount()?;
    Ok(())
}

/// Only reads, then only writes, fail permanently: the disk is suspended after a few errors, the reason is reported, and the
/// disk is used again after the fault.
fn only_reads_or_only_writes_fail(place: &Place) -> Outcome {
    let volume = mounts::disk_with_faults(place, "faulty")?;
    let server = started(place, volume.mountpoint(), CACHE)?;
    let load = Pressure::create(place, &server)?;
    for operation in [Operation::Read, Operation::Write] {
        load.run(&server, Duration::from_secs(1))?;
        let before = sql::figure(&server, "device_errors")?;
        volume.add_fault(Fault::error(operation));
        load.run(&server, Duration::from_secs(2))?;
        sql::wait_until("left alone", Duration::from_secs(60), || {
            load.ledger.run(&server, Duration::from_millis(300))?;
            Ok(!sql::status(&server, "state_reason")?.is_empty())
        })?;
        let errors = sql::figure(&server, "device_errors")? - before;
        let reason = sql::status(&server, "state_reason")?;
        note(format!("{operation:?}: {errors} errors; '{reason}'"));
        ensure!((1..=64).contains(&errors), "{operation:?}: {errors} errors");
        ensure!(reason.contains("os error 5"), "{reason}");
        volume.clear_faults();
        sql::wait_until("taken back", Duration::from_secs(60), || {
            load.ledger.run(&server, Duration::from_millis(300))?;
            Ok(sql::status(&server, "state_reason")?.is_empty())
        })?;
        load.ledger.verify(&server)?;
        // The delay until a disk is tried again doubles with every failure.
        server.sql("SET GLOBAL bpe_enabled = OFF")?;
        server.sql("SET GLOBAL bpe_enabled = ON")?;
    }
    load.stop_and_verify(place, server)?;
    volume.unmount()?;
    Ok(())
}

/// A library that refuses threads to bpe.so only, while a file exists.
const REFUSES_THREADS: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef int (*create_t)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument) {
    Dl_info caller;
    const char *file = getenv("REFUSE_THREADS");
    if (file && access(file, F_OK) == 0 && dladdr(__builtin_return_address(0), &caller) && caller.dli_fname
        && strstr(caller.dli_fname, "bpe.so"))
        return EAGAIN;
    return ((create_t)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, start, argument);
}
"#;

/// The refused resource is available again: enabled, the extension serves, and persists its cache at the stop.
fn serves_again(place: &Place, server: Server, ledger: &Ledger) -> Outcome {
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 0)?;
    ledger.verify(&server)?;
    server.stop()?;
    place.expect_left()?;
    Ok(())
}

fn threads_are_refused(place: &Place) -> Outcome {
    let (source, shim) = (
        place.root().join("refuse.c"),
        place.root().join("refuse.so"),
    );
    let refused = place.root().join("refused");
    std::fs::write(&source, REFUSES_THREADS)?;
    let status = std::process::Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&shim, &source])
        .arg("-ldl")
        .status()
        .context("cc")?;
    ensure!(status.success(), "cc ended with {status}");
    let options = |options: Options| {
        options
            .preload(&shim)
            .environment("REFUSE_THREADS", &refused.display().to_string())
    };
    // The server starts without the cache.
    std::fs::write(&refused, "")?;
    let server = place.start(options(place.early(CACHE)?))?;
    let ledger = ledger(&server)?;
    ledger.run(&server, Duration::from_secs(1))?;
    sql::expect_state(&server, "failed")?;
    let reason = sql::status(&server, "state_reason")?;
    note(format!("at the start: '{reason}'"));
    ensure!(reason.contains("thread"), "{reason}");
    // The extension starts automatically when threads are available again.
    std::fs::remove_file(&refused)?;
    sql::wait_until("switched on", Duration::from_secs(30), || {
        Ok(sql::status(&server, "state")? == "active")
    })?;
    // The statement is refused with the reason.
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    std::fs::write(&refused, "")?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains("thread"), "{said}");
    ledger.run(&server, Duration::from_secs(1))?;
    std::fs::remove_file(&refused)?;
    serves_again(place, server, &ledger)
}

/// The kernel refuses more memory to the process: the statement reports it, and succeeds when memory is available again.
fn memory_is_refused(place: &Place) -> Outcome {
    let server = started(place, &place.cache(), CACHE)?;
    let ledger = ledger(&server)?;
    let mut connection = server.connect()?;
    let with_it = mapped_bytes(&server)?;
    connection.query_drop("SET GLOBAL bpe_enabled = OFF")?;
    // The old cache's memory must be released before the limit is set.
    sql::wait_until("memory is given back", Duration::from_secs(20), || {
        Ok(mapped_bytes(&server)? + (1 << 20) < with_it)
    })?;
    let pid = rustix::process::Pid::from_raw(server.pid() as i32).context("a pid")?;
    let limit = |bytes| {
        let (current, maximum) = (bytes, None);
        rustix::process::prlimit(
            Some(pid),
            rustix::process::Resource::As,
            rustix::process::Rlimit { current, maximum },
        )
    };
    // Too little for a cache, and enough for the statement itself.
    limit(Some(mapped_bytes(&server)? + (256 << 10)))?;
    let said = connection.query_drop("SET GLOBAL bpe_enabled = ON");
    limit(None)?;
    let said = said
        .err()
        .context("switched on without memory")?
        .to_string();
    note(format!("'{said}'"));
    ensure!(said.to_lowercase().contains("memory"), "{said}");
    ledger.run(&server, Duration::from_secs(1))?;
    serves_again(place, server, &ledger)
}

/// Bytes of address space that a server has mapped.
fn mapped_bytes(server: &Server) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let kibibytes = status
        .lines()
        .find_map(|line| line.strip_prefix("VmSize:"))
        .and_then(|rest| rest.split_whitespace().next())
        .context("no VmSize")?;
    Ok(kibibytes.parse::<u64>()? << 10)
}

/// Moves the place's data directory to a disk with faults on command.
fn failing_data_disk(place: &Place) -> anyhow::Result<Volume> {
    let volume = mounts::disk_with_faults(place, "disk")?;
    let backing = place.root().join("disk-backing");
    std::fs::rename(place.data(), backing.join("data"))?;
    Ok(volume)
}

/// Options of a server without the plugin, with its data on that disk.
fn on_the_disk(place: &Place, volume: &Volume) -> Options {
    let data = volume.mountpoint().join("data");
    place.options_of(&data.display().to_string(), "run")
}

/// Reads of a data file fail: the server behaves as without the plugin, and an error is never taken for a page.
fn data_disk_fails(place: &Place) -> Outcome {
    const ROWS: u32 = 9000;
    let volume = failing_data_disk(place)?;
    let without = || on_the_disk(place, &volume);
    let with = || {
        let library = place.library()?;
        anyhow::Ok(place::extended(without(), library, &place.cache(), CACHE))
    };
    let server = place.start(without())?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, 1300, "")?;
    server.stop()?;
    // Outcome of a statement, and of the server, when the file cannot be read.
    let outcome = |options: Options| -> anyhow::Result<String> {
        let mut server = place.start(options)?;
        let mut connection = server.connect()?;
        connection.query_drop("SELECT id FROM d.t WHERE id = 1")?;
        volume.add_fault(Fault {
            path_suffix: Some("/d/t.ibd".into()),
            ..Fault::error(Operation::Read)
        });
        let read = sql::verify_pads(&mut connection, "d.t", 1300);
        std::thread::sleep(Duration::from_millis(500));
        let alive = server.is_running();
        volume.clear_faults();
        let code = match read {
            Ok(rows) => format!("{rows} rows"),
            Err(error) => match error.downcast_ref() {
                Some(mysql::Error::MySqlError(error)) => {
                    format!("error {}", error.code)
                }
                _ => "connection lost".into(),
            },
        };
        if alive {
            // Failed pages are read again.
            let rows = sql::verify_pads(&mut server.connect()?, "d.t", 1300);
            server.stop()?;
            return Ok(format!("{code}; then {} rows", rows.unwrap_or_default()));
        }
        server.kill();
        Ok(format!("{code}; the server ended"))
    };
    let expected = outcome(without())?;
    let seen = outcome(with()?)?;
    note(format!("without the plugin: {expected}; with it: {seen}"));
    ensure!(seen == expected, "'{seen}' instead of '{expected}'");
    let server = place.start(with()?)?;
    for _ in 0..2 {
        ensure!(sql::verify_pads(&mut server.connect()?, "d.t", 1300)? == ROWS);
    }
    // Cached pages need no data disk.
    sql::wait_until("pages are cached", Duration::from_secs(20), || {
        sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
        Ok(sql::figure(&server, "hits")? > 100)
    })?;
    server.stop()?;
    volume.unmount()?;
    Ok(())
}

/// Writes to a data file fail: the server behaves as without the plugin. Committed data is there when the disk works again.
fn data_disk_fails_to_write(place: &Place) -> Outcome {
    const ROWS: u32 = 9000;
    /// Few enough to wait in the pool.
    const CHANGED: u32 = 500;
    let volume = failing_data_disk(place)?;
    let without = || on_the_disk(place, &volume);
    let server = place.start(without())?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, 1300, "")?;
    server.stop()?;
    let sum_of =
        |server: &Server| sql::number(server, "SELECT SUM(v) FROM d.t FORCE INDEX (PRIMARY)");
    // Whether the server survives, and the sum after a restart.
    let outcome = |options: Options, before: u64| -> anyhow::Result<(&'static str, u64)> {
        let mut server = place.start(options)?;
        let mut connection = server.connect()?;
        volume.add_fault(Fault {
            path_suffix: Some("/d/t.ibd".into()),
            ..Fault::error(Operation::Write)
        });
        let updated =
            connection.query_drop(format!("UPDATE d.t SET v = v + 1 WHERE id <= {CHANGED}"));
        // Forces all dirty pages to be written. The connection may be lost.
        let _ = connection.query_drop("SET GLOBAL innodb_max_dirty_pages_pct = 0");
        std::thread::sleep(Duration::from_secs(4));
        let alive = server.is_running();
        volume.clear_faults();
        // A server that has already written one of the pages, and so ended, need not complete the statement.
        ensure!(updated.is_ok() || !alive, "{updated:?}");
        let check = |sum: u64| -> Outcome {
            let all = sum == before + u64::from(CHANGED);
            ensure!(
                all || updated.is_err() && sum == before,
                "{sum} after {before}; {updated:?}"
            );
            Ok(())
        };
        if alive {
            check(sum_of(&server)?)?;
            server.stop()?;
        } else {
            server.kill();
        }
        let server = place.start(without())?;
        let sum = sum_of(&server)?;
        check(sum)?;
        integration_tests::verification::check_tables(&server)?;
        server.stop()?;
        Ok((if alive { "it lives on" } else { "it ends" }, sum))
    };
    let (expected, sum) = outcome(without(), 0)?;
    let with = place::extended(without(), place.library()?, &place.cache(), CACHE);
    let (seen, _) = outcome(with, sum)?;
    note(format!("without the plugin {expected}; with it {seen}"));
    ensure!(seen == expected, "'{seen}' instead of '{expected}'");
    volume.unmount()?;
    Ok(())
}
