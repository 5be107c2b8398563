//! The writer of a device: the only one that writes to it, and that decides what becomes of its segments.
//!
//! One step: see whether the file is still there; visit the instances in turn, take what is staged there, sorted so that
//! the pages of an extent lie together, append it ([`crate::log`]), after making room if there is none ([`crate::reclaim`]); write.
//!
//! The parts that a writer has know those below only: [`crate::recovery`] and [`crate::reclaim`], the log ([`crate::log`],
//! [`crate::stream`]), writes under way ([`crate::flight`]), and what becomes of entries ([`crate::batch`]).
//!
//! A writer pulls: a slow device takes fewer pages than a fast one, and a failed one none. When it leaves pages to the others:
//! [`crate::spread`].

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{Origin, discard};
use crate::compression::Compressor;
use crate::config::Compression;
use crate::device::file::Wrap;
use crate::device::queue::{CHUNK, DEPTH, KernelQueue, READS};
use crate::device::{Device, Fault, speed};
use crate::directory::Kind;
use crate::findings::Findings;
use crate::flight::FLOWN_FOOTER;
use crate::log::{NEW, SegmentLog};
use crate::page::{PageId, is_numbered};
use crate::reclaim::Reclaimer;
use crate::recovery::Recovery;
use crate::shared::{Shared, Site};
use crate::staging::{Frame, UNIT};
use crate::stream::Stored;
use crate::wake::TICK;

/// A writer with nothing to do but to wait for a failed device, or for the last writes, looks at least so often.
const LOOK: Duration = Duration::from_secs(5);
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
    log: SegmentLog,
    reclaimer: Reclaimer,
    recovery: Recovery,
    shared: Arc<Shared>,
    device: usize,
    /// Runs in a thread of its own, and so may wait.
    threaded: bool,
    compressor: Option<Compressor>,
    batch: Vec<(PageId, Frame)>,
    next_instance: usize,
    trimmed_at: Instant,
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
        Writer {
            device,
            threaded,
            log: SegmentLog::new(&shared.store.devices[device]),
            reclaimer: Reclaimer::new(),
            recovery: Recovery::new(wrap),
            compressor: (shared.store.compression == Compression::Lz4).then(Compressor::new),
            batch: Vec::with_capacity(CHUNK / UNIT),
            next_instance: device,
            trimmed_at: Instant::now(),
            shared,
        }
    }

    /// Number of its device.
    pub fn device(&self) -> usize {
        self.device
    }

    /// Bytes of frames that it has.
    pub fn held(&self) -> usize {
        self.log.held() + self.log.flights.held()
    }

    fn site<'a>(&self, shared: &'a Shared) -> Site<'a> {
        Site {
            shared,
            device: &shared.store.devices[self.device],
            threaded: self.threaded,
        }
    }

    /// Body of the thread.
    pub fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let ended = catch_unwind(AssertUnwindSafe(|| self.work()));
        let device = &shared.store.devices[self.device];
        if let Err(panic) = ended {
            // What it has left may be anything.
            shared.arena.as_ref().inspect(|arena| arena.discard());
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
                Step::Failed(time) => shared.wake.pause(time.min(LOOK)),
            }
        }
        // As long as it takes: what is under way holds memory and the file.
        while self.log.flights.any() {
            self.log.flights.land(self.site(&shared), 1, LOOK);
        }
    }

    pub fn step(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        let at = self.site(&shared);
        let device = at.device;
        shared.budget.charge(0, shared.clock.now());
        if device.health.active() {
            // First: what has landed is under way no more, when the devices are compared.
            self.log.flights.land(at, 1, Duration::ZERO);
        }
        if self.threaded {
            let devices = shared.store.devices.iter();
            speed::compare(devices.map(|device| (&device.speed, &device.health)));
        }
        if !device.health.active() {
            let waits = self.recovery.recover(at, &mut self.log);
            return waits.map_or(Step::Worked, Step::Failed);
        }
        self.recovery.check_file(device);
        self.log.flights.prepare(at);
        // Below the mark the rest can wait for company.
        let company = !self.threaded || shared.store.waiting() >= shared.wake.staged;
        let collected = if company || !self.log.flights.any() {
            self.collect(at)
        } else {
            Step::Idle
        };
        let _ = self.log.flush(at, NEW);
        self.log.flights.begin();
        let company = !self.threaded || shared.store.waiting() >= shared.wake.staged;
        match collected {
            Step::Worked | Step::Waiting if company => collected,
            _ if self.log.flights.any() => {
                // There is nothing to do before all have landed, but it may take long, or pages may come. Pages that wait
                // already need the room of one.
                let wanted = if company {
                    1
                } else {
                    self.log.flights.under_way()
                };
                self.log.flights.land(at, wanted, LEAVE);
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
    fn collect(&mut self, at: Site<'_>) -> Step {
        let shared = at.shared;
        let mut any = false;
        let most = shared.store.spread().most_held() / 2;
        for _ in 0..shared.instances.len() {
            let waiting = (self.log.waiting() + self.log.flights.held()) / UNIT;
            if !shared.store.spread().may_take(self.device, waiting as u64) {
                return if any { Step::Worked } else { Step::Waiting };
            }
            // What is held must land before more is taken.
            if self.held() > most && self.log.flights.any() {
                return Step::Idle;
            }
            let n = self.next_instance % shared.instances.len();
            self.next_instance = n + 1;
            let mut batch = std::mem::take(&mut self.batch);
            let mut bytes = 0;
            let mut state = shared.instances[n].0.lock();
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
                if !at.device.health.active() || self.append_staged(at, page, frame).is_err() {
                    discard(shared, page, Origin::Staged(frame));
                    shared.written.evicted.add(1);
                }
                if self.log.held() > most {
                    let _ = self.log.flush(at, NEW);
                }
            }
            batch.clear();
            self.batch = batch;
        }
        if any { Step::Worked } else { Step::Idle }
    }

    fn append_staged(&mut self, at: Site<'_>, page: PageId, frame: Frame) -> Result<(), Fault> {
        let shared = at.shared;
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
                    self.append(at, stored, origin)
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
        let stored = Stored {
            page,
            check,
            kind,
            bytes,
        };
        self.append(at, stored, origin)
    }

    /// Appends a page, and makes room first if need be.
    fn append(&mut self, at: Site<'_>, stored: Stored<'_>, origin: Origin) -> Result<(), Fault> {
        while !self.log.append(at, stored, origin)? {
            self.reclaimer.make_room(at, &mut self.log, stored.size())?;
        }
        Ok(())
    }

    /// Pages in open segments are known, and what is under way is counted. `places`: segment, and unit in it, of each page that
    /// has an entry.
    pub fn validate(&self, device: &Device, places: &[(u32, u32)], findings: &mut Findings) {
        self.log.validate(device, places, findings);
    }

    /// For tests that break it.
    #[cfg(test)]
    pub fn log_mut(&mut self) -> &mut SegmentLog {
        &mut self.log
    }

    #[cfg(test)]
    pub fn recovery_mut(&mut self) -> &mut Recovery {
        &mut self.recovery
    }

    #[cfg(test)]
    pub fn set_threaded(&mut self, threaded: bool) {
        self.threaded = threaded;
    }
}
