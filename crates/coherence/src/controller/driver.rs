//! The table at work: the lock under which events are posted, what is stored under it, and who waits for a change.
//!
//! Somebody posts an event under the lock. What only stores is done under that lock, so that what was decided before never comes
//! last. Whatever may take time is then done by who posted, without the lock (`work`), and what came of it is the next event.
//!
//! Two do not wait for the lock. Whoever switches off turns the switch first, and is counted as `ahead` until he has the lock:
//! he may hold an extension that nobody else knows of. A hook that panics turns the switch and leaves the rest to whoever takes
//! the lock next.
//!
//! Order of locks: thread → lock → what the switch and the files take. Nothing is waited for under the lock but a change of what
//! it guards.

use std::time::Duration;

use super::events::{self, Later, Refused, Store};
use super::host::{Engine, Host};
use super::state::{self, Work};
use crate::core::Core;
use crate::os::Os as _;
use crate::switch::{Active, Interrupted};
use crate::sync::{
    ArcSwapOption, AtomicBool, AtomicU64, AtomicUsize, Condvar, Instant, JoinHandle, Mutex,
    MutexGuard, Ordering,
};

/// What a host's controller knows.
pub type Machine<H> = state::Machine<<H as Host>::Settings, Engine>;
/// What may happen to it.
pub type Event<H> = events::Event<<H as Host>::Settings, Engine>;
pub(super) type Laters<H> = Vec<Later<<H as Host>::Settings, Engine>>;

/// Switches the extension of a process on and off.
pub struct Controller<H: Host> {
    pub(super) core: &'static Core<H::Os>,
    /// The process.
    pub host: H,
    inner: Mutex<Inner<H>>,
    /// An event has changed something.
    changed: Condvar,
    /// Sessions that have turned the switch, and may have taken an extension out of it, but do not hold the lock yet.
    pub(super) ahead: AtomicUsize,
    panicked: AtomicBool,
    /// What was active when a hook panicked.
    after_a_panic: ArcSwapOption<Active>,
    switched_on: AtomicU64,
    pub(super) thread: Mutex<Thread>,
}

/// What the lock guards.
pub(super) struct Inner<H: Host> {
    pub machine: Machine<H>,
    /// Extensions that some thread of the server is still waiting in, long after they were switched off.
    pub lingering: Vec<Engine>,
}

/// The controller's thread.
pub(super) struct Thread {
    pub handle: Option<JoinHandle<()>>,
    /// Why it could not be started when that was tried last.
    pub refused: Option<String>,
}

impl<H: Host> Controller<H> {
    /// Of a plugin that is not installed.
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

    /// Nobody posts meanwhile. A panic of a hook, which must not wait for this lock, is made known first.
    pub(super) fn lock(&self) -> MutexGuard<'_, Inner<H>> {
        let mut inner = self.inner.lock();
        if self.has_panicked() {
            let active = self.after_a_panic.swap(None).map(Event::<H>::Taken);
            for event in active.into_iter().chain([Event::<H>::Panicked]) {
                // There is nothing to be done later.
                inner
                    .machine
                    .post(event, self.now(), |what| self.store(what));
            }
        }
        inner
    }

    /// Looks at what is known. Nothing may be waited for meanwhile.
    pub fn with<R>(&self, look: impl FnOnce(&Machine<H>) -> R) -> R {
        look(&self.lock().machine)
    }

    pub(super) fn now(&self) -> Duration {
        self.core.os().running()
    }

    /// A hook panicked: off for good. Takes no lock that the hook might hold.
    pub fn panicked(&self) {
        let _late = left_out!("panic-after-lock").then(|| self.lock());
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

    /// How often the extension was switched on.
    pub fn switched_on(&self) -> u64 {
        self.switched_on.load(Ordering::Relaxed)
    }

    /// Returns what the caller has to do, without the lock.
    #[must_use]
    pub(super) fn post(&self, event: Event<H>) -> Laters<H> {
        if left_out!("notify-before-change") {
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

    /// Switches off before it waits for any lock, and then posts why. The event does it once more: a commit may come in between.
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

    /// Whether extensions of before have let go of their files. Under the lock.
    pub(super) fn is_released(&self, machine: &Machine<H>) -> bool {
        let is_ahead = self.ahead.load(Ordering::SeqCst) > 0 && !left_out!("ahead-not-counted");
        !is_ahead && machine.is_released()
    }

    /// Posts as often as it takes until the answer is not to wait.
    ///
    /// # Errors
    /// It was still to wait after the limit.
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

    /// Waits until something is so. Whether it was before the limit.
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

    /// Whoever waits for a while looks at the checker's clock again.
    #[cfg(all(test, checker))]
    pub fn time_has_passed(&self) {
        self.changed.notify_all();
    }

    /// Looks when nobody has the lock, without the panics that it makes known.
    #[cfg(all(test, checker))]
    pub fn when_free<R>(&self, look: impl FnOnce() -> R) -> R {
        let _inner = self.inner.lock();
        look()
    }

    /// Waits for a change.
    pub(super) fn wait_for_change(&self, inner: &mut MutexGuard<'_, Inner<H>>, limit: Duration) {
        self.changed.wait_for(inner, limit);
    }

    /// Under the lock.
    fn store(&self, what: Store<Engine>) -> Option<Event<H>> {
        let switch = self.core.switch();
        match what {
            Store::Kill => switch.kill().map(Event::<H>::Taken),
            Store::SwitchOff => switch.switch_off().map(Event::<H>::Taken),
            Store::Leave => {
                switch.only_follow();
                None
            }
            Store::Follow(work) => {
                let forget = || self.core.files.forget_all();
                let begins = match work {
                    Work::Build(_) => {
                        self.core.requests.disarm_all();
                        // A recording that is under way has followed the files since it began, under the same lock as this.
                        switch.start_tracking(forget)
                    }
                    Work::Recording => switch.start_recording(forget),
                };
                // A hook that panics does not wait for this lock: it is seen here, or it switches off after this.
                if self.has_panicked() && !left_out!("follow-after-panic") {
                    self.kill_after_a_panic();
                }
                Some(Event::<H>::Followed { work, begins })
            }
            Store::Publish(engine) => Some(match switch.publish(engine) {
                Ok(before) => {
                    if !left_out!("adjust-before-publish") {
                        self.adjust();
                    }
                    self.switched_on.fetch_add(1, Ordering::Relaxed);
                    Event::<H>::Published(before)
                }
                Err(Interrupted(ours)) => Event::<H>::Interrupted(ours),
            }),
        }
    }

    /// Settings that need no other layout have changed: the active extension takes them over. Under the lock, so that values of
    /// before never come last.
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
