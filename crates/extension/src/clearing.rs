//! Clears the pages of files that are asked for no more from all instances: in the background, and where room is needed.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::extension::Extension;
use crate::instance::Instance;
use crate::page::{FileId, PageId};

/// Pieces that a thread of the server looks up for one page.
const MOST_PIECES: usize = 4;

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
