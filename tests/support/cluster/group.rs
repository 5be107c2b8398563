//! A replication group of three MySQL servers with a single primary.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use private_server::mysql::{self, prelude::Queryable};
use private_server::{Options, Server};

use super::free_ports;
use super::servers::{self, Servers};
use crate::harness::Outcome;
use crate::place::{Place, copy_folder, extended};
use crate::{sql, trace};

/// Larger than the data: cached pages stay cached.
const CACHE: u64 = 96 << 20;
pub const MEMBERS: usize = 3;
const GROUP: &str = "5f6c0d5e-6a1b-4f0e-9a37-1c2d3e4f5a6b";
/// Timeout for a member to receive all data, or for the group to detect a lost member.
pub const PATIENCE: Duration = Duration::from_secs(600);
/// Exit status of a server that requests a restart (`RESTART`, and the end of a clone).
const WANTS_A_START: &str = "exit status: 16";

/// A group in the directory of a place.
pub struct Group<'a> {
    place: &'a Place,
    /// Ports of each member: clients, and group communication.
    ports: [[u16; 2]; MEMBERS],
}

impl<'a> Group<'a> {
    pub fn new(place: &'a Place) -> anyhow::Result<Group<'a>> {
        Ok(Group {
            place,
            ports: free_ports()?,
        })
    }

    pub fn data(&self, member: usize) -> PathBuf {
        self.place.root().join(format!("member-{member}"))
    }

    pub fn options(&self, member: usize) -> anyhow::Result<Options> {
        let place = self.place;
        let cache = place.root().join(format!("cache-{member}"));
        std::fs::create_dir_all(&cache)?;
        let of_this = place.options_of(&format!("member-{member}"), &format!("run-{member}"));
        let [clients, group] = self.ports[member];
        let all: Vec<String> = self
            .ports
            .iter()
            .map(|ports| format!("127.0.0.1:{}", ports[1]))
            .collect();
        Ok(extended(of_this, place.library()?, &cache, CACHE)
            .port(clients)
            // The server requires a supervisor's pid before it restarts itself.
            .environment("MYSQLD_PARENT_PID", &std::process::id().to_string())
            .option(format!("--server-id={}", member + 1))
            .option("--log-bin=bin")
            .option("--gtid-mode=ON")
            .option("--enforce-gtid-consistency=ON")
            .option("--skip-name-resolve")
            .option("--report-host=127.0.0.1")
            .option(format!("--report-port={clients}"))
            .option("--plugin-load-add=group_replication=group_replication.so;clone=mysql_clone.so")
            .option(format!("--loose-group-replication-group-name={GROUP}"))
            .option("--loose-group-replication-start-on-boot=OFF")
            .option("--loose-group-replication-ip-allowlist=127.0.0.1/8")
            .option("--loose-group-replication-single-primary-mode=ON")
            .option("--loose-group-replication-recovery-get-public-key=ON")
            // So that reads on a secondary see earlier commits.
            .option("--loose-group-replication-consistency=BEFORE")
            .option("--loose-group-replication-member-expel-timeout=0")
            .option("--loose-group-replication-exit-state-action=READ_ONLY")
            .option(format!(
                "--loose-group-replication-local-address=127.0.0.1:{group}"
            ))
            .option(format!(
                "--loose-group-replication-group-seeds={}",
                all.join(",")
            )))
    }

    /// Starts a server that may restart itself.
    pub fn start(&self, member: usize) -> anyhow::Result<Server> {
        match self.place.start(self.options(member)?) {
            Err(error) if error.to_string().contains(WANTS_A_START) => {
                self.place.start(self.options(member)?)
            }
            outcome => outcome,
        }
    }

    /// Starts a server that is no member yet, on a copy of the empty data directory.
    pub fn prepare(&self, member: usize) -> anyhow::Result<Server> {
        copy_folder(&self.place.data(), &self.data(member))?;
        // Each server creates a separate identity.
        let _ = std::fs::remove_file(self.data(member).join("auto.cnf"));
        // At first it gets missing data by a clone. Later it catches up, because the others are always under writes.
        let options = self.options(member)?;
        let server = self
            .place
            .start(options.option("--loose-group-replication-clone-threshold=1"))?;
        let statements = [
            "SET SESSION sql_log_bin = 0",
            "CREATE USER members@'%' IDENTIFIED BY 'x'",
            "GRANT REPLICATION SLAVE, BACKUP_ADMIN, CONNECTION_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO members@'%'",
            trace::CREATE_FUNCTION,
            "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'members', SOURCE_PASSWORD = 'x' FOR CHANNEL 'group_replication_recovery'",
        ];
        let mut connection = server.connect()?;
        for statement in statements {
            connection.query_drop(statement).context(statement)?;
        }
        sql::expect_state(&server, "active")?;
        Ok(server)
    }

    /// Starts the first member, which is the primary.
    pub fn begin(&self) -> anyhow::Result<Server> {
        let first = self.prepare(0)?;
        let statements = [
            "SET GLOBAL group_replication_bootstrap_group = ON",
            "START GROUP_REPLICATION",
            "SET GLOBAL group_replication_bootstrap_group = OFF",
        ];
        sql::run(&first, &statements)?;
        sql::wait_until("a primary", PATIENCE, || is_primary(&first))?;
        Ok(first)
    }

    /// Makes the server a member. It may clone another member's data and exit, and is then restarted.
    pub fn join(&self, member: usize, mut server: Server) -> anyhow::Result<Server> {
        // The exit after a clone may precede the answer; only an SQL error is a refusal.
        if let Err(private_server::Error::Sql {
            source: mysql::Error::MySqlError(refused),
            ..
        }) = server.sql("START GROUP_REPLICATION")
        {
            anyhow::bail!("{refused}");
        }
        let end = std::time::Instant::now() + PATIENCE;
        loop {
            if !server.is_running() {
                drop(server);
                server = self.start(member)?;
                sql::wait_until("an answer", PATIENCE, || Ok(state(&server).is_ok()))?;
                if state(&server)? == "OFFLINE" {
                    server.sql("START GROUP_REPLICATION")?;
                }
            }
            match state(&server).as_deref() {
                Ok("ONLINE") => break,
                Ok(state) if state == "ERROR" || std::time::Instant::now() > end => {
                    anyhow::bail!("the member is {state}")
                }
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
        sql::expect_state(&server, "active")?;
        Ok(server)
    }

    pub fn come_back(&self, member: usize) -> anyhow::Result<Server> {
        let server = self.start(member)?;
        self.join(member, server)
    }
}

/// State of the server, as its group sees it.
pub fn state(server: &Server) -> anyhow::Result<String> {
    let found = server.value(
        "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
         WHERE MEMBER_ID = @@GLOBAL.server_uuid OR MEMBER_ID = ''",
    )?;
    Ok(found.unwrap_or_else(|| "OFFLINE".into()))
}

pub fn is_primary(server: &Server) -> anyhow::Result<bool> {
    let primary = server.value(
        "SELECT MEMBER_ID = @@GLOBAL.server_uuid FROM performance_schema.replication_group_members \
         WHERE MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE'",
    )?;
    Ok(primary.as_deref() == Some("1")
        && server.value("SELECT @@GLOBAL.super_read_only")?.as_deref() == Some("0"))
}

impl Group<'_> {
    /// Waits until the group has `members` members, as `server` sees it.
    fn wait_for(&self, server: &Server, members: usize) -> Outcome {
        let count = "SELECT COUNT(*) FROM performance_schema.replication_group_members WHERE MEMBER_STATE = 'ONLINE'";
        let all = "SELECT COUNT(*) FROM performance_schema.replication_group_members";
        let members = members.to_string();
        sql::wait_until("a group of those that run", PATIENCE, || {
            Ok([count, all].iter().all(|statement| {
                server.value(statement).ok().flatten().as_deref() == Some(&members)
            }))
        })
    }

    /// Starts a server without data.
    fn prepare_again(&self, member: usize) -> anyhow::Result<Server> {
        std::fs::remove_dir_all(self.data(member))?;
        self.prepare(member)
    }
}

impl servers::Cluster for Group<'_> {
    fn come_back(&self, _: &Servers, number: usize) -> anyhow::Result<Server> {
        Group::come_back(self, number)
    }

    fn replace(&self, servers: &Servers, number: usize) -> anyhow::Result<Server> {
        // The group must first drop the server's former identity.
        self.wait_for(servers.primary(), servers.running().len())?;
        let server = self.prepare_again(number)?;
        self.join(number, server)
    }

    fn kill_joiner(&self, servers: &Servers, number: usize, after: Duration) -> Outcome {
        self.wait_for(servers.primary(), servers.running().len())?;
        let server = self.prepare_again(number)?;
        // The server may exit before it answers, after a clone.
        let _ = server.sql("START GROUP_REPLICATION");
        std::thread::sleep(after);
        server.kill();
        self.wait_for(servers.primary(), servers.running().len())
    }

    fn kill_donor(
        &self,
        primary: &Server,
        servers: &mut Servers,
        joiner: usize,
        donor: usize,
        after: Duration,
    ) -> anyhow::Result<Option<Server>> {
        // The primary, which is not in `servers`, and the running servers.
        self.wait_for(primary, 1 + servers.running().len())?;
        let server = self.prepare_again(joiner)?;
        let giver = servers.take(donor);
        // The group decides whether the donor or the primary gives the data. The joiner must be a member even without data: one
        // of two members alone has no majority, and waits forever.
        let all = 3;
        let joined = std::thread::scope(|scope| {
            scope.spawn(move || {
                let seen = "SELECT COUNT(*) FROM performance_schema.replication_group_members";
                let _ = sql::wait_until("the joiner is a member", PATIENCE, || {
                    Ok(primary
                        .value(seen)?
                        .is_some_and(|count| count == all.to_string()))
                });
                std::thread::sleep(after);
                giver.kill();
            });
            self.join(joiner, server)
        });
        let joined = joined.ok();
        let running = 1 + servers.running().len() + usize::from(joined.is_some());
        self.wait_for(primary, running)?;
        Ok(joined)
    }

    fn before_the_end_of_the_primary(&self, _: &Servers) -> Outcome {
        Ok(())
    }

    fn promote(&self, servers: &mut Servers) -> Outcome {
        let mut next = None;
        sql::wait_until("another primary", PATIENCE, || {
            for (number, server) in servers.running() {
                if is_primary(server)? {
                    next = Some(number);
                }
            }
            Ok(next.is_some())
        })?;
        servers.set_primary(next.context("no primary")?);
        self.wait_for(servers.primary(), servers.running().len())
    }

    fn catch_up(&self, servers: &Servers) -> Outcome {
        // group_replication_consistency: reads on a secondary see earlier commits.
        self.wait_for(servers.primary(), servers.running().len())
    }
}
