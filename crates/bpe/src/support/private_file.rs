//! Files that contain a secret or affect security. They must belong to this user or root, and no other user may write
//! to them. A symbolic link is refused, because its target could change between the check and the read.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use interface::canary;
use rustix::fs::OFlags;

use crate::support::files::open_plain_with;

/// A checked file, read by the same descriptor.
pub struct PrivateFile {
    file: File,
    mode: u32,
    /// Whether owner and group are root, in systemd's directory of credentials.
    is_credential: bool,
}

impl PrivateFile {
    /// Opens the file.
    ///
    /// # Errors
    /// It cannot be opened, is no plain file, or another user owns it or may change it.
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
        let mode = meta.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(io::Error::other(format!(
                "others may change it (mode {mode:o}): {}",
                repair(path)
            )));
        }
        Ok(Self {
            file,
            mode,
            is_credential: meta.uid() == 0
                && meta.gid() == 0
                && is_credential(path, std::env::var_os("CREDENTIALS_DIRECTORY")),
        })
    }

    /// Opens a file that contains a secret.
    ///
    /// # Errors
    /// As [`PrivateFile::open`], and if other users may read it.
    pub fn open_secret(path: &Path) -> io::Result<Self> {
        let file = Self::open(path)?;
        file.check_secrecy(path)?;
        Ok(file)
    }

    /// Checks that only the owner may read a file that contains a secret. systemd grants a service access to its
    /// credentials (`LoadCredential=`) by an ACL on root's file. The ACL's mask appears as read permission of group
    /// root.
    ///
    /// # Errors
    /// Other users may read it.
    pub fn check_secrecy(&self, path: &Path) -> io::Result<()> {
        let harmless = if self.is_credential { 0o040 } else { 0 };
        if self.mode & 0o077 & !harmless == 0 || canary!("readers-of-secrets") {
            return Ok(());
        }
        Err(io::Error::other(format!(
            "it holds a secret, and others may read it (mode {:o}): {}",
            self.mode,
            repair(path)
        )))
    }

    /// The first `most` bytes of the file.
    ///
    /// # Errors
    /// It cannot be read, or is no text.
    pub fn text(&mut self, most: u64) -> io::Result<String> {
        let mut text = String::new();
        (&mut self.file).take(most).read_to_string(&mut text)?;
        Ok(text)
    }
}

/// Whether systemd provides the file as a credential for this service.
fn is_credential(path: &Path, folder: Option<OsString>) -> bool {
    folder.is_some_and(|folder| !folder.is_empty() && path.parent() == Some(Path::new(&folder)))
}

fn repair(path: &Path) -> String {
    format!("chmod 600 {}", crate::support::quote::shell_path(path))
}

/// Whether `user` may trust a file that `owner` owns.
pub fn may_own(owner: u32, user: u32) -> bool {
    canary!("owner-of-secrets") || owner == 0 || owner == user
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
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("credential");
        fs::write(&path, "x").unwrap();
        for (is_credential, mode, is_open) in [
            (true, 0o400, false),
            (true, 0o440, false),
            (true, 0o444, true),
            (false, 0o400, false),
            (false, 0o440, true),
        ] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let mut file = PrivateFile::open(&path).unwrap();
            file.is_credential = is_credential;
            let refused = file.check_secrecy(&path).is_err();
            assert_eq!(refused, is_open, "{is_credential} {mode:o}");
        }
        let of = |folder: &str| is_credential(Path::new("/run/a/x"), Some(folder.into()));
        assert!(of("/run/a") && !of("/run") && !of(""));
        assert!(!is_credential(Path::new("/run/a/x"), None));
    }

    #[test]
    fn rights_of_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        fs::write(&path, "x").unwrap();
        let refused = |mode: u32| {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            [PrivateFile::open(&path), PrivateFile::open_secret(&path)].map(|file| {
                file.err()
                    .map(|error| error.to_string())
                    .inspect(|text| assert!(text.contains("chmod 600"), "{text}"))
                    .is_some()
            })
        };
        for mode in [0o600, 0o400, 0o700] {
            assert_eq!(refused(mode), [false, false], "{mode:o}");
        }
        for mode in [0o640, 0o604, 0o644, 0o610, 0o601] {
            assert_eq!(refused(mode), [false, true], "{mode:o}");
        }
        for mode in [0o660, 0o602, 0o620, 0o666] {
            assert_eq!(refused(mode), [true, true], "{mode:o}");
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
