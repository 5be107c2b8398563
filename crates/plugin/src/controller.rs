//! Switches the extension on and off, rebuilds it when a setting changes, tries again when something failed, and
//! retires what is no longer active.
//!
//! Switching on happens while the client who asks waits, so that it gets the error: [`prepare`] while the server
//! checks the value of `bpe_enabled`, [`commit`] when it assigns it. Everything slow happens in `prepare` or in the
//! controller's own thread; a server thread that reads or writes pages never waits for any of it, and the client waits for a
//! minute at most.
//!
//! [`building`] builds an extension and makes it the active one, [`retiring`] closes what is not any more, and [`thread`] is
//! what the controller's thread does.

mod building;
mod retiring;
mod thread;

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::linux::Linux;
use crate::os::Os as _;
use crate::settings::{self, AsyncIo, Settings};
use crate::switch::{self, Active};
use crate::{aio, unseen};
use retiring::{close_when_unused, retire};

pub use building::{check, commit, follow_for_recording, prepare, settings_changed};

/// How long switching on waits for the extension before it to let go of its files.
const RETIRE_WAIT: Duration = Duration::from_secs(20);
const PANIC: &str = "switched off by an internal error, see the error log";
const AFTER_PANIC: &str = "an internal error switched the extension off; see the error log, and restart the server to use it again";
const DEFAULT_PAGE: u32 = 16384;

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
}

impl State {
    /// As shown in `Bpe_state`.
    pub fn name(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Active => "active",
            State::Passive => "passive",
            State::Failed => "failed",
        }
    }
}

struct Prepared {
    active: Arc<Active>,
    settings: Settings,
    since: Instant,
    intent: u64,
}

#[derive(Default)]
struct Inner {
    /// Why the calls could not be intercepted.
    passive: Option<String>,
    /// Which asynchronous I/O of the server passes the hooks by, when it was looked last.
    unseen: Option<String>,
    /// The administrator wants the extension on. Only a client's ON, or the configuration, sets it.
    wanted: bool,
    /// Raised by every switching off: what was begun under an earlier number must not come into effect any more.
    intent: u64,
    /// Why it is not on although it is wanted.
    failure: Option<String>,
    /// What was changed behind our back; it stays off until a client asks for it.
    distrusted: Option<String>,
    retry: Option<(Instant, Duration)>,
    prepared: Option<Prepared>,
    /// Settings the active extension was built with.
    running: Option<Settings>,
    /// Settings with which switching on was tried last.
    tried: Option<Settings>,
    nominal_page: u32,
    /// A page size for which the extension could not be laid out.
    refused_page: Option<u32>,
    resized: Option<Instant>,
    rebuild: bool,
    retiring: Vec<Arc<Active>>,
    /// Extensions taken out of `retiring` and not gone yet.
    being_retired: usize,
    /// Extensions that some thread of the server is still waiting in, long after they were switched off.
    lingering: Vec<Arc<Active>>,
    stop: bool,
    /// Which installation of the plugin this is: a controller's thread that hung when the plugin went must not go on
    /// beside the next one.
    life: u64,
    thread: Option<std::thread::JoinHandle<()>>,
    early: bool,
}

static INNER: LazyLock<Mutex<Inner>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();
/// Held while an extension is built, so that two never compete for the same files.
static BUILDING: Mutex<()> = Mutex::new(());
type Building = MutexGuard<'static, ()>;
static PANICKED: AtomicBool = AtomicBool::new(false);
/// What was active when a hook panicked, for the controller's thread to retire.
static AFTER_A_PANIC: LazyLock<ArcSwapOption<Active>> = LazyLock::new(ArcSwapOption::empty);
static SWITCHED_ON: AtomicU64 = AtomicU64::new(0);

/// Called when the plugin is initialised and the calls are intercepted (or `passive` says why not).
pub fn start(passive: Option<String>, early: bool) {
    {
        let mut inner = INNER.lock();
        inner.passive = passive.clone();
        inner.early = early;
        inner.stop = false;
        inner.life += 1;
        inner.nominal_page = DEFAULT_PAGE;
        if let Err(reason) = ensure_thread(&mut inner) {
            Linux.warning(&format!(
                "{reason}. It is tried again when the extension is switched or its status is looked at."
            ));
        }
    }
    if let Some(reason) = passive {
        say_passive(&reason);
    } else if !early && nothing_unseen().is_err() {
        // It is looked again when a client switches it on.
    } else if settings::ENABLED.load(Ordering::SeqCst) != 0 {
        // In the controller's thread: a disk that hangs must not keep the server from starting.
        let mut inner = INNER.lock();
        inner.wanted = true;
        inner.rebuild = true;
        CHANGED.notify_all();
    }
}

fn say_passive(reason: &str) {
    Linux.warning(&format!(
        "passive: {reason} The server works as it would without the extension."
    ));
}

/// Looks whether asynchronous I/O passes the hooks by.
///
/// # Errors
/// The reason, which is also kept for status and said in the log.
fn nothing_unseen() -> Result<(), String> {
    let reason = unseen::refusal().map(|refusal| refusal.to_string());
    let before = std::mem::replace(&mut INNER.lock().unseen, reason.clone());
    match reason {
        Some(reason) => {
            if before.as_ref() != Some(&reason) {
                say_passive(&reason);
            }
            Err(reason)
        }
        None => Ok(()),
    }
}

/// Starts the controller's thread if it could not be started before.
fn ensure_thread(inner: &mut Inner) -> Result<(), String> {
    if inner.thread.is_some() || inner.stop {
        return Ok(());
    }
    LazyLock::force(&AFTER_A_PANIC);
    let life = inner.life;
    let thread = Linux
        .spawn("bpe-controller", move || thread::run(life))
        .map_err(|error| {
            format!("cannot start the controller's thread: {error}; raise the limit on threads")
        })?;
    inner.thread = Some(thread);
    Ok(())
}

/// Switches off at once, a recording too. What was active is retired in the background.
pub fn disable() {
    disable_because(None);
}

/// The same; with a reason, it counts as passive until a client switches it on.
fn disable_because(distrusted: Option<String>) {
    // At once, before waiting for any lock.
    let before = switch::kill();
    let mut inner = INNER.lock();
    inner.intent += 1;
    // And once more: a commit may have come in between. Every other one sees the number.
    let late = switch::kill();
    inner.wanted = false;
    inner.failure = None;
    inner.distrusted = distrusted;
    inner.retry = None;
    inner.rebuild = false;
    let was_on = inner.running.take().is_some();
    if let Some(prepared) = inner.prepared.take() {
        retire(&mut inner, prepared.active);
    }
    for old in [before, late].into_iter().flatten() {
        retire(&mut inner, old);
    }
    if !inner.retiring.is_empty() {
        let _ = ensure_thread(&mut inner);
    }
    drop(inner);
    if was_on {
        Linux.note("switched off; the cache files are removed");
    }
}

/// Switches off for good after a panic in a hook. Takes no lock that the hook might hold.
pub fn panicked() {
    PANICKED.store(true, Ordering::SeqCst);
    let before = switch::kill();
    Linux.error(
        "an internal error occurred (see above); the extension is switched off until the server restarts",
    );
    if before.is_some() {
        AFTER_A_PANIC.store(before);
    }
    if let Some(mut inner) = INNER.try_lock() {
        clean_up_after_panic(&mut inner);
    } // otherwise rather a moment later than a wait
}

/// What [`panicked`] may have had to leave to the controller's thread.
fn clean_up_after_panic(inner: &mut MutexGuard<'_, Inner>) {
    let prepared = inner.prepared.take().map(|prepared| prepared.active);
    for old in AFTER_A_PANIC.swap(None).into_iter().chain(prepared) {
        retire(inner, old);
    }
    if inner.running.take().is_some() || inner.wanted {
        inner.failure = Some(PANIC.into());
        inner.wanted = false;
    }
}

/// The plugin is being unloaded, or the server stops. `end` ends what else is under way, once nothing can begin any more.
pub fn stop(end: impl FnOnce()) {
    disable();
    let thread = {
        let mut inner = INNER.lock();
        inner.stop = true;
        CHANGED.notify_all();
        inner.thread.take()
    };
    end();
    if thread.is_none() {
        // There was no thread to be had: nobody else will do it.
        let old = std::mem::take(&mut INNER.lock().retiring);
        old.into_iter().for_each(close_when_unused);
    }
    if let Some(thread) = thread {
        let until = Instant::now() + RETIRE_WAIT;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// State and reason, for status.
pub fn state() -> (State, String) {
    let mut inner = INNER.lock();
    if let Some(reason) = inner.passive.as_ref().or(inner.unseen.as_ref()) {
        return (State::Passive, reason.clone());
    }
    if let Some(reason) = &inner.distrusted {
        return (State::Passive, reason.clone());
    }
    if let Some(reason) = &inner.failure {
        return (State::Failed, reason.clone());
    }
    if inner.running.is_some() {
        (State::Active, String::new())
    } else if inner.wanted {
        // Where there was no thread at the start, somebody who looks is the one chance to notice that there is one now.
        if let Err(reason) = ensure_thread(&mut inner) {
            return (State::Failed, reason);
        }
        (State::Disabled, "being switched on".into())
    } else {
        (State::Disabled, String::new())
    }
}

/// Whether the administrator wants the extension on.
pub fn is_wanted() -> bool {
    INNER.lock().wanted
}

/// Whether the plugin was loaded before InnoDB started.
pub fn loaded_early() -> bool {
    INNER.lock().early
}

/// What kind of asynchronous I/O the server was seen using.
pub fn async_mode() -> &'static str {
    if settings::async_io() == AsyncIo::Off {
        "off"
    } else if crate::uring::seen() {
        "io_uring"
    } else if aio::seen() {
        "libaio"
    } else {
        "none seen"
    }
}

/// How often the extension was switched on.
pub fn switched_on() -> u64 {
    SWITCHED_ON.load(Ordering::Relaxed)
}
