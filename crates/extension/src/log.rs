//! Where on a device pages are written.
//!
//! A segment is opened, filled from its beginning, and closed with a footer. Once no more than the reserve of segments is
//! free, the one with the least in it that is alive is opened anew: its footer names the pages in it, the entries tell which
//! of them are alive, and new pages are written into the holes between those ("threaded" logging, as F2FS has it for a
//! full device). So a page is written once, however full the device is; that makes more and smaller writes than a log
//! whose segments are emptied first, but several times fewer bytes, because updates leave holes everywhere: with 90 % alive
//! an emptied segment costs four to five writes of old pages for each new one. Only if the holes are too small for a page
//! are segments emptied ([`crate::reclaim`]); what that moves goes to an open segment of its own.
//!
//! Pages are collected in a chunk of at most 256 KiB, which is one write: *gathered*, if all of them are whole blocks and
//! several writes can be under way ([`crate::flight`]), or copied. Only when the write has succeeded are their entries
//! turned, under the locks of their instances, from the frame, or from the old place, to the new place - those which still
//! refer there. The frames are let go after that, so a page can be read at any time.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::device::queue::{CHUNK, Part};
use crate::device::{Device, Fault};
use crate::directory::{Entry, Kind};
use crate::findings::Findings;
use crate::flight::FLOWN_FOOTER;
use crate::memory::Bounce;
use crate::page::PageId;
use crate::segment::format::{self, BLOCK, Record};
use crate::shared::Shared;
use crate::staging::{Frame, UNIT};
use crate::writer::Writer;

/// Free segments that a writer keeps for itself, to have where to write the pages of a segment that it compacts.
pub(crate) const RESERVED_SEGMENTS: usize = 1;
/// Number of the stream of new pages.
pub(crate) const NEW: usize = 0;
/// Number of the stream of pages that compaction moves.
pub(crate) const MOVED: usize = 1;

/// A page as it is stored.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub page: PageId,
    pub check: u32,
    pub kind: Kind,
    pub bytes: &'a [u8],
}

/// Where the entry of a page refers to until the page is written.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// The writer holds a reference to the frame.
    Staged(Frame),
    /// An older place on the device.
    Moved { location: u32, kind: Kind },
}

impl Origin {
    /// Location and kind that the entry has.
    pub fn entry(self) -> (u32, Kind) {
        match self {
            Origin::Staged(frame) => (frame, Kind::STAGED),
            Origin::Moved { location, kind } => (location, kind),
        }
    }
}

/// A page in the chunk.
pub(crate) struct Pending {
    pub page: PageId,
    check: u32,
    location: u32,
    kind: Kind,
    pub origin: Origin,
}

/// An open segment, and the chunk that is to be written to it next.
pub(crate) struct Stream {
    open: Option<u32>,
    /// Pages in the open segment, and where the last of them ends.
    pub records: Vec<Record>,
    pub tail: usize,
    /// Free places in the segment besides the one that is being filled, in whole units.
    pub holes: Vec<Range<usize>>,
    /// Made when it is first needed: gathered pages are written from where they lie.
    chunk: Bounce,
    /// The pages in the chunk are gathered, from these places.
    gathered: bool,
    parts: Vec<Part>,
    /// Where the chunk begins in the segment, in whole blocks; how much of it is used, what lies there already included; and
    /// where the hole ends that it is in.
    start: usize,
    used: usize,
    end: usize,
    pending: Vec<Pending>,
    /// Bytes of the frames in `pending`.
    pub held: usize,
}

// SAFETY: the parts point into frames that the stream holds.
unsafe impl Send for Stream {}

impl Stream {
    pub fn new() -> Stream {
        Stream {
            open: None,
            records: Vec::with_capacity(256),
            tail: 0,
            holes: Vec::with_capacity(256),
            chunk: Bounce::NONE,
            gathered: false,
            parts: Vec::new(),
            start: 0,
            used: 0,
            end: 0,
            pending: Vec::with_capacity(CHUNK / UNIT),
            held: 0,
        }
    }

    /// Which segment is open.
    pub fn opened(&self) -> Option<u32> {
        self.open
    }

    /// Pages do not overlap, and no hole lies over one.
    pub fn validate(&self, findings: &mut Findings) {
        if self.open.is_none() {
            return findings.expect(self.pending.is_empty(), || {
                "pages pend for no segment".into()
            });
        }
        let records = self.records.iter();
        let mut places: Vec<_> = records.map(|r| r.start()..r.start() + r.length()).collect();
        findings.expect(places.iter().all(|place| place.end <= self.tail), || {
            format!("a page lies behind the last one, {}", self.tail)
        });
        places.extend(self.holes.iter().cloned());
        places.sort_unstable_by_key(|place| place.start);
        for two in places.windows(2) {
            findings.expect(two[0].end <= two[1].start, || {
                format!("{:?} and {:?} of an open segment overlap", two[0], two[1])
            });
        }
    }

    /// Where the chunk begins in the segment.
    pub fn start(&self) -> usize {
        self.start
    }

    /// Hands over what was gathered. What follows goes behind it.
    pub fn take_off(&mut self, pending: &mut Vec<Pending>, parts: &mut Vec<Part>) {
        parts.clear();
        std::mem::swap(&mut self.pending, pending);
        std::mem::swap(&mut self.parts, parts);
        self.held = 0;
        self.start += self.used;
        self.used = 0;
    }

    /// The chunk's memory, `None` if there is none to be had.
    fn chunk(&mut self) -> Option<&mut [u8]> {
        self.chunk.grow(CHUNK).then(|| self.chunk.bytes_mut())
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.used
    }

    /// Begins an empty segment.
    fn begin(&mut self, segment: u32, segment_bytes: usize) {
        self.open = Some(segment);
        self.records.clear();
        self.holes.clear();
        self.tail = 0;
        (self.start, self.used, self.end) = (0, 0, segment_bytes);
    }

    /// Begins a segment with the pages and holes that are set already.
    pub fn resume(&mut self, segment: u32) {
        self.open = Some(segment);
        (self.start, self.used, self.end) = (0, 0, 0);
    }

    /// Puts what is left of the hole with the others.
    fn leave_hole(&mut self) {
        let rest = self.start + self.used..self.end;
        if rest.len() >= UNIT && self.open.is_some() {
            self.holes.push(rest);
        }
        self.end = 0;
    }

    /// The end of the chunk is what the next one begins with, unless it is a whole block.
    fn carry(&mut self) {
        let rest = self.used % BLOCK;
        let whole = self.used - rest;
        if rest > 0 {
            self.chunk.bytes_mut().copy_within(whole..self.used, 0);
        }
        self.start += whole;
        self.used = rest;
    }

    /// Whether the footer, with one record more, has its place behind what is written up to `end`.
    fn leaves_footer(&self, end: usize, segment_bytes: usize) -> bool {
        end.max(self.tail) + format::footer_bytes(self.records.len() + 1) <= segment_bytes
    }

    /// A hole for so many bytes, aligned.
    pub fn fitting_hole(&self, length: usize, align: usize, segment_bytes: usize) -> Option<usize> {
        let fits = |hole: &Range<usize>| {
            let end = hole.start.next_multiple_of(align) + length;
            end <= hole.end && self.leaves_footer(end, segment_bytes)
        };
        self.holes.iter().position(fits)
    }
}

impl Writer {
    /// Appends a page to a stream.
    pub fn append(
        &mut self,
        shared: &Shared,
        device: &Device,
        to: usize,
        stored: Stored,
        origin: Origin,
    ) -> Result<(), Fault> {
        let Stored {
            page,
            check,
            kind,
            bytes,
        } = stored;
        let align = if kind.is_raw() {
            bytes.len().min(BLOCK)
        } else {
            UNIT
        };
        let may = to == NEW
            && self.flights.possible()
            && matches!(origin, Origin::Staged(_))
            && kind.is_raw()
            && bytes.len() % BLOCK == 0;
        // A chunk that was begun with copies goes on with them.
        let stream = &self.streams[to];
        let gathered = may && (stream.gathered || !stream.has_pending());
        if gathered != self.streams[to].gathered {
            self.flush(shared, device, to)?;
            self.streams[to].gathered = gathered;
        }
        if !gathered {
            self.streams[to].chunk().ok_or(Fault::Error)?;
        }
        let (segment, at) = self.make_place(shared, device, to, bytes.len(), align)?;
        let stream = &mut self.streams[to];
        if gathered && stream.pending.is_empty() {
            // What may be carried over is written already.
            (stream.start, stream.used) = (at, 0);
        }
        let within = at - stream.start;
        if gathered {
            stream.parts.push(Part {
                start: bytes.as_ptr(),
                bytes: bytes.len(),
            });
        } else {
            let chunk = stream.chunk.bytes_mut();
            chunk[stream.used..within].fill(0);
            chunk[within..within + bytes.len()].copy_from_slice(bytes);
        }
        stream.used = within + bytes.len();
        let units = bytes.len() / UNIT;
        stream.records.push(Record {
            page,
            check,
            unit: (at / UNIT) as u16,
            units: units as u8,
            kind,
        });
        let location = device.geometry.location(segment, at);
        stream.pending.push(Pending {
            page,
            check,
            location,
            kind,
            origin,
        });
        if let Origin::Staged(frame) = origin {
            let length = shared.store.staging.length(frame);
            self.streams[to].held += length;
            shared.written.user_bytes.add(bytes.len() as u64);
            shared.written.page_bytes.add(length as u64);
        }
        Ok(())
    }

    /// Where in which segment the next `length` bytes go.
    fn make_place(
        &mut self,
        shared: &Shared,
        device: &Device,
        to: usize,
        length: usize,
        align: usize,
    ) -> Result<(u32, usize), Fault> {
        let segment_bytes = device.geometry.segment_bytes as usize;
        loop {
            let stream = &mut self.streams[to];
            let Some(segment) = stream.open else {
                self.open_segment(shared, device, to, length, align)?;
                continue;
            };
            let at = (stream.start + stream.used).next_multiple_of(align);
            let end = at + length;
            if end <= stream.end && stream.leaves_footer(end, segment_bytes) {
                if end - stream.start <= CHUNK {
                    stream.tail = stream.tail.max(end);
                    return Ok((segment, at));
                }
                self.flush(shared, device, to)?;
            } else if let Some(hole) = stream.fitting_hole(length, align, segment_bytes) {
                self.flush(shared, device, to)?;
                self.enter_hole(device, to, segment, hole)?;
            } else {
                self.finish_segment(shared, device, to)?;
            }
        }
    }

    /// Goes on in a hole. Its first block may begin with the end of another page, which is written again with it.
    fn enter_hole(
        &mut self,
        device: &Device,
        to: usize,
        segment: u32,
        hole: usize,
    ) -> Result<(), Fault> {
        let stream = &mut self.streams[to];
        let hole = stream.holes.remove(hole);
        stream.leave_hole();
        let start = hole.start / BLOCK * BLOCK;
        (stream.start, stream.used, stream.end) = (start, hole.start - start, hole.end);
        if stream.gathered {
            (stream.start, stream.used) = (hole.start.next_multiple_of(BLOCK), 0);
        }
        if stream.used > 0 {
            let location = device.geometry.location(segment, start);
            let read = match stream.chunk() {
                Some(chunk) => device.read_whole(location, &mut chunk[..BLOCK]),
                None => Err(Fault::Error),
            };
            if read.is_err() {
                (stream.used, stream.end) = (0, 0);
            }
            read?;
        }
        Ok(())
    }

    /// Fills up the last block of the chunk: with what follows in the segment if that may be a page. Bytes to write.
    fn fill_up(&mut self, device: &Device, to: usize, segment: u32) -> Result<usize, Fault> {
        let stream = &mut self.streams[to];
        let length = stream.used.next_multiple_of(BLOCK);
        let end = stream.start + length;
        if end <= stream.end {
            stream.chunk.bytes_mut()[stream.used..length].fill(0);
        } else if stream.used < length {
            let mut block = [0; BLOCK];
            device.read_into(device.geometry.location(segment, end - BLOCK), &mut block)?;
            let used = stream.used % BLOCK;
            let rest = &mut stream.chunk.bytes_mut()[length - BLOCK + used..length];
            rest.copy_from_slice(&block[used..]);
        }
        Ok(length)
    }

    /// Opens a segment that has a place for so many bytes.
    fn open_segment(
        &mut self,
        shared: &Shared,
        device: &Device,
        to: usize,
        length: usize,
        align: usize,
    ) -> Result<(), Fault> {
        let compacts = device.compacts.load(Ordering::Relaxed);
        let mut reserved = if to == MOVED || !compacts {
            0
        } else {
            RESERVED_SEGMENTS
        };
        let segment_bytes = device.geometry.segment_bytes as usize;
        if self.segments.free() <= reserved {
            if to == MOVED {
                return Err(Fault::Error);
            }
            if self.reopen(shared, device, length, align)? {
                return Ok(());
            }
            if self.segments.free() <= reserved {
                device.compacts.store(true, Ordering::Relaxed);
                reserved = RESERVED_SEGMENTS;
                self.compact(shared, device)?;
            }
        }
        if self.segments.free() <= reserved {
            return Err(Fault::Error);
        }
        let segment = self.segments.open().ok_or(Fault::Error)?;
        self.streams[to].begin(segment, segment_bytes);
        self.count_free(device);
        Ok(())
    }

    fn finish_segment(&mut self, shared: &Shared, device: &Device, to: usize) -> Result<(), Fault> {
        self.flush(shared, device, to)?;
        let stream = &mut self.streams[to];
        let Some(segment) = stream.open.take() else {
            return Ok(());
        };
        stream.used = 0;
        // Closed first: without its footer it is reclaimed by a sweep.
        self.segments.fill(segment);
        let length = format::footer_bytes(stream.records.len());
        if to == NEW && self.flights.possible() && length <= FLOWN_FOOTER {
            return self.launch_footer(shared, device, segment);
        }
        let stream = &mut self.streams[to];
        stream.chunk().ok_or(Fault::Error)?;
        format::encode_footer(
            device.segment_name(segment),
            &stream.records,
            &mut stream.chunk.bytes_mut()[..length],
        );
        self.pace(shared, device, length);
        let end = device.geometry.segment_offset(segment) + device.geometry.segment_bytes;
        let footer = &self.streams[to].chunk.bytes()[..length];
        device.write(footer, end - length as u64)
    }

    /// Writes the chunk and turns the entries of its pages to it. On failure those entries are removed. Of a chunk that is
    /// gathered the write is only begun.
    pub fn flush(&mut self, shared: &Shared, device: &Device, to: usize) -> Result<(), Fault> {
        let stream = &self.streams[to];
        let Some(segment) = stream.open.filter(|_| stream.has_pending()) else {
            return Ok(());
        };
        if stream.gathered {
            return self.launch(shared, device, segment);
        }
        let offset = device.geometry.segment_offset(segment) + stream.start as u64;
        self.flights.begin();
        let written = self.fill_up(device, to, segment).and_then(|length| {
            self.pace(shared, device, length);
            device.write(&self.streams[to].chunk.bytes()[..length], offset)
        });
        let stream = &mut self.streams[to];
        stream.carry();
        match written {
            Ok(()) => {
                publish(shared, device, segment, &stream.pending);
                stream.pending.clear();
                stream.held = 0;
            }
            Err(_) => self.abandon_pending(shared, to),
        }
        if to == MOVED {
            // Whether moved or removed: nothing refers to these segments any more.
            while let Some(vacated) = self.segments.free_vacated() {
                device.table.freed(vacated);
            }
            self.count_free(device);
        }
        written
    }

    pub fn abandon_pending(&mut self, shared: &Shared, to: usize) {
        let mut pending = std::mem::take(&mut self.streams[to].pending);
        pending
            .iter()
            .for_each(|p| self.discard(shared, p.page, p.origin));
        pending.clear();
        let stream = &mut self.streams[to];
        stream.pending = pending;
        stream.parts.clear();
        stream.held = 0;
        if stream.gathered {
            // The place is lost until the segment is opened anew.
            stream.start += stream.used;
            stream.used = 0;
        }
    }

    /// Forgets the open segment. The entries of its pending pages are removed; those of the others are the caller's business.
    pub fn abandon(&mut self, shared: &Shared, to: usize) {
        self.abandon_pending(shared, to);
        let stream = &mut self.streams[to];
        stream.open = None;
        stream.used = 0;
    }

    /// Removes the entry of a page that will not be written.
    pub fn discard(&self, shared: &Shared, page: PageId, origin: Origin) {
        let (location, kind) = origin.entry();
        let mut state = shared.instance(page).lock();
        state.remove_if_same(&shared.store, page, location, kind);
        drop(state);
        if let Origin::Staged(frame) = origin {
            drop(shared.store.staging.collected(frame));
        }
    }
}

/// The chunk is on the device: turns the entries of its pages to it.
pub(crate) fn publish(shared: &Shared, device: &Device, segment: u32, pending: &[Pending]) {
    let instances = shared.instances.len() as u32;
    let instance = |p: &Pending| p.page.instance(instances);
    for group in pending.chunk_by(|a, b| instance(a) == instance(b)) {
        let mut state = shared.instance(group[0].page).lock();
        for p in group {
            state.note_record(p.page.file);
            let (old, kind) = p.origin.entry();
            let Some((slot, entry)) = state.still(p.page, old, kind) else {
                continue;
            };
            if let Origin::Moved { .. } = p.origin {
                shared.written.reinserted.add(1);
            }
            shared.store.entry_removed(entry);
            let (units, page) = shared.store.units(p.kind);
            device.table.born(segment, units, page);
            let Entry { clock, .. } = entry;
            state.directory.replace(
                slot,
                Entry {
                    check: p.check,
                    location: p.location,
                    kind: p.kind,
                    clock,
                },
            );
        }
        drop(state);
        for p in group {
            if let Origin::Staged(frame) = p.origin {
                drop(shared.store.staging.collected(frame));
            }
        }
    }
}
