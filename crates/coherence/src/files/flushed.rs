//! Whether all that was written to a file is on its disk, for the time after the machine's next start.
//!
//! Nothing is done at a write: changes are counted anyway. A flush that begins while no change is under way, and succeeds, covers the
//! changes that were counted when it began. Later ones are not covered, and so the file is flushed as long as there are none.
//!
//! Doubt is on the side of "not flushed": a change whose end nobody sees may still be under way until its file was closed, and after a
//! flush that has failed nobody knows what the disk has.

use std::time::Duration;

use super::{Attach, BEGINNING, DataFile, PROVE_FOR};
use crate::identity::Identity;
use crate::os::{Os, Stat};
use crate::sync::Ordering;

/// No flush counts before the file was closed.
const UNTIL_CLOSED: u64 = u64::MAX - 1;
/// No flush counts any more.
const NEVER: u64 = u64::MAX;
/// What was changed so long before the machine was started was changed before that, though clocks are set right at the start, nanoseconds.
const BEFORE_START: i128 = 3600 * 1_000_000_000;

impl DataFile {
    /// A change begins that may go on unseen until the file is closed. Before it is counted.
    #[inline]
    pub fn is_changed_unseen(&self) {
        self.flushes_from.fetch_max(UNTIL_CLOSED, Ordering::SeqCst);
    }

    /// The changes that a flush covers which begins now. `time`: [`Os::running`].
    fn flushable(&self, time: Duration) -> Option<u64> {
        let changes = self.at_rest()?;
        // Afterwards: whoever changes unseen says so before it is counted.
        let from = self.flushes_from.load(Ordering::SeqCst);
        (from < UNTIL_CLOSED && nanoseconds(time) >= from).then_some(changes)
    }

    /// Passes on a flush, which begins at this time by [`Os::running`]. `real` returns 0 if it has succeeded.
    pub fn flush(&self, time: Duration, real: impl FnOnce() -> i32) -> i32 {
        let changes = self.flushable(time);
        let result = real();
        if result != 0 {
            self.flushes_from.store(NEVER, Ordering::SeqCst);
            if let Some(manifest) = self.switch.manifest() {
                manifest.lose();
            }
        } else if left_out!("flush-covers-later") {
            self.cover(self.changes.load(Ordering::SeqCst) / BEGINNING);
        } else if let Some(changes) = changes {
            self.cover(changes);
        }
        result
    }

    fn cover(&self, changes: u64) {
        self.flushed.fetch_max(changes + 1, Ordering::SeqCst);
    }

    /// Whether there was no change since a flush that counts.
    pub fn is_flushed(&self) -> bool {
        let flushed = self.flushed.load(Ordering::SeqCst);
        let is_covered = |changes| changes + 1 == flushed;
        self.at_rest().is_some_and(is_covered) && self.flushes_from.load(Ordering::SeqCst) != NEVER
    }

    /// What is known of it begins here. `flushed`: all that it has is on the disk.
    fn begin_flushed(&self, flushed: bool) {
        self.flushed.store(0, Ordering::SeqCst);
        if let Some(changes) = self.at_rest().filter(|_| flushed) {
            self.cover(changes);
        }
    }

    /// Passes on a change of its names or times alone. What is on the disk stays.
    pub(crate) fn change_names<R>(&self, real: impl FnOnce() -> R) -> R {
        let before = self.at_rest().filter(|_| self.is_flushed());
        let changing = self.change();
        let result = real();
        drop(changing);
        if let Some(changes) = before {
            // Of this one alone: any other has counted, too.
            self.cover(changes + 1);
        }
        result
    }

    /// It has its first descriptor. `known`: nobody has changed it since it was closed, in this process or another, and whether it
    /// was flushed then.
    pub(super) fn first_opened<O: Os>(
        &self,
        known: Option<Option<bool>>,
        stat: &Stat,
        how: Attach,
        os: &O,
    ) {
        match known {
            // As it was when this process has closed it.
            Some(None) => {}
            Some(Some(flushed)) => self.begin_flushed(flushed),
            None => {
                let anew = how == (Attach::Opened { anew: true });
                self.begin_flushed(!anew && was_there_at_the_start(stat, os));
            }
        }
    }

    /// A descriptor of it was found: writes through that may be under way. Flushes count when they have ended.
    pub(super) fn is_found(&self, time: Duration) {
        let from = nanoseconds(time + PROVE_FOR);
        self.flushes_from.fetch_max(from, Ordering::SeqCst);
        self.changes.fetch_add(BEGINNING, Ordering::SeqCst);
    }

    /// It has lost its last descriptor: no change is under way.
    pub(super) fn last_closed(&self) {
        let _ = self
            .flushes_from
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |from| {
                (from != NEVER).then_some(0)
            });
    }

    pub(super) fn forget_flushes(&self) {
        self.flushed.store(0, Ordering::SeqCst);
        self.flushes_from.store(0, Ordering::SeqCst);
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(NEVER - 2)
}

/// Whether a file was changed before the machine was started last. Then what it has is from the disk.
fn was_there_at_the_start(stat: &Stat, os: &impl Os) -> bool {
    let Identity {
        modified, changed, ..
    } = Identity::of(stat);
    let start = os.file_time() - os.since_boot();
    i128::from(modified.max(changed)) < start - BEFORE_START
}

#[cfg(all(test, not(checker)))]
mod tests;
