//! Coherence protocol: cached pages always equal the data files.
//!
//! [`core::Core`] is a value without statics, and makes no system calls. The trait [`os::Os`] provides the operating system. A
//! library in a server has one core; each test creates another.
//!
//! # Rooms
//! A *room* is a module at the top level of the crate, with its files. A room imports only rooms below it.
//!
//! | room | content |
//! |---|---|
//! | [`control`] | switching on and off; background work: audit, comparison, loading |
//! | [`async_io`] | reads and writes of libaio, from submit to harvest |
//! | [`read_write`] | the order of steps of a read, of a write, and of every other change of a file |
//! | [`core`] | the value `Core`; page requests, requests in flight, damaged pages, the trace ring |
//! | [`files`] | the data files, the descriptor table, the registry, and the effect of the table rules |
//! | [`switch`] | the mode that every hook reads first, announced requests, the active extension |
//! | [`restart`] | the file records that outlive the process, and the proof that a file is unchanged |
//! | [`page`] | metadata in an InnoDB page: page number, LSN, checksum; fingerprint of a leaf page |
//! | [`platform`] | the operating system as a trait; locks, atomics and the clock, which the model checker replaces |
//! | [`testing`] | switches that tests use. A build for a server contains none of them |
//!
//! `interleavings/`, beside `src/`, has the tests under the model checker.
//!
//! # Lock order
//! A thread may take a lock while it holds one further to the left, never the reverse. Controller's thread → controller → file
//! registry → details of a file → abandoned reads → shard of the table of requests → (the extension's locks). Four locks are
//! leaves: the list of suspended files, the damaged pages, the recovery outcomes and the table rules.

#[macro_use]
pub mod testing;

pub mod async_io;
pub mod control;
pub mod core;
pub mod files;
#[cfg(all(test, checker))]
#[path = "../interleavings/mod.rs"]
mod interleavings;
pub mod page;
pub mod platform;
pub mod read_write;
pub mod restart;
pub mod switch;

pub use control::{audit, compare, controller, scan, warm};
pub use core::{page_request, trace};
pub use files::file_rule;
pub use page::{checksum, fingerprint, header};
pub use platform::{os, sync};
pub use restart::{manifest, outcomes, proof, stamp};
#[cfg(debug_assertions)]
pub use testing::canary;
#[cfg(any(test, debug_assertions))]
pub use testing::sync_point;
