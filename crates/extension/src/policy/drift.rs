//! Drift: notices that the working set has changed.
//!
//! A frequency gate is slow to believe in a new working set: the pages of the old one have high counts and lose them only
//! in the course of many accesses. The sign of a change is that hits, which a steady load finds at a steady rate, fall to
//! less than half of their long-term average. From then on the counters go to the pages of late, and a page that is asked
//! for a second time takes the place of any page that the clock finds idle ([`crate::policy::admission`]); a scan, whose pages are
//! asked for once, gains nothing by it. The change is over when hits are back near their average and most of the cache can have been
//! renewed, or after a while.
//!
//! Hits are counted over windows of a quarter as many accesses as pages fit into the cache: over all instances, since one of
//! many sees too few. Whichever instance finishes a part of the window looks; nobody waits.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use crate::measure::averaged;

/// Least accesses of a window: over fewer the ratio of a steady load varies too much.
const LEAST_WINDOW: u64 = 2048;
/// Looks in the course of a window, all instances together.
const LOOKS: u64 = 4;
/// Part of the average below which hits show a change, and above which they show its end.
const FALLEN: f64 = 0.5;
const RECOVERED: f64 = 0.95;
/// Weight of a window in the average is 2^-WEIGHT.
const WEIGHT: u32 = 5;
/// Hit ratios are told in units of 2^-FRACTION.
const FRACTION: u32 = 32;
/// Windows that a change lasts: at least, so that most of the cache can be renewed, and at most.
const SHORTEST: u32 = 12;
const LONGEST: u32 = 24;

pub(crate) struct Drift {
    /// Accesses.
    window: u64,
    /// Accesses of an instance after which it looks.
    look_every: u64,
    /// Stands for itself: `Relaxed` everywhere. Written under the lock of `seen`.
    changing: AtomicBool,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    /// Somebody has looked.
    begun: bool,
    hits: u64,
    accesses: u64,
    average: Option<u64>,
    /// Windows since the change began.
    windows: u32,
}

impl Drift {
    /// For a cache of so many pages in so many instances.
    pub fn new(pages: u64, instances: usize) -> Drift {
        let window = (pages / 4).max(LEAST_WINDOW);
        Drift {
            window,
            look_every: (window / LOOKS / instances as u64).max(1),
            changing: AtomicBool::new(false),
            seen: Mutex::default(),
        }
    }

    pub fn changing(&self) -> bool {
        self.changing.load(Ordering::Relaxed)
    }

    /// After how many accesses an instance should look.
    pub fn look_every(&self) -> u64 {
        self.look_every
    }

    /// Looks at the hits and accesses of all instances since the cache was opened. `full`: pages compete for places; while
    /// they do not, hits say nothing.
    pub fn look(&self, hits: u64, accesses: u64, full: bool) {
        let Some(mut seen) = self.seen.try_lock() else {
            return;
        };
        let has_begun = std::mem::replace(&mut seen.begun, true);
        let passed = accesses.saturating_sub(seen.accesses);
        if passed < self.window {
            return;
        }
        if !has_begun {
            // The policy was exchanged: what was before is no window. One that was there from the beginning looks sooner.
            (seen.hits, seen.accesses) = (hits, accesses);
            return;
        }
        let hit = u128::from(hits.saturating_sub(seen.hits)) << FRACTION;
        let ratio = (hit / u128::from(passed)) as u64;
        (seen.hits, seen.accesses) = (hits, accesses);
        if !full {
            seen.average = None;
            self.changing.store(false, Ordering::Relaxed);
            return;
        }
        let average = seen.average.unwrap_or(ratio);
        if !self.changing() {
            if (ratio as f64) < average as f64 * FALLEN {
                seen.windows = 0;
                self.changing.store(true, Ordering::Relaxed);
            }
        } else {
            seen.windows += 1;
            let recovered = ratio as f64 > average as f64 * RECOVERED && seen.windows >= SHORTEST;
            if recovered || seen.windows >= LONGEST {
                seen.average = Some(ratio);
                self.changing.store(false, Ordering::Relaxed);
                return;
            }
        }
        seen.average = Some(averaged(average, ratio, WEIGHT));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets windows of this hit ratio pass.
    fn pass(drift: &Drift, at: &mut (u64, u64), percent: u64, windows: u64) {
        for _ in 0..windows {
            at.1 += 5000;
            at.0 += 50 * percent;
            drift.look(at.0, at.1, true);
        }
    }

    #[test]
    fn a_change_begins_and_ends_with_the_hits() {
        let drift = Drift::new(10_000, 1);
        let mut at = (0, 0);
        pass(&drift, &mut at, 60, 10);
        pass(&drift, &mut at, 35, 2);
        assert!(!drift.changing(), "a dip is no change");
        pass(&drift, &mut at, 10, 1);
        assert!(drift.changing());
        pass(&drift, &mut at, 60, 3);
        assert!(drift.changing(), "not renewed yet");
        pass(&drift, &mut at, 40, SHORTEST.into());
        assert!(drift.changing(), "not yet as good as before");
        pass(&drift, &mut at, 59, 1);
        assert!(!drift.changing());
    }

    #[test]
    fn a_load_that_stays_worse_becomes_the_usual() {
        let drift = Drift::new(10_000, 1);
        let mut at = (0, 0);
        pass(&drift, &mut at, 80, 10);
        pass(&drift, &mut at, 10, LONGEST.into());
        assert!(drift.changing());
        pass(&drift, &mut at, 10, 1);
        assert!(!drift.changing());
        pass(&drift, &mut at, 10, 10);
        assert!(!drift.changing());
    }

    #[test]
    fn what_was_before_it_came_is_no_average() {
        let drift = Drift::new(10_000, 1);
        // A day at 80 %, and the load is another one since. Then the policy is exchanged.
        let mut at = (800_000, 1_000_000);
        drift.look(at.0, at.1, true);
        pass(&drift, &mut at, 30, 3);
        assert!(!drift.changing());
        pass(&drift, &mut at, 10, 1);
        assert!(drift.changing(), "it has an average of its own");
    }

    #[test]
    fn a_cache_that_fills_says_nothing() {
        let drift = Drift::new(10_000, 1);
        drift.look(5000, 10_000, true);
        drift.look(5000, 20_000, false);
        assert!(!drift.changing());
        drift.look(5100, 22_000, true);
        assert!(!drift.changing(), "less than a window");
    }
}
