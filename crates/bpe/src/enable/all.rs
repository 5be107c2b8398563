//! `bpe enable --all`: the same on all servers of a cluster, one after the other.

use std::path::Path;
use std::process::ExitCode;

use super::apply;
use super::plan::Plan;
use super::wish::{Args, Wish};
use crate::cluster::look;
use crate::cluster::rolling::{self, Change, Step};
use crate::connection;
use crate::failure::Failure;
use crate::maintenance::check_rights;
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

impl Enable<'_> {
    /// As for this server alone.
    fn args(&self, number: usize) -> Args {
        let (all, server) = (self.args, &self.servers[number]);
        Args {
            path: server.path.clone().or_else(|| all.path.clone()),
            size: server.size.or(all.size),
            instances: all.instances,
            io_capacity: all.io_capacity,
            tables: all.tables.clone(),
            keep_pool: all.keep_pool,
            views: all.views,
            all: None,
            pace: all.pace.clone(),
            places: all.places.clone(),
            yes: true,
            connection: connection::Args::default(),
        }
    }
}

impl Change for Enable<'_> {
    fn is_on(&self) -> bool {
        true
    }

    fn back(&self) -> String {
        format!("bpe disable --all {}", shell_path(self.file))
    }

    fn plan(&self, server: &mut Server, number: usize) -> Result<Step<'_>, Failure> {
        let args = self.args(number);
        let wish = Wish::of(&args)?;
        check_rights(server)?;
        let plan = Plan::make(server, &wish, &args)?;
        Ok(Step {
            text: plan.to_string(),
            is_nothing: plan.is_empty(),
            carry_out: Box::new(move |server, told, reopen| {
                apply::apply(server, plan, told, reopen)
            }),
        })
    }
}
