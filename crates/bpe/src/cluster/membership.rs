//! A server's cluster role by SQL: primary, replica, Galera node, group member, or standalone.
//!
//! Runs three short statements, or five for a group member. Missing privileges are no error: the result contains what
//! the account may see, and [`Membership::unseen`] names the missing grant.

use std::collections::BTreeMap;

use mysql::prelude::FromRow;
use mysql::{FromRowError, Row};
use serde::Serialize;

use crate::connect::maintenance::account;
use crate::connect::plain;
use crate::connect::protocol::Bounds;
use crate::connect::server::{Flavour, Server, Version, error_code};
use crate::connect::session::BOUNDS;
use crate::support::failure::{Exit, Failure};
use crate::support::text::cut;

/// ER_SPECIFIC_ACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR, ER_DBACCESS_DENIED_ERROR.
const DENIED: [u16; 3] = [1227, 1142, 1044];
/// First MySQL version with `SHOW REPLICA STATUS`.
const SAYS_REPLICA: Version = Version {
    major: 8,
    minor: 0,
    patch: 22,
};

/// Maximum number of sources kept; MySQL has at most 256 channels.
const MAX_SOURCES: usize = 256;
/// Bytes kept of a name or state, and of a replication error, which servers limit to 1 KiB.
const MAX_NAME: usize = 256;
const MAX_ERROR: usize = 2048;
/// Bytes kept of the states or errors of all channels.
const MAX_ALL: usize = 16 << 10;
/// Bounds of the answer about channels. A row contains sets of GTIDs, which may be long.
const CHANNELS: Bounds = Bounds {
    rows: 1024,
    bytes: 16 << 20,
    ..BOUNDS
};

const VARIABLES: &str = "'server_id','server_uuid','port','read_only','wsrep_on','wsrep_cluster_name',\
    'group_replication_group_name'";
const STATUS: &str = "'wsrep_local_state_comment','wsrep_cluster_status','wsrep_cluster_size','wsrep_ready',\
    'wsrep_cluster_state_uuid','wsrep_local_recv_queue','Slaves_connected','Slaves_running'";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Neither a replica nor visibly a source.
    Standalone,
    /// A source of other servers that itself replicates from none.
    Primary,
    Replica,
    /// All Galera nodes are equal.
    Galera,
    GroupPrimary,
    GroupSecondary,
    /// The account lacks the privilege to see it.
    Unknown,
}

impl Role {
    /// In words for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Standalone => "standalone",
            Self::Primary => "primary",
            Self::Replica => "replica",
            Self::Galera => "Galera node",
            Self::GroupPrimary => "primary of the group",
            Self::GroupSecondary => "secondary of the group",
            Self::Unknown => "of unknown role",
        }
    }

    /// Whether applications write there. Such a server is the source that others are warmed from.
    pub fn is_primary(self) -> bool {
        matches!(self, Self::Primary | Self::GroupPrimary | Self::Standalone)
    }
}

/// A replica's source, as far as the replica knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub server_id: u64,
    pub uuid: Option<String>,
    pub host: String,
    pub port: u64,
}

/// A server's cluster role and state.
#[derive(Clone, Debug, PartialEq)]
pub struct Membership {
    pub role: Role,
    /// State in the server's terms, such as `Synced`, `ONLINE` or `SQL thread: No`; empty for a standalone server.
    /// Excludes error texts, which may quote rows.
    pub state: String,
    /// The error texts, for authorized readers only.
    pub errors: String,
    /// Whether it participates and follows: Synced, ONLINE, or both replica threads running. Also true for a standalone server.
    pub in_step: bool,
    /// Replication lag in seconds; `None` if unknown. A synced Galera node has none, because of flow control.
    pub lag_s: Option<f64>,
    /// Configured delay of a replica in seconds.
    pub delay_s: u64,
    /// Write sets that a Galera node has yet to apply.
    pub write_sets: Option<u64>,
    /// Only administrators can write there.
    pub read_only: bool,
    /// The cluster's name for itself: Galera's, or that of the replication group.
    pub cluster: Option<String>,
    /// Distinguishes Galera clusters, which often have equal names.
    pub cluster_id: Option<String>,
    /// Number of nodes in its cluster, as the node sees it.
    pub nodes: Option<u64>,
    pub server_id: u64,
    pub uuid: Option<String>,
    pub port: u64,
    pub sources: Vec<Source>,
    /// What the account may not see, with the missing GRANT.
    pub unseen: Vec<String>,
}

impl Membership {
    /// Reads it from the server.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn read(server: &mut Server) -> Result<Self, Failure> {
        let mut membership = Self::ask(server)?;
        membership.bound();
        Ok(membership)
    }

    /// Bounds its memory, because the console keeps it.
    fn bound(&mut self) {
        cut(&mut self.state, MAX_ALL);
        cut(&mut self.errors, MAX_ALL);
        self.sources.truncate(MAX_SOURCES);
        let names = [&mut self.cluster, &mut self.cluster_id, &mut self.uuid];
        let names = names.into_iter().flatten();
        names.for_each(|name| cut(name, MAX_NAME));
        self.unseen.iter_mut().for_each(|text| cut(text, MAX_ERROR));
    }

    fn ask(server: &mut Server) -> Result<Self, Failure> {
        let variables = shown(server, "VARIABLES", VARIABLES)?;
        let text = |name: &str| variables.get(name).map(String::as_str).unwrap_or_default();
        let number = |name: &str| text(name).parse::<u64>().unwrap_or(0);
        let mut membership = Self {
            role: Role::Standalone,
            state: String::new(),
            errors: String::new(),
            in_step: true,
            lag_s: Some(0.0),
            delay_s: 0,
            write_sets: None,
            read_only: text("read_only") != "OFF" && text("read_only") != "0",
            cluster: None,
            cluster_id: None,
            nodes: None,
            server_id: number("server_id"),
            uuid: variables.get("server_uuid").cloned(),
            port: number("port"),
            sources: Vec::new(),
            unseen: Vec::new(),
        };
        if text("wsrep_on") == "ON" {
            membership.cluster = Some(text("wsrep_cluster_name").to_owned());
            membership.galera(&shown(server, "STATUS", STATUS)?);
            return Ok(membership);
        }
        let group = text("group_replication_group_name");
        if !group.is_empty() {
            membership.cluster = Some(group.to_owned());
            membership.group(server)?;
            return Ok(membership);
        }
        let status = shown(server, "STATUS", STATUS)?;
        membership.replication(server, &status)?;
        Ok(membership)
    }

    fn galera(&mut self, status: &BTreeMap<String, String>) {
        let text = |name: &str| status.get(name).map(String::as_str).unwrap_or_default();
        self.role = Role::Galera;
        let state = text("wsrep_local_state_comment");
        let part = text("wsrep_cluster_status");
        self.in_step = state == "Synced" && part == "Primary" && text("wsrep_ready") == "ON";
        self.lag_s = self.in_step.then_some(0.0);
        self.nodes = text("wsrep_cluster_size").parse().ok();
        let id = text("wsrep_cluster_state_uuid");
        // A node that has not joined yet has no id.
        self.cluster_id = (id.chars().any(|c| c != '0' && c != '-')).then(|| id.to_owned());
        self.state = state.to_owned();
        self.write_sets = text("wsrep_local_recv_queue").parse().ok();
        if part != "Primary" {
            self.state = format!("{state}, cluster {part}");
        } else if let Some(queue @ 1..) = self.write_sets {
            self.state = format!("{state}, {queue} write sets to apply");
        }
    }

    fn group(&mut self, server: &mut Server) -> Result<(), Failure> {
        const MEMBERS: &str = "SELECT MEMBER_ID, CONCAT(MEMBER_STATE, ' ', MEMBER_ROLE) \
                               FROM performance_schema.replication_group_members";
        const QUEUE: &str = "SELECT COUNT_TRANSACTIONS_REMOTE_IN_APPLIER_QUEUE \
                             FROM performance_schema.replication_group_member_stats WHERE MEMBER_ID = @@GLOBAL.server_uuid";
        const BEHIND: &str = "SELECT COALESCE(MAX(TIMESTAMPDIFF(MICROSECOND, \
                              APPLYING_TRANSACTION_ORIGINAL_COMMIT_TIMESTAMP, NOW(6))), 0) / 1000000 \
                              FROM performance_schema.replication_applier_status_by_worker \
                              WHERE CHANNEL_NAME = 'group_replication_applier' AND APPLYING_TRANSACTION <> ''";
        const RIGHT: &str = "SELECT ON performance_schema.*";
        let Some(members) = self.may_see(server, RIGHT, |server| server.pairs(MEMBERS))? else {
            return Ok(());
        };
        let own = self.uuid.clone().unwrap_or_default();
        let words = members
            .iter()
            .find(|(id, _)| *id == own)
            .map_or("OFFLINE", |(_, words)| words.as_str());
        let (state, role) = words.split_once(' ').unwrap_or((words, ""));
        self.role = match role {
            "PRIMARY" => Role::GroupPrimary,
            _ => Role::GroupSecondary,
        };
        self.state = state.to_owned();
        self.in_step = state == "ONLINE";
        let known = members.iter().filter(|(id, _)| !id.is_empty()).count();
        self.nodes = Some(known as u64);
        self.lag_s = None;
        // A member without a majority still reports ONLINE, and the other members may have elected another primary.
        if is_cut_off(known, members.iter().map(|(_, words)| words.as_str())) {
            self.state = format!("{state}, without a majority");
            self.in_step = false;
            return Ok(());
        }
        if self.role == Role::GroupPrimary {
            self.lag_s = Some(0.0);
            return Ok(());
        }
        let queue = self.may_see(server, RIGHT, |server| server.value(QUEUE))?;
        let number = |text: Option<String>| text.and_then(|text| text.parse::<f64>().ok());
        self.lag_s = match queue.map(number) {
            Some(Some(queue)) if queue > 0.0 => {
                self.state = format!("{state}, {queue} transactions to apply");
                let behind = self.may_see(server, RIGHT, |server| server.value(BEHIND))?;
                behind.and_then(number)
            }
            Some(Some(_)) => Some(0.0),
            _ => None,
        };
        Ok(())
    }

    fn replication(
        &mut self,
        server: &mut Server,
        status: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let count = |name: &str| {
            status
                .get(name)
                .and_then(|text| text.parse::<u64>().ok())
                .unwrap_or(0)
        };
        let (statement, right) = match server.flavour {
            Flavour::MariaDb => ("SHOW ALL SLAVES STATUS", "SLAVE MONITOR ON *.*"),
            Flavour::MySql if server.version < SAYS_REPLICA => {
                ("SHOW SLAVE STATUS", "REPLICATION CLIENT ON *.*")
            }
            Flavour::MySql => ("SHOW REPLICA STATUS", "REPLICATION CLIENT ON *.*"),
        };
        let rows = self.may_see(server, right, |server| {
            server.rows_within(statement, CHANNELS)
        })?;
        match rows {
            Some(rows) => {
                let rows: Vec<Channel> = rows;
                let channels: Vec<Channel> = rows
                    .into_iter()
                    .filter(|channel| !channel.name.starts_with("group_replication_"))
                    .collect();
                if !channels.is_empty() {
                    self.replica(&channels);
                } else if count("slaves_connected") > 0 || dumps(server) > 0 {
                    self.role = Role::Primary;
                }
            }
            // On MariaDB every account may see this status.
            None if count("slaves_running") > 0 => self.role = Role::Replica,
            None => {}
        }
        Ok(())
    }

    fn replica(&mut self, channels: &[Channel]) {
        self.role = Role::Replica;
        self.sources = channels
            .iter()
            .map(|channel| channel.source.clone())
            .collect();
        let stopped: Vec<_> = channels.iter().filter_map(Channel::stopped).collect();
        self.in_step = stopped.is_empty();
        self.state = stopped.join("; ");
        let errors = channels.iter().filter(|channel| !channel.error.is_empty());
        let errors: Vec<_> = errors.map(|channel| channel.error.as_str()).collect();
        self.errors = errors.join("; ");
        let delays = channels.iter().map(|channel| channel.delay);
        self.delay_s = delays.max().unwrap_or(0);
        self.lag_s = channels
            .iter()
            .map(|channel| channel.behind)
            .try_fold(0.0, |most: f64, behind| Some(most.max(behind?)));
    }

    /// Runs a query; returns `None` and records the missing grant if the account lacks the privilege.
    fn may_see<T>(
        &mut self,
        server: &mut Server,
        right: &str,
        ask: impl FnOnce(&mut Server) -> Result<T, mysql::Error>,
    ) -> Result<Option<T>, Failure> {
        match ask(server) {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if DENIED.contains(&error_code(&error)) => {
                self.role = Role::Unknown;
                self.in_step = false;
                self.lag_s = None;
                let account = account(server);
                self.unseen = vec![format!(
                    "the account {account} may not see how it replicates: GRANT {right} TO {account}"
                )];
                Ok(None)
            }
            Err(error) => Err(gone(&error)),
        }
    }

    /// Lag in seconds beyond the configured delay.
    pub fn late_s(&self) -> Option<f64> {
        self.lag_s.map(|lag| (lag - self.delay_s as f64).max(0.0))
    }

    /// Role, state and lag in one line.
    pub fn describe(&self) -> String {
        let mut words = self.role.describe().to_owned();
        if !self.state.is_empty() {
            words.push_str(&format!(", {}", self.state));
        }
        if matches!(self.role, Role::Replica | Role::GroupSecondary) {
            words.push_str(&match self.lag_s {
                Some(lag) => format!(", {lag:.0} s behind"),
                None => ", lag unknown".to_owned(),
            });
        }
        words
    }
}

/// Whether a group member lacks a majority. `known` is the number of members, and `all` has the state and role of each.
fn is_cut_off<'a>(known: usize, all: impl Iterator<Item = &'a str>) -> bool {
    let away = all.filter(|words| words.starts_with("UNREACHABLE")).count();
    away > 0 && away * 2 >= known
}

/// One replication channel of a replica.
struct Channel {
    name: String,
    source: Source,
    behind: Option<f64>,
    delay: u64,
    io: String,
    sql: String,
    error: String,
    error_code: u64,
}

/// Each row is converted at once: a row of many nulls takes far more memory than its bytes.
impl FromRow for Channel {
    fn from_row_opt(row: Row) -> Result<Self, FromRowError> {
        Ok(Self::of(&row))
    }
}

impl Channel {
    /// MariaDB's column names, and MySQL's before and after their renaming.
    fn of(row: &Row) -> Self {
        let long = |names: [&str; 2]| {
            let mut text = names
                .into_iter()
                .find_map(|name| row.get_opt::<Option<String>, _>(name))
                .and_then(Result::ok)
                .flatten()
                .unwrap_or_default();
            cut(&mut text, MAX_ERROR);
            text
        };
        let text = |names| {
            let mut text = long(names);
            cut(&mut text, MAX_NAME);
            text
        };
        let number = |names| text(names).parse().unwrap_or(0);
        let uuid = text(["Source_UUID", "Master_UUID"]);
        Self {
            name: text(["Channel_Name", "Connection_name"]),
            source: Source {
                server_id: number(["Source_Server_Id", "Master_Server_Id"]),
                uuid: (!uuid.is_empty()).then_some(uuid),
                host: text(["Source_Host", "Master_Host"]),
                port: number(["Source_Port", "Master_Port"]),
            },
            behind: text(["Seconds_Behind_Source", "Seconds_Behind_Master"])
                .parse()
                .ok(),
            delay: number(["SQL_Delay", "SQL_Delay"]),
            io: text(["Replica_IO_Running", "Slave_IO_Running"]),
            sql: text(["Replica_SQL_Running", "Slave_SQL_Running"]),
            error: ["Last_SQL_Error", "Last_IO_Error"]
                .into_iter()
                .map(|name| long([name, name]))
                .find(|text| !text.is_empty())
                .unwrap_or_default(),
            error_code: ["Last_SQL_Errno", "Last_IO_Errno"]
                .into_iter()
                .map(|name| number([name, name]))
                .find(|code| *code != 0)
                .unwrap_or(0),
        }
    }

    /// The replica threads that do not run, in words.
    fn stopped(&self) -> Option<String> {
        if self.io == "Yes" && self.sql == "Yes" {
            return None;
        }
        let mut words = if self.sql == "Yes" {
            format!("IO thread: {}", self.io)
        } else {
            format!("SQL thread: {}", self.sql)
        };
        if self.error_code != 0 {
            words.push_str(&format!(" (error {})", self.error_code));
        }
        Some(words)
    }
}

/// Number of replicas that fetch from a MySQL server. Counts only sessions that the account may see.
fn dumps(server: &mut Server) -> u64 {
    if server.is_mariadb() {
        return 0;
    }
    server
        .value(
            "SELECT COUNT(*) FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%'",
        )
        .ok()
        .flatten()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

fn shown(
    server: &mut Server,
    what: &str,
    names: &str,
) -> Result<BTreeMap<String, String>, Failure> {
    let pairs = server
        .pairs(&format!(
            "SHOW GLOBAL {what} WHERE Variable_name IN ({names})"
        ))
        .map_err(|error| gone(&error))?;
    Ok(pairs
        .into_iter()
        .map(|(name, value)| (name.to_ascii_lowercase(), value))
        .collect())
}

fn gone(error: &mysql::Error) -> Failure {
    Failure::new(
        Exit::Connect,
        format!("the server does not answer: {}", plain(error)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::rogue::{self, Case};

    #[test]
    fn hostile_replica_is_bounded() {
        let value = "x".repeat(60_000);
        // Each row is a channel, whatever its columns are.
        let channels = rogue::rows(1, &[["x"].as_slice(); 700]);
        let mut case = Case::harmless();
        let harmless = case.answer.clone();
        case.answer = std::sync::Arc::new(move |statement: &str| match statement {
            _ if statement.contains("REPLICA STATUS") => channels.clone(),
            _ if statement.contains("SHOW GLOBAL") => {
                rogue::rows(2, &[&["server_uuid", &value], &["server_id", "7"]])
            }
            _ => harmless(statement),
        });
        let (_folder, args) = case.start();
        let mut server = Server::connect(&args).unwrap();
        let found = Membership::read(&mut server).unwrap();
        assert_eq!((found.role, found.server_id), (Role::Replica, 7));
        assert_eq!(found.uuid.map(|uuid| uuid.len()), Some(MAX_NAME));
        assert!(!found.in_step);
        assert_eq!(found.sources.len(), MAX_SOURCES);
    }

    #[test]
    fn membership_is_bounded() {
        let source = Source {
            server_id: 1,
            uuid: None,
            host: "h".into(),
            port: 3306,
        };
        let mut replica = crate::cluster::group::tests::replica(1, 9);
        replica.sources = vec![source; MAX_SOURCES + 1];
        (replica.errors, replica.state) = ("e".repeat(MAX_ALL + 1), "s".repeat(MAX_ALL + 1));
        replica.bound();
        assert_eq!(replica.sources.len(), MAX_SOURCES);
        assert_eq!(
            (replica.errors.len(), replica.state.len()),
            (MAX_ALL, MAX_ALL)
        );
    }

    #[test]
    fn a_member_without_a_majority_is_cut_off() {
        let off = |all: &[&str]| is_cut_off(all.len(), all.iter().copied());
        assert!(!off(&["ONLINE PRIMARY"]));
        assert!(!off(&[
            "ONLINE PRIMARY",
            "ONLINE SECONDARY",
            "UNREACHABLE SECONDARY"
        ]));
        assert!(off(&["ONLINE PRIMARY", "UNREACHABLE SECONDARY"]));
        assert!(off(&[
            "ONLINE PRIMARY",
            "UNREACHABLE SECONDARY",
            "UNREACHABLE SECONDARY"
        ]));
    }
}
