//! Loads the pages of a list that are not cached, in several threads.
//!
//! The order is by class, hottest first, and within a class by file and page. One read takes pages that are close together.
//! [`RateLimiter`] limits the rate.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use cache::{EXTENT_PAGES, EXTENT_SHIFT, Wanted};
use coherence::files::DataFile;
use coherence::warm::{Hot, RUN_BYTES, RunBuffer, Warmed, page_size_of};
use interface::heat::{CLASSES, LEVELS};

use super::list::{List, ListedFile, Piece};
use super::rate_limiter::RateLimiter;
use crate::platform::CORE;
use crate::reports::heat::{FirstPages, files_by_name};

/// The access count that pages of each class get.
pub const COUNTS: [u8; CLASSES] = [4, 3, 2, 1];
/// Maximum number of unwanted pages that one read includes between two wanted ones: cheaper than a second read.
const GAP: usize = 2;
/// Interval at which a thread checks whether staging has room.
const ROOM_INTERVAL: Duration = Duration::from_millis(5);

/// Skipped files, by the reason.
pub type SkippedFiles = BTreeMap<&'static str, Vec<Arc<str>>>;

/// Pages of one class in a piece of the list.
struct Task {
    file: &'static DataFile,
    piece: Arc<Piece>,
    class: u8,
}

/// Totals of all passes since the plugin was loaded.
pub struct LoadCounts {
    /// Pages.
    pub loaded: AtomicU64,
    /// Reads of the data disk.
    pub reads: AtomicU64,
}

/// A pass over a list.
pub struct Pass {
    tasks: Vec<Task>,
    next: AtomicUsize,
    classes: [u8; LEVELS],
    cut: u8,
    /// Pages of each class that remain to be visited.
    room: [AtomicU64; CLASSES],
    counts: &'static LoadCounts,
    pub rejected: AtomicU64,
    pub skipped: AtomicU64,
    /// Pages to try again.
    pub postponed: AtomicU64,
    pub is_limited: AtomicBool,
}

/// The page size of a file, bytes; 0 if unknown. If the server has read only the first page, the size comes from that page.
pub fn size_of(file: &'static DataFile, first_pages: &FirstPages) -> u32 {
    if file.page_size() == 0 {
        let head = first_pages.of(file);
        if let Some(size) = head.and_then(|head| page_size_of(head.flags)) {
            file.learn_page_size(size);
        }
    }
    file.page_size()
}

/// Removes the files that cannot be loaded from a list.
pub fn skip_files(list: &mut List, first_pages: &FirstPages) -> SkippedFiles {
    let (files, mut skipped_files) = (files_by_name(), SkippedFiles::new());
    list.retain(|name, listed| {
        let reason = skip_reason(files.get(&**name).copied(), listed, first_pages);
        if let Some(reason) = reason {
            skipped_files
                .entry(reason)
                .or_default()
                .push(Arc::clone(name));
        }
        reason.is_none()
    });
    skipped_files
}

fn skip_reason(
    file: Option<&'static DataFile>,
    listed: &ListedFile,
    first_pages: &FirstPages,
) -> Option<&'static str> {
    let open = file.filter(|file| CORE.files.descriptor_of(file).is_some());
    let Some(file) = open else {
        return Some("the server does not have them open");
    };
    if size_of(file, first_pages) != listed.page_size {
        return Some("their pages have another size there");
    }
    // Reads page 0 of a file once.
    let is_other = listed.space.is_some_and(|space| {
        let head = first_pages.of(file);
        head.is_some_and(|head| space != head.space)
    });
    is_other.then_some("they are other tablespaces there: the data are no physical copy")
}

impl Pass {
    pub fn new(list: &List, counts: &'static LoadCounts) -> Pass {
        let files = files_by_name();
        let mut tasks = Vec::new();
        for class in 0..CLASSES as u8 {
            for (name, listed) in &list.files {
                let Some(file) = files.get(&**name) else {
                    continue;
                };
                let pieces = listed.pieces.iter().filter(|piece| list.has(piece, class));
                tasks.extend(pieces.map(|piece| Task {
                    file,
                    piece: Arc::clone(piece),
                    class,
                }));
            }
        }
        Pass {
            tasks,
            next: AtomicUsize::new(0),
            classes: list.classes,
            cut: list.cut,
            room: list.listed.map(AtomicU64::new),
            counts,
            rejected: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            postponed: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
        }
    }

    /// Loads pages until nothing is left, or the pace ends.
    pub fn work(&self, limiter: &RateLimiter) {
        let Some(mut buffer) = RunBuffer::new() else {
            return;
        };
        while !limiter.has_ended() && !self.is_limited.load(Ordering::SeqCst) {
            let next = self.next.fetch_add(1, Ordering::SeqCst);
            let Some(task) = self.tasks.get(next) else {
                return;
            };
            self.load(task, limiter, &mut buffer);
        }
    }

    /// Whether one more page of this class is listed: a small cache gets the hottest pages only.
    fn has_room(&self, class: u8) -> bool {
        let room = &self.room[usize::from(class)];
        let less = |room: u64| room.checked_sub(1);
        room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            .is_ok()
    }

    fn load(&self, task: &Task, limiter: &RateLimiter, buffer: &mut RunBuffer) {
        // A file that was closed since has no pages.
        let pages = CORE.open_pages(task.file).map_or(0, |(_, pages)| pages);
        let size = task.file.page_size().max(1) as usize;
        let longest = (RUN_BYTES / size).clamp(1, EXTENT_PAGES);
        let mut extents = Extents::new(task.piece.pages(), self.classes);
        while let Some(mut extent) = extents.next() {
            let first = extent.number << EXTENT_SHIFT;
            let own = extent.bits(|class| class == task.class);
            let cut = |n: &usize| own >> n & 1 != 0 && !self.has_room(task.class);
            extent.listed &= !(0..EXTENT_PAGES)
                .filter(cut)
                .fold(0, |bits, n| bits | 1 << n);
            let there = pages.saturating_sub(first).min(EXTENT_PAGES as u32);
            let there = u64::MAX
                .checked_shr(EXTENT_PAGES as u32 - there)
                .unwrap_or(0);
            let listed = own & extent.listed;
            let (own, beyond) = (listed & there, (listed & !there).count_ones());
            self.skipped.fetch_add(beyond.into(), Ordering::SeqCst);
            let Some(wanted) = wanted(task.file, &extent, extent.counts()) else {
                continue;
            };
            let (mut own, rejected) = admissible(own, wanted);
            self.rejected.fetch_add(rejected.into(), Ordering::SeqCst);
            // Hotter pages were loaded before. A run includes colder pages.
            let along = extent.bits(|class| class > task.class && class < self.cut);
            let along = along & there & wanted.admissible;
            let counts = extent.counts();
            while own != 0 && !limiter.has_ended() {
                let run = first_run(own, along, longest);
                own &= !run;
                let pages = (0..EXTENT_PAGES).filter(|n| run >> n & 1 != 0);
                let hot = pages.map(|n| Hot {
                    page: first + n as u32,
                    count: counts[n],
                });
                self.read(task.file, &hot.collect::<Vec<_>>(), limiter, buffer);
            }
        }
    }

    fn read(
        &self,
        file: &'static DataFile,
        run: &[Hot],
        limiter: &RateLimiter,
        buffer: &mut RunBuffer,
    ) {
        let bytes = u64::from(file.page_size()) * run.len() as u64;
        loop {
            let room = CORE
                .switch()
                .active()
                .as_ref()
                .map(|active| active.extension.warm_room());
            match room {
                Some(room) if room < bytes && !limiter.has_ended() => {
                    std::thread::sleep(ROOM_INTERVAL);
                }
                _ => break,
            }
        }
        if !limiter.acquire() {
            return;
        }
        let warmed = CORE.warm(file, run, buffer).unwrap_or(Warmed {
            skipped: run.len() as u64,
            ..Warmed::default()
        });
        for (sum, count) in [
            (&self.counts.loaded, warmed.admitted),
            (&self.rejected, warmed.rejected),
            (&self.skipped, warmed.skipped),
            (&self.postponed, warmed.postponed),
            (&self.counts.reads, u64::from(warmed.was_read)),
        ] {
            sum.fetch_add(count, Ordering::SeqCst);
        }
        if warmed.is_limited {
            self.is_limited.store(true, Ordering::SeqCst);
        }
    }
}

/// Lowers the counts of cached pages that are in the previous list but not in this one.
pub fn cool(before: &List, list: &List) {
    let (files, none) = (files_by_name(), ListedFile::default());
    for (name, had) in &before.files {
        let Some(file) = files.get(&**name) else {
            continue;
        };
        let has = list.files.get(name).unwrap_or(&none).pieces.iter();
        let mut now = has.flat_map(|piece| piece.pages()).peekable();
        let had = had.pieces.iter().flat_map(|piece| piece.pages());
        let gone = had.filter(|(page, _)| {
            while now.next_if(|(other, _)| other < page).is_some() {}
            now.peek().is_none_or(|(other, _)| other != page)
        });
        let mut extents = Extents::new(gone, before.classes);
        while let Some(extent) = extents.next() {
            let guard = CORE.switch().active();
            let (Some(active), Some(id)) = (guard.as_ref(), file.usable_id()) else {
                break;
            };
            active.extension.cool(id, extent.number, extent.listed);
        }
    }
}

/// Selects the pages of one read: from the first of `own` on, with those of `along` between them. The run ends with a page
/// of `own`, and before a gap that costs more than another read.
fn first_run(own: u64, along: u64, longest: usize) -> u64 {
    let from = own.trailing_zeros() as usize;
    let pages = (own | along) & bits_from(from) & !bits_from(from + longest);
    let is_gap = |n: &usize| pages & bits_from(*n) & !bits_from(n + GAP + 1) == 0;
    let gap = (from..EXTENT_PAGES).find(is_gap);
    let run = pages & !bits_from(gap.unwrap_or(EXTENT_PAGES));
    let end = EXTENT_PAGES - (own & run).leading_zeros() as usize;
    run & !bits_from(end)
}

/// Bits of the pages of an extent from this one on.
fn bits_from(n: usize) -> u64 {
    u64::MAX.checked_shl(n as u32).unwrap_or(0)
}

/// Which of an extent's pages would be admitted, and how many of the others are not cached either.
fn admissible(pages: u64, wanted: Wanted) -> (u64, u32) {
    let rejected = pages & !wanted.cached & !wanted.admissible;
    (pages & wanted.admissible, rejected.count_ones())
}

/// Which pages of an extent are cached, and which would be admitted. `None`: nothing of the file can be cached now.
fn wanted(file: &DataFile, extent: &Extent, counts: [u8; EXTENT_PAGES]) -> Option<Wanted> {
    // Taken anew for each extent, so that switching off does not wait for a whole list.
    let guard = CORE.switch().active();
    let (active, id) = (guard.as_ref()?, file.usable_id()?);
    let extension = &active.extension;
    Some(extension.wanted(id, extent.number, extent.listed, &counts))
}

/// The listed pages of an extent.
struct Extent {
    number: u32,
    listed: u64,
    classes: [u8; EXTENT_PAGES],
}

impl Extent {
    /// The access count of each page.
    fn counts(&self) -> [u8; EXTENT_PAGES] {
        self.classes.map(|class| COUNTS[usize::from(class)])
    }

    /// Bits of the listed pages of some classes.
    fn bits(&self, is_wanted: impl Fn(u8) -> bool) -> u64 {
        let pages = (0..EXTENT_PAGES).filter(|n| is_wanted(self.classes[*n]));
        pages.fold(0, |bits, n| bits | 1 << n) & self.listed
    }
}

/// Groups pages, which must ascend, by extents.
struct Extents<I: Iterator<Item = (u32, u8)>> {
    pages: std::iter::Peekable<I>,
    classes: [u8; LEVELS],
}

impl<I: Iterator<Item = (u32, u8)>> Extents<I> {
    fn new(pages: I, classes: [u8; LEVELS]) -> Extents<I> {
        let pages = pages.peekable();
        Extents { pages, classes }
    }

    fn next(&mut self) -> Option<Extent> {
        let number = self.pages.peek()?.0 >> EXTENT_SHIFT;
        let mut extent = Extent {
            number,
            listed: 0,
            classes: [0; EXTENT_PAGES],
        };
        let is_in = |(page, _): &(u32, u8)| page >> EXTENT_SHIFT == number;
        while let Some((page, heat)) = self.pages.next_if(is_in) {
            let n = page as usize % EXTENT_PAGES;
            extent.listed |= 1 << n;
            extent.classes[n] = self.classes[usize::from(heat) % LEVELS];
        }
        Some(extent)
    }
}

/// How many pages of each class are listed, and how many of them are cached now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CachedShare {
    pub listed: [u64; CLASSES],
    pub cached: [u64; CLASSES],
}

/// Weights of the classes.
const WEIGHTS: [f64; CLASSES] = [50.0, 30.0, 15.0, 5.0];

impl CachedShare {
    /// Counts them. Reads nothing.
    pub fn count(list: &List) -> CachedShare {
        let files = files_by_name();
        let mut present = CachedShare {
            listed: list.listed,
            ..CachedShare::default()
        };
        for (name, listed) in &list.files {
            let file = files.get(&**name);
            let Some(file) = file.filter(|file| file.page_size() == listed.page_size) else {
                continue;
            };
            let pages = listed.pieces.iter().flat_map(|piece| piece.pages());
            let mut extents = Extents::new(pages, list.classes);
            while let Some(extent) = extents.next() {
                let Some(wanted) = wanted(file, &extent, [0; EXTENT_PAGES]) else {
                    break;
                };
                for class in 0..CLASSES {
                    let bits = wanted.cached & extent.bits(|of| usize::from(of) == class);
                    present.cached[class] += u64::from(bits.count_ones());
                }
            }
        }
        present
    }

    /// 0 to 100, and 100 only if all are cached. The hottest pages have most weight. -1 if none is listed.
    pub fn percent(&self) -> f64 {
        let (mut sum, mut of) = (0.0, 0.0);
        for ((weight, listed), cached) in WEIGHTS.iter().zip(self.listed).zip(self.cached) {
            if listed > 0 {
                sum += weight * cached.min(listed) as f64 / listed as f64;
                of += weight;
            }
        }
        if of == 0.0 {
            return -1.0;
        }
        (sum / of * 1000.0).floor() / 10.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_end_before_gaps_and_with_own_pages() {
        assert_eq!(first_run(0b1011, 0, 16), 0b1011);
        assert_eq!(
            first_run(0b100_1001, 0, 16),
            0b100_1001,
            "gaps of two pages"
        );
        assert_eq!(first_run(0b1_0001, 0, 16), 1, "a gap of three");
        assert_eq!(
            first_run(0b1_0001, 0b100, 16),
            0b1_0101,
            "closed by another page"
        );
        assert_eq!(
            first_run(0b1000, 0b11_0110, 16),
            0b1000,
            "others at the ends"
        );
        assert_eq!(first_run(u64::MAX, 0, 16), 0xffff);
        assert_eq!(first_run(u64::MAX << 60, 0, 16), u64::MAX << 60);
        assert_eq!(first_run(1 << 63, u64::MAX, 64), 1 << 63);
        assert_eq!(first_run(u64::MAX, 0, 64), u64::MAX);
    }

    #[test]
    fn pages_that_are_neither_cached_nor_admitted_are_rejected() {
        let wanted = Wanted {
            cached: 0b1_0011,
            admissible: 0b10_0100,
        };
        assert_eq!(admissible(0b1111, wanted), (0b100, 1));
        assert_eq!(admissible(0b11_1111, wanted), (0b10_0100, 1));
        assert_eq!(admissible(0, wanted), (0, 0));
    }

    #[test]
    fn hottest_class_has_most_weight() {
        let present = |listed, cached| CachedShare { listed, cached }.percent();
        assert_eq!(present([0; 4], [0; 4]), -1.0);
        assert_eq!(present([10; 4], [10; 4]), 100.0);
        assert_eq!(present([10, 10, 10, 10], [10, 0, 0, 0]), 50.0);
        assert_eq!(present([10, 0, 0, 10], [10, 0, 0, 0]), 90.9);
        assert_eq!(present([0, 0, 0, 3], [0, 0, 0, 1]), 33.3);
        assert!(present([1_000_000; 4], [1_000_000, 1_000_000, 1_000_000, 999_999]) < 100.0);
    }
}
