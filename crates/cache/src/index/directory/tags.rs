//! Groups of a directory's entries, in an array beside it: four bits per way, and the number of entries per group.
//!
//! The array exists only while rules need it, so a directory without groups pays neither memory nor time. It does not
//! outlive the process. A persisted entry belongs to no group until a hit, when the caller passes the group.

use std::io;

use crate::common::group::Group;
use crate::common::memory::{Mapped, Zeroable, in_pages};

const BITS: u32 = 4;
const MASK: u32 = (1 << BITS) - 1;

/// The tags of one bucket.
#[derive(Clone, Copy)]
#[repr(transparent)]
struct Word(u32);

// SAFETY: an integer; zero means that none of its entries belongs to a group.
unsafe impl Zeroable for Word {}

pub(crate) struct Tags {
    words: Mapped<Word>,
    /// By group number. [`Group::NORMAL`] is not counted.
    counts: [u64; Group::COUNT],
}

impl Tags {
    /// Bytes of memory for a directory of `buckets` buckets.
    pub fn memory_needed(buckets: u64) -> u64 {
        in_pages(buckets * size_of::<Word>() as u64)
    }

    /// # Errors
    /// If memory allocation fails.
    pub fn new(buckets: usize) -> io::Result<Tags> {
        Ok(Tags {
            words: Mapped::new(buckets)?,
            counts: [0; Group::COUNT],
        })
    }

    pub fn memory_bytes(&self) -> u64 {
        self.words.memory_bytes()
    }

    #[inline]
    pub fn get(&self, bucket: u32, way: usize) -> Group {
        Group::from_bits(self.words[bucket as usize].0 >> (way as u32 * BITS) & MASK)
    }

    #[inline]
    pub fn set(&mut self, bucket: u32, way: usize, group: Group) {
        let before = self.get(bucket, way);
        if before == group {
            return;
        }
        let word = &mut self.words[bucket as usize].0;
        let shift = way as u32 * BITS;
        *word = *word & !(MASK << shift) | (group.number() as u32) << shift;
        if before != Group::NORMAL {
            self.counts[before.number()] -= 1;
        }
        if group != Group::NORMAL {
            self.counts[group.number()] += 1;
        }
    }

    /// Entries of a group; 0 for [`Group::NORMAL`].
    #[inline]
    pub fn count(&self, group: Group) -> u64 {
        self.counts[group.number()]
    }
}
