//! Monitoring: the views of schema `bpe` for an account with read privileges only, the figures through Prometheus' exporter,
//! and the files under `monitoring/`, which may name only existing columns and metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail, ensure};
use integration_tests::exporter::{Exporter, tool};
use integration_tests::harness::Outcome;
use integration_tests::mysql::{self, Conn, OptsBuilder, Row, prelude::Queryable};
use integration_tests::{Place, Server, Suite, library, note, sql, trace};

const CACHE: &str = "64M";
const VIEWS: [&str; 6] = ["status", "instances", "devices", "files", "rules", "tables"];
/// Rows of 1,000 bytes: more than the pool of 8 MiB.
const ROWS: u32 = 15_000;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("monitoring")
        .all("views_and_exporter", views_and_exporter)
        .plain("alert_rules", alert_rules)
        .plain("expressions_of_the_dashboard", expressions_of_the_dashboard)
        .plain("printed_views", printed_views)
}

/// A server and the command that runs against it.
struct Host<'a> {
    place: &'a Place,
    server: Server,
}

impl Host<'_> {
    /// Runs `bpe`; its output must contain `part`.
    fn bpe(&self, user: &str, arguments: &[&str], code: i32, part: &str) -> Outcome {
        let output = Command::new(env!("CARGO_BIN_EXE_bpe"))
            .args(arguments)
            .args(["--no-defaults", "--user", user, "--socket"])
            .arg(self.server.socket())
            .env("BPE_STATE_DIR", self.place.root().join("state"))
            .env("MYSQL_PWD", if user == "root" { "" } else { "secret" })
            .output()?;
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        ensure!(
            output.status.code() == Some(code) && text.contains(part),
            "bpe {arguments:?}: {}, expected {code} and '{part}':\n{text}",
            output.status
        );
        Ok(())
    }

    fn enable(&self, part: &str) -> Outcome {
        let (library, cache) = (library::library()?, self.place.cache());
        let (library, cache) = (library.to_string_lossy(), cache.to_string_lossy());
        let arguments = [
            "enable",
            "--yes",
            "--keep-pool",
            "--views",
            "--path",
            &*cache,
            "--size",
            CACHE,
            "--library",
            &*library,
        ];
        self.bpe("root", &arguments, 0, part)
    }

    fn connect_as(&self, user: &str) -> anyhow::Result<Conn> {
        let options = OptsBuilder::new()
            .socket(Some(self.server.socket().display().to_string()))
            .user(Some(user))
            .pass(Some("secret"))
            .prefer_socket(false);
        Ok(Conn::new(options)?)
    }

    /// Bytes of the binary logs.
    fn logged(&self) -> anyhow::Result<u64> {
        let rows: Vec<Row> = self.server.connect()?.query("SHOW BINARY LOGS")?;
        let sizes = rows.iter().filter_map(|row| row.get::<u64, usize>(1));
        Ok(sizes.sum())
    }

    fn views_there(&self) -> anyhow::Result<u64> {
        sql::number(
            &self.server,
            "SELECT COUNT(*) FROM information_schema.VIEWS WHERE TABLE_SCHEMA = 'bpe'",
        )
    }
}

fn views_and_exporter(place: &Place) -> Outcome {
    let options = place
        .installable()?
        .option("--log-bin=binary")
        .option("--server-id=1");
    let host = Host {
        place,
        server: place.start(options)?,
    };
    let before = host.logged()?;
    ensure!(before > 0, "the binary log is off");
    host.enable("views made")?;
    ensure!(
        host.logged()? == before,
        "`bpe enable` is in the binary log"
    );
    host.enable("nothing to change")?;
    load(&host)?;

    sql::run(
        &host.server,
        &[
            "CREATE USER monitor@localhost IDENTIFIED BY 'secret'",
            "GRANT SELECT ON bpe.* TO monitor@localhost",
        ],
    )?;
    // Without PROCESS, the command prints the counters and the GRANT statement for the rest.
    let grant = "GRANT PROCESS ON *.* TO 'monitor'@'localhost'";
    for arguments in [&["status"][..], &["status", "--explain", "--seconds", "1"]] {
        host.bpe("monitor", arguments, 0, grant)?;
    }
    host.server.sql(grant)?;
    let mut monitor = host.connect_as("monitor")?;
    figures_in_views(&host, &mut monitor)?;
    pmm_queries(&mut monitor)?;
    through_the_exporter(&host)?;
    switched_off(&host, &mut monitor)?;
    dumped_and_restored(&host)?;
    without_the_function(&host, &mut monitor)?;
    made_and_dropped_alone(&host)?;

    host.bpe("root", &["disable", "--yes"], 0, "Disabled")?;
    let schema = "SELECT COUNT(*) FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = 'bpe'";
    ensure!(sql::number(&host.server, schema)? == 0, "the schema stayed");
    host.server.stop()?;
    Ok(())
}

/// A table larger than the pool that is read twice, a partitioned table, and a table whose name is encoded in its file name.
fn load(host: &Host<'_>) -> Outcome {
    let mut connection = host.server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    sql::fill(
        &mut connection,
        "d.p",
        1000,
        1000,
        "PARTITION BY HASH (id) PARTITIONS 3",
    )?;
    for statement in [
        "SET NAMES utf8mb4",
        "CREATE SCHEMA `shop-1`",
        "CREATE TABLE `shop-1`.`größe 日本` (id INT PRIMARY KEY)",
    ] {
        connection.query_drop(statement)?;
    }
    if host.place.is_mysql() {
        connection.query_drop("CREATE TABLESPACE shared ADD DATAFILE 'shared.ibd'")?;
        connection.query_drop("CREATE TABLE d.s (id INT PRIMARY KEY) TABLESPACE shared")?;
    }
    for _ in 0..2 {
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    Ok(())
}

fn figures_in_views(host: &Host<'_>, monitor: &mut Conn) -> Outcome {
    let count = |monitor: &mut Conn, sql: &str| -> anyhow::Result<u64> {
        let count: Option<u64> = monitor.query_first(sql).context(sql.to_owned())?;
        count.context("no number")
    };
    let before = sql::figure(&host.server, "hits")?;
    let hits = count(
        monitor,
        "SELECT CAST(value AS UNSIGNED) FROM bpe.status WHERE name = 'hits'",
    )?;
    let after = sql::figure(&host.server, "hits")?;
    ensure!(
        before > 0 && (before..=after).contains(&hits),
        "{before}, {hits}, {after}"
    );
    let shown: BTreeMap<String, String> = monitor
        .query::<(String, String), _>("SELECT name, value FROM bpe.status")?
        .into_iter()
        .collect();
    ensure!(shown["state"] == "active", "{shown:?}");
    let variables = host.server.status("bpe\\_%")?;
    let names: BTreeSet<String> = variables
        .keys()
        .map(|name| name.to_lowercase().replacen("bpe_", "", 1))
        .collect();
    ensure!(names.iter().eq(shown.keys()), "{names:?} but {shown:?}");

    let tables: Vec<(String, String, u64, u64, u64, f64)> = monitor.query(
        "SELECT schema_name, table_name, files, hits, cached_pages, hit_ratio FROM bpe.tables",
    )?;
    let table = |schema: &str, name: &str| {
        tables
            .iter()
            .find(|table| table.0 == schema && table.1 == name)
            .with_context(|| format!("{schema}.{name} is not among {tables:?}"))
    };
    let read = table("d", "t")?;
    ensure!(read.2 == 1 && read.3 > 100 && read.4 > 100, "{read:?}");
    ensure!((1.0..=100.0).contains(&read.5), "{read:?}");
    ensure!(table("d", "p")?.2 == 3, "{tables:?}");
    table("shop-1", "größe 日本")?;
    let partitions: Vec<String> = monitor.query(
        "SELECT partition_name FROM bpe.files WHERE table_name = 'p' ORDER BY partition_name",
    )?;
    ensure!(partitions == ["p0", "p1", "p2"], "{partitions:?}");
    let system = "FROM bpe.files WHERE file REGEXP 'ibdata|undo|shared|mysql\\.ibd$'";
    ensure!(count(monitor, &format!("SELECT COUNT(*) {system}"))? > 0);
    let named = format!("SELECT COUNT(*) {system} AND table_name IS NOT NULL");
    ensure!(count(monitor, &named)? == 0, "a table of a system file");

    ensure!(
        count(
            monitor,
            "SELECT COUNT(*) FROM bpe.devices WHERE active AND bytes > 1000000"
        )? == 1
    );
    let shares: Option<f64> = monitor.query_first("SELECT SUM(share) FROM bpe.instances")?;
    ensure!(
        shares.is_some_and(|sum| (99.0..101.0).contains(&sum)),
        "{shares:?}"
    );
    host.server
        .sql("SET GLOBAL bpe_tables = 'prefer d.t, exclude shop-1.*'")?;
    let rules: Vec<(u32, String, u32, u64)> =
        monitor.query("SELECT number, rule_text, files, cached_pages FROM bpe.rules")?;
    let [prefer, exclude] = &rules[..] else {
        bail!("{rules:?}");
    };
    ensure!(
        prefer.0 == 1 && prefer.1 == "prefer d.t" && prefer.2 == 1 && prefer.3 > 100,
        "{rules:?}"
    );
    ensure!(exclude.2 == 1 && exclude.3 == 0, "{rules:?}");
    let ruled: Option<String> = monitor.query_first(
        "SELECT table_rule FROM bpe.tables WHERE schema_name = 'd' AND table_name = 't'",
    )?;
    ensure!(ruled.as_deref() == Some("prefer d.t"), "{ruled:?}");
    host.server.sql("SET GLOBAL bpe_tables = ''")?;
    ensure!(
        monitor.query_drop("SELECT * FROM d.t LIMIT 1").is_err(),
        "the account may read more than the views"
    );
    Ok(())
}

/// PMM's query returns every column that its file names.
fn pmm_queries(monitor: &mut Conn) -> Outcome {
    let text = std::fs::read_to_string(repository("monitoring/pmm/queries-mysqld-bpe.yml"))?;
    let mut queries: Vec<(String, BTreeSet<String>)> = Vec::new();
    for line in text.lines() {
        if let Some(query) = line.strip_prefix("  query: ") {
            queries.push((serde_json::from_str(query)?, BTreeSet::new()));
        } else if let Some(column) = line.strip_prefix("    - ") {
            let (_, columns) = queries.last_mut().context("metrics without a query")?;
            columns.insert(column.trim_end_matches(':').to_owned());
        }
    }
    ensure!(queries.len() == 3, "{queries:?}");
    for (query, wanted) in queries {
        let result = monitor.query_iter(&query).context(query.clone())?;
        let found: BTreeSet<String> = result
            .columns()
            .as_ref()
            .iter()
            .map(|column| column.name_str().into_owned())
            .collect();
        ensure!(
            found == wanted,
            "{query}: {found:?}, but the file names {wanted:?}"
        );
        let rows = result.count();
        ensure!(rows > 0, "{query}: no rows");
    }
    Ok(())
}

fn through_the_exporter(host: &Host<'_>) -> Outcome {
    let exporter = Exporter::start(&host.server, host.place.root())?;
    let first = exporter.scrape()?;
    ensure!(first.get("mysql_up") == Some(&1.0), "{first:?}");
    for (name, value) in host.server.status("bpe\\_%")? {
        let name = name.to_lowercase();
        if sql::is_text(name.trim_start_matches("bpe_")) {
            continue;
        }
        ensure!(value.parse::<f64>().is_ok(), "{name} is no number: {value}");
        ensure!(
            first.contains_key(&format!("mysql_global_status_{name}")),
            "{name} does not get through the exporter"
        );
    }
    sql::read_all(&mut host.server.connect()?, "d.t", ROWS)?;
    let second = exporter.scrape()?;
    let value = |scrape: &BTreeMap<String, f64>, name: &str| {
        scrape
            .get(&format!("mysql_global_status_bpe_{name}"))
            .copied()
            .with_context(|| format!("no {name}"))
    };
    ensure!(value(&second, "state_number")? == 1.0);
    ensure!(value(&second, "devices_failed")? == 0.0);
    for grows in ["hits", "cache_read_us_sum", "cache_read_us_count"] {
        let (before, after) = (value(&first, grows)?, value(&second, grows)?);
        ensure!(before < after, "{grows}: {before}, then {after}");
    }
    for positive in [
        "data_reads",
        "data_read_us_sum",
        "memory_bytes",
        "bytes_cached",
        "bytes_written_24h",
    ] {
        ensure!(value(&second, positive)? > 0.0, "{positive} is 0");
    }
    note(format!(
        "a read of the cache took {:.0} µs, {} metrics of the extension",
        value(&second, "cache_read_us_sum")? / value(&second, "cache_read_us_count")?,
        second.keys().filter(|name| name.contains("_bpe_")).count()
    ));
    for file in [
        "monitoring/grafana/innodb-bpe.json",
        "monitoring/prometheus/bpe.rules.yml",
        "monitoring/prometheus/bpe.test.yml",
    ] {
        let mut text = std::fs::read_to_string(repository(file))?;
        if file.ends_with(".json") {
            let dashboard: serde_json::Value = serde_json::from_str(&text)?;
            text = expressions(&dashboard).join("\n");
        }
        let named = metrics(&text);
        ensure!(named.len() > 5, "{file}: {named:?}");
        let unseen: Vec<_> = named
            .iter()
            .filter(|name| !second.contains_key(*name))
            .collect();
        ensure!(
            unseen.is_empty(),
            "{file} names what is not scraped: {unseen:?}"
        );
    }
    Ok(())
}

/// A dashboard's expressions for Prometheus.
fn expressions(part: &serde_json::Value) -> Vec<String> {
    use serde_json::Value;
    match part {
        Value::Object(members) => {
            let asked = ["expr", "definition", "query"];
            members
                .iter()
                .flat_map(|(name, value)| match value {
                    Value::String(text) if asked.contains(&name.as_str()) => vec![text.clone()],
                    _ => expressions(value),
                })
                .collect()
        }
        Value::Array(items) => items.iter().flat_map(expressions).collect(),
        _ => Vec::new(),
    }
}

/// Names of the exporter's metrics in a text.
fn metrics(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("mysql_"))
        .map(str::to_owned)
        .collect()
}

fn switched_off(host: &Host<'_>, monitor: &mut Conn) -> Outcome {
    host.server.sql("SET GLOBAL bpe_enabled = OFF")?;
    for view in &VIEWS[1..] {
        let rows: Vec<Row> = monitor.query(format!("SELECT * FROM bpe.{view}"))?;
        ensure!(rows.is_empty(), "{view}: {rows:?}");
    }
    let state: Option<String> =
        monitor.query_first("SELECT value FROM bpe.status WHERE name = 'state'")?;
    ensure!(state.as_deref() == Some("disabled"), "{state:?}");
    host.server.sql("SET GLOBAL bpe_enabled = ON")?;
    Ok(())
}

/// The statement that a dump contains recreates the same view.
fn dumped_and_restored(host: &Host<'_>) -> Outcome {
    let mut connection = host.server.connect()?;
    for view in VIEWS {
        let shown: Option<(String, String, String, String)> =
            connection.query_first(format!("SHOW CREATE VIEW bpe.{view}"))?;
        let (_, text, ..) = shown.context("no view")?;
        ensure!(text.contains("SQL SECURITY INVOKER"), "{text}");
        ensure!(
            text.contains("`localhost`") && !text.contains("`root`"),
            "{text}"
        );
        connection.query_drop(format!("DROP VIEW bpe.{view}"))?;
        connection.query_drop(&text).context(text)?;
        connection.query_drop(format!("SELECT * FROM bpe.{view}"))?;
    }
    Ok(())
}

/// The state after a start without the library.
fn without_the_function(host: &Host<'_>, monitor: &mut Conn) -> Outcome {
    host.server.sql("DROP FUNCTION bpe_report")?;
    match monitor.query_drop("SELECT * FROM bpe.tables") {
        Err(mysql::Error::MySqlError(error)) => {
            note(format!("without the function: {}", error.message))
        }
        other => anyhow::bail!("without the function: {other:?}"),
    }
    host.bpe("root", &["views", "create"], 1, "CREATE FUNCTION")?;
    host.server.sql(trace::CREATE_FUNCTION)?;
    Ok(monitor.query_drop("SELECT * FROM bpe.tables")?)
}

fn made_and_dropped_alone(host: &Host<'_>) -> Outcome {
    let before = host.logged()?;
    host.bpe("root", &["views", "drop"], 0, "and the schema")?;
    host.bpe("root", &["views", "drop"], 0, "nothing to drop")?;
    host.bpe("root", &["views", "create"], 0, "GRANT SELECT")?;
    // Over existing views, and on a read-only server.
    host.server.sql("SET GLOBAL read_only = ON")?;
    host.bpe("root", &["views", "create"], 0, "GRANT SELECT")?;
    ensure!(host.logged()? == before, "`bpe views` is in the binary log");

    // Accounts without the privilege get an error that names it.
    let right = if host.place.is_mysql() {
        "SYSTEM_VARIABLES_ADMIN"
    } else {
        "BINLOG ADMIN"
    };
    sql::run(
        &host.server,
        &[
            "CREATE USER weak@localhost IDENTIFIED BY 'secret'",
            "GRANT ALL ON bpe.* TO weak@localhost",
        ],
    )?;
    host.bpe("weak", &["views", "create"], 1, "GRANT PROCESS ON *.*")?;
    host.server.sql("GRANT PROCESS ON *.* TO weak@localhost")?;
    host.bpe("weak", &["views", "create"], 1, "binary log")?;
    host.server
        .sql(&format!("GRANT {right} ON *.* TO weak@localhost"))?;
    host.bpe("weak", &["views", "create"], 4, "read-only")?;
    ensure!(
        host.views_there()? == 6,
        "a refused `bpe views create` dropped views"
    );
    host.server.sql("SET GLOBAL read_only = OFF")?;
    // The account may not name the server's account as definer, but may name itself.
    host.bpe("weak", &["views", "create"], 0, "GRANT SELECT")?;

    // A foreign table stays.
    host.server
        .sql("CREATE TABLE bpe.mine (id INT PRIMARY KEY)")?;
    host.bpe("root", &["views", "drop"], 0, "schema bpe stays")?;
    host.server
        .sql("CREATE TABLE bpe.status (id INT PRIMARY KEY)")?;
    host.bpe("root", &["views", "create"], 4, "not one of bpe's")?;
    ensure!(host.views_there()? == 0);
    sql::run(
        &host.server,
        &["DROP TABLE bpe.status", "DROP TABLE bpe.mine"],
    )?;
    host.bpe("root", &["views", "create"], 0, "GRANT SELECT")
}

fn alert_rules() -> Outcome {
    let promtool = tool("promtool")?;
    for (what, file) in [("check", "bpe.rules.yml"), ("test", "bpe.test.yml")] {
        let output = Command::new(&promtool)
            .args([what, "rules", file])
            .current_dir(repository("monitoring/prometheus"))
            .output()?;
        ensure!(
            output.status.success(),
            "promtool {what} rules {file}: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}

/// Converts the expressions to rules, so that promtool reads them.
fn expressions_of_the_dashboard() -> Outcome {
    let promtool = tool("promtool")?;
    let text = std::fs::read_to_string(repository("monitoring/grafana/innodb-bpe.json"))?;
    let mut rules = String::from("groups:\n- name: dashboard\n  rules:\n");
    let mut number = 0;
    for expression in expressions(&serde_json::from_str(&text)?) {
        if !expression.contains("$instance") {
            continue; // the variables' own
        }
        number += 1;
        let expression = expression
            .replace("$__rate_interval", "5m")
            .replace("$instance", "a");
        let quoted = serde_json::to_string(&expression)?;
        rules.push_str(&format!("  - record: panel:{number}\n    expr: {quoted}\n"));
    }
    ensure!(number > 30, "only {number} expressions");
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("dashboard.yml");
    std::fs::write(&file, rules)?;
    let output = Command::new(promtool)
        .args(["check", "rules"])
        .arg(&file)
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

fn printed_views() -> Outcome {
    let output = Command::new(env!("CARGO_BIN_EXE_bpe"))
        .args(["views", "print"])
        .output()?;
    ensure!(output.status.success(), "{}", output.status);
    ensure!(output.stdout == std::fs::read(repository("sql/views.sql"))?);
    Ok(())
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}
