//! LRU: evicts the least recently used page.

use super::lists::Lists;
use super::policy::{Policy, Read};

const RESIDENT: usize = 0;

pub struct Lru {
    lists: Lists,
    capacity: usize,
}

impl Lru {
    pub fn new(pages: usize, capacity: usize) -> Lru {
        Lru {
            lists: Lists::new(pages, 1),
            capacity,
        }
    }
}

impl Policy for Lru {
    fn read(&mut self, page: u32) -> Read {
        let hit = self.lists.of(page).is_some();
        if !hit && self.lists.len(RESIDENT) >= self.capacity {
            self.lists.pop(RESIDENT);
        }
        self.lists.put(page, RESIDENT);
        if hit { Read::Hit } else { Read::Inserted }
    }

    fn write(&mut self, page: u32) -> bool {
        self.lists.of(page).is_some()
    }

    fn resident(&self) -> usize {
        self.lists.len(RESIDENT)
    }
}
