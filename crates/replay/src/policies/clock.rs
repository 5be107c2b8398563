//! CLOCK with two bits: pages in a ring, each with a count that every use increments, up to 3. The hand passes pages
//! with a count, decrements it, and takes the first page without one.

use super::policy::{Policy, Read};

const MOST: u8 = 3;

pub struct Clock {
    capacity: usize,
    ring: Vec<u32>,
    hand: usize,
    /// Count of each resident page.
    counts: Vec<Option<u8>>,
}

impl Clock {
    pub fn new(pages: usize, capacity: usize) -> Clock {
        Clock {
            capacity,
            ring: Vec::with_capacity(capacity.min(pages)),
            hand: 0,
            counts: vec![None; pages],
        }
    }

    /// Counts a use. Returns whether the page is resident.
    fn touch(&mut self, page: u32) -> bool {
        let count = &mut self.counts[page as usize];
        *count = count.map(|count| MOST.min(count + 1));
        count.is_some()
    }

    /// Position in the ring of the next victim.
    fn sweep(&mut self) -> usize {
        loop {
            let at = self.hand;
            self.hand = (at + 1) % self.ring.len();
            let count = &mut self.counts[self.ring[at] as usize];
            match count {
                Some(left) if *left > 0 => *left -= 1,
                _ => {
                    *count = None;
                    return at;
                }
            }
        }
    }
}

impl Policy for Clock {
    fn read(&mut self, page: u32) -> Read {
        if self.touch(page) {
            return Read::Hit;
        }
        if self.ring.len() < self.capacity {
            self.ring.push(page);
        } else {
            let at = self.sweep();
            self.ring[at] = page;
        }
        self.counts[page as usize] = Some(0);
        Read::Inserted
    }

    fn write(&mut self, page: u32) -> bool {
        self.counts[page as usize].is_some()
    }

    fn resident(&self) -> usize {
        self.ring.len()
    }
}
