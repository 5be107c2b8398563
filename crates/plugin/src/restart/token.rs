//! The token: 128 random bits in the data directory, by which a snapshot and the data files identify each other
//! ([`coherence::stamp`]).
//!
//! Each start replaces it, before a write is forwarded or a page is served. A clean shutdown replaces it last, after all
//! data are durable, and writes the snapshot with it. A data directory that was rolled back has a different token.
//!
//! The file `bpe.token` is one block: magic, token, CRC32C. It belongs to the server's user, and is never opened through a
//! symbolic link. If it cannot be written, nothing is trusted across a mount.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use coherence::os::FileSystem;

use crate::platform::{clock, mount_id};

/// Its name in the data directory.
pub const NAME: &str = "bpe.token";
const MAGIC: u64 = u64::from_le_bytes(*b"BPETOKEN");
const BLOCK: usize = 4096;
/// Offset of the checksum.
const CHECK: usize = 24;
/// Attempts to write twice within one tick of the clock.
const MAX_TRIES: u32 = 50;

/// Random and non-zero.
pub type Token = u128;

/// The token file of a data directory.
pub struct TokenFile {
    path: PathBuf,
    file: File,
}

/// A block with the alignment of O_DIRECT.
#[repr(C, align(4096))]
struct Block([u8; BLOCK]);

impl TokenFile {
    /// Opens the file, or creates it.
    ///
    /// # Errors
    /// The file or the directory is unusable.
    pub fn open(directory: &Path) -> Result<TokenFile, String> {
        let path = directory.join(NAME);
        let failed = |error: io::Error| format!("cannot use '{}': {error}", path.display());
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.mode(0o600).custom_flags(flags).open(&path);
        let file = file.map_err(failed)?;
        let metadata = file.metadata().map_err(failed)?;
        let is_ours = metadata.uid() == rustix::process::geteuid().as_raw();
        if !metadata.is_file() || metadata.nlink() != 1 || !is_ours {
            let other = io::Error::other("it is not a file of the server's user with one name");
            return Err(failed(other));
        }
        Ok(TokenFile { path, file })
    }

    /// The file system of the token file.
    pub fn file_system(&self) -> Option<FileSystem> {
        mount_id::file_system(self.file.metadata().ok()?.dev(), self.file.as_fd())
    }

    /// Reads the token from the disk, by O_DIRECT; `None` if there is no valid one.
    pub fn read(&self) -> Option<Token> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_DIRECT;
        let mut options = File::options();
        let file = options
            .read(true)
            .custom_flags(flags)
            .open(&self.path)
            .ok()?;
        let inode = |file: &File| Some((file.metadata().ok()?.dev(), file.metadata().ok()?.ino()));
        if inode(&file)? != inode(&self.file)? {
            return None;
        }
        let mut block = Block([0; BLOCK]);
        file.read_exact_at(&mut block.0, 0).ok()?;
        parse(&block.0)
    }

    /// Replaces the token, durably.
    ///
    /// # Errors
    /// An I/O error.
    pub fn replace(&self) -> io::Result<Token> {
        let token = random()?;
        self.file.write_all_at(&block(token), 0)?;
        self.file.set_len(BLOCK as u64)?;
        rustix::fs::fsync(&self.file)?;
        Ok(token)
    }

    /// Whether the kernel assigns a new change stamp to each change that follows a query of the file's times. Tests it on the
    /// file, with two writes within one tick of the clock. Call before the token is replaced.
    pub fn has_fine_stamps(&self) -> bool {
        let Ok(token) = random() else { return false };
        let block = block(token);
        for _ in 0..MAX_TRIES {
            let before = clock::file_time();
            let stamp = || {
                self.file.write_all_at(&block, 0).ok()?;
                let metadata = self.file.metadata().ok()?;
                Some((metadata.ctime(), metadata.ctime_nsec()))
            };
            let (Some(first), Some(second)) = (stamp(), stamp()) else {
                return false;
            };
            if clock::file_time() == before {
                return first != second;
            }
        }
        false
    }

    /// Makes all data of its file system durable.
    ///
    /// # Errors
    /// An I/O error, also of an earlier, acknowledged write.
    pub fn sync_file_system(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.file)?)
    }
}

fn random() -> io::Result<Token> {
    let mut bytes = [0; 16];
    let source: OwnedFd = File::open("/dev/urandom")?.into();
    let mut at = 0;
    while at < bytes.len() {
        match rustix::io::read(&source, &mut bytes[at..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => at += read,
        }
    }
    Ok(Token::from_ne_bytes(bytes).max(1))
}

fn block(token: Token) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    block[..8].copy_from_slice(&MAGIC.to_ne_bytes());
    block[8..CHECK].copy_from_slice(&token.to_ne_bytes());
    let check = crc32c::crc32c(&block[..CHECK]);
    block[CHECK..CHECK + 4].copy_from_slice(&check.to_ne_bytes());
    block
}

fn parse(block: &[u8; BLOCK]) -> Option<Token> {
    let token = Token::from_ne_bytes(block[8..CHECK].try_into().ok()?);
    (*block == self::block(token)).then_some(token)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn token_is_replaced_and_read() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let file = TokenFile::open(folder.path()).unwrap();
        assert_eq!(file.read(), None);
        let first = file.replace().unwrap();
        assert_eq!(file.read(), Some(first));
        let second = file.replace().unwrap();
        assert_ne!(first, second);
        drop(file);
        let again = TokenFile::open(folder.path()).unwrap();
        assert_eq!(again.read(), Some(second));
        // The answer depends on the host, but does not change.
        assert_eq!(again.has_fine_stamps(), again.has_fine_stamps());
        assert_ne!(again.read(), Some(second));
    }

    #[test]
    fn damaged_token_is_none() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let path = folder.path().join(NAME);
        let whole = block(7);
        for damage in [&whole[..0], &whole[..100], &[0; BLOCK], b"text"] {
            fs::write(&path, damage).unwrap();
            let file = TokenFile::open(folder.path()).unwrap();
            assert_eq!(file.read(), None);
            assert!(file.replace().is_ok());
            assert!(file.read().is_some());
        }
    }

    #[test]
    fn link_directory_and_pipe_are_refused() {
        let folder = tempfile::tempdir_in(".").unwrap();
        let path = folder.path().join(NAME);
        let elsewhere = folder.path().join("elsewhere");
        fs::write(&elsewhere, "text").unwrap();
        symlink(&elsewhere, &path).unwrap();
        assert!(TokenFile::open(folder.path()).is_err());
        fs::remove_file(&path).unwrap();
        fs::hard_link(&elsewhere, &path).unwrap();
        assert!(TokenFile::open(folder.path()).is_err());
        assert_eq!(fs::read(&elsewhere).unwrap(), b"text");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(TokenFile::open(folder.path()).is_err());
        fs::remove_dir(&path).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::RWXU).unwrap();
        assert!(TokenFile::open(folder.path()).is_err());
    }
}
