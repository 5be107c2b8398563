//! Switches the extension on and off, rebuilds it when a setting changes, retries after failures, and retires inactive
//! extensions.
//!
//! [`coherence::controller`] defines the states, waits and threads. This module is its interface to a server (`host`):
//! `building` opens an extension, `checks` has the periodic checks of its thread, `clients` has the waits of clients,
//! `messages` has the messages.
//!
//! The requesting client waits while the extension is switched on, so it gets the error. [`prepare`] runs while the
//! server checks the value of `bpe_enabled`, `CONTROLLER.commit` when it assigns it. Slow work runs in `prepare`, or in
//! the controller's own thread. `prepare` uses a thread that the client stops waiting for after a minute. Server threads
//! that read or write pages never wait for any of it.

pub mod buffer_pool;
mod building;
mod checks;
mod clients;
mod disks;
mod host;
mod messages;
pub mod plan;

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Instant;

use coherence::os::Os as _;
use coherence::switch::Bypass;

use crate::intercept::untracked;
use crate::platform::{CORE, Linux};
use crate::restart::persist;
use crate::settings::{self, VALUES};

pub use clients::{check, prepare};
pub use host::CONTROLLER;
pub use messages::State;

/// Call when the plugin is initialised and the calls are intercepted; `passive` is the reason if they are not.
pub fn start(passive: Option<String>, early: bool) {
    CONTROLLER.host.early.store(early, Ordering::SeqCst);
    let checks = passive.is_none() && !early;
    let refusal = checks.then(untracked::refusal).flatten();
    let refusal = refusal.map(|refusal| refusal.to_string());
    let wanted = VALUES.enabled.load(Ordering::SeqCst) != 0;
    let began = Instant::now();
    // A layout derived from InnoDB's pool is known only after InnoDB has started, which is too late.
    let is_layout_known = !buffer_pool::is_waited_for(&settings::Settings::current());
    let recovers = wanted && passive.is_none() && persist::begin(early && is_layout_known);
    if let Err(reason) = CONTROLLER.start(passive, refusal, wanted) {
        Linux.warning(&format!(
            "{reason}. The next switch or status query retries it."
        ));
        drop(CORE.switch().switch_off());
    } else if recovers {
        // Files that InnoDB opens before the recovery are not recognised. The timeout bounds the cost of a hung disk.
        CONTROLLER.wait_until(persist::TIMEOUT, |machine| {
            !machine.is_at_work() && !machine.is_due(Linux.running())
        });
        persist::record_start_delay(began.elapsed());
    }
}

/// Stops the controller and leaves the cache to the next process. It calls `end` to end other activities once no
/// new ones can begin.
pub fn stop_and_persist(end: impl FnOnce()) {
    CONTROLLER.leave(end);
    if let Some(active) = CORE.switch().active().as_ref()
        && let Some(text) = messages::totals(&active.extension.statistics(), true)
    {
        Linux.note(&text);
    }
}

/// Makes the hooks track files and record page reads and writes, whether the extension is on or off.
///
/// # Errors
/// The reason why the hooks cannot be switched on, for the client.
pub fn track_for_recording() -> Result<(), String> {
    CONTROLLER
        .follow_for_recording()
        .map_err(messages::refusal_text)
}

/// Returns the state and its reason, for status.
pub fn state() -> (State, String) {
    let no_thread = CONTROLLER.no_thread();
    let (state, reason) =
        CONTROLLER.with(|machine| messages::state_text(machine.shown(), no_thread));
    match CORE.switch().mode().bypass() {
        _ if state == State::Active && CORE.files.recoveries.is_withheld() => {
            let reason = "nothing is served before InnoDB has opened its redo log and its files";
            (State::Bypass, reason.into())
        }
        bypass if bypass != Bypass::Off && state == State::Active => {
            let name = bypass.name().to_uppercase();
            let reason = format!(
                "reads go to the data files (bpe_bypass = {name}); SET GLOBAL bpe_bypass = OFF serves them again"
            );
            (State::Bypass, reason)
        }
        _ => (state, reason),
    }
}

/// Whether the plugin was loaded before InnoDB started.
pub fn loaded_early() -> bool {
    CONTROLLER.host.early.load(Ordering::SeqCst)
}

/// The kind of asynchronous I/O that the server was seen using.
pub fn async_mode() -> &'static str {
    if untracked::io_uring_seen() {
        "io_uring"
    } else if CORE.requests.is_used() {
        "libaio"
    } else {
        "none seen"
    }
}

/// Whether this cache file was on the file system of the data directory when it was opened.
pub fn is_beside_data(path: &Path) -> bool {
    let beside = CONTROLLER.host.beside_data.lock();
    beside.iter().any(|other| other == path)
}
