//! Switches off: for an administrator, for a reason, or after a panic.

use std::sync::atomic::Ordering;

use parking_lot::MutexGuard;

use super::retiring::retire;
use super::state::{AFTER_A_PANIC, INNER, Inner, PANIC, PANICKED, ensure_thread};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::CORE;

/// Switches off at once, a recording too. What was active is retired in the background.
pub fn disable() {
    disable_because(None);
}

/// The same; with a reason, it counts as passive until a client switches it on.
pub fn disable_because(distrusted: Option<String>) {
    // At once, before waiting for any lock.
    let before = CORE.switch().kill();
    let mut inner = INNER.lock();
    inner.intent += 1;
    // And once more: a commit may have come in between. Every other one sees the number.
    let late = CORE.switch().kill();
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
    let before = CORE.switch().kill();
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
pub fn clean_up_after_panic(inner: &mut MutexGuard<'_, Inner>) {
    let prepared = inner.prepared.take().map(|prepared| prepared.active);
    for old in AFTER_A_PANIC.swap(None).into_iter().chain(prepared) {
        retire(inner, old);
    }
    if inner.running.take().is_some() || inner.wanted {
        inner.failure = Some(PANIC.into());
        inner.wanted = false;
    }
}
