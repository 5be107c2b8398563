//! Waking and stopping of the writers.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A writer checks for staged pages at least this often.
pub(crate) const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Wake {
    /// Stored with `Release` under the mutex, loaded with `Acquire`: a thread that sees it also sees everything before it.
    stop: AtomicBool,
    /// Work was announced since a writer last checked. `Relaxed` everywhere: if a page is staged after a writer has checked its
    /// instance, the instance's lock makes the writer's store to this flag visible to the announcing thread. A writer that
    /// sleeps has checked the flag under the mutex.
    announced: AtomicBool,
    /// Staged bytes from which on a writer is woken.
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

    /// Announces work. Costs one load if it is already announced.
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

    /// Waits for work, for the stop, or for the time to pass.
    pub fn wait(&self, time: Duration) {
        let mut guard = self.mutex.lock();
        if !self.stopped() && !self.announced.load(Ordering::Relaxed) {
            self.condvar.wait_for(&mut guard, time);
        }
        self.announced.store(false, Ordering::Relaxed);
    }

    /// Waits for the stop or for the time to pass.
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

    /// Stops the threads and waits for them, but no longer than `timeout`. Returns whether all have ended.
    pub fn stop(&self, timeout: Duration) -> bool {
        let mut guard = self.mutex.lock();
        self.stop.store(true, Ordering::Release);
        self.condvar.notify_all();
        let until = Instant::now() + timeout;
        while self.running.load(Ordering::SeqCst) > 0 {
            if self.ended.wait_until(&mut guard, until).timed_out() {
                return self.running.load(Ordering::SeqCst) == 0;
            }
        }
        true
    }
}
