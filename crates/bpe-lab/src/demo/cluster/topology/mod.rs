//! How servers become a cluster, and who takes over. Each kind of cluster is a file; here is what is asked of them.

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
/// When this machine lacks something for such a cluster.
pub fn require(name: ClusterName) -> Result<()> {
    match name {
        ClusterName::Galera => galera::require(),
        ClusterName::Replicas | ClusterName::GroupReplication => Ok(()),
    }
}

impl ClusterName {
    /// Options of a node beyond those of every demonstration.
    pub fn options(self, wiring: &Wiring, node: usize) -> Vec<String> {
        let mut options = vec![
            format!("--server-id={}", node + 1),
            "--skip-name-resolve".into(),
            "--binlog-format=ROW".into(),
        ];
        if !wiring.flavour.is_mysql() {
            // By which the statements of `bpe warm` are counted; MySQL does so always.
            options.push("--userstat=ON".into());
        }
        options.extend(match self {
            ClusterName::Replicas => replicas::options(wiring),
            ClusterName::Galera => galera::options(wiring, node),
            ClusterName::GroupReplication => group::options(wiring, node),
        });
        options
    }

    /// Where programs lie that its servers call, beside those in $PATH.
    pub fn programs(self) -> Option<PathBuf> {
        match self {
            ClusterName::Galera => galera::programs(),
            ClusterName::Replicas | ClusterName::GroupReplication => None,
        }
    }

    /// More of them, for the first start of the first node.
    pub fn first_start(self) -> &'static [&'static str] {
        match self {
            ClusterName::Galera => &["--wsrep-new-cluster"],
            _ => &[],
        }
    }

    /// Accounts and all else that every node has, on the server whose files they are copied from.
    ///
    /// # Errors
    /// Those of the server.
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

    /// A node has been started; the ones before it run.
    ///
    /// # Errors
    /// When it does not become part of the cluster.
    pub fn join(self, wiring: &Wiring, node: usize, server: &Server) -> Result<()> {
        match self {
            ClusterName::Replicas => replicas::join(wiring, node, server),
            ClusterName::Galera => galera::wait_until_synced(server),
            ClusterName::GroupReplication => group::join(node, server),
        }
    }

    /// The primary has died: returns when `standby` accepts writes in its place. `dead` is how clients reached the primary.
    ///
    /// # Errors
    /// When it does not.
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
