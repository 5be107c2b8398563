//! Beside the proof of a restart ([`coherence::stamp`]): InnoDB's LSN must not be below that of a page which the process before has written,
//! or which was served of a recovered file. It never is, unless files were trusted that are older than the cache.
//!
//! Sessions that ask for the status look, since InnoDB ends after them. The controller's thread empties the cache.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::audit::suspended::Suspensions;
use crate::core::Core;
use crate::innodb;
use crate::os::Os;

/// Between two looks.
const INTERVAL: Duration = Duration::from_secs(5);

/// What was found. All stand for themselves.
pub struct Tripwire {
    looked_at: AtomicU64,
    /// InnoDB's LSN, and the least that it must have; 0: all is well.
    lsn: AtomicU64,
    least: AtomicU64,
    is_told: AtomicBool,
}

impl Tripwire {
    pub(crate) const fn new() -> Tripwire {
        Tripwire {
            looked_at: AtomicU64::new(0),
            lsn: AtomicU64::new(0),
            least: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
        }
    }

    /// Compares both, if the last comparison is old. In a session's thread.
    pub fn look<O: Os>(&self, core: &Core<O>) {
        let now = core.os().running().as_millis() as u64;
        let last = self.looked_at.load(Ordering::SeqCst);
        if last != 0 && now.saturating_sub(last) < INTERVAL.as_millis() as u64 {
            return;
        }
        self.looked_at.store(now, Ordering::SeqCst);
        // In this order: InnoDB's only grows.
        let least = core.files.recoveries.least_lsn();
        if least == 0 || core.switch().active().is_none() {
            return;
        }
        if let Some(lsn) = innodb::lsn()
            && lsn < least
        {
            self.lsn.store(lsn, Ordering::SeqCst);
            self.least.store(least, Ordering::SeqCst);
        }
    }

    /// Why the cache must be emptied, once.
    pub fn take(&self, suspensions: &Suspensions) -> Option<String> {
        let least = self.least.load(Ordering::SeqCst);
        if least == 0 || self.is_told.swap(true, Ordering::SeqCst) {
            return None;
        }
        suspensions.suspect();
        Some(format!(
            "InnoDB's LSN is {}, and a page of the cache or of the server before has {least}: the data files are older than the cache",
            self.lsn.load(Ordering::SeqCst)
        ))
    }
}
