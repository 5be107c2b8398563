//! Gives back the room of files that are asked for no more: dropped, emptied, rebuilt, or closed for too long.
//!
//! An entry does not name its file. So the pages of such a file are looked up one by one, up to the highest that may have an entry. Whoever
//! needs room for a page looks up some, before any other page has to go. [`Extension::clear_forgotten`] looks up the rest.
//! A processor looks up some 3 million pages a second.
//!
//! A page with the same fingerprint may go with them: of pages without an entry that are looked up, one in some 1,400. That
//! loses a page of the cache and nothing else. A file of which few pages are cached is left alone, so that others do not lose more.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::extension::Extension;
use crate::instance::{Instance, InstanceState};
use crate::page::{EXTENT_SHIFT, FileId, PageId, extent_instance};
use crate::store::Store;

/// Pages and extents that are looked up under one hold of the lock: less than 20 us.
const PIECE: usize = 32;
/// Pieces that a thread of the server looks up for one page.
const MOST_PIECES: usize = 4;
/// Pages that are looked up for each that is cached.
pub(crate) const MOST_LOOKUPS: u64 = 500;

/// A file that is asked for no more.
pub(crate) struct Forgotten {
    pub file: FileId,
    /// Pages below have no entry any more.
    pub next: u64,
    /// Pages from here on have none.
    pub end: u64,
}

/// What a piece has come to.
#[derive(Default)]
pub(crate) struct Piece {
    pub removed: usize,
    /// Files of which no entry is left.
    pub ended: usize,
}

impl InstanceState {
    /// Removes entries of files that are asked for no more, as many as a piece of pages has.
    pub fn clear_piece(&mut self, store: &Store) -> Piece {
        let mut piece = Piece::default();
        for _ in 0..PIECE {
            let Some(Forgotten { file, next, end }) = self.forgotten.last_mut() else {
                break;
            };
            if next >= end {
                self.forgotten.pop();
                piece.ended += 1;
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
                piece.removed += 1;
            }
        }
        piece
    }
}

impl Extension {
    /// The file will never be asked for again; its pages give their room back. Those that were inherited are below `left`; `None`: that is
    /// not known, and they go when others need their room.
    pub fn forget_file(&self, file: FileId, left: Option<u32>) {
        let instances = self.shared.instances.iter();
        let forgotten = instances.filter(|instance| instance.0.lock().forget(file, left));
        let lists = forgotten.count();
        self.shared.forgotten.fetch_add(lists, Ordering::Relaxed);
    }

    /// Removes entries of files that are asked for no more, for so long. Whether there are more.
    pub fn clear_forgotten(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        // In turns, so that nobody waits for one lock throughout.
        while self.has_forgotten() {
            for instance in &self.shared.instances {
                self.clear(&instance.0);
                std::thread::yield_now();
            }
            if Instant::now() >= until {
                break;
            }
        }
        self.has_forgotten()
    }

    /// Removes some of them, those of the page's own instance first: no room is left for it.
    pub(crate) fn clear_for(&self, page: PageId) {
        if !self.has_forgotten() {
            return;
        }
        let instances = &self.shared.instances;
        let own = page.instance(instances.len() as u32);
        let others = (own..).map(|at| &instances[at % instances.len()]);
        for instance in others.take(MOST_PIECES) {
            if self.clear(&instance.0) > 0 {
                return;
            }
        }
    }

    fn has_forgotten(&self) -> bool {
        self.shared.forgotten.load(Ordering::Relaxed) > 0
    }

    /// How many entries one hold of the instance's lock has removed.
    fn clear(&self, instance: &Instance) -> usize {
        let piece = instance.lock().clear_piece(&self.shared.store);
        if piece.ended > 0 {
            self.shared
                .forgotten
                .fetch_sub(piece.ended, Ordering::Relaxed);
        }
        piece.removed
    }
}
