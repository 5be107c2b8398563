//! An instance: directory, policy, list of staged pages and files of one share of all pages, under one lock.
//!
//! A page permanently belongs to one instance, determined by its file and extent. So threads that work on different extents
//! rarely contend for a lock. The lock is held for a lookup or a change of some entries, never during a read, a write or a
//! copy of a page. Acquisitions and contended acquisitions are counted under the lock itself.
//!
//! The room also has what all instances share, and what [`crate::api`] and [`crate::log`] exchange through them:
//! - [`staging`]: memory of admitted pages that wait for a writer.
//! - [`store`]: staging and devices, the places that entries refer to.
//! - [`balancing`]: distribution of pages over the devices.
//! - [`shared`]: all state of an extension.
//! - [`arena`]: memory of directories that outlives the process.
//!
//! [`file_table`] has the files of one instance.

pub(crate) mod arena;
pub(crate) mod balancing;
mod file_table;
pub(crate) mod shared;
pub(crate) mod staging;
pub(crate) mod store;

use std::ops::{Deref, DerefMut};

use crate::common::group::Group;
use crate::common::page::{FileId, PageId};
use crate::common::statistics::{Counter, InstanceStatistics};
use crate::common::sync::{AtomicU64, Mutex, MutexGuard, Ordering};
use crate::common::violations::Violations;
use crate::device::Device;
use crate::index::directory::tags::Tags;
use crate::index::directory::{Directory, Entry, Kind, Slot};
use crate::index::forgotten::{Forgotten, Next};
use crate::policy::list::Chosen;
use crate::policy::{Candidate, Places};
use file_table::FileTable;
use staging::{Filling, FrameList, Pinned};
use store::Store;

/// Waiting pages that are compared when staging is full.
const DISPLACED_AMONG: usize = 16;
/// Limit of evictions for one admitted page.
const MAX_EVICTIONS: u64 = 4;

/// Pages of forgotten files that are looked up in one lock hold: less than 20 us.
pub(crate) const PIECE: usize = 32;
/// Files whose pages are counted in one lock hold: likewise.
const COUNTED: usize = 128;

/// Buckets whose groups are visited in one lock hold when groups are forgotten; and the limit of passes over all buckets.
const WALKED: usize = 4096;
const MAX_WALKS: usize = 4;

pub(crate) struct Instance {
    state: Mutex<InstanceState>,
    /// Entries removed for any reason. Updated before the lock is released, read without it.
    removals: AtomicU64,
    pub counters: Counters,
}

/// Counted without the lock.
#[derive(Default)]
pub(crate) struct Counters {
    pub hits: Counter,
    pub hit_bytes: Counter,
    pub hits_staged: Counter,
    pub hits_located: Counter,
    pub absent: Counter,
    /// Of `absent`: the page had been accessed recently.
    pub returned: Counter,
    pub device_failed: Counter,
    pub device_error: Counter,
    pub reclaimed: Counter,
    pub invalidated_during: Counter,
    pub failed_proof: Counter,
    pub collision: Counter,
    pub unsuitable: Counter,
    /// The page is cached, but there was no free request of its device or no memory.
    pub no_request: Counter,
    pub candidates: Counter,
    pub admitted: Counter,
    pub rejected: Counter,
    pub rejected_bytes: Counter,
    /// Of `rejected`: by the limit of the page's group.
    pub limited: Counter,
    pub already_cached: Counter,
    pub stale: Counter,
    pub staging_full: Counter,
    pub write_limit: Counter,
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
            &self.no_request,
        ]
        .iter()
        .map(|counter| counter.get())
        .sum()
    }
}

pub(crate) struct InstanceState {
    pub directory: Directory,
    pub policy: Chosen,
    /// Bucket at which the search for a victim of a warmed page continues.
    pub warm_hand: u32,
    /// Forgotten files whose pages may have entries.
    pub forgotten: Forgotten,
    files: FileTable,
    staged: FrameList,
    /// Limit of pages of each group in this instance; 0: no limit.
    most: [u64; Group::COUNT],
    pub accesses: u64,
    /// Accesses when the policy last learned, and after how many it learns again.
    learned_at: u64,
    learn_every: u64,
    lock_accesses: u64,
    lock_waits: u64,
}

/// A page on a device, as found under the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spot {
    pub device: u32,
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

/// Result of clearing one piece.
#[derive(Default)]
pub(crate) struct Piece {
    pub removed: usize,
    /// Files whose pages were all looked up.
    pub ended: usize,
}

impl Instance {
    /// Instance number `at` of `instances`.
    pub fn new(directory: Directory, policy: Chosen, at: usize, instances: u32) -> Instance {
        Instance {
            state: Mutex::new(InstanceState {
                learn_every: policy.learn_every(),
                directory,
                policy,
                warm_hand: 0,
                forgotten: Forgotten::new(at, instances),
                files: FileTable::new(),
                staged: FrameList::EMPTY,
                most: [0; Group::COUNT],
                accesses: 0,
                learned_at: 0,
                lock_accesses: 0,
                lock_waits: 0,
            }),
            removals: AtomicU64::new(0),
            counters: Counters::default(),
        }
    }

    pub fn lock(&self) -> Locked<'_> {
        let mut waits = 0;
        let mut state = self.state.try_lock().unwrap_or_else(|| {
            waits = 1;
            self.state.lock()
        });
        state.lock_accesses += 1;
        state.lock_waits += waits;
        Locked {
            removals: &self.removals,
            state,
        }
    }

    /// Number of removed entries; read without the lock. If it has not changed since an entry was found, the entry is still
    /// there, so its page has not been written since.
    ///
    /// `SeqCst` alone does not order this load after earlier loads. The read provides the order: the reader has returned from
    /// the system call that brought the bytes, and no processor executes later loads before that. The bytes of a frame do not
    /// change while it is pinned.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    /// For tests that break it.
    #[cfg(test)]
    pub fn set_removals(&self, removals: u64) {
        self.removals.store(removals, Ordering::SeqCst);
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
            staged: state.staged.length,
            capacity: state.directory.capacity(),
        }
    }

    /// Sets the page limit of each group; 0: no limit. Pass `tags` if a group is `used` and the directory has no tags yet. If no
    /// group is `used`, the directory drops its tags. Entries of unused groups then belong to no group.
    pub fn change_groups(
        &self,
        tags: Option<Tags>,
        used: &[bool; Group::COUNT],
        most: [u64; Group::COUNT],
    ) {
        let mut state = self.lock();
        state.most = most;
        let needed = used.contains(&true);
        let before = if !needed || tags.is_some() {
            state.directory.change_tags(tags.filter(|_| needed))
        } else {
            None
        };
        debug_assert_eq!(state.directory.has_tags(), needed);
        let buckets = state.directory.buckets();
        drop(state);
        drop(before);
        // Repeated: an insertion may move an entry from a later range into a finished one, and a concurrent read may tag one.
        for _ in 0..MAX_WALKS {
            for first in (0..buckets).step_by(WALKED) {
                if self.lock().directory.forget_unused(first, WALKED, used) == 0 {
                    return;
                }
            }
        }
    }

    /// Bytes of the groups of its entries.
    pub fn tag_bytes(&self) -> u64 {
        self.state.lock().directory.tag_bytes()
    }

    pub fn has_tags(&self) -> bool {
        self.state.lock().directory.has_tags()
    }

    pub fn buckets(&self) -> usize {
        self.state.lock().directory.buckets()
    }

    /// Pages of each group, as far as known.
    pub fn group_pages(&self) -> [u64; Group::COUNT] {
        let state = self.state.lock();
        std::array::from_fn(|number| state.directory.count(Group::from_bits(number as u32)))
    }

    /// Pages for which it was sized.
    pub fn capacity(&self) -> u64 {
        self.state.lock().directory.capacity()
    }

    /// Bytes of the table of files.
    pub fn file_bytes(&self) -> u64 {
        self.state.lock().files.memory_bytes()
    }

    /// Adds the cached pages of these files, as far as known. Holds the lock for [`COUNTED`] files at a time.
    pub fn file_pages(&self, files: &[FileId], sums: &mut [u64]) {
        for (files, sums) in files.chunks(COUNTED).zip(sums.chunks_mut(COUNTED)) {
            let state = self.state.lock();
            let alive = state.directory.used().saturating_sub(state.staged.length);
            for (file, sum) in files.iter().zip(sums) {
                *sum += state.files.share(*file, alive);
            }
        }
    }
}

/// An instance whose lock is held. Before the lock is released, removals are published for lock-free readers: once a page
/// has no entry, it can be written without another removal.
pub(crate) struct Locked<'a> {
    removals: &'a AtomicU64,
    state: MutexGuard<'a, InstanceState>,
}

impl Deref for Locked<'_> {
    type Target = InstanceState;

    #[inline]
    fn deref(&self) -> &InstanceState {
        &self.state
    }
}

impl DerefMut for Locked<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut InstanceState {
        &mut self.state
    }
}

impl Drop for Locked<'_> {
    #[inline]
    fn drop(&mut self) {
        let gone = self.state.directory.gone();
        // Relaxed: it is only written under the lock that is held here.
        if gone != self.removals.load(Ordering::Relaxed) {
            self.removals.store(gone, Ordering::SeqCst);
        }
    }
}

impl InstanceState {
    /// The entry of a page. An entry of a staged page names the page exactly. An entry of a page on a device may be that of
    /// another page with the same fingerprint.
    pub fn find(&self, store: &Store, page: PageId) -> Option<(Slot, Entry)> {
        let slot = self.directory.find(self.directory.key(page))?;
        let entry = self.directory.get(slot);
        (entry.kind != Kind::STAGED || store.staging.page(entry.location) == page)
            .then_some((slot, entry))
    }

    /// The slot of the page's entry, as [`find`](Self::find) finds it.
    pub fn slot_of(&self, store: &Store, page: PageId) -> Option<Slot> {
        self.find(store, page).map(|(slot, _)| slot)
    }

    /// Where to read a page of this group. `found` is the slot that was just looked up. Counts the hit for the policy.
    pub fn look_up<'a>(
        &mut self,
        store: &'a Store,
        instance: &Instance,
        page: PageId,
        group: Group,
        found: Option<Slot>,
    ) -> Found<'a> {
        debug_assert_eq!(found, self.slot_of(store, page), "an outdated slot");
        let Some(slot) = found else {
            return Found::Absent;
        };
        let entry = self.directory.get(slot);
        // The entry may predate the rule, or may have been made by another process.
        self.directory.mark(slot, group);
        let removals = instance.removals();
        if entry.kind == Kind::STAGED {
            let places = &mut Places::new(&mut self.directory);
            self.policy.hit(places, page, slot, entry);
            return Found::Staged(store.staging.pin(entry.location), removals);
        }
        let at = store
            .devices
            .iter()
            .position(|device| device.geometry.holds(entry.location));
        let Some(device) = at.filter(|&at| store.devices[at].health.answers()) else {
            return Found::DeviceFailed;
        };
        let places = &mut Places::new(&mut self.directory);
        self.policy.hit(places, page, slot, entry);
        let Device {
            geometry, table, ..
        } = &store.devices[device];
        Found::OnDevice(Spot {
            device: device as u32,
            location: entry.location,
            kind: entry.kind,
            check: entry.check,
            sequence: table.sequence(geometry.segment_of(entry.location)),
            removals,
        })
    }

    /// Enters a filled frame as a staged page, and replaces the entry that its key finds. The caller has compared generations.
    /// `warmed`: access count at the server on whose behalf the page is admitted.
    pub fn stage(
        &mut self,
        store: &Store,
        instance: &Instance,
        page: PageId,
        group: Group,
        filling: Filling<'_>,
        warmed: Option<u32>,
    ) {
        let key = self.directory.key(page);
        if let Some(slot) = self.directory.find(key) {
            self.remove(store, slot);
        }
        let frame = filling.stage();
        debug_assert_eq!(store.staging.page(frame), page);
        let places = &mut Places::new(&mut self.directory).of(group, None);
        let clock = match warmed {
            None => self.policy.entered(places, page),
            Some(count) => self.policy.seed(places, page, count),
        };
        let entry = Entry {
            check: store.staging.check(frame),
            location: frame,
            kind: Kind::STAGED,
            clock,
        };
        if let Some(victim) = self.directory.insert(key, entry, group) {
            self.entry_removed(store, victim);
            instance.counters.directory_full.add(1);
        }
        self.may_have(page);
        self.staged.push(&store.staging, frame);
        debug_assert!(self.still(page, frame, Kind::STAGED).is_some());
    }

    /// Pages of the file up to this one, about `records` of them, may have persisted entries.
    pub fn trust(&mut self, page: PageId, records: u64) {
        let file = self.files.enter(page.file);
        file.persisted = file.persisted.max(Some(page.page));
        self.files.add(page.file, records);
    }

    /// Pages of the file up to this one may have entries.
    pub fn may_have(&mut self, page: PageId) {
        let file = self.files.enter(page.file);
        file.entered = file.entered.max(Some(page.page));
    }

    /// Passes a read of a page of this group to the policy, and lets it learn from time to time. `found` is the slot that was
    /// just looked up. Returns whether the policy remembers an earlier read.
    #[inline]
    pub fn record_access(
        &mut self,
        page: PageId,
        group: Group,
        found: Option<Slot>,
        store: &Store,
    ) -> bool {
        self.accesses += 1;
        let places = &mut Places::new(&mut self.directory).of(group, None);
        let known = self.policy.accessed(places, page, found);
        if self.accesses - self.learned_at >= self.learn_every {
            self.learned_at = self.accesses;
            self.policy.learn(!store.has_spare_room());
        }
        known
    }

    /// Passes a write of a page to the policy.
    pub fn record_write(&mut self, page: PageId) {
        let places = &mut Places::new(&mut self.directory);
        self.policy.written(places, page);
    }

    /// Whether the policy prefers the page to its victim. The victim is of the page's group if that group is at its limit.
    pub fn admits(&mut self, page: PageId, group: Group, what: Candidate) -> bool {
        let only = self.is_at_limit(group).then_some(group);
        let places = &mut Places::new(&mut self.directory).of(group, only);
        self.policy.admits(places, page, what)
    }

    /// Whether the group is at its limit: a further page must replace one of its pages.
    #[inline]
    pub fn is_at_limit(&self, group: Group) -> bool {
        let most = self.most[group.number()];
        most != 0 && self.directory.count(group) >= most
    }

    /// A group that exceeds its limit, because the limit was lowered.
    fn above_limit(&self) -> Option<Group> {
        if !self.directory.has_tags() {
            return None;
        }
        let groups = (0..Group::COUNT as u32).map(Group::from_bits);
        let is_above = |group: &Group| {
            let most = self.most[group.number()];
            most != 0 && self.directory.count(*group) > most
        };
        groups.into_iter().find(is_above)
    }

    /// Evicts pages until there is room for one of this group, at most `MAX_EVICTIONS`. Returns their number.
    pub fn evict(&mut self, store: &Store, group: Group) -> u64 {
        for evicted in 0..MAX_EVICTIONS {
            let is_full = !store.balancing().has_room(0)
                || self.directory.used() >= self.directory.capacity();
            let own = self.is_at_limit(group).then_some(group);
            if !is_full && own.is_none() {
                return evicted;
            }
            let only = own.or_else(|| self.above_limit());
            let mut victim = self.victim(group, only);
            if victim.is_none() && own.is_none() && only.is_some() {
                victim = self.victim(group, None);
            }
            let Some(slot) = victim else {
                return evicted;
            };
            // Evicting a staged page would leave its frame in the list.
            debug_assert_ne!(self.directory.get(slot).kind, Kind::STAGED);
            self.evict_this(store, slot);
        }
        MAX_EVICTIONS
    }

    fn victim(&mut self, group: Group, only: Option<Group>) -> Option<Slot> {
        let places = &mut Places::new(&mut self.directory).of(group, only);
        self.policy.victim(places)
    }

    pub fn evict_this(&mut self, store: &Store, slot: Slot) {
        let entry = self.directory.remove(slot);
        #[cfg(test)]
        if store.canary.skip_counting_evictions() {
            self.directory.forget_one_gone();
        }
        store.entry_removed(entry);
    }

    /// Behaves as if the policy had chosen this victim.
    #[cfg(all(test, checker))]
    pub fn evict_page(&mut self, store: &Store, page: PageId) -> bool {
        let Some((slot, _)) = self.find(store, page) else {
            return false;
        };
        self.evict_this(store, slot);
        true
    }

    /// Call when a page was written to a device.
    pub fn note_record(&mut self, file: FileId) {
        self.files.add(file, 1);
    }

    /// Call for each page of a segment that is reclaimed.
    pub fn forget_record(&mut self, file: FileId) {
        self.files.subtract(file);
    }

    /// Takes the next frame off the list.
    pub fn take_staged<'a>(&mut self, store: &'a Store) -> Option<Pinned<'a>> {
        self.staged.take(&store.staging, self.staged.first()?)
    }

    /// Bytes of the next frame on the list.
    pub fn next_staged(&self, store: &Store) -> Option<usize> {
        self.staged.first().map(|frame| store.staging.length(frame))
    }

    /// Checks that each page in the list has a staged entry, and that the list's length is right. Returns the length.
    pub fn validate_staged(&self, store: &Store, violations: &mut Violations) -> u64 {
        let mut listed = 0;
        for frame in self.staged.iter(&store.staging) {
            listed += 1;
            if listed > self.staged.length {
                break;
            }
            let page = store.staging.page(frame);
            let entry = self.still(page, frame, Kind::STAGED);
            violations.expect(entry.is_some(), || {
                format!("frame {frame} of {page:?} is listed, and has no entry")
            });
        }
        violations.equal(self.staged.length, listed, "pages in the list");
        listed
    }

    pub fn remove(&mut self, store: &Store, slot: Slot) {
        let entry = self.directory.remove(slot);
        self.entry_removed(store, entry);
    }

    /// A frame that waits for a writer is removed with its entry.
    fn entry_removed(&mut self, store: &Store, entry: Entry) {
        if entry.kind == Kind::STAGED {
            debug_assert!(store.staging.is_in_use(entry.location));
            drop(self.staged.take(&store.staging, entry.location));
        }
        store.entry_removed(entry);
    }

    /// Call when staging is full. Among the oldest waiting pages of this length, drops the one with the lowest score if `page`
    /// scores higher. Returns whether one was dropped.
    pub fn displace(&mut self, store: &Store, page: PageId, length: usize, update: bool) -> bool {
        let staging = &store.staging;
        let places = Places::new(&mut self.directory);
        let score = |page| self.policy.score(&places, page);
        let waiting = self.staged.iter(staging).take(DISPLACED_AMONG);
        let least = waiting
            .filter(|&frame| staging.length(frame) == length)
            .map(|frame| (score(staging.page(frame)), frame))
            .min_by_key(|&(score, _)| score);
        let Some((least, frame)) = least else {
            return false;
        };
        if score(page) + u32::from(update) <= least {
            return false;
        }
        self.remove_if_same(store, staging.page(frame), frame, Kind::STAGED)
    }

    /// The page's entry, if it is still the one that was found in this place.
    pub fn still(&self, page: PageId, location: u32, kind: Kind) -> Option<(Slot, Entry)> {
        let slot = self.directory.find(self.directory.key(page))?;
        let entry = self.directory.get(slot);
        (entry.location == location && entry.kind == kind).then_some((slot, entry))
    }

    /// Removes the page's entry if it is still the one that was found in this place. Returns whether it was.
    pub fn remove_if_same(
        &mut self,
        store: &Store,
        page: PageId,
        location: u32,
        kind: Kind,
    ) -> bool {
        let still = self.still(page, location, kind);
        if let Some((slot, _)) = still {
            self.remove(store, slot);
        }
        still.is_some()
    }

    /// The highest page of a file that may have an entry here; `None` if there is none, or the file was forgotten.
    pub fn highest_page(&self, file: FileId) -> Option<u32> {
        let pages = self.files.get(file)?;
        pages.entered.max(pages.persisted)
    }

    /// Breaks it: pages are above the known highest one.
    #[cfg(test)]
    pub fn lower_highest(&mut self, file: FileId) {
        self.files.enter(file).entered = Some(0);
    }

    /// Forgets the file. Its persisted pages have numbers below `persisted_end`; 0 leaves them to eviction or to
    /// [`drain`](crate::Extension::drain). Returns whether [`clear_piece`](Self::clear_piece) will remove its pages.
    pub fn forget(&mut self, file: FileId, persisted_end: u32) -> bool {
        let Some((pages, cached)) = self.files.remove(file) else {
            return false;
        };
        let after = |page: u32| u64::from(page) + 1;
        let persisted = match pages.persisted {
            Some(u32::MAX) => persisted_end.into(),
            known => known.map_or(0, after),
        };
        let end = pages.entered.map_or(0, after).max(persisted);
        self.forgotten.add(file, end, cached)
    }

    /// Looks up one piece of pages of forgotten files, and removes their entries.
    pub fn clear_piece(&mut self, store: &Store) -> Piece {
        let mut piece = Piece::default();
        for _ in 0..PIECE {
            match self.forgotten.next() {
                Next::Page(page) => {
                    if let Some((slot, _)) = self.find(store, page) {
                        self.remove(store, slot);
                        piece.removed += 1;
                    }
                }
                Next::Passed => {}
                Next::Ended => piece.ended += 1,
                Next::Nothing => break,
            }
        }
        piece
    }

    /// Scales the page counts of the files after entries of unknown files were removed.
    pub fn scale_files(&mut self, before: u64) {
        self.files.scale(before, self.directory.used());
    }

    /// Checks the counts of the files.
    pub fn validate_files(&self, violations: &mut Violations) {
        self.files.validate(violations);
    }
}
