//! MySQL's log since 8.0.30: a sequence of files (`log0constants.h`, `log0files_io.cc`).

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::digest::{BEHIND_CHECKPOINT, Digest, is_whole, number, open, read, word};

/// Directory of the files, below the directory of the log.
pub const DIRECTORY: &str = "#innodb_redo";
/// Prefix of the file names, before the number. Files ending in `_tmp` are empty spares.
pub const PREFIX: &str = "#ib_redo";
/// Since 8.0.30 (`Log_format::VERSION_8_0_30`).
const FORMAT: u32 = 6;
const BLOCK: usize = 512;
/// Bytes of the header; blocks follow it.
const HEADER: usize = 4 * BLOCK;
/// Offsets in the header: LSN of the first block, and flags.
const START_LSN: usize = 8;
const FLAGS: usize = 48;
/// Redo is disabled, a crash would lose the data, or the data directory is incomplete.
const UNPROTECTED: u32 = 1 | 2 | 4;
/// Offsets of the two alternating checkpoints.
const CHECKPOINTS: [usize; 2] = [BLOCK, 3 * BLOCK];
const CHECKPOINT_LSN: usize = 8;
/// Limit on the number of files. MySQL creates 32.
const MAX_FILES: usize = 256;

/// One file.
struct Part {
    number: u64,
    file: File,
    header: Vec<u8>,
    /// LSNs of its blocks.
    start: u64,
    end: u64,
}

/// Adds the log to the digest. Returns the LSN of its newest checkpoint.
pub fn digest(folder: &Path, digest: &mut Digest) -> Result<u64, String> {
    let parts = parts(folder)?;
    let mut newest = 0;
    for part in &parts {
        digest.file(&part.file).map_err(|error| error.to_string())?;
        digest.add(&part.number.to_le_bytes());
        digest.add(&part.header);
        for at in CHECKPOINTS {
            let block = &part.header[at..at + BLOCK];
            if is_whole(block) {
                newest = newest.max(number(block, CHECKPOINT_LSN));
            }
        }
    }
    let last = parts.last().ok_or("it has no files")?;
    if word(&last.header, FLAGS) & UNPROTECTED != 0 {
        return Err("redo logging is disabled".into());
    }
    let mut at = newest;
    let mut left = BEHIND_CHECKPOINT as u64;
    for part in &parts {
        if left == 0 || !(part.start..part.end).contains(&at) {
            continue;
        }
        let bytes = left.min(part.end - at);
        let position = HEADER as u64 + (at - part.start);
        let blocks = read(&part.file, position, bytes as usize);
        digest.add(&blocks.map_err(|error| error.to_string())?);
        (at, left) = (at + bytes, left - bytes);
    }
    if at == newest {
        return Err("it has no checkpoint".into());
    }
    Ok(newest)
}

/// Returns the files in ascending order of their numbers, and thus of their LSNs.
fn parts(folder: &Path) -> Result<Vec<Part>, String> {
    let mut paths = Vec::new();
    let found = numbered(folder).map_err(|error| error.to_string())?;
    for (number, path) in found {
        paths.push(part(number, &path)?);
    }
    paths.sort_by_key(|part| part.number);
    Ok(paths)
}

fn numbered(folder: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
        found.extend(number.map(|number| (number, path)));
    }
    if found.len() > MAX_FILES {
        return Err(io::Error::other("it has too many files"));
    }
    Ok(found)
}

fn part(number: u64, path: &Path) -> Result<Part, String> {
    let text = |error: io::Error| error.to_string();
    let file = open(path)?;
    let header = read(&file, 0, HEADER).map_err(text)?;
    if word(&header, 0) != FORMAT || !is_whole(&header[..BLOCK]) {
        return Err("it is of a format that is not known".into());
    }
    let start = super::digest::number(&header, START_LSN);
    let bytes = file.metadata().map_err(text)?.len();
    let blocks = bytes.checked_sub(HEADER as u64).ok_or("it is too short")?;
    let end = start.checked_add(blocks).ok_or("it is damaged")?;
    Ok(Part {
        number,
        file,
        header,
        start,
        end,
    })
}
