//! The writer of a device: the only one that writes to it, and that decides what becomes of its segments.
//!
//! One step: see whether the file is still there; visit the instances in turn, take what is staged there, sorted so that
//! the pages of an extent lie together, append it ([`crate::log`]); write.
//!
//! A writer pulls: a slow device takes fewer pages than a fast one, and a failed one none. When it leaves pages to the others:
//! [`crate::spread`].

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compression::Compressor;
use crate::config::{Compression, OpenError};
use crate::device::file::Wrap;
use crate::device::health::State;
use crate::device::queue::{CHUNK, DEPTH, KernelQueue, READS};
use crate::device::{Device, Fault, speed};
use crate::directory::Kind;
use crate::findings::Findings;
use crate::flight::{FLOWN_FOOTER, Flights};
use crate::instance::Instance;
use crate::log::{MOVED, NEW, Origin, Stored, Stream};
use crate::page::{PageId, is_numbered};
use crate::segment::states::States;
use crate::shared::Shared;
use crate::staging::{Frame, UNIT};
use crate::wake::TICK;

/// How often the file is looked at.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const FIRST_PROBE: Duration = Duration::from_secs(5);
const LAST_PROBE: Duration = Duration::from_secs(300);
/// A device that has worked for so long is probed soon again when it fails.
const PROVEN: Duration = Duration::from_secs(600);
/// Buckets swept at a time under the lock of their instance.
const SWEEP: usize = 4096;
/// How long a writer leaves pages to others before it looks again.
const LEAVE: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Worked,
    Idle,
    /// What there is to do is left to other devices.
    Waiting,
    /// The device is failed: nothing to do for this time.
    Failed(Duration),
}

pub(crate) struct Writer {
    /// First: what is under way holds on to what `shared` has.
    pub flights: Flights,
    pub shared: Arc<Shared>,
    pub device: usize,
    wrap: Arc<Wrap>,
    /// Runs in a thread of its own, and so may wait.
    pub threaded: bool,
    /// Of new pages, and of pages that compaction moves.
    pub streams: [Stream; 2],
    pub segments: States,
    pub reclaim: crate::reclaim::Buffers,
    compressor: Option<Compressor>,
    batch: Vec<(PageId, Frame)>,
    next_instance: usize,
    checked_at: Instant,
    trimmed_at: Instant,
    /// Since the device failed: no entry refers to it any more.
    purged: bool,
    probe_at: Instant,
    probe_after: Duration,
    active_since: Instant,
}

impl Writer {
    /// Memory of a writer, besides what it takes when it is needed: lists, and what its threads keep. Counted with an allocator
    /// that adds up what lives: 138 KiB in all for an extension of one device that was just opened.
    pub fn bytes(compression: Compression) -> u64 {
        let compressor = match compression {
            Compression::Off => 0,
            Compression::Lz4 => Compressor::BYTES,
        };
        (80 << 10) + compressor
    }

    /// What it takes when it is needed: chunks of pages that are copied, the window of reclaim, footers, the kernel's ring.
    pub fn most_buffers() -> u64 {
        3 * CHUNK as u64 + ((DEPTH + READS) * FLOWN_FOOTER) as u64 + KernelQueue::ring()
    }

    pub fn new(shared: Arc<Shared>, device: usize, wrap: Arc<Wrap>, threaded: bool) -> Writer {
        let segments = shared.store.devices[device].geometry.segments;
        let now = Instant::now();
        Writer {
            device,
            wrap,
            threaded,
            flights: Flights::new(),
            streams: [Stream::new(), Stream::new()],
            segments: States::new(segments),
            reclaim: crate::reclaim::Buffers::new(),
            compressor: (shared.store.compression == Compression::Lz4).then(Compressor::new),
            batch: Vec::with_capacity(CHUNK / UNIT),
            next_instance: device,
            checked_at: now,
            trimmed_at: now,
            purged: false,
            probe_at: now,
            probe_after: FIRST_PROBE,
            active_since: now,
            shared,
        }
    }

    /// Body of the thread.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        let device = &shared.store.devices[self.device];
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
                Step::Waiting => shared.wake.pause(LEAVE),
                Step::Failed(time) => shared.wake.pause(time.min(FIRST_PROBE)),
            }
        }
        // As long as it takes: what is under way holds memory and the file.
        let device = &shared.store.devices[self.device];
        while self.flights.any() {
            self.land(&shared, device, 1, FIRST_PROBE);
        }
    }

    pub fn step(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        let device = &shared.store.devices[self.device];
        shared.budget.charge(0, shared.clock.now());
        if device.health.active() {
            // First: what has landed is under way no more, when the devices are compared.
            self.land(&shared, device, 1, Duration::ZERO);
        }
        if self.threaded {
            let devices = shared.store.devices.iter();
            speed::compare(devices.map(|device| (&device.speed, &device.health)));
        }
        if !device.health.active() {
            return self.recover(&shared, device);
        }
        self.check_file(device);
        self.prepare_flights(device);
        // Below the mark the rest can wait for company.
        let company = !self.threaded || shared.store.waiting() >= shared.wake.staged;
        let collected = if company || !self.flights.any() {
            self.collect(&shared, device)
        } else {
            Step::Idle
        };
        let _ = self.flush(&shared, device, NEW);
        self.flights.begin();
        self.note_in_hand(device);
        let company = !self.threaded || shared.store.waiting() >= shared.wake.staged;
        match collected {
            Step::Worked | Step::Waiting if company => collected,
            _ if self.flights.any() => {
                // There is nothing to do before all have landed, but it may take long, or pages may come. Pages that wait
                // already need the room of one.
                let wanted = if company { 1 } else { self.flights.under_way() };
                self.land(&shared, device, wanted, LEAVE);
                Step::Worked
            }
            _ => {
                self.trim(&shared);
                Step::Idle
            }
        }
    }

    fn trim(&mut self, shared: &Shared) {
        if self.trimmed_at.elapsed() >= TICK {
            self.trimmed_at = Instant::now();
            shared.store.staging.trim();
        }
    }

    /// Takes what is staged and appends it, as far as it is not left to others. Whether there was anything.
    fn collect(&mut self, shared: &Shared, device: &Device) -> Step {
        let mut any = false;
        let most = shared.store.spread().most_held() / 2;
        for _ in 0..shared.instances.len() {
            let waiting = (self.streams[NEW].waiting() + self.flights.held()) / UNIT;
            if !shared.store.spread().may_take(self.device, waiting as u64) {
                return if any { Step::Worked } else { Step::Waiting };
            }
            // What is held must land before more is taken.
            if self.held() > most && self.flights.any() {
                return Step::Idle;
            }
            let at = self.next_instance % shared.instances.len();
            self.next_instance = at + 1;
            let mut batch = std::mem::take(&mut self.batch);
            let mut bytes = 0;
            let mut state = shared.instances[at].0.lock();
            while let Some(length) = state.next_staged(&shared.store) {
                if bytes + length > most.min(CHUNK) {
                    break;
                }
                let Some(pinned) = state.take_staged(&shared.store) else {
                    break;
                };
                any = true;
                let page = shared.store.staging.page(pinned.frame());
                match state.still(page, pinned.frame(), Kind::STAGED) {
                    None => {}
                    Some((slot, _)) if state.highest_page(page.file).is_none() => {
                        state.remove(&shared.store, slot)
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
                    shared.written.evicted.add(1);
                }
                if self.streams[NEW].held > most {
                    let _ = self.flush(shared, device, NEW);
                }
            }
            batch.clear();
            self.batch = batch;
        }
        if any { Step::Worked } else { Step::Idle }
    }

    fn append_staged(
        &mut self,
        shared: &Shared,
        device: &Device,
        page: PageId,
        frame: Frame,
    ) -> Result<(), Fault> {
        let reader = std::mem::ManuallyDrop::new(shared.store.staging.collected(frame));
        let bytes = reader.bytes();
        let check = shared.store.staging.check(frame);
        let origin = Origin::Staged(frame);
        let numbered = is_numbered(page, bytes);
        if numbered && bytes.len() > UNIT {
            if let Some(mut compressor) = self.compressor.take() {
                let (timed, pressed) = (self.threaded, shared.store.spread().pressed());
                let packed = compressor.pack(page.file, bytes, timed, pressed, &shared.counts);
                let result = packed.map(|(kind, bytes)| {
                    let stored = Stored {
                        page,
                        check,
                        kind,
                        bytes,
                    };
                    self.append(shared, device, NEW, stored, origin)
                });
                self.compressor = Some(compressor);
                if let Some(result) = result {
                    return result;
                }
            }
        }
        let kind = if numbered {
            Kind::raw(bytes.len())
        } else {
            Kind::raw_unnumbered(bytes.len())
        };
        self.append(
            shared,
            device,
            NEW,
            Stored {
                page,
                check,
                kind,
                bytes,
            },
            origin,
        )
    }

    /// Each segment is in one state, and pages in open ones are known. `places`: segment, and unit in it, of each page that has
    /// an entry.
    pub fn validate(&self, device: &Device, places: &[(u32, u32)], findings: &mut Findings) {
        let open: Vec<u32> = self.streams.iter().filter_map(Stream::opened).collect();
        let live = |segment| device.table.live(segment);
        self.segments.validate(&open, live, findings);
        if device.health.active() {
            let free = self.segments.free() as u64;
            findings.equal(device.free_segments.get(), free, "free segments");
        }
        for stream in &self.streams {
            stream.validate(findings);
            let records = stream.records.iter();
            let known: HashSet<u32> = records.map(|record| record.unit.into()).collect();
            let of_it = places
                .iter()
                .filter(|place| Some(place.0) == stream.opened());
            for &(segment, unit) in of_it {
                findings.expect(known.contains(&unit), || {
                    format!("a page at unit {unit} of the open segment {segment} is unknown there")
                });
            }
        }
        self.flights.validate(findings);
    }

    pub fn count_free(&self, device: &Device) {
        device.free_segments.set(self.segments.free() as u64);
    }

    pub fn set_free(&mut self, device: &Device, segment: u32) {
        device.table.freed(segment);
        self.segments.set_free(segment);
        self.count_free(device);
    }

    /// Waits until so many bytes may be written.
    pub fn pace(&mut self, shared: &Shared, device: &Device, bytes: usize) {
        let bytes = bytes as u64;
        shared.budget.charge(bytes, shared.clock.now());
        while let Some(time) = shared.pacer.take(bytes, shared.clock.now()) {
            // In small pieces: the capacity may be raised meanwhile, and what lands is not under way any more.
            let time = time.min(TICK);
            #[cfg(test)]
            let passed = shared.clock.skip(time);
            #[cfg(not(test))]
            let passed = false;
            if !passed && (!self.threaded || shared.wake.stopped()) {
                return;
            }
            if self.flights.any() {
                self.land(shared, device, 1, time);
            } else if !passed {
                shared.wake.pause(time);
            }
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
        // What is under way may not be written over what comes after a purge, and holds frames.
        self.land(shared, device, 1, Duration::ZERO);
        if self.flights.any() {
            return Step::Failed(TICK);
        }
        self.end_flights();
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
            Err(error) => {
                device.health.set_reason(&error);
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
        for stream in [NEW, MOVED] {
            self.abandon(shared, stream);
        }
        shared
            .written
            .purged
            .add(sweep(shared, device, |_| true, || device.table.cached().0));
        self.flights.forget_ahead();
        self.segments.purge();
        (0..device.geometry.segments).for_each(|segment| device.table.freed(segment));
        self.count_free(device);
    }

    fn probe(&mut self, device: &Device) -> Result<(), OpenError> {
        let nonce = self.active_since.elapsed().as_nanos() as u64;
        let file = device.file();
        let again = file
            .extend(&device.path(), device.geometry.file_bytes())
            .and_then(|()| file.probe(nonce))
            .and_then(|()| file.write_header(device.header(true)));
        drop(file);
        if again.is_ok() {
            return Ok(());
        }
        // The disk may have been mounted anew: open the file by its name.
        device.close_file();
        device.open(&*self.wrap)
    }
}

/// Removes the entries that refer to the device and satisfy the condition, of which `left` tells how many there are. How
/// many were removed. No entry of this kind is made meanwhile.
///
/// Between two pieces of a directory its lock is let go, and an insertion may move an entry from a piece to come into one
/// that was done. If entries are left, a second round holds the lock of each instance throughout: none can slip through
/// that, since entries do not leave their instance.
pub(crate) fn sweep(
    shared: &Shared,
    device: &Device,
    condemned: impl Fn(u32) -> bool,
    left: impl Fn() -> u64,
) -> u64 {
    let mut removed = 0;
    for piece in [SWEEP, usize::MAX] {
        if left() == 0 {
            break;
        }
        for instance in &shared.instances {
            removed += sweep_instance(shared, device, &instance.0, &condemned, piece);
        }
    }
    debug_assert_eq!(left(), 0);
    removed
}

fn sweep_instance(
    shared: &Shared,
    device: &Device,
    instance: &Instance,
    condemned: &impl Fn(u32) -> bool,
    piece: usize,
) -> u64 {
    let mut removed = 0;
    let buckets = instance.lock().directory.buckets();
    for first in (0..buckets).step_by(piece) {
        let mut state = instance.lock();
        let before = state.directory.used();
        state.directory.sweep(first, piece, |entry| {
            let hit = entry.kind != Kind::STAGED
                && device.geometry.holds(entry.location)
                && condemned(entry.location);
            if hit {
                shared.store.entry_removed(entry);
            }
            hit
        });
        let now = state.directory.used();
        if now < before {
            removed += before - now;
            state.scale_files(before);
        }
    }
    removed
}
