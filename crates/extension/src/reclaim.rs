//! Reclaim: turns garbage on a device into places for new pages.
//!
//! Either way it takes the segment with the least in it that is alive. The footer names the pages in it. Those whose entry
//! no longer refers to it, and those of forgotten files, are garbage.
//!
//! *Reopening* leaves the others where they are; between them are the holes. Before the first is written the sequence number
//! of the segment is raised: a reader that has found an entry before, and sees the number changed after its read, must
//! find the entry again.
//!
//! *Compaction*, when the holes are too small, moves them: they are read, proven, and appended to another segment. Their
//! entries refer to the old place until the chunk with the new copy is written; after that nothing refers to the segment,
//! its sequence number is raised, and it is free. Of a segment more than seven eighths alive it evicts the rest, so that it
//! gains room whatever happens.
//!
//! If a footer cannot be read, the directories are swept for entries into the segment, and it is free.

use std::ops::Range;

use crate::device::queue::{CHUNK, DEPTH, READS};
use crate::device::{Device, Fault};
use crate::log::{MOVED, NEW, Origin, RESERVED_SEGMENTS, Stored};
use crate::memory::Bounce;
use crate::page::{MAX_PAGE, PageId, check};
use crate::segment::format::{self, BLOCK, Record};
use crate::shared::Shared;
use crate::staging::UNIT;
use crate::writer::{Writer, sweep};

/// Segments reclaimed in a row before pages are collected again.
const MOST_IN_A_ROW: usize = 8;
/// Bytes that may be read in vain between two pages to save a read.
const GAP: usize = 32 << 10;
/// Segments that are compared in search of one to reclaim: of more, each search takes the next ones.
const MOST_COMPARED: usize = 8192;
/// A segment whose footer was read ahead is as good as one with less alive in it by this part of a segment.
const AHEAD_PART: u64 = 64;

/// Buffers of a writer's reclaim.
pub(crate) struct Buffers {
    /// Part of the segment; made when it is first needed.
    window: Bounce,
    records: Vec<Record>,
    keep: Vec<Keep>,
    page: Vec<u8>,
    /// Bytes of the footer that was read last: the next one is likely to have as many.
    footer: usize,
    /// Where the next search begins.
    compared: usize,
    /// The emptiest segments but one when it was last looked.
    next: Vec<u32>,
    /// Units alive in a segment that is about as empty as the emptiest.
    near: u32,
    /// Segments to which something is on the way.
    flown_to: Vec<u32>,
}

/// A page to be written again.
struct Keep {
    record: Record,
    clock: u8,
}

impl Buffers {
    pub fn new() -> Buffers {
        Buffers {
            window: Bounce::NONE,
            records: Vec::with_capacity(256),
            keep: Vec::with_capacity(256),
            page: vec![0; MAX_PAGE],
            footer: BLOCK,
            compared: 0,
            next: Vec::with_capacity(1 + READS),
            near: 0,
            flown_to: Vec::with_capacity(DEPTH),
        }
    }
}

impl Writer {
    /// Opens the emptiest segment for new pages. Whether it has a hole of so many bytes; if not it is not
    /// opened, and if nothing in it is alive it is free now.
    pub fn reopen(
        &mut self,
        shared: &Shared,
        device: &Device,
        length: usize,
        align: usize,
    ) -> Result<bool, Fault> {
        #[cfg(test)]
        if shared.store.canary.skip_reopening() {
            return Ok(false);
        }
        let Some(victim) = self.choose_victim(shared, device) else {
            return Ok(false);
        };
        let segment_bytes = device.geometry.segment_bytes as usize;
        let mut buffers = Taken::of(&mut self.reclaim);
        let known = self.read_footer(shared, device, victim, &mut buffers);
        if known {
            sort_out(shared, device, victim, &mut buffers);
        } else {
            evict_all(shared, device, victim);
        }
        let stream = &mut self.streams[NEW];
        stream.records.clear();
        stream.records.extend(
            buffers
                .keep
                .iter()
                .filter(|_| known)
                .map(|keep| keep.record),
        );
        stream.tail = find_holes(&stream.records, segment_bytes, &mut stream.holes);
        buffers.give_back(&mut self.reclaim);
        if !device.health.active() {
            return Err(Fault::Failed);
        }
        let stream = &mut self.streams[NEW];
        if stream.records.is_empty() {
            self.set_free(device, victim);
            return Ok(false);
        }
        if stream.fitting_hole(length, align, segment_bytes).is_none() {
            self.segments.leave_full(victim);
            return Ok(false);
        }
        device.table.reused(victim);
        self.segments.reopen(victim);
        stream.resume(victim);
        let Buffers {
            next, footer, near, ..
        } = &self.reclaim;
        self.flights.read_ahead(device, next, *footer, *near);
        Ok(true)
    }

    /// Empties segments until one more than the reserve is free.
    pub fn compact(&mut self, shared: &Shared, device: &Device) -> Result<(), Fault> {
        for _ in 0..MOST_IN_A_ROW {
            if self.segments.free() + self.segments.vacated() > RESERVED_SEGMENTS {
                break;
            }
            let Some(victim) = self.choose_victim(shared, device) else {
                break;
            };
            self.compact_segment(shared, device, victim)?;
        }
        if self.segments.free() <= RESERVED_SEGMENTS && self.segments.vacated() > 0 {
            self.flush(shared, device, MOVED)?;
        }
        Ok(())
    }

    /// The segment with the least in it that is alive. Not one to which something is on the way: that is not counted yet.
    fn choose_victim(&mut self, shared: &Shared, device: &Device) -> Option<u32> {
        let at = self.find_emptiest(device).or_else(|| {
            self.settle(shared, device);
            self.find_emptiest(device)
        })?;
        Some(self.segments.sort(at))
    }

    /// Where in the list of full segments the emptiest is. Notes those that come after it.
    fn find_emptiest(&mut self, device: &Device) -> Option<usize> {
        let reclaim = &mut self.reclaim;
        self.flights.destinations(&mut reclaim.flown_to);
        reclaim.next.clear();
        let full = self.segments.full();
        let compared = full.len().min(MOST_COMPARED);
        let first = match full.len() {
            0..=MOST_COMPARED => 0,
            count => reclaim.compared % count,
        };
        reclaim.compared = first + compared;
        // In order: what is alive, and where.
        let mut least = [(u32::MAX, usize::MAX); 1 + READS];
        for at in (first..full.len()).chain(0..first).take(compared) {
            let live = device.table.live_units(full[at]);
            if live >= least[READS].0 || reclaim.flown_to.contains(&full[at]) {
                continue;
            }
            let place = least.partition_point(|&(other, _)| other <= live);
            least[place..].rotate_right(1);
            least[place] = (live, at);
        }
        let mut found = least
            .iter()
            .map(|&(_, at)| at)
            .take_while(|&at| at != usize::MAX);
        let emptiest = found.next()?;
        reclaim.next.extend(found.map(|at| full[at]));
        reclaim.near = least[0].0 + (device.geometry.segment_units / AHEAD_PART) as u32;
        // One whose footer is known need not be waited for.
        let near = |segment: &u32| {
            device.table.live_units(*segment) <= reclaim.near && !reclaim.flown_to.contains(segment)
        };
        let known = self.flights.ahead(device).filter(near);
        let known = known.filter_map(|segment| full.iter().position(|&other| other == segment));
        let chosen = known.min().unwrap_or(emptiest);
        if chosen != emptiest {
            reclaim.next.retain(|&segment| segment != full[chosen]);
            reclaim.next.insert(0, full[emptiest]);
        }
        Some(chosen)
    }

    fn compact_segment(
        &mut self,
        shared: &Shared,
        device: &Device,
        victim: u32,
    ) -> Result<(), Fault> {
        let mut buffers = Taken::of(&mut self.reclaim);
        if self.read_footer(shared, device, victim, &mut buffers) {
            sort_out(shared, device, victim, &mut buffers);
            limit(shared, device, victim, &mut buffers.keep);
            self.move_kept(shared, device, victim, &mut buffers);
        } else {
            evict_all(shared, device, victim);
        }
        buffers.give_back(&mut self.reclaim);
        if !device.health.active() {
            // The purge frees it.
            return Err(Fault::Failed);
        }
        if self.streams[MOVED].has_pending() {
            self.segments.vacate(victim);
        } else {
            self.set_free(device, victim);
        }
        Ok(())
    }

    /// Reads the footer into the records. False if that is not possible.
    fn read_footer(
        &mut self,
        shared: &Shared,
        device: &Device,
        victim: u32,
        buffers: &mut Taken,
    ) -> bool {
        self.flights.begin();
        if let Some(area) = self.footer_ahead(shared, device, victim) {
            if matches!(
                decode(device, victim, area, &mut buffers.records),
                Footer::Known
            ) {
                return true;
            }
        }
        let end = device.geometry.segment_bytes as usize;
        let mut length = self.reclaim.footer;
        loop {
            if !buffers.window.grow(length) {
                return false;
            }
            let area = &mut buffers.window.bytes_mut()[..length];
            let location = device.geometry.location(victim, end - length);
            if device.read_whole(location, area).is_err() {
                return false;
            }
            match decode(device, victim, area, &mut buffers.records) {
                Footer::Known => {
                    self.reclaim.footer = format::footer_bytes(buffers.records.len());
                    return true;
                }
                Footer::Longer(needed) => length = needed,
                Footer::Lost => return false,
            }
        }
    }

    fn move_kept(&mut self, shared: &Shared, device: &Device, victim: u32, buffers: &mut Taken) {
        let mut window = 0..0;
        // Without it nothing is read, and what was to be kept is dropped.
        buffers.window.grow(CHUNK);
        for at in 0..buffers.keep.len() {
            let record = buffers.keep[at].record;
            let (start, end) = (record.start(), record.start() + record.length());
            let origin = Origin::Moved {
                location: device.geometry.location(victim, start),
                kind: record.kind,
            };
            if start < window.start || end > window.end {
                let memory = buffers.window.bytes_mut();
                window = load_window(device, victim, &buffers.keep[at..], memory);
            }
            let mut moved = false;
            if start >= window.start && end <= window.end {
                let bytes = &buffers.window.bytes()[start - window.start..end - window.start];
                if is_sound(bytes, record, &mut buffers.page) {
                    let Record {
                        page, check, kind, ..
                    } = record;
                    let stored = Stored {
                        page,
                        check,
                        kind,
                        bytes,
                    };
                    moved = self.append(shared, device, MOVED, stored, origin).is_ok();
                } else {
                    shared.written.failed_proofs.add(1);
                    device
                        .health
                        .note_error(&"a page was not read back as it was written");
                }
            }
            if !moved {
                self.discard(shared, record.page, origin);
            }
        }
    }
}

/// Reads the part of the segment in which the next of these pages lie. The range read, empty if that failed.
fn load_window(device: &Device, victim: u32, keep: &[Keep], window: &mut [u8]) -> Range<usize> {
    let blocks = |record: &Record| {
        record.start() / BLOCK * BLOCK..(record.start() + record.length()).next_multiple_of(BLOCK)
    };
    let mut whole = 0..0;
    for (n, k) in keep.iter().enumerate() {
        let part = blocks(&k.record);
        if n == 0 {
            whole = part;
        } else if part.start <= whole.end + GAP && part.end - whole.start <= CHUNK {
            whole.end = whole.end.max(part.end);
        } else {
            break;
        }
    }
    let location = device.geometry.location(victim, whole.start);
    let part = window.get_mut(..whole.len());
    match part.map(|part| device.read_whole(location, part)) {
        Some(Ok(())) => whole,
        _ => 0..0,
    }
}

/// The buffers, out of the writer's reach while it appends.
struct Taken {
    window: Bounce,
    records: Vec<Record>,
    keep: Vec<Keep>,
    page: Vec<u8>,
}

impl Taken {
    fn of(buffers: &mut Buffers) -> Taken {
        Taken {
            window: std::mem::replace(&mut buffers.window, Bounce::NONE),
            records: std::mem::take(&mut buffers.records),
            keep: std::mem::take(&mut buffers.keep),
            page: std::mem::take(&mut buffers.page),
        }
    }

    fn give_back(self, buffers: &mut Buffers) {
        buffers.window = self.window;
        buffers.records = self.records;
        buffers.keep = self.keep;
        buffers.page = self.page;
    }
}

/// Removes the entries into a segment whose footer is lost.
fn evict_all(shared: &Shared, device: &Device, victim: u32) {
    let in_victim = |location| device.geometry.segment_of(location) == victim;
    let left = || device.table.live(victim).into();
    shared
        .written
        .evicted
        .add(sweep(shared, device, in_victim, left));
}

/// Lists the units between these pages, which are in order. Returns where the last page ends.
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

/// What the end of a segment says about the pages in it.
enum Footer {
    Known,
    /// It has so many bytes.
    Longer(usize),
    Lost,
}

/// Reads the footer at the end of `area`, the end of the segment.
fn decode(device: &Device, victim: u32, area: &mut [u8], records: &mut Vec<Record>) -> Footer {
    let name = device.segment_name(victim);
    let end = device.geometry.segment_bytes as usize;
    let needed = match format::records_in(name, area) {
        Some(records) if records <= end / UNIT => format::footer_bytes(records),
        _ => return Footer::Lost,
    };
    if needed > area.len() {
        return Footer::Longer(needed);
    }
    let within = |record: &Record| record.start() + record.length() <= end;
    if format::decode_footer(name, area, records) && records.iter().all(within) {
        Footer::Known
    } else {
        Footer::Lost
    }
}

/// Lists what is alive; removes the entries of forgotten files.
fn sort_out(shared: &Shared, device: &Device, victim: u32, buffers: &mut Taken) {
    let instances = shared.instances.len() as u32;
    let instance = |record: &Record| record.page.instance(instances);
    buffers.keep.clear();
    for group in buffers.records.chunk_by(|a, b| instance(a) == instance(b)) {
        let mut state = shared.instance(group[0].page).lock();
        for &record in group {
            let location = device.geometry.location(victim, record.start());
            let Some((slot, entry)) = state.still(record.page, location, record.kind) else {
                state.forget_record(record.page.file);
                continue;
            };
            if state.highest_page(record.page.file).is_some() {
                buffers.keep.push(Keep {
                    record,
                    clock: entry.clock,
                });
            } else {
                state.remove(&shared.store, slot);
                shared.written.evicted.add(1);
            }
        }
    }
    // Stable, because that is fast where parts are in order: what was kept the last time, and what came since.
    buffers.keep.sort_by_key(|keep| keep.record.unit);
}

/// Evicts the least used of the pages to keep if they are too many.
fn limit(shared: &Shared, device: &Device, victim: u32, keep: &mut Vec<Keep>) {
    let most = device.geometry.segment_bytes as usize / 8 * 7;
    let bytes = |k: &Keep| k.record.length();
    if keep.iter().map(bytes).sum::<usize>() <= most {
        return;
    }
    keep.sort_unstable_by_key(|k| std::cmp::Reverse(k.clock));
    let mut sum = 0;
    let kept = keep.iter().take_while(|k| {
        sum += bytes(k);
        sum <= most
    });
    for Keep { record, .. } in keep.split_off(kept.count()) {
        let location = device.geometry.location(victim, record.start());
        let mut state = shared.instance(record.page).lock();
        if state.remove_if_same(&shared.store, record.page, location, record.kind) {
            shared.written.evicted.add(1);
        }
    }
    keep.sort_unstable_by_key(|k| k.record.unit);
}

/// Whether these are the stored bytes of the page.
fn is_sound(bytes: &[u8], record: Record, buffer: &mut [u8]) -> bool {
    let proven = |page: PageId, content: &[u8]| check(page, content) == record.check;
    if record.kind.is_raw() {
        return record.kind.stored(bytes.len()).is_some() && proven(record.page, bytes);
    }
    let length = bytes
        .get(..format::PACKED_HEADER)
        .map_or(0, format::packed_page_length);
    let Some(content) = buffer.get_mut(..length) else {
        return false;
    };
    record.kind.stored(length) == Some(bytes.len())
        && format::unpack(bytes, content)
        && proven(record.page, content)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::Kind;
    use crate::page::FileId;

    #[test]
    fn only_sound_pages_are_moved() {
        let page = PageId::new(FileId(1), 2);
        let content = vec![3u8; 4096];
        let record = Record {
            page,
            check: check(page, &content),
            unit: 0,
            units: 4,
            kind: Kind::raw(4096),
        };
        let mut buffer = vec![0; MAX_PAGE];
        let mut bytes = content.clone();
        assert!(is_sound(&bytes, record, &mut buffer));
        assert!(!is_sound(&bytes[..2048], record, &mut buffer));
        bytes[77] ^= 4;
        assert!(!is_sound(&bytes, record, &mut buffer));
        let packed = Record {
            kind: Kind::packed(2),
            ..record
        };
        for bytes in [&[][..], &[0; 7], &[0; 8], &[255; 4096], &[0; 2048]] {
            assert!(!is_sound(bytes, packed, &mut buffer));
        }
    }

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
