//! Seeded choices of a thread.

use std::cell::{Cell, RefCell};

thread_local! {
    static RANDOM: RefCell<fastrand::Rng> = const { RefCell::new(fastrand::Rng::with_seed(0)) };
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Begins the sequence of this thread.
pub fn seed(seed: u64, thread: u64) {
    let mixed = seed ^ thread.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    RANDOM.with_borrow_mut(|random| *random = fastrand::Rng::with_seed(mixed));
}

/// A random number below `end`, which must not be 0.
pub fn below(end: usize) -> usize {
    RANDOM.with_borrow_mut(|random| random.usize(..end))
}

/// True once in this many times, at random.
pub fn one_in(times: usize) -> bool {
    below(times) == 0
}

/// A random number below `end`, preferring low ones.
pub fn low(end: usize) -> usize {
    below(end).min(below(end)).min(below(end))
}

/// Nesting depth: operations of this thread that were begun inside another operation's call.
pub fn depth() -> u32 {
    DEPTH.get()
}

/// Runs an operation inside another.
pub fn nested(operation: impl FnOnce()) {
    DEPTH.set(DEPTH.get() + 1);
    operation();
    DEPTH.set(DEPTH.get() - 1);
}
