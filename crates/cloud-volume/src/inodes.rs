//! The inodes that the kernel knows, and its open files.
//!
//! An `O_PATH` descriptor holds the backing inode from the kernel's first look-up until the kernel forgets it. So an
//! inode is independent of names, and renames and unlinked files need no special handling. The descriptor also keeps
//! the backing file system from reusing the inode number while the kernel still refers to it. The numbers are those of
//! the backing directory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{FileAttr, FileType, INodeNo};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use slab::Slab;

use crate::undo::Undo;

pub(crate) struct Inode {
    fd: OwnedFd,
    pub(crate) number: u64,
    /// Whether the file changed since the last sync.
    pub(crate) dirty: AtomicBool,
    /// Contents that a power loss restores; `None` if there are none.
    pub(crate) undo: Mutex<Option<Undo>>,
}

impl AsFd for Inode {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Inode {
    fn new(fd: OwnedFd, number: u64) -> Arc<Self> {
        Arc::new(Inode {
            fd,
            number,
            dirty: AtomicBool::new(false),
            undo: Mutex::new(None),
        })
    }

    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.fd, "", AtFlags::EMPTY_PATH)?)
    }

    pub(crate) fn attributes(&self) -> io::Result<FileAttr> {
        Ok(attributes(&self.stat()?))
    }

    /// A path to exactly this inode, valid under any name and after an unlink.
    pub(crate) fn magic_path(&self) -> String {
        format!("/proc/self/fd/{}", self.fd.as_raw_fd())
    }

    /// Current path of the file in the backing directory; empty if unknown.
    pub(crate) fn path(&self) -> Vec<u8> {
        rustix::fs::readlink(self.magic_path(), Vec::new())
            .map(|path| path.into_bytes())
            .unwrap_or_default()
    }

    pub(crate) fn open(&self, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        let fd = rustix::fs::open(self.magic_path(), flags, Mode::empty())?;
        Ok(File::from(fd))
    }
}

/// All inodes that the kernel knows.
pub(crate) struct Inodes {
    root: Arc<Inode>,
    device: u64,
    known: Mutex<HashMap<u64, Known>>,
}

struct Known {
    inode: Arc<Inode>,
    lookups: u64,
}

const ROOT: u64 = 1;

impl Inodes {
    pub(crate) fn new(root: OwnedFd) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&root)?;
        Ok(Inodes {
            root: Inode::new(root, stat.st_ino),
            device: stat.st_dev,
            known: Mutex::default(),
        })
    }

    pub(crate) fn root(&self) -> &Arc<Inode> {
        &self.root
    }

    pub(crate) fn get(&self, number: INodeNo) -> io::Result<Arc<Inode>> {
        if number.0 == ROOT {
            return Ok(self.root.clone());
        }
        match self.known.lock().get(&number.0) {
            Some(known) => Ok(known.inode.clone()),
            None => Err(Errno::STALE.into()),
        }
    }

    /// Records that the kernel learns of an inode, given its `O_PATH` descriptor. `kept` finds the object of an inode
    /// that the kernel forgot while it was still needed.
    pub(crate) fn learn(
        &self,
        fd: OwnedFd,
        kept: impl FnOnce(u64) -> Option<Arc<Inode>>,
    ) -> io::Result<(Arc<Inode>, FileAttr)> {
        let stat = rustix::fs::fstat(&fd)?;
        if stat.st_dev != self.device || stat.st_ino == ROOT {
            // Another file system is mounted inside the backing directory. Its inode numbers would clash with ours.
            return Err(Errno::XDEV.into());
        }
        let mut known = self.known.lock();
        let inode = match known.entry(stat.st_ino) {
            Entry::Occupied(mut entry) => {
                entry.get_mut().lookups += 1;
                entry.get().inode.clone()
            }
            Entry::Vacant(entry) => {
                let number = stat.st_ino;
                let inode = kept(number).unwrap_or_else(|| Inode::new(fd, number));
                entry.insert(Known {
                    inode: inode.clone(),
                    lookups: 1,
                });
                inode
            }
        };
        Ok((inode, attributes(&stat)))
    }

    /// Drops `lookups` references of the kernel. Returns the inode if they were the last.
    pub(crate) fn forget(&self, number: INodeNo, lookups: u64) -> Option<Arc<Inode>> {
        let mut known = self.known.lock();
        let Entry::Occupied(mut entry) = known.entry(number.0) else {
            return None;
        };
        let left = entry.get().lookups.saturating_sub(lookups);
        entry.get_mut().lookups = left;
        (left == 0).then(|| entry.remove().inode)
    }
}

/// A client's open file.
pub(crate) struct OpenFile {
    pub(crate) file: File,
    pub(crate) inode: Arc<Inode>,
    /// Opened with O_SYNC or O_DSYNC: each write is durable when it completes.
    pub(crate) synchronous: bool,
}

/// Open files by the kernel's handle.
#[derive(Default)]
pub(crate) struct Handles {
    open: RwLock<Slab<Arc<OpenFile>>>,
}

impl Handles {
    pub(crate) fn insert(&self, file: OpenFile) -> u64 {
        self.open.write().insert(Arc::new(file)) as u64
    }

    pub(crate) fn get(&self, handle: u64) -> io::Result<Arc<OpenFile>> {
        let open = self.open.read();
        open.get(handle as usize)
            .cloned()
            .ok_or_else(|| Errno::BADF.into())
    }

    pub(crate) fn remove(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.open.write().try_remove(handle as usize)
    }
}

pub(crate) fn attributes(stat: &Stat) -> FileAttr {
    let changed = time(stat.st_ctime, stat.st_ctime_nsec as i64);
    FileAttr {
        ino: INodeNo(stat.st_ino),
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime, stat.st_atime_nsec as i64),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec as i64),
        ctime: changed,
        crtime: changed,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

fn kind(mode: u32) -> FileType {
    use rustix::fs::FileType as Backing;
    file_type(Backing::from_raw_mode(mode)).unwrap_or(FileType::RegularFile)
}

/// FUSE's name of the kind; `None` if the backing file system does not report it.
pub(crate) fn file_type(kind: rustix::fs::FileType) -> Option<FileType> {
    use rustix::fs::FileType as Backing;
    Some(match kind {
        Backing::RegularFile => FileType::RegularFile,
        Backing::Directory => FileType::Directory,
        Backing::Symlink => FileType::Symlink,
        Backing::Fifo => FileType::NamedPipe,
        Backing::Socket => FileType::Socket,
        Backing::CharacterDevice => FileType::CharDevice,
        Backing::BlockDevice => FileType::BlockDevice,
        _ => return None,
    })
}

fn time(seconds: i64, nanoseconds: i64) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base = if seconds < 0 {
        UNIX_EPOCH - whole
    } else {
        UNIX_EPOCH + whole
    };
    base + Duration::from_nanos(nanoseconds as u64)
}
