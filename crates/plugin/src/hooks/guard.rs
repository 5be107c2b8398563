//! The guard around the server's own call in every hook.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::platform::linux::{errno, set_errno};

/// The server's call, made at most once: later calls return the same result.
pub struct Once<R, F> {
    real: F,
    made: Cell<Option<R>>,
    errno_left: Cell<i32>,
}

impl<R: Copy, F: Fn() -> R> Once<R, F> {
    #[inline]
    /// Returns the result; makes the call first if needed.
    pub fn make(&self) -> R {
        if let Some(result) = self.made.get() {
            return result;
        }
        let result = (self.real)();
        self.errno_left.set(errno());
        let before = self.made.replace(Some(result));
        debug_assert!(before.is_none(), "the call was made twice");
        result
    }
}

/// Runs `rules` around the real call. The call is made at most once, and not at all on a hit. Its errno is what the server sees.
/// After a panic the extension is off, and the call is made unless it was made already.
#[inline]
pub fn guarded<R: Copy, F: Fn() -> R>(real: F, rules: impl FnOnce(&Once<R, F>) -> R) -> R {
    let once = Once {
        real,
        made: Cell::new(None),
        errno_left: Cell::new(errno()),
    };
    let result = match catch_unwind(AssertUnwindSafe(|| {
        assert!(!coherence::canary!("no-panic"), "left out on purpose");
        rules(&once)
    })) {
        Ok(result) => result,
        Err(_) => {
            crate::control::CONTROLLER.panicked();
            once.make()
        }
    };
    set_errno(once.errno_left.get());
    result
}

/// Defines a hook and the slot of its original: `fn HOOK = ORIGINAL(ARGUMENTS) -> RESULT |real| BODY`. `real` makes the
/// server's call with the server's arguments. With `|real, mode|`, the body runs only while the extension is not off.
/// Variadic calls are written out.
macro_rules! hook {
    ($(#[$attribute:meta])* fn $hook:ident = $original:ident($($argument:ident: $kind:ty),+) -> $result:ty |$real:ident $(, $mode:ident)?| $body:expr) => {
        static $original: Original = Original::new();

        $(#[$attribute])*
        unsafe extern "C" fn $hook($($argument: $kind),+) -> $result {
            type Call = unsafe extern "C" fn($($kind),+) -> $result;
            // SAFETY: the server's own call with the server's own arguments.
            let $real = move || unsafe { $original.get::<Call>()($($argument),+) };
            $(
                let $mode = CORE.switch().mode();
                if $mode.is_off() {
                    return $real();
                }
            )?
            $body
        }
    };
}
pub(super) use hook;

/// The import that a hook replaces, with its symbol names.
macro_rules! import {
    ($original:ident, $hook:ident, $($name:literal),+) => {
        crate::intercept::got::Import { names: &[$($name),+], hook: $hook as *const () as usize, original: &$original.0 }
    };
}
pub(super) use import;

#[cfg(test)]
mod tests {
    use super::*;

    /// A call that counts its invocations and sets errno.
    fn call(made: &Cell<i32>) -> impl Fn() -> i32 {
        move || {
            made.set(made.get() + 1);
            set_errno(libc::ENOSPC);
            -1
        }
    }

    #[test]
    fn repeated_make_calls_original_once() {
        let made = Cell::new(0);
        let result = guarded(call(&made), |real| {
            assert_eq!((real.make(), real.make()), (-1, -1));
            real.make()
        });
        assert_eq!((result, made.get()), (-1, 1));
    }

    #[test]
    fn rules_leave_errno_of_original() {
        let made = Cell::new(0);
        set_errno(libc::EXDEV);
        guarded(call(&made), |real| {
            let result = real.make();
            set_errno(libc::EIO);
            result
        });
        assert_eq!(errno(), libc::ENOSPC);
    }

    #[test]
    fn served_read_leaves_errno() {
        let made = Cell::new(0);
        set_errno(libc::EXDEV);
        let result = guarded(call(&made), |_| {
            set_errno(libc::EIO);
            16384
        });
        assert_eq!((result, made.get(), errno()), (16384, 0, libc::EXDEV));
    }
}
