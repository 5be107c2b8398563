//! Directory of one instance: maps each cached page to its location, in 11.1 bytes a page.
//!
//! # Terms
//! - *Bucket*: one cache line with six *ways*. A way has one entry, or is empty.
//! - *Entry*: kind, location, check and clock of a cached page.
//! - *Mark*: the word that makes an entry present: its fingerprint and clock; 0 if the way is empty.
//! - *Fingerprint*: 14 bits of the page's hash. The entry holds it instead of the page.
//! - *Key*: fingerprint and first bucket of a page. *Slot*: bucket and way of an entry, valid until the directory changes.
//!
//! # Lookup
//! Each page has two candidate buckets (partial-key cuckoo hashing). Its hash gives the first;
//! `turn(fingerprint) - bucket`, modulo the number of buckets, gives the other. This function leads from either bucket to
//! the other without the page, so entries can move to make room.
//!
//! The directory holds at most one of two pages with the same fingerprint and the same buckets. So a lookup has at most one
//! match, and removing the match of a page always removes the page. One lookup of an absent page in 1,400 finds the entry
//! of another page: the caller must prove a match with `check`.
//!
//! # States of a way
//! | from | to | by |
//! |---|---|---|
//! | empty | entry | `insert` |
//! | entry | the same page, another location or clock | `replace` |
//! | entry | empty, and the entry in its other bucket | `insert` of another page, to make room |
//! | entry | empty | `remove`, `sweep`; `insert` of a page for which three levels of moves free no way: the lowest clock |
//!
//! # Crash consistency
//! The process may end between any two instructions, and the memory may outlive it ([`crate::instance::arena`]). At any such
//! instant, every present entry is complete and the only one of its page. Three rules ensure this ([`Bucket`]): an entry is
//! cleared before any of its fields is rewritten, its mark is written last, and a moved entry is cleared before it is
//! inserted again. So a crash loses at most one entry. `dying_tests.rs` ends the process at every store.
//!
//! # Locks and cost
//! The instance's lock guards the directory. A lookup reads two cache lines at most. Directories are sized to be 96 % full.
//! After `new` it allocates nothing, and no operation fails.

#[cfg(not(miri))]
use std::fs::File;
use std::io;

use crate::common::group::Group;
use crate::common::memory::{Mapped, Zeroable, in_pages};
use crate::common::page::{PageId, UNIT, mix64};
use crate::common::violations::Violations;
use crate::index::directory::tags::Tags;

const WAYS: usize = 6;
const CLOCK: u16 = 3;
const KIND_BITS: u32 = 5;
const FINGERPRINTS: u32 = 1 << 14;
/// Entries per hundred ways.
const LOAD_PERCENT: u64 = 96;

/// How a page is stored, in five bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kind(u8);

impl Kind {
    pub const STAGED: Kind = Kind(7);
    /// Maximum length of a compressed page, in units of `packed_unit`.
    pub const MAX_PACKED: usize = 14;

    /// Uncompressed, `length` bytes.
    pub fn raw(length: usize) -> Kind {
        debug_assert!(crate::common::page::is_page_length(length));
        Kind((length / UNIT).trailing_zeros() as u8)
    }

    /// Compressed, in `units` of `packed_unit`.
    pub fn packed(units: usize) -> Kind {
        debug_assert!((1..=Self::MAX_PACKED).contains(&units));
        Kind(7 + units as u8)
    }

    /// Unit in bytes of the stored length of a compressed page of `page_length`.
    pub fn packed_unit(page_length: usize) -> usize {
        (page_length / 16).max(UNIT)
    }

    /// Uncompressed, and InnoDB's page number inside the page differs from the number of the page.
    pub fn raw_unnumbered(length: usize) -> Kind {
        Kind(Self::UNNUMBERED + Self::raw(length).0)
    }

    const UNNUMBERED: u8 = 22;
    const END: u8 = Self::UNNUMBERED + 7;

    pub fn is_raw(self) -> bool {
        self.0 < 7 || self.0 >= Self::UNNUMBERED
    }

    /// The page contains its own number.
    pub fn is_numbered(self) -> bool {
        self.0 < Self::UNNUMBERED
    }

    /// Units on the device. Exact for uncompressed pages; compressed pages are assumed to have the `nominal` length.
    pub fn units(self, nominal: usize) -> u32 {
        match self.0 {
            0..7 => 1 << self.0,
            7 => 0,
            n @ Self::UNNUMBERED.. => 1 << (n - Self::UNNUMBERED),
            n => u32::from(n - 7) * (Self::packed_unit(nominal) / UNIT) as u32,
        }
    }

    /// Length of the page in bytes, if it is uncompressed.
    pub fn raw_length(self) -> Option<usize> {
        // The nominal length only matters for compressed pages.
        self.is_raw().then(|| self.units(UNIT) as usize * UNIT)
    }

    /// Bytes on the device for a page of `page_length`; `None` if this kind cannot store that length.
    pub fn stored(self, page_length: usize) -> Option<usize> {
        match self.0 {
            0..7 => (UNIT << self.0 == page_length).then_some(page_length),
            7 => None,
            n @ Self::UNNUMBERED.. => {
                (UNIT << (n - Self::UNNUMBERED) == page_length).then_some(page_length)
            }
            n => {
                let stored = usize::from(n - 7) * Self::packed_unit(page_length);
                (stored < page_length).then_some(stored)
            }
        }
    }

    pub fn to_byte(self) -> u8 {
        self.0
    }

    /// `None` for values that no page on a device has.
    pub fn from_byte(byte: u8) -> Option<Kind> {
        (byte != Self::STAGED.0 && byte < Self::END).then_some(Kind(byte))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub check: u32,
    /// Frame if staged, else the first unit over all devices.
    pub location: u32,
    pub kind: Kind,
    /// Score from the policy, at most 3. Code that does not consult the policy treats a higher clock as hotter.
    pub clock: u8,
}

/// Candidate location of a page: its fingerprint and first bucket.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    fingerprint: u16,
    bucket: u32,
}

/// Location of an entry. Valid until the directory changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    bucket: u32,
    way: u8,
}

impl Slot {
    pub fn way(self) -> usize {
        self.way.into()
    }
}

/// Every store goes through [`store`], in program order. So a mark other than 0 always belongs to the fields beside it,
/// at whatever instruction the process ends. A change of the mark alone is one store of two bytes.
#[repr(C, align(64))]
#[cfg_attr(test, derive(Clone, Copy))]
struct Bucket {
    /// Five bits per way.
    kinds: u32,
    /// Fingerprint (never 0) and clock; 0: empty.
    marks: [u16; WAYS],
    checks: [u32; WAYS],
    locations: [u32; WAYS],
}

const _: () = assert!(size_of::<Bucket>() == 64);

// SAFETY: integers; zero is the empty bucket.
unsafe impl Zeroable for Bucket {}

/// Whether a test disables a rule, to prove that the tests detect its absence.
macro_rules! canary {
    ($rule:ident) => {
        dying::is_disabled(dying::Rule::$rule)
    };
}

impl Bucket {
    fn way_of(&self, fingerprint: u16) -> Option<usize> {
        self.marks.iter().position(|mark| mark >> 2 == fingerprint)
    }

    fn empty_way(&self) -> Option<usize> {
        self.marks.iter().position(|&mark| mark == 0)
    }

    fn kind(&self, way: usize) -> Kind {
        Kind((self.kinds >> (way as u32 * KIND_BITS)) as u8 & ((1 << KIND_BITS) - 1))
    }

    fn get(&self, way: usize) -> Entry {
        Entry {
            check: self.checks[way],
            location: self.locations[way],
            kind: self.kind(way),
            clock: (self.marks[way] & CLOCK) as u8,
        }
    }

    /// Clears the old entry before it stores any field of the new one. The new entry counts only once its mark is
    /// stored.
    fn set(&mut self, way: usize, fingerprint: u16, entry: Entry) {
        debug_assert!((1..FINGERPRINTS).contains(&fingerprint.into()));
        debug_assert!(u16::from(entry.clock) <= CLOCK);
        let shift = way as u32 * KIND_BITS;
        let kinds =
            self.kinds & !(((1 << KIND_BITS) - 1) << shift) | u32::from(entry.kind.0) << shift;
        let mark = fingerprint << 2 | u16::from(entry.clock.min(CLOCK as u8));
        if canary!(MarkLast) {
            store(&mut self.marks[way], mark);
        } else if self.marks[way] != 0 && !canary!(ClearBefore) {
            self.clear(way);
        }
        store(&mut self.kinds, kinds);
        store(&mut self.checks[way], entry.check);
        store(&mut self.locations[way], entry.location);
        store(&mut self.marks[way], mark);
    }

    fn clear(&mut self, way: usize) {
        store(&mut self.marks[way], 0);
    }
}

/// A store that the compiler neither reorders with others nor merges.
#[inline(always)]
fn store<T>(place: &mut T, value: T) {
    if dying::is_dead() {
        return;
    }
    // SAFETY: a reference is valid and aligned; the old value is an integer, which needs no drop.
    unsafe { std::ptr::write_volatile(place, value) };
}

pub(crate) struct Directory {
    buckets: Mapped<Bucket>,
    used: u64,
    /// Entries removed so far, for any reason.
    gone: u64,
    /// Present while there are groups.
    tags: Option<Tags>,
}

impl Directory {
    fn buckets_for(pages: u64) -> u64 {
        (pages * 100).div_ceil(LOAD_PERCENT * WAYS as u64).max(2)
    }

    /// Memory in bytes of a directory for `pages` pages.
    pub fn memory_needed(pages: u64) -> u64 {
        in_pages(Self::buckets_for(pages) * size_of::<Bucket>() as u64)
    }

    /// Additional bytes for the groups of its entries, used while rules need them.
    pub fn tags_needed(pages: u64) -> u64 {
        Tags::memory_needed(Self::buckets_for(pages))
    }

    pub fn new(pages: u64) -> io::Result<Directory> {
        let buckets =
            u32::try_from(Self::buckets_for(pages)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        Ok(Self::over(Mapped::new(buckets as usize)?))
    }

    /// A directory for `pages` pages, in memory that outlives the process. Call [`attach`](Self::attach) on its contents
    /// before anything else.
    ///
    /// # Safety
    /// As for [`Mapped::of_file`], over [`memory_needed`](Self::memory_needed) bytes.
    #[cfg(not(miri))]
    pub unsafe fn of_file(file: &File, offset: u64, pages: u64) -> io::Result<Directory> {
        let buckets =
            u32::try_from(Self::buckets_for(pages)).map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: the caller's promise; a bucket is made of integers.
        Ok(Self::over(unsafe {
            Mapped::of_file(file, offset, buckets as usize)?
        }))
    }

    fn over(buckets: Mapped<Bucket>) -> Directory {
        Directory {
            buckets,
            used: 0,
            gone: 0,
            tags: None,
        }
    }

    /// Starts or stops tracking the groups of entries. Existing entries belong to no group.
    pub fn change_tags(&mut self, tags: Option<Tags>) -> Option<Tags> {
        debug_assert!(tags.as_ref().is_none_or(|tags| {
            tags.memory_bytes() == Tags::memory_needed(self.buckets.len() as u64)
        }));
        std::mem::replace(&mut self.tags, tags)
    }

    pub fn has_tags(&self) -> bool {
        self.tags.is_some()
    }

    pub fn tag_bytes(&self) -> u64 {
        self.tags.as_ref().map_or(0, Tags::memory_bytes)
    }

    /// The group of an entry.
    #[inline]
    pub fn group_at(&self, slot: Slot) -> Group {
        let tags = self.tags.as_ref();
        tags.map_or(Group::NORMAL, |tags| tags.get(slot.bucket, slot.way.into()))
    }

    /// A bit for each way of a bucket whose entry belongs to `group`.
    pub fn ways_of(&self, bucket: u32, group: Group) -> u8 {
        let of = |way: &usize| {
            let tags = self.tags.as_ref();
            tags.is_some_and(|tags| tags.get(bucket, *way) == group)
        };
        (0..WAYS).filter(of).fold(0, |ways, way| ways | 1 << way)
    }

    /// Assigns an entry to a group.
    #[inline]
    pub fn mark(&mut self, slot: Slot, group: Group) {
        self.tag(slot.bucket, slot.way.into(), group);
    }

    #[inline]
    fn tag(&mut self, bucket: u32, way: usize, group: Group) {
        if let Some(tags) = &mut self.tags {
            tags.set(bucket, way, group);
        }
    }

    /// Entries known to belong to a group; 0 for [`Group::NORMAL`].
    #[inline]
    pub fn count(&self, group: Group) -> u64 {
        self.tags.as_ref().map_or(0, |tags| tags.count(group))
    }

    /// Removes the entries in `count` buckets, starting at `first`, from every group that is not `used`, because such a
    /// group will denote other pages. Returns how many entries of such groups remain elsewhere.
    pub fn forget_unused(
        &mut self,
        first: usize,
        count: usize,
        used: &[bool; Group::COUNT],
    ) -> u64 {
        let Some(tags) = &mut self.tags else { return 0 };
        let is_unused = |group: &Group| *group != Group::NORMAL && !used[group.number()];
        let unused = || (0..Group::COUNT).map(Group::of_number).filter(is_unused);
        let end = first.saturating_add(count).min(self.buckets.len());
        if unused().any(|group| tags.count(group) > 0) {
            for bucket in first.min(end) as u32..end as u32 {
                for way in 0..WAYS {
                    if is_unused(&tags.get(bucket, way)) {
                        tags.set(bucket, way, Group::NORMAL);
                    }
                }
            }
        }
        unused().map(|group| tags.count(group)).sum()
    }

    /// Attaches the entries of a previous process, except those for which `keep` is false. Returns the numbers of kept
    /// and dropped entries.
    pub fn attach(&mut self, mut keep: impl FnMut(Entry) -> bool) -> (u64, u64) {
        debug_assert_eq!((self.used, self.gone), (0, 0), "adopted before");
        let (mut kept, mut dropped) = (0, 0);
        for bucket in self.buckets.iter_mut() {
            for way in 0..WAYS {
                if bucket.marks[way] == 0 {
                } else if bucket.marks[way] >> 2 != 0 && keep(bucket.get(way)) {
                    kept += 1;
                } else {
                    bucket.clear(way);
                    dropped += 1;
                }
            }
        }
        self.used = kept;
        (kept, dropped)
    }

    #[cfg(test)]
    pub fn memory_bytes(&self) -> u64 {
        self.buckets.memory_bytes()
    }

    /// Pages in the directory.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Entries removed so far, for any reason.
    pub fn gone(&self) -> u64 {
        self.gone
    }

    /// Corrupts the counts: one entry more than `used`.
    #[cfg(test)]
    pub fn forget_one_entered(&mut self) {
        self.used -= 1;
    }

    /// Corrupts the counts: one removed entry is missing from `gone`.
    #[cfg(test)]
    pub fn forget_one_gone(&mut self) {
        self.gone -= 1;
    }

    /// Number of pages that it was sized for.
    pub fn capacity(&self) -> u64 {
        (self.buckets.len() * WAYS) as u64 * LOAD_PERCENT / 100
    }

    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    pub fn key(&self, page: PageId) -> Key {
        let hash = page.hash();
        Key {
            fingerprint: (hash as u32 % (FINGERPRINTS - 1)) as u16 + 1,
            bucket: (((hash >> 32) * self.buckets.len() as u64) >> 32) as u32,
        }
    }

    /// The other bucket of an entry.
    fn other(&self, bucket: u32, fingerprint: u16) -> u32 {
        let buckets = self.buckets.len() as u64;
        let turn = (u64::from(u32::from(fingerprint).wrapping_mul(0x9e37_79b1)) * buckets) >> 32;
        let other = turn + buckets - u64::from(bucket);
        let other = if other >= buckets {
            other - buckets
        } else {
            other
        };
        debug_assert_eq!((turn + buckets - other) % buckets, bucket.into());
        other as u32
    }

    /// Whether a lookup of one page finds the entry of the other.
    pub fn look_alike(&self, one: PageId, other: PageId) -> bool {
        let (a, b) = (self.key(one), self.key(other));
        let alike = a.fingerprint == b.fingerprint;
        one != other
            && alike
            && (a.bucket == b.bucket || self.other(a.bucket, a.fingerprint) == b.bucket)
    }

    /// Hash of the fingerprint and the lower bucket: the same for a page and for its entry, in whichever bucket that
    /// is.
    pub fn identity(&self, key: Key) -> u64 {
        let lower = key.bucket.min(self.other(key.bucket, key.fingerprint));
        mix64(u64::from(lower) << 14 | u64::from(key.fingerprint))
    }

    /// The identity of an entry.
    pub fn identity_at(&self, slot: Slot) -> u64 {
        let fingerprint = self.buckets[slot.bucket as usize].marks[usize::from(slot.way)] >> 2;
        self.identity(Key {
            fingerprint,
            bucket: slot.bucket,
        })
    }

    /// Entries of a bucket whose pages are on devices.
    pub fn on_devices(&self, bucket: u32) -> impl Iterator<Item = (Slot, Entry)> + use<> {
        let entries = &self.buckets[bucket as usize];
        let found: [Option<(Slot, Entry)>; WAYS] = std::array::from_fn(|way| {
            let there = entries.marks[way] != 0 && entries.kind(way) != Kind::STAGED;
            let way8 = way as u8;
            there.then(|| (Slot { bucket, way: way8 }, entries.get(way)))
        });
        found.into_iter().flatten()
    }

    pub fn find(&self, key: Key) -> Option<Slot> {
        if let Some(way) = self.buckets[key.bucket as usize].way_of(key.fingerprint) {
            return Some(Slot {
                bucket: key.bucket,
                way: way as u8,
            });
        }
        let bucket = self.other(key.bucket, key.fingerprint);
        let way = self.buckets[bucket as usize].way_of(key.fingerprint)?;
        Some(Slot {
            bucket,
            way: way as u8,
        })
    }

    /// The entry in this bucket that refers to this location on a device.
    pub fn find_location(&self, bucket: u32, location: u32) -> Option<Slot> {
        let entries = self.buckets.get(bucket as usize)?;
        let refers = |&way: &usize| {
            entries.marks[way] != 0
                && entries.locations[way] == location
                && entries.kind(way) != Kind::STAGED
        };
        let way = (0..WAYS).find(refers)? as u8;
        Some(Slot { bucket, way })
    }

    pub fn get(&self, slot: Slot) -> Entry {
        let bucket = &self.buckets[slot.bucket as usize];
        debug_assert_ne!(bucket.marks[slot.way()], 0, "no entry is there");
        bucket.get(slot.way.into())
    }

    /// Changes all fields except the fingerprint.
    pub fn replace(&mut self, slot: Slot, entry: Entry) {
        let bucket = &mut self.buckets[slot.bucket as usize];
        let fingerprint = bucket.marks[usize::from(slot.way)] >> 2;
        bucket.set(slot.way.into(), fingerprint, entry);
    }

    pub fn remove(&mut self, slot: Slot) -> Entry {
        let bucket = &mut self.buckets[slot.bucket as usize];
        debug_assert_ne!(bucket.marks[slot.way()], 0, "no entry is there");
        let entry = bucket.get(slot.way.into());
        bucket.clear(slot.way.into());
        self.tag(slot.bucket, slot.way.into(), Group::NORMAL);
        self.used -= 1;
        self.gone += 1;
        entry
    }

    /// Inserts a page that has no match. If both buckets are full and a bounded number of moves frees no way, it evicts
    /// and returns the entry with the lowest clock among the page's twelve.
    pub fn insert(&mut self, key: Key, entry: Entry, group: Group) -> Option<Entry> {
        debug_assert!(self.find(key).is_none());
        let candidates = [key.bucket, self.other(key.bucket, key.fingerprint)];
        for bucket in candidates {
            if let Some(way) = self.buckets[bucket as usize].empty_way() {
                return self.place(bucket, way, key, entry, group);
            }
        }
        for bucket in candidates {
            if let Some(way) = (1..=3).find_map(|depth| self.vacate(bucket, depth)) {
                return self.place(bucket, way, key, entry, group);
            }
        }
        let ways = candidates
            .iter()
            .flat_map(|&bucket| (0..WAYS as u8).map(move |way| Slot { bucket, way }));
        let slot = ways.min_by_key(|&slot| self.get(slot).clock)?;
        let victim = self.remove(slot);
        self.place(slot.bucket, slot.way.into(), key, entry, group);
        Some(victim)
    }

    fn place(
        &mut self,
        bucket: u32,
        way: usize,
        key: Key,
        entry: Entry,
        group: Group,
    ) -> Option<Entry> {
        self.buckets[bucket as usize].set(way, key.fingerprint, entry);
        self.tag(bucket, way, group);
        self.used += 1;
        None
    }

    /// Frees a way of a full bucket by moving one entry to its other bucket. That bucket has a free way (`depth` 1), or
    /// gets one by the same procedure. Returns the way.
    fn vacate(&mut self, bucket: u32, depth: u32) -> Option<usize> {
        debug_assert!(self.buckets[bucket as usize].empty_way().is_none());
        for way in 0..WAYS {
            let fingerprint = self.buckets[bucket as usize].marks[way] >> 2;
            let other = self.other(bucket, fingerprint);
            if other == bucket {
                continue;
            }
            let free = match self.buckets[other as usize].empty_way() {
                Some(free) => Some(free),
                None if depth > 1 => self.vacate(other, depth - 1),
                None => None,
            };
            // Vacating `other` may have moved an entry into this way, so check the way again.
            if let Some(free) = free {
                if self.buckets[bucket as usize].marks[way] >> 2 == fingerprint {
                    let entry = self.buckets[bucket as usize].get(way);
                    if canary!(ClearFirst) {
                        self.buckets[other as usize].set(free, fingerprint, entry);
                    }
                    // Clear first: after a crash between the two stores, two entries of one page would survive, and a
                    // write drops only one.
                    self.buckets[bucket as usize].clear(way);
                    self.buckets[other as usize].set(free, fingerprint, entry);
                    if let Some(tags) = &mut self.tags {
                        let group = tags.get(bucket, way);
                        tags.set(bucket, way, Group::NORMAL);
                        tags.set(other, free, group);
                    }
                    return Some(way);
                }
            }
        }
        None
    }

    /// Calls `act` for every entry.
    pub fn for_each(&self, mut act: impl FnMut(Slot, Entry)) {
        for (bucket, entries) in self.buckets.iter().enumerate() {
            for way in (0..WAYS).filter(|&way| entries.marks[way] != 0) {
                let slot = Slot {
                    bucket: bucket as u32,
                    way: way as u8,
                };
                act(slot, entries.get(way));
            }
        }
    }

    /// Verifies that `used` counts all entries, and that each is the only match of its page.
    pub fn validate(&self, violations: &mut Violations) {
        let mut used = 0;
        self.for_each(|slot, entry| {
            used += 1;
            let fingerprint = self.buckets[slot.bucket as usize].marks[usize::from(slot.way)] >> 2;
            let key = |bucket| Key {
                fingerprint,
                bucket,
            };
            let other = self.other(slot.bucket, fingerprint);
            violations.expect(self.other(other, fingerprint) == slot.bucket, || {
                format!("bucket {other} of {slot:?} does not lead back")
            });
            for bucket in [slot.bucket, other] {
                violations.expect(self.find(key(bucket)) == Some(slot), || {
                    format!("{slot:?} is not the only one of its fingerprint")
                });
            }
            let known =
                entry.kind == Kind::STAGED || Kind::from_byte(entry.kind.to_byte()).is_some();
            violations.expect(known, || format!("{slot:?} is of kind {:?}", entry.kind));
        });
        violations.equal(self.used, used, "entries of a directory");
        if let Some(tags) = &self.tags {
            let mut counts = [0; Group::COUNT];
            for bucket in 0..self.buckets.len() as u32 {
                for way in 0..WAYS {
                    let group = tags.get(bucket, way);
                    counts[group.number()] += 1;
                    let there = self.buckets[bucket as usize].marks[way] != 0;
                    violations.expect(there || group == Group::NORMAL, || {
                        format!("{group:?} of no entry in bucket {bucket}")
                    });
                }
            }
            for (number, counted) in counts.iter().enumerate().skip(1) {
                let known = tags.count(Group::of_number(number));
                violations.equal(known, *counted, "entries of a group");
            }
        }
    }

    /// Removes the entries for which `condemned` is true, from `count` buckets starting at `first`.
    pub fn sweep(&mut self, first: usize, count: usize, mut condemned: impl FnMut(Entry) -> bool) {
        let end = first.saturating_add(count).min(self.buckets.len());
        let mut removed = 0;
        for at in first.min(end)..end {
            for way in 0..WAYS {
                let bucket = &mut self.buckets[at];
                if bucket.marks[way] != 0 && condemned(bucket.get(way)) {
                    bucket.clear(way);
                    self.tag(at as u32, way, Group::NORMAL);
                    removed += 1;
                }
            }
        }
        self.used -= removed;
        self.gone += removed;
    }
}

mod dying;
pub(crate) mod tags;

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::common::page::FileId;

    fn page(n: u32) -> PageId {
        PageId::new(FileId(n % 7), n)
    }

    /// Increments the clock of an entry, up to 3.
    fn heat_up(directory: &mut Directory, slot: Slot) {
        let entry = directory.get(slot);
        let clock = (entry.clock + 1).min(3);
        directory.replace(slot, Entry { clock, ..entry });
    }

    fn entry(n: u32) -> Entry {
        Entry {
            check: n,
            location: n.wrapping_mul(7),
            kind: Kind::raw(16384),
            clock: 0,
        }
    }

    #[test]
    fn kinds_know_their_length() {
        for length in [1024, 2048, 4096, 8192, 16384, 32768, 65536] {
            assert_eq!(Kind::raw(length).stored(length), Some(length));
            assert_eq!(Kind::raw(length).stored(length * 2), None);
            assert_eq!(Kind::raw_unnumbered(length).stored(length), Some(length));
            assert_eq!(Kind::raw_unnumbered(length).stored(length / 2), None);
            assert_eq!(
                Kind::from_byte(Kind::raw(length).to_byte()),
                Some(Kind::raw(length))
            );
        }
        assert_eq!(Kind::packed(5).stored(16384), Some(5 * 1024));
        assert_eq!(Kind::packed(5).stored(65536), Some(5 * 4096));
        assert_eq!(Kind::packed(5).stored(4096), None);
        assert_eq!(Kind::from_byte(7), None);
        assert_eq!(Kind::from_byte(29), None);
        assert!(Kind::packed(Kind::MAX_PACKED).is_numbered() && !Kind::packed(14).is_raw());
        assert!(Kind::from_byte(28).is_some_and(|kind| kind.is_raw() && !kind.is_numbered()));
        assert!(!Kind::STAGED.is_raw());
    }

    #[test]
    fn planned_pages_fit_below_twelve_bytes_without_eviction() {
        let pages = if cfg!(miri) { 2000 } else { 200_000 };
        let mut d = Directory::new(pages).unwrap();
        let mut lost = 0;
        for n in 0..pages as u32 {
            let key = d.key(page(n));
            match d.find(key) {
                Some(slot) => d.replace(slot, entry(n)),
                None => lost += u32::from(d.insert(key, entry(n), Group::NORMAL).is_some()),
            }
        }
        assert_eq!(lost, 0);
        assert!(d.memory_bytes() < pages * 12, "{}", d.memory_bytes());
        let found = (0..pages as u32).filter(|&n| {
            let slot = d.find(d.key(page(n)));
            slot.is_some_and(|slot| d.get(slot).check == n)
        });
        // Pages of the same fingerprint and buckets replaced the rest.
        assert!(found.count() > pages as usize - 200);
    }

    #[test]
    fn ways_of_group_are_those_of_its_entries() {
        let mut d = Directory::new(2000).unwrap();
        d.change_tags(Some(Tags::new(d.buckets()).unwrap()));
        let mut expected = HashMap::new();
        for n in 0..800 {
            let key = d.key(page(n));
            if d.find(key).is_none() {
                d.insert(key, entry(n), Group::of_number(n as usize % 3));
            }
        }
        d.for_each(|slot, _| {
            let place = (slot.bucket, d.group_at(slot).number());
            let ways = expected.entry(place).or_default();
            *ways |= 1u8 << slot.way;
        });
        for bucket in 0..d.buckets() as u32 {
            for number in 1..4 {
                let ways = d.ways_of(bucket, Group::of_number(number));
                let expected = expected.get(&(bucket, number));
                assert_eq!(ways, expected.copied().unwrap_or(0));
            }
        }
        d.change_tags(None);
        assert_eq!(d.ways_of(0, Group::of_number(1)), 0);
    }

    #[test]
    fn groups_that_are_not_used_any_more_are_forgotten() {
        let mut d = Directory::new(2000).unwrap();
        d.change_tags(Some(Tags::new(d.buckets()).unwrap()));
        for n in 0..800 {
            let key = d.key(page(n));
            if d.find(key).is_none() {
                d.insert(key, entry(n), Group::of_number(n as usize % 8));
            }
        }
        let counts = |d: &Directory| [1, 2, 3, 7].map(|n| d.count(Group::of_number(n)));
        let before = counts(&d);
        assert!(before.iter().all(|&count| count > 90), "{before:?}");
        let mut used = [false; Group::COUNT];
        (used[2], used[7]) = (true, true);
        let unused: u64 = (0..8)
            .filter(|&n| !used[n])
            .map(|n| d.count(Group::of_number(n)))
            .sum();
        let half = d.buckets() / 2;
        let left = d.forget_unused(0, half, &used);
        assert!(
            (unused / 4..unused * 3 / 4).contains(&left),
            "{left} of {unused}"
        );
        assert_eq!(d.forget_unused(half, usize::MAX, &used), 0);
        assert_eq!(counts(&d), [0, before[1], 0, before[3]]);
        let mut violations = Violations::default();
        d.validate(&mut violations);
        assert_eq!(violations.0, Vec::<String>::new());
    }

    #[test]
    #[cfg_attr(miri, ignore = "a million look-ups")]
    fn absent_pages_rarely_match() {
        let mut d = Directory::new(100_000).unwrap();
        for n in 0..100_000 {
            let key = d.key(page(n));
            if d.find(key).is_none() {
                d.insert(key, entry(n), Group::NORMAL);
            }
        }
        let matches = (1_000_000..2_000_000)
            .filter(|&n| d.find(d.key(page(n))).is_some())
            .count();
        assert!((300..1200).contains(&matches), "{matches}");
    }

    #[test]
    fn behaves_like_a_map_even_when_overfull() {
        let capacities: &[u64] = if cfg!(miri) {
            &[1, 20, 100]
        } else {
            &[1, 20, 500, 3000]
        };
        for &capacity in capacities {
            let mut d = Directory::new(capacity).unwrap();
            let mut model: HashMap<(u32, u16), Entry> = HashMap::new();
            let mut random = capacity;
            for _ in 0..if cfg!(miri) { 200 } else { 60_000 } {
                random = crate::common::page::mix64(random + 1);
                let n = (random >> 8) as u32 % (capacity as u32 * 2);
                let key = d.key(page(n));
                // An entry's identity: its fingerprint and the lower of its two buckets.
                let identity = (
                    key.bucket.min(d.other(key.bucket, key.fingerprint)),
                    key.fingerprint,
                );
                let slot = d.find(key);
                assert_eq!(slot.map(|s| d.get(s)), model.get(&identity).copied());
                match (random & 7, slot) {
                    (0..2, Some(slot)) => {
                        d.remove(slot);
                        model.remove(&identity);
                    }
                    (2..4, Some(slot)) => {
                        heat_up(&mut d, slot);
                        model.get_mut(&identity).unwrap().clock = d.get(slot).clock;
                    }
                    (_, Some(slot)) => {
                        d.replace(slot, entry(n ^ 77));
                        model.insert(identity, entry(n ^ 77));
                    }
                    (_, None) => {
                        let new = Entry {
                            location: (random >> 32) as u32,
                            ..entry(n)
                        };
                        if let Some(victim) = d.insert(key, new, Group::NORMAL) {
                            let at = *model
                                .iter()
                                .find(|(_, e)| **e == victim)
                                .expect("a victim was entered")
                                .0;
                            model.remove(&at);
                        }
                        model.insert(identity, new);
                    }
                }
                assert_eq!(d.used(), model.len() as u64);
            }
        }
    }

    #[test]
    fn the_entry_with_the_lowest_clock_gives_way() {
        let mut d = Directory::new(10).unwrap();
        for n in 0..if cfg!(miri) { 500 } else { 10_000 } {
            let key = d.key(page(n));
            let victim = match d.find(key) {
                Some(_) => None,
                None => d.insert(key, entry(n), Group::NORMAL),
            };
            if let Some(slot) = d.find(key) {
                for _ in 0..n % 4 {
                    heat_up(&mut d, slot);
                }
            }
            if n < 100 {
                assert!(victim.is_none_or(|v| v.clock < 3) || n > 30);
            }
        }
        assert!(d.used() <= 18);
    }

    #[test]
    fn a_sweep_removes_what_it_is_told() {
        let mut d = Directory::new(1000).unwrap();
        for n in 0..900 {
            let key = d.key(page(n));
            if d.find(key).is_none() {
                d.insert(key, entry(n), Group::NORMAL);
            }
        }
        let before = d.used();
        let mut odd = 0;
        for first in (0..d.buckets()).step_by(10) {
            d.sweep(first, 10, |e| {
                odd += u64::from(e.check % 2 == 1);
                e.check % 2 == 1
            });
        }
        assert!(odd > 400);
        assert_eq!(d.used(), before - odd);
        d.sweep(0, usize::MAX / 2, |e| e.check % 2 == 1);
        assert_eq!(d.used(), before - odd);
    }

    #[test]
    fn a_page_and_its_entry_have_one_identity() {
        let mut d = Directory::new(500).unwrap();
        for n in 0..480 {
            let key = d.key(page(n));
            if d.find(key).is_none() {
                d.insert(key, entry(n), Group::NORMAL);
            }
        }
        for n in 0..480 {
            let key = d.key(page(n));
            if let Some(slot) = d.find(key) {
                assert_eq!(d.identity(key), d.identity_at(slot));
            }
        }
    }
}
