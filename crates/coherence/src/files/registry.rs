//! The registry: from inodes to data files, and the registration of descriptors.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use cache::FileId;

use super::data_file::DataFile;
use super::descriptor_table::{DescriptorTable, Entry, FOUND, Slot, file_of};
use super::file_rule::{FileRule, FileRules, RuleLookup};
use crate::platform::os::{Os, Stat};
use crate::platform::sync::{AtomicBool, AtomicU64, Mutex, MutexGuard, Ordering};
use crate::restart::outcomes::Recoveries;
use crate::restart::proof::Rejection;
use crate::restart::stamp::{self, FileIdentity, FileStat, change_stamp};
use crate::switch::Switch;

/// Closed files to remember, in case the server reopens them unchanged.
pub(super) const CLOSED_FILES: usize = 32 * 1024;

/// Quarantine of a forgotten file before its object may represent another inode. A thread that found the object before has
/// left the hook by then, or holds a [`Blocked`](super::data_file::Blocked).
pub(super) const QUARANTINE: Duration = Duration::from_secs(60);

/// How long found descriptors are verified. After this time no such thread is still before its kernel call.
pub(super) const FOUND_TIMEOUT: Duration = Duration::from_secs(60);

/// A descriptor borrowed for a read, with the file's registration count when it was borrowed.
pub struct Lease {
    pub fd: i32,
    attached: u64,
}

pub(super) struct Registry {
    pub(super) by_inode: HashMap<(u64, u64), &'static DataFile, BuildHasherDefault<DefaultHasher>>,
    /// Quarantined objects and the start of each quarantine, by [`Os::running`].
    pub(super) quarantined: VecDeque<(Duration, &'static DataFile)>,
    /// Closed files, the least recently closed first. Some may be open again.
    pub(super) closed: VecDeque<&'static DataFile>,
    pub(super) objects: u32,
    /// Persisted files whose pages an extension has recovered, until it is active: identity, and approximate number of pages.
    pub(super) registered: Vec<(&'static DataFile, FileId, u64)>,
}

impl Registry {
    const fn new() -> Registry {
        Registry {
            by_inode: HashMap::with_hasher(BuildHasherDefault::new()),
            quarantined: VecDeque::new(),
            closed: VecDeque::new(),
            objects: 0,
            registered: Vec::new(),
        }
    }

    /// Whether the object represents this inode.
    fn represents(&self, inode: (u64, u64), file: &'static DataFile) -> bool {
        self.by_inode
            .get(&inode)
            .is_some_and(|known| std::ptr::eq(*known, file))
    }
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
    pub(super) table: DescriptorTable,
    /// When descriptors were last found, by [`Os::running`], nanoseconds.
    found_at: AtomicU64,
    /// When the last write with an unobserved end began, likewise.
    unobserved_at: AtomicU64,
    pub(super) registry: Mutex<Registry>,
    /// Change stamps are fine ([`crate::restart::stamp`]).
    pub(super) has_fine_stamps: AtomicBool,
    /// The recovery outcome of each persisted file.
    pub recoveries: Recoveries,
    /// The table rules.
    pub rules: FileRules,
}

impl<O: Os> Files<O> {
    /// Creates a registry that tracks no file.
    pub const fn new(os: O, table: &'static [Slot]) -> Files<O> {
        Files {
            os,
            switch: Switch::new(),
            table: DescriptorTable::new(table),
            found_at: AtomicU64::new(0),
            unobserved_at: AtomicU64::new(0),
            registry: Mutex::new(Registry::new()),
            has_fine_stamps: AtomicBool::new(false),
            recoveries: Recoveries::new(),
            rules: FileRules::new(),
        }
    }

    /// FileStat up a descriptor in the table. Cost: one load.
    #[inline(always)]
    pub fn look_up(&self, fd: i32) -> Option<Entry> {
        self.table.look_up(fd)
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
        let slot = self.table.slot(fd)?;
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
            let inode = file.details.lock().inode;
            // Outside the registry's lock: `stat` may wait for a file server.
            let is = self.os.stat(fd).is_some_and(|stat| stat.inode == inode);
            sync_point!("prove, asked");
            let found_at = Duration::from_nanos(self.found_at.load(Ordering::SeqCst));
            if is && self.os.running().saturating_sub(found_at) <= FOUND_TIMEOUT {
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
                .slot(*fd)
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
        if !self.switch.mode().tracks() && !canary!("attach-while-off") {
            return;
        }
        let slot = self.table.slot(fd);
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
            file.disable_caching();
            return;
        };
        self.table.note_registered(fd);
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
        self.apply_rule(file);
    }

    /// Replaces the table rules, and applies them to the known files too.
    pub fn set_rules(&'static self, lookup: Option<Arc<dyn RuleLookup>>) {
        self.rules.change(lookup);
        for file in self.all() {
            self.apply_rule(file);
        }
    }

    /// Applies the table rules to the file's current name. Evaluates them without holding the file's lock. So it checks rules
    /// and name again before it stores the effect.
    fn apply_rule(&self, file: &'static DataFile) {
        loop {
            let version = self.rules.version();
            let name = file.name();
            let rule = self.rules.of(&name);
            let details = file.details.lock();
            if details.name != name || self.rules.version() != version {
                continue;
            }
            let byte = rule.to_byte();
            let before = file.rule.swap(byte, Ordering::Relaxed);
            drop(details);
            let newly = byte != before && rule == FileRule::Excluded;
            if newly && !canary!("exclude-keeps") {
                file.assign_new_id();
            }
            return;
        }
    }

    /// Unregisters a descriptor that the server is about to close.
    pub fn detach(&'static self, fd: i32) {
        if self.is_registered(fd) {
            // Outside the registry's lock: `stat` may wait for a file server.
            let last_seen = self.os.stat(fd);
            self.take(fd, last_seen.as_ref());
        }
    }

    pub(super) fn is_registered(&self, fd: i32) -> bool {
        self.table
            .slot(fd)
            // Acquire: pairs with the `swap` in `attach`.
            .is_some_and(|slot| !slot.load(Ordering::Acquire).is_null())
    }

    /// Removes a descriptor from the table. `last_seen` is the state of its file just before.
    fn take(&'static self, fd: i32, last_seen: Option<&Stat>) {
        let Some(slot) = self.table.slot(fd) else {
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

    /// Gives a closed file whose inode was unlinked or replaced a new identity, and quarantines it: another file may get the same
    /// inode number. Call after the system call succeeded. An open file keeps its identity until its last close.
    pub fn forget_unlinked(&'static self, file: &'static DataFile) {
        let mut registry = self.registry.lock();
        if !file.is_open() {
            self.forget_closed(&mut registry, file);
        }
    }

    /// Gives a closed file a new identity, and quarantines it. A persisted file that was not opened is rejected.
    pub(super) fn forget_closed(&'static self, registry: &mut Registry, file: &'static DataFile) {
        if let Some(persisted) = file.details.lock().persisted.take() {
            self.recoveries.forgotten(&persisted);
        }
        // The object will be another file. Persisted files come first in the queue, so they are found at once.
        if file.listed_as_closed.swap(false, Ordering::SeqCst) {
            let at = registry
                .closed
                .iter()
                .position(|one| std::ptr::eq(*one, file));
            at.map(|at| registry.closed.remove(at));
        }
        file.assign_new_id();
        self.quarantine(registry, file);
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
            self.apply_rule(file);
        }
    }

    /// Forgets all files and descriptors, after switching off.
    pub fn forget_all(&self) {
        let mut registry = self.registry.lock();
        for slot in self.table.used_slots() {
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
            registry.quarantined.push_back((now, file));
        }
    }

    /// A descriptor by which the server has the file open.
    pub fn descriptor_of(&self, file: &'static DataFile) -> Option<i32> {
        let details = file.details.lock();
        let mut in_table = details.descriptors.iter().copied();
        in_table.find(|fd| self.table.slot(*fd).is_some())
    }

    /// Borrows a descriptor of the file for a read. The server may close it during the read. So the bytes count only if the
    /// descriptor [is still](Self::is_valid) the file's afterwards.
    pub fn lease(&self, file: &'static DataFile) -> Option<Lease> {
        let attached = file.attached.load(Ordering::SeqCst);
        let fd = self.descriptor_of(file)?;
        Some(Lease { fd, attached })
    }

    /// Whether the descriptor belonged to the file throughout, not to another file in between.
    pub fn is_valid(&'static self, file: &'static DataFile, lease: &Lease) -> bool {
        let now = self.of_descriptor(lease.fd);
        now.is_some_and(|now| std::ptr::eq(now, file))
            && file.attached.load(Ordering::SeqCst) == lease.attached
    }

    /// Records the start of a write whose end will not be observed.
    pub fn note_unobserved_write(&self) {
        let now = u64::try_from(self.os.running().as_nanos()).unwrap_or(u64::MAX);
        self.unobserved_at.fetch_max(now.max(1), Ordering::SeqCst);
    }

    /// Whether every in-flight write was observed to start and will be observed to end. A read of pages that the server did not
    /// request may overlap any other write. Writes that began before tracking take at most [`FOUND_TIMEOUT`].
    pub fn is_settled(&self) -> bool {
        let now = u64::try_from(self.os.running().as_nanos()).unwrap_or(u64::MAX);
        let is_past = |at: &AtomicU64| {
            let at = at.load(Ordering::SeqCst);
            at == 0 || now.saturating_sub(at) >= FOUND_TIMEOUT.as_nanos() as u64
        };
        is_past(&self.found_at) && is_past(&self.unobserved_at)
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
        for (fd, slot) in self.table.used_slots().iter().enumerate() {
            let Some(file) = file_of(slot.load(Ordering::SeqCst)) else {
                continue;
            };
            let details = file.details.lock();
            if !registry.represents(details.inode, file) {
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
    pub fn stat_of(&self, file: &'static DataFile) -> Option<FileStat> {
        let stat = self.os.stat(self.descriptor_of(file)?)?;
        let same = file.details.lock().inode == stat.inode;
        same.then(|| FileStat::of(&stat))
    }

    /// The object that represents an inode. Creates it if there is none.
    fn of(
        &'static self,
        registry: &mut Registry,
        inode: (u64, u64),
        name: &[u8],
    ) -> &'static DataFile {
        if let Some(file) = registry.by_inode.get(&inode) {
            let mut details = file.details.lock();
            debug_assert_eq!(details.inode, inode);
            if details.name.is_empty() {
                details.name = String::from_utf8_lossy(name).into_owned();
            }
            return file;
        }
        let file = self.fresh(registry);
        file.start(inode, name);
        registry.by_inode.insert(inode, file);
        file
    }

    /// Adds a descriptor to its file.
    fn add(
        &'static self,
        registry: &mut Registry,
        file: &'static DataFile,
        fd: i32,
        stat: &Stat,
        identity: &FileIdentity,
        how: Attach,
    ) {
        debug_assert!(registry.represents(stat.inode, file));
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
                false => persisted.prove_file(identity, stat),
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
        if self.table.slot(fd).is_some() || !details.descriptors.contains(&fd) {
            details.descriptors.push(fd);
        }
        drop(details);
        if anew || !same {
            file.assign_new_id();
        }
        if let (false, Some((_, record))) = (was_open, file.record()) {
            // Tracking may have begun before the manifest existed.
            record.identify(file.id().0);
            file.note_shape();
            record.open(identity, stat);
            file.stamped.store(identity.is_provable(), Ordering::SeqCst);
        }
        if !was_open {
            file.is_disabled.store(stat.links == 0, Ordering::SeqCst);
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
    pub(super) fn release(
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
            file.assign_new_id();
            self.quarantine(registry, file);
        } else if !file.listed_as_closed.swap(true, Ordering::SeqCst) {
            registry.closed.push_back(file);
            self.forget_oldest_closed(registry);
        }
    }

    /// Quarantines an object, which then represents no inode. Does nothing for a quarantined object.
    fn quarantine(&'static self, registry: &mut Registry, file: &'static DataFile) {
        let inode = file.details.lock().inode;
        if registry.represents(inode, file) {
            registry.by_inode.remove(&inode);
            file.free_record();
            registry.quarantined.push_back((self.os.running(), file));
        }
    }

    /// Forgets the least recently closed files beyond `CLOSED_FILES`. Their cached pages become unreachable: a reopened file gets
    /// another identity.
    fn forget_oldest_closed(&'static self, registry: &mut Registry) {
        while registry.closed.len() > CLOSED_FILES {
            let Some(file) = registry.closed.pop_front() else {
                return;
            };
            debug_assert!(file.listed_as_closed.load(Ordering::SeqCst));
            file.listed_as_closed.store(false, Ordering::SeqCst);
            if file.is_open() {
                continue; // open again; the next close lists it
            }
            let inode = file.details.lock().inode;
            if registry.represents(inode, file) {
                self.forget_closed(registry, file);
            }
        }
    }

    fn fresh(&'static self, registry: &mut Registry) -> &'static DataFile {
        let known = registry.by_inode.len() + registry.quarantined.len();
        debug_assert!(
            known <= registry.objects as usize,
            "an object is there twice"
        );
        let rested = registry
            .quarantined
            .front()
            .is_some_and(|(since, _)| self.os.running().saturating_sub(*since) >= QUARANTINE)
            || canary!("rest");
        if let Some((_, file)) = rested.then(|| registry.quarantined.pop_front()).flatten() {
            // A thread has been in a hook for that long, and will use the object again.
            if file.blocked.load(Ordering::SeqCst) == 0 {
                return file;
            }
            registry.quarantined.push_back((self.os.running(), file));
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
        files.extend(registry.quarantined.drain(..).map(|(_, file)| file));
        for file in files {
            // SAFETY: leaked by `fresh`, and contained in one of the two collections.
            drop(unsafe { Box::from_raw(std::ptr::from_ref(file).cast_mut()) });
        }
        let table = std::ptr::from_ref(self.table.slots).cast_mut();
        // SAFETY: leaked by the test.
        drop(unsafe { Box::from_raw(table) });
    }
}
