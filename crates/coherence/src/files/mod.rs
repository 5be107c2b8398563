//! Data files: maps the server's descriptors to the InnoDB data files behind them.
//!
//! A [`DataFile`] represents one inode while the server has it open or may reopen it. Hooks find it by descriptor with one
//! array lookup. Its `FileId` identifies its contents inside the cache. A change that is not tracked page by page assigns a
//! new `FileId`, which makes every entry under the previous one unreachable.
//!
//! Data files are never freed. They are reused only after a quarantine (`REST`), so a hook holds a reference without counting it.
//!
//! The descriptor table is written only under the registry's lock, so that table and registry always agree. A slot with a
//! quarantined file would eventually lead to the pages of another inode. Hooks read the table without the lock.

pub mod file_rule;

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64 as Figure};
use std::time::Duration;

use cache::{FileId, Group, MAX_PAGE, MIN_PAGE};

use crate::files::file_rule::{Judge, Treatment, Treatments};
use crate::platform::os::{Os, Stat};
use crate::platform::sync::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering,
};
use crate::restart::manifest::{Manifest, PersistedFile, Record, Rejection};
use crate::restart::recovery::Recoveries;
pub use crate::restart::stamp::Looks;
use crate::restart::stamp::{self, FileIdentity, change_stamp};
use crate::switch::Switch;

/// Closed files to remember, in case the server reopens them unchanged.
const CLOSED_FILES: usize = 32 * 1024;

/// Quarantine of a forgotten file before its object may represent another inode. A thread that found the object before has
/// left the hook by then, or holds a [`Blocked`].
const REST: Duration = Duration::from_secs(60);

/// One started change in the counter of [`DataFile`]. Fewer changes than this are in flight at any time.
const BEGINNING: u64 = 1 << 24;

/// Consecutive reads of a length other than the page size before the page size is learned again.
const RELEARN_AFTER: u32 = 64;

/// Pointer tag in the table: the descriptor was found open during enabling. Each use verifies it.
///
/// A thread that passed our check in a hook while the extension was off may close the descriptor only now. Another thread
/// may then get the same number for another file, and no hook observes it. The delay before the kernel call is unknown.
/// But a thread that uses a descriptor has it open, so asking the kernel at that moment is a proof.
const FOUND: usize = 1;

/// How long found descriptors are verified. After this time no such thread is still before its kernel call.
const PROVE_FOR: Duration = Duration::from_secs(60);

/// A descriptor borrowed for a read, with the file's registration count when it was borrowed.
pub struct Lent {
    pub fd: i32,
    attached: u64,
}

/// One inode that holds an InnoDB tablespace or a part of one.
pub struct DataFile {
    /// Number of this object, and key of the generations. Unchanged when the `FileId` changes.
    pub owner: u32,
    /// Assigns identities, and holds the extension that drops the entries of an old one.
    switch: &'static Switch,
    id: AtomicU32,
    page_size: AtomicU32,
    /// A counter: `Relaxed` everywhere.
    strange_reads: AtomicU32,
    /// Suspensions and in-flight operations that change the whole file. While there are any, no read is cached.
    /// A nonzero count also keeps the object from being reused.
    blocked: AtomicU32,
    /// How often a descriptor of the file was registered.
    attached: AtomicU64,
    /// The registry's list of closed files contains the file.
    listed_as_closed: AtomicBool,
    /// Observed changes of size, times or contents. Lower bits: changes in flight. Upper bits: started changes.
    changes: AtomicU64,
    /// The change stamp is stored after each change.
    stamped: AtomicBool,
    /// Lower half: the descriptor whose flags were checked last. Upper half: the registration count at that time.
    flags_of: AtomicU64,
    /// Pages that another process cached may be served: no write has replaced the identity since.
    inherited: AtomicBool,
    /// Never cached while set: the file is unlinked, or changed through calls that are not tracked.
    barred: AtomicBool,
    /// The effect of the table rules: a [`Treatment`]. Written under the lock of `details`. `Relaxed` everywhere, because it
    /// guards no other memory: the new identity of an excluded file makes its entries unreachable.
    treatment: AtomicU8,
    /// Page reads and writes that bypassed the cache because the rules exclude the file. A statistic, as the next.
    pub kept_out: Figure,
    /// Reads that the cache served. A statistic, as the next: `Relaxed` everywhere.
    pub hits: Figure,
    /// Reads that went to the data file.
    pub misses: Figure,
    /// Difference between the header's page number and the page's position in the file; `u32::MAX` until learned. Nonzero for
    /// later files of the system tablespace. It guards no other memory, so `Relaxed` everywhere: a thread that does not see the
    /// value yet learns it from another page, or admits nothing.
    base: AtomicU32,
    /// Length in pages at the open that proved its recovered pages; 0 without such pages. Guards no other memory: `Relaxed` everywhere.
    inherited_end: AtomicU32,
    details: Mutex<Details>,
}

#[derive(Default)]
struct Details {
    key: (u64, u64),
    name: String,
    /// The server's descriptors of the file. Changed only under the registry's lock.
    descriptors: Vec<i32>,
    /// The change stamp at the last close; `None` if a later change could have the same stamp.
    closed_stamp: Option<i64>,
    /// The persisted state from another process, until the server opens the file.
    persisted: Option<Box<PersistedFile>>,
    later_part: bool,
}

impl DataFile {
    /// Creates a file without descriptors.
    pub fn new(owner: u32, switch: &'static Switch) -> DataFile {
        DataFile {
            owner,
            switch,
            id: AtomicU32::new(0),
            page_size: AtomicU32::new(0),
            strange_reads: AtomicU32::new(0),
            blocked: AtomicU32::new(0),
            attached: AtomicU64::new(0),
            listed_as_closed: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            stamped: AtomicBool::new(false),
            flags_of: AtomicU64::new(0),
            inherited: AtomicBool::new(false),
            barred: AtomicBool::new(false),
            treatment: AtomicU8::new(0),
            kept_out: Figure::new(0),
            hits: Figure::new(0),
            misses: Figure::new(0),
            base: AtomicU32::new(0),
            inherited_end: AtomicU32::new(0),
            details: Mutex::new(Details::default()),
        }
    }

    /// The identity under which the file's pages are cached, or `None` while they may not be cached.
    ///
    /// Loads the identity before it checks the block. A thread that replaces the contents blocks first, and then changes the
    /// identity. So a reader with the new identity either sees the block or reads the new contents.
    #[inline]
    pub fn cacheable(&self) -> Option<FileId> {
        let id = self.id.load(Ordering::SeqCst);
        (!self.is_kept_out()).then_some(FileId(id))
    }

    /// Whether admissions of the file's pages are blocked.
    #[inline]
    pub fn is_kept_out(&self) -> bool {
        self.blocked.load(Ordering::SeqCst) != 0 || self.barred.load(Ordering::SeqCst)
    }

    /// The effect of the table rules on the file. Cost: one load.
    #[inline]
    pub fn treatment(&self) -> Treatment {
        Treatment::from_byte(self.treatment.load(Ordering::Relaxed))
    }

    /// The cache group of the file's pages.
    #[inline]
    pub fn group(&self) -> Group {
        match self.treatment() {
            Treatment::Cached(group) => group,
            Treatment::Excluded => Group::NORMAL,
        }
    }

    /// The identity for dropping pages. Unlike `cacheable`, it also returns one while the file is blocked.
    #[inline]
    pub fn id(&self) -> FileId {
        FileId(self.id.load(Ordering::SeqCst))
    }

    /// Physical page size in bytes; 0 until the server has read a page. No page of the file is cached until then.
    #[inline]
    pub fn page_size(&self) -> u32 {
        self.page_size.load(Ordering::SeqCst)
    }

    /// The page number of a read, if the read covers exactly one page. Learns the page size from the server's reads. When the
    /// server opens a file, it reads page 0 in other lengths too. It reads every other page in the page size.
    #[inline]
    pub fn page_of_read(&self, length: usize, offset: i64) -> Option<u32> {
        let page_size = self.page_size();
        if page_size != 0 && length == page_size as usize {
            if self.strange_reads.load(Ordering::Relaxed) != 0 {
                self.strange_reads.store(0, Ordering::Relaxed);
            }
            return page_number(offset, length);
        }
        self.learn(page_size, length, offset)
    }

    #[cold]
    fn learn(&self, page_size: u32, length: usize, offset: i64) -> Option<u32> {
        if offset == 0 || !length.is_power_of_two() || !(MIN_PAGE..=MAX_PAGE).contains(&length) {
            return None;
        }
        let page = page_number(offset, length)?;
        if page_size == 0 {
            // The first reader wins, and from here on writes are tracked page by page. A write that finds no page size blocks the
            // file and checks again. A reader that learns the size checks the block afterwards (`cacheable`). One sees the other.
            let _ = self.page_size.compare_exchange(
                0,
                length as u32,
                Ordering::SeqCst,
                Ordering::SeqCst,
            );
            self.note_shape();
            return (self.page_size() == length as u32).then_some(page);
        }
        if self.strange_reads.fetch_add(1, Ordering::Relaxed) >= RELEARN_AFTER {
            self.strange_reads.store(0, Ordering::Relaxed);
            self.replace_contents();
            self.page_size.store(length as u32, Ordering::SeqCst);
            self.note_shape();
        }
        None
    }

    /// Learns the page size from the file's own first page, unless it is known.
    pub fn learn_page_size(&self, bytes: u32) {
        // Same protocol as in `learn`.
        let learned = self
            .page_size
            .compare_exchange(0, bytes, Ordering::SeqCst, Ordering::SeqCst);
        if learned.is_ok() {
            self.note_shape();
        }
    }

    /// Whether `header_page` is the header's page number for this position of the file.
    #[inline]
    pub fn header_is(&self, page: u32, header_page: u32) -> bool {
        header_page == page.wrapping_add(self.base.load(Ordering::Relaxed))
    }

    /// Whether a page with this header page number may be at this position. Learns an unknown `base` from it.
    #[inline]
    pub fn header_fits(&self, page: u32, header_page: u32) -> bool {
        let base = self.base.load(Ordering::Relaxed);
        if base == u32::MAX {
            if header_page == 0 || header_page < page {
                return false;
            }
            self.base.store(header_page - page, Ordering::Relaxed);
            self.note_shape();
            return true;
        }
        header_page == page.wrapping_add(base)
    }

    /// Like [`header_fits`](Self::header_fits), but does not learn `base`.
    pub fn header_may_be(&self, page: u32, header_page: u32) -> bool {
        self.base.load(Ordering::Relaxed) == u32::MAX || self.header_is(page, header_page)
    }

    /// Counts a change as in flight. Call before the system call; [`end_change`](Self::end_change) must follow.
    #[inline]
    pub fn begin_change(&self) {
        if canary!("count-after") {
            return;
        }
        self.changes.fetch_add(BEGINNING + 1, Ordering::SeqCst);
        if let Some(manifest) = self.switch.manifest() {
            manifest.begin_change();
        }
    }

    /// Counts a change as complete. Call after the system call.
    #[inline]
    pub fn end_change(&self) {
        if canary!("count-after") {
            return self.note_change();
        }
        self.changes.fetch_sub(1, Ordering::SeqCst);
    }

    /// Counts a change whose end will not be observed.
    #[inline]
    pub fn note_change(&self) {
        self.changes.fetch_add(BEGINNING, Ordering::SeqCst);
        self.void_stamp();
    }

    /// Records a change that is not tracked to its end. Persisted pages stay unproven until the file is reopened.
    pub fn void_stamp(&self) {
        if let Some((_, record)) = self.record().filter(|_| !canary!("io-uring-voids")) {
            record.void();
        }
    }

    /// The manifest and the file's record in it.
    #[inline]
    fn record(&self) -> Option<(&Manifest, &'static Record)> {
        let manifest = self.switch.manifest()?;
        Some((manifest, manifest.record(self.owner)?))
    }

    #[cold]
    fn note_shape(&self) {
        if let Some((_, record)) = self.record() {
            // Relaxed: as for every load of `base`.
            record.shape(self.page_size(), self.base.load(Ordering::Relaxed));
        }
    }

    /// Starts a change that ends when the guard is dropped.
    pub fn change(&self) -> Changing<'_> {
        self.begin_change();
        Changing(self)
    }

    /// The number of started changes, or `None` while one is in flight. Two equal numbers prove that no change happened in between.
    pub fn at_rest(&self) -> Option<u64> {
        let changes = self.changes.load(Ordering::SeqCst);
        (changes % BEGINNING == 0).then_some(changes / BEGINNING)
    }

    /// Blocks serving and admission of the file's pages until the guard is dropped. Does not count as a change.
    pub fn suspend(&self) -> Suspended<'_> {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        Suspended(self)
    }

    /// Assigns a new identity, which makes every cached page of the file unreachable.
    pub fn replace_contents(&self) {
        self.changes.fetch_add(BEGINNING, Ordering::SeqCst);
        let new = self.switch.new_file_id();
        let mut old = self.id.load(Ordering::SeqCst);
        loop {
            // Before the exchange: the old identity is unreachable even if this process dies here. Repeated after a lost race,
            // so that file and record hold the same identity.
            if let Some((_, record)) = self.record() {
                record.identify(new.0);
            }
            self.inherited.store(false, Ordering::SeqCst);
            let exchanged =
                self.id
                    .compare_exchange(old, new.0, Ordering::SeqCst, Ordering::SeqCst);
            match exchanged {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        if let Some(active) = &*self.switch.active() {
            let inherited_end = self.inherited_end.swap(0, Ordering::Relaxed);
            active.extension.forget_file(FileId(old), inherited_end);
        }
    }

    /// Starts an operation that changes the whole file. Blocks the admission of reads until the guard is dropped, and makes the
    /// cached pages unreachable.
    pub fn block(&self) -> Blocked<'_> {
        if canary!("block-after-id") {
            self.replace_contents();
            return self.block_inserts();
        }
        let blocked = self.block_inserts();
        self.replace_contents();
        blocked
    }

    /// Blocks the admission of reads until the guard is dropped. Keeps the cached pages.
    pub fn block_inserts(&self) -> Blocked<'_> {
        self.begin_change();
        self.blocked.fetch_add(1, Ordering::SeqCst);
        Blocked(self)
    }

    /// Excludes the file from caching until the server reopens it. Returns whether it was excluded already.
    pub fn bar(&self) -> bool {
        let before = self.barred.swap(true, Ordering::SeqCst);
        self.replace_contents();
        before
    }

    /// Reverts [`bar`](Self::bar) when the expected operation did not happen.
    pub fn unbar(&self, before: bool) {
        self.barred.store(before, Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        !self.details.lock().descriptors.is_empty()
    }

    /// Prepares a write while no extension is active that could drop the pages: replaces an identity from another process.
    #[inline]
    pub fn write_unseen(&self) {
        if self.inherited.load(Ordering::SeqCst) && !canary!("unseen-writes") {
            self.replace_contents();
        }
    }

    /// Whether pages that another process cached may be served.
    pub fn is_inherited(&self) -> bool {
        self.inherited.load(Ordering::SeqCst)
    }

    /// The name by which the server opened or renamed the file.
    pub fn name(&self) -> String {
        self.details.lock().name.clone()
    }
}

/// While this guard exists, reads of the file are not cached.
pub struct Blocked<'a>(&'a DataFile);

impl<'a> Blocked<'a> {
    /// The blocked file.
    pub fn file(&self) -> &'a DataFile {
        self.0
    }
}

impl Drop for Blocked<'_> {
    fn drop(&mut self) {
        self.0.end_change();
        self.0.blocked.fetch_sub(1, Ordering::SeqCst);
    }
}

/// An in-flight change of a file.
pub struct Changing<'a>(&'a DataFile);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.end_change();
    }
}

/// While this guard exists, no page of the file is served or inserted.
pub struct Suspended<'a>(&'a DataFile);

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        self.0.blocked.fetch_sub(1, Ordering::SeqCst);
    }
}

#[inline]
fn page_number(offset: i64, page_size: usize) -> Option<u32> {
    if offset < 0 || offset as u64 & (page_size as u64 - 1) != 0 {
        return None;
    }
    u32::try_from(offset as u64 / page_size as u64).ok()
}

struct Registry {
    by_inode: HashMap<(u64, u64), &'static DataFile, BuildHasherDefault<DefaultHasher>>,
    /// Quarantined objects and the start of each quarantine, by [`Os::running`].
    resting: VecDeque<(Duration, &'static DataFile)>,
    /// Closed files, the least recently closed first. Some may be open again.
    closed: VecDeque<&'static DataFile>,
    objects: u32,
}

impl Registry {
    const fn new() -> Registry {
        Registry {
            by_inode: HashMap::with_hasher(BuildHasherDefault::new()),
            resting: VecDeque::new(),
            closed: VecDeque::new(),
            objects: 0,
        }
    }

    /// Whether the object represents this inode.
    fn stands(&self, key: (u64, u64), file: &'static DataFile) -> bool {
        self.by_inode
            .get(&key)
            .is_some_and(|known| std::ptr::eq(*known, file))
    }
}

/// A nonempty slot of the descriptor table.
#[derive(Clone, Copy)]
pub struct Entry {
    fd: i32,
    pointer: NonNull<DataFile>,
}

/// How the registry learned of a descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// An open returned the descriptor just now.
    Opened {
        /// The open may have created or truncated the file.
        anew: bool,
    },
    /// The descriptor was found open during enabling.
    Found,
}

/// The tracked files, and the switch that enables tracking.
pub struct Files<O> {
    pub os: O,
    pub switch: Switch,
    /// Maps descriptors to files. Descriptors beyond its end are not tracked: a data file on one of them is never cached.
    table: &'static [Slot],
    /// When descriptors were last found, by [`Os::running`], nanoseconds.
    found_at: AtomicU64,
    /// When the last write with an unobserved end began, likewise.
    unseen_at: AtomicU64,
    /// One more than the highest descriptor ever registered.
    registered_below: AtomicUsize,
    registry: Mutex<Registry>,
    /// Change stamps are fine ([`crate::restart::stamp`]).
    has_fine_stamps: AtomicBool,
    /// The recovery outcome of each persisted file.
    pub recoveries: Recoveries,
    /// The table rules.
    pub treatments: Treatments,
}

/// Slot of the descriptor table: null, or a file, tagged or not.
pub type Slot = AtomicPtr<DataFile>;

/// The slot of an unknown descriptor.
pub const fn empty_slot() -> Slot {
    AtomicPtr::new(std::ptr::null_mut())
}

impl<O: Os> Files<O> {
    /// Creates a registry that tracks no file.
    pub const fn new(os: O, table: &'static [Slot]) -> Files<O> {
        Files {
            os,
            switch: Switch::new(),
            table,
            found_at: AtomicU64::new(0),
            unseen_at: AtomicU64::new(0),
            registered_below: AtomicUsize::new(0),
            registry: Mutex::new(Registry::new()),
            has_fine_stamps: AtomicBool::new(false),
            recoveries: Recoveries::new(),
            treatments: Treatments::new(),
        }
    }

    /// Looks up a descriptor in the table. Cost: one load.
    #[inline(always)]
    pub fn look_up(&self, fd: i32) -> Option<Entry> {
        // Acquire: pairs with the `swap` in `attach`, so that the stores of `start` are visible.
        let pointer = self.table.get(fd as usize)?.load(Ordering::Acquire);
        NonNull::new(pointer).map(|pointer| Entry { fd, pointer })
    }

    /// The data file of a slot, or `None` if a found descriptor now belongs to another file.
    #[inline(always)]
    pub fn file(&'static self, entry: Entry) -> Option<&'static DataFile> {
        if entry.pointer.addr().get() & FOUND != 0 {
            if canary!("no-prove") {
                return file_of(entry.pointer.as_ptr());
            }
            return self.proven(entry.fd);
        }
        // SAFETY: a slot holds null or a pointer to an object that is never freed, tagged as above or not.
        Some(unsafe { entry.pointer.as_ref() })
    }

    /// The data file behind a descriptor of the server.
    #[inline(always)]
    pub fn of_descriptor(&'static self, fd: i32) -> Option<&'static DataFile> {
        self.file(self.look_up(fd)?)
    }

    /// Verifies that a found descriptor still belongs to its file, and unregisters it otherwise.
    #[cold]
    fn proven(&'static self, fd: i32) -> Option<&'static DataFile> {
        let slot = self.table.get(fd as usize)?;
        loop {
            let entry = slot.load(Ordering::SeqCst);
            let file = file_of(entry)?;
            if entry.addr() & FOUND == 0 {
                return Some(file);
            }
            let attached = file.attached.load(Ordering::SeqCst);
            if slot.load(Ordering::SeqCst) != entry {
                continue;
            }
            let key = file.details.lock().key;
            // Outside the registry's lock: `stat` may wait for a file server.
            let is = self.os.stat(fd).is_some_and(|stat| stat.inode == key);
            sync_point!("prove, asked");
            let found_at = Duration::from_nanos(self.found_at.load(Ordering::SeqCst));
            if is && self.os.running().saturating_sub(found_at) <= PROVE_FOR {
                // The query may have taken so long that the object now represents another file.
                if canary!("prove-again") {
                    return Some(file);
                }
                if slot.load(Ordering::SeqCst) != entry
                    || file.attached.load(Ordering::SeqCst) != attached
                {
                    continue;
                }
                return Some(file);
            }
            let mut registry = self.registry.lock();
            // Another thread may have registered an equal entry since. The query did not verify that one.
            let changed = slot.load(Ordering::SeqCst) != entry
                || file.attached.load(Ordering::SeqCst) != attached;
            if changed && !canary!("prove-without-lock") {
                continue;
            }
            if is {
                slot.store(std::ptr::from_ref(file).cast_mut(), Ordering::SeqCst);
                return Some(file);
            }
            slot.store(std::ptr::null_mut(), Ordering::SeqCst);
            self.release(&mut registry, file, fd, None);
            return None;
        }
    }

    /// Verifies the found descriptors of a file. One that was closed unobserved must not count as open.
    fn prove_found(&'static self, file: &'static DataFile) {
        let is_found = |fd: &i32| {
            self.table
                .get(*fd as usize)
                // Acquire: pairs with the `swap` in `attach`.
                .is_some_and(|slot| slot.load(Ordering::Acquire).addr() & FOUND != 0)
        };
        let found: Vec<i32> = {
            let details = file.details.lock();
            details
                .descriptors
                .iter()
                .copied()
                .filter(is_found)
                .collect()
        };
        for fd in found {
            let _ = self.of_descriptor(fd);
        }
    }

    /// The tracked file of an inode, open or not.
    pub fn of_inode(&self, stat: &Stat) -> Option<&'static DataFile> {
        self.of_number(stat.inode)
    }

    /// Like [`of_inode`](Self::of_inode), by device and inode number.
    pub fn of_number(&self, inode: (u64, u64)) -> Option<&'static DataFile> {
        self.registry.lock().by_inode.get(&inode).copied()
    }

    /// Registers an open descriptor of a data file.
    pub fn attach(&'static self, fd: i32, stat: &Stat, name: &[u8], how: Attach) {
        if let Some(known) = self.of_inode(stat) {
            self.prove_found(known);
        }
        // Outside the registry's lock: identification may wait for a file server.
        let identity = self.identify(fd, stat);
        sync_point!("attach");
        let mut registry = self.registry.lock();
        // Hooks do not observe closes while tracking is off, so a late thread must not register its descriptor.
        if !self.switch.mode().follows() && !canary!("attach-while-off") {
            return;
        }
        let slot = self.table.get(fd as usize);
        let found = how == Attach::Found;
        if found && slot.is_some_and(|slot| !slot.load(Ordering::SeqCst).is_null()) {
            return; // an observed open was faster
        }
        let file = self.of(&mut registry, stat.inode, name);
        self.add(&mut registry, file, fd, stat, &identity, how);
        if canary!("store-outside-lock") {
            MutexGuard::unlocked(&mut registry, || sync_point!("attach, registered"));
        } else {
            sync_point!("attach, registered");
        }
        let Some(slot) = slot else {
            file.bar();
            return;
        };
        self.registered_below
            .fetch_max(fd as usize + 1, Ordering::SeqCst);
        let mut entry = std::ptr::from_ref(file).cast_mut();
        if found {
            let now = u64::try_from(self.os.running().as_nanos()).unwrap_or(u64::MAX);
            self.found_at.fetch_max(now, Ordering::SeqCst);
            entry = entry.map_addr(|address| address | FOUND);
        }
        let before = slot.swap(entry, Ordering::SeqCst);
        // A previous entry proves that its close was not observed.
        if let Some(before) = file_of(before) {
            self.release(&mut registry, before, fd, None);
        }
        drop(registry);
        // The server gets a newly opened descriptor only after this.
        self.treat(file);
    }

    /// Replaces the table rules, and applies them to the known files too.
    pub fn judge_by(&'static self, judge: Option<Arc<dyn Judge>>) {
        self.treatments.change(judge);
        for file in self.all() {
            self.treat(file);
        }
    }

    /// Applies the table rules to the file's current name. Evaluates them without holding the file's lock. So it checks rules
    /// and name again before it stores the effect.
    fn treat(&self, file: &'static DataFile) {
        loop {
            let version = self.treatments.version();
            let name = file.name();
            let treatment = self.treatments.of(&name);
            let details = file.details.lock();
            if details.name != name || self.treatments.version() != version {
                continue;
            }
            let byte = treatment.to_byte();
            let before = file.treatment.swap(byte, Ordering::Relaxed);
            drop(details);
            let newly = byte != before && treatment == Treatment::Excluded;
            if newly && !canary!("exclude-keeps") {
                file.replace_contents();
            }
            return;
        }
    }

    /// Unregisters a descriptor that the server is about to close.
    pub fn detach(&'static self, fd: i32) {
        if self.registered(fd) {
            // Outside the registry's lock: `stat` may wait for a file server.
            let last_seen = self.os.stat(fd);
            self.take(fd, last_seen.as_ref());
        }
    }

    fn registered(&self, fd: i32) -> bool {
        self.table
            .get(fd as usize)
            // Acquire: pairs with the `swap` in `attach`.
            .is_some_and(|slot| !slot.load(Ordering::Acquire).is_null())
    }

    /// Removes a descriptor from the table. `last_seen` is the state of its file just before.
    fn take(&'static self, fd: i32, last_seen: Option<&Stat>) {
        let Some(slot) = self.table.get(fd as usize) else {
            return;
        };
        sync_point!("detach");
        let mut registry = self.registry.lock();
        let before = slot.swap(std::ptr::null_mut(), Ordering::SeqCst);
        sync_point!("detach, taken");
        if let Some(file) = file_of(before) {
            self.release(&mut registry, file, fd, last_seen);
        }
    }

    /// Reverts a registration by [`Attach::Found`] if the descriptor belongs to another file.
    pub fn verify_found(&'static self, fd: i32) {
        let _ = self.of_descriptor(fd);
    }

    /// Forgets a closed file whose inode was unlinked or replaced. Call after the system call succeeded.
    pub fn forget_unlinked(&'static self, file: &'static DataFile) {
        let mut registry = self.registry.lock();
        if !file.is_open() {
            file.replace_contents();
            self.rest(&mut registry, file);
        }
    }

    /// Unregisters the previous file of a descriptor that an open just returned. Its close was not observed.
    pub fn opened_anew(&'static self, fd: i32) {
        if self.of_descriptor(fd).is_some() {
            self.take(fd, None);
        }
    }

    /// Stores the new name of a tracked file, and applies the table rules to it.
    pub fn renamed(&self, inode: (u64, u64), name: &[u8]) {
        if let Some(file) = self.of_number(inode) {
            file.details.lock().name = String::from_utf8_lossy(name).into_owned();
            self.treat(file);
        }
    }

    /// Forgets all files and descriptors, after switching off.
    pub fn forget_all(&self) {
        let mut registry = self.registry.lock();
        for slot in &self.table[..self
            .registered_below
            .load(Ordering::SeqCst)
            .min(self.table.len())]
        {
            // Relaxed: slots are written only under the lock that is held here.
            if !slot.load(Ordering::Relaxed).is_null() {
                slot.store(std::ptr::null_mut(), Ordering::SeqCst);
            }
        }
        sync_point!("forget_all, table emptied");
        registry.closed.clear();
        let now = self.os.running();
        let mut files: Vec<&'static DataFile> =
            registry.by_inode.drain().map(|(_, file)| file).collect();
        // A fixed order, which a seed of the model reproduces.
        files.sort_unstable_by_key(|file| file.owner);
        for file in files {
            file.details.lock().descriptors.clear();
            file.free_record();
            registry.resting.push_back((now, file));
        }
    }

    /// A descriptor by which the server has the file open.
    pub fn descriptor_of(&self, file: &'static DataFile) -> Option<i32> {
        let details = file.details.lock();
        let mut in_table = details.descriptors.iter().copied();
        in_table.find(|fd| self.table.get(*fd as usize).is_some())
    }

    /// Borrows a descriptor of the file for a read. The server may close it during the read. So the bytes count only if the
    /// descriptor [is still](Self::is_still) the file's afterwards.
    pub fn lend(&self, file: &'static DataFile) -> Option<Lent> {
        let attached = file.attached.load(Ordering::SeqCst);
        let fd = self.descriptor_of(file)?;
        Some(Lent { fd, attached })
    }

    /// Whether the descriptor belonged to the file throughout, not to another file in between.
    pub fn is_still(&'static self, file: &'static DataFile, lent: &Lent) -> bool {
        let now = self.of_descriptor(lent.fd);
        now.is_some_and(|now| std::ptr::eq(now, file))
            && file.attached.load(Ordering::SeqCst) == lent.attached
    }

    /// Records the start of a write whose end will not be observed.
    pub fn note_unseen_write(&self) {
        let now = u64::try_from(self.os.running().as_nanos()).unwrap_or(u64::MAX);
        self.unseen_at.fetch_max(now.max(1), Ordering::SeqCst);
    }

    /// Whether every in-flight write was observed to start and will be observed to end. A read of pages that the server did not
    /// request may overlap any other write. Writes that began before tracking take at most [`PROVE_FOR`].
    pub fn is_settled(&self) -> bool {
        let now = u64::try_from(self.os.running().as_nanos()).unwrap_or(u64::MAX);
        let is_past = |at: &AtomicU64| {
            let at = at.load(Ordering::SeqCst);
            at == 0 || now.saturating_sub(at) >= PROVE_FOR.as_nanos() as u64
        };
        is_past(&self.found_at) && is_past(&self.unseen_at)
    }

    /// Whether the registry's lock is free, so that a [`crate::testing::sync_point`] point may do more.
    #[cfg(any(test, debug_assertions))]
    pub fn registry_is_free(&self) -> bool {
        self.registry.try_lock().is_some()
    }

    /// Contradictions between registry and table, for tests.
    #[cfg(any(test, debug_assertions))]
    pub fn contradictions(&self) -> Vec<String> {
        let registry = self.registry.lock();
        let mut wrong = Vec::new();
        for (fd, slot) in self.table[..self
            .registered_below
            .load(Ordering::SeqCst)
            .min(self.table.len())]
            .iter()
            .enumerate()
        {
            let Some(file) = file_of(slot.load(Ordering::SeqCst)) else {
                continue;
            };
            let details = file.details.lock();
            if !registry.stands(details.key, file) {
                wrong.push(format!("descriptor {fd} leads to a file at rest"));
            } else if !details.descriptors.contains(&(fd as i32)) {
                wrong.push(format!("descriptor {fd} is none of its file's"));
            }
        }
        wrong
    }

    /// All tracked files.
    pub fn all(&self) -> Vec<&'static DataFile> {
        self.registry.lock().by_inode.values().copied().collect()
    }

    /// Memory of the file objects and the touched part of the descriptor table, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let objects = u64::from(self.registry.lock().objects);
        objects * (size_of::<DataFile>() as u64 + 128) + 4096
    }

    /// Size and modification time of a file from the kernel; `None` if the server does not have it open.
    pub fn looks(&self, file: &'static DataFile) -> Option<Looks> {
        let stat = self.os.stat(self.descriptor_of(file)?)?;
        let same = file.details.lock().key == stat.inode;
        same.then(|| Looks::of(&stat))
    }

    /// The object that represents an inode. Creates it if there is none.
    fn of(
        &'static self,
        registry: &mut Registry,
        key: (u64, u64),
        name: &[u8],
    ) -> &'static DataFile {
        if let Some(file) = registry.by_inode.get(&key) {
            let mut details = file.details.lock();
            if details.name.is_empty() {
                details.name = String::from_utf8_lossy(name).into_owned();
            }
            return file;
        }
        let file = self.fresh(registry);
        file.start(key, name);
        registry.by_inode.insert(key, file);
        file
    }

    /// Adds a descriptor to its file.
    fn add(
        &'static self,
        _registry: &mut Registry,
        file: &'static DataFile,
        fd: i32,
        stat: &Stat,
        identity: &FileIdentity,
        how: Attach,
    ) {
        file.attached.fetch_add(1, Ordering::SeqCst);
        let mut details = file.details.lock();
        let was_open = !details.descriptors.is_empty();
        let is_as_closed = details
            .closed_stamp
            .is_some_and(|stamp| stamp == change_stamp(stat));
        let mut same = was_open || is_as_closed || canary!("reopening");
        let anew = how == (Attach::Opened { anew: true });
        let persisted = details.persisted.take();
        if let Some(persisted) = persisted {
            let outcome = match anew {
                true => Err(Rejection::OtherFile),
                false => persisted.prove(identity, stat),
            };
            let file_is = (&*details.name, stat.size);
            self.recoveries
                .opened(file.owner, &persisted, file_is, outcome);
            same |= outcome.is_ok();
            if outcome.is_ok() {
                let pages = stat.size / i64::from(persisted.page_size.max(1));
                let pages = u32::try_from(pages).unwrap_or(u32::MAX);
                file.inherited_end.store(pages, Ordering::Relaxed);
            }
        }
        details.closed_stamp = None;
        // A descriptor beyond the table is never released, so it is listed once.
        if self.table.get(fd as usize).is_some() || !details.descriptors.contains(&fd) {
            details.descriptors.push(fd);
        }
        drop(details);
        if anew || !same {
            file.replace_contents();
        }
        if let (false, Some((_, record))) = (was_open, file.record()) {
            // Tracking may have begun before the manifest existed.
            record.identify(file.id().0);
            file.note_shape();
            record.open(identity, stat);
            file.stamped.store(identity.is_provable(), Ordering::SeqCst);
        }
        if !was_open {
            file.barred.store(stat.links == 0, Ordering::SeqCst);
        }
    }

    /// Stores the change stamp of a file that the server has just changed through this descriptor. Call after the system call;
    /// for libaio after the submission.
    #[inline]
    pub fn stamp(&self, file: &'static DataFile, fd: i32) {
        // Relaxed: set before the server received the descriptor.
        if file.stamped.load(Ordering::Relaxed) {
            self.store_stamp(file, fd);
        }
    }

    #[inline(never)]
    fn store_stamp(&self, file: &'static DataFile, fd: i32) {
        let Some((_, record)) = file.record() else {
            return;
        };
        let flags_of = file.attached.load(Ordering::SeqCst) << 32 | u64::from(fd.unsigned_abs());
        if file.flags_of.load(Ordering::SeqCst) != flags_of {
            if !self.os.is_direct(fd) {
                record.note_buffered();
            }
            file.flags_of.store(flags_of, Ordering::SeqCst);
        }
        if let Some(stat) = self.os.stat(fd) {
            record.stamp(&stat);
        }
    }

    /// Like [`stamp`](Self::stamp), for a change by name or through an unknown descriptor.
    pub fn stamp_open(&self, file: &'static DataFile) {
        if let Some(fd) = self.descriptor_of(file) {
            self.stamp(file, fd);
        }
    }

    /// Removes a descriptor from its file, after its removal from the table. `last_seen` is the file's state just before.
    fn release(
        &'static self,
        registry: &mut Registry,
        file: &'static DataFile,
        fd: i32,
        last_seen: Option<&Stat>,
    ) {
        let mut details = file.details.lock();
        let Some(at) = details.descriptors.iter().position(|known| *known == fd) else {
            return;
        };
        details.descriptors.swap_remove(at);
        if !details.descriptors.is_empty() {
            return;
        }
        // Relaxed: a setting.
        let has_fine_stamps = self.has_fine_stamps.load(Ordering::Relaxed);
        details.closed_stamp = last_seen
            .map(change_stamp)
            .filter(|&stamp| stamp::is_settled(stamp, self.os.file_time(), has_fine_stamps));
        let gone = last_seen.is_none_or(|stat| stat.links == 0);
        drop(details);
        if gone {
            file.replace_contents();
            self.rest(registry, file);
        } else if !file.listed_as_closed.swap(true, Ordering::SeqCst) {
            registry.closed.push_back(file);
            self.forget_oldest_closed(registry);
        }
    }

    /// Quarantines an object, which then represents no inode. Does nothing for a quarantined object.
    fn rest(&'static self, registry: &mut Registry, file: &'static DataFile) {
        let key = file.details.lock().key;
        if registry.stands(key, file) {
            registry.by_inode.remove(&key);
            file.free_record();
            registry.resting.push_back((self.os.running(), file));
        }
    }

    /// Forgets the least recently closed files beyond `CLOSED_FILES`. Their cached pages become unreachable: a reopened file gets
    /// another identity.
    fn forget_oldest_closed(&'static self, registry: &mut Registry) {
        while registry.closed.len() > CLOSED_FILES {
            let Some(file) = registry.closed.pop_front() else {
                return;
            };
            file.listed_as_closed.store(false, Ordering::SeqCst);
            if file.is_open() {
                continue; // open again; the next close lists it
            }
            let key = file.details.lock().key;
            if registry.stands(key, file) {
                file.replace_contents();
                self.rest(registry, file);
            }
        }
    }

    fn fresh(&'static self, registry: &mut Registry) -> &'static DataFile {
        let rested = registry
            .resting
            .front()
            .is_some_and(|(since, _)| self.os.running().saturating_sub(*since) >= REST)
            || canary!("rest");
        if let Some((_, file)) = rested.then(|| registry.resting.pop_front()).flatten() {
            // A thread has been in a hook for that long, and will use the object again.
            if file.blocked.load(Ordering::SeqCst) == 0 {
                return file;
            }
            registry.resting.push_back((self.os.running(), file));
        }
        registry.objects += 1;
        if let Some(manifest) = self.switch.manifest() {
            manifest.make_room(registry.objects);
        }
        Box::leak(Box::new(DataFile::new(registry.objects, &self.switch)))
    }
}

#[cfg(test)]
impl<O> Files<O> {
    /// Frees the objects and the table, which are leaked.
    ///
    /// # Safety
    /// No thread may use any of them afterwards.
    pub(crate) unsafe fn free(&mut self) {
        let mut registry = self.registry.lock();
        let mut files: Vec<_> = registry.by_inode.drain().map(|(_, file)| file).collect();
        files.extend(registry.resting.drain(..).map(|(_, file)| file));
        for file in files {
            // SAFETY: leaked by `fresh`, and contained in one of the two collections.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(file).cast_mut()) });
        }
        let table = std::ptr::from_ref(self.table).cast_mut();
        // SAFETY: leaked by the test.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// The file of a table entry, tagged or not.
fn file_of(entry: *mut DataFile) -> Option<&'static DataFile> {
    // SAFETY: as in `Files::file`.
    unsafe { entry.map_addr(|address| address & !FOUND).as_ref() }
}

/// Whether a path has a name that InnoDB gives to files whose pages are worth caching. Correctness does not depend on it:
/// an untracked file is never cached.
pub fn is_data_file_name(path: &[u8]) -> bool {
    let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
    let undo = name.strip_prefix(b"undo").is_some_and(|rest| {
        let digits = rest.strip_prefix(b"_").unwrap_or(rest);
        digits.len() == 3 && digits.iter().all(u8::is_ascii_digit)
    });
    name.ends_with(b".ibd") || name.ends_with(b".ibu") || undo || name.starts_with(b"ibdata")
}

impl DataFile {
    fn start(&self, key: (u64, u64), name: &[u8]) {
        let mut details = self.details.lock();
        let file_name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        // `ibdata1` starts at page 0 of its tablespace; a second file continues where the first one ends.
        let later_part = file_name.starts_with(b"ibdata") && file_name != b"ibdata1";
        *details = Details {
            key,
            name: String::from_utf8_lossy(name).into_owned(),
            descriptors: Vec::new(),
            closed_stamp: None,
            persisted: None,
            later_part,
        };
        self.base.store(
            if details.later_part { u32::MAX } else { 0 },
            Ordering::Relaxed,
        );
        self.page_size.store(0, Ordering::SeqCst);
        self.strange_reads.store(0, Ordering::Relaxed);
        self.listed_as_closed.store(false, Ordering::SeqCst);
        self.barred.store(false, Ordering::SeqCst);
        self.treatment.store(0, Ordering::Relaxed);
        self.kept_out.store(0, Ordering::Relaxed);
        self.hits.store(0, Ordering::Relaxed);
        self.misses.store(0, Ordering::Relaxed);
        self.inherited.store(false, Ordering::SeqCst);
        self.inherited_end.store(0, Ordering::Relaxed);
        self.stamped.store(false, Ordering::SeqCst);
        let id = self.switch.new_file_id();
        if let Some((_, record)) = self.record() {
            record.identify(id.0);
        }
        self.note_shape();
        self.id.store(id.0, Ordering::SeqCst);
    }

    fn free_record(&self) {
        if let Some((_, record)) = self.record() {
            record.free();
        }
    }
}

#[cfg(test)]
impl DataFile {
    /// A file without descriptors.
    pub fn for_test() -> DataFile {
        DataFile::new(1, Box::leak(Box::default()))
    }
}

mod persisted;
#[cfg(all(test, not(checker)))]
mod persisted_tests;
#[cfg(test)]
mod registry_tests;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for name in [
            "./t/a.ibd",
            ".//undo001",
            "./undo_002",
            "ibdata1",
            "mysql.ibd",
            "x/ts.ibu",
        ] {
            assert!(is_data_file_name(name.as_bytes()), "{name}");
        }
        for name in [
            "ib_logfile0",
            "#ib_16384_0.dblwr",
            "ib_buffer_pool",
            "ibtmp1",
            "a.cfg",
            "undone",
            "temp_1.ibt",
            // MariaDB 12.3 stores its binary log in InnoDB pages.
            "binlog-000001.ibb",
        ] {
            assert!(!is_data_file_name(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn page_size_is_learned_from_a_read_that_is_not_of_page_zero() {
        let file = DataFile::for_test();
        assert_eq!(file.page_of_read(16384, 0), None);
        assert_eq!(file.page_of_read(65536, 0), None);
        assert_eq!(file.page_of_read(1 << 20, 1 << 20), None);
        assert_eq!(file.page_of_read(8192, 3 * 8192), Some(3));
        assert_eq!(file.page_size(), 8192);
        assert_eq!(file.page_of_read(8192, 0), Some(0));
        assert_eq!(file.page_of_read(8192, 4096), None);
        assert_eq!(file.page_of_read(16384, 16384), None);
    }

    #[test]
    fn a_wrong_page_size_is_learned_anew_under_a_new_identity() {
        let file = DataFile::for_test();
        assert_eq!(file.page_of_read(4096, 4096), Some(1));
        let before = file.id();
        for _ in 0..=RELEARN_AFTER {
            assert_eq!(file.page_of_read(16384, 16384), None);
        }
        assert_eq!(file.page_of_read(16384, 16384), Some(1));
        assert_ne!(file.id(), before);
    }

    #[test]
    fn a_blocked_or_barred_file_is_not_cacheable() {
        let file = DataFile::for_test();
        let before = file.cacheable();
        assert!(before.is_some());
        {
            let _blocked = file.block();
            assert_eq!(file.cacheable(), None);
        }
        assert!(file.cacheable().is_some());
        assert_ne!(file.cacheable(), before);
        file.bar();
        assert_eq!(file.cacheable(), None);
    }

    #[test]
    fn a_file_is_at_rest_when_no_change_is_under_way() {
        let file = DataFile::for_test();
        let first = file.at_rest();
        assert!(first.is_some());
        {
            let _growing = file.change();
            file.begin_change();
            assert_eq!(file.at_rest(), None);
        }
        assert_eq!(file.at_rest(), None, "one of two is over");
        file.end_change();
        let second = file.at_rest();
        assert!(second > first);
        file.note_change();
        assert!(file.at_rest() > second);
        let third = file.at_rest();
        let suspended = file.suspend();
        assert_eq!(file.cacheable(), None);
        assert_eq!(file.at_rest(), third, "to suspect it does not change it");
        drop(suspended);
        assert!(file.cacheable().is_some());
        drop(file.block());
        assert!(file.at_rest() > third);
    }

    #[test]
    fn later_files_of_a_tablespace_learn_their_first_page() {
        let file = DataFile::for_test();
        file.start((1, 2), b"./ibdata2");
        assert!(file.header_may_be(3, 9));
        assert!(file.header_fits(3, 771));
        assert!(file.header_fits(4, 772));
        assert!(!file.header_fits(5, 5));
        assert!(file.header_is(4, 772) && !file.header_is(4, 773));
        assert!(file.header_may_be(4, 772) && !file.header_may_be(4, 773));
        file.start((1, 2), b"./ibdata1");
        assert!(file.header_fits(5, 5) && !file.header_fits(5, 6));
    }
}
