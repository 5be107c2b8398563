//! MariaDB's log since 10.8: one circular file (`log0log.h`, `log_t`).

use std::path::Path;

use super::digest::{BEHIND_CHECKPOINT, Digest, is_whole, number, open, read, word};

/// The only file.
pub const NAME: &str = "ib_logfile0";
/// The formats with and without encryption: `FORMAT_10_8`, `FORMAT_ENCRYPTED`.
const FORMAT: u32 = 0x5068_7973;
const ENCRYPTED: u32 = 1 << 31;
/// Offset in the header of the LSN at which the log's contents start.
const FIRST_LSN: usize = 8;
/// Bytes of the header with its checksum, and of a checkpoint.
const HEADER: usize = 512;
const CHECKPOINT: usize = 64;
/// Offsets of the two alternating checkpoints, and of the records.
const CHECKPOINTS: [usize; 2] = [4096, 8192];
const START: usize = 12288;

/// Adds the log to the digest. Returns the LSN of its newest checkpoint.
pub fn digest(path: &Path, digest: &mut Digest) -> Result<u64, String> {
    let text = |error: std::io::Error| error.to_string();
    let file = open(path)?;
    let size = digest.file(&file).map_err(text)?;
    let head = read(&file, 0, START).map_err(text)?;
    if word(&head, 0) & !ENCRYPTED != FORMAT || !is_whole(&head[..HEADER]) {
        return Err("it is of a format that is not known".into());
    }
    let checkpoints = CHECKPOINTS
        .map(|at| &head[at..at + CHECKPOINT])
        .into_iter()
        .filter(|block| is_whole(block))
        .map(|block| number(block, 0));
    let first = number(&head, FIRST_LSN);
    let newest = checkpoints.max().filter(|lsn| *lsn >= first && *lsn > 0);
    let newest = newest.ok_or("it has no checkpoint")?;
    let circle = size
        .checked_sub(START as u64)
        .filter(|bytes| *bytes > 0)
        .ok_or("it is too short")?;
    digest.add(&head);
    let at = START as u64 + (newest - first) % circle;
    digest
        .circle(&file, at, size, START as u64, BEHIND_CHECKPOINT)
        .map_err(text)?;
    Ok(newest)
}
