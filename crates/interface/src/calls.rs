//! The calls through which a server reads and changes its data files.

/// A family of calls with the same purpose.
#[derive(Debug)]
pub struct Family {
    /// Their purpose, for messages.
    pub what: &'static str,
    /// The intercepted calls. Each has one hook, under every name by which an executable may import it.
    pub hooked: &'static [&'static [&'static str]],
    /// The executable must import at least one of these; empty if none is required.
    pub needed: &'static [&'static str],
    /// Members without a hook: their effects are invisible.
    pub unhooked: &'static [&'static str],
}

/// Reading. An invisible read is not served; it causes no harm.
pub const READING: Family = Family {
    what: "reads",
    hooked: &[&["pread64", "pread"], &["__pread64_chk", "__pread_chk"]],
    needed: &["pread64", "pread"],
    unhooked: &[],
};

/// Writing.
pub const WRITING: Family = Family {
    what: "writes",
    hooked: &[
        &["pwrite64", "pwrite"],
        &["pwritev64", "pwritev"],
        &["pwritev64v2", "pwritev2"],
        &["write"],
        &["writev"],
        &["sendfile64", "sendfile"],
        &["copy_file_range"],
        &["splice"],
    ],
    needed: &["pwrite64", "pwrite"],
    // The C library's own asynchronous I/O, which runs in its own threads.
    unhooked: &["aio_write", "aio_write64", "lio_listio", "lio_listio64"],
};

/// Opening.
pub const OPENING: Family = Family {
    what: "opens",
    hooked: &[
        &["open64", "open"],
        &["__open64_2", "__open_2"],
        &["openat64", "openat"],
        &["creat64", "creat"],
    ],
    needed: &["open64", "open"],
    unhooked: &["__openat64_2", "__openat_2", "open_by_handle_at"],
};

/// Closing.
pub const CLOSING: Family = Family {
    what: "closes",
    hooked: &[&["close"]],
    needed: &["close"],
    unhooked: &[],
};

/// Removing.
pub const REMOVING: Family = Family {
    what: "removes",
    hooked: &[&["unlink"], &["unlinkat"], &["remove"]],
    needed: &["unlink", "unlinkat"],
    unhooked: &[],
};

/// Renaming.
pub const RENAMING: Family = Family {
    what: "renames",
    hooked: &[&["rename"], &["renameat"], &["renameat2"]],
    needed: &["rename", "renameat"],
    unhooked: &[],
};

/// Changing the size of files and their allocated space.
pub const SIZING: Family = Family {
    what: "truncates",
    hooked: &[
        &["ftruncate64", "ftruncate"],
        &["truncate64", "truncate"],
        &["fallocate64", "fallocate"],
        &["posix_fallocate64", "posix_fallocate"],
    ],
    needed: &["ftruncate64", "ftruncate"],
    unhooked: &[],
};

/// Setting times. Without a hook, the audit would take it for a foreign change.
pub const TIMES: Family = Family {
    what: "sets times",
    hooked: &[&["futimens"], &["utime"], &["utimes"], &["utimensat"]],
    needed: &[],
    unhooked: &[],
};

/// Flushing. Data whose flush was not seen are not kept over a host reboot; no other harm results.
pub const FLUSHING: Family = Family {
    what: "flushes",
    hooked: &[&["fsync"], &["fdatasync"]],
    needed: &[],
    unhooked: &[],
};

/// Asynchronous I/O through libaio. Servers harvest by `io_getevents`, or by `syscall` with its number. A linked-in libaio
/// may make all its calls through `syscall`.
pub const LIBAIO: Family = Family {
    what: "submits through libaio",
    hooked: &[
        &["io_submit"],
        &["io_getevents"],
        &["io_setup"],
        &["syscall"],
    ],
    needed: &[],
    // They deliver completions past the hooks: a read redirected to the cache would reach the server unproven.
    unhooked: &["io_pgetevents", "io_queue_run", "io_queue_wait"],
};

/// Asynchronous I/O through io_uring.
pub const IO_URING: Family = Family {
    what: "submits through io_uring",
    hooked: &[&["io_uring_submit"], &["io_uring_queue_init"]],
    needed: &[],
    // All of them submit. The waiting ones do so only on kernels that have no other wait with a timeout.
    unhooked: &[
        "io_uring_submit_and_wait",
        "io_uring_submit_and_wait_timeout",
        "io_uring_submit_and_wait_min_timeout",
        "io_uring_submit_and_get_events",
        "io_uring_wait_cqes",
        "io_uring_wait_cqe_timeout",
        "io_uring_enter",
        "io_uring_enter2",
    ],
};

/// Ending the own process, as a crashing server does. After a crash soon after a recovery, the next process does not trust
/// the persisted state.
pub const ENDING: Family = Family {
    what: "ends itself",
    hooked: &[
        &["abort"],
        &["_exit"],
        &["_Exit"],
        &["kill"],
        &["pthread_kill"],
    ],
    needed: &[],
    unhooked: &[],
};

/// The families that a server needs with any kind of I/O.
pub const ALWAYS: [&Family; 9] = [
    &READING, &WRITING, &OPENING, &CLOSING, &REMOVING, &RENAMING, &SIZING, &TIMES, &FLUSHING,
];

/// All families.
pub fn families() -> impl Iterator<Item = &'static Family> {
    ALWAYS.into_iter().chain([&LIBAIO, &IO_URING, &ENDING])
}

/// The names of every intercepted call, one entry for each hook.
pub fn hooked() -> impl Iterator<Item = &'static [&'static str]> {
    families().flat_map(|family| family.hooked.iter().copied())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_name_stands_once() {
        let mut seen = BTreeSet::new();
        let unhooked = families().flat_map(|family| family.unhooked);
        for name in hooked().flatten().chain(unhooked) {
            assert!(seen.insert(*name), "{name} stands twice");
        }
    }

    #[test]
    fn what_is_needed_is_hooked() {
        for family in families() {
            for name in family.needed {
                assert!(
                    family.hooked.iter().any(|names| names.contains(name)),
                    "{name}"
                );
            }
        }
    }
}
