//! Closes extensions that are not active any more, once no hook uses them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::MutexGuard;

use super::state::{CHANGED, INNER, Inner, RETIRE_WAIT};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::switch::Active;

pub(super) fn retire(inner: &mut MutexGuard<'_, Inner>, active: Arc<Active>) {
    inner.retiring.push(active);
    CHANGED.notify_all();
}

/// Waits until extensions before this one have let go of their files.
pub(super) fn wait_for_retired(inner: &mut MutexGuard<'_, Inner>) -> Result<(), String> {
    let until = Instant::now() + RETIRE_WAIT;
    while !inner.retiring.is_empty() || inner.being_retired != 0 {
        if CHANGED.wait_until(inner, until).timed_out() {
            return Err("the cache files of the time before are still being closed; try again in some seconds".into());
        }
    }
    Ok(())
}

/// Closes what is retired, one after the other. For the controller's thread, or when there is none any more.
pub(super) fn close_retiring(inner: &mut MutexGuard<'_, Inner>) {
    while let Some(old) = inner.retiring.pop() {
        inner.being_retired += 1;
        MutexGuard::unlocked(inner, || close_when_unused(old));
        inner.being_retired -= 1;
        CHANGED.notify_all();
    }
}

/// Takes the extensions that nobody uses any more out of a list.
pub(super) fn take_unused(list: &mut Vec<Arc<Active>>) -> Vec<Arc<Active>> {
    let (unused, used) = std::mem::take(list)
        .into_iter()
        .partition(|active| Arc::strong_count(active) == 1);
    *list = used;
    unused
}

/// Waits until no hook uses it any more, then closes it. What is in use for very long is put aside: the last user must not
/// be the one who closes it, since that may take time.
pub(super) fn close_when_unused(old: Arc<Active>) {
    let until = Instant::now() + RETIRE_WAIT;
    while Arc::strong_count(&old) > 1 {
        if Instant::now() >= until {
            INNER.lock().lingering.push(old);
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        say_what_it_did(&old);
        drop(old);
    }));
}

/// One line of figures for an extension that is closed: a server's status variables end with the server.
fn say_what_it_did(old: &Active) {
    let figures = old.extension.statistics();
    if figures.hits + figures.misses == 0 {
        return;
    }
    Linux.note(&format!(
        "the cache is closed: it served {} of {} page reads; it took in {} pages and dropped {} because they were \
         written; {} failed proofs, {} device errors",
        figures.hits,
        figures.hits + figures.misses,
        figures.admitted,
        figures.invalidated,
        figures.failed_proofs,
        figures.device_errors,
    ));
}
