//! The writer of a device: the only thread that writes to the device, and that manages its segments.
//!
//! One step:
//! 1. Check that the file is still there.
//! 2. Visit the instances in turn and take their staged pages, sorted so that the pages of an extent are adjacent.
//! 3. Append them ([`crate::log::segment_log`]); if there is no room, make room first ([`crate::log::reclaim`]).
//! 4. Write.
//!
//! A writer pulls its work: a slow device takes fewer pages than a fast one, and a failed one takes none.
//! [`crate::instance::balancing`] decides when a writer leaves pages to the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::config::Compression;
use crate::common::page::{PageId, UNIT, is_numbered};
use crate::common::wake::TICK;
use crate::device::compression::Compressor;
use crate::device::file::Wrap;
use crate::device::queue::{CHUNK, DEPTH, KernelQueue, READS};
use crate::device::{Fault, speed};
use crate::index::directory::Kind;
use crate::instance::shared::{Shared, Site};
use crate::instance::staging::Frame;
use crate::log::batch::{Origin, discard};
use crate::log::device_recovery::Recovery;
use crate::log::in_flight::MAX_ASYNC_FOOTER;
use crate::log::reclaim::Reclaimer;
use crate::log::segment_log::{NEW, SegmentLog};
use crate::log::stream::Stored;
use crate::log::sweep::sweep;

/// Longest pause of a writer while its device has failed, or while it waits for its last writes to complete.
const MAX_PAUSE: Duration = Duration::from_secs(5);
/// Pause of a writer that leaves pages to the others, and longest wait for writes in flight.
const SHORT_PAUSE: Duration = Duration::from_millis(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    Worked,
    Idle,
    /// Other devices are to take the staged pages, or a cleanup takes a short pause.
    Waiting,
    /// The device has failed: nothing to do for this time.
    Failed(Duration),
}

pub(crate) struct Writer {
    /// First field: writes in flight use memory of `shared`, so the log must be dropped before it.
    pub log: SegmentLog,
    reclaimer: Reclaimer,
    recovery: Recovery,
    shared: Arc<Shared>,
    /// Number of its device.
    pub device: usize,
    /// Runs in its own thread, and therefore may block.
    threaded: bool,
    compressor: Option<Compressor>,
    batch: Vec<(PageId, Frame)>,
    next_instance: usize,
    trimmed_at: Instant,
}

impl Writer {
    /// Fixed memory of a writer: lists, and what its threads keep. Measured with an allocator that adds up live memory: 138 KiB
    /// in total for an extension of one device that was just opened.
    pub fn bytes(compression: Compression) -> u64 {
        let compressor = match compression {
            Compression::Off => 0,
            Compression::Lz4 => Compressor::BYTES,
        };
        (80 << 10) + compressor
    }

    /// Memory allocated on demand, at most: chunks of copied pages, the reclaim window, footers, the kernel's ring.
    pub fn max_buffers() -> u64 {
        3 * CHUNK as u64 + ((DEPTH + READS) * MAX_ASYNC_FOOTER) as u64 + KernelQueue::ring()
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

    /// Bytes of frames that it holds.
    pub fn held(&self) -> usize {
        self.log.held() + self.log.in_flight.held()
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
            // After a panic the directory may be inconsistent: the next process must not use it.
            shared.arena.as_ref().inspect(|arena| arena.discard());
            let message = panic.downcast_ref::<&str>().copied().map(String::from);
            let message = message
                .or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_default();
            device.health.give_up(format_args!(
                "internal error in its writer ({message}); switch the extension off and on to use it again"
            ));
            // No read is served from it again.
            let left = || device.table.cached().0;
            let swept = catch_unwind(AssertUnwindSafe(|| sweep(&shared, device, |_| true, left)));
            shared.written.purged.add(swept.unwrap_or(0));
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
                Step::Waiting => shared.wake.pause(SHORT_PAUSE),
                Step::Failed(time) => shared.wake.pause(time.min(MAX_PAUSE)),
            }
        }
        // No timeout: writes in flight use the memory and the file.
        while self.log.in_flight.any() {
            self.log
                .in_flight
                .complete(self.site(&shared), 1, MAX_PAUSE);
        }
    }

    pub fn step(&mut self) -> Step {
        let shared = Arc::clone(&self.shared);
        let at = self.site(&shared);
        let device = at.device;
        shared.budget.charge(0, shared.clock.now());
        if device.health.active() {
            // Must precede the comparison of the devices: completed writes must not count as in flight.
            self.log.in_flight.complete(at, 1, Duration::ZERO);
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
        self.log.in_flight.prepare(at);
        // Below the threshold, staged pages wait for more pages, as long as writes are in flight.
        let company = !self.threaded || shared.store.waiting() >= shared.wake.staged;
        let collected = if company || !self.log.in_flight.any() {
            self.collect(at)
        } else {
            Step::Idle
        };
        let _ = self.log.flush(at, NEW);
        self.log.in_flight.begin();
        let company = !self.threaded || shared.store.waiting() >= shared.wake.staged;
        match collected {
            Step::Worked | Step::Waiting if company => collected,
            _ if self.log.in_flight.any() => {
                // All in flight must complete, but that may take long and pages may be staged, so the wait is short. If enough
                // pages wait already, one completed write is sufficient: it frees a slot.
                let wanted = if company {
                    1
                } else {
                    self.log.in_flight.count()
                };
                self.log.in_flight.complete(at, wanted, SHORT_PAUSE);
                Step::Worked
            }
            _ if self.reclaimer.clear_unknown(at, &mut self.log) => match self.threaded {
                // Leaves the disk to the readers.
                true => Step::Waiting,
                false => Step::Worked,
            },
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

    /// Takes staged pages and appends them, unless they are left to other devices.
    fn collect(&mut self, at: Site<'_>) -> Step {
        let shared = at.shared;
        let mut any = false;
        let most = shared.store.balancing().max_held() / 2;
        for _ in 0..shared.instances.len() {
            let waiting = (self.log.waiting() + self.log.in_flight.held()) / UNIT;
            if !shared
                .store
                .balancing()
                .may_take(self.device, waiting as u64)
            {
                return if any { Step::Worked } else { Step::Waiting };
            }
            // Writes of held frames must complete before more are taken.
            if self.held() > most && self.log.in_flight.any() {
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
                let (timed, pressed) = (self.threaded, shared.store.balancing().pressed());
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

    /// Appends a page. Makes room first if there is none.
    fn append(&mut self, at: Site<'_>, stored: Stored<'_>, origin: Origin) -> Result<(), Fault> {
        while !self.log.append(at, stored, origin)? {
            self.reclaimer.make_room(at, &mut self.log, stored.size())?;
        }
        Ok(())
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
