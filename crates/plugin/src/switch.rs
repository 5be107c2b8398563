//! What every hook looks at first: the mode, and the extension that is active.
//!
//! The mode is a set of bits in one atomic byte, so that "off" is one load and one comparison with zero.
//!
//! | mode | meaning |
//! |---|---|
//! | `0` | off: every hook jumps straight to the call it replaced |
//! | `TRACK` | data files and writes are followed, nothing is served (while enabling) |
//! | `TRACK + SERVE` | on |
//! | `HARVEST` | switched off, but asynchronous requests that we touched are still under way and must be looked at when they complete |

use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use arc_swap::{ArcSwapOption, Guard};
use extension::{Extension, Generations, LatencyHistogram};

/// Data files and writes to them are followed.
pub const TRACK: u8 = 1;
/// Reads are served and pages are offered.
pub const SERVE: u8 = 2;
/// Completions of asynchronous requests have to be looked at.
pub const HARVEST: u8 = 4;

static MODE: AtomicU8 = AtomicU8::new(0);

/// Asynchronous requests that were touched by us and have not been harvested.
static PENDING: AtomicU32 = AtomicU32::new(0);

static EPOCH: AtomicU32 = AtomicU32::new(0);

/// An extension with the number of the switching-on that made it active.
pub struct Active {
    /// The cache.
    pub extension: Extension,
    /// Which switching-on this is; a request that straddles two of them is not trusted.
    pub epoch: u32,
    /// Latency of reads that went to the data files.
    pub data_reads: LatencyHistogram,
    /// Page reads that went to the data files.
    pub data_read_count: AtomicU64,
}

static ACTIVE: LazyLock<ArcSwapOption<Active>> = LazyLock::new(ArcSwapOption::empty);

static GENERATIONS: LazyLock<Arc<Generations>> = LazyLock::new(|| Arc::new(Generations::new()));

/// The mode bits. `Relaxed` is enough for a hook to decide whether to look closer: whoever acts on `SERVE` goes on to
/// load the active extension, which is published with its own ordering.
#[inline(always)]
pub fn mode() -> u8 {
    MODE.load(Ordering::Relaxed)
}

/// Whether the hooks do nothing at all.
#[inline(always)]
pub fn is_off() -> bool {
    mode() == 0
}

/// The active extension; holding the guard keeps it alive.
#[inline]
pub fn active() -> Guard<Option<Arc<Active>>> {
    ACTIVE.load()
}

/// The generations of all pages: one table for the life of the process, so that a write that straddles a switching
/// off and on is never lost sight of.
pub fn generations() -> &'static Arc<Generations> {
    &GENERATIONS
}

/// The number the next extension will carry.
pub fn next_epoch() -> u32 {
    EPOCH.fetch_add(1, Ordering::Relaxed) + 1
}

/// First step of switching on: hooks follow files and writes.
pub fn start_tracking() {
    // Built here, so that no hook has to.
    LazyLock::force(&GENERATIONS);
    LazyLock::force(&ACTIVE);
    MODE.store(TRACK, Ordering::SeqCst);
}

/// Files were not followed without interruption while switching on.
#[derive(Debug)]
pub struct Interrupted;

/// Last step of switching on. Returns the extension that was active before, if any.
///
/// # Errors
/// Refused when files were not followed without interruption since [`start_tracking`].
pub fn publish(active: Arc<Active>) -> Result<Option<Arc<Active>>, Interrupted> {
    let before = ACTIVE.swap(Some(active));
    match MODE.compare_exchange(TRACK, TRACK | SERVE, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => Ok(before),
        Err(_) => {
            ACTIVE.store(None);
            Err(Interrupted)
        }
    }
}

/// Switches off at once. Returns the extension that was active; the caller retires it.
pub fn switch_off() -> Option<Arc<Active>> {
    // Order matters: a submitter adds to PENDING and then looks at MODE (see `Pending::begin`), we write MODE and then
    // look at PENDING. One of the two sees the other.
    MODE.store(HARVEST, Ordering::SeqCst);
    leave_harvest();
    ACTIVE.swap(None)
}

fn leave_harvest() {
    if PENDING.load(Ordering::SeqCst) == 0 {
        // Fails when switched on again meanwhile, which is what we want.
        let _ = MODE.compare_exchange(HARVEST, 0, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// One asynchronous request that we must see again when it completes.
pub struct Pending(());

impl Pending {
    /// Announces a request. `None` when the extension was switched off meanwhile: the request must pass untouched.
    pub fn begin() -> Option<Pending> {
        PENDING.fetch_add(1, Ordering::SeqCst);
        let pending = Pending(());
        if MODE.load(Ordering::SeqCst) & SERVE != 0 {
            Some(pending)
        } else {
            None // dropping `pending` takes the announcement back
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        PENDING.fetch_sub(1, Ordering::SeqCst);
        if MODE.load(Ordering::SeqCst) == HARVEST {
            leave_harvest();
        }
    }
}

/// Requests announced and not harvested.
pub fn pending_requests() -> u32 {
    PENDING.load(Ordering::SeqCst)
}

/// Tests that change the mode, or count on it, take turns.
#[cfg(test)]
pub static MODE_UNDER_TEST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_waits_for_pending_requests() {
        let _turn = MODE_UNDER_TEST.lock();
        start_tracking();
        MODE.store(TRACK | SERVE, Ordering::SeqCst);
        let request = Pending::begin().expect("serving");
        assert!(switch_off().is_none());
        assert_eq!(mode(), HARVEST, "a request is still under way");
        assert!(Pending::begin().is_none(), "no new request once off");
        assert_eq!(mode(), HARVEST);
        drop(request);
        assert_eq!(mode(), 0);
    }
}
