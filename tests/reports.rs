//! Who may read reports: accounts with `PROCESS`, as InnoDB asks for its own. Every report, on every way to it.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bpe::abi::report_function::REPORTS;
use integration_tests::mysql::{self, Conn, prelude::Queryable};
use integration_tests::trace::CREATE_FUNCTION;
use integration_tests::{Outcome, Place, Server, Suite, sql};

const CACHE: u64 = 64 << 20;
const DENIED: u16 = 1227;
/// Arguments that are no reports: each begins or continues something. A name that is not known tells as little.
const VERBS: [&str; 9] = [
    "heat",
    "heat:0:0",
    "heat-prints 0123456789abcdef 0123456789abcdef0123456789abcdef []",
    "trace-start 0123456789abcdef",
    "trace-next 0123456789abcdef 0",
    "verify-start 0123456789abcdef",
    "warm-start 0123456789abcdef",
    "warm-next 0123456789abcdef",
    "nonsense",
];
const VIEWS: &str = include_str!("../sql/views.sql");

fn main() -> ExitCode {
    Suite::new("reports")
        .each("reports_without_process_are_denied", denied)
        .each("reports_with_process_are_given", given)
        .each("routines_use_their_definers_privilege", routines)
        .each("status_counters_need_no_privilege", counters)
        .run()
}

/// A server with the function, the views, a table, and the account `weak`, which has no privilege but to read the views.
fn started(place: &Place) -> anyhow::Result<Server> {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    let mut root = server.connect()?;
    sql::fill(&mut root, "secret.people", 2000, 1000, "")?;
    // As a client cuts the file into statements.
    let text: Vec<&str> = VIEWS
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    for statement in text.join("\n").split(";\n") {
        if !statement.trim().is_empty() {
            root.query_drop(statement).context(statement.to_owned())?;
        }
    }
    for statement in [
        "CREATE USER weak IDENTIFIED BY 'x'",
        "GRANT SELECT ON bpe.* TO weak",
        "CREATE DATABASE own",
        "GRANT ALL ON own.* TO weak",
    ] {
        root.query_drop(statement)?;
    }
    Ok(server)
}

fn weak(server: &Server) -> anyhow::Result<Conn> {
    let options = mysql::OptsBuilder::new()
        .socket(Some(server.socket().display().to_string()))
        .prefer_socket(false)
        .user(Some("weak"))
        .pass(Some("x"));
    Ok(Conn::new(options)?)
}

/// The statement fails, with the server's own error and nothing else.
fn expect_denied(session: &mut Conn, statement: &str) -> Outcome {
    match session.query::<mysql::Row, _>(statement) {
        Err(mysql::Error::MySqlError(error)) => {
            let text = "Access denied; you need (at least one of) the PROCESS privilege(s)";
            ensure!(
                error.code == DENIED && error.message.starts_with(text),
                "{statement}: {error}"
            );
            Ok(())
        }
        Err(error) => Err(error).context(statement.to_owned()),
        Ok(rows) => bail!("{statement}: not refused, but {rows:?}"),
    }
}

fn arguments() -> impl Iterator<Item = &'static str> {
    REPORTS.iter().map(|(name, _)| *name).chain(VERBS)
}

fn denied(place: &Place) -> Outcome {
    let server = started(place)?;
    let mut session = weak(&server)?;
    session.query_drop("CREATE TABLE own.kept (text LONGTEXT)")?;
    for name in arguments() {
        for statement in [
            format!("SELECT bpe_report('{name}')"),
            format!("SELECT 1 FROM DUAL WHERE bpe_report('{name}') LIKE '%x%'"),
            format!("SELECT COALESCE(bpe_report('{name}'), 'nothing')"),
            format!("SET @report = bpe_report('{name}')"),
            format!("INSERT INTO own.kept SELECT bpe_report('{name}')"),
            format!("SET SESSION bpe_report = '{name}'"),
        ] {
            expect_denied(&mut session, &statement)?;
        }
        let shown: Option<Option<String>> = session.query_first("SELECT @@SESSION.bpe_report")?;
        ensure!(shown.flatten().unwrap_or_default().is_empty(), "{name}");
        let prepared = session
            .prep("SELECT bpe_report(?)")
            .and_then(|statement| session.exec_first::<mysql::Row, _, _>(&statement, (name,)));
        match prepared {
            Err(mysql::Error::MySqlError(error)) => ensure!(error.code == DENIED, "{error}"),
            other => bail!("{name}, prepared: {other:?}"),
        }
    }
    // An error handler gets the error, and no report. (DO drops errors itself, as both servers do it.)
    session.query_drop(
        "CREATE PROCEDURE own.handles() BEGIN DECLARE CONTINUE HANDLER FOR SQLEXCEPTION SET @caught = 1; \
         SET @report = NULL; INSERT INTO own.kept SELECT bpe_report('files'); SET @report = bpe_report('files'); END",
    )?;
    session.query_drop("CALL own.handles()")?;
    let caught: Option<(u8, Option<String>)> = session.query_first("SELECT @caught, @report")?;
    ensure!(caught == Some((1, None)), "{caught:?}");
    let kept: Option<u64> =
        session.query_first("SELECT COUNT(*) FROM own.kept WHERE text != ''")?;
    ensure!(kept == Some(0));

    let views: Vec<String> = session
        .query("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'bpe'")?;
    ensure!(views.len() == 6, "{views:?}");
    for view in views {
        expect_denied(&mut session, &format!("SELECT * FROM bpe.{view}"))?;
        // A dump asks for the columns.
        session.query_drop(format!("SHOW FIELDS FROM bpe.{view}"))?;
    }
    // A view of the administrator's does not lend the privilege. A routine does, see `routines`.
    server.sql(
        "CREATE SQL SECURITY DEFINER VIEW own.files AS SELECT bpe_report('files') AS report",
    )?;
    expect_denied(&mut session, "SELECT * FROM own.files")?;
    server.stop()?;
    Ok(())
}

fn given(place: &Place) -> Outcome {
    let server = started(place)?;
    let mut session = weak(&server)?;
    // What was prepared before a privilege comes or goes.
    let statement = session.prep("SELECT bpe_report('files')")?;
    let prepared = |session: &mut Conn| -> Result<Option<Option<String>>, mysql::Error> {
        session.exec_first(&statement, ())
    };
    ensure!(prepared(&mut session).is_err());
    server.sql("GRANT PROCESS ON *.* TO weak")?;
    let mut granted = weak(&server)?;
    for (name, _) in REPORTS {
        let by_function: Option<Option<String>> =
            granted.query_first(format!("SELECT bpe_report('{name}')"))?;
        granted.query_drop(format!("SET SESSION bpe_report = '{name}'"))?;
        let by_variable: Option<Option<String>> =
            granted.query_first("SELECT @@SESSION.bpe_report")?;
        for text in [by_function, by_variable] {
            let text = text
                .flatten()
                .with_context(|| format!("no report {name}"))?;
            let _: serde_json::Value = serde_json::from_str(&text).context(text)?;
        }
    }
    let files: Vec<String> =
        granted.query("SELECT table_name FROM bpe.tables WHERE schema_name = 'secret'")?;
    ensure!(files == ["people"], "{files:?}");
    // Neither of the servers tells a session of what others have granted or revoked; a role is switched by the session itself.
    server.sql("REVOKE PROCESS ON *.* FROM weak")?;
    for statement in [
        "CREATE ROLE looker",
        "GRANT PROCESS ON *.* TO looker",
        "GRANT looker TO weak",
    ] {
        server.sql(statement)?;
    }
    let mut session = weak(&server)?;
    let statement = session.prep("SELECT bpe_report('files')")?;
    for (role, allowed) in [
        ("looker", true),
        ("NONE", false),
        ("looker", true),
        ("NONE", false),
    ] {
        session.query_drop(format!("SET ROLE {role}"))?;
        let answer: Result<Option<mysql::Row>, _> = session.exec_first(&statement, ());
        ensure!(
            answer.is_ok() == allowed,
            "role {role}, prepared: {answer:?}"
        );
        let answer = session.query_drop("SET SESSION bpe_report = 'files'");
        ensure!(answer.is_ok() == allowed, "role {role}: {answer:?}");
    }
    server.stop()?;
    Ok(())
}

/// A routine has the privileges of its definer, or of whoever calls it, as it says. An event has those of its definer.
fn routines(place: &Place) -> Outcome {
    let server = started(place)?;
    for (name, security) in [("lent", "DEFINER"), ("own", "INVOKER")] {
        server.sql(&format!(
            "CREATE FUNCTION own.{name}() RETURNS LONGTEXT NOT DETERMINISTIC READS SQL DATA SQL SECURITY {security} \
             RETURN bpe_report('files')"
        ))?;
    }
    let mut session = weak(&server)?;
    let lent: Option<Option<String>> = session.query_first("SELECT own.lent()")?;
    ensure!(lent.flatten().is_some_and(|text| text.contains("people")));
    expect_denied(&mut session, "SELECT own.own()")?;

    server.sql("SET GLOBAL event_scheduler = ON")?;
    server.sql("CREATE TABLE own.told (who VARCHAR(20), text LONGTEXT)")?;
    let event = |who: &str| {
        format!(
            "CREATE EVENT own.of_{who} ON SCHEDULE AT CURRENT_TIMESTAMP ON COMPLETION PRESERVE DO BEGIN \
             INSERT INTO own.told VALUES ('{who}', NULL); UPDATE own.told SET text = bpe_report('files') WHERE who = '{who}'; END"
        )
    };
    session.query_drop(event("weak"))?;
    server.sql(&event("root"))?;
    sql::wait_until("both events ran", Duration::from_secs(30), || {
        let ended = "SELECT COUNT(*) FROM information_schema.EVENTS WHERE EVENT_SCHEMA = 'own' AND STATUS = 'DISABLED'";
        Ok(sql::number(&server, ended)? == 2
            && sql::number(&server, "SELECT COUNT(*) FROM own.told")? == 2)
    })?;
    sql::wait_until(
        "the administrator's has the report",
        Duration::from_secs(30),
        || {
            Ok(sql::number(
                &server,
                "SELECT COUNT(*) FROM own.told WHERE who = 'root' AND text LIKE '%people%'",
            )? == 1)
        },
    )?;
    let rows: Vec<(String, Option<String>)> =
        session.query("SELECT who, text FROM own.told WHERE who = 'weak'")?;
    ensure!(rows == [("weak".to_owned(), None)], "{rows:?}");
    server.stop()?;
    // Statements of --init-file run without an account, with all privileges.
    let file = place.root().join("init.sql");
    std::fs::write(
        &file,
        "CREATE TABLE own.first AS SELECT bpe_report('summary') AS report;\n",
    )?;
    let options = place.early(CACHE)?;
    let server = place.start(options.option(format!("--init-file={}", file.display())))?;
    let report = server.value("SELECT report FROM own.first")?;
    ensure!(report.is_some_and(|text| text.starts_with('{')));
    server.stop()?;
    Ok(())
}

/// Counters are open to all, as InnoDB's are, and name no table, file or path.
fn counters(place: &Place) -> Outcome {
    let server = started(place)?;
    let mut session = weak(&server)?;
    let status: Vec<(String, String)> = session.query("SHOW GLOBAL STATUS LIKE 'bpe%'")?;
    ensure!(status.len() == interface::Status::ALL.len(), "{status:?}");
    let cache = place.cache().display().to_string();
    for (name, value) in status {
        for part in ["people", "secret", ".ibd", &cache] {
            ensure!(!value.contains(part), "{name}: {value}");
        }
    }
    server.stop()?;
    Ok(())
}
