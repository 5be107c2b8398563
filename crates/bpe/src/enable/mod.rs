//! `bpe enable`: installs the extension on a running server, switches it on, lowers the buffer pool by the extension's
//! memory, and makes all of that permanent.
//!
//! [`plan`] reads the server's state with the help of [`checks`], and refuses impossible requests before any change.
//! [`crate::change`] executes the [`steps`], and undoes all of them if one fails. If the hooks cannot see the server's
//! native asynchronous I/O, [`native_aio`] offers to disable it for the next start. [`all`] changes all servers of a
//! cluster, one after the other. A [`crate::record::Record`] keeps the original state for `bpe disable`. A repeated run
//! changes only differences.

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
    /// The plan of `bpe enable` with these options for the server.
    fn plan(&self, server: &mut Server) -> Result<Plan, Failure> {
        let wish = Wish::of(self)?;
        check_rights(server)?;
        plan::make(server, &wish, self)
    }
}

/// The plan of `bpe enable` with only this path and size for the server.
///
/// # Errors
/// Why it is impossible; nothing was changed.
pub fn plan(server: &mut Server, path: &str, size: u64, places: &Places) -> Result<Plan, Failure> {
    let args = Args {
        path: Some(path.to_owned()),
        size: Some(Amount::Bytes(size)),
        places: places.clone(),
        ..Args::default()
    };
    args.plan(server)
}

/// Checks the cache paths as `enable` does. Returns the directories that do not exist yet.
///
/// # Errors
/// A path is unusable or lacks space.
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
    // Refuse invalid options without a server.
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
        // `log_in` has a timeout, which detects a server that does not answer. Ctrl-C would not end the wait for it.
        plan.carry_out(&mut server, &mut told, &|| {
            Server::log_in(&mut target.clone())
        })?;
    }
    Ok(if is_enabled { Exit::Ok } else { Exit::No }.into())
}
