//! What parent and children share.

use std::io::Write as _;
use std::path::Path;

use crate::content::Stamp;

/// Files have so many times fewer pages than in the other modes: the cache has room for most of them.
pub const SMALLER: usize = 4;
/// Bits of a version that a child has for its own.
pub const OF_A_CHILD: u32 = 22;
/// Versions from here on are the parent's.
pub const OF_THE_PARENT: u64 = 1 << 39;

/// Where a version of a sector comes from.
pub fn origin(stamp: Stamp) -> String {
    match stamp.version() {
        0 => String::from("never written"),
        parent if parent >= OF_THE_PARENT => {
            format!("change {} of another program", parent - OF_THE_PARENT)
        }
        child => format!("of round {}", child >> OF_A_CHILD),
    }
}

/// Adds a line to the log of a child that is dead.
pub fn note(log: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)?;
    writeln!(file, "{line}")
}
