//! Segments: the unit in which a device is written and reclaimed.
//!
//! A cache file begins with 64 KiB of header. Segments of about 1 to 4 MiB follow, each with a footer at its end that names
//! its pages ([`format`]). The length of a segment is a number of whole pages of the usual size plus their footer, so no page
//! is lost to a footer. Of the lengths near the desired one, the one with which most pages fit the device is chosen.
//!
//! In memory a segment costs a few integers ([`Table`]): the number of entries that point into it, the units they point to,
//! and a sequence number. The number is incremented before places in the segment are rewritten, so that a concurrent reader
//! detects it.

pub(crate) mod format;
pub(crate) mod states;

use std::sync::atomic::AtomicU32 as PlainU32;

use crate::common::canary::{Rule, is_disabled};
use crate::common::memory::Mapped;
use crate::common::page::UNIT;
use crate::common::statistics::CachePadded;
use crate::common::sync::{AtomicU32, AtomicU64, Ordering};
use crate::common::violations::Violations;
use format::{BLOCK, DATA_OFFSET, footer_bytes};
use states::States;

/// Minimum number of segments of a device.
pub(crate) const MIN_SEGMENTS: u64 = 8;
const MIN_SEGMENT_BYTES: u64 = 1 << 20;
const MAX_SEGMENT_BYTES: u64 = 4 << 20;

/// Minimum size of a cache file in bytes.
pub const MIN_DEVICE_BYTES: u64 = DATA_OFFSET + MIN_SEGMENTS * MIN_SEGMENT_BYTES;

/// Positions of the segments of a device, in its file and in the location space of all devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Location (unit over all devices) of the first byte of the first segment.
    pub base: u32,
    pub segments: u32,
    pub segment_bytes: u64,
    /// Units of pages of the usual size that fit into a segment beside its footer.
    pub segment_units: u64,
}

impl Geometry {
    /// Bytes of a segment, and pages of `nominal_page` bytes in it.
    fn segment_for(data_bytes: u64, nominal_page: u64) -> (u64, u64) {
        let wanted = (data_bytes / 64)
            .next_power_of_two()
            .clamp(MIN_SEGMENT_BYTES, MAX_SEGMENT_BYTES);
        let usual = wanted / nominal_page;
        let bytes = |pages: u64| {
            let pages_end = (pages * nominal_page).next_multiple_of(BLOCK as u64);
            pages_end + footer_bytes(pages as usize) as u64
        };
        let fitting = |pages: &u64| data_bytes / bytes(*pages) * pages;
        let pages = (usual - usual / 4..=usual + usual / 4)
            .filter(|&pages| data_bytes / bytes(pages) >= MIN_SEGMENTS)
            .max_by_key(fitting)
            .unwrap_or(usual);
        (bytes(pages), pages)
    }

    /// `None` if the device is too small, or ends beyond the largest location.
    pub fn new(base: u32, device_bytes: u64, nominal_page: u32) -> Option<Geometry> {
        let data_bytes = device_bytes.checked_sub(DATA_OFFSET)?;
        let (segment_bytes, pages) = Self::segment_for(data_bytes, nominal_page.into());
        let segments = data_bytes / segment_bytes;
        let geometry = Geometry {
            base,
            segments: u32::try_from(segments).ok()?,
            segment_bytes,
            segment_units: pages * u64::from(nominal_page) / UNIT as u64,
        };
        debug_assert_eq!(segment_bytes % BLOCK as u64, 0);
        (segments >= MIN_SEGMENTS && u64::from(base) + geometry.units() < u64::from(u32::MAX))
            .then_some(geometry)
    }

    pub fn units(&self) -> u64 {
        u64::from(self.segments) * self.segment_bytes / UNIT as u64
    }

    pub fn data_bytes(&self) -> u64 {
        u64::from(self.segments) * self.segment_bytes
    }

    /// Size of the file in bytes.
    pub fn file_bytes(&self) -> u64 {
        DATA_OFFSET + self.data_bytes()
    }

    pub fn holds(&self, location: u32) -> bool {
        location >= self.base && u64::from(location - self.base) < self.units()
    }

    pub fn segment_of(&self, location: u32) -> u32 {
        debug_assert!(self.holds(location));
        (u64::from(location - self.base) * UNIT as u64 / self.segment_bytes) as u32
    }

    /// Offset in the file.
    pub fn offset_of(&self, location: u32) -> u64 {
        debug_assert!(self.holds(location));
        DATA_OFFSET + u64::from(location - self.base) * UNIT as u64
    }

    pub fn segment_offset(&self, segment: u32) -> u64 {
        DATA_OFFSET + u64::from(segment) * self.segment_bytes
    }

    /// Location of the byte at `within` of the segment.
    pub fn location(&self, segment: u32, within: usize) -> u32 {
        debug_assert!(segment < self.segments && (within as u64) < self.segment_bytes);
        debug_assert_eq!(within % UNIT, 0);
        self.base + ((u64::from(segment) * self.segment_bytes + within as u64) / UNIT as u64) as u32
    }
}

/// Live entries of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Live {
    pub entries: u32,
    pub units: u64,
    /// Of the pages before compression.
    pub page_units: u64,
}

/// `live` and `live_units` here and in the table are `Relaxed`. Only the device's writer increments them; other threads
/// decrement. So the writer never sees less than there is, and only the writer acts on a 0. A search for room tolerates an
/// outdated count.
struct Segment {
    sequence: AtomicU32,
    live: AtomicU32,
    live_units: AtomicU32,
}

/// State of each segment of a device that threads other than its writer use.
pub(crate) struct Table {
    segments: Box<[Segment]>,
    /// Sum of the segments' live units.
    live_units: CachePadded<AtomicU64>,
    /// The same of the pages before compression.
    page_units: CachePadded<AtomicU64>,
    /// The persistent sequence numbers, less one; empty if they do not outlive the process. Only the device's writer accesses
    /// them, `Relaxed`.
    kept: Mapped<PlainU32>,
}

impl Table {
    pub fn new(segments: u32) -> Table {
        Self::with_sequences(segments, Mapped::empty())
    }

    /// A table that continues the sequence numbers of an earlier process. There is a number for each segment.
    pub fn with_sequences(segments: u32, kept: Mapped<PlainU32>) -> Table {
        debug_assert!(kept.is_empty() || kept.len() == segments as usize);
        let goes_on = !is_disabled(Rule::Sequences);
        let before = |segment: u32| {
            kept.get(segment as usize)
                .filter(|_| goes_on)
                .map_or(0, |n| n.load(Ordering::Relaxed))
        };
        let new = |segment| Segment {
            sequence: AtomicU32::new(before(segment).wrapping_add(1)),
            live: AtomicU32::new(0),
            live_units: AtomicU32::new(0),
        };
        Table {
            segments: (0..segments).map(new).collect(),
            live_units: CachePadded::default(),
            page_units: CachePadded::default(),
            kept,
        }
    }

    /// Memory, including the writer's state of the segments.
    pub fn memory_needed(segments: u32) -> u64 {
        u64::from(segments) * (size_of::<Segment>() as u64 + States::BYTES)
    }

    pub fn sequence(&self, segment: u32) -> u32 {
        self.segments[segment as usize]
            .sequence
            .load(Ordering::SeqCst)
    }

    /// Entries that point into the segment.
    pub fn live(&self, segment: u32) -> u32 {
        self.segments[segment as usize].live.load(Ordering::Relaxed)
    }

    /// Units to which these entries point, according to their kinds.
    pub fn live_units(&self, segment: u32) -> u32 {
        self.segments[segment as usize]
            .live_units
            .load(Ordering::Relaxed)
    }

    /// Of all segments.
    pub fn all_live_units(&self) -> u64 {
        self.live_units.0.load(Ordering::Relaxed)
    }

    /// Of all segments, uncompressed.
    pub fn all_page_units(&self) -> u64 {
        self.page_units.0.load(Ordering::Relaxed)
    }

    /// Counts a new entry that points to `units` units in the segment, which hold a page of `page` units. Under the lock of its
    /// instance, as is `dead`.
    pub fn born(&self, segment: u32, units: u32, page: u32) {
        let s = &self.segments[segment as usize];
        s.live.fetch_add(1, Ordering::Relaxed);
        s.live_units.fetch_add(units, Ordering::Relaxed);
        self.live_units.0.fetch_add(units.into(), Ordering::Relaxed);
        self.page_units.0.fetch_add(page.into(), Ordering::Relaxed);
    }

    /// Counts the removal of an entry that pointed into the segment.
    pub fn dead(&self, segment: u32, units: u32, page: u32) {
        let s = &self.segments[segment as usize];
        let before = s.live.fetch_sub(1, Ordering::Relaxed);
        assert!(
            before > 0,
            "more entries removed from segment {segment} than were made"
        );
        let of_segment = s.live_units.fetch_sub(units, Ordering::Relaxed);
        let of_device = self.live_units.0.fetch_sub(units.into(), Ordering::Relaxed);
        self.page_units.0.fetch_sub(page.into(), Ordering::Relaxed);
        debug_assert!(units <= of_segment && u64::from(units) <= of_device);
    }

    /// Call before places in the segment to which no entry points are rewritten: readers that still read there will notice.
    pub fn reused(&self, segment: u32) {
        self.raise(segment);
    }

    fn raise(&self, segment: u32) {
        // Must come first: after a crash, the next process must not trust an older footer.
        if let Some(kept) = self.kept.get(segment as usize) {
            kept.store(self.sequence(segment), Ordering::Relaxed);
        }
        self.segments[segment as usize]
            .sequence
            .fetch_add(1, Ordering::SeqCst);
    }

    /// Call when no entry points into the segment any longer: readers that still read there will notice.
    pub fn freed(&self, segment: u32) {
        self.raise(segment);
        let s = &self.segments[segment as usize];
        assert_eq!(
            s.live.load(Ordering::Relaxed),
            0,
            "segment {segment} was freed with entries"
        );
    }

    /// Checks the counters against the entries, which `live` counts.
    pub fn validate(&self, live: impl Fn(u32) -> Live, violations: &mut Violations) {
        let (mut units, mut page_units) = (0, 0);
        for segment in 0..self.segments.len() as u32 {
            let found = live(segment);
            let counted = (self.live(segment), u64::from(self.live_units(segment)));
            violations.expect(counted == (found.entries, found.units), || {
                format!("segment {segment}: counted {counted:?}, found {found:?}")
            });
            units += found.units;
            page_units += found.page_units;
        }
        violations.equal(self.all_live_units(), units, "units of a device");
        violations.equal(
            self.all_page_units(),
            page_units,
            "units of a device's pages",
        );
    }

    /// Pages in the segments, and the bytes they take.
    pub fn cached(&self) -> (u64, u64) {
        let pages = self
            .segments
            .iter()
            .map(|s| u64::from(s.live.load(Ordering::Relaxed)))
            .sum();
        (pages, self.all_live_units() * UNIT as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_counts_back_and_forth() {
        let g = Geometry::new(1000, (1 << 30) + 12345, 16384).unwrap();
        assert!((3 << 20..5 << 20).contains(&g.segment_bytes), "{g:?}");
        assert!((200..340).contains(&g.segments), "{g:?}");
        let location = g.location(7, 20 * 1024);
        assert_eq!(g.segment_of(location), 7);
        assert_eq!(g.offset_of(location), g.segment_offset(7) + 20 * 1024);
        assert!(g.holds(1000) && !g.holds(999) && !g.holds(1000 + g.units() as u32));
    }

    #[test]
    fn next_to_nothing_of_a_device_is_lost() {
        for bytes in [95 << 20, 190 << 20, 380 << 20, 1 << 30, 10 << 30, 1 << 40] {
            let g = Geometry::new(0, bytes, 16384).unwrap();
            let pages = g.segment_units * u64::from(g.segments) / 16;
            let most = bytes / 16384;
            assert!(pages * 1000 > most * 992, "{pages} of {most}: {g:?}");
            let end = g.segment_units as usize * UNIT;
            let footer = footer_bytes(g.segment_units as usize / 16);
            assert!(end + footer <= g.segment_bytes as usize);
        }
    }

    #[test]
    fn bounds() {
        assert!(Geometry::new(0, DATA_OFFSET - 1, 16384).is_none());
        assert!(Geometry::new(0, MIN_DEVICE_BYTES / 2, 16384).is_none());
        for page in [1024, 2048, 4096, 8192, 16384, 32768, 65536] {
            let g = Geometry::new(0, MIN_DEVICE_BYTES, page).unwrap();
            assert!(u64::from(g.segments) >= MIN_SEGMENTS, "{g:?}");
        }
        assert!(Geometry::new(0, (4 << 40) + (8 << 20), 16384).is_none());
        assert!(Geometry::new(0, 4 << 40, 16384).is_some());
        assert!(Geometry::new(1 << 31, 3 << 40, 16384).is_none());
        assert!(Geometry::new(0, u64::MAX, 16384).is_none());
    }
}
