//! One function per intercepted call of the C library.
//!
//! Every function begins with the same line: when the extension is off, jump to what was in the slot before. Beyond
//! that line a panic is caught ([`guarded`]), the call itself is made exactly once, and errno is what the call left.

mod asynchronous;
pub(crate) mod input_output;
mod names;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::got::Import;
use crate::linux::{errno, set_errno};

pub use asynchronous::{MAKE_LIBAIO_FAIL, MAKE_URING_FAIL};

/// The server's call, which is made once: whoever asks again gets the same result.
struct Once<R, F> {
    real: F,
    made: Cell<Option<R>>,
    errno_left: Cell<i32>,
}

impl<R: Copy, F: Fn() -> R> Once<R, F> {
    #[inline]
    fn make(&self) -> R {
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
fn guarded<R: Copy, F: Fn() -> R>(real: F, rules: impl FnOnce(&Once<R, F>) -> R) -> R {
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

/// All calls that are intercepted: those of [`interface::calls`].
pub fn imports() -> Vec<Import> {
    let mut imports = input_output::imports();
    imports.extend(names::imports());
    imports.extend(asynchronous::imports());
    imports
}

macro_rules! import {
    ($original:ident, $hook:ident, $($name:literal),+) => {
        crate::got::Import { names: &[$($name),+], hook: $hook as *const () as usize, original: &$original.0 }
    };
}
use import;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// What is judged by is what is intercepted.
    #[test]
    fn the_hooks_are_those_of_the_list() {
        let hooks: BTreeSet<_> = super::imports().iter().map(|i| i.names).collect();
        let list: BTreeSet<_> = interface::calls::hooked().collect();
        assert_eq!(hooks, list);
        assert_eq!(super::imports().len(), hooks.len(), "one hook for each");
    }
}
