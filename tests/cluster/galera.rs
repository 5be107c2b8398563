//! A Galera cluster of three nodes, with the extension on in each. A node joins by a copy of another node's data while the
//! donor is switched. A node is killed and catches up. The node that takes the writes dies.

use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::expect_the_same;
use integration_tests::cluster::galera::{Cluster, NODES};
use integration_tests::ledger::Ledger;
use integration_tests::verification::{self, Compared};
use integration_tests::{Flavour, Outcome, Place, Suite, note, sql, stuck};

/// Duration of the load on the other nodes while a node joins. The node catches up within it, however busy the machine is.
const BESIDE: Duration = Duration::from_secs(10);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("galera")
        .with(Flavour::MariaDb1011, "nodes_come_and_go", nodes_come_and_go)
        .with(
            Flavour::MariaDb1011,
            "a_node_that_drops_nothing_is_noticed",
            a_node_that_drops_nothing_is_noticed,
        )
}

fn run_a_cluster(place: &Place, rules: Option<&str>) -> Outcome {
    let cluster = Cluster::new(place, rules)?;
    let first = cluster.begin()?;
    let ledger = Ledger::small(&first)?.paced();

    // A copy of a node under writes, whose extension is switched at the same time.
    let mut second = None;
    ledger.run_while(&first, BESIDE, || {
        std::thread::scope(|scope| {
            let switched = scope.spawn(|| {
                for value in ["OFF", "ON"] {
                    std::thread::sleep(Duration::from_millis(700));
                    first.sql(&format!("SET GLOBAL bpe_enabled = {value}"))?;
                }
                anyhow::Ok(())
            });
            second = Some(cluster.start(1)?);
            let switched = switched.join();
            switched.map_err(|_| anyhow::anyhow!("the switching panicked"))?
        })
    })?;
    let second = second.context("a second node")?;
    let third = cluster.start(2)?;
    ledger.run(&first, Duration::from_secs(2))?;
    expect_the_same(&ledger, &[&first, &second, &third])?;

    // The node is killed and catches up, while another node is in bypass.
    second.kill();
    let mut second = None;
    ledger.run_while(&first, BESIDE, || {
        third.sql("SET GLOBAL bpe_bypass = 'ON'")?;
        second = Some(cluster.come_back(1)?);
        third.sql("SET GLOBAL bpe_bypass = 'OFF'")?;
        Ok(())
    })?;
    let second = second.context("a second node")?;
    let inherited = sql::figure(&second, "pages_inherited")?;
    expect_the_same(&ledger, &[&first, &second, &third])?;

    // The data directory is replaced while its cached pages remain.
    second.stop()?;
    std::fs::remove_dir_all(cluster.data(1))?;
    let second = cluster.start(1)?;
    ledger.run(&first, Duration::from_secs(2))?;
    expect_the_same(&ledger, &[&first, &second, &third])?;

    // The node that takes the writes dies, and rejoins.
    ledger.run_and_kill(first, Duration::from_millis(1500))?;
    sql::wait_until("a cluster of two", Duration::from_secs(60), || {
        let size = second.status("wsrep_cluster_size")?;
        let ready = second.status("wsrep_ready")?;
        Ok(size.values().any(|size| size == "2") && ready.values().any(|ready| ready == "ON"))
    })?;
    ledger.settle(&second)?;
    expect_the_same(&ledger, &[&second, &third])?;
    let first = cluster.come_back(0)?;
    ledger.run(&second, Duration::from_secs(2))?;
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
    note(format!(
        "hits {hits:?}; {compared:?}; {inherited} pages were taken over by the node that was killed"
    ));
    for server in [third, second, first] {
        server.stop()?;
    }
    for node in 0..NODES {
        verification::innochecksum(&place.installation, &cluster.data(node))?;
    }
    Ok(())
}

fn nodes_come_and_go(place: &Place) -> Outcome {
    run_a_cluster(place, None)
}

/// A node whose library does not drop written pages has rows that the other nodes do not have.
fn a_node_that_drops_nothing_is_noticed(place: &Place) -> Outcome {
    let error = stuck::noticed(
        run_a_cluster(place, Some("writes")),
        "a node did not drop what was written, and nothing was wrong",
    )?;
    let text = format!("{error:#}");
    ensure!(!text.contains("skipped"), "{text}");
    note(format!(
        "noticed: {}",
        text.chars().take(160).collect::<String>()
    ));
    Ok(())
}
