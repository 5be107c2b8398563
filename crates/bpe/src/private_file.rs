//! Files that hold a secret: only what belongs to this user, or to root, is believed, and not through a symbolic link,
//! behind which another file could be put between the look and the reading.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::OFlags;

use crate::files::open_plain_with;

/// A file that was looked at and is read by one descriptor.
pub struct PrivateFile {
    file: File,
    mode: u32,
    /// Owner and group are root.
    is_roots: bool,
}

impl PrivateFile {
    /// Opens it.
    ///
    /// # Errors
    /// When it cannot be opened, is no plain file, or somebody else's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = open_plain_with(path, OFlags::NOFOLLOW).map_err(|error| {
            match error.raw_os_error() {
                Some(libc::ELOOP) => {
                    io::Error::other("it is a symbolic link: name the file itself")
                }
                _ => error,
            }
        })?;
        let meta = file.metadata()?;
        let own = rustix::process::geteuid().as_raw();
        if !may_own(meta.uid(), own) {
            return Err(io::Error::other(format!(
                "it belongs to another user (id {}), who could change it: it must be yours or root's",
                meta.uid()
            )));
        }
        Ok(Self {
            file,
            mode: meta.mode() & 0o777,
            is_roots: meta.uid() == 0 && meta.gid() == 0,
        })
    }

    /// Permission bits.
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Whether another user may read or change it. systemd lets a service read its credentials (`LoadCredential=`) by an ACL on a
    /// file of root's, whose mask shows as the right of group root to read.
    pub fn is_open_to_others(&self) -> bool {
        let harmless = if self.is_roots { 0o040 } else { 0 };
        self.mode & 0o077 & !harmless != 0
    }

    /// What it holds, at most so many bytes of it.
    ///
    /// # Errors
    /// When it cannot be read, or is no text.
    pub fn text(&mut self, most: u64) -> io::Result<String> {
        let mut text = String::new();
        (&mut self.file).take(most).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Whether what this user owns may be believed by that one.
pub fn may_own(owner: u32, user: u32) -> bool {
    owner == 0 || owner == user
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn only_own_plain_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "0123456789").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let mut file = PrivateFile::open(&path).unwrap();
        assert!(!file.is_open_to_others());
        assert_eq!(file.text(4).unwrap(), "0123");
        let link = folder.path().join("link");
        symlink(&path, &link).unwrap();
        let error = PrivateFile::open(&link).err().unwrap().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        let error = PrivateFile::open(folder.path()).err().unwrap().to_string();
        assert!(error.contains("plain file"), "{error}");
        let pipe = folder.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        assert!(PrivateFile::open(&pipe).is_err());
    }

    #[test]
    fn credential_of_systemd_is_private() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credential");
        fs::write(&path, "x").unwrap();
        for (group, mode, is_open) in [
            (0, 0o400, false),
            (0, 0o440, false),
            (0, 0o444, true),
            (0, 0o460, true),
            (65534, 0o400, false),
            (65534, 0o440, true),
        ] {
            std::os::unix::fs::chown(&path, Some(0), Some(group)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let file = PrivateFile::open(&path).unwrap();
            assert_eq!(file.is_open_to_others(), is_open, "{group} {mode:o}");
        }
    }

    #[test]
    fn owners_are_the_user_and_root() {
        assert!(may_own(0, 1000) && may_own(1000, 1000) && may_own(0, 0));
        assert!(!may_own(1001, 1000) && !may_own(1000, 0));
        if rustix::process::geteuid().is_root() {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("secret");
            fs::write(&path, "x").unwrap();
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            let error = PrivateFile::open(&path).err().unwrap().to_string();
            assert!(error.contains("another user"), "{error}");
        }
    }
}
