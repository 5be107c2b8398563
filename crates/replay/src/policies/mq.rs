//! MQ (Zhou, Philbin, Li: "The multi-queue replacement algorithm for second level buffer caches", USENIX ATC 2001).
//!
//! Eight LRU queues; a page with f uses is in queue log2(f). A page that was not used for its life time moves to the
//! queue below. The victim is the oldest page of the lowest queue. Its number of uses is remembered for a while, in
//! case the page is read again.

use super::lists::Lists;
use super::policy::{Policy, Read};

const QUEUES: usize = 8;
const GHOST: usize = QUEUES;
/// Remembered pages, and reads until a page moves down, per page of the cache. The paper has an adaptive rule for the
/// latter; these values did best on a TPC-C trace.
const REMEMBERED: usize = 1;
const LIFE: u64 = 3;

pub struct Mq {
    lists: Lists,
    uses: Vec<u32>,
    expires: Vec<u64>,
    now: u64,
    life: u64,
    capacity: usize,
}

impl Mq {
    pub fn new(pages: usize, capacity: usize) -> Mq {
        Mq {
            lists: Lists::new(pages, QUEUES + 1),
            uses: vec![0; pages],
            expires: vec![0; pages],
            now: 0,
            life: capacity as u64 * LIFE,
            capacity,
        }
    }

    /// Puts the page in the queue for its number of uses.
    fn enqueue(&mut self, page: u32) {
        let uses = &mut self.uses[page as usize];
        *uses = uses.saturating_add(1);
        let queue = (uses.ilog2() as usize).min(QUEUES - 1);
        self.lists.put(page, queue);
        self.expires[page as usize] = self.now + self.life;
    }

    /// Moves the oldest page of each queue down if its life time is over.
    fn adjust(&mut self) {
        self.now += 1;
        for queue in 1..QUEUES {
            if let Some(page) = self.lists.last(queue) {
                if self.expires[page as usize] < self.now {
                    self.lists.put(page, queue - 1);
                    self.expires[page as usize] = self.now + self.life;
                }
            }
        }
    }

    fn evict(&mut self) {
        if let Some(page) = (0..QUEUES).find_map(|queue| self.lists.last(queue)) {
            self.lists.put(page, GHOST);
        }
        while self.lists.len(GHOST) > self.capacity.saturating_mul(REMEMBERED) {
            if let Some(forgotten) = self.lists.pop(GHOST) {
                self.uses[forgotten as usize] = 0;
            }
        }
    }

    fn is_resident(&self, page: u32) -> bool {
        self.lists.of(page).is_some_and(|list| list != GHOST)
    }
}

impl Policy for Mq {
    fn read(&mut self, page: u32) -> Read {
        let hit = self.is_resident(page);
        if !hit {
            // Keep its history while room is made for it.
            self.lists.remove(page);
            if self.resident() >= self.capacity {
                self.evict();
            }
        }
        self.enqueue(page);
        self.adjust();
        if hit { Read::Hit } else { Read::Inserted }
    }

    fn write(&mut self, page: u32) -> bool {
        self.is_resident(page)
    }

    fn resident(&self) -> usize {
        (0..QUEUES).map(|queue| self.lists.len(queue)).sum()
    }
}
