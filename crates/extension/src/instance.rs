//! An instance: directory, admission, the list of staged pages and the files of one share of all pages, under one lock.
//!
//! A page belongs to one instance for good, chosen by its file and extent, so that threads that are busy with different
//! extents rarely meet at a lock. The lock is held for a lookup or a change of some entries, never during a read, a write or
//! a copy of a page. How often it was taken, and how often it was found held, is counted under the lock itself.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};

use crate::admission::Admission;
use crate::device::Device;
use crate::directory::{Directory, Entry, Kind, Slot};
use crate::page::{FileId, PageId};
use crate::shared::Shared;
use crate::staging::{Filling, Frame, NONE, Pinned};
use crate::statistics::{Counter, InstanceStatistics};

pub(crate) struct Instance {
    state: Mutex<InstanceState>,
    /// Entries removed because their page was written. Raised under the lock, read without it.
    removals: AtomicU64,
    pub counters: Counters,
}

/// Counted without the lock.
#[derive(Default)]
pub(crate) struct Counters {
    pub hits: Counter,
    pub hits_staged: Counter,
    pub hits_located: Counter,
    pub absent: Counter,
    pub device_failed: Counter,
    pub device_error: Counter,
    pub reclaimed: Counter,
    pub invalidated_during: Counter,
    pub failed_proof: Counter,
    pub collision: Counter,
    pub unsuitable: Counter,
    pub not_locatable: Counter,
    pub offered: Counter,
    pub admitted: Counter,
    pub rejected: Counter,
    pub already_cached: Counter,
    pub stale: Counter,
    pub staging_full: Counter,
    pub directory_full: Counter,
    pub invalidated: Counter,
}

impl Counters {
    pub fn misses(&self) -> u64 {
        [
            &self.absent,
            &self.device_failed,
            &self.device_error,
            &self.reclaimed,
            &self.invalidated_during,
            &self.failed_proof,
            &self.collision,
            &self.unsuitable,
        ]
        .iter()
        .map(|counter| counter.get())
        .sum()
    }
}

pub(crate) struct InstanceState {
    pub directory: Directory,
    pub admission: Admission,
    /// Every file that has had a page here and is not forgotten, with the pages it has (approximate).
    files: HashMap<FileId, FilePages>,
    head: Frame,
    tail: Frame,
    staged: u64,
    pub accesses: u64,
    lock_accesses: u64,
    lock_waits: u64,
}

#[derive(Default)]
struct FilePages {
    cached: u64,
    /// Highest page number entered.
    highest: u32,
}

/// A page on a device, as it was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub device: usize,
    pub location: u32,
    pub kind: Kind,
    pub check: u32,
    /// Of the segment.
    pub sequence: u32,
    /// Of the instance.
    pub removals: u64,
}

pub(crate) enum Found<'a> {
    Absent,
    Staged(Pinned<'a>, u64),
    OnDevice(Spot),
    DeviceFailed,
}

impl Instance {
    pub fn new(directory: Directory, admission: Admission) -> Instance {
        Instance {
            state: Mutex::new(InstanceState {
                directory,
                admission,
                files: HashMap::new(),
                head: NONE,
                tail: NONE,
                staged: 0,
                accesses: 0,
                lock_accesses: 0,
                lock_waits: 0,
            }),
            removals: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, InstanceState> {
        let mut waits = 0;
        let mut state = self.state.try_lock().unwrap_or_else(|| {
            waits = 1;
            self.state.lock()
        });
        state.lock_accesses += 1;
        state.lock_waits += waits;
        state
    }

    /// Without the lock: whether an entry found when `removals` was read may have been removed by a write since.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    /// Under the lock.
    pub fn note_removal(&self) {
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.counters.invalidated.add(1);
    }

    pub fn statistics(&self) -> InstanceStatistics {
        let state = self.state.lock();
        InstanceStatistics {
            accesses: state.accesses,
            lock_accesses: state.lock_accesses,
            lock_waits: state.lock_waits,
            hits: self.counters.hits.get(),
            misses: self.counters.misses(),
            pages: state.directory.used(),
            staged: state.staged,
            capacity: state.directory.capacity(),
        }
    }

    pub fn threshold(&self) -> f64 {
        self.state.lock().admission.threshold()
    }

    pub fn file_pages(&self, files: &[FileId], sums: &mut [u64]) {
        let state = self.state.lock();
        for (file, sum) in files.iter().zip(sums) {
            *sum += state.files.get(file).map_or(0, |pages| pages.cached);
        }
    }
}

impl InstanceState {
    /// The entry of a page, if there is one: an entry of a staged page names the page exactly, one of a page on a device may
    /// be that of another page with the same fingerprint.
    pub fn find(&self, shared: &Shared, page: PageId) -> Option<(Slot, Entry)> {
        let slot = self.directory.find(self.directory.key(page))?;
        let entry = self.directory.get(slot);
        (entry.kind != Kind::STAGED || shared.staging.page(entry.location) == page)
            .then_some((slot, entry))
    }

    /// Finds a page for reading, counts the hit.
    pub fn look_up<'a>(
        &mut self,
        shared: &'a Shared,
        instance: &Instance,
        page: PageId,
    ) -> Found<'a> {
        let Some((slot, entry)) = self.find(shared, page) else {
            return Found::Absent;
        };
        let removals = instance.removals();
        if entry.kind == Kind::STAGED {
            self.directory.touch(slot);
            return Found::Staged(shared.staging.pin(entry.location), removals);
        }
        let at = shared
            .devices
            .iter()
            .position(|device| device.geometry.holds(entry.location));
        let Some(device) = at.filter(|&at| shared.devices[at].health.active()) else {
            return Found::DeviceFailed;
        };
        self.directory.touch(slot);
        let Device {
            geometry, table, ..
        } = &shared.devices[device];
        Found::OnDevice(Spot {
            device,
            location: entry.location,
            kind: entry.kind,
            check: entry.check,
            sequence: table.sequence(geometry.segment_of(entry.location)),
            removals,
        })
    }

    /// Enters a filled frame as a staged page, in place of whatever its key finds. The caller has compared generations.
    pub fn stage(
        &mut self,
        shared: &Shared,
        instance: &Instance,
        page: PageId,
        filling: Filling<'_>,
    ) {
        let key = self.directory.key(page);
        if let Some(slot) = self.directory.find(key) {
            let old = self.directory.remove(slot);
            shared.entry_removed(old);
        }
        let frame = filling.stage();
        let entry = Entry {
            check: shared.staging.check(frame),
            location: frame,
            kind: Kind::STAGED,
            clock: 0,
        };
        if let Some(victim) = self.directory.insert(key, entry) {
            shared.entry_removed(victim);
            instance.counters.directory_full.add(1);
        }
        let file = self.files.entry(page.file).or_default();
        file.cached += 1;
        file.highest = file.highest.max(page.page);
        if self.tail == NONE {
            self.head = frame;
        } else {
            shared.staging.set_next(self.tail, frame);
        }
        self.tail = frame;
        self.staged += 1;
    }

    /// Takes the next frame off the list.
    pub fn take_staged<'a>(&mut self, shared: &'a Shared) -> Option<Pinned<'a>> {
        if self.head == NONE {
            return None;
        }
        let frame = self.head;
        self.head = shared.staging.next(frame);
        if self.head == NONE {
            self.tail = NONE;
        }
        self.staged -= 1;
        Some(shared.staging.collected(frame))
    }

    /// Bytes of the next frame on the list.
    pub fn next_staged(&self, shared: &Shared) -> Option<usize> {
        (self.head != NONE).then(|| shared.staging.length(self.head))
    }

    /// Removes an entry known to be this page's.
    pub fn remove(&mut self, shared: &Shared, page: PageId, slot: Slot) {
        let entry = self.directory.remove(slot);
        shared.entry_removed(entry);
        if let Some(file) = self.files.get_mut(&page.file) {
            file.cached = file.cached.saturating_sub(1);
        }
    }

    /// The entry of the page, if it is still the one that was found in this place.
    pub fn still(&self, page: PageId, location: u32, kind: Kind) -> Option<(Slot, Entry)> {
        let slot = self.directory.find(self.directory.key(page))?;
        let entry = self.directory.get(slot);
        (entry.location == location && entry.kind == kind).then_some((slot, entry))
    }

    /// The highest page of a file that may have an entry here; `None` if there is none, or the file was forgotten.
    pub fn highest_page(&self, file: FileId) -> Option<u32> {
        self.files.get(&file).map(|pages| pages.highest)
    }

    pub fn forget(&mut self, file: FileId) {
        self.files.remove(&file);
    }

    /// Entries have been removed without knowing whose: brings the counts of pages in line.
    pub fn scale_files(&mut self, before: u64) {
        let now = self.directory.used();
        for file in self.files.values_mut() {
            file.cached =
                (u128::from(file.cached) * u128::from(now) / u128::from(before.max(1))) as u64;
        }
    }
}
