//! Size and duration of a failover demonstration.

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use super::load::Demand;
use super::name::{ClusterName, NODES};
use crate::demo::args::{Args, SideName};
use crate::demo::plan::{Plan, Times};

const MIB: u64 = 1 << 20;

/// I/Os per second of each volume, reads and writes together.
pub const IOPS: u64 = 1500;
/// Requests per second.
const RATE: f64 = 2400.0;

/// One in this many requests writes. This is the maximum for the volume of a node that only applies changes: a group member
/// writes to its disk more often per transaction. At twice this rate members fell behind, and the takeover waited for them.
fn writes_every(name: ClusterName) -> u64 {
    match name {
        ClusterName::Replicas | ClusterName::Galera => 32,
        ClusterName::GroupReplication => 64,
    }
}
/// Seconds for starting and stopping the servers, forming the cluster, and detecting the primary's death.
const AROUND: u64 = 35;
/// Seconds for copying one GiB of tables to each node.
const COPYING: f64 = 12.0;

/// The variants of a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standby {
    /// The extension is on, with the pages that replication cached.
    Cold,
    /// The same, kept warm from the primary.
    Warm,
    /// The extension is off on all servers.
    Off,
}

impl Standby {
    /// Title for the report.
    pub fn title(self) -> &'static str {
        match self {
            Standby::Cold => "cold standby",
            Standby::Warm => "warm standby",
            Standby::Off => "extension off",
        }
    }
}

/// One demonstration.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub name: ClusterName,
    /// Pool, cache and tables.
    pub size: Plan,
    pub demand: Demand,
    pub standbys: Vec<Standby>,
    /// Maximum seconds for filling the primary's cache.
    pub fill: u64,
    /// Maximum seconds for warming the standby.
    pub warming: u64,
    /// Seconds measured before the kill, and after the promotion.
    pub before: u64,
    pub after: u64,
}

impl ClusterPlan {
    /// # Errors
    /// The server does not support this cluster.
    pub fn new(name: ClusterName, args: &Args) -> Result<ClusterPlan> {
        let is_mysql = args.flavour().is_mysql();
        match name {
            ClusterName::Galera if is_mysql => {
                bail!("Galera is shown with MariaDB: leave out --server")
            }
            ClusterName::GroupReplication if !is_mysql => {
                bail!("MariaDB has no Group Replication: leave out --server")
            }
            _ => {}
        }
        let (pool, fill, before, after) = match args.quick {
            true => (40 * MIB, 40, 10, 45),
            false => (64 * MIB, 90, 30, 75),
        };
        let times = Times {
            lead: 0,
            lead_max: 0,
            test: args.time.unwrap_or(before),
            warm_max: fill,
            switch: 0,
            after,
        };
        let pool = match args.pool[..] {
            [] => pool * args.scale,
            [pool] => pool,
            _ => bail!("--cluster takes one --pool only"),
        };
        let mut standbys = vec![Standby::Cold, Standby::Warm];
        if !args.quick && args.sides.contains(&SideName::Off) {
            standbys.push(Standby::Off);
        }
        Ok(ClusterPlan {
            name,
            size: Plan {
                variables: args.set.clone(),
                ..Plan::new(pool, times)
            },
            demand: Demand {
                rate: RATE,
                writes_every: writes_every(name),
            },
            standbys,
            fill,
            warming: fill / 2,
            before: times.test,
            after,
        })
    }

    /// Disk space for the loaded tables, their prepared copy, and for each node a copy with its logs and its cache.
    pub fn disk_space(&self) -> u64 {
        let data = self.size.data() * 5 / 4;
        let nodes = NODES as u64;
        data + (nodes + 1) * (data + (1 << 30)) + nodes * self.size.cache
    }

    /// Approximate seconds for copying the tables to all nodes.
    pub fn copying(&self) -> u64 {
        (self.size.data() as f64 / (1_u64 << 30) as f64 * COPYING) as u64 + 3
    }

    /// Approximate total seconds.
    pub fn estimate(&self) -> u64 {
        let each = |standby: &Standby| {
            let (fill, warming) = match standby {
                Standby::Cold => (self.fill * 2 / 3, 0),
                Standby::Warm => (self.fill * 2 / 3, self.warming / 2),
                Standby::Off => (self.before / 2, 0),
            };
            self.copying() + AROUND + fill + warming + self.before + self.after
        };
        let all: u64 = self.standbys.iter().map(each).sum();
        self.size.preparation() + self.copying() + all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn plan(words: &[&str]) -> Result<ClusterPlan> {
        let words = ["demo", "--cluster"].iter().chain(words);
        let args = Cli::try_parse_from(words)?.args;
        ClusterPlan::new(args.cluster.unwrap(), &args)
    }

    #[test]
    fn it_ends_within_its_promise() {
        for name in ["replicas", "galera", "group-replication"] {
            let whole = plan(&[name]).unwrap();
            assert_eq!(whole.standbys.len(), 3);
            assert!(whole.estimate() <= 900, "{name}: {} s", whole.estimate());
            let quick = plan(&[name, "--quick"]).unwrap();
            assert_eq!(quick.standbys, [Standby::Cold, Standby::Warm]);
            assert!(quick.estimate() < whole.estimate() * 2 / 3);
        }
    }

    #[test]
    fn a_cluster_has_its_server() {
        assert!(plan(&["galera", "--server", "mysql-9.7"]).is_err());
        assert!(plan(&["group-replication", "--server", "mariadb-10.11"]).is_err());
        assert!(plan(&["replicas", "--server", "mysql-9.7"]).is_ok());
        assert!(plan(&["replicas", "--pool", "64M,128M"]).is_err());
    }
}
