//! A recording, a verification, a warm-up and a comparison of page keys need `PROCESS` and the privilege for `SET GLOBAL`.
//! `reports.rs` covers accounts without `PROCESS`.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bpe_plugin::abi::report_function::REPORTS;
use integration_tests::mysql::{self, Conn, prelude::Queryable};
use integration_tests::trace::{CREATE_FUNCTION, Recording, ask, hook_mode};
use integration_tests::{Outcome, Place, Server, Suite, sql};

const CACHE: u64 = 64 << 20;
const DENIED: u16 = 1227;
const PRIVILEGED: [&str; 17] = [
    "trace-start",
    "trace-next 0123456789abcdef 0",
    "trace-stop",
    "verify-start",
    "verify-start 10",
    "verify-next 0123456789abcdef 0 0",
    "verify-stop",
    "warm-put {}",
    "warm-load 0",
    "warm-status",
    "warm-nonsense",
    "nonsense",
    " trace-start",
    " verify-stop",
    "Verify-start",
    "trace-start ",
    "heat-prints 0123456789abcdef0123456789abcdef []",
];

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("rights")
        .all("work_needs_the_right_to_set_global", right_to_set_global)
        .in_turn("clients_that_are_gone_leave_nothing", forgotten)
        .in_turn("administrators_end_the_work_of_others", ended_by_others)
}

fn started(place: &Place) -> anyhow::Result<Server> {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    Ok(server)
}

/// Creates an account with `PROCESS` and these privileges.
fn account(server: &Server, name: &str, privileges: &[&str]) -> Outcome {
    server.sql(&format!("CREATE USER {name} IDENTIFIED BY 'x'"))?;
    for privilege in ["PROCESS"].iter().chain(privileges) {
        server.sql(&format!("GRANT {privilege} ON *.* TO {name}"))?;
    }
    Ok(())
}

fn session(server: &Server, name: &str) -> anyhow::Result<Conn> {
    let options = mysql::OptsBuilder::new()
        .socket(Some(server.socket().display().to_string()))
        .prefer_socket(false)
        .user(Some(name))
        .pass(Some("x"));
    Ok(Conn::new(options)?)
}

/// No costly operation has begun on the server.
fn nothing_begun(server: &Server, mode: u64) -> Outcome {
    let summary = ask(&mut server.connect()?, "summary")?;
    ensure!(
        summary["recording"] == false && summary["verifications"] == 0,
        "{summary:#}"
    );
    ensure!(hook_mode(server)? == mode);
    Ok(())
}

/// Function and variable refuse privileged arguments, with the server's own error.
fn refused(connection: &mut Conn) -> Outcome {
    for argument in PRIVILEGED {
        for statement in [
            format!("SELECT bpe_report('{argument}')"),
            format!("SET SESSION bpe_report = '{argument}'"),
        ] {
            match connection.query::<mysql::Row, _>(&statement) {
                Err(mysql::Error::MySqlError(error)) => ensure!(
                    error.code == DENIED && error.message.contains("SUPER"),
                    "{statement}: {error}"
                ),
                other => bail!("{statement}: {other:?}"),
            }
        }
    }
    Ok(())
}

/// Function and variable begin work; all of it ends again.
fn allowed(connection: &mut Conn) -> Outcome {
    connection.query_drop("SET SESSION bpe_report = 'verify-start 10'")?;
    let text: Option<String> = connection.query_first("SELECT @@SESSION.bpe_report")?;
    ensure!(
        text.as_deref()
            .is_some_and(|text| text.contains("verify-next")),
        "{text:?}"
    );
    let recording = ask(connection, "trace-start")?;
    ensure!(recording["recording"].is_string(), "{recording}");
    let name = recording["recording"].as_str().unwrap_or_default();
    ask(connection, &format!("trace-stop {name}"))?;
    let answer = ask(connection, &format!("trace-next {name} 1000000000"))?;
    ensure!(answer["done"] == true, "{answer}");
    ask(connection, "verify-stop")?;
    Ok(())
}

fn right_to_set_global(place: &Place) -> Outcome {
    let server = started(place)?;
    let mode = hook_mode(&server)?;
    account(&server, "nobody", &[])?;
    let mut nobody = session(&server, "nobody")?;
    refused(&mut nobody)?;
    nothing_begun(&server, mode)?;
    for (report, _) in REPORTS {
        ensure!(ask(&mut nobody, report)?.get("error").is_none(), "{report}");
    }
    ensure!(ask(&mut nobody, "heat")?.get("error").is_none());
    // The privilege without PROCESS is not enough.
    let rights: &[&str] = if place.is_mysql() {
        &["SUPER", "SYSTEM_VARIABLES_ADMIN"]
    } else {
        &["SUPER"]
    };
    for right in rights {
        account(&server, "has_right", &[right])?;
        allowed(&mut session(&server, "has_right")?)?;
        server.sql("REVOKE PROCESS ON *.* FROM has_right")?;
        let mut without = session(&server, "has_right")?;
        match without.query::<mysql::Row, _>("SELECT bpe_report('trace-start')") {
            Err(mysql::Error::MySqlError(error)) => ensure!(error.code == DENIED, "{error}"),
            other => bail!("{right} without PROCESS: {other:?}"),
        }
        server.sql("DROP USER has_right")?;
        // By a role, while it is active in the session.
        for statement in [
            "CREATE ROLE administers".to_owned(),
            format!("GRANT {right} ON *.* TO administers"),
            "GRANT administers TO nobody".to_owned(),
        ] {
            server.sql(&statement)?;
        }
        let mut nobody = session(&server, "nobody")?;
        refused(&mut nobody)?;
        nobody.query_drop("SET ROLE administers")?;
        allowed(&mut nobody)?;
        nobody.query_drop("SET ROLE NONE")?;
        refused(&mut nobody)?;
        server.sql("DROP ROLE administers")?;
    }
    nothing_begun(&server, mode)?;
    server.stop()?;
    Ok(())
}

/// A client that disconnects leaves nothing behind: no verification, no recording.
fn forgotten(place: &Place) -> Outcome {
    let server = started(place)?;
    let mode = hook_mode(&server)?;
    let mut root = server.connect()?;
    let verification = ask(&mut root, "verify-start")?;
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

fn ended_by_others(place: &Place) -> Outcome {
    let server = started(place)?;
    let mode = hook_mode(&server)?;
    let mut root = server.connect()?;
    let (first, second) = (
        ask(&mut root, "verify-start")?,
        ask(&mut root, "verify-start 10")?,
    );
    let mut recording = Recording::start(&server)?;
    // The end of one verification does not affect the other.
    let mut next = first["next"].as_str().context("a name")?.to_owned();
    ensure!(ask(&mut root, "summary")?["verifications"] == 2);
    loop {
        let answer = ask(&mut root, &next)?;
        ensure!(
            answer["error"].is_null() && answer["wrong"] == 0,
            "{answer}"
        );
        match answer["next"].as_str() {
            Some(name) => next = name.into(),
            None => break,
        }
    }
    let over = ask(&mut root, &next)?;
    ensure!(over["error"].to_string().contains("it has ended"), "{over}");
    ensure!(ask(&mut root, "summary")?["verifications"] == 1);

    let mut other = server.connect()?;
    ask(&mut other, "trace-stop")?;
    ask(&mut other, "verify-stop")?;
    ensure!(recording.drain()?, "it goes on");
    let why = recording.ended.clone().unwrap_or_default();
    ensure!(why.contains("trace-stop"), "{why}");
    let answer = ask(&mut root, second["next"].as_str().context("a name")?)?;
    ensure!(answer["error"].is_string(), "{answer}");
    nothing_begun(&server, mode)?;
    sql::expect_state(&server, "active")?;
    server.stop()?;
    Ok(())
}
