//! A Galera cluster of three nodes, on MariaDB.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use private_server::{Options, Server, root};
use rustix::process::{Pid, Signal, kill_process};

use super::free_ports;
use super::servers::{self, Servers};
use crate::harness::{Outcome, skip};
use crate::place::{POOL, Place, extended, leaving_out};
use crate::{sql, trace};

/// Larger than the data: cached pages stay cached.
const CACHE: u64 = 96 << 20;
const PROVIDER: &str = "/usr/lib/galera/libgalera_smm.so";
pub const NODES: usize = 3;
/// Timeout for a node to receive all data.
const PATIENCE: Duration = Duration::from_secs(600);

/// A cluster in the directory of a place.
pub struct Cluster<'a> {
    place: &'a Place,
    /// Ports of each node: clients, group communication, incremental state transfer.
    ports: [[u16; 3]; NODES],
    /// The rules that the last node's library omits, if it is a canary.
    rules: Option<&'a str>,
    /// Programs that Debian ships in the server's package, but not in that of its core.
    programs: PathBuf,
    /// Account that the servers run as, if not the one of the test.
    user: Option<&'a str>,
    /// State transfer method.
    copying: Cell<Copying>,
}

/// How a joining node copies another node's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copying {
    MariaBackup,
    /// Not available to servers that run as root.
    Rsync,
}

impl Copying {
    fn name(self) -> &'static str {
        match self {
            Copying::MariaBackup => "mariabackup",
            Copying::Rsync => "rsync",
        }
    }
}

impl<'a> Cluster<'a> {
    pub fn new(place: &'a Place, rules: Option<&'a str>) -> anyhow::Result<Cluster<'a>> {
        let programs = root::tools().map_err(anyhow::Error::msg)?;
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
            user: None,
            copying: Cell::new(Copying::MariaBackup),
        })
    }

    /// The servers run as `user`, who owns the place.
    pub fn run_by(mut self, user: &'a str) -> anyhow::Result<Cluster<'a>> {
        // The directory with the programs may be unreadable for that user.
        let programs = self.place.root().join("programs");
        std::fs::create_dir_all(&programs)?;
        for method in ["common", "mariabackup", "rsync"] {
            let name = format!("wsrep_sst_{method}");
            let installed = Path::new("/usr/bin").join(&name);
            let found = [self.programs.join(&name), installed];
            let found = found.iter().find(|path| path.is_file());
            let found = found.ok_or_else(|| {
                skip(format!(
                    "{name} is missing: scripts/install-dependencies tests"
                ))
            })?;
            std::fs::copy(found, programs.join(&name))?;
        }
        self.programs = programs;
        self.user = Some(user);
        Ok(self)
    }

    /// Sets the method for later state transfers.
    pub fn copy_by(&self, copying: Copying) {
        self.copying.set(copying);
    }

    fn make_folder(&self, folder: &Path) -> Outcome {
        std::fs::create_dir_all(folder)?;
        if let Some(user) = self.user {
            let status = Command::new("chown").arg(user).arg(folder).status()?;
            ensure!(status.success(), "chown ended with {status}");
        }
        Ok(())
    }

    pub fn data(&self, node: usize) -> PathBuf {
        self.place.root().join(format!("node-{node}"))
    }

    pub fn options(&self, node: usize) -> anyhow::Result<Options> {
        let place = self.place;
        let cache = place.root().join(format!("cache-{node}"));
        self.make_folder(&cache)?;
        // A joining node must have an empty data directory.
        self.make_folder(&self.data(node))?;
        // Command-line options are passed on to mariadb-backup, which does not know this one.
        let file = place.root().join(format!("node-{node}.cnf"));
        std::fs::write(&file, format!("[mysqld]\ninnodb_buffer_pool_size={POOL}\n"))?;
        let of_this = place
            .options_of(&format!("node-{node}"), &format!("run-{node}"))
            .defaults_file(file);
        let options = match self.rules.filter(|_| node == NODES - 1) {
            Some(rules) => leaving_out(of_this, &cache, CACHE, rules)?,
            None => extended(of_this, place.library()?, &cache, CACHE),
        };
        let options = match self.user {
            Some(user) => options.user(user),
            None => options,
        };
        let [clients, group, missed] = self.ports[node];
        // A new port each time: the receiver of a copy may outlive a killed server.
        let [[copy]] = free_ports()?;
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
            .option(format!("--wsrep-sst-method={}", self.copying.get().name()))
            .option("--wsrep-sst-auth=copies:x")
            // A read sees every transaction that was committed before on any node.
            .option("--wsrep-sync-wait=1")
            .option(format!(
                "--wsrep-provider-options=gmcast.listen_addr=tcp://127.0.0.1:{group};ist.recv_addr=127.0.0.1:{missed};\
                 gcache.size=64M;socket.ssl=no"
            )))
    }

    /// Starts the first node, from the place's data directory.
    pub fn begin(&self) -> anyhow::Result<Server> {
        std::fs::rename(self.place.data(), self.data(0))?;
        let server = self
            .place
            .start(self.options(0)?.option("--wsrep-new-cluster"))?;
        wait_until_synced(&server)?;
        let statements = [
            "CREATE USER copies@localhost IDENTIFIED BY 'x'",
            "GRANT RELOAD, PROCESS, LOCK TABLES, REPLICATION CLIENT, BINLOG MONITOR, REPLICATION SLAVE ADMIN ON *.* TO copies@localhost",
            // The cluster replicates it to the other nodes.
            trace::CREATE_FUNCTION,
        ];
        sql::run(&server, &statements)?;
        Ok(server)
    }

    /// Starts a node without data, or one that was stopped cleanly.
    pub fn start(&self, node: usize) -> anyhow::Result<Server> {
        let server = self.place.start(self.options(node)?)?;
        self.expect_served(&server)?;
        Ok(server)
    }

    fn expect_served(&self, server: &Server) -> Outcome {
        wait_until_synced(server)?;
        sql::expect_state(server, "active")
    }

    /// Restarts a killed node. A recovery run prints its position, as the packages' `galera_recovery` does; the next start gets
    /// the missing transactions.
    pub fn come_back(&self, node: usize) -> anyhow::Result<Server> {
        let recovery = self.options(node)?.option("--wsrep-recover");
        // The run ends after logging the position.
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

/// During a state transfer the node closes connections, so failed queries are repeated.
pub fn wait_until_synced(server: &Server) -> Outcome {
    sql::wait_until("synced", PATIENCE, || {
        let state = server.status("wsrep_local_state_comment");
        Ok(state.is_ok_and(|state| state.values().any(|state| state == "Synced")))
    })
}

/// Time limit for a node to join while its donor is killed.
const WITHOUT_A_DONOR: Duration = Duration::from_secs(120);

impl Cluster<'_> {
    /// Ends the copy script, which may outlive its server. A service manager ends it as well, and a node does not start beside
    /// it.
    fn end_copying(&self, node: usize) -> Outcome {
        let file = self.data(node).join("wsrep_sst.pid");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let Some(pid) = text.trim().parse().ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        // The pid may have been reused.
        let is_it = || {
            let line = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
            std::fs::read_to_string(line).is_ok_and(|line| line.contains("wsrep_sst_"))
        };
        sql::wait_until("the end of a script that copies", PATIENCE, || {
            if is_it() {
                let _ = kill_process(pid, Signal::TERM);
            }
            Ok(!is_it())
        })
    }

    fn remove_data(&self, node: usize) -> Outcome {
        std::fs::remove_dir_all(self.data(node))?;
        Ok(())
    }

    /// Waits until all running nodes form a cluster without the others.
    fn wait_for_all(&self, servers: &Servers) -> Outcome {
        self.wait_for(servers, servers.running().len())
    }

    fn wait_for(&self, servers: &Servers, size: usize) -> Outcome {
        let size = size.to_string();
        for (_, server) in servers.running() {
            sql::wait_until("a cluster of those that run", PATIENCE, || {
                let status = server.status("wsrep\\_%")?;
                let is = |name: &str, value: &str| status.get(name).is_some_and(|of| of == value);
                Ok(is("wsrep_cluster_size", &size)
                    && is("wsrep_ready", "ON")
                    && is("wsrep_local_state_comment", "Synced"))
            })?;
        }
        Ok(())
    }
}

impl servers::Cluster for Cluster<'_> {
    fn come_back(&self, _: &Servers, number: usize) -> anyhow::Result<Server> {
        self.end_copying(number)?;
        Cluster::come_back(self, number)
    }

    fn replace(&self, _: &Servers, number: usize) -> anyhow::Result<Server> {
        self.end_copying(number)?;
        self.remove_data(number)?;
        self.start(number)
    }

    fn kill_joiner(&self, servers: &Servers, number: usize, after: Duration) -> Outcome {
        self.remove_data(number)?;
        // Kills the server if it has not started in time.
        let joiner = self.place.start(self.options(number)?.start_timeout(after));
        drop(joiner);
        self.wait_for_all(servers)
    }

    fn kill_donor(
        &self,
        _: &Server,
        servers: &mut Servers,
        joiner: usize,
        donor: usize,
        after: Duration,
    ) -> anyhow::Result<Option<Server>> {
        self.remove_data(joiner)?;
        let options = self
            .options(joiner)?
            .start_timeout(WITHOUT_A_DONOR)
            .option(format!("--wsrep-sst-donor=node-{donor}"));
        let giver = servers.take(donor);
        let is_over = AtomicBool::new(false);
        let joined = std::thread::scope(|scope| {
            scope.spawn(|| {
                let gives = || {
                    let state = giver.status("wsrep_local_state_comment");
                    state.is_ok_and(|all| all.values().any(|state| state.starts_with("Donor")))
                };
                while !is_over.load(Ordering::Relaxed) && !gives() {
                    std::thread::sleep(Duration::from_millis(20));
                }
                std::thread::sleep(after);
                giver.kill();
            });
            let joined = self.place.start(options);
            is_over.store(true, Ordering::Relaxed);
            joined
        });
        let joiner = joined
            .ok()
            .filter(|server| self.expect_served(server).is_ok());
        match joiner {
            Some(_) => self.wait_for(servers, servers.running().len() + 1)?,
            None => self.wait_for_all(servers)?,
        }
        Ok(joiner)
    }

    fn before_the_end_of_the_primary(&self, _: &Servers) -> Outcome {
        Ok(())
    }

    fn promote(&self, servers: &mut Servers) -> Outcome {
        let next = servers.running().first().context("nobody is left")?.0;
        servers.set_primary(next);
        self.wait_for_all(servers)
    }

    fn catch_up(&self, servers: &Servers) -> Outcome {
        // wsrep_sync_wait: a read sees every transaction that was committed before on any node.
        self.wait_for_all(servers)
    }
}
