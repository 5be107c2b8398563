//! The death of a simulated process, in the thread of a unit test. In builds with debug assertions only.

use std::cell::Cell;

thread_local! {
    static DIES_IN: Cell<Option<u32>> = const { Cell::new(None) };
}

/// The panic of a process that dies.
pub struct Death;

/// The process dies at this store of the persisted state from now; `None`: at none.
pub fn die_in(stores: Option<u32>) {
    DIES_IN.set(stores);
}

/// The process is about to store a word of the persisted state.
pub fn may_die() {
    if let Some(left) = DIES_IN.get() {
        DIES_IN.set(left.checked_sub(1));
        if left == 0 {
            std::panic::panic_any(Death);
        }
    }
}
