//! An open segment, and the chunk that is written to it next.
//!
//! Pages are collected in a chunk of at most 256 KiB, which is one write. The chunk is *gathered* if all its pages are whole
//! blocks and several writes can be in flight ([`crate::log::in_flight`]). Otherwise its pages are copied.

use std::collections::HashSet;
use std::ops::Range;

use crate::common::memory::Bounce;
use crate::common::page::{PageId, UNIT};
use crate::common::violations::Violations;
use crate::device::queue::{CHUNK, Part};
use crate::device::segment::format::{self, BLOCK, Record};
use crate::device::{Device, Fault};
use crate::index::directory::Kind;
use crate::instance::shared::Site;
use crate::log::batch::{Batch, Origin, Pending};
use crate::log::in_flight::{InFlightWrites, MAX_ASYNC_FOOTER};

/// A page in its stored form.
#[derive(Clone, Copy)]
pub(crate) struct Stored<'a> {
    pub page: PageId,
    pub check: u32,
    pub kind: Kind,
    pub bytes: &'a [u8],
}

/// Bytes of a stored page, and the alignment of its place.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    pub bytes: usize,
    pub align: usize,
}

impl Stored<'_> {
    pub fn size(&self) -> Size {
        let bytes = self.bytes.len();
        let align = if self.kind.is_raw() {
            bytes.min(BLOCK)
        } else {
            UNIT
        };
        Size { bytes, align }
    }
}

/// Where the next page goes.
pub(crate) enum Place {
    /// Behind the last one, at this byte of the segment.
    Next(usize),
    /// There as well, once the chunk is written.
    NextChunk,
    /// Into this hole, once the chunk is written.
    Hole(usize),
    /// Nowhere in this segment.
    None,
}

pub(crate) struct Stream {
    /// Its writes may be asynchronous.
    is_async: bool,
    open: Option<u32>,
    /// Pages in the open segment, and the end of the last of them.
    records: Vec<Record>,
    tail: usize,
    /// Free places in the segment except the one that is being filled, in whole units.
    holes: Vec<Range<usize>>,
    /// Allocated on demand: gathered pages are written in place.
    chunk: Bounce,
    /// The pages of the chunk are gathered: `parts` are their frames.
    gathered: bool,
    parts: Vec<Part>,
    /// Start of the chunk in the segment, in whole blocks; its used bytes, including the bytes that were there before; and the
    /// end of the hole that it is in.
    start: usize,
    used: usize,
    end: usize,
    batch: Batch,
}

// SAFETY: the parts point into frames that the batch holds.
unsafe impl Send for Stream {}

impl Stream {
    pub fn new(is_async: bool) -> Stream {
        Stream {
            is_async,
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
            batch: Batch::new(CHUNK / UNIT),
        }
    }

    /// The open segment.
    pub fn opened(&self) -> Option<u32> {
        self.open
    }

    pub fn has_pending(&self) -> bool {
        !self.batch.is_empty()
    }

    /// Bytes of the frames in the chunk.
    pub fn held(&self) -> usize {
        self.batch.held()
    }

    /// Bytes that wait to be written.
    pub fn waiting(&self) -> usize {
        self.used
    }

    /// Begins an empty segment.
    pub fn begin(&mut self, segment: u32, segment_bytes: usize) {
        debug_assert!(self.open.is_none() && self.batch.is_empty());
        self.open = Some(segment);
        self.records.clear();
        self.holes.clear();
        self.tail = 0;
        (self.start, self.used, self.end) = (0, 0, segment_bytes);
    }

    /// Takes over the live pages, in order, of a segment that may be reopened. Returns whether there are any.
    pub fn survey(&mut self, alive: impl Iterator<Item = Record>, segment_bytes: usize) -> bool {
        debug_assert!(self.open.is_none() && self.batch.is_empty());
        self.records.clear();
        self.records.extend(alive);
        self.tail = find_holes(&self.records, segment_bytes, &mut self.holes);
        !self.records.is_empty()
    }

    /// Begins the surveyed segment.
    pub fn resume(&mut self, segment: u32) {
        debug_assert!(self.open.is_none() && !self.records.is_empty());
        self.open = Some(segment);
        (self.start, self.used, self.end) = (0, 0, 0);
    }

    /// Forgets the open segment. Removes the entries of its pending pages; the caller is responsible for the others.
    pub fn abandon(&mut self, at: Site<'_>) {
        self.discard(at);
        self.open = None;
        self.used = 0;
    }

    fn discard(&mut self, at: Site<'_>) {
        self.batch.discard(at);
        self.parts.clear();
        if self.gathered {
            // The place is lost until the segment is reopened.
            self.go_on_behind();
        }
    }

    /// The chunk's memory; `None` if there is none.
    fn chunk(&mut self) -> Option<&mut [u8]> {
        self.chunk.grow(CHUNK).then(|| self.chunk.bytes_mut())
    }

    /// Returns the rest of the current hole to the list.
    fn leave_hole(&mut self) {
        let rest = self.start + self.used..self.end;
        if rest.len() >= UNIT && self.open.is_some() {
            self.holes.push(rest);
        }
        self.end = 0;
    }

    /// Starts the next chunk at the end of this one.
    fn go_on_behind(&mut self) {
        self.start += self.used;
        self.used = 0;
    }

    /// Starts the next chunk with the last, partial block of this one.
    fn carry(&mut self) {
        let rest = self.used % BLOCK;
        let whole = self.used - rest;
        if rest > 0 {
            self.chunk.bytes_mut().copy_within(whole..self.used, 0);
        }
        self.start += whole;
        self.used = rest;
        debug_assert_eq!(self.start % BLOCK, 0);
    }

    /// Whether the footer, with one more record, fits behind `end`.
    fn leaves_footer(&self, end: usize, segment_bytes: usize) -> bool {
        end.max(self.tail) + format::footer_bytes(self.records.len() + 1) <= segment_bytes
    }

    /// A hole for a page.
    pub fn fitting_hole(&self, size: Size, segment_bytes: usize) -> Option<usize> {
        let fits = |hole: &Range<usize>| {
            let end = hole.start.next_multiple_of(size.align) + size.bytes;
            end <= hole.end && self.leaves_footer(end, segment_bytes)
        };
        self.holes.iter().position(fits)
    }

    pub fn place(&self, size: Size, segment_bytes: usize) -> Place {
        let at = (self.start + self.used).next_multiple_of(size.align);
        let end = at + size.bytes;
        if end <= self.end && self.leaves_footer(end, segment_bytes) {
            if end - self.start <= CHUNK {
                Place::Next(at)
            } else {
                Place::NextChunk
            }
        } else {
            let hole = self.fitting_hole(size, segment_bytes);
            hole.map_or(Place::None, Place::Hole)
        }
    }

    /// Continues in a hole. Its first block may begin with the end of another page, which is written again with it.
    pub fn enter_hole(&mut self, device: &Device, segment: u32, hole: usize) -> Result<(), Fault> {
        let hole = self.holes.remove(hole);
        self.leave_hole();
        let start = hole.start / BLOCK * BLOCK;
        (self.start, self.used, self.end) = (start, hole.start - start, hole.end);
        if self.gathered {
            (self.start, self.used) = (hole.start.next_multiple_of(BLOCK), 0);
        }
        if self.used > 0 {
            let location = device.geometry.location(segment, start);
            let read = match self.chunk() {
                Some(chunk) => device.read_whole(location, &mut chunk[..BLOCK]),
                None => Err(Fault::Error),
            };
            if read.is_err() {
                (self.used, self.end) = (0, 0);
            }
            read?;
        }
        Ok(())
    }

    /// Makes the chunk gathered if this page can be gathered, or copied. A chunk that was begun with copies continues with copies.
    pub fn prepare(
        &mut self,
        at: Site<'_>,
        in_flight: &mut InFlightWrites,
        stored: Stored<'_>,
        origin: Origin,
    ) -> Result<(), Fault> {
        let may = self.is_async
            && in_flight.possible()
            && matches!(origin, Origin::Staged(_))
            && stored.kind.is_raw()
            && stored.bytes.len() % BLOCK == 0;
        let gathered = may && (self.gathered || !self.has_pending());
        if gathered != self.gathered {
            self.flush(at, in_flight)?;
            self.gathered = gathered;
        }
        if !gathered {
            self.chunk().ok_or(Fault::Error)?;
        }
        Ok(())
    }

    /// Puts a page into the chunk, at this byte of the open segment.
    pub fn put(
        &mut self,
        at: Site<'_>,
        segment: u32,
        place: usize,
        stored: Stored<'_>,
        origin: Origin,
    ) {
        let Stored {
            page,
            check,
            kind,
            bytes,
        } = stored;
        debug_assert_eq!(self.open, Some(segment));
        debug_assert!(place % UNIT == 0 && bytes.len() % UNIT == 0);
        debug_assert!(self.start + self.used <= place && place + bytes.len() <= self.end);
        self.tail = self.tail.max(place + bytes.len());
        if self.gathered && self.batch.is_empty() {
            // Carried bytes are written already.
            (self.start, self.used) = (place, 0);
        }
        let within = place - self.start;
        if self.gathered {
            debug_assert_eq!(within, self.used, "gathered pages have no gap");
            self.parts.push(Part {
                start: bytes.as_ptr(),
                bytes: bytes.len(),
            });
        } else {
            let chunk = self.chunk.bytes_mut();
            chunk[self.used..within].fill(0);
            chunk[within..within + bytes.len()].copy_from_slice(bytes);
        }
        self.used = within + bytes.len();
        debug_assert!(self.used <= CHUNK);
        self.records.push(Record {
            page,
            check,
            unit: (place / UNIT) as u16,
            units: (bytes.len() / UNIT) as u8,
            kind,
        });
        if let Origin::Staged(frame) = origin {
            let length = at.shared.store.staging.length(frame);
            at.shared.written.user_bytes.add(bytes.len() as u64);
            at.shared.written.page_bytes.add(length as u64);
        }
        let pending = Pending {
            page,
            check,
            location: at.device.geometry.location(segment, place),
            kind,
            origin,
        };
        self.batch.add(at, pending);
    }

    /// Fills the last block of the chunk, since the device is written in whole blocks. If the block ends within the hole, the
    /// rest is zeros. Otherwise the rest may be the beginning of a live page, so it is read from the device and written again.
    /// Returns the bytes to write.
    fn fill_up(&mut self, device: &Device, segment: u32) -> Result<usize, Fault> {
        let length = self.used.next_multiple_of(BLOCK);
        let end = self.start + length;
        if end <= self.end {
            self.chunk.bytes_mut()[self.used..length].fill(0);
        } else if self.used < length {
            let mut block = [0; BLOCK];
            device.read_into(device.geometry.location(segment, end - BLOCK), &mut block)?;
            let used = self.used % BLOCK;
            let rest = &mut self.chunk.bytes_mut()[length - BLOCK + used..length];
            rest.copy_from_slice(&block[used..]);
        }
        Ok(length)
    }

    /// Writes the chunk and switches its pages' entries to it. If the write fails, the entries are removed. The write of a
    /// gathered chunk is only started.
    pub fn flush(&mut self, at: Site<'_>, in_flight: &mut InFlightWrites) -> Result<(), Fault> {
        let Some(segment) = self.open.filter(|_| self.has_pending()) else {
            return Ok(());
        };
        let offset = at.device.geometry.segment_offset(segment) + self.start as u64;
        if self.gathered {
            let (batch, parts) = (&mut self.batch, &mut self.parts);
            let started = in_flight.start(at, segment, offset, batch, parts);
            match started {
                Ok(()) => self.go_on_behind(),
                Err(_) => self.discard(at),
            }
            return started;
        }
        in_flight.begin();
        let written = self.fill_up(at.device, segment).and_then(|length| {
            in_flight.limit_rate(at, length);
            at.device.write(&self.chunk.bytes()[..length], offset)
        });
        self.carry();
        match written {
            Ok(()) => self.batch.publish(at, segment),
            Err(_) => self.discard(at),
        }
        written
    }

    /// Closes the open segment, whose chunk was written. Returns the segment.
    pub fn close(&mut self) -> Option<u32> {
        let segment = self.open.take()?;
        debug_assert!(self.batch.is_empty());
        self.used = 0;
        Some(segment)
    }

    /// Writes the footer of the segment that was closed.
    pub fn write_footer(
        &mut self,
        at: Site<'_>,
        in_flight: &mut InFlightWrites,
        segment: u32,
    ) -> Result<(), Fault> {
        let length = format::footer_bytes(self.records.len());
        debug_assert!(self.tail + length <= at.device.geometry.segment_bytes as usize);
        if self.is_async && in_flight.possible() && length <= MAX_ASYNC_FOOTER {
            return in_flight.start_footer(at, segment, &self.records);
        }
        let device = at.device;
        self.chunk().ok_or(Fault::Error)?;
        let footer = &mut self.chunk.bytes_mut()[..length];
        format::encode_footer(device.segment_name(segment), &self.records, footer);
        in_flight.limit_rate(at, length);
        let end = device.geometry.segment_offset(segment) + device.geometry.segment_bytes;
        device.write(&self.chunk.bytes()[..length], end - length as u64)
    }

    /// Checks that pages do not overlap each other or a hole. `places`: segment and unit of each page that has an entry.
    pub fn validate(&self, places: &[(u32, u32)], violations: &mut Violations) {
        if self.open.is_none() {
            return violations.expect(self.batch.is_empty(), || "pages pend for no segment".into());
        }
        let records = self.records.iter();
        let mut taken: Vec<_> = records.map(|r| r.start()..r.start() + r.length()).collect();
        violations.expect(taken.iter().all(|place| place.end <= self.tail), || {
            format!("a page lies behind the last one, {}", self.tail)
        });
        taken.extend(self.holes.iter().cloned());
        taken.sort_unstable_by_key(|place| place.start);
        for two in taken.windows(2) {
            violations.expect(two[0].end <= two[1].start, || {
                format!("{:?} and {:?} of an open segment overlap", two[0], two[1])
            });
        }
        let known: HashSet<u32> = self.records.iter().map(|r| r.unit.into()).collect();
        for &(segment, unit) in places.iter().filter(|place| Some(place.0) == self.open) {
            violations.expect(known.contains(&unit), || {
                format!("a page at unit {unit} of the open segment {segment} is unknown there")
            });
        }
    }

    /// For tests that break it.
    #[cfg(test)]
    pub fn records_mut(&mut self) -> &mut Vec<Record> {
        &mut self.records
    }
}

/// Lists the units between these pages, which are in order. Returns the end of the last page.
fn find_holes(records: &[Record], segment_bytes: usize, holes: &mut Vec<Range<usize>>) -> usize {
    holes.clear();
    let mut end = 0usize;
    let mut add = |from: usize, to: usize| {
        if from < to {
            holes.push(from..to);
        }
    };
    for record in records {
        add(end, record.start());
        end = end.max(record.start() + record.length());
    }
    add(end, segment_bytes);
    end
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::page::FileId;

    #[test]
    fn holes_are_the_units_between_pages() {
        let record = |unit: u16, units: u8| Record {
            page: PageId::new(FileId(1), unit.into()),
            check: 0,
            unit,
            units,
            kind: Kind::packed(1),
        };
        let mut holes = vec![];
        let mut find =
            |records: &[Record]| (find_holes(records, 1 << 20, &mut holes), holes.clone());
        let (tail, found) = find(&[]);
        assert_eq!((tail, found.len(), found[0].clone()), (0, 1, 0..1 << 20));
        let (tail, found) = find(&[
            record(0, 4),
            record(8, 5),
            record(14, 1),
            record(24, 1),
            record(1000, 24),
        ]);
        assert_eq!(tail, 1 << 20);
        let kib = [4..8, 13..14, 15..24, 25..1000];
        assert_eq!(found, kib.map(|hole| hole.start << 10..hole.end << 10));
    }
}
