//! Threads inside a host process: named, with every signal blocked.

use std::io;
use std::mem::MaybeUninit;
use std::thread::JoinHandle;

/// Starts a thread with every signal blocked and a stack of `stack` bytes.
///
/// Signals are blocked before the thread exists, so that none can reach it: a server may rely on all threads blocking a
/// signal whose default action would end the process.
///
/// # Errors
/// The system refuses another thread.
pub fn spawn<T: Send + 'static>(
    name: String,
    stack: usize,
    body: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the set; pthread_sigmask reads it and writes the old one, for this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    let spawned = std::thread::Builder::new()
        .name(name)
        .stack_size(stack)
        .spawn(body);
    // SAFETY: `before` was written above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    spawned
}
