//! Reclaim: makes room on a device by emptying its oldest segment.
//!
//! The footer names the pages that were written to the segment. Those whose entry no longer refers to it are garbage. Of the
//! others those that were hit since, and were not forgotten with their file, are read, proven and appended to the log
//! again, with a lower clock; the rest are evicted. Their entries refer to the old place until the chunk with the new copy is
//! written; after that nothing refers to the segment, its sequence number is raised, and it is free.
//!
//! A segment keeps at most three quarters of its bytes alive, so that each reclaim gains room. If a footer cannot be read,
//! the directories are swept for entries into the segment instead.

use std::io;
use std::ops::Range;

use crate::device::{Device, Fault};
use crate::memory::Mapped;
use crate::page::{MAX_PAGE, PageId, check};
use crate::segment::format::{self, BLOCK, Record};
use crate::shared::{CHUNK, RESERVED_SEGMENTS, Shared};
use crate::staging::UNIT;
use crate::writer::{Origin, Writer, sweep};

/// Segments reclaimed in a row before pages are collected again.
const MOST_IN_A_ROW: usize = 8;
/// Bytes that may be read in vain between two pages to save a read.
const GAP: usize = 32 << 10;

/// Buffers of a writer's reclaim.
pub(crate) struct Buffers {
    /// Part of the segment.
    window: Mapped<u8>,
    records: Vec<Record>,
    keep: Vec<Keep>,
    page: Vec<u8>,
    /// A compressed page.
    pub packed: Vec<u8>,
}

/// A page to be written again.
struct Keep {
    record: Record,
    clock: u8,
    frequency: u32,
}

impl Buffers {
    pub fn new() -> io::Result<Buffers> {
        Ok(Buffers {
            window: Mapped::new(CHUNK)?,
            records: Vec::with_capacity(256),
            keep: Vec::with_capacity(256),
            page: vec![0; MAX_PAGE],
            packed: vec![0; lz4_flex::block::get_maximum_output_size(MAX_PAGE) + 64],
        })
    }
}

impl Writer {
    /// Reclaims until as many segments are free as reclaim itself and the next pages need.
    pub fn make_room(&mut self, shared: &Shared, device: &Device) -> Result<(), Fault> {
        for _ in 0..MOST_IN_A_ROW {
            if self.free.len() + self.vacated.len() >= RESERVED_SEGMENTS as usize {
                break;
            }
            let Some(victim) = self.choose_victim() else {
                break;
            };
            self.reclaim_segment(shared, device, victim)?;
        }
        if self.free.is_empty() && !self.vacated.is_empty() {
            self.flush(shared, device)?;
        }
        Ok(())
    }

    /// The oldest.
    fn choose_victim(&mut self) -> Option<u32> {
        self.closed.pop_front()
    }

    fn reclaim_segment(
        &mut self,
        shared: &Shared,
        device: &Device,
        victim: u32,
    ) -> Result<(), Fault> {
        let mut buffers = Taken::of(&mut self.reclaim);
        if device.table.live(victim) > 0 {
            match read_footer(device, victim, &mut buffers) {
                true => {
                    sort_out(shared, device, victim, &mut buffers);
                    limit(shared, device, victim, &mut buffers.keep);
                    self.move_kept(shared, device, victim, &mut buffers);
                }
                false => {
                    let segment_of = |location| device.geometry.segment_of(location);
                    shared
                        .written
                        .evicted
                        .add(sweep(shared, device, |location| {
                            segment_of(location) == victim
                        }));
                }
            }
        }
        buffers.give_back(&mut self.reclaim);
        if !device.health.active() {
            // The purge frees it.
            return Err(Fault::Failed);
        }
        if self.has_moved_pending() {
            self.vacated.push(victim);
        } else {
            self.set_free(device, victim);
        }
        Ok(())
    }

    fn move_kept(&mut self, shared: &Shared, device: &Device, victim: u32, buffers: &mut Taken) {
        let mut window = 0..0;
        for at in 0..buffers.keep.len() {
            let record = buffers.keep[at].record;
            let (start, end) = (record.start(), record.start() + record.length());
            let origin = Origin::Moved {
                location: device.geometry.location(victim, start),
                kind: record.kind,
            };
            if start < window.start || end > window.end {
                window = load_window(device, victim, &buffers.keep[at..], &mut buffers.window);
            }
            let mut moved = false;
            if start >= window.start && end <= window.end {
                let bytes = &buffers.window[start - window.start..end - window.start];
                if is_sound(bytes, record, &mut buffers.page) {
                    let Record {
                        page, check, kind, ..
                    } = record;
                    moved = self
                        .append(shared, device, page, check, kind, bytes, origin)
                        .is_ok();
                } else {
                    shared.written.failed_proofs.add(1);
                    device
                        .health
                        .note_error(&"a page was not read as it was written");
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
    match device.read_into(location, &mut window[..whole.len()]) {
        Ok(()) => whole,
        Err(_) => 0..0,
    }
}

/// The buffers, out of the writer's reach while it appends.
struct Taken {
    window: Mapped<u8>,
    records: Vec<Record>,
    keep: Vec<Keep>,
    page: Vec<u8>,
}

impl Taken {
    fn of(buffers: &mut Buffers) -> Taken {
        Taken {
            window: std::mem::replace(&mut buffers.window, Mapped::empty()),
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

/// Reads the footer into the records. False if that is not possible.
fn read_footer(device: &Device, victim: u32, buffers: &mut Taken) -> bool {
    let name = device.segment_name(victim);
    let end = device.geometry.segment_bytes as usize;
    let mut length = BLOCK;
    loop {
        let area = &mut buffers.window[..length];
        if device
            .read_into(device.geometry.location(victim, end - length), area)
            .is_err()
        {
            return false;
        }
        let needed = match format::records_in(name, area) {
            Some(records) if records <= end / UNIT => format::footer_bytes(records),
            _ => return false,
        };
        if needed <= length {
            return format::decode_footer(name, area, &mut buffers.records);
        }
        length = needed;
    }
}

/// Evicts what is not worth keeping, and lists the rest.
fn sort_out(shared: &Shared, device: &Device, victim: u32, buffers: &mut Taken) {
    let instances = shared.instances.len() as u32;
    buffers.keep.clear();
    for group in buffers
        .records
        .chunk_by(|a, b| a.page.instance(instances) == b.page.instance(instances))
    {
        let mut state = shared.instance(group[0].page).lock();
        for &record in group {
            let location = device.geometry.location(victim, record.start());
            let Some((slot, entry)) = state.still(record.page, location, record.kind) else {
                continue;
            };
            let hash = record.page.hash();
            let known = state.highest_page(record.page.file).is_some();
            if known && state.admission.keeps(hash, entry.clock) {
                let frequency = state.admission.frequency(hash);
                buffers.keep.push(Keep {
                    record,
                    clock: entry.clock,
                    frequency,
                });
            } else {
                if known {
                    state.admission.evicted(hash);
                }
                state.remove(shared, record.page, slot);
                shared.written.evicted.add(1);
            }
        }
    }
}

/// Evicts the least used of the pages to keep if they are too many.
fn limit(shared: &Shared, device: &Device, victim: u32, keep: &mut Vec<Keep>) {
    let most = device.geometry.segment_bytes as usize / 4 * 3;
    let bytes = |k: &Keep| k.record.length();
    if keep.iter().map(bytes).sum::<usize>() <= most {
        return;
    }
    keep.sort_unstable_by_key(|k| std::cmp::Reverse((k.clock, k.frequency)));
    let mut sum = 0;
    let kept = keep.iter().take_while(|k| {
        sum += bytes(k);
        sum <= most
    });
    for Keep { record, .. } in keep.split_off(kept.count()) {
        let location = device.geometry.location(victim, record.start());
        let mut state = shared.instance(record.page).lock();
        if let Some((slot, _)) = state.still(record.page, location, record.kind) {
            state.admission.evicted(record.page.hash());
            state.remove(shared, record.page, slot);
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
}
