//! Concurrent writes of a device.
//!
//! Pages of whole blocks are written from their frames in place, without a copy. A *flight* is one write of up to 256 KiB
//! and its pages. Flights land in any order. When a flight has landed, its pages' entries are switched to the device, as
//! after any other write. If it failed, the entries are removed and the device fails. A footer is a flight, too.
//!
//! No two flights touch the same block. Within a segment each place is written once while the segment is open. Pages that
//! are not whole blocks share blocks, so they are never flown: the writer copies them into the chunk and writes that
//! synchronously. A segment is reclaimed only when no flight targets it ([`Flights::destinations`]): until then the entries
//! do not show which of its pages are live. Purging waits until everything has landed.
//!
//! Footers of the likely next victims are read ahead in the same way ([`Ahead`]), so that the writer does not wait for them
//! between two writes.
//!
//! Without a queue ([`crate::device::queue`]) there are no flights.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::memory::Bounce;
use crate::common::violations::Findings;
use crate::common::wake::TICK;
use crate::device::file::CacheFile;
use crate::device::queue::{DEPTH, Part, Queue, READS};
use crate::device::segment::format::{self, BLOCK, Record};
use crate::device::submission::requests;
use crate::device::{Device, Fault};
use crate::instance::shared::Site;
use crate::log::batch::Batch;

/// Longest footer that is flown: that of a segment of 16 KiB pages.
pub(crate) const FLOWN_FOOTER: usize = 2 * BLOCK;

/// Minimum of concurrent writes, however few requests the disk has.
const LEAST_FLIGHTS: usize = 2;

/// Writes are started together once this many, or this many bytes, have been submitted.
const BATCH: usize = 4;
const BATCH_BYTES: usize = 64 << 10;

/// When the limit is reached, the writer waits for this many writes, so that it wakes less often than once a write.
const AWAITED: usize = 2;

/// A write in flight, or a free slot for one.
struct Flight {
    under_way: bool,
    segment: u32,
    offset: u64,
    parts: Vec<Part>,
    /// Empty for a footer.
    batch: Batch,
    footer: Bounce,
    began: Instant,
}

// SAFETY: the parts point into frames that `batch` holds, or into `footer` of the same flight.
unsafe impl Send for Flight {}

impl Flight {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    No,
    UnderWay,
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
pub(crate) struct Flights {
    /// First field: its drop waits for all requests before the memory below is released.
    queue: Option<Box<dyn Queue>>,
    /// The file that the queue was made for.
    file: Option<Arc<CacheFile>>,
    flights: Vec<Flight>,
    ahead: Vec<Ahead>,
    landed: Vec<(usize, std::io::Result<usize>)>,
    /// Writes in flight: their number, the bytes of their frames, their disk requests.
    count: usize,
    held: usize,
    requests: usize,
    reads: usize,
    /// Submitted requests that the kernel has not been given: their number and bytes.
    unbegun: usize,
    unbegun_bytes: usize,
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

impl Flights {
    pub fn new() -> Flights {
        let flight = || Flight {
            under_way: false,
            segment: 0,
            offset: 0,
            parts: Vec::new(),
            batch: Batch::new(0),
            footer: Bounce::NONE,
            began: Instant::now(),
        };
        Flights {
            queue: None,
            file: None,
            flights: (0..DEPTH).map(|_| flight()).collect(),
            ahead: (0..READS).map(|_| Ahead::none()).collect(),
            landed: Vec::with_capacity(DEPTH + READS),
            count: 0,
            held: 0,
            requests: 0,
            reads: 0,
            unbegun: 0,
            unbegun_bytes: 0,
        }
    }

    /// Whether concurrent writes are possible: there is a queue.
    pub fn possible(&self) -> bool {
        self.queue.is_some()
    }

    /// Whether any write or read is in flight.
    pub fn any(&self) -> bool {
        self.under_way() > 0
    }

    /// Number of writes and reads in flight.
    pub fn under_way(&self) -> usize {
        self.count + self.reads
    }

    /// Bytes of the frames that the flights hold.
    pub fn held(&self) -> usize {
        self.held
    }

    /// A free slot, if the disk requests in flight are fewer than `most_requests` or the minimum of flights is not reached.
    fn free(&self, most_requests: usize) -> Option<usize> {
        if self.requests + self.reads >= most_requests && self.count >= LEAST_FLIGHTS {
            return None;
        }
        self.flights.iter().position(|flight| !flight.under_way)
    }

    /// Starts submitted requests. Call before a step that may take long.
    pub fn begin(&mut self) {
        if self.unbegun > 0 {
            (self.unbegun, self.unbegun_bytes) = (0, 0);
            if let Some(queue) = &mut self.queue {
                queue.begin();
            }
        }
    }

    /// Segments that a flight targets.
    pub fn destinations(&self, segments: &mut Vec<u32>) {
        segments.clear();
        for flight in self.flights.iter().filter(|flight| flight.under_way) {
            if !segments.contains(&flight.segment) {
                segments.push(flight.segment);
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

    /// Checks the counters against the flights and reads.
    pub fn validate(&self, findings: &mut Findings) {
        let under_way = || self.flights.iter().filter(|flight| flight.under_way);
        findings.equal(self.count, under_way().count(), "writes under way");
        let held = under_way().map(|flight| flight.batch.held()).sum();
        findings.equal(self.held, held, "bytes held by writes");
        let requested = under_way().map(|flight| requests(flight.bytes())).sum();
        findings.equal(self.requests, requested, "requests of writes");
        let reads = self
            .ahead
            .iter()
            .filter(|ahead| ahead.reading == Reading::UnderWay);
        findings.equal(self.reads, reads.count(), "reads under way");
    }

    /// Drops the footers read ahead. Nothing may be in flight.
    pub fn forget_ahead(&mut self) {
        for ahead in &mut self.ahead {
            ahead.reading = Reading::No;
        }
    }

    /// Reads the footers of these segments, each of `length` bytes, while there is room. Footers read ahead for segments with
    /// more than `near` live units are replaced.
    pub fn read_ahead(&mut self, device: &Device, segments: &[u32], length: usize, near: u32) {
        if length == 0 || length > FLOWN_FOOTER {
            return;
        }
        let Some(queue) = &mut self.queue else {
            return;
        };
        let most = device.submissions().most_of_writes();
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
                Reading::UnderWay => false,
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
            // SAFETY: nothing else uses the memory until the read has landed.
            if !unsafe { queue.read(DEPTH + at, memory, length, offset) } {
                return;
            }
            (ahead.segment, ahead.sequence, ahead.length) = (segment, sequence, length);
            ahead.reading = Reading::UnderWay;
            device.submissions().begin_write(length);
            self.reads += 1;
            self.unbegun += 1;
        }
    }

    fn oldest(&self) -> Option<Instant> {
        let under_way = self.flights.iter().filter(|flight| flight.under_way);
        under_way.map(|flight| flight.began).min()
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
        self.queue = None;
        self.file = None;
    }

    /// Waits until the pacer permits this many bytes.
    pub fn pace(&mut self, at: Site<'_>, bytes: usize) {
        let (shared, bytes) = (at.shared, bytes as u64);
        shared.budget.charge(bytes, shared.clock.now());
        while let Some(time) = shared.pacer.take(bytes, shared.clock.now()) {
            // In short steps: the rate may be raised during the wait, and landed writes release their frames.
            let time = time.min(TICK);
            #[cfg(test)]
            let passed = shared.clock.skip(time);
            #[cfg(not(test))]
            let passed = false;
            if !passed && (!at.threaded || shared.wake.stopped()) {
                return;
            }
            if self.any() {
                self.land(at, 1, time);
            } else if !passed {
                shared.wake.pause(time);
            }
        }
    }

    /// Starts to write gathered pages at `offset` of the file, which is in this segment, and takes ownership of them.
    ///
    /// # Errors
    /// The device has failed or the extension closes. The caller keeps the pages.
    pub fn launch(
        &mut self,
        at: Site<'_>,
        segment: u32,
        offset: u64,
        batch: &mut Batch,
        parts: &mut Vec<Part>,
    ) -> Result<(), Fault> {
        let slot = self.free_slot(at).ok_or(Fault::Failed)?;
        self.pace(at, parts.iter().map(|part| part.bytes).sum());
        let flight = &mut self.flights[slot];
        (flight.segment, flight.offset) = (segment, offset);
        flight.parts.clear();
        std::mem::swap(&mut flight.parts, parts);
        std::mem::swap(&mut flight.batch, batch);
        self.submit(at, slot);
        Ok(())
    }

    /// Starts to write the footer of a full segment.
    pub fn launch_footer(
        &mut self,
        at: Site<'_>,
        segment: u32,
        records: &[Record],
    ) -> Result<(), Fault> {
        let device = at.device;
        let slot = self.free_slot(at).ok_or(Fault::Failed)?;
        let length = format::footer_bytes(records.len());
        let flight = &mut self.flights[slot];
        if !flight.footer.grow(length) {
            return Err(Fault::Error);
        }
        let footer = &mut flight.footer.bytes_mut()[..length];
        format::encode_footer(device.segment_name(segment), records, footer);
        flight.segment = segment;
        let end = device.geometry.segment_offset(segment) + device.geometry.segment_bytes;
        flight.offset = end - length as u64;
        flight.parts.clear();
        flight.parts.push(Part {
            start: footer.as_ptr(),
            bytes: length,
        });
        self.pace(at, length);
        self.submit(at, slot);
        Ok(())
    }

    fn submit(&mut self, at: Site<'_>, slot: usize) {
        let device = at.device;
        let flight = &mut self.flights[slot];
        let bytes = flight.bytes();
        flight.began = Instant::now();
        flight.under_way = true;
        self.count += 1;
        self.held += flight.batch.held();
        self.requests += requests(bytes);
        self.unbegun += 1;
        self.unbegun_bytes += bytes;
        device.submissions().begin_write(bytes);
        if self.count == 1 {
            // Must precede the submission: the kernel may block the writer there.
            device.speed.set_oldest(self.oldest());
        }
        let flight = &self.flights[slot];
        if let Some(queue) = &mut self.queue {
            // SAFETY: the flight holds the frames and the footer until it has landed.
            unsafe { queue.submit(slot, &flight.parts, flight.offset) };
        }
        if self.unbegun >= BATCH || self.unbegun_bytes >= BATCH_BYTES {
            // Landed flights still hold frames.
            self.land(at, 1, Duration::ZERO);
        }
    }

    /// Waits for a free slot; `None`: the device failed, or the extension closes.
    fn free_slot(&mut self, at: Site<'_>) -> Option<usize> {
        let (shared, device) = (at.shared, at.device);
        loop {
            let most = device.submissions().most_of_writes();
            if let Some(slot) = self.free(most) {
                return device.health.active().then_some(slot);
            }
            if !device.health.active() || shared.wake.stopped() {
                return None;
            }
            // If only few may be in flight, wait for a single one.
            let wanted = AWAITED.min(self.count.saturating_sub(1)).max(1);
            self.land(at, wanted, TICK);
        }
    }

    /// The footer of the segment, if it was read ahead.
    pub fn footer_ahead(&mut self, at: Site<'_>, segment: u32) -> Option<&mut [u8]> {
        let (shared, device) = (at.shared, at.device);
        let of = |ahead: &Ahead| ahead.reading != Reading::No && ahead.segment == segment;
        let slot = self.ahead.iter().position(of)?;
        while self.ahead[slot].reading == Reading::UnderWay {
            if !device.health.active() || shared.wake.stopped() {
                return None;
            }
            self.land(at, 1, TICK);
        }
        let ahead = &mut self.ahead[slot];
        let done = ahead.reading == Reading::Done;
        ahead.reading = Reading::No;
        (done && ahead.sequence == device.table.sequence(segment))
            .then(|| &mut ahead.memory.bytes_mut()[..ahead.length])
    }

    /// Processes landed writes and reads. Waits for `wanted` of them, but no longer than `wait`.
    pub fn land(&mut self, at: Site<'_>, wanted: usize, wait: Duration) {
        if !self.any() {
            return;
        }
        let mut landed = std::mem::take(&mut self.landed);
        (self.unbegun, self.unbegun_bytes) = (0, 0);
        if let Some(queue) = &mut self.queue {
            queue.land(wanted.max(1), wait, &mut landed);
        }
        for (slot, result) in landed.drain(..) {
            match slot.checked_sub(DEPTH) {
                None => self.arrive(at, slot, result),
                Some(ahead) => self.arrive_ahead(at.device, ahead, result),
            }
        }
        // Even if none has landed: other writes of this device were measured during the wait.
        at.device.speed.set_oldest(self.oldest());
        self.landed = landed;
    }

    fn arrive_ahead(&mut self, device: &Device, at: usize, result: std::io::Result<usize>) {
        let Some(ahead) = self.ahead.get_mut(at) else {
            return;
        };
        if ahead.reading != Reading::UnderWay {
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

    fn arrive(&mut self, at: Site<'_>, slot: usize, result: std::io::Result<usize>) {
        let device = at.device;
        let Some(flight) = self.flights.get_mut(slot).filter(|f| f.under_way) else {
            return;
        };
        let bytes = flight.bytes();
        device.submissions().end_write(bytes);
        let written = device.landed(&flight.parts, flight.offset, flight.began, result);
        flight.under_way = false;
        self.count -= 1;
        self.held -= flight.batch.held();
        self.requests -= requests(bytes);
        match written {
            Ok(()) => flight.batch.publish(at, flight.segment),
            Err(_) => flight.batch.discard(at),
        }
    }

    /// Waits until nothing is in flight, the device has failed, or the extension closes.
    pub fn settle(&mut self, at: Site<'_>) {
        while self.any() && at.device.health.active() && !at.shared.wake.stopped() {
            self.land(at, 1, TICK);
        }
    }
}
