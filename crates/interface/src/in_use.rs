//! Detects native asynchronous I/O of a running server, from the kernel's view of its process.

/// The kinds of asynchronous I/O in use. `None`: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InUse {
    pub libaio: Option<bool>,
    pub io_uring: Option<bool>,
}

impl InUse {
    /// Neither.
    pub const NOTHING: InUse = InUse {
        libaio: Some(false),
        io_uring: Some(false),
    };

    /// Interprets InnoDB's variable `innodb_use_native_aio`: both servers set it to OFF when they use neither kind.
    pub fn by_variable(native_aio: bool) -> InUse {
        InUse {
            libaio: Some(native_aio),
            io_uring: Some(native_aio),
        }
    }
}

/// Lists the libaio contexts of a process from its `/proc/PID/maps`. The kernel maps an event ring for each context, and the
/// address of the ring is the context's number.
pub fn aio_contexts(maps: &str) -> impl Iterator<Item = u64> {
    maps.lines()
        .filter(|line| {
            line.split_once('/')
                .is_some_and(|(_, name)| name == "[aio]" || name == "[aio] (deleted)")
        })
        .filter_map(|line| u64::from_str_radix(line.split_once('-')?.0, 16).ok())
}

/// Whether a descriptor with this link target is an io_uring.
pub fn is_io_uring(link: &[u8]) -> bool {
    link == b"anon_inode:[io_uring]"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_are_found_in_maps() {
        let maps = "55d2a1c00000-55d2a1c01000 r--p 00000000 fe:00 1234   /usr/sbin/mariadbd\n\
                    7f0e5c6f8000-7f0e5c6fe000 rw-s 00000000 00:0d 73741  /[aio] (deleted)\n\
                    7f0e5c700000-7f0e5c701000 rw-s 00000000 00:0d 73742  /[aio]\n\
                    7f0e5c800000-7f0e5c801000 rw-p 00000000 00:00 0 \n\
                    7f0e5c900000-7f0e5c901000 r--p 00000000 fe:00 99     /data/[aio]\n\
                    ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        let found: Vec<u64> = aio_contexts(maps).collect();
        assert_eq!(found, [0x7f0e_5c6f_8000, 0x7f0e_5c70_0000]);
        assert_eq!(aio_contexts("").count(), 0);
    }

    #[test]
    fn rings_are_known_by_name() {
        assert!(is_io_uring(b"anon_inode:[io_uring]"));
        assert!(!is_io_uring(b"anon_inode:[eventpoll]"));
        assert!(!is_io_uring(b"/data/anon_inode:[io_uring]"));
    }
}
