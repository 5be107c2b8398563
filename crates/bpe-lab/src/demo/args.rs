//! Arguments of the demonstration.

use std::path::PathBuf;

use bpe::{console, size};
use serde::{Deserialize, Serialize};

use super::cluster::name::ClusterName;
use crate::sysbench::Workload;

/// What clap parses.
#[derive(clap::Args)]
pub struct Args {
    /// The server: mariadb-10.11, mariadb-11.8 or mysql-9.7
    /// [default: mariadb-10.11; with --cluster group-replication mysql-9.7]
    #[arg(long, value_parser = server_name)]
    pub server: Option<private_server::Flavour>,
    /// Sizes of the buffer pool, each with a table of its own, such as 128M,256M
    /// [default: 128M, with --quick 40M]
    #[arg(long, value_delimiter = ',', value_parser = size::parse)]
    pub pool: Vec<u64>,
    /// Multiplies the default pool, and with it data and cache, for bigger machines
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1024),
          conflicts_with = "pool")]
    pub scale: u64,
    /// Measure restarts instead: the server with the extension is stopped and started, killed and started, and started with an empty cache, each under the mixed load
    #[arg(long)]
    pub restart: bool,
    /// Show a failover instead: three servers on volumes of their own, of which the primary is killed under load; with a cold standby, with one that is kept warm, and without the extension, in under 15 minutes
    #[arg(long, value_enum, value_name = "KIND", conflicts_with = "restart")]
    pub cluster: Option<ClusterName>,
    /// Do not measure: prepare the server and its tables, and open the console with the experience page on them, until Ctrl-C
    #[arg(long, conflicts_with_all = ["restart", "cluster"])]
    pub ui: bool,
    /// A short run, under four minutes (with --restart five): smaller, and less exact
    #[arg(long)]
    pub quick: bool,
    /// Seconds of each measured test [default: 30, with --quick 10; with --restart those before each restart]
    #[arg(long, value_parser = clap::value_parser!(u64).range(3..=3600))]
    pub time: Option<u64>,
    /// Set a variable of the extension, such as compression=lz4; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = Variable::parse)]
    pub set: Vec<Variable>,
    /// Folder for the report and, while it runs, for the servers: on the fast local disk
    /// [default: demo-SERVER in the current folder]
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// Load new tables instead of using those kept from an earlier run, and keep none
    #[arg(long)]
    pub fresh: bool,
    /// The extension's library [default: bpe.so beside this program]
    #[arg(long)]
    pub library: Option<PathBuf>,
    /// Run some sides only (for work on the demonstration itself)
    #[arg(long, hide = true, value_delimiter = ',', default_values = ["off", "on", "ceiling"])]
    pub sides: Vec<SideName>,
    /// Run some tests only (for work on the demonstration itself)
    #[arg(long, hide = true, value_delimiter = ',',
          default_values = ["read_only", "write_only", "read_write"])]
    pub tests: Vec<Workload>,
    /// Make table and report anew from a results.json (for work on the report itself)
    #[arg(long, hide = true, value_name = "JSON")]
    pub render: Option<PathBuf>,
    #[command(flatten, next_help_heading = "With --ui")]
    pub listening: console::Listening,
}

impl Args {
    /// The requested server, or the default one.
    pub fn flavour(&self) -> private_server::Flavour {
        self.server.unwrap_or(match self.cluster {
            Some(cluster) => cluster.flavour(),
            None => private_server::Flavour::MariaDb1011,
        })
    }

    /// Adjusts the arguments: a restart demonstration runs one side, without tests.
    pub fn completed(mut self) -> Args {
        if self.restart {
            self.sides = vec![SideName::On];
            self.tests = Vec::new();
        }
        self
    }

    /// The directory for report and work.
    pub fn folder(&self) -> PathBuf {
        self.folder
            .clone()
            .unwrap_or_else(|| PathBuf::from(format!("demo-{}", self.flavour().name())))
    }
}

fn server_name(text: &str) -> Result<private_server::Flavour, String> {
    private_server::Flavour::from_name(text).ok_or_else(|| {
        let names: Vec<&str> = private_server::Flavour::ALL.map(|f| f.name()).to_vec();
        format!("known servers are {}", names.join(", "))
    })
}

/// Where the data is and whether the extension helps.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    clap::ValueEnum,
)]
#[serde(rename_all = "snake_case")]
pub enum SideName {
    /// Data on the volume, without the extension.
    Off,
    /// Data on the volume, with the extension.
    On,
    /// All data on the fast disk.
    Ceiling,
}

impl SideName {
    /// Title for table and report.
    pub fn title(self) -> &'static str {
        match self {
            SideName::Off => "off",
            SideName::On => "on",
            SideName::Ceiling => "ceiling",
        }
    }
}

/// A variable of the extension and its value, for `SET GLOBAL`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Name without `bpe_`.
    pub name: String,
    pub value: String,
}

impl Variable {
    /// Parses `NAME=VALUE`; the prefix `bpe_` of the name is optional.
    pub fn parse(text: &str) -> Result<Variable, String> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let name = name.strip_prefix("bpe_").unwrap_or(name);
        let word = |text: &str| {
            !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        };
        if !word(name) || !word(value) {
            return Err("write it as NAME=VALUE, such as compression=lz4".into());
        }
        let own = [
            "enabled",
            "path",
            "size",
            "bypass",
            "persist",
            "persist_path",
        ];
        if own.contains(&name) {
            return Err(format!("bpe_{name} is set by the demonstration itself"));
        }
        Ok(Variable {
            name: name.into(),
            value: value.into(),
        })
    }

    /// The statement that sets it.
    pub fn statement(&self) -> String {
        let Variable { name, value } = self;
        if value.bytes().all(|byte| byte.is_ascii_digit()) {
            format!("SET GLOBAL bpe_{name} = {value}")
        } else {
            format!("SET GLOBAL bpe_{name} = '{value}'")
        }
    }
}
