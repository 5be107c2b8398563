//! What the facade and the writers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::budget::WriteBudget;
use crate::config::Compression;
use crate::device::Device;
use crate::directory::{Entry, Kind};
use crate::generation::Generations;
use crate::instance::Instance;
use crate::measure::histogram::LatencyHistogram;
use crate::pace::{Clock, Pacer};
use crate::page::PageId;
use crate::policy::Totals;
use crate::policy::mode::AdmissionMode;
use crate::staging::{Staging, UNIT};
use crate::statistics::{Counter, Padded};

/// Bytes that a writer collects before it writes.
pub(crate) const CHUNK: usize = 256 << 10;
/// Free segments that a writer keeps for itself, to have where to write the pages of a segment that it compacts.
pub(crate) const RESERVED_SEGMENTS: usize = 1;
/// Room that pages compete for is this part of all, but not more pages than writes are likely to be under way.
const SPARE_SHARE: u64 = 128;
const MOST_SPARE_PAGES: usize = 1024;
/// A writer looks for staged pages at least so often.
pub(crate) const TICK: Duration = Duration::from_millis(100);

pub(crate) struct Shared {
    pub generations: Arc<Generations>,
    pub instances: Box<[Padded<Instance>]>,
    pub staging: Staging,
    pub devices: Box<[Device]>,
    pub compression: Compression,
    pub counts: crate::compression::Counts,
    pub pacer: Pacer,
    pub budget: Arc<WriteBudget>,
    pub clock: Clock,
    pub wake: Wake,
    pub latency: LatencyHistogram,
    pub written: Written,
    /// Bytes of all memory whose size is fixed when the extension is opened, and all that is reserved for staging.
    pub memory_bytes: u64,
    pub nominal_page: usize,
    /// Of room for which pages compete although nobody would have to go.
    spare_bytes: usize,
    mode: AtomicU8,
    #[cfg(test)]
    pub canary: crate::tests::Canary,
}

/// Counted by the writers.
#[derive(Default)]
pub(crate) struct Written {
    /// Of new pages, as stored.
    pub user_bytes: Counter,
    /// The same pages, as they were offered.
    pub page_bytes: Counter,
    pub evicted: Counter,
    pub reinserted: Counter,
    pub purged: Counter,
    pub failed_proofs: Counter,
}

/// What a [`Shared`] is made of: parts that are built where they can fail, and what was configured.
pub(crate) struct Parts {
    pub generations: Arc<Generations>,
    pub instances: Box<[Padded<Instance>]>,
    pub staging: Staging,
    pub devices: Box<[Device]>,
    pub compression: Compression,
    pub admission: AdmissionMode,
    /// Bytes per second; 0: no limit.
    pub io_capacity: u64,
    pub budget: Arc<WriteBudget>,
    /// Bytes.
    pub nominal_page: usize,
    /// See [`Shared::memory_bytes`].
    pub memory_bytes: u64,
}

impl Shared {
    pub fn new(parts: Parts) -> Shared {
        let instances = parts.instances.iter();
        let pages: u64 = instances.map(|instance| instance.0.capacity()).sum();
        let spare_pages = ((pages / SPARE_SHARE) as usize).min(MOST_SPARE_PAGES);
        let wake_at = (CHUNK as u64).min(parts.staging.capacity() / 8);
        let shared = Shared {
            generations: parts.generations,
            instances: parts.instances,
            staging: parts.staging,
            devices: parts.devices,
            compression: parts.compression,
            counts: crate::compression::Counts::default(),
            pacer: Pacer::new(parts.io_capacity, Instant::now()),
            budget: parts.budget,
            clock: Clock::default(),
            wake: Wake::new(wake_at),
            latency: LatencyHistogram::new(),
            written: Written::default(),
            memory_bytes: parts.memory_bytes,
            nominal_page: parts.nominal_page,
            spare_bytes: spare_pages * parts.nominal_page,
            mode: AtomicU8::new(0),
            #[cfg(test)]
            canary: crate::tests::Canary::default(),
        };
        shared.set_mode(parts.admission);
        shared
    }

    pub fn mode(&self) -> AdmissionMode {
        if self.mode.load(Ordering::Relaxed) == 0 {
            AdmissionMode::All
        } else {
            AdmissionMode::Frequency
        }
    }

    pub fn set_mode(&self, mode: AdmissionMode) {
        self.mode.store(
            u8::from(mode == AdmissionMode::Frequency),
            Ordering::Relaxed,
        );
    }

    pub fn instance(&self, page: PageId) -> &Instance {
        &self.instances[page.instance(self.instances.len() as u32)].0
    }

    /// The device on which a location lies.
    pub fn device_at(&self, location: u32) -> Option<&Device> {
        self.devices
            .iter()
            .find(|device| device.geometry.holds(location))
    }

    /// Units on a device of a page of this kind, and of the page itself, as far as the kind tells.
    pub fn units(&self, kind: Kind) -> (u32, u32) {
        let units = kind.units(self.nominal_page);
        if kind.is_raw() {
            (units, units)
        } else {
            (units, (self.nominal_page / UNIT) as u32)
        }
    }

    /// An entry was removed. Under the lock of its instance.
    pub fn entry_removed(&self, entry: Entry) {
        if entry.kind != Kind::STAGED {
            if let Some(device) = self.device_at(entry.location) {
                let segment = device.geometry.segment_of(entry.location);
                let (units, page) = self.units(entry.kind);
                device.table.dead(segment, units, page);
            }
        }
    }

    /// Hits and accesses of all instances. May be called under the lock of one.
    pub fn totals(&self) -> Totals {
        let (hits, misses) = self
            .instances
            .iter()
            .fold((0, 0), |(hits, misses), instance| {
                let counters = &instance.0.counters;
                (hits + counters.hits.get(), misses + counters.misses())
            });
        Totals {
            hits,
            accesses: hits + misses,
            full: !self.has_spare_room(),
        }
    }

    /// Bytes of staged pages that no writer has taken.
    pub fn waiting(&self) -> u64 {
        let taken: u64 = self.devices.iter().map(|device| device.in_hand.get()).sum();
        self.staging.used().saturating_sub(taken)
    }

    /// Some device takes pages.
    pub fn any_active(&self) -> bool {
        self.devices.iter().any(|device| device.health.active())
    }

    /// There is so much room that pages need not compete for it. What writes have just dropped, and what is offered again
    /// when they have completed, does not count as room.
    pub fn has_spare_room(&self) -> bool {
        self.has_room(self.spare_bytes)
    }
}

/// How writers are woken and stopped.
pub(crate) struct Wake {
    stop: AtomicBool,
    /// Somebody has announced work that no writer has looked at.
    announced: AtomicBool,
    /// Staged bytes worth waking for.
    pub staged: u64,
    mutex: Mutex<()>,
    condvar: Condvar,
    /// Writer threads that have not ended.
    running: AtomicU32,
    ended: Condvar,
}

impl Wake {
    fn new(staged: u64) -> Wake {
        Wake {
            stop: AtomicBool::new(false),
            announced: AtomicBool::new(false),
            staged,
            mutex: Mutex::new(()),
            condvar: Condvar::new(),
            running: AtomicU32::new(0),
            ended: Condvar::new(),
        }
    }

    /// There is work. Costs a load unless it is news.
    pub fn announce(&self) {
        if !self.announced.load(Ordering::Relaxed) && !self.announced.swap(true, Ordering::Relaxed)
        {
            let _guard = self.mutex.lock();
            self.condvar.notify_all();
        }
    }

    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Waits for work, for the end, or for the time to pass.
    pub fn wait(&self, time: Duration) {
        let mut guard = self.mutex.lock();
        if !self.stopped() && !self.announced.load(Ordering::Relaxed) {
            self.condvar.wait_for(&mut guard, time);
        }
        self.announced.store(false, Ordering::Relaxed);
    }

    /// Waits for the end or for the time to pass.
    pub fn pause(&self, time: Duration) {
        let mut guard = self.mutex.lock();
        let until = Instant::now() + time;
        while !self.stopped() && !self.condvar.wait_until(&mut guard, until).timed_out() {}
    }

    pub fn thread_begins(&self) {
        self.running.fetch_add(1, Ordering::SeqCst);
    }

    pub fn thread_ends(&self) {
        let _guard = self.mutex.lock();
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.ended.notify_all();
    }

    /// Tells the threads to end, and waits for them, but not longer than this. Whether all have ended.
    pub fn stop(&self, patience: Duration) -> bool {
        let mut guard = self.mutex.lock();
        self.stop.store(true, Ordering::Release);
        self.condvar.notify_all();
        let until = Instant::now() + patience;
        while self.running.load(Ordering::SeqCst) > 0 {
            if self.ended.wait_until(&mut guard, until).timed_out() {
                return self.running.load(Ordering::SeqCst) == 0;
            }
        }
        true
    }
}
