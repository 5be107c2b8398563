//! Shows a plan on the terminal, asks the administrator, and executes it.

use super::Plan;
use crate::connect::Target;
use crate::connect::server::Server;
use crate::support::failure::{Exit, Failure};
use crate::support::{notifier, terminal};

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

/// Shows the plan and executes it after a confirmation. A plan without steps needs none.
///
/// # Errors
/// There is no terminal, or a step failed.
pub fn apply(plan: Plan, server: &mut Server, target: &Target, yes: bool) -> Result<Exit, Failure> {
    terminal::say!("{plan}");
    if plan.is_empty() {
        return Ok(Exit::Ok);
    }
    if !confirmed(yes)? {
        return Ok(Exit::No);
    }
    // Catches signals, so that a lifted super_read_only is always restored.
    let mut notifier = notifier::TerminalNotifier::catching_signals()?;
    // `log_in` has a timeout, which detects a server that does not answer. Ctrl-C would not end the wait for it.
    plan.carry_out(server, &mut notifier, &|| {
        Server::log_in(&mut target.clone())
    })?;
    Ok(Exit::Ok)
}
