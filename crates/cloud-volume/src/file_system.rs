//! File system operations. Names and attributes are passed to the backing directory; reads, writes and syncs to the
//! [`crate::engine`].
//!
//! The kernel may cache names and attributes of directories for a minute, because all changes pass through it. It may
//! not cache attributes of files, so that `fstat` shows the backing file's size and times exactly. POSIX and flock
//! locks stay in the kernel. Extended attributes are unsupported: with them, the kernel would request
//! `security.capability` before every buffered write.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags,
    PollEvents, PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen, ReplyPoll,
    ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use parking_lot::{Mutex, RwLock};
use rustix::fs::{
    Advice, AtFlags, CWD, FallocateFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid,
};
use slab::Slab;

use crate::engine::Engine;
use crate::inodes::{Inode, OpenFile, file_type};

/// The largest read or write that the kernel sends in one request.
const MAX_TRANSFER: u32 = 1 << 20;

/// Maximum number of the kernel's outstanding asynchronous requests, unless the volume has few slots.
const MAX_BACKGROUND: u16 = 4096;

const NAME_TTL: Duration = Duration::from_secs(60);
const DIRECTORY_TTL: Duration = Duration::from_secs(60);
const FILE_TTL: Duration = Duration::ZERO;

pub(crate) struct FileSystem {
    engine: Arc<Engine>,
    directories: RwLock<Slab<Arc<Mutex<Vec<Listed>>>>>,
    /// Whether files can be given to the user that creates them.
    privileged: bool,
    /// Maximum number of the kernel's outstanding asynchronous requests.
    slots: u16,
    /// Called when the session ends.
    ended: Box<dyn Fn() + Send + Sync>,
}

struct Listed {
    number: u64,
    kind: FileType,
    name: OsString,
}

impl FileSystem {
    pub(crate) fn new(
        engine: Arc<Engine>,
        slots: Option<u16>,
        ended: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        FileSystem {
            engine,
            directories: RwLock::default(),
            privileged: rustix::process::geteuid().is_root(),
            slots: slots.unwrap_or(MAX_BACKGROUND),
            ended: Box::new(ended),
        }
    }

    fn inode(&self, number: INodeNo) -> io::Result<Arc<Inode>> {
        self.engine.inodes.get(number)
    }

    fn look_up(&self, parent: &Inode, name: &OsStr) -> io::Result<(Arc<Inode>, FileAttr)> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = rustix::fs::openat(parent, name, flags, Mode::empty())?;
        self.learn(fd)
    }

    fn learn(&self, fd: std::os::fd::OwnedFd) -> io::Result<(Arc<Inode>, FileAttr)> {
        let unsynced = self.engine.unsynced.as_ref();
        self.engine
            .inodes
            .learn(fd, |number| unsynced?.find(number))
    }

    /// Runs `make`, then assigns the new object to the client and looks it up.
    fn make(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: Option<u32>,
        make: impl FnOnce(&Inode) -> rustix::io::Result<()>,
    ) -> io::Result<FileAttr> {
        let parent = self.inode(parent)?;
        make(&parent)?;
        self.hand_over(request, &parent, name, mode)?;
        Ok(self.look_up(&parent, name)?.1)
    }

    /// Sets owner and mode of a new file. This process created it under its own umask, but it belongs to the client,
    /// whose umask the kernel has applied.
    fn hand_over(
        &self,
        request: &Request,
        parent: &Inode,
        name: &OsStr,
        mode: Option<u32>,
    ) -> io::Result<()> {
        let parent_stat = parent.stat()?;
        let inherits_group = parent_stat.st_mode & libc::S_ISGID != 0;
        if self.privileged {
            let group = (!inherits_group).then(|| Gid::from_raw(request.gid()));
            let owner = Some(Uid::from_raw(request.uid()));
            rustix::fs::chownat(parent, name, owner, group, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        if let Some(mode) = mode {
            let mut mode = mode & 0o7777;
            let stat = rustix::fs::statat(parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
            if inherits_group && stat.st_mode & libc::S_IFMT == libc::S_IFDIR {
                mode |= libc::S_ISGID;
            }
            if stat.st_mode & 0o7777 != mode {
                rustix::fs::chmodat(parent, name, Mode::from_raw_mode(mode), AtFlags::empty())?;
            }
        }
        Ok(())
    }

    /// Flags for the backing file of a client's open call with `flags`.
    fn backing_flags(&self, flags: i32) -> OFlags {
        match flags & libc::O_ACCMODE {
            libc::O_RDONLY => OFlags::RDONLY,
            // Undo needs to read the overwritten data.
            libc::O_WRONLY if self.engine.unsynced.is_none() => OFlags::WRONLY,
            _ => OFlags::RDWR,
        }
    }

    fn opened(
        &self,
        inode: Arc<Inode>,
        file: std::fs::File,
        flags: i32,
    ) -> (FileHandle, FopenFlags) {
        // The kernel already reads ahead on the volume where useful. Read-ahead below would fetch unrequested data, in
        // such large folios that ext4 spends longer on finding a page's blocks in them than on writing it.
        let _ = rustix::fs::fadvise(&file, 0, None, Advice::Random);
        let handle = self.engine.handles.insert(OpenFile {
            file,
            inode,
            synchronous: flags & (libc::O_DSYNC | libc::O_SYNC) != 0,
        });
        let mode = if flags & libc::O_DIRECT != 0 {
            // Without FOPEN_PARALLEL_DIRECT_WRITES the kernel locks the file for each synchronous direct write. Real
            // file systems do not lock if a write stays inside the file.
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        } else {
            FopenFlags::FOPEN_KEEP_CACHE
        };
        (FileHandle(handle), mode)
    }

    fn create_file(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> io::Result<(FileAttr, FileHandle, FopenFlags)> {
        let parent = self.inode(parent)?;
        let open = self.backing_flags(flags) | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let create = open | OFlags::CREATE | OFlags::EXCL;
        let file = match rustix::fs::openat(&parent, name, create, Mode::from_raw_mode(mode)) {
            Ok(file) => {
                self.hand_over(request, &parent, name, Some(mode))?;
                file
            }
            Err(rustix::io::Errno::EXIST) if flags & libc::O_EXCL == 0 => {
                rustix::fs::openat(&parent, name, open, Mode::empty())?
            }
            Err(error) => return Err(error.into()),
        };
        let (inode, attributes) = self.look_up(&parent, name)?;
        let (handle, mode) = self.opened(inode, file.into(), flags);
        Ok((attributes, handle, mode))
    }

    fn list(inode: &Inode) -> io::Result<Vec<Listed>> {
        let directory = inode.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        rustix::fs::Dir::read_from(directory)?
            .map(|entry| {
                let entry = entry?;
                Ok(Listed {
                    number: entry.ino(),
                    // The backing file system does not report the kind, so the kernel will look it up.
                    kind: file_type(entry.file_type()).unwrap_or(FileType::RegularFile),
                    name: OsStr::from_bytes(entry.file_name().to_bytes()).to_owned(),
                })
            })
            .collect()
    }
}

/// How long the kernel may cache these attributes.
fn ttl(attributes: &FileAttr) -> &'static Duration {
    match attributes.kind {
        FileType::RegularFile => &FILE_TTL,
        _ => &DIRECTORY_TTL,
    }
}

fn answer_entry(reply: ReplyEntry, result: io::Result<FileAttr>) {
    match result {
        Ok(attributes) => reply.entry_with_ttls(
            ttl(&attributes),
            &NAME_TTL,
            &attributes,
            // A number identifies one inode for as long as the kernel knows it.
            Generation(0),
        ),
        Err(error) => reply.error(error.into()),
    }
}

fn answer_attributes(reply: ReplyAttr, result: io::Result<FileAttr>) {
    match result {
        Ok(attributes) => reply.attr(ttl(&attributes), &attributes),
        Err(error) => reply.error(error.into()),
    }
}

fn answer_empty(reply: ReplyEmpty, result: io::Result<()>) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error.into()),
    }
}

impl Filesystem for FileSystem {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        for wanted in [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_CACHE_SYMLINKS,
        ] {
            if config.add_capabilities(wanted).is_err() {
                log::info!("this kernel does not offer {wanted:?}");
            }
        }
        // Each of these rejects only values out of range; then the default stays.
        let _ = config.set_max_write(MAX_TRANSFER);
        if let Err(most) = config.set_max_readahead(MAX_TRANSFER) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(self.slots);
        let _ = config.set_congestion_threshold(self.slots);
        Ok(())
    }

    fn destroy(&mut self) {
        (self.ended)();
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self
            .inode(parent)
            .and_then(|parent| self.look_up(&parent, name));
        answer_entry(reply, found.map(|(_, attributes)| attributes));
    }

    fn forget(&self, _: &Request, number: INodeNo, lookups: u64) {
        let Some(inode) = self.engine.inodes.forget(number, lookups) else {
            return;
        };
        let engine = self.engine.clone();
        // Closing the last descriptor of an unlinked file frees its blocks, which can be slow.
        self.engine.pool.execute(move || {
            let gone = inode.stat().is_ok_and(|stat| stat.st_nlink == 0);
            if let (Some(unsynced), true) = (&engine.unsynced, gone) {
                unsynced.sync(&inode);
            }
        });
    }

    fn getattr(&self, _: &Request, number: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attributes = self.inode(number).and_then(|inode| inode.attributes());
        answer_attributes(reply, attributes);
    }

    fn setattr(
        &self,
        _: &Request,
        number: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let inode = match self.inode(number) {
            Ok(inode) => inode,
            Err(error) => return reply.error(error.into()),
        };
        let engine = self.engine.clone();
        let set = move || {
            if let Some(size) = size {
                truncate(&engine, &inode, handle, size)?;
            }
            if uid.is_some() || gid.is_some() {
                let (owner, group) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                rustix::fs::chownat(&*inode, "", owner, group, AtFlags::EMPTY_PATH)?;
            }
            if let Some(mode) = mode {
                let mode = Mode::from_raw_mode(mode & 0o7777);
                rustix::fs::chmodat(CWD, inode.magic_path(), mode, AtFlags::empty())?;
            }
            if atime.is_some() || mtime.is_some() {
                let times = Timestamps {
                    last_access: timespec(atime),
                    last_modification: timespec(mtime),
                };
                rustix::fs::utimensat(&*inode, "", &times, AtFlags::EMPTY_PATH)?;
            }
            inode.attributes()
        };
        if size.is_some() {
            let job = move || answer_attributes(reply, set());
            self.engine.pool.execute(job);
        } else {
            answer_attributes(reply, set());
        }
    }

    fn readlink(&self, _: &Request, number: INodeNo, reply: ReplyData) {
        let target = self
            .inode(number)
            .and_then(|inode| Ok(rustix::fs::readlinkat(&*inode, "", Vec::new())?));
        match target {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(error.into()),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        device: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, Some(mode), |parent| {
            let kind = rustix::fs::FileType::from_raw_mode(mode);
            let permissions = Mode::from_raw_mode(mode & 0o7777);
            rustix::fs::mknodat(parent, name, kind, permissions, device.into())
        });
        answer_entry(reply, made);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, Some(mode), |parent| {
            rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode & 0o7777))
        });
        answer_entry(reply, made);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self
            .inode(parent)
            .and_then(|parent| Ok(rustix::fs::unlinkat(&*parent, name, AtFlags::empty())?));
        answer_empty(reply, removed);
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let removed = self
            .inode(parent)
            .and_then(|parent| Ok(rustix::fs::unlinkat(&*parent, name, AtFlags::REMOVEDIR)?));
        answer_empty(reply, removed);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let made = self.make(request, parent, name, None, |parent| {
            rustix::fs::symlinkat(target, parent, name)
        });
        answer_entry(reply, made);
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = rustix::fs::RenameFlags::from_bits_retain(flags.bits());
        let renamed = self.inode(parent).and_then(|parent| {
            let new_parent = self.inode(new_parent)?;
            rustix::fs::renameat_with(&*parent, name, &*new_parent, new_name, flags)?;
            Ok(())
        });
        answer_empty(reply, renamed);
    }

    fn link(
        &self,
        _: &Request,
        number: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let linked = self.inode(number).and_then(|inode| {
            let parent = self.inode(new_parent)?;
            let follow = AtFlags::SYMLINK_FOLLOW;
            rustix::fs::linkat(CWD, inode.magic_path(), &*parent, new_name, follow)?;
            Ok(self.look_up(&parent, new_name)?.1)
        });
        answer_entry(reply, linked);
    }

    fn open(&self, _: &Request, number: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let opened = self.inode(number).and_then(|inode| {
            let file = inode.open(self.backing_flags(flags.0))?;
            Ok(self.opened(inode, file, flags.0))
        });
        match opened {
            Ok((handle, mode)) => reply.opened(handle, mode),
            Err(error) => reply.error(error.into()),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self.create_file(request, parent, name, mode, flags) {
            Ok((attributes, handle, open)) => {
                reply.created(ttl(&attributes), &attributes, Generation(0), handle, open)
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.engine
            .read(handle.0, offset, size as usize, flags.0, reply);
    }

    fn write(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        // Pages of a mapping are written back with the flags of an arbitrary open file.
        let flags = if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            0
        } else {
            flags.0
        };
        self.engine.write(handle.0, offset, data, flags, reply);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Nothing to do on close. After ENOSYS the kernel no longer sends this request.
        reply.error(Errno::ENOSYS);
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        drop(self.engine.handles.remove(handle.0));
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.engine.sync(handle.0, reply);
    }

    fn opendir(&self, _: &Request, number: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        match self.inode(number) {
            Ok(_) => {
                let handle = self.directories.write().insert(Arc::default());
                reply.opened(FileHandle(handle as u64), FopenFlags::empty());
            }
            Err(error) => reply.error(error.into()),
        }
    }

    fn readdir(
        &self,
        _: &Request,
        number: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let directory = self.directories.read().get(handle.0 as usize).cloned();
        let Some(directory) = directory else {
            return reply.error(Errno::EBADF);
        };
        let mut listed = directory.lock();
        if offset == 0 {
            // From the beginning, which may be a rewind: list the current entries.
            match self.inode(number).and_then(|inode| Self::list(&inode)) {
                Ok(now) => *listed = now,
                Err(error) => return reply.error(error.into()),
            }
        }
        for (n, entry) in listed.iter().enumerate().skip(offset as usize) {
            let next = n as u64 + 1;
            if reply.add(INodeNo(entry.number), next, entry.kind, &entry.name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.directories.write().try_remove(handle.0 as usize);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // Names are durable immediately.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        let root = self.engine.inodes.root().open(OFlags::PATH);
        match root.and_then(|root| Ok(rustix::fs::fstatvfs(root)?)) {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(error) => reply.error(error.into()),
        }
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn setxattr(
        &self,
        _: &Request,
        _: INodeNo,
        _: &OsStr,
        _: &[u8],
        _: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn removexattr(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        // Always ready. After ENOSYS the kernel no longer sends this request.
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOTTY);
    }

    fn listxattr(&self, _: &Request, _: INodeNo, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let file = match self.engine.handles.get(handle.0) {
            Ok(file) => file,
            Err(error) => return reply.error(error.into()),
        };
        let engine = self.engine.clone();
        self.engine.pool.execute(move || {
            let mode = FallocateFlags::from_bits_retain(mode as u32);
            let overwrites = FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE;
            let overwritten = if mode.intersects(overwrites) {
                length
            } else {
                0
            };
            let done = engine.change(&file.inode, &file.file, offset, overwritten, || {
                Ok(rustix::fs::fallocate(&file.file, mode, offset, length)?)
            });
            answer_empty(reply, done);
        });
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        use rustix::fs::SeekFrom;
        let position = match whence {
            libc::SEEK_DATA => SeekFrom::Data(offset as u64),
            libc::SEEK_HOLE => SeekFrom::Hole(offset as u64),
            // The kernel handles the other modes.
            _ => return reply.error(Errno::EINVAL),
        };
        let found = self.engine.handles.get(handle.0).and_then(|file| {
            // All reads and writes pass their offset, so moving the file's own offset affects none of them.
            Ok(rustix::fs::seek(&file.file, position)?)
        });
        match found {
            Ok(offset) => reply.offset(offset as i64),
            Err(error) => reply.error(error.into()),
        }
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel then copies by reads and writes, which count against the caps.
        reply.error(Errno::ENOSYS);
    }
}

fn truncate(
    engine: &Engine,
    inode: &Arc<Inode>,
    handle: Option<FileHandle>,
    size: u64,
) -> io::Result<()> {
    let opened = handle.and_then(|handle| engine.handles.get(handle.0).ok());
    let reopened;
    let file = match &opened {
        Some(opened) => &opened.file,
        None => {
            reopened = inode.open(OFlags::RDWR)?;
            &reopened
        }
    };
    engine.change(inode, file, size, u64::MAX, || file.set_len(size))
}

fn timespec(time: Option<TimeOrNow>) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match time {
        None => special(UTIME_OMIT as _),
        Some(TimeOrNow::Now) => special(UTIME_NOW as _),
        Some(TimeOrNow::SpecificTime(time)) => match time.duration_since(UNIX_EPOCH) {
            Ok(since) => Timespec {
                tv_sec: since.as_secs() as i64,
                tv_nsec: since.subsec_nanos().into(),
            },
            Err(before) => {
                let before = before.duration();
                let borrow = i64::from(before.subsec_nanos() > 0);
                Timespec {
                    tv_sec: -(before.as_secs() as i64) - borrow,
                    tv_nsec: borrow * 1_000_000_000 - i64::from(before.subsec_nanos()),
                }
            }
        },
    }
}
