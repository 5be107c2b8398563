//! Runs the state machine: the lock for events, the stores under that lock, and the waits for changes.
//!
//! A thread posts an event under the lock. Stores run under the same lock, so an older decision never overwrites a newer one.
//! The poster then runs the slow effects without the lock (`work`) and posts each result as the next event.
//!
//! Two callers do not wait for the lock:
//! - A session that switches off turns the switch first. `ahead` counts it until it holds the lock, because it may own an
//!   extension that is not registered elsewhere.
//! - A hook that panics turns the switch. The next thread that takes the lock posts the panic.
//!
//! Lock order: `thread`, then this lock, then the locks of the switch and the files. Under this lock, threads wait only for
//! changes of the state that it guards.

use std::time::Duration;

use super::events::{self, Later, Refused, Store};
use super::host::{Engine, Host};
use super::state::{self, Work};
use crate::core::Core;
use crate::platform::os::Os as _;
use crate::platform::sync::{
    ArcSwapOption, AtomicBool, AtomicU64, AtomicUsize, Condvar, Instant, JoinHandle, Mutex,
    MutexGuard, Ordering,
};
use crate::switch::{Active, Interrupted};

/// State machine of a host's controller.
pub type Machine<H> = state::Machine<<H as Host>::Settings, Engine>;
/// Event of that state machine.
pub type Event<H> = events::Event<<H as Host>::Settings, Engine>;
pub(super) type Laters<H> = Vec<Later<<H as Host>::Settings, Engine>>;

/// Switches the extension of a process on and off.
pub struct Controller<H: Host> {
    pub(super) core: &'static Core<H::Os>,
    /// Interface to the process.
    pub host: H,
    inner: Mutex<Inner<H>>,
    /// Notified after every event that may have changed the state.
    changed: Condvar,
    /// Sessions that turned the switch but do not hold the lock yet. Each may have taken an extension out of the switch.
    pub(super) ahead: AtomicUsize,
    panicked: AtomicBool,
    /// Extension that was active when a hook panicked.
    after_a_panic: ArcSwapOption<Active>,
    switched_on: AtomicU64,
    pub(super) thread: Mutex<Thread>,
}

/// State guarded by the lock.
pub(super) struct Inner<H: Host> {
    pub machine: Machine<H>,
    /// Extensions that a server thread still uses long after they were switched off.
    pub lingering: Vec<Engine>,
}

/// The controller's thread.
pub(super) struct Thread {
    pub handle: Option<JoinHandle<()>>,
    /// Error of the last failed start.
    pub refused: Option<String>,
}

impl<H: Host> Controller<H> {
    /// State before the plugin is installed.
    pub const fn new(core: &'static Core<H::Os>, host: H) -> Controller<H> {
        Controller {
            core,
            host,
            inner: Mutex::new(Inner {
                machine: Machine::<H>::new(),
                lingering: Vec::new(),
            }),
            changed: Condvar::new(),
            ahead: AtomicUsize::new(0),
            panicked: AtomicBool::new(false),
            after_a_panic: ArcSwapOption::const_empty(),
            switched_on: AtomicU64::new(0),
            thread: Mutex::new(Thread {
                handle: None,
                refused: None,
            }),
        }
    }

    /// Takes the lock, and first posts a pending panic: the hook that panicked must not wait for this lock.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<H>> {
        let mut inner = self.inner.lock();
        if self.has_panicked() {
            let active = self.after_a_panic.swap(None).map(Event::<H>::Taken);
            for event in active.into_iter().chain([Event::<H>::Panicked]) {
                // Neither event has slow effects.
                inner
                    .machine
                    .post(event, self.now(), |what| self.store(what));
            }
        }
        inner
    }

    /// Reads the state. `look` must not block.
    pub fn with<R>(&self, look: impl FnOnce(&Machine<H>) -> R) -> R {
        look(&self.lock().machine)
    }

    pub(super) fn now(&self) -> Duration {
        self.core.os().running()
    }

    /// Records a panic in a hook: permanently off. Takes no lock that the hook might hold.
    pub fn panicked(&self) {
        let _late = canary!("panic-after-lock").then(|| self.lock());
        self.panicked.store(true, Ordering::SeqCst);
        self.kill_after_a_panic();
        self.core.os().error(
            "an internal error occurred (see above); the extension is switched off until the server restarts",
        );
    }

    fn kill_after_a_panic(&self) {
        let before = self.core.switch().kill();
        if before.is_some() {
            self.after_a_panic.store(before);
        }
    }

    /// Whether a hook has panicked in this process.
    pub fn has_panicked(&self) -> bool {
        self.panicked.load(Ordering::SeqCst)
    }

    /// Number of times that the extension was switched on.
    pub fn switched_on(&self) -> u64 {
        self.switched_on.load(Ordering::Relaxed)
    }

    /// Posts an event. The caller runs the returned effects without the lock.
    #[must_use]
    pub(super) fn post(&self, event: Event<H>) -> Laters<H> {
        if canary!("notify-before-change") {
            self.changed.notify_all();
            let mut inner = self.lock();
            return inner
                .machine
                .post(event, self.now(), |what| self.store(what));
        }
        self.post_under(&mut self.lock(), event)
    }

    fn post_under(&self, inner: &mut Inner<H>, event: Event<H>) -> Laters<H> {
        let later = inner
            .machine
            .post(event, self.now(), |what| self.store(what));
        if !matches!(later[..], [Later::Wait]) {
            self.changed.notify_all();
        }
        later
    }

    /// Turns the switch off before waiting for any lock, then posts the reason. The event turns it off again, because a commit
    /// may have come in between.
    #[must_use]
    pub(super) fn kill_and_post(&self, event: Event<H>) -> Laters<H> {
        self.ahead.fetch_add(1, Ordering::SeqCst);
        let before = self.core.switch().kill();
        let mut inner = self.lock();
        self.ahead.fetch_sub(1, Ordering::SeqCst);
        let mut later = Vec::new();
        for event in before.map(Event::<H>::Taken).into_iter().chain([event]) {
            later.extend(self.post_under(&mut inner, event));
        }
        later
    }

    /// Whether all previous extensions have released their files. Call with the lock held.
    pub(super) fn is_released(&self, machine: &Machine<H>) -> bool {
        let is_ahead = self.ahead.load(Ordering::SeqCst) > 0 && !canary!("ahead-not-counted");
        !is_ahead && machine.is_released()
    }

    /// Posts the event until the answer is not [`Later::Wait`].
    ///
    /// # Errors
    /// [`Refused::Busy`] if the answer is still [`Later::Wait`] at the limit.
    pub(super) fn ask(
        &self,
        event: impl Fn() -> Event<H>,
        limit: Duration,
    ) -> Result<Laters<H>, Refused> {
        let until = Instant::now() + limit;
        let mut inner = self.lock();
        loop {
            let later = self.post_under(&mut inner, event());
            if !matches!(later[..], [Later::Wait]) {
                return Ok(later);
            }
            if self.changed.wait_until(&mut inner, until).timed_out() {
                return Err(Refused::Busy);
            }
        }
    }

    /// Waits for a condition. Returns whether it held before the limit.
    pub fn wait_until(&self, limit: Duration, is_so: impl Fn(&Machine<H>) -> bool) -> bool {
        let until = Instant::now() + limit;
        let mut inner = self.lock();
        while !is_so(&inner.machine) {
            if self.changed.wait_until(&mut inner, until).timed_out() {
                return is_so(&inner.machine);
            }
        }
        true
    }

    /// Wakes waiting threads, so that they check the model checker's clock again.
    #[cfg(all(test, checker))]
    pub fn time_has_passed(&self) {
        self.changed.notify_all();
    }

    /// Calls `look` with the lock held, without posting a pending panic.
    #[cfg(all(test, checker))]
    pub fn when_free<R>(&self, look: impl FnOnce() -> R) -> R {
        let _inner = self.inner.lock();
        look()
    }

    pub(super) fn wait_for_change(&self, inner: &mut MutexGuard<'_, Inner<H>>, limit: Duration) {
        self.changed.wait_for(inner, limit);
    }

    /// Runs a store. Call with the lock held.
    fn store(&self, what: Store<Engine>) -> Option<Event<H>> {
        let switch = self.core.switch();
        match what {
            Store::Kill => switch.kill().map(Event::<H>::Taken),
            Store::SwitchOff => switch.switch_off().map(Event::<H>::Taken),
            Store::Leave => {
                switch.only_track();
                None
            }
            Store::Follow(work) => {
                let forget = || self.core.files.forget_all();
                let begins = match work {
                    Work::Build(_) => {
                        self.core.requests.disarm_all();
                        // An active recording has tracked the files since it began, under this lock.
                        switch.start_tracking(forget)
                    }
                    Work::Recording => switch.start_recording(forget),
                };
                // A hook that panics does not wait for this lock: either this check observes it, or the hook turns the switch
                // off afterwards.
                if self.has_panicked() && !canary!("follow-after-panic") {
                    self.kill_after_a_panic();
                }
                Some(Event::<H>::Followed { work, begins })
            }
            Store::Publish(engine) => Some(match switch.publish(engine) {
                Ok(before) => {
                    self.core.files.forget_replaced();
                    if !canary!("adjust-before-publish") {
                        self.adjust();
                    }
                    self.switched_on.fetch_add(1, Ordering::Relaxed);
                    Event::<H>::Published(before)
                }
                Err(Interrupted(ours)) => Event::<H>::Interrupted(ours),
            }),
        }
    }

    /// Applies settings that need no new layout to the active extension. Takes the lock, so that older values never overwrite
    /// newer ones.
    pub fn settings_changed(&self) {
        let _inner = self.lock();
        self.adjust();
    }

    fn adjust(&self) {
        if let Some(active) = &*self.core.switch().active() {
            self.host.adjust(active);
        }
    }
}
