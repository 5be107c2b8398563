//! Admission of one instance: which pages are worth a write, and which a second life.
//!
//! While the devices have room everything offered gets in. Then a page must have been asked for more often than the one
//! that has to go for it (TinyLFU): a page read once in a scan costs nothing but a counter. Which one has to go is found by a
//! clock whose hand moves over the directory; every hit of a page makes it pass over the page once, up to three times.
//! Eviction only removes the entry: its place on the device is garbage until the segment is reclaimed, which in turn
//! evicts nobody. How often a page was asked for is estimated by a sketch of 4-bit counters, four for each page, all in one
//! cache line, of which only the lowest are raised (conservative update). Counters are halved in the course of ten
//! accesses for each page that the instance can hold, a line at a time, so that no access pays for all.
//!
//! The sketch knows pages by what their directory entries tell of them (`Directory::identity`), so that the frequency of the
//! victim can be asked for as well as that of the candidate.
//!
//! Everything is driven by calls and nothing by time or chance, so that a replay is repeatable.

use std::io;

use crate::config::AdmissionMode;
use crate::memory::Mapped;
use crate::page::mix64;

const LINE_BYTES: u64 = 64;
/// Bytes of counters for each page that the instance can hold: normally, and at least, when memory is scarce.
pub(crate) const SKETCH_BYTES: u64 = 4;
pub(crate) const LEAST_SKETCH_BYTES: u64 = 2;
/// Accesses, for each page that the instance can hold, in which every counter is halved once.
const AGEING: u64 = 10;
/// Weight of a new victim in the moving average is 2^-WEIGHT.
const WEIGHT: u32 = 7;
/// The average is kept in units of 2^-FRACTION.
const FRACTION: u32 = 16;
const HALVES: u64 = 0x7777_7777_7777_7777;

pub(crate) struct Admission {
    lines: Mapped<[u64; 8]>,
    /// Accesses after which one line is aged.
    age_every: u64,
    since_ageing: u64,
    next_aged: usize,
    /// Moving average of the frequency of pages that were to go, for people.
    victims: u32,
}

impl Admission {
    fn lines_for(pages: u64, bytes_per_page: u64) -> u64 {
        (pages * bytes_per_page).div_ceil(LINE_BYTES).max(4)
    }

    pub fn memory_needed(pages: u64, bytes_per_page: u64) -> u64 {
        (Self::lines_for(pages, bytes_per_page) * LINE_BYTES).next_multiple_of(4096)
    }

    pub fn new(pages: u64, bytes_per_page: u64) -> io::Result<Admission> {
        let lines = Self::lines_for(pages, bytes_per_page);
        Ok(Admission {
            lines: Mapped::new(lines as usize)?,
            age_every: (pages * AGEING / lines).max(1),
            since_ageing: 0,
            next_aged: 0,
            victims: 0,
        })
    }

    #[cfg(test)]
    pub fn memory_bytes(&self) -> u64 {
        self.lines.memory_bytes()
    }

    /// Line, and for each of the four counters: word and shift.
    fn counters(&self, hash: u64) -> (usize, [(usize, u32); 4]) {
        let mixed = mix64(hash ^ 0x5851_f42d_4c95_7f2d);
        let line = ((u64::from((mixed >> 32) as u32) * self.lines.len() as u64) >> 32) as usize;
        let counters = std::array::from_fn(|quarter| {
            let nibble = (mixed >> (quarter * 5)) as usize & 31;
            (quarter * 2 + (nibble >> 4), (nibble & 15) as u32 * 4)
        });
        (line, counters)
    }

    /// An access to the page with this hash, hit or miss.
    pub fn record(&mut self, hash: u64) {
        let (line, counters) = self.counters(hash);
        let words = &mut self.lines[line];
        let least = counters
            .iter()
            .map(|&(word, shift)| words[word] >> shift & 15)
            .min()
            .unwrap_or(15);
        if least < 15 {
            for (word, shift) in counters {
                if words[word] >> shift & 15 == least {
                    words[word] += 1 << shift;
                }
            }
        }
        self.since_ageing += 1;
        if self.since_ageing >= self.age_every {
            self.since_ageing = 0;
            self.lines[self.next_aged]
                .iter_mut()
                .for_each(|word| *word = *word >> 1 & HALVES);
            self.next_aged = (self.next_aged + 1) % self.lines.len();
        }
    }

    /// Estimated accesses, 0..=15: never too low but for ageing.
    pub fn frequency(&self, hash: u64) -> u32 {
        let (line, counters) = self.counters(hash);
        let words = &self.lines[line];
        counters
            .iter()
            .map(|&(word, shift)| (words[word] >> shift & 15) as u32)
            .min()
            .unwrap_or(0)
    }

    /// Whether a page may take the place of another.
    pub fn admits(&mut self, mode: AdmissionMode, candidate: u64, victim: u64) -> bool {
        let frequency = self.frequency(victim);
        self.victims = self.victims - (self.victims >> WEIGHT) + (frequency << FRACTION >> WEIGHT);
        mode == AdmissionMode::All || self.frequency(candidate) > frequency
    }

    pub fn threshold(&self) -> f64 {
        f64::from(self.victims) / f64::from(1u32 << FRACTION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        mix64(n)
    }

    #[test]
    fn frequencies_are_counted_and_saturate() {
        let mut a = Admission::new(10_000, SKETCH_BYTES).unwrap();
        assert_eq!(a.frequency(hash(1)), 0);
        for n in 1..=20 {
            a.record(hash(1));
            assert_eq!(a.frequency(hash(1)), n.min(15));
        }
        assert_eq!(a.frequency(hash(2)), 0);
    }

    #[test]
    fn estimates_of_a_skewed_stream_are_good() {
        let mut a = Admission::new(10_000, SKETCH_BYTES).unwrap();
        // 500 pages eight times each among 40,000 pages once each.
        for n in 0..40_000 {
            a.record(hash(1_000_000 + n));
            if n % 10 == 0 {
                a.record(hash(n / 10 % 500));
            }
        }
        let high = (0..500).filter(|&n| a.frequency(hash(n)) >= 4).count();
        let low = (0..500)
            .filter(|&n| a.frequency(hash(1_000_000 + n * 80)) <= 2)
            .count();
        assert!(high > 450 && low > 350, "{high} {low}");
    }

    #[test]
    fn counters_age() {
        let pages = 1000;
        let mut a = Admission::new(pages, SKETCH_BYTES).unwrap();
        (0..12).for_each(|_| a.record(hash(1)));
        for _ in 0..pages * AGEING + 1000 {
            a.record(hash(2));
        }
        assert_eq!(a.frequency(hash(1)), 6);
    }

    #[test]
    fn the_gate_compares() {
        let mut a = Admission::new(1000, SKETCH_BYTES).unwrap();
        (0..3).for_each(|_| a.record(hash(2)));
        (0..4).for_each(|_| a.record(hash(3)));
        assert!(!a.admits(AdmissionMode::Frequency, hash(1), hash(2)));
        assert!(!a.admits(AdmissionMode::Frequency, hash(2), hash(2)));
        assert!(a.admits(AdmissionMode::Frequency, hash(3), hash(2)));
        assert!(a.admits(AdmissionMode::All, hash(1), hash(2)));
        (0..2000).for_each(|_| _ = a.admits(AdmissionMode::All, hash(1), hash(2)));
        assert!(a.threshold() > 2.5 && a.threshold() <= 3.0);
    }
}
