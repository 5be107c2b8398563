//! Two servers, of which one replicates from the other: the extension is on in both, and is switched, bypassed and killed on the
//! replica, which is promoted when the primary dies. The old primary comes back with its data directory replaced by a copy of
//! the new one's, while what it had cached is still there.
//!
//! Replication is semi-synchronous when the primary dies, so that whatever a client was told to be committed is on the replica, too.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::{expect_equal_sums, free_ports};
use integration_tests::ledger::Ledger;
use integration_tests::mysql::{self, prelude::Queryable};
use integration_tests::place::extended;
use integration_tests::verification::{self, Compared};
use integration_tests::{Options, Outcome, Place, Server, Suite, copies, library, note, sql};

/// Larger than the data: what is cached stays cached.
const CACHE: u64 = 96 << 20;
/// How long a replica may take for what its primary has done.
const PATIENCE: u32 = 600;

fn main() -> ExitCode {
    Suite::new("replication")
        .each("promoted_again_and_again", promoted_again_and_again)
        .each(
            "a_replica_that_drops_nothing_is_noticed",
            a_replica_that_drops_nothing_is_noticed,
        )
        .run()
}

/// How often a primary dies: `BPE_FAILOVERS`, or twice.
fn failovers() -> usize {
    let wanted = std::env::var("BPE_FAILOVERS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// One of the two, running or not.
struct Node<'a> {
    place: &'a Place,
    number: usize,
    /// What its library leaves out, if it is one that was built to be wrong.
    rules: Option<&'a str>,
}

impl Node<'_> {
    fn folder(&self) -> String {
        format!("node-{}", self.number)
    }

    fn data(&self) -> PathBuf {
        self.place.root().join(self.folder())
    }

    /// With the extension switched on from the start, on a cache folder of its own.
    fn options(&self) -> anyhow::Result<Options> {
        let place = self.place;
        let cache = place.root().join(format!("cache-{}", self.number));
        std::fs::create_dir_all(&cache)?;
        let [[free]] = free_ports()?;
        let of_this = place.options_of(&self.folder(), &format!("run-{}", self.number));
        let options = match self.rules {
            Some(rules) => extended(of_this, &library::canary()?, &cache, CACHE)
                .environment("BPE_CANARY", rules),
            None => extended(of_this, place.library()?, &cache, CACHE),
        };
        let both = options
            .port(free)
            .option("--loose-bpe-admission=all")
            .option(format!("--server-id={}", self.number))
            .option("--log-bin=bin")
            .option("--binlog-format=ROW")
            .option("--relay-log-recovery=ON")
            .option("--skip-name-resolve")
            .option("--loose-skip-replica-start")
            .option("--loose-skip-slave-start");
        Ok(match place.is_mysql() {
            true => both
                .option("--gtid-mode=ON")
                .option("--enforce-gtid-consistency=ON")
                .option("--loose-rpl-semi-sync-replica-enabled=ON")
                .option("--loose-rpl-semi-sync-source-timeout=600000"),
            false => both
                .option("--log-slave-updates=ON")
                .option("--rpl-semi-sync-slave-enabled=ON")
                .option("--rpl-semi-sync-master-wait-point=AFTER_SYNC")
                .option("--rpl-semi-sync-master-timeout=600000"),
        })
    }

    fn start(&self) -> anyhow::Result<Server> {
        let server = self.place.start(self.options()?)?;
        sql::expect_state(&server, "active")?;
        Ok(server)
    }

    /// Follows `primary` from where its data are, or from where it had come.
    fn follow(&self, server: &Server, primary: &Server) -> Outcome {
        let port = primary.port().context("a port")?;
        if self.place.is_mysql() {
            return sql::run(
                server,
                &[
                    &format!(
                        "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'replica', \
                         SOURCE_PASSWORD = 'x', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
                    ),
                    "START REPLICA",
                ],
            );
        }
        sql::run(
            server,
            &[
                &format!(
                    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'replica', \
                     MASTER_PASSWORD = 'x', MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"
                ),
                "START SLAVE",
            ],
        )
    }

    /// Its data directory becomes a copy of the primary's, and it follows that. What it had cached of its own data stays where
    /// it is.
    fn join(&self, primary: &Server, of: &Node) -> anyhow::Result<Server> {
        let copy = self.place.root().join("joining");
        copies::of_running(self.place, primary, &of.data(), &copy)?;
        if self.data().exists() {
            std::fs::remove_dir_all(self.data())?;
        }
        std::fs::rename(copy, self.data())?;
        let server = self.start()?;
        if !self.place.is_mysql() {
            let position = position_of_backup(&self.data())?;
            server.sql(&format!("SET GLOBAL gtid_slave_pos = '{position}'"))?;
        }
        self.follow(&server, primary)?;
        Ok(server)
    }
}

/// What mariadb-backup has written down beside the data.
fn position_of_backup(data: &std::path::Path) -> anyhow::Result<String> {
    for entry in std::fs::read_dir(data)? {
        let path = entry?.path();
        if path.to_string_lossy().ends_with("_binlog_info") {
            let text = std::fs::read_to_string(path)?;
            let position = text.trim().split('\t').nth(2);
            return Ok(position.context("a position")?.to_owned());
        }
    }
    anyhow::bail!("the backup has no position")
}

/// The first node's server, with the account and the plugins of replication.
fn first_primary(node: &Node) -> anyhow::Result<Server> {
    std::fs::rename(node.place.data(), node.data())?;
    let server = node.start()?;
    let account = [
        "CREATE USER replica@'%' IDENTIFIED BY 'x'",
        "GRANT REPLICATION SLAVE ON *.* TO replica@'%'",
        // Copies have it, too.
        "CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'",
    ];
    sql::run(&server, &account)?;
    if !node.place.is_mysql() {
        return Ok(server);
    }
    let plugins = [
        "INSTALL PLUGIN rpl_semi_sync_source SONAME 'semisync_source.so'",
        "INSTALL PLUGIN rpl_semi_sync_replica SONAME 'semisync_replica.so'",
    ];
    sql::run(&server, &plugins)?;
    // Their options hold from the next start on.
    server.stop()?;
    node.start()
}

/// Waits until the replica has done what the primary has done so far.
fn catch_up(replica: &Server, primary: &Server) -> Outcome {
    let (position, wait) = match primary.flavour().is_mysql() {
        true => (
            "SELECT @@GLOBAL.gtid_executed",
            "WAIT_FOR_EXECUTED_GTID_SET",
        ),
        false => ("SELECT @@GLOBAL.gtid_binlog_pos", "MASTER_GTID_WAIT"),
    };
    let position = primary.value(position)?.context("a position")?;
    wait_for(replica, wait, &position)
}

fn wait_for(replica: &Server, wait: &str, position: &str) -> Outcome {
    /// Seconds after which is asked whether it is still at it.
    const SLICE: u32 = 5;
    let position = position.replace('\n', "");
    for _ in 0..PATIENCE / SLICE {
        let outcome = replica.value(&format!("SELECT {wait}('{position}', {SLICE})"))?;
        if outcome.as_deref() == Some("0") {
            return Ok(());
        }
        let error = stopped_by(replica)?;
        ensure!(error.is_none(), "the replica has stopped: {error:?}");
    }
    anyhow::bail!("the replica has not come to {position} in {PATIENCE} s")
}

/// Why the replica does not apply any more.
fn stopped_by(replica: &Server) -> anyhow::Result<Option<String>> {
    let (statement, names) = match replica.flavour().is_mysql() {
        true => (
            "SHOW REPLICA STATUS",
            ["Replica_SQL_Running", "Last_SQL_Error"],
        ),
        false => ("SHOW SLAVE STATUS", ["Slave_SQL_Running", "Last_SQL_Error"]),
    };
    let row: Option<mysql::Row> = replica.connect()?.query_first(statement)?;
    let row = row.context("it is no replica")?;
    let [runs, error] = names.map(|name| row.get::<Option<String>, _>(name).flatten());
    Ok((runs.as_deref() == Some("No")).then(|| error.unwrap_or_default()))
}

/// From now on each commit waits for the replica, however long that takes.
fn wait_for_the_replica(primary: &Server) -> Outcome {
    let name = match primary.flavour().is_mysql() {
        true => "Rpl_semi_sync_source_",
        false => "Rpl_semi_sync_master_",
    };
    primary.sql(&format!("SET GLOBAL {name}enabled = ON"))?;
    sql::wait_until("semi-synchronous", Duration::from_secs(60), || {
        let all = primary.status(&format!("{name}%"))?;
        let value = |what: &str| all.get(&format!("{name}{what}")).map(String::as_str);
        Ok(value("status") == Some("ON") && value("clients") == Some("1"))
    })
}

/// The replica applies what has come to it, and is nobody's replica any more.
fn promote(replica: &Server) -> Outcome {
    if replica.flavour().is_mysql() {
        replica.sql("STOP REPLICA IO_THREAD")?;
        let received = replica
            .value("SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = ''")?
            .unwrap_or_default();
        wait_for(replica, "WAIT_FOR_EXECUTED_GTID_SET", &received)?;
        return sql::run(replica, &["STOP REPLICA", "RESET REPLICA ALL"]);
    }
    replica.sql("STOP SLAVE IO_THREAD")?;
    let mut connection = replica.connect()?;
    let row: mysql::Row = connection
        .query_first("SHOW SLAVE STATUS")?
        .context("it is no replica")?;
    let received: String = row.get("Gtid_IO_Pos").context("a position")?;
    wait_for(replica, "MASTER_GTID_WAIT", &received)?;
    sql::run(replica, &["STOP SLAVE", "RESET SLAVE ALL"])
}

/// What happens to the replica while its primary is at work.
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

/// The replica, after the event.
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

/// Kills the primary again and again; in between something happens to the replica.
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

/// A replica whose library does not drop what is written has rows that its primary does not have.
fn a_replica_that_drops_nothing_is_noticed(place: &Place) -> Outcome {
    let error = fail_over(place, Some("writes"), 1)
        .err()
        .context("the replica did not drop what was written, and nothing was wrong")?;
    let text = format!("{error:#}");
    note(format!(
        "noticed: {}",
        text.chars().take(160).collect::<String>()
    ));
    Ok(())
}
