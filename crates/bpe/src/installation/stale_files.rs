//! Cache files that a server leaves for its next process: on the cache disks, and in memory.
//!
//! Their names contain the host name and the data directory ([`interface::owner`]). Files of other servers in the same
//! directories are never touched.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use interface::{canary, owner};
use rustix::fs::FlockOperation;

use crate::connect::process::Process;
use crate::support::files::{self, Directory};

/// Kinds of files on the cache disks: the cache, the data for a restart of the host, and its incomplete version.
const DISK_SUFFIXES: [&str; 3] = ["cache", "image", "image-new"];

/// Existing files that belong to the server's user. `folders`: directories in `bpe_path`; `memory`: `bpe_persist_path`.
pub fn find(process: &Process, folders: &[PathBuf], memory: &Path) -> Vec<PathBuf> {
    let Some(stem) = stem_of(process) else {
        return Vec::new();
    };
    let kept = ["arena", "files"].map(|kind| memory.join(format!("{stem}.{kind}")));
    let caches = folders
        .iter()
        .flat_map(|folder| DISK_SUFFIXES.map(|kind| folder.join(format!("{stem}.{kind}"))));
    caches
        .chain(kept)
        .filter(|path| opened(process, path).is_ok())
        .collect()
}

/// Removes one of the files.
///
/// # Errors
/// Another user owns it by now, or a running server has locked it.
pub fn remove(process: &Process, path: &Path) -> Result<(), String> {
    let text = |error: io::Error| error.to_string();
    let (folder, name, file) = opened(process, path).map_err(text)?;
    let locked = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    if locked.is_err() && !canary!("lock-of-leftovers") {
        return Err("it is in use".to_owned());
    }
    folder.remove(name).map_err(text)
}

/// Opens a file of the server's user. Returns its directory, name and descriptor.
fn opened<'a>(process: &Process, path: &'a Path) -> io::Result<(Directory, &'a OsStr, File)> {
    let (folder, name) = files::split(path)?;
    let folder = Directory::open_of(folder, process.uid)?;
    let file = folder.open_file(name)?;
    match file.metadata()?.uid() == process.uid || canary!("owner-of-leftovers") {
        true => Ok((folder, name, file)),
        false => Err(io::Error::other("it belongs to another user")),
    }
}

/// Name prefix of the server's files. Unknown for a server with another root, because its host name may differ.
fn stem_of(process: &Process) -> Option<String> {
    if !process.shares_root() || !shares_host_name(process.pid) {
        return None;
    }
    let host = rustix::system::uname().nodename().to_bytes().to_vec();
    let (_, data) = process.data_directory().ok()?;
    Some(owner::stem(&owner::identity(
        &host,
        data.as_os_str().as_bytes(),
    )))
}

fn shares_host_name(pid: i32) -> bool {
    let of = |who: &str| fs::read_link(format!("/proc/{who}/ns/uts")).ok();
    of(&pid.to_string()).is_some_and(|theirs| Some(theirs) == of("self"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn process() -> Process {
        Process {
            pid: std::process::id() as i32,
            start: 0,
            uid: rustix::process::geteuid().as_raw(),
            groups: vec![],
            command_line: vec![],
            environment: BTreeMap::new(),
            root: "/".into(),
        }
    }

    #[test]
    fn only_its_own_files_are_found_and_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (cache, memory) = (folder.path().join("cache"), folder.path().join("memory"));
        for one in [&cache, &memory] {
            fs::create_dir(one).unwrap();
        }
        let process = process();
        let stem = stem_of(&process).unwrap();
        let found = || find(&process, std::slice::from_ref(&cache), &memory);
        fs::write(cache.join("bpe-0123456789abcdef.cache"), "another's").unwrap();
        fs::write(memory.join("bpe-0123456789abcdef.arena"), "another's").unwrap();
        assert!(found().is_empty());
        let own = [
            cache.join(format!("{stem}.cache")),
            cache.join(format!("{stem}.image")),
            cache.join(format!("{stem}.image-new")),
            memory.join(format!("{stem}.arena")),
            memory.join(format!("{stem}.files")),
        ];
        for path in &own {
            fs::write(path, "ours").unwrap();
        }
        assert_eq!(found(), own);
        let used = File::open(&own[0]).unwrap();
        rustix::fs::flock(&used, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert!(remove(&process, &own[0]).is_err(), "in use");
        drop(used);
        remove(&process, &own[0]).unwrap();
        assert_eq!(found(), own[1..]);
        let other = Process {
            root: folder.path().into(),
            ..process.clone()
        };
        assert_eq!(stem_of(&other), None);
        let other = Process {
            uid: process.uid + 1,
            ..process
        };
        assert!(find(&other, std::slice::from_ref(&cache), &memory).is_empty());
    }
}
