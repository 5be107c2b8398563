//! Shared primitives of threads: atomics, locks, the clock for waits, and alignment in memory.
//!
//! They come from the standard library, `parking_lot` and `arc_swap`. `--cfg checker` (`checks/interleavings`) replaces them by
//! those of a model checker. The checker then chooses at each primitive which thread continues, and its threads set the time.

#[cfg(not(checker))]
pub(crate) use arc_swap::{ArcSwapOption, Guard};
#[cfg(not(checker))]
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(not(checker))]
pub(crate) use std::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
#[cfg(not(checker))]
pub(crate) use std::thread::{JoinHandle, sleep, sleep as pause};
#[cfg(not(checker))]
pub(crate) use std::time::Instant;

#[cfg(checker)]
pub(crate) use checked::{
    ArcSwapOption, Condvar, Guard, Instant, JoinHandle, Mutex, MutexGuard, pause, sleep,
};
#[cfg(checker)]
pub(crate) use shuttle::sync::atomic::{
    AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
};

#[cfg(checker)]
#[path = "../../interleavings/checked.rs"]
pub(crate) mod checked;

/// The checker treats all orderings as sequentially consistent.
#[cfg(checker)]
#[inline(always)]
pub(crate) fn fence(_: Ordering) {}

/// Prevents false sharing with fields that other threads write.
#[repr(align(128))]
#[derive(Default)]
pub struct CachePadded<T>(pub T);
