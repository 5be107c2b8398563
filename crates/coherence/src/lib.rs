//! Coherence protocol: cached pages always equal the data files.
//!
//! [`core::Core`] is a value without statics, and makes no system calls. The trait [`os::Os`] provides the operating system. A
//! library in a server has one core; each test creates another.
//!
//! # Layers
//! From bottom to top; each layer knows only the layers before it:
//!
//! 1. [`sync`] and [`os`]: locks, atomics, operating system. [`control`]: control group for comparing reads.
//! 2. [`stamp`]: proof that a file is unchanged. [`manifest`], [`recovery`]: file records across restarts. [`switch`]: mode
//!    read first by every hook, announced requests, active extension. [`treatment`]: effect of the table rules on a file.
//! 3. [`files`]: mapping from descriptors to data files, and their state. [`header`], [`print`], [`checksum`]: metadata in a
//!    page.
//! 4. [`notes`]: hook events for a recording. [`damage`]: pages with a damaged copy in the data file. [`target`]: page range of
//!    a call. `aio::requests`: requests in flight.
//! 5. [`core`]: the value.
//! 6. [`rules`]: read and write protocol. [`scan`]: files that are already open. [`aio`]: asynchronous I/O from submit to
//!    harvest. [`compare`]: comparison of cached pages with data files. [`warm`]: pages that another server has cached. [`audit`]:
//!    detection of foreign writes.
//!
//! [`controller`] is above all layers. Its state machine switches the extension on and off without knowing them; its lock and
//! threads run the effects.
//!
//! # Lock order
//! Controller's thread → controller → file registry → file identity → reads given up → in-flight table shard → (the extension's
//! locks). Four locks are leaves: the list of suspended files, the damaged pages, the recovery outcomes and the table rules.

/// Whether a test build removes a rule of [`canary`]; `false` in every other build.
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

/// Failpoint at which a test can delay the thread; empty in builds other than for tests.
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
