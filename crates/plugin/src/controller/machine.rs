//! The machine of this process: its lock, what is stored under it, and what its texts are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use coherence::controller::{self, Refused, Shown, Store, Told, Work};
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::clock;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::CORE;
use crate::settings::{self, Settings};
use crate::switch::{Active, Interrupted};

pub type Engine = Arc<Active>;
pub type Machine = controller::Machine<Settings, Engine>;
pub type Event = controller::Event<Settings, Engine>;
pub type Later = controller::Later<Settings, Engine>;

const PANIC: &str = "switched off by an internal error; see the error log";
const AFTER_PANIC: &str = "an internal error switched the extension off; see the error log, and restart the server to use it again";
pub const BUSY: &str = "the extension is being built or switched; try again in some seconds; if this continues, a disk in \
                        bpe_path does not answer";
pub const NOT_INSTALLED: &str = "the plugin is not installed, only its function is";

/// What the extension is doing, as status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Switched off.
    Disabled = 0,
    /// Serving.
    Active = 1,
    /// The server's calls cannot be intercepted, or somebody else writes to its files.
    Passive = 2,
    /// Asked for, but not possible just now; tried again by itself.
    Failed = 3,
    /// On, but reads go to the data files.
    Bypass = 4,
}

impl State {
    /// As shown in `Bpe_state`.
    pub fn name(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Active => "active",
            State::Passive => "passive",
            State::Failed => "failed",
            State::Bypass => "bypass",
        }
    }
}

pub struct Inner {
    pub machine: Machine,
    /// Extensions that some thread of the server is still waiting in, long after they were switched off.
    pub lingering: Vec<Engine>,
}

static INNER: Mutex<Inner> = Mutex::new(Inner {
    machine: Machine::new(),
    lingering: Vec::new(),
});
/// An event has changed something.
static CHANGED: Condvar = Condvar::new();
/// Sessions that have turned the switch, and may have taken an extension out of it, but do not hold the lock yet.
static AHEAD: AtomicUsize = AtomicUsize::new(0);
static PANICKED: AtomicBool = AtomicBool::new(false);
/// What was active when a hook panicked.
static AFTER_A_PANIC: ArcSwapOption<Active> = ArcSwapOption::const_empty();
/// How often the extension was switched on.
pub static SWITCHED_ON: AtomicU64 = AtomicU64::new(0);
/// The plugin was loaded before InnoDB started.
pub static EARLY: AtomicBool = AtomicBool::new(false);

/// Nobody posts meanwhile. A panic of a hook, which must not wait for this lock, is made known first.
pub fn lock() -> MutexGuard<'static, Inner> {
    let mut inner = INNER.lock();
    if PANICKED.load(Ordering::SeqCst) {
        let active = AFTER_A_PANIC.swap(None).map(Event::Taken);
        for event in active.into_iter().chain([Event::Panicked]) {
            // There is nothing to be done later.
            inner.machine.post(event, clock::running(), store);
        }
    }
    inner
}

/// A hook panicked: off for good. Takes no lock that the hook might hold.
pub fn panicked() {
    PANICKED.store(true, Ordering::SeqCst);
    let before = CORE.switch().kill();
    Linux.error(
        "an internal error occurred (see above); the extension is switched off until the server restarts",
    );
    if before.is_some() {
        AFTER_A_PANIC.store(before);
    }
}

/// Whether a hook has panicked in this process.
pub fn has_panicked() -> bool {
    PANICKED.load(Ordering::SeqCst)
}

/// Returns what the caller has to do, without the lock.
#[must_use]
pub fn post(event: Event) -> Vec<Later> {
    post_under(&mut lock(), event)
}

#[must_use]
pub fn post_under(inner: &mut Inner, event: Event) -> Vec<Later> {
    let later = inner.machine.post(event, clock::running(), store);
    if !matches!(later[..], [Later::Wait]) {
        CHANGED.notify_all();
    }
    later
}

/// Switches off before it waits for any lock, and then posts why. The event does it once more: a commit may come in between.
#[must_use]
pub fn kill_and_post(event: Event) -> Vec<Later> {
    AHEAD.fetch_add(1, Ordering::SeqCst);
    let before = CORE.switch().kill();
    let mut inner = lock();
    AHEAD.fetch_sub(1, Ordering::SeqCst);
    let mut later = Vec::new();
    for event in before.map(Event::Taken).into_iter().chain([event]) {
        later.extend(post_under(&mut inner, event));
    }
    later
}

/// Whether extensions of before have let go of their files. Under the lock.
pub fn is_released(machine: &Machine) -> bool {
    AHEAD.load(Ordering::SeqCst) == 0 && machine.is_released()
}

/// Posts as often as it takes until the answer is not to wait.
///
/// # Errors
/// It was still to wait after the limit.
pub fn ask(event: impl Fn() -> Event, limit: Duration) -> Result<Vec<Later>, String> {
    let until = Instant::now() + limit;
    let mut inner = lock();
    loop {
        let later = post_under(&mut inner, event());
        if !matches!(later[..], [Later::Wait]) {
            return Ok(later);
        }
        if CHANGED.wait_until(&mut inner, until).timed_out() {
            return Err(BUSY.into());
        }
    }
}

/// Waits until something is so. Whether it was before the limit.
pub fn wait_until(limit: Duration, is_so: impl Fn(&Machine) -> bool) -> bool {
    let until = Instant::now() + limit;
    let mut inner = lock();
    while !is_so(&inner.machine) {
        if CHANGED.wait_until(&mut inner, until).timed_out() {
            return is_so(&inner.machine);
        }
    }
    true
}

/// Waits for a change.
pub fn wait_for_change(inner: &mut MutexGuard<'_, Inner>, limit: Duration) {
    CHANGED.wait_for(inner, limit);
}

/// Under the lock.
fn store(what: Store<Engine>) -> Option<Event> {
    match what {
        Store::Kill => CORE.switch().kill().map(Event::Taken),
        Store::SwitchOff => CORE.switch().switch_off().map(Event::Taken),
        Store::Follow(work) => {
            let forget = || CORE.files.forget_all();
            let begins = match work {
                Work::Build(_) => {
                    CORE.requests.disarm_all();
                    // A recording that is under way has followed the files since it began, under the same lock as this.
                    CORE.switch().start_tracking(forget)
                }
                Work::Recording => CORE.switch().start_recording(forget),
            };
            Some(Event::Followed { work, begins })
        }
        Store::Publish(engine) => Some(match CORE.switch().publish(engine) {
            Ok(before) => {
                adjust();
                SWITCHED_ON.fetch_add(1, Ordering::Relaxed);
                Event::Published(before)
            }
            Err(Interrupted(ours)) => Event::Interrupted(ours),
        }),
    }
}

/// Settings that need no other layout have changed: the active extension takes them over. Under the lock, so that values of
/// before never come last.
pub fn settings_changed() {
    let _inner = lock();
    adjust();
}

fn adjust() {
    if let Some(active) = &*CORE.switch().active() {
        active.extension.set_io_capacity(settings::io_capacity());
        active.extension.set_admission(settings::admission());
    }
}

/// One line in the log.
pub fn tell(told: Told<Settings>) {
    match told {
        Told::SwitchedOn(settings) => Linux.note(&format!(
            "switched on: {} bytes on {}, {} instance(s), {} mode",
            settings.size,
            settings.path,
            settings.instance_count(),
            if EARLY.load(Ordering::Relaxed) {
                "early"
            } else {
                "run-time"
            }
        )),
        Told::SwitchedOff => Linux.note("switched off; the cache files are removed"),
        Told::Passive(why) => Linux.warning(&format!(
            "passive: {why} The server works as it would without the extension."
        )),
        Told::Unseen(why) => Linux.error(&format!(
            "passive: {why} Everything cached is dropped and the extension is off."
        )),
        Told::Foreign(why) => Linux.error(&format!(
            "{why}. Everything cached is dropped and the extension is off. Find out who writes to the data files of a \
             running server, which is a danger to the data itself; SET GLOBAL bpe_enabled = ON uses the extension again."
        )),
        Told::Failed(why) => Linux.error(&format!(
            "not switched on: {why}. It is tried again by itself."
        )),
        Told::Warnings(warnings) => warnings.iter().for_each(|warning| Linux.warning(warning)),
        Told::SmallerPages(page) => Linux.note(&format!(
            "most data is read in pages of {page} bytes; the cache is laid out anew for them"
        )),
    }
}

/// For the client.
pub fn worded(refused: Refused) -> String {
    match refused {
        Refused::Why(why) => why,
        Refused::Overtaken => "another session has switched the extension off meanwhile".into(),
        Refused::Broken => AFTER_PANIC.into(),
        Refused::NotInstalled => NOT_INSTALLED.into(),
        Refused::Unseen(why) => format!("the server's I/O cannot be seen: {why}"),
    }
}

/// For status. `no_thread`: why the controller's thread could not be started.
pub fn shown(shown: Shown<'_>, no_thread: Option<String>) -> (State, String) {
    match (shown, no_thread) {
        (Shown::Off, _) => (State::Disabled, String::new()),
        (Shown::Pending, Some(why)) => (State::Failed, why),
        (Shown::Pending, None) => (State::Disabled, "being switched on".into()),
        (Shown::On, _) => (State::Active, String::new()),
        (Shown::Passive(why), _) => (State::Passive, why.into()),
        (Shown::Failed(why), _) => (State::Failed, why.into()),
        (Shown::Broken, _) => (State::Failed, PANIC.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_that_a_session_is_bringing_is_waited_for() {
        let _turn = crate::process::UNDER_TEST.lock();
        let soon = Duration::from_millis(1);
        assert!(wait_until(soon, is_released));
        // It has been taken out of the switch. The session that did it has not got the lock yet.
        AHEAD.fetch_add(1, Ordering::SeqCst);
        assert!(!wait_until(soon, is_released));
        AHEAD.fetch_sub(1, Ordering::SeqCst);
        assert!(wait_until(soon, is_released));
    }
}
