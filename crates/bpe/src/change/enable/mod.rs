//! `bpe enable`: installs the extension on a running server, switches it on, lowers the buffer pool by the extension's
//! memory, and makes all of that permanent.
//!
//! [`plan`] reads the server's state with the help of [`checks`], and refuses impossible requests before any change.
//! [`crate::change`] executes the [`steps`], and undoes all of them if one fails. If the hooks cannot see the server's
//! native asynchronous I/O, [`native_aio`] offers to disable it for the next start. The record
//! ([`crate::installation::install_state`]) keeps the original state for `bpe disable`. A repeated run changes only
//! differences.

use std::path::PathBuf;

use super::Plan;
use crate::connect::maintenance::check_rights;
use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::installation::disk;
use crate::support::failure::Failure;

mod checks;
mod facts;
mod native_aio;
mod options;
mod plan;
mod steps;

pub use facts::persisted;
use options::DesiredOptions;
pub use options::{Locations, Request};

/// The plan of `bpe enable` for the server.
///
/// # Errors
/// Why it is impossible; nothing was changed.
pub fn plan(
    server: &mut Server,
    request: &Request,
    locations: &Locations,
) -> Result<Plan, Failure> {
    let desired = DesiredOptions::of(request)?;
    check_rights(server)?;
    plan::make(server, &desired, request, locations)
}

/// As [`plan`], but first offers to disable native asynchronous I/O if the server needs that. The flag is `false` for
/// this offer: it does not enable the extension.
///
/// # Errors
/// As [`plan`].
pub fn plan_or_offer(
    server: &mut Server,
    request: &Request,
    locations: &Locations,
) -> Result<(Plan, bool), Failure> {
    let desired = DesiredOptions::of(request)?;
    check_rights(server)?;
    Ok(match native_aio::offer(server, locations)? {
        Some(offer) => (offer, false),
        None => (plan::make(server, &desired, request, locations)?, true),
    })
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
    let desired = DesiredOptions {
        paths: disk::split(path).map_err(|why| Failure::usage(format!("the path: {why}")))?,
        size,
        percent: None,
        settings: Vec::new(),
    };
    let data = server.variable("datadir")?.unwrap_or_default();
    let copied = checks::is_copied(server)?;
    checks::check_paths(process, &desired, &data, copied, notes)
}
