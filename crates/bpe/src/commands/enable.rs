//! `bpe enable`: on one server, or on all servers of a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::change::apply;
use crate::change::enable::{self, DesiredOptions, Locations, Request};
use crate::cluster::rolling::{self, Change, Pace};
use crate::connect::server::Server;
use crate::connect::{self, servers_file};
use crate::support::failure::Exit;
use crate::support::quote::shell_path;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    request: Request,
    /// Enable it on all servers of a cluster, one after the other: replicas first, the primary last. FILE names them, as for
    /// `bpe console --servers`; `path` and `size` there come before these options
    #[arg(long, value_name = "FILE", conflicts_with = "connection")]
    all: Option<PathBuf>,
    #[command(flatten)]
    pace: Pace,
    #[command(flatten)]
    locations: Locations,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    connection: connect::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.all {
        let servers = servers_file::read(file)?;
        let change = Change {
            is_on: true,
            revert: format!("bpe disable --all {}", shell_path(file)),
            plan: &|server, number| {
                let (all, named) = (&args.request, &servers[number]);
                let request = Request {
                    path: named.path.clone().or_else(|| all.path.clone()),
                    size: named.size.or(all.size),
                    ..all.clone()
                };
                enable::plan(server, &DesiredOptions::of(&request)?, &args.locations)
            },
        };
        return Ok(rolling::run(&servers, &args.pace, args.yes, &change)?.into());
    }
    // Refuses invalid options without a server.
    let desired = DesiredOptions::of(&args.request)?;
    let mut target = args.connection.target()?;
    let mut server = Server::log_in(&mut target)?;
    let (plan, enables) = enable::plan_or_offer(&mut server, &desired, &args.locations)?;
    Ok(match apply(plan, &mut server, &target, args.yes)? {
        Exit::Ok if !enables => Exit::No,
        exit => exit,
    }
    .into())
}
