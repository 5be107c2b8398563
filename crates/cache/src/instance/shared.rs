//! State shared by the facade and the writers.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Instant;

use parking_lot::Mutex;

use crate::common::budget::WriteBudget;
use crate::common::config::Compression;
use crate::common::group::{Group, Limits};
use crate::common::measure::histogram::LatencyHistogram;
use crate::common::page::PageId;
use crate::common::rate_limiter::{Clock, RateLimiter};
use crate::common::statistics::{CachePadded, Counter};
use crate::common::wake::Wake;
use crate::device::Device;
use crate::device::queue::CHUNK;
use crate::index::directory::tags::Tags;
use crate::index::generation::Generations;
use crate::instance::Instance;
use crate::instance::arena::{Arena, RecoveredEntries};
use crate::instance::staging::Staging;
use crate::instance::store::Store;

pub(crate) struct Shared {
    pub generations: Arc<Generations>,
    pub instances: Box<[CachePadded<Instance>]>,
    pub store: Store,
    pub counts: crate::device::compression::Counts,
    pub rate_limiter: RateLimiter,
    pub budget: Arc<WriteBudget>,
    pub clock: Clock,
    pub wake: Wake,
    pub latency: LatencyHistogram,
    pub written: Written,
    /// Bytes of all memory whose size is fixed when the extension is opened, including all memory reserved for staging.
    pub memory_bytes: u64,
    /// Number of forgotten files, summed over the instances. Guards no other memory: `Relaxed` everywhere. If a file is cleared
    /// before `forget_file` has counted it, the number wraps for a moment.
    pub forgotten: AtomicUsize,
    /// How often the writers were asked to look for entries of unknown files. Likewise `Relaxed`.
    pub cleanups: AtomicU32,
    /// Held while groups are changed.
    limits: Mutex<Limits>,
    /// Result of the recovery when the extension was opened.
    pub recovered: RecoveredEntries,
    /// Last field: dropped, and unlocked, after the directories mapped from it.
    pub arena: Option<Arena>,
}

/// A writer's device and the shared state.
#[derive(Clone, Copy)]
pub(crate) struct Site<'a> {
    pub shared: &'a Shared,
    pub device: &'a Device,
    /// The writer has its own thread, and therefore may block.
    pub threaded: bool,
}

/// Counters of the writers.
#[derive(Default)]
pub(crate) struct Written {
    /// Of new pages, as stored.
    pub user_bytes: Counter,
    /// The same pages, before compression.
    pub page_bytes: Counter,
    pub evicted: Counter,
    pub reinserted: Counter,
    pub purged: Counter,
    pub failed_proofs: Counter,
}

/// Constituents of a [`Shared`]: the parts whose construction can fail, and configured values.
pub(crate) struct Parts {
    pub arena: Option<Arena>,
    pub generations: Arc<Generations>,
    pub instances: Box<[CachePadded<Instance>]>,
    pub staging: Staging,
    pub devices: Box<[Device]>,
    pub compression: Compression,
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
        let wake_at = (CHUNK as u64).min(parts.staging.capacity() / 8);
        let (staging, devices) = (parts.staging, parts.devices);
        Shared {
            generations: parts.generations,
            instances: parts.instances,
            store: Store::new(
                staging,
                devices,
                parts.compression,
                parts.nominal_page,
                pages,
            ),
            counts: crate::device::compression::Counts::default(),
            rate_limiter: RateLimiter::new(parts.io_capacity, Instant::now()),
            budget: parts.budget,
            clock: Clock::default(),
            wake: Wake::new(wake_at),
            latency: LatencyHistogram::new(),
            written: Written::default(),
            memory_bytes: parts.memory_bytes,
            forgotten: AtomicUsize::new(0),
            cleanups: AtomicU32::new(0),
            limits: Mutex::new([0; Group::COUNT]),
            recovered: RecoveredEntries::default(),
            arena: parts.arena,
        }
    }

    /// Implements [`Extension::set_groups`](crate::Extension::set_groups).
    pub fn set_groups(&self, used: &[bool; Group::COUNT], limits: &Limits) -> io::Result<()> {
        debug_assert!(limits.iter().all(|&percent| percent <= 100));
        let mut known = self.limits.lock();
        let mut used = *used;
        used[Group::NORMAL.number()] = false;
        let needed = used.contains(&true);
        let made = |instance: &CachePadded<Instance>| {
            let misses = needed && !instance.0.has_tags();
            misses.then(|| Tags::new(instance.0.buckets())).transpose()
        };
        let made: io::Result<Vec<Option<Tags>>> = self.instances.iter().map(made).collect();
        for (instance, tags) in self.instances.iter().zip(made?) {
            let pages = self.pages_of(&instance.0);
            let most = std::array::from_fn(|number| match limits[number] {
                0 => 0,
                percent => (pages * u64::from(percent) / 100).max(1),
            });
            instance.0.change_groups(tags, &used, most);
        }
        *known = *limits;
        Ok(())
    }

    /// Estimate of the pages of the usual size that fit into an instance.
    fn pages_of(&self, instance: &Instance) -> u64 {
        let devices = self.store.devices.iter();
        let bytes: u64 = devices.map(|device| device.geometry.data_bytes()).sum();
        let fit = bytes / self.store.nominal_page() / self.instances.len() as u64;
        instance.capacity().min(fit)
    }

    /// Implements [`Extension::group_pages`](crate::Extension::group_pages).
    pub fn group_pages(&self) -> [(u64, u64); Group::COUNT] {
        let limits = *self.limits.lock();
        let mut sums = [(0, 0); Group::COUNT];
        for instance in &self.instances {
            let pages = self.pages_of(&instance.0);
            let counted = instance.0.group_pages();
            for (number, (sum, most)) in sums.iter_mut().enumerate() {
                *sum += counted[number];
                *most += pages * u64::from(limits[number]) / 100;
            }
        }
        sums
    }

    /// Bytes that the groups of all entries take.
    pub fn tag_bytes(&self) -> u64 {
        let instances = self.instances.iter();
        instances.map(|instance| instance.0.tag_bytes()).sum()
    }

    /// Bytes of the instances' tables of files.
    pub fn file_bytes(&self) -> u64 {
        let instances = self.instances.iter();
        instances.map(|instance| instance.0.file_bytes()).sum()
    }

    pub fn instance(&self, page: PageId) -> &Instance {
        &self.instances[page.instance(self.instances.len() as u32)].0
    }
}
