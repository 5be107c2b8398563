//! Threads in somebody else's process: named, with every signal blocked.

use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::shared::{Shared, Wake};
use crate::writer::Writer;

const STACK: usize = 512 << 10;
const SMALL_STACK: usize = 128 << 10;

/// Starts the thread of a writer.
pub(crate) fn spawn(wake: &Wake, number: usize, writer: Writer) -> io::Result<()> {
    spawn_named(wake, format!("bpe-writer-{number}"), STACK, move || {
        writer.run();
    })
}

/// Starts the thread that submits reads of a device which others must not wait for.
pub(crate) fn spawn_submitter(shared: &Arc<Shared>, number: usize) -> io::Result<()> {
    let submissions = |shared: &Shared| {
        let overdue = &shared.devices[number].health.overdue;
        Arc::clone(overdue)
    };
    let (device, of_thread) = (submissions(shared), Arc::clone(shared));
    device.submissions.serve();
    let spawned = spawn_named(
        &shared.wake,
        format!("bpe-reader-{number}"),
        SMALL_STACK,
        move || {
            let _ = catch_unwind(AssertUnwindSafe(|| device.submissions.work()));
            device.submissions.stop();
            of_thread.wake.thread_ends();
        },
    );
    if spawned.is_err() {
        submissions(shared).submissions.stop();
    }
    spawned
}

/// Signals are blocked before the thread exists, so that not one can reach it: a server may rely on all threads blocking a
/// signal whose default would end it.
fn spawn_named(
    wake: &Wake,
    name: String,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    let mut before = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset writes the set; pthread_sigmask reads it and writes the old one, for this thread only.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
    }
    wake.thread_begins();
    let spawned = std::thread::Builder::new()
        .name(name)
        .stack_size(stack)
        .spawn(body);
    // SAFETY: `before` was written above.
    unsafe {
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), std::ptr::null_mut());
    }
    if spawned.is_err() {
        wake.thread_ends();
    }
    spawned.map(drop)
}
