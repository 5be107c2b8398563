//! Counts recorded events, and distinct pages by one bit each, in bounded memory.

use std::collections::{HashMap, HashSet};

use super::drain::RECORD_BYTES;

/// Pages per block of bits.
const BLOCK: u32 = 1 << 12;
/// Maximum number of blocks: 128 MiB of bits, for 16 TiB in pages of 16 KiB.
const MAX_BLOCKS: usize = 1 << 18;
type Bits = Box<[u64; (BLOCK / 64) as usize]>;

/// Totals of a recording.
#[derive(Default)]
pub struct Tally {
    reads: u64,
    writes: u64,
    files: HashSet<u32>,
    /// By file and block number.
    seen: HashMap<(u32, u32), Bits>,
    distinct: u64,
    /// There were more blocks. Their files and pages are not counted.
    is_full: bool,
}

impl Tally {
    /// Counts complete records.
    pub fn count(&mut self, records: &[u8]) {
        for record in records.chunks_exact(RECORD_BYTES) {
            let word = |at: usize| {
                u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
            };
            let (file, page) = (word(0), word(4));
            match record[8] {
                0 => self.reads += 1,
                _ => self.writes += 1,
            }
            let place = (file, page / BLOCK);
            if self.seen.len() >= MAX_BLOCKS && !self.seen.contains_key(&place) {
                self.is_full = true;
                continue;
            }
            self.files.insert(file);
            let bits = self
                .seen
                .entry(place)
                .or_insert_with(|| Box::new([0; (BLOCK / 64) as usize]));
            let word = &mut bits[(page % BLOCK / 64) as usize];
            let bit = 1 << (page % 64);
            self.distinct += u64::from(*word & bit == 0);
            *word |= bit;
        }
    }

    pub fn events(&self) -> u64 {
        self.reads + self.writes
    }

    pub fn reads(&self) -> u64 {
        self.reads
    }

    pub fn writes(&self) -> u64 {
        self.writes
    }

    pub fn files(&self) -> usize {
        self.files.len()
    }

    pub fn distinct_pages(&self) -> u64 {
        self.distinct
    }

    /// Whether there were more files and distinct pages than are counted.
    pub fn is_full(&self) -> bool {
        self.is_full
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_pages_are_bounded() {
        let mut tally = Tally::default();
        let events = MAX_BLOCKS as u32 + 10;
        for file in 0..events {
            let mut record = [0u8; RECORD_BYTES];
            record[..4].copy_from_slice(&u32::to_le_bytes(file));
            tally.count(&record);
            assert_eq!(tally.is_full(), file >= MAX_BLOCKS as u32);
        }
        assert_eq!(tally.events(), u64::from(events));
        assert_eq!((tally.seen.len(), tally.files()), (MAX_BLOCKS, MAX_BLOCKS));
        tally.count(&[0; RECORD_BYTES]);
        assert_eq!(tally.distinct_pages(), MAX_BLOCKS as u64);
    }

    #[test]
    fn pages_are_counted_once() {
        let mut tally = Tally::default();
        for (file, page, write) in [
            (1, 0, 0),
            (1, 0, 1),
            (1, 63, 0),
            (1, 64, 0),
            (2, 0, 0),
            (2, u32::MAX, 1),
            (2, u32::MAX, 0),
        ] {
            let mut record = [0u8; RECORD_BYTES];
            record[..4].copy_from_slice(&u32::to_le_bytes(file));
            record[4..8].copy_from_slice(&u32::to_le_bytes(page));
            record[8] = write;
            tally.count(&record);
        }
        assert_eq!((tally.reads(), tally.writes(), tally.events()), (5, 2, 7));
        assert_eq!((tally.distinct_pages(), tally.files()), (5, 2));
    }
}
