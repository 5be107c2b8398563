//! Model of the reference, to compare its contention: buffer pool instances as in MySQL 5.5. Each holds its mutex for
//! the whole lookup, including hash table and LRU list.
//!
//! The mapping is MySQL's (`buf_pool_get` and `buf_page_address_fold` of 5.5): space and page number / 64, folded, modulo
//! the number of instances.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use cache::PageId;
use parking_lot::{Mutex, MutexGuard};

const NONE: u32 = u32::MAX;

/// A page descriptor, in the LRU list.
#[derive(Clone, Copy)]
struct Descriptor {
    page: Option<PageId>,
    newer: u32,
    older: u32,
}

/// One buffer pool.
struct Pool {
    hash: HashMap<PageId, u32, BuildHasherDefault<Fold>>,
    descriptors: Vec<Descriptor>,
    newest: u32,
    oldest: u32,
    hits: u64,
    waits: u64,
    accesses: u64,
}

pub struct Reference {
    pools: Vec<CachePadded>,
    /// Frames per pool.
    frames: u32,
}

/// Keeps the mutexes of two pools off one cache line.
#[repr(align(128))]
struct CachePadded(Mutex<Pool>);

/// Counters of the reference.
#[derive(Clone, Default)]
pub struct Counts {
    pub hits: u64,
    pub waits: u64,
    /// By instance.
    pub accesses: Vec<u64>,
}

impl Reference {
    /// `instances` pools of `frames` pages each.
    pub fn new(instances: u32, frames: u32) -> Reference {
        Reference {
            pools: (0..instances)
                .map(|_| CachePadded(Mutex::new(Pool::new(frames))))
                .collect(),
            frames,
        }
    }

    /// Returns the frame of the page, which becomes the most recent of its instance, and whether that was a hit. If
    /// `enter`, an absent page replaces the least recent one.
    pub fn look_up(&self, page: PageId, enter: bool) -> Option<(u32, bool)> {
        let at = instance(page, self.pools.len() as u64);
        let mut pool = self.lock(at);
        let found = pool.find(page);
        let frame = match found {
            Some(frame) => frame,
            None if enter => pool.replace_oldest(page),
            None => return None,
        };
        pool.make_newest(frame);
        pool.hits += u64::from(found.is_some());
        drop(pool);
        Some((at as u32 * self.frames + frame, found.is_some()))
    }

    fn lock(&self, at: usize) -> MutexGuard<'_, Pool> {
        let mut waits = 0;
        let mut pool = self.pools[at].0.try_lock().unwrap_or_else(|| {
            waits = 1;
            self.pools[at].0.lock()
        });
        pool.waits += waits;
        pool.accesses += 1;
        pool
    }

    pub fn counts(&self) -> Counts {
        let pools = || self.pools.iter().map(|pool| pool.0.lock());
        Counts {
            hits: pools().map(|pool| pool.hits).sum(),
            waits: pools().map(|pool| pool.waits).sum(),
            accesses: pools().map(|pool| pool.accesses).collect(),
        }
    }
}

/// The instance that MySQL would choose.
pub fn instance(page: PageId, instances: u64) -> usize {
    let (space, extent) = (u64::from(page.file.0), u64::from(page.page >> 6));
    (((space << 20) + space + extent) % instances) as usize
}

impl Pool {
    fn new(frames: u32) -> Pool {
        let descriptor = |n: u32| Descriptor {
            page: None,
            newer: if n == 0 { NONE } else { n - 1 },
            older: if n + 1 == frames { NONE } else { n + 1 },
        };
        Pool {
            hash: HashMap::with_capacity_and_hasher(frames as usize, BuildHasherDefault::default()),
            descriptors: (0..frames).map(descriptor).collect(),
            newest: 0,
            oldest: frames - 1,
            hits: 0,
            waits: 0,
            accesses: 0,
        }
    }

    fn find(&self, page: PageId) -> Option<u32> {
        self.hash.get(&page).copied()
    }

    fn replace_oldest(&mut self, page: PageId) -> u32 {
        let frame = self.oldest;
        if let Some(gone) = self.descriptors[frame as usize].page.replace(page) {
            self.hash.remove(&gone);
        }
        self.hash.insert(page, frame);
        frame
    }

    fn make_newest(&mut self, frame: u32) {
        let Descriptor { newer, older, .. } = self.descriptors[frame as usize];
        if newer == NONE {
            return;
        }
        self.descriptors[newer as usize].older = older;
        match older {
            NONE => self.oldest = newer,
            _ => self.descriptors[older as usize].newer = newer,
        }
        self.descriptors[self.newest as usize].newer = frame;
        let moved = &mut self.descriptors[frame as usize];
        (moved.newer, moved.older) = (NONE, self.newest);
        self.newest = frame;
    }
}

/// A hash as cheap as the one InnoDB uses.
#[derive(Default)]
struct Fold(u64);

impl Hasher for Fold {
    fn finish(&self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u32(byte.into()));
    }

    fn write_u32(&mut self, n: u32) {
        self.0 = self.0 << 32 ^ self.0 >> 32 ^ u64::from(n);
    }
}
