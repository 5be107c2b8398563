//! The facade: what the hooks of a server call.
//!
//! # The life of a page
//!
//! 1. *Offered* by the thread that has read or written it: [`Extension::offer`] asks the policy, copies the bytes into a frame
//!    of staging, and enters the frame into the directory of the page's instance - if, under the instance's lock, the
//!    ticket is still current. From now on the page is served from the frame.
//! 2. *Written* by the writer of some device, among others in one large write. Then, under the lock, the entry is turned from
//!    the frame to the place on the device, if it still refers to that frame, and the frame is free again.
//! 3. *Hit*: [`Extension::read`] finds the entry under the lock, reads without it - so that a read can be given up, into
//!    memory of our own; without a bound in time straight into the caller's buffer, where alignment allows - and believes what it has read only if the check of the bytes is the entry's, and the entry is still
//!    there. The latter need not be looked at if nothing in the segment was written anew (its sequence number) and no entry
//!    of the instance has gone (its count of removals), by a write, an eviction or otherwise, since the entry was found.
//! 4. *Moved*, rarely, when its segment is compacted: written again, and the entry turned to the new place as in 2.
//! 5. *Dropped* by [`Extension::invalidate`], which a write calls after it has moved the generation and before it is
//!    forwarded; or *evicted* to make room for another; or swept away with its device.
//!
//! At any time a page has at most one entry, and the entry alone decides what is served: frames and places on devices
//! without an entry are garbage, to be collected by whoever comes by.
//!
//! # Locks, in the order in which they may be taken
//!
//! 1. the writers of an extension without threads ([`Extension::pump`])
//! 2. the lock of one instance (never two)
//! 3. leaves, under which nothing else is taken: free frames of staging; reason and remark of a device's health; the
//!    pacer's bucket; the account of the daily write budget; the mutex on which writers sleep; a slot for reads with a
//!    bound, which is only tried.
//!
//! No lock is held during I/O or while a page is copied, but for that of the slot which is read into. Calls other than `open`, `statistics` and their like allocate
//! nothing, but for the memory of a slot at its first use, and the tables of files and of forgotten files as they grow.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::arena::Inherited;
use crate::config::{Config, OpenError};
use crate::device::Device;
use crate::device::file::Wrap;
use crate::generation::Generations;
use crate::group::{Group, Limits};
use crate::left_out::{Rule, leaves_out};
use crate::measure::histogram::HistogramSnapshot;
use crate::page::{EXTENT_SHIFT, FileId, PageId};
use crate::shared::Shared;
use crate::staging::Staging;
use crate::statistics::{DeviceStatistics, InstanceStatistics, Statistics};
use crate::writer::{Step, Writer};

/// How long closing waits for writers that hang in a system call.
const PATIENCE: Duration = Duration::from_secs(5);
/// Ranges longer than this are cut to the pages that the file has had here.
const LONG_RANGE: u32 = 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// The buffer holds the page, proven.
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
    /// The read of the device failed or came short.
    DeviceError,
    /// The segment of the page was reclaimed during the read.
    Reclaimed,
    /// The page was invalidated during the read.
    Invalidated,
    /// The bytes read were not the page; its entry was dropped.
    FailedProof,
    /// What was found is another page with the same fingerprint; its entry was dropped.
    Collision,
    /// Not the length of a page, or not the length with which the page was cached.
    Unsuitable,
}

/// Where offered bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Read,
    /// Read on behalf of another server, which has asked for the page so often of late: [`Extension::heat`].
    Warm {
        /// 1 to [`MOST_HEAT`](crate::MOST_HEAT).
        count: u8,
    },
    Write {
        /// What `invalidate` returned before the write.
        was_cached: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferOutcome {
    Admitted,
    AlreadyCached,
    /// By the policy.
    Rejected,
    StagingFull,
    /// The daily write limit is used up.
    WriteLimit,
    /// A write has begun since the ticket was given.
    Stale,
    /// Not the length of a page, or no device is active.
    Unsuitable,
}

/// What [`Extension::inspect`] found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inspected {
    Absent,
    /// It could not be read, or failed its proof, as a page does that was damaged, or moved just then. It would not have been
    /// served.
    Unproven,
    /// Its device has failed, or does not answer just now.
    Unanswered,
    Copied,
}

/// What outlives the process, at rest.
#[derive(Debug)]
pub struct Frozen {
    /// Of the cache files and the directories.
    pub session: u64,
    /// The directories. Its descriptor shares the lock of the arena.
    pub arena: File,
    /// The cache files.
    pub devices: Vec<Arc<PathBuf>>,
}

/// A second-level cache of clean pages.
///
/// Dropping it stops the writers, waiting a few seconds at most, and removes the cache files. Calls of other threads must
/// have returned before.
pub struct Extension {
    pub(crate) shared: Arc<Shared>,
    /// Writers that `pump` drives; none if they have threads.
    pub(crate) inline: Mutex<Vec<Writer>>,
}

impl Extension {
    /// Opens the devices and starts a thread for each.
    ///
    /// # Errors
    /// Says what is wrong with the configuration, a device or the memory. Nothing is left behind then.
    pub fn open(config: Config, generations: Arc<Generations>) -> Result<Extension, OpenError> {
        Self::open_with(&config, generations, Arc::new(|file| Box::new(file)), true)
    }

    /// Opens an extension without threads: nothing is written but by [`Extension::pump`]. For replays and tests.
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
        let shared = Arc::new(crate::open::open(config, generations, &*wrap)?);
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
                crate::thread::spawn_submitter(&extension.shared, n)
                    .map_err(|source| OpenError::Thread { source })?;
            }
            for (n, writer) in writers.into_iter().enumerate() {
                crate::thread::spawn_writer(&extension.shared.wake, n, writer)
                    .map_err(|source| OpenError::Thread { source })?;
            }
        } else {
            *extension.inline.lock() = writers;
        }
        Ok(extension)
    }

    /// Drops the entries of the pages. Call after `Generations::begin_write` or `bump` and before the write is forwarded.
    /// Returns whether any was cached.
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
            // An insertion that comes after the look at its instance finds its ticket stale, so this is as good as visiting
            // each page.
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
            let at = crate::page::extent_instance(file, extent, instances);
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

    /// What was taken over from another process.
    pub fn inherited(&self) -> &Inherited {
        &self.shared.inherited
    }

    /// Tells the contents from those of any other opening, if they outlive the process.
    pub fn session(&self) -> Option<u64> {
        self.shared.arena.as_ref()?.session()
    }

    /// Pages of the file up to `highest` may have been inherited, and be asked for; about `pages` of them. To be said of each file whose inherited pages are
    /// what it has now, before it is asked for or written; of all such files before anything else is offered, since what is in no
    /// file of which it was said is garbage.
    pub fn inherit_file(&self, file: FileId, highest: u32, pages: u64) {
        if leaves_out(Rule::Files) {
            return;
        }
        let page = PageId::new(file, highest);
        let pages = pages / self.shared.instances.len() as u64;
        for instance in &self.shared.instances {
            instance.0.lock().inherit(page, pages);
        }
    }

    /// What is on the devices, and the directories if they outlive the process, are left to the next when the extension is
    /// dropped. What is staged is lost.
    pub fn leave(&self) {
        self.shared.store.devices.iter().for_each(Device::leave);
    }

    /// As [`leave`](Self::leave), for the end of the process: ends the writers, so that nothing changes what is left but
    /// [`invalidate`](Self::invalidate). To be called when nobody reads or offers pages any more. `None`: nothing outlives the process,
    /// a device does not answer, or has kept its writer for longer than this.
    pub fn freeze(&self, patience: Duration) -> Option<Frozen> {
        let shared = &self.shared;
        let (arena, session) = (shared.arena.as_ref()?, self.session()?);
        self.leave();
        let mut devices = shared.store.devices.iter();
        let answers = |device: &Device| device.health.answers() && device.speed.silence().is_none();
        if !devices.all(answers) || !self.end_threads(patience) {
            return None;
        }
        Some(Frozen {
            session,
            arena: arena.file().ok()?,
            devices: shared.store.devices.iter().map(Device::path).collect(),
        })
    }

    /// Whether all have ended.
    fn end_threads(&self, patience: Duration) -> bool {
        for device in &self.shared.store.devices {
            device.health.overdue.submissions.stop();
        }
        self.shared.wake.stop(patience)
    }

    /// Bytes that may be written to all devices together per second; 0: no limit.
    pub fn set_io_capacity(&self, bytes_per_second: u64) {
        self.shared.pacer.set_rate(bytes_per_second);
    }
    /// What each group may take of the cache. Groups that are not `used`, or whose pages are others from now on, are said so here first;
    /// their pages are of no group until they are asked for. Entries of groups take memory, which is given back when there are none.
    ///
    /// # Errors
    /// If there is no memory. Then nothing has changed.
    pub fn set_groups(&self, used: &[bool; Group::COUNT], limits: &Limits) -> std::io::Result<()> {
        self.shared.set_groups(used, limits)
    }

    /// Pages of each group, as far as they were asked for since it has them; and how many it may have, 0 being no limit.
    pub fn group_pages(&self) -> [(u64, u64); Group::COUNT] {
        self.shared.group_pages()
    }

    /// For an extension opened without threads: writes what is staged. Whether there was anything to do.
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

    /// Bytes of memory that staged pages take now, with the books kept about them: part of `Statistics::memory_bytes`. The
    /// rest of that grows with the number of pages.
    pub fn staging_memory_bytes(&self) -> u64 {
        let staging = &self.shared.store.staging;
        Staging::memory_needed(staging.capacity()) - staging.untouched()
    }

    pub fn statistics(&self) -> Statistics {
        crate::report::statistics(&self.shared)
    }

    /// Reads served by the cache, from lookup to proof; without adding up all other figures.
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

    /// Whether a device has failed. One that does not answer in time has not: what it holds is there again when it does.
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
        self.end_threads(PATIENCE);
        // Writers with threads have closed their devices, or will as soon as the system lets them.
        if !self.inline.lock().is_empty() {
            self.shared
                .store
                .devices
                .iter()
                .for_each(|device| device.close());
        }
        if let Some(arena) = &self.shared.arena {
            if !self.shared.store.devices.iter().any(Device::is_left) {
                arena.discard();
            }
        }
        crate::device::bounded::give_all_memory_back();
    }
}
