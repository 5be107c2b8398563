//! The facade: its types, opening and closing, invalidation, settings and figures. [`crate::api`] has the life of a page and
//! the order of locks.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::common::canary::{Rule, is_disabled};
use crate::common::config::{Config, OpenError};
use crate::common::group::{Group, Limits};
use crate::common::measure::histogram::HistogramSnapshot;
use crate::common::page::{EXTENT_SHIFT, FileId, PageId};
use crate::common::statistics::{DeviceStatistics, InstanceStatistics, Statistics};
use crate::device::Device;
use crate::device::file::Wrap;
use crate::index::generation::Generations;
use crate::instance::arena::RecoveredEntries;
use crate::instance::shared::Shared;
use crate::instance::staging::Staging;
use crate::log::writer::{Step, Writer};

/// Longest wait of `drop` for writers that hang in a system call.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);
/// Longer ranges are limited to the pages that the file has had in the cache.
const LONG_RANGE: u32 = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// The buffer holds the verified page.
    Hit,
    /// The contents of the buffer are undefined.
    Miss(MissReason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissReason {
    /// Not cached.
    Absent,
    /// Cached, but on a device that has failed.
    DeviceFailed,
    /// The read of the device failed or was short.
    DeviceError,
    /// The segment of the page was reclaimed during the read.
    Reclaimed,
    /// The page was invalidated during the read.
    Invalidated,
    /// The bytes read were not the page; its entry was dropped.
    FailedProof,
    /// The bytes belong to another page with the same fingerprint; the entry was dropped.
    Collision,
    /// Not the length of a page, or not the length with which the page was cached.
    Unsuitable,
}

/// Origin of the bytes of an insert candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Read,
    /// Read on behalf of another server; `count` is its recent access count of the page ([`Extension::heat`]).
    Warm {
        /// 1 to [`MAX_HEAT`](crate::MAX_HEAT).
        count: u8,
    },
    Write {
        /// Return value of `invalidate` before the write.
        was_cached: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertOutcome {
    Admitted,
    AlreadyCached,
    /// By the policy, or by the limit of the page's group.
    Rejected,
    StagingFull,
    /// The daily write limit is used up.
    WriteLimit,
    /// A write has begun since the ticket was issued.
    Stale,
    /// Not the length of a page, or no device is active.
    Unsuitable,
}

/// Result of [`Extension::copy`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyOutcome {
    Absent,
    /// The page could not be read or failed its check: it is damaged, or was moved at that moment. A read would not have
    /// returned it.
    Unproven,
    /// Its device has failed, or does not answer at present.
    Unanswered,
    Copied,
}

/// The idle state that outlives the process.
#[derive(Debug)]
pub struct Frozen {
    /// Session of the cache files and of the directories (the indexes of cached pages).
    pub session: u64,
    /// The file with the directories. Its descriptor shares the lock of the arena.
    pub arena: File,
    /// The cache files.
    pub devices: Vec<Arc<PathBuf>>,
}

/// A second-level cache of clean pages.
///
/// Dropping it stops the writers, waits a few seconds at most, and removes the cache files. Calls of other threads must have
/// returned before.
pub struct Extension {
    pub(crate) shared: Arc<Shared>,
    /// Writers that `pump` drives; empty if they have threads.
    pub(crate) inline: Mutex<Vec<Writer>>,
}

impl Extension {
    /// Opens the devices and starts a thread for each.
    ///
    /// # Errors
    /// The configuration, a device or the memory is unusable. `open` then leaves nothing behind.
    pub fn open(config: Config, generations: Arc<Generations>) -> Result<Extension, OpenError> {
        Self::open_with(&config, generations, Arc::new(|file| Box::new(file)), true)
    }

    /// Opens an extension without threads: only [`Extension::pump`] writes. For replays and tests.
    ///
    /// # Errors
    /// As `open`.
    pub fn open_inline(
        config: Config,
        generations: Arc<Generations>,
    ) -> Result<Extension, OpenError> {
        Self::open_with(&config, generations, Arc::new(|file| Box::new(file)), false)
    }

    pub(crate) fn open_with(
        config: &Config,
        generations: Arc<Generations>,
        wrap: Arc<Wrap>,
        threaded: bool,
    ) -> Result<Extension, OpenError> {
        let shared = Arc::new(crate::api::open::open(config, generations, &*wrap)?);
        let mut writers = Vec::new();
        for device in 0..shared.store.devices.len() {
            let writer = Writer::new(Arc::clone(&shared), device, Arc::clone(&wrap), threaded);
            writers.push(writer);
        }
        let extension = Extension {
            shared,
            inline: Mutex::default(),
        };
        if threaded {
            for n in 0..extension.shared.store.devices.len() {
                crate::log::threads::spawn_submitter(&extension.shared, n)
                    .map_err(|source| OpenError::Thread { source })?;
            }
            for (n, writer) in writers.into_iter().enumerate() {
                crate::log::threads::spawn_writer(&extension.shared.wake, n, writer)
                    .map_err(|source| OpenError::Thread { source })?;
            }
        } else {
            *extension.inline.lock() = writers;
        }
        Ok(extension)
    }

    /// Removes the entries of the pages. Call after `Generations::begin_write` or `bump` and before the write is forwarded.
    /// Returns whether any page was cached.
    pub fn invalidate(&self, file: FileId, first: u32, pages: u32) -> bool {
        #[cfg(test)]
        if self.shared.store.canary.skip_invalidation() {
            return false;
        }
        if pages == 0 {
            return false;
        }
        let mut last = first.saturating_add(pages - 1);
        let mut concerned = u64::MAX;
        if pages > LONG_RANGE {
            // An insertion after its instance was checked finds its ticket outdated. So this is equivalent to visiting each
            // page.
            concerned = 0;
            let mut highest = 0;
            for (at, instance) in self.shared.instances.iter().enumerate() {
                if let Some(page) = instance.0.lock().highest_page(file) {
                    concerned |= 1 << at;
                    highest = highest.max(page);
                }
            }
            last = last.min(highest);
        }
        if concerned == 0 || first > last {
            return false;
        }
        let instances = self.shared.instances.len() as u32;
        let mut any = false;
        for extent in first >> EXTENT_SHIFT..=last >> EXTENT_SHIFT {
            let at = crate::common::page::extent_instance(file, extent, instances);
            if concerned >> at & 1 == 0 {
                continue;
            }
            let from = first.max(extent << EXTENT_SHIFT);
            let to = last.min((extent << EXTENT_SHIFT) | ((1 << EXTENT_SHIFT) - 1));
            let instance = &self.shared.instances[at].0;
            let mut state = instance.lock();
            if state
                .highest_page(file)
                .is_none_or(|highest| highest < from)
            {
                continue;
            }
            for number in from..=to {
                let page = PageId { file, page: number };
                if let Some((slot, _)) = state.find(&self.shared.store, page) {
                    state.remove(&self.shared.store, slot);
                    instance.counters.invalidated.add(1);
                    any = true;
                }
            }
        }
        any
    }

    /// Pages recovered from another process.
    pub fn recovered(&self) -> &RecoveredEntries {
        &self.shared.recovered
    }

    /// Identifies the contents of this opening, if they outlive the process.
    pub fn session(&self) -> Option<u64> {
        self.shared.arena.as_ref()?.session()
    }

    /// Declares that persisted pages of the file up to `highest`, about `pages` of them, may be served.
    ///
    /// Call it for each file whose persisted pages equal its current contents, before the file is read or written. Call it for
    /// all such files before any other page is inserted: persisted pages of other files count as garbage.
    pub fn trust_file(&self, file: FileId, highest: u32, pages: u64) {
        if is_disabled(Rule::Files) {
            return;
        }
        let page = PageId::new(file, highest);
        let pages = pages / self.shared.instances.len() as u64;
        for instance in &self.shared.instances {
            instance.0.lock().trust(page, pages);
        }
    }

    /// Persists the devices' contents for the next process when the extension is dropped, and the directories if they outlive
    /// the process. Staged pages are lost.
    pub fn persist(&self) {
        self.shared.store.devices.iter().for_each(Device::persist);
    }

    /// Like [`persist`](Self::persist), for the end of the process: it also stops the writers, so that afterwards only
    /// [`invalidate`](Self::invalidate) changes the persisted state. Call it when no thread reads or inserts pages any longer.
    ///
    /// `None`: nothing outlives the process, a device does not answer, or a writer did not end within `timeout`.
    pub fn freeze(&self, timeout: Duration) -> Option<Frozen> {
        let shared = &self.shared;
        let (arena, session) = (shared.arena.as_ref()?, self.session()?);
        self.persist();
        let mut devices = shared.store.devices.iter();
        let answers = |device: &Device| device.health.answers() && device.speed.silence().is_none();
        if !devices.all(answers) || !self.end_threads(timeout) {
            return None;
        }
        Some(Frozen {
            session,
            arena: arena.file().ok()?,
            devices: shared.store.devices.iter().map(Device::path).collect(),
        })
    }

    /// Returns whether all threads have ended.
    fn end_threads(&self, timeout: Duration) -> bool {
        for device in &self.shared.store.devices {
            device.health.overdue.submissions.stop();
        }
        self.shared.wake.stop(timeout)
    }

    /// Bytes that may be written to all devices together per second; 0: no limit.
    pub fn set_io_capacity(&self, bytes_per_second: u64) {
        self.shared.rate_limiter.set_rate(bytes_per_second);
    }
    /// Sets each group's share of the cache. Memory for the entries' groups is allocated while a group is used, and released
    /// otherwise.
    ///
    /// Before a group is retired or gets other pages, call it once without that group in `used`: its entries then belong to no
    /// group until they are read again.
    ///
    /// # Errors
    /// There is not enough memory. Then nothing has changed.
    pub fn set_groups(&self, used: &[bool; Group::COUNT], limits: &Limits) -> std::io::Result<()> {
        self.shared.set_groups(used, limits)
    }

    /// For each group: its pages, as far as they were read since the group exists; and its limit in pages, 0 being no limit.
    pub fn group_pages(&self) -> [(u64, u64); Group::COUNT] {
        self.shared.group_pages()
    }

    /// For an extension opened without threads: writes the staged pages. Returns whether there was work.
    pub fn pump(&self) -> bool {
        let mut worked = false;
        for writer in self.inline.lock().iter_mut() {
            while writer.step() == Step::Worked {
                worked = true;
            }
        }
        worked
    }

    /// Bytes staged and not yet written.
    pub fn staged_bytes(&self) -> u64 {
        self.shared.store.staging.used()
    }

    /// Bytes of memory that staged pages occupy, including their metadata: part of `Statistics::memory_bytes`. The other part
    /// grows with the number of pages.
    pub fn staging_memory_bytes(&self) -> u64 {
        let staging = &self.shared.store.staging;
        Staging::memory_needed(staging.capacity()) - staging.untouched()
    }

    pub fn statistics(&self) -> Statistics {
        crate::api::report::statistics(&self.shared)
    }

    /// Latency of reads served by the cache, from lookup to verification. Does not compute the other statistics.
    pub fn read_latency(&self) -> HistogramSnapshot {
        self.shared.latency.snapshot()
    }

    pub fn instance_statistics(&self) -> Vec<InstanceStatistics> {
        self.shared
            .instances
            .iter()
            .map(|instance| instance.0.statistics())
            .collect()
    }

    pub fn device_statistics(&self) -> Vec<DeviceStatistics> {
        self.shared
            .store
            .devices
            .iter()
            .map(|device| device.statistics())
            .collect()
    }

    /// Whether a device has failed. A device that does not answer in time has not failed: its pages are served again later.
    pub fn has_failed(&self) -> bool {
        let devices = &self.shared.store.devices;
        devices.iter().any(|device| !device.health.active())
    }

    /// Cached pages of each of the files, approximate.
    pub fn file_pages(&self, files: &[FileId]) -> Vec<u64> {
        let mut sums = vec![0; files.len()];
        self.shared
            .instances
            .iter()
            .for_each(|instance| instance.0.file_pages(files, &mut sums));
        sums
    }

    #[cfg(test)]
    pub(crate) fn with_writers<R>(&self, act: impl FnOnce(&mut Vec<Writer>) -> R) -> R {
        act(&mut self.inline.lock())
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.end_threads(CLOSE_TIMEOUT);
        // Writers with threads have closed their devices, or will do so when their system call returns.
        if !self.inline.lock().is_empty() {
            self.shared
                .store
                .devices
                .iter()
                .for_each(|device| device.close());
        }
        if let Some(arena) = &self.shared.arena {
            if !self.shared.store.devices.iter().any(Device::is_persisted) {
                arena.discard();
            }
        }
        crate::device::bounded::give_all_memory_back();
    }
}
