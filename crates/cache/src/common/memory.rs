//! Memory of fixed size, mapped from the kernel when the extension opens.
//!
//! Mapped rather than allocated, for three reasons:
//! - A failure is an error and does not abort the server.
//! - Every page is touched at once, so that the reported memory equals the resident memory of the process.
//! - The contents are pages of tables, so they are excluded from core dumps.
//!
//! Reserved memory ([`Mapped::reserve`]) is touched and released in parts. Memory that outlives the process
//! ([`Mapped::of_file`]) is a file of an in-memory file system.

#[cfg(not(miri))]
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(not(miri))]
use rustix::fs::FallocateFlags;
#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

pub(crate) const HUGE_PAGE: usize = 2 << 20;

/// Page size of the kernel: 4 KiB on x86-64; 4, 16 or 64 KiB on ARM64. Parts of a file are mapped at multiples of it.
pub(crate) fn page() -> usize {
    // SAFETY: plain C call, answered from memory.
    let bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(bytes).unwrap_or(4096)
}

/// Rounds bytes up to whole pages of memory.
pub(crate) fn in_pages(bytes: u64) -> u64 {
    bytes.next_multiple_of(page() as u64)
}

/// Types for which all bytes zero is a value, and which need no drop.
///
/// # Safety
/// The implementor promises both.
pub(crate) unsafe trait Zeroable {}

// SAFETY: zero is a value of each of these.
unsafe impl Zeroable for u8 {}
// SAFETY: as above.
unsafe impl Zeroable for [u64; 8] {}
// SAFETY: as above.
unsafe impl Zeroable for std::sync::atomic::AtomicU32 {}

/// A slice of zeroed, resident memory in its own mapping.
pub(crate) struct Mapped<T> {
    start: NonNull<T>,
    length: usize,
}

// SAFETY: `Mapped` owns its memory like a `Box<[T]>`.
unsafe impl<T: Send> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Mapped<T> {}

impl<T: Zeroable> Mapped<T> {
    pub fn new(length: usize) -> io::Result<Mapped<T>> {
        if length == 0 {
            return Ok(Mapped::empty());
        }
        let bytes = Self::bytes_of(length).ok_or(io::ErrorKind::OutOfMemory)?;
        #[cfg(miri)]
        return Self::allocated(length, bytes);
        #[cfg(not(miri))]
        Self::from_kernel(length, bytes)
    }

    /// Miri supports no `madvise`.
    #[cfg(miri)]
    fn allocated(length: usize, bytes: usize) -> io::Result<Mapped<T>> {
        let layout = std::alloc::Layout::from_size_align(bytes, page())
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
        // SAFETY: `bytes` is not 0.
        let start = unsafe { std::alloc::alloc_zeroed(layout) };
        Ok(Mapped {
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            length,
        })
    }

    #[cfg(not(miri))]
    fn from_kernel(length: usize, bytes: usize) -> io::Result<Mapped<T>> {
        let memory = Self::untouched(length, bytes)?;
        if bytes >= HUGE_PAGE {
            // SAFETY: the range is the mapping just made; the advice changes no contents.
            let _ = unsafe { madvise(memory.as_ptr().cast(), bytes, Advice::LinuxHugepage) };
        }
        // SAFETY: the mapping just made, which nothing else refers to yet.
        unsafe { touch(memory.as_ptr().cast(), bytes)? };
        Ok(memory)
    }

    #[cfg(not(miri))]
    fn untouched(length: usize, bytes: usize) -> io::Result<Mapped<T>> {
        // SAFETY: a new anonymous mapping touches no existing memory.
        let start = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        // SAFETY: the range is the mapping just made; the advice changes no contents.
        let _ = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
        Ok(Mapped {
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            length,
        })
    }

    /// Maps a part of an in-memory file that outlives this process, with its contents, and allocates all of its memory. All its
    /// bytes must be values of the type. Parts of at least [`HUGE_PAGE`] need an offset that is a multiple of it. They get such
    /// an address, too, so that the kernel may use huge pages.
    ///
    /// # Safety
    /// While it is mapped, the file keeps its length and nothing else writes this part.
    #[cfg(not(miri))]
    pub unsafe fn of_file(file: &File, offset: u64, length: usize) -> io::Result<Mapped<T>> {
        if length == 0 {
            return Ok(Mapped::empty());
        }
        let bytes = Self::bytes_of(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let huge = bytes >= HUGE_PAGE;
        assert_eq!(offset % if huge { HUGE_PAGE } else { page() } as u64, 0);
        // Address space that is large enough to align the part.
        let room = bytes + if huge { HUGE_PAGE } else { 0 };
        let (access, none) = (ProtFlags::READ | ProtFlags::WRITE, ProtFlags::empty());
        let private = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new anonymous mapping touches no existing memory.
        let reserved = unsafe { mmap_anonymous(std::ptr::null_mut(), room, none, private)? };
        let before = if huge {
            reserved.align_offset(HUGE_PAGE)
        } else {
            0
        };
        // SAFETY: within the range just reserved, which nothing else refers to.
        let mapped = unsafe {
            let start = reserved.byte_add(before);
            let mapped = mmap(
                start,
                bytes,
                access,
                MapFlags::SHARED | MapFlags::FIXED,
                file,
                offset,
            );
            if mapped.is_err() {
                let _ = munmap(reserved, room);
            } else {
                // Release the unused address space on either side.
                if before > 0 {
                    let _ = munmap(reserved, before);
                }
                if room > before + bytes {
                    let _ = munmap(start.byte_add(bytes), room - before - bytes);
                }
            }
            mapped?
        };
        let memory = Mapped {
            start: NonNull::new(mapped.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            length,
        };
        for advice in [Advice::LinuxDontDump, Advice::LinuxDontFork] {
            // SAFETY: the range is the mapping just made; the advice changes no contents.
            let _ = unsafe { madvise(mapped, bytes, advice) };
        }
        if huge {
            // Few systems use huge pages for such files by default. Kernels from 6.1 on do so on request, if a page is there.
            let whole = bytes / HUGE_PAGE * HUGE_PAGE;
            for start in (0..whole).step_by(HUGE_PAGE) {
                // SAFETY: within the mapping just made; populating changes no contents.
                let _ =
                    unsafe { madvise(mapped.byte_add(start), page(), Advice::LinuxPopulateRead) };
            }
            // SAFETY: as above.
            unsafe { libc::madvise(mapped, whole, libc::MADV_COLLAPSE) };
        }
        rustix::fs::fallocate(file, FallocateFlags::empty(), offset, bytes as u64)?;
        // SAFETY: as above. The file has all its memory now, so a failure only costs page faults.
        let _ = unsafe { madvise(mapped, bytes, Advice::LinuxPopulateWrite) };
        Ok(memory)
    }

    /// Miri has no other processes.
    #[cfg(all(test, miri))]
    pub fn shared(length: usize) -> io::Result<Mapped<T>> {
        Self::new(length)
    }

    /// Shared with the processes that this one forks.
    #[cfg(all(test, not(miri)))]
    pub fn shared(length: usize) -> io::Result<Mapped<T>> {
        let bytes = Self::bytes_of(length).ok_or(io::ErrorKind::OutOfMemory)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new anonymous mapping touches no existing memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), bytes, access, flags)? };
        Ok(Mapped {
            start: NonNull::new(start.cast()).ok_or(io::ErrorKind::OutOfMemory)?,
            length,
        })
    }

    fn bytes_of(length: usize) -> Option<usize> {
        length
            .checked_mul(size_of::<T>())?
            .checked_next_multiple_of(page())
    }
}

/// Makes zeroed memory resident.
///
/// # Safety
/// The range is mapped, in whole pages, and nothing else uses it.
#[cfg(not(miri))]
unsafe fn touch(start: *mut u8, bytes: usize) -> io::Result<()> {
    // SAFETY: populating changes no contents.
    match unsafe { madvise(start.cast(), bytes, Advice::LinuxPopulateWrite) } {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::INVAL) => {
            // Kernels before 5.14: touch every page.
            for offset in (0..bytes).step_by(page()) {
                // SAFETY: the caller's promise.
                unsafe { start.add(offset).write_volatile(0) };
            }
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

impl Mapped<u8> {
    /// Reserves address space only: each part must be touched before it is used.
    pub fn reserve(bytes: usize) -> io::Result<Mapped<u8>> {
        #[cfg(miri)]
        return Self::new(bytes);
        #[cfg(not(miri))]
        {
            let rounded = Self::bytes_of(bytes).ok_or(io::ErrorKind::OutOfMemory)?;
            let memory = Self::untouched(bytes, rounded)?;
            // SAFETY: the mapping just made. A huge page would make more than the requested part resident.
            let _ = unsafe { madvise(memory.as_ptr().cast(), rounded, Advice::LinuxNoHugepage) };
            Ok(memory)
        }
    }

    /// Makes a part of reserved memory resident.
    ///
    /// # Safety
    /// The part has whole pages, and nothing else uses it.
    pub unsafe fn touch(&self, part: std::ops::Range<usize>) -> io::Result<()> {
        assert!(part.end <= self.length);
        #[cfg(not(miri))]
        // SAFETY: within the mapping; the rest is the caller's promise.
        unsafe {
            touch(self.as_ptr().add(part.start), part.len())?;
        }
        Ok(())
    }

    /// Returns a part of reserved memory and its contents to the kernel.
    ///
    /// # Safety
    /// The part has whole pages, and nothing else uses it.
    pub unsafe fn give_back(&self, part: std::ops::Range<usize>) {
        assert!(part.end <= self.length);
        #[cfg(not(miri))]
        // SAFETY: within the mapping; the caller guarantees that nothing uses the contents.
        unsafe {
            let start = self.as_ptr().add(part.start).cast();
            let _ = madvise(start, part.len(), Advice::LinuxDontNeed);
        }
    }
}

impl<T> Mapped<T> {
    pub const fn empty() -> Mapped<T> {
        Mapped {
            start: NonNull::dangling(),
            length: 0,
        }
    }

    pub fn memory_bytes(&self) -> u64 {
        in_pages((self.length * size_of::<T>()) as u64)
    }

    pub fn as_ptr(&self) -> *mut T {
        self.start.as_ptr()
    }
}

impl<T> Deref for Mapped<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `length` values, zeroed at the start, owned by self.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }
}

impl<T> DerefMut for Mapped<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and self is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        if self.length > 0 {
            let bytes = (self.length * size_of::<T>()).next_multiple_of(page());
            #[cfg(miri)]
            // SAFETY: exactly the allocation made in `new`; no reference to it outlives self.
            unsafe {
                let layout = std::alloc::Layout::from_size_align_unchecked(bytes, page());
                std::alloc::dealloc(self.start.as_ptr().cast(), layout);
            }
            #[cfg(not(miri))]
            // SAFETY: exactly the mapping made in `new`; no reference to it outlives self.
            unsafe {
                let _ = munmap(self.start.as_ptr().cast(), bytes);
            }
        }
    }
}

/// Bytes held by all bounce buffers. A gauge: `Relaxed` everywhere.
static BOUNCE_BYTES: AtomicU64 = AtomicU64::new(0);

/// A page-aligned buffer between a disk and unaligned memory, allocated on demand.
pub(crate) struct Bounce(Option<Mapped<u8>>);

impl Bounce {
    pub const NONE: Bounce = Bounce(None);

    /// Makes it at least this long; growing discards the contents. Returns whether there was memory for it.
    pub fn grow(&mut self, bytes: usize) -> bool {
        if self.bytes().len() >= bytes {
            return true;
        }
        *self = Bounce::NONE;
        let Ok(memory) = Mapped::new(bytes) else {
            return false;
        };
        BOUNCE_BYTES.fetch_add(memory.memory_bytes(), Ordering::Relaxed);
        self.0 = Some(memory);
        true
    }

    pub fn bytes(&self) -> &[u8] {
        self.0.as_deref().unwrap_or_default()
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().unwrap_or_default()
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.0.as_ref().map_or(std::ptr::null_mut(), Mapped::as_ptr)
    }
}

impl Drop for Bounce {
    fn drop(&mut self) {
        if let Some(memory) = &self.0 {
            BOUNCE_BYTES.fetch_sub(memory.memory_bytes(), Ordering::Relaxed);
        }
    }
}

/// Bytes of a bounce buffer: a largest page and a block of 4 KiB on either side.
pub(crate) const BOUNCE: usize = crate::common::page::MAX_PAGE + 2 * (4 << 10);

/// Lends a page-aligned buffer of [`BOUNCE`] bytes for a rare operation. `None` if there is no memory. Reads of pages use
/// the slots of [`crate::device::bounded`] instead, whose number is limited.
pub(crate) fn with_buffer<R>(use_buffer: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
    let mut buffer = Bounce::NONE;
    buffer.grow(BOUNCE).then(|| use_buffer(buffer.bytes_mut()))
}

/// Counts memory that the kernel maps for asynchronous I/O.
pub(crate) fn add_bounce_bytes(bytes: u64) {
    BOUNCE_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

/// Call when that memory was released.
pub(crate) fn sub_bounce_bytes(bytes: u64) {
    BOUNCE_BYTES.fetch_sub(bytes, Ordering::Relaxed);
}

pub(crate) fn bounce_bytes() -> u64 {
    BOUNCE_BYTES.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_and_aligned() {
        let mut m = Mapped::<u8>::new(10_000).unwrap();
        assert_eq!(
            m.memory_bytes() as usize,
            10_000_usize.next_multiple_of(page())
        );
        assert_eq!(m.as_ptr() as usize % page(), 0);
        assert!(m.iter().all(|&b| b == 0));
        m[9_999] = 1;
        assert_eq!(Mapped::<u8>::new(0).unwrap().len(), 0);
    }

    #[test]
    #[cfg(not(miri))]
    fn what_is_in_a_file_in_memory_stays() {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        let length = 2 * HUGE_PAGE + 10_000;
        file.set_len((HUGE_PAGE + length.next_multiple_of(page())) as u64)
            .unwrap();
        // SAFETY: only this test has the file.
        let map = |offset| unsafe { Mapped::<u8>::of_file(&file, offset, length) }.unwrap();
        let mut first = map(HUGE_PAGE as u64);
        assert!(first.iter().all(|&b| b == 0));
        assert!((first.as_ptr() as usize).is_multiple_of(HUGE_PAGE));
        first[length - 1] = 7;
        first[HUGE_PAGE + 5] = 8;
        let second = map(HUGE_PAGE as u64);
        drop(first);
        assert_eq!((second[length - 1], second[HUGE_PAGE + 5]), (7, 8));
    }

    #[test]
    fn impossible_sizes_are_errors() {
        assert!(Mapped::<[u64; 8]>::new(usize::MAX / 2).is_err());
        assert!(Mapped::<u8>::new(1 << 60).is_err());
    }

    #[test]
    fn a_buffer_is_as_long_as_a_page_and_its_blocks() {
        assert_eq!(with_buffer(|buffer| buffer.len()), Some(BOUNCE));
    }
}
