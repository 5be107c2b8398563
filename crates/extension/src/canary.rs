//! Leaves out the check of generations, so that tests can show that they would notice. Compiled with the feature `canary`
//! only.

use std::sync::atomic::AtomicBool;

/// Insertions ignore the generation of their ticket.
pub static IGNORE_GENERATIONS: AtomicBool = AtomicBool::new(false);
