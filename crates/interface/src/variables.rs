//! The system variables `bpe_<name>`: names, defaults, and what the server says of them.
//!
//! What a variable does lies in the plugin's `abi/variables.rs`, whose tables take name and comment from here.
//! `docs/reference.md` describes them; `tests/consumers.rs` compares its table with this list.

use std::ffi::CStr;

/// A system variable.
#[derive(Debug, Clone, Copy)]
pub struct Variable {
    /// As the plugin gives it to the server, which puts `bpe_` before it.
    pub c_name: &'static CStr,
    /// What `--help --verbose` of the server says.
    pub comment: &'static CStr,
    /// As the server shows it; empty for an empty text.
    pub default: &'static str,
}

impl Variable {
    /// Without `bpe_`.
    pub fn name(&self) -> &'static str {
        self.c_name.to_str().unwrap_or_default()
    }
}

/// Name, default, and the comment.
macro_rules! variables {
    ($($id:ident $name:literal $default:literal $comment:literal)+) => {
        $(pub const $id: Variable = Variable { c_name: $name, comment: $comment, default: $default };)+

        /// In the order in which the server shows them.
        pub const ALL: &[Variable] = &[$($id),+];
    };
}

variables! {
    ENABLED c"enabled" "OFF"
        c"Switches the buffer pool extension on or off at once"
    BYPASS c"bypass" "OFF"
        c"ON: reads go to the data files as if the extension were off, writes still drop what they touch, what is cached stays; REFILL: the same, but pages that are written are cached as ever"
    BYPASS_TIMEOUT c"bypass_timeout" "0"
        c"Seconds after which bypass and control group end by themselves, counted from the last time that bpe_bypass or bpe_control_group was set; 0: never"
    CONTROL_GROUP c"control_group" "OFF"
        c"One extent of pages in 64 is always read from the data files, and all page reads are timed, in bypass too, so that both ways can be compared"
    PATH c"path" ""
        c"Files or directories on fast local disks, separated by colons; in a directory the server creates a file under a name of its own"
    SIZE c"size" "0"
        c"Bytes the cache may take on disk, all disks together; 10 to 100: percent of the room there, as far as bpe_memory_limit allows"
    INSTANCES c"instances" "0"
        c"Parts of the cache, each with its own lock; 0: 1 below 8 cores, 8 from 8 cores on"
    IO_CAPACITY c"io_capacity" "0"
        c"At most this many writes of 16 KiB per second to the cache disks; 0: no limit"
    DAILY_WRITE_LIMIT c"daily_write_limit" "0"
        c"At most this many bytes written to the cache disks in 24 hours; 0: no limit"
    READ_TIMEOUT c"read_timeout" "1000"
        c"Milliseconds to wait for a read of a cache disk before the page is read from the data file; 0: as long as it takes"
    MEMORY_LIMIT c"memory_limit" "0"
        c"Bytes of memory the extension may take; 0: what bpe_size needs, or if that is a percentage, 4 % of the buffer pool, at least 4 MiB for each path"
    TABLES c"tables" ""
        c"Rules for tables, separated by commas: exclude shop.log_*, limit 20% reports.*, prefer shop.orders; include: only what is named is cached; normal: an exception; the first rule that fits counts"
    COMPRESSION c"compression" "off"
        c"Whether pages are stored compressed"
    ASYNC_IO c"async_io" "auto"
        c"auto: make MariaDB use libaio instead of io_uring, so that asynchronous reads can be served; native: leave the server's choice; off: serve synchronous reads only"
    PERSIST c"persist" "restart"
        c"restart: what is cached is there again after the server was restarted or killed; off: the cache is empty then"
    PERSIST_PATH c"persist_path" "/dev/shm"
        c"Directory on a file system in memory (tmpfs), in which the server keeps what it needs to find cached pages again after a restart"
    WARM_IO_CAPACITY c"warm_io_capacity" "1000"
        c"At most this many reads of the data disk per second while pages are loaded into the cache: after a restart those that could not be proven, and with bpe warm those that another server has cached; 0: none are loaded"
    REPORT c"report" ""
        c"Set in a session to the name of a report (summary, status, instances, devices, files, rules, suspended, latency), it reads as that report in JSON; what bpe_report() gives, for servers without that function"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_their_own() {
        for (index, one) in ALL.iter().enumerate() {
            assert!(!one.name().is_empty() && !one.comment.is_empty());
            assert!(
                ALL[..index]
                    .iter()
                    .all(|before| before.name() != one.name())
            );
        }
    }
}
