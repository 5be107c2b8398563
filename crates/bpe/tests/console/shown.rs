//! The console executes the plan that was shown: the digest confirms a plan, and an outdated plan is refused.

use std::fs;
use std::process::Command;

use anyhow::{Context, ensure};
use integration_tests::console::{Console, expect};
use integration_tests::harness::Outcome;
use integration_tests::{Place, sql};
use serde_json::{Value, json};

use super::{MIB, POOL, cache, library_path, open, pool, start};

/// The plan for the request, and the request that confirms it.
fn shown(console: &Console, request: &Value) -> anyhow::Result<(Value, Value)> {
    let path = "/api/servers/main/plan";
    let (status, plan) = console.ask("POST", path, Some(request.clone()))?;
    ensure!(status == 200 && plan["refused"].is_null(), "{plan}");
    let mut confirmed = request.clone();
    confirmed["digest"] = plan["digest"].clone();
    ensure!(confirmed["digest"].is_string(), "{plan}");
    Ok((plan, confirmed))
}

/// The confirmation is refused, names these parts as different, and returns the current plan.
fn expect_refused(console: &Console, confirmed: &Value, parts: &[&str]) -> anyhow::Result<Value> {
    let path = "/api/servers/main/switch";
    let answer = console.ask("POST", path, Some(confirmed.clone()))?;
    expect(
        &answer,
        409,
        &[
            "no longer the one that was shown",
            "nothing was done",
            "confirm",
        ],
    )?;
    let differs = answer.1["differs"].as_array().context("what differs")?;
    for part in parts {
        ensure!(
            differs.iter().any(|known| known == part),
            "{part}: {}",
            answer.1
        );
    }
    Ok(answer.1["plan"].clone())
}

pub fn what_is_shown_is_what_is_done(place: &Place) -> Outcome {
    let server = start(place)?;
    let library = library_path()?;
    let console = open(place.root(), server.socket(), &["--library", &library])?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    let on = json!({"action": "on", "path": cache(place), "size": "128M"});
    let off = json!({"action": "off"});
    let done = |confirmed: &Value| {
        let task = console.switch(confirmed.clone())?;
        ensure!(task["state"] == "done", "{task}");
        Ok(())
    };

    // Values that vary without a change do not count: time, free space, the server's own figures.
    let (first, confirmed) = shown(&console, &on)?;
    fs::write(place.cache().join("other"), vec![1; 3 << 20])?;
    server.sql("CREATE DATABASE other")?;
    server.sql("CREATE TABLE other.other (id INT) ENGINE = InnoDB")?;
    std::thread::sleep(std::time::Duration::from_millis(1100));
    let (second, _) = shown(&console, &on)?;
    ensure!(first == second, "{first} {second}");
    fs::remove_file(place.cache().join("other"))?;
    // Another session resizes the pool, and the plan was based on the former size.
    server.sql(&format!(
        "SET GLOBAL innodb_buffer_pool_size = {}",
        POOL - 8 * MIB
    ))?;
    let plan = expect_refused(&console, &confirmed, &["pool", "plan"])?;
    ensure!(plan["changes"].to_string().contains("56 MiB"), "{plan}");
    ensure!(server.status("bpe%")?.is_empty(), "nothing was done");
    ensure!(!place.root().join("state").exists(), "nothing was written");
    server.sql(&format!("SET GLOBAL innodb_buffer_pool_size = {POOL}"))?;
    // A digest confirms no other request.
    let mut other = confirmed.clone();
    other["size"] = json!("96M");
    expect_refused(&console, &other, &["request"])?;
    other = off.clone();
    other["digest"] = confirmed["digest"].clone();
    expect_refused(&console, &other, &["request"])?;
    done(&confirmed)?;
    sql::expect_state(&server, "active")?;

    // Two pages send the same request: the second one learns that it is done.
    let (_, confirmed) = shown(&console, &off)?;
    done(&confirmed)?;
    let plan = expect_refused(&console, &confirmed, &["settings", "plan"])?;
    ensure!(plan["changes"] == json!([]), "{plan}");
    sql::expect_state(&server, "disabled")?;
    // Another session has changed a setting that the cache is built from.
    let on = json!({"action": "on"});
    let (_, confirmed) = shown(&console, &on)?;
    server.sql(&format!("SET GLOBAL bpe_size = {}", 96 * MIB))?;
    let plan = expect_refused(&console, &confirmed, &["settings"])?;
    sql::expect_state(&server, "disabled")?;
    let mut confirmed = confirmed;
    confirmed["digest"] = plan["digest"].clone();
    done(&confirmed)?;

    // A change that was possible no longer is.
    done(&shown(&console, &off)?.1)?;
    let folder = place.root().join("elsewhere");
    fs::create_dir(&folder)?;
    let (_, confirmed) = shown(
        &console,
        &json!({"action": "on", "path": folder, "size": "64M"}),
    )?;
    fs::remove_dir(&folder)?;
    let plan = expect_refused(&console, &confirmed, &["plan"])?;
    ensure!(
        plan["refused"].to_string().contains("does not exist") && plan["digest"].is_null(),
        "{plan}"
    );

    // The command was faster.
    let uninstall = json!({"action": "off", "uninstall": true});
    let (_, confirmed) = shown(&console, &uninstall)?;
    let disabled = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args([
            "disable",
            "--no-defaults",
            "--user=root",
            "--yes",
            "--state-dir",
        ])
        .arg(place.root().join("state"))
        .arg("--socket")
        .arg(server.socket())
        .output()?;
    ensure!(disabled.status.success(), "{disabled:?}");
    let plan = expect_refused(&console, &confirmed, &["plan"])?;
    ensure!(
        plan["changes"] == json!([]) && pool(&server)? == POOL,
        "{plan}"
    );
    drop(console);
    server.stop()?;
    Ok(())
}
