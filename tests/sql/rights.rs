//! Who may begin a recording or a verification: an account with `PROCESS` and a key that an account with the right to SET GLOBAL
//! has set. `reports.rs` is about accounts without `PROCESS`.

use std::time::Duration;

use anyhow::{Context, ensure};
use bpe::abi::report_function::REPORTS;
use integration_tests::mysql::{self, Conn, prelude::Queryable};
use integration_tests::trace::{self, CREATE_FUNCTION, Recording, ask, hook_mode};
use integration_tests::{Outcome, Place, Server, Suite, sql};

const CACHE: u64 = 64 << 20;
const BEGINNINGS: [&str; 8] = [
    "trace-start",
    "trace-start 0123456789abcdef",
    "verify-start",
    "verify-start 0123456789abcdef",
    "verify-start 0123456789abcdef 10",
    "verify-next 0123456789abcdef 0 0",
    "warm-start 0123456789abcdef",
    "heat-prints 0123456789abcdef 0123456789abcdef0123456789abcdef []",
];

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("rights")
        .all("nobody_begins_without_a_key", nobody_without_key)
        .each("a_key_is_good_for_one", good_for_one)
        .each("nothing_is_armed_at_the_start", at_the_start)
        .each("what_is_not_used_is_forgotten", forgotten)
        .each("taken_back", taken_back)
}

fn started(place: &Place) -> anyhow::Result<Server> {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    server.sql("CREATE USER nobody IDENTIFIED BY 'x'")?;
    server.sql("GRANT PROCESS ON *.* TO nobody")?;
    Ok(server)
}

/// A session of an account that may read reports, and no more.
fn nobody(server: &Server) -> anyhow::Result<Conn> {
    let options = mysql::OptsBuilder::new()
        .socket(Some(server.socket().display().to_string()))
        .prefer_socket(false)
        .user(Some("nobody"))
        .pass(Some("x"));
    Ok(Conn::new(options)?)
}

fn waiting(connection: &mut Conn) -> anyhow::Result<u64> {
    let summary = ask(connection, "summary")?;
    summary["diagnostics_keys"]
        .as_u64()
        .context("no diagnostics_keys")
}

/// Nothing that costs the server something has begun.
fn nothing_begun(server: &Server, mode: u64) -> Outcome {
    let summary = ask(&mut server.connect()?, "summary")?;
    ensure!(
        summary["recording"] == false && summary["verifications"] == 0,
        "{summary:#}"
    );
    ensure!(hook_mode(server)? == mode);
    Ok(())
}

fn refused(connection: &mut Conn) -> Outcome {
    for argument in BEGINNINGS {
        let answer = ask(connection, argument)?;
        let why = answer["error"].as_str().unwrap_or_default();
        let parts: &[&str] = match argument {
            "verify-next 0123456789abcdef 0 0" => &["no such verification"],
            _ => &["SET GLOBAL", "bpe_diagnostics_key", "sets one itself"],
        };
        for part in parts {
            ensure!(why.contains(part), "{argument}: {answer}");
        }
        ensure!(
            answer.as_object().map(serde_json::Map::len) == Some(1),
            "{answer}"
        );
    }
    // As it was before there were keys.
    ensure!(ask(connection, "verify:0:0:1").is_err());
    Ok(())
}

fn nobody_without_key(place: &Place) -> Outcome {
    let server = started(place)?;
    let mode = hook_mode(&server)?;
    let mut nobody = nobody(&server)?;
    refused(&mut nobody)?;
    // Also while somebody else has set a key, which is not to be read anywhere.
    let mut root = server.connect()?;
    let key = trace::set_key(&mut root)?;
    refused(&mut nobody)?;
    let table = if place.is_mysql() {
        "performance_schema.global_variables"
    } else {
        "information_schema.GLOBAL_VARIABLES"
    };
    for statement in [
        "SELECT @@GLOBAL.bpe_diagnostics_key".to_owned(),
        format!("SELECT VARIABLE_VALUE FROM {table} WHERE VARIABLE_NAME = 'bpe_diagnostics_key'"),
    ] {
        let shown: Option<String> = nobody.query_first(&statement)?;
        ensure!(shown.as_deref() == Some(""), "{statement}: {shown:?}");
    }
    let log = std::fs::read_to_string(server.log())?;
    ensure!(!log.contains(&key), "the key stands in the log");
    // The right to set one is the server's.
    match nobody.query_drop("SET GLOBAL bpe_diagnostics_key = '0123456789abcdef'") {
        Err(mysql::Error::MySqlError(error)) => ensure!(error.code == 1227, "{error}"),
        other => anyhow::bail!("{other:?}"),
    }
    nothing_begun(&server, mode)?;
    // Plain reports need no key.
    for (report, _) in REPORTS {
        ensure!(ask(&mut nobody, report)?.get("error").is_none(), "{report}");
    }
    // What was set is still good.
    let answer = ask(&mut root, &format!("verify-start {key} 10"))?;
    ensure!(answer["next"].is_string(), "{answer}");
    server.stop()?;
    Ok(())
}

fn good_for_one(place: &Place) -> Outcome {
    let server = started(place)?;
    let mode = hook_mode(&server)?;
    let mut root = server.connect()?;
    let mut nobody = nobody(&server)?;
    // Two sessions at once: each has a key of its own, whatever the order.
    let (first, second) = (trace::set_key(&mut root)?, trace::set_key(&mut root)?);
    ensure!(waiting(&mut root)? == 2);
    let verification = ask(&mut nobody, &format!("verify-start {second}"))?;
    let recording = ask(&mut nobody, &format!("trace-start {first}"))?;
    let name = recording["recording"]
        .as_str()
        .with_context(|| recording.to_string())?;
    ensure!(waiting(&mut root)? == 0);
    for key in [&first, &second] {
        for what in ["trace-start", "verify-start"] {
            let again = ask(&mut root, &format!("{what} {key}"))?;
            ensure!(
                again["error"].to_string().contains("bpe_diagnostics_key"),
                "{what}: {again}"
            );
        }
    }
    // The end of the one leaves the other alone.
    let mut next = verification["next"].as_str().context("a name")?.to_owned();
    ensure!(ask(&mut root, "summary")?["verifications"] == 1);
    loop {
        let answer = ask(&mut nobody, &next)?;
        ensure!(
            answer["error"].is_null() && answer["wrong"] == 0,
            "{answer}"
        );
        match answer["next"].as_str() {
            Some(name) => next = name.into(),
            None => break,
        }
    }
    let over = ask(&mut nobody, &next)?;
    ensure!(over["error"].to_string().contains("it has ended"), "{over}");
    let answer = ask(&mut nobody, &format!("trace-next {name} 0"))?;
    ensure!(
        answer["ended"].is_null() && answer["error"].is_null(),
        "{answer}"
    );
    ask(&mut nobody, &format!("trace-stop {name}"))?;
    sql::wait_until("the recording ends", Duration::from_secs(20), || {
        Ok(hook_mode(&server)? == mode)
    })?;
    refused(&mut nobody)?;
    server.stop()?;
    Ok(())
}

/// No option file and no persisted value arms the server.
fn at_the_start(place: &Place) -> Outcome {
    let key = "0123456789abcdef0123";
    let options = place.early(CACHE)?;
    let server = place.start(options.option(format!("--loose-bpe-diagnostics-key={key}")))?;
    server.sql(CREATE_FUNCTION)?;
    let mut root = server.connect()?;
    ensure!(waiting(&mut root)? == 0);
    let answer = ask(&mut root, &format!("trace-start {key}"))?;
    ensure!(answer["error"].is_string(), "{answer}");
    if place.is_mysql() {
        for how in ["PERSIST", "PERSIST_ONLY"] {
            let error = sql::refusal(&server, &format!("SET {how} bpe_diagnostics_key = '{key}'"))?;
            ensure!(waiting(&mut root)? == 0, "{how}: {error}");
        }
    }
    for bad in [
        "'ON'",
        "'short'",
        "'0123456789abcde;'",
        "1",
        "REPEAT('x', 65)",
    ] {
        let error = sql::refusal(&server, &format!("SET GLOBAL bpe_diagnostics_key = {bad}"))?;
        ensure!(waiting(&mut root)? == 0, "{bad}: {error}");
    }
    // Uninstalled and installed again, it knows nothing of keys before.
    let key = trace::set_key(&mut root)?;
    ensure!(waiting(&mut root)? == 1);
    server.sql(place.uninstall_statement())?;
    let answer = ask(&mut root, &format!("trace-start {key}"))?;
    ensure!(
        answer["error"].to_string().contains("not installed"),
        "{answer}"
    );
    server.sql(place.install_statement())?;
    ensure!(waiting(&mut root)? == 0);
    server.stop()?;
    Ok(())
}

/// A client that is gone leaves nothing behind: no verification, no recording. (That a key which nobody uses is forgotten
/// after a minute is a unit test of `keys.rs`.)
fn forgotten(place: &Place) -> Outcome {
    let server = started(place)?;
    let mode = hook_mode(&server)?;
    let mut root = server.connect()?;
    let key = trace::set_key(&mut root)?;
    let verification = ask(&mut root, &format!("verify-start {key}"))?;
    drop(Recording::start(&server)?);
    let summary = ask(&mut root, "summary")?;
    ensure!(
        summary["recording"] == true && summary["verifications"] == 1,
        "{summary:#}"
    );
    sql::wait_until("both end", Duration::from_secs(60), || {
        let summary = ask(&mut root, "summary")?;
        Ok(summary["recording"] == false && summary["verifications"] == 0)
    })?;
    nothing_begun(&server, mode)?;
    let next = verification["next"].as_str().context("a name")?;
    let answer = ask(&mut root, next)?;
    ensure!(answer["error"].is_string(), "{answer}");
    server.stop()?;
    Ok(())
}

fn taken_back(place: &Place) -> Outcome {
    let server = started(place)?;
    let mode = hook_mode(&server)?;
    let mut root = server.connect()?;
    for empty in ["''", "DEFAULT"] {
        let unused = trace::set_key(&mut root)?;
        let key = trace::set_key(&mut root)?;
        let verification = ask(&mut root, &format!("verify-start {key}"))?;
        let mut recording = Recording::start(&server)?;
        server.sql(&format!("SET GLOBAL bpe_diagnostics_key = {empty}"))?;
        ensure!(recording.drain()?, "it goes on");
        let why = recording.ended.clone().unwrap_or_default();
        ensure!(why.contains("bpe_diagnostics_key"), "{why}");
        nothing_begun(&server, mode)?;
        sql::expect_state(&server, "active")?;
        for argument in [
            format!("trace-start {unused}"),
            verification["next"].as_str().context("a name")?.to_owned(),
        ] {
            let answer = ask(&mut root, &argument)?;
            ensure!(answer["error"].is_string(), "{answer}");
        }
    }
    server.stop()?;
    Ok(())
}
