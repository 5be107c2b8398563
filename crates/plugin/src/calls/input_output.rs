//! Calls on descriptors: reads, writes, holes, truncation, close.

use std::ffi::{c_int, c_void};

use libc::{iovec, off64_t, size_t, ssize_t};

use super::{Original, guarded, import};
use crate::coherence;
use crate::files;
use crate::got::Import;
use crate::{recorder, switch};

static PREAD: Original = Original::new();
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
    ]
}

type Pread = unsafe extern "C" fn(c_int, *mut c_void, size_t, off64_t) -> ssize_t;

unsafe extern "C" fn pread64(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { PREAD.get::<Pread>()(fd, buffer, length, offset) };
    #[cfg(feature = "canary")]
    // SAFETY: the server passes a buffer of `length` bytes to its own read.
    let real = || unsafe { crate::canary::naive::read(fd, buffer.cast(), length, offset, real) };
    if switch::is_off() {
        return real();
    }
    read_page(fd, buffer, length, offset, real)
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
    let real = || unsafe { PREAD_CHECKED.get::<Checked>()(fd, buffer, length, offset, room) };
    if switch::is_off() || length > room {
        return real();
    }
    read_page(fd, buffer, length, offset, real)
}

#[inline]
fn read_page(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off64_t,
    real: impl Fn() -> ssize_t,
) -> ssize_t {
    // Without an active extension `coherence::read` only passes the read on.
    let looked_at = switch::mode() & (switch::SERVE | switch::RECORD) != 0;
    if !looked_at || files::of_descriptor(fd).is_none() {
        return real();
    }
    guarded(real, |real| {
        match coherence::target_of_read(fd, length, offset) {
            // SAFETY: the server passes a buffer of `length` bytes to its own read.
            Some(target) => unsafe { coherence::read(target, buffer.cast(), length, real) },
            None => real(),
        }
    })
}

type Pwrite = unsafe extern "C" fn(c_int, *const c_void, size_t, off64_t) -> ssize_t;

unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { PWRITE.get::<Pwrite>()(fd, buffer, length, offset) };
    #[cfg(feature = "canary")]
    // SAFETY: the server passes a buffer of `length` bytes to its own write.
    let real = || unsafe { crate::canary::naive::write(fd, buffer.cast(), length, offset, real) };
    if switch::is_off() || files::of_descriptor(fd).is_none() {
        return real();
    }
    // SAFETY: the server passes a buffer of `length` bytes to its own write.
    guarded(real, |real| unsafe {
        coherence::write(fd, buffer.cast(), length, offset, real)
    })
}

/// Bytes that a vector of buffers describes.
///
/// # Safety
/// `vector` must point to `count` valid entries.
pub unsafe fn vector_bytes(vector: *const iovec, count: c_int) -> usize {
    let count = usize::try_from(count).unwrap_or(0);
    if vector.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(vector, count) }
        .iter()
        .fold(0usize, |sum, entry| sum.saturating_add(entry.iov_len))
}

unsafe extern "C" fn pwritev64(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off64_t,
) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, *const iovec, c_int, off64_t) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { PWRITEV.get::<Call>()(fd, vector, count, offset) };
    if switch::is_off() || files::of_descriptor(fd).is_none() {
        return real();
    }
    guarded(real, |real| {
        // SAFETY: the server passes a valid vector to its own call.
        let length = unsafe { vector_bytes(vector, count) };
        if switch::is_recording() {
            if let Some(file) = files::of_descriptor(fd) {
                recorder::note_write(file, None, length, offset);
            }
        }
        coherence::change_range(fd, length as i64, offset, real)
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
    let real = || unsafe { PWRITEV2.get::<Call>()(fd, vector, count, offset, flags) };
    unfollowed(fd, real)
}

/// A write that carries no usable offset.
#[inline]
fn unfollowed<R: Copy>(fd: c_int, real: impl Fn() -> R) -> R {
    if switch::is_off() || files::of_descriptor(fd).is_none() {
        return real();
    }
    guarded(real, |real| coherence::change_unfollowed(fd, real))
}

unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, *const c_void, size_t) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(fd, || unsafe { WRITE.get::<Call>()(fd, buffer, length) })
}

unsafe extern "C" fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, *const iovec, c_int) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(fd, || unsafe { WRITEV.get::<Call>()(fd, vector, count) })
}

unsafe extern "C" fn sendfile64(
    to: c_int,
    from: c_int,
    offset: *mut off64_t,
    count: size_t,
) -> ssize_t {
    type Call = unsafe extern "C" fn(c_int, c_int, *mut off64_t, size_t) -> ssize_t;
    // SAFETY: the server's own call with the server's own arguments.
    unfollowed(to, || unsafe {
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
    unfollowed(to, || unsafe {
        COPY_FILE_RANGE.get::<Call>()(from, from_offset, to, to_offset, length, flags)
    })
}

unsafe extern "C" fn ftruncate64(fd: c_int, length: off64_t) -> c_int {
    type Call = unsafe extern "C" fn(c_int, off64_t) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { FTRUNCATE.get::<Call>()(fd, length) };
    if switch::is_off() {
        return real();
    }
    let Some(file) = files::of_descriptor(fd) else {
        return real();
    };
    guarded(real, |real| {
        let grows = files::stat_descriptor(fd).is_some_and(|stat| length >= stat.st_size);
        if grows {
            coherence::change_looks(Some(file), real)
        } else {
            coherence::change_file(Some(file), real)
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
    let real = || unsafe { FALLOCATE.get::<Call>()(fd, mode, offset, length) };
    if switch::is_off() {
        return real();
    }
    let Some(file) = files::of_descriptor(fd) else {
        return real();
    };
    const RANGE: c_int = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_ZERO_RANGE;
    guarded(real, |real| {
        if mode & !libc::FALLOC_FL_KEEP_SIZE == 0 {
            coherence::change_looks(Some(file), real) // only makes room: what lies below the end of the file stays
        } else if mode & !(RANGE | libc::FALLOC_FL_KEEP_SIZE) == 0 {
            coherence::change_range(fd, length, offset, real)
        } else {
            coherence::change_file(Some(file), real)
        }
    })
}

/// Only makes room. It returns the error and leaves errno alone.
unsafe extern "C" fn posix_fallocate64(fd: c_int, offset: off64_t, length: off64_t) -> c_int {
    type Call = unsafe extern "C" fn(c_int, off64_t, off64_t) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { POSIX_FALLOCATE.get::<Call>()(fd, offset, length) };
    changes_looks(fd, real)
}

/// A change of size or times of the file behind a descriptor, but not of what may be cached of it.
#[inline]
fn changes_looks<R: Copy>(fd: c_int, real: impl Fn() -> R) -> R {
    if switch::is_off() {
        return real();
    }
    let Some(file) = files::of_descriptor(fd) else {
        return real();
    };
    guarded(real, |real| coherence::change_looks(Some(file), real))
}

unsafe extern "C" fn futimens(fd: c_int, times: *const libc::timespec) -> c_int {
    type Call = unsafe extern "C" fn(c_int, *const libc::timespec) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    changes_looks(fd, || unsafe { FUTIMENS.get::<Call>()(fd, times) })
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
    unfollowed(to, || unsafe {
        SPLICE.get::<Call>()(from, from_offset, to, to_offset, length, flags)
    })
}

unsafe extern "C" fn close(fd: c_int) -> c_int {
    type Call = unsafe extern "C" fn(c_int) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = || unsafe { CLOSE.get::<Call>()(fd) };
    if switch::is_off() || files::of_descriptor(fd).is_none() {
        return real();
    }
    guarded(real, |real| {
        files::detach(fd);
        real()
    })
}

/// Reads through the call that was in the server's slot, for a read that has to be made in place of another.
///
/// # Safety
/// As for `pread`.
pub unsafe fn real_pread(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off64_t,
) -> ssize_t {
    // SAFETY: the caller's promise; the slot was patched before anything could get here.
    unsafe { PREAD.get::<Pread>()(fd, buffer, length, offset) }
}
