//! Several writes of a device under way at once.
//!
//! Pages of whole blocks are written from their frames as they lie there, without a copy: a *flight* is one write of up to
//! 256 KiB, with the pages that are in it. Flights land in any order. When one has, the entries of its pages are turned, as
//! after any other write; when it has failed, they are removed, and so is the device. A footer flies, too.
//!
//! No two flights touch the same block. Within a segment, each place is written once while it is open, and pages that are not
//! whole blocks, which share some, are not flown: they are copied into the chunk and written by the writer itself. A segment is
//! reclaimed only when nothing is on the way to it ([`Writer::is_flown_to`]): until then the entries do not tell what is
//! alive in it. And nothing is purged before everything has landed.
//!
//! Without a queue ([`crate::device::queue`]) nothing flies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::device::file::CacheFile;
use crate::device::queue::{DEPTH, Part, Queue};
use crate::device::submission::requests;
use crate::device::{Device, Fault};
use crate::log::{NEW, Pending, publish};
use crate::memory::Bounce;
use crate::segment::format::{self, BLOCK};
use crate::shared::{Shared, TICK};
use crate::writer::Writer;

/// A footer is flown if it is not longer than this, which are those of segments of pages of 16 KiB.
pub(crate) const FLOWN_FOOTER: usize = 2 * BLOCK;

/// So many writes may be under way however few requests the disk has.
const LEAST_FLIGHTS: usize = 2;

/// A write that is under way, or the room for one.
struct Flight {
    under_way: bool,
    segment: u32,
    offset: u64,
    parts: Vec<Part>,
    pending: Vec<Pending>,
    /// Bytes of the frames in `pending`.
    held: usize,
    footer: Bounce,
    began: Instant,
}

// SAFETY: the parts point into frames and the footer, which the flight holds.
unsafe impl Send for Flight {}

impl Flight {
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes).sum()
    }
}

/// The writes of a writer that may be under way.
pub(crate) struct Flights {
    /// First, so that it waits for what is under way before anything else is let go.
    queue: Option<Box<dyn Queue>>,
    /// What the queue is for.
    file: Option<Arc<CacheFile>>,
    flights: Vec<Flight>,
    landed: Vec<(usize, std::io::Result<usize>)>,
}

impl Flights {
    pub fn new() -> Flights {
        let flight = || Flight {
            under_way: false,
            segment: 0,
            offset: 0,
            parts: Vec::new(),
            pending: Vec::new(),
            held: 0,
            footer: Bounce::NONE,
            began: Instant::now(),
        };
        Flights {
            queue: None,
            file: None,
            flights: (0..DEPTH).map(|_| flight()).collect(),
            landed: Vec::with_capacity(DEPTH),
        }
    }

    /// Whether writes can be flown.
    pub fn possible(&self) -> bool {
        self.queue.is_some()
    }

    pub fn any(&self) -> bool {
        self.flights.iter().any(|flight| flight.under_way)
    }

    /// Bytes of the frames that are held.
    pub fn held(&self) -> usize {
        let under_way = self.flights.iter().filter(|flight| flight.under_way);
        under_way.map(|flight| flight.held).sum()
    }

    /// Room for one more, while those under way take fewer requests of the disk than this.
    fn free(&self, most_requests: usize) -> Option<usize> {
        let under_way = || self.flights.iter().filter(|flight| flight.under_way);
        let requests: usize = under_way().map(|flight| requests(flight.bytes())).sum();
        if requests >= most_requests && under_way().count() >= LEAST_FLIGHTS {
            return None;
        }
        self.flights.iter().position(|flight| !flight.under_way)
    }

    fn oldest(&self) -> Option<Instant> {
        let under_way = self.flights.iter().filter(|flight| flight.under_way);
        under_way.map(|flight| flight.began).min()
    }
}

impl Writer {
    /// Gets a queue for the file that the device has now. Nothing is under way.
    pub fn prepare_flights(&mut self, device: &Device) {
        let file = device.file();
        let flights = &mut self.flights;
        if flights.file.as_ref().is_some_and(|f| Arc::ptr_eq(f, &file)) || flights.any() {
            return;
        }
        flights.queue = None;
        flights.queue = file.storage.queue(self.threaded);
        flights.file = Some(file);
    }

    /// Lets go of the file. Nothing is under way.
    pub fn end_flights(&mut self) {
        self.flights.queue = None;
        self.flights.file = None;
    }

    /// Whether something is on the way to the segment.
    pub fn is_flown_to(&self, segment: u32) -> bool {
        self.flights
            .flights
            .iter()
            .any(|flight| flight.under_way && flight.segment == segment)
    }

    /// Begins to write the gathered pages of the stream of new pages.
    pub fn launch(&mut self, shared: &Shared, device: &Device, segment: u32) -> Result<(), Fault> {
        let Some(slot) = self.free_slot(shared, device) else {
            self.abandon_pending(shared, NEW);
            return Err(Fault::Failed);
        };
        let waiting = self.streams[NEW].waiting();
        self.pace(shared, device, waiting);
        let stream = &mut self.streams[NEW];
        let flight = &mut self.flights.flights[slot];
        flight.segment = segment;
        flight.held = stream.held;
        flight.offset = device.geometry.segment_offset(segment) + stream.start() as u64;
        stream.take_off(&mut flight.pending, &mut flight.parts);
        self.submit(shared, device, slot);
        Ok(())
    }

    /// Begins to write the footer of a full segment.
    pub fn launch_footer(
        &mut self,
        shared: &Shared,
        device: &Device,
        segment: u32,
    ) -> Result<(), Fault> {
        let slot = self.free_slot(shared, device).ok_or(Fault::Failed)?;
        let records = &self.streams[NEW].records;
        let length = format::footer_bytes(records.len());
        let flight = &mut self.flights.flights[slot];
        if !flight.footer.grow(length) {
            return Err(Fault::Error);
        }
        let footer = &mut flight.footer.bytes_mut()[..length];
        format::encode_footer(device.segment_name(segment), records, footer);
        flight.segment = segment;
        flight.held = 0;
        let end = device.geometry.segment_offset(segment) + device.geometry.segment_bytes;
        flight.offset = end - length as u64;
        flight.parts.clear();
        flight.parts.push(Part {
            start: footer.as_ptr(),
            bytes: length,
        });
        self.pace(shared, device, length);
        self.submit(shared, device, slot);
        Ok(())
    }

    fn submit(&mut self, shared: &Shared, device: &Device, slot: usize) {
        let flights = &mut self.flights;
        let flight = &mut flights.flights[slot];
        flight.began = Instant::now();
        flight.under_way = true;
        device.submissions().begin_write(flight.bytes());
        // Before: the kernel may hold the writer up while it submits.
        device.speed.set_oldest(flights.oldest());
        let flight = &flights.flights[slot];
        let submitted = match &mut flights.queue {
            // SAFETY: the frames are held by the flight, as the footer is, until it has landed.
            Some(queue) => unsafe { queue.submit(slot, &flight.parts, flight.offset) },
            None => Ok(()),
        };
        if let Err(error) = submitted {
            self.arrive(shared, device, slot, Err(error));
            device.speed.set_oldest(self.flights.oldest());
        }
        self.note_in_hand(device);
    }

    /// Room for a flight, once there is; `None`: the device was failed meanwhile, or everything ends.
    fn free_slot(&mut self, shared: &Shared, device: &Device) -> Option<usize> {
        // What has landed holds frames.
        self.land(shared, device, Duration::ZERO);
        loop {
            let most = device.submissions().most_of_writes();
            if let Some(slot) = self.flights.free(most) {
                return device.health.active().then_some(slot);
            }
            if !device.health.active() || shared.wake.stopped() {
                return None;
            }
            self.land(shared, device, TICK);
        }
    }

    /// Does what is to be done about writes that have landed. Waits for one, but not longer than this.
    pub fn land(&mut self, shared: &Shared, device: &Device, wait: Duration) {
        if !self.flights.any() {
            return;
        }
        let mut landed = std::mem::take(&mut self.flights.landed);
        if let Some(queue) = &mut self.flights.queue {
            queue.land(wait, &mut landed);
        }
        for (slot, result) in landed.drain(..) {
            self.arrive(shared, device, slot, result);
        }
        self.flights.landed = landed;
        device.speed.set_oldest(self.flights.oldest());
        self.note_in_hand(device);
    }

    fn arrive(
        &mut self,
        shared: &Shared,
        device: &Device,
        slot: usize,
        result: std::io::Result<usize>,
    ) {
        let Some(flight) = self.flights.flights.get_mut(slot).filter(|f| f.under_way) else {
            return;
        };
        device.submissions().end_write(flight.bytes());
        let written = device.landed(&flight.parts, flight.offset, flight.began, result);
        flight.under_way = false;
        let mut pending = std::mem::take(&mut flight.pending);
        match written {
            Ok(()) => publish(shared, device, flight.segment, &pending),
            Err(_) => pending
                .iter()
                .for_each(|p| self.discard(shared, p.page, p.origin)),
        }
        pending.clear();
        self.flights.flights[slot].pending = pending;
    }

    /// Waits until nothing is under way, or, if the device does not answer, until it is given up.
    pub fn settle(&mut self, shared: &Shared, device: &Device) {
        while self.flights.any() && device.health.active() && !shared.wake.stopped() {
            self.land(shared, device, TICK);
        }
    }

    /// Bytes of frames that this writer has.
    pub fn held(&self) -> usize {
        self.streams[NEW].held + self.flights.held()
    }

    pub fn note_in_hand(&self, device: &Device) {
        device.in_hand.set(self.held() as u64);
    }
}
