//! File operations for a server: its option file, library, cache directories, leftover files and records.
//!
//! A path may pass through a directory that another user can change while this command runs. [`Directory::open`]
//! therefore walks from `/`, one name at a time. It accepts a directory only if root or this command's user owns it and
//! no other user may write to it. Entries of such a directory cannot change underneath, and all work uses its
//! descriptor.
//!
//! A symbolic link is followed only if root or this user made it. A sticky directory such as `/tmp` is passed if the
//! next name belongs to root or this user, because others can neither rename nor remove that name.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use interface::canary;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;
use rustix::process::Gid;
use rustix::thread::set_thread_groups;

/// Limit on symbolic links in one path, as in the kernel.
const MAX_LINKS: usize = 40;
const OPEN: OFlags = OFlags::PATH
    .union(OFlags::DIRECTORY)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
/// Write permission for group and others.
const OTHERS_WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// A directory that only root, this command's user, and perhaps one server's user may change.
#[derive(Debug)]
pub struct Directory {
    directory: OwnedFd,
}

/// Users that may own the directories of a path.
#[derive(Clone, Copy)]
struct Trusted {
    own: u32,
    server: Option<u32>,
}

impl Trusted {
    fn administrator(self, user: u32) -> bool {
        user == 0 || user == self.own
    }

    fn is_server(self, user: u32) -> bool {
        !self.administrator(user) && self.server == Some(user)
    }
}

impl Directory {
    /// Opens a directory that only root or this command's user may change.
    ///
    /// # Errors
    /// The path is relative, a directory is missing, or another user can change one on the way; the text names it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::walk(path, None)
    }

    /// Opens a directory that `user`, a server's user, may change as well. Removing a plain file there grants that user nothing.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_of(path: &Path, user: u32) -> io::Result<Self> {
        Self::walk(path, Some(user))
    }

    fn walk(path: &Path, server: Option<u32>) -> io::Result<Self> {
        let trusted = Trusted {
            own: rustix::process::geteuid().as_raw(),
            server,
        };
        if !path.is_absolute() {
            return Err(io::Error::other("it is a relative path"));
        }
        let mut left = names(path);
        let mut way = vec![rustix::fs::open("/", OPEN, Mode::empty())?];
        // Used in messages only.
        let mut place = PathBuf::from("/");
        let mut links = 0;
        loop {
            let here = way.last().expect("the root is never left");
            let meta = rustix::fs::fstat(here)?;
            let is_last = left.is_empty();
            check(&meta, trusted, is_last).map_err(|why| of_place(&place, &why))?;
            let Some(name) = left.pop() else { break };
            if name == ".." {
                if way.len() > 1 {
                    way.pop();
                    place.pop();
                }
                continue;
            }
            let next = place.join(&name);
            let entry = rustix::fs::statat(here, name.as_os_str(), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| kernels(&next, error))?;
            let may_be = |user| trusted.administrator(user) || trusted.is_server(user);
            if meta.st_mode & OTHERS_WRITE != 0 && !may_be(entry.st_uid) {
                return Err(of_place(&next, &belongs(entry.st_uid)));
            }
            if FileType::from_raw_mode(entry.st_mode) == FileType::Symlink {
                let is_administrators =
                    trusted.administrator(entry.st_uid) && trusted.administrator(meta.st_uid);
                if !is_administrators && !canary!("links-on-the-way") {
                    return Err(of_place(&next, "it is a symbolic link of another user"));
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(of_place(&next, "too many symbolic links"));
                }
                let target = rustix::fs::readlinkat(here, name.as_os_str(), Vec::new())?;
                let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
                if target.is_absolute() {
                    way.truncate(1);
                    place = "/".into();
                }
                left.extend(names(&target));
                continue;
            }
            let opened = rustix::fs::openat(here, name.as_os_str(), OPEN, Mode::empty())
                .map_err(|error| kernels(&next, error))?;
            way.push(opened);
            place = next;
        }
        Ok(Self {
            directory: way.pop().expect("the root is never left"),
        })
    }

    /// Opens a directory as [`Self::open`] does, and creates it and its parents if missing. New ones belong to this
    /// user and have mode 0700.
    ///
    /// # Errors
    /// As [`Self::open`], or the kernel's error.
    pub fn open_or_make(path: &Path) -> io::Result<Self> {
        match Self::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (above, name) = split(path)?;
                let own = rustix::process::geteuid().as_raw();
                Self::open_or_make(above)?.make(name, own, None)?;
                Self::open(path)
            }
            result => result,
        }
    }

    /// Whether only this user may enter this directory.
    ///
    /// # Errors
    /// Another user owns it, or the kernel's error.
    pub fn is_private(&self) -> io::Result<bool> {
        let meta = rustix::fs::fstat(&self.directory)?;
        if meta.st_uid != rustix::process::geteuid().as_raw() {
            return Err(io::Error::other(belongs(meta.st_uid)));
        }
        Ok(meta.st_mode & 0o077 == 0)
    }

    /// Removes other users' permissions from a directory of this user.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn make_private(&self) -> io::Result<()> {
        rustix::fs::chmodat(&self.directory, ".", Mode::RWXU, AtFlags::empty())?;
        Ok(())
    }

    /// Whether this user may create and remove files here.
    ///
    /// # Errors
    /// The kernel's error that denies it.
    pub fn may_write(&self) -> io::Result<()> {
        let access = rustix::fs::Access::WRITE_OK;
        rustix::fs::accessat(&self.directory, ".", access, AtFlags::EACCESS)?;
        Ok(())
    }

    /// Device and inode.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn identity(&self) -> io::Result<(u64, u64)> {
        let meta = rustix::fs::fstat(&self.directory)?;
        Ok((meta.st_dev, meta.st_ino))
    }

    /// Owner and permission bits of an entry; `None` if missing. Does not follow a link.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<Stat>> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(meta) => Ok(Some(meta)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a plain file for reading. Refuses a pipe instead of waiting for its writer.
    ///
    /// # Errors
    /// It is no plain file, or the kernel's error.
    pub fn open_file(&self, name: &OsStr) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file =
            rustix::fs::openat(&self.directory, name, flags, Mode::empty()).map_err(|error| {
                match error {
                    Errno::LOOP => io::Error::other("it is a symbolic link"),
                    error => error.into(),
                }
            })?;
        plain(File::from(file))
    }

    /// Contents of a plain file; `None` if missing.
    ///
    /// # Errors
    /// It is no plain file, longer than `most` bytes, or the kernel's error.
    pub fn read(&self, name: &OsStr, most: u64) -> io::Result<Option<Vec<u8>>> {
        match self.open_file(name) {
            Ok(file) => bounded(file, most).map(Some),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Creates a file that must not exist yet, and flushes it to disk. The umask does not affect its mode.
    ///
    /// # Errors
    /// The kernel's error; no file is left behind.
    pub fn write_new(&self, name: &OsStr, contents: &[u8], mode: u32) -> io::Result<()> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(mode);
        let file = rustix::fs::openat(&self.directory, name, flags, mode)?;
        let written = rustix::fs::fchmod(&file, mode)
            .map_err(io::Error::from)
            .and_then(|()| {
                let mut file = File::from(file);
                file.write_all(contents)?;
                file.sync_all()
            });
        written.inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&self.directory, name, AtFlags::empty());
        })
    }

    /// Replaces a file. The old one is kept aside with its owner and mode until [`Replaced::done`]. The new one has no more
    /// rights than the old one, and its group.
    ///
    /// # Errors
    /// The kernel's error; the old file is then in its place.
    pub fn replace(self, name: &OsStr, contents: &[u8], mode: u32) -> io::Result<Replaced> {
        let (new, aside) = (beside(name, "new"), beside(name, "old"));
        let own = rustix::process::geteuid().as_raw();
        // A file of another user stays readable for that user, who no longer owns it.
        let old = self.entry(name)?.filter(|old| old.st_uid == own);
        let mode = old.map_or(mode, |old| old.st_mode & mode);
        self.write_new(&new, contents, mode)?;
        if let Some(old) = old {
            let group = rustix::fs::Gid::from_raw(old.st_gid);
            // Only root may name any group.
            let _ = rustix::fs::chownat(
                &self.directory,
                new.as_os_str(),
                None,
                Some(group),
                AtFlags::SYMLINK_NOFOLLOW,
            );
        }
        let moved = self.move_aside(name, &aside);
        let placed = moved.and_then(|there| {
            self.rename_new(&new, name)
                .inspect_err(|_| {
                    if there {
                        let _ = self.rename_new(&aside, name);
                    }
                })
                .map(|()| there)
        });
        match placed {
            Ok(there) => Ok(Replaced {
                directory: self,
                name: name.to_owned(),
                aside: there.then_some(aside),
            }),
            Err(error) => {
                let _ = rustix::fs::unlinkat(&self.directory, &new, AtFlags::empty());
                Err(error)
            }
        }
    }

    /// Replaces or creates a file atomically.
    ///
    /// # Errors
    /// The entry is no plain file, or the kernel's error; the old file is then in its place.
    pub fn write_over(&self, name: &OsStr, contents: &[u8], mode: u32) -> io::Result<()> {
        if !self.entry(name)?.is_none_or(|meta| is_plain(&meta)) {
            return Err(io::Error::other("what is there is no plain file"));
        }
        self.write_over_any(name, contents, mode)
    }

    /// Like [`Self::write_over`], but replaces any entry except a directory.
    fn write_over_any(&self, name: &OsStr, contents: &[u8], mode: u32) -> io::Result<()> {
        let new = beside(name, "new");
        self.write_new(&new, contents, mode)?;
        let here = &self.directory;
        rustix::fs::renameat(here, new.as_os_str(), here, name).map_err(|error| {
            let _ = rustix::fs::unlinkat(here, new.as_os_str(), AtFlags::empty());
            error.into()
        })
    }

    fn move_aside(&self, name: &OsStr, aside: &OsStr) -> io::Result<bool> {
        match self.entry(name)? {
            None => Ok(false),
            Some(meta) if is_plain(&meta) => self.rename_new(name, aside).map(|()| true),
            Some(_) => Err(io::Error::other("what is there is no plain file")),
        }
    }

    fn rename_new(&self, from: &OsStr, to: &OsStr) -> io::Result<()> {
        let here = &self.directory;
        match rustix::fs::renameat_with(here, from, here, to, RenameFlags::NOREPLACE) {
            // The file system does not support `NOREPLACE`. A check first is enough, as nothing else writes here.
            Err(Errno::INVAL | Errno::NOSYS) => {
                if self.entry(to)?.is_some() {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                rustix::fs::renameat(here, from, here, to)?;
                Ok(())
            }
            result => result.map_err(io::Error::from),
        }
    }

    /// Removes a plain file, if it exists.
    ///
    /// # Errors
    /// It is no plain file, or the kernel's error.
    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        match self.entry(name)? {
            None => Ok(()),
            Some(meta) if is_plain(&meta) => {
                rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?;
                Ok(())
            }
            Some(_) => Err(io::Error::other("it is no plain file")),
        }
    }

    /// Removes a plain file or a symbolic link, if it exists; a link's target stays.
    ///
    /// # Errors
    /// It is something else, or the kernel's error.
    pub fn remove_file_or_link(&self, name: &OsStr) -> io::Result<()> {
        let is_link = |meta: Stat| FileType::from_raw_mode(meta.st_mode) == FileType::Symlink;
        if !self.entry(name)?.is_some_and(is_link) {
            return self.remove(name);
        }
        rustix::fs::unlinkat(&self.directory, name, AtFlags::empty())?;
        Ok(())
    }

    /// Creates a directory of mode 0700 for a user.
    ///
    /// # Errors
    /// The kernel's error; no directory is left behind.
    pub fn make(&self, name: &OsStr, owner: u32, group: Option<u32>) -> io::Result<()> {
        rustix::fs::mkdirat(&self.directory, name, Mode::RWXU)?;
        let given = rustix::fs::openat(
            &self.directory,
            name,
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .and_then(|made| {
            let owner = rustix::fs::Uid::from_raw(owner);
            rustix::fs::fchown(&made, Some(owner), group.map(rustix::fs::Gid::from_raw))?;
            // The umask removed bits.
            rustix::fs::fchmod(&made, Mode::RWXU)
        });
        given.map_err(|error| {
            let _ = self.remove_directory(name);
            error.into()
        })
    }

    /// Creates a directory of mode 0700 with the rights of a server's user, who then owns it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn make_as(&self, name: &OsStr, user: u32, group: Option<u32>) -> io::Result<()> {
        let _rights = Rights::of(user, group)?;
        rustix::fs::mkdirat(&self.directory, name, Mode::RWXU)?;
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove_directory(&self, name: &OsStr) -> io::Result<()> {
        rustix::fs::unlinkat(&self.directory, name, AtFlags::REMOVEDIR)?;
        Ok(())
    }

    /// Removes an empty directory with the rights of a server's user.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn remove_directory_as(
        &self,
        name: &OsStr,
        user: u32,
        group: Option<u32>,
    ) -> io::Result<()> {
        let _rights = Rights::of(user, group)?;
        self.remove_directory(name)
    }
}

/// File-access rights of a server's user, assumed by this thread until dropped. Only root can assume them; for other
/// users nothing changes.
struct Rights {
    user: u32,
    group: u32,
    /// Supplementary groups; `None` if they stay.
    groups: Option<Vec<Gid>>,
}

impl Rights {
    fn of(user: u32, group: Option<u32>) -> io::Result<Self> {
        let is_root = rustix::process::geteuid().is_root();
        let groups = is_root.then(rustix::process::getgroups).transpose()?;
        if is_root {
            set_thread_groups(&[])?;
        }
        // SAFETY: the calls take integers and affect this thread only. The kernel refuses what the caller may not do. A
        // call with an invalid user only returns the current one. With a user other than root, the thread also loses
        // root's file capabilities.
        let (before, now) = unsafe {
            let before = Self {
                group: libc::setfsgid(group.unwrap_or(user)) as u32,
                user: libc::setfsuid(user) as u32,
                groups,
            };
            (before, libc::setfsuid(u32::MAX) as u32)
        };
        match now == user {
            true => Ok(before),
            false => Err(io::Error::from(io::ErrorKind::PermissionDenied)),
        }
    }
}

impl Drop for Rights {
    fn drop(&mut self) {
        // SAFETY: as in `of`.
        unsafe {
            libc::setfsuid(self.user);
            libc::setfsgid(self.group);
        }
        if let Some(groups) = &self.groups {
            // Without them the thread has fewer rights, which is safe.
            let _ = set_thread_groups(groups);
        }
    }
}

/// A file that was written in place of an old one, or of none.
#[derive(Debug)]
pub struct Replaced {
    directory: Directory,
    name: OsString,
    aside: Option<OsString>,
}

impl Replaced {
    /// Removes the old file.
    pub fn done(&self) {
        if let Some(aside) = &self.aside {
            let _ = self.directory.remove(aside);
        }
    }

    /// Removes the new file and restores the old one.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn put_back(&self) -> io::Result<()> {
        self.directory.remove(&self.name)?;
        match &self.aside {
            Some(aside) => self.directory.rename_new(aside, &self.name),
            None => Ok(()),
        }
    }
}

/// Opens a plain file for reading, in any directory and of any owner. Refuses a pipe or a device instead of waiting for it.
///
/// # Errors
/// It is no plain file, or the kernel's error.
pub fn open_plain(path: &Path) -> io::Result<File> {
    open_plain_with(path, OFlags::empty())
}

/// Like [`open_plain`], with additional flags.
///
/// # Errors
/// As [`open_plain`].
pub fn open_plain_with(path: &Path, more: OFlags) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    plain(rustix::fs::open(path, flags | more, Mode::empty())?.into())
}

/// Whether only root or this user may change a file. Links on its path must belong to one of them.
pub fn is_administrators(path: &Path) -> bool {
    let own = rustix::process::geteuid().as_raw();
    let mut path = path.to_path_buf();
    for _ in 0..MAX_LINKS {
        let Ok((above, name)) = split(&path) else {
            return false;
        };
        let Ok(directory) = Directory::open(above) else {
            return false;
        };
        let Ok(Some(meta)) = directory.entry(name) else {
            return false;
        };
        if meta.st_uid != 0 && meta.st_uid != own {
            return false;
        }
        match FileType::from_raw_mode(meta.st_mode) {
            FileType::RegularFile => return meta.st_mode & OTHERS_WRITE == 0,
            FileType::Symlink => {}
            _ => return false,
        }
        let Ok(target) = rustix::fs::readlinkat(&directory.directory, name, Vec::new()) else {
            return false;
        };
        path = above.join(OsString::from_vec(target.into_bytes()));
    }
    false
}

/// Reads a plain file, in any directory and of any owner.
///
/// # Errors
/// It is longer than `most` bytes, or as [`open_plain`].
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded(open_plain(path)?, most)
}

/// Creates an unnamed file, which disappears when it is closed. The directory may belong to another user.
///
/// # Errors
/// The kernel's error.
pub fn unnamed(directory: &Path, flags: OFlags) -> io::Result<File> {
    let directory = rustix::fs::open(directory, OPEN, Mode::empty())?;
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC | flags;
    match rustix::fs::openat(&directory, ".", OFlags::TMPFILE | flags, mode) {
        // File systems without O_TMPFILE return different errors.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => {
            let name = format!(".bpe-doctor-{}", std::process::id());
            let new = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
            let file = rustix::fs::openat(&directory, &name, new | flags, mode)?;
            rustix::fs::unlinkat(&directory, &name, AtFlags::empty())?;
            Ok(file.into())
        }
        other => Ok(other?.into()),
    }
}

/// Writes a file that this command's user named, atomically. Replaces an existing entry, even a link.
///
/// # Errors
/// The kernel's error; the file is then unchanged.
pub fn save(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let (directory, name) = named(path)?;
    directory.write_over_any(name, contents, mode)
}

/// Like [`save`], for a file that must not exist yet.
///
/// # Errors
/// The kernel's error; no file is left behind.
pub fn save_new(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let (directory, name) = named(path)?;
    directory.write_new(name, contents, mode)
}

/// The directory and name of a file that this command's user named; any user may own the directory.
fn named(path: &Path) -> io::Result<(Directory, &OsStr)> {
    let (above, name) = split(path)?;
    let above = match above.as_os_str().is_empty() {
        true => Path::new("."),
        false => above,
    };
    let flags = OPEN.difference(OFlags::NOFOLLOW);
    let directory = rustix::fs::open(above, flags, Mode::empty())?;
    Ok((Directory { directory }, name))
}

/// A temporary file name beside another file.
fn beside(name: &OsStr, what: &str) -> OsString {
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{what}-{}", std::process::id()));
    beside
}

fn is_plain(meta: &Stat) -> bool {
    FileType::from_raw_mode(meta.st_mode) == FileType::RegularFile
}

/// Splits a path into its directory and its last name.
///
/// # Errors
/// The path has no last name.
pub fn split(path: &Path) -> io::Result<(&Path, &OsStr)> {
    match (path.parent(), path.file_name()) {
        (Some(directory), Some(name)) => Ok((directory, name)),
        _ => Err(io::Error::other("it names no file")),
    }
}

fn plain(file: File) -> io::Result<File> {
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("it is no plain file")),
    }
}

fn bounded(file: File, most: u64) -> io::Result<Vec<u8>> {
    let mut contents = Vec::new();
    file.take(most + 1).read_to_end(&mut contents)?;
    if contents.len() as u64 > most {
        return Err(io::Error::other(format!("it is longer than {most} bytes")));
    }
    Ok(contents)
}

/// Components of a path in reverse order.
fn names(path: &Path) -> Vec<OsString> {
    let mut names: Vec<_> = path
        .components()
        .filter_map(|component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            Component::ParentDir => Some("..".into()),
            Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
        })
        .collect();
    names.reverse();
    names
}

fn check(meta: &Stat, trusted: Trusted, is_last: bool) -> Result<(), String> {
    let is_known = trusted.administrator(meta.st_uid) || trusted.is_server(meta.st_uid);
    if !is_known && !canary!("owners-on-the-way") {
        return Err(belongs(meta.st_uid));
    }
    // A sticky last directory is not enough where root creates files: others could create the same names. A server's
    // user may do as it likes in its own directory.
    let is_sticky = meta.st_mode & STICKY != 0 && (!is_last || trusted.server.is_some());
    let is_its_own = trusted.is_server(meta.st_uid);
    let is_open = meta.st_mode & OTHERS_WRITE != 0 && !canary!("writers-on-the-way");
    if is_open && !is_sticky && !is_its_own {
        return Err(format!(
            "other users may write to it (mode {:o})",
            meta.st_mode & 0o7777
        ));
    }
    Ok(())
}

fn belongs(user: u32) -> String {
    format!("it belongs to user {user}, who can change it at any time")
}

fn kernels(place: &Path, error: Errno) -> io::Error {
    let error = io::Error::from(error);
    io::Error::new(error.kind(), format!("{}: {error}", place.display()))
}

fn of_place(place: &Path, why: &str) -> io::Error {
    io::Error::other(format!("{}: {why}", place.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};

    use super::*;

    const OTHER: u32 = 65534;

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn directories_that_others_may_write_to_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let (above, below) = (folder.path().join("a"), folder.path().join("a/b"));
        fs::create_dir_all(&below).unwrap();
        Directory::open(&below).unwrap();
        for bits in [0o775, 0o757, 0o777] {
            mode(&above, bits);
            assert!(Directory::open(&below).is_err(), "{bits:o}");
            assert!(Directory::open(&above).is_err(), "{bits:o}");
        }
        // In a sticky directory, others cannot rename our files, but can create files.
        mode(&above, 0o1777);
        Directory::open(&below).unwrap();
        assert!(Directory::open(&above).is_err());
        assert!(Directory::open(Path::new("relative")).is_err());
        let missing = Directory::open(&folder.path().join("no")).unwrap_err();
        assert_eq!(missing.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn directories_and_links_of_others_are_refused() {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["own", "others", "others/own"] {
            fs::create_dir(path(name)).unwrap();
        }
        chown(path("others"), Some(OTHER), None).unwrap();
        symlink(path("own"), path("link")).unwrap();
        symlink("../own/.././own", path("own/relative")).unwrap();
        for name in ["link", "own/relative", "own/relative/../own"] {
            let opened = Directory::open(&path(name)).unwrap().identity().unwrap();
            assert_eq!(opened.1, fs::metadata(path("own")).unwrap().ino(), "{name}");
        }
        symlink(path("own"), path("others/link")).unwrap();
        symlink(path("own"), path("foreign")).unwrap();
        lchown(path("foreign"), Some(OTHER), None).unwrap();
        symlink("loop", path("loop")).unwrap();
        for name in ["others", "others/own", "others/link", "foreign", "loop"] {
            assert!(Directory::open(&path(name)).is_err(), "{name}");
        }
        fs::write(path("own/file"), "").unwrap();
        fs::write(path("others/file"), "").unwrap();
        symlink("own/file", path("to-own")).unwrap();
        symlink("others/file", path("to-others")).unwrap();
        for (name, wanted) in [
            ("own/file", true),
            ("to-own", true),
            ("link/file", true),
            ("others/file", false),
            ("to-others", false),
            ("own", false),
            ("none", false),
            ("loop", false),
        ] {
            assert_eq!(is_administrators(&path(name)), wanted, "{name}");
        }
        // For the other user: its own directory, without a link in the path.
        Directory::open_of(&path("others"), OTHER).unwrap();
        assert!(Directory::open_of(&path("others/link"), OTHER).is_err());
        assert!(Directory::open_of(&path("others"), OTHER - 1).is_err());
    }

    #[test]
    fn a_replaced_file_comes_back_with_its_mode() {
        let folder = tempfile::tempdir().unwrap();
        let (path, name) = (folder.path().join("f"), OsStr::new("f"));
        let open = || Directory::open(folder.path()).unwrap();
        let first = open().replace(name, b"1", 0o644).unwrap();
        assert!(first.aside.is_none());
        first.put_back().unwrap();
        assert!(!path.exists());
        fs::write(&path, "old").unwrap();
        mode(&path, 0o600);
        let inode = fs::metadata(&path).unwrap().ino();
        let replaced = open().replace(name, b"new", 0o644).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        replaced.put_back().unwrap();
        let back = fs::metadata(&path).unwrap();
        assert_eq!((back.ino(), back.mode() & 0o777), (inode, 0o600));
        open().replace(name, b"new", 0o644).unwrap().done();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_plain_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Directory::open(folder.path()).unwrap();
        let place = |name: &str| folder.path().join(name);
        fs::create_dir(place("folder")).unwrap();
        symlink("/etc/passwd", place("link")).unwrap();
        let pipe = Mode::RUSR | Mode::WUSR;
        rustix::fs::mknodat(rustix::fs::CWD, place("pipe"), FileType::Fifo, pipe, 0).unwrap();
        for name in ["folder", "link", "pipe"] {
            let name = OsStr::new(name);
            assert!(open().read(name, 10).is_err(), "{name:?}");
            assert!(open().remove(name).is_err(), "{name:?}");
            assert!(open().replace(name, b"x", 0o644).is_err(), "{name:?}");
        }
        assert!(read_bounded(&place("pipe"), 10).is_err());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
        fs::write(place("long"), "12345").unwrap();
        assert!(open().read(OsStr::new("long"), 4).is_err());
        assert_eq!(open().read(OsStr::new("none"), 4).unwrap(), None);
        open().remove(OsStr::new("none")).unwrap();
    }

    #[test]
    fn a_made_directory_is_its_owners_alone() {
        let folder = tempfile::tempdir().unwrap();
        let own = rustix::process::geteuid().as_raw();
        let deep = folder.path().join("a/b");
        let made = Directory::open_or_make(&deep).unwrap();
        assert_eq!(fs::metadata(&deep).unwrap().mode() & 0o777, 0o700);
        mode(&deep, 0o755);
        assert!(!made.is_private().unwrap());
        made.make_private().unwrap();
        assert!(made.is_private().unwrap());
        assert_eq!(fs::metadata(&deep).unwrap().mode() & 0o777, 0o700);
        let owner = if is_root() { OTHER } else { own };
        made.make(OsStr::new("cache"), owner, None).unwrap();
        let meta = fs::metadata(deep.join("cache")).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (owner, 0o700));
        assert!(made.make(OsStr::new("cache"), own, None).is_err());
        made.remove_directory(OsStr::new("cache")).unwrap();
    }

    #[test]
    fn a_directory_is_made_with_the_rights_of_its_user() {
        if !is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        mode(folder.path(), 0o755);
        let (own, others) = (folder.path().join("own"), folder.path().join("others"));
        for path in [&own, &others] {
            fs::create_dir(path).unwrap();
        }
        chown(&others, Some(OTHER), None).unwrap();
        let name = OsStr::new("cache");
        let in_own = Directory::open_of(&own, OTHER).unwrap();
        assert!(in_own.make_as(name, OTHER, Some(OTHER)).is_err());
        let in_others = Directory::open_of(&others, OTHER).unwrap();
        in_others.make_as(name, OTHER, Some(OTHER)).unwrap();
        let meta = fs::metadata(others.join("cache")).unwrap();
        assert_eq!((meta.uid(), meta.mode() & 0o7777), (OTHER, 0o700));
        assert!(
            in_others
                .remove_directory_as(name, OTHER - 1, None)
                .is_err()
        );
        in_others
            .remove_directory_as(name, OTHER, Some(OTHER))
            .unwrap();
        // The thread has root's rights again.
        fs::write(own.join("file"), "").unwrap();
        assert_eq!(fs::metadata(own.join("file")).unwrap().uid(), 0);
    }

    #[test]
    fn rights_of_a_user_exclude_supplementary_groups() {
        if !is_root() {
            return;
        }
        let groups = || rustix::process::getgroups().unwrap();
        let own = [4, OTHER - 7].map(Gid::from_raw);
        set_thread_groups(&own).unwrap();
        let rights = Rights::of(OTHER, Some(OTHER)).unwrap();
        assert_eq!(groups(), []);
        drop(rights);
        assert_eq!(groups(), own);
        // A refusal restores them, too.
        assert!(Rights::of(u32::MAX, None).is_err());
        assert_eq!(groups(), own);
        set_thread_groups(&[]).unwrap();
    }

    #[test]
    fn replaced_file_keeps_mode_and_group() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.cnf");
        let replace = || {
            let directory = Directory::open(folder.path()).unwrap();
            let replaced = directory.replace(OsStr::new("a.cnf"), b"new", 0o644);
            replaced.unwrap().done();
            fs::metadata(&path).unwrap()
        };
        assert_eq!(replace().mode() & 0o7777, 0o644);
        for (old, new) in [
            (0o640, 0o640),
            (0o600, 0o600),
            (0o4755, 0o644),
            (0o666, 0o644),
        ] {
            mode(&path, old);
            assert_eq!(replace().mode() & 0o7777, new, "{old:o}");
        }
        if is_root() {
            chown(&path, None, Some(OTHER)).unwrap();
            assert_eq!(replace().gid(), OTHER);
            // The user who may have read it goes on reading it.
            mode(&path, 0o600);
            chown(&path, Some(OTHER), None).unwrap();
            let meta = replace();
            assert_eq!((meta.uid(), meta.mode() & 0o7777), (0, 0o644));
        }
    }

    #[test]
    fn a_saved_file_replaces_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (target, link) = (folder.path().join("target"), folder.path().join("link"));
        fs::write(&target, "precious").unwrap();
        symlink(&target, &link).unwrap();
        save(&link, b"new", 0o600).unwrap();
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&link).unwrap(), "new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
