//! The state of this process: the values that hooks, variables and threads share. What needs the controller as well lies in
//! [`crate::diagnostics`].

use std::sync::atomic::AtomicBool;

use interface::Verdict;
use parking_lot::Mutex;

use crate::audit::suspended::Suspensions;
use crate::bypass::Bypassing;
use crate::core::Core;
use crate::files::{Slot, empty_slot};
use crate::linux::{DESCRIPTORS, Linux};

/// Memory is taken page by page, as descriptors are used.
static TABLE: [Slot; DESCRIPTORS] = [const { empty_slot() }; DESCRIPTORS];

/// Of the server that the library was loaded into.
pub static CORE: Core<Linux> = Core::new(Linux, &TABLE);

/// What is known of the server beside its files and requests.
pub struct Known {
    /// What its executable imports, as it was judged; `None` until the calls are intercepted. The lock is a leaf.
    pub verdict: Mutex<Option<Verdict>>,
    /// Nothing may be served before InnoDB has made its choice.
    pub waits_for_innodb: AtomicBool,
    /// InnoDB was seen with its files open, so its variables have their values. It stays so.
    pub innodb_runs: AtomicBool,
    /// It was seen submitting through io_uring.
    pub uses_io_uring: AtomicBool,
    pub suspensions: Suspensions,
    pub bypassing: Bypassing,
}

/// Of the same server.
pub static KNOWN: Known = Known {
    verdict: Mutex::new(None),
    waits_for_innodb: AtomicBool::new(false),
    innodb_runs: AtomicBool::new(false),
    uses_io_uring: AtomicBool::new(false),
    suspensions: Suspensions::new(),
    bypassing: Bypassing::new(),
};

/// Tests that change the state of the process, or count on it, take turns.
#[cfg(test)]
pub static UNDER_TEST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
