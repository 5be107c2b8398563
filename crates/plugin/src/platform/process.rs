//! The one [`Core`] of this process. Hooks, variables and threads share it.

use coherence::audit::suspended::Suspensions;
use coherence::core::Core;
use coherence::files::{Slot, empty_slot};

use super::linux::{DESCRIPTORS, Linux};

/// Memory is allocated page by page, as descriptors are used.
static TABLE: [Slot; DESCRIPTORS] = [const { empty_slot() }; DESCRIPTORS];

/// The core of this server.
pub static CORE: Core<Linux> = Core::new(Linux, &TABLE);

/// Files whose pages are not cached, because a foreign process may have written to them.
pub static SUSPENSIONS: Suspensions = Suspensions::new();

/// Serialises tests that change the state of the process, or depend on it.
#[cfg(test)]
pub static UNDER_TEST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
