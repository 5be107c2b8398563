//! Model shared by all instances: hits per unit of residence time for each state of a page.
//!
//! The state of a page is the content of its counter: its class, whether it was written since its last read, the step
//! of its count, and its position by recency. The class rates pages without a history. It encodes the share of the
//! file's pages that are written between two reads, or marks the page as new: at the end of a growing file. For each
//! state the model counts reads, and the time that pages spend in it, sampled at regular intervals. The score is reads
//! per time from the current state on, up to the best eviction time. So a new page is tried for a while, and evicted if
//! no read follows. Rare states borrow: a count from the next lower count, a class from all classes. A cached page
//! without a counter has a state, too: how long it has been without one. The model learns these states in the same way.
//!
//! Each instance counts on its own and reports to the model at intervals, if it gets the lock without waiting.
//! Instances read only the scores, which are written once in a quarter of a cache size of reads. So no cache line is
//! contended.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};

use parking_lot::Mutex;

use super::state::{CELLS, CLASSES, LANES, NEW, ROWS, SPAN, SPANS, STATES, STEPS, Seen, WAYS};
use super::{numbers, shadow};
use crate::common::page::{FileId, PageId, mix64};

/// Distinguished ages of cached pages without a counter.
pub(crate) const AGES: usize = 4;
/// Slots for files, indexed by hash.
const FILES: usize = 64;

/// Minimum number of reads between two score updates. An update costs some 70,000 instructions.
const MIN_READS: u64 = 1024;

/// Counts of an instance since its last report.
pub(crate) struct LocalStats {
    hits: Box<[u32; CELLS]>,
    time: Box<[u32; CELLS]>,
    /// Re-read pages by file, and how many of them had been written.
    returned: Box<[(u32, u32); FILES]>,
    /// Reads of cached pages without a counter, and the time spent in that state, by age.
    forgotten: [(u32, f32); AGES],
    /// All reads of the instance, and how many of them the model knows.
    reads: u64,
    merged_reads: u64,
    /// Reads that were compared with LRU, hits of LRU, and hits of the policy.
    pub compared: u32,
    pub recent: u32,
    pub ours: u32,
    /// Planned pages of the instance, until reported.
    planned: u64,
    /// Cached pages, except those of limited groups, and how many of them the model knows.
    pub cached: u64,
    told: u64,
}

impl LocalStats {
    /// For an instance of `planned` pages.
    pub fn new(planned: u64) -> LocalStats {
        LocalStats {
            hits: Box::new([0; CELLS]),
            time: Box::new([0; CELLS]),
            returned: Box::new([(0, 0); FILES]),
            forgotten: [(0, 0.0); AGES],
            reads: 0,
            merged_reads: 0,
            compared: 0,
            recent: 0,
            ours: 0,
            planned,
            cached: 0,
            told: 0,
        }
    }

    /// Counts a read of a page in this state, or without a counter. Returns the instance's total number of reads.
    #[inline]
    pub fn read(&mut self, file: FileId, seen: Option<Seen>) -> u64 {
        if let Some(seen) = seen {
            self.hits[seen.cell()] += 1;
            let (all, written) = &mut self.returned[place_of(file)];
            *all += 1;
            *written += u32::from(seen.is_written());
        }
        self.reads += 1;
        self.reads
    }

    /// Reads that the model does not know yet.
    fn unmerged(&self) -> u64 {
        self.reads - self.merged_reads
    }

    #[inline]
    pub fn stays(&mut self, seen: Seen) {
        self.time[seen.cell()] += 1;
    }

    /// Counts a read of a cached page without a counter, of this age.
    #[inline]
    pub fn forgotten_read(&mut self, age: u8) {
        self.forgotten[usize::from(age) % AGES].0 += 1;
    }

    /// Number of such reads.
    #[cfg(test)]
    pub fn forgotten_reads(&self) -> u32 {
        self.forgotten.iter().map(|(reads, _)| reads).sum()
    }

    /// Counts a sample of a cached page without a counter; `time` has the unit of [`stays`](Self::stays).
    #[inline]
    pub fn forgotten_stays(&mut self, age: u8, time: f32) {
        self.forgotten[usize::from(age) % AGES].1 += time;
    }
}

#[inline]
fn place_of(file: FileId) -> usize {
    mix64(file.0.into()) as usize % FILES
}

pub(crate) struct Model {
    /// By row and way: bit patterns of non-negative numbers, which are ordered like the numbers.
    scores: Box<[AtomicU32; ROWS * LANES]>,
    /// Scores of cached pages without a counter, by age.
    forgotten: [AtomicU32; AGES],
    files: [File; FILES],
    /// Number of pages at the end of a growing file that count as new.
    new: u32,
    /// Like scores and files, it guards no other memory: `Relaxed` everywhere. The lock covers all writes except those
    /// of the files' ends.
    changing: AtomicBool,
    /// Number of ways of each shadow set that LRU would fill.
    ways: AtomicU8,
    pages: u64,
    learned: Mutex<Learned>,
}

/// State of all files that share a slot.
struct File {
    /// The highest page number read.
    end: AtomicU32,
    grows: AtomicBool,
    /// Class of the pages that are not new.
    class: AtomicU8,
}

struct Learned {
    hits: [f64; CELLS],
    time: [f64; CELLS],
    /// Hits and time of cached pages without a counter, by age.
    forgotten: [(f64, f64); AGES],
    /// Share of written pages among the re-read ones.
    shares: [f64; FILES],
    /// Ends of files at the last score update, and their recent growth in pages.
    growth: [(u32, f64); FILES],
    /// Reads since the last score update.
    reads: u64,
    /// Pages of all instances: planned, and cached.
    planned: u64,
    cached: u64,
    /// Lead of LRU over the policy.
    ahead: f64,
    /// Reads since the working set changed.
    since: u64,
}

impl Model {
    /// For a cache of `pages` pages.
    pub fn new(pages: u64) -> Model {
        let model = Model {
            scores: Box::new([const { AtomicU32::new(0) }; ROWS * LANES]),
            forgotten: [const { AtomicU32::new(0) }; AGES],
            files: std::array::from_fn(|_| File {
                end: AtomicU32::new(0),
                grows: AtomicBool::new(false),
                class: AtomicU8::new(class_of(0.5)),
            }),
            new: (pages as f64 * numbers::new()) as u32,
            changing: AtomicBool::new(false),
            ways: AtomicU8::new(shadow::WAYS as u8),
            pages,
            learned: Mutex::new(Learned {
                hits: [0.0; CELLS],
                time: [0.0; CELLS],
                forgotten: [(0.0, 0.0); AGES],
                shares: [0.5; FILES],
                growth: [(0, 0.0); FILES],
                reads: 0,
                planned: 0,
                cached: 0,
                ahead: 0.0,
                since: 0,
            }),
        };
        // Initial scores: a higher count wins, and among equal counts the more recent read.
        for row in 0..ROWS {
            for way in 0..WAYS {
                let count = (row % STEPS) as f32;
                let recency = (WAYS - way) as f32 / 64.0;
                model.set_score(row, way, (count + recency) / 10.0);
            }
        }
        model
    }

    #[inline]
    pub fn score(&self, seen: Option<Seen>) -> f32 {
        seen.map_or(0.0, |Seen { row, way }| {
            let bits = &self.scores[(row * LANES + way) % (ROWS * LANES)];
            f32::from_bits(bits.load(Ordering::Relaxed))
        })
    }

    /// Score of a cached page without a counter, of this age.
    #[inline]
    pub fn forgotten_score(&self, age: u8) -> f32 {
        let bits = &self.forgotten[usize::from(age) % AGES];
        f32::from_bits(bits.load(Ordering::Relaxed))
    }

    fn set_score(&self, row: usize, way: usize, score: f32) {
        debug_assert!(score.is_finite() && score >= 0.0);
        self.scores[row * LANES + way].store(score.to_bits(), Ordering::Relaxed);
    }

    /// Class of a page that is read.
    #[inline]
    pub fn class(&self, page: PageId) -> u8 {
        let file = &self.files[place_of(page.file)];
        let end = file.end.load(Ordering::Relaxed);
        if page.page > end {
            file.end.fetch_max(page.page, Ordering::Relaxed);
        }
        let is_new = end.saturating_sub(page.page) < self.new;
        if is_new && file.grows.load(Ordering::Relaxed) {
            NEW
        } else {
            file.class.load(Ordering::Relaxed)
        }
    }

    /// Whether the working set is changing.
    #[inline]
    pub fn changing(&self) -> bool {
        self.changing.load(Ordering::Relaxed)
    }

    /// Number of ways of each shadow set that LRU would fill with the current number of cached pages.
    #[inline]
    pub fn ways(&self) -> usize {
        self.ways.load(Ordering::Relaxed).into()
    }

    /// Takes over the counts of an instance. If another instance holds the lock, the counts stay in `stats`. `full`:
    /// pages compete.
    pub fn merge(&self, stats: &mut LocalStats, full: bool) {
        let Some(mut learned) = self.learned.try_lock() else {
            return;
        };
        let learned = &mut *learned;
        for (sum, counted) in learned.hits.iter_mut().zip(stats.hits.iter_mut()) {
            *sum += f64::from(std::mem::take(counted));
        }
        for (sum, counted) in learned.time.iter_mut().zip(stats.time.iter_mut()) {
            *sum += f64::from(std::mem::take(counted));
        }
        for (place, counted) in stats.returned.iter_mut().enumerate() {
            let (all, written) = std::mem::take(counted);
            if all > 0 {
                let share = &mut learned.shares[place];
                let weight =
                    1.0 - (1.0 - 1.0 / numbers::returned_averaged()).powi(all.min(1 << 20) as i32);
                *share += (f64::from(written) / f64::from(all) - *share) * weight;
                self.files[place]
                    .class
                    .store(class_of(*share), Ordering::Relaxed);
            }
        }
        for (sum, counted) in learned.forgotten.iter_mut().zip(&mut stats.forgotten) {
            let (hits, time) = std::mem::take(counted);
            sum.0 += f64::from(hits);
            sum.1 += f64::from(time);
        }
        debug_assert!(stats.recent.max(stats.ours) <= stats.compared);
        let reads = stats.unmerged();
        stats.merged_reads = stats.reads;
        let compared = f64::from(std::mem::take(&mut stats.compared));
        let recent = f64::from(std::mem::take(&mut stats.recent));
        let ours = f64::from(std::mem::take(&mut stats.ours));
        learned.watch(
            &self.changing,
            self.pages,
            full,
            reads,
            recent - ours - compared * numbers::slack(),
        );
        learned.planned += std::mem::take(&mut stats.planned);
        learned.cached = learned.cached + stats.cached - stats.told;
        stats.told = stats.cached;
        self.ways.store(learned.ways() as u8, Ordering::Relaxed);
        learned.reads += reads;
        if learned.reads >= (self.pages / numbers::part()).max(MIN_READS) {
            learned.reads = 0;
            for (bits, score) in self.forgotten.iter().zip(learned.score_of_forgotten()) {
                bits.store(score.to_bits(), Ordering::Relaxed);
            }
            for (file, (before, growth)) in self.files.iter().zip(&mut learned.growth) {
                let end = file.end.load(Ordering::Relaxed);
                // The first observed end is a baseline, not growth.
                let more = if *before > 0 { end - *before } else { 0 };
                *growth = *growth * numbers::kept() + f64::from(more);
                *before = end;
                let grows = *growth > f64::from(end) * numbers::grown();
                file.grows.store(grows, Ordering::Relaxed);
            }
            learned.learn(|row, way, score| self.set_score(row, way, score));
        }
    }
}

/// Class of pages that are not new, by the share of their file's pages that were written before the next read.
fn class_of(share: f64) -> u8 {
    u8::from(share >= 0.25) + u8::from(share >= 0.75)
}

impl Learned {
    /// Rounded up, so that a cache at its planned size counts as full although a little room always remains.
    fn ways(&self) -> u64 {
        let all = shadow::WAYS as u64;
        (all * self.cached).div_ceil(self.planned.max(1)).min(all)
    }

    /// Detects when LRU is better: `ahead` is its lead since the last call.
    fn watch(&mut self, changing: &AtomicBool, pages: u64, full: bool, reads: u64, ahead: f64) {
        if !full {
            self.ahead = 0.0;
            changing.store(false, Ordering::Relaxed);
        } else if changing.load(Ordering::Relaxed) {
            self.since += reads;
            if self.since >= pages * numbers::change() {
                changing.store(false, Ordering::Relaxed);
            }
        } else {
            self.ahead = (self.ahead + ahead).max(0.0);
            if self.ahead > numbers::shown() {
                self.ahead = 0.0;
                self.since = 0;
                changing.store(true, Ordering::Relaxed);
            }
        }
    }

    fn learn(&mut self, mut tell: impl FnMut(usize, usize, f32)) {
        let mut lower = [0.0; SPANS_USED];
        for states in 0..STATES {
            if states % STEPS == 0 {
                lower = [0.0; SPANS_USED];
            }
            let rows: [usize; CLASSES] = std::array::from_fn(|class| class * STATES + states);
            let sums = rows.map(|row| self.sums_before(row));
            let all: Sums = std::array::from_fn(|span| {
                sums.iter().fold((0.0, 0.0), |(hits, time), of| {
                    (hits + of[span].0, time + of[span].1)
                })
            });
            lower = std::array::from_fn(|span| {
                best_ahead(&all, span, numbers::borrowed(), lower[span])
            });
            for (row, of) in rows.iter().zip(&sums) {
                let scores: [f64; SPANS_USED] = std::array::from_fn(|span| {
                    best_ahead(of, span, numbers::borrowed_of_classes(), lower[span])
                });
                for way in 0..WAYS {
                    let (score, next) = (
                        scores[way / SPAN],
                        scores[(way / SPAN + 1).min(SPANS_USED - 1)],
                    );
                    let part = (way % SPAN) as f64 / SPAN as f64;
                    tell(*row, way, (score + (next - score) * part) as f32);
                }
            }
        }
        for sum in self.hits.iter_mut().chain(&mut self.time) {
            *sum *= numbers::kept();
        }
        for (hits, time) in &mut self.forgotten {
            *hits *= numbers::kept();
            *time *= numbers::kept();
        }
    }

    /// Scores by age; each age borrows from the mean of all.
    fn score_of_forgotten(&self) -> [f32; AGES] {
        let all = self.forgotten.iter();
        let (hits, time) = all.fold((0.0, 0.0), |sum, of| (sum.0 + of.0, sum.1 + of.1));
        let pooled = hits / (time + numbers::borrowed());
        self.forgotten.map(|(hits, time)| {
            ((hits + numbers::borrowed() * pooled) / (time + numbers::borrowed())) as f32
        })
    }

    /// Hits and time of a row, summed over all spans before each span.
    fn sums_before(&self, row: usize) -> Sums {
        let mut sums = [(0.0, 0.0); SPANS_USED + 1];
        for span in 0..SPANS_USED {
            let cell = row * SPANS + span;
            let (hits, time) = sums[span];
            sums[span + 1] = (hits + self.hits[cell], time + self.time[cell]);
        }
        sums
    }
}

/// Number of spans that have counts.
const SPANS_USED: usize = WAYS.div_ceil(SPAN);

/// Hits and time in all spans before each span, and in all spans.
type Sums = [(f64, f64); SPANS_USED + 1];

/// The maximum of hits per time from the beginning of `span` until an eviction at the end of a span within the horizon.
/// A page that is not read by then is evicted, so later spans do not count against it. `borrowed`: weight of `prior`,
/// as a time.
fn best_ahead(sums: &Sums, span: usize, borrowed: f64, prior: f64) -> f64 {
    let ends = &sums[span + 1..=(span + numbers::horizon()).min(SPANS_USED)];
    let (hits_before, time_before) = sums[span];
    let (more_hits, more_time) = (borrowed * prior - hits_before, borrowed - time_before);
    debug_assert!(more_time + ends[0].1 > 0.0);
    // Compares two ratios without a division.
    let (hits, time) = ends.iter().fold((0.0, 1.0), |best, end| {
        let (hits, time) = (end.0 + more_hits, end.1 + more_time);
        if hits * best.1 > best.0 * time {
            (hits, time)
        } else {
            best
        }
    });
    hits / time
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(step: usize, way: usize) -> Seen {
        Seen { row: step, way }
    }

    fn score(model: &Model, step: usize, way: usize) -> f32 {
        model.score(Some(seen(step, way)))
    }

    /// Reads and reports like an instance.
    fn read(model: &Model, stats: &mut LocalStats, reads: u64, state: Option<Seen>) {
        for _ in 0..reads {
            stats.read(FileId(1), state);
        }
        model.merge(stats, true);
    }

    #[test]
    fn initial_scores_rise_with_count_and_recency() {
        let model = Model::new(1000);
        assert!(score(&model, 2, 5) > score(&model, 1, 5));
        assert!(score(&model, 1, 0) > score(&model, 1, 25));
        assert!(score(&model, 1, 25) > model.score(None));
    }

    #[test]
    fn states_are_worth_what_they_brought() {
        let model = Model::new(1000);
        let mut stats = LocalStats::new(1000);
        for _ in 0..40 {
            // Pages that were read three times stay as long as others, and are re-read ten times as often.
            for (step, reads) in [(1, 20), (3, 200)] {
                (0..400).for_each(|_| stats.stays(seen(step, 8)));
                // Later reads never happen.
                (0..400).for_each(|_| stats.stays(seen(step, 16)));
                read(&model, &mut stats, reads, Some(seen(step, 8)));
            }
        }
        let (one, three) = (score(&model, 1, 8), score(&model, 3, 8));
        assert!((0.04..0.07).contains(&one), "{one}");
        assert!((0.4..0.6).contains(&three), "{three}");
        // Future hits count, past ones do not.
        assert!(score(&model, 3, 2) > 0.4);
        assert!(score(&model, 3, 14) < 0.1);
        // An unseen state borrows from the next lower count.
        assert!(score(&model, 4, 8) > 0.3);
        assert_eq!(model.score(None), 0.0);
    }

    #[test]
    fn cached_pages_without_a_counter_are_worth_what_they_brought() {
        let model = Model::new(1000);
        let mut stats = LocalStats::new(1000);
        assert_eq!(model.forgotten_score(0), 0.0, "nothing is known");
        for _ in 0..40 {
            (0..100).for_each(|_| stats.forgotten_stays(0, 2.5));
            (0..50).for_each(|_| stats.forgotten_read(0));
            (0..100).for_each(|_| stats.forgotten_stays(3, 2.5));
            (0..5).for_each(|_| stats.forgotten_read(3));
            read(&model, &mut stats, 250, None);
        }
        let score = |age| model.forgotten_score(age);
        assert!((0.18..0.21).contains(&score(0)), "{}", score(0));
        assert!((0.01..0.03).contains(&score(3)), "{}", score(3));
        assert!((0.09..0.12).contains(&score(1)), "as all: {}", score(1));
        assert_eq!(model.score(None), 0.0, "of a page that is not cached");
        for _ in 0..200 {
            stats.forgotten_stays(0, 250.0);
            read(&model, &mut stats, 250, None);
        }
        assert!(score(0) < 0.01, "they come back no more");
    }

    #[test]
    fn instances_learn_together_and_keep_what_they_cannot_tell() {
        let model = Model::new(4000);
        let (mut one, mut two) = (LocalStats::new(1000), LocalStats::new(1000));
        for stats in [&mut one, &mut two] {
            (0..1000).for_each(|_| stats.stays(seen(2, 0)));
            (0..600).for_each(|_| _ = stats.read(FileId(1), Some(seen(2, 0))));
        }
        let before = score(&model, 2, 0);
        {
            let _busy = model.learned.lock();
            model.merge(&mut one, true);
        }
        assert_eq!(one.unmerged(), 600, "another one was at it");
        model.merge(&mut one, true);
        assert_eq!(score(&model, 2, 0), before, "too few yet");
        model.merge(&mut two, true);
        let after = score(&model, 2, 0);
        assert!((0.55..0.62).contains(&after), "{after}");
        assert_eq!((one.unmerged(), two.unmerged()), (0, 0));
        assert_eq!(
            one.reads, 600,
            "whoever looks at regular intervals goes by it"
        );
    }

    #[test]
    fn lru_has_no_more_than_is_cached() {
        let model = Model::new(2000);
        let (mut one, mut two) = (LocalStats::new(1000), LocalStats::new(1000));
        assert_eq!(model.ways(), 32, "nothing is known");
        one.cached = 500;
        model.merge(&mut one, true);
        assert_eq!(model.ways(), 16);
        // The instances now have unequal shares of the pages.
        (one.cached, two.cached) = (1150, 840);
        model.merge(&mut one, true);
        model.merge(&mut two, true);
        assert_eq!(model.ways(), 32, "full but for a little");
        (one.cached, two.cached) = (480, 360);
        model.merge(&mut one, true);
        model.merge(&mut two, true);
        assert_eq!(model.ways(), 14, "pages are larger than planned");
    }

    #[test]
    fn files_are_classed_by_what_becomes_of_their_pages() {
        let model = Model::new(1_000_000);
        let mut stats = LocalStats::new(1000);
        let written = Seen { row: 8 | 1, way: 3 };
        for _ in 0..20 {
            (0..1000).for_each(|_| _ = stats.read(FileId(1), Some(written)));
            (0..1000).for_each(|_| _ = stats.read(FileId(2), Some(seen(1, 3))));
            model.merge(&mut stats, true);
        }
        let class = |file| model.class(PageId::new(FileId(file), 0));
        assert_eq!([class(1), class(2), class(3)], [2, 0, 1]);
    }

    #[test]
    fn pages_at_the_end_of_a_file_are_new_while_it_grows() {
        let model = Model::new(2000);
        let mut stats = LocalStats::new(1000);
        let class = |page| model.class(PageId::new(FileId(1), page));
        let mut scores_are_made = || {
            (0..MIN_READS).for_each(|_| _ = stats.read(FileId(2), None));
            model.merge(&mut stats, true);
        };
        let old = class(0);
        class(10_000);
        scores_are_made();
        assert_eq!(class(10_000), old, "it was found so");
        (10_000..20_000).step_by(100).for_each(|end| _ = class(end));
        scores_are_made();
        assert_eq!([class(19_900), class(18_950), class(0)], [NEW, NEW, old]);
        (0..200).for_each(|_| scores_are_made());
        assert_eq!(class(19_900), old, "it grows no more");
        class(20_100);
        scores_are_made();
        assert_eq!([class(20_100), class(19_000)], [NEW, old]);
    }

    #[test]
    fn change_begins_with_lru_lead_and_lasts_three_cache_sizes() {
        let model = Model::new(1000);
        let mut stats = LocalStats::new(1000);
        let tell = |stats: &mut LocalStats, recent, ours, full| {
            (stats.compared, stats.recent, stats.ours) = (100, recent, ours);
            (0..200).for_each(|_| _ = stats.read(FileId(1), None));
            model.merge(stats, full);
            model.changing()
        };
        for _ in 0..100 {
            assert!(!tell(&mut stats, 52, 50, true), "within the slack");
        }
        assert!(!tell(&mut stats, 80, 50, true), "not for long enough");
        assert!(!tell(&mut stats, 20, 50, true), "and it is behind again");
        assert!(!tell(&mut stats, 80, 50, true));
        assert!(!tell(&mut stats, 80, 50, false), "there is room");
        assert!(!tell(&mut stats, 80, 50, true));
        assert!(tell(&mut stats, 80, 50, true));
        for _ in 0..14 {
            assert!(tell(&mut stats, 0, 100, true));
        }
        assert!(!tell(&mut stats, 80, 50, true), "3000 reads");
        assert!(!tell(&mut stats, 80, 50, true), "counted anew");
        assert!(tell(&mut stats, 80, 50, true));
        assert!(!tell(&mut stats, 80, 50, false), "there is room");
    }
}
