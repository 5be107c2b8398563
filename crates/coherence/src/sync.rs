//! What threads share: atomics, locks, the clock by which they wait, and how they lie in memory.
//!
//! They are those of the standard library, `parking_lot` and `arc_swap`, and nothing else. Compiled with `--cfg checker`
//! (`checks/interleavings`) they are those of a model checker, which decides at each of them which thread goes on. Time is then
//! what a thread of the checker makes of it.

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
pub(crate) mod checked;

/// To the checker all orders are sequentially consistent.
#[cfg(checker)]
#[inline(always)]
pub(crate) fn fence(_: Ordering) {}

/// Kept off its neighbours' cache line, which others write to.
#[repr(align(128))]
#[derive(Default)]
pub struct Alone<T>(pub T);
