//! Loads the pages of a list that are not cached: in threads that wait for nobody but the data disk.
//!
//! Class by class, so that the hottest come first; within a class in the order of files and pages. Pages that lie close together are
//! read at once. How fast is for [`Pace`] to say.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use coherence::warm::{Hot, RUN_BYTES, RunBuffer, Warmed, page_size_of};
use extension::{EXTENT_PAGES, EXTENT_SHIFT};
use interface::heat::CLASSES;

use super::list::{Granule, List};
use super::pace::Pace;
use crate::files::DataFile;
use crate::heat::{Heads, files_by_name};
use crate::process::CORE;

/// How often pages of each class are taken to have been asked for.
pub const COUNTS: [u8; CLASSES] = [4, 3, 2, 1];
/// Pages between two wanted ones that are read along: that costs less than another read.
const GAP: u32 = 2;
/// Between two looks whether staging has room.
const PAUSE: Duration = Duration::from_millis(5);
/// Names of files that are told of.
const TOLD: usize = 64;

/// Why nothing of a file is loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unfit {
    /// The server does not have it open.
    NotOpen,
    /// Its pages are of another size.
    PageSize,
}

/// One granule, one class of its pages.
struct Task {
    file: &'static DataFile,
    granule: Arc<Granule>,
    class: u8,
}

/// What all passes have brought since the plugin was loaded, the one under way included.
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
    brought: &'static Brought,
    pub rejected: AtomicU64,
    pub skipped: AtomicU64,
    /// Pages to be tried again.
    pub postponed: AtomicU64,
    pub is_limited: AtomicBool,
    /// Files of which nothing is loaded, as far as they are told of, and how many there are.
    pub unfit: Vec<(Arc<str>, Unfit)>,
    pub unfit_files: u64,
}

/// The page size of a file, bytes; 0 if it is not known. The server may have read nothing of it but its first page: that tells.
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
        let (mut tasks, mut unfit) = (Vec::new(), Vec::new());
        let (mut unfit_files, mut unfit_pages) = (0, 0);
        let mut fit = Vec::new();
        for (name, listed) in &list.files {
            match fitness(files.get(&**name).copied(), listed.page_size, heads) {
                Ok(file) => fit.push((file, listed)),
                Err(why) => {
                    unfit_files += 1;
                    let granules = listed.granules.values();
                    let pages = granules.flat_map(|granule| granule.counts);
                    unfit_pages += pages.map(u64::from).sum::<u64>();
                    if unfit.len() < TOLD {
                        unfit.push((Arc::clone(name), why));
                    }
                }
            }
        }
        for class in 0..CLASSES {
            for (file, listed) in &fit {
                let granules = listed.granules.values();
                tasks.extend(
                    granules
                        .filter(|granule| granule.counts[class] > 0)
                        .map(|granule| Task {
                            file,
                            granule: Arc::clone(granule),
                            class: class as u8,
                        }),
                );
            }
        }
        Pass {
            tasks,
            next: AtomicUsize::new(0),
            brought,
            rejected: AtomicU64::new(0),
            skipped: AtomicU64::new(unfit_pages),
            postponed: AtomicU64::new(0),
            is_limited: AtomicBool::new(false),
            unfit,
            unfit_files,
        }
    }

    /// Parts that are done, of all.
    pub fn progress(&self) -> (usize, usize) {
        let all = self.tasks.len();
        (self.next.load(Ordering::SeqCst).min(all), all)
    }

    /// Works until nothing is left, or the pace says that it is over.
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

    fn load(&self, task: &Task, pace: &Pace, buffer: &mut RunBuffer) {
        let Some((_, pages)) = CORE.open_pages(task.file) else {
            let left = task.granule.counts[usize::from(task.class)];
            self.skipped.fetch_add(left.into(), Ordering::SeqCst);
            return;
        };
        let most = (RUN_BYTES / task.file.page_size().max(1) as usize).max(1) as u32;
        let mut run: Vec<Hot> = Vec::with_capacity(most as usize);
        let mut beyond = 0;
        let mut extents = Extents::new(&task.granule);
        while let Some(extent) = extents.next() {
            let welcome = self.welcome(task, &extent);
            for n in 0..EXTENT_PAGES as u32 {
                let page = (extent.number << EXTENT_SHIFT) + n;
                let class = extent.classes[n as usize];
                if extent.listed >> n & 1 == 0 {
                    continue;
                }
                if page >= pages {
                    beyond += u64::from(class == task.class);
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
                // Hotter ones have had their turn; colder ones come along where a run goes on.
                let comes_along = class > task.class && !run.is_empty();
                if class == task.class || comes_along {
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
        // Those at the end that only came along would cost for nothing.
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
                    std::thread::sleep(PAUSE);
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

/// Pages that the list had before and has no more are worth less from now on.
pub fn cool(before: &List, list: &List) {
    let files = files_by_name();
    for (name, had) in &before.files {
        let Some(file) = files.get(&**name) else {
            continue;
        };
        for (number, granule) in &had.granules {
            let has = list
                .files
                .get(name)
                .and_then(|listed| listed.granules.get(number));
            if has.is_some_and(|has| Arc::ptr_eq(has, granule)) {
                continue;
            }
            let guard = CORE.switch().active();
            let (Some(active), Some(id)) = (guard.as_ref(), file.cacheable()) else {
                break;
            };
            let mut now = has.into_iter().flat_map(|has| has.pages()).peekable();
            let gone = granule.pages().filter(|(page, _)| {
                while now.next_if(|(other, _)| other < page).is_some() {}
                now.peek().is_none_or(|(other, _)| other != page)
            });
            let mut extents = Extents(gone.peekable());
            while let Some(extent) = extents.next() {
                active.extension.cool(id, extent.number, extent.listed);
            }
        }
    }
}

/// What a list says of an extent.
struct Extent {
    number: u32,
    listed: u64,
    classes: [u8; EXTENT_PAGES],
}

/// The extents of a granule of which pages are listed.
struct Extents<I: Iterator<Item = (u32, u8)>>(std::iter::Peekable<I>);

impl Extents<std::iter::Empty<(u32, u8)>> {
    fn new(granule: &Granule) -> Extents<impl Iterator<Item = (u32, u8)>> {
        Extents(granule.pages().peekable())
    }
}

impl<I: Iterator<Item = (u32, u8)>> Extents<I> {
    fn next(&mut self) -> Option<Extent> {
        let number = self.0.peek()?.0 >> EXTENT_SHIFT;
        let mut extent = Extent {
            number,
            listed: 0,
            classes: [0; EXTENT_PAGES],
        };
        while let Some((page, class)) = self.0.next_if(|(page, _)| page >> EXTENT_SHIFT == number) {
            let n = page as usize % EXTENT_PAGES;
            extent.listed |= 1 << n;
            extent.classes[n] = class;
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

/// What a class counts for, if all have pages.
const WEIGHTS: [f64; CLASSES] = [50.0, 30.0, 15.0, 5.0];

impl Present {
    /// Counts them, over the extents that are listed. Reads nothing.
    pub fn count(list: &List) -> Present {
        let files = files_by_name();
        let mut present = Present {
            listed: list.counts(),
            ..Present::default()
        };
        for (name, listed) in &list.files {
            let Some(file) = files
                .get(&**name)
                .filter(|file| file.page_size() == listed.page_size)
            else {
                continue;
            };
            for granule in listed.granules.values() {
                // Taken anew each time, so that whoever switches off waits for none of this.
                let guard = CORE.switch().active();
                let (Some(active), Some(id)) = (guard.as_ref(), file.cacheable()) else {
                    break;
                };
                let mut extents = Extents::new(granule);
                while let Some(extent) = extents.next() {
                    let none = [0; EXTENT_PAGES];
                    let wanted = active
                        .extension
                        .wanted(id, extent.number, extent.listed, &none);
                    let mut cached = wanted.cached;
                    while cached != 0 {
                        let n = cached.trailing_zeros() as usize;
                        cached &= cached - 1;
                        present.cached[usize::from(extent.classes[n])] += 1;
                    }
                }
            }
        }
        present
    }

    /// 0 to 100, and 100 only if all are cached; the hottest count for most. -1 if none is listed.
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
    fn the_hottest_count_for_most() {
        let present = |listed, cached| Present { listed, cached }.percent();
        assert_eq!(present([0; 4], [0; 4]), -1.0);
        assert_eq!(present([10; 4], [10; 4]), 100.0);
        assert_eq!(present([10, 10, 10, 10], [10, 0, 0, 0]), 50.0);
        assert_eq!(present([10, 0, 0, 10], [10, 0, 0, 0]), 90.9);
        assert_eq!(present([0, 0, 0, 3], [0, 0, 0, 1]), 33.3);
        assert!(present([1_000_000; 4], [1_000_000, 1_000_000, 1_000_000, 999_999]) < 100.0);
    }
}
