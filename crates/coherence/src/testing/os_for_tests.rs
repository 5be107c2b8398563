//! Operating system for tests: the test sets its clocks, the files are real.

use std::collections::VecDeque;
use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use cache::Extension;

use crate::core::Core;
use crate::files::{Slot, empty_slot};
use crate::platform::os::FileSystem;
use crate::platform::os::{Errno, Level, Os, Stat};
use crate::platform::sync::JoinHandle;
use crate::switch::{Active, Switch};

#[derive(Default)]
pub struct TestOs {
    /// Nanoseconds by which simulated time is ahead.
    passed: AtomicU64,
    /// Nanoseconds by which the clock of file timestamps is shifted.
    set_by: AtomicI64,
    /// Superblock of every file; 0: a file system without reliable change stamps.
    pub superblock: AtomicU64,
    /// Lower half of the UUID of the files' subvolume.
    pub subvolume: AtomicU64,
    /// Creation time of every file; 0: unknown.
    pub birth: AtomicU64,
    /// What a scan finds in each pass; later passes find nothing.
    pub found: Mutex<VecDeque<Vec<i32>>>,
}

impl TestOs {
    pub fn let_pass(&self, time: Duration) {
        self.passed
            .fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Shifts the clock of file timestamps by this many nanoseconds.
    pub fn set_clock_by(&self, nanoseconds: i64) {
        self.set_by.store(nanoseconds, Ordering::SeqCst);
    }
}

/// Creates a core for one test, with a table of 1024 descriptors.
pub fn core() -> &'static Core<TestOs> {
    let table: Vec<Slot> = (0..1024).map(|_| empty_slot()).collect();
    Box::leak(Box::new(Core::new(TestOs::default(), table.leak())))
}

/// Creates an extension with a small cache file for one test.
pub fn active_in(switch: &Switch, folder: &std::path::Path) -> Arc<Active> {
    active_with(switch, folder, None)
}

/// As [`active_in`], with a timeout for reads of the cache file.
pub fn active_with(
    switch: &Switch,
    folder: &std::path::Path,
    read_timeout: Option<Duration>,
) -> Arc<Active> {
    let device = cache::DeviceConfig {
        path: folder.to_path_buf(),
        bytes: 16 << 20,
        owner: cache::OwnerIdentity([7; 16]),
        file_name: "cache".into(),
    };
    let config = cache::Config {
        devices: vec![device],
        policy: cache::PolicyName::SecondChance,
        read_timeout,
        ..cache::Config::default()
    };
    let extension =
        Extension::open_inline(config, Arc::clone(switch.generations())).expect("opened");
    Arc::new(Active::new(extension, switch.next_epoch()))
}

/// Converts the result of a stat call.
fn stat_by(call: impl FnOnce(&mut libc::stat64) -> i32) -> Option<Stat> {
    // SAFETY: an all-zero stat is a valid value.
    let mut stat: libc::stat64 = unsafe { std::mem::zeroed() };
    (call(&mut stat) == 0).then_some(Stat {
        inode: (stat.st_dev, stat.st_ino),
        size: stat.st_size,
        modified: (stat.st_mtime, stat.st_mtime_nsec),
        changed: (stat.st_ctime, stat.st_ctime_nsec),
        #[allow(clippy::unnecessary_cast, reason = "32 bits on other processors")]
        links: stat.st_nlink as u64,
        is_regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
    })
}

fn now(clock: libc::clockid_t) -> Duration {
    // SAFETY: an all-zero time is a valid value; the call fills it.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut now);
        now
    };
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

impl Os for TestOs {
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
        // SAFETY: the caller's promise.
        let read = unsafe { libc::pread64(fd, to.cast(), length, at) };
        usize::try_from(read).map_err(|_| Errno::IO)
    }

    fn open_descriptors(&self) -> Vec<i32> {
        self.found.lock().unwrap().pop_front().unwrap_or_default()
    }

    fn path_of(&self, _: i32) -> Option<Vec<u8>> {
        None
    }

    fn running(&self) -> Duration {
        now(libc::CLOCK_MONOTONIC_COARSE) + Duration::from_nanos(self.passed.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> i128 {
        now(libc::CLOCK_BOOTTIME).as_nanos() as i128
    }

    fn file_time(&self) -> i64 {
        let now = now(libc::CLOCK_REALTIME_COARSE).as_nanos() as i64;
        now + self.set_by.load(Ordering::SeqCst)
    }

    fn birth(&self, _: i32) -> Option<u64> {
        Some(self.birth.load(Ordering::SeqCst)).filter(|&birth| birth != 0)
    }

    fn file_system(&self, _: u64, _: i32) -> Option<FileSystem> {
        let superblock = self.superblock.load(Ordering::SeqCst);
        (superblock != 0).then(|| FileSystem {
            superblock,
            subvolume: self.subvolume.load(Ordering::SeqCst).into(),
        })
    }

    fn is_direct(&self, fd: i32) -> bool {
        // SAFETY: a plain call.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFL) };
        flags & libc::O_DIRECT != 0
    }

    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        #[cfg(not(checker))]
        return std::thread::Builder::new().name(name.into()).spawn(body);
        #[cfg(checker)]
        return Err(io::Error::other(format!("{name}: {}", size_of_val(&body))));
    }

    fn log(&self, _: Level, text: &str) {
        println!("{text}");
    }
}
