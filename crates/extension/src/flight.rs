//! Several writes of a device under way at once.
//!
//! Pages of whole blocks are written from their frames as they lie there, without a copy: a *flight* is one write of up to
//! 256 KiB, with the pages that are in it. Flights land in any order. When one has, the entries of its pages are turned, as
//! after any other write; when it has failed, they are removed, and so is the device. A footer flies, too.
//!
//! No two flights touch the same block. Within a segment, each place is written once while it is open, and pages that are not
//! whole blocks, which share some, are not flown: they are copied into the chunk and written by the writer itself. A segment is
//! reclaimed only when nothing is on the way to it ([`Flights::destinations`]): until then the entries do not tell what is
//! alive in it. And nothing is purged before everything has landed.
//!
//! Footers of the segments that are likely to be reclaimed next are read ahead in the same way ([`Ahead`]), so that the writer
//! need not wait for them between two writes.
//!
//! Without a queue ([`crate::device::queue`]) nothing flies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::device::file::CacheFile;
use crate::device::queue::{DEPTH, Part, Queue, READS};
use crate::device::submission::requests;
use crate::device::{Device, Fault};
use crate::findings::Findings;
use crate::memory::Bounce;
use crate::segment::format::{self, BLOCK, Record};
use crate::shared::Site;
use crate::wake::TICK;

/// A footer is flown if it is not longer than this, which are those of segments of pages of 16 KiB.
pub(crate) const FLOWN_FOOTER: usize = 2 * BLOCK;

/// So many writes may be under way however few requests the disk has.
const LEAST_FLIGHTS: usize = 2;

/// Writes are begun together when there are so many, or so many bytes.
const BATCH: usize = 4;
const BATCH_BYTES: usize = 64 << 10;

/// When all that may be is under way, so many are waited for, so that the writer wakes less often than for each of them.
const AWAITED: usize = 2;

/// A write that is under way, or the room for one.
struct Flight {
    under_way: bool,
    segment: u32,
    offset: u64,
    parts: Vec<Part>,
    /// Empty if it is a footer.
    batch: Batch,
    footer: Bounce,
    began: Instant,
}

// SAFETY: the parts point into frames and the footer, which batch and flight hold.
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

/// The footer of a segment that may be reclaimed soon, or room for one.
struct Ahead {
    reading: Reading,
    segment: u32,
    sequence: u32,
    length: usize,
    memory: Bounce,
}

/// The writes of a writer that may be under way, and what it reads ahead.
pub(crate) struct Flights {
    /// First, so that it waits for what is under way before anything else is let go.
    queue: Option<Box<dyn Queue>>,
    /// What the queue is for.
    file: Option<Arc<CacheFile>>,
    flights: Vec<Flight>,
    ahead: Vec<Ahead>,
    landed: Vec<(usize, std::io::Result<usize>)>,
    /// Of the writes under way: how many, bytes of their frames, requests of the disk.
    count: usize,
    held: usize,
    requests: usize,
    reads: usize,
    /// Of those that are not begun: how many, and their bytes.
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

    /// Whether writes can be flown.
    pub fn possible(&self) -> bool {
        self.queue.is_some()
    }

    /// Whether anything is under way.
    pub fn any(&self) -> bool {
        self.under_way() > 0
    }

    /// How many writes and reads are under way.
    pub fn under_way(&self) -> usize {
        self.count + self.reads
    }

    /// Bytes of the frames that are held.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Room for one more, while those under way take fewer requests of the disk than this.
    fn free(&self, most_requests: usize) -> Option<usize> {
        if self.requests + self.reads >= most_requests && self.count >= LEAST_FLIGHTS {
            return None;
        }
        self.flights.iter().position(|flight| !flight.under_way)
    }

    /// Begins what was submitted, before something that may take a while.
    pub fn begin(&mut self) {
        if self.unbegun > 0 {
            (self.unbegun, self.unbegun_bytes) = (0, 0);
            if let Some(queue) = &mut self.queue {
                queue.begin();
            }
        }
    }

    /// Segments to which something is on the way.
    pub fn destinations(&self, segments: &mut Vec<u32>) {
        segments.clear();
        for flight in self.flights.iter().filter(|flight| flight.under_way) {
            if !segments.contains(&flight.segment) {
                segments.push(flight.segment);
            }
        }
    }

    /// The segments whose footers were read ahead, and are still theirs.
    pub fn ahead<'a>(&'a self, device: &'a Device) -> impl Iterator<Item = u32> + 'a {
        let done = |ahead: &&Ahead| {
            ahead.reading == Reading::Done && ahead.sequence == device.table.sequence(ahead.segment)
        };
        self.ahead.iter().filter(done).map(|ahead| ahead.segment)
    }

    /// What is counted of the writes and reads under way.
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

    /// What was read ahead is of no use any more. Nothing is under way.
    pub fn forget_ahead(&mut self) {
        for ahead in &mut self.ahead {
            ahead.reading = Reading::No;
        }
    }

    /// Reads the footers of these segments, which are of `length` bytes, as far as there is room: what was read ahead of
    /// segments with more than `near` units alive gives way.
    pub fn read_ahead(&mut self, device: &Device, segments: &[u32], length: usize, near: u32) {
        if length == 0 || length > FLOWN_FOOTER {
            return;
        }
        let Some(queue) = &mut self.queue else {
            return;
        };
        let most = device.submissions().most_of_writes();
        for &segment in segments {
            // The servers' reads keep their part of the requests.
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
            // SAFETY: nobody uses the memory until the read has landed.
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

    /// Gets a queue for the file that the device has now. Nothing is under way.
    pub fn prepare(&mut self, at: Site<'_>) {
        let file = at.device.file();
        if self.file.as_ref().is_some_and(|f| Arc::ptr_eq(f, &file)) || self.any() {
            return;
        }
        self.queue = None;
        self.queue = file.storage.queue(at.threaded);
        self.file = Some(file);
    }

    /// Lets go of the file. Nothing is under way.
    pub fn end(&mut self) {
        self.queue = None;
        self.file = None;
    }

    /// Waits until so many bytes may be written.
    pub fn pace(&mut self, at: Site<'_>, bytes: usize) {
        let (shared, bytes) = (at.shared, bytes as u64);
        shared.budget.charge(bytes, shared.clock.now());
        while let Some(time) = shared.pacer.take(bytes, shared.clock.now()) {
            // In small pieces: the capacity may be raised meanwhile, and what lands is not under way any more.
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

    /// Begins to write gathered pages at `offset` of the file, in this segment, and takes them over. If there is no room for the
    /// write any more, they are left.
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

    /// Begins to write the footer of a full segment.
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
            // Before: the kernel may hold the writer up while it submits.
            device.speed.set_oldest(self.oldest());
        }
        let flight = &self.flights[slot];
        if let Some(queue) = &mut self.queue {
            // SAFETY: the frames are held by the flight, as the footer is, until it has landed.
            unsafe { queue.submit(slot, &flight.parts, flight.offset) };
        }
        if self.unbegun >= BATCH || self.unbegun_bytes >= BATCH_BYTES {
            // What has landed holds frames.
            self.land(at, 1, Duration::ZERO);
        }
    }

    /// Room for a flight, once there is; `None`: the device was failed meanwhile, or everything ends.
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
            // Where few may be under way, one that has landed makes room.
            let wanted = AWAITED.min(self.count.saturating_sub(1)).max(1);
            self.land(at, wanted, TICK);
        }
    }

    /// The end of the segment, if it was read ahead.
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

    /// Does what is to be done about writes that have landed. Waits for so many, but not longer than this.
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
        // Also if none has landed: other writes of this device were measured meanwhile.
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
        // If it failed it is read again when it is needed, and what is wrong is noted then.
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

    /// Waits until nothing is under way, or, if the device does not answer, until it is given up.
    pub fn settle(&mut self, at: Site<'_>) {
        while self.any() && at.device.health.active() && !at.shared.wake.stopped() {
            self.land(at, 1, TICK);
        }
    }
}
