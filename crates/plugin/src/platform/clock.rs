//! The clocks that decisions depend on.
//!
//! Durations use a monotonic clock, which cannot be set. It stops during a suspend of the host, as the server's threads
//! do. File system times use another clock, which an administrator may set.

use std::time::Duration;

#[cfg(any(test, debug_assertions))]
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// Manipulations of the clocks by tests.
#[cfg(any(test, debug_assertions))]
pub struct TestClock {
    /// Nanoseconds added to [`running`].
    pub passed: AtomicU64,
    /// [`running`] advances by `passed` alone, however slow the machine is.
    pub stands: AtomicBool,
    /// Nanoseconds by which [`file_time`] was set.
    pub set_by: AtomicI64,
}

#[cfg(any(test, debug_assertions))]
pub static TEST_CLOCK: TestClock = TestClock {
    passed: AtomicU64::new(0),
    stands: AtomicBool::new(false),
    set_by: AtomicI64::new(0),
};

/// Time since the boot of the host, without suspends.
pub fn running() -> Duration {
    let now = read(libc::CLOCK_MONOTONIC_COARSE);
    #[cfg(any(test, debug_assertions))]
    let now = TEST_CLOCK.running(now);
    now
}

/// Time since the boot of the host, in nanoseconds, including suspends.
pub fn since_boot() -> i128 {
    nanoseconds(read(libc::CLOCK_BOOTTIME))
}

/// The coarse clock of file system times, in nanoseconds since 1970. It may jump forwards and backwards.
pub fn file_time() -> i64 {
    let now = read(libc::CLOCK_REALTIME_COARSE).as_nanos();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    #[cfg(any(test, debug_assertions))]
    let now = now + TEST_CLOCK.set_by.load(Ordering::SeqCst);
    now
}

#[cfg(any(test, debug_assertions))]
impl TestClock {
    fn running(&self, now: Duration) -> Duration {
        // Some hours after the boot of the host.
        const STOOD: Duration = Duration::from_secs(10_000);
        let now = if self.stands.load(Ordering::SeqCst) {
            STOOD
        } else {
            now
        };
        now + Duration::from_nanos(self.passed.load(Ordering::SeqCst))
    }
}

fn nanoseconds(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

fn read(clock: libc::clockid_t) -> Duration {
    // SAFETY: an all-zero time is a valid value; the call fills it.
    let now = unsafe {
        let mut now: libc::timespec = std::mem::zeroed();
        libc::clock_gettime(clock, &mut now);
        now
    };
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}
