//! Tests the experience of `bpe-lab console` over its interface, on a real server: comparisons and manual
//! tests.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::console::{Console, expect};
use integration_tests::harness::Outcome;
use integration_tests::{Flavour, Place, Server, Suite, sql, trace};
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;

fn main() -> ExitCode {
    integration_tests::harness::run([Suite::new("experience").with(
        Flavour::MariaDb1011,
        "the_switch_is_left_as_it_was",
        the_switch_is_left_as_it_was,
    )])
}

/// Starts the console of `bpe-lab` for a server.
fn open(folder: &Path, socket: &Path, more: &[&str]) -> anyhow::Result<Console> {
    Console::start(env!("CARGO_BIN_EXE_bpe-lab"), folder, socket, more)
}

fn the_switch_is_left_as_it_was(place: &Place) -> Outcome {
    let server = place.start(place.early(64 * MIB)?)?;
    server.sql(trace::CREATE_FUNCTION)?;
    let console = open(place.root(), server.socket(), &[])?;
    console.wait("it is active", |server| server["state"] == "active")?;
    compared(&console, &server)?;
    ended_in_a_comparison(place, &server)?;
    by_hand(&console, &server)?;
    drop(console);
    server.stop()?;
    Ok(())
}

/// A comparison has exclusive use of the switch, and restores it after every outcome.
fn compared(console: &Console, server: &Server) -> Outcome {
    let begin = |sql: &str, seconds: u64| {
        let run = console.ask(
            "POST",
            "/api/experience/run",
            Some(json!({"test": "sql", "sql": sql, "mode": "compare", "threads": 1, "seconds": seconds})),
        )?;
        expect(&run, 202, &["running"])
    };
    let ends = |state: &str| {
        sql::wait_until("it ends", Duration::from_secs(60), || {
            Ok(console.get("/api/experience")?["run"]["state"] == state)
        })
    };
    let off = || {
        sql::wait_until("it is off", Duration::from_secs(60), || {
            Ok(server.value("SELECT @@bpe_enabled")?.as_deref() == Some("0"))
        })
    };
    sql::expect_state(server, "active")?;
    begin("SELECT 1", 600)?;
    off()?;
    for (what, body) in [
        ("switch", json!({"action": "on"})),
        ("settings", json!({"bpe_compression": "lz4"})),
    ] {
        let path = format!("/api/servers/main/{what}");
        let answer = console.ask("POST", &path, Some(body))?;
        expect(&answer, 409, &["comparison", "stop it"])?;
    }
    ensure!(console.ask("POST", "/api/experience/stop", None)?.0 == 204);
    ends("stopped")?;
    sql::expect_state(server, "active")?;
    // A statement that the server refuses.
    begin("SELECT nothing", 5)?;
    ends("failed")?;
    sql::expect_state(server, "active")?;
    // Switched by another client.
    begin("SELECT 1", 5)?;
    off()?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    ends("failed")?;
    let run = console.get("/api/experience")?["run"].clone();
    ensure!(
        run["error"].to_string().contains("the extension is active"),
        "{}",
        run["error"]
    );
    sql::expect_state(server, "active")?;
    Ok(())
}

/// A console that is ended during a comparison restores the switch first.
fn ended_in_a_comparison(place: &Place, server: &Server) -> Outcome {
    let console = open(place.root(), server.socket(), &[])?;
    let run =
        json!({"test": "sql", "sql": "SELECT 1", "mode": "compare", "threads": 1, "seconds": 600});
    let begun = console.ask("POST", "/api/experience/run", Some(run))?;
    expect(&begun, 202, &[])?;
    sql::wait_until("it is off", Duration::from_secs(60), || {
        Ok(server.value("SELECT @@bpe_enabled")?.as_deref() == Some("0"))
    })?;
    console.end()?;
    ensure!(
        server.value("SELECT @@bpe_enabled")?.as_deref() == Some("1"),
        "it is off after the console's end"
    );
    Ok(())
}

/// A manual test, switched while it runs.
fn by_hand(console: &Console, server: &Server) -> Outcome {
    let begin = |body: Value| console.ask("POST", "/api/experience/run", Some(body));
    let sql = "SELECT ';' ; -- nothing\nSELECT COUNT(*) FROM mysql.user;";
    expect(
        &begin(json!({"test": "sql", "sql": "; ;", "mode": "manual", "threads": 2, "seconds": 4}))?,
        400,
        &["no SQL statement"],
    )?;
    expect(
        &begin(json!({"test": "sql", "sql": sql, "mode": "manual", "threads": 0, "seconds": 4}))?,
        400,
        &["threads must be 1 to 256"],
    )?;
    let run =
        begin(json!({"test": "sql", "sql": sql, "mode": "manual", "threads": 2, "seconds": 60}))?;
    expect(&run, 202, &["running"])?;
    expect(
        &begin(json!({"test": "sql", "sql": sql, "mode": "manual", "threads": 2, "seconds": 4}))?,
        409,
        &["stop it"],
    )?;
    let mut live = console.live()?;
    let seen =
        |enabled: bool| move |line: &Value| line["type"] == "run" && line["enabled"] == enabled;
    ensure!(
        live.any(|line| seen(true)(&line) && line["qps"].as_f64() > Some(1.0)),
        "a second with it"
    );
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    ensure!(live.any(|line| seen(false)(&line)), "a second without it");
    ensure!(console.ask("POST", "/api/experience/stop", None)?.0 == 204);
    sql::wait_until("it ends", Duration::from_secs(30), || {
        Ok(console.get("/api/experience")?["run"]["state"] == "stopped")
    })?;
    let results = console.get("/api/experience")?["results"].clone();
    ensure!(
        results[0]["on"]["qps"].is_number() && results[0]["gain_percent"].is_number(),
        "{results}"
    );
    let id = results[0]["id"].as_str().context("id")?.to_owned();
    let bearer = console.bearer();
    let path = format!("/api/experience/results/{id}");
    let (status, head, text) = console.raw("GET", &path, &[("Authorization", &bearer)], "")?;
    ensure!(
        status == 200 && head.contains("attachment") && text.contains("\"points\""),
        "{head}"
    );
    let (status, _, text) = console.raw(
        "GET",
        &format!("{path}?format=html"),
        &[("Authorization", &bearer)],
        "",
    )?;
    ensure!(
        status == 200 && text.contains("<svg") && !text.contains("http"),
        "{text}"
    );
    // A failing statement ends the test, with the server's message.
    let run = begin(
        json!({"test": "sql", "sql": "SELECT nothing", "mode": "manual", "threads": 1, "seconds": 5}),
    )?;
    expect(&run, 202, &[])?;
    sql::wait_until("it fails", Duration::from_secs(30), || {
        let run = console.get("/api/experience")?["run"].clone();
        Ok(run["state"] == "failed" && run["error"].to_string().contains("nothing"))
    })
}
