//! A Unix socket in the file system, held by a descriptor. So no directory can be replaced between a check and its use.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};

use interface::canary;
use rustix::fs::{FileType, Mode, OFlags, Stat, fstat, openat, readlinkat};
use rustix::io::Errno;

/// The kernel's own limit for one path.
const MAX_LINKS: usize = 40;
const FLAGS: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub struct SocketPath {
    socket: OwnedFd,
    /// Owner of the socket's directory, if no other user may write to it, and only root may change the path to it.
    pub owner: Option<u32>,
    /// Device and inode.
    pub identity: (u64, u64),
}

impl SocketPath {
    /// # Errors
    /// The path contains no socket, or cannot be reached.
    pub fn open(path: &Path) -> io::Result<Self> {
        let mut folder = root()?;
        let mut is_safe = true;
        let mut links = 0;
        let mut rest = names(&std::path::absolute(path)?);
        while let Some(name) = rest.pop() {
            let above = fstat(&folder)?;
            let found = openat(&folder, &name, FLAGS, Mode::empty())?;
            let stat = fstat(&found)?;
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::Socket if rest.is_empty() => {
                    // Container images use a sticky directory, in which other users cannot replace the server's socket.
                    let is_theirs = above.st_mode & 0o1000 != 0 && stat.st_uid == above.st_uid;
                    let is_safe = is_safe && (is_own(&above) || is_theirs);
                    return Ok(Self {
                        socket: found,
                        owner: is_safe.then_some(above.st_uid),
                        identity: (stat.st_dev, stat.st_ino),
                    });
                }
                FileType::Directory => folder = found,
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = readlinkat(&found, "", Vec::new())?.into_bytes();
                    let target = PathBuf::from(OsString::from_vec(target));
                    if target.is_absolute() {
                        folder = root()?;
                    }
                    rest.extend(names(&target));
                }
                _ => break,
            }
            let is_roots = above.st_uid == 0 && (is_own(&above) || is_sticky(&above, &stat));
            is_safe &= is_roots || canary!("way-to-the-socket");
        }
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a socket",
        ))
    }
}

impl AsFd for SocketPath {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn root() -> io::Result<OwnedFd> {
    Ok(rustix::fs::open("/", FLAGS, Mode::empty())?)
}

/// Last name first.
fn names(path: &Path) -> Vec<OsString> {
    path.components()
        .rev()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

/// Whether only the owner and root may write to a directory.
fn is_own(stat: &Stat) -> bool {
    stat.st_mode & 0o022 == 0
}

/// Whether a parent directory like /tmp, which others may write to, protects root's directory from replacement.
fn is_sticky(above: &Stat, entry: &Stat) -> bool {
    let is_directory = FileType::from_raw_mode(entry.st_mode) == FileType::Directory;
    above.st_mode & 0o1000 != 0 && is_directory && entry.st_uid == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_sockets_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _listener = UnixListener::bind(path("socket")).unwrap();
        symlink("socket", path("link")).unwrap();
        symlink("round", path("round")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        fs::write(path("file"), "").unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            path("fifo"),
            FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        let direct = SocketPath::open(&path("socket")).unwrap();
        assert_eq!(
            SocketPath::open(&path("link")).unwrap().identity,
            direct.identity
        );
        let around = path("directory/../socket");
        assert_eq!(SocketPath::open(&around).unwrap().identity, direct.identity);
        for name in ["round", "directory", "file", "fifo", "none", "file/socket"] {
            assert!(SocketPath::open(&path(name)).is_err(), "{name}");
        }
    }

    #[test]
    fn directory_that_others_may_write_to_has_no_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let is_root = rustix::process::geteuid().is_root();
        // The temporary directory is safe only for entries of root.
        assert_eq!(SocketPath::open(&path).unwrap().owner, is_root.then_some(0));
        for mode in [0o777, 0o775] {
            fs::set_permissions(folder.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(SocketPath::open(&path).unwrap().owner, None, "{mode:o}");
        }
    }

    #[test]
    fn link_of_another_user_leads_to_no_owner() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let _listener = UnixListener::bind(path("socket")).unwrap();
        fs::create_dir(path("theirs")).unwrap();
        symlink("../socket", path("theirs/link")).unwrap();
        let owner = |name: &str| SocketPath::open(&path(name)).unwrap().owner;
        assert_eq!(owner("theirs/link"), Some(0));
        std::os::unix::fs::chown(path("theirs"), Some(65_534), None).unwrap();
        assert_eq!(owner("theirs/link"), None);
        assert_eq!(owner("theirs/../socket"), None);
    }
}
