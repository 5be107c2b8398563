//! Removes the cached pages of forgotten files from all instances, in the background and before an eviction.
//!
//! Recovered pages of files that are unknown to this process have entries, too, and no list names them: the previous process
//! ended before it had cleared them, or their files were rejected. [`Extension::clear_unknown`] finds them by the segments' footers.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::api::extension::Extension;
use crate::common::page::{FileId, PageId};
use crate::instance::Instance;

/// Maximum number of pieces that an insertion clears.
const MAX_PIECES: usize = 4;

impl Extension {
    /// Marks the file as forgotten: no read will name it again. Its persisted pages have numbers below
    /// `persisted_end`; 0 leaves them to eviction.
    pub fn forget_file(&self, file: FileId, persisted_end: u32) {
        let instances = self.shared.instances.iter();
        let forgotten = instances.filter(|instance| instance.0.lock().forget(file, persisted_end));
        let lists = forgotten.count();
        self.shared.forgotten.fetch_add(lists, Ordering::Relaxed);
    }

    /// Removes entries of forgotten files for this time. Returns whether more remain.
    pub fn clear_forgotten(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        // Instances take turns, so that no reader waits for one lock all the time.
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

    /// Makes room for the page: removes some of these entries, first in the page's own instance.
    pub(crate) fn clear_for(&self, page: PageId) {
        if !self.has_forgotten() {
            return;
        }
        let instances = &self.shared.instances;
        let own = page.instance(instances.len() as u32);
        let others = (own..).map(|at| &instances[at % instances.len()]);
        for instance in others.take(MAX_PIECES) {
            if self.clear(&instance.0) > 0 {
                return;
            }
        }
    }

    /// Makes the writers look through all segments when they are idle, and remove the entries of unknown files: those that were
    /// forgotten, or never trusted nor cached by this process. Cost: one read of some KiB for each segment.
    pub fn clear_unknown(&self) {
        self.shared.cleanups.fetch_add(1, Ordering::Relaxed);
    }

    fn has_forgotten(&self) -> bool {
        self.shared.forgotten.load(Ordering::Relaxed) > 0
    }

    /// Clears one piece under the instance's lock. Returns the number of removed entries.
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
