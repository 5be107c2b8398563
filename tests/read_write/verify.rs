//! `bpe_report('verify-next ...')` on a running server: compares cached pages with the data files.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::place::ROOMY;
use integration_tests::verification::{Compared, compare_cached};
use integration_tests::{Flavour, Outcome, Place, Server, Suite, note, sql, trace};

const CACHE: u64 = 64 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("verify")
        .each("nothing_differs_under_load", nothing_differs_under_load)
        .in_turn("nothing_differs_compressed", nothing_differs_compressed)
        // MySQL stops at the first stale page that it reads, before this test could find it.
        .with(
            Flavour::MariaDb1011,
            "a_stale_page_is_found",
            a_stale_page_is_found,
        )
}

fn compare_under_load(server: &Server) -> Outcome {
    server.sql(trace::CREATE_FUNCTION)?;
    let ledger = Ledger::create(server, 2, 5000, 2500, 6)?.paced();
    ledger.run(server, Duration::from_secs(3))?;
    let mut sums = Compared::default();
    let before = sql::figure(server, "hits")?;
    let counts = ledger.run_while(server, Duration::from_secs(8), || {
        let until = std::time::Instant::now() + Duration::from_secs(6);
        while std::time::Instant::now() < until {
            compare_cached(server, &mut sums)?;
        }
        Ok(())
    })?;
    note(format!("{sums:?}; {counts}"));
    ensure!(sums.wrong == 0, "{sums:?}");
    ensure!(sums.compared > 1000, "{sums:?}");
    // Only a page that is being moved fails its proof.
    ensure!(sums.unproven < sums.compared / 10, "{sums:?}");
    ensure!(sql::figure(server, "hits")? > before);
    // The comparison does not affect the policy or the error counters.
    ensure!(sql::figure(server, "failed_proofs")? == 0);
    ledger.verify(server)
}

fn nothing_differs_under_load(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    compare_under_load(&server)?;
    server.stop()?;
    Ok(())
}

fn nothing_differs_compressed(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?.option("--bpe-compression=lz4"))?;
    compare_under_load(&server)?;
    server.stop()?;
    Ok(())
}

/// A canary whose writes drop nothing leaves stale pages in the cache: they are found, logged and dropped.
fn a_stale_page_is_found(place: &Place) -> Outcome {
    let right = place.start(place.roomy())?;
    sql::fill(&mut right.connect()?, "d.t", 8000, 2000, "")?;
    right.stop()?;
    // The pool keeps all pages read, so that the server itself never reads a stale one. On a slow machine the audit would first
    // detect that this library misses writes, and stop the extension.
    let wrong = place.canary(CACHE, "writes,audit")?;
    let server = place.start(wrong.buffer_pool(ROOMY))?;
    server.sql(trace::CREATE_FUNCTION)?;
    sql::read_all(&mut server.connect()?, "d.t", 8000)?;
    server.sql("UPDATE d.t SET pad = REVERSE(pad) WHERE id BETWEEN 1000 AND 1400")?;
    server.sql("FLUSH TABLES d.t FOR EXPORT")?;
    let mut sums = Compared::default();
    compare_cached(&server, &mut sums)?;
    ensure!(sums.wrong > 0, "{sums:?}");
    let log = place.last_words();
    ensure!(
        log.contains("in the cache differed from the data file"),
        "{log}"
    );
    let mut again = Compared::default();
    compare_cached(&server, &mut again)?;
    note(format!("found: {sums:?}, then {again:?}"));
    ensure!(again.wrong == 0, "{again:?}");
    server.kill();
    Ok(())
}
