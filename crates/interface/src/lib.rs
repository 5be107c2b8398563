//! Definitions that the plugin and the command share.
//!
//! [`calls`] lists the intercepted calls. [`verdict`] judges by them whether all changes of a server's data files are
//! visible. [`code`] analyses functions linked into the executable instead of imported. [`in_use`] detects the asynchronous
//! I/O of a running server, and [`release`] rejects unsupported releases. The plugin asks in the process, before it
//! redirects anything; `bpe doctor` and `bpe enable` ask about the executable's file. All get the same answer with the same
//! text.
//!
//! [`status`], [`variables`] and [`reports`] describe the plugin's output: names, kinds, units, meanings. [`limits`] has the
//! limits for judging figures, [`tables`] parses the table rules. [`owner`] derives the names of a server's cache files.
//!
//! [`untrusted`] displays text from outside. [`codes`] has the message codes of the error log.
//!
//! A plain library: no unsafe code, no dependencies, no file access.
#![forbid(unsafe_code)]

pub mod calls;
pub mod canary;
pub mod code;
pub mod codes;
pub mod heat;
pub mod in_use;
pub mod limits;
pub mod owner;
pub mod release;
pub mod reports;
#[cfg(test)]
mod servers;
pub mod status;
pub mod tables;
pub mod untrusted;
pub mod variables;
pub mod verdict;

pub use code::Inside;
pub use in_use::InUse;
pub use release::{Maker, Release};
pub use status::Status;
pub use untrusted::Untrusted;
pub use verdict::{Executable, Refusal, Verdict, Way, judge};
