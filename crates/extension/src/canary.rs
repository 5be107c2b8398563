//! Leaves out the check of generations, or that of bytes, so that tests can show that they would notice. Builds with debug
//! assertions have it.

use std::sync::atomic::AtomicBool;

/// Insertions ignore the generation of their ticket.
pub static IGNORE_GENERATIONS: AtomicBool = AtomicBool::new(false);

/// Bytes that are not what was stored pass for the page, unless they are those of another page whose entry looks the same.
pub static IGNORE_CHECKS: AtomicBool = AtomicBool::new(false);
