//! The cache policy: which pages a full cache admits, and which ones it evicts.
//!
//! Servers use [`density`]. [`second_chance`] admits everything; only tests and replays use it, as a reference. A
//! further policy is one file in `policy/` with a type that implements [`Policy`], its lines here and in [`list`], and its
//! name in [`PolicyName`](crate::PolicyName). `bpe-lab replay --policy NAME` then runs it in the engine over a recorded
//! trace, and [`crate::Config::policy`] selects it.
//!
//! Every instance owns a policy and calls it under the instance's lock. All policies share a [`Policy::Model`]. The
//! engine asks for an admission decision only while pages compete for space, and for a victim only when the cache is
//! full. The engine counts, moves and removes entries; a policy reads them through [`Places`]. A policy writes only two
//! bits of each entry, the clock. It should be high for pages worth keeping, because warming, segment reclamation and a
//! full directory use it, too. The engine does not report invalidated pages to the policy. A policy finds its own data
//! on a page by [`Places::identity`], which is the same for a page and for its entry. When the engine evicts a page,
//! the policy has just named it as a victim, and can record its age or the like at that moment.
//!
//! Rules. After `new`: no allocation, no I/O, no wall clock, no randomness, and no lock except an attempt at one in
//! `learn`. The calls alone determine the behaviour, so that a replay is repeatable. `bytes` counts all memory except a
//! few KiB. `accessed` and `hit` are on the path of every read: one cache line and 150 instructions at most.

pub(crate) mod density;
pub(crate) mod list;
mod second_chance;

use std::io;
use std::sync::Arc;

use crate::common::group::Group;
use crate::common::page::PageId;
use crate::index::directory::{Directory, Entry, Slot};

/// The largest remembered read count of a page.
pub(crate) const MAX_COUNT: u32 = 15;

/// Ages a counter: halves its lowest bits, a count up to [`MAX_COUNT`], and keeps the others, the page's tag. At 0 it
/// drops the page.
#[inline]
fn halve(counter: &mut u16) {
    const COUNT: u16 = MAX_COUNT as u16;
    let count = (*counter & COUNT) >> 1;
    *counter = if count == 0 {
        0
    } else {
        *counter & !COUNT | count
    };
}

/// An insert candidate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Candidate {
    /// Just read: InnoDB has the page now, and will not read it again for a while.
    Read,
    /// Just written: InnoDB will probably evict the page soon.
    Written,
}

/// Memory budget.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MemoryPressure {
    Normal,
    /// A memory limit applies, and the usual budget exceeds it.
    High,
}

/// The module's documentation states the rules for a policy.
pub(crate) trait Policy: Sized + Send {
    /// State that the policies of all instances share; `()` if there is none.
    type Model: Send + Sync;

    /// For a cache of `pages` pages.
    fn model(pages: u64) -> Self::Model;

    /// Bytes that the policy of an instance of `pages` pages allocates permanently.
    fn bytes(pages: u64, pressure: MemoryPressure) -> u64;

    /// For an instance of `pages` pages on average.
    ///
    /// # Errors
    /// If memory allocation fails.
    fn new(pages: u64, pressure: MemoryPressure, model: &Arc<Self::Model>) -> io::Result<Self>;

    /// Bytes that it has allocated.
    #[cfg(test)]
    fn memory_bytes(&self) -> u64;

    /// Records a read of the page; `found`: its entry, if it has one. Returns whether the policy remembers an earlier
    /// read, for statistics only.
    fn accessed(&mut self, places: &mut Places<'_>, page: PageId, found: Option<Slot>) -> bool;

    /// A read found the entry. `accessed` reports the same read, before or after this call, and other reads may come in
    /// between.
    fn hit(&mut self, _places: &mut Places<'_>, _page: PageId, _slot: Slot, _entry: Entry) {}

    /// Records that the page was written to its data file. It may become an insert candidate next.
    fn written(&mut self, _places: &mut Places<'_>, _page: PageId) {}

    /// Whether to admit a page without an entry while pages compete. If there is no room, the engine usually asks for a
    /// victim next; it does not if the insertion fails for another reason.
    fn admits(&mut self, places: &mut Places<'_>, page: PageId, what: Candidate) -> bool;

    /// The initial clock of the page's new entry, 0 to 3.
    fn entered(&mut self, places: &mut Places<'_>, page: PageId) -> u8;

    /// The page on a device to evict now; `None` if a bounded search finds none.
    fn victim(&mut self, places: &mut Places<'_>) -> Option<Slot>;

    /// Score of the page in a full staging area. The page with the lowest score is dropped.
    fn score(&self, places: &Places<'_>, page: PageId) -> u32;

    /// The remembered number of recent reads of the page with this identity, 0 to [`MAX_COUNT`]. All policies use the
    /// same scale, so that servers can exchange it.
    fn count(&self, _identity: u64) -> u32 {
        0
    }

    /// Registers a page that is inserted on behalf of another server, which read it about `count` times recently. The
    /// page counts as read at least that often. The call is no read and ages no other page. Returns the clock of the
    /// entry, 0 to 3.
    fn seed(&mut self, places: &mut Places<'_>, page: PageId, count: u32) -> u8;

    /// The other server, on whose behalf the page of this identity was admitted, no longer uses it.
    fn cool(&mut self, _identity: u64) {}

    /// Number of reads of an instance between two calls of [`learn`](Self::learn).
    fn learn_every(&self) -> u64 {
        u64::MAX
    }

    /// `full`: pages compete for room.
    fn learn(&mut self, _full: bool) {}
}

/// A policy's view of the instance's directory, and the table rules that apply to the current page.
pub(crate) struct Places<'a> {
    directory: &'a mut Directory,
    /// Group of the current page.
    group: Group,
    /// If set, only entries of this group are visible, as if there were no others.
    only: Option<Group>,
}

impl<'a> Places<'a> {
    pub fn new(directory: &'a mut Directory) -> Places<'a> {
        Places {
            directory,
            group: Group::NORMAL,
            only: None,
        }
    }

    /// For a page of `group`, which competes only with entries of `only` if that is set.
    pub fn of(self, group: Group, only: Option<Group>) -> Places<'a> {
        Places {
            group,
            only,
            ..self
        }
    }

    /// Whether all entries compete.
    pub fn has_all(&self) -> bool {
        self.only.is_none()
    }

    /// Whether a rule limits the current page to a part of the cache, regardless of the policy.
    pub fn is_limited(&self) -> bool {
        self.group.is_limited()
    }

    /// Entries of pages without a limit, as far as known.
    pub fn without_limit(&self) -> u64 {
        let groups = (0..Group::COUNT).map(Group::of_number);
        let limited = groups.filter(|group| group.is_limited());
        let counted: u64 = limited.map(|group| self.directory.count(group)).sum();
        self.directory.used().saturating_sub(counted)
    }

    /// Whether the insert candidate competes with a bonus.
    pub fn prefers(&self) -> bool {
        self.group == Group::PREFERRED
    }

    /// Whether an entry does.
    pub fn prefers_at(&self, slot: Slot) -> bool {
        self.directory.group_at(slot) == Group::PREFERRED
    }

    /// Identifies a page, with one collision in some thousands: the same for a page and for its entry, in whichever
    /// bucket that is.
    pub fn identity(&self, page: PageId) -> u64 {
        self.directory.identity(self.directory.key(page))
    }

    /// The identity of the page of an entry.
    pub fn identity_at(&self, slot: Slot) -> u64 {
        self.directory.identity_at(slot)
    }

    pub fn buckets(&self) -> u32 {
        self.directory.buckets() as u32
    }

    /// Entries of a bucket whose pages are on devices: at most six, in one cache line.
    pub fn on_devices(&self, bucket: u32) -> impl Iterator<Item = (Slot, Entry)> + use<> {
        let competing = match self.only {
            None => u8::MAX,
            Some(group) => self.directory.ways_of(bucket, group),
        };
        let competes = move |(slot, _): &(Slot, Entry)| competing >> slot.way() & 1 == 1;
        self.directory.on_devices(bucket).filter(competes)
    }

    fn competes(&self, slot: Slot) -> bool {
        self.only
            .is_none_or(|group| self.directory.group_at(slot) == group)
    }

    /// The entry in this bucket that refers to this location on a device.
    pub fn find_location(&self, bucket: u32, location: u32) -> Option<Slot> {
        let slot = self.directory.find_location(bucket, location)?;
        self.competes(slot).then_some(slot)
    }

    pub fn entry(&self, slot: Slot) -> Entry {
        self.directory.get(slot)
    }

    pub fn set_clock(&mut self, slot: Slot, clock: u8) {
        let entry = self.directory.get(slot);
        self.directory.replace(slot, Entry { clock, ..entry });
    }
}
