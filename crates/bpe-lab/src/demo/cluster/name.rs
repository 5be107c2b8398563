//! The supported clusters.

use private_server::Flavour;
use serde::{Deserialize, Serialize};

/// Number of servers in a cluster.
pub const NODES: usize = 3;

/// How the servers are kept alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum ClusterName {
    /// A primary, a standby, and a replica of the standby, asynchronous, by GTID
    Replicas,
    /// Galera, three nodes, of which one is written to
    Galera,
    /// MySQL Group Replication, three members with a single primary
    GroupReplication,
}

impl ClusterName {
    /// Title for the report.
    pub fn title(self) -> &'static str {
        match self {
            ClusterName::Replicas => "a primary and two replicas",
            ClusterName::Galera => "a Galera cluster of three nodes",
            ClusterName::GroupReplication => "a replication group of three members",
        }
    }

    /// The default server.
    pub fn flavour(self) -> Flavour {
        match self {
            ClusterName::GroupReplication => Flavour::MySql97,
            ClusterName::Replicas | ClusterName::Galera => Flavour::MariaDb1011,
        }
    }
}
