//! What takes time: building an extension step by step, closing those that are not active any more, the controller's thread, and
//! what clients ask for. None of it is done with the lock held, and every wait has an end.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::driver::{Controller, Event, Laters, Thread};
use super::events::{Later, Refused};
use super::host::{Engine, Host};
use super::state::Work;
use crate::os::Os as _;
use crate::sync::{Instant, pause};

/// How long an extension is waited for to let go of its files, and a client for what others have begun.
pub const RETIRE_WAIT: Duration = Duration::from_secs(20);
/// How long a recording waits for a switching on that is under way.
const RECORDING_WAIT: Duration = Duration::from_secs(5);
/// Between two looks of the controller's thread, unless something changes.
pub const TICK: Duration = Duration::from_millis(500);

impl<H: Host> Controller<H> {
    /// Does what an event has left to do, and what comes of that. Returns the client's answer.
    pub(super) fn perform(&self, later: Laters<H>) -> Result<Vec<String>, Refused> {
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
                // Those who ask for it do it themselves.
                Later::Close(_) | Later::Wait => {}
            }
        }
        answer
    }

    /// Posts an event for which no client waits, and does what it has left to do.
    fn handled(&self, event: Event<H>) {
        let _ = self.perform(self.post(event));
    }

    /// A panic ends the work as well.
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
            // Nobody but this thread would close them. A session that switches off may still come with one.
            self.close_all();
            while self.wait_until(RETIRE_WAIT, |machine| {
                machine.has_to_close() || self.is_released(machine)
            }) && self.with(|machine| machine.has_to_close())
            {
                self.close_all();
            }
        }
        // Somebody else may be at it: a thread of the installation before, or a session that was overtaken.
        if !self.wait_for_retired() {
            return Event::<H>::Failed {
                work: Work::Build(number),
                why: "the cache files of the time before are still being closed; try again in some seconds".into(),
            };
        }
        Event::<H>::Released(number)
    }

    /// Waits until extensions before this one have let go of their files. Whether they have within [`RETIRE_WAIT`].
    pub fn wait_for_retired(&self) -> bool {
        self.wait_until(RETIRE_WAIT, |machine| self.is_released(machine))
    }

    fn open(&self, number: u64, settings: &H::Settings, page: u32) -> Event<H> {
        match self.host.open(settings, page, |event| self.handled(event)) {
            Ok(built) => Event::<H>::Opened { number, built },
            Err(why) => Event::<H>::Failed {
                work: Work::Build(number),
                why,
            },
        }
    }

    /// Closes what is retired, one after the other. For the controller's thread, or when there is none any more.
    fn close_all(&self) {
        while let Some(Later::Close(engine)) = self.post(Event::<H>::CloseNext).pop() {
            self.close_when_unused(engine);
            let _ = self.post(Event::<H>::Closed);
        }
    }

    /// Waits until no hook uses it any more, then closes it. What is in use for very long is put aside: the last user must not
    /// be the one who closes it, since that may take time.
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

/// Takes the extensions that nobody uses any more out of a list.
fn take_unused(list: &mut Vec<Engine>) -> Vec<Engine> {
    let (unused, used) = std::mem::take(list)
        .into_iter()
        .partition(|engine| Arc::strong_count(engine) == 1);
    *list = used;
    unused
}

/// The controller's thread, of which there is one for each installation of the plugin.
impl<H: Host> Controller<H> {
    /// Starts the thread if it could not be started before.
    ///
    /// # Errors
    /// Says why there is none.
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

    /// Why there is no thread, if it could not be started.
    pub fn no_thread(&self) -> Option<String> {
        self.thread.lock().refused.clone()
    }

    /// Starts the thread where there is none, if there is something that only the thread does.
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
                || inner.machine.life() != life && !left_out!("life-not-compared");
            // What came since would wait for the next tick.
            if inner.machine.has_to_close() && (is_over || !left_out!("retired-unseen")) {
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
                waits = self.host.waits();
                self.handled(Event::<H>::Tick {
                    life,
                    settings: self.host.settings(),
                    waits,
                });
                let nominal = self.with(|machine| machine.is_on().then(|| machine.nominal_page()));
                self.host
                    .watch(&mut watched, nominal, |event| self.handled(event));
            }));
        }
    }
}

/// What clients and the server ask for.
impl<H: Host> Controller<H> {
    /// The plugin is installed. `passive`: why the calls are not intercepted; `unseen`: which asynchronous I/O passes them by;
    /// `wanted`: the configuration asks for the extension. It is built in the controller's thread: a disk that hangs must not
    /// keep the server from starting.
    ///
    /// # Errors
    /// There is no thread for it.
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

    /// The server stops, and what is cached is left to the next one. `end` as in [`stop`](Self::stop).
    pub fn leave(&'static self, end: impl FnOnce()) {
        let later = self.post(Event::<H>::Leave);
        let _ = self.perform(later);
        self.end_thread(end);
    }

    /// The plugin is being unloaded, or the server stops. `end` ends what else is under way, once nothing can begin any more.
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
            // There was no thread to be had: nobody else will do it.
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

    /// First half of switching on, for a client: builds the extension and gets to know the open files. Returns warnings. May
    /// take as long as a disk takes.
    ///
    /// # Errors
    /// Why not.
    pub fn prepare(&'static self) -> Result<Vec<String>, Refused> {
        let mut later = self.ask(|| Event::<H>::AskOn(self.host.settings()), RETIRE_WAIT)?;
        if let [Later::Prepare { number, .. }] = later[..] {
            // Without it nothing would be retired, nor tried again.
            if let Err(why) = self.ensure_thread() {
                let work = Work::Build(number);
                later = self.post(Event::<H>::Failed { work, why });
            }
        }
        let answer = self.perform(later);
        if self.with(|machine| machine.is_gone()) {
            // The plugin was uninstalled while this was waiting for a disk.
            self.close_all();
        }
        answer
    }

    /// Second half of switching on, for a client: hooks serve from here on.
    pub fn commit(&self) {
        self.handled(Event::<H>::Commit);
    }

    /// Switches off at once, a recording too. What was active is retired in the background.
    pub fn disable(&'static self) {
        self.end(Event::<H>::Off);
    }

    fn end(&'static self, event: Event<H>) {
        let later = self.kill_and_post(event);
        self.ensure_needed_thread();
        let _ = self.perform(later);
    }

    /// Lets the hooks follow files and note page reads and writes for a recording, whether the extension is on or off.
    ///
    /// # Errors
    /// Why the hooks cannot be switched on.
    pub fn follow_for_recording(&self) -> Result<(), Refused> {
        let is_running = self.thread.lock().handle.is_some();
        if !is_running && !self.with(|machine| machine.is_gone()) {
            return Err(Refused::NotInstalled);
        }
        let later = self.ask(|| Event::<H>::AskRecord, RECORDING_WAIT)?;
        self.perform(later).map(drop)
    }
}
