//! `bpe enable`: installs the extension on a running server, switches it on, lowers the buffer pool by the extension's
//! memory, and makes all of that permanent.
//!
//! [`plan`] reads the server's state with the help of [`checks`], and refuses impossible requests before any change.
//! [`crate::change`] executes the [`steps`], and undoes all of them if one fails. If the hooks cannot see the server's
//! native asynchronous I/O, [`native_aio`] offers to disable it for the next start. The record
//! ([`crate::installation::install_state`]) keeps the original state for `bpe disable`. A repeated run changes only
//! differences.

use super::Plan;
use crate::connect::maintenance::check_rights;
use crate::connect::server::Server;
use crate::support::failure::Failure;

mod checks;
mod facts;
mod native_aio;
mod options;
mod plan;
mod steps;

pub use checks::{check_paths, snippet_folder};
pub use facts::persisted;
pub use options::{DesiredOptions, Locations, Request};

/// The plan of `bpe enable` for the server.
///
/// # Errors
/// Why it is impossible; nothing was changed.
pub fn plan(
    server: &mut Server,
    desired: &DesiredOptions,
    locations: &Locations,
) -> Result<Plan, Failure> {
    check_rights(server)?;
    plan::make(server, desired, locations)
}

/// As [`plan`], but first offers to disable native asynchronous I/O if the server needs that. The flag is `false` for
/// this offer: it does not enable the extension.
///
/// # Errors
/// As [`plan`].
pub fn plan_or_offer(
    server: &mut Server,
    desired: &DesiredOptions,
    locations: &Locations,
) -> Result<(Plan, bool), Failure> {
    check_rights(server)?;
    match native_aio::offer(server, locations)? {
        Some(offer) => Ok((offer, false)),
        None => Ok((plan::make(server, desired, locations)?, true)),
    }
}
