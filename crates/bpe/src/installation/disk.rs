//! Cache paths: existing files, permissions, free space, and O_DIRECT support.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::connect::process::Process;
use crate::support::files::{open_plain, unnamed};
use crate::support::quote::{shell, shell_path};

/// O_DIRECT requires memory, offset and length aligned to the device's block; 4 KiB suits all devices.
pub const ALIGNMENT: usize = 4096;
/// Magic bytes of a cache file.
const MAGIC: &[u8; 8] = b"BPECACHE";

/// Message for a path below the data directory of a Galera node.
pub const COPIED: &str = "lies in the data directory of a Galera node: a node that joins by rsync gets a copy of the cache \
                          file, and one that joins by mariabackup loses it";
pub const COPIED_ADVICE: &str = "name a folder outside the data directory, on a fast local disk";

/// Message for a file that is no cache.
pub const FOREIGN: &str = "is a file with other contents, which the extension does not touch";
pub const FOREIGN_ADVICE: &str = "name a folder, or a file that does not exist yet";

/// Splits `bpe_path` into its parts.
///
/// # Errors
/// A part is empty, relative, or named twice.
pub fn split(path: &str) -> Result<Vec<PathBuf>, String> {
    let mut parts: Vec<PathBuf> = Vec::new();
    for part in path.split(':').filter(|part| !part.is_empty()) {
        let part = Path::new(part);
        if !part.is_absolute() {
            return Err(format!(
                "`{}` is a relative path, which the server would look for below its data \
                 directory: give an absolute one, such as {}",
                part.display(),
                std::path::absolute(part)
                    .unwrap_or_else(|_| Path::new("/").join(part))
                    .display()
            ));
        }
        let part: PathBuf = part.components().collect();
        if parts.contains(&part) {
            return Err(format!("`{}` is named twice", part.display()));
        }
        parts.push(part);
    }
    if parts.is_empty() {
        return Err("the path is empty: name a folder on the fast disk".to_owned());
    }
    Ok(parts)
}

/// Space on the file system of `path`, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    pub free: u64,
    pub total: u64,
    pub read_only: bool,
}

pub fn room(path: &Path) -> io::Result<Room> {
    let fs = rustix::fs::statvfs(path)?;
    Ok(Room {
        free: fs.f_bavail.saturating_mul(fs.f_frsize),
        total: fs.f_blocks.saturating_mul(fs.f_frsize),
        read_only: fs.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
    })
}

impl Room {
    /// Bytes that a cache may use here, including the `taken` ones. The extension keeps a reserve free.
    pub fn usable(&self, taken: u64) -> u64 {
        self.free
            .saturating_add(taken)
            .saturating_sub(cache::reserve(self.total))
    }
}

/// Divides `size` bytes among the cache paths by available space, in the same way as the extension. `see` translates a
/// server path into a path of this command.
pub fn shares(size: u64, paths: &[PathBuf], see: impl Fn(&Path) -> PathBuf) -> Vec<u64> {
    let rooms: Vec<_> = paths
        .iter()
        .map(|path| room_for_cache(&see(path)))
        .collect();
    cache::divide(size, &rooms)
}

/// `percent` of the space at the cache paths, in bytes, as the extension computes it for a percentage in `bpe_size`.
pub fn part(percent: u64, paths: &[PathBuf], see: impl Fn(&Path) -> PathBuf) -> u64 {
    let rooms: Vec<_> = paths
        .iter()
        .map(|path| room_for_cache(&see(path)))
        .collect();
    cache::part(percent, &rooms).into_iter().flatten().sum()
}

/// Whether the space for a cache at this path can be determined.
pub fn is_known(path: &Path) -> bool {
    room_for_cache(path).is_some()
}

/// Whether the cache path is on the file system of this directory.
pub fn share_disk(path: &Path, folder: &Path) -> bool {
    let cache = room_for_cache(path).map(|room| room.file_system);
    cache.is_some() && cache == fs::metadata(folder).ok().map(|meta| meta.dev())
}

fn room_for_cache(path: &Path) -> Option<cache::Room> {
    let folder = if path.is_dir() { path } else { path.parent()? };
    let room = room(folder).ok()?;
    Some(cache::Room {
        file_system: fs::metadata(folder).ok()?.dev(),
        free: room.free,
        reserve: cache::reserve(room.total),
        own: taken(path),
    })
}

/// Bytes that existing cache files at `path` occupy; they count as available.
pub fn taken(path: &Path) -> u64 {
    let size = |meta: &Metadata| meta.blocks() * 512;
    let Ok(meta) = fs::symlink_metadata(path) else {
        return 0;
    };
    if !meta.is_dir() {
        return size(&meta);
    }
    fs::read_dir(path)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.starts_with("bpe-") && name.ends_with(".cache")
        })
        .filter_map(|entry| entry.metadata().ok())
        .map(|meta| size(&meta))
        .sum()
}

/// Whether the server's user can reach `path` (as the server sees it) and write there.
///
/// # Errors
/// The directory or file that denies it, and the command that fixes it.
pub fn may_write(process: &Process, path: &Path) -> Result<(), String> {
    let allowed = |meta: &Metadata, bits: u32| {
        let mode = meta.mode();
        let granted = if meta.uid() == process.uid {
            mode >> 6
        } else if process.groups.contains(&meta.gid()) {
            mode >> 3
        } else {
            mode
        };
        process.uid == 0 || granted & bits == bits
    };
    let user = process.user_name();
    let ancestors: Vec<_> = path.ancestors().skip(1).collect();
    for folder in ancestors.into_iter().rev() {
        let meta = fs::metadata(process.seen(folder))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        if !allowed(&meta, 1) {
            return Err(format!(
                "the server's user {user} may not enter {}: chmod o+x {}",
                folder.display(),
                shell_path(folder)
            ));
        }
    }
    let meta =
        fs::metadata(process.seen(path)).map_err(|error| format!("{}: {error}", path.display()))?;
    let bits = if meta.is_dir() { 3 } else { 6 };
    if allowed(&meta, bits) {
        return Ok(());
    }
    Err(format!(
        "the server's user {user} may not write to {}: chown {} {}",
        path.display(),
        shell(&user),
        shell_path(path)
    ))
}

/// Whether this is a file with foreign contents, which the extension would reject.
pub fn is_foreign_file(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    let Ok(file) = open_plain(path) else {
        return false;
    };
    let foreign = |meta: Metadata| meta.is_file() && meta.len() > 0;
    file.metadata().is_ok_and(foreign)
        && (file.read_exact_at(&mut magic, 0).is_err() || magic != *MAGIC)
}

/// Whether files in this directory can be opened with O_DIRECT; tries an unnamed file.
pub fn direct_io(folder: &Path) -> io::Result<bool> {
    let file = match unnamed(folder, OFlags::DIRECT) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            // Some file systems fail at open: verify that O_DIRECT is the reason.
            return unnamed(folder, OFlags::empty()).map(|_| false);
        }
        Err(error) => return Err(error),
    };
    let block = AlignedBuffer::new(ALIGNMENT);
    match file.write_all_at(block.bytes(), 0) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(false),
        Err(error) => Err(error),
    }
}

/// A buffer aligned for O_DIRECT.
pub struct AlignedBuffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl AlignedBuffer {
    /// A buffer of `length` zero bytes.
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let start = memory.as_ptr().align_offset(ALIGNMENT);
        Self {
            memory,
            start,
            length,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.start..self.start + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..self.start + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn paths_are_split_and_checked() {
        assert_eq!(
            split("/a/b/:/c").unwrap(),
            [PathBuf::from("/a/b"), PathBuf::from("/c")]
        );
        for (path, why) in [
            ("", "empty"),
            (":", "empty"),
            ("cache", "relative"),
            ("/a:b", "relative"),
            ("/a:/a/", "twice"),
        ] {
            assert!(split(path).unwrap_err().contains(why), "{path}");
        }
    }

    #[test]
    fn permissions_of_the_servers_user_are_seen() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("cache");
        fs::create_dir(&folder).unwrap();
        let server = |uid, groups: &[u32]| Process {
            pid: 1,
            start: 0,
            uid,
            groups: groups.to_vec(),
            command_line: vec![],
            environment: BTreeMap::new(),
            root: root.path().to_path_buf(),
        };
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(root.path(), 0o755);
        set(&folder, 0o755);
        let meta = fs::metadata(&folder).unwrap();
        let stranger = server(meta.uid() + 12_345, &[meta.gid() + 1]);
        let path = Path::new("/cache");
        assert!(may_write(&server(meta.uid(), &[]), path).is_ok());
        assert!(may_write(&server(0, &[]), path).is_ok());
        let error = may_write(&stranger, path).unwrap_err();
        assert!(error.contains("chown"), "{error}");
        set(&folder, 0o777);
        assert!(may_write(&stranger, path).is_ok());
        set(root.path(), 0o700);
        let error = may_write(&stranger, path).unwrap_err();
        assert!(error.contains("may not enter /"), "{error}");
        set(root.path(), 0o755);
        set(&folder, 0o775);
        assert!(may_write(&stranger, path).is_err());
        let member = server(meta.uid() + 12_345, &[meta.gid()]);
        assert!(may_write(&member, path).is_ok());
    }

    #[test]
    fn foreign_files_are_known() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        assert!(!is_foreign_file(&path));
        for (contents, foreign) in [
            ("", false),
            ("BPECACHE and more", false),
            ("BPE", true),
            ("something else", true),
        ] {
            fs::write(&path, contents).unwrap();
            assert_eq!(is_foreign_file(&path), foreign, "{contents}");
        }
        assert!(!is_foreign_file(folder.path()));
    }

    #[test]
    fn buffers_are_aligned() {
        let mut buffer = AlignedBuffer::new(100);
        assert_eq!(buffer.bytes().as_ptr() as usize % ALIGNMENT, 0);
        buffer.bytes_mut()[99] = 1;
        assert_eq!(buffer.bytes().len(), 100);
    }

    #[test]
    fn a_folder_can_be_tried() {
        let folder = tempfile::tempdir().unwrap();
        direct_io(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        assert!(direct_io(&folder.path().join("missing")).is_err());
        assert!(room(folder.path()).unwrap().total > 0);
    }
}
