//! Calls on paths: open, unlink, rename, truncate.

use std::ffi::{CStr, c_char, c_int, c_uint};

use coherence::files::{self, Attach, DataFile};
use coherence::os::{Os as _, Stat};
use libc::{mode_t, off64_t};

use super::guard::{guarded, hook, import};
use crate::intercept::got::Import;
use crate::platform::{CORE, Linux, Original};
use crate::restart::redo_gate;

static OPEN: Original = Original::new();
static OPENAT: Original = Original::new();

pub(super) fn imports() -> Vec<Import> {
    vec![
        import!(OPEN, open64, "open64", "open"),
        import!(OPEN_CHECKED, open64_checked, "__open64_2", "__open_2"),
        import!(OPENAT, openat64, "openat64", "openat"),
        import!(CREAT, creat64, "creat64", "creat"),
        import!(UNLINK, unlink, "unlink"),
        import!(UNLINKAT, unlinkat, "unlinkat"),
        import!(REMOVE, remove, "remove"),
        import!(RENAME, rename, "rename"),
        import!(RENAMEAT, renameat, "renameat"),
        import!(RENAMEAT2, renameat2, "renameat2"),
        import!(TRUNCATE, truncate64, "truncate64", "truncate"),
        import!(UTIME, utime, "utime"),
        import!(UTIMES, utimes, "utimes"),
        import!(UTIMENSAT, utimensat, "utimensat"),
    ]
}

type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;

/// Returns the tracked file at a path, relative to a directory descriptor.
///
/// # Safety
/// `path` must be null or a valid string.
unsafe fn file_at(directory: c_int, path: *const c_char) -> Option<(&'static DataFile, Stat)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let stat = Linux.stat_at(directory, unsafe { CStr::from_ptr(path) })?;
    Some((CORE.files.of_inode(&stat)?, stat))
}

/// Runs the rules around every kind of open.
///
/// # Safety
/// `path` must be null or a valid string.
#[inline(never)]
unsafe fn around_open(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    real: impl Fn() -> c_int,
) -> c_int {
    if path.is_null() {
        return real();
    }
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(path) }.to_bytes();
    let named = files::is_data_file_name(name);
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    if !named && !writes {
        return guarded(real, |real| {
            let fd = real.make();
            if CORE.files.of_descriptor(fd).is_some() {
                CORE.files.opened_anew(fd);
            }
            redo_gate::file_opened(fd, name);
            fd
        });
    }
    guarded(real, |real| {
        // SAFETY: the caller's promise.
        let truncated = (flags & libc::O_TRUNC != 0)
            .then(|| unsafe { file_at(directory, path) })
            .flatten();
        let _blocked = truncated.map(|(file, _)| file.begin_file_change());
        let fd = real.make();
        CORE.files.opened_anew(fd);
        redo_gate::file_opened(fd, name);
        let stat = if fd >= 0 { Linux.stat(fd) } else { None };
        let tracked = stat
            .filter(|stat| stat.is_regular)
            // A tracked file may be opened under any name. The rules must know every writable descriptor.
            .filter(|stat| {
                named || CORE.files.of_inode(stat).is_some() && !coherence::canary!("second-names")
            });
        if let Some(stat) = tracked {
            let anew = flags & (libc::O_TRUNC | libc::O_CREAT) != 0;
            CORE.files.attach(fd, &stat, name, Attach::Opened { anew });
        }
        fd
    })
}

/// Like [`around_open`], but only forwards while the extension is off. An open may outlast the scan of a concurrent
/// switch-on: files that the scan missed are attached here.
///
/// # Safety
/// `path` must be null or a valid string.
#[inline(always)]
unsafe fn unless_off(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    real: impl Fn() -> c_int,
) -> c_int {
    if !CORE.switch().mode().is_off() {
        // SAFETY: the caller's promise.
        return unsafe { around_open(directory, path, flags, real) };
    }
    let fd = real();
    if fd < 0 || CORE.switch().mode().is_off() {
        return fd;
    }
    // SAFETY: the caller's promise.
    unsafe { around_open(directory, path, flags, || fd) }
}

unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the server's own call with the server's own arguments; a mode that was not given is not used.
    let real = move || unsafe { OPEN.get::<Open>()(path, flags, mode) };
    // SAFETY: the server's own path.
    unsafe { unless_off(libc::AT_FDCWD, path, flags, real) }
}

hook! {
    fn open64_checked = OPEN_CHECKED(path: *const c_char, flags: c_int) -> c_int
    |real| {
        // SAFETY: the server's own path.
        unsafe { unless_off(libc::AT_FDCWD, path, flags, real) }
    }
}

unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    type Call = unsafe extern "C" fn(c_int, *const c_char, c_int, ...) -> c_int;
    // SAFETY: the server's own call with the server's own arguments.
    let real = move || unsafe { OPENAT.get::<Call>()(directory, path, flags, mode) };
    // SAFETY: the server's own path.
    unsafe { unless_off(directory, path, flags, real) }
}

hook! {
    fn creat64 = CREAT(path: *const c_char, mode: mode_t) -> c_int
    |real| {
        // SAFETY: the server's own path.
        unsafe {
            unless_off(
                libc::AT_FDCWD,
                path,
                libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC,
                real,
            )
        }
    }
}

/// Runs the rules around a call that removes the name at `path` from the file that has it. `replaced_by` is the inode that
/// gets the name instead, if any.
///
/// # Safety
/// `path` must be null or a valid string.
#[inline(never)]
unsafe fn around_removal(
    directory: c_int,
    path: *const c_char,
    replaced_by: Option<(u64, u64)>,
    real: impl Fn() -> c_int,
) -> c_int {
    guarded(real, |real| {
        // SAFETY: the caller's promise.
        let victim = unsafe { file_at(directory, path) }
            .filter(|(_, stat)| stat.links <= 1 && replaced_by != Some(stat.inode))
            .map(|(file, _)| file);
        // Also prevents reuse of this file's object for another file until the call returns.
        let _blocked = victim.map(DataFile::block);
        let barred_before = victim.is_some_and(DataFile::disable_caching);
        // A rename also changes the times of the file.
        let moved = replaced_by.and_then(|inode| CORE.files.of_number(inode));
        let result = CORE.change_metadata(moved, || real.make());
        if let Some(file) = victim {
            if result == 0 {
                CORE.files.forget_unlinked(file);
            } else {
                file.restore_caching(barred_before);
            }
        }
        if let (0, Some(inode)) = (result, replaced_by) {
            // SAFETY: the caller's promise. The path was not null, or nothing could have been replaced.
            CORE.files
                .renamed(inode, unsafe { CStr::from_ptr(path) }.to_bytes());
        }
        result
    })
}

hook! {
    fn unlink = UNLINK(path: *const c_char) -> c_int
    |real, mode| {
        // SAFETY: the server's own path.
        unsafe { around_removal(libc::AT_FDCWD, path, None, real) }
    }
}

hook! {
    fn unlinkat = UNLINKAT(directory: c_int, path: *const c_char, flags: c_int) -> c_int
    |real, mode| {
        // SAFETY: the server's own path.
        unsafe { around_removal(directory, path, None, real) }
    }
}

hook! {
    fn remove = REMOVE(path: *const c_char) -> c_int
    |real, mode| {
        // SAFETY: the server's own path.
        unsafe { around_removal(libc::AT_FDCWD, path, None, real) }
    }
}

/// Returns the inode at a path.
///
/// # Safety
/// `path` must be null or a valid string.
unsafe fn inode_at(directory: c_int, path: *const c_char) -> Option<(u64, u64)> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let stat = Linux.stat_at(directory, unsafe { CStr::from_ptr(path) })?;
    Some(stat.inode)
}

hook! {
    fn rename = RENAME(from: *const c_char, to: *const c_char) -> c_int
    |real, mode| {
        // SAFETY: the server's own paths.
        unsafe {
            let moved = inode_at(libc::AT_FDCWD, from);
            around_removal(libc::AT_FDCWD, to, moved, real)
        }
    }
}

hook! {
    fn renameat = RENAMEAT(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char) -> c_int
    |real, mode| {
        // SAFETY: the server's own paths.
        unsafe { around_removal(to_dir, to, inode_at(from_dir, from), real) }
    }
}

hook! {
    fn renameat2 = RENAMEAT2(from_dir: c_int, from: *const c_char, to_dir: c_int, to: *const c_char, flags: c_uint) -> c_int
    |real, mode| {
        if flags & libc::RENAME_EXCHANGE != 0 {
            return real(); // an exchange removes neither file
        }
        // SAFETY: the server's own paths.
        unsafe { around_removal(to_dir, to, inode_at(from_dir, from), real) }
    }
}

hook! {
    fn truncate64 = TRUNCATE(path: *const c_char, length: off64_t) -> c_int
    |real, mode| {
        guarded(real, |real| {
            // SAFETY: the server's own path.
            let file = unsafe { file_at(libc::AT_FDCWD, path) }.map(|(file, _)| file);
            CORE.change_file(file, || real.make())
        })
    }
}

/// Runs the rules around a call that sets the times of the file at a path.
///
/// # Safety
/// `path` must be null or a valid string.
#[inline(always)]
unsafe fn around_times(directory: c_int, path: *const c_char, real: impl Fn() -> c_int) -> c_int {
    if CORE.switch().mode().is_off() {
        return real();
    }
    // SAFETY: the caller's promise.
    unsafe { set_times(directory, path, real) }
}

/// # Safety
/// As for [`around_times`].
#[inline(never)]
unsafe fn set_times(directory: c_int, path: *const c_char, real: impl Fn() -> c_int) -> c_int {
    guarded(real, |real| {
        let file = if path.is_null() {
            CORE.files.of_descriptor(directory) // as `utimensat` takes it
        } else {
            // SAFETY: the caller's promise.
            unsafe { file_at(directory, path) }.map(|(file, _)| file)
        };
        CORE.change_metadata(file, || real.make())
    })
}

hook! {
    fn utime = UTIME(path: *const c_char, times: *const libc::utimbuf) -> c_int
    |real| {
        // SAFETY: the server's own path.
        unsafe { around_times(libc::AT_FDCWD, path, real) }
    }
}

hook! {
    fn utimes = UTIMES(path: *const c_char, times: *const libc::timeval) -> c_int
    |real| {
        // SAFETY: the server's own path.
        unsafe { around_times(libc::AT_FDCWD, path, real) }
    }
}

hook! {
    fn utimensat = UTIMENSAT(directory: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int
    |real| {
        // SAFETY: the server's own path.
        unsafe { around_times(directory, path, real) }
    }
}
