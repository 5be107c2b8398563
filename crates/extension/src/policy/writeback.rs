//! Which files' pages InnoDB usually writes back before it lets go of them, as far as the stream tells.
//!
//! InnoDB never says which pages its pool holds, but some of it can be inferred. A page that was just read is in the pool,
//! and the copy in the cache is of no use until it has left. If it leaves it after having been changed it is written on its
//! way out, which shows both that it goes and what it has become: that is the moment to cache it. So for files of which
//! most pages that are read are written before they are read again,
//! * a page that was read is not taken in, but when it is written (one write to the device instead of two);
//! * a page that was hit is the first to go when another needs its place: its next life begins with its being written.
//!
//! Files of which pages are mostly read cannot be treated so: a clean page goes without a word. Nor is it enough to count
//! reads and writes: a few hot pages may be written at every checkpoint while the others are only read. So some pages, chosen
//! by their hash, are followed from their read on, until they are written, read again, or have been followed for about
//! four times as many reads as the instance has pages.
//!
//! Both tables are small and fixed. A file is forgotten when others ask for its place more often than it is used.

use crate::measure::averaged;
use crate::page::{FileId, PageId, mix64};

const FOLLOWED: usize = 256;
/// Reads, for each page of the instance, for which a page is followed.
const PATIENCE: u64 = 4;
const PLACES: usize = 64;
const SCALE: u16 = u16::MAX;
/// Weight of one followed page is 2^-WEIGHT.
const WEIGHT: u32 = 5;
/// Share of the followed pages that must have been written.
const MOST: u16 = (SCALE as u32 * 70 / 100) as u16;
const UNKNOWN: u16 = SCALE / 4;

#[derive(Clone, Copy, Default)]
struct Place {
    file: u32,
    /// Moving share of followed pages that were written.
    written: u16,
    /// 0: free.
    uses: u16,
}

pub(crate) struct Writeback {
    followed: Box<[Option<PageId>; FOLLOWED]>,
    /// Pages are followed if these bits of their hash are 0.
    mask: u64,
    places: Box<[Place; PLACES]>,
}

impl Writeback {
    /// For an instance of so many pages.
    pub fn new(pages: u64) -> Writeback {
        Writeback {
            followed: Box::new([None; FOLLOWED]),
            mask: (pages * PATIENCE / FOLLOWED as u64).next_power_of_two() - 1,
            places: Box::new([Place::default(); PLACES]),
        }
    }

    /// Where a page is followed, if it is one of those.
    fn follows(&self, page: PageId) -> Option<usize> {
        let hash = mix64(page.hash());
        (hash & self.mask == 0).then_some((hash >> 48) as usize % FOLLOWED)
    }

    pub fn note_read(&mut self, page: PageId) {
        let Some(at) = self.follows(page) else {
            return;
        };
        if let Some(before) = self.followed[at].replace(page) {
            self.learn(before.file, false);
        }
    }

    pub fn note_write(&mut self, page: PageId) {
        let Some(at) = self.follows(page) else {
            return;
        };
        if self.followed[at] == Some(page) {
            self.followed[at] = None;
            self.learn(page.file, true);
        }
    }

    fn learn(&mut self, file: FileId, written: bool) {
        let place = &mut self.places[mix64(file.0.into()) as usize % PLACES];
        if place.file != file.0 || place.uses == 0 {
            if place.uses > 0 {
                place.uses -= 1;
                return;
            }
            *place = Place {
                file: file.0,
                written: UNKNOWN,
                uses: 0,
            };
        }
        place.uses = place.uses.saturating_add(1);
        let share = if written { SCALE } else { 0 };
        place.written = averaged(place.written.into(), share.into(), WEIGHT) as u16;
    }

    /// Whether a page of the file that was read is likely to be written before InnoDB lets go of it.
    pub fn is_likely(&self, file: FileId) -> bool {
        let place = &self.places[mix64(file.0.into()) as usize % PLACES];
        place.file == file.0 && place.written >= MOST
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(file: u32, page: u32) -> PageId {
        PageId::new(FileId(file), page)
    }

    #[test]
    fn files_are_told_by_what_becomes_of_pages_that_were_read() {
        let mut w = Writeback::new(1000);
        let (read, written, hot) = (FileId(1), FileId(2), FileId(3));
        assert!(!w.is_likely(written), "not known yet");
        for n in 0..20_000 {
            let number = n % 3000;
            for file in [read, written, hot] {
                w.note_read(page(file.0, number));
            }
            w.note_write(page(written.0, number));
            if n % 3 == 0 {
                w.note_write(page(read.0, number));
            }
            // Many writes, of few pages.
            (0..3).for_each(|_| w.note_write(page(hot.0, 5000 + n % 10)));
        }
        assert!(!w.is_likely(read) && w.is_likely(written));
        assert!(!w.is_likely(hot), "most of its pages are only read");
        for n in 0..20_000 {
            w.note_read(page(written.0, n % 3000));
        }
        assert!(!w.is_likely(written), "and when that changes");
    }

    #[test]
    fn a_busy_file_takes_the_place_of_an_idle_one() {
        let mut w = Writeback::new(100);
        let place = |file: u32| mix64(file.into()) as usize % PLACES;
        let other = (2..).find(|&file| place(file) == place(1)).unwrap();
        (0..100).for_each(|_| w.learn(FileId(1), true));
        assert!(w.is_likely(FileId(1)));
        w.learn(FileId(other), true);
        assert!(w.is_likely(FileId(1)), "not by a single use");
        (0..500).for_each(|_| w.learn(FileId(other), true));
        assert!(w.is_likely(FileId(other)) && !w.is_likely(FileId(1)));
    }
}
