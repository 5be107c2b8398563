//! The C library behind the hooks, with injected faults and delays.
//!
//! Other activity may happen before and after each call. With threads, the calling thread is delayed, so that others run
//! between a rule and its call. The exact mode has one thread and runs whole operations there, so that a seed replays the
//! interleaving. Calls occasionally transfer less than requested or fail, as the kernel permits.
//!
//! The exact mode simulates asynchronous requests here, in an order that the seed decides. With threads, the kernel runs them
//! if it supports them.

use std::cell::Cell;
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libc::iovec;
use parking_lot::Mutex;

use crate::asynchronous::Request;
use crate::coverage::{self, Reached};
use crate::random::{self, below, one_in};
use crate::world::world;
#[cfg(debug_assertions)]
use bpe_plugin::platform::process::CORE;

/// One thread, with all choices by the seed.
pub static EXACT: AtomicBool = AtomicBool::new(false);
/// The clock advances by minutes now and then, and threads are delayed between steps.
pub static MINUTES: AtomicBool = AtomicBool::new(false);
/// The extension is being switched on: threads may be delayed for longer.
pub static SWITCHING: AtomicBool = AtomicBool::new(false);

/// The files exist: other activity may happen from now on.
pub static READY: AtomicBool = AtomicBool::new(false);

/// Maximum nesting of operations inside calls.
const DEEPEST: u32 = 3;

pub fn minutes_pass() -> bool {
    MINUTES.load(Ordering::Relaxed)
}

pub fn exact() -> bool {
    EXACT.load(Ordering::Relaxed)
}

fn errno() -> c_int {
    // SAFETY: always valid for the calling thread.
    unsafe { *libc::__errno_location() }
}

fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Lets other activity happen. Preserves errno.
pub fn perturb() {
    if !READY.load(Ordering::Relaxed) {
        return;
    }
    let kept = errno();
    if exact() {
        if random::depth() < DEEPEST && one_in(12) {
            random::nested(crate::operations::step);
        }
    } else if one_in(40) {
        std::thread::yield_now();
    } else if one_in(200) {
        std::thread::sleep(Duration::from_micros(below(300) as u64));
    } else if SWITCHING.load(Ordering::Relaxed) && one_in(200) {
        std::thread::sleep(Duration::from_millis(below(40) as u64));
    }
    set_errno(kept);
}

/// Runs at the failpoints inside the file registry and in the loading of a run of pages. With threads, delays the calling
/// thread, which may hold the registry's lock. In the exact mode, runs another operation or switches the extension, if that
/// lock is free.
#[cfg(debug_assertions)]
pub fn at_sync_point(moment: &'static str) {
    // In the exact mode, no other activity can occur between the steps of switching on.
    if !READY.load(Ordering::Relaxed) || exact() && SWITCHING.load(Ordering::Relaxed) {
        return;
    }
    let kept = errno();
    if moment == "loaded" && random::depth() < DEEPEST && one_in(4) {
        crate::operations::write_what_was_read();
    }
    if !exact() {
        if one_in(10) {
            std::thread::sleep(Duration::from_micros(below(300) as u64));
        } else if SWITCHING.load(Ordering::Relaxed) && one_in(4) {
            std::thread::sleep(Duration::from_millis(below(20) as u64));
        }
    } else if random::depth() < DEEPEST && CORE.files.registry_is_free() && one_in(12) {
        if one_in(3) {
            random::nested(crate::switching::off_or_on);
        } else {
            random::nested(crate::operations::step);
        }
    }
    set_errno(kept);
}

fn around<R>(call: impl FnOnce() -> R) -> R {
    perturb();
    let result = call();
    perturb();
    result
}

/// Bytes that this transfer completes; `None`: it fails.
fn transferred(length: usize) -> Option<usize> {
    if one_in(700) {
        coverage::reached(Reached::FailedTransfers);
        return None;
    }
    if length >= 8192 && one_in(150) {
        coverage::reached(Reached::ShortTransfers);
        return Some((1 + below(length / 4096 - 1)) * 4096);
    }
    Some(length)
}

fn fail(errno: c_int) -> isize {
    set_errno(errno);
    -1
}

pub unsafe extern "C" fn pread64(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    offset: i64,
) -> isize {
    around(|| match transferred(length) {
        // SAFETY: the caller's arguments, or fewer bytes.
        Some(length) => unsafe { libc::pread64(fd, buffer, length, offset) },
        None => fail(libc::EIO),
    })
}

pub unsafe extern "C" fn pread64_checked(
    fd: c_int,
    buffer: *mut c_void,
    length: usize,
    offset: i64,
    room: usize,
) -> isize {
    assert!(length <= room);
    // SAFETY: the caller's arguments.
    unsafe { pread64(fd, buffer, length, offset) }
}

pub unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    length: usize,
    offset: i64,
) -> isize {
    around(|| match transferred(length) {
        // SAFETY: the caller's arguments, or fewer bytes.
        Some(length) => unsafe { libc::pwrite64(fd, buffer, length, offset) },
        None => {
            // A part may have been written.
            if length > 4096 && one_in(2) {
                // SAFETY: as above.
                unsafe { libc::pwrite64(fd, buffer, 4096, offset) };
            }
            fail(libc::EIO)
        }
    })
}

macro_rules! pass {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {$(
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> $result {
            // SAFETY: the caller's arguments.
            around(|| unsafe { libc::$name($($argument),*) })
        }
    )*};
}

pass! {
    pwritev64(fd: c_int, vector: *const iovec, count: c_int, offset: i64) -> isize;
    pwritev2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize;
    write(fd: c_int, buffer: *const c_void, length: usize) -> isize;
    writev(fd: c_int, vector: *const iovec, count: c_int) -> isize;
    sendfile64(to: c_int, from: c_int, offset: *mut i64, count: usize) -> isize;
    copy_file_range(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize;
    ftruncate64(fd: c_int, length: i64) -> c_int;
    truncate64(path: *const c_char, length: i64) -> c_int;
    fallocate64(fd: c_int, mode: c_int, offset: i64, length: i64) -> c_int;
    posix_fallocate64(fd: c_int, offset: i64, length: i64) -> c_int;
    splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize;
    futimens(fd: c_int, times: *const libc::timespec) -> c_int;
    utime(path: *const c_char, times: *const libc::utimbuf) -> c_int;
    utimes(path: *const c_char, times: *const libc::timeval) -> c_int;
    utimensat(directory: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int;
    open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    creat64(path: *const c_char, mode: c_uint) -> c_int;
    unlink(path: *const c_char) -> c_int;
    unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    remove(path: *const c_char) -> c_int;
    rename(from: *const c_char, to: *const c_char) -> c_int;
    renameat(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int;
    renameat2(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint) -> c_int;
}

/// Needs no flush: a process's death loses no written data.
pub unsafe extern "C" fn fsync(_: c_int) -> c_int {
    perturb();
    0
}

pub unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: the caller's argument.
    unsafe { fsync(fd) }
}

/// The call may be delayed on its way to the kernel while switching on finds the descriptor still open.
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if SWITCHING.load(Ordering::Relaxed) && one_in(2) {
        std::thread::sleep(Duration::from_millis(60));
    }
    // SAFETY: the caller's argument.
    around(|| unsafe { libc::close(fd) })
}

pub unsafe extern "C" fn open64_checked(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments.
    around(|| unsafe { libc::open64(path, flags) })
}

/// The kernel's `struct iocb`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Iocb {
    pub data: u64,
    pub key: u32,
    pub rw_flags: u32,
    pub opcode: i16,
    pub priority: i16,
    pub fd: c_int,
    pub buffer: u64,
    pub length: u64,
    pub offset: i64,
    pub reserved: u64,
    pub flags: u32,
    pub event_fd: u32,
}

pub const PREAD: i16 = 0;
pub const PWRITE: i16 = 1;
pub const PREADV: i16 = 7;
pub const PWRITEV: i16 = 8;

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct IoEvent {
    pub data: u64,
    pub request: u64,
    pub result: i64,
    pub result2: i64,
}

/// A request as the kernel took it.
struct Taken {
    context: usize,
    request: u64,
    copy: Iocb,
    result: Option<i64>,
}

// SAFETY: of the exact mode, which has one thread.
unsafe impl Send for Taken {}

/// Requests in flight in the exact mode.
static TAKEN: Mutex<VecDeque<Taken>> = Mutex::new(VecDeque::new());

/// Runs a request. Returns the bytes, or a negated errno.
fn do_request(iocb: &Iocb) -> i64 {
    // SAFETY: the caller handed over the request and its buffers, which live until the harvest.
    let result = unsafe {
        match iocb.opcode {
            PREAD => libc::pread64(
                iocb.fd,
                iocb.buffer as *mut c_void,
                iocb.length as usize,
                iocb.offset,
            ),
            PWRITE => libc::pwrite64(
                iocb.fd,
                iocb.buffer as *const c_void,
                iocb.length as usize,
                iocb.offset,
            ),
            PREADV => libc::preadv64(
                iocb.fd,
                iocb.buffer as *const iovec,
                iocb.length as c_int,
                iocb.offset,
            ),
            _ => libc::pwritev64(
                iocb.fd,
                iocb.buffer as *const iovec,
                iocb.length as c_int,
                iocb.offset,
            ),
        }
    };
    if result < 0 {
        -i64::from(errno())
    } else {
        result as i64
    }
}

thread_local! {
    /// The server is submitting in this thread.
    static SUBMITTING: Cell<bool> = const { Cell::new(false) };
}

/// Marks submissions in `submit` as the server's; all others are the plugin's.
pub fn as_the_server<R>(submit: impl FnOnce() -> R) -> R {
    let before = SUBMITTING.replace(true);
    let result = submit();
    SUBMITTING.set(before);
    result
}

/// Whether the plugin redirected a request to a cache file.
fn is_redirected(request: *const Iocb) -> bool {
    // SAFETY: every request of the model begins with its iocb, and is alive until it is harvested.
    unsafe { (*request).fd != (*request.cast::<Request>()).fd }
}

pub unsafe extern "C" fn io_setup(count: c_int, context: *mut usize) -> c_int {
    if !exact() {
        // SAFETY: the model's own number to fill in.
        match unsafe { libc::syscall(libc::SYS_io_setup, count, context) } {
            0 => return 0,
            _ if errno() != libc::ENOSYS => return -errno(),
            _ => HAS_NONE.store(true, Ordering::SeqCst),
        }
    }
    static LAST: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: as above.
    unsafe { *context = LAST.fetch_add(0x1000, Ordering::Relaxed) + 0x1000 };
    0
}

/// The kernel has no asynchronous I/O, as in user-mode emulation of another processor.
static HAS_NONE: AtomicBool = AtomicBool::new(false);

/// Whether the model simulates asynchronous I/O.
fn simulates() -> bool {
    exact() || HAS_NONE.load(Ordering::SeqCst)
}

/// Destroyed simulated contexts.
static GONE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Destroys a context. Threads that wait for its events get an error.
pub fn destroy(context: usize) {
    if simulates() {
        GONE.lock().push(context);
        return;
    }
    // SAFETY: the model's own context.
    unsafe { libc::syscall(libc::SYS_io_destroy, context) };
}

pub unsafe extern "C" fn io_submit(
    context: usize,
    count: c_long,
    requests: *mut *mut Iocb,
) -> c_int {
    let by_plugin = !SUBMITTING.replace(false); // other activity may happen inside
    let result = take(context, count, requests, by_plugin);
    SUBMITTING.set(!by_plugin);
    result
}

fn take(context: usize, count: c_long, requests: *mut *mut Iocb, by_plugin: bool) -> c_int {
    perturb();
    // SAFETY: the model's own array.
    let list = unsafe { std::slice::from_raw_parts(requests, count as usize) };
    let redirected = list.iter().any(|request| is_redirected(*request));
    if redirected {
        coverage::reached(Reached::Redirected);
    }
    if by_plugin {
        coverage::reached(Reached::Replaced);
        if redirected {
            world().violated(None, "the plugin submitted a read of a cache file");
        }
        if one_in(8) {
            coverage::reached(Reached::RefusedReplacements);
            return -libc::EAGAIN;
        }
    }
    if one_in(100) {
        coverage::reached(Reached::RefusedSubmits);
        return -libc::EAGAIN;
    }
    if redirected && one_in(100) {
        coverage::reached(Reached::RefusedRedirects);
        return -libc::EINVAL; // as a file system without direct I/O
    }
    let mut accepted = list.len();
    if accepted > 1 && one_in(20) {
        coverage::reached(Reached::PartialSubmits);
        accepted -= 1;
    }
    for &request in &list[..accepted] {
        // SAFETY: the model's own request, not submitted yet.
        let copy = unsafe { *request };
        if copy.data != 0 {
            MARKED.lock().insert(copy.data, copy);
        }
    }
    if accepted == 1 && !simulates() && one_in(4) && hold_back(context, list[0]) {
        return 1;
    }
    let result = if simulates() {
        for &request in &list[..accepted] {
            // SAFETY: the model's own request.
            let copy = unsafe { *request };
            let result = one_in(2).then(|| do_request(&copy));
            TAKEN.lock().push_back(Taken {
                context,
                request: request as u64,
                copy,
                result,
            });
        }
        accepted as c_int
    } else {
        // SAFETY: the model's own context and requests.
        let result = unsafe { libc::syscall(libc::SYS_io_submit, context, accepted, requests) };
        if result < 0 {
            -errno()
        } else {
            result as c_int
        }
    };
    perturb();
    result
}

/// A late read of the cache disk: the disk gets it only at a later harvest.
struct HeldBack {
    context: usize,
    copy: Box<Iocb>,
    request: u64,
}

/// Requests before and after their submission to the disk. Submitted ones are indexed by the address of the kernel's copy.
#[derive(Default)]
struct Held {
    waiting: Vec<HeldBack>,
    made: BTreeMap<u64, HeldBack>,
}

static HELD: Mutex<Held> = Mutex::new(Held {
    waiting: Vec::new(),
    made: BTreeMap::new(),
});

/// Delays a read. Only reads with the plugin's mark may be late, because they use the plugin's memory.
fn hold_back(context: usize, request: *mut Iocb) -> bool {
    // SAFETY: the model's own request, not submitted yet.
    let copy = unsafe { *request };
    if copy.data == 0 {
        return false;
    }
    coverage::reached(Reached::HeldBack);
    HELD.lock().waiting.push(HeldBack {
        context,
        copy: Box::new(copy),
        request: request as u64,
    });
    true
}

/// Submits some of this context's delayed requests to the disk.
fn let_go(context: usize) {
    let mut held = HELD.lock();
    for at in (0..held.waiting.len()).rev() {
        if held.waiting[at].context != context || !one_in(3) {
            continue;
        }
        let mut one = held.waiting.swap_remove(at);
        let address = &raw mut *one.copy;
        let list = [address];
        // SAFETY: the copy lives until its event is harvested; its memory belongs to the plugin, which keeps it.
        if unsafe { libc::syscall(libc::SYS_io_submit, context, 1, list.as_ptr()) } == 1 {
            held.made.insert(address as u64, one);
        } else {
            held.waiting.push(one);
            return;
        }
    }
}

/// Replaces the copy's address in the event by that of the original request.
fn give_name_back(event: &mut IoEvent) {
    if let Some(one) = HELD.lock().made.remove(&event.request) {
        event.request = one.request;
    }
}

/// In the simulation: completes one or several requests in flight.
fn simulated_events(context: usize, events: &mut [IoEvent]) -> usize {
    let mut got = 0;
    while got < events.len() && (got == 0 || one_in(2)) {
        let mut taken = TAKEN.lock();
        let waiting: Vec<usize> = (0..taken.len())
            .filter(|at| taken[*at].context == context)
            .collect();
        if waiting.is_empty() {
            break;
        }
        let Some(one) = taken.remove(waiting[below(waiting.len())]) else {
            break;
        };
        drop(taken);
        let result = one.result.unwrap_or_else(|| do_request(&one.copy));
        events[got] = IoEvent {
            data: one.copy.data,
            request: one.request,
            result,
            result2: 0,
        };
        got += 1;
    }
    got
}

/// Waits for at least one event, as the kernel does.
fn waited_for(context: usize, events: &mut [IoEvent], limit: Option<Duration>) -> c_long {
    let began = Instant::now();
    loop {
        let got = simulated_events(context, events);
        if got > 0 || limit.is_some_and(|limit| began.elapsed() >= limit) {
            return got as c_long;
        }
        if GONE.lock().contains(&context) {
            return -c_long::from(libc::EINVAL);
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Number of a context's requests in flight in the exact mode.
pub fn taken(context: usize) -> usize {
    TAKEN
        .lock()
        .iter()
        .filter(|taken| taken.context == context)
        .count()
}

fn get_events(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    timeout: *mut libc::timespec,
) -> c_long {
    perturb();
    // SAFETY: the model's own array.
    let room = unsafe { std::slice::from_raw_parts_mut(events, most as usize) };
    let got = if exact() {
        simulated_events(context, room) as c_long
    } else if simulates() {
        // SAFETY: null, or the model's own time.
        let limit = unsafe { timeout.as_ref() }
            .map(|limit| Duration::new(limit.tv_sec as u64, limit.tv_nsec as u32));
        waited_for(context, room, limit)
    } else {
        let_go(context);
        // SAFETY: the model's own context and array.
        let got = unsafe {
            libc::syscall(
                libc::SYS_io_getevents,
                context,
                least,
                most,
                events,
                timeout,
            )
        };
        if got < 0 { -c_long::from(errno()) } else { got }
    };
    for event in room.iter_mut().take(usize::try_from(got).unwrap_or(0)) {
        give_name_back(event);
        spoil(event);
    }
    perturb();
    got
}

/// Reads with the plugin's mark in their data word. The plugin may have abandoned them, and the request may no longer exist
/// when the answer arrives. The model's own words are 0.
static MARKED: Mutex<BTreeMap<u64, Iocb>> = Mutex::new(BTreeMap::new());

/// Injects an error, a short transfer or wrong data into a completion.
fn spoil(event: &mut IoEvent) {
    let iocb = event.request as *const Iocb;
    let (copy, redirected) = match MARKED.lock().remove(&event.data) {
        Some(marked) => (marked, true),
        // SAFETY: alive until the harvester has handled the event.
        None => (unsafe { *iocb }, is_redirected(iocb)),
    };
    if redirected {
        if one_in(40) {
            coverage::reached(Reached::BusyRedirects);
            event.result = -i64::from([libc::EAGAIN, libc::EOPNOTSUPP][below(2)]);
            return;
        }
        // A read of a staged page transfers nothing, so nothing can be corrupted.
        if copy.length == 0 || !one_in(120) {
            return;
        }
        coverage::reached(Reached::SpoiledRedirects);
        match below(3) {
            0 => event.result = -i64::from(libc::EIO),
            1 => event.result /= 2,
            // SAFETY: the buffer belongs to the request.
            _ => unsafe {
                let byte = (copy.buffer as *mut u8).add(below(copy.length as usize));
                *byte = !*byte;
            },
        }
    } else if one_in(400) {
        coverage::reached(Reached::FailedTransfers);
        event.result = -i64::from(libc::EIO);
    } else if copy.length > 4096 && copy.opcode != PWRITEV && copy.opcode != PREADV && one_in(150) {
        coverage::reached(Reached::ShortTransfers);
        event.result = 4096.min(event.result);
    }
}

pub unsafe extern "C" fn io_getevents(
    context: usize,
    least: c_long,
    most: c_long,
    events: *mut IoEvent,
    timeout: *mut libc::timespec,
) -> c_int {
    get_events(context, least, most, events, timeout) as c_int
}

#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    if number == libc::SYS_io_getevents {
        let got = get_events(
            a as usize,
            b,
            c,
            d as *mut IoEvent,
            e as *mut libc::timespec,
        );
        if got < 0 {
            set_errno(-got as c_int);
            return -1;
        }
        return got;
    }
    if number == libc::SYS_io_submit {
        // SAFETY: the caller's arguments.
        let result = unsafe { io_submit(a as usize, b, c as *mut *mut Iocb) };
        if result < 0 {
            set_errno(-result);
            return -1;
        }
        return result.into();
    }
    // SAFETY: the caller's arguments.
    unsafe { libc::syscall(number, a, b, c, d, e, f) }
}

/// The beginning of liburing's `struct io_uring`.
#[repr(C)]
pub struct Ring {
    pub head: *mut u32,
    pub tail: *mut u32,
    pub mask: *mut u32,
    pub entries: *mut u32,
    pub flags: *mut u32,
    pub dropped: *mut u32,
    pub array: *mut u32,
    pub requests: *mut Sqe,
    pub pending_head: u32,
    pub pending_tail: u32,
}

/// The kernel's `struct io_uring_sqe`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Sqe {
    pub opcode: u8,
    pub flags: u8,
    pub priority: u16,
    pub fd: c_int,
    pub offset: u64,
    pub address: u64,
    pub length: u32,
    pub rest: [u32; 9],
}

pub const URING_READV: u8 = 1;
pub const URING_WRITEV: u8 = 2;
pub const URING_FALLOCATE: u8 = 17;
pub const URING_READ: u8 = 22;
pub const URING_WRITE: u8 = 23;

/// Accepts the requests of a ring; [`ring_does`] runs them later, unobserved by the hooks.
pub unsafe extern "C" fn io_uring_submit(ring: *mut Ring) -> c_int {
    perturb();
    // SAFETY: the model's own ring.
    let ring = unsafe { &mut *ring };
    let count = ring.pending_tail.wrapping_sub(ring.pending_head);
    ring.pending_head = ring.pending_tail;
    count as c_int
}

/// Runs a request of a ring.
pub fn ring_does(sqe: &Sqe) -> i64 {
    perturb();
    let (address, length) = (sqe.address, sqe.length);
    // SAFETY: the model's own request and buffers.
    let result = unsafe {
        match sqe.opcode {
            URING_READV => libc::preadv64(
                sqe.fd,
                address as *const iovec,
                length as c_int,
                sqe.offset as i64,
            ),
            URING_WRITEV => libc::pwritev64(
                sqe.fd,
                address as *const iovec,
                length as c_int,
                sqe.offset as i64,
            ),
            URING_READ => libc::pread64(
                sqe.fd,
                address as *mut c_void,
                length as usize,
                sqe.offset as i64,
            ),
            URING_WRITE => libc::pwrite64(
                sqe.fd,
                address as *const c_void,
                length as usize,
                sqe.offset as i64,
            ),
            // Mode in `length`, bytes in `address`.
            _ => libc::fallocate64(sqe.fd, length as c_int, sqe.offset as i64, address as i64)
                as isize,
        }
    };
    if result < 0 {
        -i64::from(errno())
    } else {
        result as i64
    }
}

pub unsafe extern "C" fn io_uring_queue_init(_: c_uint, _: *mut Ring, _: c_uint) -> c_int {
    0
}
