//! `bpe disable`: on one server, or on all servers of a cluster.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::change::enable::Locations;
use crate::change::{Plan, apply, disable};
use crate::cluster::rolling::{self, Change, Pace};
use crate::connect::server::Server;
use crate::connect::{self, servers_file};
use crate::support::failure::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// Leave bpe.so in the server's plugin_dir
    #[arg(long)]
    keep_library: bool,
    /// Folder that was given to `bpe enable --conf-dir`
    #[arg(long, value_name = "FOLDER")]
    conf_dir: Option<PathBuf>,
    /// Folder that was given to `bpe enable --state-dir`
    #[arg(long, value_name = "FOLDER", env = "BPE_STATE_DIR")]
    state_dir: Option<PathBuf>,
    /// Disable it on all servers of a cluster, one after the other: replicas first, the primary last. FILE names them, as for
    /// `bpe console --servers`
    #[arg(long, value_name = "FILE", conflicts_with = "connection")]
    all: Option<PathBuf>,
    #[command(flatten)]
    pace: Pace,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    #[command(flatten)]
    connection: connect::Args,
}

impl Args {
    fn plan(&self, server: &mut Server) -> Result<Plan, Failure> {
        let locations = Locations {
            library: None,
            conf_dir: self.conf_dir.clone(),
            state_dir: self.state_dir.clone(),
        };
        disable::plan(server, &locations, self.keep_library)
    }
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.all {
        let servers = servers_file::read(file)?;
        let change = Change {
            is_on: false,
            revert: format!(
                "bpe enable --all {} --path PATH --size SIZE",
                file.display()
            ),
            plan: &|server, _| args.plan(server),
        };
        return Ok(rolling::run(&servers, &args.pace, args.yes, &change)?.into());
    }
    let mut target = args.connection.target()?;
    let mut server = Server::log_in(&mut target)?;
    let plan = args.plan(&mut server)?;
    Ok(apply(plan, &mut server, &target, args.yes)?.into())
}
