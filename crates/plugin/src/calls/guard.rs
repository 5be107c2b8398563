//! What stands around the server's own call in every hook.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::linux::{errno, set_errno};

/// The server's call, which is made once: whoever asks again gets the same result.
pub struct Once<R, F> {
    real: F,
    made: Cell<Option<R>>,
    errno_left: Cell<i32>,
}

impl<R: Copy, F: Fn() -> R> Once<R, F> {
    #[inline]
    /// The result, of the call if it was not made yet.
    pub fn make(&self) -> R {
        if let Some(result) = self.made.get() {
            return result;
        }
        let result = (self.real)();
        self.errno_left.set(errno());
        self.made.set(Some(result));
        result
    }
}

/// Runs `rules` around the real call: the call is made exactly once whatever happens, its errno is what the server
/// sees, and a panic switches the extension off instead of crossing into the server.
#[inline]
pub fn guarded<R: Copy, F: Fn() -> R>(real: F, rules: impl FnOnce(&Once<R, F>) -> R) -> R {
    let once = Once {
        real,
        made: Cell::new(None),
        errno_left: Cell::new(errno()),
    };
    let result = match catch_unwind(AssertUnwindSafe(|| rules(&once))) {
        Ok(result) => result,
        Err(_) => {
            crate::controller::panicked();
            once.make()
        }
    };
    set_errno(once.errno_left.get());
    result
}

macro_rules! import {
    ($original:ident, $hook:ident, $($name:literal),+) => {
        crate::got::Import { names: &[$($name),+], hook: $hook as *const () as usize, original: &$original.0 }
    };
}
pub(super) use import;
