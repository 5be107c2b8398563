//! The machine as the kernel and the server's process show it.

use std::ffi::{CStr, CString, c_int, c_void};
use std::io;
use std::thread::JoinHandle;
use std::time::Duration;

use libc::{off64_t, size_t, ssize_t};

use crate::got::Original;
use crate::os::{Errno, Level, Os, Stat};
use crate::{clock, journal};

/// The server's process, under Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct Linux;

/// `pread64`.
pub type Pread = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t;

/// The server's own `pread64`.
pub static PREAD: Original = Original::new();

/// Descriptors beyond this are not followed.
pub const DESCRIPTORS: usize = 1 << 20;

impl Os for Linux {
    const HERE: i32 = libc::AT_FDCWD;

    fn stat(&self, fd: i32) -> Option<Stat> {
        // SAFETY: the call fills the structure.
        stat_by(|stat| unsafe { libc::fstat64(fd, stat) })
    }

    fn stat_at(&self, directory: i32, path: &CStr) -> Option<Stat> {
        // SAFETY: a valid string; the call fills the structure.
        stat_by(|stat| unsafe { libc::fstatat64(directory, path.as_ptr(), stat, 0) })
    }

    unsafe fn read(&self, fd: i32, to: *mut u8, length: usize, at: i64) -> Result<usize, Errno> {
        // SAFETY: the caller's promise; the slot was patched before anything could get here.
        let read = unsafe { PREAD.get::<Pread>()(fd, to.cast(), length, at) };
        usize::try_from(read).map_err(|_| Errno(errno()))
    }

    fn open_descriptors(&self) -> Vec<i32> {
        if let Ok(directory) = std::fs::read_dir("/proc/self/fd") {
            return directory
                .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
                .collect();
        }
        // SAFETY: asks for flags of a descriptor, valid or not.
        (0..open_limit() as i32)
            .filter(|&fd| unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0)
            .collect()
    }

    fn path_of(&self, fd: i32) -> Option<Vec<u8>> {
        let link = CString::new(format!("/proc/self/fd/{fd}")).ok()?;
        let mut name = vec![0u8; 4096];
        // SAFETY: the buffer is valid for its length.
        let length = unsafe { libc::readlink(link.as_ptr(), name.as_mut_ptr().cast(), name.len()) };
        name.truncate(usize::try_from(length).ok()?);
        Some(name)
    }

    fn running(&self) -> Duration {
        clock::running()
    }

    fn since_boot(&self) -> i128 {
        clock::since_boot()
    }

    fn file_time(&self) -> i128 {
        clock::file_time()
    }

    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        // SAFETY: the sets are local; the mask of this thread is put back right after, the new thread inherits it full.
        unsafe {
            let mut all: libc::sigset_t = std::mem::zeroed();
            let mut before: libc::sigset_t = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
            let thread = std::thread::Builder::new()
                .name(name.into())
                .stack_size(256 * 1024)
                .spawn(body);
            libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
            thread
        }
    }

    fn log(&self, level: Level, text: &str) {
        journal::line(level, text);
    }
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

/// What a call fills in, with errno left as it was.
fn stat_by(call: impl FnOnce(&mut libc::stat64) -> c_int) -> Option<Stat> {
    let kept = errno();
    // SAFETY: an all-zero stat is a valid value.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    let result = call(&mut stat);
    set_errno(kept);
    (result == 0).then_some(Stat {
        inode: (stat.st_dev, stat.st_ino),
        size: stat.st_size,
        modified: (stat.st_mtime, stat.st_mtime_nsec),
        changed: (stat.st_ctime, stat.st_ctime_nsec),
        #[allow(clippy::unnecessary_cast, reason = "32 bits on other processors")]
        links: stat.st_nlink as u64,
        is_regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
    })
}

/// How many descriptors the process may have.
fn open_limit() -> usize {
    // SAFETY: the call fills the structure.
    let limit = unsafe {
        let mut limit: libc::rlimit = std::mem::zeroed();
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur
        } else {
            65536
        }
    };
    usize::try_from(limit)
        .unwrap_or(DESCRIPTORS)
        .min(DESCRIPTORS)
}
