//! Reads the log's files and digests them.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

/// Bytes of the log in the digest, from its newest checkpoint on.
pub const BEHIND_CHECKPOINT: usize = 64 << 10;

/// The digest of a log.
#[derive(Default)]
pub struct Digest {
    /// Hashes of the same bytes; the second begins with an additional zero byte.
    contents: [DefaultHasher; 2],
    files: DefaultHasher,
}

impl Digest {
    /// The complete digest, with the LSN of the newest checkpoint.
    pub fn finish(self, checkpoint: u64) -> [u64; 4] {
        let [a, b] = self.contents;
        [a.finish(), b.finish(), self.files.finish(), checkpoint]
    }

    pub fn add(&mut self, bytes: &[u8]) {
        let [a, b] = &mut self.contents;
        a.write(bytes);
        b.write_u8(0);
        b.write(bytes);
    }

    /// Adds the file's identity and times.
    pub fn file(&mut self, file: &File) -> io::Result<u64> {
        let seen = file.metadata()?;
        let times = (
            seen.mtime(),
            seen.mtime_nsec(),
            seen.ctime(),
            seen.ctime_nsec(),
        );
        (seen.ino(), seen.len(), times).hash(&mut self.files);
        Ok(seen.len())
    }

    /// Adds `bytes` bytes from `start` on, and continues from `again` after `end`.
    pub fn circle(
        &mut self,
        file: &File,
        start: u64,
        end: u64,
        again: u64,
        bytes: usize,
    ) -> io::Result<()> {
        debug_assert!(again <= start && start <= end);
        let first = bytes.min(usize::try_from(end - start).unwrap_or(usize::MAX));
        self.add(&read(file, start, first)?);
        // A log may be smaller than the requested length.
        let rest = (bytes - first).min(usize::try_from(start - again).unwrap_or(usize::MAX));
        self.add(&read(file, again, rest)?);
        Ok(())
    }
}

pub fn read(file: &File, at: u64, bytes: usize) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0; bytes];
    file.read_exact_at(&mut buffer, at)?;
    Ok(buffer)
}

/// Opens a file of the log. Refuses persistent memory (DAX): writes to its mappings do not update file times.
pub fn open(path: &Path) -> Result<File, String> {
    let named = |error: io::Error| format!("'{}': {error}", path.display());
    let file = File::open(path).map_err(named)?;
    let seen = rustix::fs::statx(
        file.as_fd(),
        c"",
        AtFlags::EMPTY_PATH,
        StatxFlags::BASIC_STATS,
    )
    .map_err(|error| named(error.into()))?;
    if seen.stx_attributes.contains(StatxAttributes::DAX) {
        return Err("it lies in persistent memory".into());
    }
    Ok(file)
}

/// Decodes a `u64`: InnoDB's integers are big-endian.
pub fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Decodes a `u32`.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Whether the last four bytes are the CRC32C of the others, as in blocks of both logs' headers.
pub fn is_whole(block: &[u8]) -> bool {
    let (bytes, sum) = block.split_at(block.len() - 4);
    crc32c::crc32c(bytes) == word(sum, 0)
}
