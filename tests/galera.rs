//! Three nodes of a Galera cluster, with the extension on in each: a node joins by a copy of another one's data, while that one is
//! switched; a node is killed and comes back by what it has missed; the node that is written to dies.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::{expect_the_same, free_ports};
use integration_tests::ledger::Ledger;
use integration_tests::place::{POOL, extended};
use integration_tests::verification::{self, Compared};
use integration_tests::{
    Flavour, Options, Outcome, Place, Server, Suite, library, note, skip, sql,
};
use private_server::root;

/// Larger than the data: what is cached stays cached.
const CACHE: u64 = 96 << 20;
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
const NODES: usize = 3;
/// For a node to have all data.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long others are written to while a node comes. It catches up then, however busy the machine is.
const BESIDE: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    Suite::new("galera")
        .with(Flavour::MariaDb1011, "nodes_come_and_go", nodes_come_and_go)
        .with(
            Flavour::MariaDb1011,
            "a_node_that_drops_nothing_is_noticed",
            a_node_that_drops_nothing_is_noticed,
        )
        .run()
}

/// A cluster in the folder of a place.
struct Cluster<'a> {
    place: &'a Place,
    /// Of a node: for clients, for the group, for what it has missed, for a copy.
    ports: [[u16; 4]; NODES],
    /// What the last node's library leaves out, if it is one that was built to be wrong.
    rules: Option<&'a str>,
    /// Programs that Debian's package of the server has and that of its core does not.
    programs: PathBuf,
}

impl<'a> Cluster<'a> {
    fn new(place: &'a Place, rules: Option<&'a str>) -> anyhow::Result<Cluster<'a>> {
        let programs = root::cache_folder().join("tools/usr/bin");
        let is_there = |name: &str| {
            programs.join(name).is_file() || Path::new("/usr/bin").join(name).is_file()
        };
        if !Path::new(PROVIDER).is_file() || !is_there("wsrep_sst_mariabackup") {
            return Err(skip(
                "Galera is not installed: scripts/install-dependencies tests",
            ));
        }
        Ok(Cluster {
            place,
            ports: free_ports()?,
            rules,
            programs,
        })
    }

    fn data(&self, node: usize) -> PathBuf {
        self.place.root().join(format!("node-{node}"))
    }

    fn options(&self, node: usize) -> anyhow::Result<Options> {
        let place = self.place;
        let cache = place.root().join(format!("cache-{node}"));
        std::fs::create_dir_all(&cache)?;
        // Whoever joins must have an empty one.
        std::fs::create_dir_all(self.data(node))?;
        // What is on the command line goes on to mariadb-backup, which does not know this.
        let file = place.root().join(format!("node-{node}.cnf"));
        std::fs::write(&file, format!("[mysqld]\ninnodb_buffer_pool_size={POOL}\n"))?;
        let of_this = place
            .options_of(&format!("node-{node}"), &format!("run-{node}"))
            .defaults_file(file);
        let options = match self.rules.filter(|_| node == NODES - 1) {
            Some(rules) => extended(of_this, &library::canary()?, &cache, CACHE)
                .environment("BPE_CANARY", rules),
            None => extended(of_this, place.library()?, &cache, CACHE),
        };
        let [clients, group, missed, copy] = self.ports[node];
        let all: Vec<String> = self
            .ports
            .iter()
            .map(|ports| format!("127.0.0.1:{}", ports[1]))
            .collect();
        let path = std::env::var("PATH").unwrap_or_default();
        Ok(options
            .port(clients)
            .start_timeout(PATIENCE)
            .environment("PATH", &format!("{path}:{}", self.programs.display()))
            .option("--loose-bpe-admission=all")
            .option("--binlog-format=ROW")
            .option("--innodb-autoinc-lock-mode=2")
            .option("--wsrep-on=ON")
            .option(format!("--wsrep-provider={PROVIDER}"))
            .option("--wsrep-cluster-name=innodb-bpe-tests")
            .option(format!("--wsrep-cluster-address=gcomm://{}", all.join(",")))
            .option(format!("--wsrep-node-name=node-{node}"))
            .option(format!("--wsrep-node-address=127.0.0.1:{group}"))
            .option(format!("--wsrep-node-incoming-address=127.0.0.1:{clients}"))
            .option(format!("--wsrep-sst-receive-address=127.0.0.1:{copy}"))
            .option("--wsrep-sst-method=mariabackup")
            .option("--wsrep-sst-auth=copies:x")
            // What is read is what was committed anywhere before.
            .option("--wsrep-sync-wait=1")
            .option(format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{missed};\
                 gcache.size=64M;socket.ssl=no"
            )))
    }

    /// The first node, from the place's data directory.
    fn begin(&self) -> anyhow::Result<Server> {
        std::fs::rename(self.place.data(), self.data(0))?;
        let server = self
            .place
            .start(self.options(0)?.option("--wsrep-new-cluster"))?;
        wait_until_synced(&server)?;
        let statements = [
            "CREATE USER copies@localhost IDENTIFIED BY 'x'",
            "GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION CLIENT, BINLOG MONITOR, REPLICATION SLAVE ADMIN ON *.* TO copies@localhost",
            // It comes to the other nodes, too.
            "CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'",
        ];
        sql::run(&server, &statements)?;
        Ok(server)
    }

    /// A node without data, or one that comes back after a clean stop.
    fn start(&self, node: usize) -> anyhow::Result<Server> {
        let server = self.place.start(self.options(node)?)?;
        self.expect_served(&server)?;
        Ok(server)
    }

    fn expect_served(&self, server: &Server) -> Outcome {
        wait_until_synced(server)?;
        sql::expect_state(server, "active")
    }

    /// A node that was killed: a run of the server says how far it had come, as `galera_recovery` of the packages lets it; the next
    /// gets what it has missed.
    fn come_back(&self, node: usize) -> anyhow::Result<Server> {
        let recovery = self.options(node)?.option("--wsrep-recover");
        // It ends by itself, and has said so in its log.
        let end = self.place.start(recovery);
        ensure!(end.is_err(), "a run for recovery stays");
        let log = self.place.root().join(format!("run-{node}/error.log"));
        let log = std::fs::read_to_string(log)?;
        let position = log
            .lines()
            .rev()
            .find_map(|line| Some(line.split_once("Recovered position: ")?.1.trim()))
            .context("no position")?;
        let options = self.options(node)?;
        let server = self
            .place
            .start(options.option(format!("--wsrep-start-position={position}")))?;
        self.expect_served(&server)?;
        Ok(server)
    }
}

fn wait_until_synced(server: &Server) -> Outcome {
    sql::wait_until("synced", PATIENCE, || {
        let state = server.status("wsrep_local_state_comment")?;
        Ok(state.values().any(|state| state == "Synced"))
    })
}

fn run_a_cluster(place: &Place, rules: Option<&str>) -> Outcome {
    let cluster = Cluster::new(place, rules)?;
    let first = cluster.begin()?;
    let ledger = Ledger::small(&first)?.paced();

    // A copy of a node that is written to, and switched meanwhile.
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

    // It is killed, and gets what it has missed. The caches of the others are switched and bypassed.
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

    // Its data directory becomes another one under what it has cached.
    second.stop()?;
    std::fs::remove_dir_all(cluster.data(1))?;
    let second = cluster.start(1)?;
    ledger.run(&first, Duration::from_secs(2))?;
    expect_the_same(&ledger, &[&first, &second, &third])?;

    // The node that is written to dies, and comes back.
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

/// A node whose library does not drop what is written has rows that the others do not have.
fn a_node_that_drops_nothing_is_noticed(place: &Place) -> Outcome {
    let error = run_a_cluster(place, Some("writes"))
        .err()
        .context("a node did not drop what was written, and nothing was wrong")?;
    let text = format!("{error:#}");
    ensure!(!text.contains("skipped"), "{text}");
    note(format!(
        "noticed: {}",
        text.chars().take(160).collect::<String>()
    ));
    Ok(())
}
