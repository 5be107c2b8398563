//! Interface of the coherence protocol to the operating system. The server's process uses the kernel (the plugin's `linux`), a
//! test may use memory.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use crate::platform::sync::JoinHandle;

/// Error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// Device error.
    pub const IO: Errno = Errno(5);
    /// Resource temporarily unavailable.
    pub const AGAIN: Errno = Errno(11);
}

/// The kernel's metadata of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Device, and inode number on it.
    pub inode: (u64, u64),
    /// Bytes.
    pub size: i64,
    /// Last change of the contents: seconds and nanoseconds since 1970, by the clock of the file system.
    pub modified: (i64, i64),
    /// Last change of contents or metadata, likewise.
    pub changed: (i64, i64),
    /// Number of names.
    pub links: u64,
    pub is_regular: bool,
}

/// A mounted file system with reliable change stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileSystem {
    /// The kernel's superblock number, not 0. It changes with each mount and is not reused until the host restarts.
    pub superblock: u64,
    /// UUID of the btrfs subvolume; 0 on other file systems.
    pub subvolume: u128,
}

/// Severity of a line in the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Information.
    Note,
    /// A function is degraded.
    Warning,
    /// A requested action failed.
    Error,
}

/// The operating system.
pub trait Os: Send + Sync + 'static {
    /// Metadata of a descriptor's file.
    fn stat(&self, fd: i32) -> Option<Stat>;

    /// Metadata of the file at a path, relative to a directory descriptor or to the working directory ([`Os::HERE`]).
    fn stat_at(&self, directory: i32, path: &CStr) -> Option<Stat>;

    /// The working directory, for [`stat_at`](Self::stat_at).
    const HERE: i32;

    /// Reads from a file at an offset, as the server does. Returns the number of bytes.
    ///
    /// # Errors
    /// The kernel's error.
    ///
    /// # Safety
    /// `to` must be valid for writes of `length` bytes.
    unsafe fn read(&self, fd: i32, to: *mut u8, length: usize, at: i64) -> Result<usize, Errno>;

    /// Sleeps for this time.
    fn pause(&self, _time: Duration) {}

    /// Descriptors of the process, in no order.
    fn open_descriptors(&self) -> Vec<i32>;

    /// The kernel's path of a descriptor's file, if available.
    fn path_of(&self, fd: i32) -> Option<Vec<u8>>;

    /// Time since the host's start, without suspended time. Resolution: some milliseconds.
    fn running(&self) -> Duration;

    /// Time since the host's start in nanoseconds, including suspended time.
    fn since_boot(&self) -> i128;

    /// Coarse clock of file timestamps, in nanoseconds since 1970. It may be set forward and back.
    fn file_time(&self) -> i64;

    /// Creation time of a descriptor's file in nanoseconds since 1970, if known.
    fn birth(&self, _fd: i32) -> Option<u64> {
        None
    }

    /// The mounted file system, if its change stamps are reliable ([`crate::restart::stamp`]). `device`: as in [`Stat::inode`];
    /// `fd`: of a file on it.
    fn file_system(&self, _device: u64, _fd: i32) -> Option<FileSystem> {
        None
    }

    /// Whether a descriptor bypasses the page cache (O_DIRECT).
    fn is_direct(&self, _fd: i32) -> bool {
        false
    }

    /// Starts a thread that blocks the server's signals.
    ///
    /// # Errors
    /// The kernel cannot create a thread.
    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>>;

    /// Writes a line to the server's error log.
    fn log(&self, level: Level, text: &str);

    /// Logs a note.
    fn note(&self, text: &str) {
        self.log(Level::Note, text);
    }

    /// Logs a warning.
    fn warning(&self, text: &str) {
        self.log(Level::Warning, text);
    }

    /// Logs an error.
    fn error(&self, text: &str) {
        self.log(Level::Error, text);
    }
}
