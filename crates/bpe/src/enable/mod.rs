//! `bpe enable`: installs the extension on a running server, switches it on, lowers the buffer
//! pool by what it takes, and makes all of that permanent.
//!
//! [`plan`] finds out what there is and what must change, with the help of [`checks`], and refuses
//! what cannot work before anything is touched; [`apply`] does it step by step and puts everything back when one fails.
//! Where the server's native asynchronous I/O cannot be followed, [`native_aio`] offers to switch it off for the next start.
//! [`all`] does it on all servers of a cluster, one after the other.
//! What was there before is kept in a [`crate::record::Record`] for `bpe disable`. Running it again
//! changes only what differs.

use std::path::PathBuf;
use std::process::ExitCode;

use crate::cluster::rolling::Pace;
use crate::connection;
use crate::failure::{Exit, Failure};
use crate::maintenance::check_rights;
use crate::part::Amount;
use crate::process::Process;
use crate::server::Server;
use crate::terminal::say;
use crate::{disk, terminal, told};

mod all;
mod apply;
mod checks;
mod describe;
mod native_aio;
mod plan;
mod wish;

pub use apply::apply;
pub use describe::{Change, pool_stays};
pub use plan::Plan;
use wish::Wish;
pub use wish::{Args, Places};

/// What `bpe enable` with this path and size, and no other option, would do on the server.
///
/// # Errors
/// Whatever stands in the way; nothing was changed.
pub fn plan(server: &mut Server, path: &str, size: u64, places: &Places) -> Result<Plan, Failure> {
    let args = Args {
        path: Some(path.to_owned()),
        size: Some(Amount::Bytes(size)),
        instances: None,
        io_capacity: None,
        tables: None,
        keep_pool: false,
        views: false,
        all: None,
        pace: Pace::default(),
        places: places.clone(),
        yes: true,
        connection: connection::Args::default(),
    };
    let wish = Wish::of(&args)?;
    check_rights(server)?;
    Plan::make(server, &wish, &args)
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
    let wish = Wish::of(&args)?;
    let mut target = args.connection.target()?;
    let mut server = Server::log_in(&mut target)?;
    check_rights(&mut server)?;
    if let Some(ended) = native_aio::offer(&mut server, &args)? {
        return Ok(ended);
    }
    let plan = plan::Plan::make(&mut server, &wish, &args)?;
    say!("{}", plan.to_string().trim_end());
    if plan.is_empty() {
        return Ok(Exit::Ok.into());
    }
    if !args.yes {
        match terminal::confirm("Continue?") {
            Some(true) => {}
            Some(false) => {
                say!("Nothing was changed.");
                return Ok(Exit::No.into());
            }
            None => {
                return Err(Failure::usage(
                    "there is no terminal to ask on: add --yes to proceed without asking",
                )
                .into());
            }
        }
    }
    let mut told = told::Terminal::catching_signals()?;
    // A server that does not answer is found out at logging in: Ctrl-C does not end what waits for it.
    let reopen = || Server::log_in(&mut target.clone());
    apply::apply(&mut server, plan, &mut told, &reopen)?;
    Ok(Exit::Ok.into())
}
