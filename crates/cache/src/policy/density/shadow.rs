//! Shadow: a simulated LRU cache, to count the hits that LRU would have. It has no pages, only the tags of one page in eight by
//! recency, for an eighth of the pages that fit.
//!
//! If LRU finds more pages than the policy, the working set has changed, and the learned scores are useless. Where
//! fewer pages fit than planned, LRU gets only those: a matching number of ways per set counts. Memory: a quarter of a
//! byte for each page of the cache.

use std::io;

use crate::common::memory::{Mapped, Zeroable, in_pages};

/// Tags of a set, most recently read first.
pub(crate) const WAYS: usize = 32;
const SET_BYTES: u64 = 64;
/// The shadow tracks one page in this many.
const ONE_IN: u64 = 8;

#[repr(C, align(64))]
struct Set([u16; WAYS]);

// SAFETY: integers; zero is the empty set.
unsafe impl Zeroable for Set {}

/// Result of a read in LRU.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recency {
    Absent,
    /// The page was the last one read in its set.
    Front,
    Present,
}

pub(crate) struct Shadow(Mapped<Set>);

impl Shadow {
    fn sets_for(pages: u64) -> u64 {
        (pages / ONE_IN).div_ceil(WAYS as u64).max(1)
    }

    pub fn memory_needed(pages: u64) -> u64 {
        in_pages(Self::sets_for(pages) * SET_BYTES)
    }

    pub fn new(pages: u64) -> io::Result<Shadow> {
        Ok(Shadow(Mapped::new(Self::sets_for(pages) as usize)?))
    }

    #[cfg(test)]
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes()
    }

    /// `mixed`: mixed identity of the page. Counters use its lowest twelve bits.
    #[inline]
    pub fn follows(mixed: u64) -> bool {
        (mixed >> 12) % ONE_IN == 0
    }

    /// Records a read of a tracked page, and returns whether the simulated LRU cache had it. In each set that cache has the
    /// `ways` most recently read pages.
    pub fn read(&mut self, mixed: u64, ways: usize) -> Recency {
        debug_assert!(Self::follows(mixed) && ways <= WAYS);
        let sets = self.0.len() as u64;
        let set = &mut self.0[(((mixed >> 32) * sets) >> 32) as usize].0;
        let tag = ((mixed >> 16) as u16).max(1);
        let found = set.iter().position(|&other| other == tag);
        set.copy_within(..found.unwrap_or(WAYS - 1), 1);
        set[0] = tag;
        match found {
            None => Recency::Absent,
            Some(0) => Recency::Front,
            Some(way) if way < ways => Recency::Present,
            Some(_) => Recency::Absent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::page::mix64;

    #[test]
    fn it_finds_what_lru_would() {
        let mut shadow = Shadow::new(8 * 320).unwrap();
        let followed: Vec<u64> = (0..)
            .map(mix64)
            .filter(|&m| Shadow::follows(m))
            .take(1000)
            .collect();
        let present = |shadow: &mut Shadow, pages: &[u64]| {
            let read = |m: &&u64| shadow.read(**m, WAYS) != Recency::Absent;
            let found = pages.iter().filter(read);
            found.count()
        };
        assert!(
            present(&mut shadow, &followed[..200]) <= 1,
            "nothing was read yet"
        );
        assert_eq!(shadow.read(followed[199], WAYS), Recency::Front);
        assert!(present(&mut shadow, &followed[..200]) >= 199);
        assert!(present(&mut shadow, &followed[200..]) <= 10, "a scan");
        assert!(
            present(&mut shadow, &followed[..200]) <= 5,
            "which drove them out"
        );
    }

    #[test]
    fn where_fewer_fit_lru_has_fewer() {
        let found = |pages: usize, ways: usize| {
            let mut shadow = Shadow::new(8 * 320).unwrap();
            let followed = (0..).map(mix64).filter(|&m| Shadow::follows(m));
            let followed: Vec<u64> = followed.take(pages).collect();
            let mut read = || followed.iter().map(|&m| shadow.read(m, ways)).collect();
            let _: Vec<Recency> = read();
            let again: Vec<Recency> = read();
            again.iter().filter(|&&r| r == Recency::Present).count()
        };
        assert!(found(200, WAYS) > 190);
        assert!(found(200, WAYS * 2 / 5) < 40, "of which 128 fit");
        assert!(found(70, WAYS * 2 / 5) > 60, "which all fit");
    }

    #[test]
    fn one_page_in_eight_is_followed() {
        let followed = (0..80_000).filter(|&n| Shadow::follows(mix64(n))).count();
        assert!((9_500..10_500).contains(&followed), "{followed}");
    }
}
