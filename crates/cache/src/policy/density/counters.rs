//! Per-instance counters of pages, cached or not: recent read count, relative time since the last read, and whether the
//! page was written since.
//!
//! A set is one cache line of 26 counters, ordered by recency. A counter has a tag of twelve bits and a count of four.
//! Its position shows how many other pages were read since: one way is about 0.07 cache sizes of reads. The rest of the
//! line holds three bits per counter: whether the page was written since its last read, and its class. Counters are
//! halved one set at a time, once in ten reads per page of the instance's capacity.

use std::io;

use super::numbers;
use super::state::{CLASS_BITS, CLASSES, LANES, Seen, WAYS};
use crate::common::memory::{Mapped, Zeroable, in_pages};
use crate::policy::halve;

const SET_BYTES: u64 = 64;
const COUNT_BITS: u32 = 4;
const MAX: u16 = (1 << COUNT_BITS) - 1;
/// First bits of all counters, in two lanes each.
const WRITTEN: usize = WAYS;
const CLASS: [usize; CLASS_BITS] = [WAYS + 2, WAYS + 4];
/// The eight steps of a count that scores distinguish: 0, 1, 2, 3, 4, 5 and 6, 7 to 9, 10 and more.
const STEP: [u8; 1 << COUNT_BITS] = [0, 1, 2, 3, 4, 5, 5, 6, 6, 6, 7, 7, 7, 7, 7, 7];

const _: () = assert!(CLASS[CLASS_BITS - 1] + 2 == LANES);

#[repr(C, align(64))]
struct Set([u16; LANES]);

// SAFETY: integers; zero is the empty set.
unsafe impl Zeroable for Set {}

/// Location of the page's counter, if there is one.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    set: usize,
    /// In the upper twelve bits, never 0.
    tag: u16,
}

/// Which counter a new page may replace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Newcomer {
    /// That of a page that was read at most once. If there is none, the new page is not remembered.
    Modest,
    /// The least recently read one.
    First,
}

impl Set {
    /// A bit for each way whose counter satisfies `holds`.
    #[inline]
    fn ways(&self, mut holds: impl FnMut(u16) -> bool) -> u32 {
        let mut found = 0u32;
        for (way, &counter) in self.0.iter().enumerate() {
            found |= u32::from(holds(counter)) << way;
        }
        found & ((1 << WAYS) - 1)
    }

    #[inline]
    fn position(&self, tag: u16) -> Option<usize> {
        let found = self.ways(|counter| counter & !MAX == tag);
        (found != 0).then(|| found.trailing_zeros() as usize)
    }

    #[inline]
    fn bits(&self, lane: usize) -> u32 {
        u32::from(self.0[lane]) | u32::from(self.0[lane + 1]) << 16
    }

    #[inline]
    fn set_bits(&mut self, lane: usize, bits: u32) {
        self.0[lane] = bits as u16;
        self.0[lane + 1] = (bits >> 16) as u16;
    }

    #[inline]
    fn seen(&self, way: usize) -> Seen {
        debug_assert_ne!(self.0[way] & MAX, 0, "a counter of 0 is dropped");
        let bit = |lane| (self.bits(lane) >> way & 1) as usize;
        let step = usize::from(STEP[usize::from(self.0[way] & MAX)]);
        Seen {
            row: bit(CLASS[1]) << 5 | bit(CLASS[0]) << 4 | bit(WRITTEN) << 3 | step,
            way,
        }
    }

    /// Moves a way to the front with this counter and class, and clears its written bit.
    #[inline]
    fn bring_to_front(&mut self, way: usize, counter: u16, class: u8) {
        debug_assert!(way < WAYS && usize::from(class) < CLASSES);
        self.0.copy_within(..way, 1);
        self.0[0] = counter;
        let before = (1u32 << way) - 1;
        let moved = |bits: u32, first: u8| {
            bits & !(before << 1 | 1) | (bits & before) << 1 | u32::from(first)
        };
        self.set_bits(WRITTEN, moved(self.bits(WRITTEN), 0));
        for (bit, lane) in CLASS.into_iter().enumerate() {
            self.set_bits(lane, moved(self.bits(lane), class >> bit & 1));
        }
    }

    /// The way for a page without a counter.
    #[inline]
    fn vacancy(&self, newcomer: Newcomer) -> Option<usize> {
        let last = |ways: u32| (ways != 0).then(|| ways.ilog2() as usize);
        last(self.ways(|counter| counter == 0)).or_else(|| match newcomer {
            Newcomer::First => Some(WAYS - 1),
            Newcomer::Modest => last(self.ways(|counter| counter & MAX <= 1)),
        })
    }

    /// Moves a way behind all others with this counter and class, and clears its written bit.
    fn bring_to_back(&mut self, way: usize, counter: u16, class: u8) {
        self.0.copy_within(way + 1..WAYS, way);
        self.0[WAYS - 1] = counter;
        let before = (1u32 << way) - 1;
        let moved = |bits: u32, last: u8| {
            let behind = bits & !before & !(1 << way);
            bits & before | behind >> 1 & ((1 << (WAYS - 1)) - 1) | u32::from(last) << (WAYS - 1)
        };
        self.set_bits(WRITTEN, moved(self.bits(WRITTEN), 0));
        for (bit, lane) in CLASS.into_iter().enumerate() {
            self.set_bits(lane, moved(self.bits(lane), class >> bit & 1));
        }
    }

    fn halve(&mut self) {
        self.0[..WAYS].iter_mut().for_each(halve);
    }
}

pub(crate) struct Counters {
    sets: Mapped<Set>,
    /// Reads between two agings of a set.
    age_every: u64,
    since_ageing: u64,
    next_aged: usize,
    /// Number of sampled sets.
    exposed: u32,
}

impl Counters {
    fn sets_for(pages: u64, quarters: u64) -> u64 {
        (pages * quarters).div_ceil(4 * SET_BYTES).max(4)
    }

    pub fn memory_needed(pages: u64, quarters: u64) -> u64 {
        in_pages(Self::sets_for(pages, quarters) * SET_BYTES)
    }

    /// Allocates the counters of an instance of `pages` pages. `quarters`: memory per page, in quarters of a byte.
    pub fn new(pages: u64, quarters: u64) -> io::Result<Counters> {
        let sets = Self::sets_for(pages, quarters);
        Ok(Counters {
            sets: Mapped::new(sets as usize)?,
            age_every: (pages * numbers::ageing() / sets).max(1),
            since_ageing: 0,
            next_aged: 0,
            exposed: 0,
        })
    }

    pub fn sets(&self) -> usize {
        self.sets.len()
    }

    #[cfg(test)]
    pub fn memory_bytes(&self) -> u64 {
        self.sets.memory_bytes()
    }

    /// `mixed`: mixed identity of the page.
    #[inline]
    pub fn place(&self, mixed: u64) -> Place {
        Place {
            set: (((mixed >> 32) * self.sets.len() as u64) >> 32) as usize,
            tag: ((mixed & 0xfff) as u16).max(1) << COUNT_BITS,
        }
    }

    #[inline]
    pub fn look_up(&self, place: Place) -> Option<Seen> {
        let set = &self.sets[place.set];
        set.position(place.tag).map(|way| set.seen(way))
    }

    /// Counts a read of the page, and returns its previous state. `class` gets that state and returns the page's class.
    #[inline]
    pub fn read(
        &mut self,
        place: Place,
        newcomer: Newcomer,
        class: impl FnOnce(Option<Seen>) -> u8,
    ) -> Option<Seen> {
        let set = &mut self.sets[place.set];
        let seen = set.position(place.tag).map(|way| set.seen(way));
        let class = class(seen);
        if let Some(Seen { way, .. }) = seen {
            // An immediate repetition belongs to the same visit.
            let count = (set.0[way] & MAX) + u16::from(way > 0);
            set.bring_to_front(way, place.tag | count.min(MAX), class);
        } else if let Some(way) = set.vacancy(newcomer) {
            set.bring_to_front(way, place.tag | 1, class);
        }
        self.since_ageing += 1;
        if self.since_ageing >= self.age_every {
            self.since_ageing = 0;
            self.sets[self.next_aged].halve();
            self.next_aged = (self.next_aged + 1) % self.sets.len();
        }
        seen
    }

    /// Recent reads of the page.
    pub fn count(&self, place: Place) -> u32 {
        let set = &self.sets[place.set];
        let way = set.position(place.tag);
        way.map_or(0, |way| u32::from(set.0[way] & MAX))
    }

    /// Ensures a count of at least `count` and moves the page to the front. This is no read.
    pub fn seed(&mut self, place: Place, count: u32, class: u8) {
        let set = &mut self.sets[place.set];
        let count = count.clamp(1, u32::from(MAX)) as u16;
        if let Some(way) = set.position(place.tag) {
            set.0[way] = place.tag | (set.0[way] & MAX).max(count);
        } else if let Some(way) = set.vacancy(Newcomer::Modest) {
            set.bring_to_back(way, place.tag | count, class);
        }
    }

    /// Halves the page's count.
    pub fn cool(&mut self, place: Place) {
        let set = &mut self.sets[place.set];
        if let Some(way) = set.position(place.tag) {
            halve(&mut set.0[way]);
        }
    }

    /// Sets the page's written bit.
    pub fn written(&mut self, place: Place) {
        let set = &mut self.sets[place.set];
        if let Some(way) = set.position(place.tag) {
            set.set_bits(WRITTEN, set.bits(WRITTEN) | 1 << way);
        }
    }

    /// Visits the counters of another set at each call. Calls cycle through all sets, and never visit neighbours in
    /// succession.
    #[inline]
    pub fn expose(&mut self, mut act: impl FnMut(Seen)) {
        self.exposed = self.exposed.wrapping_add(1);
        let turned = u64::from(self.exposed.wrapping_mul(0x9e37_79b1));
        let set = &self.sets[((turned * self.sets.len() as u64) >> 32) as usize];
        for way in 0..WAYS {
            if set.0[way] != 0 {
                act(set.seen(way));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::page::mix64;

    fn read(counters: &mut Counters, page: u64, class: u8) -> Option<Seen> {
        let place = counters.place(mix64(page));
        counters.read(place, Newcomer::Modest, |_| class)
    }

    fn look_up(counters: &Counters, page: u64) -> Option<Seen> {
        counters.look_up(counters.place(mix64(page)))
    }

    fn one_set() -> Set {
        Set([0; LANES])
    }

    #[test]
    fn each_way_takes_its_bits_along() {
        let mut set = one_set();
        for way in 0..WAYS as u16 {
            let tag = (way + 1) << COUNT_BITS;
            let free = set.vacancy(Newcomer::Modest).unwrap();
            set.bring_to_front(free, tag | 1, (way % 4) as u8);
            if way % 3 == 0 {
                set.set_bits(WRITTEN, set.bits(WRITTEN) | 1);
            }
        }
        let check = |set: &Set, way: u16| {
            let at = set.position((way + 1) << COUNT_BITS).unwrap();
            let seen = set.seen(at);
            assert_eq!(seen.row >> 4, usize::from(way % 4), "class of {way}");
            assert_eq!(seen.is_written(), way % 3 == 0, "{way}");
            assert_eq!(seen.row & 7, 1);
            at
        };
        for way in 0..WAYS as u16 {
            assert_eq!(check(&set, way), WAYS - 1 - usize::from(way));
        }
        // One from the middle: its written bit is cleared, the others are unchanged.
        let at = set.position(10 << COUNT_BITS).unwrap();
        assert!(set.seen(at).is_written());
        set.bring_to_front(at, 10 << COUNT_BITS | 2, 3);
        assert_eq!(
            set.seen(0),
            Seen {
                row: 3 << 4 | 2,
                way: 0
            }
        );
        (0..WAYS as u16)
            .filter(|&way| way != 9)
            .for_each(|way| _ = check(&set, way));
    }

    #[test]
    fn newcomers_take_what_is_empty_then_what_was_read_once() {
        let mut set = one_set();
        for way in 0..WAYS as u16 {
            let count = if way == 4 || way == 20 { 1 } else { 2 };
            set.0[usize::from(way)] = (way + 1) << COUNT_BITS | count;
        }
        assert_eq!(set.vacancy(Newcomer::Modest), Some(20), "the last of them");
        assert_eq!(set.vacancy(Newcomer::First), Some(WAYS - 1));
        set.0[7] = 0;
        assert_eq!(set.vacancy(Newcomer::Modest), Some(7));
        assert_eq!(set.vacancy(Newcomer::First), Some(7));
        set.0[7] = 8 << COUNT_BITS | 3;
        set.0[4] |= 2;
        set.0[20] |= 2;
        assert_eq!(set.vacancy(Newcomer::Modest), None);
    }

    #[test]
    fn reads_at_once_count_as_one_and_counts_saturate() {
        let mut c = Counters::new(1, 19).unwrap();
        // Two pages of one set.
        let first = c.place(mix64(1)).set;
        let other = (2..)
            .find(|&page| c.place(mix64(page)).set == first)
            .unwrap();
        (0..9).for_each(|_| _ = read(&mut c, 1, 0));
        let once = look_up(&c, 1).unwrap();
        assert_eq!((once.row & 7, once.way), (1, 0), "the same visit");
        c.age_every = u64::MAX;
        for _ in 0..40 {
            read(&mut c, other, 0);
            read(&mut c, 1, 0);
        }
        assert_eq!(look_up(&c, 1).unwrap().row & 7, 7);
        c.written(c.place(mix64(1)));
        assert!(look_up(&c, 1).unwrap().is_written());
        assert!(read(&mut c, 1, 0).unwrap().is_written(), "as it was");
        assert!(!look_up(&c, 1).unwrap().is_written(), "and is no more");
        c.written(c.place(mix64(77_777)));
        assert_eq!(look_up(&c, 77_777), None, "nobody is entered by a write");
    }

    #[test]
    fn counters_age_and_each_set_is_exposed() {
        let pages = 1000;
        let mut c = Counters::new(pages, 18).unwrap();
        let sets = c.sets.len() as u64;
        let page = |n: u64| 1_000_000 + n;
        (0..8).for_each(|n| {
            read(&mut c, 1, 0);
            // Others of its set come between.
            let set = c.place(mix64(1)).set;
            let mut next = (0..).map(page).filter(|&p| c.place(mix64(p)).set == set);
            let other = next.nth(n).unwrap();
            read(&mut c, other, 0);
        });
        assert_eq!(look_up(&c, 1).unwrap().row & 7, 6);
        (0..c.age_every * sets).for_each(|_| _ = read(&mut c, 2, 0));
        assert_eq!(look_up(&c, 1).unwrap().row & 7, 4, "eight became four");
        let mut seen = vec![0; sets as usize];
        for _ in 0..sets * 20 {
            c.exposed = c.exposed.wrapping_add(1);
            let turned = u64::from(c.exposed.wrapping_mul(0x9e37_79b1));
            seen[((turned * sets) >> 32) as usize] += 1;
        }
        assert!(
            seen.iter().all(|&times| (15..=25).contains(&times)),
            "{seen:?}"
        );
        let mut counters = 0;
        (0..sets * 4).for_each(|_| c.expose(|_| counters += 1));
        assert!(counters > 0);
    }
}
