//! Scans, dumps and backups beside a hot set of half the cache: pages read once must not evict pages that are read repeatedly.
//!
//! The test measures the hit rate of the hot table, alone and beside each disturbance. The data is small, so it takes seconds;
//! `BPE_SCANS_MIB` enlarges the other table for measurements.

use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::mysql::Conn;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::{Outcome, Place, Server, Suite, copies, note, sql, trace};
use serde_json::Value;

const CACHE: u64 = 24 << 20;
/// Rows of the hot table: half of the cache, and more than InnoDB's pool.
const HOT: u32 = 6000;
const WIDTH: u32 = 1800;
/// MiB of the scanned table, twice the cache.
const COLD_MIB: u32 = 48;
/// Rows of both tables per MiB, with InnoDB's overhead.
const ROWS_PER_MIB: u32 = 500;
/// Passes over the hot table until the policy has seen its pages repeatedly.
const LEARNS: u32 = 4;
/// Percentage points that the hit rate may fall.
const MOST_LOST: f64 = 2.0;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("scans")
        .in_turn("a_hot_set_stays", a_hot_set_stays)
        .in_turn("read_ahead_is_answered", read_ahead_is_answered)
}

/// Large enough for the whole table that is read ahead.
const ROOMY_CACHE: u64 = 192 << 20;
/// Minimum percentage of its reads that the cache answers, with and without compression: 99 on an idle machine, less where
/// other load keeps its disk busy.
const LEAST_ANSWERED: f64 = 90.0;

/// A fully cached table is scanned, so that the server reads ahead asynchronously.
fn read_ahead_is_answered(place: &Place) -> Outcome {
    for compression in ["off", "lz4"] {
        let options = place
            .early(ROOMY_CACHE)?
            .option(format!("--bpe-compression={compression}"));
        let server = place.start(options)?;
        let mut connection = server.connect()?;
        sql::fill(&mut connection, "d.t", 20_000, WIDTH, "")?;
        let scan = "SELECT COUNT(*), SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)";
        (0..3).try_for_each(|_| statement(&server, scan))?;
        // By then the pages read last are compressed.
        std::thread::sleep(Duration::from_secs(2));
        let figures = || -> anyhow::Result<[u64; 3]> {
            let of = |name| sql::figure(&server, name);
            Ok([of("hits")?, of("misses")?, of("data_reads")?])
        };
        let before = figures()?;
        (0..10).try_for_each(|_| statement(&server, scan))?;
        let after = figures()?;
        let [hits, misses, data_reads] = std::array::from_fn(|n| (after[n] - before[n]) as f64);
        let percent = |others: f64| hits * 100.0 / (hits + others);
        let (answered, shown) = (percent(data_reads), percent(misses));
        note(format!(
            "{compression}: {hits} hits, {misses} misses, {data_reads} data reads; {answered:.1} % answered, {shown:.1} % shown"
        ));
        ensure!(
            hits > 5000.0 && answered >= LEAST_ANSWERED,
            "{answered:.1} %"
        );
        ensure!((answered - shown).abs() < 1.0, "the ratio hides reads");
        server.stop()?;
        place.initialise_again(&[])?;
    }
    Ok(())
}

/// Hits and misses of the hot table.
fn counted(server: &Server) -> anyhow::Result<(u64, u64)> {
    let text = server.value("SELECT bpe_report('files')")?;
    let rows: Vec<Value> = serde_json::from_str(&text.context("no report")?)?;
    let hot = rows
        .iter()
        // A copy of the data has a file of the same table.
        .find(|row| {
            row["file"]
                .as_str()
                .is_some_and(|name| name.ends_with("/hot/t.ibd") && !name.contains("/copy/"))
        })
        .context("the hot table is not known")?;
    let of = |name: &str| hot[name].as_u64().context("no figure");
    Ok((of("hits")?, of("misses")?))
}

/// Percentage of the reads since `since` that the cache answered.
fn share(server: &Server, since: (u64, u64)) -> anyhow::Result<f64> {
    let (hits, misses) = counted(server)?;
    let (hits, misses) = (hits - since.0, misses - since.1);
    ensure!(hits + misses > 500, "only {} reads", hits + misses);
    Ok(hits as f64 * 100.0 / (hits + misses) as f64)
}

/// A function that reads or writes the other table once.
type Disturbance = fn(&Place, &Server) -> Outcome;

fn statement(server: &Server, statement: &str) -> Outcome {
    let mut connection = server.connect()?;
    let rows: Vec<integration_tests::mysql::Row> = connection.query(statement)?;
    drop(rows);
    Ok(())
}

fn scan(_: &Place, server: &Server) -> Outcome {
    statement(
        server,
        "SELECT COUNT(*), SUM(LENGTH(pad)) FROM cold.t FORCE INDEX (PRIMARY)",
    )
}

fn check(_: &Place, server: &Server) -> Outcome {
    statement(server, "CHECK TABLE cold.t")
}

fn optimize(_: &Place, server: &Server) -> Outcome {
    statement(server, "OPTIMIZE TABLE cold.t")
}

fn dump(place: &Place, server: &Server) -> Outcome {
    let names = if place.is_mysql() {
        ["mysqldump", "mysqldump"]
    } else {
        ["mariadb-dump", "mysqldump"]
    };
    // A server in a separate root directory has no client there; the host's client is used.
    let mut command = names
        .iter()
        .find_map(|name| place.installation.tool(name))
        .unwrap_or_else(|| Command::new(names[0]));
    command
        .args(["--no-defaults", "--single-transaction", "--user=root"])
        .arg(format!("--socket={}", server.socket().display()))
        .arg("cold")
        .stdout(Stdio::null());
    let status = command.status().context(names[0])?;
    ensure!(status.success(), "{} ended with {status}", names[0]);
    Ok(())
}

/// mariadb-backup reads the data files outside the server; MySQL's clone reads them inside.
fn copy(place: &Place, server: &Server) -> Outcome {
    let copy = place.root().join("copy");
    let copied = copies::of_running(place, server, &place.data(), &copy);
    std::fs::remove_dir_all(&copy)
        .or_else(|error| if copy.exists() { Err(error) } else { Ok(()) })?;
    copied
}

fn cold_rows() -> anyhow::Result<u32> {
    let mib = match std::env::var("BPE_SCANS_MIB") {
        Ok(text) => text.parse().context("BPE_SCANS_MIB")?,
        Err(_) => COLD_MIB,
    };
    Ok(mib * ROWS_PER_MIB)
}

fn a_hot_set_stays(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    server.sql(trace::CREATE_FUNCTION)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "cold.t", cold_rows()?, WIDTH, "")?;
    sql::fill(&mut connection, "hot.t", HOT, WIDTH, "")?;
    let mut fell = Vec::new();
    let pass = |connection: &mut Conn| sql::read_all(connection, "hot.t", HOT);
    // Until the whole table is cached: the pages written last may have filled the cache, and the policy must first learn the
    // hot pages.
    let mut alone = 0.0;
    for passed in 1..=12 {
        let before = counted(&server)?;
        pass(&mut connection)?;
        alone = share(&server, before)?;
        if alone > 98.0 && passed >= LEARNS {
            break;
        }
    }
    ensure!(
        alone > 90.0,
        "alone, the cache answers {alone:.1} % of the hot table's reads"
    );
    let disturbances: [(&str, Disturbance); 5] = [
        ("a full scan", scan),
        ("a dump", dump),
        ("CHECK TABLE", check),
        ("OPTIMIZE TABLE", optimize),
        ("a backup", copy),
    ];
    for (name, disturb) in disturbances {
        let rejected = sql::summary_figure(&server, "/cache/bytes_rejected")?;
        let before = counted(&server)?;
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let load = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    pass(&mut connection)?;
                }
                // Evicted pages show as misses now.
                pass(&mut connection)
            });
            let disturbed = disturb(place, &server);
            over.store(true, Ordering::Relaxed);
            load.join().map_err(|_| anyhow::anyhow!("panicked"))??;
            disturbed
        })?;
        let beside = share(&server, before)?;
        let kept_out = sql::summary_figure(&server, "/cache/bytes_rejected")? - rejected;
        note(format!(
            "{name}: {beside:.1} % of the hot table's reads are hits, {alone:.1} % alone; {:.1} MiB kept out",
            kept_out as f64 / f64::from(1 << 20)
        ));
        if beside < alone - MOST_LOST {
            fell.push(format!("{name}: {beside:.1} % instead of {alone:.1} %"));
        }
    }
    ensure!(fell.is_empty(), "the hot table's hits fell: {fell:?}");
    server.stop()?;
    Ok(())
}
