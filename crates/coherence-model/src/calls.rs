//! The intercepted calls, made as a server makes them: through an address like that of a GOT slot.
//!
//! [`kernel`] replaces the C library behind them.

use std::ffi::{c_char, c_int, c_long, c_uint, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::kernel;

macro_rules! calls {
    ($($name:ident = $import:literal ($($argument:ident: $kind:ty),*) -> $result:ty;)*) => {
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy)]
        enum Call { $($name),* }

        const NAMES: &[&str] = &[$($import),*];
        static HOOKS: [AtomicUsize; NAMES.len()] = [const { AtomicUsize::new(0) }; NAMES.len()];
        static MADE: [AtomicU64; NAMES.len()] = [const { AtomicU64::new(0) }; NAMES.len()];

        $(
            /// The call, through the hook.
            ///
            /// # Safety
            /// As for the call of this name.
            #[allow(clippy::too_many_arguments)]
            pub unsafe fn $name($($argument: $kind),*) -> $result {
                MADE[Call::$name as usize].fetch_add(1, Ordering::Relaxed);
                let hook = HOOKS[Call::$name as usize].load(Ordering::Relaxed);
                // SAFETY: `install` has put the hook of this call there.
                let hook = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn($($kind),*) -> $result>(hook) };
                // SAFETY: the caller's promise.
                unsafe { hook($($argument),*) }
            }
        )*

        /// Installs the calls of [`kernel`] behind the hooks.
        ///
        /// # Errors
        /// Names a call that is not intercepted, or not covered by this model.
        pub fn install() -> anyhow::Result<()> {
            let imports = bpe_plugin::hooks::imports();
            $(
                let import = imports.iter().find(|import| import.names.contains(&$import));
                let import = import.ok_or_else(|| anyhow::anyhow!("{} is not intercepted", $import))?;
                let behind: unsafe extern "C" fn($($kind),*) -> $result = kernel::$name;
                import.original.store(behind as usize, Ordering::SeqCst);
                HOOKS[Call::$name as usize].store(import.hook, Ordering::SeqCst);
            )*
            let ends = |names: &[&str]| interface::calls::ENDING.hooked.contains(&names);
            for import in imports.iter().filter(|import| !ends(import.names)) {
                let tried = NAMES.iter().any(|name| import.names.contains(name));
                anyhow::ensure!(tried, "{:?} is intercepted, but the model does not try it", import.names);
            }
            Ok(())
        }
    };
}

calls! {
    pread64 = "pread64"(fd: c_int, buffer: *mut c_void, length: usize, offset: i64) -> isize;
    pread64_checked = "__pread64_chk"(fd: c_int, buffer: *mut c_void, length: usize, offset: i64, room: usize) -> isize;
    pwrite64 = "pwrite64"(fd: c_int, buffer: *const c_void, length: usize, offset: i64) -> isize;
    pwritev64 = "pwritev64"(fd: c_int, vector: *const libc::iovec, count: c_int, offset: i64) -> isize;
    pwritev2 = "pwritev64v2"(fd: c_int, vector: *const libc::iovec, count: c_int, offset: i64, flags: c_int) -> isize;
    write = "write"(fd: c_int, buffer: *const c_void, length: usize) -> isize;
    writev = "writev"(fd: c_int, vector: *const libc::iovec, count: c_int) -> isize;
    sendfile64 = "sendfile64"(to: c_int, from: c_int, offset: *mut i64, count: usize) -> isize;
    copy_file_range = "copy_file_range"(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize;
    ftruncate64 = "ftruncate64"(fd: c_int, length: i64) -> c_int;
    truncate64 = "truncate64"(path: *const c_char, length: i64) -> c_int;
    fallocate64 = "fallocate64"(fd: c_int, mode: c_int, offset: i64, length: i64) -> c_int;
    posix_fallocate64 = "posix_fallocate64"(fd: c_int, offset: i64, length: i64) -> c_int;
    splice = "splice"(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize;
    futimens = "futimens"(fd: c_int, times: *const libc::timespec) -> c_int;
    utime = "utime"(path: *const c_char, times: *const libc::utimbuf) -> c_int;
    utimes = "utimes"(path: *const c_char, times: *const libc::timeval) -> c_int;
    utimensat = "utimensat"(directory: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int;
    fsync = "fsync"(fd: c_int) -> c_int;
    fdatasync = "fdatasync"(fd: c_int) -> c_int;
    close = "close"(fd: c_int) -> c_int;
    open64 = "open64"(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    open64_checked = "__open64_2"(path: *const c_char, flags: c_int) -> c_int;
    openat64 = "openat64"(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
    creat64 = "creat64"(path: *const c_char, mode: c_uint) -> c_int;
    unlink = "unlink"(path: *const c_char) -> c_int;
    unlinkat = "unlinkat"(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
    remove = "remove"(path: *const c_char) -> c_int;
    rename = "rename"(from: *const c_char, to: *const c_char) -> c_int;
    renameat = "renameat"(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char) -> c_int;
    renameat2 = "renameat2"(from_directory: c_int, from: *const c_char, to_directory: c_int, to: *const c_char, flags: c_uint) -> c_int;
    io_submit = "io_submit"(context: usize, count: c_long, requests: *mut *mut kernel::Iocb) -> c_int;
    io_setup = "io_setup"(count: c_int, context: *mut usize) -> c_int;
    io_getevents = "io_getevents"(context: usize, least: c_long, most: c_long, events: *mut kernel::IoEvent, timeout: *mut libc::timespec) -> c_int;
    syscall = "syscall"(number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long) -> c_long;
    io_uring_submit = "io_uring_submit"(ring: *mut kernel::Ring) -> c_int;
    io_uring_queue_init = "io_uring_queue_init"(entries: c_uint, ring: *mut kernel::Ring, flags: c_uint) -> c_int;
}

/// Number of calls made, by name.
pub fn made() -> impl Iterator<Item = (&'static str, u64)> {
    NAMES
        .iter()
        .zip(&MADE)
        .map(|(name, made)| (*name, made.load(Ordering::Relaxed)))
}
