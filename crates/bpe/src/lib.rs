//! Implementation of the command `bpe`: installs the buffer pool extension on a server, removes it, monitors it, and
//! checks beforehand whether it will help.
//!
//! Each subcommand is a module with `Args` (parsed by clap) and `run(Args) -> Result<ExitCode>`; [`command`] lists all
//! of them. `cluster` groups servers into clusters. `connection`, `server` and `process` find the server and its
//! process. `library`, `server_options`, `snippet`, `pool` and `record` are changed by `enable` and restored by
//! `disable`.
//!
//! The command `bpe-lab` uses the public items for the same access to servers and terminals.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

#[cfg(test)]
mod canary_tests;
pub mod change;
mod cluster;
pub mod command;
mod compare;
pub mod connection;
pub mod console;
mod disable;
mod disk;
mod doctor;
mod elf;
pub mod enable;
pub mod failure;
mod files;
mod interception;
mod interruption;
mod leftover;
mod library;
mod maintenance;
pub mod manual;
mod moved;
pub mod observe;
mod part;
mod persistence;
mod pool;
mod private_file;
mod process;
mod progress;
pub mod quote;
mod random;
mod ready;
mod record;
mod recording;
mod report;
mod rescue;
pub mod server;
mod server_options;
pub mod servers_file;
pub mod size;
mod snippet;
pub mod state;
mod status;
pub mod terminal;
pub mod told;
mod top;
mod verify;
mod views;
mod warm;
