//! A change whose connection or server is lost in the middle of it, at a known statement.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cloud_volume::{CloudVolume, Profile, Volume};
use integration_tests::console::{Console, expect};
use integration_tests::harness::Outcome;
use integration_tests::{Options, Place, Server, note, skip, sql};
use private_server::SocketPath;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::{Value, json};

use super::between::{Between, Then};
use super::{POOL, cache, open, pool};

/// Prefix of the statement for both servers.
const INSTALL: &str = "INSTALL ";
const RESIZE: &str = "SET GLOBAL innodb_buffer_pool_size";
/// Seconds that these consoles wait for a statement.
const PATIENCE: &str = "2";

/// Options of a server that has the library in its plugin directory: the console cannot write server files through a proxy.
fn options(place: &Place) -> anyhow::Result<Options> {
    Ok(place.installable()?.buffer_pool(POOL))
}

fn console(place: &Place, between: &Between) -> anyhow::Result<Console> {
    let console = open(
        place.root(),
        &between.socket,
        &["--change-timeout", PATIENCE],
    )?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    Ok(console)
}

fn on(place: &Place) -> Value {
    json!({"action": "on", "path": cache(place), "size": "64M"})
}

/// The first word of each step's state.
fn states(task: &Value) -> Vec<&str> {
    let steps = task["steps"].as_array().map_or(&[][..], Vec::as_slice);
    steps
        .iter()
        .filter_map(|step| step["state"].as_str())
        .collect()
}

/// Every step before the failed one has this state.
fn expect_steps(task: &Value, before: &str) -> Outcome {
    let states = states(task);
    let failed = states.iter().position(|state| *state == "failed");
    let failed = failed.with_context(|| format!("no step failed: {task}"))?;
    ensure!(
        states[..failed].iter().all(|state| *state == before)
            && states[failed + 1..].iter().all(|state| *state == "waiting"),
        "{task}"
    );
    Ok(())
}

fn expect_failed(task: &Value, parts: &[&str]) -> Outcome {
    ensure!(task["state"] == "failed", "{task}");
    expect(&(0, task.clone()), 0, parts)
}

/// Nothing of the extension is on the server, except the library.
fn expect_clean(place: &Place, server: &Server) -> Outcome {
    ensure!(server.status("bpe%")?.is_empty(), "the plugin is there");
    ensure!(pool(server)? == POOL, "the pool is {}", pool(server)?);
    let rows = sql::number(
        server,
        "SELECT (SELECT COUNT(*) FROM mysql.plugin WHERE name = 'bpe') + (SELECT COUNT(*) FROM mysql.func WHERE name = 'bpe_report')",
    )?;
    ensure!(rows == 0, "{rows} rows are left");
    ensure!(records(place).is_empty(), "the record is left");
    Ok(())
}

/// Undoes everything, and checks that nothing remains.
fn uninstall(console: &Console, place: &Place, server: &Server) -> Outcome {
    let task = console.switch(json!({"action": "off", "uninstall": true}))?;
    ensure!(task["state"] == "done", "{task}");
    expect_clean(place, server)
}

fn records(place: &Place) -> Vec<PathBuf> {
    let folder = std::fs::read_dir(place.root().join("state"));
    let entries = folder.into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn command(place: &Place, socket: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args(arguments)
        .args(["--no-defaults", "--user=root", "--yes", "--state-dir"])
        .arg(place.root().join("state"))
        .arg("--socket")
        .arg(socket)
        .env_remove("MYSQL_PWD")
        .output()?)
}

fn enable(place: &Place, between: &Between) -> anyhow::Result<Output> {
    let cache = place.cache().display().to_string();
    command(
        place,
        &between.socket,
        &["enable", "--size=64M", "--path", &cache],
    )
}

/// Nothing remains after a lost connection: console and command log in once more and restore everything.
pub fn a_connection_is_cut(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let between = Between::new(place.root(), server.socket())?;
    let console = console(place, &between)?;
    for statement in [INSTALL, "SET GLOBAL bpe_enabled", RESIZE] {
        between.at(statement, Then::Cut);
        let task = console.switch(on(place))?;
        ensure!(between.has_happened(), "{statement} did not pass: {task}");
        expect_failed(
            &task,
            &[
                "connection was lost",
                "logged in once more",
                "as it was before",
            ],
        )?;
        expect_steps(&task, "undone")?;
        expect_clean(place, &server).with_context(|| format!("cut at {statement}: {task}"))?;

        between.at(statement, Then::Cut);
        let enabled = enable(place, &between)?;
        let said = String::from_utf8_lossy(&enabled.stderr).into_owned();
        ensure!(
            between.has_happened()
                && enabled.status.code() == Some(4)
                && said.contains("logged in once more")
                && said.contains("as it was before"),
            "{statement}: {said}"
        );
        expect_clean(place, &server).with_context(|| format!("cut at {statement}: {said}"))?;
    }

    // If a new login fails, the command reports what remains, and keeps the record for undoing.
    between.at(RESIZE, Then::CutAndShut);
    let enabled = enable(place, &between)?;
    let said = String::from_utf8_lossy(&enabled.stderr).into_owned();
    for part in [
        "logging in once more failed",
        "NOT plugin uninstalled",
        "NOT innodb_buffer_pool_size is 64 MiB again",
        "NOT record of previous values put back",
        "`bpe disable` tries again",
    ] {
        ensure!(said.contains(part), "`{part}` is missing in {said}");
    }
    ensure!(records(place).len() == 1 && pool(&server)? < POOL, "{said}");
    between.open();
    let disabled = command(place, &between.socket, &["disable"])?;
    ensure!(disabled.status.success(), "{disabled:?}");
    expect_clean(place, &server)?;

    between.at(RESIZE, Then::CutAndShut);
    let task = console.switch(on(place))?;
    expect_failed(
        &task,
        &["logging in once more failed", "NOT plugin uninstalled"],
    )?;
    expect_steps(&task, "remains")?;
    between.open();
    sql::wait_until("the log tells", Duration::from_secs(60), || {
        Ok(console
            .events()?
            .contains("part of the interrupted change remains"))
    })?;
    uninstall(&console, place, &server)?;

    // By variables alone.
    ensure!(console.switch(on(place))?["state"] == "done");
    ensure!(console.switch(json!({"action": "off"}))?["state"] == "done");
    between.at("SET GLOBAL bpe_enabled", Then::Cut);
    let task = console.switch(json!({"action": "on", "size": "96M"}))?;
    expect_failed(&task, &["logged in once more", "bpe_size = 67108864 again"])?;
    sql::expect_state(&server, "disabled")?;
    ensure!(
        sql::number(&server, "SELECT @@bpe_size")? == 64 << 20,
        "{task}"
    );
    // Resizing the pool affects memory only.
    between.at(RESIZE, Then::Cut);
    let task = console.switch(json!({"action": "on"}))?;
    ensure!(
        task["state"] == "done" && task.to_string().contains("logged in once more"),
        "{task}"
    );
    sql::expect_state(&server, "active")?;
    uninstall(&console, place, &server)?;
    drop(console);
    server.stop()?;
    Ok(())
}

/// A server that hangs is waited for until the timeout, and no longer.
pub fn a_change_hangs(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let between = Between::new(place.root(), server.socket())?;
    let console = console(place, &between)?;
    // The statement never reaches the server.
    between.at("SET GLOBAL bpe_enabled", Then::Hang);
    let task = console.switch(on(place))?;
    expect_failed(
        &task,
        &[
            "did not answer in time",
            "may have taken effect",
            "as it was before",
        ],
    )?;
    expect_steps(&task, "undone")?;
    expect_clean(place, &server)?;

    // One statement hangs in a healthy server. It must be killed, or it would take effect after the rollback.
    let mut holder = server.connect()?;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (gone, holder_is_gone) = std::sync::mpsc::channel::<()>();
    between.at(
        INSTALL,
        Then::Do(Box::new(move || {
            use mysql::prelude::Queryable;
            let _ = holder.query_drop("LOCK TABLES mysql.func WRITE");
            std::thread::spawn(move || {
                let _ = released.recv();
                drop(holder);
                drop(gone);
            });
        })),
    );
    let task = console.switch(on(place))?;
    expect_failed(
        &task,
        &[
            "DROP FUNCTION",
            "did not answer in time",
            "as it was before",
        ],
    )?;
    expect_steps(&task, "undone")?;
    sql::wait_until("the statement is ended", Duration::from_secs(30), || {
        let left =
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE 'DROP FUNCTION%'";
        Ok(sql::number(&server, left)? == 0)
    })?;
    drop(release);
    let _ = holder_is_gone.recv();
    expect_clean(place, &server)?;

    // The whole server hangs, and recovers later.
    let pid = i32::try_from(server.pid())?;
    let pid = rustix::process::Pid::from_raw(pid).context("a pid")?;
    let signal = move |signal| rustix::process::kill_process(pid, signal);
    between.at(
        INSTALL,
        Then::Do(Box::new(move || {
            let _ = signal(rustix::process::Signal::STOP);
        })),
    );
    let answer = console.ask("POST", "/api/servers/main/switch", Some(on(place)));
    let task = answer.and_then(|(_, task)| console.end_of(&task));
    signal(rustix::process::Signal::CONT)?;
    let task = task?;
    note(format!("hung: {}", task["error"]));
    expect_failed(
        &task,
        &[
            "did not answer in time",
            "logging in once more failed",
            "does not answer at the moment",
        ],
    )?;
    // Pages get the sampler's figures from before the hang.
    console.wait("it answers again", |server| server["reachable"] == true)?;
    sql::wait_until("the log tells", Duration::from_secs(60), || {
        Ok(console
            .events()?
            .contains("remains of the interrupted change")
            || console
                .events()?
                .contains("part of the interrupted change remains"))
    })?;
    // Each change released its turn: requests are answered as before, and the next change may begin.
    for _ in 0..4 {
        console.get("/api/servers/main/details")?;
    }
    let task = console.switch(on(place))?;
    ensure!(task["state"] == "done", "{task}");
    sql::expect_state(&server, "active")?;
    let settings = json!({"bpe_io_capacity": 5000});
    between.at("SET GLOBAL bpe_io_capacity", Then::Hang);
    let answer = console.ask("POST", "/api/servers/main/settings", Some(settings))?;
    expect(
        &answer,
        422,
        &[
            "SET GLOBAL bpe_io_capacity = 5000 failed",
            "did not answer in time",
            "bpe_io_capacity = 0 again",
        ],
    )?;
    uninstall(&console, place, &server)?;
    drop(console);
    server.stop()?;
    Ok(())
}

/// A cache disk that hangs on request, and the request that enables the extension on it. The socket must outlive the volume.
fn hanging_disk(place: &Place) -> anyhow::Result<(SocketPath, Volume, Value)> {
    let (backing, folder) = (place.root().join("backing"), place.root().join("volume"));
    let control = SocketPath::of(place.root(), "volume.sock")?;
    std::fs::create_dir(&backing)?;
    std::fs::create_dir(&folder)?;
    let options = cloud_volume::Options {
        profile: Profile::unlimited(),
        control: Some(control.path().to_owned()),
        ..Default::default()
    };
    let volume = CloudVolume::mount_with(&backing, &folder, options)
        .map_err(|error| skip(format!("no FUSE file system: {error}")))?;
    let on = json!({"action": "on", "path": folder.display().to_string(), "size": "64M"});
    Ok((control, volume, on))
}

const STALL: &str = "stall 600s";

/// Query for the session that executes a statement like this.
fn at_work(like: &str) -> String {
    format!("SELECT MAX(ID) FROM information_schema.PROCESSLIST WHERE INFO LIKE '{like}%'")
}

/// A statement ignores KILL: the console does not report the rollback beside it as complete.
pub fn a_statement_goes_on(place: &Place) -> Outcome {
    let (socket, volume, on) = hanging_disk(place)?;
    let control = socket.path().to_owned();
    let server = place.start(options(place)?)?;
    let between = Between::new(place.root(), server.socket())?;
    let console = console(place, &between)?;
    // The next statement, which enables the extension, ignores KILL while it waits for the disk.
    between.at(
        "SET GLOBAL bpe_size",
        Then::Do(Box::new(move || {
            let _ = cloud_volume::send(&control, STALL);
        })),
    );
    let answer = console.ask("POST", "/api/servers/main/switch", Some(on));
    let task = answer.and_then(|(_, task)| console.end_of(&task));
    volume.resume();
    let task = task?;
    note(format!("beside a statement: {}", task["error"]));
    expect_failed(
        &task,
        &[
            "SET GLOBAL bpe_enabled = ON failed",
            "was told to stop and has not",
            "NOT record of previous values put back",
            "Not everything could be put back",
        ],
    )?;
    ensure!(!task.to_string().contains("as it was before"), "{task}");
    expect_steps(&task, "remains")?;
    sql::wait_until("the statement has ended", Duration::from_secs(60), || {
        Ok(server.value(&at_work("SET GLOBAL bpe_enabled"))?.is_none())
    })?;
    uninstall(&console, place, &server)?;
    drop(console);
    server.stop()?;
    Ok(())
}

/// A statement that is done but reported as interrupted, as can happen to a statement killed at its end.
pub fn a_statement_is_called_interrupted(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let between = Between::new(place.root(), server.socket())?;
    let console = console(place, &between)?;
    for statement in [INSTALL, "CREATE FUNCTION", "SET GLOBAL bpe_enabled"] {
        between.at(statement, Then::Interrupt);
        let task = console.switch(on(place))?;
        ensure!(between.has_happened(), "{statement} did not pass: {task}");
        expect_failed(&task, &["1317", "as it was before"])?;
        expect_steps(&task, "undone")?;
        expect_clean(place, &server).with_context(|| format!("{statement}: {task}"))?;
    }

    // By variables alone.
    ensure!(console.switch(on(place))?["state"] == "done");
    ensure!(console.switch(json!({"action": "off"}))?["state"] == "done");
    between.at("SET GLOBAL bpe_enabled", Then::Interrupt);
    let task = console.switch(json!({"action": "on"}))?;
    expect_failed(&task, &["1317", "bpe_enabled = OFF again"])?;
    sql::expect_state(&server, "disabled")?;
    between.at("SET GLOBAL bpe_io_capacity", Then::Interrupt);
    let settings = json!({"bpe_io_capacity": 5000});
    let answer = console.ask("POST", "/api/servers/main/settings", Some(settings))?;
    expect(&answer, 422, &["1317", "bpe_io_capacity = 0 again"])?;
    let capacity = server.value("SELECT @@bpe_io_capacity")?;
    ensure!(capacity.as_deref() == Some("0"), "{answer:?}");
    uninstall(&console, place, &server)?;
    drop(console);
    server.stop()?;
    Ok(())
}

/// Opens connections until the queue of a stopped server is full.
fn fill_queue(socket: &Path) -> anyhow::Result<Vec<OwnedFd>> {
    let address = SocketAddrUnix::new(socket)?;
    let mut all = Vec::new();
    loop {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let next = net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        match net::connect(&next, &address) {
            Ok(()) => all.push(next),
            Err(rustix::io::Errno::AGAIN) => return Ok(all),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A stopped server with a full queue of connections blocks no request permanently.
pub fn nobody_gets_in(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let console = open(place.root(), server.socket(), &[])?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    let pid = rustix::process::Pid::from_raw(i32::try_from(server.pid())?).context("a pid")?;
    let signal = |signal| rustix::process::kill_process(pid, signal);
    signal(rustix::process::Signal::STOP)?;
    let queue = fill_queue(server.socket());
    let ask = || console.ask("POST", "/api/servers/main/switch", Some(on(place)));
    let answers = [ask(), ask()];
    let shown = console.wait("it does not answer", |server| server["reachable"] == false);
    signal(rustix::process::Signal::CONT)?;
    note(format!("{} connections in the queue", queue?.len()));
    shown?;
    for answer in answers {
        expect(&answer?, 502, &["cannot connect", "took too long"])?;
    }
    console.wait("it answers again", |server| server["reachable"] == true)?;
    let task = console.switch(on(place))?;
    ensure!(task["state"] == "done", "{task}");
    uninstall(&console, place, &server)?;
    drop(console);
    server.stop()?;
    Ok(())
}

/// The server is killed right after it was told to shrink its pool.
pub fn a_server_is_killed_while_it_resizes(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let between = Between::new(place.root(), server.socket())?;
    let console = console(place, &between)?;
    let kill = |server: &Server| -> anyhow::Result<Then> {
        let pid = rustix::process::Pid::from_raw(i32::try_from(server.pid())?).context("a pid")?;
        Ok(Then::Do(Box::new(move || {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
        })))
    };
    between.at(RESIZE, kill(&server)?);
    let task = console.switch(on(place))?;
    note(format!("killed while enabling: {}", task["error"]));
    expect_failed(
        &task,
        &[
            "innodb_buffer_pool_size could not be lowered",
            "The server is gone",
            "NOT plugin uninstalled",
            "the event log says what remains",
        ],
    )?;
    expect_steps(&task, "remains")?;
    server.kill();
    // The server persists the state it was told: plugin installed, off, with a pool of the former size. The record still
    // exists.
    let server = place.start(options(place)?)?;
    between.lead_to(server.socket());
    ensure!(pool(&server)? == POOL && records(place).len() == 1);
    sql::expect_state(&server, "disabled")?;
    sql::wait_until("the log tells", Duration::from_secs(60), || {
        Ok(console
            .events()?
            .contains("part of the interrupted change remains"))
    })?;
    let events = console.events()?;
    ensure!(
        events.contains("plugin bpe: installed -> not installed")
            && !events.contains("innodb_buffer_pool_size:"),
        "{events}"
    );

    // By variables, whose values end with the server.
    between.at(RESIZE, kill(&server)?);
    let task = console.switch(on(place))?;
    note(format!("killed while switching on: {}", task["error"]));
    expect_failed(
        &task,
        &[
            "innodb_buffer_pool_size could not be lowered",
            "The server is gone",
            "not made permanent are gone",
        ],
    )?;
    expect_steps(&task, "undone")?;
    server.kill();
    let server = place.start(options(place)?)?;
    between.lead_to(server.socket());
    console.wait("it is back", |server| server["state"] == "disabled")?;
    ensure!(pool(&server)? == POOL);

    // Once more, to the end; then undo all of it.
    let task = console.switch(on(place))?;
    ensure!(task["state"] == "done" && pool(&server)? < POOL, "{task}");
    sql::expect_state(&server, "active")?;
    uninstall(&console, place, &server)?;
    drop(console);
    killed_beside_its_files(place, server)
}

/// The same on the server's own host, where option files are written as well. The kill hits an arbitrary moment near the
/// resize.
fn killed_beside_its_files(place: &Place, server: Server) -> Outcome {
    let files = place.root().join("conf");
    std::fs::create_dir(&files)?;
    let folder = files.display().to_string();
    let console = open(place.root(), server.socket(), &["--conf-dir", &folder])?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    let (status, task) = console.ask("POST", "/api/servers/main/switch", Some(on(place)))?;
    ensure!(status == 202, "{task}");
    // The record gets the size before the server does.
    let begun = Instant::now();
    let is_noted = || {
        let text = records(place).first().map(std::fs::read_to_string);
        let record: Option<Value> = text.and_then(|text| serde_json::from_str(&text.ok()?).ok());
        record.is_some_and(|record| record["pool_after"].is_u64())
    };
    while !is_noted() {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "it gets no record"
        );
    }
    server.kill();
    let task = console.end_of(&task)?;
    note(format!(
        "killed near the resize: {} {}",
        task["state"], task["error"]
    ));
    let server = place.start(options(place)?)?;
    ensure!(pool(&server)? == POOL);
    // The persistent settings may have moved from the server to the option file already, which this server does not read. The
    // console restores the file without the server.
    let known = "SELECT COUNT(*) FROM mysql.plugin WHERE name = 'bpe'";
    if sql::number(&server, known)? == 0 {
        let error = task["error"].as_str().unwrap_or_default();
        let moved = task["state"] == "done" || error.contains("NOT row in mysql.plugin");
        ensure!(moved, "{task}");
    } else {
        sql::expect_state(&server, "disabled")?;
    }
    console.wait("it is back", |server| server["reachable"] == true)?;
    if task["state"] == "failed" {
        sql::wait_until("the log tells", Duration::from_secs(60), || {
            Ok(console
                .events()?
                .contains("part of the interrupted change remains"))
        })?;
    }
    uninstall(&console, place, &server)?;
    ensure!(
        std::fs::read_dir(&files)?.next().is_none(),
        "an option file is left"
    );
    drop(console);
    server.stop()?;
    Ok(())
}
