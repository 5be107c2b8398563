//! Switches the extension on and off, rebuilds it when a setting changes, tries again when something failed, and
//! retires what is no longer active.
//!
//! What happens in which state is a table of its own, [`coherence::controller`]. Here is what it needs in a server. Somebody
//! posts an event under the lock of [`machine`]. What only stores is done under that lock; whatever may take time is then done by
//! who posted, without it, and what came of it is the next event.
//!
//! Switching on happens while the client who asks waits, so that it gets the error: [`prepare`] while the server
//! checks the value of `bpe_enabled`, [`commit`] when it assigns it. Everything slow happens in `prepare`, in a thread that
//! the client leaves after a minute, or in the controller's own thread. A server thread that reads or writes pages never waits
//! for any of it.
//!
//! [`building`] builds an extension, [`retiring`] closes what is not active any more, [`thread`] is what the controller's thread
//! does, and [`clients`] is what clients ask for.

mod building;
mod clients;
mod machine;
mod retiring;
mod thread;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::CORE;
use crate::settings::{self, AsyncIo};
use crate::switch::Bypass;
use crate::unseen;
use building::perform;
use machine::{EARLY, Event, SWITCHED_ON, lock, post};
use retiring::{RETIRE_WAIT, close_all};

pub use clients::{check, commit, disable, follow_for_recording, prepare};
pub use machine::{State, panicked, settings_changed};

/// Called when the plugin is initialised and the calls are intercepted (or `passive` says why not).
pub fn start(passive: Option<String>, early: bool) {
    EARLY.store(early, Ordering::SeqCst);
    let looks = passive.is_none() && !early;
    let unseen = looks.then(unseen::refusal).flatten();
    // What is wanted is built in the controller's thread: a disk that hangs must not keep the server from starting.
    let _ = perform(post(Event::Init {
        passive,
        unseen: unseen.map(|refusal| refusal.to_string()),
        broken: machine::has_panicked(),
        wanted: settings::ENABLED.load(Ordering::SeqCst) != 0,
    }));
    if let Err(reason) = thread::ensure() {
        Linux.warning(&format!(
            "{reason}. The next switch or status query retries it."
        ));
    }
}

/// The plugin is being unloaded, or the server stops. `end` ends what else is under way, once nothing can begin any more.
pub fn stop(end: impl FnOnce()) {
    clients::end(Event::Stop);
    let thread = thread::take();
    end();
    let Some(thread) = thread else {
        // There was no thread to be had: nobody else will do it.
        return close_all();
    };
    let until = Instant::now() + RETIRE_WAIT;
    while !thread.is_finished() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    if thread.is_finished() {
        let _ = thread.join();
    }
}

/// State and reason, for status.
pub fn state() -> (State, String) {
    let no_thread = thread::refused();
    let (state, reason) = machine::shown(lock().machine.shown(), no_thread);
    match CORE.switch().mode().bypass() {
        bypass if bypass != Bypass::Off && state == State::Active => {
            let name = bypass.name().to_uppercase();
            let reason = format!("reads go to the data files (bpe_bypass = {name})");
            (State::Bypass, reason)
        }
        _ => (state, reason),
    }
}

/// Somebody is about to look at the state. Where there was no thread at the start, that is the one chance to notice that there
/// is one now.
pub fn looked_at() {
    let needs_thread = lock().machine.needs_thread();
    if needs_thread {
        let _ = thread::ensure();
    }
}

/// Whether the administrator wants the extension on.
pub fn is_wanted() -> bool {
    lock().machine.is_wanted()
}

/// Whether the plugin was loaded before InnoDB started.
pub fn loaded_early() -> bool {
    EARLY.load(Ordering::SeqCst)
}

/// What kind of asynchronous I/O the server was seen using.
pub fn async_mode() -> &'static str {
    if settings::async_io() == AsyncIo::Off {
        "off"
    } else if crate::uring::seen() {
        "io_uring"
    } else if CORE.requests.seen() {
        "libaio"
    } else {
        "none seen"
    }
}

/// How often the extension was switched on.
pub fn switched_on() -> u64 {
    SWITCHED_ON.load(Ordering::Relaxed)
}
