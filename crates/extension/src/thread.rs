//! Threads in somebody else's process: named, with every signal blocked.

use std::io;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::shared::Shared;
use crate::wake::Wake;
use crate::writer::Writer;

const STACK: usize = 512 << 10;
const SMALL_STACK: usize = 128 << 10;

/// Niceness of a writer, where the system allows that: it comes before the server's threads.
const NICE: i32 = -5;
/// How long a writer runs at a time when others want the processor, in nanoseconds. Linux 6.12 and later runs a thread that asks
/// for little the sooner when it wakes.
const SLICE: u64 = 200_000;

/// `struct sched_attr` of linux/sched/types.h, as it was first.
#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Sees to it that this thread does not wait for long for a processor when there is something to write: it needs little, and
/// what comes meanwhile has to be kept in memory. Whatever is refused is left as it is.
fn be_prompt() {
    // SAFETY: plain calls about this thread.
    let (policy, nice) = unsafe {
        (
            libc::sched_getscheduler(0),
            libc::getpriority(libc::PRIO_PROCESS, 0),
        )
    };
    if policy != libc::SCHED_OTHER {
        return;
    }
    for nice in [nice.min(NICE), nice] {
        let attributes = Attributes {
            size: size_of::<Attributes>() as u32,
            policy: libc::SCHED_OTHER as u32,
            flags: 0,
            nice,
            priority: 0,
            runtime: SLICE,
            deadline: 0,
            period: 0,
        };
        // SAFETY: the structure has the length that it says, and is only read.
        let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
        if result == 0 {
            return;
        }
    }
}

/// Starts the thread of a writer.
pub(crate) fn spawn_writer(wake: &Wake, number: usize, writer: Writer) -> io::Result<()> {
    spawn_named(wake, format!("bpe-writer-{number}"), STACK, move || {
        be_prompt();
        writer.run();
    })
}

/// Starts the thread that submits reads of a device which others must not wait for.
pub(crate) fn spawn_submitter(shared: &Arc<Shared>, number: usize) -> io::Result<()> {
    let submissions = |shared: &Shared| {
        let overdue = &shared.store.devices[number].health.overdue;
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

fn spawn_named(
    wake: &Wake,
    name: String,
    stack: usize,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<()> {
    wake.thread_begins();
    let spawned = spawn(name, stack, body);
    if spawned.is_err() {
        wake.thread_ends();
    }
    spawned.map(drop)
}

/// Starts a thread with every signal blocked and a stack of so many bytes.
///
/// Signals are blocked before the thread exists, so that not one can reach it: a server may rely on all threads blocking a
/// signal whose default would end it.
///
/// # Errors
/// If the process can have no more threads.
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
