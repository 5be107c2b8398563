//! A data file: its identity, page size, blocks, changes in flight and counters.

use std::sync::atomic::{AtomicU8, AtomicU64 as Figure};

use cache::{FileId, Group, MAX_PAGE, MIN_PAGE};

use super::file_rule::FileRule;
use crate::platform::sync::{AtomicBool, AtomicU32, AtomicU64, Mutex, Ordering};
use crate::restart::manifest::{Manifest, Record};
use crate::restart::proof::PersistedFile;
use crate::switch::Switch;

/// One started change in the counter of [`DataFile`]. Fewer changes than this are in flight at any time.
const ONE_CHANGE: u64 = 1 << 24;

/// Consecutive reads of a length other than the page size before the page size is learned again.
const RELEARN_AFTER: u32 = 64;

/// One inode that holds an InnoDB tablespace or a part of one.
pub struct DataFile {
    /// Number of this object, and key of the generations. Unchanged when the `FileId` changes.
    pub owner: u32,
    /// Assigns identities, and holds the extension that drops the entries of an old one.
    switch: &'static Switch,
    pub(super) id: AtomicU32,
    pub(super) page_size: AtomicU32,
    /// A counter: `Relaxed` everywhere.
    strange_reads: AtomicU32,
    /// Suspensions and in-flight operations that change the whole file. While there are any, no read is cached.
    /// A nonzero count also keeps the object from being reused.
    pub(super) blocked: AtomicU32,
    /// How often a descriptor of the file was registered.
    pub(super) attached: AtomicU64,
    /// The registry's list of closed files contains the file.
    pub(super) listed_as_closed: AtomicBool,
    /// Observed changes of size, times or contents. Lower bits: changes in flight. Upper bits: started changes.
    changes: AtomicU64,
    /// The change stamp is stored after each change.
    pub(super) stamped: AtomicBool,
    /// Lower half: the descriptor whose flags were checked last. Upper half: the registration count at that time.
    pub(super) flags_of: AtomicU64,
    /// Pages that another process cached may be served: no write has replaced the identity since.
    pub(super) inherited: AtomicBool,
    /// Never cached while set: the file is unlinked, or changed through calls that are not tracked.
    pub(super) is_disabled: AtomicBool,
    /// The effect of the table rules: a [`FileRule`]. Written under the lock of `details`. `Relaxed` everywhere, because it
    /// guards no other memory: the new identity of an excluded file makes its entries unreachable.
    pub(super) rule: AtomicU8,
    /// Page reads and writes that bypassed the cache because the rules exclude the file. A statistic, as the next.
    pub excluded_accesses: Figure,
    /// Reads that the cache served. A statistic, as the next: `Relaxed` everywhere.
    pub hits: Figure,
    /// Reads that went to the data file.
    pub misses: Figure,
    /// Difference between the header's page number and the page's position in the file; `u32::MAX` until learned. Nonzero for
    /// later files of the system tablespace. It guards no other memory, so `Relaxed` everywhere: a thread that does not see the
    /// value yet learns it from another page, or admits nothing.
    pub(super) first_page: AtomicU32,
    /// Length in pages at the open that proved its recovered pages; 0 without such pages. Guards no other memory: `Relaxed`
    /// everywhere.
    pub(super) inherited_end: AtomicU32,
    pub(super) details: Mutex<Details>,
}

#[derive(Default)]
pub(super) struct Details {
    pub(super) inode: (u64, u64),
    pub(super) name: String,
    /// The server's descriptors of the file. Changed only under the registry's lock.
    pub(super) descriptors: Vec<i32>,
    /// The change stamp at the last close; `None` if a later change could have the same stamp.
    pub(super) closed_stamp: Option<i64>,
    /// The persisted state from another process, until the server opens the file.
    pub(super) persisted: Option<Box<PersistedFile>>,
    pub(super) later_part: bool,
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
            is_disabled: AtomicBool::new(false),
            rule: AtomicU8::new(0),
            excluded_accesses: Figure::new(0),
            hits: Figure::new(0),
            misses: Figure::new(0),
            first_page: AtomicU32::new(0),
            inherited_end: AtomicU32::new(0),
            details: Mutex::new(Details::default()),
        }
    }

    /// The identity under which the file's pages are served and admitted, or `None` while they may be neither.
    ///
    /// Loads the identity before it checks the block. A thread that replaces the contents blocks first, and then changes the
    /// identity. So a reader with the new identity either sees the block or reads the new contents.
    #[inline]
    pub fn usable_id(&self) -> Option<FileId> {
        let id = self.id.load(Ordering::SeqCst);
        (!self.is_blocked()).then_some(FileId(id))
    }

    /// Whether the file's pages may be neither served nor admitted.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::SeqCst) != 0 || self.is_disabled.load(Ordering::SeqCst)
    }

    /// The effect of the table rules on the file. Cost: one load.
    #[inline]
    pub fn rule(&self) -> FileRule {
        FileRule::from_byte(self.rule.load(Ordering::Relaxed))
    }

    /// The cache group of the file's pages.
    #[inline]
    pub fn group(&self) -> Group {
        match self.rule() {
            FileRule::Cached(group) => group,
            FileRule::Excluded => Group::NORMAL,
        }
    }

    /// The identity for dropping pages. Unlike `usable_id`, it also returns one while the file is blocked.
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
            // file and checks again. A reader that learns the size checks the block afterwards (`usable_id`). One sees the other.
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
            self.assign_new_id();
            self.page_size.store(length as u32, Ordering::SeqCst);
            self.note_shape();
        }
        None
    }

    /// Learns the page size from the file's own first page, unless it is known.
    pub fn learn_page_size(&self, bytes: u32) {
        debug_assert!(bytes.is_power_of_two() && bytes as usize <= MAX_PAGE);
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
        header_page == page.wrapping_add(self.first_page.load(Ordering::Relaxed))
    }

    /// Whether a page with this header page number may be at this position. Learns an unknown `first_page` from it.
    #[inline]
    pub fn header_fits(&self, page: u32, header_page: u32) -> bool {
        let base = self.first_page.load(Ordering::Relaxed);
        if base == u32::MAX {
            if header_page == 0 || header_page < page {
                return false;
            }
            self.first_page.store(header_page - page, Ordering::Relaxed);
            self.note_shape();
            return true;
        }
        header_page == page.wrapping_add(base)
    }

    /// Like [`header_fits`](Self::header_fits), but does not learn `first_page`.
    pub fn header_may_be(&self, page: u32, header_page: u32) -> bool {
        self.first_page.load(Ordering::Relaxed) == u32::MAX || self.header_is(page, header_page)
    }

    /// Counts a change as in flight. Call before the system call; [`end_change`](Self::end_change) must follow.
    #[inline]
    pub fn begin_change(&self) {
        if canary!("count-after") {
            return;
        }
        let before = self.changes.fetch_add(ONE_CHANGE + 1, Ordering::SeqCst);
        debug_assert!(before % ONE_CHANGE < ONE_CHANGE - 1);
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
        let before = self.changes.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(before % ONE_CHANGE, 0, "no change is in flight");
    }

    /// Counts a change whose end will not be observed.
    #[inline]
    pub fn note_change(&self) {
        self.changes.fetch_add(ONE_CHANGE, Ordering::SeqCst);
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
    pub(super) fn record(&self) -> Option<(&Manifest, &'static Record)> {
        let manifest = self.switch.manifest()?;
        Some((manifest, manifest.record(self.owner)?))
    }

    #[cold]
    pub(super) fn note_shape(&self) {
        if let Some((_, record)) = self.record() {
            // Relaxed: as for every load of `first_page`.
            record.shape(self.page_size(), self.first_page.load(Ordering::Relaxed));
        }
    }

    /// Starts a change that ends when the guard is dropped.
    pub fn change(&self) -> Changing<'_> {
        self.begin_change();
        Changing(self)
    }

    /// The number of started changes, or `None` while one is in flight. Two equal numbers prove that no change happened in between.
    pub fn idle_changes(&self) -> Option<u64> {
        let changes = self.changes.load(Ordering::SeqCst);
        (changes % ONE_CHANGE == 0).then_some(changes / ONE_CHANGE)
    }

    /// Blocks serving and admission of the file's pages until the guard is dropped. Does not count as a change.
    pub fn suspend(&self) -> Suspended<'_> {
        self.blocked.fetch_add(1, Ordering::SeqCst);
        Suspended(self)
    }

    /// Assigns a new identity, which makes every cached page of the file unreachable.
    pub fn assign_new_id(&self) {
        self.changes.fetch_add(ONE_CHANGE, Ordering::SeqCst);
        let new = self.switch.new_file_id();
        let mut old = self.id.load(Ordering::SeqCst);
        loop {
            debug_assert_ne!(old, new.0, "an identity was assigned twice");
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

    /// Starts an operation that changes the whole file. Blocks the file until the guard is dropped, and makes the cached pages
    /// unreachable.
    pub fn begin_file_change(&self) -> Blocked<'_> {
        if canary!("block-after-id") {
            self.assign_new_id();
            return self.block();
        }
        let blocked = self.block();
        self.assign_new_id();
        blocked
    }

    /// Blocks serving and admission until the guard is dropped. Keeps the cached pages.
    pub fn block(&self) -> Blocked<'_> {
        self.begin_change();
        self.blocked.fetch_add(1, Ordering::SeqCst);
        Blocked(self)
    }

    /// Excludes the file from caching until the server reopens it. Returns whether it was excluded already.
    pub fn disable_caching(&self) -> bool {
        let before = self.is_disabled.swap(true, Ordering::SeqCst);
        self.assign_new_id();
        before
    }

    /// Reverts [`disable_caching`](Self::disable_caching) when the expected operation did not happen.
    pub fn restore_caching(&self, before: bool) {
        self.is_disabled.store(before, Ordering::SeqCst);
    }

    pub(super) fn is_open(&self) -> bool {
        !self.details.lock().descriptors.is_empty()
    }

    /// Prepares a write while no extension is active that could drop the pages: replaces an identity from another process.
    #[inline]
    pub fn write_while_off(&self) {
        if self.inherited.load(Ordering::SeqCst) && !canary!("unseen-writes") {
            self.assign_new_id();
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

/// While this guard exists, the file's pages are neither served nor admitted.
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
        let before = self.0.blocked.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(before, 0);
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
        let before = self.0.blocked.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(before, 0);
    }
}

#[inline]
fn page_number(offset: i64, page_size: usize) -> Option<u32> {
    debug_assert!(page_size.is_power_of_two());
    if offset < 0 || offset as u64 & (page_size as u64 - 1) != 0 {
        return None;
    }
    u32::try_from(offset as u64 / page_size as u64).ok()
}

impl DataFile {
    pub(super) fn start(&self, inode: (u64, u64), name: &[u8]) {
        let mut details = self.details.lock();
        debug_assert!(details.descriptors.is_empty(), "the object is in use");
        let file_name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        // `ibdata1` starts at page 0 of its tablespace; a second file continues where the first one ends.
        let later_part = file_name.starts_with(b"ibdata") && file_name != b"ibdata1";
        *details = Details {
            inode,
            name: String::from_utf8_lossy(name).into_owned(),
            descriptors: Vec::new(),
            closed_stamp: None,
            persisted: None,
            later_part,
        };
        self.first_page.store(
            if details.later_part { u32::MAX } else { 0 },
            Ordering::Relaxed,
        );
        self.page_size.store(0, Ordering::SeqCst);
        self.strange_reads.store(0, Ordering::Relaxed);
        self.listed_as_closed.store(false, Ordering::SeqCst);
        self.is_disabled.store(false, Ordering::SeqCst);
        self.rule.store(0, Ordering::Relaxed);
        self.excluded_accesses.store(0, Ordering::Relaxed);
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

    pub(super) fn free_record(&self) {
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
        let before = file.usable_id();
        assert!(before.is_some());
        {
            let _blocked = file.begin_file_change();
            assert_eq!(file.usable_id(), None);
        }
        assert!(file.usable_id().is_some());
        assert_ne!(file.usable_id(), before);
        file.disable_caching();
        assert_eq!(file.usable_id(), None);
    }

    #[test]
    fn a_file_is_at_rest_when_no_change_is_under_way() {
        let file = DataFile::for_test();
        let first = file.idle_changes();
        assert!(first.is_some());
        {
            let _growing = file.change();
            file.begin_change();
            assert_eq!(file.idle_changes(), None);
        }
        assert_eq!(file.idle_changes(), None, "one of two is over");
        file.end_change();
        let second = file.idle_changes();
        assert!(second > first);
        file.note_change();
        assert!(file.idle_changes() > second);
        let third = file.idle_changes();
        let suspended = file.suspend();
        assert_eq!(file.usable_id(), None);
        assert_eq!(
            file.idle_changes(),
            third,
            "to suspect it does not change it"
        );
        drop(suspended);
        assert!(file.usable_id().is_some());
        drop(file.begin_file_change());
        assert!(file.idle_changes() > third);
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
