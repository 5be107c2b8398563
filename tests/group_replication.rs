//! Three members of a group of MySQL servers with one primary, and the extension on in each: a server joins by a clone, which replaces
//! its data directory under a plugin that is loaded, and restarts itself; a member is killed and comes back; the primary dies.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::cluster::{expect_the_same, free_ports};
use integration_tests::ledger::Ledger;
use integration_tests::mysql::{self, prelude::Queryable};
use integration_tests::place::{copy_folder, extended};
use integration_tests::verification::{self, Compared};
use integration_tests::{Flavour, Options, Outcome, Place, Server, Suite, note, sql};

/// Larger than the data: what is cached stays cached.
const CACHE: u64 = 96 << 20;
const MEMBERS: usize = 3;
const GROUP: &str = "5f6c0d5e-6a1b-4f0e-9a37-1c2d3e4f5a6b";
/// For a member to have all data, or for a group to find that one is gone.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long others are written to while a member comes. It catches up then, however busy the machine is.
const BESIDE: Duration = Duration::from_secs(5);
/// With which a server ends that wants to be started again (`RESTART`, and the end of a clone).
const WANTS_A_START: &str = "exit status: 16";

fn main() -> ExitCode {
    Suite::new("group_replication")
        .with(Flavour::MySql97, "members_come_and_go", members_come_and_go)
        .run()
}

/// A group in the folder of a place.
struct Group<'a> {
    place: &'a Place,
    /// Of a member: for clients, and for the group.
    ports: [[u16; 2]; MEMBERS],
}

impl<'a> Group<'a> {
    fn new(place: &'a Place) -> anyhow::Result<Group<'a>> {
        Ok(Group {
            place,
            ports: free_ports()?,
        })
    }

    fn data(&self, member: usize) -> PathBuf {
        self.place.root().join(format!("member-{member}"))
    }

    fn options(&self, member: usize) -> anyhow::Result<Options> {
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
            // What a server wants to see of whoever would start it again.
            .environment("MYSQLD_PARENT_PID", &std::process::id().to_string())
            .option("--loose-bpe-admission=all")
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
            // So that what is read on a secondary is what was committed before.
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

    /// A server that may restart itself.
    fn start(&self, member: usize) -> anyhow::Result<Server> {
        match self.place.start(self.options(member)?) {
            Err(error) if error.to_string().contains(WANTS_A_START) => {
                self.place.start(self.options(member)?)
            }
            outcome => outcome,
        }
    }

    /// A server that is no member yet, on a copy of the empty data directory.
    fn prepare(&self, member: usize) -> anyhow::Result<Server> {
        copy_folder(&self.place.data(), &self.data(member))?;
        // Each makes an identity of its own.
        let _ = std::fs::remove_file(self.data(member).join("auto.cnf"));
        // Whatever it lacks then, it gets by a clone. Later it catches up: others are written to all the time.
        let options = self.options(member)?;
        let server = self
            .place
            .start(options.option("--loose-group-replication-clone-threshold=1"))?;
        let statements = [
            "SET SESSION sql_log_bin = 0",
            "CREATE USER members@'%' IDENTIFIED BY 'x'",
            "GRANT REPLICATION SLAVE, BACKUP_ADMIN, CONNECTION_ADMIN, GROUP_REPLICATION_STREAM ON *.* TO members@'%'",
            "CREATE FUNCTION bpe_report RETURNS STRING SONAME 'bpe.so'",
            "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'members', SOURCE_PASSWORD = 'x' FOR CHANNEL 'group_replication_recovery'",
        ];
        let mut connection = server.connect()?;
        for statement in statements {
            connection.query_drop(statement).context(statement)?;
        }
        sql::expect_state(&server, "active")?;
        Ok(server)
    }

    /// The server becomes a member. It may clone another one's data and end, to be started again then.
    fn join(&self, member: usize, mut server: Server) -> anyhow::Result<Server> {
        // The end that follows a clone may be faster than the answer; only a refusal is one.
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

    fn come_back(&self, member: usize) -> anyhow::Result<Server> {
        let server = self.start(member)?;
        self.join(member, server)
    }
}

/// Of the server itself, as its group sees it.
fn state(server: &Server) -> anyhow::Result<String> {
    let found = server.value(
        "SELECT MEMBER_STATE FROM performance_schema.replication_group_members \
         WHERE MEMBER_ID = @@GLOBAL.server_uuid OR MEMBER_ID = ''",
    )?;
    Ok(found.unwrap_or_else(|| "OFFLINE".into()))
}

fn is_primary(server: &Server) -> anyhow::Result<bool> {
    let primary = server.value(
        "SELECT MEMBER_ID = @@GLOBAL.server_uuid FROM performance_schema.replication_group_members \
         WHERE MEMBER_ROLE = 'PRIMARY' AND MEMBER_STATE = 'ONLINE'",
    )?;
    Ok(primary.as_deref() == Some("1")
        && server.value("SELECT @@GLOBAL.super_read_only")?.as_deref() == Some("0"))
}

fn members_come_and_go(place: &Place) -> Outcome {
    let group = Group::new(place)?;
    let first = group.prepare(0)?;
    sql::run(
        &first,
        &[
            "SET GLOBAL group_replication_bootstrap_group = ON",
            "START GROUP_REPLICATION",
            "SET GLOBAL group_replication_bootstrap_group = OFF",
        ],
    )?;
    sql::wait_until("a primary", PATIENCE, || is_primary(&first))?;
    let ledger = Ledger::small(&first)?.paced();

    // It clones what is written to, and its source is switched meanwhile.
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

    // It is killed, and gets what it has missed.
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

    // The primary dies, and comes back.
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
