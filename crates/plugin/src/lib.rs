//! `bpe.so`: the buffer pool extension as a plugin of a stock MySQL or MariaDB server.
//!
//! The way of a page through this crate:
//!
//! 1. [`abi`] is what the server's plugin loader sees: descriptors, variables, status, `bpe_report()`.
//! 2. [`got`] redirects the server's imports of the C library to [`calls`], all of them or none; the crate `interface`
//!    judges whether they are enough, and [`unseen`] whether the server uses asynchronous I/O that passes them by.
//! 3. [`calls`] has one function per intercepted call. Each is a single atomic load and a jump while the
//!    extension is off.
//! 4. [`files`] knows which descriptors are InnoDB data files; [`coherence`] holds the rules that keep the cache
//!    equal to them; [`aio`] follows asynchronous I/O from submit to harvest.
//! 5. What all of these need from the machine is the trait [`os::Os`], which [`linux`] is.
//! 6. [`switch`] holds the state every hook reads first and the active extension; [`controller`] is the thread that
//!    builds, replaces and retires it.
//!
//! [`recorder`] notes the stream of page reads and writes for `bpe record`; [`keys`] says who may begin that, or [`verify`].
//!
//! How pages are stored is the business of the crate `extension`.
//!
//! # Order of locks
//! An outer lock may be held while taking an inner one, never the reverse:
//! recording session → controller command → controller state → file registry → file identity → reads given up →
//! in-flight table shard → (extension's locks, slots of bounded reads last).
//! The state text, the log, keys for diagnostics, verifications under way and the list of suspended files are leaves.

/// Whether a build for tests leaves out a rule of [`canary`]; `false` in every other build.
macro_rules! left_out {
    ($rule:literal) => {{
        #[cfg(feature = "canary")]
        let left_out = crate::canary::leaves_out($rule);
        #[cfg(not(feature = "canary"))]
        let left_out = false;
        left_out
    }};
}

/// A moment at which a test can hold the thread up; nothing in every build that is not for tests.
macro_rules! hold_up {
    ($moment:literal) => {{
        #[cfg(any(test, feature = "canary"))]
        crate::hold_up::at($moment);
    }};
}

pub mod abi;
pub mod aio;
pub mod audit;
pub mod calls;
#[cfg(feature = "canary")]
pub mod canary;
pub mod clock;
pub mod coherence;
pub mod controller;
pub mod core;
pub mod diagnostics;
pub mod files;
pub mod got;
pub mod header;
#[cfg(any(test, feature = "canary"))]
pub mod hold_up;
pub mod journal;
pub mod keys;
pub mod linux;
#[cfg(test)]
mod machine_for_tests;
pub mod notes;
pub mod os;
pub mod process;
pub mod recorder;
pub mod report;
pub mod scan;
pub mod settings;
pub mod switch;
pub mod sync;
pub mod table_name;
pub mod target;
pub mod unseen;
pub mod uring;
pub mod verify;
