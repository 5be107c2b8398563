//! Statements that create, truncate, replace, rename and drop files, with the extension on. Every row is checked.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::mysql::{Conn, prelude::Queryable};
use integration_tests::{
    Flavour, Load, Options, Outcome, Place, Server, Suite, library, note, replacement, skip, sql,
    verification,
};

const CACHE: u64 = 128 << 20;
/// 18 MiB with page overhead: more than twice the pool.
const ROWS: u32 = 12_000;
const WIDTH: u32 = 1300;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("ddl")
        .each("truncate", truncate)
        .in_turn("room_comes_back", room_comes_back)
        .each("drop_and_create_under_the_same_name", drop_and_create)
        .each("rebuild_in_place", rebuild_in_place)
        .in_turn("rebuild_by_copy", rebuild_by_copy)
        .each("rename", rename)
        .each("import_of_an_older_copy", import)
        .each("indexes", indexes)
        .each("bulk_load", bulk_load)
        .each("many_tables_and_few_open_files", few_open_files)
        .in_turn("partitions", partitions)
        .each("temporary_tables", temporary_tables)
        .each("page_compression", page_compression)
        .each("undo_truncation", undo_truncation)
        .with(Flavour::MySql97, "general_tablespace", general_tablespace)
        .with(Flavour::MariaDb1011, "encryption", encryption)
        .in_turn("all_together_under_load", under_load)
}

/// Runs `body` on a server with the plugin loaded early and expects hits; then checks everything without the plugin.
fn with_plugin(
    place: &Place,
    options: Options,
    body: impl FnOnce(&Server, &mut Conn) -> Outcome,
) -> Outcome {
    let server = place.start(options)?;
    sql::expect_state(&server, "active")?;
    let mut connection = server.connect()?;
    body(&server, &mut connection)?;
    ensure!(sql::figure(&server, "hits")? > 0, "no hits");
    ensure!(sql::figure(&server, "failed_proofs")? == 0, "failed proofs");
    verification::check_tables(&server)?;
    server.stop()?;
    place.expect_left()?;
    Ok(())
}

/// Starts the data directory without the plugin after a stop with it: the same contents must be there.
fn look_without(place: &Place, look: impl FnOnce(&mut Conn) -> Outcome) -> Outcome {
    verification::innochecksum(&place.installation, &place.data())?;
    let server = place.start(place.roomy())?;
    verification::check_tables(&server)?;
    look(&mut server.connect()?)?;
    server.stop()?;
    Ok(())
}

/// Fills a table and reads it twice, so that it is cached.
fn cached(connection: &mut Conn, table: &str, rows: u32, attributes: &str) -> Outcome {
    sql::fill(connection, table, rows, WIDTH, attributes)?;
    for _ in 0..2 {
        sql::read_all(connection, table, rows)?;
    }
    Ok(())
}

fn expect_rows(connection: &mut Conn, table: &str, rows: u32) -> Outcome {
    for _ in 0..2 {
        let seen = sql::verify_pads(connection, table, WIDTH)?;
        ensure!(seen == rows, "{table} has {seen} rows instead of {rows}");
    }
    Ok(())
}

/// `Bpe_pages_cached` excludes dropped, truncated and rebuilt tables, also for recovered pages.
fn room_comes_back(place: &Place) -> Outcome {
    // Pages of the server's own tables and undo logs.
    const LEFT: u64 = 1000;
    const ROWS: u32 = 24_000;
    let cached = |server: &Server| sql::figure(server, "pages_cached");
    let falls = |server: &Server, most: u64, what: &str| {
        sql::wait_until(
            what,
            Duration::from_secs(10),
            || Ok(cached(server)? <= most),
        )
        .with_context(|| format!("{:?} pages are cached, {most} can be", cached(server)))
    };
    let table = |connection: &mut Conn| -> anyhow::Result<()> {
        sql::fill(connection, "d.t", ROWS, WIDTH, "")?;
        sql::read_all(connection, "d.t", ROWS)?;
        Ok(())
    };
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    let mut connection = server.connect()?;
    table(&mut connection)?;
    let of_one = cached(&server)?;
    ensure!(of_one > 2 * LEFT, "only {of_one} pages are cached");
    for _ in 0..4 {
        connection.query_drop("ALTER TABLE d.t ENGINE=InnoDB")?;
        sql::read_all(&mut connection, "d.t", ROWS)?;
    }
    falls(&server, of_one * 3 / 2, "one of five rebuilt tables counts")?;
    connection.query_drop("TRUNCATE TABLE d.t")?;
    falls(&server, LEFT, "the emptied table is gone")?;
    connection.query_drop("DROP TABLE d.t")?;
    table(&mut connection)?;
    server.stop()?;
    // Pages that a previous process has cached.
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    let mut connection = server.connect()?;
    sql::read_all(&mut connection, "d.t", ROWS)?;
    let kept = sql::figure(&server, "pages_inherited")?;
    let all = cached(&server)?;
    ensure!(kept > LEFT && all > LEFT, "{kept} pages are kept of {all}");
    connection.query_drop("DROP TABLE d.t")?;
    falls(&server, LEFT, "the dropped table is gone")?;
    note(format!(
        "{of_one} pages, {kept} kept, {} left",
        cached(&server)?
    ));
    server.stop()?;
    Ok(())
}

fn truncate(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        cached(connection, "d.t", ROWS, "")?;
        for _ in 0..3 {
            connection.query_drop("TRUNCATE TABLE d.t")?;
            expect_rows(connection, "d.t", 0)?;
            // Other rows in the same pages.
            sql::insert(connection, "d.t", 100_001, 100_000 + ROWS, WIDTH)?;
            expect_rows(connection, "d.t", ROWS)?;
        }
        Ok(())
    })?;
    look_without(place, |connection| expect_rows(connection, "d.t", ROWS))
}

fn drop_and_create(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        for number in 0..4 {
            let rows = ROWS + number * 100;
            cached(connection, "d.t", rows, "")?;
            expect_rows(connection, "d.t", rows)?;
            if number < 3 {
                connection.query_drop("DROP TABLE d.t")?;
            }
        }
        connection.query_drop("CREATE DATABASE e")?;
        cached(connection, "e.t", ROWS, "")?;
        connection.query_drop("DROP DATABASE e")?;
        Ok(())
    })?;
    look_without(place, |connection| {
        expect_rows(connection, "d.t", ROWS + 300)
    })
}

fn rebuild(place: &Place, statements: &[&str]) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        cached(connection, "d.t", ROWS, "")?;
        for statement in statements {
            connection.query_drop("DELETE FROM d.t WHERE id % 10 = 3")?;
            connection
                .query_drop(statement)
                .context(statement.to_string())?;
            expect_rows(connection, "d.t", ROWS - ROWS / 10)?;
            for id in (3..=ROWS).step_by(10) {
                sql::insert(connection, "d.t", id, id, WIDTH)?;
            }
            expect_rows(connection, "d.t", ROWS)?;
        }
        Ok(())
    })?;
    look_without(place, |connection| expect_rows(connection, "d.t", ROWS))
}

fn rebuild_in_place(place: &Place) -> Outcome {
    rebuild(
        place,
        &[
            "ALTER TABLE d.t FORCE, ALGORITHM=INPLACE",
            "OPTIMIZE TABLE d.t",
        ],
    )
}

fn rebuild_by_copy(place: &Place) -> Outcome {
    rebuild(
        place,
        &[
            "ALTER TABLE d.t FORCE, ALGORITHM=COPY",
            "ALTER TABLE d.t ENGINE=InnoDB, ALGORITHM=COPY",
        ],
    )
}

/// Names change, contents do not. The two tables have different contents.
fn rename(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        cached(connection, "d.a", ROWS, "")?;
        cached(connection, "d.b", ROWS / 2, "")?;
        for number in 0..6 {
            connection.query_drop("RENAME TABLE d.a TO d.c, d.b TO d.a, d.c TO d.b")?;
            let (a, b) = if number % 2 == 0 {
                (ROWS / 2, ROWS)
            } else {
                (ROWS, ROWS / 2)
            };
            expect_rows(connection, "d.a", a)?;
            expect_rows(connection, "d.b", b)?;
        }
        connection.query_drop("CREATE DATABASE e")?;
        connection.query_drop("RENAME TABLE d.a TO e.a")?;
        expect_rows(connection, "e.a", ROWS)
    })?;
    look_without(place, |connection| expect_rows(connection, "e.a", ROWS))
}

fn import(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |server, _| {
        replacement::older_copy(place, server)
    })
}

fn indexes(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        cached(connection, "d.t", ROWS, "")?;
        connection.query_drop("UPDATE d.t SET v = id % 100")?;
        for number in 0..3 {
            connection.query_drop("ALTER TABLE d.t ADD INDEX p (pad(200)), ALGORITHM=INPLACE")?;
            let through_index: Option<u64> = connection
                .query_first("SELECT COUNT(*) FROM d.t FORCE INDEX (p) WHERE pad >= ''")?;
            ensure!(through_index == Some(u64::from(ROWS)), "{through_index:?}");
            connection.query_drop(format!("UPDATE d.t SET v = v + 1 WHERE id % 7 = {number}"))?;
            let sum: Option<(u64, u64)> = connection.query_first(
                "SELECT (SELECT CAST(SUM(v) AS UNSIGNED) FROM d.t FORCE INDEX (v)), \
                 (SELECT CAST(SUM(v + LENGTH(pad) * 0) AS UNSIGNED) FROM d.t FORCE INDEX (PRIMARY))",
            )?;
            ensure!(sum.is_some_and(|(index, rows)| index == rows), "{sum:?}");
            connection.query_drop("ALTER TABLE d.t DROP INDEX p")?;
        }
        Ok(())
    })
}

/// Bulk loads, which bypass the single-page path, into a growing file.
fn bulk_load(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        cached(connection, "d.t", ROWS, "")?;
        for name in ["x", "y"] {
            connection.query_drop(format!("CREATE TABLE d.{name} LIKE d.t"))?;
            connection.query_drop(format!("INSERT INTO d.{name} SELECT * FROM d.t"))?;
            expect_rows(connection, &format!("d.{name}"), ROWS)?;
        }
        connection.query_drop(format!(
            "CREATE TABLE d.z ENGINE=InnoDB AS SELECT * FROM d.t WHERE id <= {}",
            ROWS / 2
        ))?;
        expect_rows(connection, "d.z", ROWS / 2)?;
        connection.query_drop("SET unique_checks = 0, foreign_key_checks = 0")?;
        connection.query_drop("CREATE TABLE d.w LIKE d.t")?;
        sql::insert(connection, "d.w", 1, ROWS, WIDTH)?;
        expect_rows(connection, "d.w", ROWS)
    })?;
    look_without(place, |connection| expect_rows(connection, "d.x", ROWS))
}

/// The server closes and opens files all the time.
fn few_open_files(place: &Place) -> Outcome {
    const TABLES: u32 = 40;
    let options = place
        .early(CACHE)?
        .option("--innodb-open-files=20")
        .option("--table-open-cache=20")
        .option("--table-definition-cache=400");
    with_plugin(place, options, |server, connection| {
        for table in 0..TABLES {
            sql::fill(connection, &format!("d.t{table}"), 500 + table, WIDTH, "")?;
        }
        let mut random = fastrand::Rng::with_seed(5);
        let mut versions = vec![0u64; TABLES as usize];
        for _ in 0..400 {
            let table = random.u32(0..TABLES);
            let rows = 500 + table;
            if random.bool() {
                connection.query_drop(format!("UPDATE d.t{table} SET v = v + 1"))?;
                versions[table as usize] += 1;
            }
            let (_, sum) = sql::read_all(connection, &format!("d.t{table}"), rows)?;
            let expected = versions[table as usize] * u64::from(rows);
            ensure!(sum == expected, "d.t{table}: {sum} instead of {expected}");
        }
        note(format!("{} hits", sql::figure(server, "hits")?));
        Ok(())
    })
}

fn partitions(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        cached(
            connection,
            "d.t",
            ROWS,
            "PARTITION BY HASH (id) PARTITIONS 4",
        )?;
        expect_rows(connection, "d.t", ROWS)?;
        connection.query_drop("ALTER TABLE d.t ADD PARTITION PARTITIONS 2")?;
        expect_rows(connection, "d.t", ROWS)?;
        connection.query_drop("ALTER TABLE d.t TRUNCATE PARTITION p1")?;
        let left: Option<u32> = connection.query_first("SELECT COUNT(*) FROM d.t")?;
        ensure!(sql::verify_pads(connection, "d.t", WIDTH)? == left.unwrap_or(0));
        ensure!(left < Some(ROWS) && left > Some(ROWS / 2), "{left:?}");
        connection.query_drop("ALTER TABLE d.t COALESCE PARTITION 3")?;
        expect_rows(connection, "d.t", left.unwrap_or(0))
    })
}

/// Temporary tables larger than the pool, in reused files.
fn temporary_tables(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |server, connection| {
        cached(connection, "d.t", ROWS, "")?;
        for number in 0..3 {
            let mut session = server.connect()?;
            session.query_drop(
                "CREATE TEMPORARY TABLE d.x (id INT UNSIGNED PRIMARY KEY, v INT UNSIGNED NOT NULL, \
                 pad VARBINARY(4000) NOT NULL) ENGINE=InnoDB",
            )?;
            let first = 1 + number * 50_000;
            sql::insert(&mut session, "d.x", first, first + ROWS - 1, WIDTH)?;
            expect_rows(&mut session, "d.x", ROWS)?;
            session.query_drop("DELETE FROM d.x WHERE id % 2 = 0")?;
            ensure!(sql::verify_pads(&mut session, "d.x", WIDTH)? == ROWS / 2);
        }
        expect_rows(connection, "d.t", ROWS)
    })
}

fn page_compression(place: &Place) -> Outcome {
    let attributes = if place.is_mysql() {
        "COMPRESSION='zlib'"
    } else {
        "PAGE_COMPRESSED=1"
    };
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        // Compressible pages: each row repeats its bytes eight times.
        connection.query_drop("CREATE DATABASE d")?;
        connection.query_drop(format!(
            "CREATE TABLE d.t (id INT UNSIGNED PRIMARY KEY, v INT UNSIGNED NOT NULL, pad VARBINARY(4000) NOT NULL, \
             KEY (v)) ENGINE=InnoDB {attributes}"
        ))?;
        for first in (1..=ROWS).step_by(200) {
            let values: Vec<String> = (first..first + 200)
                .map(|id| format!("({id},0,REPEAT(x'{}',8))", sql::hex_pad(id, 0, 160)))
                .collect();
            connection.query_drop(format!("INSERT INTO d.t VALUES {}", values.join(",")))?;
        }
        for version in 1..=3u64 {
            let (_, versions) = sql::read_all(connection, "d.t", ROWS)?;
            ensure!(
                versions == (version - 1) * u64::from(ROWS),
                "sum {versions}"
            );
            connection.query_drop("UPDATE d.t SET v = v + 1, pad = CONCAT(SUBSTR(pad, 2), 'x')")?;
            for _ in 0..2 {
                let (_, versions) = sql::read_all(connection, "d.t", ROWS)?;
                ensure!(versions == version * u64::from(ROWS), "sum {versions}");
            }
        }
        let right: Option<u32> = connection.query_first(
            "SELECT COUNT(*) FROM d.t WHERE LENGTH(pad) = 1280 AND SUBSTR(pad, 1278) = 'xxx'",
        )?;
        ensure!(right == Some(ROWS), "{right:?}");
        Ok(())
    })
}

/// Undo tablespaces grow and are truncated again.
fn undo_truncation(place: &Place) -> Outcome {
    // MariaDB 10.11 has its undo logs in the system tablespace unless it is initialised with undo tablespaces.
    let own;
    let place = if place.is_mysql() {
        place
    } else {
        own = Place::initialised(place.installation.flavour, &["--innodb-undo-tablespaces=2"])?;
        &own
    };
    let options = place
        .early(CACHE)?
        .option("--innodb-undo-log-truncate=ON")
        .option("--innodb-max-undo-log-size=10485760");
    let options = if place.is_mysql() {
        options.option("--innodb-purge-rseg-truncate-frequency=1")
    } else {
        options.option("--innodb-undo-tablespaces=2")
    };
    with_plugin(place, options, |server, connection| {
        let size = || -> anyhow::Result<u64> {
            let mut sum = 0;
            for file in integration_tests::place::files_in(&place.data()) {
                if file
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("undo"))
                {
                    // The file may disappear while it is truncated.
                    sum += std::fs::metadata(file).map_or(0, |file| file.len());
                }
            }
            Ok(sum)
        };
        cached(connection, "d.t", ROWS, "")?;
        let ledger = Ledger::create(server, 1, 2000, 1000, 4)?.paced();
        let at_first = size()?;
        ensure!(at_first > 0, "there are no undo tablespaces");
        // A snapshot delays purge until the undo logs are large.
        let mut snapshot = server.connect()?;
        let mut largest = at_first;
        for round in 0..2u64 {
            snapshot.query_drop("START TRANSACTION WITH CONSISTENT SNAPSHOT")?;
            for _ in 0..4 {
                connection.query_drop("UPDATE d.t SET v = v + 1, pad = REVERSE(pad)")?;
                largest = largest.max(size()?);
            }
            // Old versions come from undo pages, many of them cached.
            let old: Option<u64> = snapshot
                .query_first("SELECT CAST(SUM(v) AS UNSIGNED) FROM d.t FORCE INDEX (PRIMARY)")?;
            ensure!(
                old == Some(round * 4 * u64::from(ROWS)),
                "snapshot: {old:?}"
            );
            snapshot.query_drop("COMMIT")?;
            ledger.run(server, Duration::from_secs(3))?;
        }
        let wait = sql::wait_until(
            "an undo tablespace is cut down",
            Duration::from_secs(150),
            || {
                ledger.run(server, Duration::from_millis(500))?;
                Ok(size()? + (8 << 20) < largest)
            },
        );
        note(format!(
            "undo tablespaces: {} MiB at first, {} MiB at most, {} MiB in the end",
            at_first >> 20,
            largest >> 20,
            size()? >> 20
        ));
        if wait.is_err() {
            return Err(skip(
                "the server did not cut its undo tablespaces down in time",
            ));
        }
        let (_, versions) = sql::read_all(connection, "d.t", ROWS)?;
        ensure!(versions == 8 * u64::from(ROWS), "{versions}");
        expect_rows_reversed(connection)?;
        ledger.run(server, Duration::from_secs(2))?;
        ledger.verify(server)
    })
}

/// After an even number of reversals the bytes are those of version 0.
fn expect_rows_reversed(connection: &mut Conn) -> Outcome {
    connection.query_drop("UPDATE d.t SET v = 0")?;
    expect_rows(connection, "d.t", ROWS)
}

fn general_tablespace(place: &Place) -> Outcome {
    with_plugin(place, place.early(CACHE)?, |_, connection| {
        for _ in 0..2 {
            connection.query_drop("CREATE TABLESPACE ts ADD DATAFILE 'ts.ibd' ENGINE=InnoDB")?;
            cached(connection, "d.a", ROWS, "TABLESPACE ts")?;
            cached(connection, "d.b", ROWS, "TABLESPACE ts")?;
            expect_rows(connection, "d.a", ROWS)?;
            connection.query_drop("DROP TABLE d.a")?;
            connection.query_drop("CREATE TABLE d.c LIKE d.b")?;
            connection.query_drop("INSERT INTO d.c SELECT * FROM d.b")?;
            expect_rows(connection, "d.c", ROWS)?;
            connection.query_drop("DROP TABLE d.b, d.c")?;
            connection.query_drop("DROP TABLESPACE ts")?;
        }
        Ok(())
    })
}

/// Cached pages are encrypted as in the data file.
fn encryption(place: &Place) -> Outcome {
    let plugin = library::plugin_of_package("mariadb-server", "file_key_management.so")?;
    let keys = place.root().join("keys");
    std::fs::write(
        &keys,
        "1;770A8A65DA156D24EE2A093277530142770A8A65DA156D24EE2A093277530142\n",
    )?;
    let needle = "7468697320697320696e20636c65617220746578742c206e6f7420656e63727970746564";
    let options = place
        .early(CACHE)?
        .plugin(plugin, "file_key_management", Load::Early)
        .option(format!("--file-key-management-filename={}", keys.display()));
    with_plugin(place, options, |_, connection| {
        cached(connection, "d.t", ROWS, "ENCRYPTED=YES")?;
        connection.query_drop(format!("UPDATE d.t SET pad = x'{needle}'"))?;
        for _ in 0..2 {
            sql::read_all(connection, "d.t", ROWS)?;
        }
        let right: Option<u32> =
            connection.query_first(format!("SELECT COUNT(*) FROM d.t WHERE pad = x'{needle}'"))?;
        ensure!(right == Some(ROWS), "{right:?}");
        let cache = place.cache_files();
        ensure!(cache.len() == 1, "{cache:?}");
        let found = std::process::Command::new("grep")
            .args(["--quiet", "--binary-files=text", "this is in clear text"])
            .arg(&cache[0])
            .status()?;
        ensure!(
            found.code() == Some(1),
            "clear text of an encrypted table in the cache file"
        );
        connection.query_drop("ALTER TABLE d.t ENCRYPTED=NO")?;
        let right: Option<u32> =
            connection.query_first(format!("SELECT COUNT(*) FROM d.t WHERE pad = x'{needle}'"))?;
        ensure!(right == Some(ROWS), "{right:?}");
        Ok(())
    })
}

/// Files are created and dropped while other tables are under load.
fn under_load(place: &Place) -> Outcome {
    let server = place.start(place.early(32 << 20)?)?;
    let ledger = Ledger::create(&server, 3, 4000, 2000, 6)?.paced();
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 4000, WIDTH, "")?;
    let statements = [
        "ALTER TABLE ledger.t0 FORCE",
        "TRUNCATE TABLE d.t",
        "ALTER TABLE ledger.t1 ADD INDEX m (money)",
        "DROP TABLE d.t",
        "ALTER TABLE ledger.t1 DROP INDEX m",
        "OPTIMIZE TABLE ledger.t2",
        "FLUSH TABLES",
    ];
    let mut rounds = 0;
    let counts = ledger.run_while(&server, Duration::from_secs(11), || {
        let until = std::time::Instant::now() + Duration::from_secs(9);
        while std::time::Instant::now() < until {
            for statement in statements {
                connection.query_drop(statement).context(statement)?;
                if statement.starts_with("TRUNCATE") {
                    sql::insert(&mut connection, "d.t", 1, 2000, WIDTH)?;
                    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == 2000);
                }
                if statement.starts_with("DROP TABLE") {
                    sql::fill(&mut connection, "d.t", 3000, WIDTH, "")?;
                    ensure!(sql::verify_pads(&mut connection, "d.t", WIDTH)? == 3000);
                }
            }
            rounds += 1;
        }
        Ok(())
    })?;
    note(format!(
        "{rounds} rounds of {} statements; {counts}",
        statements.len()
    ));
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}
