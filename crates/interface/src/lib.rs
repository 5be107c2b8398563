//! What the plugin and the command must agree on.
//!
//! [`calls`] is the one list of intercepted calls. [`verdict`] judges by it whether everything a server does to its data
//! files can be seen; [`code`] looks at what is linked into the executable instead of being imported, and [`in_use`] at what
//! a running server uses; [`release`] knows which releases are too old. The plugin (in the process, before it redirects anything), `bpe doctor` and `bpe enable` (from the
//! executable's file) all ask here, so they give one answer in the same words.
//!
//! [`status`], [`variables`] and [`reports`] are what a server shows of the plugin: names, kinds, units, meanings;
//! [`limits`] is what its figures are judged by, [`tables`] reads the rules for tables. [`owner`] says how the files of a server's cache are called.
//!
//! [`untrusted`] shows text from outside. [`codes`] has the codes of messages in the error log.
//!
//! A plain library: no unsafe code, no dependencies, nothing that reads a file by itself.
#![forbid(unsafe_code)]

pub mod calls;
pub mod code;
pub mod codes;
pub mod heat;
pub mod in_use;
pub mod left_out;
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
