//! What is read of a log's files, and what is made of it.

use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use rustix::fs::{AtFlags, StatxAttributes, StatxFlags};

/// Bytes of the log that are digested, from its newest checkpoint on.
pub const BEHIND_CHECKPOINT: usize = 64 << 10;

/// What is made of a log.
#[derive(Default)]
pub struct Digest {
    /// Of the same bytes; the second begins with a zero byte more.
    contents: [DefaultHasher; 2],
    files: DefaultHasher,
}

impl Digest {
    /// All of it, with the LSN of the newest checkpoint.
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

    /// Which file it is, and its times.
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

    /// So many bytes from there, and from `again` where `end` is reached.
    pub fn circle(
        &mut self,
        file: &File,
        start: u64,
        end: u64,
        again: u64,
        bytes: usize,
    ) -> io::Result<()> {
        let first = bytes.min(usize::try_from(end - start).unwrap_or(usize::MAX));
        self.add(&read(file, start, first)?);
        // A log may be smaller than what is asked for.
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

/// Opens a file of the log, which must be one of a disk: memory that is written to like a file keeps no times.
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

/// InnoDB's numbers are big-endian.
pub fn number(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// The same of four bytes.
pub fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..at + 4]
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}

/// Whether the last of these bytes is the CRC32C of the others, as in blocks of both logs' headers.
pub fn is_whole(block: &[u8]) -> bool {
    let (bytes, sum) = block.split_at(block.len() - 4);
    crc32c::crc32c(bytes) == word(sum, 0)
}
