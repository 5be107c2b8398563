//! The command `bpe-lab`: demonstrates and measures the extension, where no other user depends on the server.
//!
//! A room imports only rooms below it. Each subcommand is a module with `Args` (parsed by clap) and
//! `run(Args) -> Result<ExitCode>`.
//!
//! | room | content |
//! |---|---|
//! | [`demo`] | measures the extension on a private server: three tests, restarts, a failover |
//! | [`experience`] | puts load on a server beside the console |
//! | [`policies`] | compares policies over the generated traces |
//! | [`replay`] | replays a trace |
//! | [`stream`] | generates traces |
//! | [`volume`] | mounts an emulated cloud volume |
//! | [`sysbench`] | the load |
//! | [`report`] | text, pages and charts of all measurements |
//!
//! The library of `bpe` handles servers and terminal output, and does not depend on this command.

use std::process::ExitCode;

use bpe::terminal::complain;
use bpe::{failure, manual};
use clap::{CommandFactory, Parser, Subcommand};
use rustix::fs::Mode;
use rustix::process::umask;

mod demo;
mod experience;
mod policies;
mod replay;
mod report;
mod stream;
mod sysbench;
mod volume;

#[derive(Parser)]
#[command(
    name = "bpe-lab",
    version,
    about = "Demonstrates the buffer pool extension, puts load on it, and replays traces",
    after_help = "It starts servers of its own and puts load on them. Never point it at a server that matters.\n\n\
                  Exit codes: 0 done, 1 refused, 2 wrong usage, 3 cannot connect, 4 a step failed.",
    disable_help_flag = true
)]
struct Cli {
    /// Print help
    // -h is the host, as for `bpe`.
    #[arg(long, action = clap::ArgAction::Help, global = true)]
    help: Option<bool>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[expect(clippy::large_enum_variant, reason = "there is one value, made once")]
enum Command {
    /// Demonstrate the extension on a private server with an emulated cloud volume
    Demo(demo::Args),
    /// Open the console with the experience page, which puts load on the first server
    Console(experience::Args),
    /// Replay a recorded stream of page reads and writes through the extension and other policies
    Replay(replay::Args),
    /// Make a stream of page reads and writes from a load, to replay it
    Stream(stream::Args),
    /// Run all policies over all streams of our own making
    Policies(policies::Args),
    /// Mount a directory that behaves like a cloud block volume, with faults on command
    ///
    /// It has a latency for each I/O, IOPS and bandwidth caps shared by reads and writes, and burst credits.
    Volume(volume::Args),
    /// Print completions for a shell
    Completions(manual::CompletionsArgs),
    /// Write manual pages
    Man(manual::ManArgs),
}

fn main() -> ExitCode {
    // Other users must not change what this process and its children create and run.
    let writable = Mode::WGRP | Mode::WOTH;
    umask(umask(writable) | writable);
    let result = match Cli::parse().command {
        Command::Demo(args) => demo::run(args),
        Command::Console(args) => experience::run(args),
        Command::Replay(args) => replay::run(args),
        Command::Stream(args) => stream::run(args),
        Command::Policies(args) => policies::run(args),
        Command::Volume(args) => volume::run(args),
        Command::Completions(args) => manual::completions(args, Cli::command()),
        Command::Man(args) => manual::pages(args, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        complain!("bpe-lab: {error:#}");
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
