//! `bpe.so`: the buffer pool extension as a plugin of a stock MySQL or MariaDB server.
//!
//! The way of a page through this crate:
//!
//! 1. [`abi`] is what the server's plugin loader sees: descriptors, variables, status, `bpe_report()`.
//! 2. [`got`] redirects the server's imports of the C library to [`calls`], all of them or none; the crate `interface`
//!    judges whether they are enough, and [`unseen`] whether the server uses asynchronous I/O that passes them by.
//! 3. [`calls`] has one function per intercepted call. Each is a single atomic load and a jump while the
//!    extension is off.
//! 4. [`process`] has the one value of the crate `coherence` that they share: which descriptors are data files, the rules
//!    that keep the cache equal to them, asynchronous I/O from submit to harvest, the mode and the active extension.
//! 5. What that needs from the machine is a trait, which [`linux`] is.
//! 6. [`controller`] is the one value of the crate `coherence` that builds, replaces and retires the extension, and what it needs of
//!    a server.
//!
//! [`recorder`] notes the stream of page reads and writes for `bpe record`; [`verify`] compares cached pages for `bpe verify`, and [`warm`]
//! loads a list of another server's [`heat`].
//!
//! How pages are stored is the business of the crate `extension`.
//!
//! # Order of locks
//! An outer lock may be held while taking an inner one, never the reverse:
//! recording session → controller's thread → controller → file registry → file identity → reads given up →
//! in-flight table shard → (extension's locks, slots of bounded reads last).
//! The state text, the log, verifications under way, the load of a heat list, what bypass is set to and the list of suspended files
//! are leaves.

pub use coherence::{
    aio, audit, core, files, header, manifest, notes, os, rules, scan, switch, target,
};
#[cfg(debug_assertions)]
pub use coherence::{canary, hold_up};

pub mod abi;
pub mod bypass;
pub mod calls;
pub mod clock;
pub mod controller;
pub mod diagnostics;
pub mod fence;
pub mod got;
pub mod heat;
mod image;
pub mod innodb;
pub mod journal;
pub mod label;
pub mod linux;
mod mount;
#[cfg(debug_assertions)]
mod naive;
mod owned_files;
mod persist;
pub mod plan;
pub mod pool;
pub mod process;
pub mod recorder;
pub mod report;
pub mod settings;
pub mod table_name;
pub mod tables;
pub mod token;
pub mod tripwire;
pub mod unseen;
pub mod uring;
pub mod verify;
pub mod warm;
