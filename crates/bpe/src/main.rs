//! The command `bpe`: installs the buffer pool extension on a server, takes it off again, shows
//! how it does, says beforehand whether it will help, and demonstrates it on a private server.
//!
//! Each subcommand is a module with `Args` (what clap parses) and `run(Args) -> Result<ExitCode>`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

mod demo;
mod disable;
mod doctor;
mod enable;
mod status;

#[derive(Parser)]
#[command(
    name = "bpe",
    version,
    about = "A buffer pool extension on fast local disks for stock MySQL and MariaDB",
    disable_help_flag = true
)]
struct Cli {
    /// Print help
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
    /// Say beforehand whether the extension will work and help
    Doctor(doctor::Args),
    /// Demonstrate the extension on a private server with an emulated cloud volume
    Demo(demo::Args),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Enable(args) => enable::run(args),
        Command::Disable(args) => disable::run(args),
        Command::Status(args) => status::run(args),
        Command::Doctor(args) => doctor::run(args),
        Command::Demo(args) => demo::run(args),
    };
    result.unwrap_or_else(|error| {
        eprintln!("bpe: {error:#}");
        ExitCode::FAILURE
    })
}
