//! The policy: which pages get in once the cache is full, and which have to go for them.
//!
//! Servers use [`density`]. [`second_chance`] lets everything in: tests and replays compare with it, and no server has it.
//! A further policy is one file in `policy/` with a type that is a [`Policy`], and its lines here and in [`list`].
//! `bpe-lab replay --policy NAME` then runs it in the engine over a recorded stream, and [`crate::Config::policy`] names it.
//!
//! Every instance has a policy of its own, which is called under the instance's lock, and all of them share a
//! [`Policy::Model`]. The engine asks whether a page may come in only while pages compete for room, and who has to go only when
//! there is none. It counts, moves and removes entries by itself; a policy sees them through [`Places`], and writes nothing
//! there but two bits of each entry, the clock: high for pages that it would keep, since warming, reclaiming segments and a full directory
//! go by it, too. Pages that are invalidated go without a word. What a policy remembers of
//! pages it finds by their [`Places::identity`], which is the same for a page and for its entry. When a page is evicted the policy
//! has just named it, and can note then what it wants to know of it, such as its age.
//!
//! Rules. After `new`: no allocation, no lock (in `look` an attempt at one), no I/O, no clock, no chance. What it does follows
//! from its calls alone, so that a replay is repeatable. All memory but a few KiB is counted by `bytes`. `accessed` and `hit` are on
//! the path of every read: one cache line, 150 instructions at most.

pub(crate) mod density;
pub(crate) mod list;
mod second_chance;

use std::io;
use std::sync::Arc;

use crate::directory::{Directory, Entry, Slot};
use crate::group::Group;
use crate::page::PageId;

/// The most that is remembered of how often a page was read.
pub(crate) const MOST_COUNT: u32 = 15;

/// Ages a counter, whose lowest bits are a count up to [`MOST_COUNT`] and the others tell the page. At 0 it forgets the page.
#[inline]
fn halve(counter: &mut u16) {
    const COUNT: u16 = MOST_COUNT as u16;
    let count = (*counter & COUNT) >> 1;
    *counter = if count == 0 {
        0
    } else {
        *counter & !COUNT | count
    };
}

/// A page that asks for a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Candidate {
    /// It was just read: InnoDB has it now, and will not ask for it for a while.
    Read,
    /// It was just written: InnoDB is likely to be about to let go of it.
    Written,
}

/// How freely memory may be taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Thrift {
    Usual,
    /// There is a limit on memory, and the usual is above it.
    Scarce,
}

/// See the module's documentation for what a policy may do.
pub(crate) trait Policy: Sized + Send {
    /// As the configuration and `bpe-lab replay --policy` take it.
    const NAME: &'static str;

    /// What the policies of all instances share; `()` if nothing.
    type Model: Send + Sync;

    /// For a cache of so many pages.
    fn model(pages: u64) -> Self::Model;

    /// Bytes that the policy of an instance of so many pages takes for good.
    fn bytes(pages: u64, thrift: Thrift) -> u64;

    /// For an instance of so many pages on average.
    ///
    /// # Errors
    /// If there is no memory.
    fn new(pages: u64, thrift: Thrift, model: &Arc<Self::Model>) -> io::Result<Self>;

    /// Bytes that it has taken.
    #[cfg(test)]
    fn memory_bytes(&self) -> u64;

    /// The page is read; `found`: its entry, if it has one. Whether it was read before, as far as is remembered: for people.
    fn accessed(&mut self, places: &mut Places<'_>, page: PageId, found: Option<Slot>) -> bool;

    /// The entry was found for a read, which is told by `accessed` too: before or after, and other reads may come between the two.
    fn hit(&mut self, _places: &mut Places<'_>, _page: PageId, _slot: Slot, _entry: Entry) {}

    /// The page was written to its data file, and may be offered next.
    fn written(&mut self, _places: &mut Places<'_>, _page: PageId) {}

    /// Whether a page without an entry gets in, though pages compete. If there is no room the engine asks for a victim next, but
    /// not always: the offer may fail for other reasons.
    fn admits(&mut self, places: &mut Places<'_>, page: PageId, what: Candidate) -> bool;

    /// Clock of the entry that the page is about to get, 0 to 3.
    fn entered(&mut self, places: &mut Places<'_>, page: PageId) -> u8;

    /// The page on a device that has to go now; `None` if none is found within bounded steps.
    fn victim(&mut self, places: &mut Places<'_>) -> Option<Slot>;

    /// How much the page is worth among those that wait in a full staging: the one that is worth least goes.
    fn worth(&self, places: &Places<'_>, page: PageId) -> u32;

    /// How often the page of this identity was read of late, 0 to [`MOST_COUNT`], as far as is remembered. All policies mean the
    /// same by it, so that one server can tell another.
    fn count(&self, _identity: u64) -> u32 {
        0
    }

    /// A page gets an entry on behalf of another server, which has read it about so often of late: it is remembered as read
    /// so often at least. Counts as no read, and ages nobody. The clock of the entry, 0 to 3.
    fn seed(&mut self, places: &mut Places<'_>, page: PageId, count: u32) -> u8;

    /// Another server, on whose behalf the page of this identity was let in, has no use for it any more.
    fn cool(&mut self, _identity: u64) {}

    /// Reads of an instance after which [`learn`](Self::learn) is called.
    fn learn_every(&self) -> u64 {
        u64::MAX
    }

    /// `full`: pages compete for room.
    fn learn(&mut self, _full: bool) {}
}

/// The directory of the instance, as a policy may use it, and what the rules for tables say that matters now.
pub(crate) struct Places<'a> {
    directory: &'a mut Directory,
    /// Of the page that is asked about.
    group: Group,
    /// One of this group has to go: as if there were no others.
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

    /// For a page of this group, which competes with the entries of one group if that is given.
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

    /// The page that is asked about may take a part of the cache only, whatever a policy thinks of it.
    pub fn is_limited(&self) -> bool {
        self.group.is_limited()
    }

    /// Entries of pages that may take all of the cache, as far as is known.
    pub fn without_limit(&self) -> u64 {
        let groups = (0..Group::COUNT).map(Group::of_number);
        let limited = groups.filter(|group| group.is_limited());
        let counted: u64 = limited.map(|group| self.directory.count(group)).sum();
        self.directory.used().saturating_sub(counted)
    }

    /// The page that asks for a place competes with a bonus.
    pub fn prefers(&self) -> bool {
        self.group == Group::PREFERRED
    }

    /// An entry does.
    pub fn prefers_at(&self, slot: Slot) -> bool {
        self.directory.group_at(slot) == Group::PREFERRED
    }

    /// Tells pages apart, but for one in some thousands: the same for a page and for its entry, wherever that is.
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

    /// Entries of pages on devices in a bucket: at most six, in one cache line.
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
