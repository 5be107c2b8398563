//! The clocks that decide something here.
//!
//! How long something lasted is told by a clock that nobody can set. It stands still while the machine sleeps, as every
//! thread of the server does then. The clock of the file systems' times is another one: an administrator may set it.

use std::time::Duration;

#[cfg(any(test, debug_assertions))]
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

/// How tests have set the clocks.
#[cfg(any(test, debug_assertions))]
pub struct Turned {
    /// Nanoseconds by which time was let pass, for [`running`].
    pub passed: AtomicU64,
    /// [`running`] goes on by `passed` alone, however slow the machine is.
    pub stands: AtomicBool,
    /// Nanoseconds by which [`file_time`] was set.
    pub set_by: AtomicI64,
}

#[cfg(any(test, debug_assertions))]
pub static TURNED: Turned = Turned {
    passed: AtomicU64::new(0),
    stands: AtomicBool::new(false),
    set_by: AtomicI64::new(0),
};

/// How long the machine has run, without the time that it slept.
pub fn running() -> Duration {
    let now = read(libc::CLOCK_MONOTONIC_COARSE);
    #[cfg(any(test, debug_assertions))]
    let now = TURNED.running(now);
    now
}

/// How long ago the machine was started, in nanoseconds, with the time that it slept.
pub fn since_boot() -> i128 {
    nanoseconds(read(libc::CLOCK_BOOTTIME))
}

/// The coarse clock of the file systems' times, in nanoseconds since 1970. It may be set forth and back.
pub fn file_time() -> i64 {
    let now = read(libc::CLOCK_REALTIME_COARSE).as_nanos();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    #[cfg(any(test, debug_assertions))]
    let now = now + TURNED.set_by.load(Ordering::SeqCst);
    now
}

#[cfg(any(test, debug_assertions))]
impl Turned {
    fn running(&self, now: Duration) -> Duration {
        // Some hours after the start of the machine.
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
