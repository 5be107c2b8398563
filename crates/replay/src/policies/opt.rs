//! OPT with bypass: what a policy could reach that knows all reads to come (Belady 1966).
//!
//! The page goes whose next read is the farthest away, and a page whose own next read is farther than that of all residents
//! does not come in. A page may come in when it is read or written. Hits are what this is made for, not few writes to the
//! device.
//!
//! Without writes nothing can have more hits. With them, something can that knows the writes to come as well: a page that is
//! written before it is read again need not be kept until then, since it can come in for nothing when it is written. On a
//! TPC-C stream that is worth 0.6 to 2.4 points; OPT is left as it is usually defined.

use std::collections::BinaryHeap;

use super::policy::{Policy, Read};
use crate::Event;

/// Not read any more.
const NEVER: u32 = u32::MAX;
/// Not resident. No event has this number, since the first one is no next read.
const ABSENT: u32 = 0;

pub struct Opt {
    capacity: usize,
    /// For each event: the number of the next read of its page.
    next: Vec<u32>,
    now: usize,
    /// For each page: the number of its next read, if it is resident.
    due: Vec<u32>,
    resident: usize,
    /// (next read, page), farthest first. Holds every resident page, and entries that are no longer true.
    heap: BinaryHeap<(u32, u32)>,
}

impl Opt {
    pub fn new(events: &[Event], pages: usize, capacity: usize) -> Opt {
        let mut next = vec![NEVER; events.len()];
        let mut following = vec![NEVER; pages];
        for (n, event) in events.iter().enumerate().rev() {
            let page = event.page() as usize;
            next[n] = following[page];
            if !event.is_write() {
                following[page] = n as u32;
            }
        }
        Opt {
            capacity,
            next,
            now: 0,
            due: vec![ABSENT; pages],
            resident: 0,
            heap: BinaryHeap::new(),
        }
    }

    fn keep(&mut self, page: u32, due: u32) {
        self.due[page as usize] = due;
        self.heap.push((due, page));
        // Entries of reads that have been are never the farthest, and so would stay for ever.
        if self.heap.len() > 2 * self.resident + 1024 {
            let all = self.due.iter().enumerate();
            self.heap = all
                .filter(|&(_, &due)| due != ABSENT)
                .map(|(page, &due)| (due, page as u32))
                .collect();
        }
    }

    /// Makes the page resident, if there is room or a page that is needed later. Whether it is.
    fn admit(&mut self, page: u32, due: u32) -> bool {
        if due == NEVER {
            return false;
        }
        if self.resident >= self.capacity {
            match self.farthest() {
                Some((latest, victim)) if latest > due => {
                    self.heap.pop();
                    self.due[victim as usize] = ABSENT;
                    self.resident -= 1;
                }
                _ => return false,
            }
        }
        self.resident += 1;
        self.keep(page, due);
        true
    }

    /// The resident page whose next read is the farthest away, and that read.
    fn farthest(&mut self) -> Option<(u32, u32)> {
        while let Some(&(due, page)) = self.heap.peek() {
            if self.due[page as usize] == due {
                return Some((due, page));
            }
            self.heap.pop();
        }
        None
    }
}

impl Policy for Opt {
    fn read(&mut self, page: u32) -> Read {
        let due = self.next[self.now];
        self.now += 1;
        if self.due[page as usize] != ABSENT {
            self.keep(page, due);
            return Read::Hit;
        }
        if self.admit(page, due) {
            Read::Inserted
        } else {
            Read::Bypassed
        }
    }

    fn write(&mut self, page: u32) -> bool {
        let due = self.next[self.now];
        self.now += 1;
        self.due[page as usize] != ABSENT || self.admit(page, due)
    }

    fn resident(&self) -> usize {
        self.resident
    }
}
