//! `bpe record` against real servers: the trace file, how a recording ends, the privileges it needs, and its errors; and `bpe
//! verify` beside it.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::harness::Outcome;
use integration_tests::trace::{CREATE_FUNCTION, ask, hook_mode};
use integration_tests::{Place, Server, Suite, note, sql};

const ROWS: u32 = 20_000;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("record")
        .in_turn("writes_a_trace", writes_a_trace)
        .in_turn("says_what_is_missing", says_what_is_missing)
        .in_turn("survives_the_servers_end", survives_the_servers_end)
        .in_turn("takes_the_right_to_set", takes_the_right_to_set)
        .in_turn("killed_it_leaves_nothing_armed", killed)
        .in_turn("by_configuration_alone", by_configuration_alone)
}

fn start(server: &Server, arguments: &[&str]) -> anyhow::Result<Child> {
    start_as(server, "root", "record", arguments)
}

/// Starts a command of `bpe` as an account, with its output in pipes.
pub fn start_as(
    server: &Server,
    user: &str,
    command: &str,
    arguments: &[&str],
) -> anyhow::Result<Child> {
    Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args([command, "--no-defaults", "--user", user, "--socket"])
        .arg(server.socket())
        .args(arguments)
        .env("MYSQL_PWD", if user == "root" { "" } else { "x" })
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("bpe")
}

/// Waits for the end; returns the output.
pub fn finish(child: Child, code: i32, parts: &[&str]) -> anyhow::Result<String> {
    let output = child.wait_with_output()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    ensure!(
        output.status.code() == Some(code),
        "{} instead of {code}:\n{text}",
        output.status
    );
    for part in parts {
        ensure!(text.contains(part), "`{part}` is missing in:\n{text}");
    }
    Ok(text)
}

fn interrupt(child: &Child) {
    let pid = rustix::process::Pid::from_child(child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
}

/// Number of records of a trace, which must be complete and numbered from 0.
fn records(path: &Path) -> anyhow::Result<u32> {
    let bytes = zstd::decode_all(File::open(path)?)?;
    ensure!(bytes.len() % 16 == 0, "{} bytes", bytes.len());
    let mut number = 0;
    for record in bytes.chunks_exact(16) {
        ensure!(
            record[8] < 2 && record[9] == 1 && record[10..12] == [0, 0],
            "{record:?}"
        );
        ensure!(record[12..] == u32::to_le_bytes(number), "{record:?}");
        number += 1;
    }
    Ok(number)
}

fn recording_begins(server: &Server) -> Outcome {
    sql::wait_until("the recording begins", Duration::from_secs(20), || {
        Ok(hook_mode(server)? != 0)
    })
}

fn hooks_are_off(server: &Server) -> Outcome {
    sql::wait_until("the hooks are off", Duration::from_secs(20), || {
        Ok(hook_mode(server)? == 0)
    })
}

fn installed(place: &Place) -> anyhow::Result<Server> {
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    server.sql(CREATE_FUNCTION)?;
    Ok(server)
}

fn writes_a_trace(place: &Place) -> Outcome {
    let server = installed(place)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    let trace = place.root().join("my server.trace.zst");
    let named = trace.to_string_lossy().into_owned();

    // Until Ctrl-C.
    let child = start(&server, &["--output", &named])?;
    recording_begins(&server)?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    ensure!(!trace.exists(), "it has its name before it is whole");
    interrupt(&child);
    let text = finish(
        child,
        0,
        &[
            " page reads, ",
            "different ones in",
            "Lost        0 events",
            "--pool-pages 512 --cache-ratio 1,2,4",
            "'",
        ],
    )?;
    let events = records(&trace)?;
    note(format!(
        "{events} events in {} bytes",
        fs::metadata(&trace)?.len()
    ));
    ensure!(
        events > 1000 && text.contains(&format!("{events}: ")),
        "{text}"
    );
    hooks_are_off(&server)?;

    // Does not overwrite a file without `--force`; ends after a number of events or seconds.
    let child = start(&server, &["--output", &named, "--seconds", "1"])?;
    finish(child, 1, &["exists", "--force"])?;
    let child = start(&server, &["--output", &named, "--force", "--events", "500"])?;
    recording_begins(&server)?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    finish(child, 0, &["500: "])?;
    ensure!(records(&trace)? == 500);
    hooks_are_off(&server)?;
    let other = place.root().join("idle.zst").to_string_lossy().into_owned();
    let child = start(&server, &["--output", &other, "--seconds", "2"])?;
    recording_begins(&server)?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    finish(child, 0, &["events"])?;
    hooks_are_off(&server)?;

    // The kill switch ends the recording early.
    fs::remove_file(&other)?;
    let child = start(&server, &["--output", &other])?;
    recording_begins(&server)?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    finish(child, 4, &["bpe_enabled", "ended early"])?;
    ensure!(records(Path::new(&other))? > 500);
    hooks_are_off(&server)?;
    let left: Vec<_> = fs::read_dir(place.root())?
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().ends_with(".part"))
        .collect();
    ensure!(left.is_empty(), "{left:?}");
    server.stop()?;
    Ok(())
}

fn says_what_is_missing(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    let trace = place.root().join("a.zst").to_string_lossy().into_owned();
    let run = |arguments: &[&str], code: i32, parts: &[&str]| {
        finish(start(&server, arguments)?, code, parts).map(drop)
    };
    let seconds = ["--output", &trace, "--seconds", "1"];
    run(
        &seconds,
        1,
        &["not installed", "INSTALL ", "CREATE FUNCTION"],
    )?;
    server.sql(place.install_statement())?;
    // The missing function does no harm: the variable returns the recording. An idle server may record nothing, so the trace
    // file is optional.
    let without = start(&server, &seconds)?.wait_with_output()?;
    let said = String::from_utf8_lossy(&[without.stdout, without.stderr].concat()).into_owned();
    ensure!(
        said.contains("Recording for 1 seconds") && !said.contains("bpe_report"),
        "{said}"
    );
    let _ = fs::remove_file(&trace);
    server.sql(CREATE_FUNCTION)?;
    run(&[], 2, &["--output"])?;
    run(&["--output", &trace, "--seconds", "0"], 2, &["0"])?;
    run(&["--output", &trace, "--events", "-5"], 2, &["-5"])?;
    run(&["--output", "/", "--seconds", "1"], 2, &["folder"])?;
    run(
        &["--output", "/no/such/x", "--seconds", "1"],
        1,
        &["a folder that exists"],
    )?;
    ensure!(!Path::new(&trace).exists());
    hooks_are_off(&server)?;
    server.stop()?;
    Ok(())
}

/// The events recorded until then are a valid file.
fn survives_the_servers_end(place: &Place) -> Outcome {
    let server = installed(place)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    let trace = place.root().join("a.zst");
    let child = start(&server, &["--output", &trace.to_string_lossy()])?;
    recording_begins(&server)?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    std::thread::sleep(Duration::from_millis(500)); // so that something of it is fetched
    server.kill();
    finish(child, 4, &["ended early", "can be replayed"])?;
    ensure!(records(&trace)? > 0);
    Ok(())
}

/// No recording and no verification is in flight on the server.
fn nothing_armed(server: &Server) -> anyhow::Result<bool> {
    let summary = ask(&mut server.connect()?, "summary")?;
    Ok(summary["recording"] == false && summary["verifications"] == 0)
}

fn takes_the_right_to_set(place: &Place) -> Outcome {
    let server = place.start(place.early(64 << 20)?)?;
    server.sql(CREATE_FUNCTION)?;
    server.sql("CREATE USER 'no''body' IDENTIFIED BY 'x'")?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    let trace = place.root().join("a.zst");
    let named = trace.to_string_lossy().into_owned();
    let right = if place.is_mysql() {
        "SYSTEM_VARIABLES_ADMIN"
    } else {
        "SUPER"
    };
    let grant = format!("GRANT {right} ON *.* TO `no'body`@'%'");
    let record = ["--output", &named, "--events", "500"];
    let process = "GRANT PROCESS ON *.* TO `no'body`@'%'";
    let denied = ["lacks the PROCESS privilege", "what to do", process];
    let refused = ["lacks", "SET GLOBAL", "what to do", &grant];
    let run = |command: &str, arguments: &[&str]| start_as(&server, "no'body", command, arguments);
    finish(run("record", &record)?, 1, &denied)?;
    finish(run("verify", &[])?, 1, &denied)?;
    // Counters need no privilege.
    finish(run("status", &[])?, 0, &["active", process])?;
    server.sql(process)?;
    finish(run("record", &record)?, 1, &refused)?;
    finish(run("verify", &[])?, 1, &refused)?;
    ensure!(!trace.exists() && nothing_armed(&server)?);
    finish(run("status", &[])?, 0, &["active", "Devices"])?;

    server.sql(&grant)?;
    let recording = run("record", &record)?;
    sql::wait_until("the recording begins", Duration::from_secs(20), || {
        Ok(ask(&mut server.connect()?, "summary")?["recording"] == true)
    })?;
    // Two sessions at once; a second recording is refused and does not disturb the first.
    finish(run("verify", &[])?, 0, &["Different   none"])?;
    let second = place.root().join("b.zst").to_string_lossy().into_owned();
    let arguments = ["--output", &*second, "--seconds", "1"];
    finish(run("record", &arguments)?, 4, &["another recording"])?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    finish(recording, 0, &["500: "])?;
    sql::wait_until("nothing is armed", Duration::from_secs(20), || {
        nothing_armed(&server)
    })?;
    server.stop()?;
    Ok(())
}

fn killed(place: &Place) -> Outcome {
    let server = place.start(place.early(64 << 20)?)?;
    server.sql(CREATE_FUNCTION)?;
    let trace = place.root().join("a.zst").to_string_lossy().into_owned();
    let mut child = start(&server, &["--output", &trace])?;
    sql::wait_until("the recording begins", Duration::from_secs(20), || {
        Ok(ask(&mut server.connect()?, "summary")?["recording"] == true)
    })?;
    child.kill()?;
    child.wait()?;
    sql::wait_until("nothing is armed", Duration::from_secs(60), || {
        nothing_armed(&server)
    })?;
    sql::expect_state(&server, "active")?;
    server.stop()?;
    Ok(())
}

/// No statement was run for the plugin: everything comes from the configuration.
fn by_configuration_alone(place: &Place) -> Outcome {
    let server = place.start(place.early(64 << 20)?)?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, 1000, "")?;
    let run = |command: &str, arguments: &[&str], code: i32, parts: &[&str]| {
        finish(start_as(&server, "root", command, arguments)?, code, parts)
    };
    run("verify", &[], 0, &["Different   none"])?;
    let trace = place.root().join("a.zst").to_string_lossy().into_owned();
    let mut recording = start(&server, &["--output", &trace, "--events", "500"])?;
    sql::wait_until("500 events", Duration::from_secs(60), || {
        sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
        Ok(recording.try_wait()?.is_some())
    })?;
    finish(recording, 0, &["500: "])?;
    let status: serde_json::Value = serde_json::from_str(&run("status", &["--json"], 0, &[])?)?;
    for rows in ["devices", "instances"] {
        let found = status[rows].as_array().map_or(0, Vec::len);
        ensure!(found > 0, "no {rows} in {status}");
    }
    let top = run("top", &["--once"], 0, &[])?;
    ensure!(!top.contains("bpe_report"), "{top}");
    let cache = place.cache().to_string_lossy().into_owned();
    let about = ["--path", &*cache, "--size", "64M"];
    let doctor = start_as(&server, "root", "doctor", &about)?.wait_with_output()?;
    let doctor = [doctor.stdout, doctor.stderr].concat();
    let doctor = String::from_utf8_lossy(&doctor).into_owned();
    ensure!(
        doctor.contains("instance") && !doctor.contains("bpe_report"),
        "doctor: {doctor}"
    );
    // A view cannot read a variable.
    let views = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args([
            "views",
            "create",
            "--no-defaults",
            "--user",
            "root",
            "--socket",
        ])
        .arg(server.socket())
        .output()?;
    let views = String::from_utf8_lossy(&views.stderr).into_owned();
    ensure!(views.contains("CREATE FUNCTION"), "views: {views}");
    ensure!(server.value("SELECT COUNT(*) FROM mysql.func")?.as_deref() == Some("0"));
    server.stop()?;
    Ok(())
}
