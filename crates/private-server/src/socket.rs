//! Locations of unix sockets: in the directory they belong to, unless their path would be too long there.

use std::fs;
use std::hash::Hasher;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use fnv::FnvHasher;

/// Maximum length of a unix socket's path, without the terminating zero.
const LONGEST: usize = 107;

/// The path of a socket. Dropping it removes a directory that was created for the socket.
#[derive(Debug)]
pub struct SocketPath {
    path: PathBuf,
    made: Option<PathBuf>,
}

impl SocketPath {
    /// The socket `name` that belongs to `folder`, which must exist. A too long path is replaced with one below `/tmp`.
    /// It is always the same for this directory, so that clients find a restarted server again.
    ///
    /// # Errors
    /// The directory does not exist, or creating one in `/tmp` fails.
    pub fn of(folder: &Path, name: &str) -> io::Result<SocketPath> {
        let path = folder.canonicalize()?.join(name);
        if path.as_os_str().len() <= LONGEST {
            return Ok(SocketPath { path, made: None });
        }
        let made = private_folder(&path)?;
        Ok(SocketPath {
            path: made.join(name),
            made: Some(made),
        })
    }

    /// The path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory that was created for it, if any.
    pub fn folder(&self) -> Option<&Path> {
        self.made.as_deref()
    }
}

impl Drop for SocketPath {
    fn drop(&mut self) {
        if let Some(made) = &self.made {
            // MySQL puts a lock file beside its socket.
            let _ = fs::remove_dir_all(made);
        }
    }
}

/// A directory that no other user can have prepared.
fn private_folder(socket: &Path) -> io::Result<PathBuf> {
    // Only a name: security does not depend on its strength.
    let mut hasher = FnvHasher::default();
    hasher.write(socket.as_os_str().as_bytes());
    let hash = hasher.finish();
    let folder = PathBuf::from(format!("/tmp/bpe-{hash:016x}"));
    match fs::DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => return made.map(|()| folder),
    }
    // Left by a killed process, or by another user.
    let found = fs::symlink_metadata(&folder)?;
    let us = rustix::process::geteuid().as_raw();
    if found.is_dir() && found.uid() == us && found.mode() & 0o077 == 0 {
        return Ok(folder);
    }
    let other = tempfile::Builder::new().prefix("bpe-").tempdir_in("/tmp")?;
    Ok(other.keep())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_short_path_stays() {
        let folder = tempfile::tempdir().unwrap();
        let socket = SocketPath::of(folder.path(), "socket").unwrap();
        assert_eq!(
            socket.path(),
            folder.path().canonicalize().unwrap().join("socket")
        );
        assert_eq!(socket.folder(), None);
    }

    #[test]
    fn a_long_one_is_replaced_by_the_same_each_time() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("x".repeat(120));
        fs::create_dir(&long).unwrap();
        let socket = SocketPath::of(&long, "socket").unwrap();
        let first = socket.path().to_owned();
        assert!(first.as_os_str().len() <= LONGEST, "{}", first.display());
        drop(UnixListener::bind(&first).unwrap());
        fs::write(first.with_extension("lock"), "1").unwrap();
        drop(socket);
        assert!(!first.parent().unwrap().exists());
        // A remaining directory is reused; another socket name gets another directory.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(first.parent().unwrap())
            .unwrap();
        let again = SocketPath::of(&long, "socket").unwrap();
        assert_eq!(again.path(), first);
        let other = SocketPath::of(&long, "other").unwrap();
        assert_ne!(other.folder(), again.folder());
        // One that others may write to is rejected.
        drop(again);
        fs::DirBuilder::new()
            .mode(0o777)
            .create(first.parent().unwrap())
            .unwrap();
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(first.parent().unwrap(), open).unwrap();
        let elsewhere = SocketPath::of(&long, "socket").unwrap();
        assert_ne!(elsewhere.path(), first);
        fs::remove_dir(first.parent().unwrap()).unwrap();
    }
}
