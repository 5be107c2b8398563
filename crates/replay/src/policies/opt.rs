//! OPT with bypass: the limit of a policy that knows all future reads (Belady 1966).
//!
//! The victim is the page with the farthest next read. A page whose own next read is farther than that of all residents
//! is not admitted. A page may be admitted when it is read or written. The policy maximises hits; it does not minimise
//! writes to the device.
//!
//! Without writes no policy has more hits. With writes, a policy that also knows future writes can have more. It need
//! not keep a page that is written before its next read, because the write can admit the page at no extra cost. On a
//! TPC-C trace that is worth 0.6 to 2.4 points; this module keeps the usual definition of OPT.

use std::collections::BinaryHeap;

use super::policy::{Policy, Read};
use crate::Event;

/// Never read again.
const NEVER: u32 = u32::MAX;
/// Not resident. No next read has this number, since the first event is no next read.
const ABSENT: u32 = 0;

pub struct Opt {
    capacity: usize,
    /// For each event: number of the next read of its page.
    next: Vec<u32>,
    now: usize,
    /// For each resident page: number of its next read.
    due: Vec<u32>,
    resident: usize,
    /// (next read, page), farthest first. Holds every resident page, and outdated entries.
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
        // Entries of past reads are never the farthest, so they would stay forever.
        if self.heap.len() > 2 * self.resident + 1024 {
            let all = self.due.iter().enumerate();
            self.heap = all
                .filter(|&(_, &due)| due != ABSENT)
                .map(|(page, &due)| (due, page as u32))
                .collect();
        }
    }

    /// Makes the page resident, if there is room or a page that is needed later. Returns whether it did.
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

    /// The resident page with the farthest next read, and that read.
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
