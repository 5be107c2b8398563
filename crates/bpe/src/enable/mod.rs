//! `bpe enable`: installs the extension on a running server, switches it on, lowers the buffer
//! pool by what it takes, and makes all of that permanent.
//!
//! [`plan`] finds out what there is and what must change, with the help of [`checks`], and refuses what cannot work before anything is
//! touched. Its [`steps`] are carried out by [`crate::change`], which puts everything back when one fails.
//! Where the server's native asynchronous I/O cannot be followed, [`native_aio`] offers to switch it off for the next start.
//! [`all`] does it on all servers of a cluster, one after the other.
//! What was there before is kept in a [`crate::record::Record`] for `bpe disable`. Running it again
//! changes only what differs.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::change::{Plan, confirmed};
use crate::failure::{Exit, Failure};
use crate::maintenance::check_rights;
use crate::part::Amount;
use crate::process::Process;
use crate::server::Server;
use crate::terminal::say;
use crate::{disk, told};

mod all;
mod checks;
mod facts;
mod native_aio;
mod plan;
mod steps;
mod wish;

pub use facts::persisted;
use wish::Wish;
pub use wish::{Args, Places};

impl Args {
    /// What `bpe enable` with these options would do on the server.
    fn plan(&self, server: &mut Server) -> Result<Plan, Failure> {
        let wish = Wish::of(self)?;
        check_rights(server)?;
        plan::make(server, &wish, self)
    }
}

/// What `bpe enable` with this path and size, and no other option, would do on the server.
///
/// # Errors
/// Whatever stands in the way; nothing was changed.
pub fn plan(server: &mut Server, path: &str, size: u64, places: &Places) -> Result<Plan, Failure> {
    let args = Args {
        path: Some(path.to_owned()),
        size: Some(Amount::Bytes(size)),
        places: places.clone(),
        ..Args::default()
    };
    args.plan(server)
}

/// Checks the cache paths as `enable` does. Returns the folders that do not exist yet.
///
/// # Errors
/// A path that cannot be used, or has not enough room.
pub fn check_paths(
    server: &mut Server,
    process: &Process,
    path: &str,
    size: u64,
    notes: &mut Vec<String>,
) -> Result<Vec<PathBuf>, Failure> {
    let wish = Wish {
        paths: disk::split(path).map_err(|why| Failure::usage(format!("the path: {why}")))?,
        size,
        percent: None,
        settings: Vec::new(),
    };
    let data = server.variable("datadir")?.unwrap_or_default();
    let copied = checks::is_copied(server)?;
    checks::check_paths(process, &wish, &data, copied, notes)
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Some(file) = &args.all {
        return all::run(file, &args);
    }
    // Wrong options are refused without a server.
    let wish = Wish::of(&args)?;
    let mut target = args.connection.target()?;
    let mut server = Server::log_in(&mut target)?;
    check_rights(&mut server)?;
    let offered = native_aio::offer(&mut server, &args)?;
    let is_enabled = offered.is_none();
    let plan = match offered {
        Some(plan) => plan,
        None => plan::make(&mut server, &wish, &args)?,
    };
    say!("{plan}");
    if !plan.is_empty() {
        if !confirmed(args.yes)? {
            return Ok(Exit::No.into());
        }
        let mut told = told::Terminal::catching_signals()?;
        // A server that does not answer is found out at logging in: Ctrl-C does not end what waits for it.
        plan.carry_out(&mut server, &mut told, &|| {
            Server::log_in(&mut target.clone())
        })?;
    }
    Ok(if is_enabled { Exit::Ok } else { Exit::No }.into())
}
