//! Minimal reference policy: admits everything, and evicts the first page that the search has visited once more often
//! than it was hit.

use std::io;
use std::sync::Arc;

use super::{Candidate, MemoryPressure, Places, Policy};
use crate::common::page::PageId;
use crate::index::directory::{Entry, Slot};

/// The highest clock of an entry.
const MAX_CLOCK: u8 = 3;
/// Buckets that one search may pass.
const MAX_BUCKETS: usize = 64;

pub(crate) struct SecondChance {
    /// Start of the next search.
    bucket: u32,
}

impl Policy for SecondChance {
    type Model = ();

    fn model(_: u64) {}

    fn bytes(_: u64, _: MemoryPressure) -> u64 {
        0
    }

    fn new(_: u64, _: MemoryPressure, _: &Arc<()>) -> io::Result<SecondChance> {
        Ok(SecondChance { bucket: 0 })
    }

    #[cfg(test)]
    fn memory_bytes(&self) -> u64 {
        0
    }

    fn accessed(&mut self, _: &mut Places<'_>, _: PageId, _: Option<Slot>) -> bool {
        false
    }

    fn hit(&mut self, places: &mut Places<'_>, _: PageId, slot: Slot, entry: Entry) {
        places.set_clock(slot, (entry.clock + 1).min(MAX_CLOCK));
    }

    fn admits(&mut self, _: &mut Places<'_>, _: PageId, _: Candidate) -> bool {
        true
    }

    fn entered(&mut self, _: &mut Places<'_>, _: PageId) -> u8 {
        1
    }

    fn victim(&mut self, places: &mut Places<'_>) -> Option<Slot> {
        for _ in 0..MAX_BUCKETS {
            let mut pages = places.on_devices(self.bucket);
            if let Some((slot, _)) = pages.find(|(_, entry)| entry.clock == 0) {
                return Some(slot);
            }
            for (slot, entry) in places.on_devices(self.bucket) {
                places.set_clock(slot, entry.clock - 1);
            }
            self.bucket = (self.bucket + 1) % places.buckets();
        }
        None
    }

    fn score(&self, _: &Places<'_>, _: PageId) -> u32 {
        0
    }

    fn seed(&mut self, _: &mut Places<'_>, _: PageId, _: u32) -> u8 {
        0
    }
}
