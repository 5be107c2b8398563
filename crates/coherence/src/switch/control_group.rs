//! Control group: pages that are always read from the data files, so that reads can be compared between serving and bypass.
//!
//! A hash of file and extent number selects one extent in [`ONE_IN`], spread evenly over each file. Mode `CONTROL` enables the
//! group and measures the server's wait for every page read ([`Waits`]). Without that mode, bypassed reads are not inspected.

use cache::{EXTENT_SHIFT, HistogramSnapshot, LatencyHistogram};

use crate::platform::sync::Instant;

/// One extent of 64 pages in this many is in the group. A power of two.
pub const ONE_IN: u32 = 64;

/// Whether a page is in the control group; `owner` is the number of its file.
#[inline]
pub fn has(owner: u32, page: u32) -> bool {
    let extent = u64::from(owner) << 32 | u64::from(page >> EXTENT_SHIFT);
    // Fibonacci hashing: adjacent extents get distant hashes.
    extent.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - ONE_IN.ilog2()) == 0
}

/// A timed read in flight.
#[derive(Clone, Copy)]
pub struct Timed {
    pub began: Instant,
    /// The read bypasses the extension.
    pub bypassed: bool,
    /// The page is in the control group.
    pub control: bool,
}

/// Histograms of the server's wait for page reads, whatever answered them.
#[derive(Default)]
pub struct Waits([[LatencyHistogram; 2]; 2]);

impl Waits {
    /// Histogram of the reads that began in bypass or while serving, either of the control group or of the other pages.
    pub fn of(&self, bypassed: bool, control: bool) -> HistogramSnapshot {
        self.0[usize::from(bypassed)][usize::from(control)].snapshot()
    }

    /// Records a completed read.
    pub fn record(&self, timed: Timed) {
        let nanos = u64::try_from(timed.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.0[usize::from(timed.bypassed)][usize::from(timed.control)].record(nanos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_extent_in_many_is_in_the_group_in_each_file() {
        const PAGES: u32 = 1 << EXTENT_SHIFT;
        for owner in [1, 2, 7, 1000, u32::MAX] {
            let extents = 64 * ONE_IN;
            let first = |extent: &u32| has(owner, extent * PAGES);
            let group: Vec<u32> = (0..extents).filter(first).collect();
            assert!((56..=72).contains(&group.len()), "{owner}: {}", group.len());
            let whole = |extent: &u32| (1..PAGES).all(|page| has(owner, extent * PAGES + page));
            assert!(group.iter().all(whole), "an extent is in it or not");
            let apart = group.windows(2).map(|two| two[1] - two[0]);
            assert!(apart.max() < Some(4 * ONE_IN), "{owner}: {group:?}");
        }
    }

    #[test]
    fn each_read_is_counted_where_it_belongs() {
        let waits = Waits::default();
        for (bypassed, control) in [(false, true), (true, false), (true, false)] {
            waits.record(Timed {
                began: Instant::now(),
                bypassed,
                control,
            });
        }
        let count = |bypassed, control| waits.of(bypassed, control).count;
        assert_eq!((count(false, false), count(false, true)), (0, 1));
        assert_eq!((count(true, false), count(true, true)), (2, 0));
    }
}
