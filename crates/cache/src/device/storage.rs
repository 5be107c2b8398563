//! I/O interface of an open cache file: reads and writes at offsets. Tests insert a faulty implementation.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::OFlags;

use super::queue::{KernelQueue, Queue};

pub(crate) trait Storage: Send + Sync {
    /// As pread: may be short.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// As pwrite: may be short.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize>;
    /// Bytes of the file, and its number of names.
    fn facts(&self) -> io::Result<(u64, u64)>;
    fn raw_fd(&self) -> RawFd;
    /// A queue for concurrent writes, valid as long as the storage is; `None`: writes are made one at a time. `threaded`: the
    /// writer has its own thread, and need not be deterministic.
    fn queue(&self, _threaded: bool) -> Option<Box<dyn Queue>> {
        None
    }
}

impl Storage for File {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, offset)
    }

    fn facts(&self) -> io::Result<(u64, u64)> {
        let metadata = self.metadata()?;
        Ok((metadata.len(), metadata.nlink()))
    }

    fn raw_fd(&self) -> RawFd {
        self.as_raw_fd()
    }

    fn queue(&self, threaded: bool) -> Option<Box<dyn Queue>> {
        let direct = || rustix::fs::fcntl_getfl(self).is_ok_and(|f| f.contains(OFlags::DIRECT));
        if !threaded || !direct() {
            return None;
        }
        let queue = KernelQueue::new(self.as_raw_fd())?;
        Some(Box::new(queue))
    }
}

/// Reads all of `buffer`. End of file is an error.
pub(crate) fn read_exact(
    storage: &dyn Storage,
    mut buffer: &mut [u8],
    mut offset: u64,
) -> io::Result<()> {
    while !buffer.is_empty() {
        match storage.read_at(buffer, offset) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the cache file has become shorter",
                ));
            }
            Ok(n) => {
                let n = n.min(buffer.len());
                buffer = &mut buffer[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

pub(crate) fn write_all(
    storage: &dyn Storage,
    mut bytes: &[u8],
    mut offset: u64,
) -> io::Result<()> {
    while !bytes.is_empty() {
        match storage.write_at(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                let n = n.min(bytes.len());
                bytes = &bytes[n..];
                offset += n as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Placeholder for a released file.
pub(crate) struct Closed;

impl Storage for Closed {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Err(io::Error::other("the cache file is closed"))
    }

    fn write_at(&self, _: &[u8], _: u64) -> io::Result<usize> {
        Err(io::Error::other("the cache file is closed"))
    }

    fn facts(&self) -> io::Result<(u64, u64)> {
        Err(io::Error::other("the cache file is closed"))
    }

    fn raw_fd(&self) -> RawFd {
        -1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_file_refuses_every_call() {
        let mut buffer = [0; 512];
        let errors = [
            Closed.read_at(&mut buffer, 0).unwrap_err(),
            Closed.write_at(&buffer, 0).unwrap_err(),
            Closed.facts().unwrap_err(),
        ];
        assert!(
            errors
                .iter()
                .all(|error| error.to_string().contains("closed"))
        );
        assert!(Closed.raw_fd() < 0 && Closed.queue(true).is_none());
    }
}
