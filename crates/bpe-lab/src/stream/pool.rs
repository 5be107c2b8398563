//! A buffer pool like InnoDB's, without page contents: converts page accesses into reads and writes of the data files.
//!
//! Pages enter the old sublist, three eighths of the list, and become young if they are accessed again later. A changed page
//! is written when the redo log needs the space of its change, or before its eviction. A newly created page is not read.

use std::collections::{HashMap, VecDeque};

use replay::trace::Operation;

/// File, page number and operation.
pub type Record = (u32, u32, Operation);

/// Size of the old sublist, eighths of the pool.
const OLD_EIGHTHS: usize = 3;
/// Capacity of the redo log: changes per page of the pool.
const REDO: u64 = 2;

#[derive(Clone, Copy)]
struct Frame {
    page: (u32, u32),
    /// When it got its position: identifies its valid entry in the list.
    placed: u64,
    is_young: bool,
    /// The change that made it dirty.
    dirty: Option<u64>,
}

/// Frames and the times when they were inserted, most recent at the end. Entries with other times are void.
type List = VecDeque<(u32, u64)>;

pub struct Pool {
    capacity: usize,
    frames: Vec<Frame>,
    places: HashMap<(u32, u32), u32>,
    young: List,
    old: List,
    young_count: usize,
    /// Frames and their first changes, in order.
    dirty: List,
    accesses: u64,
    changes: u64,
    records: Vec<Record>,
}

impl Pool {
    /// Creates a pool of `capacity` pages, at least 8.
    pub fn new(capacity: usize) -> Pool {
        Pool {
            capacity: capacity.max(8),
            frames: Vec::new(),
            places: HashMap::new(),
            young: List::new(),
            old: List::new(),
            young_count: 0,
            dirty: List::new(),
            accesses: 0,
            changes: 0,
            records: Vec::new(),
        }
    }

    /// Number of pages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Page accesses so far: the clock of a load.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// Operations on the data files.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    pub fn into_records(self) -> Vec<Record> {
        self.records
    }

    pub fn read(&mut self, file: u32, page: u32) {
        self.access((file, page), true);
    }

    /// Reads and changes a page.
    pub fn change(&mut self, file: u32, page: u32) {
        let frame = self.access((file, page), true);
        self.changed(frame);
    }

    /// Creates a page that did not exist.
    pub fn create(&mut self, file: u32, page: u32) {
        let frame = self.access((file, page), false);
        self.changed(frame);
    }

    fn access(&mut self, page: (u32, u32), is_read: bool) -> u32 {
        self.accesses += 1;
        let found = self.places.get(&page).copied();
        if let Some(frame) = found {
            let Frame {
                placed, is_young, ..
            } = self.frames[frame as usize];
            // Pages near the front, and pages read twice in quick succession (as by a scan), keep their position.
            let age = self.accesses - placed;
            if age > self.capacity as u64 / if is_young { 4 } else { 8 } {
                self.make_young(frame);
            }
            return frame;
        }
        if is_read {
            self.records.push((page.0, page.1, Operation::Read));
        }
        let frame = if self.frames.len() < self.capacity {
            self.frames.push(Frame {
                page,
                placed: 0,
                is_young: false,
                dirty: None,
            });
            self.frames.len() as u32 - 1
        } else {
            self.evict()
        };
        self.frames[frame as usize].page = page;
        self.places.insert(page, frame);
        self.make_old(frame, self.accesses);
        frame
    }

    fn make_young(&mut self, frame: u32) {
        let now = self.accesses;
        let of = &mut self.frames[frame as usize];
        self.young_count += usize::from(!of.is_young);
        (of.is_young, of.placed) = (true, now);
        self.young.push_back((frame, now));
        if self.young_count > self.capacity * (8 - OLD_EIGHTHS) / 8 {
            if let Some(last) = self.last(true) {
                self.young_count -= 1;
                self.make_old(last, now);
            }
        }
        // Removes void entries at intervals.
        if self.young.len() > self.capacity * 4 {
            let frames = &self.frames;
            let valid = |&(frame, placed): &(u32, u64)| {
                let of = frames[frame as usize];
                of.is_young && of.placed == placed
            };
            self.young.retain(valid);
        }
    }

    fn make_old(&mut self, frame: u32, now: u64) {
        let of = &mut self.frames[frame as usize];
        (of.is_young, of.placed) = (false, now);
        self.old.push_back((frame, now));
    }

    /// Removes the last frame of a sublist.
    fn last(&mut self, young: bool) -> Option<u32> {
        loop {
            let list = if young {
                &mut self.young
            } else {
                &mut self.old
            };
            let (frame, placed) = list.pop_front()?;
            let of = self.frames[frame as usize];
            if of.placed == placed && of.is_young == young {
                return Some(frame);
            }
        }
    }

    fn evict(&mut self) -> u32 {
        let frame = match self.last(false) {
            Some(frame) => frame,
            None => {
                self.young_count -= 1;
                self.last(true).unwrap_or_default()
            }
        };
        self.write(frame);
        let page = self.frames[frame as usize].page;
        self.places.remove(&page);
        frame
    }

    fn changed(&mut self, frame: u32) {
        self.changes += 1;
        let of = &mut self.frames[frame as usize];
        if of.dirty.is_none() {
            of.dirty = Some(self.changes);
            self.dirty.push_back((frame, self.changes));
        }
        let kept = self.capacity as u64 * REDO;
        while let Some(&(frame, change)) = self.dirty.front() {
            let is_void = self.frames[frame as usize].dirty != Some(change);
            if !is_void {
                if self.changes - change <= kept {
                    break;
                }
                self.write(frame);
            }
            self.dirty.pop_front();
        }
    }

    /// Writes the page of a frame, if it is dirty.
    fn write(&mut self, frame: u32) {
        let of = &mut self.frames[frame as usize];
        if of.dirty.take().is_some() {
            let (file, page) = of.page;
            self.records.push((file, page, Operation::Write));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation::{Read, Write};

    #[test]
    fn resident_page_is_read_once_and_victim_written_first() {
        let mut pool = Pool::new(8);
        pool.change(1, 100);
        pool.create(1, 101);
        (0..3).for_each(|_| pool.read(1, 100));
        assert_eq!(pool.records(), [(1, 100, Read)]);
        (0..8).for_each(|page| pool.read(2, page));
        let writes: Vec<_> = pool.records().iter().filter(|r| r.2 == Write).collect();
        assert_eq!(writes, [&(1, 101, Write)]);
        pool.read(1, 101);
        assert_eq!(pool.records().last(), Some(&(1, 101, Read)), "it had gone");
        let before = pool.records().len();
        pool.read(1, 100);
        assert_eq!(pool.records().len(), before, "it became young");
    }

    #[test]
    fn constantly_changed_page_is_written_for_the_redo_log() {
        let mut pool = Pool::new(16);
        (0..1000).for_each(|_| pool.change(1, 1));
        let writes = pool.records().iter().filter(|r| r.2 == Write).count();
        assert_eq!((writes, pool.records().len()), (29, 30));
    }

    #[test]
    fn a_scan_does_not_drive_out_what_is_read_again() {
        let mut pool = Pool::new(160);
        for round in 0..20 {
            for page in 0..80 {
                pool.read(1, page);
                pool.read(2, round * 80 + page);
            }
        }
        let hot = pool.records().iter().filter(|r| r.0 == 1).count();
        assert!(hot < 300, "{hot} of 1,600");
    }
}
