//! Calls on descriptors: reads, writes, holes, truncation, close.

use std::ffi::{c_int, c_void};

use coherence::aio::requests::vector_bytes;
use coherence::files::{DataFile, Entry};
use coherence::os::Os as _;
use coherence::switch::Mode;
use libc::{iovec, off64_t, size_t, ssize_t};

use super::guard::{Once, guarded, import};
use crate::intercept::got::Import;
use crate::platform::linux::{Linux, PREAD, Pread};
use crate::platform::original::Original;
use crate::platform::process::CORE;

static PREAD_CHECKED: Original = Original::new();
static PWRITE: Original = Original::new();
static PWRITEV: Original = Original::new();
static PWRITEV2: Original = Original::new();
static WRITE: Original = Original::new();
static WRITEV: Original = Original::new();
static SENDFILE: Original = Original::new();
static COPY_FILE_RANGE: Original = Original::new();
static FTRUNCATE: Original = Original::new();
static FALLOCATE: Original = Original::new();
static POSIX_FALLOCATE: Original = Original::new();
static SPLICE: Original = Original::new();
static FUTIMENS: Original = Original::new();
static FSYNC: Original = Original::new();
static FDATASYNC: Original = Original::new();
static CLOSE: Original = Original::new();

pub(super) fn imports() -> Vec<Import> {
    vec![
        import!(CLOSE, close, "close"),
        import!(PREAD, pread64, "pread64", "pread"),
        import!(
            PREAD_CHECKED,
            pread64_checked,
            "__pread64_chk",
            "__pread_chk"
        ),
        import!(PWRITE, pwrite64, "pwrite64", "pwrite"),
        import!(PWRITEV, pwritev64, "pwritev64", "pwritev"),
        import!(PWRITEV2, pwritev2, "pwritev64v2", "pwritev2"),
        import!(WRITE, write, "write"),
        import!(WRITEV, writev, "writev"),
        import!(SENDFILE, sendfile64, "sendfile64", "sendfile"),
        import!(COPY_FILE_RANGE, copy_file_range, "copy_file_range"),
        import!(FTRUNCATE, ftruncate64, "ftruncate64", "ftruncate"),
        import!(FALLOCATE, fallocate64, "fallocate64", "fallocate"),
        import!(
            POSIX_FALLOCATE,
            posix_fallocate64,
            "posix_fallocate64",
            "posix_fallocate"
        ),
        import!(SPLICE, splice, "splice"),
        import!(FUTIMENS, futimens, "futimens"),
        import!(FSYNC, fsync, "fsync"),
        import!(FDATASYNC, fdatasync, "fdatasync"),
    ]
}

unsafe extern "C" fn pread64(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { PREAD.get::<Pread>()(fd, buffer, length, offset) };
    #[cfg(debug_assertions)]
    // SAFETY: the server passes a buffer of `length` bytes to its own read.
    let real =
        move || unsafe { crate::platform::naive::read(fd, buffer.cast(), length, offset, real) };
    around_read(fd, real, move |mode, file, real| {
        // SAFETY: the server passes a buffer of `length` bytes to its own read.
        unsafe { read_page(mode, file, buffer, length, offset, || real.make()) }
    })
}

unsafe extern "C" fn pread64_checked(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off64_t,
    room: size_t,
) -> ssize_t {
    type Checked = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t, size_t) -> ssize_t;
    // SAFETY: as above.
    let real = move || unsafe { PREAD_CHECKED.get::<Checked>()(fd, buffer, length, offset, room) };
    around_read(fd, real, move |mode, file, real| {
        if length > room {
            return real.make();
        }
        // SAFETY: as above.
        unsafe { read_page(mode, file, buffer, length, offset, || real.make()) }
    })
}

/// Runs the rules around a call on a descriptor, if the extension is not off and the descriptor belongs to a data file.
#[inline(always)]
fn around<R: Copy, F: Fn() -> R>(
    fd: c_int,
    real: F,
    rules: impl FnOnce(Mode, &'static DataFile, &Once<R, F>) -> R,
) -> R {
    let mode = CORE.switch().mode();
    if mode.is_off() {
        return real();
    }
    with_file(mode, fd, real, rules)
}

/// The same around a read. While nothing is served, timed or recorded, it forwards the call without a file lookup.
#[inline(always)]
fn around_read<R: Copy, F: Fn() -> R>(
    fd: c_int,
    real: F,
    rules: impl FnOnce(Mode, &'static DataFile, &Once<R, F>) -> R,
) -> R {
    let mode = CORE.switch().mode();
    if !mode.looks_at_reads() && !mode.records() {
        return real();
    }
    with_file(mode, fd, real, rules)
}

#[inline(always)]
fn with_file<R: Copy, F: Fn() -> R>(
    mode: Mode,
    fd: c_int,
    real: F,
    rules: impl FnOnce(Mode, &'static DataFile, &Once<R, F>) -> R,
) -> R {
    match CORE.files.look_up(fd) {
        Some(entry) => on_file(mode, entry, real, rules),
        None => real(),
    }
}

/// Not inlined, so that the common path stays a few loads and a jump.
#[inline(never)]
fn on_file<R: Copy, F: Fn() -> R>(
    mode: Mode,
    entry: Entry,
    real: F,
    rules: impl FnOnce(Mode, &'static DataFile, &Once<R, F>) -> R,
) -> R {
    guarded(real, |real| match CORE.files.file(entry) {
        Some(file) => rules(mode, file, real),
        None => real.make(),
    })
}

/// # Safety
/// `buffer` must be valid for writes of `length` bytes.
#[inline]
unsafe fn read_page(
    mode: Mode,
    file: &'static DataFile,
    buffer: *mut c_void,
    length: size_t,
    offset: off64_t,
    real: impl FnOnce() -> ssize_t,
) -> ssize_t {
    match CORE.target_of_read(mode, file, length, offset) {
        // SAFETY: the caller's promise.
        Some(target) => unsafe { CORE.read(mode, target, buffer.cast(), length, real) },
        None => real(),
    }
}

type Pwrite = unsafe extern "C" fn(c_int, *const c_void, size_t, off64_t) -> ssize_t;

unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { PWRITE.get::<Pwrite>()(fd, buffer, length, offset) };
    #[cfg(debug_assertions)]
    // SAFETY: the server passes a buffer of `length` bytes to its own write.
    let real =
        move || unsafe { crate::platform::naive::write(fd, buffer.cast(), length, offset, real) };
    // SAFETY: the server passes a buffer of `length` bytes to its own write.
    around(fd, real, move |mode, file, real| unsafe {
        CORE.write(mode, (fd, file), buffer.cast(), length, offset, || {
            real.make()
        })
    })
}

unsafe extern "C" fn pwritev64(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off64_t,
) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { PWRITEV.get::<Call>()(fd, vector, count, offset) };
    around(fd, real, move |mode, file, real| {
        // SAFETY: the server passes a valid vector to its own call.
        let length = unsafe { vector_bytes(vector.cast(), count) };
        if mode.records() {
            CORE.notes.note_write(file, None, length, offset);
        }
        CORE.change_range((fd, file), length as i64, offset, || real.make())
    })
}

unsafe extern "C" fn pwritev2(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off64_t,
    flags: c_int,
) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t, c_int) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { PWRITEV2.get::<Call>()(fd, vector, count, offset, flags) };
    unfollowed(fd, real)
}

/// A write without a usable offset.
#[inline(always)]
fn unfollowed<R: Copy>(fd: c_int, real: impl Fn() -> R) -> R {
    around(fd, real, |_, file, real| {
        CORE.change_unfollowed(file, || real.make())
    })
}

unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(fd, move || unsafe {
        WRITE.get::<Call>()(fd, buffer, length)
    })
}

unsafe extern "C" fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(fd, move || unsafe {
        WRITEV.get::<Call>()(fd, vector, count)
    })
}

unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: size_t,
) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(to, move || unsafe {
        SENDFILE.get::<Call>()(to, from, offset, count)
    })
}

unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    length: size_t,
    flags: libc::c_uint,
) -> ssize_t {
    type Call = unsafe extern "C" fn(
        c_int,
        *mut off64_t,
        c_int,
        *mut off64_t,
        size_t,
        libc::c_uint,
    ) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(to, move || unsafe {
        COPY_FILE_RANGE.get::<Call>()(from, from_offset, to, to_offset, length, flags)
    })
}

unsafe extern "C" fn ftruncate64(fd: c_int, length: off64_t) -> c_int {
    type Call = unsafe extern "C" fn(c_int, off64_t) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { FTRUNCATE.get::<Call>()(fd, length) };
    around(fd, real, move |_, file, real| {
        let grows = Linux.stat(fd).is_some_and(|stat| length >= stat.size);
        if grows {
            CORE.change_looks(Some(file), || real.make())
        } else {
            CORE.change_file(Some(file), || real.make())
        }
    })
}

unsafe extern "C" fn fallocate64(
    fd: c_int,
    mode: c_int,
    offset: off64_t,
    length: off64_t,
) -> c_int {
    type Call = unsafe extern "C" fn(c_int, c_int, off64_t, off64_t) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { FALLOCATE.get::<Call>()(fd, mode, offset, length) };
    const RANGE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
    around(fd, real, move |_, file, real| {
        if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 {
            CORE.change_looks(Some(file), || real.make()) // only allocates: contents below the end of the file stay
        } else if mode & !(RANGE | libc::FALLOC_FL_KEEP_SIZE) == 0 {
            CORE.change_range((fd, file), length, offset, || real.make())
        } else {
            CORE.change_file(Some(file), || real.make())
        }
    })
}

/// Only allocates space. It returns the error and leaves errno alone.
unsafe extern "C" fn posix_fallocate64(fd: c_int, offset: off64_t, length: off64_t) -> c_int {
    type Call = unsafe extern "C" fn(c_int, off64_t, off64_t) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { POSIX_FALLOCATE.get::<Call>()(fd, offset, length) };
    around(fd, real, |_, file, real| {
        CORE.change_looks(Some(file), || real.make())
    })
}

/// Covers both calls: which data are durable does not depend on a file's times, which `fdatasync` may skip.
#[inline(always)]
fn flushes(fd: c_int, real: impl Fn() -> c_int) -> c_int {
    around(fd, real, |_, _, real| CORE.flush(|| real.make()))
}

unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    type Call = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the server's own call with its own argument.
    flushes(fd, move || unsafe { FSYNC.get::<Call>()(fd) })
}

unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    type Call = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the server's own call with its own argument.
    flushes(fd, move || unsafe { FDATASYNC.get::<Call>()(fd) })
}

unsafe extern "C" fn futimens(fd: c_int, times: *const libc::timespec) -> c_int {
    type Call = unsafe extern "C" fn(c_int, *const libc::timespec) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { FUTIMENS.get::<Call>()(fd, times) };
    around(fd, real, |_, file, real| {
        CORE.change_looks(Some(file), || real.make())
    })
}

unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut off64_t,
    to: c_int,
    to_offset: *mut off64_t,
    length: size_t,
    flags: libc::c_uint,
) -> ssize_t {
    type Call = unsafe extern "C" fn(
        c_int,
        *mut off64_t,
        c_int,
        *mut off64_t,
        size_t,
        libc::c_uint,
    ) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(to, move || unsafe {
        SPLICE.get::<Call>()(from, from_offset, to, to_offset, length, flags)
    })
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    type Call = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { CLOSE.get::<Call>()(fd) };
    around(fd, real, move |_, _, real| {
        CORE.files.detach(fd);
        real.make()
    })
}
