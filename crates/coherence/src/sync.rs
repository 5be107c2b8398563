//! What threads share: atomics, and how they lie in memory.
//!
//! Those of the switch are the standard library's, and nothing else. Compiled with `--cfg checker` (`checks/interleavings`) they
//! are those of a model checker, which decides at each of them which thread goes on.

#[cfg(not(checker))]
pub(crate) use std::sync::atomic::{AtomicU32, Ordering};

#[cfg(checker)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, Ordering};

/// Kept off its neighbours' cache line, which others write to.
#[repr(align(128))]
#[derive(Default)]
pub struct Alone<T>(pub T);
