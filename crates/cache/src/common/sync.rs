//! Locks and atomics of the concurrent page operations: generations, the instance's lock, staging, segments.
//!
//! Here they are plain re-exports of `parking_lot` and the standard library. With `--cfg checker`
//! (`checks/interleavings`) they come from a model checker, which chooses the next thread at each operation. So the
//! checker checks this code, not a copy.

#[cfg(not(checker))]
pub(crate) use parking_lot::{Mutex, MutexGuard};
#[cfg(not(checker))]
pub(crate) use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(checker)]
pub(crate) use checked::{Mutex, MutexGuard};
#[cfg(checker)]
pub(crate) use shuttle::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

#[cfg(checker)]
mod checked {
    pub(crate) use shuttle::sync::MutexGuard;

    /// The checker's lock with the interface of `parking_lot`'s.
    pub(crate) struct Mutex<T>(shuttle::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub fn new(value: T) -> Mutex<T> {
            Mutex(shuttle::sync::Mutex::new(value))
        }

        pub fn lock(&self) -> MutexGuard<'_, T> {
            self.0
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner)
        }

        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok()
        }
    }
}
