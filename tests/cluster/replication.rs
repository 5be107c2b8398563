//! A primary and a replica with the extension on in both. The replica's extension is switched and bypassed, and the replica is
//! killed; it is promoted when the primary dies. The old primary returns with a copy of the new primary's data directory, while
//! its former cached pages are still there.
//!
//! Replication is semi-synchronous when the primary dies: each transaction that a client saw committed is on the replica.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::expect_equal_sums;
use integration_tests::cluster::replicas::{
    Node, catch_up, first_primary, promote, wait_for_the_replica,
};
use integration_tests::ledger::Ledger;
use integration_tests::verification::{self, Compared};
use integration_tests::{Outcome, Place, Server, Suite, note, sql, stuck};

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("replication")
        .in_turn("promoted_again_and_again", promoted_again_and_again)
        .in_turn(
            "a_replica_that_drops_nothing_is_noticed",
            a_replica_that_drops_nothing_is_noticed,
        )
}

/// Number of failovers: `BPE_FAILOVERS`, or two.
fn failovers() -> usize {
    let wanted = std::env::var("BPE_FAILOVERS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// Event on the replica while its primary is under load.
#[derive(Clone, Copy, Debug)]
enum Event {
    Switched,
    Bypassed,
    Killed,
    Stopped,
}

const EVENTS: [Event; 4] = [
    Event::Switched,
    Event::Killed,
    Event::Bypassed,
    Event::Stopped,
];

/// Runs the event; returns the replica after it.
fn meet(event: Event, node: &Node, replica: Server, primary: &Server) -> anyhow::Result<Server> {
    let pause = Duration::from_millis(700);
    let switch = |replica: &Server, [before, after]: [&str; 2]| {
        replica.sql(before)?;
        std::thread::sleep(pause);
        replica.sql(after)
    };
    std::thread::sleep(pause);
    match event {
        Event::Switched => {
            let statements = [
                "SET GLOBAL bpe_enabled = OFF",
                "SET GLOBAL bpe_enabled = ON",
            ];
            switch(&replica, statements)?;
            return Ok(replica);
        }
        Event::Bypassed => {
            let statements = [
                "SET GLOBAL bpe_bypass = 'ON'",
                "SET GLOBAL bpe_bypass = 'OFF'",
            ];
            switch(&replica, statements)?;
            return Ok(replica);
        }
        Event::Killed => replica.kill(),
        Event::Stopped => drop(replica.stop()?),
    }
    let replica = node.start()?;
    node.follow(&replica, primary)?;
    Ok(replica)
}

/// Kills the primary repeatedly; between the kills, an event happens on the replica.
fn fail_over(place: &Place, rules: Option<&str>, failovers: usize) -> Outcome {
    let nodes = [1, 2].map(|number| Node {
        place,
        number,
        rules: rules.filter(|_| number == 2),
    });
    let mut primary = first_primary(&nodes[0])?;
    let ledger = Ledger::small(&primary)?.paced();
    let mut hits = 0;
    let mut compared = Compared::default();
    let mut replica = nodes[1].join(&primary, &nodes[0])?;
    for failover in 0..failovers {
        let [old, new] = match failover % 2 {
            0 => [&nodes[0], &nodes[1]],
            _ => [&nodes[1], &nodes[0]],
        };
        for event in EVENTS {
            let context = || format!("failover {failover}, the replica was {event:?}");
            let mut after = None;
            ledger
                .run_beside(&primary, || {
                    after = Some(meet(event, new, replica, &primary)?);
                    std::thread::sleep(Duration::from_millis(500));
                    Ok(())
                })
                .with_context(context)?;
            replica = after.with_context(context)?;
            catch_up(&replica, &primary).with_context(context)?;
            ledger.verify(&replica).with_context(context)?;
            expect_equal_sums(&[&primary, &replica]).with_context(context)?;
        }
        hits += sql::figure(&replica, "hits")?;
        verification::compare_cached(&replica, &mut compared)?;
        wait_for_the_replica(&primary)?;
        ledger.run_and_kill(primary, Duration::from_millis(1500))?;
        promote(&replica)?;
        ledger.settle(&replica)?;
        ledger.verify(&replica).context("after the promotion")?;
        ledger.run(&replica, Duration::from_secs(1))?;
        primary = replica;
        replica = old.join(&primary, new)?;
        catch_up(&replica, &primary)?;
        ledger
            .verify(&replica)
            .context("on the node that came back")?;
    }
    ensure!(hits > 0, "no page was served by a replica's cache");
    ensure!(compared.wrong == 0, "{compared:?}");
    note(format!(
        "{failovers} failovers, {hits} hits of replicas; {compared:?}"
    ));
    for server in [&replica, &primary] {
        verification::check_tables(server)?;
    }
    replica.stop()?;
    primary.stop()?;
    for node in &nodes {
        verification::innochecksum(&place.installation, &node.data())?;
    }
    Ok(())
}

fn promoted_again_and_again(place: &Place) -> Outcome {
    fail_over(place, None, failovers())
}

/// A replica whose library does not drop written pages has rows that its primary does not have.
fn a_replica_that_drops_nothing_is_noticed(place: &Place) -> Outcome {
    let error = stuck::noticed(
        fail_over(place, Some("writes"), 1),
        "the replica did not drop what was written, and nothing was wrong",
    )?;
    let text = format!("{error:#}");
    note(format!(
        "noticed: {}",
        text.chars().take(160).collect::<String>()
    ));
    Ok(())
}
