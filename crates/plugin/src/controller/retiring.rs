//! Closes extensions that are not active any more, once no hook uses them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::machine::{Engine, Event, Later, lock, post};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::switch::Active;

/// How long switching on waits for the extension before it to let go of its files.
pub const RETIRE_WAIT: Duration = Duration::from_secs(20);

/// Closes what is retired, one after the other. For the controller's thread, or when there is none any more.
pub fn close_all() {
    while let Some(Later::Close(engine)) = post(Event::CloseNext).pop() {
        close_when_unused(engine);
        let _ = post(Event::Closed);
    }
}

/// Takes the extensions that nobody uses any more out of a list.
pub fn take_unused(list: &mut Vec<Engine>) -> Vec<Engine> {
    let (unused, used) = std::mem::take(list)
        .into_iter()
        .partition(|active| Arc::strong_count(active) == 1);
    *list = used;
    unused
}

/// Waits until no hook uses it any more, then closes it. What is in use for very long is put aside: the last user must not
/// be the one who closes it, since that may take time.
fn close_when_unused(old: Engine) {
    let until = Instant::now() + RETIRE_WAIT;
    while Arc::strong_count(&old) > 1 {
        if Instant::now() >= until {
            lock().lingering.push(old);
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
