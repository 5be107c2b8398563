//! What threads share: locks and atomics, and how they lie in memory.

/// Kept off its neighbours' cache line, which others write to.
#[repr(align(128))]
#[derive(Default)]
pub struct Alone<T>(pub T);
