//! Calls of asynchronous I/O: libaio's submit and harvest, io_uring's submit.
//!
//! MariaDB harvests through `syscall`. A server with a linked-in libaio also submits through it, because libaio does.

use std::ffi::{c_int, c_long, c_uint};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use coherence::async_io::{self, IoEvent, Iocb, Submission};
use coherence::os::Os as _;
use coherence::switch::Mode;

use super::guard::{guarded, hook, import};
use crate::control::CONTROLLER;
use crate::hooks::io_uring;
use crate::intercept::got::Import;
use crate::intercept::untracked::ASYNC_IO;
use crate::platform::linux::{errno, set_errno};
use crate::platform::{CORE, Linux, Original};
use crate::settings;

static IO_GETEVENTS: Original = Original::new();
static SYSCALL: Original = Original::new();

pub(super) fn imports() -> Vec<Import> {
    vec![
        import!(IO_SUBMIT, io_submit, "io_submit"),
        import!(IO_SETUP, io_setup, "io_setup"),
        import!(IO_GETEVENTS, io_getevents, "io_getevents"),
        import!(SYSCALL, syscall, "syscall"),
        import!(URING_SUBMIT, io_uring_submit, "io_uring_submit"),
        import!(URING_INIT, io_uring_queue_init, "io_uring_queue_init"),
    ]
}

hook! {
    fn io_submit = IO_SUBMIT(context: usize, count: c_long, requests: *mut *mut Iocb) -> c_int
    |real, mode| {
        // SAFETY: the server passes `count` valid requests.
        unsafe { submit(mode, context, count, requests, real) }
    }
}

/// Submits for the server. `real` returns a negative error number, as libaio does.
///
/// # Safety
/// There must be `count` valid requests at `requests`.
#[inline(never)]
unsafe fn submit(
    mode: Mode,
    context: usize,
    count: c_long,
    requests: *mut *mut Iocb,
    real: impl Fn() -> c_int + Copy,
) -> c_int {
    guarded(real, |once| {
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 || requests.is_null() {
            return once.make();
        }
        // SAFETY: the caller's promise.
        let requests = unsafe { std::slice::from_raw_parts(requests, count) };
        let by = Submission { mode, context };
        CORE.submit(by, requests, || once.make(), real)
    })
}

/// Resubmits one request of the server.
fn submit_one(context: usize, request: *mut Iocb) -> c_int {
    type Call = unsafe extern "C" fn(usize, c_long, *mut *mut Iocb) -> c_int;
    let mut list = [request];
    if IO_SUBMIT.is_there() {
        // SAFETY: the server has submitted this request before, to this context, and waits for it.
        return unsafe { IO_SUBMIT.get::<Call>()(context, 1, list.as_mut_ptr()) };
    }
    // The server has libaio linked in.
    type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;
    // SAFETY: as above. The slot was patched, or no such request could exist.
    let result = unsafe {
        SYSCALL.get::<Syscall>()(
            libc::SYS_io_submit,
            context as c_long,
            1 as c_long,
            list.as_mut_ptr() as c_long,
        )
    };
    if result < 0 {
        -errno()
    } else {
        result as c_int
    }
}

hook! {
    fn io_setup = IO_SETUP(count: c_int, context: *mut usize) -> c_int
    |real| {
        if is_libaio_disabled() {
            return -libc::ENOSYS;
        }
        real()
    }
}

/// Whether libaio is to look unavailable. Logs it.
fn is_libaio_disabled() -> bool {
    let fails = ASYNC_IO.make_libaio_fail.load(Ordering::Relaxed);
    if fails {
        Linux.note(
            "libaio reported as unavailable, because the server's submissions to it would go unseen",
        );
    }
    fails
}

unsafe extern "C" fn io_getevents(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    timeout: *mut libc::timespec,
) -> c_int {
    type Call =
        unsafe extern "C" fn(usize, c_long, c_long, *mut IoEvent, *mut libc::timespec) -> c_int;
    // SAFETY: the server's own call with the server's own arguments, except the timeout.
    let real = move |timeout: *mut libc::timespec| unsafe {
        c_long::from(IO_GETEVENTS.get::<Call>()(
            context, least, most, events, timeout,
        ))
    };
    let mode = CORE.switch().mode();
    if mode.is_off() {
        return real(timeout) as c_int;
    }
    harvest(context, most, events, timeout, real) as c_int
}

/// Harvests for the server. While a read may become overdue, it waits in the kernel for short slices only.
///
/// Not [`guarded`]: harvested events must reach the server, so panics are caught where they may occur.
#[inline(never)]
fn harvest(
    context: usize,
    most: c_long,
    events: *mut IoEvent,
    timeout: *mut libc::timespec,
    real: impl Fn(*mut libc::timespec) -> c_long,
) -> c_long {
    // SAFETY: the server's own timeout, if any.
    let limit = unsafe { timeout.as_ref() }.map(duration);
    let begun = Instant::now();
    loop {
        let errno_before = errno();
        CORE.entering_harvest(context);
        let left = limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        let slice = CORE
            .may_expire(settings::READ_TIMEOUT.load(Ordering::Relaxed) != 0)
            .then_some(async_io::MAX_HARVEST_WAIT);
        let wait = left.into_iter().chain(slice).min();
        let last = left.is_some() && wait == left;
        let got = match wait {
            Some(wait) => real(&mut timespec(wait)),
            None => real(timeout),
        };
        let Ok(filled) = usize::try_from(got) else {
            return got; // with its errno
        };
        let harvested = catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: the kernel filled that many events.
            let filled = unsafe { std::slice::from_raw_parts_mut(events, filled) };
            debug_assert!(filled.len() as c_long <= most);
            CORE.harvested(filled, &submit_one, || CONTROLLER.panicked())
        }));
        let kept = harvested.unwrap_or_else(|_| {
            CONTROLLER.panicked();
            filled
        });
        let room = usize::try_from(most).unwrap_or(0).saturating_sub(kept);
        let late =
            catch_unwind(|| CORE.expire_reads(context, room, &submit_one)).unwrap_or_else(|_| {
                CONTROLLER.panicked();
                None
            });
        let all = kept + usize::from(late.is_some());
        if let Some(event) = late {
            // SAFETY: the server has room for `most` events, of which `kept` are filled.
            unsafe { events.add(kept).write(event) };
        }
        set_errno(errno_before);
        if all > 0 || last {
            return all as c_long;
        }
    }
}

fn duration(time: &libc::timespec) -> Duration {
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos().into(),
    }
}

/// `syscall` is variadic. The hook forwards all six arguments, as the C library itself does.
#[allow(clippy::too_many_arguments)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    type Call = unsafe extern "C" fn(c_long, ...) -> c_long;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move |e: c_long| unsafe { SYSCALL.get::<Call>()(number, a, b, c, d, e, f) };
    let mode = CORE.switch().mode();
    match number {
        libc::SYS_io_getevents if !mode.is_off() => {
            let (context, events, timeout) = (a as usize, d as *mut IoEvent, e);
            harvest(
                context,
                c,
                events,
                timeout as *mut libc::timespec,
                move |timeout| real(timeout as c_long),
            )
        }
        libc::SYS_io_submit if !mode.is_off() => {
            // `syscall` returns -1 and sets errno to the error that libaio returns.
            let real = move || match real(e) {
                result if result < 0 => -errno(),
                accepted => accepted as c_int,
            };
            // SAFETY: the server passes as many valid requests as it states.
            match unsafe { submit(mode, a as usize, b, c as *mut *mut Iocb, real) } {
                result if result < 0 => {
                    set_errno(-result);
                    -1
                }
                accepted => c_long::from(accepted),
            }
        }
        libc::SYS_io_setup if is_libaio_disabled() => {
            set_errno(libc::ENOSYS);
            -1
        }
        _ => real(e),
    }
}

hook! {
    fn io_uring_submit = URING_SUBMIT(ring: *mut io_uring::Ring) -> c_int
    |real, mode| {
        guarded(real, |real| {
            // SAFETY: the server's own ring, which the calling thread may submit now.
            unsafe { io_uring::before_submit(mode, ring) };
            real.make()
        })
    }
}

hook! {
    fn io_uring_queue_init = URING_INIT(entries: c_uint, ring: *mut io_uring::Ring, flags: c_uint) -> c_int
    |real| {
        if ASYNC_IO.make_io_uring_fail.load(Ordering::Relaxed) {
            Linux.note(
                "io_uring reported as unavailable, so that the server uses libaio, whose completions the extension can follow",
            );
            return -libc::ENOSYS;
        }

        real()
    }
}
