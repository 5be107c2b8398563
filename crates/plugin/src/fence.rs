//! A digest of InnoDB's redo log at rest: two are equal only if no other run of InnoDB changed data between them.
//!
//! A page is written to its data file only after the redo of its change is on the disk (write ahead). Whoever runs InnoDB on these
//! files and changes a page has therefore written to the log behind its newest checkpoint, or has moved the checkpoint on; and both
//! are digested as they are, encrypted or not. File times tell the same as long as the machine runs. Those of a data file may be
//! lost with its power though, while the pages are not: then the log, which is flushed first, is what tells.
//!
//! What changes pages without redo (MySQL with its redo log disabled) rewrites the log's header, and flushes that. The header may be
//! the same afterwards, so identity and times of the log's files are digested as well.
//!
//! The log is read only while InnoDB does not run: at the plugin's initialisation, and at the very end of the process. To close a
//! descriptor would take away the process's locks of the file. Where it lies is learned meanwhile, from the names of what is open.
//!
//! No locks. Reads some 200 KiB.

mod digest;
mod mariadb;
mod mysql;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::process::KNOWN;
use digest::Digest;

/// What the log is at rest: a digest of what is in it, 128 bits; one of its files' identities and times; and the LSN of its newest
/// checkpoint. All zero is the fence of no log.
pub type Fence = [u64; 4];

/// The fence of the log in `folder`, what `innodb_log_group_home_dir` says. Only while InnoDB does not run.
///
/// # Errors
/// Why there is none: a log of a format that is not known, that does not protect the data, or that cannot be read.
pub fn of(folder: &Path) -> Result<Fence, String> {
    let many = folder.join(mysql::FOLDER);
    let mut digest = Digest::default();
    let one = folder.join(mariadb::NAME);
    let result = match (one.exists(), many.is_dir()) {
        (true, false) => mariadb::digest(&one, &mut digest),
        (false, true) => mysql::digest(&many, &mut digest),
        (true, true) => return Err(format!("two redo logs are in '{}'", folder.display())),
        (false, false) => return Err(format!("no redo log is in '{}'", folder.display())),
    };
    let checkpoint =
        result.map_err(|error| format!("the redo log in '{}': {error}", folder.display()))?;
    Ok(digest.finish(checkpoint))
}

/// Where InnoDB has its log, if it was [seen](look).
pub fn folder() -> Option<&'static Path> {
    KNOWN.kept.redo.get().map(PathBuf::as_path)
}

/// It was seen there.
pub fn found(folder: &Path) {
    let _ = KNOWN.kept.redo.set(folder.to_path_buf());
}

/// Looks for the log among what the process has open, until it was seen once. Reads only names.
pub fn look() -> Option<&'static Path> {
    if KNOWN.kept.redo.get().is_none() {
        if let Some(found) = open_log() {
            let _ = KNOWN.kept.redo.set(found);
        }
    }
    folder()
}

/// The folder of a log that is open.
fn open_log() -> Option<PathBuf> {
    let open = fs::read_dir("/proc/self/fd").ok()?;
    open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .find_map(|path| Some(folder_of(&path)?.to_path_buf()))
}

/// Whether a file of the log may be opened under this name.
pub fn is_name(name: &[u8]) -> bool {
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    name == mariadb::NAME.as_bytes() || name.starts_with(mysql::PREFIX.as_bytes())
}

/// What `innodb_log_group_home_dir` is, by the path of one of the log's files; `None` if it is not one.
pub fn folder_of(path: &Path) -> Option<&Path> {
    let (name, folder) = (path.file_name()?.as_bytes(), path.parent()?);
    if name == mariadb::NAME.as_bytes() {
        return Some(folder);
    }
    let is_one = folder.file_name()?.as_bytes() == mysql::FOLDER.as_bytes();
    let is_log = is_one && name.starts_with(mysql::PREFIX.as_bytes());
    is_log.then(|| folder.parent())?
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    const SIZE: u64 = 12288 + (1 << 20);

    /// Bytes with their checksum behind them.
    fn block(bytes: usize, words: &[(usize, &[u8])]) -> Vec<u8> {
        let mut block = vec![0; bytes];
        for (at, word) in words {
            block[*at..at + word.len()].copy_from_slice(word);
        }
        let sum = crc32c::crc32c(&block[..bytes - 4]);
        block[bytes - 4..].copy_from_slice(&sum.to_be_bytes());
        block
    }

    /// A log of MariaDB with these checkpoints.
    fn mariadb(folder: &Path, format: u32, checkpoints: [u64; 2]) -> File {
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(folder.join(mariadb::NAME))
            .unwrap();
        file.set_len(SIZE).unwrap();
        let first = 12288_u64.to_be_bytes();
        let head = block(512, &[(0, &format.to_be_bytes()), (8, &first)]);
        file.write_all_at(&head, 0).unwrap();
        for (at, lsn) in [4096, 8192].into_iter().zip(checkpoints) {
            let lsn = lsn.to_be_bytes();
            let checkpoint = block(64, &[(0, &lsn), (8, &lsn)]);
            file.write_all_at(&checkpoint, at).unwrap();
        }
        file
    }

    /// A file of MySQL's log, of 64 KiB and the header.
    fn mysql(folder: &Path, number: u64, start: u64, flags: u32, checkpoint: Option<u64>) -> File {
        let folder = folder.join(mysql::FOLDER);
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join(format!("{}{number}", mysql::PREFIX));
        let file = File::options()
            .create(true)
            .truncate(true)
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        file.set_len(2048 + (64 << 10)).unwrap();
        let (start, flags) = (start.to_be_bytes(), flags.to_be_bytes());
        let format = 6_u32.to_be_bytes();
        let head = block(512, &[(0, &format), (8, &start), (48, &flags)]);
        file.write_all_at(&head, 0).unwrap();
        if let Some(lsn) = checkpoint {
            let block = block(512, &[(8, &lsn.to_be_bytes())]);
            file.write_all_at(&block, 1536).unwrap();
        }
        file
    }

    fn contents(folder: &Path) -> [u64; 2] {
        let fence = of(folder).unwrap();
        [fence[0], fence[1]]
    }

    #[test]
    fn what_is_behind_the_newest_checkpoint_counts_around_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // The newest is 4 KiB before the end, in the third round.
        let newest = 3 * (1 << 20) + 12288 - 4096;
        let file = mariadb(folder, 0x5068_7973, [newest, newest - 77]);
        assert_eq!(of(folder).unwrap()[3], newest);
        let mut before = contents(folder);
        for (at, counts) in [
            (SIZE - 4096, true),
            (SIZE - 1, true),
            (12288, true),
            (12288 + (60 << 10) - 1, true),
            (12288 + (60 << 10), false),
            (SIZE - 4097, false),
            (600, true),
            (4095, true),
            (8192 + 100, true),
        ] {
            file.write_all_at(b"x", at).unwrap();
            let after = contents(folder);
            assert_eq!(before != after, counts, "at {at}");
            before = after;
        }
    }

    #[test]
    fn of_a_log_that_is_not_understood_there_is_no_fence() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(of(folder).unwrap_err().starts_with("no redo log"));
        let file = mariadb(folder, 0x5048_5953, [20000, 0]);
        assert!(of(folder).unwrap_err().contains("format"));
        drop(file);
        // Encrypted: it is not parsed.
        let file = mariadb(folder, 0x5068_7973 | 1 << 31, [20000, 0]);
        assert_eq!(of(folder).unwrap()[3], 20000);
        for at in [4096, 8192] {
            file.write_all_at(b"x", at).unwrap();
        }
        assert!(of(folder).unwrap_err().contains("checkpoint"));
        file.write_all_at(b"x", 20).unwrap();
        assert!(of(folder).unwrap_err().contains("format"));
        file.set_len(100).unwrap();
        assert!(of(folder).is_err());
        mysql(folder, 0, 8192, 0, Some(8200));
        assert!(of(folder).unwrap_err().contains("two"));
        fs::remove_file(folder.join(mariadb::NAME)).unwrap();
        assert!(of(folder).is_ok());
    }

    #[test]
    fn files_are_read_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let part = 64 << 10;
        let ninth = mysql(folder, 9, 8192, 8, Some(8192 + 5));
        // The newest checkpoint, 1 KiB before the end of its file; what is behind it goes on in the next.
        let newest = 8192 + 2 * part - 1024;
        let tenth = mysql(folder, 10, 8192 + part, 8, Some(newest));
        let last = mysql(folder, 11, 8192 + 2 * part, 0, None);
        let mut before = contents(folder);
        assert_eq!(of(folder).unwrap()[3], newest);
        for (what, file, at, counts) in [
            ("header of another", &ninth, 600, true),
            ("before it", &ninth, 4096, false),
            ("before it", &tenth, 2048 + part - 1025, false),
            ("at it", &tenth, 2048 + part - 1024, true),
            ("behind it", &last, 2048, true),
            ("behind it", &last, 2048 + part - 1025, true),
            ("too far", &last, 2048 + part - 1024, false),
        ] {
            file.write_all_at(b"x", at).unwrap();
            let after = contents(folder);
            assert_eq!(before != after, counts, "{what} at {at}");
            before = after;
        }
        // An empty one that waits, and one more.
        let path = folder.join(mysql::FOLDER).join("#ib_redo12_tmp");
        fs::write(path, "").unwrap();
        assert_eq!(before, contents(folder));
        mysql(folder, 12, 8192 + 3 * part, 0, None);
        assert_ne!(before, contents(folder));
        for flag in [1, 2, 4] {
            mysql(folder, 12, 8192 + 3 * part, flag, None);
            assert!(of(folder).unwrap_err().contains("disabled"));
        }
    }

    /// The bytes alone would not tell: they may have been written over and back.
    #[test]
    fn a_log_that_was_written_to_is_another_one() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let file = mariadb(folder, 0x5068_7973, [20000, 0]);
        let before = of(folder).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap();
        file.set_modified(modified + std::time::Duration::from_secs(1))
            .unwrap();
        let after = of(folder).unwrap();
        assert_eq!(
            (before[..2].to_vec(), before[3]),
            (after[..2].to_vec(), after[3])
        );
        assert_ne!(before[2], after[2]);
    }

    #[test]
    fn the_folder_is_told_by_the_names_of_open_files() {
        let of = |path: &'static str| folder_of(Path::new(path)).and_then(Path::to_str);
        assert_eq!(of("/data/ib_logfile0"), Some("/data"));
        assert_eq!(of("/log/#innodb_redo/#ib_redo12"), Some("/log"));
        for other in [
            "/data/ib_logfile101",
            "/data/#ib_redo12",
            "/log/#innodb_redo/x",
            "/data/ib_logfile0 (deleted)",
            "socket:[1]",
        ] {
            assert_eq!(of(other), None, "{other}");
        }
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let _open = mariadb(&folder, 0x5068_7973, [20000, 0]);
        assert!(open_log().is_some());
    }
}
