//! Implementation of the command `bpe`: installs the buffer pool extension on a server, removes it, monitors it, and
//! checks beforehand whether it will help.
//!
//! A *room* is a module at the top level of a crate, with its files. A room imports only rooms below it.
//!
//! | room | content |
//! |---|---|
//! | [`commands`] | the command line, and the subcommands that are not in another room |
//! | [`console`] | `bpe console`, the web page |
//! | [`doctor`] | `bpe doctor`, checks before an installation |
//! | [`compare`] | `bpe compare`, serving and bypass in turn |
//! | [`cluster`] | roles of several servers, rolling changes, readiness |
//! | [`change`] | one engine for every change of a server; the plans of `bpe enable` and `bpe disable` |
//! | [`observe`] | figures of a server; `bpe status` and `bpe top` |
//! | [`installation`] | the parts that an installation consists of |
//! | [`connect`] | a server's address, its proof of identity, its session and its process |
//! | [`support`] | errors, terminal, texts, files |
//!
//! Each subcommand has `Args` (parsed by clap) and `run(Args) -> Result<ExitCode>`.
//!
//! `bpe-lab` uses the re-exported items for the same access to servers and terminals.

#![cfg_attr(test, allow(clippy::disallowed_methods))]

pub mod change;
mod cluster;
pub mod commands;
mod compare;
pub mod connect;
pub mod console;
mod doctor;
mod installation;
pub mod observe;
pub mod support;

pub use change::enable;
pub use commands::manual;
pub use connect::{self as connection, server, servers_file, state};
pub use support::{failure, notifier, quote, size, terminal};
