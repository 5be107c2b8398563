//! Detects asynchronous I/O whose submissions no hook sees.
//!
//! Some builds have libaio or liburing linked in. While InnoDB does without (`innodb_use_native_aio=OFF`, or because the
//! kernel refuses it), all its I/O is plain calls, which the hooks see. Therefore this module checks what the process has
//! set up: before anything is served, and periodically. InnoDB decides when it starts, before it reads a page.
//!
//! The kernel maps an event ring for every libaio context, and an io_uring is a descriptor. Bounded reads of the cache also
//! have contexts, in a known number. Contexts of other plugins are indistinguishable from InnoDB's.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use coherence::scan;
use interface::in_use::{aio_contexts, is_io_uring};
use interface::{InUse, Refusal, Verdict, Way};
use parking_lot::Mutex;

use crate::platform::Linux;

/// Interval between two checks.
const CHECK_INTERVAL: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(1)
} else {
    Duration::from_secs(10)
};
/// The plugin's own contexts are counted shortly after their creation.
const RECHECK_DELAY: Duration = Duration::from_millis(20);

/// State of the detection.
pub struct AsyncIo {
    /// The verdict on the executable's imports; `None` until the calls are intercepted. The lock is a leaf.
    verdict: Mutex<Option<Verdict>>,
    /// Serving is withheld until InnoDB has chosen its kind of asynchronous I/O.
    waits_for_innodb: AtomicBool,
    /// The server was seen submitting through io_uring.
    pub io_uring_seen: AtomicBool,
    /// Makes io_uring look unavailable: the server falls back to libaio, whose completions are visible.
    pub make_io_uring_fail: AtomicBool,
    /// Makes libaio look unavailable: the server avoids submissions that no hook would see.
    pub make_libaio_fail: AtomicBool,
}

pub static ASYNC_IO: AsyncIo = AsyncIo {
    verdict: Mutex::new(None),
    waits_for_innodb: AtomicBool::new(false),
    io_uring_seen: AtomicBool::new(false),
    make_io_uring_fail: AtomicBool::new(false),
    make_libaio_fail: AtomicBool::new(false),
};

/// Interfaces that are to look unavailable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fails {
    pub libaio: bool,
    pub io_uring: bool,
}

/// Chooses the interfaces that must look unavailable to a server that has not started InnoDB yet. These are interfaces
/// without visible submissions. io_uring is also one of them where the server can use libaio instead, whose completions are
/// visible. Without libaio, the server would use no native asynchronous I/O at all, which is worse than visible submissions
/// only.
pub fn to_make_fail(verdict: &Verdict) -> Fails {
    let is_untracked = |way: &Way| matches!(way, Way::Unseen(_));
    Fails {
        libaio: verdict.libaio_can_fail && is_untracked(&verdict.libaio),
        io_uring: verdict.io_uring_can_fail
            && (is_untracked(&verdict.io_uring) || verdict.libaio == Way::Seen),
    }
}

/// Stores the verdict. Call when the calls are intercepted and the executable's imports are judged.
pub fn begin(verdict: Verdict) {
    let depends = [&verdict.libaio, &verdict.io_uring]
        .iter()
        .any(|way| matches!(way, Way::Unseen(_)));
    ASYNC_IO.waits_for_innodb.store(depends, Ordering::SeqCst);
    *ASYNC_IO.verdict.lock() = Some(verdict);
}

/// Whether the decision depends on InnoDB's choice, and InnoDB has not started.
pub fn waits_for_innodb() -> bool {
    ASYNC_IO.waits_for_innodb.load(Ordering::SeqCst) && !scan::innodb_is_running(&Linux)
}

/// Whether the server was seen submitting through io_uring.
pub fn io_uring_seen() -> bool {
    ASYNC_IO.io_uring_seen.load(Ordering::Relaxed)
}

/// Checks now. Returns why the server cannot be tracked, if so.
pub fn refusal() -> Option<Refusal> {
    let verdict = ASYNC_IO.verdict.lock().clone()?;
    if !verdict.depends() {
        return None;
    }
    let libaio = match verdict.libaio {
        Way::Seen => Some(false),
        _ => uses_libaio(),
    };
    let io_uring = match verdict.io_uring {
        Way::Seen => Some(false),
        _ => uses_io_uring(),
    };
    verdict.with(InUse { libaio, io_uring }).err()
}

fn uses_libaio() -> Option<bool> {
    if !has_foreign_contexts()? {
        return Some(false);
    }
    std::thread::sleep(RECHECK_DELAY);
    has_foreign_contexts()
}

fn has_foreign_contexts() -> Option<bool> {
    let maps = std::fs::read("/proc/self/maps").ok()?;
    let all = aio_contexts(&String::from_utf8_lossy(&maps)).count();
    Some(all > cache::aio_contexts())
}

fn uses_io_uring() -> Option<bool> {
    let mut unknown = false;
    for entry in std::fs::read_dir("/proc/self/fd").ok()? {
        match std::fs::read_link(entry.ok()?.path()) {
            Ok(target) if is_io_uring(target.as_os_str().as_encoded_bytes()) => return Some(true),
            // Closed since the directory was read.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => unknown = true,
            Ok(_) => {}
        }
    }
    (!unknown).then_some(false)
}

/// Repeats the check periodically.
#[derive(Default)]
pub struct Watch {
    checked: Option<Instant>,
    /// InnoDB had started at the last check.
    started: bool,
}

impl Watch {
    /// Call often while the extension is active. Returns why the server can no longer be tracked, if so.
    pub fn check(&mut self) -> Option<Refusal> {
        if self.started
            && self
                .checked
                .is_some_and(|when| when.elapsed() < CHECK_INTERVAL)
        {
            return None;
        }
        self.checked = Some(Instant::now());
        // In this order: a started InnoDB has set up its asynchronous I/O.
        self.started = scan::innodb_is_running(&Linux);
        refusal()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_aio_context_is_detected() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        assert_eq!(uses_libaio(), Some(false));
        let mut context = 0usize;
        // SAFETY: the kernel writes the context's number.
        let made = unsafe { libc::syscall(libc::SYS_io_setup, 8, &raw mut context) };
        if made != 0 {
            eprintln!("skipped: unseen: this kernel has no asynchronous I/O for us");
            return;
        }
        assert_eq!(uses_libaio(), Some(true));
        // SAFETY: the context made above, which is unused.
        unsafe { libc::syscall(libc::SYS_io_destroy, context) };
        assert_eq!(uses_libaio(), Some(false));
    }

    #[test]
    fn foreign_io_uring_is_detected() {
        let mut parameters = [0u8; 120];
        // SAFETY: `struct io_uring_params`, which the kernel fills.
        let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, parameters.as_mut_ptr()) };
        if ring < 0 {
            eprintln!("skipped: unseen: this kernel has no io_uring for us");
            return;
        }
        assert_eq!(uses_io_uring(), Some(true));
        // SAFETY: the descriptor made above.
        unsafe { libc::close(ring as i32) };
        assert_eq!(uses_io_uring(), Some(false));
    }
}
