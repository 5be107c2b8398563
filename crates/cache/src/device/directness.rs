//! Detects whether reads and writes of a cache file bypass the kernel's page cache.
//!
//! `O_DIRECT` does not guarantee it. From Linux 6.15 on, btrfs buffers direct I/O of files whose data have checksums.
//! Buffered I/O cannot be submitted without waiting: the thread sleeps inside `io_submit`. So a cache file is created without
//! copy-on-write where the file system supports that. It then has no checksums there either; the extension verifies each
//! page by its own check. Remaining buffered I/O is detected by a query of the page cache.
//!
//! A file system may also be unable to read without waiting for its own locks ([`reads_without_waiting`]).

use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::{IFlags, fstatfs, ioctl_getflags, ioctl_setflags};
use rustix::io::{Errno, ReadWriteFlags};

use crate::common::memory::with_buffer;
use crate::device::segment::format::DATA_OFFSET;

/// Bytes of a usual page.
const PAGE: usize = 16 << 10;

/// `BTRFS_SUPER_MAGIC` and `TMPFS_MAGIC` of linux/magic.h.
const BTRFS: u64 = 0x9123_683e;
const TMPFS: u64 = 0x0102_1994;

/// Disables copy-on-write, and with it checksums, for an empty file. A file system that refuses keeps both.
pub(super) fn take_copy_on_write(file: &File) {
    let is_btrfs = fstatfs(file).is_ok_and(|about| about.f_type as u64 == BTRFS);
    if is_btrfs && let Ok(flags) = ioctl_getflags(file) {
        let _ = ioctl_setflags(file, flags | IFlags::NOCOW);
    }
}

/// Attempts of a read that does not wait: other threads may hold a lock at that moment.
const TRIES: usize = 3;

/// Whether the file system supports reads of a page with `RWF_NOWAIT`. btrfs fails reads of more than 4 KiB with EAGAIN (seen on 6.18).
pub(super) fn reads_without_waiting(file: BorrowedFd<'_>) -> bool {
    let refuses = with_buffer(|buffer| {
        (0..TRIES).all(|_| {
            let buffer = &mut buffer[..PAGE];
            let to = &mut [IoSliceMut::new(buffer)];
            rustix::io::preadv2(file, to, DATA_OFFSET, ReadWriteFlags::NOWAIT) == Err(Errno::AGAIN)
        })
    });
    refuses != Some(true)
}

/// Whether a direct read of this offset, just made, went through the page cache. False for tmpfs: it is only a page cache, and
/// its requests never wait.
pub(super) fn is_buffered(file: &File, offset: u64) -> bool {
    let is_memory = fstatfs(file).is_ok_and(|about| about.f_type as u64 == TMPFS);
    !is_memory && is_in_page_cache(file, offset)
}

/// Whether the page cache holds the file's page at this offset; `false` if the kernel does not report it.
fn is_in_page_cache(file: &File, offset: u64) -> bool {
    let page = crate::common::memory::page();
    let offset = offset / page as u64 * page as u64;
    // SAFETY: a new mapping of a file, which is not touched, so it may end before the page.
    let mapped = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            page,
            libc::PROT_READ,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            offset as libc::off_t,
        )
    };
    if mapped == libc::MAP_FAILED {
        return false;
    }
    let mut resident = 0_u8;
    // SAFETY: the mapping has one page, and the vector one byte for it.
    let told = unsafe { libc::mincore(mapped, page, &raw mut resident) } == 0;
    // SAFETY: the mapping made above, to which nothing refers.
    unsafe { libc::munmap(mapped, page) };
    told && resident & 1 != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn what_was_written_through_the_page_cache_is_there() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![1; 4 * crate::common::memory::page()])
            .unwrap();
        assert!(is_in_page_cache(&file, 4096));
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let is_kept = is_in_page_cache(&file, 4096);
        let is_tmpfs = fstatfs(&file).unwrap().f_type as u64 == TMPFS;
        assert_eq!(is_kept, is_tmpfs);
        assert!(!is_in_page_cache(&File::open("/dev/null").unwrap(), 0));
    }

    #[test]
    fn other_file_systems_than_btrfs_keep_their_flags() {
        let file = tempfile::tempfile().unwrap();
        let before = ioctl_getflags(&file).ok();
        take_copy_on_write(&file);
        let is_btrfs = fstatfs(&file).unwrap().f_type as u64 == BTRFS;
        assert!(is_btrfs || ioctl_getflags(&file).ok() == before);
    }
}
