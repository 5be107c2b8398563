//! What keeps the cache equal to the data files, whatever the server does to them.
//!
//! [`core::Core`] is a value: it has no statics and makes no call of the kernel by itself. What it needs from the machine is the
//! trait [`os::Os`]. A library that is loaded into a server has one core; a test makes its own.
//!
//! From the bottom to the top, each knows only those before it:
//!
//! 1. [`sync`] and [`os`]: locks and atomics; the machine. [`control`]: reads that are compared.
//! 2. [`stamp`]: the proof that a file is what it was. [`manifest`], [`recovery`]: the records of the files over restarts. [`switch`]: the
//!    mode that every hook reads first, requests under way, the active extension. [`treatment`]: what the rules for tables say of a file.
//! 3. [`files`]: which descriptors are data files, and what became of them. [`header`], [`print`], [`checksum`]: what a page says of itself.
//! 4. [`notes`]: what hooks note for a recording. [`damage`]: pages that only the cache has. [`target`]: what is read or written. `aio::requests`: what is under way.
//! 5. [`core`]: the value.
//! 6. [`rules`]: around a read and a write. [`scan`]: the files that are open already. [`aio`]: asynchronous I/O from submit to
//!    harvest. [`compare`]: cached pages and data files. [`warm`]: pages that another server has cached. [`audit`]: whether somebody else writes to them.
//!
//! Above them stands [`controller`]: switching on and off as a table, which knows none of them, and the lock and the threads that
//! do what it says.
//!
//! # Order of locks
//! Controller's thread → controller → file registry → file identity → reads given up → in-flight table shard → (the extension's
//! locks). The list of suspended files is a leaf, and so are that of damaged pages, the outcomes of a recovery and the rules for tables.

/// Whether a build for tests leaves out a rule of [`canary`]; `false` in every other build.
#[macro_export]
macro_rules! left_out {
    ($rule:literal) => {{
        #[cfg(all(test, checker))]
        let left_out = $crate::interleavings::leaves_out($rule);
        #[cfg(all(debug_assertions, not(all(test, checker))))]
        let left_out = $crate::canary::leaves_out($rule);
        #[cfg(not(any(debug_assertions, all(test, checker))))]
        let left_out = false;
        left_out
    }};
}

/// A moment at which a test can hold the thread up; nothing in every build that is not for tests.
macro_rules! hold_up {
    ($moment:literal) => {{
        #[cfg(any(test, debug_assertions))]
        $crate::hold_up::at($moment);
    }};
}

pub mod aio;
pub mod audit;
#[cfg(debug_assertions)]
pub mod canary;
pub mod checksum;
pub mod compare;
pub mod control;
pub mod controller;
pub mod core;
pub mod damage;
#[cfg(debug_assertions)]
#[doc(hidden)]
pub mod failpoint;
pub mod files;
pub mod header;
#[cfg(any(test, debug_assertions))]
pub mod hold_up;
#[cfg(all(test, checker))]
mod interleavings;
#[cfg(test)]
mod machine_for_tests;
pub mod manifest;
pub mod notes;
pub mod os;
pub mod print;
pub mod recovery;
#[cfg(all(test, debug_assertions, not(checker)))]
mod restart_model;
pub mod rules;
#[cfg(test)]
mod rules_tests;
pub mod scan;
pub mod stamp;
pub mod switch;
pub mod sync;
pub mod target;
pub mod treatment;
pub mod warm;
