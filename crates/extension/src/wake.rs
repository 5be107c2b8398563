//! How writers are woken and stopped.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A writer looks for staged pages at least so often.
pub(crate) const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Wake {
    /// Stored with `Release` under the mutex, loaded with `Acquire`: what was done before the end was called for is seen.
    stop: AtomicBool,
    /// Somebody has announced work that no writer has looked at. `Relaxed` everywhere: if a page is staged after a writer has
    /// looked there, the instance's lock shows what the writer has left here; and who sleeps has looked under the mutex.
    announced: AtomicBool,
    /// Staged bytes worth waking for.
    pub staged: u64,
    mutex: Mutex<()>,
    condvar: Condvar,
    /// Writer threads that have not ended.
    running: AtomicU32,
    ended: Condvar,
}

impl Wake {
    pub fn new(staged: u64) -> Wake {
        Wake {
            stop: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            staged,
            mutex: Mutex::new(()),
            condvar: Condvar::new(),
            running: AtomicU32::new(0),
            ended: Condvar::new(),
        }
    }

    /// There is work. Costs a load unless it is news.
    pub fn announce(&self) {
        if !self.announced.load(Ordering::Relaxed) && !self.announced.swap(true, Ordering::Relaxed)
        {
            let _guard = self.mutex.lock();
            self.condvar.notify_all();
        }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits for work, for the end, or for the time to pass.
    pub fn wait(&self, time: Duration) {
        let mut guard = self.mutex.lock();
        if !self.stopped() && !self.announced.load(Ordering::Relaxed) {
            self.condvar.wait_for(&mut guard, time);
        }
        self.announced.store(false, Ordering::Relaxed);
    }

    /// Waits for the end or for the time to pass.
    pub fn pause(&self, time: Duration) {
        let mut guard = self.mutex.lock();
        let until = Instant::now() + time;
        while !self.stopped() && !self.condvar.wait_until(&mut guard, until).timed_out() {}
    }

    pub fn thread_begins(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    pub fn thread_ends(&self) {
        let _guard = self.mutex.lock();
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.ended.notify_all();
    }

    /// Tells the threads to end, and waits for them, but not longer than this. Whether all have ended.
    pub fn stop(&self, patience: Duration) -> bool {
        let mut guard = self.mutex.lock();
        self.stop.store(true, Ordering::Release);
        self.condvar.notify_all();
        let until = Instant::now() + patience;
        while self.running.load(Ordering::SeqCst) > 0 {
            if self.ended.wait_until(&mut guard, until).timed_out() {
                return self.running.load(Ordering::SeqCst) == 0;
            }
        }
        true
    }
}
