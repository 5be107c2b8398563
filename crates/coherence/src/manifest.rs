//! The records of the data files, in memory that outlives the process: the persisted state.
//!
//! A record says which file has which identity in the cache, and its stored stamp ([`crate::stamp`], which has the protocol and the argument).
//!
//! A process may die between any two instructions. So a record never claims more than is true:
//!
//! - A new identity is stored before the change that makes it necessary.
//! - A stamp is stored after the change. Until then the file's own stamp differs, and the file is not proven.
//! - Whoever stops tracking files stores that first ([`Manifest::detach`]).
//!
//! All fields are words of their own, zero in the beginning. Orders are `SeqCst`: the order of the instructions counts, not what another
//! processor sees.

use extension::FileId;

use crate::os::{FileSystem, Os, Stat};
use crate::stamp::{FileIdentity, VOID, change_stamp, has_fraction};
use crate::sync::{AtomicI64, AtomicU64, AtomicUsize, Ordering};

/// Identities are announced in steps of this size, so that none is given twice whenever the process ends.
const STEP: u64 = 4096;
/// Beyond this they begin anew, with an empty cache.
const MAX_IDS: u64 = 1 << 31;

/// The beginning of the memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Head {
    /// For the owner of the memory: what it is, whose, and of which start of the machine.
    pub mark: [AtomicU64; 8],
    /// The session of the cache whose pages the records are about; 0: none.
    session: AtomicU64,
    /// How often tracking has stopped, or turned out to be incomplete.
    detached: AtomicU64,
    /// The value of `detached` when the tracking began that has gone on since.
    followed_since: AtomicU64,
    /// Identities from here on were never given.
    ids: AtomicU64,
    /// The sign of life `L`: the coarse clock of the file systems, nanoseconds since 1970.
    alive: AtomicI64,
    /// How long the machine had run at the last sign of life, nanoseconds.
    since_boot: AtomicU64,
    /// The superblock of the data directory; 0: stamps prove nothing there.
    superblock: AtomicU64,
    /// The process has stopped cleanly: no change is in flight, and all data are durable.
    stopped: AtomicU64,
    /// The highest LSN of a page that was written.
    lsn: AtomicU64,
    /// The page size that the cache is laid out for, bytes.
    page: AtomicU64,
    /// When this process recovered the state of another one, since the machine was started; 0: it has not.
    taken_over: AtomicU64,
    /// This process has ended itself.
    crashed: AtomicU64,
    /// By which settings the cache is laid out, and the result: bytes of memory, and of each device.
    settings: AtomicU64,
    memory: AtomicU64,
    sizes: [AtomicU64; DEVICES],
}

impl Head {
    /// Where the superblock of the data directory stands, bytes from the beginning.
    pub const SUPERBLOCK_OFFSET: usize = std::mem::offset_of!(Head, superblock);
}

/// The sizes of so many devices are kept.
const DEVICES: usize = 32;

/// A crash within this time after a recovery may have been caused by what was recovered, nanoseconds.
const CRASH_WINDOW: u64 = 600_000_000_000;

/// Of one file.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Record {
    /// 0: it stands for no file.
    used: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    /// 0: not known, as the next.
    birth: AtomicU64,
    superblock: AtomicU64,
    subvolume: [AtomicU64; 2],
    /// The identity in the cache.
    id: AtomicU64,
    /// Page size, and above it the first page number.
    shape: AtomicU64,
    pages: AtomicU64,
    /// The stored stamp `r`; 0: none; [`VOID`]: a change was not tracked.
    stamp: AtomicI64,
    /// 1: it was written through the page cache since the last clean stop. What the kernel has not written back may be lost yet.
    buffered: AtomicU64,
}

/// The memory.
#[derive(Debug)]
pub struct Manifest {
    head: &'static Head,
    records: &'static [Record],
    /// Records that may be touched.
    room: AtomicUsize,
    memory: Memory,
}

/// What a manifest needs of the owner of its memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// [`Os::file_time`].
    pub now: fn() -> i64,
    /// Makes room for so many records. Returns whether there is.
    pub grow: fn(usize) -> bool,
}

/// What the records may prove to a process that starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    /// The same start of the machine, and the same mount of the data directory.
    SameMount {
        /// Stamps are fine ([`crate::stamp`]).
        has_fine_stamps: bool,
    },
    /// An image of a clean stop. Device number and superblock of the data directory, then and now.
    Image { device: (u64, u64), superblock: u64 },
    /// Nothing: their pages are only listed, for the loader. Device number of the data directory, then and now, and why.
    ListOnly {
        device: (u64, u64),
        superblock: u64,
        why: Rejection,
    },
}

/// What is known of the persisted state when a process starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// Device number and superblock of the data directory now.
    pub device: u64,
    pub superblock: u64,
    /// The records are in memory, of this start of the machine and of this mount of the data directory.
    pub is_same_mount: bool,
    /// Stamps are fine.
    pub has_fine_stamps: bool,
    /// An image was copied: the device number of the data directory when it was written, and whether token and redo log are those of the stop
    /// that wrote it.
    pub image: Option<(u64, bool)>,
}

impl Found {
    /// What the records may prove.
    pub fn recovery(&self) -> Recovery {
        let (now, superblock) = (self.device, self.superblock);
        match self.image {
            None if self.is_same_mount => Recovery::SameMount {
                has_fine_stamps: self.has_fine_stamps,
            },
            // No clean stop before the remount.
            None => Recovery::ListOnly {
                device: (now, now),
                superblock,
                why: Rejection::OtherMount,
            },
            Some((then, true)) => Recovery::Image {
                device: (then, now),
                superblock,
            },
            Some((then, false)) => Recovery::ListOnly {
                device: (then, now),
                superblock,
                why: Rejection::NoProof,
            },
        }
    }
}

/// Why the pages of a file are not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    Changed,
    OtherFile,
    OtherMount,
    OtherSubvolume,
    FileSystem,
    WholeSeconds,
    LastTick,
    Untracked,
    PageCache,
    NoProof,
}

impl Rejection {
    /// For people.
    pub fn text(self) -> &'static str {
        match self {
            Rejection::Changed => "it was changed while the server was down",
            Rejection::OtherFile => "it is another file of the same number",
            Rejection::OtherMount => {
                "its file system was mounted again, and the server was not stopped cleanly before"
            }
            Rejection::OtherSubvolume => "its btrfs subvolume was replaced",
            Rejection::FileSystem => "its file system has no change stamps that prove anything",
            Rejection::WholeSeconds => "its file system keeps no fractions of a second",
            Rejection::LastTick => {
                "it was written right before the server ended, and this kernel has no fine stamps"
            }
            Rejection::Untracked => "a write to it was not tracked to its end",
            Rejection::PageCache => "it was written without O_DIRECT, and the server was killed",
            Rejection::NoProof => "InnoDB has run without the plugin since",
        }
    }

    /// Whether the file still has the pages that were cached of it, perhaps in another version.
    pub fn keeps_pages(self) -> bool {
        self != Rejection::OtherFile
    }
}

fn set(word: &AtomicU64, value: u64) {
    #[cfg(all(test, debug_assertions, not(checker)))]
    crate::failpoint::may_die();
    word.store(value, Ordering::SeqCst);
}

fn get(word: &AtomicU64) -> u64 {
    word.load(Ordering::SeqCst)
}

impl Manifest {
    /// Of the records, as many as `room` may be touched.
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

    /// The record of the file object of this number, which counts from 1; `None` if there is no room for it.
    #[inline]
    pub fn record(&self, owner: u32) -> Option<&'static Record> {
        let at = owner.checked_sub(1)? as usize;
        // Acquire: of the store in `make_room`. What it counts is there before.
        (at < self.room.load(Ordering::Acquire)).then(|| &self.records[at])
    }

    /// Makes room for the record of a new file object, if that is possible. One thread at a time.
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

    /// Records that may be touched.
    pub fn room(&self) -> usize {
        self.room.load(Ordering::SeqCst)
    }

    /// Where it begins.
    pub fn head(&self) -> &'static Head {
        self.head
    }

    fn known(&self) -> &'static [Record] {
        &self.records[..self.room.load(Ordering::SeqCst)]
    }

    /// The cache whose pages the records are about.
    pub fn session(&self) -> Option<u64> {
        Some(self.head.session.load(Ordering::SeqCst)).filter(|&session| session != 0)
    }

    /// The page size that the cache is laid out for, bytes.
    pub fn page(&self) -> Option<u32> {
        let page = self.head.page.load(Ordering::SeqCst);
        u32::try_from(page).ok().filter(|&page| page != 0)
    }

    /// The same, for whoever comes next.
    pub fn lay_out_for(&self, page: u32) {
        set(&self.head.page, page.into());
    }

    /// What has come of these settings: bytes of memory, and of each device. So the next process lays out the cache in the same way,
    /// whatever room there is then.
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

    /// What has come of these settings in the process before.
    pub fn remembered(&self, settings: u64) -> Option<(u64, Vec<u64>)> {
        let get = |word: &AtomicU64| word.load(Ordering::SeqCst);
        let sizes = self.head.sizes.iter().map(get);
        let sizes = sizes.take_while(|&size| size != 0).collect();
        (get(&self.head.settings) == settings).then(|| (get(&self.head.memory), sizes))
    }

    /// Somebody stops following files. To be said before he does.
    pub fn detach(&self) {
        if left_out!("off-keeps-live") {
            return;
        }
        self.head.detached.fetch_add(1, Ordering::SeqCst);
    }

    /// The cache will not be used any more.
    pub fn abandon(&self) {
        set(&self.head.session, 0);
    }

    /// How often somebody has stopped. Before following begins.
    pub fn detached(&self) -> u64 {
        self.head.detached.load(Ordering::SeqCst)
    }

    /// The cache of this session is active, and files have been followed without a gap since [`detached`](Self::detached) said this.
    pub fn attach(&self, session: Option<u64>, since: u64) {
        set(&self.head.session, session.unwrap_or(0));
        set(&self.head.followed_since, since);
    }

    /// Whether files have been followed without a gap since the cache became active.
    pub fn is_followed(&self) -> bool {
        self.head.followed_since.load(Ordering::SeqCst) == self.detached()
    }

    /// This identity is about to be given to a file.
    #[inline]
    pub fn announce(&self, id: u32) {
        if u64::from(id) >= self.head.ids.load(Ordering::SeqCst) {
            self.head
                .ids
                .fetch_max(u64::from(id) + STEP, Ordering::SeqCst);
        }
    }

    /// Identities up to this one may have been given. `None`: too many.
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

    /// A change is about to be made.
    #[inline]
    pub fn begin_change(&self) {
        self.live();
        if get(&self.head.stopped) != 0 {
            set(&self.head.stopped, 0);
        }
    }

    /// Stores a sign of life of the file systems' clock alone.
    #[inline]
    pub fn live(&self) {
        let now = (self.memory.now)();
        if self.head.alive.load(Ordering::SeqCst) != now {
            self.head.alive.store(now, Ordering::SeqCst);
        }
    }

    /// A page was written, which has this LSN.
    #[inline]
    pub fn note_lsn(&self, lsn: u64) {
        // Relaxed: a larger value is all that counts.
        if lsn > self.head.lsn.load(Ordering::Relaxed) {
            self.head.lsn.fetch_max(lsn, Ordering::Relaxed);
        }
    }

    /// The highest LSN of a page that the process before has written. From now on that of this process counts.
    pub(crate) fn take_lsn(&self) -> u64 {
        self.head.lsn.swap(0, Ordering::SeqCst)
    }

    /// The process is about to end itself because something is wrong with it.
    pub fn crash(&self) {
        self.head.crashed.store(1, Ordering::SeqCst);
    }

    /// Whether the process before may have crashed because of what it has recovered.
    pub fn crashed_soon(&self) -> bool {
        let taken_over = get(&self.head.taken_over);
        let lived = get(&self.head.since_boot).saturating_sub(taken_over);
        get(&self.head.crashed) != 0 && taken_over != 0 && lived < CRASH_WINDOW
    }

    /// The persisted state turned out to be of no use: a crash has nothing to do with it.
    pub fn took_nothing(&self) {
        set(&self.head.taken_over, 0);
    }

    /// Forgets all files.
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

    /// The superblock of the data directory of the process whose records these are.
    pub fn superblock(&self) -> u64 {
        get(&self.head.superblock)
    }

    /// The data directory of this process has this superblock; 0: stamps prove nothing there.
    pub fn be_on(&self, superblock: u64) {
        set(&self.head.superblock, superblock);
    }

    /// The latest stored stamp of any file.
    pub fn latest_stamp(&self) -> i64 {
        let stamps = self.known().iter().filter_map(Record::stored_stamp);
        stamps.max().unwrap_or(0)
    }

    /// The process ends cleanly: no change is in flight, and all data are durable. A change that comes all the same takes it back.
    pub fn stop_cleanly(&self) {
        set(&self.head.stopped, 1);
    }

    /// Recovers what another process has left. Returns the number of each file's object, and what is known of it.
    pub fn recover(&self, os: &impl Os, by: Recovery) -> Vec<(u32, PersistedFile)> {
        let was_killed = get(&self.head.stopped) == 0;
        let alive = self.head.alive.load(Ordering::SeqCst);
        let superblock = self.superblock();
        match by {
            Recovery::Image {
                superblock: now, ..
            }
            | Recovery::ListOnly {
                superblock: now, ..
            } => self.be_on(now),
            Recovery::SameMount { .. } => {}
        }
        let mut recovered = Vec::new();
        for (owner, record) in (1..).zip(self.known()) {
            match record.recover(by, superblock, alive, was_killed) {
                Some(file) => recovered.push((owner, file)),
                None => record.free(),
            }
        }
        set(&self.head.stopped, 0);
        self.note_life(os);
        set(&self.head.crashed, 0);
        set(&self.head.taken_over, get(&self.head.since_boot).max(1));
        recovered
    }
}

impl Record {
    /// It stands for no file.
    pub fn free(&self) {
        if get(&self.used) != 0 {
            set(&self.used, 0);
        }
    }

    /// The file has this identity from now on.
    #[inline]
    pub fn identify(&self, id: u32) {
        if get(&self.id) != id.into() {
            set(&self.id, id.into());
        }
    }

    /// Its page size in bytes, and its first page number.
    pub fn shape(&self, page_size: u32, base: u32) {
        set(&self.shape, u64::from(page_size) | u64::from(base) << 32);
    }

    /// About so many pages of it are cached.
    pub fn count(&self, pages: u64) {
        set(&self.pages, pages);
    }

    /// The file has its first descriptor.
    pub fn open(&self, file: &FileIdentity, stat: &Stat) {
        // First: what was stored is about another file, or is replaced word by word.
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
        if file.is_provable() {
            self.store_stamp(change_stamp(stat));
        }
    }

    /// Whether a stamp of the file can prove anything.
    fn is_provable(&self) -> bool {
        get(&self.superblock) != 0 && get(&self.birth) != 0
    }

    fn store_stamp(&self, stamp: i64) {
        #[cfg(all(test, debug_assertions, not(checker)))]
        crate::failpoint::may_die();
        self.stamp.store(stamp, Ordering::SeqCst);
    }

    fn stored_stamp(&self) -> Option<i64> {
        let stamp = self.stamp.load(Ordering::SeqCst);
        (get(&self.used) != 0 && stamp != VOID).then_some(stamp)
    }

    /// The file has this stamp after a change of the server. Two threads may store theirs in the other order, so the later one stays: each is
    /// one that the file has had, and only equality with the one that it has proves anything.
    #[inline]
    pub fn stamp(&self, stat: &Stat) {
        if stat.inode == (get(&self.device), get(&self.inode)) {
            #[cfg(all(test, debug_assertions, not(checker)))]
            crate::failpoint::may_die();
            self.stamp.fetch_max(change_stamp(stat), Ordering::SeqCst);
        }
    }

    /// Whether the stored stamp is the one that the file has.
    pub fn is_stamped(&self, stat: &Stat) -> bool {
        self.stamp.load(Ordering::SeqCst) == change_stamp(stat)
    }

    /// A change was not tracked: the file is not proven until it is opened again.
    pub fn void(&self) {
        self.store_stamp(VOID);
    }

    /// A write goes through the page cache. To be stored before the stamp of that write.
    pub fn note_buffered(&self) {
        set(&self.buffered, 1);
    }

    fn identity(&self) -> FileIdentity {
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

    /// What it says, for a process that starts. `superblock`: of the data directory then; `alive`: the last sign of life.
    fn recover(
        &self,
        by: Recovery,
        superblock: u64,
        alive: i64,
        was_killed: bool,
    ) -> Option<PersistedFile> {
        if get(&self.used) == 0 {
            return None;
        }
        let was_killed = was_killed || get(&self.superblock) != superblock;
        let mut rejection = None;
        let has_fine_stamps = match by {
            Recovery::SameMount { has_fine_stamps } => has_fine_stamps || left_out!("tick-rule"),
            Recovery::Image {
                device,
                superblock: now,
            } => {
                // Files elsewhere: which number their device has now is not known, and the token says nothing of them.
                if get(&self.superblock) != superblock || get(&self.device) != device.0 {
                    return None;
                }
                set(&self.device, device.1);
                set(&self.superblock, now);
                false
            }
            Recovery::ListOnly { device, why, .. } => {
                if get(&self.device) == device.0 {
                    set(&self.device, device.1);
                }
                rejection = Some(why);
                true
            }
        };
        let stamp = self.stamp.load(Ordering::SeqCst);
        if !self.is_provable() {
            rejection = rejection.or(Some(Rejection::FileSystem));
        } else if stamp == 0 || stamp == VOID {
            rejection = rejection.or(Some(Rejection::Untracked));
        } else if !has_fraction(stamp) && !left_out!("whole-seconds") {
            rejection = rejection.or(Some(Rejection::WholeSeconds));
        } else if !has_fine_stamps && stamp >= alive {
            rejection = rejection.or(Some(Rejection::LastTick));
        } else if was_killed && get(&self.buffered) != 0 && !left_out!("page-cache") {
            rejection = rejection.or(Some(Rejection::PageCache));
        }
        // A clean stop syncs the file system of the data directory alone.
        if !was_killed {
            set(&self.buffered, 0);
        }
        if rejection.is_some() {
            // For the process after this one, too, whether this one opens the file or not.
            self.store_stamp(0);
        }
        let (shape, id) = (get(&self.shape), get(&self.id));
        let file = PersistedFile {
            identity: self.identity(),
            id: FileId(id as u32),
            page_size: shape as u32,
            base: (shape >> 32) as u32,
            pages: get(&self.pages),
            stamp,
            rejection,
        };
        // Without a page size nothing was cached of it.
        (file.page_size != 0).then_some(file)
    }
}

/// A file as another process has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PersistedFile {
    pub identity: FileIdentity,
    pub id: FileId,
    /// Bytes.
    pub page_size: u32,
    /// The number of its first page.
    pub base: u32,
    /// About so many of it are cached.
    pub pages: u64,
    stamp: i64,
    /// Why its pages are not served, whatever the file is now.
    rejection: Option<Rejection>,
}

impl PersistedFile {
    /// Whether the pages that were cached of it are those of the file that was opened.
    ///
    /// # Errors
    /// Why that is not proven.
    pub fn prove(&self, file: &FileIdentity, stat: &Stat) -> Result<(), Rejection> {
        if left_out!("inherit-blindly") {
            return Ok(());
        }
        if self.identity.inode != file.inode || self.identity.birth != file.birth {
            return Err(Rejection::OtherFile);
        }
        if let Some(rejection) = self.rejection {
            return Err(rejection);
        }
        let (Some(then), Some(now)) = (self.identity.system, file.system) else {
            return Err(Rejection::FileSystem);
        };
        if then.superblock != now.superblock && !left_out!("superblock") {
            return Err(Rejection::OtherMount);
        }
        if then.subvolume != now.subvolume && !left_out!("subvolume") {
            return Err(Rejection::OtherSubvolume);
        }
        let changed = change_stamp(stat);
        let is_same = if left_out!("stamp-order") {
            changed <= self.stamp
        } else {
            changed == self.stamp
        };
        if is_same {
            Ok(())
        } else {
            Err(Rejection::Changed)
        }
    }
}
