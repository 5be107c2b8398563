//! Definitions shared by parent and children.

use std::io::Write as _;
use std::path::Path;

use crate::content::Stamp;

/// Divisor for the usual number of pages in a file, so that the cache has room for most of them.
pub const SMALLER: usize = 4;
/// Bits of a version that one child may use.
pub const OF_A_CHILD: u32 = 22;
/// First version of the parent.
pub const OF_THE_PARENT: u64 = 1 << 39;

/// Origin of a sector's version.
pub fn origin(stamp: Stamp) -> String {
    match stamp.version() {
        0 => String::from("never written"),
        parent if parent >= OF_THE_PARENT => {
            format!("change {} of another program", parent - OF_THE_PARENT)
        }
        child => format!("of round {}", child >> OF_A_CHILD),
    }
}

/// Appends a line to the log of a dead child.
pub fn note(log: &Path, line: &str) -> std::io::Result<()> {
    let mut file = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)?;
    writeln!(file, "{line}")
}
