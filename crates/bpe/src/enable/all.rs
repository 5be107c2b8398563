//! `bpe enable --all`: enables the extension on all servers of a cluster, one after the other.

use std::path::Path;
use std::process::ExitCode;

use super::wish::Args;
use crate::change::Plan;
use crate::cluster::look;
use crate::cluster::rolling::{self, Change};
use crate::connection;
use crate::failure::Failure;
use crate::quote::shell_path;
use crate::server::Server;
use crate::servers_file::{self, Named};

struct Enable<'a> {
    file: &'a Path,
    args: &'a Args,
    servers: &'a [Named],
}

pub fn run(file: &Path, args: &Args) -> anyhow::Result<ExitCode> {
    let servers = servers_file::read(file)?;
    let nodes = look::nodes(&servers)?;
    let change = Enable {
        file,
        args,
        servers: &servers,
    };
    Ok(rolling::run(&nodes, &args.pace, args.yes, &change)?.into())
}

impl Change for Enable<'_> {
    fn is_on(&self) -> bool {
        true
    }

    fn back(&self) -> String {
        format!("bpe disable --all {}", shell_path(self.file))
    }

    /// The plan for this server alone.
    fn plan(&self, server: &mut Server, number: usize) -> Result<Plan, Failure> {
        let (all, named) = (self.args, &self.servers[number]);
        let args = Args {
            path: named.path.clone().or_else(|| all.path.clone()),
            size: named.size.or(all.size),
            connection: connection::Args::default(),
            ..all.clone()
        };
        args.plan(server)
    }
}
