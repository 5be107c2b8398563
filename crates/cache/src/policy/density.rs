//! Learned hit density: the score of a page is the hits per unit of residence time that pages in the same state have
//! brought.
//!
//! # Terms
//! - *State*: the content of the page's counter ([`counters`]): recent read count, position by recency (*way*), whether it was
//!   written since its last read, and its *class*. A cached page that lost its counter has a state, too: its *age*, the time
//!   without one.
//! - *Class*: one for pages at the end of a growing file. Three for other pages, by the share of their file's pages that are
//!   written between two reads: below 25 %, below 75 %, and more.
//! - *Time*: number of samples in a state. All times are in reads, so a replay is repeatable.
//! - *Score*: expected hits per unit of time from the state on ([`model`]).
//! - *Hand*: the bucket at which the next search begins. *Carried*: an entry that takes part in the next search.
//! - *Shadow*: a simulated LRU cache for a sample of pages ([`shadow`]). Its hits show what LRU would achieve.
//!
//! # Learning
//! Each instance counts hits and time of its states ([`LocalStats`]), and merges them into the [`Model`] at intervals, if it
//! gets the model's lock without waiting. The model computes the scores of all states. No fixed rule rates a count or a
//! write, because two workloads may need opposite ratings.
//!
//! # Decisions
//! The victim is the lowest-scored entry of the bucket under the hand and of the carried entry. The carried entry is the
//! runner-up of the last search, or its lowest entry if that was not evicted. A page is admitted if its score clearly
//! exceeds the victim's. For hopeless candidates most searches are skipped. Written pages compete by the same rule as read
//! pages, so written-back pages are admitted when they are written.
//!
//! # Modes
//! | mode | begins | admits | victim |
//! |---|---|---|---|
//! | learned | at the start; after three cache sizes of reads in the other mode; when the cache is not full | scores above the victim's by a margin | lowest score |
//! | changing | the shadow of LRU finds more pages than this policy: the working set has changed | every read page, no written one | least recently read |
//!
//! # Cost
//! Memory: 4.75 bytes for each page of the capacity, 2 bytes if memory is scarce. A read touches the cache line of its
//! counter, one read in 16 samples another, and one in 64 a bucket. A merge costs some 2,500 instructions, an update of all
//! scores some 70,000.
//!
//! # Locks
//! The instance's lock guards everything except the model. Reads load its scores without a lock.

mod counters;
mod model;
pub(crate) mod numbers;
mod shadow;
mod state;

use std::io;
use std::sync::Arc;

use super::{Candidate, MemoryPressure, Places, Policy};
use crate::common::page::{PageId, mix64};
use crate::index::directory::{Entry, Slot};
use counters::{Counters, Newcomer};
use model::{AGES, LocalStats, Model};
use shadow::{Recency, Shadow};
use state::WAYS;

/// Quarters of a byte of counters for each page of the instance's capacity: normally, and when memory is scarce. The
/// shadow takes one quarter more.
const QUARTERS: u64 = 18;
const MIN_QUARTERS: u64 = 7;
/// Factor on the score of a preferred page.
const PREFERENCE: f32 = 3.0;
/// Number of entries that a search should see while the working set changes; maximum number of buckets of a search.
const SEEN_IN_CHANGE: usize = 8;
const MAX_BUCKETS: usize = 64;
/// Reads between two samples of a set of counters.
const LOOK_EVERY: u64 = 16;
/// Reads between two samples of a bucket's entries.
const FORGOTTEN_EVERY: u64 = 64;
/// Multiples of it visit all buckets, and neighbours at different times.
const STRIDE: u32 = 0x9e37_79b1;
/// Age of the entries that lost their counters first.
const OLDEST: u8 = AGES as u8 - 1;
/// Clock of an entry whose page was just read. A high clock means a hot page.
const JUST_READ: u8 = OLDEST;
/// The instance reports to the model after this part of its pages in reads, and after a minimum number of reads. A
/// report costs some 2,500 instructions.
const MERGE_PART: u64 = 16;
const MIN_MERGE_READS: u64 = 256;

/// Reference to an entry that survives a move of the hand.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Known {
    bucket: u32,
    location: u32,
}

/// The two lowest-scored entries of a search.
#[derive(Default)]
struct Found {
    lowest: Option<(f32, Known)>,
    second: Option<Known>,
}

pub(crate) struct Density {
    counters: Counters,
    shadow: Shadow,
    stats: LocalStats,
    model: Arc<Model>,
    merge_every: u64,
    /// Start of the next search.
    bucket: u32,
    carried: Option<Known>,
    /// Victim for the last admitted page.
    chosen: Option<Known>,
    /// Moving average of the victims' scores.
    victims: f32,
    hopeless: u32,
    /// Number of sampled buckets.
    looked: u32,
}

impl Density {
    #[inline]
    fn mixed(places: &Places<'_>, page: PageId) -> u64 {
        mix_identity(places.identity(page))
    }

    fn score_of(&self, identity: u64) -> f32 {
        let place = self.counters.place(mix_identity(identity));
        self.model.score(self.counters.look_up(place))
    }

    /// Score of a page with this entry. The page may be read although its counter is gone.
    fn score_of_cached(&self, identity: u64, entry: Entry) -> f32 {
        let place = self.counters.place(mix_identity(identity));
        match self.counters.look_up(place) {
            None => self.model.forgotten_score(age_of(entry)),
            seen => self.model.score(seen),
        }
    }

    /// Samples the cached pages of a bucket. For a page without a counter, records its age and decrements the clock of its
    /// entry. For a page with a counter, resets the clock.
    fn look_for_forgotten(&mut self, places: &mut Places<'_>) {
        self.stats.cached = places.without_limit();
        let buckets = places.buckets();
        self.looked = self.looked.wrapping_add(1);
        let turned = u64::from(self.looked.wrapping_mul(STRIDE));
        let bucket = ((turned * u64::from(buckets)) >> 32) as u32;
        // A bucket is sampled less often than a set of counters.
        let weight = buckets as f32 / self.counters.sets() as f32;
        let time = weight * FORGOTTEN_EVERY as f32 / LOOK_EVERY as f32;
        for (slot, entry) in places.on_devices(bucket) {
            let mixed = mix_identity(places.identity_at(slot));
            let known = self.counters.look_up(self.counters.place(mixed)).is_some();
            if !known {
                self.stats.forgotten_stays(age_of(entry), time);
            }
            let clock = if known {
                JUST_READ
            } else {
                entry.clock.saturating_sub(1)
            };
            if clock != entry.clock {
                places.set_clock(slot, clock);
            }
        }
    }

    /// Higher for more recently read pages.
    fn recency_of(&self, identity: u64) -> f32 {
        let place = self.counters.place(mix_identity(identity));
        let seen = self.counters.look_up(place);
        seen.map_or(0.0, |seen| (WAYS - seen.way) as f32)
    }

    fn search(&mut self, places: &Places<'_>) -> Found {
        let changing = self.model.changing();
        let wanted = if changing {
            SEEN_IN_CHANGE
        } else {
            numbers::seen()
        };
        let mut found = Found::default();
        let mut second = f32::INFINITY;
        let mut ask = |policy: &Density, slot: Slot, entry: Entry, known: Known| {
            let identity = places.identity_at(slot);
            let score = if changing {
                policy.recency_of(identity)
            } else {
                policy.score_of_cached(identity, entry)
            };
            let score = score * preference(places.prefers_at(slot));
            debug_assert!(score >= 0.0);
            match found.lowest {
                Some((lowest, _)) if score >= lowest => {
                    if score < second {
                        second = score;
                        found.second = Some(known);
                    }
                }
                before => {
                    if let Some((lowest, before)) = before {
                        second = lowest;
                        found.second = Some(before);
                    }
                    found.lowest = Some((score, known));
                }
            }
        };
        let carried = self.carried.take();
        if let Some(known) = carried {
            if let Some(slot) = places.find_location(known.bucket, known.location) {
                ask(self, slot, places.entry(slot), known);
            }
        }
        let mut seen = 0;
        for _ in 0..MAX_BUCKETS {
            for (slot, entry) in places.on_devices(self.bucket) {
                seen += 1;
                let known = Known {
                    bucket: self.bucket,
                    location: entry.location,
                };
                if Some(known) != carried {
                    ask(self, slot, entry, known);
                }
            }
            self.bucket += 1;
            if self.bucket >= places.buckets() {
                self.bucket = 0;
            }
            if seen >= wanted {
                break;
            }
        }
        found
    }

    /// Compares the policy with LRU, at a read of a page that the shadow tracks: counts a hit for LRU if LRU would have cached
    /// it, and one for the policy if `is_cached`. Repeated reads of the same page do not count. `mixed`: mixed identity of the
    /// page.
    fn compare(&mut self, mixed: u64, is_cached: bool) {
        let recency = self.shadow.read(mixed, self.model.ways());
        if recency == Recency::Front {
            return;
        }
        self.stats.compared += 1;
        self.stats.recent += u32::from(recency == Recency::Present);
        self.stats.ours += u32::from(is_cached);
    }
}

/// Number of samples without a counter since the entry's page was read, up to [`OLDEST`].
fn age_of(entry: Entry) -> u8 {
    debug_assert!(entry.clock <= JUST_READ);
    JUST_READ.saturating_sub(entry.clock)
}

fn preference(is_preferred: bool) -> f32 {
    if is_preferred { PREFERENCE } else { 1.0 }
}

fn mix_identity(identity: u64) -> u64 {
    mix64(identity ^ 0x5851_f42d_4c95_7f2d)
}

impl Policy for Density {
    type Model = Model;

    fn model(pages: u64) -> Model {
        Model::new(pages)
    }

    fn bytes(pages: u64, pressure: MemoryPressure) -> u64 {
        Counters::memory_needed(pages, quarters(pressure)) + Shadow::memory_needed(pages)
    }

    fn new(pages: u64, pressure: MemoryPressure, model: &Arc<Model>) -> io::Result<Density> {
        Ok(Density {
            counters: Counters::new(pages, quarters(pressure))?,
            shadow: Shadow::new(pages)?,
            stats: LocalStats::new(pages),
            model: Arc::clone(model),
            merge_every: (pages / MERGE_PART).max(MIN_MERGE_READS),
            bucket: 0,
            carried: None,
            chosen: None,
            victims: 0.0,
            hopeless: 0,
            looked: 0,
        })
    }

    #[cfg(test)]
    fn memory_bytes(&self) -> u64 {
        self.counters.memory_bytes() + self.shadow.memory_bytes()
    }

    #[inline]
    fn accessed(&mut self, places: &mut Places<'_>, page: PageId, found: Option<Slot>) -> bool {
        let mixed = Self::mixed(places, page);
        let place = self.counters.place(mixed);
        let newcomer = if self.model.changing() {
            Newcomer::First
        } else {
            Newcomer::Modest
        };
        let (stats, model) = (&mut self.stats, &self.model);
        let mut reads = 0;
        let seen = self.counters.read(place, newcomer, |seen| {
            reads = stats.read(page.file, seen);
            model.class(page)
        });
        if reads % LOOK_EVERY == 0 {
            self.counters.expose(|seen| stats.stays(seen));
            if reads % FORGOTTEN_EVERY == 0 {
                self.look_for_forgotten(places);
            }
        }
        if let Some(slot) = found {
            let entry = places.entry(slot);
            if seen.is_none() {
                self.stats.forgotten_read(age_of(entry));
            }
            if entry.clock < JUST_READ {
                places.set_clock(slot, JUST_READ);
            }
        }
        // The policy does not decide on pages of a group with a limit.
        if Shadow::follows(mixed) && !places.is_limited() {
            self.compare(mixed, found.is_some());
        }
        seen.is_some()
    }

    fn written(&mut self, places: &mut Places<'_>, page: PageId) {
        let place = self.counters.place(Self::mixed(places, page));
        self.counters.written(place);
    }

    fn admits(&mut self, places: &mut Places<'_>, page: PageId, what: Candidate) -> bool {
        let changing = self.model.changing();
        if changing && what == Candidate::Written {
            return false;
        }
        let score = self.score_of(places.identity(page)) * preference(places.prefers());
        if !changing && score < self.victims * numbers::hopeless() {
            self.hopeless = self.hopeless.wrapping_add(1);
            if self.hopeless % numbers::tried_once_in() != 0 {
                return false;
            }
        }
        let Found { lowest, second } = self.search(places);
        let Some((victim, known)) = lowest else {
            return false;
        };
        if !changing && places.has_all() {
            self.victims += (victim - self.victims) / numbers::victims_averaged();
        }
        let admitted = changing || score > victim * numbers::margin();
        if admitted {
            self.chosen = Some(known);
            self.carried = second;
        } else {
            self.carried = Some(known);
        }
        admitted
    }

    fn entered(&mut self, _: &mut Places<'_>, _: PageId) -> u8 {
        JUST_READ
    }

    fn victim(&mut self, places: &mut Places<'_>) -> Option<Slot> {
        let chosen = self.chosen.take();
        let slot = chosen.and_then(|known| places.find_location(known.bucket, known.location));
        slot.or_else(|| {
            let Found { lowest, second } = self.search(places);
            self.carried = second;
            let (_, known) = lowest?;
            places.find_location(known.bucket, known.location)
        })
    }

    fn score(&self, places: &Places<'_>, page: PageId) -> u32 {
        self.score_of(places.identity(page)).to_bits()
    }

    fn count(&self, identity: u64) -> u32 {
        let place = self.counters.place(mix_identity(identity));
        self.counters.count(place)
    }

    fn seed(&mut self, places: &mut Places<'_>, page: PageId, count: u32) -> u8 {
        let place = self.counters.place(Self::mixed(places, page));
        let class = self.model.class(page);
        self.counters.seed(place, count, class);
        JUST_READ
    }

    fn cool(&mut self, identity: u64) {
        let place = self.counters.place(mix_identity(identity));
        self.counters.cool(place);
    }

    fn learn_every(&self) -> u64 {
        self.merge_every
    }

    fn learn(&mut self, full: bool) {
        self.model.merge(&mut self.stats, full);
    }
}

fn quarters(pressure: MemoryPressure) -> u64 {
    match pressure {
        MemoryPressure::Normal => QUARTERS,
        MemoryPressure::High => MIN_QUARTERS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::group::Group;
    use crate::common::page::FileId;
    use crate::index::directory::{Directory, Kind};

    const PAGES: u64 = 5000;

    /// A policy and a directory without an engine.
    struct Single {
        directory: Directory,
        density: Density,
    }

    impl Single {
        fn new() -> Single {
            let model = Arc::new(Model::new(PAGES));
            Single {
                directory: Directory::new(PAGES).unwrap(),
                density: Density::new(PAGES, MemoryPressure::Normal, &model).unwrap(),
            }
        }

        fn enter(&mut self, page: PageId) {
            let entry = Entry {
                check: 0,
                location: page.page,
                kind: Kind::raw(16384),
                clock: JUST_READ,
            };
            let key = self.directory.key(page);
            assert_eq!(self.directory.insert(key, entry, Group::NORMAL), None);
        }

        /// Reports a hit on the page for a read that is not counted yet.
        fn find(&mut self, page: PageId) {
            let slot = self.directory.find(self.directory.key(page)).unwrap();
            let entry = self.directory.get(slot);
            let places = &mut Places::new(&mut self.directory);
            self.density.hit(places, page, slot, entry);
        }

        /// Counts a read.
        fn count(&mut self, page: PageId, group: Group) {
            let found = self.directory.find(self.directory.key(page));
            let places = &mut Places::new(&mut self.directory).of(group, None);
            self.density.accessed(places, page, found);
        }

        /// Pages that the shadow tracks.
        fn followed(&mut self) -> impl Iterator<Item = PageId> + use<> {
            let places = Places::new(&mut self.directory);
            let pages = (0..PAGES as u32 * 8).map(|n| PageId::new(FileId(1), n));
            let follows = |&page: &PageId| Shadow::follows(Density::mixed(&places, page));
            pages.filter(follows).collect::<Vec<_>>().into_iter()
        }
    }

    #[test]
    fn reads_under_way_at_once_are_all_hits() {
        let mut alone = Single::new();
        let pages: Vec<PageId> = alone.followed().take(2).collect();
        for &page in &pages {
            alone.enter(page);
        }
        pages.iter().for_each(|&page| alone.find(page));
        pages
            .iter()
            .for_each(|&page| alone.count(page, Group::NORMAL));
        let stats = &alone.density.stats;
        assert_eq!((stats.compared, stats.ours), (2, 2));
        assert_eq!(stats.forgotten_reads(), 2);
    }

    /// Independent of the interval between reports to the model.
    #[test]
    fn forgotten_pages_are_looked_for_at_regular_intervals() {
        let mut alone = Single::new();
        let merge_every = alone.density.learn_every();
        assert_ne!(merge_every % FORGOTTEN_EVERY, 0, "the case that matters");
        let reads = 10_000;
        for n in 1..=reads {
            alone.count(PageId::new(FileId(1), n), Group::NORMAL);
            if u64::from(n) % merge_every == 0 {
                alone.density.learn(true);
            }
        }
        let looked = u64::from(alone.density.looked);
        assert_eq!(looked, u64::from(reads) / FORGOTTEN_EVERY);
    }

    /// No division of zero by zero.
    #[test]
    fn numbers_stay_finite_where_nothing_is_learned() {
        let mut alone = Single::new();
        (0..100).for_each(|n| alone.enter(PageId::new(FileId(1), n)));
        for n in 0..2000 {
            let places = &mut Places::new(&mut alone.directory);
            let page = PageId::new(FileId(2), n);
            alone.density.admits(places, page, Candidate::Written);
            alone.density.learn(true);
        }
        assert!(alone.density.victims.is_finite());
    }

    #[test]
    fn what_a_limit_keeps_out_is_not_compared() {
        let mut alone = Single::new();
        let pages: Vec<PageId> = alone.followed().take(60).collect();
        let limited = Group::limited(0).unwrap();
        for _ in 0..2 {
            pages.iter().for_each(|&page| alone.count(page, limited));
        }
        assert_eq!(alone.density.stats.compared, 0);
        for _ in 0..2 {
            for &page in &pages {
                alone.count(page, Group::PREFERRED);
            }
        }
        let stats = &alone.density.stats;
        assert_eq!((stats.compared, stats.recent), (120, 60));
    }
}
