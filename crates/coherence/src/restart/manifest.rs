//! The persisted state: records of the data files, in memory that outlives the process.
//!
//! A record holds a file's cache identity and its stored stamp. [`crate::restart::stamp`] has the protocol and the argument.
//!
//! A process may die between any two instructions. So a record never claims more than is true at that instant:
//!
//! - A new identity is stored before the change that requires it.
//! - A stamp is stored after the change. Until then the file's own stamp differs, and the file is not proven.
//! - A thread that stops tracking files stores that first ([`Manifest::detach`]).
//!
//! Each field is one atomic word, initially zero. Their orders are `SeqCst`: after a death only the order of the instructions
//! counts, not the view of another processor.

use crate::platform::os::{FileSystem, Os, Stat};
use crate::platform::sync::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use crate::restart::stamp::{FileIdentity, VOID, change_stamp};

/// Step in which identities are announced. So no identity is assigned twice, whenever the process ends.
const STEP: u64 = 4096;
/// Above this number, identities start again with an empty cache.
const MAX_IDS: u64 = 1 << 31;

/// The header of the memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Head {
    /// For the owner of the memory: its format, its server and the boot of the host.
    pub mark: [AtomicU64; 8],
    /// The session of the cache that holds the records' pages; 0: none.
    session: AtomicU64,
    /// How often tracking has stopped, or was found to be incomplete.
    detached: AtomicU64,
    /// The value of `detached` when the current tracking period began.
    tracked_since: AtomicU64,
    /// Identities from this one on were never assigned.
    ids: AtomicU64,
    /// The sign of life `L`: the coarse clock of the file systems, nanoseconds since 1970.
    pub(super) alive: AtomicI64,
    /// The uptime of the host at the last sign of life, nanoseconds.
    pub(super) since_boot: AtomicU64,
    /// The superblock of the data directory; 0: stamps prove nothing there.
    pub(super) superblock: AtomicU64,
    /// The process has stopped cleanly: no change is in flight, and all data are durable.
    pub(super) stopped: AtomicU64,
    /// The highest LSN of a written page.
    lsn: AtomicU64,
    /// The page size that the cache is laid out for, bytes.
    page: AtomicU64,
    /// The host's uptime when this process recovered another one's state, nanoseconds; 0: it has recovered none.
    pub(super) taken_over: AtomicU64,
    /// This process has ended itself because of an error.
    pub(super) crashed: AtomicU64,
    /// The settings of the cache layout, and its result: bytes of memory, and of each device.
    settings: AtomicU64,
    memory: AtomicU64,
    sizes: [AtomicU64; DEVICES],
}

impl Head {
    /// Offset of the data directory's superblock, bytes.
    pub const SUPERBLOCK_OFFSET: usize = std::mem::offset_of!(Head, superblock);
}

/// Maximum number of devices whose sizes are kept.
const DEVICES: usize = 32;

/// Within this time after a recovery, the recovered state may have caused a crash. Nanoseconds.
const CRASH_WINDOW: u64 = 600_000_000_000;

/// The record of one file.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Record {
    /// 0: the record is free.
    pub(super) used: AtomicU64,
    pub(super) device: AtomicU64,
    pub(super) inode: AtomicU64,
    /// 0: unknown, as the next.
    pub(super) birth: AtomicU64,
    pub(super) superblock: AtomicU64,
    subvolume: [AtomicU64; 2],
    /// The file's identity in the cache.
    pub(super) id: AtomicU64,
    /// Lower half: page size, bytes. Upper half: the first page number.
    pub(super) shape: AtomicU64,
    pub(super) pages: AtomicU64,
    /// The stored stamp `r`; 0: none; [`VOID`]: a change was not tracked.
    pub(super) stamp: AtomicI64,
    /// 1: written through the page cache since the last clean stop. Pages that the kernel has not written back may be lost.
    pub(super) buffered: AtomicU64,
}

/// Access to the persisted state.
#[derive(Debug)]
pub struct Manifest {
    pub(super) head: &'static Head,
    records: &'static [Record],
    /// Number of usable records.
    room: AtomicUsize,
    memory: Memory,
}

/// Functions that the owner of the memory provides.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// [`Os::file_time`].
    pub now: fn() -> i64,
    /// Allocates memory for this number of records. Returns whether it succeeded.
    pub grow: fn(usize) -> bool,
}

pub(super) fn set(word: &AtomicU64, value: u64) {
    #[cfg(all(test, debug_assertions, not(checker)))]
    crate::testing::failpoint::may_die();
    word.store(value, Ordering::SeqCst);
}

pub(super) fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}

impl Manifest {
    /// Creates a manifest in which the first `room` records are usable.
    pub fn new(
        head: &'static Head,
        records: &'static [Record],
        room: usize,
        memory: Memory,
    ) -> Manifest {
        Manifest {
            head,
            records,
            room: AtomicUsize::new(room.min(records.len())),
            memory,
        }
    }

    /// The record of the file object with this number, which counts from 1; `None` if there is no memory for it.
    #[inline]
    pub fn record(&self, owner: u32) -> Option<&'static Record> {
        let at = owner.checked_sub(1)? as usize;
        // Acquire: pairs with the store in `make_room`. The records that it counts are allocated before.
        (at < self.room.load(Ordering::Acquire)).then(|| &self.records[at])
    }

    /// Allocates a record for a new file object, if possible. Only one thread at a time may call it.
    pub fn make_room(&self, owner: u32) {
        let (wanted, room) = (owner as usize, self.room.load(Ordering::SeqCst));
        if wanted <= room || room >= self.records.len() {
            return;
        }
        let more = wanted.max(room * 2).min(self.records.len());
        if (self.memory.grow)(more) {
            self.room.store(more, Ordering::SeqCst);
        }
    }

    /// Number of usable records.
    pub fn room(&self) -> usize {
        self.room.load(Ordering::SeqCst)
    }

    /// The header of the memory.
    pub fn head(&self) -> &'static Head {
        self.head
    }

    pub(super) fn known(&self) -> &'static [Record] {
        &self.records[..self.room.load(Ordering::SeqCst)]
    }

    /// The session of the cache that holds the records' pages.
    pub fn session(&self) -> Option<u64> {
        Some(self.head.session.load(Ordering::SeqCst)).filter(|&session| session != 0)
    }

    /// The page size that the cache is laid out for, bytes.
    pub fn page(&self) -> Option<u32> {
        let page = self.head.page.load(Ordering::SeqCst);
        u32::try_from(page).ok().filter(|&page| page != 0)
    }

    /// Stores the page size for this process and the next.
    pub fn lay_out_for(&self, page: u32) {
        set(&self.head.page, page.into());
    }

    /// Stores the layout that resulted from these settings: bytes of memory, and of each device. The next process then uses the
    /// same layout, even if the available space has changed.
    pub fn remember(&self, settings: u64, memory: u64, sizes: &[u64]) {
        set(&self.head.settings, 0);
        if sizes.len() > DEVICES {
            return;
        }
        set(&self.head.memory, memory);
        let all = sizes.iter().chain(std::iter::repeat(&0));
        let words = self.head.sizes.iter();
        words.zip(all).for_each(|(word, size)| set(word, *size));
        set(&self.head.settings, settings);
    }

    /// The layout that the previous process stored for these settings.
    pub fn remembered(&self, settings: u64) -> Option<(u64, Vec<u64>)> {
        let get = |word: &AtomicU64| word.load(Ordering::SeqCst);
        let sizes = self.head.sizes.iter().map(get);
        let sizes = sizes.take_while(|&size| size != 0).collect();
        (get(&self.head.settings) == settings).then(|| (get(&self.head.memory), sizes))
    }

    /// Records the end of tracking. Call before tracking stops.
    pub fn detach(&self) {
        if canary!("off-keeps-live") {
            return;
        }
        self.head.detached.fetch_add(1, Ordering::SeqCst);
    }

    /// Marks the persisted cache as unusable.
    pub fn abandon(&self) {
        set(&self.head.session, 0);
    }

    /// How often tracking has stopped. Call before tracking starts.
    pub fn detached(&self) -> u64 {
        self.head.detached.load(Ordering::SeqCst)
    }

    /// Stores that the cache of this session is active. `since`: the value of [`detached`](Self::detached) when the current
    /// tracking began. If `detached` has increased since then, tracking had a gap ([`is_tracked`](Self::is_tracked)).
    pub fn attach(&self, session: Option<u64>, since: u64) {
        debug_assert!(since <= self.detached());
        set(&self.head.session, session.unwrap_or(0));
        set(&self.head.tracked_since, since);
    }

    /// Whether tracking has had no gap since the cache became active.
    pub fn is_tracked(&self) -> bool {
        self.head.tracked_since.load(Ordering::SeqCst) == self.detached()
    }

    /// Announces an identity before a file gets it.
    #[inline]
    pub fn announce(&self, id: u32) {
        if u64::from(id) >= self.head.ids.load(Ordering::SeqCst) {
            self.head
                .ids
                .fetch_max(u64::from(id) + STEP, Ordering::SeqCst);
        }
        debug_assert!(u64::from(id) < self.head.ids.load(Ordering::SeqCst));
    }

    /// The highest identity that may have been assigned. `None`: too many were.
    pub fn given(&self) -> Option<u32> {
        let ids = self.head.ids.load(Ordering::SeqCst);
        (ids < MAX_IDS).then_some(ids as u32)
    }

    /// Stores a sign of life.
    pub fn note_life(&self, os: &impl Os) {
        self.live();
        let since_boot = u64::try_from(os.since_boot()).unwrap_or(0);
        set(&self.head.since_boot, since_boot);
    }

    /// Records that a change is about to start: revokes a clean stop.
    #[inline]
    pub fn begin_change(&self) {
        self.live();
        if get(&self.head.stopped) != 0 {
            set(&self.head.stopped, 0);
        }
    }

    /// Stores a sign of life, by the file systems' clock only.
    #[inline]
    pub fn live(&self) {
        let now = (self.memory.now)();
        if self.head.alive.load(Ordering::SeqCst) != now {
            self.head.alive.store(now, Ordering::SeqCst);
        }
    }

    /// Records the LSN of a written page.
    #[inline]
    pub fn note_lsn(&self, lsn: u64) {
        // Relaxed: only the maximum matters.
        if lsn > self.head.lsn.load(Ordering::Relaxed) {
            self.head.lsn.fetch_max(lsn, Ordering::Relaxed);
        }
    }

    /// Takes the highest LSN of a page that the previous process wrote. From now on this process counts its own.
    pub(crate) fn take_lsn(&self) -> u64 {
        self.head.lsn.swap(0, Ordering::SeqCst)
    }

    /// Records that the process is about to end itself because of an error.
    pub fn crash(&self) {
        self.head.crashed.store(1, Ordering::SeqCst);
    }

    /// Whether the recovered state may have caused the crash of the previous process.
    pub fn crashed_soon(&self) -> bool {
        let taken_over = get(&self.head.taken_over);
        let lived = get(&self.head.since_boot).saturating_sub(taken_over);
        get(&self.head.crashed) != 0 && taken_over != 0 && lived < CRASH_WINDOW
    }

    /// Records that the persisted state was unusable. A crash is then unrelated to it.
    pub fn took_nothing(&self) {
        set(&self.head.taken_over, 0);
    }

    /// Removes all file records.
    pub fn clear(&self) {
        self.abandon();
        if self.given().is_none() {
            set(&self.head.ids, 0);
        }
        for word in [
            &self.head.taken_over,
            &self.head.crashed,
            &self.head.stopped,
            &self.head.lsn,
        ] {
            set(word, 0);
        }
        self.known().iter().for_each(Record::free);
    }

    /// The superblock of the data directory that the records refer to.
    pub fn superblock(&self) -> u64 {
        get(&self.head.superblock)
    }

    /// Records of an unproven snapshot prove nothing to a later process either. Call before they count as records of this boot:
    /// the number of the superblock may be the same in two boots.
    pub fn distrust(&self) {
        if !canary!("unproven-image") {
            self.be_on(0);
        }
    }

    /// Stores the superblock of this process's data directory; 0: stamps prove nothing there.
    pub fn be_on(&self, superblock: u64) {
        set(&self.head.superblock, superblock);
    }

    /// The latest stored stamp of any file.
    pub fn latest_stamp(&self) -> i64 {
        let stamps = self.known().iter().filter_map(Record::stored_stamp);
        stamps.max().unwrap_or(0)
    }

    /// Records a clean stop: no change is in flight, and all data are durable. A later change revokes it.
    pub fn stop_cleanly(&self) {
        set(&self.head.stopped, 1);
    }
}

impl Record {
    /// Frees the record.
    pub fn free(&self) {
        if get(&self.used) != 0 {
            set(&self.used, 0);
        }
    }

    /// Stores the file's new identity.
    #[inline]
    pub fn identify(&self, id: u32) {
        debug_assert_ne!(id, 0);
        if get(&self.id) != id.into() {
            set(&self.id, id.into());
        }
    }

    /// Stores the file's page size in bytes, and its first page number.
    pub fn shape(&self, page_size: u32, base: u32) {
        debug_assert!(page_size == 0 || page_size.is_power_of_two());
        set(&self.shape, u64::from(page_size) | u64::from(base) << 32);
    }

    /// Stores the approximate number of the file's cached pages.
    pub fn count(&self, pages: u64) {
        set(&self.pages, pages);
    }

    /// Stores the identity and the stamp of a file at its first open.
    pub fn open(&self, file: &FileIdentity, stat: &Stat) {
        // First: the old stamp belongs to another file, or the identity below changes word by word.
        self.store_stamp(0);
        let system = file.system.unwrap_or_default();
        set(&self.device, file.inode.0);
        set(&self.inode, file.inode.1);
        set(&self.birth, file.birth.unwrap_or(0));
        set(&self.superblock, system.superblock);
        set(&self.subvolume[0], system.subvolume as u64);
        set(&self.subvolume[1], (system.subvolume >> 64) as u64);
        if get(&self.used) == 0 {
            set(&self.buffered, 0);
            set(&self.used, 1);
        }
        debug_assert_eq!(self.is_provable(), file.is_provable());
        if file.is_provable() {
            self.store_stamp(change_stamp(stat));
        }
    }

    /// Whether a stamp of the file can prove anything.
    pub(super) fn is_provable(&self) -> bool {
        get(&self.superblock) != 0 && get(&self.birth) != 0
    }

    pub(super) fn store_stamp(&self, stamp: i64) {
        #[cfg(all(test, debug_assertions, not(checker)))]
        crate::testing::failpoint::may_die();
        self.stamp.store(stamp, Ordering::SeqCst);
    }

    fn stored_stamp(&self) -> Option<i64> {
        let stamp = self.stamp.load(Ordering::SeqCst);
        (get(&self.used) != 0 && stamp != VOID).then_some(stamp)
    }

    /// Stores the file's stamp after a change by the server. Two threads may store theirs in reverse order, so the later stamp
    /// wins. The file has had each of them, and only equality with its current stamp proves anything.
    #[inline]
    pub fn stamp(&self, stat: &Stat) {
        debug_assert_ne!(change_stamp(stat), VOID);
        if stat.inode == (get(&self.device), get(&self.inode)) {
            #[cfg(all(test, debug_assertions, not(checker)))]
            crate::testing::failpoint::may_die();
            self.stamp.fetch_max(change_stamp(stat), Ordering::SeqCst);
        }
    }

    /// Whether the stored stamp equals the file's current one.
    pub fn is_stamped(&self, stat: &Stat) -> bool {
        self.stamp.load(Ordering::SeqCst) == change_stamp(stat)
    }

    /// Makes the stamp prove nothing until the file is opened.
    pub fn reject(&self) {
        self.store_stamp(0);
    }

    /// Records an untracked change: the file is not proven until it is reopened. The change may use the page cache.
    pub fn void(&self) {
        self.note_buffered();
        self.store_stamp(VOID);
    }

    /// Records a write through the page cache. Call before that write's stamp is stored.
    pub fn note_buffered(&self) {
        set(&self.buffered, 1);
    }

    pub(super) fn identity(&self) -> FileIdentity {
        let known = |word: u64| Some(word).filter(|&word| word != 0);
        let subvolume =
            u128::from(get(&self.subvolume[0])) | u128::from(get(&self.subvolume[1])) << 64;
        FileIdentity {
            inode: (get(&self.device), get(&self.inode)),
            birth: known(get(&self.birth)),
            system: known(get(&self.superblock)).map(|superblock| FileSystem {
                superblock,
                subvolume,
            }),
        }
    }
}

#[cfg(all(test, not(checker)))]
mod tests {
    use super::*;

    #[test]
    fn crash_counts_within_window_after_recovery() {
        let head: &Head = Box::leak(Box::default());
        let memory = Memory {
            now: || 1,
            grow: |_| false,
        };
        let manifest = Manifest::new(head, &[], 0, memory);
        let recovered_at = 77;
        let ends_at = |uptime: u64| {
            set(&head.taken_over, recovered_at);
            set(&head.since_boot, uptime);
        };
        ends_at(recovered_at + CRASH_WINDOW - 1);
        assert!(!manifest.crashed_soon(), "it was stopped");
        manifest.crash();
        assert!(manifest.crashed_soon());
        ends_at(recovered_at + CRASH_WINDOW);
        assert!(!manifest.crashed_soon(), "it had run for long");
        ends_at(recovered_at + 1);
        assert!(manifest.crashed_soon());
        manifest.took_nothing();
        assert!(!manifest.crashed_soon(), "it had recovered nothing");
    }
}
