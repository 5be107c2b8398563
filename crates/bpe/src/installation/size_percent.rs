//! Converts a cache size in percent to bytes.
//!
//! A percentage is converted to bytes once, by the extension's own division, and the server gets the bytes. A size that
//! followed the free space would differ at each start, and the cache would start empty.

use std::path::{Path, PathBuf};

use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::installation::disk;
use crate::installation::pool::largest_cache;
use crate::support::failure::Failure;
use crate::support::size::human;

/// Sizes that differ by at most 1/100 count as equal.
const EQUAL_WITHIN: u64 = 100;

/// A percentage converted to bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct ResolvedSize {
    pub bytes: u64,
    /// The derivation, for the user.
    pub reason: String,
}

/// `percent` of the space at `paths`, as the server sees them. Limited to the largest cache whose memory fits in 4 % of
/// the buffer pool. `pool` is the pool's size in bytes, without an earlier lowering for the cache.
///
/// # Errors
/// The space is unknown, not exclusive to the cache, or zero.
pub fn resolve(
    percent: u64,
    paths: &[PathBuf],
    server: &mut Server,
    process: Option<&Process>,
    pool: u64,
) -> Result<ResolvedSize, Failure> {
    let process = process.ok_or_else(|| {
        Failure::refused(format!(
            "--size {percent}%: the room on the server's disks cannot be seen from here; nothing was changed"
        ))
        .advise("run it on the server's host, or give the size in bytes, such as 100G")
    })?;
    let see = |path: &Path| process.seen(path);
    if let Some(data) = server.variable("datadir")? {
        let data = see(Path::new(&data));
        if let Some(path) = paths
            .iter()
            .find(|path| disk::share_disk(&see(path), &data))
        {
            return Err(Failure::refused(format!(
                "--size {percent}%: {} lies on the file system of the data directory, which a part of its room would fill; \
                 nothing was changed",
                path.display()
            ))
            .advise("name a path on a disk of its own, or give the size in bytes, such as 100G"));
        }
    }
    if let Some(path) = paths.iter().find(|path| !disk::is_known(&see(path))) {
        return Err(Failure::refused(format!(
            "--size {percent}%: the room at {} cannot be seen: its folder does not exist; nothing was changed",
            path.display()
        ))
        .advise("create a folder on a fast local disk and name it"));
    }
    let room = disk::part(percent, paths, see);
    let page_size = server.number("innodb_page_size")?.unwrap_or(16 << 10);
    let part = within(percent, room, pool, largest_cache(pool, page_size))?;
    let now = server.number("bpe_size")?.unwrap_or(0);
    Ok(part.or_current(now))
}

/// `most` is the largest cache for a pool of `pool` bytes.
fn within(percent: u64, room: u64, pool: u64, most: u64) -> Result<ResolvedSize, Failure> {
    if room == 0 {
        return Err(Failure::refused(format!(
            "--size {percent}%: there is no room; nothing was changed"
        ))
        .advise("free some, or name another path"));
    }
    if room <= most {
        let reason = format!("{percent} % of the room is {}", human(room));
        return Ok(ResolvedSize {
            bytes: room,
            reason,
        });
    }
    if most == 0 {
        return Err(Failure::refused(format!(
            "--size {percent}%: the buffer pool of {} is too small for any cache that takes no more than 4 % of it; \
             nothing was changed",
            human(pool)
        ))
        .advise("enlarge innodb_buffer_pool_size, or give the size in bytes, such as 10G"));
    }
    Ok(ResolvedSize {
        bytes: most,
        reason: format!(
            "{percent} % of the room is {}; with a buffer pool of {} the cache gets {}, so that it takes no more memory \
             than 4 % of that (--size in bytes is not limited)",
            human(room),
            human(pool),
            human(most)
        ),
    })
}

impl ResolvedSize {
    /// Keeps the server's current size if it is about equal, because free space fluctuates.
    fn or_current(self, now: u64) -> ResolvedSize {
        if now.abs_diff(self.bytes) > self.bytes / EQUAL_WITHIN {
            return self;
        }
        ResolvedSize {
            bytes: now,
            reason: self.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn size_is_limited_by_room_and_pool() {
        let part = within(80, 80 * GIB, 100 * GIB, 500 * GIB).unwrap();
        assert_eq!(
            (part.bytes, part.reason.as_str()),
            (80 * GIB, "80 % of the room is 80 GiB")
        );
        let part = within(80, 800 * GIB, 10 * GIB, 50 * GIB).unwrap();
        assert_eq!(part.bytes, 50 * GIB);
        assert!(
            part.reason.contains("4 %") && part.reason.contains("800 GiB"),
            "{}",
            part.reason
        );
        assert!(within(80, 0, 10 * GIB, 50 * GIB).is_err());
        assert!(within(80, GIB, 1 << 20, 0).is_err());
    }

    #[test]
    fn size_within_a_percent_stays() {
        let part = |bytes| ResolvedSize {
            bytes,
            reason: String::new(),
        };
        assert_eq!(part(1000).or_current(995).bytes, 995);
        assert_eq!(part(1000).or_current(1010).bytes, 1010);
        assert_eq!(part(1000).or_current(980).bytes, 1000);
        assert_eq!(part(1000).or_current(0).bytes, 1000);
    }
}
