//! Disables the check of generations or of contents, so that tests can prove that they detect it. Present in builds
//! with debug assertions.

use std::sync::atomic::AtomicBool;

/// Insertions ignore the generation of their ticket.
pub static IGNORE_GENERATIONS: AtomicBool = AtomicBool::new(false);

/// Wrong bytes pass for the page, unless they belong to another page whose entry collides with it.
pub static IGNORE_CHECKS: AtomicBool = AtomicBool::new(false);
