//! What the rules of coherence need from the machine they run on, and nothing else: the server's process has it from the
//! kernel (the plugin's `linux`), a test may have it from memory.

use std::ffi::CStr;
use std::io;
use std::time::Duration;

use crate::sync::JoinHandle;

/// An error number of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// An error of a device.
    pub const IO: Errno = Errno(5);
    /// Try again.
    pub const AGAIN: Errno = Errno(11);
}

/// What the kernel says of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Device and number on it.
    pub inode: (u64, u64),
    /// Bytes.
    pub size: i64,
    /// When the contents were last changed: seconds and nanoseconds since 1970, by the clock of the file system.
    pub modified: (i64, i64),
    /// When anything of it was last changed, likewise.
    pub changed: (i64, i64),
    /// Names it has.
    pub links: u64,
    /// A regular file.
    pub is_regular: bool,
}

/// A mounted file system whose stamps prove something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileSystem {
    /// The kernel's number of the superblock: another one after each mount, never used twice until the machine restarts, not 0.
    pub superblock: u64,
    /// UUID of the btrfs subvolume; 0 on other file systems.
    pub subvolume: u128,
}

/// How urgent a line in the error log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// For the record.
    Note,
    /// Something works less well than it could.
    Warning,
    /// Something asked for is not done.
    Error,
}

/// The machine.
pub trait Os: Send + Sync + 'static {
    /// The file behind a descriptor.
    fn stat(&self, fd: i32) -> Option<Stat>;

    /// The file at a path, relative to the directory of a descriptor or to where the process works ([`Os::HERE`]).
    fn stat_at(&self, directory: i32, path: &CStr) -> Option<Stat>;

    /// The directory that the process works in, for [`stat_at`](Self::stat_at).
    const HERE: i32;

    /// Reads as the server itself does, at a place of a file. How many bytes.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// `to` must be valid for writes of `length` bytes.
    unsafe fn read(&self, fd: i32, to: *mut u8, length: usize, at: i64) -> Result<usize, Errno>;

    /// Waits for so long.
    fn pause(&self, _time: Duration) {}

    /// Descriptors that the process has, without order.
    fn open_descriptors(&self) -> Vec<i32>;

    /// The path by which the kernel knows the file of a descriptor, if it tells.
    fn path_of(&self, fd: i32) -> Option<Vec<u8>>;

    /// How long the machine has run, without the time that it slept. In steps of some milliseconds.
    fn running(&self) -> Duration;

    /// How long ago the machine was started, in nanoseconds, with the time that it slept.
    fn since_boot(&self) -> i128;

    /// The coarse clock of the file systems' times, in nanoseconds since 1970. It may be set forth and back.
    fn file_time(&self) -> i64;

    /// When the file of a descriptor was made, in nanoseconds since 1970, if that is known.
    fn birth(&self, _fd: i32) -> Option<u64> {
        None
    }

    /// The mounted file system, if its change stamps prove something ([`crate::stamp`]). `device`: as in [`Stat::inode`]; `fd`: of a
    /// file on it.
    fn file_system(&self, _device: u64, _fd: i32) -> Option<FileSystem> {
        None
    }

    /// Whether a descriptor passes the page cache by (O_DIRECT).
    fn is_direct(&self, _fd: i32) -> bool {
        false
    }

    /// Starts a thread that no signal of the server's is delivered to.
    ///
    /// # Errors
    /// The kernel gives none.
    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>>;

    /// Writes a line to the server's error log.
    fn log(&self, level: Level, text: &str);

    /// A line for the record.
    fn note(&self, text: &str) {
        self.log(Level::Note, text);
    }

    /// A warning.
    fn warning(&self, text: &str) {
        self.log(Level::Warning, text);
    }

    /// An error.
    fn error(&self, text: &str) {
        self.log(Level::Error, text);
    }
}
