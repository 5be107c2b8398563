//! Switches the extension on and off, rebuilds it when a setting changes, tries again when something failed, and
//! retires what is no longer active.
//!
//! What happens in which state, who waits for what, and which thread does it is [`coherence::controller`]. Here is what that needs of
//! a server (`server`): `building` opens an extension, `watch` is what its thread looks at, `clients` is what clients wait for,
//! `texts` is what all of them are told.
//!
//! Switching on happens while the client who asks waits, so that it gets the error: [`prepare`] while the server
//! checks the value of `bpe_enabled`, [`commit`] when it assigns it. Everything slow happens in `prepare`, in a thread that
//! the client leaves after a minute, or in the controller's own thread. A server thread that reads or writes pages never waits
//! for any of it.

mod building;
mod clients;
mod disks;
mod server;
mod texts;
mod watch;

use std::sync::atomic::Ordering;
use std::time::Instant;

use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::CORE;
use crate::settings;
use crate::switch::Bypass;
use crate::{persist, pool, unseen};
use server::CONTROLLER;

pub use clients::{check, prepare};
pub use texts::State;

/// Calls this at each look of the controller's thread.
pub fn call_at_each_look(look: fn()) {
    let _ = CONTROLLER.host.look.set(look);
}

/// Called when the plugin is initialised and the calls are intercepted (or `passive` says why not).
pub fn start(passive: Option<String>, early: bool) {
    CONTROLLER.host.early.store(early, Ordering::SeqCst);
    let looks = passive.is_none() && !early;
    let unseen = looks.then(unseen::refusal).flatten();
    let unseen = unseen.map(|refusal| refusal.to_string());
    let wanted = settings::ENABLED.load(Ordering::SeqCst) != 0;
    let began = Instant::now();
    // A layout that follows InnoDB's pool is known only when InnoDB has started, and that is too late.
    let is_laid_out = !pool::is_waited_for(&settings::Settings::current());
    let inherits = wanted && passive.is_none() && persist::begin(early && is_laid_out);
    if let Err(reason) = CONTROLLER.start(passive, unseen, wanted) {
        Linux.warning(&format!(
            "{reason}. The next switch or status query retries it."
        ));
        drop(CORE.switch().switch_off());
    } else if inherits {
        // Files that InnoDB opens before are not known again. A disk that hangs costs no more than that.
        CONTROLLER.wait_until(persist::PATIENCE, |machine| {
            !machine.is_at_work() && !machine.is_due(Linux.running())
        });
        persist::held_up(began.elapsed());
    }
}

/// The plugin is being unloaded, or the server stops. `end` ends what else is under way, once nothing can begin any more.
pub fn stop(end: impl FnOnce()) {
    CONTROLLER.stop(end);
}

/// The server stops, and what is cached is left to the next one. `end` as in [`stop`].
pub fn leave(end: impl FnOnce()) {
    CONTROLLER.leave(end);
    if let Some(active) = CORE.switch().active().as_ref()
        && let Some(text) = texts::ended(&active.extension.statistics(), true)
    {
        Linux.note(&text);
    }
}

/// Second half of switching on, for a client: hooks serve from here on.
pub fn commit() {
    CONTROLLER.commit();
}

/// Switches off at once, a recording too. What was active is retired in the background.
pub fn disable() {
    CONTROLLER.disable();
}

/// Lets the hooks follow files and note page reads and writes for a recording, whether the extension is on or off.
///
/// # Errors
/// The reason, for the client, why the hooks cannot be switched on.
pub fn follow_for_recording() -> Result<(), String> {
    CONTROLLER.follow_for_recording().map_err(texts::worded)
}

/// A hook panicked: off for good. Takes no lock that the hook might hold.
pub fn panicked() {
    CONTROLLER.panicked();
}

/// Settings that need no other layout have changed: the active extension takes them over.
pub fn settings_changed() {
    CONTROLLER.settings_changed();
}

/// State and reason, for status.
pub fn state() -> (State, String) {
    let no_thread = CONTROLLER.no_thread();
    let (state, reason) = CONTROLLER.with(|machine| texts::shown(machine.shown(), no_thread));
    match CORE.switch().mode().bypass() {
        _ if state == State::Active && persist::is_withheld() => {
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

/// Somebody is about to look at the state. Where there was no thread at the start, that is the one chance to notice that there
/// is one now.
pub fn looked_at() {
    CONTROLLER.ensure_needed_thread();
}

/// Whether the administrator wants the extension on.
pub fn is_wanted() -> bool {
    CONTROLLER.with(|machine| machine.is_wanted())
}

/// Whether the plugin was loaded before InnoDB started.
pub fn loaded_early() -> bool {
    CONTROLLER.host.early.load(Ordering::SeqCst)
}

/// What kind of asynchronous I/O the server was seen using.
pub fn async_mode() -> &'static str {
    if crate::uring::seen() {
        "io_uring"
    } else if CORE.requests.seen() {
        "libaio"
    } else {
        "none seen"
    }
}

/// How often the extension was switched on.
pub fn switched_on() -> u64 {
    CONTROLLER.switched_on()
}
