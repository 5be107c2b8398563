//! Switches the extension on and off, rebuilds it when a setting changes, tries again when something failed, and
//! retires what is no longer active.
//!
//! Switching on happens while the client who asks waits, so that it gets the error: [`prepare`] while the server
//! checks the value of `bpe_enabled`, [`commit`] when it assigns it. Everything slow happens in `prepare` or in the
//! controller's own thread; a server thread that reads or writes pages never waits for any of it, and the client waits for a
//! minute at most.
//!
//! [`state`] is what it knows. [`building`] builds an extension and makes it the active one, [`off`] switches off, [`retiring`]
//! closes what is not active any more, and [`thread`] is what the controller's thread does.

mod building;
mod off;
mod retiring;
mod state;
mod thread;

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::CORE;
use crate::settings::{self, AsyncIo};
use retiring::close_when_unused;
use state::{
    CHANGED, DEFAULT_PAGE, INNER, RETIRE_WAIT, SWITCHED_ON, ensure_thread, nothing_unseen,
    say_passive,
};

pub use building::{check, commit, follow_for_recording, prepare, settings_changed};
pub use off::{disable, panicked};
pub use state::State;

/// Called when the plugin is initialised and the calls are intercepted (or `passive` says why not).
pub fn start(passive: Option<String>, early: bool) {
    {
        let mut inner = INNER.lock();
        inner.passive = passive.clone();
        inner.early = early;
        inner.body = Some(thread::run);
        inner.stop = false;
        inner.life += 1;
        inner.nominal_page = DEFAULT_PAGE;
        if let Err(reason) = ensure_thread(&mut inner) {
            Linux.warning(&format!(
                "{reason}. The next switch or status query retries it."
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
