//! A buffer pool like InnoDB's, without bytes: it turns accesses of pages into the reads and writes that reach the data files.
//!
//! Pages enter the old part of the list, three eighths of it, and become young if they are accessed again later. A changed page
//! is written when its change is so old that the redo log needs the room, or when it is about to leave. A page that is made anew
//! is not read.

use std::collections::{HashMap, VecDeque};

use replay::trace::Operation;

/// File, page number and what became of it.
pub type Record = (u32, u32, Operation);

/// Eighths of the pool that are the old part.
const OLD_EIGHTHS: usize = 3;
/// Changes, for each page of the pool, that the redo log holds.
const REDO: u64 = 2;

#[derive(Clone, Copy)]
struct Frame {
    page: (u32, u32),
    /// When it came to its place in its list: the entry of the list is of this time.
    placed: u64,
    is_young: bool,
    /// Change by which it became dirty.
    dirty: Option<u64>,
}

/// Frames and the times at which they came there, the last ones behind. Entries of other times are void.
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
    /// Of so many pages, at least 8.
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

    /// Pages.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Accesses of pages so far: the clock of a load.
    pub fn accesses(&self) -> u64 {
        self.accesses
    }

    /// What has reached the data files.
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

    /// A page that was not there before.
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
            // Neither what is near the front anyway, nor what is read twice at once, as by a scan, is moved.
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
        // What is void goes from time to time.
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

    /// Takes the last frame out of a part of the list.
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

    /// Writes the page of a frame, if it was changed.
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
    fn what_stays_is_read_once_and_what_was_changed_is_written_before_it_goes() {
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
    fn a_page_that_is_changed_all_the_time_is_written_for_the_redo_log() {
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
