//! Simulated process death in the thread of a unit test. Only in builds with debug assertions.

use std::cell::Cell;

thread_local! {
    static DIES_IN: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Panic payload of the simulated death.
pub struct Death;

/// Makes the process die at this store of the persisted state, counted from now; `None` disables it.
pub fn die_in(stores: Option<u32>) {
    DIES_IN.set(stores);
}

/// Call before each store of a word of the persisted state.
pub fn may_die() {
    if let Some(left) = DIES_IN.get() {
        DIES_IN.set(left.checked_sub(1));
        if left == 0 {
            std::panic::panic_any(Death);
        }
    }
}
