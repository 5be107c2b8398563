//! The writer of a device: the only one that writes to it, and that decides what becomes of its segments.
//!
//! One step: see whether the file is still there; reclaim until there is a free segment ([`crate::reclaim`]); visit the
//! instances in turn, take what is staged there, sorted so that the pages of an extent lie together, append it to the open
//! segment; write. Pages are collected in a chunk of 256 KiB, which is one write; only when that has succeeded are their
//! entries turned, under the locks of their instances, from the frame to the place on the device - those which still refer
//! to the frame. The frames are let go after that, so a page can be read at any time.
//!
//! A writer pulls: a slow device takes fewer pages than a fast one, and a failed one none.

use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::Compression;
use crate::device::file::Wrap;
use crate::device::health::State;
use crate::device::{Device, Fault};
use crate::directory::{Entry, Kind};
use crate::memory::Mapped;
use crate::page::{PageId, is_numbered};
use crate::segment::format::{self, BLOCK, PACKED_HEADER, Record};
use crate::shared::{CHUNK, RESERVED_SEGMENTS, Shared, TICK};
use crate::staging::{Frame, UNIT};

/// How often the file is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const FIRST_PROBE: Duration = Duration::from_secs(5);
const LAST_PROBE: Duration = Duration::from_secs(300);
/// A device that has worked for so long is probed soon again when it fails.
const PROVEN: Duration = Duration::from_secs(600);
/// Buckets swept at a time under the lock of their instance.
const SWEEP: usize = 4096;

/// A page in the chunk whose entry will refer to it once the chunk is written.
pub(crate) struct Pending {
    page: PageId,
    check: u32,
    location: u32,
    kind: Kind,
    origin: Origin,
}

/// Where the entry of a page must refer to until then.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// The writer holds a reference to the frame.
    Staged(Frame),
    /// An older place on the device.
    Moved { location: u32, kind: Kind },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Worked,
    Idle,
    /// The device is failed: nothing to do for this time.
    Failed(Duration),
}

pub(crate) struct Writer {
    pub shared: Arc<Shared>,
    device: usize,
    wrap: Arc<Wrap>,
    /// Runs in a thread of its own, and so may wait.
    threaded: bool,
    chunk: Mapped<u8>,
    /// Where the chunk begins in the open segment, and how much of it is used.
    chunk_start: usize,
    chunk_used: usize,
    pending: Vec<Pending>,
    open: Option<u32>,
    /// Pages in the open segment.
    records: Vec<Record>,
    pub free: Vec<u32>,
    /// Full segments, oldest first.
    pub closed: VecDeque<u32>,
    /// Reclaimed segments some of whose pages are pending.
    pub vacated: Vec<u32>,
    pub reclaim: crate::reclaim::Buffers,
    batch: Vec<(PageId, Frame)>,
    next_instance: usize,
    checked_at: Instant,
    /// Since the device failed: no entry refers to it any more.
    purged: bool,
    probe_at: Instant,
    probe_after: Duration,
    active_since: Instant,
}

impl Writer {
    /// Memory of a writer.
    pub const BYTES: u64 = 2 * CHUNK as u64 + (512 << 10);

    pub fn new(
        shared: Arc<Shared>,
        device: usize,
        wrap: Arc<Wrap>,
        threaded: bool,
    ) -> io::Result<Writer> {
        let segments = shared.devices[device].geometry.segments;
        let now = Instant::now();
        Ok(Writer {
            device,
            wrap,
            threaded,
            chunk: Mapped::new(CHUNK)?,
            chunk_start: 0,
            chunk_used: 0,
            pending: Vec::with_capacity(CHUNK / UNIT),
            open: None,
            records: Vec::with_capacity(256),
            free: (0..segments).rev().collect(),
            closed: VecDeque::with_capacity(segments as usize),
            vacated: Vec::new(),
            reclaim: crate::reclaim::Buffers::new()?,
            batch: Vec::with_capacity(CHUNK / UNIT),
            next_instance: device,
            checked_at: now,
            purged: false,
            probe_at: now,
            probe_after: FIRST_PROBE,
            active_since: now,
            shared,
        })
    }

    /// Body of the thread.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        let device = &shared.devices[self.device];
        if let Err(panic) = ended {
            let message = panic.downcast_ref::<&str>().copied().map(String::from);
            let message = message
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            device.health.give_up(format_args!(
                "internal error in its writer ({message}); switch the extension off and on to use it again"
            ));
            while !shared.wake.stopped() {
                shared.wake.pause(Duration::from_secs(3600));
            }
        }
        let _ = catch_unwind(AssertUnwindSafe(|| device.close()));
        drop(self);
        shared.wake.thread_ends();
    }

    fn work(&mut self) {
        let shared = Arc::clone(&self.shared);
        while !shared.wake.stopped() {
            match self.step() {
                Step::Worked => {}
                Step::Idle => shared.wake.wait(TICK),
                Step::Failed(time) => shared.wake.pause(time.min(FIRST_PROBE)),
            }
        }
    }

    pub fn step(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        let device = &shared.devices[self.device];
        if !device.health.active() {
            return self.recover(&shared, device);
        }
        self.check_file(device);
        if self.make_room(&shared, device).is_err() {
            return Step::Worked;
        }
        let worked = self.collect(&shared, device);
        let _ = self.flush(&shared, device);
        // Below the mark the rest can wait for company.
        if worked && (!self.threaded || shared.staging.used() >= shared.wake.staged) {
            Step::Worked
        } else {
            Step::Idle
        }
    }

    /// Takes what is staged and appends it. Whether there was anything.
    fn collect(&mut self, shared: &Shared, device: &Device) -> bool {
        let mut any = false;
        for _ in 0..shared.instances.len() {
            let at = self.next_instance % shared.instances.len();
            self.next_instance = at + 1;
            let mut batch = std::mem::take(&mut self.batch);
            let mut bytes = 0;
            let mut state = shared.instances[at].0.lock();
            while let Some(length) = state.next_staged(shared) {
                if bytes + length > CHUNK {
                    break;
                }
                let Some(pinned) = state.take_staged(shared) else {
                    break;
                };
                any = true;
                let page = shared.staging.page(pinned.frame());
                match state.still(page, pinned.frame(), Kind::STAGED) {
                    None => {}
                    Some((slot, _)) if state.highest_page(page.file).is_none() => {
                        state.remove(shared, page, slot)
                    }
                    Some(_) => {
                        bytes += length;
                        batch.push((page, pinned.keep()));
                    }
                }
            }
            drop(state);
            batch.sort_unstable_by_key(|&(page, _)| page);
            for &(page, frame) in &batch {
                if !device.health.active()
                    || self.append_staged(shared, device, page, frame).is_err()
                {
                    self.discard(shared, page, Origin::Staged(frame));
                }
            }
            batch.clear();
            self.batch = batch;
            // Leave room for what reclaim has to write.
            if self.free.len() < RESERVED_SEGMENTS as usize
                && self.make_room(shared, device).is_err()
            {
                break;
            }
        }
        any
    }

    fn append_staged(
        &mut self,
        shared: &Shared,
        device: &Device,
        page: PageId,
        frame: Frame,
    ) -> Result<(), Fault> {
        let reader = std::mem::ManuallyDrop::new(shared.staging.collected(frame));
        let bytes = reader.bytes();
        let check = shared.staging.check(frame);
        let origin = Origin::Staged(frame);
        let numbered = is_numbered(page, bytes);
        if shared.compression == Compression::Lz4 && numbered && bytes.len() > UNIT {
            let mut packed = std::mem::take(&mut self.reclaim.packed);
            let kind = pack(bytes, &mut packed);
            let result = kind.map(|(kind, stored)| {
                self.append(shared, device, page, check, kind, &packed[..stored], origin)
            });
            self.reclaim.packed = packed;
            if let Some(result) = result {
                return result;
            }
        }
        let kind = if numbered {
            Kind::raw(bytes.len())
        } else {
            Kind::raw_unnumbered(bytes.len())
        };
        self.append(shared, device, page, check, kind, bytes, origin)
    }

    /// Appends a page as it is stored.
    #[expect(clippy::too_many_arguments, reason = "what makes a record")]
    pub fn append(
        &mut self,
        shared: &Shared,
        device: &Device,
        page: PageId,
        check: u32,
        kind: Kind,
        bytes: &[u8],
        origin: Origin,
    ) -> Result<(), Fault> {
        let align = if kind.is_raw() {
            bytes.len().min(BLOCK)
        } else {
            UNIT
        };
        let (segment, at) = self.make_place(shared, device, bytes.len(), align)?;
        let within = at - self.chunk_start;
        self.chunk[self.chunk_used..within].fill(0);
        self.chunk[within..within + bytes.len()].copy_from_slice(bytes);
        self.chunk_used = within + bytes.len();
        let units = bytes.len() / UNIT;
        self.records.push(Record {
            page,
            check,
            unit: (at / UNIT) as u16,
            units: units as u8,
            kind,
        });
        device.table.written(segment, units as u32);
        self.pending.push(Pending {
            page,
            check,
            location: device.geometry.location(segment, at),
            kind,
            origin,
        });
        if let Origin::Staged(_) = origin {
            shared.written.user_bytes.add(bytes.len() as u64);
        }
        Ok(())
    }

    /// Where in which segment the next `length` bytes go.
    fn make_place(
        &mut self,
        shared: &Shared,
        device: &Device,
        length: usize,
        align: usize,
    ) -> Result<(u32, usize), Fault> {
        loop {
            let Some(segment) = self.open else {
                let segment = self.free.pop().ok_or(Fault::Error)?;
                self.count_free(device);
                self.open = Some(segment);
                (self.chunk_start, self.chunk_used) = (0, 0);
                self.records.clear();
                continue;
            };
            let at = (self.chunk_start + self.chunk_used).next_multiple_of(align);
            let end = at + length;
            if end + format::footer_bytes(self.records.len() + 1)
                > device.geometry.segment_bytes as usize
            {
                self.finish_segment(shared, device)?;
            } else if end - self.chunk_start > CHUNK {
                self.flush(shared, device)?;
            } else {
                return Ok((segment, at));
            }
        }
    }

    fn count_free(&self, device: &Device) {
        device.free_segments.set(self.free.len() as u64);
    }

    fn finish_segment(&mut self, shared: &Shared, device: &Device) -> Result<(), Fault> {
        self.flush(shared, device)?;
        let Some(segment) = self.open.take() else {
            return Ok(());
        };
        // Closed first: without its footer it is reclaimed by a sweep.
        self.closed.push_back(segment);
        let length = format::footer_bytes(self.records.len());
        format::encode_footer(
            device.segment_name(segment),
            &self.records,
            &mut self.chunk[..length],
        );
        let offset =
            device.geometry.segment_offset(segment) + device.geometry.segment_bytes - length as u64;
        self.pace(shared, length);
        device.write(&self.chunk[..length], offset)
    }

    /// Writes the chunk and turns the entries of its pages to it. On failure those entries are removed.
    pub fn flush(&mut self, shared: &Shared, device: &Device) -> Result<(), Fault> {
        let Some(segment) = self.open.filter(|_| self.chunk_used > 0) else {
            return Ok(());
        };
        let length = self.chunk_used.next_multiple_of(BLOCK);
        self.chunk[self.chunk_used..length].fill(0);
        self.pace(shared, length);
        let offset = device.geometry.segment_offset(segment) + self.chunk_start as u64;
        let written = device.write(&self.chunk[..length], offset);
        self.chunk_start += length;
        self.chunk_used = 0;
        let mut pending = std::mem::take(&mut self.pending);
        match written {
            Ok(()) => publish(shared, device, segment, &pending),
            Err(_) => pending
                .iter()
                .for_each(|p| self.discard(shared, p.page, p.origin)),
        }
        pending.clear();
        self.pending = pending;
        // Whether moved or removed: nothing refers to these segments any more.
        while let Some(vacated) = self.vacated.pop() {
            self.set_free(device, vacated);
        }
        written
    }

    pub fn set_free(&mut self, device: &Device, segment: u32) {
        device.table.freed(segment);
        self.free.push(segment);
        self.count_free(device);
    }

    /// Whether pages that reclaim has appended wait in the chunk.
    pub fn has_moved_pending(&self) -> bool {
        self.pending
            .iter()
            .any(|p| matches!(p.origin, Origin::Moved { .. }))
    }

    /// Removes the entry of a page that will not be written.
    pub fn discard(&self, shared: &Shared, page: PageId, origin: Origin) {
        let (location, kind) = match origin {
            Origin::Staged(frame) => (frame, Kind::STAGED),
            Origin::Moved { location, kind } => (location, kind),
        };
        let mut state = shared.instance(page).lock();
        if let Some((slot, _)) = state.still(page, location, kind) {
            state.remove(shared, page, slot);
        }
        drop(state);
        if let Origin::Staged(frame) = origin {
            drop(shared.staging.collected(frame));
        }
    }

    fn pace(&self, shared: &Shared, bytes: usize) {
        if !self.threaded {
            return;
        }
        while let Some(time) = shared.pacer.take(bytes as u64, Instant::now()) {
            if shared.wake.stopped() {
                return;
            }
            // In small pieces: the capacity may be raised meanwhile.
            shared.wake.pause(time.min(TICK));
        }
    }

    fn check_file(&mut self, device: &Device) {
        if self.checked_at.elapsed() < CHECK_EVERY {
            return;
        }
        self.checked_at = Instant::now();
        if self.active_since.elapsed() > PROVEN {
            self.probe_after = FIRST_PROBE;
        }
        match device.file().storage.facts() {
            Ok((bytes, _)) if bytes < device.geometry.file_bytes() => {
                device.health.fail("the cache file was truncated by somebody else");
            }
            Ok((_, 0)) => device.health.set_remark(
                "the cache file was deleted by somebody else; it is used until the extension is switched off, and takes \
                 up its disk space until then",
            ),
            Ok(_) => device.health.set_remark(""),
            Err(error) => device.health.note_error(&error),
        }
    }

    /// The device is failed: removes what refers to it, then tries it from time to time.
    fn recover(&mut self, shared: &Shared, device: &Device) -> Step {
        if device.health.state() == State::Defunct {
            return Step::Failed(Duration::MAX);
        }
        if !self.purged {
            self.purge(shared, device);
            self.purged = true;
            self.probe_at = Instant::now() + self.probe_after;
        }
        let now = Instant::now();
        if now < self.probe_at {
            return Step::Failed(self.probe_at - now);
        }
        match self.probe(device) {
            Ok(()) => {
                self.purged = false;
                self.active_since = Instant::now();
                device.health.recover();
                // If it fails again before it has proven itself.
                self.probe_after = (self.probe_after * 2).min(LAST_PROBE);
                Step::Worked
            }
            Err(_) => {
                self.probe_after = (self.probe_after * 2).min(LAST_PROBE);
                self.probe_at = Instant::now() + self.probe_after;
                Step::Failed(self.probe_after)
            }
        }
    }

    /// For tests and replays: makes the next probe due.
    #[cfg(test)]
    pub fn hurry_probe(&mut self) {
        self.probe_at = Instant::now();
    }

    #[cfg(test)]
    pub fn hurry_check(&mut self) {
        self.checked_at -= CHECK_EVERY * 2;
    }

    /// Removes every entry that refers to the device or to a frame that waits for it, and frees all segments.
    fn purge(&mut self, shared: &Shared, device: &Device) {
        for pending in std::mem::take(&mut self.pending) {
            self.discard(shared, pending.page, pending.origin);
        }
        shared.written.purged.add(sweep(shared, device, |_| true));
        self.open = None;
        (self.chunk_start, self.chunk_used) = (0, 0);
        self.records.clear();
        self.vacated.clear();
        self.closed.clear();
        self.free.clear();
        for segment in (0..device.geometry.segments).rev() {
            device.table.freed(segment);
            self.free.push(segment);
        }
        self.count_free(device);
    }

    fn probe(&mut self, device: &Device) -> io::Result<()> {
        let nonce = self.active_since.elapsed().as_nanos() as u64;
        let file = device.file();
        let again = file
            .extend(&device.path, device.geometry.file_bytes())
            .and_then(|()| file.probe(nonce))
            .and_then(|()| file.write_header(device.header(true)));
        drop(file);
        if again.is_ok() {
            return Ok(());
        }
        // The disk may have been mounted anew: open the file by its name.
        device.close_file();
        let opened =
            crate::device::file::CacheFile::open(&device.config, device.header(true), &*self.wrap);
        device.replace_file(opened.map_err(io::Error::other)?);
        Ok(())
    }
}

/// Removes the entries that refer to the device and satisfy the condition. How many.
pub(crate) fn sweep(shared: &Shared, device: &Device, condemned: impl Fn(u32) -> bool) -> u64 {
    let mut removed = 0;
    for instance in &shared.instances {
        let buckets = instance.0.lock().directory.buckets();
        for first in (0..buckets).step_by(SWEEP) {
            let mut state = instance.0.lock();
            let before = state.directory.used();
            state.directory.sweep(first, SWEEP, |entry| {
                let hit = entry.kind != Kind::STAGED
                    && device.geometry.holds(entry.location)
                    && condemned(entry.location);
                if hit {
                    shared.entry_removed(entry);
                }
                hit
            });
            let now = state.directory.used();
            if now < before {
                removed += before - now;
                state.scale_files(before);
            }
        }
    }
    removed
}

/// The chunk is on the device: turns the entries of its pages to it.
fn publish(shared: &Shared, device: &Device, segment: u32, pending: &[Pending]) {
    let instances = shared.instances.len() as u32;
    for group in pending.chunk_by(|a, b| a.page.instance(instances) == b.page.instance(instances)) {
        let mut state = shared.instance(group[0].page).lock();
        for p in group {
            let (old, kind) = match p.origin {
                Origin::Staged(frame) => (frame, Kind::STAGED),
                Origin::Moved { location, kind } => (location, kind),
            };
            if let Some((slot, entry)) = state.still(p.page, old, kind) {
                let clock = match p.origin {
                    Origin::Staged(_) => entry.clock,
                    Origin::Moved { .. } => {
                        shared.written.reinserted.add(1);
                        entry.clock.saturating_sub(1)
                    }
                };
                shared.entry_removed(entry);
                device.table.born(segment);
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
        }
        drop(state);
        for p in group {
            if let Origin::Staged(frame) = p.origin {
                drop(shared.staging.collected(frame));
            }
        }
    }
}

/// Compresses a page into `packed`, if that saves an eighth. Kind and bytes to store.
fn pack(bytes: &[u8], packed: &mut [u8]) -> Option<(Kind, usize)> {
    let unit = Kind::packed_unit(bytes.len());
    let most = (bytes.len() / 8 * 7).min(Kind::MOST_PACKED * unit);
    let most = most / unit * unit;
    if most == 0 {
        return None;
    }
    // The destination may be larger than what is wanted: LZ4 wants room for the worst case.
    let length = lz4_flex::block::compress_into(bytes, &mut packed[PACKED_HEADER..]).ok()?;
    let stored = (PACKED_HEADER + length).next_multiple_of(unit);
    if stored > most {
        return None;
    }
    format::encode_packed_header(length, bytes.len(), packed);
    packed[PACKED_HEADER + length..stored].fill(0);
    Some((Kind::packed(stored / unit), stored))
}
