//! Calls by which a crashing server ends its own process. A process killed from outside makes none of them.
//!
//! A crash shortly after a recovery may be caused by the recovered cache. These hooks mark the crash for the next process.

use std::ffi::c_int;
use std::panic::catch_unwind;

use super::guard::{hook, import};
use crate::intercept::got::Import;
use crate::platform::{CORE, Original};
use crate::restart::{RESTART, snapshot};

static ABORT: Original = Original::new();
static EXIT: Original = Original::new();
static EXIT_C: Original = Original::new();

pub(super) fn imports() -> Vec<Import> {
    vec![
        import!(ABORT, abort, "abort"),
        import!(EXIT, exit, "_exit"),
        import!(EXIT_C, exit_c, "_Exit"),
        import!(KILL, kill, "kill"),
        import!(KILL_THREAD, pthread_kill, "pthread_kill"),
    ]
}

/// Signals of a failing process.
const FATAL: [c_int; 5] = [
    libc::SIGABRT,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGSEGV,
];

/// Async-signal-safe: only stores, and one system call.
fn mark_crash() {
    let Some(manifest) = CORE.switch().manifest() else {
        return;
    };
    // SAFETY: a plain C call.
    let process = unsafe { libc::getpid() };
    // A forked child has the same hooks until it calls `exec`, and shares the manifest. Its end is not a crash of the server.
    if RESTART.is_of_process(process) {
        manifest.crash();
    }
}

unsafe extern "C" fn abort() -> ! {
    type Call = unsafe extern "C" fn() -> !;
    mark_crash();
    // SAFETY: the server's own call.
    unsafe { ABORT.get::<Call>()() }
}

/// These calls skip the handlers of `exit`.
fn before_exit(status: c_int) {
    if status != 0 {
        mark_crash();
    } else {
        let _ = catch_unwind(snapshot::at_end);
    }
}

type Exit = unsafe extern "C" fn(c_int) -> !;

unsafe extern "C" fn exit(status: c_int) -> ! {
    before_exit(status);
    // SAFETY: the server's own call with its own argument.
    unsafe { EXIT.get::<Exit>()(status) }
}

unsafe extern "C" fn exit_c(status: c_int) -> ! {
    before_exit(status);
    // SAFETY: as above.
    unsafe { EXIT_C.get::<Exit>()(status) }
}

hook! {
    fn kill = KILL(process: libc::pid_t, signal: c_int) -> c_int
    |real| {
        // SAFETY: a plain C call.
        if FATAL.contains(&signal) && process == unsafe { libc::getpid() } {
            mark_crash();
        }
        real()
    }
}

hook! {
    fn pthread_kill = KILL_THREAD(thread: libc::pthread_t, signal: c_int) -> c_int
    |real| {
        if FATAL.contains(&signal) {
            mark_crash();
        }
        real()
    }
}
