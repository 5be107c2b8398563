//! Gives back the room of files that are asked for no more: dropped, emptied, rebuilt, or closed for too long.
//!
//! An entry does not name its file. So the pages of such a file are looked up one by one, up to the highest that may have an entry. Whoever
//! needs room for a page looks up some, before any other page has to go. [`Extension::clear_forgotten`] looks up the rest. Some 3 million pages a second are looked up.
//!
//! A page with the same fingerprint may go with them: of pages without an entry that are looked up, one in some 1,400. That
//! loses a page of the cache and nothing else.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::extension::Extension;
use crate::instance::InstanceState;
use crate::page::{EXTENT_SHIFT, FileId, PageId, extent_instance};
use crate::store::Store;

/// Pages and extents that are looked up under one hold of the lock: less than 20 us.
const PIECE: usize = 32;

/// Pieces that a thread of the server looks up for one page.
const MOST_PIECES: u32 = 4;

/// A file that is asked for no more.
pub(crate) struct Forgotten {
    pub file: FileId,
    /// Pages below have no entry any more.
    pub next: u64,
    /// Pages from here on have none.
    pub end: u64,
}

impl InstanceState {
    /// Removes entries of files that are asked for no more, as many as a piece of pages has. How many; `None`: there is no such file.
    pub fn clear_piece(&mut self, store: &Store) -> Option<u64> {
        let mut removed = 0;
        for _ in 0..PIECE {
            let Some(Forgotten { file, next, end }) = self.forgotten.last_mut() else {
                break;
            };
            if next >= end {
                self.forgotten.pop();
                continue;
            }
            let page = PageId::new(*file, *next as u32);
            let extent = page.page >> EXTENT_SHIFT;
            if extent_instance(page.file, extent, self.instances) != self.at {
                *next = (u64::from(extent) + 1) << EXTENT_SHIFT;
                continue;
            }
            *next += 1;
            if let Some((slot, _)) = self.find(store, page) {
                self.remove(store, slot);
                removed += 1;
            }
        }
        (removed > 0 || !self.forgotten.is_empty()).then_some(removed)
    }
}

impl Extension {
    /// Removes entries of files that are asked for no more, for so long. Whether there are more.
    pub fn clear_forgotten(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        self.clear_while(0, |_| Instant::now() < until)
    }

    /// Removes some of them, those of the page's own instance first: no room is left for it.
    pub(crate) fn clear_for(&self, page: PageId) {
        let mut pieces = 0;
        let first = page.instance(self.shared.instances.len() as u32);
        self.clear_while(first, |removed| {
            pieces += 1;
            removed == 0 && pieces < MOST_PIECES
        });
    }

    /// Removes a piece at a time while this holds of the number that were removed, from this instance on. Whether there are more.
    fn clear_while(&self, first: usize, mut goes_on: impl FnMut(u64) -> bool) -> bool {
        let shared = &*self.shared;
        // Before the look at the instances: a file that is forgotten meanwhile counts again.
        if !shared.has_forgotten.swap(false, Ordering::Relaxed) {
            return false;
        }
        let mut removed = 0;
        let (before, after) = shared.instances.split_at(first);
        for instance in after.iter().chain(before) {
            // The lock is let go after each piece.
            while let Some(more) = instance.0.lock().clear_piece(&shared.store) {
                removed += more;
                if !goes_on(removed) {
                    shared.has_forgotten.store(true, Ordering::Relaxed);
                    return true;
                }
            }
        }
        false
    }
}
