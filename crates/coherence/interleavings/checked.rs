//! The checker's locks with the interfaces of `parking_lot` and `arc_swap`, and a clock that tests set.

use std::cell::{Cell, RefCell};
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use shuttle::current::{TaskId, me};
use shuttle::sync::atomic::{AtomicBool, Ordering};

/// Payload of a deliberate panic.
pub struct OnPurpose;

thread_local! {
    /// Threads that are to panic, and at which of their locks.
    static PANICS: RefCell<Vec<(TaskId, u32)>> = const { RefCell::new(Vec::new()) };
}

/// Makes this thread panic at this lock, counted from now; 0: never.
pub fn panic_at(lock: u32) {
    PANICS.with_borrow_mut(|panics| {
        panics.retain(|(thread, _)| *thread != me());
        if lock > 0 {
            panics.push((me(), lock));
        }
    });
}

fn may_panic() {
    let is_time = PANICS.with_borrow_mut(|panics| {
        let mine = panics.iter_mut().find(|(thread, _)| *thread == me());
        mine.is_some_and(|(_, left)| {
            *left -= 1;
            *left == 0
        })
    });
    if is_time {
        panic_at(0);
        std::panic::resume_unwind(Box::new(OnPurpose));
    }
}

pub struct Mutex<T>(shuttle::sync::Mutex<T>);

pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// `None` only while temporarily unlocked.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Mutex<T> {
        Mutex(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        may_panic();
        MutexGuard {
            lock: self,
            held: Some(self.0.lock().unwrap_or_else(PoisonError::into_inner)),
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
        guard.held = Some(guard.lock.0.lock().unwrap_or_else(PoisonError::into_inner));
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

/// A thread that advances the time must wake the waits with a limit ([`notify_all`](Self::notify_all)).
pub struct Condvar(shuttle::sync::Condvar);

pub struct TimedOut(bool);

impl TimedOut {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub const fn new() -> Condvar {
        Condvar(shuttle::sync::Condvar::new())
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }

    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, limit: Duration) -> TimedOut {
        self.wait_until(guard, Instant::now() + limit)
    }

    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, until: Instant) -> TimedOut {
        if Instant::now() < until {
            let held = guard.held.take().expect("locked");
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
        TimedOut(Instant::now() >= until)
    }
}

/// Atomically swapped pointer, behind a lock with short critical sections.
pub struct ArcSwapOption<T>(Mutex<Option<Arc<T>>>);

/// Value at the time of the load.
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

/// Handle of a checker's thread.
pub struct JoinHandle<T> {
    thread: shuttle::thread::JoinHandle<T>,
    is_finished: Arc<AtomicBool>,
}

impl<T> JoinHandle<T> {
    pub fn is_finished(&self) -> bool {
        self.is_finished.load(Ordering::SeqCst)
    }

    pub fn join(self) -> std::thread::Result<T> {
        self.thread.join()
    }
}

pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let is_finished = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&is_finished);
    let thread = shuttle::thread::spawn(move || {
        let result = body();
        its.store(true, Ordering::SeqCst);
        result
    });
    JoinHandle {
        thread,
        is_finished,
    }
}

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Shared clock: all threads of a schedule run in one thread of the host.
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

impl std::ops::Add<Duration> for Instant {
    type Output = Instant;

    fn add(self, time: Duration) -> Instant {
        Instant(self.0 + time)
    }
}

/// Sets the time.
pub fn set_time(now: Duration) {
    NOW.set(now);
}

/// Begins a schedule at this time.
pub fn begin(now: Duration) {
    set_time(now);
    PANICS.with_borrow_mut(Vec::clear);
}

/// Offers a scheduling point. Does not yield, because a yield would force other threads to run.
pub fn sleep(_: Duration) {
    AtomicBool::new(false).load(Ordering::SeqCst);
}

/// Yields: waiting callers check their condition again after other threads have run.
pub fn pause(_: Duration) {
    shuttle::thread::yield_now();
}
