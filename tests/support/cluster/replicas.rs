//! A primary and its replicas.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::mysql::{self, prelude::Queryable};
use private_server::{Options, Server};

use super::free_ports;
use super::servers::{Cluster, Servers};
use crate::harness::Outcome;
use crate::place::{Place, copy_folder, extended, leaving_out};
use crate::{copies, sql, trace};

/// Larger than the data: cached pages stay cached.
pub const CACHE: u64 = 96 << 20;
/// Seconds that a replica may need to catch up with its primary.
const PATIENCE: u32 = 600;

/// The replica of three whose page numbers differ from the others'. It acknowledges nothing.
const LOGICAL: usize = 2;

/// One of the servers, running or not.
#[derive(Clone, Copy)]
pub struct Node<'a> {
    pub place: &'a Place,
    pub number: usize,
    /// The rules that its library omits, if it is a canary.
    pub rules: Option<&'a str>,
}

impl Node<'_> {
    fn folder(&self) -> String {
        format!("node-{}", self.number)
    }

    pub fn data(&self) -> PathBuf {
        self.place.root().join(self.folder())
    }

    /// The extension is enabled from the start, with a separate cache directory.
    fn options(&self) -> anyhow::Result<Options> {
        let place = self.place;
        let cache = place.root().join(format!("cache-{}", self.number));
        std::fs::create_dir_all(&cache)?;
        let [[free]] = free_ports()?;
        let of_this = place.options_of(&self.folder(), &format!("run-{}", self.number));
        let options = match self.rules {
            Some(rules) => leaving_out(of_this, &cache, CACHE, rules)?,
            None => extended(of_this, place.library()?, &cache, CACHE),
        };
        let both = options
            .port(free)
            .option(format!("--server-id={}", self.number))
            .option("--log-bin=bin")
            .option("--binlog-format=ROW")
            .option("--relay-log-recovery=ON")
            .option("--skip-name-resolve")
            .option("--loose-skip-replica-start")
            .option("--loose-skip-slave-start");
        let confirms = if self.number == LOGICAL + 1 {
            "OFF"
        } else {
            "ON"
        };
        Ok(match place.is_mysql() {
            true => both
                .option("--gtid-mode=ON")
                .option("--enforce-gtid-consistency=ON")
                .option(format!("--loose-rpl-semi-sync-replica-enabled={confirms}"))
                .option("--loose-rpl-semi-sync-source-timeout=600000"),
            false => both
                .option("--log-slave-updates=ON")
                .option(format!("--rpl-semi-sync-slave-enabled={confirms}"))
                .option("--rpl-semi-sync-master-wait-point=AFTER_SYNC")
                .option("--rpl-semi-sync-master-timeout=600000"),
        })
    }

    pub fn start(&self) -> anyhow::Result<Server> {
        let server = self.place.start(self.options()?)?;
        sql::expect_state(&server, "active")?;
        Ok(server)
    }

    /// Replicates from `primary`, starting at the position of its data or at its last position.
    pub fn follow(&self, server: &Server, primary: &Server) -> Outcome {
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

    /// Replaces its data directory by a copy of the primary's, and replicates from the primary. The pages cached of its former
    /// data stay in place.
    pub fn join(&self, primary: &Server, of: &Node) -> anyhow::Result<Server> {
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

    /// Restarts a server that has ended, and replicates from `primary`, starting at its last position.
    fn come_back(&self, primary: &Server) -> anyhow::Result<Server> {
        let server = self.start()?;
        if !self.place.is_mysql() && server.value("SELECT @@GLOBAL.gtid_binlog_pos")?.is_some() {
            // A former primary has no replication position.
            server.sql("SET GLOBAL gtid_slave_pos = @@GLOBAL.gtid_current_pos")?;
        }
        self.follow(&server, primary)?;
        Ok(server)
    }
}

/// The position that mariadb-backup saved beside the data.
fn position_of_backup(data: &Path) -> anyhow::Result<String> {
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

/// Starts the first node's server, with the account and the plugins of replication.
pub fn first_primary(node: &Node) -> anyhow::Result<Server> {
    std::fs::rename(node.place.data(), node.data())?;
    let server = node.start()?;
    let account = [
        "CREATE USER replica@'%' IDENTIFIED BY 'x'",
        "GRANT REPLICATION SLAVE ON *.* TO replica@'%'",
        // Copies have it as well.
        trace::CREATE_FUNCTION,
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
    // The plugins' options take effect at the next start.
    server.stop()?;
    node.start()
}

/// Waits until the replica has applied everything that the primary has committed so far.
pub fn catch_up(replica: &Server, primary: &Server) -> Outcome {
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
    /// Seconds between two checks for a replication error.
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

/// The error that stopped the replica's applier, if any.
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

/// Makes each later commit wait for the replica without a timeout.
pub fn wait_for_the_replica(primary: &Server) -> Outcome {
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

/// Applies all received transactions, and ends the server's role as a replica.
pub fn promote(replica: &Server) -> Outcome {
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

/// A primary, a replica on a copy of its files, and a replica that created all rows by replication.
pub struct Replicas<'a> {
    pub nodes: [Node<'a>; 3],
}

impl<'a> Replicas<'a> {
    /// Starts the servers in the directory of a place, which is consumed.
    ///
    /// # Errors
    /// When a server does not start.
    pub fn begin(place: &'a Place) -> anyhow::Result<(Replicas<'a>, Servers)> {
        let nodes = [1, 2, 3].map(|number| Node {
            place,
            number,
            rules: None,
        });
        copy_folder(&place.data(), &nodes[LOGICAL].data())?;
        let _ = std::fs::remove_file(nodes[LOGICAL].data().join("auto.cnf"));
        let primary = first_primary(&nodes[0])?;
        // Replicates from the primary's first statement on.
        let logical = nodes[LOGICAL].start()?;
        nodes[LOGICAL].follow(&logical, &primary)?;
        let replica = nodes[1].join(&primary, &nodes[0])?;
        let servers = Servers::new([primary, replica, logical]);
        Ok((Replicas { nodes }, servers))
    }

    fn statement(&self, of_mysql: &'static str, of_mariadb: &'static str) -> &'static str {
        match self.nodes[0].place.is_mysql() {
            true => of_mysql,
            false => of_mariadb,
        }
    }

    /// The replica that may become the primary.
    fn standby(servers: &Servers) -> usize {
        1 - servers.primary_number()
    }
}

impl Cluster for Replicas<'_> {
    fn come_back(&self, servers: &Servers, number: usize) -> anyhow::Result<Server> {
        self.nodes[number].come_back(servers.primary())
    }

    fn replace(&self, servers: &Servers, number: usize) -> anyhow::Result<Server> {
        self.nodes[number].join(servers.primary(), &self.nodes[servers.primary_number()])
    }

    fn kill_joiner(&self, servers: &Servers, number: usize, after: Duration) -> Outcome {
        let node = &self.nodes[number];
        let copy = node.place.root().join("joining");
        let of = &self.nodes[servers.primary_number()];
        copies::of_running(node.place, servers.primary(), &of.data(), &copy)?;
        std::fs::remove_dir_all(node.data())?;
        std::fs::rename(copy, node.data())?;
        // Kills the server if it has not started in time.
        drop(node.place.start(node.options()?.start_timeout(after)));
        Ok(())
    }

    fn kill_donor(
        &self,
        _: &Server,
        _: &mut Servers,
        _: usize,
        _: usize,
        _: Duration,
    ) -> anyhow::Result<Option<Server>> {
        Ok(None)
    }

    fn has_donors(&self) -> bool {
        false
    }

    fn is_physical(&self, number: usize) -> bool {
        number != LOGICAL
    }

    fn takes_back_the_killed(&self) -> bool {
        false
    }

    fn before_the_end_of_the_primary(&self, servers: &Servers) -> Outcome {
        self.catch_up(servers)?;
        wait_for_the_replica(servers.primary())?;
        // It acknowledges nothing, so it must not receive transactions that the standby lacks.
        let stop = self.statement("STOP REPLICA IO_THREAD", "STOP SLAVE IO_THREAD");
        Ok(servers.get(LOGICAL).sql(stop)?)
    }

    fn promote(&self, servers: &mut Servers) -> Outcome {
        let standby = Replicas::standby(servers);
        promote(servers.get(standby))?;
        servers.set_primary(standby);
        let stop = self.statement("STOP REPLICA", "STOP SLAVE");
        let logical = servers.get(LOGICAL);
        logical.sql(stop)?;
        self.nodes[LOGICAL].follow(logical, servers.primary())?;
        self.catch_up(servers)
    }

    fn catch_up(&self, servers: &Servers) -> Outcome {
        for number in servers.others() {
            catch_up(servers.get(number), servers.primary())
                .with_context(|| format!("server {number}"))?;
        }
        Ok(())
    }
}
