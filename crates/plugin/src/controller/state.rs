//! What the controller knows, and the thread that acts on it.

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::linux::Linux;
use crate::os::Os as _;
use crate::settings::Settings;
use crate::switch::Active;
use crate::unseen;

/// How long switching on waits for the extension before it to let go of its files.
pub const RETIRE_WAIT: Duration = Duration::from_secs(20);
pub const PANIC: &str = "switched off by an internal error; see the error log";
pub const AFTER_PANIC: &str = "an internal error switched the extension off; see the error log, and restart the server to use it again";
pub const DEFAULT_PAGE: u32 = 16384;

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

pub struct Prepared {
    pub active: Arc<Active>,
    pub settings: Settings,
    pub since: Instant,
    pub intent: u64,
}

#[derive(Default)]
pub struct Inner {
    /// Why the calls could not be intercepted.
    pub passive: Option<String>,
    /// Which asynchronous I/O of the server passes the hooks by, when it was looked last.
    pub unseen: Option<String>,
    /// The administrator wants the extension on. Only a client's ON, or the configuration, sets it.
    pub wanted: bool,
    /// Raised by every switching off: what was begun under an earlier number must not come into effect any more.
    pub intent: u64,
    /// Why it is not on although it is wanted.
    pub failure: Option<String>,
    /// What was changed behind our back; it stays off until a client asks for it.
    pub distrusted: Option<String>,
    pub retry: Option<(Instant, Duration)>,
    pub prepared: Option<Prepared>,
    /// Settings the active extension was built with.
    pub running: Option<Settings>,
    /// Settings with which switching on was tried last.
    pub tried: Option<Settings>,
    pub nominal_page: u32,
    /// A page size for which the extension could not be laid out.
    pub refused_page: Option<u32>,
    pub resized: Option<Instant>,
    pub rebuild: bool,
    pub retiring: Vec<Arc<Active>>,
    /// Extensions taken out of `retiring` and not gone yet.
    pub being_retired: usize,
    /// Extensions that some thread of the server is still waiting in, long after they were switched off.
    pub lingering: Vec<Arc<Active>>,
    pub stop: bool,
    /// Which installation of the plugin this is: a controller's thread that hung when the plugin went must not go on
    /// beside the next one.
    pub life: u64,
    /// What the controller's thread does, once the plugin was initialised.
    pub body: Option<fn(u64)>,
    pub thread: Option<std::thread::JoinHandle<()>>,
    pub early: bool,
}

pub static INNER: LazyLock<Mutex<Inner>> = LazyLock::new(Mutex::default);
pub static CHANGED: Condvar = Condvar::new();
/// Held while an extension is built, so that two never compete for the same files.
pub static BUILDING: Mutex<()> = Mutex::new(());
pub type Building = MutexGuard<'static, ()>;
pub static PANICKED: AtomicBool = AtomicBool::new(false);
/// What was active when a hook panicked, for the controller's thread to retire.
pub static AFTER_A_PANIC: LazyLock<ArcSwapOption<Active>> = LazyLock::new(ArcSwapOption::empty);
pub static SWITCHED_ON: AtomicU64 = AtomicU64::new(0);

pub fn say_passive(reason: &str) {
    Linux.warning(&format!(
        "passive: {reason} The server works as it would without the extension."
    ));
}

/// Looks whether asynchronous I/O passes the hooks by.
///
/// # Errors
/// The reason, which is also kept for status and said in the log.
pub fn nothing_unseen() -> Result<(), String> {
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
pub fn ensure_thread(inner: &mut Inner) -> Result<(), String> {
    if inner.thread.is_some() || inner.stop {
        return Ok(());
    }
    let Some(body) = inner.body else {
        return Err("the plugin is not installed, only its function is".into());
    };
    LazyLock::force(&AFTER_A_PANIC);
    let life = inner.life;
    let thread = Linux
        .spawn("bpe-controller", move || body(life))
        .map_err(|error| {
            format!("cannot start the controller's thread: {error}; raise the limit on threads")
        })?;
    inner.thread = Some(thread);
    Ok(())
}
