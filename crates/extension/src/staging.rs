//! Staging: pages that have been admitted and wait to be written, in bounded memory, servable from there.
//!
//! The memory is cut into blocks of 64 KiB, each of which, while in use, is cut into frames of one page size. A frame is
//! named by its first unit (1 KiB) in the whole memory. Its life: *allocated* (one thread fills it, nobody else knows it) ->
//! *staged* (in the list of one instance; immutable) -> *collected* by a writer -> free. A frame is free when its count of
//! references falls to zero: the list, later the writer, holds one, and so does every reader while it copies. A reader
//! takes its reference under the lock of the instance, after it has found an entry that names the frame; entries name
//! only frames that the list or a writer still holds, since both remove or redirect the entry, under that lock, before
//! they let go. So a count never rises from zero.

use std::io;

use crate::memory::Mapped;
#[cfg(not(checker))]
use crate::memory::Zeroable;
use crate::page::{FileId, MAX_PAGE, PageId};
use crate::statistics::Padded;
use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};

/// Bytes of the unit in which frames and places on devices are counted.
pub(crate) const UNIT: usize = 1024;
const UNITS_PER_BLOCK: usize = MAX_PAGE / UNIT;
const CLASSES: usize = 7;

/// Number of a frame: its first unit.
pub(crate) type Frame = u32;
/// No frame: end of a list.
pub(crate) const NONE: Frame = u32::MAX;

/// What is known about a frame, kept at the index of its first unit. Plain values in atomics: the instance lock and the
/// reference count order all accesses.
#[cfg_attr(checker, derive(Default))]
pub(crate) struct FrameFacts {
    references: AtomicU32,
    file: AtomicU32,
    page: AtomicU32,
    check: AtomicU32,
    length: AtomicU32,
    /// Next frame in the list of the instance.
    next: AtomicU32,
}

#[cfg(not(checker))]
type Facts = Mapped<FrameFacts>;
/// The checker's atomics are not just their bytes.
#[cfg(checker)]
type Facts = Box<[FrameFacts]>;

// SAFETY: atomics of zero.
#[cfg(not(checker))]
unsafe impl Zeroable for FrameFacts {}

#[cfg(not(checker))]
fn new_facts(frames: usize) -> io::Result<Facts> {
    Mapped::new(frames)
}

#[cfg(checker)]
fn new_facts(frames: usize) -> io::Result<Facts> {
    Ok((0..frames).map(|_| FrameFacts::default()).collect())
}

pub(crate) struct Staging {
    memory: Mapped<u8>,
    facts: Facts,
    blocks: Mutex<Blocks>,
    used: Padded<AtomicU64>,
}

impl Staging {
    /// `bytes` is rounded down to whole blocks, at least one.
    pub fn new(bytes: u64) -> io::Result<Staging> {
        let blocks = Self::blocks_of(bytes);
        Ok(Staging {
            memory: Mapped::new(blocks * MAX_PAGE)?,
            facts: new_facts(blocks * UNITS_PER_BLOCK)?,
            blocks: Mutex::new(Blocks::new(blocks)),
            used: Padded::default(),
        })
    }

    fn blocks_of(bytes: u64) -> usize {
        (bytes as usize / MAX_PAGE).max(1)
    }

    /// Memory that a staging of these bytes takes.
    pub fn memory_needed(bytes: u64) -> u64 {
        let blocks = Self::blocks_of(bytes);
        (blocks * (MAX_PAGE + UNITS_PER_BLOCK * size_of::<FrameFacts>() + Blocks::BYTES_PER_BLOCK))
            as u64
    }

    #[cfg(all(test, not(checker)))]
    pub fn memory_bytes(&self) -> u64 {
        let blocks = self.memory.len() / MAX_PAGE;
        self.memory.memory_bytes()
            + self.facts.memory_bytes()
            + (blocks * Blocks::BYTES_PER_BLOCK) as u64
    }

    pub fn capacity(&self) -> u64 {
        self.memory.len() as u64
    }

    /// Bytes of frames in use.
    pub fn used(&self) -> u64 {
        self.used.0.load(Ordering::Relaxed)
    }

    /// A frame for a page of `length` bytes; `None` when staging is full.
    pub fn allocate(&self, length: usize) -> Option<Filling<'_>> {
        debug_assert!(crate::page::is_page_length(length));
        let class = (length / UNIT).trailing_zeros() as usize;
        let frame = self.blocks.lock().allocate(class)?;
        self.used.0.fetch_add(length as u64, Ordering::Relaxed);
        let facts = &self.facts[frame as usize];
        facts.length.store(length as u32, Ordering::Relaxed);
        facts.references.store(1, Ordering::Relaxed);
        Some(Filling {
            staging: self,
            frame,
        })
    }

    pub fn page(&self, frame: Frame) -> PageId {
        let facts = &self.facts[frame as usize];
        PageId {
            file: FileId(facts.file.load(Ordering::Relaxed)),
            page: facts.page.load(Ordering::Relaxed),
        }
    }

    pub fn check(&self, frame: Frame) -> u32 {
        self.facts[frame as usize].check.load(Ordering::Relaxed)
    }

    pub fn length(&self, frame: Frame) -> usize {
        self.facts[frame as usize].length.load(Ordering::Relaxed) as usize
    }

    pub fn next(&self, frame: Frame) -> Frame {
        self.facts[frame as usize].next.load(Ordering::Relaxed)
    }

    /// Only under the lock of the instance in whose list both are.
    pub fn set_next(&self, frame: Frame, next: Frame) {
        self.facts[frame as usize]
            .next
            .store(next, Ordering::Relaxed);
    }

    /// Takes a reference. Only under the lock of the instance whose directory names the frame.
    pub fn pin(&self, frame: Frame) -> Pinned<'_> {
        let before = self.facts[frame as usize]
            .references
            .fetch_add(1, Ordering::Relaxed);
        debug_assert!(before > 0, "an entry named a free frame");
        Pinned {
            staging: self,
            frame,
        }
    }

    /// Takes over the reference that the list held.
    pub fn collected(&self, frame: Frame) -> Pinned<'_> {
        Pinned {
            staging: self,
            frame,
        }
    }

    fn release(&self, frame: Frame) {
        let facts = &self.facts[frame as usize];
        if facts.references.fetch_sub(1, Ordering::Release) == 1 {
            // Every reader's copy happens before the frame is written again.
            fence(Ordering::Acquire);
            let length = facts.length.load(Ordering::Relaxed) as usize;
            self.blocks
                .lock()
                .free(frame, (length / UNIT).trailing_zeros() as usize);
            self.used.0.fetch_sub(length as u64, Ordering::Relaxed);
        }
    }
}

/// A frame that is being filled; freed on drop unless staged.
pub(crate) struct Filling<'a> {
    staging: &'a Staging,
    frame: Frame,
}

impl Filling<'_> {
    pub fn fill(&mut self, page: PageId, bytes: &[u8], check: u32) {
        let facts = &self.staging.facts[self.frame as usize];
        assert_eq!(bytes.len(), facts.length.load(Ordering::Relaxed) as usize);
        // SAFETY: the frame has that many bytes, and nobody else knows it until it is staged.
        unsafe {
            let start = self.staging.memory.as_ptr().add(self.frame as usize * UNIT);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
        }
        facts.file.store(page.file.0, Ordering::Relaxed);
        facts.page.store(page.page, Ordering::Relaxed);
        facts.check.store(check, Ordering::Relaxed);
        facts.next.store(NONE, Ordering::Relaxed);
    }

    /// Hands the reference over to the list of an instance, whose lock is held.
    pub fn stage(self) -> Frame {
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }
}

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        self.staging.release(self.frame);
    }
}

/// A reference to a staged frame.
pub(crate) struct Pinned<'a> {
    staging: &'a Staging,
    frame: Frame,
}

impl Pinned<'_> {
    pub fn frame(&self) -> Frame {
        self.frame
    }

    /// Holds on to the reference without this value; `collected` gives it back.
    pub fn keep(self) -> Frame {
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }

    pub fn bytes(&self) -> &[u8] {
        let length = self.staging.length(self.frame);
        // SAFETY: staged frames are immutable until the last reference, of which self is one, is gone. The instance lock
        // under which the frame was staged and later found makes its contents visible.
        unsafe {
            std::slice::from_raw_parts(
                self.staging.memory.as_ptr().add(self.frame as usize * UNIT),
                length,
            )
        }
    }
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        self.staging.release(self.frame);
    }
}

/// Which frames are free.
struct Blocks {
    /// Blocks of no class.
    whole: Vec<u32>,
    /// Blocks of a class with at least one free frame.
    partial: [Vec<u32>; CLASSES],
    /// For each block: bit n set if the frame beginning at its unit n is free.
    free: Vec<u64>,
    /// For each block: where it stands in the list of its class.
    position: Vec<u32>,
}

impl Blocks {
    const BYTES_PER_BLOCK: usize = 4 + 4 * CLASSES + 8 + 4;

    fn new(blocks: usize) -> Blocks {
        Blocks {
            whole: (0..blocks as u32).rev().collect(),
            partial: std::array::from_fn(|_| Vec::with_capacity(blocks)),
            free: vec![0; blocks],
            position: vec![0; blocks],
        }
    }

    /// A bit for each frame of the class.
    fn all(class: usize) -> u64 {
        (0..UNITS_PER_BLOCK)
            .step_by(1 << class)
            .fold(0, |mask, unit| mask | 1 << unit)
    }

    fn allocate(&mut self, class: usize) -> Option<Frame> {
        let block = match self.partial[class].last() {
            Some(&block) => block,
            None => {
                let block = self.whole.pop()?;
                self.free[block as usize] = Self::all(class);
                self.list(block, class);
                block
            }
        };
        let bits = &mut self.free[block as usize];
        let unit = bits.trailing_zeros();
        *bits &= *bits - 1;
        if *bits == 0 {
            self.unlist(block, class);
        }
        Some(block * UNITS_PER_BLOCK as u32 + unit)
    }

    fn free(&mut self, frame: Frame, class: usize) {
        let (block, unit) = (
            frame / UNITS_PER_BLOCK as u32,
            frame % UNITS_PER_BLOCK as u32,
        );
        let before = self.free[block as usize];
        debug_assert_eq!(before >> unit & 1, 0, "a frame was freed twice");
        self.free[block as usize] = before | 1 << unit;
        if before == 0 {
            self.list(block, class);
        }
        if self.free[block as usize] == Self::all(class) {
            self.unlist(block, class);
            self.whole.push(block);
        }
    }

    fn list(&mut self, block: u32, class: usize) {
        self.position[block as usize] = self.partial[class].len() as u32;
        self.partial[class].push(block);
    }

    fn unlist(&mut self, block: u32, class: usize) {
        let at = self.position[block as usize] as usize;
        self.partial[class].swap_remove(at);
        if let Some(&moved) = self.partial[class].get(at) {
            self.position[moved as usize] = at as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stage(staging: &Staging, length: usize, fill: u8) -> Option<Frame> {
        let mut filling = staging.allocate(length)?;
        filling.fill(PageId::new(FileId(1), fill.into()), &vec![fill; length], 0);
        Some(filling.stage())
    }

    #[test]
    fn every_size_fills_the_memory_and_gives_it_back() {
        const BYTES: usize = if cfg!(miri) { 1 << 16 } else { 1 << 20 };
        let staging = Staging::new(BYTES as u64).unwrap();
        for length in [1024, 2048, 4096, 8192, 16384, 32768, 65536] {
            let frames: Vec<_> = std::iter::from_fn(|| stage(&staging, length, 7)).collect();
            assert_eq!(frames.len(), BYTES / length);
            assert_eq!(staging.used(), BYTES as u64);
            frames.into_iter().for_each(|f| drop(staging.collected(f)));
            assert_eq!(staging.used(), 0);
        }
    }

    #[test]
    fn mixed_frames_do_not_overlap() {
        let staging = Staging::new(1 << 20).unwrap();
        let mut live: Vec<(Frame, usize, u8)> = Vec::new();
        let mut random = 12345u64;
        for step in 0..if cfg!(miri) { 300 } else { 20_000u32 } {
            random = crate::page::mix64(random + 1);
            let length = UNIT << (random % 7);
            if random >> 32 & 3 != 0 {
                if let Some(frame) = stage(&staging, length, step as u8) {
                    live.push((frame, length, step as u8));
                }
            } else if !live.is_empty() {
                let (frame, length, fill) = live.swap_remove((random >> 40) as usize % live.len());
                let pinned = staging.collected(frame);
                assert_eq!(pinned.bytes().len(), length);
                let apart = if cfg!(miri) { 1021 } else { 1 };
                assert!(pinned.bytes().iter().step_by(apart).all(|&b| b == fill));
                assert_eq!(pinned.bytes().last(), Some(&fill));
            }
            assert_eq!(staging.used(), live.iter().map(|l| l.1 as u64).sum::<u64>());
        }
    }

    #[test]
    fn a_reader_keeps_the_frame() {
        let staging = Staging::new(65536).unwrap();
        let frame = stage(&staging, 65536, 3).unwrap();
        let reader = staging.pin(frame);
        drop(staging.collected(frame));
        assert!(staging.allocate(1024).is_none());
        assert_eq!(reader.bytes()[65535], 3);
        drop(reader);
        assert!(
            staging.allocate(1024).is_some(),
            "and a filling that is dropped frees its frame"
        );
        assert_eq!(staging.used(), 0);
    }
}
