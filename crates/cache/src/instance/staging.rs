//! Staging: admitted pages that wait to be written. Bounded memory; pages are served from it.
//!
//! # Frames
//! The memory is divided into blocks of 64 KiB. A block in use is divided into frames of one page size. The number of a
//! frame is its first unit (1 KiB) in the whole memory. Life of a frame:
//! 1. *allocated*: one thread fills it, and no other thread knows it
//! 2. *staged*: in the list of one instance; immutable
//! 3. *collected* by a writer
//! 4. *free*
//!
//! # References
//! A frame becomes free when its reference count falls to zero. The list holds one reference, later the writer, and each
//! reader holds one while it copies. A reader takes its reference under the lock of the instance, after it has found an
//! entry that names the frame. Entries name only frames that the list or a writer still holds: both remove or redirect the
//! entry under that lock before they drop their reference. So a count never rises from zero. Removing an entry whose frame
//! is in the list also removes the frame: a page that cannot be found any longer is neither kept nor written.
//!
//! # Memory
//! The memory is as large as bursts may need ([`crate::api::open`]), but only reserved. A block becomes resident at its first
//! use. The most recently used free blocks are reused first, and blocks unused for a while are returned to the kernel.

use std::io;

use crate::common::memory::Mapped;
#[cfg(not(checker))]
use crate::common::memory::Zeroable;
use crate::common::page::{FileId, MAX_PAGE, PageId, UNIT};
use crate::common::statistics::CachePadded;
use crate::common::sync::{AtomicU32, AtomicU64, Mutex, Ordering, fence};
use crate::common::violations::Violations;

const UNITS_PER_BLOCK: usize = MAX_PAGE / UNIT;
const CLASSES: usize = 7;

/// Number of a frame: its first unit.
pub(crate) type Frame = u32;
/// No frame: end of a list.
pub(crate) const NONE: Frame = u32::MAX;
/// In place of a neighbour: the frame is in no list.
const UNLISTED: Frame = u32::MAX - 1;
/// Free blocks that stay resident.
const KEPT: usize = 4;
/// A call of `trim` releases one in `TRIM_PART` of the free blocks beyond `KEPT`, at most `MAX_TRIMMED`.
const TRIM_PART: usize = 16;
const MAX_TRIMMED: usize = 8;

/// Metadata of a frame, at the index of its first unit. Plain values in atomics: the instance lock and the reference count
/// order all accesses.
#[cfg_attr(checker, derive(Default))]
pub(crate) struct FrameFacts {
    references: AtomicU32,
    file: AtomicU32,
    page: AtomicU32,
    check: AtomicU32,
    length: AtomicU32,
    /// Neighbours in the list of the instance.
    next: AtomicU32,
    previous: AtomicU32,
}

#[cfg(not(checker))]
type Facts = Mapped<FrameFacts>;
/// The checker's atomics are not plain bytes.
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
    /// Bytes of frames in use. `Relaxed`: a gauge; the lock of `blocks` decides.
    used: CachePadded<AtomicU64>,
}

impl Staging {
    /// `bytes` is rounded down to whole blocks, at least one.
    pub fn new(bytes: u64) -> io::Result<Staging> {
        let blocks = Self::blocks_of(bytes);
        Ok(Staging {
            memory: Mapped::reserve(blocks * MAX_PAGE)?,
            facts: new_facts(blocks * UNITS_PER_BLOCK)?,
            blocks: Mutex::new(Blocks::new(blocks)),
            used: CachePadded::default(),
        })
    }

    fn blocks_of(bytes: u64) -> usize {
        (bytes as usize / MAX_PAGE).max(1)
    }

    /// Memory of a staging area of this capacity.
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

    /// Bytes of memory that are reserved and not resident.
    pub fn untouched(&self) -> u64 {
        let resident = self.blocks.lock().resident;
        (self.memory.len() - resident * MAX_PAGE) as u64
    }

    /// Returns some of the recently unused memory to the kernel.
    pub fn trim(&self) {
        let mut blocks = self.blocks.lock();
        let spare = blocks.ready.saturating_sub(KEPT);
        for _ in 0..spare.div_ceil(TRIM_PART).min(MAX_TRIMMED) {
            let block = blocks.leave_ready() as usize;
            // SAFETY: a whole free block; the lock prevents its allocation.
            unsafe {
                self.memory
                    .give_back(block * MAX_PAGE..(block + 1) * MAX_PAGE);
            }
        }
    }

    /// Bytes of frames in use.
    pub fn used(&self) -> u64 {
        self.used.0.load(Ordering::Relaxed)
    }

    /// A frame for a page of `length` bytes; `None` when staging is full.
    pub fn allocate(&self, length: usize) -> Option<Filling<'_>> {
        debug_assert!(crate::common::page::is_page_length(length));
        let class = (length / UNIT).trailing_zeros() as usize;
        let place = self.blocks.lock().take(class)?;
        let frame = match place {
            Place::Frame(frame) => frame,
            Place::Untouched(block) => {
                let start = block as usize * MAX_PAGE;
                // Without the lock: under memory pressure the kernel may take long.
                // SAFETY: `take` removed the block from the lists, so nothing else uses it.
                let touched = unsafe { self.memory.touch(start..start + MAX_PAGE).is_ok() };
                let mut blocks = self.blocks.lock();
                if !touched {
                    blocks.put_back(block);
                    return None;
                }
                blocks.cut(block, class)
            }
        };
        debug_assert_eq!(frame as usize * UNIT % length, 0);
        debug_assert!(!self.is_in_use(frame), "an allocated frame was free");
        self.used.0.fetch_add(length as u64, Ordering::Relaxed);
        let facts = &self.facts[frame as usize];
        facts.length.store(length as u32, Ordering::Relaxed);
        facts.references.store(1, Ordering::Relaxed);
        facts.previous.store(UNLISTED, Ordering::Relaxed);
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

    fn set_next(&self, frame: Frame, next: Frame) {
        self.facts[frame as usize]
            .next
            .store(next, Ordering::Relaxed);
    }

    fn set_previous(&self, frame: Frame, previous: Frame) {
        self.facts[frame as usize]
            .previous
            .store(previous, Ordering::Relaxed);
    }

    /// Takes a reference. Only under the lock of the instance whose directory names the frame.
    pub fn pin(&self, frame: Frame) -> Pinned<'_> {
        // Relaxed: the instance's lock orders it before the last reference can go.
        let before = self.facts[frame as usize]
            .references
            .fetch_add(1, Ordering::Relaxed);
        assert!(before > 0, "an entry named a free frame");
        Pinned {
            staging: self,
            frame,
        }
    }

    /// Takes over the reference that the list held.
    pub fn collected(&self, frame: Frame) -> Pinned<'_> {
        debug_assert!(self.is_in_use(frame));
        Pinned {
            staging: self,
            frame,
        }
    }

    /// Whether the frame is referenced.
    pub fn is_in_use(&self, frame: Frame) -> bool {
        let facts = self.facts.get(frame as usize);
        facts.is_some_and(|facts| facts.references.load(Ordering::Relaxed) > 0)
    }

    /// Checks that frames in use are not free, and that their bytes are counted. Returns their number.
    pub fn validate(&self, violations: &mut Violations) -> u64 {
        let blocks = self.blocks.lock();
        let (mut frames, mut used) = (0, 0);
        for block in 0..self.facts.len() / UNITS_PER_BLOCK {
            let first = (block * UNITS_PER_BLOCK) as Frame;
            let mut in_use = 0u64;
            for unit in 0..UNITS_PER_BLOCK as u32 {
                if self.is_in_use(first + unit) {
                    in_use |= 1 << unit;
                    frames += 1;
                    used += self.length(first + unit) as u64;
                }
            }
            blocks.validate(block as u32, in_use, violations);
        }
        blocks.validate_lists(violations);
        violations.equal(self.used(), used, "bytes of frames in use");
        frames
    }

    fn release(&self, frame: Frame) {
        let facts = &self.facts[frame as usize];
        // Release: pairs with the fence of the last reference, so that each reader's copy precedes the next write to the frame.
        let before = facts.references.fetch_sub(1, Ordering::Release);
        debug_assert_ne!(before, 0, "a free frame was released");
        if before == 1 {
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
        // SAFETY: the frame has that many bytes, and no other thread knows it until it is staged.
        unsafe {
            let start = self.staging.memory.as_ptr().add(self.frame as usize * UNIT);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, bytes.len());
        }
        facts.file.store(page.file.0, Ordering::Relaxed);
        facts.page.store(page.page, Ordering::Relaxed);
        facts.check.store(check, Ordering::Relaxed);
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

    /// Keeps the reference beyond this value; `collected` takes it back.
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

/// The frames of an instance that wait for a writer, oldest first. Protected by the lock of the instance.
pub(crate) struct FrameList {
    head: Frame,
    tail: Frame,
    pub length: u64,
}

impl FrameList {
    pub const EMPTY: FrameList = FrameList {
        head: NONE,
        tail: NONE,
        length: 0,
    };

    /// Takes over the reference of a filled frame.
    pub fn push(&mut self, staging: &Staging, frame: Frame) {
        let facts = &staging.facts[frame as usize];
        debug_assert_eq!(facts.previous.load(Ordering::Relaxed), UNLISTED);
        staging.set_next(frame, NONE);
        staging.set_previous(frame, self.tail);
        match self.tail {
            NONE => self.head = frame,
            tail => staging.set_next(tail, frame),
        }
        self.tail = frame;
        self.length += 1;
    }

    /// Removes a frame from the list, unless a writer has it. The caller gets the list's reference.
    pub fn take<'a>(&mut self, staging: &'a Staging, frame: Frame) -> Option<Pinned<'a>> {
        let facts = &staging.facts[frame as usize];
        let (next, previous) = (
            facts.next.load(Ordering::Relaxed),
            facts.previous.swap(UNLISTED, Ordering::Relaxed),
        );
        match previous {
            UNLISTED => return None,
            NONE => self.head = next,
            previous => staging.set_next(previous, next),
        }
        match next {
            NONE => self.tail = previous,
            next => staging.set_previous(next, previous),
        }
        self.length -= 1;
        debug_assert_eq!(self.length == 0, self.head == NONE);
        Some(staging.collected(frame))
    }

    /// The oldest frame.
    pub fn first(&self) -> Option<Frame> {
        (self.head != NONE).then_some(self.head)
    }

    /// All frames, oldest first.
    pub fn iter<'a>(&self, staging: &'a Staging) -> impl Iterator<Item = Frame> + use<'a> {
        let next = |frame: &Frame| staging.facts[*frame as usize].next.load(Ordering::Relaxed);
        std::iter::successors(self.first(), move |frame| {
            Some(next(frame)).filter(|&frame| frame != NONE)
        })
    }
}

/// Where to put a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Place {
    Frame(Frame),
    /// A frame of this block, once it has been made resident.
    Untouched(u32),
}

/// Free frames and free blocks.
struct Blocks {
    /// Free blocks, of no class. The last `ready` of them are resident.
    whole: Vec<u32>,
    ready: usize,
    /// Resident blocks, including those in use.
    resident: usize,
    /// Blocks of a class with at least one free frame.
    partial: [Vec<u32>; CLASSES],
    /// For each block: bit n set if the frame beginning at its unit n is free.
    free: Vec<u64>,
    /// For each block: its position in the list of its class.
    position: Vec<u32>,
}

impl Blocks {
    const BYTES_PER_BLOCK: usize = 4 + 4 * CLASSES + 8 + 4;

    fn new(blocks: usize) -> Blocks {
        Blocks {
            whole: (0..blocks as u32).rev().collect(),
            ready: 0,
            resident: 0,
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

    /// Removes the free block that has been ready for the longest time from the ready ones.
    fn leave_ready(&mut self) -> u32 {
        let block = self.whole[self.whole.len() - self.ready];
        self.ready -= 1;
        self.resident -= 1;
        block
    }

    /// A frame, or a block to be made resident and divided; `None` if there is neither.
    fn take(&mut self, class: usize) -> Option<Place> {
        if let Some(&block) = self.partial[class].last() {
            return Some(Place::Frame(self.take_of(block, class)));
        }
        let block = self.whole.pop()?;
        if self.ready > 0 {
            self.ready -= 1;
            return Some(Place::Frame(self.cut(block, class)));
        }
        self.resident += 1;
        Some(Place::Untouched(block))
    }

    /// Divides a resident block that is in no list into frames, and takes the first.
    fn cut(&mut self, block: u32, class: usize) -> Frame {
        self.free[block as usize] = Self::all(class);
        self.list(block, class);
        self.take_of(block, class)
    }

    /// Returns a block that could not be made resident.
    fn put_back(&mut self, block: u32) {
        self.resident -= 1;
        self.whole.insert(self.whole.len() - self.ready, block);
    }

    fn take_of(&mut self, block: u32, class: usize) -> Frame {
        let bits = &mut self.free[block as usize];
        let unit = bits.trailing_zeros();
        *bits &= *bits - 1;
        if *bits == 0 {
            self.unlist(block, class);
        }
        block * UNITS_PER_BLOCK as u32 + unit
    }

    fn free(&mut self, frame: Frame, class: usize) {
        let (block, unit) = (
            frame / UNITS_PER_BLOCK as u32,
            frame % UNITS_PER_BLOCK as u32,
        );
        let before = self.free[block as usize];
        // Debug only: a panic may have led here, and a second one would abort.
        debug_assert_eq!(before >> unit & 1, 0, "a frame was freed twice");
        self.free[block as usize] = before | 1 << unit;
        if before == 0 {
            self.list(block, class);
        }
        if self.free[block as usize] == Self::all(class) {
            self.unlist(block, class);
            self.whole.push(block);
            self.ready += 1;
        }
    }

    /// Checks that a block is free, or in its class's list, or full. `in_use`: a bit for the first unit of each frame in use.
    fn validate(&self, block: u32, in_use: u64, violations: &mut Violations) {
        let whole = self.whole.iter().filter(|&&other| other == block).count();
        let lists = self.partial.iter().enumerate();
        let listed: Vec<usize> = lists
            .filter(|(_, list)| list.contains(&block))
            .map(|(class, _)| class)
            .collect();
        violations.expect(whole + listed.len() <= 1, || {
            format!("block {block} is free {whole} times, and of the classes {listed:?}")
        });
        let free = self.free[block as usize];
        if whole > 0 {
            violations.equal(in_use, 0, "frames of a block that is free");
        } else if let [class] = listed[..] {
            let all = Self::all(class);
            violations.equal(free, all & !in_use, "free frames of a block");
            violations.expect(free != 0 && free != all, || {
                format!("block {block} is listed, with {free:x} free")
            });
        } else {
            violations.expect(free == 0 && in_use != 0, || {
                format!("block {block} is in no list, with {free:x} free and {in_use:x} in use")
            });
        }
    }

    fn validate_lists(&self, violations: &mut Violations) {
        violations.expect(
            self.ready <= self.whole.len() && self.resident <= self.free.len(),
            || format!("{} ready, {} resident", self.ready, self.resident),
        );
        let in_use = self.free.len() - self.whole.len();
        violations.equal(self.resident, in_use + self.ready, "resident blocks");
        for list in &self.partial {
            for (at, &block) in list.iter().enumerate() {
                let position = self.position[block as usize] as usize;
                violations.equal(position, at, "position of a block");
            }
        }
    }

    fn list(&mut self, block: u32, class: usize) {
        self.position[block as usize] = self.partial[class].len() as u32;
        self.partial[class].push(block);
    }

    fn unlist(&mut self, block: u32, class: usize) {
        let at = self.position[block as usize] as usize;
        debug_assert_eq!(self.partial[class][at], block);
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
            random = crate::common::page::mix64(random + 1);
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
    fn memory_is_resident_while_it_is_needed() {
        let staging = Staging::new(1 << 20).unwrap();
        let resident = || (1 << 20) - staging.untouched();
        assert_eq!(resident(), 0);
        for round in 0..3 {
            let frames: Vec<_> = (0..32).filter_map(|n| stage(&staging, 16384, n)).collect();
            assert_eq!((frames.len(), resident()), (32, 8 * 65536), "round {round}");
            for frame in frames {
                let pinned = staging.collected(frame);
                assert!(
                    pinned
                        .bytes()
                        .iter()
                        .step_by(999)
                        .all(|&b| b == pinned.bytes()[0])
                );
            }
            assert_eq!(
                resident(),
                8 * 65536,
                "what was used is ready for the next burst"
            );
            (0..20).for_each(|_| staging.trim());
            assert_eq!(resident(), KEPT as u64 * 65536);
        }
    }

    #[test]
    fn untouched_block_without_memory_is_put_back() {
        let mut blocks = Blocks::new(3);
        assert_eq!(blocks.take(6), Some(Place::Untouched(0)));
        assert_eq!(blocks.take(6), Some(Place::Untouched(1)));
        assert_eq!(blocks.cut(1, 6), 64);
        blocks.free(64, 6);
        assert_eq!((blocks.ready, blocks.resident), (1, 2));
        // The first block got no memory: it is queued behind the ready ones and tried again.
        blocks.put_back(0);
        assert_eq!((blocks.ready, blocks.resident), (1, 1));
        assert_eq!(blocks.take(6), Some(Place::Frame(64)));
        assert_eq!(blocks.take(6), Some(Place::Untouched(0)));
        assert_eq!(blocks.take(6), Some(Place::Untouched(2)));
        assert_eq!(blocks.take(6), None);
    }

    #[test]
    fn frames_leave_the_list_in_any_order() {
        let staging = Staging::new(1 << 20).unwrap();
        let mut list = FrameList::EMPTY;
        let frames: Vec<_> = (0..5).filter_map(|n| stage(&staging, 4096, n)).collect();
        frames.iter().for_each(|&f| list.push(&staging, f));
        let now = |list: &FrameList| list.iter(&staging).collect::<Vec<_>>();
        assert_eq!(now(&list), frames);
        for (gone, left) in [(2, vec![0, 1, 3, 4]), (0, vec![1, 3, 4]), (4, vec![1, 3])] {
            assert_eq!(
                list.take(&staging, frames[gone]).unwrap().frame(),
                frames[gone]
            );
            let left: Vec<_> = left.into_iter().map(|n: usize| frames[n]).collect();
            assert_eq!(now(&list), left);
        }
        let reader = staging.pin(frames[1]);
        drop(list.take(&staging, frames[1]));
        assert!(list.take(&staging, frames[1]).is_none(), "only once");
        assert_eq!(reader.bytes()[0], 1);
        drop(reader);
        list.take(&staging, frames[3]);
        assert_eq!((list.first(), list.length, staging.used()), (None, 0, 0));
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
