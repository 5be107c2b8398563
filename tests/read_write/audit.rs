//! A foreign process writes to the data files of a running server: the extension detects it and stops serving. A false
//! suspicion only costs the file its cached pages for a while.
//!
//! The library is the test build: its audit runs every second and considers a file quiet after four seconds.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mysql::Conn;
use integration_tests::ordinary::{self, EVENTS, Month, REST};
use integration_tests::place::ROOMY;
use integration_tests::verification::{Compared, compare_cached};
use integration_tests::{Options, Outcome, Place, Server, Suite, checksums, note, sql, trace};

const CACHE: u64 = 64 << 20;
const PAGE: usize = 16384;
const ROWS: u32 = 8000;
const WIDTH: u32 = 2000;
/// A table whose file MariaDB extends in another way.
const PACKED: &str = "ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("audit")
        .each("a_foreign_write_is_noticed", a_foreign_write_is_noticed)
        .in_turn(
            "a_server_without_an_audit_is_noticed",
            a_server_without_an_audit_is_noticed,
        )
        .in_turn(
            "the_same_bytes_are_a_suspicion",
            the_same_bytes_are_a_suspicion,
        )
        .each("damaged_pages_are_kept", damaged_pages_are_kept)
        .each("a_quiet_table_may_grow", a_quiet_table_may_grow)
        .each("the_servers_own_are_not", the_servers_own_are_not)
        .each("an_ordinary_month", an_ordinary_month)
        .in_turn(
            "growth_that_is_not_counted_is_noticed",
            growth_that_is_not_counted_is_noticed,
        )
        .all("innodb_counts_the_same_reads", innodb_counts_the_same_reads)
}

fn options(place: &Place) -> anyhow::Result<Options> {
    place.canary(CACHE, "none")
}

fn state(server: &Server) -> anyhow::Result<(String, String)> {
    Ok((
        sql::status(server, "state")?,
        sql::status(server, "state_reason")?,
    ))
}

/// A server with a table that is almost completely cached and has been idle long enough.
fn with_a_table_at_rest(place: &Place, options: Options) -> anyhow::Result<Server> {
    let server = place.start(options)?;
    let mut connection = server.connect()?;
    server.sql(trace::CREATE_FUNCTION)?;
    // The thread that calculates statistics would read foreign contents into the pool.
    sql::fill(&mut connection, "d.t", ROWS, WIDTH, "STATS_AUTO_RECALC=0")?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    sql::run(&server, &["FLUSH TABLES d.t FOR EXPORT"])?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    std::thread::sleep(REST);
    ensure!(state(&server)?.0 == "active", "{:?}", state(&server)?);
    ensure!(sql::figure(&server, "audit_suspicions")? == 0);
    Ok(server)
}

fn suspicions(server: &Server) -> anyhow::Result<u64> {
    sql::figure(server, "audit_suspicions")
}

/// Every third page from the 20th on; these pages hold rows.
fn some_pages(file: &File) -> anyhow::Result<Vec<(u64, Vec<u8>)>> {
    let pages = file.metadata()?.len() / PAGE as u64;
    let mut some = Vec::new();
    for number in (20..pages).step_by(3) {
        let mut page = vec![0; PAGE];
        file.read_exact_at(&mut page, number * PAGE as u64)?;
        some.push((number, page));
    }
    Ok(some)
}

fn write(file: &File, pages: &[(u64, Vec<u8>)]) -> Outcome {
    for (number, page) in pages {
        file.write_all_at(page, number * PAGE as u64)?;
    }
    Ok(file.sync_all()?)
}

fn data_file(place: &Place) -> anyhow::Result<File> {
    let path = place.data().join("d/t.ibd");
    Ok(File::options().read(true).write(true).open(path)?)
}

/// Changes pages of the table's file behind the server's back, and restores them once the server is passive.
fn change_until_passive(place: &Place, server: &Server, limit: Duration) -> Outcome {
    let file = data_file(place)?;
    let pages = some_pages(&file)?;
    let mut others = pages.clone();
    for (_, page) in &mut others {
        let byte = &mut page[PAGE / 2];
        *byte = !*byte;
        // Without a valid checksum the file would be damaged, and the cache right.
        checksums::set(page, place.is_mysql());
    }
    write(&file, &others)?;
    let noticed = sql::wait_until("passive", limit, || Ok(state(server)?.0 == "passive"));
    write(&file, &pages)?;
    noticed
}

/// Cached pages no longer match the file.
fn a_foreign_write_is_noticed(place: &Place) -> Outcome {
    let server = with_a_table_at_rest(place, options(place)?)?;
    change_until_passive(place, &server, Duration::from_secs(60))?;
    let (_, reason) = state(&server)?;
    note(&reason);
    ensure!(
        !reason.contains("d/t.ibd")
            && reason.contains("changed")
            && reason.contains("no longer match the file"),
        "{reason}"
    );
    ensure!(suspicions(&server)? == 1);
    // Every account may read the reason, so only the log names the table.
    let log = std::fs::read_to_string(server.log())?;
    ensure!(log.contains("Find out who writes") && log.contains("d/t.ibd' changed"));
    // The server goes on without the extension, and with it once it is enabled again.
    let mut connection = server.connect()?;
    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == ROWS);
    ensure!(sql::figure(&server, "hits")? == 0, "still served");
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    ensure!(state(&server)? == ("disabled".into(), String::new()));
    server.stop()?;
    Ok(())
}

/// The audit needs five seconds to notice the same change.
fn a_server_without_an_audit_is_noticed(place: &Place) -> Outcome {
    let server = with_a_table_at_rest(place, place.canary(CACHE, "audit")?)?;
    let noticed = change_until_passive(place, &server, Duration::from_secs(20));
    ensure!(noticed.is_err(), "passive, although nothing looked");
    ensure!(suspicions(&server)? == 0);
    server.kill();
    Ok(())
}

/// The same bytes are written: only the modification time differs, and every cached page is right.
fn the_same_bytes_are_a_suspicion(place: &Place) -> Outcome {
    let server = with_a_table_at_rest(place, options(place)?)?;
    let file = data_file(place)?;
    write(&file, &some_pages(&file)?)?;
    sql::wait_until("suspected", Duration::from_secs(60), || {
        Ok(suspicions(&server)? == 1)
    })?;
    sql::wait_until("compared", Duration::from_secs(60), || {
        Ok(std::fs::read_to_string(server.log())?.contains("none differs"))
    })?;
    // While the file keeps changing its times, none of its pages is cached.
    let mut connection = server.connect()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let toucher = scope.spawn(|| -> Outcome {
            while !stop.load(Ordering::Relaxed) {
                file.set_modified(SystemTime::now())?;
                std::thread::sleep(Duration::from_millis(100));
            }
            Ok(())
        });
        let outcome =
            nothing_is_served(&server, &mut connection).and_then(|()| it_is_said(&server));
        stop.store(true, Ordering::Relaxed);
        toucher.join().map_err(|_| anyhow::anyhow!("panicked"))??;
        outcome
    })?;
    sql::wait_until("cached again", Duration::from_secs(120), || {
        let before = table_hits(&server)?;
        sql::read_all(&mut connection, "d.t", ROWS)?;
        Ok(table_hits(&server)? > before + 100)
    })?;
    ensure!(sql::figure(&server, "suspended_files")? == 0);
    ensure!(suspended(&server)? == serde_json::json!([]));
    ensure!(state(&server)? == ("active".into(), String::new()));
    // A second time within the hour: counted, and not logged again.
    let before = suspicions(&server)?;
    sql::wait_until("suspected again", Duration::from_secs(120), || {
        std::thread::sleep(REST);
        file.set_modified(SystemTime::now())?;
        std::thread::sleep(Duration::from_secs(3));
        Ok(suspicions(&server)? > before)
    })?;
    let log = std::fs::read_to_string(server.log())?;
    ensure!(log.matches("none differs").count() == 1, "{log}");
    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == ROWS);
    server.stop()?;
    Ok(())
}

/// Checks the report: the suspended file, the reason, the duration, and the result of the comparison.
fn it_is_said(server: &Server) -> Outcome {
    ensure!(sql::figure(server, "suspended_files")? == 1);
    let list = suspended(server)?;
    note(list.to_string());
    let file = &list[0];
    ensure!(list[1].is_null(), "{list}");
    ensure!(
        file["file"]
            .as_str()
            .is_some_and(|name| name.ends_with("d/t.ibd"))
    );
    ensure!(file["schema"] == "d" && file["table"] == "t");
    ensure!(file["why"] == "its modification time differs");
    for number in ["suspended_s", "compared_pages", "rest_s", "latest_s"] {
        ensure!(file[number].as_u64() > Some(0), "{number}");
    }
    ensure!(file["latest_s"].as_u64() <= Some(40) && file["rest_s"] == 4);
    Ok(())
}

/// The list of suspended files.
fn suspended(server: &Server) -> anyhow::Result<serde_json::Value> {
    let text = server.value("SELECT bpe_report('suspended')")?;
    Ok(serde_json::from_str(&text.context("no answer")?)?)
}

/// Reads the table while its file is touched. On a busy machine the touches may pause and the file become quiet; the reads are
/// then repeated.
fn nothing_is_served(server: &Server, connection: &mut Conn) -> Outcome {
    let mut served = 0;
    for _ in 0..10 {
        let suspected = suspicions(server)?;
        let before = table_hits(server)?;
        sql::read_all(connection, "d.t", ROWS)?;
        served = table_hits(server)? - before;
        if served == 0 && suspicions(server)? == suspected {
            return Ok(());
        }
    }
    bail!("{served} hits although the file is suspected")
}

/// Reads of the table that the cache has served.
fn table_hits(server: &Server) -> anyhow::Result<u64> {
    let text = server
        .value("SELECT bpe_report('files')")?
        .context("no answer")?;
    let files: serde_json::Value = serde_json::from_str(&text)?;
    let hits = files
        .as_array()
        .context("a list")?
        .iter()
        .filter(|file| {
            file["file"]
                .as_str()
                .is_some_and(|name| name.ends_with("d/t.ibd"))
        })
        .filter_map(|file| file["hits"].as_u64())
        .sum();
    Ok(hits)
}

/// Pages lose their checksums in the file while the cache holds intact copies. The cache keeps them, serves nothing of the
/// file, and resumes after the pages are repaired. The table is not read during the damage, because MySQL would crash.
fn damaged_pages_are_kept(place: &Place) -> Outcome {
    let server = with_a_table_at_rest(place, options(place)?)?;
    let file = data_file(place)?;
    let pages = some_pages(&file)?;
    let mut damaged = pages.clone();
    for (_, page) in &mut damaged {
        page[PAGE / 2..PAGE / 2 + 512].fill(0xa5);
    }
    write(&file, &damaged)?;
    let log = || -> anyhow::Result<String> { Ok(std::fs::read_to_string(server.log())?) };
    let noticed = sql::wait_until("compared", Duration::from_secs(60), || {
        Ok(log()?.contains("are damaged in the file, and the others equal"))
    });
    let told = noticed.and_then(|()| {
        ensure!(state(&server)? == ("active".into(), String::new()));
        let known = sql::figure(&server, "damaged_pages")?;
        note(format!("{known} of {} pages written", pages.len()));
        ensure!(known > 0 && sql::figure(&server, "suspended_files")? == 1);
        Ok(())
    });
    write(&file, &pages)?;
    told?;
    ensure!(log()?.contains("d/t.ibd' is damaged: its checksum is wrong"));
    sql::wait_until("all are well", Duration::from_secs(30), || {
        let mut sums = Compared::default();
        compare_cached(&server, &mut sums)?;
        ensure!(sums.wrong == 0, "{sums:?}");
        Ok(sql::figure(&server, "damaged_pages")? == 0)
    })?;
    let mut connection = server.connect()?;
    sql::wait_until("cached again", Duration::from_secs(120), || {
        let before = table_hits(&server)?;
        sql::read_all(&mut connection, "d.t", ROWS)?;
        Ok(table_hits(&server)? > before + 100)
    })?;
    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == ROWS);
    server.stop()?;
    Ok(())
}

/// An idle table gets more rows: the file grows. With a pool that holds them, its new pages are written much later.
fn a_quiet_table_may_grow(place: &Place) -> Outcome {
    let mut options = options(place)?.buffer_pool(ROOMY);
    if place.is_mysql() {
        // Allocates space without writing zeros.
        options = options.option("--innodb-extend-and-initialize=OFF");
    }
    let server = place.start(options)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 4000, 2000, "")?;
    sql::fill(&mut connection, "d.packed", 1000, 1000, PACKED)?;
    sql::read_all(&mut connection, "d.t", 4000)?;
    let file = place.data().join("d/t.ibd");
    let mut rows = 4000;
    for round in 0..2 {
        sql::run(&server, &["FLUSH TABLES d.t, d.packed FOR EXPORT"])?;
        std::thread::sleep(REST);
        let size = std::fs::metadata(&file)?.len();
        sql::insert(&mut connection, "d.t", rows + 1, rows + 4000, 2000)?;
        sql::insert(&mut connection, "d.packed", rows + 1, rows + 1000, 1000)?;
        rows += 4000;
        let grown = std::fs::metadata(&file)?.len();
        ensure!(grown > size, "the file did not grow: {size} bytes");
        for _ in 0..20 {
            let (state, reason) = state(&server)?;
            ensure!(state == "active", "round {round}: {state} ({reason})");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
    ensure!(sql::verify_pads(&mut connection, "d.t", 2000)? == rows);
    server.stop()?;
    Ok(())
}

/// Load with idle times in which files become quiet, and all other changes that the server makes to files.
fn the_servers_own_are_not(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 4000, 1000, "")?;
    for round in 0..3 {
        ledger.run(&server, Duration::from_secs(2))?;
        std::thread::sleep(Duration::from_secs(7));
        let (state, reason) = state(&server)?;
        ensure!(state == "active", "round {round}: {state} ({reason})");
        sql::run(
            &server,
            &[
                "ALTER TABLE ledger.t0 FORCE",
                "TRUNCATE TABLE d.t",
                "FLUSH TABLES",
                "CREATE TABLE d.other LIKE d.t",
                "RENAME TABLE d.t TO d.old, d.other TO d.t",
                "DROP TABLE d.old",
            ],
        )?;
        sql::insert(&mut connection, "d.t", 1, 3000, 1000)?;
    }
    ledger.verify(&server)?;
    ensure!(state(&server)?.0 == "active");
    server.stop()?;
    Ok(())
}

/// Events of an ordinary month on a server and its files, one by one.
fn an_ordinary_month(place: &Place) -> Outcome {
    let own = ordinary::place_with_undo(place)?;
    let place = own.as_ref().unwrap_or(place);
    let options = ordinary::with_undo(options(place)?, place);
    let server = place.start(options)?;
    let mut month = Month::begin(place, &server)?;
    let mut compared = month.check()?;
    for event in EVENTS {
        (|| {
            month.make(event)?;
            compared += month.check()?;
            // Some changes are visible only to the next audit, or after the pages are written.
            std::thread::sleep(Duration::from_secs(2));
            compared += month.check()?;
            anyhow::Ok(())
        })()
        .with_context(|| format!("after: {}", event.name))
        .map_err(|error| error.context(place.last_words()))?;
    }
    note(format!(
        "{compared} cached pages compared, {} suspicions",
        month.expected
    ));
    ensure!(compared > 0 && month.expected == 1);
    month.verify()?;
    server.stop()?;
    Ok(())
}

/// A canary that counts growth as no change: the file is suspected, and loses its cached pages for a while.
fn growth_that_is_not_counted_is_noticed(place: &Place) -> Outcome {
    let mut options = place.canary(CACHE, "looks")?.buffer_pool(ROOMY);
    if place.is_mysql() {
        options = options.option("--innodb-extend-and-initialize=OFF");
    }
    let server = place.start(options)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 4000, 2000, "")?;
    sql::wait_until("suspected", Duration::from_secs(300), || {
        sql::run(&server, &["FLUSH TABLES d.t FOR EXPORT"])?;
        std::thread::sleep(REST);
        let rows = sql::number(&server, "SELECT COUNT(*) FROM d.t")? as u32;
        sql::insert(&mut connection, "d.t", rows + 1, rows + 4000, 2000)?;
        std::thread::sleep(Duration::from_secs(2));
        Ok(suspicions(&server)? > 0)
    })?;
    ensure!(state(&server)? == ("active".into(), String::new()));
    server.stop()?;
    Ok(())
}

/// Every page that InnoDB counts as read is a hit or a hooked read of a data file, read-ahead included.
fn innodb_counts_the_same_reads(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 20_000, 1000, "")?;
    let counted = || -> anyhow::Result<(u64, u64)> {
        let status = server.status("innodb_pages_read")?;
        let innodb = status.values().next().context("no such counter")?.parse()?;
        let hooks = sql::figure(&server, "hits")? + sql::figure(&server, "data_reads")?;
        Ok((innodb, hooks))
    };
    let before = counted()?;
    sql::read_all(&mut connection, "d.t", 20_000)?;
    for _ in 0..3 {
        server.sql("SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)")?;
    }
    let after = counted()?;
    let (innodb, hooks) = (after.0 - before.0, after.1 - before.1);
    note(format!(
        "InnoDB has read {innodb} pages, the hooks have seen {hooks}"
    ));
    ensure!(innodb > 3000, "only {innodb} pages read");
    // The two counters are not read at the same moment.
    ensure!(innodb.abs_diff(hooks) * 50 < innodb, "{innodb} and {hooks}");
    server.stop()?;
    Ok(())
}
