//! Servers with other page sizes, and tables with pages smaller than the server's.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::{Flavour, Outcome, Place, Suite, note, sql, trace, verification};

const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("page_sizes")
        .in_turn("innodb_page_size_4k", |place| server(place, 4096))
        .with(Flavour::MariaDb1011, "innodb_page_size_8k", |place| {
            server(place, 8192)
        })
        .with(Flavour::MySql97, "innodb_page_size_32k", |place| {
            server(place, 32768)
        })
        .in_turn("innodb_page_size_64k", |place| server(place, 65536))
        .each("compressed_tables", compressed_tables)
        .in_turn("cached_compressed", cached_compressed)
}

fn server(place: &Place, page: u32) -> Outcome {
    let option = format!("--innodb-page-size={page}");
    let place = Place::initialised(place.installation.flavour, &[&option])?;
    // The servers require a larger pool for large pages.
    let pool = if page > 16384 { 24 << 20 } else { 8 << 20 };
    let without = place.options().buffer_pool(pool).option(&option);
    let server = place.start(place.early(CACHE)?.buffer_pool(pool).option(&option))?;
    sql::expect_state(&server, "active")?;
    let rows = if page > 16384 { 6000 } else { 4000 };
    let ledger = Ledger::create(&server, 3, rows, 1800, 6)?;
    let counts = ledger.run(&server, Duration::from_secs(5))?;
    server.sql(trace::CREATE_FUNCTION)?;
    if page < 16384 {
        sql::wait_for_smaller_pages(&server)?;
    }
    ledger.run_until_above(&server, Duration::ZERO, "hits", 500)?;
    let report = server
        .value("SELECT bpe_report('files')")?
        .unwrap_or_default();
    let files: serde_json::Value = serde_json::from_str(&report)?;
    let sizes: Vec<u64> = files
        .as_array()
        .into_iter()
        .flatten()
        .filter(|file| {
            file["file"]
                .as_str()
                .is_some_and(|name| name.contains("ledger"))
        })
        .filter_map(|file| file["page_size"].as_u64())
        .collect();
    ensure!(
        sizes.len() == 3 && sizes.iter().all(|size| *size == u64::from(page)),
        "page sizes of the ledger's files: {sizes:?}"
    );
    let hits = sql::figure(&server, "hits")?;
    note(format!("{hits} hits; {counts}"));
    verification::stop_and_verify(&place, server, &ledger, without)?;
    Ok(())
}

fn compressed_tables(place: &Place) -> Outcome {
    const ROWS: u32 = 2500;
    // Otherwise a scan of another table leaves pages in the pool that were used for longer than a second.
    let options = place.early(CACHE)?.option("--innodb-old-blocks-time=0");
    let server = place.start(options)?;
    let mut connection = server.connect()?;
    // Enough other rows to push the pages under test out of the pool.
    sql::fill(&mut connection, "d.wide", 7000, 1400, "")?;
    for size in [1, 2, 4, 8] {
        let table = format!("d.k{size}");
        // Narrow rows: a page of 1 KiB must hold two of them.
        let width = if size == 1 { 150 } else { 300 };
        sql::fill(
            &mut connection,
            &table,
            ROWS,
            width,
            &format!("ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE={size}"),
        )?;
        let before = sql::figure(&server, "hits")?;
        // The last round changes nothing, and reads pages that the one before it has cached.
        for version in [1, 2, 2u64] {
            sql::run(&server, &[&format!("UPDATE {table} SET v = {version}")])?;
            sql::read_all(&mut connection, "d.wide", 7000)?;
            let (ids, versions) = sql::read_all(&mut connection, &table, ROWS)?;
            ensure!(ids == u64::from(ROWS) * u64::from(ROWS + 1) / 2);
            ensure!(versions == version * u64::from(ROWS), "{table}: {versions}");
        }
        sql::run(&server, &[&format!("UPDATE {table} SET v = 0")])?;
        ensure!(sql::verify_pads(&mut connection, &table, width)? == ROWS);
        note(format!(
            "KEY_BLOCK_SIZE={size}: {} hits",
            sql::figure(&server, "hits")? - before
        ));
    }
    server.sql(trace::CREATE_FUNCTION)?;
    let saved = || sql::figure(&server, "bytes_saved");
    let before = saved()?;
    let report = server
        .value("SELECT bpe_report('files')")?
        .unwrap_or_default();
    let after = saved()?;
    let files: serde_json::Value = serde_json::from_str(&report)?;
    // Each hit saves one page of the file's page size.
    let number = |file: &serde_json::Value, name: &str| file[name].as_u64().unwrap_or_default();
    let sum: u64 = files
        .as_array()
        .into_iter()
        .flatten()
        .map(|file| number(file, "hits") * number(file, "page_size"))
        .sum();
    ensure!(
        (before..=after).contains(&sum),
        "{sum} bytes by files, {before} to {after} in all"
    );
    let whole = sql::figure(&server, "hits")? * 16384;
    note(format!(
        "{after} bytes saved, {whole} if all pages were whole"
    ));
    ensure!(after < whole);
    for size in [1u64, 2, 4, 8] {
        let name = format!("d/k{size}.ibd");
        let file = files.as_array().into_iter().flatten().find(|file| {
            file["file"]
                .as_str()
                .is_some_and(|text| text.ends_with(&name))
        });
        let found = file.and_then(|file| file["page_size"].as_u64());
        ensure!(found == Some(size * 1024), "{name}: page size {found:?}");
        let hits = file.and_then(|file| file["hits"].as_u64());
        ensure!(hits > Some(0), "{name}: {hits:?} hits");
    }
    ensure!(sql::figure(&server, "failed_proofs")? == 0, "failed proofs");
    verification::check_tables(&server)?;
    server.stop()?;
    verification::innochecksum(&place.installation, &place.data())?;
    Ok(())
}

/// With `bpe_compression`, text takes less space, and incompressible pages are stored as they are.
fn cached_compressed(place: &Place) -> Outcome {
    const ROWS: u32 = 9000;
    let server = place.start(place.early(CACHE)?.option("--bpe-compression=lz4"))?;
    server.sql("CREATE DATABASE d")?;
    let figures = || -> anyhow::Result<(f64, u64, u64)> {
        let summary = sql::report(&server, "summary")?;
        let cache = &summary["cache"];
        let number = |name: &str| cache[name].as_u64().unwrap_or_default();
        Ok((
            summary["compression_ratio"].as_f64().unwrap_or_default(),
            number("compress_attempts"),
            number("compress_attempts")
                + number("compress_left_alone")
                + number("compress_no_time"),
        ))
    };
    for (table, pad, shrinks) in [
        (
            "d.words",
            "REPEAT(CONCAT('the order of customer ', seq, ' was sent on day '), 34)",
            true,
        ),
        (
            "d.noise",
            "CONCAT(RANDOM_BYTES(700), RANDOM_BYTES(700))",
            false,
        ),
    ] {
        server.sql("SET GLOBAL bpe_enabled = OFF")?;
        server.sql(&format!(
            "CREATE TABLE {table} (seq INT PRIMARY KEY, pad VARBINARY(1600) NOT NULL)"
        ))?;
        server
            .sql("SET SESSION cte_max_recursion_depth = 100000")
            .ok();
        for first in (0..ROWS).step_by(1000) {
            let last = first + 999;
            server.sql(&format!(
                "INSERT INTO {table} WITH RECURSIVE n (seq) AS (SELECT {first} UNION ALL SELECT seq + 1 FROM n WHERE seq < {last}) \
                 SELECT seq, {pad} FROM n"
            ))?;
        }
        server.sql("SET GLOBAL bpe_enabled = ON")?;
        let (_, attempts, pages) = figures()?;
        for _ in 0..4 {
            server.sql(&format!("SELECT BIT_XOR(CRC32(pad)) FROM {table}"))?;
        }
        sql::wait_until("pages are cached", Duration::from_secs(20), || {
            Ok(sql::figure(&server, "pages_cached")? > 400)
        })?;
        let sums: Vec<_> = (0..2)
            .map(|_| server.value(&format!("SELECT BIT_XOR(CRC32(pad)) FROM {table}")))
            .collect::<Result<_, _>>()?;
        ensure!(sums[0] == sums[1], "{sums:?}");
        let (ratio, tried, all) = figures()?;
        let (tried, all) = (tried - attempts, all - pages);
        let hits = sql::figure(&server, "hits")?;
        note(format!(
            "{table}: ratio {ratio:.2}, {tried} of {all} pages tried, {hits} hits"
        ));
        ensure!(hits > 50, "{hits} hits");
        if shrinks {
            ensure!(ratio > 1.5, "{table}: {ratio}");
        } else {
            ensure!((1.0..1.3).contains(&ratio), "{table}: {ratio}");
            ensure!(tried * 2 < all, "{table}: {tried} of {all} pages tried");
        }
    }
    ensure!(sql::figure(&server, "failed_proofs")? == 0, "failed proofs");
    server.stop()?;
    Ok(())
}
