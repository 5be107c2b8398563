//! State after the plugin or the server ends.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::{Outcome, Place, Server, Suite, library, sql, verification};

const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("stopping")
        .each("with_much_to_flush", with_much_to_flush)
        .each(
            "with_much_to_flush_installed_at_run_time",
            with_much_to_flush_at_run_time,
        )
        .each("by_signal", by_signal)
        .in_turn("threads_and_files", threads_and_files)
        .each("nothing_that_is_not_to_stay", nothing_that_is_not_to_stay)
}

/// MySQL flushes pages after it deinitialised a plugin that was installed at run time. These writes must reach the files.
fn flush_and_look(place: &Place, server: Server) -> Outcome {
    let ledger = Ledger::create(&server, 2, 5000, 2500, 6)?;
    server.sql("SET GLOBAL innodb_max_dirty_pages_pct = 90")?;
    ledger.run(&server, Duration::from_secs(5))?;
    server.sql("UPDATE ledger.t0 SET money = money + 1")?;
    server.sql("UPDATE ledger.t1 SET money = money - 1")?;
    server.stop()?;
    place.expect_left()?;
    verification::innochecksum(&place.installation, &place.data())?;
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}

fn with_much_to_flush(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?.buffer_pool(48 << 20))?;
    flush_and_look(place, server)
}

fn with_much_to_flush_at_run_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?.buffer_pool(48 << 20))?;
    place.install(&server, CACHE)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    flush_and_look(place, server)
}

/// SIGTERM, as init systems stop a server: a thread of the plugin must not take it.
fn by_signal(place: &Place) -> Outcome {
    for run_time in [false, true] {
        let server = if run_time {
            let server = place.start(place.installable()?)?;
            place.install(&server, CACHE)?;
            server.sql("SET GLOBAL bpe_enabled = ON")?;
            server
        } else {
            place.start(place.early(CACHE)?)?
        };
        let mut server = server;
        for thread in std::fs::read_dir(format!("/proc/{}/task", server.pid()))? {
            let folder = thread?.path();
            let name = std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
            if !name.starts_with("bpe") {
                continue;
            }
            let status = std::fs::read_to_string(folder.join("status"))?;
            let blocked = status
                .lines()
                .find_map(|line| line.strip_prefix("SigBlk:"))
                .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
                .unwrap_or(0);
            const TERM: u64 = 1 << 14;
            const USR1: u64 = 1 << 9;
            ensure!(
                blocked & TERM != 0 && blocked & USR1 != 0,
                "{name}: signals blocked {blocked:x}"
            );
        }
        let pid = rustix::process::Pid::from_raw(server.pid() as i32);
        rustix::process::kill_process(pid.expect("a pid"), rustix::process::Signal::TERM)?;
        sql::wait_until("the server ends", Duration::from_secs(60), || {
            Ok(!server.is_running())
        })?;
        place.expect_left()?;
        let log = std::fs::read_to_string(place.root().join("run/error.log"))?;
        ensure!(
            log.to_lowercase().contains("shutdown complete"),
            "no orderly shutdown in the log"
        );
        drop(server);
        // Uninstall after the round with the installed plugin.
        if run_time {
            let server = place.start(place.installable()?)?;
            server.sql(place.uninstall_statement())?;
            server.stop()?;
        }
    }
    Ok(())
}

fn threads_and_files(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    place.install(&server, CACHE)?;
    let open = |server: &Server| -> anyhow::Result<usize> {
        let mut count = 0;
        for entry in std::fs::read_dir(format!("/proc/{}/fd", server.pid()))? {
            let Ok(target) = std::fs::read_link(entry?.path()) else {
                continue;
            };
            count += usize::from(target.to_string_lossy().contains(".cache"));
        }
        Ok(count)
    };
    // The kernel takes a moment to remove an ended thread.
    let only_the_controller = || Ok(library::threads(&server)? == ["bpe-controller"]);
    sql::wait_until("one thread", Duration::from_secs(5), only_the_controller)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let threads = library::threads(&server)?;
    ensure!(
        threads.iter().any(|name| name.starts_with("bpe-writer")),
        "no thread of the extension: {threads:?}"
    );
    let files = place.cache_files();
    ensure!(files.len() == 1, "{files:?}");
    let (file, data) = (
        std::fs::metadata(&files[0])?,
        std::fs::metadata(place.data())?,
    );
    ensure!(file.mode() & 0o7777 == 0o600, "mode {:o}", file.mode());
    ensure!(file.uid() == data.uid(), "owner {}", file.uid());
    ensure!(
        file.len() <= CACHE,
        "{} bytes instead of {CACHE}",
        file.len()
    );
    ensure!(open(&server)? >= 1);
    Ledger::create(&server, 1, 3000, 2000, 4)?.run(&server, Duration::from_secs(2))?;

    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("threads and file are gone", Duration::from_secs(20), || {
        Ok(only_the_controller()? && place.cache_files().is_empty() && open(&server)? == 0)
    })?;
    server.sql(place.uninstall_statement())?;
    sql::wait_until("all threads are gone", Duration::from_secs(20), || {
        Ok(library::threads(&server)?.is_empty())
    })?;
    server.stop()?;
    Ok(())
}

/// OFF, UNINSTALL and an empty `bpe_persist_path` remove everything; the last also removes state persisted earlier.
fn nothing_that_is_not_to_stay(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let ledger = Ledger::create(&server, 1, 3000, 2000, 4)?;
    server.stop()?;
    place.expect_left()?;

    let off = || anyhow::Ok(place.early(CACHE)?.option("--bpe-persist-path="));
    let server = place.start(off()?)?;
    sql::expect_state(&server, "active")?;
    ensure!(place.kept().is_empty(), "{:?}", place.kept());
    ledger.run(&server, Duration::from_secs(1))?;
    server.stop()?;
    place.expect_nothing_left()?;

    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    place.expect_left()?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the cache file is gone", Duration::from_secs(20), || {
        Ok(place.cache_files().is_empty())
    })?;
    server.stop()?;
    place.expect_nothing_left()?;

    let server = place.start(place.installable()?)?;
    place.install(&server, CACHE)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    place.expect_left()?;
    server.sql(place.uninstall_statement())?;
    sql::wait_until("nothing is left", Duration::from_secs(20), || {
        Ok(place.expect_nothing_left().is_ok())
    })?;
    ledger.verify(&server)?;
    server.stop()?;
    place.expect_nothing_left()
}
