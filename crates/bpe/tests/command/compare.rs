//! `bpe compare` on real servers: its verdict, the requests that it refuses, and the state that it restores at every kind of
//! end.

use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use cloud_volume::{CloudVolume, Profile, Volume};
use integration_tests::console::Console;
use integration_tests::harness::Outcome;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::place::{READ_TIMEOUT, copy_folder, extended};
use integration_tests::trace::CREATE_FUNCTION;
use integration_tests::{Place, Server, Suite, library, note, skip, sql};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::record;

/// Several times the pool.
const ROWS: u32 = 16_000;
const WIDTH: u32 = 2000;
const CACHE: u64 = 64 << 20;
const CLIENTS: u32 = 2;
/// Pause between two statements of a client.
const PAUSE: Duration = Duration::from_millis(1);
/// Timeout for an event that takes some seconds on an idle machine.
const SOON: Duration = Duration::from_secs(60);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("compare")
        .in_turn("finds_what_there_is_to_find", finds)
        .in_turn("leaves_the_server_serving", leaves_the_server_serving)
        .in_turn("refuses_what_cannot_be_compared", refuses)
        .in_turn("the_console_compares", the_console_compares)
}

fn start_as(server: &Server, user: &str, arguments: &[&str]) -> anyhow::Result<Child> {
    record::start_as(server, user, "compare", arguments)
}

fn start(server: &Server, arguments: &[&str]) -> anyhow::Result<Child> {
    start_as(server, "root", arguments)
}

/// Waits for the end; returns standard output. Standard output and standard error together must contain `parts`.
fn finish(child: Child, code: i32, parts: &[&str]) -> anyhow::Result<String> {
    let output = child.wait_with_output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let all = format!("{text}{}", String::from_utf8_lossy(&output.stderr));
    let words: Vec<_> = all.split_whitespace().collect();
    ensure!(
        output.status.code() == Some(code),
        "{} instead of {code}:\n{all}",
        output.status
    );
    for part in parts {
        let found = words.join(" ").contains(part);
        ensure!(found, "`{part}` is missing in:\n{all}");
    }
    Ok(text)
}

fn compare(server: &Server, arguments: &[&str]) -> anyhow::Result<Value> {
    let text = finish(start(server, &[arguments, &["--json"]].concat())?, 0, &[])?;
    serde_json::from_str(&text).with_context(|| text.clone())
}

/// The variables that a comparison changes.
fn switches(server: &Server) -> anyhow::Result<Vec<String>> {
    let all = server.variables("bpe\\_%")?;
    let names = ["bpe_bypass", "bpe_bypass_timeout"];
    let values = names.map(|name| all.get(name).cloned().context(name));
    values.into_iter().collect()
}

fn is_as_before(server: &Server, before: &[String]) -> Outcome {
    let now = switches(server)?;
    ensure!(now == before, "{now:?} instead of {before:?}");
    sql::expect_state(server, "active")
}

/// Ends the clients, also when a test panics.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` while clients read rows at random.
fn under_load<T>(server: &Server, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let done = &done;
                scope.spawn(move || -> Outcome {
                    let mut random = fastrand::Rng::with_seed(u64::from(client));
                    let mut connection = server.connect()?;
                    while !done.load(Ordering::Relaxed) {
                        let id = random.u32(1..=ROWS);
                        connection.query_drop(format!("SELECT pad FROM d.t WHERE id = {id}"))?;
                        std::thread::sleep(PAUSE);
                    }
                    Ok(())
                })
            })
            .collect();
        let result = {
            let _ending = Ending(&done);
            work()
        };
        for client in clients {
            client.join().expect("a client does not panic")?;
        }
        result
    })
}

fn volume(place: &Place) -> anyhow::Result<Volume> {
    let (backing, folder) = (place.root().join("backing"), place.root().join("slow"));
    std::fs::create_dir(&backing)?;
    std::fs::create_dir(&folder)?;
    CloudVolume::mount(&backing, &folder, Profile::unlimited())
        .map_err(|error| skip(format!("no FUSE file system: {error}")))
}

fn fill(server: &Server) -> Outcome {
    server.sql(CREATE_FUNCTION)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, WIDTH, "")?;
    for _ in 0..2 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    Ok(())
}

/// The volume is slow and the cache holds everything, so the difference in time is significant.
fn finds(place: &Place) -> Outcome {
    let data = volume(place)?;
    copy_folder(&place.data(), &data.mountpoint().join("data"))?;
    let options = place.options_of("slow/data", "run");
    let options = extended(options, &library::canary()?, &place.cache(), CACHE);
    // A cache disk slowed down by other tests would be suspended for a while, and serving would equal bypass.
    let server = place.start(options.environment(READ_TIMEOUT, "0"))?;
    fill(&server)?;
    data.set_profile(Profile {
        latency: Duration::from_millis(20),
        ..Profile::unlimited()
    });
    server.sql("SET GLOBAL bpe_bypass_timeout = 77")?;
    let before = switches(&server)?;

    under_load(&server, || {
        // The comparison ends as soon as bypass slows the server down.
        let hurt = compare(&server, &["--minutes", "1", "--slice", "5"])?;
        ensure!(hurt["ended"] == "bypass hurt", "{hurt:#}");
        let after = hurt["hurt_after_s"].as_f64().context("no time")?;
        note(format!("{} after {after:.1} s", hurt["why"]));
        ensure!(
            after > 1.0 && hurt["hurt_percent"].as_f64() < Some(50.0),
            "{hurt:#}"
        );
        is_as_before(&server, &before)?;

        let arguments = ["--minutes", "1.4", "--slice", "2", "--limit", "0"];
        let report = compare(&server, &arguments)?;
        note(format!("{}", report["figures"][0]));
        ensure!(
            report["ended"] == "complete" && report["pairs"] == 21,
            "{report:#}"
        );
        ensure!(report["verdict"] == "better", "{report:#}");
        for (name, better) in [("statements_per_s", "more"), ("read_mean_us", "less")] {
            let figures = report["figures"].as_array().context("no figures")?;
            let row = figures.iter().find(|row| row["name"] == name);
            let row = row.context(name)?;
            ensure!(row["found"] == "better", "{row:#}");
            let number = |of: &str| row[of].as_f64().with_context(|| format!("{of}: {row:#}"));
            let (low, high) = (number("low")?, number("high")?);
            ensure!(
                (low..=high).contains(&number("difference")?) && (low > 0.0) == (better == "more"),
                "{row:#}"
            );
            let more = number("serving")? > number("bypass")?;
            ensure!(more == (better == "more"), "{row:#}");
            let pairs = row["differences"].as_array().map(Vec::len);
            ensure!(pairs == Some(21), "{row:#}");
        }
        Ok(())
    })?;
    is_as_before(&server, &before)?;
    server.stop()?;
    data.unmount()?;
    Ok(())
}

/// Waits until the comparison has begun a slice of bypass.
fn bypass_begins(server: &Server) -> Outcome {
    sql::wait_until("bypass begins", SOON, || {
        Ok(sql::status(server, "bypass")? == "refill")
    })
}

fn leaves_the_server_serving(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    fill(&server)?;
    server.sql("SET GLOBAL bpe_bypass_timeout = 77")?;
    let before = switches(&server)?;
    let arguments = ["--minutes", "2", "--slice", "4", "--limit", "0"];
    under_load(&server, || {
        for signal in [Signal::INT, Signal::TERM] {
            let child = start(&server, &arguments)?;
            bypass_begins(&server)?;
            kill_process(Pid::from_child(&child), signal)?;
            finish(child, 0, &["told to stop", "15 pairs", "--minutes 3"])?;
            is_as_before(&server, &before)?;
        }

        // Its connection is killed; it logs in once more.
        let child = start(&server, &arguments)?;
        bypass_begins(&server)?;
        let id = sql::number(&server, "SELECT IS_USED_LOCK('bpe compare')")?;
        server.sql(&format!("KILL {id}"))?;
        finish(child, 4, &["ended early"])?;
        is_as_before(&server, &before)?;

        // Another session turns the switch off.
        let child = start(&server, &arguments)?;
        bypass_begins(&server)?;
        server.sql("SET GLOBAL bpe_bypass = OFF")?;
        finish(child, 4, &["somebody else"])?;
        is_as_before(&server, &before)?;

        // The command is killed: bypass and control group end automatically.
        let mut child = start(&server, &arguments)?;
        bypass_begins(&server)?;
        child.kill()?;
        child.wait()?;
        sql::wait_until("bypass ends", SOON, || {
            let compares = sql::report(&server, "summary")?["compares"] == true;
            Ok(switches(&server)?[0] == "OFF" && !compares)
        })?;
        sql::expect_state(&server, "active")?;
        // Its timeout stays set, and `doctor` reports it.
        ensure!(switches(&server)?[1] == "9", "{:?}", switches(&server)?);
        let doctor = Command::new(env!("CARGO_BIN_EXE_bpe"))
            .args(["doctor", "--no-measure", "--size", "64M", "--path"])
            .arg(place.cache())
            .args(["--no-defaults", "--user", "root", "--socket"])
            .arg(server.socket())
            .output()?;
        let said = String::from_utf8_lossy(&doctor.stdout);
        let told =
            said.contains("bpe_bypass_timeout is 9") && said.contains("bpe_bypass_timeout = 0");
        ensure!(told, "{doctor:?}");
        let child = start(&server, &arguments)?;
        bypass_begins(&server)?;
        kill_process(Pid::from_child(&child), Signal::INT)?;
        finish(child, 0, &["bpe_bypass_timeout was 9 s before", "= 0"])?;
        ensure!(switches(&server)?[1] == "9", "{:?}", switches(&server)?);
        Ok(())
    })?;
    server.stop()?;
    Ok(())
}

fn refuses(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    let short = ["--minutes", "0.2", "--slice", "2", "--limit", "0"];
    let run = |code: i32, arguments: &[&str], parts: &[&str]| {
        finish(start(&server, arguments)?, code, parts).map(drop)
    };
    run(1, &short, &["not installed"])?;
    place.install(&server, CACHE)?;
    run(1, &short, &["disabled", "bpe_enabled = ON"])?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    fill(&server)?;
    run(1, &short, &["idle"])?;
    let before = switches(&server)?;
    for (wrong, text) in [
        (["--minutes", "0"], "0.1 to 480"),
        (["--slice", "1"], "2..=60"),
        (["--limit", "100"], "0..=99"),
        (["--minutes", "400"], "are enough"),
    ] {
        let more: &[&str] = if text == "are enough" {
            &["--slice", "2"]
        } else {
            &[]
        };
        run(2, &[&wrong, more].concat(), &[text])?;
    }
    server.sql("SET GLOBAL bpe_bypass = ON")?;
    run(
        1,
        &short,
        &["bpe_bypass is ON already", "SET GLOBAL bpe_bypass = OFF"],
    )?;
    server.sql("SET GLOBAL bpe_bypass = OFF")?;
    server.sql("CREATE USER nobody IDENTIFIED BY 'x'")?;
    let child = start_as(&server, "nobody", &short)?;
    finish(child, 1, &["lacks the rights", "GRANT"])?;
    is_as_before(&server, &before)?;

    under_load(&server, || {
        // Two comparisons at a time.
        let first = start(&server, &["--minutes", "5", "--limit", "0"])?;
        bypass_begins(&server)?;
        let second = start(&server, &short)?;
        let refused = second.wait_with_output()?;
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        ensure!(refused.status.code() == Some(1), "{text}");
        kill_process(Pid::from_child(&first), Signal::INT)?;
        finish(first, 0, &["told to stop"])?;
        ensure!(text.contains("another comparison"), "{text}");
        is_as_before(&server, &before)?;

        // Too few pairs for a verdict; the command prints the preliminary result.
        run(
            0,
            &[&short[..], &["--no-refill"]].concat(),
            &[
                "too few for a verdict",
                "3 pairs of 2 s",
                "20 pairs for a verdict: --minutes 2",
                "95 % interval",
                "leave it",
            ],
        )?;
        is_as_before(&server, &before)
    })?;
    server.stop()?;
    Ok(())
}

fn the_console_compares(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    fill(&server)?;
    server.sql("SET GLOBAL bpe_bypass_timeout = 77")?;
    let before = switches(&server)?;
    let console = Console::start(
        env!("CARGO_BIN_EXE_bpe"),
        place.root(),
        server.socket(),
        &[],
    )?;
    console.wait("it is active", |shown| shown["state"] == "active")?;
    let post = |what: &str, body: Value, wanted: u16| -> Outcome {
        let path = format!("/api/servers/main/{what}");
        let (status, answer) = console.ask("POST", &path, Some(body))?;
        ensure!(status == wanted, "{what}: {status} {answer}");
        Ok(())
    };
    let wish = |minutes: f64| json!({"minutes": minutes, "slice_s": 4, "refill": true, "limit_percent": 0});
    under_load(&server, || {
        post("compare", wish(0.0), 400)?;
        post("compare", wish(5.0), 202)?;
        bypass_begins(&server)?;
        post("compare", wish(5.0), 409)?;
        post("switch", json!({"action": "off"}), 409)?;
        post("compare/stop", json!({}), 204)?;
        sql::wait_until("the comparison has ended", SOON, || {
            Ok(console.events()?.contains("the comparison has ended"))
        })?;
        is_as_before(&server, &before)?;
        let events = console.events()?;
        ensure!(!events.contains("is bypass"), "{events}");

        // The console ends only after everything is restored.
        post("compare", wish(5.0), 202)?;
        bypass_begins(&server)
    })?;
    console.end()?;
    is_as_before(&server, &before)?;
    server.stop()?;
    Ok(())
}
