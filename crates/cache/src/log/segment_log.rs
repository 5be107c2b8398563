//! Assigns places to pages, and tracks the states of segments.
//!
//! A segment is opened, filled from its beginning, and closed with a footer. When only the reserve of segments is free, the
//! segment with the fewest live units is reopened. Its footer names its pages, the entries show which of them are live, and
//! new pages are written into the holes between those ("threaded" logging, as in F2FS on a full device).
//!
//! So a page is written once, however full the device is. That makes more and smaller writes than a log whose segments are
//! emptied first. But it writes several times fewer bytes, because updates leave holes everywhere: with 90 % live, an
//! emptied segment costs four to five writes of old pages for each new one. Segments are emptied only if the holes are too
//! small for a page. The moved pages go to a separate open segment.

use std::sync::atomic::Ordering;

use crate::common::violations::Violations;
use crate::device::segment::format::Record;
use crate::device::segment::states::States;
use crate::device::{Device, Fault};
use crate::instance::shared::Site;
use crate::log::batch::Origin;
use crate::log::in_flight::InFlightWrites;
use crate::log::stream::{Place, Size, Stored, Stream};

/// Free segments that a writer reserves for the pages of a segment that it compacts.
pub(crate) const RESERVED_SEGMENTS: usize = 1;

/// Number of the stream of new pages.
pub(crate) const NEW: usize = 0;
/// Number of the stream of pages that compaction moves.
pub(crate) const MOVED: usize = 1;

pub(crate) struct SegmentLog {
    /// Writes in flight. First field: they use memory of the streams, so they must be dropped first.
    pub in_flight: InFlightWrites,
    /// For new pages, and for pages that compaction moves.
    streams: [Stream; 2],
    states: States,
}

impl SegmentLog {
    /// No segment is open. A segment that was open when another process ended has no valid footer, so a sweep reclaims it.
    pub fn new(device: &Device) -> SegmentLog {
        let live = |segment| device.table.live(segment);
        let log = SegmentLog {
            in_flight: InFlightWrites::new(),
            streams: [Stream::new(true), Stream::new(false)],
            states: States::found(device.geometry.segments, live),
        };
        if device.health.active() {
            log.count_free(device);
        }
        log
    }

    /// Appends a page, new or moved according to its origin. False: no segment is open for it, and none may be opened; room must
    /// be made first.
    pub fn append(
        &mut self,
        at: Site<'_>,
        stored: Stored<'_>,
        origin: Origin,
    ) -> Result<bool, Fault> {
        let to = match origin {
            Origin::Staged(_) => NEW,
            Origin::Moved { .. } => MOVED,
        };
        self.streams[to].prepare(at, &mut self.in_flight, stored, origin)?;
        let segment_bytes = at.device.geometry.segment_bytes as usize;
        loop {
            let Some(segment) = self.streams[to].opened() else {
                if !self.open(at.device, to) {
                    return Ok(false);
                }
                continue;
            };
            let stream = &mut self.streams[to];
            match stream.place(stored.size(), segment_bytes) {
                Place::Next(place) => {
                    stream.put(at, segment, place, stored, origin);
                    return Ok(true);
                }
                Place::NextChunk => self.flush(at, to)?,
                Place::Hole(hole) => {
                    self.flush(at, to)?;
                    self.streams[to].enter_hole(at.device, segment, hole)?;
                }
                Place::None => self.finish_segment(at, to)?,
            }
        }
    }

    /// Writes a stream's chunk.
    pub fn flush(&mut self, at: Site<'_>, to: usize) -> Result<(), Fault> {
        if !self.streams[to].has_pending() {
            return Ok(());
        }
        let written = self.streams[to].flush(at, &mut self.in_flight);
        if to == MOVED {
            // Moved or removed: nothing refers to these segments any longer.
            while let Some(vacated) = self.states.free_vacated() {
                at.device.table.freed(vacated);
            }
            self.count_free(at.device);
        }
        written
    }

    fn finish_segment(&mut self, at: Site<'_>, to: usize) -> Result<(), Fault> {
        self.flush(at, to)?;
        let Some(segment) = self.streams[to].close() else {
            return Ok(());
        };
        // Mark it full first: without its footer, a sweep reclaims it.
        self.states.fill(segment);
        self.streams[to].write_footer(at, &mut self.in_flight, segment)
    }

    /// Opens a free segment. False: only the reserve is free.
    fn open(&mut self, device: &Device, to: usize) -> bool {
        let free = self.exceeds_reserve(device, to);
        let Some(segment) = free.then(|| self.states.open()).flatten() else {
            return false;
        };
        self.streams[to].begin(segment, device.geometry.segment_bytes as usize);
        self.count_free(device);
        true
    }

    /// Bytes of new pages that wait to be written.
    pub fn waiting(&self) -> usize {
        self.streams[NEW].waiting()
    }

    /// Bytes of the frames of these pages.
    pub fn held(&self) -> usize {
        self.streams[NEW].held()
    }

    /// Segments that may be chosen for reclaim, in no particular order.
    pub fn full(&self) -> &[u32] {
        self.states.full()
    }

    /// Whether the segment is full, so that its footer names its pages.
    pub fn is_full(&self, segment: u32) -> bool {
        self.states.is_full(segment)
    }

    pub fn free(&self) -> usize {
        self.states.free()
    }

    /// Segments that are free once the moved pages are written.
    pub fn vacated(&self) -> usize {
        self.states.vacated()
    }

    /// Whether a free segment may be opened for new pages.
    pub fn may_open(&self, device: &Device) -> bool {
        self.exceeds_reserve(device, NEW)
    }

    fn exceeds_reserve(&self, device: &Device, to: usize) -> bool {
        let compacts = device.compacts.load(Ordering::Relaxed);
        let reserved = match to {
            NEW if compacts => RESERVED_SEGMENTS,
            _ => 0,
        };
        self.states.free() > reserved
    }

    /// Chooses one of [`SegmentLog::full`] for reclaim. The caller must then `reopen` or `release` it.
    pub fn choose(&mut self, at: usize) -> u32 {
        self.states.sort(at)
    }

    /// Opens a chosen segment with these live pages for new ones, if it has a hole of this size. Otherwise it is full again, or
    /// free if no page is live. Returns whether it was opened.
    pub fn reopen(
        &mut self,
        device: &Device,
        segment: u32,
        alive: impl Iterator<Item = Record>,
        size: Size,
    ) -> bool {
        let segment_bytes = device.geometry.segment_bytes as usize;
        let stream = &mut self.streams[NEW];
        if !stream.survey(alive, segment_bytes) {
            self.set_free(device, segment);
            return false;
        }
        if stream.fitting_hole(size, segment_bytes).is_none() {
            self.states.keep_full(segment);
            return false;
        }
        device.table.reused(segment);
        self.states.reopen(segment);
        stream.resume(segment);
        true
    }

    /// Frees a chosen segment whose live pages were moved or removed, as soon as the moved pages are written.
    pub fn release(&mut self, device: &Device, segment: u32) {
        if self.streams[MOVED].has_pending() {
            self.states.vacate(segment);
        } else {
            self.set_free(device, segment);
        }
    }

    fn set_free(&mut self, device: &Device, segment: u32) {
        device.table.freed(segment);
        self.states.set_free(segment);
        self.count_free(device);
    }

    /// Forgets the open segments, and removes the entries of pages that wait to be written.
    pub fn abandon(&mut self, at: Site<'_>) {
        self.streams
            .iter_mut()
            .for_each(|stream| stream.abandon(at));
    }

    /// Frees all segments. No entry may refer to any of them, and none may be open.
    pub fn purge(&mut self, device: &Device) {
        debug_assert!(self.streams.iter().all(|stream| stream.opened().is_none()));
        self.states.purge();
        (0..device.geometry.segments).for_each(|segment| device.table.freed(segment));
        self.count_free(device);
    }

    fn count_free(&self, device: &Device) {
        device.free_segments.set(self.states.free() as u64);
    }

    /// Checks that each segment is in one state, and that pages in open ones are known. `places`: segment and unit of each page
    /// that has an entry.
    pub fn validate(&self, device: &Device, places: &[(u32, u32)], violations: &mut Violations) {
        let open: Vec<u32> = self.streams.iter().filter_map(Stream::opened).collect();
        let live = |segment| device.table.live(segment);
        self.states.validate(&open, live, violations);
        if device.health.active() {
            let free = self.states.free() as u64;
            violations.equal(device.free_segments.get(), free, "free segments");
        }
        for stream in &self.streams {
            stream.validate(places, violations);
        }
        self.in_flight.validate(violations);
    }

    /// For tests that break it.
    #[cfg(test)]
    pub fn parts_mut(&mut self) -> (&mut States, &mut Stream) {
        (&mut self.states, &mut self.streams[NEW])
    }
}
