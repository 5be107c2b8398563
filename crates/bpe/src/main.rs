//! The command `bpe`: installs the buffer pool extension on a server, takes it off again, shows
//! how it does, says beforehand whether it will help, demonstrates it on a private server, and replays traces.
//!
//! Each subcommand is a module with `Args` (what clap parses) and `run(Args) -> Result<ExitCode>`.
//! `connection`, `server` and `process` find the server and its process; `library`, `server_options`, `snippet`,
//! `pool` and `record` are the things `enable` changes and `disable` puts back.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

mod connection;
mod console;
mod demo;
mod diagnostics;
mod digest;
mod disable;
mod disk;
mod doctor;
mod elf;
mod enable;
mod failure;
mod interception;
mod journal;
mod library;
mod maintenance;
mod manual;
mod observe;
mod pool;
mod process;
mod progress;
mod record;
mod recording;
mod replay;
mod report;
mod server;
mod server_options;
mod size;
mod snippet;
mod state;
mod status;
mod terminal;
mod told;
mod top;
mod verify;
mod views;

use terminal::complain;

#[derive(Parser)]
#[command(
    name = "bpe",
    version,
    about = "A buffer pool extension on fast local disks for stock MySQL and MariaDB",
    after_help = "Exit codes: 0 done (status: active), 1 no (not active, refused, doctor found an \
                  obstacle),\n2 wrong usage, 3 cannot connect, 4 a step failed and was put back.",
    disable_help_flag = true
)]
struct Cli {
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
    /// Show how the extension does
    Status(status::Args),
    /// Show the figures live on the terminal
    Top(top::Args),
    /// Say beforehand whether the extension will work and help
    Doctor(doctor::Args),
    /// Record the stream of page reads and writes of a live server, to be replayed with `bpe replay`
    ///
    /// The account needs the right to SET GLOBAL: SUPER on MariaDB, SYSTEM_VARIABLES_ADMIN on MySQL.
    Record(recording::Args),
    /// Show servers on a web page, and switch the extension there
    Console(console::Args),
    /// Compare cached pages with the data files of a live server
    ///
    /// The account needs the right to SET GLOBAL: SUPER on MariaDB, SYSTEM_VARIABLES_ADMIN on MySQL.
    Verify(verify::Args),
    /// Make, drop or print the views of schema bpe, which show the extension in SQL
    Views(views::Args),
    /// Demonstrate the extension on a private server with an emulated cloud volume
    Demo(demo::Args),
    /// Replay a recorded stream of page reads and writes through the extension and other policies
    Replay(replay::Args),
    /// Print completions for a shell
    Completions(manual::CompletionsArgs),
    /// Write manual pages
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Enable(args) => enable::run(args),
        Command::Disable(args) => disable::run(args),
        Command::Status(args) => status::run(args),
        Command::Top(args) => top::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Record(args) => recording::run(args),
        Command::Console(args) => console::run(args),
        Command::Verify(args) => verify::run(args),
        Command::Views(args) => views::run(args),
        Command::Demo(args) => demo::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Completions(args) => manual::completions(args, Cli::command()),
        Command::Man(args) => manual::pages(args, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        complain!("bpe: {error:#}");
        failure::exit_of(&error).into()
    })
}
