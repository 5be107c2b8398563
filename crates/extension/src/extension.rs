//! The facade: what the hooks of a server call.
//!
//! # The life of a page
//!
//! 1. *Offered* by the thread that has read or written it: [`Extension::offer`] asks admission, copies the bytes into a frame
//!    of staging, and enters the frame into the directory of the page's instance - if, under the instance's lock, the
//!    ticket is still current. From now on the page is served from the frame.
//! 2. *Written* by the writer of some device, among others in one large write. Then, under the lock, the entry is turned from
//!    the frame to the place on the device, if it still refers to that frame, and the frame is free again.
//! 3. *Hit*: [`Extension::read`] finds the entry under the lock, reads without it, straight into the caller's buffer where
//!    alignment allows, and believes what it has read only if the check of the bytes is the entry's, and the entry is still
//!    there. The latter need not be looked at if nothing in the segment was written anew (its sequence number) and no write
//!    has removed any entry of the instance (its count of removals) since the entry was found.
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
//!    pacer's bucket; the mutex on which writers sleep.
//!
//! No lock is held during I/O or while a page is copied. Calls other than `open`, `statistics` and their like allocate
//! nothing, but for the thread's bounce buffer at its first use and the table of files as that grows.

use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::config::{AdmissionMode, Config, OpenError};
use crate::device::Fault;
use crate::device::file::{CacheFile, Wrap};
use crate::directory::Kind;
use crate::generation::{Generations, ReadTicket};
use crate::instance::{Found, Instance, Spot};
use crate::page::{EXTENT_SHIFT, FileId, PageId, check, identity_of, is_page_length};
use crate::segment::format::unpack;
use crate::shared::Shared;
use crate::statistics::{Counter, DeviceStatistics, InstanceStatistics, Statistics};
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
    Write {
        /// What `invalidate` returned before the write.
        was_cached: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferOutcome {
    Admitted,
    AlreadyCached,
    /// By admission.
    Rejected,
    StagingFull,
    /// A write has begun since the ticket was given.
    Stale,
    /// Not the length of a page, or no device is active.
    Unsuitable,
}

/// Where a page lies uncompressed on a device: `length` bytes at `offset` of `fd`, which stays open as long as this value
/// lives. The caller's buffer must be aligned to `alignment`, as the offset and the length are.
pub struct Located {
    pub fd: RawFd,
    pub offset: u64,
    pub length: u32,
    pub alignment: u32,
    page: PageId,
    spot: Spot,
    started: Instant,
    /// Keeps the descriptor open.
    _file: Arc<CacheFile>,
}

impl Located {
    pub fn page(&self) -> PageId {
        self.page
    }
}

/// A second-level cache of clean pages.
///
/// Dropping it stops the writers, waiting a few seconds at most, and removes the cache files. Calls of other threads must
/// have returned before.
pub struct Extension {
    shared: Arc<Shared>,
    /// Writers that `pump` drives; none if they have threads.
    inline: Mutex<Vec<Writer>>,
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
        for device in 0..shared.devices.len() {
            let writer = Writer::new(Arc::clone(&shared), device, Arc::clone(&wrap), threaded);
            writers.push(writer.map_err(|source| OpenError::Memory {
                bytes: Writer::BYTES,
                source,
            })?);
        }
        let extension = Extension {
            shared,
            inline: Mutex::default(),
        };
        if threaded {
            for (n, writer) in writers.into_iter().enumerate() {
                crate::thread::spawn(&extension.shared.wake, n, writer)
                    .map_err(|source| OpenError::Thread { source })?;
            }
        } else {
            *extension.inline.lock() = writers;
        }
        Ok(extension)
    }

    /// Reads the page into `buffer`, whose length is the physical page size. Counts the access.
    pub fn read(&self, page: PageId, buffer: &mut [u8]) -> ReadOutcome {
        let started = Instant::now();
        let shared = &*self.shared;
        let instance = shared.instance(page);
        let counters = &instance.counters;
        if !is_page_length(buffer.len()) {
            return miss(&counters.unsuitable, MissReason::Unsuitable);
        }
        let mut state = instance.lock();
        state.record_access(page);
        let found = state.look_up(shared, instance, page);
        drop(state);
        let outcome = match found {
            Found::Absent => Err(MissReason::Absent),
            Found::DeviceFailed => Err(MissReason::DeviceFailed),
            Found::Staged(pinned, removals) => {
                let bytes = pinned.bytes();
                if bytes.len() == buffer.len() {
                    buffer.copy_from_slice(bytes);
                    let expected = shared.staging.check(pinned.frame());
                    self.verify_staged(instance, page, pinned.frame(), expected, removals, buffer)
                        .inspect(|()| counters.hits_staged.add(1))
                } else {
                    Err(MissReason::Unsuitable)
                }
            }
            Found::OnDevice(spot) => self
                .read_device(spot, buffer)
                .and_then(|sound| self.verify(instance, page, spot, sound.then_some(&*buffer))),
        };
        match outcome {
            Ok(()) => {
                counters.hits.add(1);
                shared.latency.record(started.elapsed().as_nanos() as u64);
                ReadOutcome::Hit
            }
            Err(reason) => {
                let counter = match reason {
                    MissReason::Absent => &counters.absent,
                    MissReason::DeviceFailed => &counters.device_failed,
                    MissReason::DeviceError => &counters.device_error,
                    MissReason::Reclaimed => &counters.reclaimed,
                    MissReason::Invalidated => &counters.invalidated_during,
                    MissReason::FailedProof => &counters.failed_proof,
                    MissReason::Collision => &counters.collision,
                    MissReason::Unsuitable => &counters.unsuitable,
                };
                miss(counter, reason)
            }
        }
    }

    /// Reads what lies at the spot into `buffer`. Whether it could be decompressed.
    fn read_device(&self, spot: Spot, buffer: &mut [u8]) -> Result<bool, MissReason> {
        let device = &self.shared.devices[spot.device];
        let length = spot
            .kind
            .stored(buffer.len())
            .ok_or(MissReason::Unsuitable)?;
        let read = if spot.kind.is_raw() {
            device.read_into(spot.location, buffer).map(|()| true)
        } else {
            device.read_with(spot.location, length, |stored| unpack(stored, buffer))
        };
        read.map_err(|fault| match fault {
            Fault::Failed => MissReason::DeviceFailed,
            Fault::Error => MissReason::DeviceError,
        })
    }

    /// Proves bytes read from a spot; `None` if they could not even be decompressed.
    fn verify(
        &self,
        instance: &Instance,
        page: PageId,
        spot: Spot,
        bytes: Option<&[u8]>,
    ) -> Result<(), MissReason> {
        let device = &self.shared.devices[spot.device];
        let segment = device.geometry.segment_of(spot.location);
        let reused = device.table.sequence(segment) != spot.sequence;
        if reused || self.removals_moved(instance, spot.removals) {
            // The place was not written anew if the entry still refers to it; nor was the page, if it is the same entry.
            let entry = instance.lock().still(page, spot.location, spot.kind);
            if entry.is_none_or(|(_, entry)| entry.check != spot.check) {
                return Err(if reused {
                    MissReason::Reclaimed
                } else {
                    MissReason::Invalidated
                });
            }
        }
        if bytes.is_some_and(|bytes| check(page, bytes) == spot.check) {
            return Ok(());
        }
        // Damaged, or another page whose entry looks the same: its bytes tell. In both cases the entry is in the way.
        let actual = bytes.map(|bytes| identity_of(spot.check, bytes));
        let mut state = instance.lock();
        let collision = actual.is_some_and(|actual| {
            // Of a page that does not carry its number nothing can be told, and damage is rarer.
            !spot.kind.is_numbered()
                || std::ptr::eq(self.shared.instance(actual), instance)
                    && state.directory.look_alike(actual, page)
        });
        if let Some((slot, _)) = state.still(page, spot.location, spot.kind) {
            state.remove(&self.shared, slot);
        }
        drop(state);
        if collision {
            return Err(MissReason::Collision);
        }
        device
            .health
            .note_error(&"a page was not read as it was written");
        Err(MissReason::FailedProof)
    }

    /// Whether a write may have removed an entry found when the instance had counted so many removals.
    fn removals_moved(&self, instance: &Instance, found_at: u64) -> bool {
        #[cfg(test)]
        if self.shared.canary.skip_removals() {
            return false;
        }
        instance.removals() != found_at
    }

    fn verify_staged(
        &self,
        instance: &Instance,
        page: PageId,
        frame: u32,
        expected: u32,
        removals: u64,
        bytes: &[u8],
    ) -> Result<(), MissReason> {
        // The frame is pinned: if the entry was turned to a device meanwhile the bytes are still the page's. But whether that
        // or a write has removed it cannot be told, so a miss it is.
        if self.removals_moved(instance, removals)
            && instance.lock().still(page, frame, Kind::STAGED).is_none()
        {
            return Err(MissReason::Invalidated);
        }
        if check(page, bytes) == expected {
            return Ok(());
        }
        let mut state = instance.lock();
        if let Some((slot, _)) = state.still(page, frame, Kind::STAGED) {
            state.remove(&self.shared, slot);
        }
        Err(MissReason::FailedProof)
    }

    /// Where the page lies, for asynchronous I/O, if it lies uncompressed and suitably aligned on a device. Counts the access
    /// if so, and a miss if the page is not cached at all; if it is, but not so, `read` will serve and count it.
    ///
    /// The caller reads, and then calls `prove`; or `release` if the read was not made, `release_failed` if it failed.
    pub fn locate(&self, page: PageId, length: usize) -> Option<Located> {
        let started = Instant::now();
        let shared = &*self.shared;
        let instance = shared.instance(page);
        let counters = &instance.counters;
        if !is_page_length(length) {
            counters.unsuitable.add(1);
            return None;
        }
        let mut state = instance.lock();
        let found = state.look_up(shared, instance, page);
        let spot = match found {
            Found::OnDevice(spot) if spot.kind == Kind::raw(length) => spot,
            Found::Absent | Found::DeviceFailed => {
                state.record_access(page);
                let failed = matches!(found, Found::DeviceFailed);
                (if failed {
                    &counters.device_failed
                } else {
                    &counters.absent
                })
                .add(1);
                return None;
            }
            Found::Staged(..) | Found::OnDevice(_) => {
                counters.not_locatable.add(1);
                // Not under the lock: a staged page may be freed here.
                drop(state);
                drop(found);
                return None;
            }
        };
        let device = &shared.devices[spot.device];
        let file = device.file();
        if !device.suits(&file, spot.location, 0, length) || file.storage.raw_fd() < 0 {
            counters.not_locatable.add(1);
            return None;
        }
        state.record_access(page);
        drop(state);
        Some(Located {
            fd: file.storage.raw_fd(),
            offset: device.geometry.offset_of(spot.location),
            length: length as u32,
            alignment: file.alignment as u32,
            page,
            spot,
            started,
            _file: file,
        })
    }

    /// After the read of a located page: whether these bytes are the page. Counts a hit or a miss, and drops the entry if
    /// it leads astray.
    pub fn prove(&self, located: &Located, bytes: &[u8]) -> bool {
        let instance = self.shared.instance(located.page);
        let counters = &instance.counters;
        if bytes.len() != located.length as usize {
            counters.unsuitable.add(1);
            return false;
        }
        let device = &self.shared.devices[located.spot.device];
        match self.verify(instance, located.page, located.spot, Some(bytes)) {
            Ok(()) => {
                device.reads.add(1);
                device.bytes_read.add(bytes.len() as u64);
                device.health.note_success();
                counters.hits.add(1);
                counters.hits_located.add(1);
                self.shared
                    .latency
                    .record(located.started.elapsed().as_nanos() as u64);
                true
            }
            Err(reason) => {
                (match reason {
                    MissReason::Reclaimed => &counters.reclaimed,
                    MissReason::Invalidated => &counters.invalidated_during,
                    MissReason::Collision => &counters.collision,
                    _ => &counters.failed_proof,
                })
                .add(1);
                false
            }
        }
    }

    /// The read of a located page was not made.
    pub fn release(&self, located: Located) {
        drop(located);
    }

    /// The read of a located page failed with this errno, or came short (0). Counts a miss, and an error of the device.
    pub fn release_failed(&self, located: Located, errno: i32) {
        self.shared
            .instance(located.page)
            .counters
            .device_error
            .add(1);
        let health = &self.shared.devices[located.spot.device].health;
        match errno {
            0 => health.note_error(&"a read came short"),
            _ => health.note_error(&std::io::Error::from_raw_os_error(errno)),
        }
    }

    /// Offers the bytes of a completed read or write. They are copied if the page is admitted. Never waits for a device.
    pub fn offer(
        &self,
        page: PageId,
        bytes: &[u8],
        ticket: ReadTicket,
        source: Source,
    ) -> OfferOutcome {
        let instance = self.shared.instance(page);
        let counters = &instance.counters;
        counters.offered.add(1);
        let outcome = self.try_offer(instance, page, bytes, ticket, source);
        match outcome {
            OfferOutcome::Admitted => counters.admitted.add(1),
            OfferOutcome::AlreadyCached => counters.already_cached.add(1),
            OfferOutcome::Rejected => counters.rejected.add(1),
            OfferOutcome::StagingFull => counters.staging_full.add(1),
            OfferOutcome::Stale => counters.stale.add(1),
            OfferOutcome::Unsuitable => {}
        }
        outcome
    }

    fn try_offer(
        &self,
        instance: &Instance,
        page: PageId,
        bytes: &[u8],
        ticket: ReadTicket,
        source: Source,
    ) -> OfferOutcome {
        let shared = &*self.shared;
        if !is_page_length(bytes.len()) || !shared.any_active() {
            return OfferOutcome::Unsuitable;
        }
        {
            let mut state = instance.lock();
            if !self.is_current(ticket) {
                return OfferOutcome::Stale;
            }
            if self.has(&state, page, source) {
                return OfferOutcome::AlreadyCached;
            }
            let welcome = match source {
                Source::Write { was_cached: true } => true,
                Source::Write { was_cached: false } => shared.has_room(bytes.len()),
                Source::Read => shared.has_room(bytes.len()) || state.admits(shared, page),
            };
            if !welcome {
                return OfferOutcome::Rejected;
            }
        }
        let Some(mut filling) = shared.staging.allocate(bytes.len()) else {
            shared.wake.announce();
            return OfferOutcome::StagingFull;
        };
        filling.fill(page, bytes, check(page, bytes));
        let mut state = instance.lock();
        if !self.is_current(ticket) {
            return OfferOutcome::Stale;
        }
        if self.has(&state, page, source) {
            return OfferOutcome::AlreadyCached;
        }
        state.evict(shared);
        state.stage(shared, instance, page, filling);
        drop(state);
        if shared.staging.used() >= shared.wake.staged {
            shared.wake.announce();
        }
        OfferOutcome::Admitted
    }

    fn is_current(&self, ticket: ReadTicket) -> bool {
        #[cfg(test)]
        if self.shared.canary.skip_generation() {
            return true;
        }
        self.shared.generations.is_current(ticket)
    }

    /// Whether the page has an entry that can serve it. After a write it cannot have one: what looks like it is another's.
    fn has(&self, state: &crate::instance::InstanceState, page: PageId, source: Source) -> bool {
        let Some((_, entry)) = state.find(&self.shared, page) else {
            return false;
        };
        entry.kind == Kind::STAGED
            || source == Source::Read
                && self
                    .shared
                    .device_at(entry.location)
                    .is_some_and(|d| d.health.active())
    }

    /// Drops the entries of the pages. Call after `Generations::begin_write` or `bump` and before the write is forwarded.
    /// Returns whether any was cached.
    pub fn invalidate(&self, file: FileId, first: u32, pages: u32) -> bool {
        #[cfg(test)]
        if self.shared.canary.skip_invalidation() {
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
                if let Some((slot, _)) = state.find(&self.shared, page) {
                    state.remove(&self.shared, slot);
                    instance.note_removal();
                    any = true;
                }
            }
        }
        any
    }

    /// The file will never be asked for again; its pages count as garbage from now on.
    pub fn forget_file(&self, file: FileId) {
        self.shared
            .instances
            .iter()
            .for_each(|instance| instance.0.lock().forget(file));
    }

    /// Bytes that may be written to all devices together per second; 0: no limit.
    pub fn set_io_capacity(&self, bytes_per_second: u64) {
        self.shared.pacer.set_rate(bytes_per_second);
    }

    pub fn set_admission(&self, mode: AdmissionMode) {
        self.shared.set_mode(mode);
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
        self.shared.staging.used()
    }

    pub fn statistics(&self) -> Statistics {
        crate::report::statistics(&self.shared)
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
            .devices
            .iter()
            .map(|device| device.statistics())
            .collect()
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
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    #[cfg(test)]
    pub(crate) fn with_writers<R>(&self, act: impl FnOnce(&mut Vec<Writer>) -> R) -> R {
        act(&mut self.inline.lock())
    }
}

impl Drop for Extension {
    fn drop(&mut self) {
        self.shared.wake.stop(PATIENCE);
        // Writers with threads have closed their devices, or will as soon as the system lets them.
        if !self.inline.lock().is_empty() {
            self.shared.devices.iter().for_each(|device| device.close());
        }
    }
}

fn miss(counter: &Counter, reason: MissReason) -> ReadOutcome {
    counter.add(1);
    ReadOutcome::Miss(reason)
}
