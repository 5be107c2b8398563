//! The original of an intercepted call: the function that the hook replaces.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The previous address of a GOT slot.
pub struct Original(pub AtomicUsize);

impl Default for Original {
    fn default() -> Original {
        Original::new()
    }
}

impl Original {
    /// Unknown until the slot is patched.
    pub const fn new() -> Original {
        Original(AtomicUsize::new(0))
    }

    /// Whether the server imports the call.
    pub fn is_there(&self) -> bool {
        // Relaxed, as in `get`: no other data depend on it. `patch` publishes it to all threads before any of them runs a
        // hook.
        self.0.load(Ordering::Relaxed) != 0
    }

    /// The original function.
    ///
    /// # Safety
    /// `F` must be the function pointer type of the call, and the slot must have been patched (hooks run only then).
    #[inline(always)]
    pub unsafe fn get<F: Copy>(&self) -> F {
        let address = self.0.load(Ordering::Relaxed);
        const { assert!(size_of::<F>() == size_of::<usize>()) };
        // SAFETY: the caller's promise.
        unsafe { std::mem::transmute_copy(&address) }
    }
}
