//! Cached pages survive the server process if their files cannot have changed in between.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::{Outcome, Place, Server, Suite, sql, verification};
use rustix::process::{Pid, Signal, kill_process};

/// Large enough for all data.
const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warm")
        .in_turn("installed_at_run_time", installed_at_run_time)
        .each("stopped_and_killed", stopped_and_killed)
        .each("a_crash_soon_after", a_crash_soon_after)
}

/// A server that crashes soon after it recovered a cache may have crashed because of it.
fn a_crash_soon_after(place: &Place) -> Outcome {
    let start = || place.start(place.early(CACHE)?);
    let server = start()?;
    let ledger = Ledger::small(&server)?;
    ledger.run(&server, Duration::from_secs(2))?;
    let inherited = |server: &Server| sql::figure(server, "pages_inherited");
    let signals = [Signal::SEGV, Signal::ABORT];
    let mut server = server;
    for signal in signals {
        // A crash of a server that has recovered nothing does not count.
        crash(server, signal)?;
        let warm = start()?;
        ensure!(inherited(&warm)? > 500, "cold after a crash by {signal:?}");
        ledger.settle(&warm)?;
        ledger.verify(&warm)?;
        crash(warm, signal)?;
        let cold = start()?;
        ensure!(inherited(&cold)? == 0, "warm after {signal:?}");
        let log = std::fs::read_to_string(cold.log())?;
        ensure!(log.contains("crashed within 10 minutes"), "not in the log");
        ledger.verify(&cold)?;
        ledger.run(&cold, Duration::from_secs(2))?;
        cold.stop()?;
        server = start()?;
        ensure!(inherited(&server)? > 500, "cold for more than once");
        server.stop()?;
        server = place.start(place.early(CACHE)?.option("--loose-bpe-persist-path="))?;
        ledger.run(&server, Duration::from_secs(2))?;
        server.stop()?;
        server = start()?;
        ensure!(inherited(&server)? == 0, "something was left");
        ledger.verify(&server)?;
    }
    server.stop()?;
    Ok(())
}

/// Pages cached by a plugin that was installed at run time are recovered by a server that loads it at the start.
fn installed_at_run_time(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    let ledger = Ledger::small(&server)?;
    place.install(&server, CACHE)?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    ledger.run(&server, Duration::from_secs(2))?;
    server.stop()?;
    let server = place.start(place.early(CACHE)?)?;
    let inherited = sql::figure(&server, "pages_inherited")?;
    ensure!(inherited > 500, "{inherited} pages inherited");
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}

fn crash(mut server: Server, signal: Signal) -> Outcome {
    let process = Pid::from_raw(server.pid() as i32).context("a process")?;
    kill_process(process, signal)?;
    sql::wait_until("the server ends", Duration::from_secs(60), || {
        Ok(!server.is_running())
    })
}

fn stopped_and_killed(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let ledger = Ledger::small(&server)?;
    ledger.run(&server, Duration::from_secs(3))?;
    let log = server.log().to_owned();
    server.stop()?;
    // Status variables end with the server; the log has the figures.
    let text = std::fs::read_to_string(log)?;
    let says = text.contains("the cache is left to the server's next start: it served ");
    ensure!(says, "not said what the cache did");
    for round in 0..6 {
        let server = place.start(place.early(CACHE)?)?;
        let inherited = sql::figure(&server, "pages_inherited")?;
        println!(
            "round {round}: {}",
            sql::report(&server, "summary")?["inherited"]
        );
        ledger.verify(&server)?;
        println!(
            "hits {} misses {}",
            sql::figure(&server, "hits")?,
            sql::figure(&server, "misses")?
        );
        ensure!(inherited > 500, "nothing was inherited");
        ledger.run(&server, Duration::from_secs(2))?;
        if round % 2 == 0 {
            server.stop()?;
        } else {
            server.kill();
        }
    }
    let server = place.start(place.roomy())?;
    ledger.verify(&server)?;
    verification::check_tables(&server)?;
    server.stop()?;
    Ok(())
}
