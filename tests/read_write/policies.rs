//! The policies that decide which pages are cached, on servers at work: exchanged under a load, and over a kill.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::verification::{self, Compared};
use integration_tests::{Outcome, Place, Suite, note, sql};

/// Smaller than the data, so that pages compete for a place.
const CACHE: u64 = 16 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("policies").each("exchanged_under_load", exchanged_under_load)
}

fn exchanged_under_load(place: &Place) -> Outcome {
    let options = || anyhow::Ok(place.early(CACHE)?.option("--bpe-admission=density"));
    let server = place.start(options()?)?;
    sql::expect_state(&server, "active")?;
    let ledger = Ledger::small(&server)?.paced();
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 100)?;
    ledger.run_beside(&server, || {
        for policy in ["frequency", "density", "all", "density"] {
            std::thread::sleep(Duration::from_millis(1500));
            server.sql(&format!("SET GLOBAL bpe_admission = '{policy}'"))?;
            ensure!(server.value("SELECT @@GLOBAL.bpe_admission")?.as_deref() == Some(policy));
        }
        std::thread::sleep(Duration::from_millis(1500));
        Ok(())
    })?;
    ledger.verify(&server)?;
    let hits = sql::figure(&server, "hits")?;
    ledger.run_until_above(&server, Duration::from_secs(1), "hits", hits)?;
    ledger.run_and_kill(server, Duration::from_secs(1))?;

    let server = place.start(options()?)?;
    sql::expect_state(&server, "active")?;
    let kept = sql::figure(&server, "pages_inherited")?;
    ensure!(kept > 0, "nothing was kept");
    ledger.settle(&server)?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 100)?;
    ledger.verify(&server)?;
    server.sql("CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'")?;
    let mut compared = Compared::default();
    verification::compare_cached(&server, &mut compared)?;
    ensure!(compared.compared > 0 && compared.wrong == 0, "{compared:?}");
    note(format!("{hits} hits; {kept} pages kept; {compared:?}"));
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}
