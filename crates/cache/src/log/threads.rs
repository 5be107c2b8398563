//! Threads of an open extension: writers, and submitters of reads.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::common::thread::spawn;
use crate::common::wake::Wake;
use crate::instance::shared::Shared;
use crate::log::writer::Writer;

const STACK: usize = 512 << 10;
const SMALL_STACK: usize = 128 << 10;

/// Niceness of a writer, where the system allows it: it is scheduled before the server's threads.
const NICE: i32 = -5;
/// Time slice of a writer in nanoseconds, when other threads want the processor. Linux 6.12 and later schedules a waking
/// thread earlier if its slice is short.
const SLICE: u64 = 200_000;

/// `struct sched_attr` of linux/sched/types.h, first version.
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

/// Shortens this thread's wait for a processor. It needs little processor time, and pages that arrive during the wait must
/// be kept in memory. Ignores refusals.
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
        // SAFETY: the structure has the specified length, and is only read.
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

/// Starts the submitter thread of a device, which may block in place of the readers.
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
