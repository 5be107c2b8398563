//! Which descriptors of the server are InnoDB data files, and what became of those files.
//!
//! A [`DataFile`] stands for one inode while the server has it open or may open it again. Hooks find it by descriptor
//! with one array lookup. Its identity inside the cache is a `FileId`, which is replaced whenever the contents may have
//! changed in a way that was not followed page by page; whatever is cached under the old one is then out of reach.
//!
//! Data files are never freed, only reused after a long rest, so that a hook may hold a reference without counting.
//!
//! The table from descriptors to files is written under the registry's lock only, so that what it says and what the registry
//! knows never differ: a descriptor that leads to a file at rest would sooner or later lead to the pages of another inode.
//! Hooks read the table without the lock.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64 as Figure};
use std::time::Duration;

use extension::{FileId, Group, MAX_PAGE, MIN_PAGE};

use crate::manifest::{Manifest, PersistedFile, Record, Rejection};
use crate::os::{Os, Stat};
use crate::recovery::Recoveries;
pub use crate::stamp::Looks;
use crate::stamp::{self, FileIdentity, change_stamp};
use crate::switch::Switch;
use crate::sync::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering,
};
use crate::treatment::{Judge, Treatment, Treatments};

/// Closed files that are remembered, in case the server opens them again unchanged.
const CLOSED_FILES: usize = 32 * 1024;

/// A file that was forgotten rests this long before its memory stands for another one. A thread that found it before has
/// left the hook by then, or holds a [`Blocked`].
const REST: Duration = Duration::from_secs(60);

/// In [`DataFile`]'s count of changes: one beginning. Fewer changes than this are under way at any time.
const BEGINNING: u64 = 1 << 24;

/// Reads of another length than the page size in a row before the page size is learned anew.
const RELEARN_AFTER: u32 = 64;

/// In a pointer of the table: the descriptor was found open while switching on, and is proven each time it is used.
///
/// A thread that had passed our line in a hook while the extension was off may close the descriptor only now, and another
/// one may get its number for another file, unseen. How long a thread can be on its way to the kernel nobody knows; but one
/// that uses a descriptor has it open, so asking the kernel then is a proof.
const FOUND: usize = 1;

/// After this no thread is on its way any more.
const PROVE_FOR: Duration = Duration::from_secs(60);

/// A descriptor that is read by, and how often one of its file was registered until then.
pub struct Lent {
    pub fd: i32,
    attached: u64,
}

/// One inode that holds an InnoDB tablespace or a part of one.
pub struct DataFile {
    /// Number of this object; stays when the `FileId` changes. Key of the generations.
    pub owner: u32,
    /// Gives identities, and knows who has to forget what is cached under an old one.
    switch: &'static Switch,
    id: AtomicU32,
    page_size: AtomicU32,
    /// Only a count: `Relaxed` everywhere.
    strange_reads: AtomicU32,
    /// Operations under way that change the whole file: while there are any, no read is cached.
    /// Also keeps the object from being reused.
    blocked: AtomicU32,
    /// How often a descriptor of it was registered.
    attached: AtomicU64,
    /// Waits in the registry's list of closed files.
    listed_as_closed: AtomicBool,
    /// Changes of size, times or contents that were seen: in the lower bits those under way, above them the beginnings.
    changes: AtomicU64,
    /// Its change stamp is stored after each change.
    stamped: AtomicBool,
    /// The descriptor whose flags were looked at last, and above it the count of registrations then.
    flags_of: AtomicU64,
    /// Pages that another process has cached of it may be served, and no write has replaced its identity since.
    inherited: AtomicBool,
    /// Never cached while set: unlinked, or changed through calls that we do not follow.
    barred: AtomicBool,
    /// What the rules for tables say of it: a [`Treatment`]. Written under the lock of its details. It stands for itself, so `Relaxed`
    /// everywhere: what is cached of an excluded file goes out of reach by its identity.
    treatment: AtomicU8,
    /// Page reads and writes that passed the cache by because the rules exclude the file. A figure, as the next.
    pub kept_out: Figure,
    /// Reads that the cache served. A figure, as the next: `Relaxed` everywhere.
    pub hits: Figure,
    /// Reads that went to the data file.
    pub misses: Figure,
    /// First-page number by which the header's page number exceeds the page's place in the file (later files of the
    /// system tablespace); `u32::MAX` until learned. Stands for itself, so `Relaxed` everywhere: who sees no value yet learns it
    /// from another page, or takes nothing in.
    base: AtomicU32,
    /// Length in pages at the open that proved its inherited pages; 0 without such pages. Guards no other memory: `Relaxed` everywhere.
    inherited_end: AtomicU32,
    details: Mutex<Details>,
}

#[derive(Default)]
struct Details {
    key: (u64, u64),
    name: String,
    /// Those the server has of the file. Changed under the registry's lock only.
    descriptors: Vec<i32>,
    /// Its change stamp when the last descriptor was closed, if any later change has another.
    closed_stamp: Option<i64>,
    /// As another process has left it, until it is opened.
    persisted: Option<Box<PersistedFile>>,
    later_part: bool,
}

impl DataFile {
    /// One that no descriptor stands for.
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

    /// The identity under which the file's pages are cached now, unless they may not be.
    ///
    /// The block is looked at after the identity: whoever replaces the contents first blocks, then changes the
    /// identity, so that a reader that got the new identity either sees the block or reads the new contents.
    #[inline]
    pub fn cacheable(&self) -> Option<FileId> {
        let id = self.id.load(Ordering::SeqCst);
        (!self.is_kept_out()).then_some(FileId(id))
    }

    /// Whether nothing of the file may be inserted just now.
    #[inline]
    pub fn is_kept_out(&self) -> bool {
        self.blocked.load(Ordering::SeqCst) != 0 || self.barred.load(Ordering::SeqCst)
    }

    /// What the rules for tables say of it: one load.
    #[inline]
    pub fn treatment(&self) -> Treatment {
        Treatment::from_byte(self.treatment.load(Ordering::Relaxed))
    }

    /// Of its pages.
    #[inline]
    pub fn group(&self) -> Group {
        match self.treatment() {
            Treatment::Cached(group) => group,
            Treatment::Excluded => Group::NORMAL,
        }
    }

    /// The identity for dropping pages: also of a file that may not be cached just now.
    #[inline]
    pub fn id(&self) -> FileId {
        FileId(self.id.load(Ordering::SeqCst))
    }

    /// Physical page size in bytes; 0 until the server has read a page. Nothing of the file is cached before.
    #[inline]
    pub fn page_size(&self) -> u32 {
        self.page_size.load(Ordering::SeqCst)
    }

    /// The place of a read in pages, if it is a read of exactly one page. Learns the page size from the server's reads:
    /// page 0 is also read in other lengths when a file is opened, every other page is not.
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
            // First one wins; from here on writes are followed page by page. A write that finds none blocks the file and looks
            // again; whoever learns it looks for the block afterwards (`cacheable`). One of the two sees the other.
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

    /// Learns the page size from the file's own first page, unless it is known already.
    pub fn learn_page_size(&self, bytes: u32) {
        // As when it is learned from a read: `learn`.
        let learned = self
            .page_size
            .compare_exchange(0, bytes, Ordering::SeqCst, Ordering::SeqCst);
        if learned.is_ok() {
            self.note_shape();
        }
    }

    /// Whether a page with this header page number is the one that was cached from this place of the file.
    #[inline]
    pub fn header_is(&self, page: u32, header_page: u32) -> bool {
        header_page == page.wrapping_add(self.base.load(Ordering::Relaxed))
    }

    /// Whether a page with this header page number may stand at this place of the file.
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

    /// As [`header_fits`](Self::header_fits), but learns nothing.
    pub fn header_may_be(&self, page: u32, header_page: u32) -> bool {
        self.base.load(Ordering::Relaxed) == u32::MAX || self.header_is(page, header_page)
    }

    /// A change begins, before the call that makes it; [`end_change`](Self::end_change) must follow.
    #[inline]
    pub fn begin_change(&self) {
        if left_out!("count-after") {
            return;
        }
        self.changes.fetch_add(BEGINNING + 1, Ordering::SeqCst);
        if let Some(manifest) = self.switch.manifest() {
            manifest.begin_change();
        }
    }

    /// A change is over, after the call that made it.
    #[inline]
    pub fn end_change(&self) {
        if left_out!("count-after") {
            return self.note_change();
        }
        self.changes.fetch_sub(1, Ordering::SeqCst);
    }

    /// A change begins whose end will not be seen.
    #[inline]
    pub fn note_change(&self) {
        self.changes.fetch_add(BEGINNING, Ordering::SeqCst);
        self.void_stamp();
    }

    /// A change of it is not tracked to its end: its persisted pages are not proven until it is opened again.
    pub fn void_stamp(&self) {
        if let Some((_, record)) = self.record().filter(|_| !left_out!("io-uring-voids")) {
            record.void();
        }
    }

    /// What the next process is told of it.
    #[inline]
    fn record(&self) -> Option<(&Manifest, &'static Record)> {
        let manifest = self.switch.manifest()?;
        Some((manifest, manifest.record(self.owner)?))
    }

    #[cold]
    fn note_shape(&self) {
        if let Some((_, record)) = self.record() {
            // Relaxed: as wherever the base is looked at.
            record.shape(self.page_size(), self.base.load(Ordering::Relaxed));
        }
    }

    /// A change that ends when the guard is dropped.
    pub fn change(&self) -> Changing<'_> {
        self.begin_change();
        Changing(self)
    }

    /// How many changes have begun, if none of them is under way. The same number twice: nothing was changed in between.
    pub fn at_rest(&self) -> Option<u64> {
        let changes = self.changes.load(Ordering::SeqCst);
        (changes % BEGINNING == 0).then_some(changes / BEGINNING)
    }

    /// Keeps the file's pages from being served and inserted until the guard is dropped. Is no change.
    pub fn suspend(&self) -> Suspended<'_> {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        Suspended(self)
    }

    /// Everything cached of the file goes out of reach.
    pub fn replace_contents(&self) {
        self.changes.fetch_add(BEGINNING, Ordering::SeqCst);
        let new = self.switch.new_file_id();
        let mut old = self.id.load(Ordering::SeqCst);
        loop {
            // First: whatever becomes of this process, the old one is out of reach. Once more if somebody else was faster, so that file and
            // record have the same one.
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

    /// Starts an operation that changes the whole file: drops what is cached and keeps reads from being cached until
    /// the guard is dropped.
    pub fn block(&self) -> Blocked<'_> {
        if left_out!("block-after-id") {
            self.replace_contents();
            return self.block_inserts();
        }
        let blocked = self.block_inserts();
        self.replace_contents();
        blocked
    }

    /// Keeps reads from being cached until the guard is dropped, without dropping what is cached.
    pub fn block_inserts(&self) -> Blocked<'_> {
        self.begin_change();
        self.blocked.fetch_add(1, Ordering::SeqCst);
        Blocked(self)
    }

    /// Never cached again until the server opens it anew. Returns whether that was so already.
    pub fn bar(&self) -> bool {
        let before = self.barred.swap(true, Ordering::SeqCst);
        self.replace_contents();
        before
    }

    /// Takes back [`bar`](Self::bar), when the operation that was feared did not happen.
    pub fn unbar(&self, before: bool) {
        self.barred.store(before, Ordering::SeqCst);
    }

    fn is_open(&self) -> bool {
        !self.details.lock().descriptors.is_empty()
    }

    /// A write to it begins, and there is no extension in which its pages can be dropped.
    #[inline]
    pub fn write_unseen(&self) {
        if self.inherited.load(Ordering::SeqCst) && !left_out!("unseen-writes") {
            self.replace_contents();
        }
    }

    /// Whether pages of it may be served that another process has cached.
    pub fn is_inherited(&self) -> bool {
        self.inherited.load(Ordering::SeqCst)
    }

    /// As the server named it when it opened it.
    pub fn name(&self) -> String {
        self.details.lock().name.clone()
    }
}

/// While it lives, reads of the file are not cached.
pub struct Blocked<'a>(&'a DataFile);

impl<'a> Blocked<'a> {
    /// Which.
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

/// A change of a file under way.
pub struct Changing<'a>(&'a DataFile);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.end_change();
    }
}

/// While it lives, nothing of the file is served or inserted.
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
    /// With the time since when, by [`Os::running`].
    resting: VecDeque<(Duration, &'static DataFile)>,
    /// Closed, the longest ago first; some of them may be open again.
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

    /// Whether the object stands for this inode now.
    fn stands(&self, key: (u64, u64), file: &'static DataFile) -> bool {
        self.by_inode
            .get(&key)
            .is_some_and(|known| std::ptr::eq(*known, file))
    }
}

/// What the table says of a descriptor that is one of a data file.
#[derive(Clone, Copy)]
pub struct Entry {
    fd: i32,
    pointer: NonNull<DataFile>,
}

/// How a descriptor came to be known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Attach {
    /// Opened just now; `anew` when the call may have created or truncated the file.
    Opened {
        /// The open may have made the file or emptied it.
        anew: bool,
    },
    /// Found open while switching on.
    Found,
}

/// The files that are followed, and the switch that says whether they are.
pub struct Files<O> {
    pub os: O,
    pub switch: Switch,
    /// Which file each descriptor leads to. Descriptors beyond it are not followed: a data file on one of them is never
    /// cached.
    table: &'static [Slot],
    /// When descriptors were last found, by [`Os::running`] in nanoseconds.
    found_at: AtomicU64,
    /// When a write last began whose end is not seen, likewise.
    unseen_at: AtomicU64,
    /// One more than the highest descriptor that was ever registered.
    registered_below: AtomicUsize,
    registry: Mutex<Registry>,
    /// Change stamps are fine ([`crate::stamp`]).
    has_fine_stamps: AtomicBool,
    /// The outcome for each file that another process has left.
    pub recoveries: Recoveries,
    /// What the rules for tables say.
    pub treatments: Treatments,
}

/// Of the table from descriptors to files: null, or a file, marked or not.
pub type Slot = AtomicPtr<DataFile>;

/// A slot of a descriptor of which nothing is known.
pub const fn empty_slot() -> Slot {
    AtomicPtr::new(std::ptr::null_mut())
}

impl<O: Os> Files<O> {
    /// Nothing is followed.
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

    /// What the table says of a descriptor: one load.
    #[inline(always)]
    pub fn look_up(&self, fd: i32) -> Option<Entry> {
        // Acquire: of the `swap` in `attach`, so that what `start` has set is seen.
        let pointer = self.table.get(fd as usize)?.load(Ordering::Acquire);
        NonNull::new(pointer).map(|pointer| Entry { fd, pointer })
    }

    /// The data file, unless the descriptor was found open and turns out to be another file's by now.
    #[inline(always)]
    pub fn file(&'static self, entry: Entry) -> Option<&'static DataFile> {
        if entry.pointer.addr().get() & FOUND != 0 {
            if left_out!("no-prove") {
                return file_of(entry.pointer.as_ptr());
            }
            return self.proven(entry.fd);
        }
        // SAFETY: the table holds null or pointers to objects that are never freed, marked as above or not.
        Some(unsafe { entry.pointer.as_ref() })
    }

    /// The data file behind a descriptor of the server.
    #[inline(always)]
    pub fn of_descriptor(&'static self, fd: i32) -> Option<&'static DataFile> {
        self.file(self.look_up(fd)?)
    }

    /// Whether a descriptor that was found is still what it was; if not, it is forgotten.
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
            // Not under the registry's lock: it may have to ask a file server.
            let is = self.os.stat(fd).is_some_and(|stat| stat.inode == key);
            hold_up!("prove, asked");
            let found_at = Duration::from_nanos(self.found_at.load(Ordering::SeqCst));
            if is && self.os.running().saturating_sub(found_at) <= PROVE_FOR {
                // The question may have taken so long that the object is another file's by now.
                if left_out!("prove-again") {
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
            // An equal entry may have been made anew meanwhile; of that one nothing was asked.
            let changed = slot.load(Ordering::SeqCst) != entry
                || file.attached.load(Ordering::SeqCst) != attached;
            if changed && !left_out!("prove-without-lock") {
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

    /// Looks at the descriptors of a file that were found: one that was closed unseen must not count as open.
    fn prove_found(&'static self, file: &'static DataFile) {
        let is_found = |fd: &i32| {
            self.table
                .get(*fd as usize)
                // Acquire: of the `swap` in `attach`.
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

    /// The followed file behind an inode, open or not.
    pub fn of_inode(&self, stat: &Stat) -> Option<&'static DataFile> {
        self.of_number(stat.inode)
    }

    /// The same, by its device and number on it.
    pub fn of_number(&self, inode: (u64, u64)) -> Option<&'static DataFile> {
        self.registry.lock().by_inode.get(&inode).copied()
    }

    /// Registers an open descriptor of a data file.
    pub fn attach(&'static self, fd: i32, stat: &Stat, name: &[u8], how: Attach) {
        if let Some(known) = self.of_inode(stat) {
            self.prove_found(known);
        }
        // Not under the registry's lock: it may have to ask a file server.
        let identity = self.identify(fd, stat);
        hold_up!("attach");
        let mut registry = self.registry.lock();
        // Once nobody follows files, a close is not seen either: a thread that comes late must leave nothing behind.
        if !self.switch.mode().follows() && !left_out!("attach-while-off") {
            return;
        }
        let slot = self.table.get(fd as usize);
        let found = how == Attach::Found;
        if found && slot.is_some_and(|slot| !slot.load(Ordering::SeqCst).is_null()) {
            return; // an open that was seen was faster
        }
        let file = self.of(&mut registry, stat.inode, name);
        self.add(&mut registry, file, fd, stat, &identity, how);
        if left_out!("store-outside-lock") {
            MutexGuard::unlocked(&mut registry, || hold_up!("attach, registered"));
        } else {
            hold_up!("attach, registered");
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
        // A leftover means that a close was not seen.
        if let Some(before) = file_of(before) {
            self.release(&mut registry, before, fd, None);
        }
        drop(registry);
        // The server is not given the descriptor before.
        self.treat(file);
    }

    /// Other rules for tables from now on, for the files that are known too.
    pub fn judge_by(&'static self, judge: Option<Arc<dyn Judge>>) {
        self.treatments.change(judge);
        for file in self.all() {
            self.treat(file);
        }
    }

    /// What the rules say of the file by the name that it has now. Nobody is kept waiting for that: rules and name are looked at
    /// again before it counts.
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
            if newly && !left_out!("exclude-keeps") {
                file.replace_contents();
            }
            return;
        }
    }

    /// The descriptor is about to be closed by the server.
    pub fn detach(&'static self, fd: i32) {
        if self.registered(fd) {
            // Not under the registry's lock: it may have to ask a file server.
            let last_seen = self.os.stat(fd);
            self.take(fd, last_seen.as_ref());
        }
    }

    fn registered(&self, fd: i32) -> bool {
        self.table
            .get(fd as usize)
            // Acquire: of the `swap` in `attach`.
            .is_some_and(|slot| !slot.load(Ordering::Acquire).is_null())
    }

    /// Takes a descriptor out of the table. `last_seen` is its file's state just before.
    fn take(&'static self, fd: i32, last_seen: Option<&Stat>) {
        let Some(slot) = self.table.get(fd as usize) else {
            return;
        };
        hold_up!("detach");
        let mut registry = self.registry.lock();
        let before = slot.swap(std::ptr::null_mut(), Ordering::SeqCst);
        hold_up!("detach, taken");
        if let Some(file) = file_of(before) {
            self.release(&mut registry, file, fd, last_seen);
        }
    }

    /// Takes back a registration by [`Attach::Found`] whose descriptor turned out to stand for something else.
    pub fn verify_found(&'static self, fd: i32) {
        let _ = self.of_descriptor(fd);
    }

    /// The inode is gone or replaced; called after the server's call succeeded.
    pub fn forget_unlinked(&'static self, file: &'static DataFile) {
        let mut registry = self.registry.lock();
        if !file.is_open() {
            file.replace_contents();
            self.rest(&mut registry, file);
        }
    }

    /// The server was given this descriptor by an open: what it stood for before, if a close was not seen, is over.
    pub fn opened_anew(&'static self, fd: i32) {
        if self.of_descriptor(fd).is_some() {
            self.take(fd, None);
        }
    }

    /// A followed file has another name now.
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
            // Relaxed: slots are written under the lock that is held here.
            if !slot.load(Ordering::Relaxed).is_null() {
                slot.store(std::ptr::null_mut(), Ordering::SeqCst);
            }
        }
        hold_up!("forget_all, table emptied");
        registry.closed.clear();
        let now = self.os.running();
        let mut files: Vec<&'static DataFile> =
            registry.by_inode.drain().map(|(_, file)| file).collect();
        // An order that a seed of the model repeats.
        files.sort_unstable_by_key(|file| file.owner);
        for file in files {
            file.details.lock().descriptors.clear();
            file.free_record();
            registry.resting.push_back((now, file));
        }
    }

    /// A descriptor that the server has of this file just now.
    pub fn descriptor_of(&self, file: &'static DataFile) -> Option<i32> {
        let details = file.details.lock();
        let mut in_table = details.descriptors.iter().copied();
        in_table.find(|fd| self.table.get(*fd as usize).is_some())
    }

    /// A descriptor of this file to read by. Nobody keeps it open meanwhile, so what was read counts only if it [is still](Self::is_still) what
    /// it was.
    pub fn lend(&self, file: &'static DataFile) -> Option<Lent> {
        let attached = file.attached.load(Ordering::SeqCst);
        let fd = self.descriptor_of(file)?;
        Some(Lent { fd, attached })
    }

    /// Whether the descriptor has stood for this file all the time since it was lent: another file may have had it in between.
    pub fn is_still(&'static self, file: &'static DataFile, lent: &Lent) -> bool {
        let now = self.of_descriptor(lent.fd);
        now.is_some_and(|now| std::ptr::eq(now, file))
            && file.attached.load(Ordering::SeqCst) == lent.attached
    }

    /// A write begins whose end will not be seen.
    pub fn note_unseen_write(&self) {
        let now = u64::try_from(self.os.running().as_nanos()).unwrap_or(u64::MAX);
        self.unseen_at.fetch_max(now.max(1), Ordering::SeqCst);
    }

    /// Whether no write may be under way that was not seen to begin, or will not be seen to end: whoever reads pages that the server
    /// has not asked for may meet one. Writes that began before files were followed take no longer than [`PROVE_FOR`].
    pub fn is_settled(&self) -> bool {
        let now = u64::try_from(self.os.running().as_nanos()).unwrap_or(u64::MAX);
        let is_past = |at: &AtomicU64| {
            let at = at.load(Ordering::SeqCst);
            at == 0 || now.saturating_sub(at) >= PROVE_FOR.as_nanos() as u64
        };
        is_past(&self.found_at) && is_past(&self.unseen_at)
    }

    /// Whether nobody holds the registry's lock, so that more may be done at a moment of [`crate::hold_up`].
    #[cfg(any(test, debug_assertions))]
    pub fn registry_is_free(&self) -> bool {
        self.registry.try_lock().is_some()
    }

    /// What the registry and the table say of each other that is not true, for tests.
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

    /// All followed files.
    pub fn all(&self) -> Vec<&'static DataFile> {
        self.registry.lock().by_inode.values().copied().collect()
    }

    /// Memory of the file objects and the touched part of the descriptor table, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let objects = u64::from(self.registry.lock().objects);
        objects * (size_of::<DataFile>() as u64 + 128) + 4096
    }

    /// What the kernel says of a file now; `None` if the server does not have it open.
    pub fn looks(&self, file: &'static DataFile) -> Option<Looks> {
        let stat = self.os.stat(self.descriptor_of(file)?)?;
        let same = file.details.lock().key == stat.inode;
        same.then(|| Looks::of(&stat))
    }

    /// The object that stands for an inode, a new one if there is none.
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

    /// One descriptor more.
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
        let mut same = was_open || is_as_closed || left_out!("reopening");
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
        // One that has no place in the table is never released.
        if self.table.get(fd as usize).is_some() || !details.descriptors.contains(&fd) {
            details.descriptors.push(fd);
        }
        drop(details);
        if anew || !same {
            file.replace_contents();
        }
        if let (false, Some((_, record))) = (was_open, file.record()) {
            // It may have been tracked before there were records.
            record.identify(file.id().0);
            file.note_shape();
            record.open(identity, stat);
            file.stamped.store(identity.is_provable(), Ordering::SeqCst);
        }
        if !was_open {
            file.barred.store(stat.links == 0, Ordering::SeqCst);
        }
    }

    /// Stores the change stamp of a file that the server has just changed through this descriptor. After the call; for libaio after the
    /// submission.
    #[inline]
    pub fn stamp(&self, file: &'static DataFile, fd: i32) {
        // Relaxed: set before the server was given the descriptor.
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

    /// The same for a change by a name, or through a descriptor that is not known.
    pub fn stamp_open(&self, file: &'static DataFile) {
        if let Some(fd) = self.descriptor_of(file) {
            self.stamp(file, fd);
        }
    }

    /// One descriptor less, which the table has forgotten. `last_seen` is the file's state just before.
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

    /// The object stands for no inode any more, unless it is at rest already.
    fn rest(&'static self, registry: &mut Registry, file: &'static DataFile) {
        let key = file.details.lock().key;
        if registry.stands(key, file) {
            registry.by_inode.remove(&key);
            file.free_record();
            registry.resting.push_back((self.os.running(), file));
        }
    }

    /// Keeps the number of files that are remembered though closed within its bound. What is cached of a file that is
    /// forgotten is out of reach: it gets another identity when it is opened again.
    fn forget_oldest_closed(&'static self, registry: &mut Registry) {
        while registry.closed.len() > CLOSED_FILES {
            let Some(file) = registry.closed.pop_front() else {
                return;
            };
            file.listed_as_closed.store(false, Ordering::SeqCst);
            if file.is_open() {
                continue; // open again; listed anew when it is closed
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
            || left_out!("rest");
        if let Some((_, file)) = rested.then(|| registry.resting.pop_front()).flatten() {
            // Somebody on the way for that long will come back to it.
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
    /// Nobody may use any of them from now on.
    pub(crate) unsafe fn free(&mut self) {
        let mut registry = self.registry.lock();
        let mut files: Vec<_> = registry.by_inode.drain().map(|(_, file)| file).collect();
        files.extend(registry.resting.drain(..).map(|(_, file)| file));
        for file in files {
            // SAFETY: leaked by `fresh`, and in one of the two.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(file).cast_mut()) });
        }
        let table = std::ptr::from_ref(self.table).cast_mut();
        // SAFETY: leaked by the test.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// The file that an entry of the table stands for, marked or not.
fn file_of(entry: *mut DataFile) -> Option<&'static DataFile> {
    // SAFETY: as in `Files::file`.
    unsafe { entry.map_addr(|address| address & !FOUND).as_ref() }
}

/// Whether a path is named as InnoDB names the files whose pages are worth caching. Correctness does not hang on it:
/// a file that is not followed is never cached.
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
        // `ibdata1` starts at page 0 of its tablespace; a second file goes on where the first one ends.
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
    /// A file that no descriptor stands for.
    pub fn for_test() -> DataFile {
        DataFile::new(1, Box::leak(Box::default()))
    }
}

mod recovered;
#[cfg(all(test, not(checker)))]
mod recovered_tests;
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
            // MariaDB 12.3 has its binary log in pages of InnoDB.
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
