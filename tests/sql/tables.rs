//! Table rules (`bpe_tables`) on running servers: excluded tables are neither served nor cached, limits hold, and every change
//! of rules or table names takes effect at once.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::mysql::Conn;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::{Outcome, Place, Server, Suite, note, sql, stuck, trace};
use serde_json::Value;

/// Larger than the data: cached pages stay cached.
const CACHE: u64 = 64 << 20;
/// Smaller than the data, so that pages compete for slots.
const SMALL_CACHE: u64 = 16 << 20;
const ROWS: u32 = 5000;
const WIDTH: u32 = 1800;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("tables")
        .each("excluded_at_once", excluded_at_once)
        .in_turn("rules_of_an_option_file", rules_of_an_option_file)
        .in_turn("limit_and_preference", limit_and_preference)
        .each("bad_rules_are_refused", bad_rules_are_refused)
        .in_turn("a_library_without_the_rules_is_noticed", without_the_rules)
}

/// A server, and a connection for statements and reports.
struct Subject {
    server: Server,
    connection: Conn,
}

impl Subject {
    fn new(server: Server) -> anyhow::Result<Subject> {
        sql::expect_state(&server, "active")?;
        let known = server.value("SELECT 1 FROM mysql.func WHERE name = 'bpe_report'")?;
        if known.is_none() {
            server.sql(trace::CREATE_FUNCTION)?;
        }
        let connection = server.connect()?;
        Ok(Subject { server, connection })
    }

    fn fill(&mut self, table: &str) -> Outcome {
        sql::fill(&mut self.connection, table, ROWS, WIDTH, "")
    }

    /// Reads all rows of a table, page by page.
    fn read(&mut self, table: &str) -> Outcome {
        let (ids, _) = sql::read_all(&mut self.connection, table, ROWS)?;
        let all = u64::from(ROWS) * (u64::from(ROWS) + 1) / 2;
        ensure!(ids == all, "{table}: the ids add up to {ids}, not {all}");
        Ok(())
    }

    fn rows(&self, report: &str) -> anyhow::Result<Vec<Value>> {
        let text = self
            .server
            .value(&format!("SELECT bpe_report('{report}')"))?;
        Ok(serde_json::from_str(&text.context("no report")?)?)
    }

    /// Sum of a figure over the table's files.
    fn figure(&self, table: &str, figure: &str) -> anyhow::Result<u64> {
        let (schema, name) = table.split_once('.').context("no schema")?;
        let rows = self.rows("files")?;
        let its = rows
            .iter()
            .filter(|row| row["schema"] == schema && row["table"] == name);
        Ok(its.filter_map(|row| row[figure].as_u64()).sum())
    }

    fn rules(&self, rules: &str) -> Outcome {
        self.server
            .sql(&format!("SET GLOBAL bpe_tables = '{rules}'"))?;
        let found = self.server.value("SELECT @@GLOBAL.bpe_tables")?;
        ensure!(found.as_deref() == Some(rules), "{found:?}");
        Ok(())
    }

    /// Reads the table again; returns how many pages came from the cache, and how many the rules kept out.
    fn read_again(&mut self, table: &str) -> anyhow::Result<(u64, u64)> {
        let figures = |subject: &Subject| -> anyhow::Result<(u64, u64)> {
            Ok((
                subject.figure(table, "hits")?,
                subject.figure(table, "kept_out")?,
            ))
        };
        let before = figures(self)?;
        self.read(table)?;
        let after = figures(self)?;
        Ok((after.0 - before.0, after.1 - before.1))
    }

    /// No page of the table is or gets cached.
    fn expect_excluded(&mut self, table: &str) -> Outcome {
        let cached = self.figure(table, "cached_pages")?;
        ensure!(cached == 0, "{cached} pages of {table} are cached");
        let (hits, kept_out) = self.read_again(table)?;
        ensure!(
            hits == 0 && kept_out > 0,
            "{table}: {hits} hits, {kept_out} kept out"
        );
        let update = format!("UPDATE {table} SET v = v + 1 WHERE id % 50 = 0");
        self.connection.query_drop(update)?;
        // Pushes the written pages out of the pool.
        self.read(table)?;
        let (hits, _) = self.read_again(table)?;
        let cached = self.figure(table, "cached_pages")?;
        ensure!(
            hits == 0 && cached == 0,
            "{table}: {hits} hits, {cached} pages cached after a write"
        );
        Ok(())
    }

    /// The table's pages are served.
    fn expect_cached(&mut self, table: &str) -> Outcome {
        self.read(table)?;
        let (hits, kept_out) = self.read_again(table)?;
        ensure!(
            hits > 100 && kept_out == 0,
            "{table}: {hits} hits, {kept_out} kept out"
        );
        Ok(())
    }
}

fn excluded_at_once(place: &Place) -> Outcome {
    let mut subject = Subject::new(place.start(place.early(CACHE)?)?)?;
    for table in ["shop.orders", "shop.log_1", "shop.log2"] {
        subject.fill(table)?;
        subject.expect_cached(table)?;
    }
    subject.rules("exclude shop.log_%")?;
    subject.expect_excluded("shop.log_1")?;
    for table in ["shop.orders", "shop.log2"] {
        let (hits, kept_out) = subject.read_again(table)?;
        ensure!(
            hits > 100 && kept_out == 0,
            "{table}: {hits} hits, {kept_out} kept out"
        );
    }
    // Pages that were read ahead may still arrive.
    sql::wait_until(
        "pages that are counted with their bytes",
        Duration::from_secs(60),
        || {
            let kept_out = sql::summary_figure(&subject.server, "/kept_out")?;
            let bytes = sql::summary_figure(&subject.server, "/bytes_kept_out")?;
            Ok(kept_out > 300 && bytes == kept_out * 16384)
        },
    )?;

    // The rules apply to names: a renamed table gets the rules of its new name.
    let server = &subject.server;
    server.sql("RENAME TABLE shop.log_1 TO shop.kept, shop.orders TO shop.log_3")?;
    subject.expect_cached("shop.kept")?;
    subject.expect_excluded("shop.log_3")?;
    // A new table.
    subject.fill("shop.log_4")?;
    subject.expect_excluded("shop.log_4")?;
    subject.rules("")?;
    subject.expect_cached("shop.log_3")?;

    // Only included tables.
    subject.rules("include shop.log2, normal shop.log_4")?;
    subject.expect_excluded("shop.kept")?;
    let (hits, _) = subject.read_again("shop.log2")?;
    ensure!(hits > 100, "what is included had {hits} hits");
    subject.expect_cached("shop.log_4")?;

    // Partitions, also when they are exchanged.
    subject.rules("exclude shop.parts#p#p1, exclude shop.spare")?;
    let parts = "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (2500), PARTITION P1 VALUES LESS THAN MAXVALUE)";
    subject
        .server
        .sql("DROP TABLE shop.kept, shop.log_3, shop.log_4")?;
    sql::fill(&mut subject.connection, "shop.parts", ROWS, WIDTH, parts)?;
    subject.read("shop.parts")?;
    subject.read("shop.parts")?;
    let of_parts = |subject: &Subject, figure: &str| -> anyhow::Result<[u64; 2]> {
        let rows = subject.rows("files")?;
        let of = |part: &str| {
            let is = |row: &&Value| {
                row["partition"]
                    .as_str()
                    .is_some_and(|name| name.eq_ignore_ascii_case(part))
            };
            rows.iter()
                .find(is)
                .and_then(|row| row[figure].as_u64())
                .context("no partition")
        };
        Ok([of("p0")?, of("p1")?])
    };
    let [cached, excluded] = of_parts(&subject, "cached_pages")?;
    ensure!(
        cached > 100 && excluded == 0,
        "{cached} and {excluded} pages of partitions are cached"
    );
    for statement in [
        "CREATE TABLE shop.other (id INT UNSIGNED PRIMARY KEY, v INT UNSIGNED NOT NULL, pad VARBINARY(4000) NOT NULL, KEY (v)) ENGINE=InnoDB",
        "ALTER TABLE shop.parts EXCHANGE PARTITION P1 WITH TABLE shop.other",
        "SELECT COUNT(*), SUM(LENGTH(pad)) FROM shop.other FORCE INDEX (PRIMARY)",
        "SELECT COUNT(*), SUM(LENGTH(pad)) FROM shop.other FORCE INDEX (PRIMARY)",
    ] {
        subject
            .connection
            .query_drop(statement)
            .context(statement)?;
    }
    let exchanged = subject.figure("shop.other", "cached_pages")?;
    ensure!(
        exchanged > 20,
        "{exchanged} pages of what was the partition are cached"
    );
    let rules = subject.rows("rules")?;
    ensure!(
        rules.len() == 2
            && rules[0]["files"] == 1
            && rules[1]["files"] == 0
            && rules[1]["text"] == "exclude shop.spare",
        "{rules:?}"
    );
    subject.server.stop()?;
    Ok(())
}

/// Checks one rule; fails with a canary that omits it.
fn expect_rules(place: &Place, options: integration_tests::Options) -> Outcome {
    let mut subject = Subject::new(place.start(options)?)?;
    subject.fill("shop.log_1")?;
    subject.expect_cached("shop.log_1")?;
    subject.rules("exclude shop.log_1")?;
    let seen = subject.expect_excluded("shop.log_1");
    subject.server.stop()?;
    seen
}

fn without_the_rules(place: &Place) -> Outcome {
    for rule in ["exclude", "exclude-keeps"] {
        let seen = expect_rules(place, place.canary(CACHE, rule)?);
        let error = stuck::noticed(seen, "nothing was noticed").context(rule)?;
        note(format!("noticed without {rule}: {error:#}"));
        place.initialise_again(&[])?;
    }
    Ok(())
}

fn rules_of_an_option_file(place: &Place) -> Outcome {
    let mut subject = Subject::new(place.start(place.early(CACHE)?)?)?;
    for table in ["shop.orders", "shop.log_1"] {
        subject.fill(table)?;
        subject.expect_cached(table)?;
    }
    subject.server.stop()?;

    // Pages persisted by the previous process are not served for a table that is now excluded.
    let options = place
        .early(CACHE)?
        .option("--bpe-tables=exclude shop.log_1, limit 50% shop.o*");
    let mut subject = Subject::new(place.start(options)?)?;
    ensure!(
        sql::figure(&subject.server, "pages_inherited")? > 300,
        "nothing was left"
    );
    let (hits, kept_out) = subject.read_again("shop.orders")?;
    ensure!(
        hits > 100 && kept_out == 0,
        "{hits} hits of what was left, {kept_out} kept out"
    );
    subject.read("shop.log_1")?;
    subject.expect_excluded("shop.log_1")?;
    ensure!(sql::status(&subject.server, "state_reason")?.is_empty());
    subject.server.stop()?;

    // A mistake in an option file does not prevent the server's start.
    let options = place.early(CACHE)?.option("--bpe-tables=exlude shop.log_1");
    let mut subject = Subject::new(place.start(options)?)?;
    sql::expect_state(&subject.server, "active")?;
    let why = sql::status(&subject.server, "state_reason")?;
    ensure!(
        why.contains("bpe_tables is not followed: rule 1 (exlude shop.log_1): it begins with"),
        "{why}"
    );
    let summary = sql::report(&subject.server, "summary")?;
    let error = summary["tables_error"].as_str().unwrap_or_default();
    ensure!(!error.is_empty() && why.ends_with(error), "{summary}");
    subject.expect_cached("shop.log_1")?;
    subject.rules("exclude shop.log_1")?;
    ensure!(sql::status(&subject.server, "state_reason")?.is_empty());
    subject.expect_excluded("shop.log_1")?;

    // Off and on again: the rules stay.
    subject.server.sql("SET GLOBAL bpe_enabled = OFF")?;
    subject.server.sql("SET GLOBAL bpe_enabled = ON")?;
    subject.read("shop.log_1")?;
    subject.expect_excluded("shop.log_1")?;
    subject.expect_cached("shop.orders")?;
    subject.server.stop()?;
    Ok(())
}

fn limit_and_preference(place: &Place) -> Outcome {
    let options = place.early(SMALL_CACHE)?.option("--bpe-instances=2");
    let mut subject = Subject::new(place.start(options)?)?;
    // The cache itself has space for the whole table.
    subject.rules("limit 20% reports.*")?;
    subject.fill("reports.a")?;
    (0..3).try_for_each(|_| subject.read("reports.a"))?;
    let of_limit = |subject: &Subject, name: &str| -> anyhow::Result<u64> {
        subject.rows("rules")?[0][name]
            .as_u64()
            .context("no figure")
    };
    let most = of_limit(&subject, "limit_pages")?;
    ensure!(
        most > 150 && most < 210,
        "{most} pages are 20 % of {SMALL_CACHE} bytes"
    );
    let cached = of_limit(&subject, "cached_pages")?;
    ensure!(
        cached > most / 2 && cached <= most,
        "{cached} pages of limited tables are cached, {most} may be"
    );
    ensure!(sql::summary_figure(&subject.server, "/cache/rejected_by_limit")? > 0);

    subject.rules("limit 20% reports.*, prefer shop.orders")?;
    subject.fill("shop.orders")?;
    subject.fill("shop.other")?;
    let tables = ["reports.a", "shop.orders", "shop.other"];
    for _ in 0..8 {
        tables.iter().try_for_each(|table| subject.read(table))?;
        let cached = of_limit(&subject, "cached_pages")?;
        ensure!(
            cached <= most,
            "{cached} pages of limited tables are cached, {most} may be"
        );
    }
    let [limited, preferred, other] = tables.map(|table| subject.figure(table, "cached_pages"));
    let (limited, preferred, other) = (limited?, preferred?, other?);
    note(format!(
        "{limited} pages of a limited table, {preferred} of a preferred one, {other} of another"
    ));
    ensure!(
        preferred > other,
        "{preferred} pages of the preferred table, {other} of another"
    );
    // A lower limit is reached gradually, as pages are replaced.
    subject.rules("limit 5% reports.*, prefer shop.orders")?;
    for _ in 0..3 {
        tables.iter().try_for_each(|table| subject.read(table))?;
    }
    let rules = subject.rows("rules")?;
    let (cached, most) = (
        rules[0]["cached_pages"].as_u64(),
        rules[0]["limit_pages"].as_u64(),
    );
    ensure!(cached <= most && most < Some(60), "{rules:?}");
    subject.server.stop()?;
    Ok(())
}

fn bad_rules_are_refused(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    server.sql("SET GLOBAL bpe_tables = 'exclude a.b'")?;
    let long = format!("exclude a.b{}", " ".repeat(4000));
    for (rules, said) in [
        (
            "exlude a.b",
            "a rule begins with include, exclude, normal, prefer or limit N%",
        ),
        ("exclude b", "after b a dot is missing"),
        ("exclude a.b, prefer a.b", "contradict each other"),
        ("exclude a.*, prefer a.b", "put rule 2 first"),
        ("limit 0% a.b", "write exclude instead"),
        ("exclude a.\"b\"", "backquotes"),
        ("exclude `a.b", "a backquote is not closed"),
        (&long, "bpe_tables has 4011 bytes and can have 4000"),
    ] {
        let refusal = sql::refusal(&server, &format!("SET GLOBAL bpe_tables = '{rules}'"))?;
        ensure!(refusal.contains(said), "{rules}: {refusal}");
    }
    sql::refusal(&server, "SET GLOBAL bpe_tables = 5")?;
    ensure!(server.value("SELECT @@GLOBAL.bpe_tables")?.as_deref() == Some("exclude a.b"));
    let warned = sql::warnings(
        &server,
        "SET GLOBAL bpe_tables = 'exclude nothing.there, prefer limit.`exclude`'",
    )?;
    ensure!(
        warned.len() == 2
            && warned[0]
                .contains("exclude nothing.there fits no table that the server has open now"),
        "{warned:?}"
    );
    for rules in [
        "'exclude größe.日本, prefer `a,b`.`c;``d`'",
        "NULL",
        "DEFAULT",
        "''",
    ] {
        server.sql(&format!("SET GLOBAL bpe_tables = {rules}"))?;
    }
    server.sql("CREATE DATABASE `a,b`")?;
    server.sql("CREATE TABLE `a,b`.`c;``d` (id INT PRIMARY KEY) ENGINE=InnoDB")?;
    let quiet = sql::warnings(&server, "SET GLOBAL bpe_tables = 'prefer `a,b`.`c;``d`'")?;
    ensure!(quiet.is_empty(), "{quiet:?}");
    // The longest possible rules, set by several sessions at once.
    let longest: String = (0..90)
        .map(|n| format!("exclude schema_{n}.table_with_a_long_name_{n},"))
        .collect();
    std::thread::scope(|scope| {
        let set = |rules: String| {
            let mut connection = server.connect()?;
            for _ in 0..20 {
                connection.query_drop(format!("SET GLOBAL bpe_tables = '{rules}'"))?;
                std::thread::sleep(Duration::from_millis(5));
            }
            anyhow::Ok(())
        };
        let threads = [longest.as_str(), "exclude a.b", ""].map(|rules| {
            let rules = rules.to_owned();
            scope.spawn(move || set(rules))
        });
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow::anyhow!("panicked"))?)
    })?;
    server.sql(&format!("SET GLOBAL bpe_tables = '{longest}'"))?;
    ensure!(server.value("SELECT @@GLOBAL.bpe_tables")?.as_deref() == Some(longest.as_str()));
    server.stop()?;
    Ok(())
}
