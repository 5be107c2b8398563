//! Threads in somebody else's process: named, with every signal blocked.

use std::io;
use std::mem::MaybeUninit;

use crate::shared::Wake;
use crate::writer::Writer;

const STACK: usize = 512 << 10;

/// Starts the thread of a writer. Signals are blocked before it exists, so that not one can reach it: a server may rely on
/// all threads blocking a signal whose default would end it.
pub(crate) fn spawn(wake: &Wake, number: usize, writer: Writer) -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the set; pthread_sigmask reads it and writes the old one, for this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    wake.thread_begins();
    let builder = std::thread::Builder::new()
        .name(format!("bpe-writer-{number}"))
        .stack_size(STACK);
    let spawned = builder.spawn(move || writer.run());
    // SAFETY: `before` was written above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    if spawned.is_err() {
        wake.thread_ends();
    }
    spawned.map(drop)
}
