//! A group of three MySQL servers with one primary, and the extension on in each. A server joins by a clone, which replaces its
//! data directory under the loaded plugin and restarts the server. A member is killed and rejoins; the primary dies.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::expect_the_same;
use integration_tests::cluster::group::{Group, MEMBERS, PATIENCE, is_primary};
use integration_tests::ledger::Ledger;
use integration_tests::verification::{self, Compared};
use integration_tests::{Flavour, Outcome, Place, Suite, note, sql};

/// Duration of the load on the other members while a member joins. It catches up within that, however busy the machine is.
const BESIDE: Duration = Duration::from_secs(5);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("group_replication").with(
        Flavour::MySql97,
        "members_come_and_go",
        members_come_and_go,
    )
}

fn members_come_and_go(place: &Place) -> Outcome {
    let group = Group::new(place)?;
    let first = group.begin()?;
    let ledger = Ledger::small(&first)?.paced();

    // Clones a server under writes, whose extension is switched at the same time.
    let second = group.prepare(1)?;
    let mut joined = None;
    ledger.run_while(&first, BESIDE, || {
        std::thread::scope(|scope| {
            let switched = scope.spawn(|| {
                for value in ["OFF", "ON"] {
                    std::thread::sleep(Duration::from_millis(700));
                    first.sql(&format!("SET GLOBAL bpe_enabled = {value}"))?;
                }
                anyhow::Ok(())
            });
            joined = Some(group.join(1, second)?);
            let switched = switched.join();
            switched.map_err(|_| anyhow::anyhow!("the switching panicked"))?
        })
    })?;
    let second = joined.context("a second member")?;
    let third = group.prepare(2)?;
    let third = group.join(2, third)?;
    ledger.run(&first, Duration::from_secs(2))?;
    expect_the_same(&ledger, &[&first, &second, &third])?;

    // The member is killed and catches up.
    second.kill();
    let mut back = None;
    ledger.run_while(&first, BESIDE, || {
        third.sql("SET GLOBAL bpe_bypass = 'ON'")?;
        back = Some(group.come_back(1)?);
        third.sql("SET GLOBAL bpe_bypass = 'OFF'")?;
        Ok(())
    })?;
    let second = back.context("a second member")?;
    expect_the_same(&ledger, &[&first, &second, &third])?;

    // The primary dies, and rejoins.
    ledger.run_and_kill(first, Duration::from_millis(1500))?;
    sql::wait_until("another primary", PATIENCE, || {
        Ok(is_primary(&second)? || is_primary(&third)?)
    })?;
    let primary = match is_primary(&second)? {
        true => &second,
        false => &third,
    };
    ledger.settle(primary)?;
    expect_the_same(&ledger, &[&second, &third])?;
    let first = group.come_back(0)?;
    ledger.run(primary, Duration::from_secs(2))?;
    expect_the_same(&ledger, &[&first, &second, &third])?;

    let mut compared = Compared::default();
    let mut hits = Vec::new();
    for server in [&first, &second, &third] {
        verification::compare_cached(server, &mut compared)?;
        verification::check_tables(server)?;
        hits.push(sql::figure(server, "hits")?);
    }
    ensure!(compared.wrong == 0, "{compared:?}");
    ensure!(hits.iter().all(|hits| *hits > 0), "{hits:?}");
    note(format!("hits {hits:?}; {compared:?}"));
    for server in [third, second, first] {
        server.stop()?;
    }
    for member in 0..MEMBERS {
        verification::innochecksum(&place.installation, &group.data(member))?;
    }
    Ok(())
}
