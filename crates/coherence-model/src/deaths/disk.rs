//! What the disk surely has of the files, as their flushes go; and the machine's own start.
//!
//! A start of the machine is told to the records that are left, as a server does that finds them again after it. The files keep what
//! they have, since nobody can give them back their times. So it is not seen that a page is old, but whoever believes a file whose
//! disk may have something else is found out.

use std::ffi::c_int;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, ensure};
use bpe::manifest::{Head, Manifest, Memory, Record};

use crate::kernel::KEEP;

/// As the plugin lays the file with the records out: `persist.rs`.
const HEAD: usize = 4096;

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// From here on what is flushed is kept in a folder.
///
/// # Errors
/// It cannot be made.
pub fn begin(kept: &Path) -> std::io::Result<()> {
    let folder = FOLDER.get_or_init(|| kept.join("disk"));
    fs::create_dir_all(folder)?;
    KEEP.get_or_init(|| keep);
    Ok(())
}

fn copy_of(inode: u64) -> Option<PathBuf> {
    Some(FOLDER.get()?.join(inode.to_string()))
}

fn keep(fd: c_int) {
    // Whatever happens, a copy is whole, and none is as good as an old one.
    let kept = || -> Option<()> {
        // Of another number, which the hooks do not know.
        let file = File::open(format!("/proc/self/fd/{fd}")).ok()?;
        let about = file.metadata().ok()?;
        let mut bytes = vec![0; usize::try_from(about.len()).ok()?];
        file.read_exact_at(&mut bytes, 0).ok()?;
        let copy = copy_of(about.ino())?;
        // SAFETY: a plain call.
        let thread = unsafe { libc::gettid() };
        let passing = copy.with_extension(thread.to_string());
        fs::write(&passing, bytes).ok()?;
        fs::rename(passing, copy).ok()
    };
    let _ = kept();
}

/// Whether the disk surely has these bytes of a file.
pub fn has(path: &Path, bytes: &[u8]) -> bool {
    let copy = || fs::read(copy_of(fs::metadata(path).ok()?.ino())?).ok();
    copy().is_some_and(|copy| copy == bytes)
}

/// The machine was started anew. Whether there was something left to tell that.
///
/// # Errors
/// The system's.
pub fn reboot(kept: &Path) -> anyhow::Result<bool> {
    let mut left = fs::read_dir(kept)?.filter_map(Result::ok);
    let is_records = |path: &PathBuf| path.extension().is_some_and(|kind| kind == "files");
    let Some(path) = left.by_ref().map(|entry| entry.path()).find(is_records) else {
        return Ok(false);
    };
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let length = usize::try_from(file.metadata()?.len())?;
    let room = length.saturating_sub(HEAD) / size_of::<Record>();
    if room == 0 {
        return Ok(false);
    }
    // SAFETY: a new mapping of as much as the file has.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            file.as_raw_fd(),
            0,
        )
    };
    ensure!(start != libc::MAP_FAILED, "the records cannot be mapped");
    // SAFETY: as long as that, for the life of the process; words that may have any value.
    let (head, records) = unsafe {
        let records = start.cast::<u8>().add(HEAD).cast::<Record>();
        (
            &*start.cast::<Head>(),
            std::slice::from_raw_parts(records, room),
        )
    };
    let memory = Memory {
        now: bpe::clock::file_time,
        grow: |_| false,
    };
    let device = fs::metadata(kept).context("no folder in memory")?.dev();
    // No file lies there: the devices of all of them keep their numbers.
    Manifest::new(head, records, room, memory).of_another_boot((device, device));
    Ok(true)
}
