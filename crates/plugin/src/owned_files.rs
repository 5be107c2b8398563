//! Remembers which files outside the data directory this server has made, and removes those that its settings name no more.
//!
//! The list `bpe.paths` lies in the data directory, a path on each line: the cache files, and the folder in memory with what is
//! persisted. Names alone decide nothing: a cache file has to have this server's identity in its header, and what is persisted has
//! this server's name and a lock that nobody holds. A path that cannot be looked at now, as of a disk that is not mounted, stays in
//! the list.
//!
//! A thread of its own does the work, since a disk of former settings may not answer.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use extension::OwnerIdentity;

use crate::linux::Linux;
use crate::os::Os as _;
use crate::plan;
use crate::settings;

/// Its name in the data directory.
const NAME: &str = "bpe.paths";
/// Bytes of a list, and paths that are kept of former settings.
const LONGEST: u64 = 64 << 10;
const MOST_FORMER: usize = 64;

/// Notes the files of an extension that was opened, and removes those of former settings.
pub fn note(owner: OwnerIdentity, data: &Path, cache_files: Vec<PathBuf>) {
    let data = data.to_path_buf();
    let mut now = cache_files;
    now.extend(settings::persist_path());
    let swept = Linux.spawn("bpe-sweep", move || {
        let former = read(&data).unwrap_or_default();
        let mut kept = now.clone();
        let stem = plan::stem(&owner);
        for path in former.into_iter().filter(|path| !is_among(path, &now)) {
            match sweep(&path, owner, &stem) {
                Ok(removed) => removed.iter().for_each(|path| told(path)),
                Err(why) => {
                    Linux.warning(&format!(
                        "'{}' was used by this server under other settings, and may be left there: {why}",
                        path.display()
                    ));
                    kept.push(path);
                }
            }
        }
        kept.truncate(MOST_FORMER);
        if let Err(error) = write(&data, &kept) {
            Linux.warning(&format!(
                "cannot write '{NAME}' in the data directory: {error}; files of these settings are not removed when others are chosen"
            ));
        }
    });
    // Without a thread it is done at the next opening.
    drop(swept);
}

/// Removes the state that former settings persisted: nothing outlives the process any more.
pub fn remove_persisted(owner: OwnerIdentity) {
    let former = read(&plan::data_directory()).unwrap_or_default();
    let stem = plan::stem(&owner);
    for folder in former.iter().filter(|path| path.is_dir()) {
        // The sweep after the next opening reports an error.
        let removed = sweep(folder, owner, &stem).unwrap_or_default();
        removed.iter().for_each(|path| told(path));
    }
}

/// Removes the list, when none of its files is left.
pub fn forget() {
    let _ = std::fs::remove_file(plan::data_directory().join(NAME));
}

fn told(path: &Path) {
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

/// Removes what this server made at a path: a cache file and its image, or what is persisted in a folder.
fn sweep(path: &Path, owner: OwnerIdentity, stem: &str) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    if path.is_dir() {
        for kind in ["arena", "files"] {
            let file = path.join(format!("{stem}.{kind}"));
            let is_free = file.exists() && extension::open_in_memory(&file).is_ok();
            if is_free {
                std::fs::remove_file(&file)?;
                removed.push(file);
            }
        }
        return Ok(removed);
    }
    if extension::remove_left(path, owner)? {
        removed.push(path.to_path_buf());
    }
    let image = path.with_file_name(format!("{stem}.image"));
    if std::fs::symlink_metadata(&image).is_ok_and(|metadata| metadata.is_file()) {
        std::fs::remove_file(&image)?;
        removed.push(image);
    }
    Ok(removed)
}

/// The list of a data directory; `None` if there is none that can be read.
fn read(data: &Path) -> Option<Vec<PathBuf>> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
    let mut options = File::options();
    let file = options.read(true).custom_flags(flags).open(data.join(NAME));
    let mut bytes = Vec::new();
    file.ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
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
    fn the_list_is_read_as_it_was_written() {
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
    fn a_path_is_the_same_by_another_name() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a");
        std::fs::write(&file, "").unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(is_among(&link, std::slice::from_ref(&file)));
        assert!(!is_among(&folder.path().join("b"), &[file]));
    }

    #[test]
    fn only_what_is_this_servers_is_removed() {
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
