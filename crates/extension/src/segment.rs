//! Segments: the unit in which a device is written and reclaimed.
//!
//! A cache file begins with 64 KiB of header, followed by segments of 1 to 4 MiB. A segment is written from its beginning in
//! chunks and closed by a footer at its end, which names the pages in it ([`format`]). In memory a segment costs a few
//! integers ([`Table`]): a sequence number, raised whenever the segment becomes free, by which a reader that was busy
//! meanwhile finds out; the entries that point into it; and how much was written.

pub(crate) mod format;

use std::sync::atomic::{AtomicU32, Ordering};

use crate::staging::UNIT;
use format::DATA_OFFSET;

/// Segments that every device has at least.
pub(crate) const LEAST_SEGMENTS: u64 = 8;
const LEAST_SEGMENT_BYTES: u64 = 1 << 20;
const MOST_SEGMENT_BYTES: u64 = 4 << 20;

/// Least bytes of a cache file.
pub const LEAST_DEVICE_BYTES: u64 = DATA_OFFSET + LEAST_SEGMENTS * LEAST_SEGMENT_BYTES;

/// Where the segments of a device lie, in its file and in the space of locations of all devices.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    /// Location (unit over all devices) of the first byte of the first segment.
    pub base: u32,
    pub segments: u32,
    pub segment_bytes: u64,
}

impl Geometry {
    pub fn segment_bytes_for(device_bytes: u64) -> u64 {
        (device_bytes / 256)
            .next_power_of_two()
            .clamp(LEAST_SEGMENT_BYTES, MOST_SEGMENT_BYTES)
    }

    /// `None` if the device is too small, or ends beyond what locations can express.
    pub fn new(base: u32, device_bytes: u64) -> Option<Geometry> {
        let segment_bytes = Self::segment_bytes_for(device_bytes);
        let segments = device_bytes.checked_sub(DATA_OFFSET)? / segment_bytes;
        let geometry = Geometry {
            base,
            segments: u32::try_from(segments).ok()?,
            segment_bytes,
        };
        (segments >= LEAST_SEGMENTS && u64::from(base) + geometry.units() < u64::from(u32::MAX))
            .then_some(geometry)
    }

    pub fn units(&self) -> u64 {
        u64::from(self.segments) * self.segment_bytes / UNIT as u64
    }

    pub fn data_bytes(&self) -> u64 {
        u64::from(self.segments) * self.segment_bytes
    }

    /// Bytes that the file must have.
    pub fn file_bytes(&self) -> u64 {
        DATA_OFFSET + self.data_bytes()
    }

    pub fn holds(&self, location: u32) -> bool {
        location >= self.base && u64::from(location - self.base) < self.units()
    }

    pub fn segment_of(&self, location: u32) -> u32 {
        (u64::from(location - self.base) * UNIT as u64 / self.segment_bytes) as u32
    }

    /// Offset in the file.
    pub fn offset_of(&self, location: u32) -> u64 {
        DATA_OFFSET + u64::from(location - self.base) * UNIT as u64
    }

    pub fn segment_offset(&self, segment: u32) -> u64 {
        DATA_OFFSET + u64::from(segment) * self.segment_bytes
    }

    /// Location of the byte at `within` of the segment.
    pub fn location(&self, segment: u32, within: usize) -> u32 {
        self.base + ((u64::from(segment) * self.segment_bytes + within as u64) / UNIT as u64) as u32
    }
}

struct Segment {
    sequence: AtomicU32,
    live: AtomicU32,
    records: AtomicU32,
    units: AtomicU32,
}

/// What is known of each segment of a device outside its writer.
pub(crate) struct Table(Box<[Segment]>);

impl Table {
    pub fn new(segments: u32) -> Table {
        let new = |_| Segment {
            sequence: AtomicU32::new(1),
            live: AtomicU32::new(0),
            records: AtomicU32::new(0),
            units: AtomicU32::new(0),
        };
        Table((0..segments).map(new).collect())
    }

    /// Memory, with the writer's lists of free and of closed segments.
    pub fn memory_needed(segments: u32) -> u64 {
        u64::from(segments) * (size_of::<Segment>() as u64 + 8)
    }

    pub fn sequence(&self, segment: u32) -> u32 {
        self.0[segment as usize].sequence.load(Ordering::SeqCst)
    }

    /// Entries that point into the segment.
    pub fn live(&self, segment: u32) -> u32 {
        self.0[segment as usize].live.load(Ordering::Relaxed)
    }

    /// An entry pointing into the segment was made. Under the lock of its instance, as is `dead`.
    pub fn born(&self, segment: u32) {
        self.0[segment as usize]
            .live
            .fetch_add(1, Ordering::Relaxed);
    }

    /// An entry pointing into the segment was removed.
    pub fn dead(&self, segment: u32) {
        let before = self.0[segment as usize]
            .live
            .fetch_sub(1, Ordering::Relaxed);
        debug_assert!(
            before > 0,
            "more entries removed from segment {segment} than were made"
        );
    }

    /// The writer has put a record of so many units into the segment.
    pub fn written(&self, segment: u32, units: u32) {
        self.0[segment as usize]
            .records
            .fetch_add(1, Ordering::Relaxed);
        self.0[segment as usize]
            .units
            .fetch_add(units, Ordering::Relaxed);
    }

    /// No entry points into the segment any more; readers that still read there will notice.
    pub fn freed(&self, segment: u32) {
        let s = &self.0[segment as usize];
        s.sequence.fetch_add(1, Ordering::SeqCst);
        debug_assert_eq!(
            s.live.load(Ordering::Relaxed),
            0,
            "segment {segment} was freed with entries"
        );
        s.records.store(0, Ordering::Relaxed);
        s.units.store(0, Ordering::Relaxed);
    }

    /// Pages in the segments, and the bytes they take: the share of each segment's records that are alive.
    pub fn cached(&self) -> (u64, u64) {
        let mut pages = 0;
        let mut bytes = 0;
        for s in &self.0 {
            let live = u64::from(s.live.load(Ordering::Relaxed));
            let records = u64::from(s.records.load(Ordering::Relaxed)).max(1);
            pages += live;
            bytes += u64::from(s.units.load(Ordering::Relaxed)) * UNIT as u64 * live.min(records)
                / records;
        }
        (pages, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn geometry_counts_back_and_forth() {
        let g = Geometry::new(1000, (1 << 30) + 12345).unwrap();
        assert_eq!(g.segment_bytes, 4 << 20);
        assert_eq!(g.segments, 255);
        let location = g.location(7, 20 * 1024);
        assert_eq!(g.segment_of(location), 7);
        assert_eq!(g.offset_of(location), g.segment_offset(7) + 20 * 1024);
        assert!(g.holds(1000) && !g.holds(999) && !g.holds(1000 + g.units() as u32));
    }

    #[test]
    fn bounds() {
        assert!(Geometry::new(0, LEAST_DEVICE_BYTES - 1).is_none());
        assert_eq!(Geometry::new(0, LEAST_DEVICE_BYTES).unwrap().segments, 8);
        assert!(Geometry::new(0, (4 << 40) + (8 << 20)).is_none());
        assert!(Geometry::new(0, 4 << 40).is_some());
        assert!(Geometry::new(1 << 31, 3 << 40).is_none());
        assert!(Geometry::new(0, u64::MAX).is_none());
    }
}
