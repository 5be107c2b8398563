//! A change of a server as a list of steps: shown as a table, confirmed, executed, and undone if a step fails.
//!
//! [`crate::enable`], [`crate::disable`] and [`switch`] make a [`Plan`] for a server. The command and the console show
//! and execute it. A rolling change of a cluster is a loop around that.

use crate::failure::Failure;
use crate::process::Process;
use crate::server::Server;
use crate::terminal;

pub mod digest;
mod journal;
mod plan;
pub mod pool;
mod run;
pub mod switch;

pub use journal::Reopen;
pub use plan::{OPTION_LINE, Plan, Row, Step};
pub use run::{Kind, Run};

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

/// Asks the administrator to confirm. `yes` skips the question.
///
/// # Errors
/// There is no terminal.
pub fn confirmed(yes: bool) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    let wanted = terminal::confirm("Continue?").ok_or_else(|| {
        Failure::usage("there is no terminal to ask on: add --yes to proceed without asking")
    })?;
    if !wanted {
        terminal::say!("Nothing was changed.");
    }
    Ok(wanted)
}
