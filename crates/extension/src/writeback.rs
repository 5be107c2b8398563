//! Which files' pages InnoDB usually writes back before it lets go of them, as far as the stream tells.
//!
//! InnoDB never says which pages its pool holds, but some of it can be inferred. A page that was just read is in the pool,
//! and the copy in the cache is of no use until it has left. If it leaves it after having been changed it is written on its
//! way out, which shows both that it goes and what it has become: that is the moment to cache it. So for files of which
//! about every page that is read is also written,
//! * a page that was read is not taken in, but when it is written (one write to the device instead of two);
//! * a page that was hit is the first to go when another needs its place: its next life begins with its being written.
//!
//! Files of which pages are mostly read cannot be treated so: a clean page goes without a word.
//!
//! The table is small and fixed. A file is forgotten when others ask for its place more often than it is used.

use crate::page::{FileId, mix64};

const PLACES: usize = 64;
const SCALE: u16 = u16::MAX;
/// Weight of one read or write is 2^-WEIGHT.
const WEIGHT: u32 = 9;
/// Share of writes among the reads and writes from which on a file counts as written back: about nine writes to eleven
/// reads.
const WRITTEN_BACK: u16 = (SCALE as u32 * 45 / 100) as u16;
const UNKNOWN: u16 = SCALE / 4;

#[derive(Clone, Copy, Default)]
struct Place {
    file: u32,
    /// Moving share of writes; 0 and 0: free.
    writes: u16,
    uses: u16,
}

pub(crate) struct Writeback {
    places: Box<[Place; PLACES]>,
}

impl Writeback {
    pub fn new() -> Writeback {
        Writeback {
            places: Box::new([Place::default(); PLACES]),
        }
    }

    fn place(&mut self, file: FileId) -> Option<&mut Place> {
        let place = &mut self.places[mix64(file.0.into()) as usize % PLACES];
        if place.file != file.0 || place.uses == 0 {
            if place.uses > 0 {
                place.uses -= 1;
                return None;
            }
            *place = Place {
                file: file.0,
                writes: UNKNOWN,
                uses: 0,
            };
        }
        place.uses = place.uses.saturating_add(1);
        Some(place)
    }

    pub fn note_read(&mut self, file: FileId) {
        if let Some(place) = self.place(file) {
            place.writes -= place.writes >> WEIGHT;
        }
    }

    pub fn note_write(&mut self, file: FileId) {
        if let Some(place) = self.place(file) {
            place.writes += (SCALE - place.writes) >> WEIGHT;
        }
    }

    /// Whether a page of the file that was read is likely to be written before InnoDB lets go of it.
    pub fn is_likely(&self, file: FileId) -> bool {
        let place = &self.places[mix64(file.0.into()) as usize % PLACES];
        place.file == file.0 && place.writes >= WRITTEN_BACK
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_told_by_their_writes() {
        let mut w = Writeback::new();
        let (read, written) = (FileId(1), FileId(2));
        assert!(!w.is_likely(written), "not known yet");
        for n in 0..3000 {
            w.note_read(read);
            w.note_read(written);
            w.note_write(written);
            if n % 3 == 0 {
                w.note_write(read);
            }
        }
        assert!(!w.is_likely(read) && w.is_likely(written));
        for _ in 0..2000 {
            w.note_read(written);
        }
        assert!(!w.is_likely(written), "and when that changes");
    }

    #[test]
    fn a_busy_file_takes_the_place_of_an_idle_one() {
        let mut w = Writeback::new();
        let place = |file: u32| mix64(file.into()) as usize % PLACES;
        let other = (2..).find(|&file| place(file) == place(1)).unwrap();
        (0..500).for_each(|_| w.note_write(FileId(1)));
        assert!(w.is_likely(FileId(1)));
        w.note_read(FileId(other));
        assert!(w.is_likely(FileId(1)), "not by a single use");
        (0..2000).for_each(|_| w.note_write(FileId(other)));
        assert!(w.is_likely(FileId(other)) && !w.is_likely(FileId(1)));
    }
}
