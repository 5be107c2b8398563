//! The calls through which a server reads and changes its data files.

/// Calls that do the same kind of thing.
#[derive(Debug)]
pub struct Family {
    /// What they do, for people.
    pub what: &'static str,
    /// The intercepted ones. Each has one hook, under every name by which an executable may import it.
    pub hooked: &'static [&'static [&'static str]],
    /// At least one of these must be imported; none is asked for where this is empty.
    pub needed: &'static [&'static str],
    /// Members that have no hook: what is done through them is not seen.
    pub unhooked: &'static [&'static str],
}

/// Reading. A read that is not seen is not served, and does no other harm.
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
    // The C library's own asynchronous I/O, which it does in threads of its own.
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

/// Changing the size of files and the room they take.
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

/// Setting times, which the audit would take for a change by somebody else.
pub const TIMES: Family = Family {
    what: "sets times",
    hooked: &[&["futimens"], &["utime"], &["utimes"], &["utimensat"]],
    needed: &[],
    unhooked: &[],
};

/// Flushing. What was not seen to be flushed is not kept when the machine restarts, and no other harm is done.
pub const FLUSHING: Family = Family {
    what: "flushes",
    hooked: &[&["fsync"], &["fdatasync"]],
    needed: &[],
    unhooked: &[],
};

/// Asynchronous I/O through libaio. Servers harvest by `io_getevents`, or by `syscall` with its number; a libaio that is
/// linked in may make all its calls that way.
pub const LIBAIO: Family = Family {
    what: "submits through libaio",
    hooked: &[
        &["io_submit"],
        &["io_getevents"],
        &["io_setup"],
        &["syscall"],
    ],
    needed: &[],
    // They take completions past the hooks: a read that was pointed at the cache would reach the server unproven.
    unhooked: &["io_pgetevents", "io_queue_run", "io_queue_wait"],
};

/// Asynchronous I/O through io_uring.
pub const IO_URING: Family = Family {
    what: "submits through io_uring",
    hooked: &[&["io_uring_submit"], &["io_uring_queue_init"]],
    needed: &[],
    // All of them submit; those that wait do so on kernels that cannot wait with a timeout otherwise.
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

/// Ending itself, as a server does that crashes. What is left to the next process is not believed if that comes soon after it was
/// taken over.
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

/// What a server needs whatever kind of I/O it does.
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
