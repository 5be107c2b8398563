//! Admission of one instance: which pages are worth a write.
//!
//! While the devices have room everything offered gets in. Then a page must have been asked for more often than the one
//! that has to go for it (TinyLFU): a page read once in a scan costs nothing but a counter.
//!
//! How often a page was asked for is counted in a table of tags. A set is one cache line of 32 counters of 4 bits, each
//! with a tag of 12 bits that says whose it is; the least recently asked for of the lowest makes place for a newcomer, but
//! only if it is at one. Compared with a count-min sketch of the same bytes, which has no tags and twice the counters,
//! pages that are asked for once in a while do not add up to a false frequency: with 2.4 counters a page this comes within
//! a point of counting every page exactly, the sketch loses up to five (recorded TPC-C stream, cache of half to four times
//! the pool). Counters are halved in the course of ten accesses for each page that the instance can hold, a set at a time,
//! so that no access pays for all.
//!
//! While the working set changes ([`crate::policy::drift`]) the old counts mean nothing: the least recently asked for makes place
//! for a newcomer whatever its count, and a page gets in when it is asked for a second time.
//!
//! The table knows pages by what their directory entries tell of them (`Directory::identity`), so that the frequency of the
//! victim can be asked for as well as that of the candidate.
//!
//! Everything is driven by calls and nothing by time or chance, so that a replay is repeatable.

use std::io;

use super::{Candidate, Thrift, halve};
use crate::measure::averaged;
use crate::memory::{Mapped, Zeroable, in_pages};
use crate::page::mix64;
use crate::policy::mode::AdmissionMode;

const WAYS: usize = 32;
const SET_BYTES: u64 = 64;
/// Quarters of a byte of counters for each page that the instance can hold: normally, and when memory is scarce.
const QUARTERS: u64 = 19;
const LEAST_QUARTERS: u64 = 8;
/// Accesses, for each page that the instance can hold, in which every counter is halved once.
const AGEING: u64 = 10;
/// Accesses that show, in a changing working set, that a page belongs to the new one.
const RETURNED: u32 = 2;
/// From this frequency of the victim on, a page that is about to leave InnoDB's pool wins a tie.
const TIES_FROM: u32 = 3;
const COUNT_BITS: u32 = 4;
const MOST: u16 = (1 << COUNT_BITS) - 1;
/// Weight of a new victim in the moving average is 2^-WEIGHT.
const WEIGHT: u32 = 7;
/// The average is kept in units of 2^-FRACTION.
const FRACTION: u32 = 16;

/// Counters, the most recently asked for first. A tag in the upper twelve bits, the count in the others; 0: empty.
#[repr(C, align(64))]
struct Set([u16; WAYS]);

// SAFETY: integers; zero is the empty set.
unsafe impl Zeroable for Set {}

impl Set {
    fn position(&self, tag: u16) -> Option<usize> {
        let mut found = 0u32;
        for (way, counter) in self.0.iter().enumerate() {
            found |= u32::from(counter & !MOST == tag) << way;
        }
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    fn count(&self, tag: u16) -> u32 {
        self.position(tag)
            .map_or(0, |way| u32::from(self.0[way] & MOST))
    }

    /// `by_recency`: the last makes place for a newcomer, however often it was asked for. Whether it was known.
    fn record(&mut self, tag: u16, by_recency: bool) -> bool {
        let position = self.position(tag);
        let (way, counter) = match position {
            Some(way) => (way, (self.0[way] & MOST) + 1),
            None if by_recency => (WAYS - 1, 1),
            // The last of the lowest.
            None => match (0..WAYS).rev().min_by_key(|&way| self.0[way] & MOST) {
                Some(way) if self.0[way] & MOST <= 1 => (way, 1),
                _ => return false,
            },
        };
        self.0.copy_within(..way, 1);
        self.0[0] = tag | counter.min(MOST);
        position.is_some()
    }

    fn halve(&mut self) {
        self.0.iter_mut().for_each(halve);
    }

    /// As if the page had been read so often at least, before all others.
    fn seed(&mut self, tag: u16, count: u16) {
        if let Some(way) = self.position(tag) {
            let counted = (self.0[way] & MOST).max(count);
            self.0[way] = tag | counted;
            return;
        }
        // The last of the lowest: nobody who came back is forgotten for it.
        let lowest = (0..WAYS).rev().min_by_key(|&way| self.0[way] & MOST);
        if let Some(way) = lowest.filter(|&way| self.0[way] & MOST <= 1) {
            self.0.copy_within(way + 1.., way);
            self.0[WAYS - 1] = tag | count;
        }
    }

    fn cool(&mut self, tag: u16) {
        if let Some(way) = self.position(tag) {
            halve(&mut self.0[way]);
        }
    }
}

/// A page that competes: its identity, and the accesses it is credited with.
#[derive(Clone, Copy)]
pub(crate) struct Contender {
    pub identity: u64,
    pub credit: u32,
}

pub(crate) struct Admission {
    sets: Mapped<Set>,
    /// Accesses after which one set is aged.
    age_every: u64,
    since_ageing: u64,
    next_aged: usize,
    /// Moving average of the frequency of pages that were to go, for people.
    victims: u64,
}

impl Admission {
    fn sets_for(pages: u64, thrift: Thrift) -> u64 {
        let quarters = match thrift {
            Thrift::Usual => QUARTERS,
            Thrift::Scarce => LEAST_QUARTERS,
        };
        (pages * quarters).div_ceil(4 * SET_BYTES).max(4)
    }

    pub fn memory_needed(pages: u64, thrift: Thrift) -> u64 {
        in_pages(Self::sets_for(pages, thrift) * SET_BYTES)
    }

    pub fn new(pages: u64, thrift: Thrift) -> io::Result<Admission> {
        let sets = Self::sets_for(pages, thrift);
        Ok(Admission {
            sets: Mapped::new(sets as usize)?,
            age_every: (pages * AGEING / sets).max(1),
            since_ageing: 0,
            next_aged: 0,
            victims: 0,
        })
    }

    #[cfg(test)]
    pub fn memory_bytes(&self) -> u64 {
        self.sets.memory_bytes()
    }

    /// Set, and tag in the upper twelve bits, which is not 0.
    fn place(&self, hash: u64) -> (usize, u16) {
        let mixed = mix64(hash ^ 0x5851_f42d_4c95_7f2d);
        let set = ((mixed >> 32) * self.sets.len() as u64) >> 32;
        (set as usize, ((mixed & 0xfff) as u16).max(1) << COUNT_BITS)
    }

    /// An access to the page with this hash, hit or miss. `changing`: the working set does. Whether the page is one that was
    /// asked for before, as far as the counters remember: those of 2.4 times the pages that fit.
    pub fn record(&mut self, hash: u64, changing: bool) -> bool {
        let (set, tag) = self.place(hash);
        let known = self.sets[set].record(tag, changing);
        self.since_ageing += 1;
        if self.since_ageing >= self.age_every {
            self.since_ageing = 0;
            self.sets[self.next_aged].halve();
            self.next_aged = (self.next_aged + 1) % self.sets.len();
        }
        known
    }

    /// Estimated accesses, 0..=15.
    pub fn frequency(&self, hash: u64) -> u32 {
        let (set, tag) = self.place(hash);
        self.sets[set].count(tag)
    }

    /// The page with this hash is remembered as asked for so often at least. That is no access.
    pub fn seed(&mut self, hash: u64, count: u32) {
        let (set, tag) = self.place(hash);
        self.sets[set].seed(tag, count.clamp(1, u32::from(MOST)) as u16);
    }

    /// The page with this hash was asked for half as often.
    pub fn cool(&mut self, hash: u64) {
        let (set, tag) = self.place(hash);
        self.sets[set].cool(tag);
    }

    /// Whether a page may take the place of another.
    pub fn admits(
        &mut self,
        mode: AdmissionMode,
        what: Candidate,
        candidate: Contender,
        victim: Contender,
        changing: bool,
    ) -> bool {
        let old = self.frequency(victim.identity) + victim.credit;
        self.victims = averaged(self.victims, u64::from(old) << FRACTION, WEIGHT);
        if mode == AdmissionMode::All {
            return true;
        }
        let new = self.frequency(candidate.identity) + candidate.credit;
        if changing {
            return new >= RETURNED;
        }
        new > old || what == Candidate::Written && new == old && old >= TIES_FROM
    }

    pub fn threshold(&self) -> f64 {
        self.victims as f64 / f64::from(1u32 << FRACTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        mix64(n)
    }

    fn admission(pages: u64) -> Admission {
        Admission::new(pages, Thrift::Usual).unwrap()
    }

    #[test]
    fn frequencies_are_counted_and_saturate() {
        let mut a = admission(10_000);
        assert_eq!(a.frequency(hash(1)), 0);
        for n in 1..=20 {
            assert_eq!(
                a.record(hash(1), false),
                n > 1,
                "known from the second time on"
            );
            assert_eq!(a.frequency(hash(1)), n.min(15));
        }
        assert_eq!(a.frequency(hash(2)), 0);
    }

    #[test]
    fn a_set_keeps_the_frequent_and_the_recent() {
        let mut set = Set([0; WAYS]);
        (1..=40).for_each(|tag| _ = set.record(tag << COUNT_BITS, false));
        assert_eq!(set.count(8 << COUNT_BITS), 0, "forgotten first");
        assert_eq!(set.count(9 << COUNT_BITS), 1);
        set.record(9 << COUNT_BITS, false);
        (41..=100).for_each(|tag| _ = set.record(tag << COUNT_BITS, false));
        assert_eq!(set.count(9 << COUNT_BITS), 2);
        assert_eq!(set.count(100 << COUNT_BITS), 1);
        let tags: std::collections::HashSet<u16> = set.0.iter().map(|c| c & !MOST).collect();
        assert_eq!(tags.len(), WAYS, "each once");
        // A full set of pages that came back takes no more.
        (200..232).for_each(|tag| (0..2).for_each(|_| _ = set.record(tag << COUNT_BITS, false)));
        (300..332).for_each(|tag| _ = set.record(tag << COUNT_BITS, false));
        assert!(set.0.iter().filter(|c| *c & MOST >= 2).count() >= WAYS - 1);
        // But in a changing working set.
        (300..332).for_each(|tag| _ = set.record(tag << COUNT_BITS, true));
        assert!((300..332).all(|tag| set.count(tag << COUNT_BITS) == 1));
    }

    #[test]
    fn estimates_of_a_skewed_stream_are_good() {
        const PAGES: u64 = if cfg!(miri) { 10 } else { 500 };
        let mut a = admission(20 * PAGES);
        // Some pages eight times each among 80 times as many once each.
        for n in 0..80 * PAGES {
            a.record(hash(1_000_000 + n), false);
            if n % 10 == 0 {
                a.record(hash(n / 10 % PAGES), false);
            }
        }
        let high = (0..PAGES).filter(|&n| a.frequency(hash(n)) >= 4).count() as u64;
        let low = (0..PAGES)
            .filter(|&n| a.frequency(hash(1_000_000 + n * 80)) <= 2)
            .count() as u64;
        let most = PAGES * 9 / 10;
        assert!(high > most && low > most, "{high} {low}");
    }

    #[test]
    fn counters_age() {
        let pages = if cfg!(miri) { 50 } else { 1000 };
        let mut a = admission(pages);
        (0..12).for_each(|_| _ = a.record(hash(1), false));
        for _ in 0..pages * (AGEING + 1) {
            a.record(hash(2), false);
        }
        assert_eq!(a.frequency(hash(1)), 6);
    }

    #[test]
    fn the_gate_compares() {
        let mut a = admission(1000);
        (0..3).for_each(|_| _ = a.record(hash(2), false));
        (0..4).for_each(|_| _ = a.record(hash(3), false));
        let contender = |page, credit| Contender {
            identity: hash(page),
            credit,
        };
        use AdmissionMode::{All, Frequency};
        use Candidate::{Read, Written};
        let (new, twice) = (contender(1, 0), contender(2, 0));
        assert!(!a.admits(Frequency, Read, new, twice, false));
        assert!(a.admits(Frequency, Read, contender(1, 4), twice, false));
        assert!(!a.admits(Frequency, Read, contender(1, 4), contender(2, 4), false));
        let mut admits = |mode, what, candidate, victim, changing| {
            let (candidate, victim) = (contender(candidate, 0), contender(victim, 0));
            a.admits(mode, what, candidate, victim, changing)
        };
        assert!(!admits(Frequency, Read, 1, 2, false));
        assert!(!admits(Frequency, Read, 2, 2, false));
        assert!(admits(Frequency, Read, 3, 2, false));
        assert!(admits(Frequency, Written, 2, 2, false), "wins a tie");
        assert!(
            !admits(Frequency, Written, 1, 1, false),
            "but not of nobody"
        );
        assert!(!admits(Frequency, Written, 2, 3, false));
        assert!(admits(Frequency, Read, 2, 3, true), "has come back");
        assert!(!admits(Frequency, Read, 1, 3, true));
        assert!(admits(All, Read, 1, 2, false));
        (0..2000).for_each(|_| _ = admits(All, Read, 1, 2, false));
        assert!(a.threshold() > 2.5 && a.threshold() <= 3.0);
    }
}
