//! Forms clusters and promotes standbys. Each kind of cluster is a file; this module has the common interface.

mod galera;
mod group;
mod replicas;
pub mod wiring;

use std::path::{Path, PathBuf};

use anyhow::Result;
use private_server::Server;

use super::name::ClusterName;
use wiring::Wiring;

/// # Errors
/// This machine lacks a requirement of the cluster.
pub fn require(name: ClusterName) -> Result<()> {
    match name {
        ClusterName::Galera => galera::require(),
        ClusterName::Replicas | ClusterName::GroupReplication => Ok(()),
    }
}

impl ClusterName {
    /// Options of a node in addition to the common ones.
    pub fn options(self, wiring: &Wiring, node: usize) -> Vec<String> {
        let mut options = vec![
            format!("--server-id={}", node + 1),
            "--skip-name-resolve".into(),
            "--binlog-format=ROW".into(),
        ];
        if !wiring.flavour.is_mysql() {
            // Counts the statements of `bpe warm` by account; MySQL always does.
            options.push("--userstat=ON".into());
        }
        options.extend(match self {
            ClusterName::Replicas => replicas::options(wiring),
            ClusterName::Galera => galera::options(wiring, node),
            ClusterName::GroupReplication => group::options(wiring, node),
        });
        options
    }

    /// Directory of programs that its servers call, in addition to $PATH.
    pub fn programs(self) -> Option<PathBuf> {
        match self {
            ClusterName::Galera => galera::programs(),
            ClusterName::Replicas | ClusterName::GroupReplication => None,
        }
    }

    /// Additional options for the first start of the first node.
    pub fn first_start(self) -> &'static [&'static str] {
        match self {
            ClusterName::Galera => &["--wsrep-new-cluster"],
            _ => &[],
        }
    }

    /// Creates the accounts and tables of every node, on the server whose files are copied.
    ///
    /// # Errors
    /// A statement fails.
    pub fn prepare(self, server: &Server) -> Result<()> {
        server.sql(
            "CREATE TABLE sbtest.alive (id INT PRIMARY KEY, moment TIMESTAMP(6)) ENGINE=InnoDB",
        )?;
        match self {
            ClusterName::Replicas => replicas::prepare(server),
            ClusterName::Galera => galera::prepare(server),
            ClusterName::GroupReplication => group::prepare(server),
        }
    }

    /// Call after a node was started; the earlier ones run.
    ///
    /// # Errors
    /// The node does not join the cluster.
    pub fn join(self, wiring: &Wiring, node: usize, server: &Server) -> Result<()> {
        match self {
            ClusterName::Replicas => replicas::join(wiring, node, server),
            ClusterName::Galera => galera::wait_until_synced(server),
            ClusterName::GroupReplication => group::join(node, server),
        }
    }

    /// Call after the primary has died. Returns when `standby` accepts writes in its place. `dead` is the clients' address
    /// of the primary.
    ///
    /// # Errors
    /// The promotion fails.
    pub fn promote(self, dead: &Path, standby: &Server) -> Result<()> {
        match self {
            ClusterName::Replicas => replicas::promote(dead, standby)?,
            ClusterName::Galera => galera::wait_for_the_others(standby)?,
            ClusterName::GroupReplication => group::wait_for_the_election(standby)?,
        }
        standby.sql("REPLACE INTO sbtest.alive VALUES (1, NOW(6))")?;
        Ok(())
    }
}
