//! `bpe console` against real servers: access, what the switch does and refuses, a server that goes away, and the cost of open
//! pages for a server.

#![allow(clippy::disallowed_methods)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration_tests::console::{Console, expect};
use integration_tests::harness::Outcome;
use integration_tests::sysbench::Sysbench;
use integration_tests::{Flavour, Place, Server, Suite, library, note, sql, trace};
use serde_json::{Value, json};

mod between;
mod flood;
mod interrupted;
mod shown;

const MIB: u64 = 1 << 20;
const POOL: u64 = 64 * MIB;

fn main() -> ExitCode {
    integration_tests::harness::run([Suite::new("console")
        .plain("only_its_own_pages_get_in", only_its_own_pages_get_in)
        .plain("strangers_are_bounded", flood::strangers_are_bounded)
        .plain(
            "checks_are_answered_beside_a_flood",
            flood::checks_are_answered_beside_a_flood,
        )
        .with(Flavour::MariaDb1011, "the_switch", the_switch)
        .with(
            Flavour::MariaDb1011,
            "a_server_goes_and_comes",
            a_server_goes_and_comes,
        )
        .with(
            Flavour::MariaDb1011,
            "many_pages_cost_no_more",
            many_pages_cost_no_more,
        )
        .with(
            Flavour::MariaDb1011,
            "what_is_shown_is_what_is_done",
            shown::what_is_shown_is_what_is_done,
        )
        .with(
            Flavour::MariaDb1011,
            "a_connection_is_cut",
            interrupted::a_connection_is_cut,
        )
        .with(
            Flavour::MariaDb1011,
            "a_change_hangs",
            interrupted::a_change_hangs,
        )
        .with(
            Flavour::MariaDb1011,
            "nobody_gets_in",
            interrupted::nobody_gets_in,
        )
        .with(
            Flavour::MariaDb1011,
            "a_statement_goes_on",
            interrupted::a_statement_goes_on,
        )
        .with(
            Flavour::MariaDb1011,
            "a_statement_is_called_interrupted",
            interrupted::a_statement_is_called_interrupted,
        )
        .with(
            Flavour::MySql97,
            "a_statement_is_called_interrupted",
            interrupted::a_statement_is_called_interrupted,
        )
        .with(
            Flavour::MariaDb1011,
            "a_server_is_killed_while_it_resizes",
            interrupted::a_server_is_killed_while_it_resizes,
        )
        .with(
            Flavour::MySql97,
            "a_connection_is_cut",
            interrupted::a_connection_is_cut,
        )
        .with(
            Flavour::MySql97,
            "a_server_is_killed_while_it_resizes",
            interrupted::a_server_is_killed_while_it_resizes,
        )
        .with(Flavour::MySql97, "mysql_switches_too", mysql_switches_too)])
}

fn only_its_own_pages_get_in() -> Outcome {
    let folder = tempfile::tempdir()?;
    let nobody = folder.path().join("no.sock");
    let console = open(folder.path(), &nobody, &[])?;
    let mode = fs::metadata(folder.path().join("token"))?
        .permissions()
        .mode()
        & 0o777;
    ensure!(mode == 0o600 && console.token.len() >= 43, "{mode:o}");
    let bearer = console.bearer();
    let status = |headers: &[(&str, &str)]| {
        console
            .raw("GET", "/api/servers", headers, "")
            .map(|answer| answer.0)
    };
    let token = ("Authorization", bearer.as_str());
    ensure!(status(&[token])? == 200);
    ensure!(status(&[])? == 401);
    ensure!(status(&[("Authorization", "Bearer wrong")])? == 401);
    ensure!(status(&[("Authorization", &bearer[..bearer.len() - 1])])? == 401);
    // Without the token, existing and unknown paths get the same answer.
    ensure!(console.raw("GET", "/api/nothing", &[], "")?.0 == 401);
    ensure!(
        console
            .raw("POST", "/api/servers/main/switch", &[], "{}")?
            .0
            == 401
    );
    let own = format!("http://{}", console.address);
    ensure!(status(&[token, ("Origin", &own)])? == 200);
    for origin in ["http://evil.example", "null", "http://localhost:1"] {
        ensure!(status(&[token, ("Origin", origin)])? == 403, "{origin}");
    }
    for host in ["evil.example", "evil.example:8600"] {
        ensure!(status(&[token, ("Host", host)])? == 403, "{host}");
        ensure!(
            console.raw("GET", "/", &[("Host", host)], "")?.0 == 403,
            "{host}"
        );
    }
    ensure!(
        status(&[
            token,
            ("Sec-Fetch-Site", "cross-site"),
            ("Sec-Fetch-Mode", "cors")
        ])? == 403
    );
    let large = "x".repeat(300 << 10);
    ensure!(
        console
            .raw("POST", "/api/servers/main/plan", &[token], &large)?
            .0
            == 413
    );
    let plan = |body: &str| {
        console
            .raw("POST", "/api/servers/main/plan", &[token], body)
            .map(|answer| answer.0)
    };
    ensure!(plan("{")? == 400 && plan("{\"action\":\"maybe\"}")? == 422);
    ensure!(console.ask("GET", "/api/servers/other/live", None)?.0 == 404);
    ensure!(console.ask("GET", "/api/tasks/7", None)?.0 == 404);
    ensure!(console.ask("DELETE", "/api/servers", None)?.0 == 405);
    // Only `bpe-lab` generates load; the page requests this path anyway.
    ensure!(console.get("/api/experience")?["available"] == false);
    for path in ["run", "stop"] {
        let answer = console.ask("POST", &format!("/api/experience/{path}"), Some(json!({})))?;
        expect(&answer, 404, &["no experience page", "bpe-lab console"])?;
    }
    ensure!(console.ask("GET", "/api/experience/run", None)?.0 == 405);
    ensure!(console.ask("GET", "/api/experience/more", None)?.0 == 404);
    // The page, or the text in its place, has the same headers.
    let (status, head, _) = console.raw("GET", "/", &[], "")?;
    ensure!([200, 503].contains(&status), "{status}");
    for part in [
        "content-security-policy: default-src 'self'",
        "frame-ancestors 'none'",
        "x-frame-options: deny",
        "x-content-type-options: nosniff",
        "referrer-policy: no-referrer",
    ] {
        ensure!(head.contains(part), "`{part}` is missing in {head}");
    }
    ensure!(!head.contains("access-control"), "{head}");
    ensure!(console.raw("GET", "/../../../etc/passwd", &[], "")?.0 == 404);
    // A server that cannot be reached is shown as such.
    console.wait("it was looked for", |server| {
        server["error"] != "not asked yet"
    })?;
    let server = console.server("main")?;
    ensure!(server["reachable"] == false, "{server}");
    let first = console.live()?.next().context("a line")?;
    ensure!(first["type"] == "unreachable", "{first}");
    let details = console.ask("GET", "/api/servers/main/details", None)?;
    expect(&details, 502, &["cannot connect", "advice"])?;

    let refused = |arguments: &[&str], part: &str| -> Outcome {
        let output = Command::new(env!("CARGO_BIN_EXE_bpe"))
            .arg("console")
            .args(arguments)
            .output()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(!output.status.success() && text.contains(part), "{text}");
        Ok(())
    };
    for address in ["0.0.0.0:0", "[::]:0", "10.0.0.1:0"] {
        refused(&["--listen", address], "SSH tunnel")?;
    }
    refused(
        &["--listen", &console.address.to_string()],
        "another console",
    )?;
    let token = folder.path().join("token");
    fs::set_permissions(&token, fs::Permissions::from_mode(0o644))?;
    refused(&["--token-file", &token.display().to_string()], "chmod 600")
}

/// The console of `bpe` on a server.
fn open(folder: &Path, socket: &Path, more: &[&str]) -> anyhow::Result<Console> {
    Console::start(env!("CARGO_BIN_EXE_bpe"), folder, socket, more)
}

fn start(place: &Place) -> anyhow::Result<Server> {
    place.start(place.options().buffer_pool(POOL))
}

fn library_path() -> anyhow::Result<String> {
    Ok(library::library()?.display().to_string())
}

fn cache(place: &Place) -> Value {
    json!(place.cache().display().to_string())
}

fn pool(server: &Server) -> anyhow::Result<u64> {
    sql::number(server, "SELECT @@innodb_buffer_pool_size")
}

fn the_switch(place: &Place) -> Outcome {
    let server = start(place)?;
    // A second server in the console: the same one, for an account that may not change anything.
    server.sql("CREATE USER looker@localhost IDENTIFIED BY 'secret'")?;
    let file = place.root().join("servers.toml");
    fs::write(
        &file,
        format!(
            "[[server]]\nname = 'Looking only'\nsocket = '{}'\nuser = 'looker'\npassword = 'secret'\n",
            server.socket().display()
        ),
    )?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
    let library = library_path()?;
    let file = file.display().to_string();
    let console = open(
        place.root(),
        server.socket(),
        &["--library", &library, "--servers", &file],
    )?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    let shown = console.server("main")?;
    ensure!(
        shown["installed"] == false && shown["state"] == "not installed",
        "{shown}"
    );
    ensure!(
        shown["flavour"] == "MariaDB" && shown["pool_bytes"] == POOL,
        "{shown}"
    );

    // An impossible change is refused before anything is changed.
    let plan =
        |id: &str, body: Value| console.ask("POST", &format!("/api/servers/{id}/plan"), Some(body));
    let on = json!({"action": "on", "path": cache(place), "size": "128M"});
    expect(
        &plan("looking-only", on.clone())?,
        200,
        &["lacks the rights", "GRANT", "\"changes\":[]"],
    )?;
    let switched = console.ask("POST", "/api/servers/looking-only/switch", Some(on.clone()))?;
    expect(&switched, 422, &["lacks the rights", "GRANT"])?;
    expect(
        &plan("main", json!({"action": "on"}))?,
        200,
        &["path is missing"],
    )?;
    let wrong = json!({"action": "on", "path": "/no/such/folder", "size": "128M"});
    expect(
        &plan("main", wrong.clone())?,
        200,
        &["/no/such/folder", "nothing was changed"],
    )?;
    let switched = console.ask("POST", "/api/servers/main/switch", Some(wrong))?;
    expect(&switched, 422, &["/no/such/folder"])?;
    let large = json!({"action": "on", "path": cache(place), "size": "900T"});
    expect(
        &plan("main", large)?,
        200,
        &["has room for", "size of at most"],
    )?;
    let settings = |body: Value| console.ask("POST", "/api/servers/main/settings", Some(body));
    expect(
        &settings(json!({"bpe_size": "1G"}))?,
        422,
        &["not installed"],
    )?;
    ensure!(!place.root().join("state").exists(), "nothing was changed");

    let (_, planned) = plan("main", on.clone())?;
    for what in [
        "plugin bpe",
        "bpe_path",
        "128 MiB",
        "innodb_buffer_pool_size",
        "lowered by",
    ] {
        ensure!(
            planned["changes"].to_string().contains(what),
            "`{what}` is missing in {planned}"
        );
    }
    let mut live = console.live()?;
    let task = console.switch(on)?;
    ensure!(task["state"] == "done", "{task}");
    let steps = task["steps"].as_array().context("steps")?;
    ensure!(
        steps.len() > 5 && steps.iter().all(|step| step["state"] == "done"),
        "{task}"
    );
    let progress = live.find(|line| line["type"] == "task" && line["state"] == "done");
    ensure!(progress.is_some_and(|line| line["id"] == task["id"]));
    console.wait("it is active", |server| server["state"] == "active")?;
    sql::expect_state(&server, "active")?;
    ensure!(pool(&server)? < POOL, "the pool is lowered");

    // Settings: the server decides, and sets all of them or none.
    expect(
        &settings(json!({"bpe_io_capacity": 5000, "bpe_compression": "zip"}))?,
        422,
        &["zip", "1231", "bpe_io_capacity = 0 again"],
    )?;
    expect(
        &settings(json!({"bpe_enabled": "OFF"}))?,
        400,
        &["no setting"],
    )?;
    expect(
        &settings(json!({"bpe_path": "/no/such/folder/x"}))?,
        422,
        &["/no/such/folder"],
    )?;
    ensure!(sql::number(&server, "SELECT @@bpe_io_capacity")? == 0);
    let rule = |body: Value| console.ask("POST", "/api/servers/main/tables", Some(body));
    let of = |action: &str| json!({"schema": "shop", "table": "or`ders", "action": action});
    for (wanted, rules) in [
        (of("exclude"), "exclude shop.`or``ders`"),
        (of("prefer"), "prefer shop.`or``ders`"),
        (
            json!({"schema": "shop", "table": "b", "action": "limit", "percent": 7}),
            "limit 7% shop.b, prefer shop.`or``ders`",
        ),
        (of("normal"), "limit 7% shop.b"),
        (
            json!({"schema": "shop", "table": "b", "action": "normal"}),
            "",
        ),
    ] {
        let (status, answer) = rule(wanted.clone())?;
        ensure!(
            status == 200 && answer["applied"]["bpe_tables"] == rules,
            "{wanted}: {answer}"
        );
        let found = server.value("SELECT @@GLOBAL.bpe_tables")?;
        ensure!(found.as_deref() == Some(rules), "{wanted}: {found:?}");
    }
    expect(
        &rule(json!({"schema": "shop", "table": "b", "action": "limit"}))?,
        400,
        &["1 to 99 percent"],
    )?;
    expect(
        &rule(of("forget"))?,
        400,
        &["normal, exclude, prefer or limit"],
    )?;
    expect(
        &settings(json!({"bpe_io_capacity": 5000}))?,
        200,
        &["\"bpe_io_capacity\":5000"],
    )?;
    // A value that the server accepts, but the extension cannot be built with.
    expect(
        &settings(json!({"bpe_memory_limit": 4096}))?,
        422,
        &[
            "cannot work with these settings",
            "bpe_memory_limit = 0 again",
        ],
    )?;
    sql::wait_until("it is active again", Duration::from_secs(30), || {
        Ok(sql::number(&server, "SELECT @@bpe_memory_limit")? == 0
            && server
                .status("bpe_state")?
                .get("Bpe_state")
                .map(String::as_str)
                == Some("active"))
    })?;
    expect(
        &settings(json!({"bpe_instances": 2}))?,
        200,
        &["\"bpe_instances\":2", "\"warnings\":[]"],
    )?;
    let details = console.get("/api/servers/main/details")?;
    ensure!(details["settings"]["bpe_io_capacity"] == 5000, "{details}");
    ensure!(
        details["devices"][0]["active"] == true && details["instances"][0].is_object(),
        "{details}"
    );

    // Off and on by the variables, with the pool; then with another size.
    let task = console.switch(json!({"action": "off"}))?;
    ensure!(task["state"] == "done" && pool(&server)? == POOL, "{task}");
    sql::expect_state(&server, "disabled")?;
    console.wait("it is off", |server| server["state"] == "disabled")?;
    let task = console.switch(json!({"action": "on", "size": 96 * MIB}))?;
    ensure!(task["state"] == "done" && pool(&server)? < POOL, "{task}");
    ensure!(sql::number(&server, "SELECT @@bpe_size")? == 96 * MIB);

    // Undo all of it.
    let task = console.switch(json!({"action": "off", "uninstall": true}))?;
    ensure!(task["state"] == "done", "{task}");
    ensure!(pool(&server)? == POOL && server.status("bpe%")?.is_empty());
    console.wait("it is gone", |server| server["state"] == "not installed")?;
    let events = console.events()?;
    for part in [
        "the extension is active",
        "the extension is disabled",
        "settings changed: bpe_io_capacity",
        "Uninstalling: done",
    ] {
        ensure!(events.contains(part), "`{part}` is missing in {events}");
    }
    drop(console);
    server.stop()?;
    Ok(())
}

fn a_server_goes_and_comes(place: &Place) -> Outcome {
    let server = start(place)?;
    let library = library_path()?;
    let console = open(place.root(), server.socket(), &["--library", &library])?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    let mut live = console.live()?;
    ensure!(live.any(|line| line["type"] == "figures"));

    // The server dies in the middle of enabling, after the library was written.
    let written = place.root().join("run/plugins/bpe.so");
    let body = json!({"action": "on", "path": cache(place), "size": "64M"});
    let (status, task) = console.ask("POST", "/api/servers/main/switch", Some(body.clone()))?;
    ensure!(status == 202, "{task}");
    let begun = Instant::now();
    while !written.exists() {
        ensure!(
            begun.elapsed() < Duration::from_secs(60),
            "the library is not written"
        );
    }
    server.kill();
    let task = console.end_of(&task)?;
    note(format!("killed while enabling: {}", task["error"]));
    ensure!(
        live.any(|line| line["type"] == "unreachable"),
        "the pages are told"
    );
    console.wait("it is shown as gone", |server| server["reachable"] == false)?;
    if task["state"] == "failed" {
        let text = task.to_string();
        ensure!(
            text.contains("The server is gone") && text.contains("\"failed\""),
            "{text}"
        );
    }
    let asked = console.ask("POST", "/api/servers/main/plan", Some(body.clone()))?;
    expect(&asked, 502, &["cannot connect"])?;

    // The console reconnects automatically and reports the state, and switching on works.
    let server = start(place)?;
    ensure!(
        live.any(|line| line["type"] == "figures"),
        "the same page goes on"
    );
    console.wait("it is back", |server| {
        server["reachable"] == true && server["state"].is_string()
    })?;
    sql::wait_until("the log tells", Duration::from_secs(30), || {
        let events = console.events()?;
        let told = task["state"] == "done" || events.contains("interrupted change");
        Ok(told && events.contains("the server answers again"))
    })?;
    let task = console.switch(body)?;
    ensure!(task["state"] == "done", "{task}");
    sql::expect_state(&server, "active")?;
    let task = console.switch(json!({"action": "off", "uninstall": true}))?;
    ensure!(task["state"] == "done" && pool(&server)? == POOL, "{task}");
    ensure!(server.status("bpe%")?.is_empty());
    let left = sql::number(
        &server,
        "SELECT (SELECT COUNT(*) FROM mysql.plugin WHERE name = 'bpe') + (SELECT COUNT(*) FROM mysql.func WHERE name = 'bpe_report')",
    )?;
    ensure!(left == 0, "rows are left");
    drop(console);
    server.stop()?;
    Ok(())
}

/// Statements that all clients have sent.
fn statements(server: &Server) -> anyhow::Result<u64> {
    let status = server.status("Questions")?;
    let text = status.into_values().next().context("no such figure")?;
    Ok(text.parse()?)
}

/// Statements that the console's own account has sent.
fn of_the_console(server: &Server) -> anyhow::Result<u64> {
    sql::number(
        server,
        "SELECT SUM(COUNT_STAR) FROM performance_schema.events_statements_summary_by_user_by_event_name \
         WHERE USER = 'console'",
    )
}

fn many_pages_cost_no_more(place: &Place) -> Outcome {
    let server = place.start(
        place
            .early(64 * MIB)?
            .option("--performance-schema=ON")
            .option("--performance-schema-users-size=10"),
    )?;
    server.sql(trace::CREATE_FUNCTION)?;
    // A separate account, so that its statements can be counted.
    server.sql("CREATE USER console@localhost")?;
    let denied = open(place.root(), server.socket(), &["--user=console"])?;
    let details = denied.get("/api/servers/main/details")?;
    ensure!(
        details["files"] == json!([]) && details["settings"]["bpe_size"] == 64 * MIB,
        "{details}"
    );
    denied.wait("figures come all the same", |server| {
        server["state"] == "active"
    })?;
    let grant = "GRANT PROCESS ON *.* TO 'console'@'localhost'";
    sql::wait_until("it says what to grant", Duration::from_secs(20), || {
        let details = denied.get("/api/servers/main/details")?;
        Ok(details["explain"].to_string().contains(grant))
    })?;
    drop(denied);
    server.sql(grant)?;
    let console = open(place.root(), server.socket(), &["--user=console"])?;
    const SECONDS: usize = 4;
    /// Periodic statements that are independent of open pages, and the statements of this test itself.
    const BESIDES: u64 = 12;
    let during = |page: &mut dyn Iterator<Item = Value>| -> anyhow::Result<u64> {
        let before = statements(&server)?;
        let seen = page
            .filter(|line| line["type"] == "figures")
            .take(SECONDS)
            .count();
        ensure!(seen == SECONDS);
        Ok(statements(&server)? - before)
    };
    let mut page = console.live()?;
    ensure!(page.any(|line| line["type"] == "figures"));
    let one = during(&mut page)?;
    let mut pages: Vec<_> = (0..20).map(|_| console.live()).collect::<Result<_, _>>()?;
    let many = during(&mut page)?;
    note(format!(
        "statements in {SECONDS} s: {one} with one page, {many} with 21"
    ));
    ensure!(many <= one + BESIDES, "{one} with one page, {many} with 21");
    for page in &mut pages {
        ensure!(
            page.any(|line| line["type"] == "figures"),
            "every page gets its figures"
        );
    }
    share_under_load(place, &server, &mut page)?;
    // The console combines identical requests of pages into one.
    console.get("/api/servers/main/details")?;
    let before = statements(&server)?;
    for _ in 0..20 {
        console.get("/api/servers/main/details")?;
    }
    let details = statements(&server)? - before;
    note(format!("statements for 20 requests of details: {details}"));
    ensure!(details <= 2 * BESIDES, "{details}");
    let history = console.get("/api/servers/main/history")?;
    ensure!(
        history["figures"]
            .as_array()
            .is_some_and(|all| all.len() >= SECONDS),
        "{history}"
    );
    drop(pages);
    drop(console);
    server.stop()?;
    Ok(())
}

/// With 21 pages open, the console sends less than 2 % of the server's statements.
fn share_under_load(
    place: &Place,
    server: &Server,
    page: &mut dyn Iterator<Item = Value>,
) -> Outcome {
    const TIME: Duration = Duration::from_secs(6);
    const MOST_PERCENT: f64 = 2.0;
    let sysbench = Sysbench::prepare(server, place.root(), 1, 1000)?;
    let load = sysbench.run(server, "oltp_read_only", 2, 600)?;
    sql::wait_until("the load runs", Duration::from_secs(60), || {
        Ok(sql::number(
            server,
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = 'sbtest'",
        )? >= 2)
    })?;
    // Figures lag the statements: wait for the first figures under load.
    let mut figures =
        page.filter(|line| line["type"] == "figures" && line["qps"].as_f64() > Some(100.0));
    figures.next().context("the load is shown")?;
    let (all, own) = (statements(server)?, of_the_console(server)?);
    let begun = Instant::now();
    let seen = figures.take_while(|_| begun.elapsed() < TIME).count();
    let (all, own) = (statements(server)? - all, of_the_console(server)? - own);
    drop(load);
    let percent = own as f64 * 100.0 / all as f64;
    note(format!(
        "with 21 pages under sysbench {own} of {all} statements in {} s are the console's: {percent:.3} %",
        TIME.as_secs()
    ));
    ensure!(
        seen > 0 && own > 0,
        "{own} statements are counted, {seen} figures came"
    );
    ensure!(
        percent < MOST_PERCENT,
        "{own} of {all} statements: {percent:.2} %"
    );
    Ok(())
}

fn mysql_switches_too(place: &Place) -> Outcome {
    let server = start(place)?;
    let library = library_path()?;
    let console = open(place.root(), server.socket(), &["--library", &library])?;
    console.wait("it answers", |server| server["reachable"] == true)?;
    let task = console.switch(json!({"action": "on", "path": cache(place), "size": "64M"}))?;
    ensure!(task["state"] == "done", "{task}");
    let task = console.switch(json!({"action": "off"}))?;
    ensure!(task["state"] == "done" && pool(&server)? == POOL, "{task}");
    let task = console.switch(json!({"action": "on"}))?;
    ensure!(task["state"] == "done" && pool(&server)? < POOL, "{task}");
    let task = console.switch(json!({"action": "off", "uninstall": true}))?;
    ensure!(task["state"] == "done" && pool(&server)? == POOL, "{task}");
    // A pool size that the administrator has persisted stays outside the switch.
    server.sql(&format!("SET PERSIST innodb_buffer_pool_size = {POOL}"))?;
    let enabled = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args(["enable", "--no-defaults", "--user=root", "--keep-pool"])
        .args(["--yes", "--size=64M", "--library", &library, "--path"])
        .arg(place.cache())
        .arg("--state-dir")
        .arg(place.root().join("state"))
        .arg("--socket")
        .arg(server.socket())
        .output()?;
    ensure!(enabled.status.success(), "{enabled:?}");
    for action in ["off", "on"] {
        let task = console.switch(json!({"action": action}))?;
        ensure!(task["state"] == "done", "{task}");
    }
    ensure!(pool(&server)? < POOL, "the pool is lowered");
    let task = console.switch(json!({"action": "off", "uninstall": true}))?;
    ensure!(task["state"] == "done" && pool(&server)? == POOL, "{task}");
    let persisted = "SELECT VARIABLE_VALUE FROM performance_schema.persisted_variables \
                     WHERE VARIABLE_NAME = 'innodb_buffer_pool_size'";
    ensure!(
        sql::number(&server, persisted)? == POOL,
        "it is persisted as before"
    );
    drop(console);
    server.stop()?;
    Ok(())
}
