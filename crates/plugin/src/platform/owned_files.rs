//! Tracks the files outside the data directory that this server created, and removes the ones that its settings no longer
//! name.
//!
//! The list `bpe.paths` is in the data directory, one path a line: the cache files, and the in-memory directory of the
//! persisted state. A name alone proves nothing. A cache file must have this server's identity in its header; persisted
//! files must have this server's name and an unheld lock. A path that is inaccessible now, for example on an unmounted disk,
//! stays in the list.
//!
//! A separate thread does the work, since a disk of former settings may hang.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use cache::OwnerIdentity;
use coherence::os::Os as _;

use crate::platform::identity;
use crate::platform::linux::Linux;

/// Its name in the data directory.
const NAME: &str = "bpe.paths";
/// Maximum size of a list in bytes, and maximum number of former paths.
const MAX_LIST_BYTES: u64 = 64 << 10;
const MAX_FORMER: usize = 64;

/// Records the files of an opened extension and the directory of the persisted state, and removes files of former
/// settings.
pub fn update(owner: OwnerIdentity, data: &Path, now: Vec<PathBuf>) {
    let data = data.to_path_buf();
    let swept = Linux.spawn("bpe-sweep", move || {
        let former = read(&data).unwrap_or_default();
        let mut listed = now.clone();
        let stem = identity::stem(&owner);
        for path in former.into_iter().filter(|path| !is_among(path, &now)) {
            match sweep(&path, owner, &stem) {
                Ok(removed) => removed.iter().for_each(|path| log_removed(path)),
                Err(why) => {
                    Linux.warning(&format!(
                        "'{}' was used by this server under other settings, and may be left there: {why}",
                        path.display()
                    ));
                    listed.push(path);
                }
            }
        }
        listed.truncate(MAX_FORMER);
        if let Err(error) = write(&data, &listed) {
            Linux.warning(&format!(
                "cannot write '{NAME}' in the data directory: {error}; files of these settings are not removed when others are chosen"
            ));
        }
    });
    // If no thread could be started, the next opening does the work.
    drop(swept);
}

/// Removes the state that former settings persisted. Call when persistence is off.
pub fn remove_persisted(owner: OwnerIdentity) {
    let former = read(&identity::data_directory()).unwrap_or_default();
    let stem = identity::stem(&owner);
    for folder in former.iter().filter(|path| path.is_dir()) {
        // The sweep after the next opening reports an error.
        let removed = sweep(folder, owner, &stem).unwrap_or_default();
        removed.iter().for_each(|path| log_removed(path));
    }
}

/// Removes the list. Call when none of its files is left.
pub fn forget() {
    let _ = std::fs::remove_file(identity::data_directory().join(NAME));
}

fn log_removed(path: &Path) {
    Linux.note(&format!(
        "'{}' was removed: this server made it under other settings, and uses it no more",
        path.display()
    ));
}

fn is_among(path: &Path, now: &[PathBuf]) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let path = real(path);
    now.iter().any(|one| real(one) == path)
}

/// Removes this server's files at a path: a cache file and its snapshot, or the persisted state in a directory.
fn sweep(path: &Path, owner: OwnerIdentity, stem: &str) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    if path.is_dir() {
        for kind in ["arena", "files"] {
            let file = path.join(format!("{stem}.{kind}"));
            let is_free = file.exists() && cache::open_in_memory(&file).is_ok();
            if is_free {
                std::fs::remove_file(&file)?;
                removed.push(file);
            }
        }
        return Ok(removed);
    }
    if cache::remove_persisted(path, owner)? {
        removed.push(path.to_path_buf());
    }
    let image = path.with_file_name(format!("{stem}.image"));
    if std::fs::symlink_metadata(&image).is_ok_and(|metadata| metadata.is_file()) {
        std::fs::remove_file(&image)?;
        removed.push(image);
    }
    Ok(removed)
}

/// Reads the list of a data directory; `None` if it is missing or unreadable.
fn read(data: &Path) -> Option<Vec<PathBuf>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags).open(data.join(NAME));
    let mut bytes = Vec::new();
    file.ok()?
        .take(MAX_LIST_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    let lines = bytes.split(|byte| *byte == b'\n');
    let paths = lines.map(|line| PathBuf::from(OsStr::from_bytes(line)));
    Some(paths.filter(|path| path.is_absolute()).collect())
}

fn write(data: &Path, paths: &[PathBuf]) -> io::Result<()> {
    let new = data.join(format!("{NAME}.new"));
    let flags = libc::O_NOFOLLOW | libc::O_CLOEXEC;
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.custom_flags(flags).open(&new)?;
    for path in paths
        .iter()
        .filter(|path| !path.as_os_str().as_bytes().contains(&b'\n'))
    {
        file.write_all(path.as_os_str().as_bytes())?;
        file.write_all(b"\n")?;
    }
    std::fs::rename(&new, data.join(NAME))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn list_survives_write_and_read() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(read(data.path()), None);
        let paths = [
            PathBuf::from("/mnt/nvme/a.cache"),
            PathBuf::from("/dev/shm"),
        ];
        write(data.path(), &paths).unwrap();
        assert_eq!(read(data.path()), Some(paths.to_vec()));
        write(data.path(), &["/a\nb".into(), "/c".into()]).unwrap();
        assert_eq!(read(data.path()), Some(vec!["/c".into()]));
        std::fs::write(data.path().join(NAME), "relative\n/absolute\n\n").unwrap();
        assert_eq!(read(data.path()), Some(vec!["/absolute".into()]));
    }

    #[test]
    fn linked_path_is_the_same() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_among(&link, std::slice::from_ref(&file)));
        assert!(!is_among(&folder.path().join("b"), &[file]));
    }

    #[test]
    fn only_own_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let owner = OwnerIdentity([7; 16]);
        let foreign = folder.path().join("foreign");
        std::fs::write(&foreign, vec![1; 100_000]).unwrap();
        assert_eq!(
            sweep(&foreign, owner, "stem").unwrap_or_default(),
            [] as [PathBuf; 0]
        );
        assert!(foreign.exists());
        let gone = folder.path().join("gone");
        assert_eq!(sweep(&gone, owner, "stem").unwrap(), [] as [PathBuf; 0]);
        let other = folder.path().join("other.files");
        std::fs::write(&other, "").unwrap();
        assert_eq!(
            sweep(folder.path(), owner, "stem").unwrap(),
            [] as [PathBuf; 0]
        );
        assert!(other.exists());
    }
}
