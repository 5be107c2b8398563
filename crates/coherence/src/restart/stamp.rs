//! Change stamps: the proof that a data file has not changed since its pages were cached.
//!
//! # Terms
//! - *Change stamp*: a file's ctime, in nanoseconds, as `fstat` returns it. Every change of a file's contents, size or names sets
//!   it.
//! - *Stored stamp* `r`: the change stamp that this server saw after its last change of the file.
//! - *Sign of life* `L`: the coarse clock of the file systems, stored repeatedly while the server lives.
//! - *Fine stamps*: the kernel gives an inode whose ctime was queried another ctime at its next change (multigrain timestamps,
//!   Linux 6.13). Without them two changes within one tick of the clock (1 to 10 ms) have the same ctime.
//!
//! # Protocol
//! 1. Before the server's change is submitted, the plugin drops the entries of the pages that the change touches.
//! 2. After the call (libaio: after the submission) `r` becomes the file's ctime.
//! 3. A failed flush or a gap in tracking invalidates the whole persisted state. A write through io_uring invalidates its file's.
//! 4. A starting process discards each record whose `r` is at or after `L`, unless stamps are fine.
//! 5. At a file's first open its pages are served only if all of these conditions hold; otherwise they are dropped. File system,
//!    subvolume, inode and birth are the same. The ctime has a fraction of a second and is *equal* to `r`. After a kill, the file
//!    was written with O_DIRECT.
//! 6. Across a remount or a restart of the host the persisted state is a snapshot that a clean stop has written. It counts only
//!    with the token in the data directory that this stop wrote, and with an unchanged redo log. Each start replaces the token first.
//!
//! # Why this is enough
//! 1. A page whose write is in flight has no entry. So at the moment of death every entry equals the file as the kernel shows it.
//! 2. The lock of the persisted state is free only after the dead process's system calls and libaio requests have ended: the
//!    mapping of the state holds the lock, and the kernel ends those requests before it unmaps.
//! 3. So a stale entry requires a change by another program after the death.
//! 4. Such a change goes through the inode, and sets its ctime when it is submitted; or it replaces the inode or its whole tree.
//! 5. A replaced inode differs in number or birth. ext4 and XFS cannot replace a tree while they are mounted. btrfs can, but then
//!    the UUID of the subvolume differs.
//! 6. With fine stamps the change gets another ctime than `r`, because `r` was queried.
//! 7. Without them the change is stamped at or after the tick of `L`, and `r` is before that tick.
//! 8. No step compares a stamp with a clock to find the newer one. A clock that steps back would have to return to the same
//!    nanosecond.
//! 9. The token is written after all data and times are durable. A volume that is rolled back across a mount has another token.
//! 10. Another run of InnoDB leaves the token, but writes redo before it writes a page. So the digest of the redo log differs.
//! 11. Each start replaces the token before a write is submitted, so a snapshot is used once.
//! 12. The claim is equality with the file, not recency. So the order of the server's shutdown does not matter.
//!
//! # Not covered
//! - Changes by others while the server runs; the audit looks for those.
//! - Writers that leave no ctime: XFS invisible I/O by root, `debugfs`, a device that is changed under its mounted file system,
//!   stores to a dirty page that is mapped.
//! - With fine stamps: an inode that is evicted and changed within the tick of `r`, because the mark of the query is only in
//!   memory.
//! - A tool other than InnoDB that writes right before a loss of power, so that its ctime is lost and its bytes are not.
//! - Writes of others through the page cache that this server reads and the kernel then fails to write back.
//! - Devices that lose acknowledged writes while they stay mounted.
//!
//! # Cost
//! One `fstat` for each synchronous write and for each file of a submission: 0.3 to 3 microseconds. None for files that cannot be
//! proven.

use crate::platform::os::{FileSystem, Stat};

/// Stored stamp of a file that cannot be proven until it is reopened: larger than any ctime.
pub const VOID: i64 = i64::MAX;

/// The change stamp of a file, in nanoseconds since 1970.
pub fn change_stamp(stat: &Stat) -> i64 {
    let (seconds, nanoseconds) = stat.changed;
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// Whether the stamp has a fraction of a second. A file system with whole seconds gives all changes of one second the same stamp.
pub fn has_fraction(stamp: i64) -> bool {
    stamp % 1_000_000_000 != 0
}

/// Whether each later change gets a stamp other than this one. `now`: the coarse clock of the file systems, in nanoseconds.
pub fn is_settled(stamp: i64, now: i64, has_fine_stamps: bool) -> bool {
    if canary!("tick-rule") {
        return true;
    }
    has_fraction(stamp) && (has_fine_stamps || stamp < now)
}

/// Identity of a file on its file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileIdentity {
    /// Device and inode number.
    pub inode: (u64, u64),
    /// Creation time of the inode, nanoseconds since 1970; `None` where the file system does not store it.
    pub birth: Option<u64>,
    /// `None` where stamps prove nothing.
    pub system: Option<FileSystem>,
}

impl FileIdentity {
    /// Whether a stamp of this file can prove anything.
    pub fn is_provable(&self) -> bool {
        self.birth.is_some() && self.system.is_some()
    }
}

/// Size and modification time, for the audit of a running server. Every change of a file's contents changes one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileStat {
    size: i64,
    modified: (i64, i64),
}

impl FileStat {
    /// Takes both from the kernel's answer.
    pub fn of(stat: &Stat) -> FileStat {
        FileStat {
            size: stat.size,
            modified: stat.modified,
        }
    }

    /// The difference as human-readable text.
    pub fn difference(&self, later: &FileStat) -> String {
        if self.size == later.size {
            String::from("its modification time differs")
        } else {
            format!("it had {} bytes and now has {}", self.size, later.size)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamp_of_the_current_tick_is_not_settled() {
        let stat = Stat {
            changed: (1000, 500),
            ..Stat::default()
        };
        let stamp = change_stamp(&stat);
        assert_eq!(stamp, 1_000_000_000_500);
        assert!(!is_settled(stamp, stamp, false));
        assert!(is_settled(stamp, stamp + 1, false));
        assert!(
            !is_settled(stamp, stamp - 1, false),
            "the clock stepped back"
        );
        assert!(is_settled(stamp, stamp, true));
    }

    #[test]
    fn whole_seconds_are_never_settled() {
        let stamp = 1_000_000_000_000;
        assert!(!is_settled(stamp, stamp + 5_000_000_000, true));
    }
}
