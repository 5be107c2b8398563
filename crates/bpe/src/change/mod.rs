//! One engine for every change of a server: planned, shown, confirmed, executed, and undone if a step fails.
//!
//! # Terms
//! - *Plan*: a list of steps for one server, made before the first change. A plan without steps changes nothing.
//! - *Step*: the rows that the administrator sees, an action, and its undo entries.
//! - *Undo log*: the inverse of each completed action, undone newest first.
//! - *Record*: the original settings of a server in a state file ([`crate::installation::install_state`]). A step writes it
//!   before it acts, so `bpe disable` can undo a change whose process died.
//! - *Digest*: a hash for each topic of a plan. The console executes a plan only if its digest equals the shown one.
//!
//! # Kinds
//! | kind | made by | after a failed step |
//! |---|---|---|
//! | `Install` | [`enable`] | all completed steps are undone |
//! | `Remove` | [`disable`] | the next step runs; a second run completes the rest |
//! | `Set` | [`switch`], settings of the console | variables are set back; a restart of the server forgets them |
//!
//! # Life of a change
//! 1. [`enable`], [`disable`] or [`switch`] reads the server and makes a [`Plan`]. Impossible requests end here.
//! 2. [`apply`] (terminal) or the console shows the plan and asks.
//! 3. `Plan::carry_out` runs the steps on a [`Run`]. After each step it checks for an interruption.
//! 4. `Run::conclude` undoes the steps after a failure. If the connection is lost, it logs in again and first ends the
//!    statement that still runs. It restores `super_read_only` in every case.
//!
//! Reading order: `plan`, `run`, `undo_log`, [`setting`], [`pool`], [`enable`], [`disable`], [`switch`], [`views`],
//! [`digest`], `confirmation`. [`crate::cluster::rolling`] repeats this for each server of a cluster.

use crate::connect::process::Process;
use crate::connect::server::Server;

mod confirmation;
pub mod digest;
pub mod disable;
pub mod enable;
mod plan;
pub mod pool;
mod run;
pub mod setting;
pub mod switch;
mod undo_log;
pub mod views;

pub use confirmation::{apply, confirmed};
pub use plan::{OPTION_LINE, Plan, Row, Step};
pub use run::{Kind, Run};
pub use undo_log::Reopen;

/// Flavour, version, address and process of a server, for messages.
pub fn title(server: &Server, process: Option<&Process>) -> String {
    let mut title = format!(
        "{} {} at {}",
        server.flavour, server.version, server.address
    );
    if let Some(process) = process {
        title.push_str(&format!(
            " (process {}, user {})",
            process.pid,
            process.user_name()
        ));
    }
    title
}
