//! A machine whose clocks a test sets, and whose files are this one's.

use std::ffi::CStr;
use std::io;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::core::Core;
use crate::files::{Slot, empty_slot};
use crate::linux::Linux;
use crate::os::{Errno, Level, Os, Stat};

#[derive(Default)]
pub struct Machine {
    /// Nanoseconds by which time has passed faster.
    passed: AtomicU64,
    /// Nanoseconds by which the clock of the files' times was set.
    set_by: AtomicI64,
}

impl Machine {
    pub fn let_pass(&self, time: Duration) {
        self.passed
            .fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    /// Sets the clock of the files' times, by so many nanoseconds from what it is.
    pub fn set_clock_by(&self, nanoseconds: i64) {
        self.set_by.store(nanoseconds, Ordering::SeqCst);
    }
}

/// A core of a test's own, for some descriptors.
pub fn core() -> &'static Core<Machine> {
    let table: Vec<Slot> = (0..1024).map(|_| empty_slot()).collect();
    Box::leak(Box::new(Core::new(Machine::default(), table.leak())))
}

impl Os for Machine {
    const HERE: i32 = Linux::HERE;

    fn stat(&self, fd: i32) -> Option<Stat> {
        Linux.stat(fd)
    }

    fn stat_at(&self, directory: i32, path: &CStr) -> Option<Stat> {
        Linux.stat_at(directory, path)
    }

    unsafe fn read(&self, fd: i32, to: *mut u8, length: usize, at: i64) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        unsafe { Linux.read(fd, to, length, at) }
    }

    fn open_descriptors(&self) -> Vec<i32> {
        Linux.open_descriptors()
    }

    fn path_of(&self, fd: i32) -> Option<Vec<u8>> {
        Linux.path_of(fd)
    }

    fn running(&self) -> Duration {
        Linux.running() + Duration::from_nanos(self.passed.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> i128 {
        Linux.since_boot()
    }

    fn file_time(&self) -> i128 {
        Linux.file_time() + i128::from(self.set_by.load(Ordering::SeqCst))
    }

    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        Linux.spawn(name, body)
    }

    fn log(&self, level: Level, text: &str) {
        Linux.log(level, text);
    }
}
