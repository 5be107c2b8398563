//! Reports need `PROCESS`, as InnoDB's own do: every report, by function and by variable. Fingerprints of leaf pages must not
//! reveal the keys in them.

use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bpe_plugin::abi::report_function::REPORTS;
use integration_tests::mysql::{self, Conn, prelude::Queryable};
use integration_tests::trace::{CREATE_FUNCTION, ask};
use integration_tests::{Outcome, Place, Server, Suite, sql};
use siphasher::sip::{SipHasher13, SipHasher24};

const CACHE: u64 = 64 << 20;
const DENIED: u16 = 1227;
/// Arguments that are no reports: each begins or continues an operation. Unknown names reveal as little.
const VERBS: [&str; 9] = [
    "heat",
    "heat:0:0",
    "heat-prints 0123456789abcdef0123456789abcdef []",
    "trace-start",
    "trace-next 0123456789abcdef 0",
    "verify-start",
    "warm-load 0",
    "warm-status",
    "nonsense",
];
const VIEWS: &str = include_str!("../../sql/views.sql");

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("reports")
        .each("reports_without_process_are_denied", denied)
        .each("reports_with_process_are_given", given)
        .each("the_global_value_stays_empty", global)
        .each("routines_use_their_definers_privilege", routines)
        .each("status_counters_need_no_privilege", counters)
        .in_turn("fingerprints_do_not_give_keys_back", fingerprints)
}

/// A server with the function, the views, a table, and the account `weak`, which may only read the views.
fn started(place: &Place) -> anyhow::Result<Server> {
    let server = place.start(place.early(CACHE)?)?;
    server.sql(CREATE_FUNCTION)?;
    let mut root = server.connect()?;
    sql::fill(&mut root, "secret.people", 2000, 1000, "")?;
    // Splits the file into statements as a client does.
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

/// The statement fails, with the server's own error only.
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
    // An error handler gets the error, and no report. (Both servers drop errors in DO.)
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
        // A dump reads the columns.
        session.query_drop(format!("SHOW FIELDS FROM bpe.{view}"))?;
    }
    // An administrator's view does not lend the privilege. A routine does, see `routines`.
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
    // Prepared before the privilege is granted or revoked.
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
    // Neither server notifies a session of grants and revokes by others; the session itself switches a role.
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

/// `SET GLOBAL bpe_report` publishes no report: every account can read global values, and new sessions copy them.
fn global(place: &Place) -> Outcome {
    let server = started(place)?;
    let mut root = server.connect()?;
    for name in ["files", "summary", "unknown"] {
        root.query_drop(format!("SET GLOBAL bpe_report = '{name}'"))?;
        let mut session = weak(&server)?;
        for scope in ["GLOBAL", "SESSION"] {
            let shown: Option<Option<String>> =
                session.query_first(format!("SELECT @@{scope}.bpe_report"))?;
            let shown = shown.flatten().unwrap_or_default();
            ensure!(shown.is_empty(), "{scope} after {name}: {shown}");
        }
    }
    root.query_drop("SET SESSION bpe_report = 'files'")?;
    let own: Option<Option<String>> = root.query_first("SELECT @@SESSION.bpe_report")?;
    ensure!(own.flatten().is_some_and(|text| text.contains("people")));
    root.query_drop("SET GLOBAL bpe_report = DEFAULT")?;
    root.query_drop("SET SESSION bpe_report = DEFAULT")?;
    let own: Option<Option<String>> = root.query_first("SELECT @@SESSION.bpe_report")?;
    ensure!(own.flatten().unwrap_or_default().is_empty());
    server.stop()?;
    Ok(())
}

/// A routine has the privileges of its definer or its caller, as declared. An event has those of its definer.
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

/// Counters are public, as InnoDB's are, and name no table, file or path.
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

/// Bytes of a key: a social security number.
const KEY: usize = 9;
const PAGE: usize = 16384;
/// Hashed bytes of a key, for the fingerprint lengths that are shorter than a key.
const HASHED: [usize; 2] = [4, 8];

/// The first keys of a file's leaf pages, by page.
fn first_keys(file: &[u8]) -> Vec<(usize, Vec<u8>)> {
    let word = |page: &[u8], at: usize| usize::from(u16::from_be_bytes([page[at], page[at + 1]]));
    let leaf = |(n, page): (usize, &[u8])| {
        let is_leaf = word(page, 24) == 17855 && word(page, 64) == 0;
        let first = 99 + word(page, 97) % PAGE;
        let key = page.get(first..first + KEY).filter(|_| is_leaf)?;
        key.iter()
            .all(u8::is_ascii_digit)
            .then(|| (n, key.to_vec()))
    };
    file.chunks_exact(PAGE)
        .enumerate()
        .filter_map(leaf)
        .collect()
}

type Hash = dyn Fn(&[u8]) -> u64;

/// FNV-1a, as used before the secret was introduced.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Number of keys that a dictionary attack finds: it hashes each possible key and compares.
fn found(prints: &[(Vec<u8>, [u64; 2])], keys: &[String], hash: &Hash) -> usize {
    let dictionary: std::collections::HashMap<[u64; 2], &[u8]> = keys
        .iter()
        .map(|key| {
            (
                HASHED.map(|length| hash(&key.as_bytes()[..length])),
                key.as_bytes(),
            )
        })
        .collect();
    let is_found = |(key, print): &&(Vec<u8>, [u64; 2])| {
        let found = dictionary.get(print);
        found.is_some_and(|found| found[..HASHED[1]] == key[..HASHED[1]])
    };
    prints.iter().filter(is_found).count()
}

fn fingerprints(place: &Place) -> Outcome {
    let server = started(place)?;
    let mut root = server.connect()?;
    let mut random = fastrand::Rng::with_seed(7);
    let mut keys: Vec<String> = (0..20_000)
        .map(|_| format!("{:09}", random.u32(..1_000_000_000)))
        .collect();
    keys.sort();
    keys.dedup();
    root.query_drop(
        "CREATE TABLE secret.numbers (ssn CHAR(9) CHARACTER SET latin1 PRIMARY KEY, pad VARCHAR(400)) ENGINE=InnoDB",
    )?;
    for some in keys.chunks(2000) {
        let rows: Vec<String> = some
            .iter()
            .map(|key| format!("('{key}', REPEAT('x', 300))"))
            .collect();
        root.query_drop(format!(
            "INSERT INTO secret.numbers VALUES {}",
            rows.join(",")
        ))?;
    }
    sql::write_dirty_pages(&server)?;
    for _ in 0..3 {
        root.query_drop("SELECT SUM(LENGTH(pad)) FROM secret.numbers")?;
    }
    let leaves = first_keys(&std::fs::read(place.data().join("secret/numbers.ibd"))?);
    ensure!(leaves.len() > 200, "{} leaves", leaves.len());

    let pages: Vec<usize> = leaves.iter().map(|(page, _)| *page).collect();
    let secret = random.u128(..);
    let asked =
        |secret: u128| format!("heat-prints {secret:032x} [[\"secret/numbers.ibd\",{pages:?}]]");
    let mut prints_by = |secret: u128| -> anyhow::Result<Vec<(Vec<u8>, [u64; 2])>> {
        let answer = ask(&mut root, &asked(secret))?;
        let prints = answer["prints"][0].as_array().context(answer.to_string())?;
        let mut known = Vec::new();
        for ((_, key), print) in leaves
            .iter()
            .zip(prints)
            .filter(|(_, print)| !print.is_null())
        {
            let hash = |n: usize| u64::from_str_radix(print[n].as_str().unwrap_or_default(), 16);
            known.push((key.clone(), [hash(0)?, hash(1)?]));
        }
        Ok(known)
    };
    let prints = prints_by(secret)?;
    ensure!(prints.len() > 100, "{} fingerprints", prints.len());

    let with = |secret: u128| {
        move |bytes: &[u8]| SipHasher24::new_with_key(&secret.to_be_bytes()).hash(bytes)
    };
    let attacks: [(&str, Box<Hash>); 5] = [
        ("FNV-1a", Box::new(fnv)),
        (
            "SipHash-2-4 without a key",
            Box::new(|bytes| SipHasher24::new().hash(bytes)),
        ),
        (
            "SipHash-1-3 without a key",
            Box::new(|bytes| SipHasher13::new().hash(bytes)),
        ),
        ("another secret", Box::new(with(secret ^ 1))),
        ("the secret reversed", Box::new(with(secret.swap_bytes()))),
    ];
    for (name, hash) in &attacks {
        let right = found(&prints, &keys, hash);
        ensure!(right == 0, "{name}: {right} of {} keys", prints.len());
    }
    // The original attack: folded to 16 bits.
    let fold = |hash: u64| u64::from((hash ^ hash >> 16 ^ hash >> 32 ^ hash >> 48) as u16);
    let folded: Vec<_> = prints
        .iter()
        .map(|(key, print)| (key.clone(), print.map(fold)))
        .collect();
    let right = found(&folded, &keys, &move |bytes| fold(fnv(bytes)));
    ensure!(right == 0, "{right} of {} keys", prints.len());
    // With the secret the same attack finds every key, so this test can fail.
    let known = found(&prints, &keys, &with(secret));
    ensure!(known == prints.len(), "{known} of {}", prints.len());
    // Fingerprints of one comparison reveal nothing about the next.
    let next = prints_by(!secret)?;
    let learned: std::collections::HashSet<u64> =
        prints.iter().flat_map(|(_, print)| *print).collect();
    ensure!(
        !next.is_empty()
            && next
                .iter()
                .all(|(_, print)| !print.iter().any(|hash| learned.contains(hash)))
    );

    // PROCESS alone gives no fingerprints, with a secret or in the former syntax without one.
    server.sql("GRANT PROCESS ON *.* TO weak")?;
    let mut weak = weak(&server)?;
    for argument in [asked(1), "heat-prints secret/numbers.ibd:64,65".to_owned()] {
        let statement = format!("SELECT bpe_report('{argument}')");
        match weak.query_first::<Option<String>, _>(statement) {
            Err(mysql::Error::MySqlError(error)) => ensure!(error.code == DENIED, "{error}"),
            other => bail!("{other:?}"),
        }
    }
    server.stop()?;
    Ok(())
}
