//! A digest of InnoDB's idle redo log. Two digests are equal only if no other run of InnoDB changed data between them.
//!
//! InnoDB writes a page to its data file only after the redo of the change is on the disk (write-ahead logging). A run that
//! changes a page therefore writes behind the newest checkpoint, or advances the checkpoint. Both are digested as stored,
//! encrypted or not. Until the host reboots, file times prove the same. A power loss may lose the times of a data file but
//! keep its pages. The log, which is flushed first, still shows the change.
//!
//! MySQL with its redo log disabled changes pages without redo, but rewrites and flushes the log's header. The header may be
//! the same afterwards, so the digest includes identity and times of the log's files.
//!
//! The log is read only while InnoDB does not run: at the plugin's initialisation, and at the very end of the process.
//! Closing a descriptor earlier would release the process's locks of the file. While InnoDB runs, the location of the log
//! comes from the names of open files.
//!
//! No locks. Reads some 200 KiB.

mod digest;
mod mariadb;
mod mysql;

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use digest::Digest;

/// State of the idle log: 128 bits for its contents, a digest of its files' identities and times, and the LSN of its newest
/// checkpoint. All zero if there is no log.
pub type Fence = [u64; 4];

/// Computes the fence of the log in `folder`, the value of `innodb_log_group_home_dir`. Call only while InnoDB does not run.
///
/// # Errors
/// The log has an unknown format, does not protect the data, or cannot be read.
pub fn of(folder: &Path) -> Result<Fence, String> {
    let many = folder.join(mysql::DIRECTORY);
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

/// Returns the directory of an open log.
pub(super) fn open_log() -> Option<PathBuf> {
    let open = fs::read_dir("/proc/self/fd").ok()?;
    open.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .find_map(|path| Some(directory_of(&path)?.to_path_buf()))
}

/// Whether a file of the log may be opened under this name.
pub fn is_log_name(name: &[u8]) -> bool {
    let name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    name == mariadb::NAME.as_bytes() || name.starts_with(mysql::PREFIX.as_bytes())
}

/// Returns the log's directory, from the path of one of its files; `None` for another file.
pub fn directory_of(path: &Path) -> Option<&Path> {
    let (name, folder) = (path.file_name()?.as_bytes(), path.parent()?);
    if name == mariadb::NAME.as_bytes() {
        return Some(folder);
    }
    let is_one = folder.file_name()?.as_bytes() == mysql::DIRECTORY.as_bytes();
    let is_log = is_one && name.starts_with(mysql::PREFIX.as_bytes());
    is_log.then(|| folder.parent())?
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    const SIZE: u64 = 12288 + (1 << 20);

    /// Bytes, followed by their checksum.
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
        let folder = folder.join(mysql::DIRECTORY);
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
    fn digest_covers_redo_behind_newest_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        // The newest checkpoint is 4 KiB before the end, in the third round.
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
    fn unknown_log_format_has_no_fence() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        assert!(of(folder).unwrap_err().starts_with("no redo log"));
        let file = mariadb(folder, 0x5048_5953, [20000, 0]);
        assert!(of(folder).unwrap_err().contains("format"));
        drop(file);
        // An encrypted log is not parsed.
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
        // The newest checkpoint, 1 KiB before the end of its file; the bytes behind it continue in the next file.
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
        // An empty file in reserve, and one more.
        let path = folder.join(mysql::DIRECTORY).join("#ib_redo12_tmp");
        fs::write(path, "").unwrap();
        assert_eq!(before, contents(folder));
        mysql(folder, 12, 8192 + 3 * part, 0, None);
        assert_ne!(before, contents(folder));
        for flag in [1, 2, 4] {
            mysql(folder, 12, 8192 + 3 * part, flag, None);
            assert!(of(folder).unwrap_err().contains("disabled"));
        }
    }

    /// The bytes alone do not prove it: they may have been overwritten and restored.
    #[test]
    fn written_log_has_another_fence() {
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
    fn open_file_names_give_log_directory() {
        let of = |path: &'static str| directory_of(Path::new(path)).and_then(Path::to_str);
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
