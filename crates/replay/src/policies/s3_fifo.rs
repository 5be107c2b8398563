//! S3-FIFO (Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023).
//!
//! A new page enters a small queue of a tenth of the cache. At the end of that queue it moves to the main queue if it
//! was used more than once in between. Otherwise it is evicted, and remembered for as many evictions as the main queue
//! has entries. A remembered page that is read again goes directly to the main queue. At the end of the main queue, a
//! used page moves to the front again, once per use, up to three times.

use super::lists::Lists;
use super::policy::{Policy, Read};

const SMALL: usize = 0;
const MAIN: usize = 1;
const GHOST: usize = 2;
const MOST_USES: u8 = 3;

pub struct S3Fifo {
    lists: Lists,
    uses: Vec<u8>,
    capacity: usize,
    small: usize,
}

impl S3Fifo {
    pub fn new(pages: usize, capacity: usize) -> S3Fifo {
        S3Fifo {
            lists: Lists::new(pages, 3),
            uses: vec![0; pages],
            capacity,
            small: (capacity / 10).max(1),
        }
    }

    fn is_resident(&self, page: u32) -> bool {
        matches!(self.lists.of(page), Some(SMALL | MAIN))
    }

    /// Evicts one page, unless all pages of the small queue have moved to the main queue.
    fn evict(&mut self) {
        if self.lists.len(SMALL) >= self.small || self.lists.len(MAIN) == 0 {
            self.evict_small();
        } else {
            self.evict_main();
        }
    }

    fn evict_small(&mut self) {
        while let Some(page) = self.lists.last(SMALL) {
            if self.uses[page as usize] > 1 {
                self.uses[page as usize] = 0;
                self.lists.put(page, MAIN);
            } else {
                self.lists.put(page, GHOST);
                while self.lists.len(GHOST) > self.capacity - self.small {
                    self.lists.pop(GHOST);
                }
                return;
            }
        }
    }

    fn evict_main(&mut self) {
        while let Some(page) = self.lists.last(MAIN) {
            if self.uses[page as usize] == 0 {
                self.lists.remove(page);
                return;
            }
            self.uses[page as usize] -= 1;
            self.lists.put(page, MAIN);
        }
    }
}

impl Policy for S3Fifo {
    fn read(&mut self, page: u32) -> Read {
        if self.is_resident(page) {
            let uses = &mut self.uses[page as usize];
            *uses = MOST_USES.min(*uses + 1);
            return Read::Hit;
        }
        // Before the eviction, which may drop the page from the remembered ones.
        let known = self.lists.of(page) == Some(GHOST);
        while self.resident() >= self.capacity {
            self.evict();
        }
        self.uses[page as usize] = 0;
        self.lists.put(page, if known { MAIN } else { SMALL });
        Read::Inserted
    }

    fn write(&mut self, page: u32) -> bool {
        self.is_resident(page)
    }

    fn resident(&self) -> usize {
        self.lists.len(SMALL) + self.lists.len(MAIN)
    }
}
