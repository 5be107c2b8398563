//! Slow operations: building an extension step by step, closing retired ones, the controller's thread, and client requests.
//! They run without the lock, and every wait has a limit.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::driver::{Controller, Event, Laters, Thread};
use super::events::{Answer, Later, Refused};
use super::host::{Engine, Host};
use super::state::Work;
use crate::platform::os::Os as _;
use crate::platform::sync::{Instant, pause};

/// Limit on waiting for an extension to release its files, and for a client that waits for another operation.
pub const RETIRE_WAIT: Duration = Duration::from_secs(20);
/// Limit on a recording's wait for a build in progress.
const RECORDING_WAIT: Duration = Duration::from_secs(5);
/// Interval between two ticks of the controller's thread if the state does not change.
pub const TICK: Duration = Duration::from_millis(500);

impl<H: Host> Controller<H> {
    /// Runs the effects of an event and of the events that follow from it. Returns the client's answer.
    pub(super) fn perform(&self, later: Laters<H>) -> Answer {
        let mut answer = Ok(Vec::new());
        let mut queue = VecDeque::from(later);
        while let Some(later) = queue.pop_front() {
            match later {
                Later::Tell(told) => self.host.tell(told),
                Later::Answer(result) => answer = result,
                Later::Prepare { number, own } => {
                    queue.extend(self.work(Work::Build(number), || self.make_room(number, own)));
                }
                Later::Open {
                    number,
                    settings,
                    page,
                } => queue
                    .extend(self.work(Work::Build(number), || self.open(number, &settings, page))),
                Later::Scan(of) => queue.extend(self.work(of, || {
                    self.core.register_open_files();
                    Event::<H>::Scanned(of)
                })),
                // The caller that posted the event handles both.
                Later::Close(_) | Later::Wait => {}
            }
        }
        answer
    }

    /// Posts an event without a waiting client, and runs its effects.
    fn handled(&self, event: Event<H>) {
        let _ = self.perform(self.post(event));
    }

    /// Runs one step of the work. A panic fails the work.
    fn work(&self, work: Work, body: impl FnOnce() -> Event<H>) -> Laters<H> {
        self.post(
            catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| Event::<H>::Failed {
                work,
                why: "an internal error occurred".into(),
            }),
        )
    }

    pub(super) fn make_room(&self, number: u64, own: bool) -> Event<H> {
        if let Some(why) = self.host.refusal() {
            return Event::<H>::NotSeen { number, why };
        }
        if own {
            // Only this thread closes them. A session that switches off may still add one.
            self.close_all();
            while self.wait_until(RETIRE_WAIT, |machine| {
                machine.has_to_close() || self.is_released(machine)
            }) && self.with(|machine| machine.has_to_close())
            {
                self.close_all();
            }
        }
        // Another thread may be closing one: the previous installation's thread, or an overtaken session.
        if !self.wait_for_retired() {
            return Event::<H>::Failed {
                work: Work::Build(number),
                why: "the cache files of the time before are still being closed; try again in some seconds".into(),
            };
        }
        Event::<H>::Released(number)
    }

    /// Waits for previous extensions to release their files. Returns whether they did so within [`RETIRE_WAIT`].
    pub fn wait_for_retired(&self) -> bool {
        self.wait_until(RETIRE_WAIT, |machine| self.is_released(machine))
    }

    fn open(&self, number: u64, settings: &H::Settings, page: u32) -> Event<H> {
        let refused = |page| self.handled(Event::<H>::PageRefused(page));
        match self.host.open(settings, page, refused) {
            Ok(built) => Event::<H>::Opened { number, built },
            Err(why) => Event::<H>::Failed {
                work: Work::Build(number),
                why,
            },
        }
    }

    /// Closes the retired extensions one after another. Call in the controller's thread, or if there is none.
    fn close_all(&self) {
        while let Some(Later::Close(engine)) = self.post(Event::<H>::CloseNext).pop() {
            self.close_when_unused(engine);
            let _ = self.post(Event::<H>::Closed);
        }
    }

    /// Waits until no hook uses the extension, then closes it. After [`RETIRE_WAIT`], suspends it in `lingering`: closing is
    /// slow, so the last user must not do it.
    fn close_when_unused(&self, old: Engine) {
        let until = Instant::now() + RETIRE_WAIT;
        while Arc::strong_count(&old) > 1 {
            if Instant::now() >= until {
                self.lock().lingering.push(old);
                return;
            }
            pause(Duration::from_millis(1));
        }
        let _ = catch_unwind(AssertUnwindSafe(|| self.host.close(old)));
    }
}

/// Removes the unused extensions from a list.
fn take_unused(list: &mut Vec<Engine>) -> Vec<Engine> {
    let (unused, used) = std::mem::take(list)
        .into_iter()
        .partition(|engine| Arc::strong_count(engine) == 1);
    *list = used;
    unused
}

/// The controller's thread: one for each installation of the plugin.
impl<H: Host> Controller<H> {
    /// Starts the thread if it does not run and the plugin is installed.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn ensure_thread(&'static self) -> Result<(), String> {
        let mut thread = self.thread.lock();
        if thread.handle.is_some() {
            return Ok(());
        }
        let life = self.with(|machine| (!machine.is_gone()).then(|| machine.life()));
        let Some(life) = life else { return Ok(()) };
        let os = self.core.os();
        match os.spawn("bpe-controller", move || self.run(life)) {
            Ok(handle) => {
                *thread = Thread {
                    handle: Some(handle),
                    refused: None,
                };
                Ok(())
            }
            Err(error) => {
                let reason = format!(
                    "cannot start the controller's thread: {error}; raise the limit on threads"
                );
                thread.refused = Some(reason.clone());
                Err(reason)
            }
        }
    }

    /// Error of the last failed start of the thread.
    pub fn no_thread(&self) -> Option<String> {
        self.thread.lock().refused.clone()
    }

    /// Starts the thread if it is missing and has work to do. Call before reading the state for a report: if the thread could
    /// not be started, this call is the only retry.
    pub fn ensure_needed_thread(&'static self) {
        if self.with(|machine| machine.needs_thread()) {
            let _ = self.ensure_thread();
        }
    }

    fn run(&self, life: u64) {
        let mut watched = H::Watched::default();
        let mut waits = false;
        loop {
            self.close_all();
            let mut inner = self.lock();
            let is_over = inner.machine.is_gone()
                || inner.machine.life() != life && !canary!("life-not-compared");
            // An extension retired since `close_all` would wait for the next tick.
            if inner.machine.has_to_close() && (is_over || !canary!("retired-unseen")) {
                continue;
            }
            let gone = take_unused(&mut inner.lingering);
            if is_over {
                drop(inner);
                drop(gone);
                return;
            }
            let has_to_do = inner.machine.is_due(self.now()) && !waits;
            if !has_to_do && gone.is_empty() {
                self.wait_for_change(&mut inner, TICK);
            }
            drop(inner);
            let _ = catch_unwind(AssertUnwindSafe(|| {
                drop(gone);
                let settings;
                (settings, waits) = self.host.conditions();
                self.handled(Event::<H>::Tick {
                    life,
                    settings,
                    waits,
                });
                let nominal = self.with(|machine| machine.is_on().then(|| machine.nominal_page()));
                self.host
                    .watch(&mut watched, nominal, |event| self.handled(event));
            }));
        }
    }
}

/// Requests of clients and of the server.
impl<H: Host> Controller<H> {
    /// Installs the controller. A configured extension is built in the controller's thread: a hanging disk must not block the
    /// server's start.
    /// - `passive`: why the calls are not intercepted.
    /// - `unseen`: which asynchronous I/O bypasses the hooks.
    /// - `wanted`: the configuration enables the extension.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(
        &'static self,
        passive: Option<String>,
        unseen: Option<String>,
        wanted: bool,
    ) -> Result<(), String> {
        self.handled(Event::<H>::Init {
            passive,
            unseen,
            broken: self.has_panicked(),
            wanted,
        });
        self.ensure_thread()
    }

    /// Server shutdown with a persisted cache. `end` as in [`stop`](Self::stop).
    pub fn leave(&'static self, end: impl FnOnce()) {
        self.handled(Event::<H>::Leave);
        self.end_thread(end);
    }

    /// Plugin unload or server shutdown. `end` ends all other activity, once no new activity can begin.
    pub fn stop(&'static self, end: impl FnOnce()) {
        self.end(Event::<H>::Stop);
        self.end_thread(end);
    }

    fn end_thread(&'static self, end: impl FnOnce()) {
        let thread = {
            let mut thread = self.thread.lock();
            thread.refused = None;
            thread.handle.take()
        };
        end();
        let Some(thread) = thread else {
            // The thread never started, so this caller closes the extensions.
            return self.close_all();
        };
        let until = Instant::now() + RETIRE_WAIT;
        while !thread.is_finished() && Instant::now() < until {
            pause(Duration::from_millis(5));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }

    /// First half of switching on, for a client: builds the extension and registers the open files. Returns warnings. May take
    /// as long as a disk. Calls `settings` for the current values with the lock held, again after each wait for other work.
    ///
    /// # Errors
    /// The reason for the refusal.
    pub fn prepare(&'static self, settings: impl Fn() -> H::Settings) -> Answer {
        let mut later = self.ask(|| Event::<H>::AskOn(settings()), RETIRE_WAIT)?;
        if let [Later::Prepare { number, .. }] = later[..] {
            // Without the thread, extensions would not be retired and failed builds not retried.
            if let Err(why) = self.ensure_thread() {
                let work = Work::Build(number);
                later = self.post(Event::<H>::Failed { work, why });
            }
        }
        let answer = self.perform(later);
        if self.with(|machine| machine.is_gone()) {
            // The plugin was uninstalled while this client waited for a disk.
            self.close_all();
        }
        answer
    }

    /// Second half of switching on, for a client: from here on, hooks serve reads.
    pub fn commit(&self) {
        self.handled(Event::<H>::Commit);
    }

    /// Switches off immediately, recordings included. Retires the active extension in the background.
    pub fn disable(&'static self) {
        self.end(Event::<H>::Off);
    }

    fn end(&'static self, event: Event<H>) {
        let later = self.kill_and_post(event);
        self.ensure_needed_thread();
        let _ = self.perform(later);
    }

    /// Makes the hooks track files and record page reads and writes, whether the extension is on or off.
    ///
    /// # Errors
    /// The reason why the hooks cannot be switched on.
    pub fn follow_for_recording(&self) -> Result<(), Refused> {
        let is_running = self.thread.lock().handle.is_some();
        if !is_running && !self.with(|machine| machine.is_gone()) {
            return Err(Refused::NotInstalled);
        }
        let later = self.ask(|| Event::<H>::AskRecord, RECORDING_WAIT)?;
        self.perform(later).map(drop)
    }
}
