//! Proof that the other tests can fail: they detect a library that omits a coherence rule.

use std::time::Duration;

use integration_tests::ledger::Ledger;
use integration_tests::{Flavour, Outcome, Place, Suite, note, stuck};

const CACHE: u64 = 128 << 20;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("canary")
        .each("a_write_that_drops_nothing_is_noticed", writes)
        .with(
            Flavour::MariaDb1011,
            "the_canary_without_a_rule_left_out_is_right",
            nothing_left_out,
        )
}

/// The load of `integrity.rs`.
fn mixed_load(place: &Place, rules: &str) -> Outcome {
    let server = place.start(place.canary(CACHE, rules)?)?;
    let ledger = Ledger::create(&server, 2, 4000, 3000, 8)?;
    ledger
        .run(&server, Duration::from_secs(10))
        .and_then(|_| ledger.verify(&server))
}

fn writes(place: &Place) -> Outcome {
    // The audit may find the stale pages first; it would switch the extension off, and the load would test nothing.
    let error = stuck::noticed(
        mixed_load(place, "writes,audit"),
        "the load did not notice that writes drop nothing",
    )?;
    note(format!("noticed: {}", first_line(&error)));
    Ok(())
}

fn nothing_left_out(place: &Place) -> Outcome {
    mixed_load(place, "none")
}

fn first_line(error: &anyhow::Error) -> String {
    format!("{error:#}").lines().next().unwrap_or("").into()
}
