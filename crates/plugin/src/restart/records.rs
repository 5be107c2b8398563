//! The file with the records of the data files ([`coherence::manifest`]): opened, mapped and locked as long as the
//! process lives.
//!
//! | offset | content |
//! |---|---|
//! | 0 | state header, and the manifest's own head |
//! | 2048 | the directory of the redo log that a recovery waits for; zeros: none |
//! | 4096 | one record for each data file |
//!
//! Its memory is allocated before it is accessed, since a full in-memory file system would kill the server.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use coherence::manifest::{Head, Manifest, Memory, Record};
use rustix::fs::FallocateFlags;

use super::state::RESTART;
use super::state_header::{self, StateHeader};
use crate::platform::clock;

/// Bytes before the records: one memory page.
const HEAD: usize = 4096;
/// Offset and maximum length of the log's directory in the head.
const LOG: u64 = 2048;
const MAX_LOG: usize = HEAD - LOG as usize;
/// Maximum number of records. Files beyond it are new to the next process.
const MAX_RECORDS: usize = 64 << 10;
/// Initial number of records.
const INITIAL_RECORDS: usize = 512;

/// Reads the data directory's superblock from records that are not mapped yet.
pub fn superblock_in(file: &File) -> io::Result<u64> {
    let mut word = [0; 8];
    file.read_exact_at(&mut word, Head::SUPERBLOCK_OFFSET as u64)?;
    Ok(u64::from_ne_bytes(word))
}

/// Withholds serving until InnoDB has opened its log in this directory. The records are from another boot of the host, and only
/// this log is proven unchanged. The name is stored beside the records, since a process may end before InnoDB starts.
pub fn name_log(file: &File, folder: &Path) -> io::Result<()> {
    let name = folder.as_os_str().as_bytes();
    debug_assert!(!name.is_empty(), "zeros stand for no log");
    let mut text = [0; MAX_LOG];
    let place = text.get_mut(..name.len());
    place
        .ok_or_else(|| io::Error::other("the redo log's folder has too long a name"))?
        .copy_from_slice(name);
    file.write_all_at(&text, LOG)
}

/// Reads the name that an earlier process stored, if no process has opened that log since.
pub fn named_log(file: &File) -> io::Result<Option<PathBuf>> {
    let mut text = [0; MAX_LOG];
    file.read_exact_at(&mut text, LOG)?;
    let name = text.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok((!name.is_empty()).then(|| OsStr::from_bytes(name).into()))
}

/// Clears the name of the log: no recovery waits for it any longer.
pub fn clear_log_name() {
    if let Some(file) = RESTART.records() {
        let _ = rustix::io::pwrite(file, &[0; MAX_LOG], LOG);
    }
}

/// Fails if another program wrote the file.
pub fn check_owner(file: &File) -> io::Result<()> {
    let mut begins = [0; size_of::<u64>()];
    let read = file.read_at(&mut begins, 0)?;
    if read == begins.len()
        && begins != state_header::MAGIC.to_ne_bytes()
        && begins != [0; size_of::<u64>()]
    {
        return Err(io::Error::other(
            "it is not a file of this plugin; remove it, or name another place in bpe_persist_path",
        ));
    }
    Ok(())
}

/// Maps the file for the life of the process. A foreign file is zeroed, except for the state header.
pub fn map(file: File, header: &StateHeader, is_ours: bool) -> io::Result<Manifest> {
    let length = file.metadata()?.len();
    let mut room = (length.saturating_sub(HEAD as u64) / size_of::<Record>() as u64) as usize;
    if !is_ours || room < INITIAL_RECORDS {
        // The file is from another start, version or server.
        room = INITIAL_RECORDS;
        make(&file, header, room)?;
    }
    // SAFETY: a new mapping.
    let start = unsafe { map_at(std::ptr::null_mut(), 0, &file)? };
    // SAFETY: mapped above, with zeros or words of an earlier process, and aligned to a memory page.
    let (head, records) = unsafe {
        let head = &*start.cast::<Head>();
        let records = start.cast::<u8>().add(HEAD).cast::<Record>();
        (head, std::slice::from_raw_parts(records, MAX_RECORDS))
    };
    const { assert!(size_of::<Head>() as u64 <= LOG && HEAD % align_of::<Record>() == 0) };
    // The mapping holds the lock, too, until the process's memory is gone. A reader of `/proc/<pid>/smaps` delays the end of the
    // memory, and of the libaio requests, beyond that of the descriptors.
    RESTART.records.store(file.into_raw_fd(), Ordering::SeqCst);
    let memory = Memory {
        now: clock::file_time,
        grow: |records| {
            let file = RESTART.records();
            file.is_some_and(|file| allocate(file, records).is_ok())
        },
    };
    Ok(Manifest::new(head, records, room, memory))
}

fn make(file: &File, header: &StateHeader, room: usize) -> io::Result<()> {
    file.set_len(0)?;
    allocate(file, room)?;
    file.write_all_at(&header.bytes(), 0)
}

/// Maps a new file in place of this process's records.
pub fn remap(file: File, header: &StateHeader, manifest: &Manifest) -> io::Result<()> {
    make(&file, header, manifest.room())?;
    let start = std::ptr::from_ref(manifest.head()).cast_mut().cast();
    // SAFETY: replaces the whole mapping by one with at least as many accessible bytes. Its words are atomic, and may have
    // any value at any time.
    unsafe { map_at(start, libc::MAP_FIXED, &file)? };
    RESTART.records.store(file.into_raw_fd(), Ordering::SeqCst);
    Ok(())
}

/// # Safety
/// With `MAP_FIXED` there must be a mapping by this function at `start`. This process must hold the lock of the file, and
/// never shortens it. Memory beyond the end of the file must not be accessed before the file was extended.
unsafe fn map_at(
    start: *mut libc::c_void,
    flags: libc::c_int,
    file: &File,
) -> io::Result<*mut libc::c_void> {
    debug_assert_eq!(flags & libc::MAP_FIXED != 0, !start.is_null());
    // SAFETY: the caller's promise.
    let start = unsafe {
        libc::mmap(
            start,
            HEAD + MAX_RECORDS * size_of::<Record>(),
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED | flags,
            file.as_raw_fd(),
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    Ok(start)
}

/// Allocates space before the memory is accessed: a full in-memory file system would kill the server.
fn allocate(file: impl AsFd, records: usize) -> io::Result<()> {
    debug_assert!(records <= MAX_RECORDS, "they are beyond the mapping");
    let length = HEAD + records * size_of::<Record>();
    Ok(rustix::fs::fallocate(
        file,
        FallocateFlags::empty(),
        0,
        length as u64,
    )?)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;

    /// The proof needs a lock that outlives the libaio requests of a killed process, and the descriptors may not.
    #[test]
    fn mapping_keeps_the_lock_of_a_closed_file() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("files");
        let file = cache::open_in_memory(&path).unwrap();
        let other = File::open(&path).unwrap();
        let is_free = || flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok();
        // SAFETY: a new mapping, which nothing accesses.
        let start = unsafe { map_at(std::ptr::null_mut(), 0, &file).unwrap() };
        drop(file);
        assert!(!is_free());
        // SAFETY: mapped above, with this length.
        unsafe { libc::munmap(start, HEAD + MAX_RECORDS * size_of::<Record>()) };
        assert!(is_free());
    }
}
