//! Variables, status and reports, and changes to settings of a running server.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mounts::Mount;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::mysql::{self, Conn};
use integration_tests::{Load, Options, Outcome, Place, Server, Suite, note, place, sql, trace};
use interface::reports::{self, Value};
use interface::{Status, variables};

const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("variables")
        .all("listed_with_defaults", listed_with_defaults)
        .all("status", status)
        .all("reports", reported)
        .all("reports_without_a_function", reported_by_variable)
        .in_turn("one_bad_path_of_several", one_bad_path_of_several)
        .in_turn("a_small_disk_beside_a_large_one", small_beside_large)
        .all("size_in_percent", size_in_percent)
        .in_turn("daily_write_limit", daily_write_limit)
        .each("several_in_one_statement", several_in_one_statement)
        .each("changed_under_load", changed_under_load)
        .in_turn("off_stays_off", off_stays_off)
        .in_turn("on_and_off_by_several_sessions", several_sessions)
}

fn listed_with_defaults(place: &Place) -> Outcome {
    // Without the options of other tests. The extension stays off.
    let options = Options::new(place.data(), place.root().join("run"));
    let options = options.plugin(place.library()?, "bpe", Load::BySql);
    let server = place.start(options)?;
    server.sql(place.install_statement())?;
    let shown = server.variables("bpe\\_%")?;
    for one in variables::ALL {
        let name = one.name;
        let found = shown
            .get(name)
            .with_context(|| format!("there is no {name}"))?;
        ensure!(
            *found == one.default(),
            "{name} is '{found}', expected '{}'",
            one.default()
        );
    }
    ensure!(shown.len() == variables::ALL.len(), "{shown:?}");
    for (name, values) in [
        ("bpe_compression", ["lz4", "off"]),
        ("bpe_daily_write_limit", ["107374182400", "0"]),
        ("bpe_io_capacity", ["200", "0"]),
        ("bpe_memory_limit", ["1073741824", "0"]),
        ("bpe_bypass_timeout", ["60", "0"]),
        ("bpe_warm_io_capacity", ["0", "1000"]),
        ("bpe_instances", ["16", "0"]),
        ("bpe_size", ["8589934592", "0"]),
    ] {
        for value in values {
            let literal = if value.chars().all(|c| c.is_ascii_digit()) {
                value.to_owned()
            } else {
                format!("'{value}'")
            };
            server.sql(&format!("SET GLOBAL {name} = {literal}"))?;
            let found = server.value(&format!("SELECT @@GLOBAL.{name}"))?;
            ensure!(
                found.as_deref() == Some(value),
                "{name}: {found:?} instead of {value}"
            );
        }
    }
    for name in [
        "bpe_compression",
        "bpe_instances",
        "bpe_size",
        "bpe_path",
        "bpe_enabled",
    ] {
        server.sql(&format!("SET GLOBAL {name} = DEFAULT"))?;
    }
    sql::refusal(&server, "SET GLOBAL bpe_persist_path = '/tmp'")?;
    server.stop()?;
    Ok(())
}

fn status(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    let shown = server.status("bpe\\_%")?;
    ensure!(shown.len() == Status::ALL.len(), "{shown:?}");
    for name in Status::ALL.iter().map(|one| one.name()) {
        let value = sql::status(&server, name)?;
        if !sql::is_text(name) {
            let number: f64 = value
                .parse()
                .with_context(|| format!("Bpe_{name} is '{value}'"))?;
            // No list has been loaded yet.
            let expected = if name == "warm_percent" { -1.0 } else { 0.0 };
            ensure!(number == expected, "Bpe_{name} is {number} while disabled");
        }
    }
    sql::expect_state(&server, "disabled")?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    sql::wait_until("there are hits", Duration::from_secs(30), || {
        ledger.run(&server, Duration::from_secs(2))?;
        Ok(sql::figure(&server, "hits")? > 0)
    })?;
    for name in [
        "hits",
        "misses",
        "pages_cached",
        "bytes_cached",
        "capacity_bytes",
        "memory_bytes",
        "admitted",
        "invalidated",
        "bytes_written",
        "bytes_written_24h",
        "data_reads",
        "instance_lock_accesses",
        "state_number",
    ] {
        ensure!(
            sql::figure(&server, name)? > 0,
            "Bpe_{name} is 0 after some work"
        );
    }
    let (cached, capacity) = (
        sql::figure(&server, "bytes_cached")?,
        sql::figure(&server, "capacity_bytes")?,
    );
    ensure!(
        cached <= capacity && capacity <= CACHE,
        "{cached} of {capacity} bytes, {CACHE} asked for"
    );
    // Staged pages count as cached pages, and not yet as written.
    sql::wait_until("all is written", Duration::from_secs(20), || {
        Ok(sql::report(&server, "summary")?["write_amplification"].as_f64() >= Some(1.0))
    })?;
    let summary = sql::report(&server, "summary")?;
    for name in ["compression_ratio", "write_amplification"] {
        let value = summary[name].as_f64().context("no ratio")?;
        ensure!((1.0..2.0).contains(&value), "{name} is {value}");
    }
    let ratio: f64 = sql::status(&server, "hit_ratio")?.parse()?;
    ensure!(
        (0.0..=100.0).contains(&ratio) && ratio > 0.0,
        "hit ratio {ratio}"
    );
    for of in ["cache_read_us", "data_read_us"] {
        let mut last = 0.0;
        for quantile in ["p50", "p95", "p99"] {
            let value = summary[of][quantile].as_f64().context("no quantile")?;
            ensure!(value > 0.0 && value >= last, "{of}: {}", summary[of]);
            last = value;
        }
    }
    let warm = &summary["warm"];
    ensure!(
        warm["state"] == "none" && warm["percent"] == -1.0 && warm["reads"] == 0,
        "{warm}"
    );
    // Through the tables that programs read, as well.
    let schema = if place.is_mysql() {
        "performance_schema"
    } else {
        "information_schema"
    };
    let state = server.value(&format!(
        "SELECT VARIABLE_VALUE FROM {schema}.global_status WHERE VARIABLE_NAME = 'Bpe_state'"
    ))?;
    ensure!(
        state.as_deref() == Some("active"),
        "{schema}.global_status: {state:?}"
    );
    server.stop()?;
    Ok(())
}

fn reported(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?.option("--bpe-instances=3"))?;
    server.sql(trace::CREATE_FUNCTION)?;
    let report = |name: &str| -> anyhow::Result<serde_json::Value> {
        let text = server
            .value(&format!("SELECT bpe_report('{name}')"))?
            .with_context(|| format!("bpe_report('{name}') is NULL"))?;
        Ok(serde_json::from_str(&text)?)
    };
    let rows = |name: &str| -> anyhow::Result<usize> {
        Ok(report(name)?.as_array().context("not an array")?.len())
    };
    ensure!(report("summary")?["state"] == "disabled");
    for name in ["instances", "devices", "files", "suspended"] {
        ensure!(rows(name)? == 0 || name == "files", "{name} while disabled");
    }
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    ledger.run(&server, Duration::from_secs(3))?;
    let summary = report("summary")?;
    ensure!(summary["state"] == "active", "{summary}");
    ensure!(summary["hits"].as_u64() > Some(0), "{summary}");
    let latency = report("latency")?;
    for of in ["cache_read", "data_read"] {
        let buckets = latency[of]["buckets"].as_array().context("no buckets")?;
        let sum: u64 = buckets.iter().filter_map(|bucket| bucket[1].as_u64()).sum();
        ensure!(
            sum > 0 && latency[of]["count"] == sum,
            "{of}: {sum} reads in {latency}"
        );
    }
    ensure!(rows("instances")? == 3);
    ensure!(rows("devices")? == 1);
    ensure!(rows("files")? >= 2);
    ensure!(rows("suspended")? == 0);
    for (name, columns) in [
        ("instances", reports::INSTANCES),
        ("devices", reports::DEVICES),
        ("files", reports::FILES),
    ] {
        let row = report(name)?[0].take();
        for column in columns {
            let value = row.get(column.key);
            let fits = match column.value {
                Value::Whole | Value::Small => value.is_some_and(|value| value.is_u64()),
                Value::Real => value.is_some_and(|value| value.is_number()),
                Value::Yes => value.is_some_and(|value| value.is_boolean()),
                Value::Text(_) => value.is_some_and(|value| value.is_string()),
                Value::Name(_) => value.is_some_and(|value| value.is_string() || value.is_null()),
            };
            ensure!(fits, "{name}: {} in {row}", column.key);
        }
    }
    let device = &report("devices")?[0];
    ensure!(
        device["path"]
            .as_str()
            .is_some_and(|path| path.starts_with(&place.cache().display().to_string())),
        "{device}"
    );
    for unknown in ["'nonsense'", "''", "NULL", "REPEAT('x', 100000)"] {
        let value = server.value(&format!("SELECT bpe_report({unknown})"))?;
        ensure!(value.is_none(), "bpe_report({unknown}) gives {value:?}");
    }
    sql::refusal(&server, "SELECT bpe_report()")?;
    sql::refusal(&server, "SELECT bpe_report('summary', 'files')")?;
    sql::refusal(&server, "SELECT bpe_report(1)")?;
    // As views on top of it do.
    let hits = server.value(
        "SELECT SUM(hits) FROM JSON_TABLE(CONVERT(bpe_report('files') USING utf8mb4), '$[*]' COLUMNS (file VARCHAR(500) PATH '$.file', \
         hits BIGINT PATH '$.hits')) AS f WHERE file LIKE '%ledger%'",
    )?;
    ensure!(hits.as_deref().is_some_and(|hits| hits != "0"), "{hits:?}");
    // Many at once.
    std::thread::scope(|scope| {
        let askers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| -> Outcome {
                    let mut connection = server.connect()?;
                    for _ in 0..50 {
                        let text: Option<String> = connection.query_first(
                            "SELECT CONCAT(bpe_report('files'), bpe_report('summary'))",
                        )?;
                        ensure!(text.is_some());
                    }
                    Ok(())
                })
            })
            .collect();
        askers.into_iter().try_for_each(|asker| {
            asker
                .join()
                .unwrap_or_else(|_| Err(anyhow::anyhow!("panicked")))
        })
    })?;
    server.stop()?;
    Ok(())
}

/// The small disk contributes its available space, and the large one the rest.
fn small_beside_large(place: &Place) -> Outcome {
    const SIZE: u64 = 512 << 20;
    let small = Mount::image(&place.root().join("small"), 192 << 20)?;
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    let both = format!("{}:{}", small.path().display(), place.cache().display());
    server.sql(&format!("SET GLOBAL bpe_path = '{both}'"))?;
    server.sql(&format!("SET GLOBAL bpe_size = {SIZE}"))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    let reason = sql::status(&server, "state_reason")?;
    ensure!(reason.is_empty(), "{reason}");
    let lengths: Vec<u64> = [small.path(), &place.cache()]
        .into_iter()
        .flat_map(place::files_in)
        .map(|file| Ok(std::fs::metadata(file)?.len()))
        .collect::<std::io::Result<_>>()?;
    note(format!("of {SIZE} bytes the files take {lengths:?}"));
    ensure!(
        matches!(lengths[..], [one, other] if one < 160 << 20 && one + other <= SIZE && one + other > SIZE - (2 << 20)),
        "{lengths:?}"
    );
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    ledger.run(&server, Duration::from_secs(3))?;
    ledger.verify(&server)?;
    // A change of size checks the space again, including that of the existing file.
    server.sql(&format!("SET GLOBAL bpe_size = {}", SIZE / 2))?;
    sql::expect_state(&server, "active")?;
    ledger.run(&server, Duration::from_secs(1))?;
    server.stop()?;
    Ok(())
}

/// By configuration only: a percentage of the space, limited by the memory limit.
fn size_in_percent(place: &Place) -> Outcome {
    const DISK: u64 = 32 << 30;
    let disk = Mount::image(&place.root().join("disk"), DISK)?;
    let options = |more: &[&str]| -> anyhow::Result<_> {
        let options = place
            .options()
            .plugin(place.library()?, "bpe", Load::Early)
            .option(format!("--bpe-path={}", disk.path().display()))
            .option("--bpe-enabled=ON");
        Ok(more
            .iter()
            .fold(options, |options, one| options.option(*one)))
    };
    let capacity = |server: &Server, most: u64, least: u64| -> anyhow::Result<u64> {
        sql::wait_until("the cache is large enough", Duration::from_secs(30), || {
            Ok(sql::figure(server, "capacity_bytes")? > least)
        })?;
        sql::expect_state(server, "active")?;
        let bytes = sql::figure(server, "capacity_bytes")?;
        ensure!(bytes < most, "{bytes} of {DISK} bytes");
        Ok(bytes)
    };
    let server = place.start(options(&["--bpe-size=50", "--bpe-memory-limit=1G"])?)?;
    capacity(&server, DISK / 2, DISK / 100 * 45)?;
    ensure!(server.value("SELECT @@GLOBAL.bpe_size")?.as_deref() == Some("50"));
    // The space of the existing file counts, and some stays free.
    server.sql("SET GLOBAL bpe_size = 100")?;
    let all = capacity(&server, DISK, DISK / 100 * 90)?;
    sql::refusal(&server, "SET GLOBAL bpe_size = 101")?;
    // Never on the disk of the data.
    let data = format!("SET GLOBAL bpe_path = '{}'", place.cache().display());
    sql::refusal(&server, &data)?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    ledger.run(&server, Duration::from_secs(2))?;
    ledger.verify(&server)?;
    // Without a limit, 4 % of the pool, but at least 4 MiB.
    server.sql("SET GLOBAL bpe_memory_limit = 0")?;
    sql::wait_until("less memory", Duration::from_secs(30), || {
        let memory = sql::figure(&server, "memory_bytes")?;
        Ok(memory > 0 && memory <= 4 << 20)
    })?;
    let small = capacity(&server, all / 2, 256 << 20)?;
    server.stop()?;

    // The pool size is also known when the extension is loaded before InnoDB.
    let server = place.start(options(&["--bpe-size=100"])?.buffer_pool(512 << 20))?;
    let large = capacity(&server, all, small)?;
    let memory = sql::figure(&server, "memory_bytes")?;
    note(format!(
        "{small} bytes for a pool of 8 MiB, {large} bytes and {memory} of memory for one of 512 MiB, of {all}"
    ));
    ensure!(memory <= (512 << 20) / 100 * 4, "{memory} bytes of memory");
    let log = std::fs::read_to_string(place.root().join("run/error.log"))?;
    for said in ["of memory allow", "switched on: 100 % of the room"] {
        ensure!(log.contains(said), "`{said}` is not in the error log");
    }
    server.stop()?;
    Ok(())
}

/// Reports by the session variable, which needs no function.
fn reported_by_variable(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let mut session = server.connect()?;
    sql::fill(&mut session, "d.t", 4000, 1000, "")?;
    let read = "SELECT @@SESSION.bpe_report";
    let report = |session: &mut Conn, name: &str| -> anyhow::Result<Option<String>> {
        session.query_drop(format!("SET SESSION bpe_report = {name}"))?;
        let text: Option<Option<String>> = session.query_first(read)?;
        Ok(text.flatten())
    };
    for name in [
        "summary",
        "status",
        "instances",
        "devices",
        "files",
        "suspended",
        "latency",
    ] {
        let text = report(&mut session, &format!("'{name}'"))?;
        let text = text.with_context(|| format!("no report {name}"))?;
        let value: serde_json::Value = serde_json::from_str(&text).context(text)?;
        ensure!(value.is_array() || value.is_object(), "{name}: {value}");
    }
    for unknown in ["'nonsense'", "NULL", "REPEAT('x', 100000)"] {
        let value = report(&mut session, unknown)?;
        ensure!(value.is_none(), "bpe_report = {unknown} gives {value:?}");
    }
    ensure!(report(&mut session, "''")?.as_deref() == Some(""));
    // Before a report is requested, MySQL shows null for the empty text.
    let nothing = |session: &mut Conn| -> anyhow::Result<bool> {
        let text: Option<Option<String>> = session.query_first(read)?;
        Ok(text.flatten().unwrap_or_default().is_empty())
    };
    sql::refusal(&server, "SET SESSION bpe_report = 1")?;

    // No session sees the report of another one.
    server.sql("CREATE USER other IDENTIFIED BY 'x'")?;
    server.sql("GRANT PROCESS ON *.* TO other")?;
    report(&mut session, "'summary'")?;
    let options = mysql::OptsBuilder::new()
        .socket(Some(server.socket().display().to_string()))
        .user(Some("other"))
        .pass(Some("x"));
    let mut other = Conn::new(options)?;
    ensure!(nothing(&mut other)?);
    ensure!(report(&mut other, "'devices'")?.is_some());

    // Many in one statement: the variable holds the last one. A long report, as SHOW VARIABLES lists it.
    let many = vec!["SESSION bpe_report = 'files'"; 200].join(", ");
    session.query_drop(format!("SET {many}, SESSION bpe_report = 'summary'"))?;
    let text: Option<String> = session.query_first(read)?;
    ensure!(text.is_some_and(|text| text.starts_with('{')));
    report(&mut session, "'status'")?;
    let listed: Vec<(String, String)> =
        session.query("SHOW SESSION VARIABLES LIKE 'bpe\\_report'")?;
    ensure!(
        listed.len() == 1 && listed[0].1.starts_with('['),
        "{listed:?}"
    );
    ensure!(server.variables("bpe\\_report")?["bpe_report"].is_empty());
    session.query_drop("SET SESSION bpe_report = DEFAULT")?;
    ensure!(nothing(&mut session)?);

    // The plugin is uninstalled and reinstalled while sessions hold reports.
    report(&mut session, "'files'")?;
    let uninstalled = server.sql(place.uninstall_statement());
    if uninstalled.is_ok() {
        ensure!(
            session
                .query_drop("SET SESSION bpe_report = 'files'")
                .is_err()
        );
        server.sql(place.install_statement())?;
        ensure!(report(&mut session, "'summary'")?.is_some());
    }
    ensure!(report(&mut other, "'summary'")?.is_some());
    drop((session, other));
    server.stop()?;
    Ok(())
}

/// The valid path is used, the client is warned, and the bad one is used once it is valid.
fn one_bad_path_of_several(place: &Place) -> Outcome {
    let other = place.root().join("other");
    let both = format!(
        "{}:{}",
        place.cache().display(),
        other.join("sub/").display()
    );
    let server = place.start(
        place
            .installable()?
            .option(format!("--loose-bpe-path={both}")),
    )?;
    server.sql(place.install_statement())?;
    // Without a configured path, SQL must accept the path while it is valid.
    std::fs::create_dir_all(other.join("sub"))?;
    server.sql(&format!("SET GLOBAL bpe_path = '{both}'"))?;
    server.sql(&format!("SET GLOBAL bpe_size = {CACHE}"))?;
    std::fs::remove_dir_all(&other)?;
    let warnings = sql::warnings(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(
        warnings
            .iter()
            .any(|text| text.contains("other/sub") && text.contains("used without it")),
        "warnings: {warnings:?}"
    );
    sql::expect_state(&server, "active")?;
    let reason = sql::status(&server, "state_reason")?;
    ensure!(reason.contains("other/sub"), "{reason}");
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    ledger.run_until_above(&server, Duration::from_secs(3), "hits", 0)?;
    std::fs::create_dir_all(other.join("sub"))?;
    sql::wait_until("the second is used", Duration::from_secs(60), || {
        Ok(sql::status(&server, "state_reason")?.is_empty())
    })?;
    ledger.run(&server, Duration::from_secs(3))?;
    ledger.verify(&server)?;
    // Neither path is valid.
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("the files are gone", Duration::from_secs(20), || {
        Ok(place.cache_files().is_empty() && std::fs::read_dir(other.join("sub"))?.count() == 0)
    })?;
    let gone = place.root().join("gone/");
    server.sql("SET GLOBAL bpe_path = ''")?;
    std::fs::create_dir(&gone)?;
    server.sql(&format!(
        "SET GLOBAL bpe_path = '{}:{}'",
        gone.display(),
        other.join("sub/").display()
    ))?;
    std::fs::remove_dir_all(&other)?;
    std::fs::remove_dir_all(&gone)?;
    let said = sql::refusal(&server, "SET GLOBAL bpe_enabled = ON")?;
    ensure!(said.contains("gone"), "{said}");
    sql::expect_state(&server, "disabled")?;
    server.stop()?;
    Ok(())
}

/// At the limit, writes stop, and cached pages are still served.
fn daily_write_limit(place: &Place) -> Outcome {
    let server = place.start(
        place
            .early(CACHE)?
            .option("--bpe-daily-write-limit=16777216"),
    )?;
    let ledger = Ledger::create(&server, 2, 5000, 2500, 4)?.paced();
    ledger.run(&server, Duration::from_secs(3))?;
    let written = sql::figure(&server, "bytes_written_24h")?;
    ensure!(
        written > 0 && written <= (16 << 20) * 105 / 100,
        "{written} bytes written"
    );
    ensure!(sql::figure(&server, "write_limit_rejected")? > 0);
    // Rebuilding the cache does not reset the limit.
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    ledger.run(&server, Duration::from_secs(2))?;
    let written = sql::figure(&server, "bytes_written_24h")?;
    ensure!(
        written <= (16 << 20) * 105 / 100,
        "{written} bytes written after switching off and on"
    );
    server.sql("SET GLOBAL bpe_daily_write_limit = 0")?;
    ledger.run_until_above(
        &server,
        Duration::from_secs(3),
        "bytes_written_24h",
        written,
    )?;
    ensure!(sql::figure(&server, "hits")? > 0);
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}

/// The servers pass values in different widths, side by side.
fn several_in_one_statement(place: &Place) -> Outcome {
    let server = place.start(place.installable()?)?;
    server.sql(place.install_statement())?;
    for number in [4u32, 7, 64, 1] {
        server.sql(&format!(
            "SET GLOBAL bpe_io_capacity = 4294967295, GLOBAL bpe_instances = {number}, GLOBAL bpe_size = 18446744073709551615"
        ))?;
        ensure!(sql::number(&server, "SELECT @@GLOBAL.bpe_instances")? == u64::from(number));
        ensure!(sql::number(&server, "SELECT @@GLOBAL.bpe_io_capacity")? == 4_294_967_295);
        ensure!(sql::number(&server, "SELECT @@GLOBAL.bpe_size")? == u64::MAX);
        server.sql(&format!(
            "SET GLOBAL bpe_path = '{}', GLOBAL bpe_size = {CACHE}, GLOBAL bpe_io_capacity = 0",
            place.cache().display()
        ))?;
        server.sql("SET GLOBAL bpe_enabled = ON")?;
        sql::expect_state(&server, "active")?;
        ensure!(sql::summary_figure(&server, "/instances")? == u64::from(number));
        server.sql("SET GLOBAL bpe_enabled = OFF")?;
    }
    server.stop()?;
    Ok(())
}

fn changed_under_load(place: &Place) -> Outcome {
    let other = place.root().join("other-cache");
    std::fs::create_dir(&other)?;
    let server = place.start(place.early(CACHE)?)?;
    let ledger = Ledger::create(&server, 2, 5000, 2500, 6)?.paced();
    let (cache, other) = (
        place.cache().display().to_string(),
        other.display().to_string(),
    );
    let statements = [
        format!("SET GLOBAL bpe_size = {}", CACHE / 2),
        format!("SET GLOBAL bpe_path = '{other}'"),
        "SET GLOBAL bpe_instances = 8".into(),
        "SET GLOBAL bpe_compression = 'lz4'".into(),
        format!("SET GLOBAL bpe_path = '{cache}:{other}'"),
        "SET GLOBAL bpe_io_capacity = 500".into(),
        format!("SET GLOBAL bpe_size = {}", CACHE * 2),
        "SET GLOBAL bpe_instances = 1".into(),
        "SET GLOBAL bpe_io_capacity = 0".into(),
        "SET GLOBAL bpe_compression = 'off'".into(),
        format!("SET GLOBAL bpe_path = '{cache}'"),
    ];
    let counts = ledger.run_while(&server, Duration::from_secs(16), || {
        for statement in &statements {
            std::thread::sleep(Duration::from_millis(900));
            server.sql(statement)?;
            sql::wait_until(statement, Duration::from_secs(20), || {
                Ok(sql::status(&server, "state")? == "active")
            })?;
        }
        Ok(())
    })?;
    note(counts.to_string());
    sql::expect_state(&server, "active")?;
    sql::wait_until(
        "only the last path is in use",
        Duration::from_secs(20),
        || Ok(place.cache_files().len() == 1 && std::fs::read_dir(&other)?.count() == 0),
    )?;
    let before = sql::figure(&server, "hits")?;
    ledger.run_until_above(&server, Duration::from_secs(3), "hits", before)?;
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}

/// The kill switch wins over a rebuild in progress.
fn off_stays_off(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let mut connection = server.connect()?;
    for round in 0..8u64 {
        connection.query_drop("SET GLOBAL bpe_enabled = ON")?;
        connection.query_drop(format!(
            "SET GLOBAL bpe_size = {}",
            CACHE + (1 + round % 2) * (16 << 20)
        ))?;
        std::thread::sleep(Duration::from_millis(5 + 5 * round));
        connection.query_drop("SET GLOBAL bpe_enabled = OFF")?;
        for _ in 0..10 {
            sql::expect_state(&server, "disabled")?;
            std::thread::sleep(Duration::from_millis(100));
        }
    }
    sql::wait_until("the cache file is gone", Duration::from_secs(20), || {
        Ok(place.cache_files().is_empty())
    })?;
    server.stop()?;
    Ok(())
}

/// In every order, the final state is that of the variable, and rows are right.
fn several_sessions(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?.paced();
    ledger.run_while(&server, Duration::from_secs(10), || {
        std::thread::scope(|scope| {
            let switchers: Vec<_> = (0..4u64)
                .map(|number| {
                    let server = &server;
                    scope.spawn(move || -> Outcome {
                        let mut connection = server.connect()?;
                        let mut random = fastrand::Rng::with_seed(number);
                        let until = std::time::Instant::now() + Duration::from_secs(8);
                        while std::time::Instant::now() < until {
                            let value = if random.bool() { "ON" } else { "OFF" };
                            // Another session may be changing it: that is a clear error, not a failure.
                            match connection.query_drop(format!("SET GLOBAL bpe_enabled = {value}"))
                            {
                                Ok(()) | Err(integration_tests::mysql::Error::MySqlError(_)) => {}
                                Err(error) => return Err(error.into()),
                            }
                            std::thread::sleep(Duration::from_millis(random.u64(0..60)));
                        }
                        Ok(())
                    })
                })
                .collect();
            switchers.into_iter().try_for_each(|switcher| {
                switcher
                    .join()
                    .unwrap_or_else(|_| Err(anyhow::anyhow!("panicked")))
            })
        })
    })?;
    let wanted = server.value("SELECT @@GLOBAL.bpe_enabled")?;
    let state = if wanted.as_deref() == Some("1") {
        "active"
    } else {
        "disabled"
    };
    sql::wait_until(
        "the state is what the variable says",
        Duration::from_secs(30),
        || Ok(sql::status(&server, "state")? == state),
    )?;
    for (value, state) in [("OFF", "disabled"), ("ON", "active")] {
        server.sql(&format!("SET GLOBAL bpe_enabled = {value}"))?;
        sql::expect_state(&server, state)?;
    }
    ledger.run_until_above(&server, Duration::from_secs(3), "hits", 0)?;
    ledger.verify(&server)?;
    server.stop()?;
    Ok(())
}
