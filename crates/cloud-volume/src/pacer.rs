//! The thread that completes due requests.
//!
//! One thread sleeps until the next deadline and passes due requests to a handler. It is woken early only for a request
//! that is due before all others. So a busy volume costs one timer wake per completion, and an idle one costs nothing.
//! Sleeping is precise to a few tens of microseconds: the timer slack, 50 us by default, is set to its minimum.

use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::bucket::Nanos;
use crate::profile::{Profile, billed};
use crate::schedule::{Cost, Due, Schedule};

pub(crate) struct Pacer<T> {
    epoch: Instant,
    state: Mutex<State<T>>,
    wake: Condvar,
    /// Whether a request may complete on arrival. Mirrors the schedule, so that an unlimited volume avoids its lock.
    free: AtomicBool,
    /// Mirrors the profile, for the same reason.
    billed_size: AtomicU64,
}

struct State<T> {
    schedule: Schedule<T>,
    stopping: bool,
}

impl<T: Send + 'static> Pacer<T> {
    pub(crate) fn new(profile: Profile) -> Arc<Self> {
        let billed_size = AtomicU64::new(profile.billed_size);
        let schedule = Schedule::new(0, profile);
        Arc::new(Pacer {
            billed_size,
            epoch: Instant::now(),
            free: AtomicBool::new(schedule.is_free(0)),
            state: Mutex::new(State {
                schedule,
                stopping: false,
            }),
            wake: Condvar::new(),
        })
    }

    /// Starts the thread, which passes each request to `handle` when it is due. `handle` should not block for long,
    /// because it delays the requests behind.
    pub(crate) fn run(
        self: &Arc<Self>,
        handle: impl Fn(Due<T>) + Send + 'static,
    ) -> std::io::Result<JoinHandle<()>> {
        let pacer = self.clone();
        std::thread::Builder::new()
            .name("volume-pacer".into())
            .spawn(move || pacer.complete_requests(handle))
    }

    fn complete_requests(&self, handle: impl Fn(Due<T>)) {
        raise_priority();
        let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        let mut state = self.state.lock();
        while !state.stopping {
            let now = self.now();
            if let Some(due) = state.schedule.pop_due(now) {
                parking_lot::MutexGuard::unlocked(&mut state, || handle(due));
                continue;
            }
            match state.schedule.next_due() {
                Some(due) => {
                    let until = self.epoch + Duration::from_nanos(due);
                    self.wake.wait_until(&mut state, until);
                }
                None => {
                    self.free
                        .store(state.schedule.is_free(now), Ordering::Release);
                    self.wake.wait(&mut state);
                }
            }
        }
    }

    /// Whether a request need not be queued: there are no caps, no latency, and no stall.
    pub(crate) fn is_free(&self) -> bool {
        self.free.load(Ordering::Acquire)
    }

    /// Queues a request. After [`Pacer::stop`] it returns the request as an error.
    pub(crate) fn submit(&self, cost: Cost, item: T) -> Result<(), T> {
        let mut state = self.state.lock();
        if state.stopping {
            return Err(item);
        }
        let first = state.schedule.next_due();
        let due = state.schedule.push(self.now(), cost, item);
        drop(state);
        if first.is_none_or(|first| due < first) {
            self.wake.notify_one();
        }
        Ok(())
    }

    pub(crate) fn profile(&self) -> Profile {
        self.state.lock().schedule.profile().clone()
    }

    pub(crate) fn queued(&self) -> usize {
        self.state.lock().schedule.len()
    }

    /// I/Os that a request of `bytes` counts as.
    pub(crate) fn billed(&self, bytes: u64) -> u64 {
        billed(bytes, self.billed_size.load(Ordering::Relaxed))
    }

    pub(crate) fn set_profile(&self, profile: Profile) {
        self.billed_size
            .store(profile.billed_size, Ordering::Relaxed);
        self.change(|schedule, now| schedule.set_profile(now, profile));
    }

    /// Holds all requests for `time`, counted from now.
    pub(crate) fn stall(&self, time: Duration) {
        let time = Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX);
        self.change(|schedule, now| schedule.hold(now, now.saturating_add(time)));
    }

    /// Ends a stall.
    pub(crate) fn resume(&self) {
        self.change(|schedule, now| schedule.release(now));
    }

    fn change(&self, change: impl FnOnce(&mut Schedule<T>, Nanos)) {
        let mut state = self.state.lock();
        let now = self.now();
        change(&mut state.schedule, now);
        self.free
            .store(state.schedule.is_free(now), Ordering::Release);
        drop(state);
        self.wake.notify_one();
    }

    /// Removes and returns all waiting requests.
    pub(crate) fn drain(&self) -> Vec<T> {
        let now = self.now();
        self.state.lock().schedule.drain(now)
    }

    /// Ends the thread. Returns the waiting requests.
    pub(crate) fn stop(&self) -> Vec<T> {
        let now = self.now();
        let mut state = self.state.lock();
        state.stopping = true;
        let left = state.schedule.drain(now);
        drop(state);
        self.free.store(false, Ordering::Release);
        self.wake.notify_one();
        left
    }

    fn now(&self) -> Nanos {
        self.epoch.elapsed().as_nanos() as Nanos
    }
}

/// Raises the priority of the calling thread, because a disk does not wait for the processor. Needs a privilege;
/// without it, a loaded host makes the volume slower than its profile.
pub(crate) fn raise_priority() {
    let _ = rustix::process::setpriority_process(None, -15);
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PAGE: Cost = Cost::Transfer { bytes: 16 * 1024 };

    #[test]
    fn requests_come_out_in_order_and_not_early() {
        let pacer = Pacer::new(Profile::default());
        let (sender, receiver) = mpsc::channel();
        let thread = pacer
            .run(move |due: Due<(u32, Instant)>| {
                sender.send((due.item, Instant::now())).unwrap();
            })
            .unwrap();
        for n in 0..30 {
            pacer.submit(PAGE, (n, Instant::now())).unwrap();
        }
        for n in 0..30 {
            let ((number, submitted), completed) = receiver.recv().unwrap();
            assert_eq!(number, n);
            assert!(completed - submitted >= Duration::from_micros(500));
        }
        assert!(pacer.stop().is_empty());
        thread.join().unwrap();
        assert!(pacer.submit(PAGE, (99, Instant::now())).is_err());
    }

    #[test]
    fn a_stall_ends_the_free_pass_until_it_is_over() {
        let pacer = Pacer::new(Profile::unlimited());
        let (sender, receiver) = mpsc::channel();
        let thread = pacer.run(move |due: Due<u32>| sender.send(due.item).unwrap());
        assert!(pacer.is_free());
        pacer.stall(Duration::from_secs(3600));
        assert!(!pacer.is_free());
        pacer.submit(PAGE, 1).unwrap();
        pacer.resume();
        let completed = receiver.recv_timeout(Duration::from_secs(60));
        assert_eq!(completed, Ok(1));
        assert!(pacer.is_free());
        pacer.stop();
        thread.unwrap().join().unwrap();
    }
}
