//! Calls on descriptors: reads, writes, holes, truncation, close.

use std::ffi::{c_int, c_void};

use coherence::core::requests::vector_bytes;
use coherence::files::{DataFile, Entry};
use coherence::os::Os as _;
use coherence::switch::Mode;
use libc::{iovec, off64_t, size_t, ssize_t};

use super::guard::{Once, guarded, hook, import};
use crate::intercept::got::Import;
use crate::platform::linux::{PREAD, Pread};
use crate::platform::{CORE, Linux, Original};

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

hook! {
    fn pread64_checked = PREAD_CHECKED(fd: c_int, buffer: *mut c_void, length: size_t, offset: off64_t, room: size_t) -> ssize_t
    |real| around_read(fd, real, move |mode, file, real| {
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
    if !mode.handles_reads() && !mode.records() {
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
    match CORE.page_of_request(mode, file, length, offset) {
        // SAFETY: the caller's promise.
        Some(target) => unsafe { CORE.read(mode, target, buffer.cast(), length, real) },
        None => real(),
    }
}

hook! {
    fn pwrite64 = PWRITE(fd: c_int, buffer: *const c_void, length: size_t, offset: off64_t) -> ssize_t
    |real| {
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
}

hook! {
    fn pwritev64 = PWRITEV(fd: c_int, vector: *const iovec, count: c_int, offset: off64_t) -> ssize_t
    |real| around(fd, real, move |mode, file, real| {
        // SAFETY: the server passes a valid vector to its own call.
        let length = unsafe { vector_bytes(vector.cast(), count) };
        if mode.records() {
            CORE.trace.record_write(file, None, length, offset);
        }
        CORE.change_range((fd, file), length as i64, offset, || real.make())
    })
}

hook! {
    fn pwritev2 = PWRITEV2(fd: c_int, vector: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t
    |real| write_without_offset(fd, real)
}

/// A write without a usable offset.
#[inline(always)]
fn write_without_offset<R: Copy>(fd: c_int, real: impl Fn() -> R) -> R {
    around(fd, real, |_, file, real| {
        CORE.change_untracked(file, || real.make())
    })
}

hook! {
    fn write = WRITE(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t
    |real| write_without_offset(fd, real)
}

hook! {
    fn writev = WRITEV(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t
    |real| write_without_offset(fd, real)
}

hook! {
    fn sendfile64 = SENDFILE(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t
    |real| write_without_offset(to, real)
}

hook! {
    fn copy_file_range = COPY_FILE_RANGE(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, length: size_t, flags: libc::c_uint) -> ssize_t
    |real| write_without_offset(to, real)
}

hook! {
    fn ftruncate64 = FTRUNCATE(fd: c_int, length: off64_t) -> c_int
    |real| around(fd, real, move |_, file, real| {
        let grows = Linux.stat(fd).is_some_and(|stat| length >= stat.size);
        if grows {
            CORE.change_metadata(Some(file), || real.make())
        } else {
            CORE.change_file(Some(file), || real.make())
        }
    })
}

hook! {
    fn fallocate64 = FALLOCATE(fd: c_int, mode: c_int, offset: off64_t, length: off64_t) -> c_int
    |real| {
        const RANGE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
        around(fd, real, move |_, file, real| {
            if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 {
                CORE.change_metadata(Some(file), || real.make()) // only allocates: contents below the end of the file stay
            } else if mode & !(RANGE | libc::FALLOC_FL_KEEP_SIZE) == 0 {
                CORE.change_range((fd, file), length, offset, || real.make())
            } else {
                CORE.change_file(Some(file), || real.make())
            }
        })
    }
}

hook! {
    /// Only allocates space. It returns the error and leaves errno alone.
    fn posix_fallocate64 = POSIX_FALLOCATE(fd: c_int, offset: off64_t, length: off64_t) -> c_int
    |real| around(fd, real, |_, file, real| {
        CORE.change_metadata(Some(file), || real.make())
    })
}

/// Covers both calls: which data are durable does not depend on a file's times, which `fdatasync` may skip.
#[inline(always)]
fn flush(fd: c_int, real: impl Fn() -> c_int) -> c_int {
    around(fd, real, |_, _, real| CORE.flush(|| real.make()))
}

hook! {
    fn fsync = FSYNC(fd: c_int) -> c_int
    |real| flush(fd, real)
}

hook! {
    fn fdatasync = FDATASYNC(fd: c_int) -> c_int
    |real| flush(fd, real)
}

hook! {
    fn futimens = FUTIMENS(fd: c_int, times: *const libc::timespec) -> c_int
    |real| around(fd, real, |_, file, real| {
        CORE.change_metadata(Some(file), || real.make())
    })
}

hook! {
    fn splice = SPLICE(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, length: size_t, flags: libc::c_uint) -> ssize_t
    |real| write_without_offset(to, real)
}

hook! {
    fn close = CLOSE(fd: c_int) -> c_int
    |real| around(fd, real, move |_, _, real| {
        CORE.files.detach(fd);
        real.make()
    })
}
