//! W-TinyLFU (Einziger, Friedman, Manes: "TinyLFU: a highly efficient cache admission policy", ACM Transactions on Storage 2017).
//!
//! New pages enter a window of 1 % of the cache, an LRU list. A page evicted from it enters the main part if the sketch
//! counts more reads of it than of the main part's victim. The main part is a segmented LRU: four fifths are for pages
//! that were used again since they entered it.

use super::lists::Lists;
use super::policy::{Policy, Read};
use super::sketch::Sketch;

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

pub struct WTinyLfu {
    lists: Lists,
    sketch: Sketch,
    window: usize,
    main: usize,
    protected: usize,
}

impl WTinyLfu {
    pub fn new(pages: usize, capacity: usize) -> WTinyLfu {
        let window = (capacity / 100).max(1);
        let main = capacity - window;
        WTinyLfu {
            lists: Lists::new(pages, 3),
            // If all pages fit, frequencies are never used.
            sketch: Sketch::new(capacity.min(pages.max(1))),
            window,
            main,
            protected: main / 5 * 4,
        }
    }

    fn touch(&mut self, page: u32) -> bool {
        match self.lists.of(page) {
            None => return false,
            Some(WINDOW) => self.lists.put(page, WINDOW),
            Some(_) => {
                self.lists.put(page, PROTECTED);
                while self.lists.len(PROTECTED) > self.protected {
                    if let Some(demoted) = self.lists.pop(PROTECTED) {
                        self.lists.put(demoted, PROBATION);
                    }
                }
            }
        }
        true
    }

    /// Moves pages that were evicted from the window to the main part, or drops them.
    fn settle(&mut self) {
        while self.lists.len(WINDOW) > self.window {
            let Some(candidate) = self.lists.pop(WINDOW) else {
                return;
            };
            if self.lists.len(PROBATION) + self.lists.len(PROTECTED) < self.main {
                self.lists.put(candidate, PROBATION);
                continue;
            }
            let victim = self.lists.last(PROBATION).or(self.lists.last(PROTECTED));
            if let Some(victim) = victim {
                if self.sketch.frequency(candidate) > self.sketch.frequency(victim) {
                    self.lists.remove(victim);
                    self.lists.put(candidate, PROBATION);
                }
            }
        }
    }
}

impl Policy for WTinyLfu {
    fn read(&mut self, page: u32) -> Read {
        self.sketch.add(page);
        if self.touch(page) {
            return Read::Hit;
        }
        self.lists.put(page, WINDOW);
        self.settle();
        Read::Inserted
    }

    fn write(&mut self, page: u32) -> bool {
        self.lists.of(page).is_some()
    }

    fn resident(&self) -> usize {
        (WINDOW..=PROTECTED).map(|list| self.lists.len(list)).sum()
    }
}
