//! The state of this process: the one value that hooks, variables and threads share.

use crate::core::Core;
use crate::files::{Slot, empty_slot};
use crate::linux::{DESCRIPTORS, Linux};

/// Memory is taken page by page, as descriptors are used.
static TABLE: [Slot; DESCRIPTORS] = [const { empty_slot() }; DESCRIPTORS];

/// Of the server that the library was loaded into.
pub static CORE: Core<Linux> = Core::new(Linux, &TABLE);

/// Tests that change the state of the process, or count on it, take turns.
#[cfg(test)]
pub static UNDER_TEST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
