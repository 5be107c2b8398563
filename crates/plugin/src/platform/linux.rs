//! The operating system, as the kernel and the server's process show it.

use std::ffi::{CStr, c_int, c_void};
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStringExt;
use std::thread::JoinHandle;
use std::time::Duration;

use coherence::os::{Errno, FileSystem, Level, Os, Stat};
use libc::{off64_t, size_t, ssize_t};
use rustix::fs::{self, AtFlags, FileType, StatxFlags};
use rustix::io::fcntl_getfd;
use rustix::process::{Resource, getrlimit};

use crate::platform::clock;
use crate::platform::error_log::ERROR_LOG;
use crate::platform::original::Original;

/// The server's process on Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

/// `pread64`.
pub type Pread = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t;

/// The server's own `pread64`.
pub static PREAD: Original = Original::new();

/// Limit on tracked descriptors.
pub const DESCRIPTORS: usize = 1 << 20;

/// Stack size of a thread, bytes.
const STACK: usize = 256 << 10;

impl Os for Linux {
    const HERE: i32 = libc::AT_FDCWD;

    fn stat(&self, fd: i32) -> Option<Stat> {
        fs::fstat(borrowed(fd)?).ok().map(stat_of)
    }

    fn stat_at(&self, directory: i32, path: &CStr) -> Option<Stat> {
        let directory = if directory == Self::HERE {
            fs::CWD
        } else {
            borrowed(directory)?
        };
        fs::statat(directory, path, AtFlags::empty())
            .ok()
            .map(stat_of)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    unsafe fn read(&self, fd: i32, to: *mut u8, length: usize, at: i64) -> Result<usize, Errno> {
        // SAFETY: the caller's promise. The slot was patched before any hook could get here.
        let read = unsafe { PREAD.get::<Pread>()(fd, to.cast(), length, at) };
        usize::try_from(read).map_err(|_| Errno(errno()))
    }

    fn open_descriptors(&self) -> Vec<i32> {
        if let Ok(directory) = std::fs::read_dir("/proc/self/fd") {
            return directory
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .collect();
        }
        let is_open = |fd: &i32| borrowed(*fd).is_some_and(|fd| fcntl_getfd(fd).is_ok());
        (0..open_limit()).filter(is_open).collect()
    }

    fn path_of(&self, fd: i32) -> Option<Vec<u8>> {
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        Some(path.into_os_string().into_vec())
    }

    fn running(&self) -> Duration {
        clock::running()
    }

    fn since_boot(&self) -> i128 {
        clock::since_boot()
    }

    fn file_time(&self) -> i64 {
        clock::file_time()
    }

    fn birth(&self, fd: i32) -> Option<u64> {
        let asked = StatxFlags::BTIME;
        let seen = fs::statx(borrowed(fd)?, c"", AtFlags::EMPTY_PATH, asked).ok()?;
        let has_birth = seen.stx_mask & asked.bits() != 0;
        let seconds = u64::try_from(seen.stx_btime.tv_sec).ok()?;
        let nanoseconds = u64::from(seen.stx_btime.tv_nsec);
        has_birth.then_some(
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(nanoseconds),
        )
    }

    fn file_system(&self, device: u64, fd: i32) -> Option<FileSystem> {
        crate::platform::mount_id::file_system(device, borrowed(fd)?)
    }

    fn is_direct(&self, fd: i32) -> bool {
        let flags = borrowed(fd).and_then(|fd| fs::fcntl_getfl(fd).ok());
        flags.is_some_and(|flags| flags.contains(fs::OFlags::DIRECT))
            && accepts_direct(direct_alignment(fd))
    }

    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        cache::spawn(name.into(), STACK, body)
    }

    fn log(&self, level: Level, text: &str) {
        ERROR_LOG.line(level, text);
    }
}

/// Alignment of direct I/O in the file; 0: its writes use the page cache in spite of `O_DIRECT`. `None` before Linux 6.1, and
/// where the file system does not report it.
fn direct_alignment(fd: c_int) -> Option<u32> {
    let asked = StatxFlags::DIOALIGN;
    let seen = fs::statx(borrowed(fd)?, c"", AtFlags::EMPTY_PATH, asked).ok()?;
    (seen.stx_mask & asked.bits() != 0).then_some(seen.stx_dio_offset_align)
}

/// Whether direct I/O with this alignment bypasses the page cache; `None` if the kernel does not report one.
fn accepts_direct(alignment: Option<u32>) -> bool {
    alignment != Some(0)
}

/// The thread's errno.
pub fn errno() -> i32 {
    // SAFETY: always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

/// Sets the thread's errno.
pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Borrows a descriptor of the server for one call. The call reports an invalid descriptor.
fn borrowed(fd: i32) -> Option<BorrowedFd<'static>> {
    // SAFETY: the result is used for one call only, which accepts any non-negative number. The rules ensure that the
    // descriptor is still open, for the same file.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

fn stat_of(stat: fs::Stat) -> Stat {
    Stat {
        inode: (stat.st_dev, stat.st_ino),
        size: stat.st_size,
        #[allow(
            clippy::unnecessary_cast,
            reason = "of another sign on other processors"
        )]
        modified: (stat.st_mtime as i64, stat.st_mtime_nsec as i64),
        #[allow(clippy::unnecessary_cast, reason = "as above")]
        changed: (stat.st_ctime as i64, stat.st_ctime_nsec as i64),
        #[allow(clippy::unnecessary_cast, reason = "32 bits on other processors")]
        links: stat.st_nlink as u64,
        is_regular: FileType::from_raw_mode(stat.st_mode).is_file(),
    }
}

/// Limit on the process's descriptors.
fn open_limit() -> i32 {
    let limit = getrlimit(Resource::Nofile).current;
    limit.map_or(DESCRIPTORS as i32, |limit| {
        limit.min(DESCRIPTORS as u64) as i32
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn stat_matches_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.ibd");
        std::fs::write(&path, [0; 100]).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        let stat = Linux.stat(file.as_raw_fd()).unwrap();
        assert_eq!((stat.size, stat.links, stat.is_regular), (100, 1, true));
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        assert_eq!(Linux.stat_at(Linux::HERE, &name), Some(stat));
        let directory = std::fs::File::open(folder.path()).unwrap();
        let below = Linux.stat_at(directory.as_raw_fd(), c"t.ibd");
        assert_eq!(below.map(|below| below.inode), Some(stat.inode));
        assert!(!Linux.stat(directory.as_raw_fd()).unwrap().is_regular);
        assert_eq!(Linux.path_of(file.as_raw_fd()), Some(name.into_bytes()));
        assert!(Linux.open_descriptors().contains(&file.as_raw_fd()));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(Linux.stat(file.as_raw_fd()).unwrap().links, 0);
    }

    /// Such a file accepts O_DIRECT and is written through the page cache. ext4 reports that from Linux 6.1 on.
    #[test]
    fn file_without_alignment_is_not_direct() {
        use std::os::unix::fs::OpenOptionsExt;
        assert!(accepts_direct(None), "an older kernel");
        assert!(accepts_direct(Some(512)) && !accepts_direct(Some(0)));
        let folder = tempfile::tempdir_in(".").unwrap();
        let path = folder.path().join("t.ibd");
        let mut options = std::fs::File::options();
        let options = options.read(true).write(true).create(true);
        let plain = options.open(&path).unwrap();
        assert!(!Linux.is_direct(plain.as_raw_fd()));
        let Ok(direct) = options.custom_flags(libc::O_DIRECT).open(&path) else {
            return;
        };
        let is_journaled = fs::ioctl_getflags(&plain)
            .and_then(|flags| fs::ioctl_setflags(&plain, flags | fs::IFlags::JOURNALING))
            .is_ok();
        if is_journaled {
            assert!(!Linux.is_direct(direct.as_raw_fd()));
        } else {
            println!("not tried: the file system or the user cannot journal data");
        }
    }

    #[test]
    fn stat_of_no_file_leaves_errno() {
        set_errno(libc::EXDEV);
        for fd in [-1, i32::MIN, i32::MAX] {
            assert_eq!(Linux.stat(fd), None);
        }
        assert_eq!(Linux.stat_at(Linux::HERE, c"/there/is/none"), None);
        assert_eq!(Linux.stat_at(i32::MAX, c"none"), None);
        assert_eq!(errno(), libc::EXDEV);
    }
}
