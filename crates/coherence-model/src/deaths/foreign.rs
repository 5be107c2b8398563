//! Changes of the files by other programs while no server runs.

use std::fs::{self, File, FileTimes, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::common::note;
use crate::content::{SECTOR, Stamp, fill};
use crate::random::below;
use crate::world::{Slot, world};

/// Changes one file once.
///
/// # Errors
/// The system's error.
pub fn change(log: &Path) -> io::Result<()> {
    let slot = world().slot();
    let path = world().folder.join(slot.name);
    let Ok(before) = fs::metadata(&path) else {
        return Ok(()); // it died between two names
    };
    let pages = before.size() as usize / slot.shape.page_size;
    if pages == 0 {
        return Ok(());
    }
    let told = |what: String| note(log, &format!("{}#other program: {what}", slot.name));
    let times = FileTimes::new()
        .set_accessed(before.accessed()?)
        .set_modified(before.modified()?);
    match below(7) {
        0 => told(write(slot, &path, pages)?),
        1 => {
            let what = write(slot, &path, pages)?;
            open(&path)?.set_times(times)?;
            told(format!("{what}, and its old times"))
        }
        2 => {
            let what = copied(slot, &path, pages, times)?;
            told(format!("replaced by a copy, then {what}"))
        }
        3 => {
            let now = SystemTime::now();
            open(&path)?.set_times(FileTimes::new().set_accessed(now).set_modified(now))?;
            told("touched".into())
        }
        4 => {
            // No other program creates files there: most file systems reuse the inode number immediately.
            let bytes = fs::read(&path)?;
            fs::remove_file(&path)?;
            fs::write(&path, bytes)?;
            let what = write(slot, &path, pages)?;
            let same = fs::metadata(&path)?.ino() == before.ino();
            told(format!("made anew, with the same number: {same}; {what}"))
        }
        5 => {
            let file = open(&path)?;
            let keep = below(pages) * slot.shape.page_size;
            file.set_len(keep as u64)?;
            file.set_len(before.size())?;
            told(format!("cut off behind {keep} and grown again"))
        }
        _ => {
            // Restores like a backup: same inode and size, and the old times.
            let all: Vec<_> = (0..pages).collect();
            let what = write_each(slot, &path, &all)?;
            open(&path)?.set_times(times)?;
            told(format!("{what} (all), and its old times"))
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn copied(slot: &Slot, path: &PathBuf, pages: usize, times: FileTimes) -> io::Result<String> {
    let copy = path.with_extension("elsewhere");
    fs::copy(path, &copy)?;
    let what = write(slot, &copy, pages)?;
    open(&copy)?.set_times(times)?;
    fs::rename(&copy, path)?;
    Ok(what)
}

/// Writes new contents into some pages.
fn write(slot: &Slot, path: &Path, pages: usize) -> io::Result<String> {
    let some: Vec<_> = (0..1 + below(8)).map(|_| below(pages)).collect();
    write_each(slot, path, &some)
}

fn write_each(slot: &Slot, path: &Path, pages: &[usize]) -> io::Result<String> {
    let (file, each) = (open(path)?, slot.shape.page_size);
    for page in pages {
        let stamp = Stamp::new(0xF1_0000, world().new_version());
        let mut bytes = vec![0; each];
        for (n, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            fill((page * each / SECTOR + n) as u64, stamp, slot.shape, sector);
        }
        file.write_all_at(&bytes, (page * each) as u64)?;
    }
    Ok(format!("wrote pages {pages:?}"))
}
