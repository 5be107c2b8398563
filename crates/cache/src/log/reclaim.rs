//! Reclaim: turns garbage on a device into places for new pages.
//!
//! The victim is the segment with the fewest live units. Its footer names the pages in it. Pages whose entry no longer
//! refers to the segment, and pages of forgotten files, are garbage.
//!
//! *Reopening* leaves the live pages in place; the gaps between them are the holes. The sequence number of the segment is
//! incremented before the first hole is written. A reader that has found an entry earlier, and sees the number changed after
//! its read, must look up the entry again.
//!
//! *Compaction*, when the holes are too small, moves the live pages: it reads and verifies them, and appends them to another
//! segment. Their entries refer to the old place until the chunk with the new copy is written. Then nothing refers to the
//! segment, its sequence number is incremented, and it is free. If more than seven eighths of a segment are live, compaction
//! evicts the excess, so that it always gains room.
//!
//! If a footer cannot be read, the directories are swept for entries into the segment, and it is free.

use std::ops::Range;
use std::sync::atomic::Ordering;

use crate::common::memory::Bounce;
use crate::common::page::{MAX_PAGE, PageId, UNIT, check};
use crate::device::queue::{CHUNK, DEPTH, READS};
use crate::device::segment::format::{self, BLOCK, Record};
use crate::device::{Device, Fault};
use crate::instance::PIECE;
use crate::instance::shared::Site;
use crate::log::batch::{Origin, discard};
use crate::log::in_flight::InFlightWrites;
use crate::log::segment_log::{MOVED, RESERVED_SEGMENTS, SegmentLog};
use crate::log::stream::{Size, Stored};
use crate::log::sweep::sweep;

/// Limit of segments reclaimed in a row before pages are collected again.
const MAX_IN_A_ROW: usize = 8;
/// Unused bytes that may be read between two pages to save a read.
const GAP: usize = 32 << 10;
/// Limit of segments compared in a search for the victim. If there are more, each search takes the next ones.
const MAX_COMPARED: usize = 8192;
/// A segment whose footer was read ahead is preferred to the emptiest if it has at most this part of a segment more live.
const AHEAD_PART: u64 = 64;

/// Makes room on a writer's device.
pub(crate) struct Reclaimer {
    buffers: Buffers,
    /// Bytes of the last footer read: the next one probably has as many.
    footer: usize,
    /// Start of the next search.
    compared: usize,
    /// The emptiest segments after the victim, from the last search.
    next: Vec<u32>,
    /// Live units of a segment that is about as empty as the emptiest.
    near: u32,
    /// Segments that a write in flight targets.
    destinations: Vec<u32>,
    /// The cleanup that is done or in progress, and its next segment.
    cleanup: (u32, u32),
}

/// State of the segment that is being reclaimed.
struct Buffers {
    /// Part of the segment; allocated on demand.
    window: Bounce,
    records: Vec<Record>,
    keep: Vec<Keep>,
    page: Vec<u8>,
}

/// A page to be written again.
struct Keep {
    record: Record,
    clock: u8,
}

impl Reclaimer {
    pub fn new() -> Reclaimer {
        Reclaimer {
            buffers: Buffers {
                window: Bounce::NONE,
                records: Vec::with_capacity(256),
                keep: Vec::with_capacity(256),
                page: vec![0; MAX_PAGE],
            },
            footer: BLOCK,
            compared: 0,
            next: Vec::with_capacity(1 + READS),
            near: 0,
            destinations: Vec::with_capacity(DEPTH),
            cleanup: (0, u32::MAX),
        }
    }

    /// Removes the entries of unknown files in the next full segment, if a cleanup is due
    /// ([`Extension::clear_unknown`](crate::Extension::clear_unknown)). No write may be in flight. Returns whether one was due. A
    /// segment whose footer is lost is left to reclaim.
    pub fn clear_unknown(&mut self, at: Site<'_>, log: &mut SegmentLog) -> bool {
        // Relaxed: a count.
        let wanted = at.shared.cleanups.load(Ordering::Relaxed);
        if self.cleanup.0 != wanted {
            self.cleanup = (wanted, 0);
        }
        let segments = self.cleanup.1..at.device.geometry.segments;
        let Some(segment) = segments.into_iter().find(|&segment| log.is_full(segment)) else {
            self.cleanup.1 = u32::MAX;
            return false;
        };
        self.cleanup.1 = segment + 1;
        if self.read_footer(at, &mut log.in_flight, segment) {
            remove_unknown(at, segment, &self.buffers.records);
        }
        true
    }

    /// Makes room for a page: afterwards an open segment has a hole for it, or a segment may be opened.
    pub fn make_room(
        &mut self,
        at: Site<'_>,
        log: &mut SegmentLog,
        size: Size,
    ) -> Result<(), Fault> {
        if self.reopen(at, log, size)? || log.may_open(at.device) {
            return Ok(());
        }
        at.device.compacts.store(true, Ordering::Relaxed);
        self.compact(at, log)?;
        if log.may_open(at.device) {
            Ok(())
        } else {
            Err(Fault::Error)
        }
    }

    /// Opens the emptiest segment for new pages. Returns whether it has a hole of this size. If not, it is not opened; it is
    /// freed if none of its pages is live.
    fn reopen(&mut self, at: Site<'_>, log: &mut SegmentLog, size: Size) -> Result<bool, Fault> {
        #[cfg(test)]
        if at.shared.store.canary.skip_reopening() {
            return Ok(false);
        }
        let Some(victim) = self.choose_victim(at, log) else {
            return Ok(false);
        };
        let known = self.read_footer(at, &mut log.in_flight, victim);
        if known {
            sort_out(at, victim, &mut self.buffers);
        } else {
            evict_all(at, victim);
        }
        if !at.device.health.active() {
            return Err(Fault::Failed);
        }
        let alive = self.buffers.keep.iter().filter(|_| known);
        let alive = alive.map(|keep| keep.record);
        let opened = log.reopen(at.device, victim, alive, size);
        if opened {
            log.in_flight
                .read_ahead(at.device, &self.next, self.footer, self.near);
        }
        Ok(opened)
    }

    /// Empties segments until one more than the reserve is free.
    fn compact(&mut self, at: Site<'_>, log: &mut SegmentLog) -> Result<(), Fault> {
        for _ in 0..MAX_IN_A_ROW {
            if log.free() + log.vacated() > RESERVED_SEGMENTS {
                break;
            }
            let Some(victim) = self.choose_victim(at, log) else {
                break;
            };
            self.compact_segment(at, log, victim)?;
        }
        if log.free() <= RESERVED_SEGMENTS && log.vacated() > 0 {
            log.flush(at, MOVED)?;
        }
        Ok(())
    }

    /// The segment with the fewest live units. Excludes segments that a write in flight targets: their new pages are not counted yet.
    fn choose_victim(&mut self, at: Site<'_>, log: &mut SegmentLog) -> Option<u32> {
        let chosen = self.find_emptiest(at.device, log).or_else(|| {
            log.in_flight.complete_all(at);
            self.find_emptiest(at.device, log)
        })?;
        Some(log.choose(chosen))
    }

    /// Position of the emptiest segment in the list of full ones. Remembers the next ones.
    fn find_emptiest(&mut self, device: &Device, log: &SegmentLog) -> Option<usize> {
        log.in_flight.destinations(&mut self.destinations);
        self.next.clear();
        let full = log.full();
        let compared = full.len().min(MAX_COMPARED);
        let first = match full.len() {
            0..=MAX_COMPARED => 0,
            count => self.compared % count,
        };
        self.compared = first + compared;
        // In order: live units, and position.
        let mut least = [(u32::MAX, usize::MAX); 1 + READS];
        for at in (first..full.len()).chain(0..first).take(compared) {
            let live = device.table.live_units(full[at]);
            if live >= least[READS].0 || self.destinations.contains(&full[at]) {
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
        self.next.extend(found.map(|at| full[at]));
        self.near = least[0].0 + (device.geometry.segment_units / AHEAD_PART) as u32;
        // Prefer one whose footer is already known: reading it costs no wait.
        let near = |segment: &u32| {
            device.table.live_units(*segment) <= self.near && !self.destinations.contains(segment)
        };
        let known = log.in_flight.ahead(device).filter(near);
        let known = known.filter_map(|segment| full.iter().position(|&other| other == segment));
        let chosen = known.min().unwrap_or(emptiest);
        if chosen != emptiest {
            self.next.retain(|&segment| segment != full[chosen]);
            self.next.insert(0, full[emptiest]);
        }
        debug_assert!(!self.destinations.contains(&full[chosen]));
        debug_assert!(self.next.len() <= 1 + READS && !self.next.contains(&full[chosen]));
        Some(chosen)
    }

    fn compact_segment(
        &mut self,
        at: Site<'_>,
        log: &mut SegmentLog,
        victim: u32,
    ) -> Result<(), Fault> {
        if self.read_footer(at, &mut log.in_flight, victim) {
            sort_out(at, victim, &mut self.buffers);
            limit(at, victim, &mut self.buffers.keep);
            self.move_kept(at, log, victim);
        } else {
            evict_all(at, victim);
        }
        if !at.device.health.active() {
            // The purge frees it.
            return Err(Fault::Failed);
        }
        log.release(at.device, victim);
        Ok(())
    }

    /// Reads the footer into the records. False if it cannot be read.
    fn read_footer(&mut self, at: Site<'_>, in_flight: &mut InFlightWrites, victim: u32) -> bool {
        let (device, buffers) = (at.device, &mut self.buffers);
        in_flight.begin();
        if let Some(area) = in_flight.footer_ahead(at, victim) {
            if matches!(
                decode(device, victim, area, &mut buffers.records),
                Footer::Known
            ) {
                return true;
            }
        }
        let end = device.geometry.segment_bytes as usize;
        let mut length = self.footer;
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
                    self.footer = format::footer_bytes(buffers.records.len());
                    return true;
                }
                Footer::Longer(needed) => length = needed,
                Footer::Lost => return false,
            }
        }
    }

    fn move_kept(&mut self, at: Site<'_>, log: &mut SegmentLog, victim: u32) {
        let (device, buffers) = (at.device, &mut self.buffers);
        let mut window = 0..0;
        // Without memory nothing is read, and the pages to keep are dropped.
        buffers.window.grow(CHUNK);
        for n in 0..buffers.keep.len() {
            let record = buffers.keep[n].record;
            let (start, end) = (record.start(), record.start() + record.length());
            let origin = Origin::Moved {
                location: device.geometry.location(victim, start),
                kind: record.kind,
            };
            if start < window.start || end > window.end {
                let memory = buffers.window.bytes_mut();
                window = load_window(device, victim, &buffers.keep[n..], memory);
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
                    moved = log.append(at, stored, origin) == Ok(true);
                } else {
                    at.shared.written.failed_proofs.add(1);
                    device
                        .health
                        .note_error(&"a page was not read back as it was written");
                }
            }
            if !moved {
                discard(at.shared, record.page, origin);
            }
        }
    }
}

/// Reads the part of the segment that holds the next of these pages. Returns the range read; empty if that failed.
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

/// Removes the entries into a segment whose footer is lost.
fn evict_all(at: Site<'_>, victim: u32) {
    let (shared, device) = (at.shared, at.device);
    let in_victim = |location| device.geometry.segment_of(location) == victim;
    let left = || device.table.live(victim).into();
    shared
        .written
        .evicted
        .add(sweep(shared, device, in_victim, left));
}

/// State of a segment's footer.
enum Footer {
    Known,
    /// It has this many bytes.
    Longer(usize),
    Lost,
}

/// Decodes the footer at the end of `area`, the end of the segment.
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

/// Removes the entries of unknown files in a segment with these pages.
fn remove_unknown(at: Site<'_>, segment: u32, records: &[Record]) {
    let shared = at.shared;
    let instances = shared.instances.len() as u32;
    let instance = |record: &Record| record.page.instance(instances);
    let groups = records.chunk_by(|a, b| instance(a) == instance(b));
    for group in groups.flat_map(|group| group.chunks(PIECE)) {
        let mut state = shared.instance(group[0].page).lock();
        for record in group {
            if state.highest_page(record.page.file).is_none() {
                let location = at.device.geometry.location(segment, record.start());
                state.remove_if_same(&shared.store, record.page, location, record.kind);
            }
        }
    }
}

/// Lists the live pages; removes the entries of forgotten files.
fn sort_out(at: Site<'_>, victim: u32, buffers: &mut Buffers) {
    let (shared, device) = (at.shared, at.device);
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
    // A stable sort is fast for sorted runs: the pages kept last time, and those added since.
    buffers.keep.sort_by_key(|keep| keep.record.unit);
}

/// Evicts the least used of the pages to keep if they are too many.
fn limit(at: Site<'_>, victim: u32, keep: &mut Vec<Keep>) {
    let (shared, device) = (at.shared, at.device);
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
    use crate::common::page::FileId;
    use crate::index::directory::Kind;

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
}
