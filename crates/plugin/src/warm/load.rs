//! Loads the pages of a list that are not cached, in threads of its own.
//!
//! Class by class, the hottest first; within a class in the order of files and pages. One read takes pages that are close together.
//! [`Pace`] limits the rate.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use coherence::warm::{Hot, RUN_BYTES, RunBuffer, Warmed, page_size_of};
use extension::{EXTENT_PAGES, EXTENT_SHIFT};
use interface::heat::{CLASSES, LEVELS};

use super::list::{List, Listed, Piece};
use super::pace::Pace;
use crate::files::DataFile;
use crate::heat::{Heads, files_by_name};
use crate::process::CORE;

/// The access count that pages of each class get.
pub const COUNTS: [u8; CLASSES] = [4, 3, 2, 1];
/// Unwanted pages between two wanted ones that one read takes along: that costs less than another read.
const GAP: u32 = 2;
/// How often a thread looks whether staging has room.
const ROOM_INTERVAL: Duration = Duration::from_millis(5);
/// Files that are named with a reason.
const MAX_NAMED: usize = 64;

/// Why nothing of a file is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    NotOpen,
    PageSize,
}

impl Unfit {
    pub fn text(self) -> &'static str {
        match self {
            Unfit::NotOpen => "the server does not have it open",
            Unfit::PageSize => "its pages have another size",
        }
    }
}

/// Pages of one class in a piece of the list.
struct Task {
    file: &'static DataFile,
    piece: Arc<Piece>,
    class: u8,
}

/// What all passes have loaded since the plugin was loaded.
pub struct Brought {
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
    /// Pages of each class that are still to be looked at.
    room: [AtomicU64; CLASSES],
    brought: &'static Brought,
    pub rejected: AtomicU64,
    pub skipped: AtomicU64,
    /// Pages to try again.
    pub postponed: AtomicU64,
    pub is_limited: AtomicBool,
    /// The first [`MAX_NAMED`] files of which nothing is loaded, and how many there are.
    pub unfit: Vec<(Arc<str>, Unfit)>,
    pub unfit_files: u64,
}

/// The page size of a file, bytes; 0 if unknown. If the server has read only the first page, that page has it.
pub fn size_of(file: &'static DataFile, heads: &Heads) -> u32 {
    if file.page_size() == 0 {
        let head = heads.of(file);
        if let Some(size) = head.and_then(|head| page_size_of(head.flags)) {
            file.learn_page_size(size);
        }
    }
    file.page_size()
}

/// Whether pages of this size can be loaded of the file.
fn fitness(
    file: Option<&'static DataFile>,
    page_size: u32,
    heads: &Heads,
) -> Result<&'static DataFile, Unfit> {
    let file = file.ok_or(Unfit::NotOpen)?;
    if CORE.files.descriptor_of(file).is_none() {
        return Err(Unfit::NotOpen);
    }
    if size_of(file, heads) == page_size {
        Ok(file)
    } else {
        Err(Unfit::PageSize)
    }
}

impl Pass {
    pub fn new(list: &List, heads: &Heads, brought: &'static Brought) -> Pass {
        let files = files_by_name();
        let mut pass = Pass {
            tasks: Vec::new(),
            next: AtomicUsize::new(0),
            classes: list.classes,
            room: list.listed.map(AtomicU64::new),
            brought,
            rejected: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
            postponed: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            unfit: Vec::new(),
            unfit_files: 0,
        };
        let mut fit = Vec::new();
        for (name, listed) in &list.files {
            match fitness(files.get(&**name).copied(), listed.page_size, heads) {
                Ok(file) => fit.extend(listed.pieces.iter().map(|piece| (file, piece))),
                Err(why) => {
                    pass.unfit_files += 1;
                    let counts = listed.pieces.iter().flat_map(|piece| piece.counts);
                    let pages: u64 = counts.map(u64::from).sum();
                    pass.skipped.fetch_add(pages, Ordering::SeqCst);
                    if pass.unfit.len() < MAX_NAMED {
                        pass.unfit.push((Arc::clone(name), why));
                    }
                }
            }
        }
        for class in 0..CLASSES as u8 {
            let of_class = fit.iter().filter(|(_, piece)| list.count(piece, class) > 0);
            pass.tasks.extend(of_class.map(|(file, piece)| Task {
                file,
                piece: Arc::clone(piece),
                class,
            }));
        }
        pass
    }

    /// Works until nothing is left, or the pace ends.
    pub fn work(&self, pace: &Pace) {
        let Some(mut buffer) = RunBuffer::new() else {
            return;
        };
        while !pace.is_over() && !self.is_limited.load(Ordering::SeqCst) {
            let next = self.next.fetch_add(1, Ordering::SeqCst);
            let Some(task) = self.tasks.get(next) else {
                return;
            };
            self.load(task, pace, &mut buffer);
        }
    }

    /// Whether one more page of this class is listed: a small cache gets the hottest pages only.
    fn has_room(&self, class: u8) -> bool {
        let room = &self.room[usize::from(class)];
        let less = |room: u64| room.checked_sub(1);
        room.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
            .is_ok()
    }

    fn load(&self, task: &Task, pace: &Pace, buffer: &mut RunBuffer) {
        // A file that was closed meanwhile has none.
        let pages = CORE.open_pages(task.file).map_or(0, |(_, pages)| pages);
        let most = (RUN_BYTES / task.file.page_size().max(1) as usize).max(1) as u32;
        let mut run: Vec<Hot> = Vec::with_capacity(most as usize);
        let mut beyond = 0;
        let mut extents = Extents::new(task.piece.pages(), self.classes);
        while let Some(mut extent) = extents.next() {
            let is_own =
                |n: &usize| extent.classes[*n] == task.class && extent.listed >> n & 1 != 0;
            let cut = (0..EXTENT_PAGES).filter(is_own);
            let cut = cut.filter(|_| !self.has_room(task.class));
            extent.listed &= !cut.fold(0, |bits, n| bits | 1 << n);
            let welcome = self.welcome(task, &extent);
            for n in 0..EXTENT_PAGES as u32 {
                let page = (extent.number << EXTENT_SHIFT) + n;
                let class = extent.classes[n as usize];
                let is_own = class == task.class;
                if extent.listed >> n & 1 == 0 {
                    continue;
                }
                if page >= pages {
                    beyond += u64::from(is_own);
                    continue;
                }
                if welcome >> n & 1 == 0 {
                    continue;
                }
                let ends = run
                    .last()
                    .is_some_and(|last| page - last.page > GAP + 1 || page - run[0].page >= most);
                if ends {
                    self.read(task, &mut run, pace, buffer);
                    if pace.is_over() {
                        return;
                    }
                }
                // Hotter pages were loaded before; colder ones are taken along inside a run.
                let comes_along = class > task.class && !run.is_empty();
                if is_own || comes_along {
                    run.push(Hot {
                        page,
                        count: COUNTS[usize::from(class)],
                    });
                }
            }
        }
        self.read(task, &mut run, pace, buffer);
        self.skipped.fetch_add(beyond, Ordering::SeqCst);
    }

    /// Bits of the pages of an extent that are not cached and would get in.
    fn welcome(&self, task: &Task, extent: &Extent) -> u64 {
        let guard = CORE.switch().active();
        let (Some(active), Some(id)) = (guard.as_ref(), task.file.cacheable()) else {
            return 0;
        };
        let mut counts = [0; EXTENT_PAGES];
        for (count, class) in counts.iter_mut().zip(extent.classes) {
            *count = COUNTS[usize::from(class)];
        }
        let wanted = active
            .extension
            .wanted(id, extent.number, extent.listed, &counts);
        let of_class = (0..EXTENT_PAGES).filter(|&n| extent.classes[n] == task.class);
        let of_class = of_class.fold(0u64, |bits, n| bits | 1 << n);
        let refused = extent.listed & of_class & !wanted.cached & !wanted.welcome;
        self.rejected
            .fetch_add(refused.count_ones().into(), Ordering::SeqCst);
        wanted.welcome
    }

    fn read(&self, task: &Task, run: &mut Vec<Hot>, pace: &Pace, buffer: &mut RunBuffer) {
        // Colder pages at the end of a run are not worth reading.
        let own = |hot: &Hot| hot.count == COUNTS[usize::from(task.class)];
        run.truncate(run.iter().rposition(own).map_or(0, |last| last + 1));
        if run.is_empty() {
            return;
        }
        let bytes = u64::from(task.file.page_size()) * run.len() as u64;
        loop {
            let room = CORE
                .switch()
                .active()
                .as_ref()
                .map(|active| active.extension.warm_room());
            match room {
                Some(room) if room < bytes + RUN_BYTES as u64 && !pace.is_over() => {
                    std::thread::sleep(ROOM_INTERVAL);
                }
                _ => break,
            }
        }
        if !pace.take() {
            run.clear();
            return;
        }
        let warmed = CORE.warm(task.file, run, buffer).unwrap_or(Warmed {
            skipped: run.len() as u64,
            ..Warmed::default()
        });
        run.clear();
        for (sum, count) in [
            (&self.brought.loaded, warmed.admitted),
            (&self.rejected, warmed.rejected),
            (&self.skipped, warmed.skipped),
            (&self.postponed, warmed.postponed),
            (&self.brought.reads, u64::from(warmed.was_read)),
        ] {
            sum.fetch_add(count, Ordering::SeqCst);
        }
        if warmed.is_limited {
            self.is_limited.store(true, Ordering::SeqCst);
        }
    }
}

/// Lowers the counts of cached pages that the list before had and this one has not.
pub fn cool(before: &List, list: &List) {
    let (files, none) = (files_by_name(), Listed::default());
    for (name, had) in &before.files {
        let Some(file) = files.get(&**name) else {
            continue;
        };
        let has = list.files.get(name).unwrap_or(&none);
        let mut now = has.pages().map(|(page, _)| page).peekable();
        let gone = had.pages().filter(|(page, _)| {
            while now.next_if(|other| other < page).is_some() {}
            now.peek() != Some(page)
        });
        let mut extents = Extents::new(gone, before.classes);
        while let Some(extent) = extents.next() {
            let guard = CORE.switch().active();
            let (Some(active), Some(id)) = (guard.as_ref(), file.cacheable()) else {
                break;
            };
            active.extension.cool(id, extent.number, extent.listed);
        }
    }
}

/// What a list has of an extent.
struct Extent {
    number: u32,
    listed: u64,
    classes: [u8; EXTENT_PAGES],
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
pub struct Present {
    pub listed: [u64; CLASSES],
    pub cached: [u64; CLASSES],
}

/// Weights of the classes.
const WEIGHTS: [f64; CLASSES] = [50.0, 30.0, 15.0, 5.0];

impl Present {
    /// Counts them. Reads nothing.
    pub fn count(list: &List) -> Present {
        let files = files_by_name();
        let mut present = Present {
            listed: list.listed,
            ..Present::default()
        };
        for (name, listed) in &list.files {
            let file = files.get(&**name);
            let Some(file) = file.filter(|file| file.page_size() == listed.page_size) else {
                continue;
            };
            let mut extents = Extents::new(listed.pages(), list.classes);
            while let Some(extent) = extents.next() {
                // Taken anew each time, so that switching off does not wait for the whole list.
                let guard = CORE.switch().active();
                let (Some(active), Some(id)) = (guard.as_ref(), file.cacheable()) else {
                    break;
                };
                let none = [0; EXTENT_PAGES];
                let wanted = active
                    .extension
                    .wanted(id, extent.number, extent.listed, &none);
                let cached = (0..EXTENT_PAGES).filter(|n| wanted.cached >> n & 1 != 0);
                cached.for_each(|n| present.cached[usize::from(extent.classes[n])] += 1);
            }
        }
        present
    }

    /// 0 to 100, and 100 only if all are cached; the hottest have most weight. -1 if none is listed.
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
    fn hottest_class_has_most_weight() {
        let present = |listed, cached| Present { listed, cached }.percent();
        assert_eq!(present([0; 4], [0; 4]), -1.0);
        assert_eq!(present([10; 4], [10; 4]), 100.0);
        assert_eq!(present([10, 10, 10, 10], [10, 0, 0, 0]), 50.0);
        assert_eq!(present([10, 0, 0, 10], [10, 0, 0, 0]), 90.9);
        assert_eq!(present([0, 0, 0, 3], [0, 0, 0, 1]), 33.3);
        assert!(present([1_000_000; 4], [1_000_000, 1_000_000, 1_000_000, 999_999]) < 100.0);
    }
}
