//! A cache size as users give it: in bytes, or as a percentage of the space at its paths.
//!
//! A percentage is converted to bytes once, by the extension's own division, and the server gets the bytes. A size that
//! followed the free space would differ at each start, and the cache would start empty.

use std::path::{Path, PathBuf};

use crate::disk;
use crate::failure::Failure;
use crate::pool::largest_cache;
use crate::process::Process;
use crate::server::Server;
use crate::size::{self, human};

/// Sizes that differ by at most 1/100 count as equal.
const NEAR: u64 = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amount {
    Bytes(u64),
    /// Percentage of the space, 1 to 100.
    Percent(u64),
}

/// Parses `100G` and `80%`.
///
/// # Errors
/// A message: neither a size nor a percentage from 1 to 100.
pub fn parse(text: &str) -> Result<Amount, String> {
    let Some(percent) = text.trim().strip_suffix('%') else {
        return match size::parse(text)? {
            // The server would parse it as a percentage.
            bytes @ 1..=100 => Err(format!(
                "`{text}` is so many bytes: write {bytes}% for that part of the room, or a size such as 100G"
            )),
            bytes => Ok(Amount::Bytes(bytes)),
        };
    };
    match percent.trim().parse() {
        Ok(percent @ 1..=100) => Ok(Amount::Percent(percent)),
        _ => Err(format!(
            "`{text}` is not a part of the room: write 1% to 100%, or a size such as 100G"
        )),
    }
}

/// A percentage converted to bytes.
#[derive(Debug, PartialEq, Eq)]
pub struct Part {
    pub bytes: u64,
    /// The derivation, for the user.
    pub why: String,
}

/// `percent` of the space at `paths`, as the server sees them. Limited to the largest cache whose memory fits in 4 % of
/// the buffer pool. `pool` is the pool's size in bytes, without an earlier lowering for the cache.
///
/// # Errors
/// The space is unknown, not exclusive to the cache, or zero.
pub fn of_room(
    percent: u64,
    paths: &[PathBuf],
    server: &mut Server,
    process: Option<&Process>,
    pool: u64,
) -> Result<Part, Failure> {
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
    Ok(part.or_as_it_is(now))
}

/// `most` is the largest cache for a pool of `pool` bytes.
fn within(percent: u64, room: u64, pool: u64, most: u64) -> Result<Part, Failure> {
    if room == 0 {
        return Err(Failure::refused(format!(
            "--size {percent}%: there is no room; nothing was changed"
        ))
        .advise("free some, or name another path"));
    }
    if room <= most {
        let why = format!("{percent} % of the room is {}", human(room));
        return Ok(Part { bytes: room, why });
    }
    if most == 0 {
        return Err(Failure::refused(format!(
            "--size {percent}%: the buffer pool of {} is too small for any cache that takes no more than 4 % of it; \
             nothing was changed",
            human(pool)
        ))
        .advise("enlarge innodb_buffer_pool_size, or give the size in bytes, such as 10G"));
    }
    Ok(Part {
        bytes: most,
        why: format!(
            "{percent} % of the room is {}; with a buffer pool of {} the cache gets {}, so that it takes no more memory \
             than 4 % of that (--size in bytes is not limited)",
            human(room),
            human(pool),
            human(most)
        ),
    })
}

impl Part {
    /// Keeps the server's current size if it is about equal, because free space fluctuates.
    fn or_as_it_is(self, now: u64) -> Part {
        if now.abs_diff(self.bytes) > self.bytes / NEAR {
            return self;
        }
        Part {
            bytes: now,
            why: self.why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    #[test]
    fn a_percentage_is_told_from_a_size() {
        assert_eq!(parse("80%"), Ok(Amount::Percent(80)));
        assert_eq!(parse(" 5 % "), Ok(Amount::Percent(5)));
        assert!(parse("80").unwrap_err().contains("80% for that part"));
        assert_eq!(parse("0"), Ok(Amount::Bytes(0)));
        assert_eq!(parse("1G"), Ok(Amount::Bytes(GIB)));
        for wrong in ["0%", "101%", "-1%", "%", "1.5%", "80%G", "ten%"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn it_is_the_room_or_what_the_pool_allows() {
        let part = within(80, 80 * GIB, 100 * GIB, 500 * GIB).unwrap();
        assert_eq!(
            (part.bytes, part.why.as_str()),
            (80 * GIB, "80 % of the room is 80 GiB")
        );
        let part = within(80, 800 * GIB, 10 * GIB, 50 * GIB).unwrap();
        assert_eq!(part.bytes, 50 * GIB);
        assert!(
            part.why.contains("4 %") && part.why.contains("800 GiB"),
            "{}",
            part.why
        );
        assert!(within(80, 0, 10 * GIB, 50 * GIB).is_err());
        assert!(within(80, GIB, 1 << 20, 0).is_err());
    }

    #[test]
    fn a_size_that_is_about_the_same_stays() {
        let part = |bytes| Part {
            bytes,
            why: String::new(),
        };
        assert_eq!(part(1000).or_as_it_is(995).bytes, 995);
        assert_eq!(part(1000).or_as_it_is(1010).bytes, 1010);
        assert_eq!(part(1000).or_as_it_is(980).bytes, 1000);
        assert_eq!(part(1000).or_as_it_is(0).bytes, 1000);
    }
}
