//! Files of the cache that a server leaves to its next process: on the cache disks, and in memory.
//!
//! They have a name made of the host's name and the data directory ([`interface::owner`]), so that those of
//! another server in the same folders are left alone.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use interface::owner;

use crate::process::Process;

/// Kinds of files on the cache disks: the cache, what it needs after the machine's restart, and the same that is not finished.
const ON_DISK: [&str; 3] = ["cache", "image", "image-new"];

/// Those that are there, as the server sees them. `folders`: what `bpe_path` names; `memory`: `bpe_persist_path`.
pub fn find(process: &Process, data: &Path, folders: &[PathBuf], memory: &Path) -> Vec<PathBuf> {
    let Some(stem) = stem_of(process, data) else {
        return Vec::new();
    };
    let kept = ["arena", "files"].map(|kind| memory.join(format!("{stem}.{kind}")));
    let caches = folders
        .iter()
        .filter(|folder| process.seen(folder).is_dir())
        .flat_map(|folder| ON_DISK.map(|kind| folder.join(format!("{stem}.{kind}"))));
    let is_file =
        |path: &PathBuf| fs::symlink_metadata(process.seen(path)).is_ok_and(|meta| meta.is_file());
    caches.chain(kept).filter(is_file).collect()
}

/// What the names of its files begin with. Not known of a server that has another root, whose host's name may be another.
fn stem_of(process: &Process, data: &Path) -> Option<String> {
    if !process.shares_root() || !shares_host_name(process.pid) {
        return None;
    }
    let host = rustix::system::uname().nodename().to_bytes().to_vec();
    let data = fs::canonicalize(data).ok()?;
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
            uid: 0,
            groups: vec![],
            command_line: vec![],
            environment: BTreeMap::new(),
            root: "/".into(),
        }
    }

    #[test]
    fn only_its_own_files_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let (cache, memory) = (folder.path().join("cache"), folder.path().join("memory"));
        for one in [&data, &cache, &memory] {
            fs::create_dir(one).unwrap();
        }
        let process = process();
        let stem = stem_of(&process, &data).unwrap();
        let found = || find(&process, &data, std::slice::from_ref(&cache), &memory);
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
        let other = Process {
            root: folder.path().into(),
            ..process.clone()
        };
        assert_eq!(stem_of(&other, &data), None);
    }
}
