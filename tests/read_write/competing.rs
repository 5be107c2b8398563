//! Pages that compete for slots, on running servers and across a kill.

use std::time::Duration;

use anyhow::ensure;
use integration_tests::ledger::Ledger;
use integration_tests::verification::{self, Compared};
use integration_tests::{Outcome, Place, Suite, note, sql, trace};

/// Smaller than the data, so that pages compete for slots.
const CACHE: u64 = 16 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("competing").in_turn("killed_with_a_full_cache", killed_with_a_full_cache)
}

fn killed_with_a_full_cache(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    let ledger = Ledger::small(&server)?.paced();
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 100)?;
    ledger.run_until_above(&server, Duration::from_secs(4), "rejected", 100)?;
    ledger.verify(&server)?;
    let hits = sql::figure(&server, "hits")?;
    ledger.run_and_kill(server, Duration::from_secs(1))?;

    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    let kept = sql::figure(&server, "pages_inherited")?;
    ensure!(kept > 0, "nothing was kept");
    ledger.settle(&server)?;
    ledger.run_until_above(&server, Duration::from_secs(2), "hits", 100)?;
    ledger.verify(&server)?;
    server.sql(trace::CREATE_FUNCTION)?;
    let mut compared = Compared::default();
    verification::compare_cached(&server, &mut compared)?;
    ensure!(compared.compared > 0 && compared.wrong == 0, "{compared:?}");
    note(format!("{hits} hits; {kept} pages kept; {compared:?}"));
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}
