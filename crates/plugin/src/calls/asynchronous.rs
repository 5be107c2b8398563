//! Calls of asynchronous I/O: libaio's submit and harvest (MariaDB harvests through `syscall`), io_uring's submit.

use std::ffi::{c_int, c_long, c_uint};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Original, guarded, import};
use crate::aio::{self, IoEvent, Iocb};
use crate::got::Import;
use crate::{switch, uring};

static IO_SUBMIT: Original = Original::new();
static IO_GETEVENTS: Original = Original::new();
static SYSCALL: Original = Original::new();
static URING_SUBMIT: Original = Original::new();
static URING_INIT: Original = Original::new();

/// Whether io_uring shall look unavailable, so that the server falls back to libaio, whose completions can be seen.
pub static MAKE_URING_FAIL: AtomicBool = AtomicBool::new(false);

pub(super) fn imports() -> Vec<Import> {
    vec![
        import!(IO_SUBMIT, io_submit, "io_submit"),
        import!(IO_GETEVENTS, io_getevents, "io_getevents"),
        import!(SYSCALL, syscall, "syscall"),
        import!(URING_SUBMIT, io_uring_submit, "io_uring_submit"),
        import!(URING_INIT, io_uring_queue_init, "io_uring_queue_init"),
    ]
}

unsafe extern "C" fn io_submit(context: usize, count: c_long, requests: *mut *mut Iocb) -> c_int {
    type Call = unsafe extern "C" fn(usize, c_long, *mut *mut Iocb) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { IO_SUBMIT.get::<Call>()(context, count, requests) };
    if switch::is_off() {
        return real();
    }
    guarded(real, |real| {
        let count = usize::try_from(count).unwrap_or(0);
        if count == 0 || requests.is_null() {
            return real();
        }
        // SAFETY: the server passes `count` valid requests.
        let requests = unsafe { std::slice::from_raw_parts(requests, count) };
        // SAFETY: as for `real`.
        let again = || unsafe {
            IO_SUBMIT.get::<Call>()(context, count as c_long, requests.as_ptr().cast_mut())
        };
        aio::submit(context, requests, real, &again)
    })
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
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { IO_GETEVENTS.get::<Call>()(context, least, most, events, timeout) };
    if switch::is_off() {
        return real();
    }
    harvest(context, events, || c_long::from(real())) as c_int
}

fn harvest(context: usize, events: *mut IoEvent, real: impl Fn() -> c_long) -> c_long {
    guarded(real, |real| {
        aio::entering_harvest(context);
        let got = real();
        let filled = usize::try_from(got).unwrap_or(0);
        if filled > 0 {
            // SAFETY: the kernel filled that many events.
            aio::harvested(unsafe { std::slice::from_raw_parts_mut(events, filled) });
        }
        got
    })
}

/// `syscall` is variadic; all six arguments are passed on, as the C library itself does.
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
    let real = || unsafe { SYSCALL.get::<Call>()(number, a, b, c, d, e, f) };
    if number != libc::SYS_io_getevents || switch::is_off() {
        return real();
    }
    harvest(a as usize, d as *mut IoEvent, real)
}

unsafe extern "C" fn io_uring_submit(ring: *mut uring::Ring) -> c_int {
    type Call = unsafe extern "C" fn(*mut uring::Ring) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { URING_SUBMIT.get::<Call>()(ring) };
    if switch::is_off() {
        return real();
    }
    guarded(real, |real| {
        // SAFETY: the server's own ring, whose submission it is allowed to make now.
        unsafe { uring::before_submit(ring) };
        real()
    })
}

unsafe extern "C" fn io_uring_queue_init(
    entries: c_uint,
    ring: *mut uring::Ring,
    flags: c_uint,
) -> c_int {
    if MAKE_URING_FAIL.load(Ordering::Relaxed) {
        crate::journal::note(
            "io_uring reported as unavailable, so that the server uses libaio, whose completions the extension can \
             follow (bpe_async_io=native leaves io_uring on)",
        );
        return -libc::ENOSYS;
    }
    type Call = unsafe extern "C" fn(c_uint, *mut uring::Ring, c_uint) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    unsafe { URING_INIT.get::<Call>()(entries, ring, flags) }
}
