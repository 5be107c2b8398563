//! Tests the experience over its interface: a user's sysbench script, compared to its result, which is stored in a file.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::console::{Console, expect};
use integration_tests::harness::{Outcome, note, skip};
use integration_tests::{Place, sql};
use serde_json::{Value, json};

use super::{MIB, open};

/// Reads rows of the table `own`.
const OWN: &str = "sysbench.cmdline.options = {
   rows = {\"Rows of the table\", 10},
   [\"other-option\"] = {\"Not used\", \"x\"},
}
function thread_init()
   connection = sysbench.sql.driver():connect()
end
function event()
   connection:query(\"SELECT v FROM own WHERE id = \" .. sysbench.rand.uniform(1, sysbench.opt.rows))
end
";

/// Never begins, prints nothing, and starts another program.
const HANGING: &str = "function init()
   os.execute(\"sleep 600 & echo $! > sleeping; wait\")
end
function event() end
";

fn write(folder: &Path, name: &str, text: &str) -> Outcome {
    let path = folder.join(name);
    fs::write(&path, text)?;
    Ok(fs::set_permissions(
        &path,
        fs::Permissions::from_mode(0o644),
    )?)
}

pub fn a_script_of_ones_own(place: &Place) -> Outcome {
    if Command::new("sysbench").arg("--version").output().is_err() {
        return Err(skip("sysbench is not installed: apt-get install sysbench"));
    }
    let server = place.start(place.early_disabled(64 * MIB)?)?;
    server.sql("CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'")?;
    server.sql("CREATE DATABASE sbtest")?;
    server.sql(
        "CREATE TABLE sbtest.own AS WITH RECURSIVE n AS (SELECT 1 AS id UNION ALL SELECT id + 1 FROM n WHERE id < 100) \
         SELECT id, 'row' AS v FROM n",
    )?;
    let folder = place.root().join("scripts");
    fs::create_dir(&folder)?;
    write(&folder, "own.lua", OWN)?;
    write(&folder, "hanging.lua", HANGING)?;
    write(&folder, "broken.lua", "this is no Lua")?;
    write(&folder, "notes.txt", "no script")?;
    write(place.root(), "outside.lua", OWN)?;
    symlink("../outside.lua", folder.join("link.lua"))?;

    // Others could write scripts there.
    let shown = folder.display().to_string();
    let below = folder.join("below");
    fs::create_dir(&below)?;
    fs::set_permissions(&below, fs::Permissions::from_mode(0o755))?;
    let refused_in = |folder: &Path, part: &str| -> Outcome {
        let output = Command::new(env!("CARGO_BIN_EXE_bpe-lab"))
            .args(["console", "--listen=127.0.0.1:0", "--scripts"])
            .arg(folder)
            .args(["--no-defaults", "--socket"])
            .arg(server.socket())
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && text.contains(part), "{text}");
        Ok(())
    };
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o777))?;
    for folder in [&folder, &below] {
        refused_in(folder, "others can write to it")?;
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755))?;

    // No directory is the default.
    let console = open(place.root(), server.socket(), &[])?;
    let begin = |console: &Console, changes: Value| {
        let mut body = json!({"test": "script", "script": "own.lua", "mode": "manual", "threads": 2, "seconds": 3});
        for (name, value) in changes.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        console.ask("POST", "/api/experience/run", Some(body))
    };
    ensure!(console.get("/api/experience")?["scripts"].is_null());
    expect(
        &begin(&console, json!({}))?,
        409,
        &["no folder", "--scripts"],
    )?;
    drop(console);

    let arguments = ["--scripts", shown.as_str()];
    let console = open(place.root(), server.socket(), &arguments)?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    let offered = console.get("/api/experience")?;
    ensure!(
        offered["scripts"]["names"] == json!(["broken.lua", "hanging.lua", "own.lua"]),
        "{offered}"
    );
    // A module that others can change would run as well.
    write(&below, "common.lua", "")?;
    let module = below.join("common.lua");
    fs::set_permissions(&module, fs::Permissions::from_mode(0o666))?;
    let shown = console.get("/api/experience")?;
    let why = "below/common.lua: others can write to it";
    ensure!(
        shown["scripts"]["names"] == json!([])
            && shown["scripts"]["reason"]
                .as_str()
                .is_some_and(|text| text.contains(why)),
        "{shown}"
    );
    expect(&begin(&console, json!({}))?, 400, &[why])?;
    fs::set_permissions(&module, fs::Permissions::from_mode(0o644))?;
    // sysbench's own tests lack their tables here; that does not matter.
    ensure!(offered["tests"] == json!(["script", "sql"]), "{offered}");
    for name in [
        "../outside.lua",
        "link.lua",
        "notes.txt",
        "",
        "oltp_read_only",
        "/etc/passwd",
    ] {
        let answer = begin(&console, json!({"script": name}))?;
        expect(
            &answer,
            400,
            &["there are broken.lua, hanging.lua, own.lua"],
        )?;
    }
    for (option, part) in [
        (
            "config-file=x",
            "no option `config-file`; it has other-option, rows",
        ),
        ("mysql-host=127.0.0.1", "no option `mysql-host`"),
        ("threads=99", "no option `threads`"),
        ("rows=/etc/passwd", "the value of `rows`"),
        ("rows", "name=value"),
    ] {
        let answer = begin(&console, json!({"options": [option]}))?;
        expect(&answer, 400, &[part])?;
    }
    let answer = begin(&console, json!({"threads": 1000}))?;
    expect(&answer, 400, &["threads must be 1 to 256"])?;
    let answer = begin(&console, json!({"script": "broken.lua"}))?;
    expect(&answer, 400, &["cannot load the script", "broken.lua"])?;

    stopped(
        &console,
        &folder,
        begin(&console, json!({"script": "hanging.lua"}))?,
    )?;
    let run = begin(
        &console,
        json!({"mode": "compare", "options": ["rows=100", "--other_option=y"]}),
    )?;
    expect(&run, 202, &["own.lua", "--rows=100"])?;
    compared(&console)?;
    sql::expect_state(&server, "disabled")?;
    drop(console);
    server.stop()?;
    Ok(())
}

/// A script without output ends when it is stopped, with its child processes.
fn stopped(console: &Console, folder: &Path, run: (u16, Value)) -> Outcome {
    expect(&run, 202, &["hanging.lua"])?;
    let started = folder.join("sleeping");
    sql::wait_until("it hangs", Duration::from_secs(60), || {
        Ok(fs::read_to_string(&started).is_ok_and(|text| text.ends_with('\n')))
    })?;
    let pid = fs::read_to_string(&started)?;
    let runs = || {
        let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
        state.is_ok_and(|text| !text.contains(") Z "))
    };
    ensure!(runs(), "it has started another program");
    // A second script is not even loaded, which would fail.
    let another = json!({"test": "script", "script": "broken.lua", "mode": "manual", "threads": 2, "seconds": 3});
    let answer = console.ask("POST", "/api/experience/run", Some(another))?;
    expect(&answer, 409, &["a test is running already"])?;
    ensure!(console.ask("POST", "/api/experience/stop", None)?.0 == 204);
    sql::wait_until("it is ended", Duration::from_secs(30), || {
        Ok(console.get("/api/experience")?["run"]["state"] == "stopped" && !runs())
    })
}

/// The active comparison completes, and its result is stored.
fn compared(console: &Console) -> Outcome {
    let mut run = Value::Null;
    sql::wait_until("the comparison ends", Duration::from_secs(120), || {
        let shown = console.get("/api/experience")?;
        run = shown["run"].clone();
        Ok(shown["results"][0]["id"] == run["id"])
    })?;
    ensure!(run["state"] == "done", "{run}");
    let points = run["points"].as_array().context("points")?;
    let mut phases: Vec<&str> = points
        .iter()
        .filter_map(|point| point["phase"].as_str())
        .collect();
    phases.dedup();
    ensure!(
        phases == ["prepare", "off", "warm", "prepare", "on"],
        "{phases:?}"
    );
    for (phase, enabled) in [("off", false), ("on", true)] {
        let side = points.iter().filter(|point| point["phase"] == phase);
        ensure!(
            side.clone().count() >= 2 && side.clone().all(|point| point["enabled"] == enabled),
            "{phase}: {run}"
        );
        ensure!(run[phase]["qps"].as_f64() > Some(0.0), "{run}");
    }
    ensure!(
        run["gain_percent"].is_number() && run["reference_gain_percent"].is_null(),
        "{run}"
    );
    note(format!(
        "own script: {} statements a second without, {} with the extension",
        run["off"]["qps"], run["on"]["qps"]
    ));

    let path = format!(
        "/api/experience/results/{}",
        run["id"].as_str().context("id")?
    );
    let bearer = console.bearer();
    let file = |query: &str| {
        console.raw(
            "GET",
            &format!("{path}{query}"),
            &[("Authorization", &bearer)],
            "",
        )
    };
    let (status, head, text) = file("")?;
    ensure!(
        status == 200 && head.contains("content-disposition: attachment"),
        "{head}"
    );
    let kept: Value = serde_json::from_str(&text)?;
    ensure!(kept == run, "the file is another result: {kept}");
    let (status, head, text) = file("?format=html")?;
    ensure!(
        status == 200 && head.contains("filename=\"bpe-result-"),
        "{head}"
    );
    for part in ["own.lua on MariaDB", "--rows=100", "<svg", "Gain: "] {
        ensure!(text.contains(part), "`{part}` is missing in {text}");
    }
    Ok(())
}
