//! The command line of `bpe`, and the subcommands that are not in another room.
//!
//! [`enable`] and [`disable`] make plans of [`crate::change`], for one server or a cluster. [`verify`] compares cached pages
//! with the data files, and [`rescue`] saves those that are damaged on disk. [`warm`] keeps a standby's cache as warm as the
//! primary's. [`walk`] limits their questions about all files of a server. [`recording`] is `bpe record`. [`ready`] answers load balancers. [`renamed`] explains names of earlier
//! versions.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::change::views;
use crate::observe::{status, top};
use crate::support::failure;
use crate::support::terminal::complain;
use crate::{compare, console, doctor};

mod disable;
mod enable;
pub mod manual;
mod ready;
mod recording;
mod renamed;
mod rescue;
mod verify;
mod walk;
mod warm;

#[derive(Parser)]
#[command(
    name = "bpe",
    version,
    about = "A buffer pool extension on fast local disks for stock MySQL and MariaDB",
    after_help = "Exit codes: 0 done (status: active), 1 no (not active, refused, doctor found an \
                  obstacle),\n2 wrong usage, 3 cannot connect, 4 a step failed, and its changes were undone \
                  or are named;\na comparison ended early.",
    disable_help_flag = true
)]
pub(crate) struct Cli {
    /// Print help
    // -h is the host, as for the mysql and mariadb clients.
    #[arg(long, action = clap::ArgAction::Help, global = true)]
    help: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Install the extension on a running server, switch it on and make that permanent
    Enable(enable::Args),
    /// Switch the extension off and undo everything `enable` did
    Disable(disable::Args),
    /// Show the state and figures of the extension
    Status(status::Args),
    /// Show the figures live on the terminal
    Top(top::Args),
    /// Check beforehand whether the extension will work and help
    Doctor(doctor::Args),
    /// Find out on a server at work whether the extension helps: serving and bypass alternate, and what differs is told
    ///
    /// The account needs the right to SET GLOBAL: SUPER on MariaDB, SYSTEM_VARIABLES_ADMIN on MySQL.
    Compare(compare::Args),
    /// Record the stream of page reads and writes of a live server, to be replayed with `bpe-lab replay`
    ///
    /// The account needs the right to SET GLOBAL: SUPER on MariaDB, SYSTEM_VARIABLES_ADMIN on MySQL.
    Record(recording::Args),
    /// Show servers on a web page, and switch the extension there
    Console(console::Args),
    /// Compare cached pages with the data files of a live server
    ///
    /// The account needs the right to SET GLOBAL: SUPER on MariaDB, SYSTEM_VARIABLES_ADMIN on MySQL.
    Verify(verify::Args),
    /// Say whether a server may get traffic, for the checks of load balancers: exit code 0 or 1, and a line of reason
    Ready(ready::Args),
    /// Hand the warmth of one server's cache over to another, so that it is as fast after a failover
    ///
    /// On the server that is made warm the account needs the right to SET GLOBAL (SUPER on MariaDB, SYSTEM_VARIABLES_ADMIN on
    /// MySQL) and SELECT on the tables; on the other one it needs none.
    Warm(warm::Args),
    /// Create, drop or print the views of schema bpe, which show the extension in SQL
    Views(views::Args),
    /// Print completions for a shell
    Completions(manual::CompletionsArgs),
    /// Write manual pages
    Man(manual::ManArgs),
}

/// Runs the command line. The program `bpe` contains only this call.
pub fn main() -> ExitCode {
    let line = Cli::try_parse().unwrap_or_else(|error| match renamed::explain(&error) {
        Some(failure) => {
            complain!("bpe: {failure}");
            std::process::exit(failure.exit as i32);
        }
        None => error.exit(),
    });
    let result = match line.command {
        Command::Enable(args) => enable::run(args),
        Command::Disable(args) => disable::run(args),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Compare(args) => compare::run(args),
        Command::Record(args) => recording::run(args),
        Command::Console(args) => console::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Ready(args) => ready::run(args),
        Command::Warm(args) => warm::run(args),
        Command::Views(args) => views::run(args),
        Command::Completions(args) => manual::completions(args, Cli::command()),
        Command::Man(args) => manual::pages(args, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        complain!("bpe: {error:#}");
        failure::exit_of(&error).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_options_do_not_contradict_each_other() {
        Cli::command().debug_assert();
    }
}
