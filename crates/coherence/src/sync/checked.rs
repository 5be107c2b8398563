//! The checker's locks with the manners of `parking_lot`'s and `arc_swap`'s, and a clock that tests set.

use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

const UNHARMED: &str = "no thread panics with the lock held";

pub struct Mutex<T>(shuttle::sync::Mutex<T>);

pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// `None` only while it is unlocked for a moment.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard {
            lock: self,
            held: Some(self.0.lock().expect(UNHARMED)),
        }
    }

    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let held = Some(self.0.try_lock().ok()?);
        Some(MutexGuard { lock: self, held })
    }
}

impl<T> MutexGuard<'_, T> {
    pub fn unlocked<R>(guard: &mut Self, act: impl FnOnce() -> R) -> R {
        guard.held = None;
        let result = act();
        guard.held = Some(guard.lock.0.lock().expect(UNHARMED));
        result
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("locked")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("locked")
    }
}

/// What is swapped as a whole, behind a lock that nobody holds for long.
pub struct ArcSwapOption<T>(Mutex<Option<Arc<T>>>);

/// What was there when it was loaded.
pub struct Guard<T>(T);

impl<T> ArcSwapOption<T> {
    pub const fn const_empty() -> ArcSwapOption<T> {
        ArcSwapOption(Mutex::new(None))
    }

    pub fn load(&self) -> Guard<Option<Arc<T>>> {
        Guard(self.0.lock().clone())
    }

    pub fn store(&self, value: Option<Arc<T>>) {
        drop(self.swap(value));
    }

    pub fn swap(&self, value: Option<Arc<T>>) -> Option<Arc<T>> {
        std::mem::replace(&mut *self.0.lock(), value)
    }
}

impl<T> Deref for Guard<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// All threads of a schedule are one of the machine's, and so share this clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    pub fn now() -> Instant {
        Instant(NOW.get())
    }

    pub fn elapsed(&self) -> Duration {
        NOW.get().saturating_sub(self.0)
    }
}

/// Time goes by, or begins anew.
pub fn set_time(now: Duration) {
    NOW.set(now);
}

/// Others may go on, for as long as the checker lets them. To yield would be to let them.
pub fn sleep(_: Duration) {
    shuttle::sync::atomic::AtomicBool::new(false).load(std::sync::atomic::Ordering::SeqCst);
}
