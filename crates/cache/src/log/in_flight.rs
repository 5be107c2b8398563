//! Concurrent writes of a device.
//!
//! Pages of whole blocks are written from their frames in place, without a copy. One write has up to 256 KiB and its pages.
//! Writes complete in any order. When a write has completed, the entries of its pages are switched to the device, as after
//! any other write. If it failed, the entries are removed and the device fails. A footer is such a write, too.
//!
//! No two writes in flight touch the same block. Within a segment each place is written once while the segment is open.
//! Pages that are not whole blocks share blocks, so the writer copies them into the chunk and writes that synchronously. A
//! segment is reclaimed only when no write in flight targets it ([`InFlightWrites::destinations`]): until then the entries
//! do not show which of its pages are live. Purging waits until everything has completed.
//!
//! Footers of the likely next victims are read ahead in the same way ([`Ahead`]), so that the writer does not wait for them
//! between two writes.
//!
//! Without a queue ([`crate::device::queue`]) all writes are synchronous.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::memory::Bounce;
use crate::common::violations::Violations;
use crate::common::wake::TICK;
use crate::device::file::CacheFile;
use crate::device::queue::{DEPTH, Part, Queue, READS};
use crate::device::segment::format::{self, BLOCK, Record};
use crate::device::submission::requests;
use crate::device::{Device, Fault};
use crate::instance::shared::Site;
use crate::log::batch::Batch;

/// Longest footer that is written asynchronously: that of a segment of 16 KiB pages.
pub(crate) const MAX_ASYNC_FOOTER: usize = 2 * BLOCK;

/// Minimum of concurrent writes, however few requests the disk has.
const MIN_WRITES: usize = 2;

/// Writes are started together once this many, or this many bytes, have been submitted.
const BATCH: usize = 4;
const BATCH_BYTES: usize = 64 << 10;

/// When the limit is reached, the writer waits for this many writes, so that it wakes less often than once a write.
const AWAITED: usize = 2;

/// A write in flight, or a free slot for one.
struct InFlightWrite {
    is_active: bool,
    segment: u32,
    offset: u64,
    parts: Vec<Part>,
    /// Empty for a footer.
    batch: Batch,
    footer: Bounce,
    began: Instant,
}

// SAFETY: the parts point into frames that `batch` holds, or into `footer` of the same write.
unsafe impl Send for InFlightWrite {}

impl InFlightWrite {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    No,
    InFlight,
    Done,
}

/// The footer of a segment that may be reclaimed soon, or a free slot for one.
struct Ahead {
    reading: Reading,
    segment: u32,
    sequence: u32,
    length: usize,
    memory: Bounce,
}

/// A writer's concurrent writes and its read-ahead.
pub(crate) struct InFlightWrites {
    /// First field: its drop waits for all requests before the memory below is released.
    queue: Option<Box<dyn Queue>>,
    /// The file that the queue was made for.
    file: Option<Arc<CacheFile>>,
    writes: Vec<InFlightWrite>,
    ahead: Vec<Ahead>,
    completed: Vec<(usize, std::io::Result<usize>)>,
    /// Writes in flight: their number, the bytes of their frames, their disk requests.
    count: usize,
    held: usize,
    requests: usize,
    reads: usize,
    /// Submitted requests that the kernel has not been given: their number and bytes.
    queued: usize,
    queued_bytes: usize,
}

impl Ahead {
    fn none() -> Ahead {
        Ahead {
            reading: Reading::No,
            segment: 0,
            sequence: 0,
            length: 0,
            memory: Bounce::NONE,
        }
    }
}

impl InFlightWrites {
    pub fn new() -> InFlightWrites {
        let write = || InFlightWrite {
            is_active: false,
            segment: 0,
            offset: 0,
            parts: Vec::new(),
            batch: Batch::new(0),
            footer: Bounce::NONE,
            began: Instant::now(),
        };
        InFlightWrites {
            queue: None,
            file: None,
            writes: (0..DEPTH).map(|_| write()).collect(),
            ahead: (0..READS).map(|_| Ahead::none()).collect(),
            completed: Vec::with_capacity(DEPTH + READS),
            count: 0,
            held: 0,
            requests: 0,
            reads: 0,
            queued: 0,
            queued_bytes: 0,
        }
    }

    /// Whether concurrent writes are possible: there is a queue.
    pub fn possible(&self) -> bool {
        self.queue.is_some()
    }

    /// Whether any write or read is in flight.
    pub fn any(&self) -> bool {
        self.count() > 0
    }

    /// Number of writes and reads in flight.
    pub fn count(&self) -> usize {
        self.count + self.reads
    }

    /// Bytes of the frames that the writes hold.
    pub fn held(&self) -> usize {
        self.held
    }

    /// A free slot, if the disk requests in flight are fewer than `max_requests` or the minimum of writes is not reached.
    fn free(&self, max_requests: usize) -> Option<usize> {
        if self.requests + self.reads >= max_requests && self.count >= MIN_WRITES {
            return None;
        }
        self.writes.iter().position(|write| !write.is_active)
    }

    /// Starts submitted requests. Call before a step that may take long.
    pub fn begin(&mut self) {
        if self.queued > 0 {
            (self.queued, self.queued_bytes) = (0, 0);
            if let Some(queue) = &mut self.queue {
                queue.begin();
            }
        }
    }

    /// Segments that a write in flight targets.
    pub fn destinations(&self, segments: &mut Vec<u32>) {
        segments.clear();
        for write in self.writes.iter().filter(|write| write.is_active) {
            if !segments.contains(&write.segment) {
                segments.push(write.segment);
            }
        }
    }

    /// Segments whose footer was read ahead and is still current.
    pub fn ahead<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = u32> + 'a {
        let done = |ahead: &&Ahead| {
            ahead.reading == Reading::Done && ahead.sequence == device.table.sequence(ahead.segment)
        };
        self.ahead.iter().filter(done).map(|ahead| ahead.segment)
    }

    /// Checks the counters against the writes and reads.
    pub fn validate(&self, violations: &mut Violations) {
        let in_flight = || self.writes.iter().filter(|write| write.is_active);
        violations.equal(self.count, in_flight().count(), "writes under way");
        let held = in_flight().map(|write| write.batch.held()).sum();
        violations.equal(self.held, held, "bytes held by writes");
        let requested = in_flight().map(|write| requests(write.bytes())).sum();
        violations.equal(self.requests, requested, "requests of writes");
        let reads = self
            .ahead
            .iter()
            .filter(|ahead| ahead.reading == Reading::InFlight);
        violations.equal(self.reads, reads.count(), "reads under way");
    }

    /// Drops the footers read ahead. Nothing may be in flight.
    pub fn forget_ahead(&mut self) {
        debug_assert!(!self.any());
        for ahead in &mut self.ahead {
            ahead.reading = Reading::No;
        }
    }

    /// Reads the footers of these segments, each of `length` bytes, while there is room. Footers read ahead for segments with
    /// more than `near` live units are replaced.
    pub fn read_ahead(&mut self, device: &Device, segments: &[u32], length: usize, near: u32) {
        if length == 0 || length > MAX_ASYNC_FOOTER {
            return;
        }
        let Some(queue) = &mut self.queue else {
            return;
        };
        let most = device.submissions().max_writes();
        for &segment in segments {
            // Leave part of the requests to the server's reads.
            if self.requests + self.reads >= most {
                return;
            }
            let sequence = device.table.sequence(segment);
            let known = |ahead: &Ahead| {
                ahead.reading != Reading::No
                    && (ahead.segment, ahead.sequence) == (segment, sequence)
            };
            if self.ahead.iter().any(known) {
                continue;
            }
            let spare = |ahead: &Ahead| match ahead.reading {
                Reading::No => true,
                Reading::InFlight => false,
                Reading::Done => device.table.live_units(ahead.segment) > near,
            };
            let Some(at) = self.ahead.iter().position(spare) else {
                return;
            };
            let ahead = &mut self.ahead[at];
            ahead.reading = Reading::No;
            if !ahead.memory.grow(length) {
                return;
            }
            let memory = ahead.memory.bytes_mut().as_mut_ptr();
            let end = device.geometry.segment_offset(segment) + device.geometry.segment_bytes;
            let offset = end - length as u64;
            // SAFETY: nothing else uses the memory until the read has completed.
            if !unsafe { queue.read(DEPTH + at, memory, length, offset) } {
                return;
            }
            (ahead.segment, ahead.sequence, ahead.length) = (segment, sequence, length);
            ahead.reading = Reading::InFlight;
            device.submissions().begin_write(length);
            self.reads += 1;
            self.queued += 1;
        }
    }

    fn oldest(&self) -> Option<Instant> {
        let in_flight = self.writes.iter().filter(|write| write.is_active);
        in_flight.map(|write| write.began).min()
    }

    /// Creates a queue for the device's current file. Does nothing while requests are in flight.
    pub fn prepare(&mut self, at: Site<'_>) {
        let file = at.device.file();
        if self.file.as_ref().is_some_and(|f| Arc::ptr_eq(f, &file)) || self.any() {
            return;
        }
        self.queue = None;
        self.queue = file.storage.queue(at.threaded);
        self.file = Some(file);
    }

    /// Releases the queue and the file. Nothing may be in flight.
    pub fn end(&mut self) {
        debug_assert!(!self.any());
        self.queue = None;
        self.file = None;
    }

    /// Waits until the rate limiter permits this many bytes.
    pub fn limit_rate(&mut self, at: Site<'_>, bytes: usize) {
        let (shared, bytes) = (at.shared, bytes as u64);
        shared.budget.charge(bytes, shared.clock.now());
        while let Some(time) = shared.rate_limiter.take(bytes, shared.clock.now()) {
            // In short steps: the rate may be raised during the wait, and completed writes release their frames.
            let time = time.min(TICK);
            #[cfg(test)]
            let passed = shared.clock.skip(time);
            #[cfg(not(test))]
            let passed = false;
            if !passed && (!at.threaded || shared.wake.stopped()) {
                return;
            }
            if self.any() {
                self.complete(at, 1, time);
            } else if !passed {
                shared.wake.pause(time);
            }
        }
    }

    /// Starts to write gathered pages at `offset` of the file, which is in this segment, and takes ownership of them.
    ///
    /// # Errors
    /// The device has failed or the extension closes. The caller keeps the pages.
    pub fn start(
        &mut self,
        at: Site<'_>,
        segment: u32,
        offset: u64,
        batch: &mut Batch,
        parts: &mut Vec<Part>,
    ) -> Result<(), Fault> {
        debug_assert!(!batch.is_empty() && !parts.is_empty());
        let slot = self.free_slot(at).ok_or(Fault::Failed)?;
        self.limit_rate(at, parts.iter().map(|part| part.bytes).sum());
        let write = &mut self.writes[slot];
        (write.segment, write.offset) = (segment, offset);
        write.parts.clear();
        std::mem::swap(&mut write.parts, parts);
        std::mem::swap(&mut write.batch, batch);
        self.submit(at, slot);
        Ok(())
    }

    /// Starts to write the footer of a full segment.
    pub fn start_footer(
        &mut self,
        at: Site<'_>,
        segment: u32,
        records: &[Record],
    ) -> Result<(), Fault> {
        let device = at.device;
        let slot = self.free_slot(at).ok_or(Fault::Failed)?;
        let length = format::footer_bytes(records.len());
        let write = &mut self.writes[slot];
        if !write.footer.grow(length) {
            return Err(Fault::Error);
        }
        let footer = &mut write.footer.bytes_mut()[..length];
        format::encode_footer(device.segment_name(segment), records, footer);
        write.segment = segment;
        let end = device.geometry.segment_offset(segment) + device.geometry.segment_bytes;
        write.offset = end - length as u64;
        write.parts.clear();
        write.parts.push(Part {
            start: footer.as_ptr(),
            bytes: length,
        });
        self.limit_rate(at, length);
        self.submit(at, slot);
        Ok(())
    }

    fn submit(&mut self, at: Site<'_>, slot: usize) {
        let device = at.device;
        let write = &mut self.writes[slot];
        let bytes = write.bytes();
        debug_assert!(!write.is_active && self.queue.is_some());
        debug_assert!(bytes % BLOCK == 0 && write.offset % BLOCK as u64 == 0);
        write.began = Instant::now();
        write.is_active = true;
        self.count += 1;
        self.held += write.batch.held();
        self.requests += requests(bytes);
        self.queued += 1;
        self.queued_bytes += bytes;
        device.submissions().begin_write(bytes);
        if self.count == 1 {
            // Must precede the submission: the kernel may block the writer there.
            device.speed.set_oldest(self.oldest());
        }
        let write = &self.writes[slot];
        if let Some(queue) = &mut self.queue {
            // SAFETY: the write holds the frames and the footer until it has completed.
            unsafe { queue.submit(slot, &write.parts, write.offset) };
        }
        if self.queued >= BATCH || self.queued_bytes >= BATCH_BYTES {
            // Completed writes still hold frames.
            self.complete(at, 1, Duration::ZERO);
        }
    }

    /// Waits for a free slot; `None`: the device failed, or the extension closes.
    fn free_slot(&mut self, at: Site<'_>) -> Option<usize> {
        let (shared, device) = (at.shared, at.device);
        loop {
            let most = device.submissions().max_writes();
            if let Some(slot) = self.free(most) {
                return device.health.active().then_some(slot);
            }
            if !device.health.active() || shared.wake.stopped() {
                return None;
            }
            // If only few may be in flight, wait for a single one.
            let wanted = AWAITED.min(self.count.saturating_sub(1)).max(1);
            self.complete(at, wanted, TICK);
        }
    }

    /// The footer of the segment, if it was read ahead.
    pub fn footer_ahead(&mut self, at: Site<'_>, segment: u32) -> Option<&mut [u8]> {
        let (shared, device) = (at.shared, at.device);
        let of = |ahead: &Ahead| ahead.reading != Reading::No && ahead.segment == segment;
        let slot = self.ahead.iter().position(of)?;
        while self.ahead[slot].reading == Reading::InFlight {
            if !device.health.active() || shared.wake.stopped() {
                return None;
            }
            self.complete(at, 1, TICK);
        }
        let ahead = &mut self.ahead[slot];
        let done = ahead.reading == Reading::Done;
        ahead.reading = Reading::No;
        (done && ahead.sequence == device.table.sequence(segment))
            .then(|| &mut ahead.memory.bytes_mut()[..ahead.length])
    }

    /// Processes completed writes and reads. Waits for `wanted` of them, but no longer than `wait`.
    pub fn complete(&mut self, at: Site<'_>, wanted: usize, wait: Duration) {
        if !self.any() {
            return;
        }
        let mut completed = std::mem::take(&mut self.completed);
        (self.queued, self.queued_bytes) = (0, 0);
        if let Some(queue) = &mut self.queue {
            queue.complete(wanted.max(1), wait, &mut completed);
        }
        for (slot, result) in completed.drain(..) {
            match slot.checked_sub(DEPTH) {
                None => self.write_completed(at, slot, result),
                Some(ahead) => self.read_ahead_completed(at.device, ahead, result),
            }
        }
        // Even if none has completed: other writes of this device were measured during the wait.
        at.device.speed.set_oldest(self.oldest());
        self.completed = completed;
    }

    fn read_ahead_completed(&mut self, device: &Device, at: usize, result: std::io::Result<usize>) {
        let Some(ahead) = self.ahead.get_mut(at) else {
            return;
        };
        if ahead.reading != Reading::InFlight {
            return;
        }
        self.reads -= 1;
        device.submissions().end_write(ahead.length);
        device.reads.add(1);
        // A failed read-ahead is not reported: reclaim repeats the read and records the error.
        ahead.reading = match result {
            Ok(read) if read == ahead.length => Reading::Done,
            _ => Reading::No,
        };
        if ahead.reading == Reading::Done {
            device.bytes_read.add(ahead.length as u64);
        }
    }

    fn write_completed(&mut self, at: Site<'_>, slot: usize, result: std::io::Result<usize>) {
        let device = at.device;
        let Some(write) = self.writes.get_mut(slot).filter(|f| f.is_active) else {
            return;
        };
        let bytes = write.bytes();
        device.submissions().end_write(bytes);
        let written = device.completed(&write.parts, write.offset, write.began, result);
        write.is_active = false;
        self.count -= 1;
        self.held -= write.batch.held();
        self.requests -= requests(bytes);
        match written {
            Ok(()) => write.batch.publish(at, write.segment),
            Err(_) => write.batch.discard(at),
        }
    }

    /// Waits until nothing is in flight, the device has failed, or the extension closes.
    pub fn complete_all(&mut self, at: Site<'_>) {
        while self.any() && at.device.health.active() && !at.shared.wake.stopped() {
            self.complete(at, 1, TICK);
        }
    }
}
