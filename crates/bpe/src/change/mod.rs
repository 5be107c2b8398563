//! A change of a server as a list of steps: shown as a table, confirmed, executed, and undone if a step fails.
//!
//! [`crate::change::enable`], [`crate::change::disable`] and [`switch`] make a [`Plan`] for a server. The command and the console show
//! and execute it. A rolling change of a cluster is a loop around that.

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
