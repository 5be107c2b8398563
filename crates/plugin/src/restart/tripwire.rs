//! A second check beside the proof of a restart ([`coherence::stamp`]). InnoDB's LSN must not be below the LSN of a page
//! that the previous process wrote, or that was served from a recovered file. A lower LSN means that the trusted files are
//! older than the cache.
//!
//! Sessions that query the status run the check, since InnoDB ends after them. The controller's thread empties the cache.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coherence::audit::suspended::Suspensions;
use coherence::core::Core;
use coherence::os::Os;

use crate::platform::innodb;

/// Interval between two checks.
const INTERVAL: Duration = Duration::from_secs(5);

/// Result of the check. The fields are independent of each other.
pub struct Tripwire {
    checked_at: AtomicU64,
    /// InnoDB's LSN, and its required minimum; 0: no violation.
    lsn: AtomicU64,
    min_lsn: AtomicU64,
    is_reported: AtomicBool,
}

impl Tripwire {
    pub(crate) const fn new() -> Tripwire {
        Tripwire {
            checked_at: AtomicU64::new(0),
            lsn: AtomicU64::new(0),
            min_lsn: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
        }
    }

    /// Compares both, if the last comparison is old enough. Call from a session's thread.
    pub fn check<O: Os>(&self, core: &Core<O>) {
        let now = core.os().running().as_millis() as u64;
        let last = self.checked_at.load(Ordering::SeqCst);
        if last != 0 && now.saturating_sub(last) < INTERVAL.as_millis() as u64 {
            return;
        }
        self.checked_at.store(now, Ordering::SeqCst);
        // The minimum first: InnoDB's LSN only grows.
        let min_lsn = core.files.recoveries.least_lsn();
        if min_lsn == 0 || core.switch().active().is_none() {
            return;
        }
        if let Some(lsn) = innodb::lsn()
            && lsn < min_lsn
        {
            self.lsn.store(lsn, Ordering::SeqCst);
            self.min_lsn.store(min_lsn, Ordering::SeqCst);
        }
    }

    /// Returns the reason to empty the cache, once.
    pub fn take(&self, suspensions: &Suspensions) -> Option<String> {
        let min_lsn = self.min_lsn.load(Ordering::SeqCst);
        if min_lsn == 0 || self.is_reported.swap(true, Ordering::SeqCst) {
            return None;
        }
        suspensions.suspect();
        Some(format!(
            "InnoDB's LSN is {}, and a page of the cache or of the server before has {min_lsn}: the data files are older than the cache",
            self.lsn.load(Ordering::SeqCst)
        ))
    }
}
