//! Compensates for errors of MariaDB 10.11 on a disk that loses power, and for nothing else (`docs/evidence/reliability.md`).
//!
//! - It does not sync every page that it has written before a newer checkpoint. The redo log from that checkpoint on does not
//!   restore such a page.
//! - It repairs torn pages from their copies in the doublewrite buffer, except for the first page of a file.
//!
//! Layout of pages and their copies: fil0types.h, buf0dblwr.cc and log0log.h of the server.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use anyhow::Context;
use cloud_volume::Volume;

use crate::harness::note;

const PAGE: usize = 16384;
/// Offsets of the log's two checkpoints; each begins with a sequence number.
const CHECKPOINTS: [u64; 2] = [4096, 8192];
/// Pages of the doublewrite buffer in the system tablespace, the same in all data directories of these tests.
const DOUBLEWRITE: std::ops::Range<u64> = 64..192;

/// A page that a killed server has written to a data file and not synced.
struct Page {
    /// Path on the volume.
    file: PathBuf,
    number: u64,
    bytes: Vec<u8>,
}

impl Page {
    /// The log sequence number of the page's last change.
    fn sequence(&self) -> u64 {
        number_at(&self.bytes, 16)
    }
}

fn number_at(bytes: &[u8], offset: usize) -> u64 {
    bytes[offset..]
        .first_chunk()
        .map_or(0, |number| u64::from_be_bytes(*number))
}

fn read(file: &File, offset: u64, length: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Simulates a power loss of a disk with the data directory `data`, whose server was killed. All unsynced writes are lost, or
/// with a seed random sectors of them. Compensates before and after it for the server's errors. Returns the number of changed
/// files.
pub fn lose_power(volume: &Volume, torn: Option<u64>) -> anyhow::Result<usize> {
    let mut unsynced = Unsynced::read(volume)?;
    unsynced.sync_what_was_forgotten()?;
    let Some(seed) = torn else {
        return Ok(volume.power_loss()?);
    };
    let reverted = volume.power_loss_torn(seed)?;
    unsynced.complete_what_has_no_copy()?;
    Ok(reverted)
}

/// Unsynced pages of the data files.
struct Unsynced {
    data: PathBuf,
    pages: Vec<Page>,
}

impl Unsynced {
    /// Reads all of them: some megabytes.
    fn read(volume: &Volume) -> anyhow::Result<Unsynced> {
        let data = volume.mountpoint().join("data");
        let mut pages = Vec::new();
        for (path, offsets) in volume.unsynced() {
            let file = volume
                .mountpoint()
                .join(path.strip_prefix(volume.backing())?);
            let name = file.file_name().unwrap_or_default().to_string_lossy();
            // A deleted file is skipped.
            let is_system = name == "ibdata1";
            let is_data = name.ends_with(".ibd") || name.starts_with("undo") || is_system;
            if !is_data || !file.exists() {
                continue;
            }
            let numbers: HashSet<u64> = offsets
                .iter()
                .map(|at| at / PAGE as u64)
                .filter(|number| !(is_system && DOUBLEWRITE.contains(number)))
                .collect();
            let opened = File::open(&file)?;
            for number in numbers {
                // The page may have been truncated.
                if let Ok(bytes) = read(&opened, number * PAGE as u64, PAGE) {
                    let file = file.clone();
                    pages.push(Page {
                        file,
                        number,
                        bytes,
                    });
                }
            }
        }
        Ok(Unsynced { data, pages })
    }

    /// Before the power loss: syncs the files with unsynced pages older than the last checkpoint.
    fn sync_what_was_forgotten(&mut self) -> anyhow::Result<()> {
        let log = File::open(self.data.join("ib_logfile0"))?;
        let mut checkpoint = 0;
        for at in CHECKPOINTS {
            checkpoint = checkpoint.max(number_at(&read(&log, at, 8)?, 0));
        }
        let is_older = |page: &&Page| (1..checkpoint).contains(&page.sequence());
        let forgotten: HashSet<PathBuf> = self
            .pages
            .iter()
            .filter(is_older)
            .map(|page| page.file.clone())
            .collect();
        for file in &forgotten {
            File::open(file)?.sync_all()?;
            note(format!(
                "MariaDB wrote a checkpoint and had not synced {}",
                file.display()
            ));
        }
        self.pages.retain(|page| !forgotten.contains(&page.file));
        Ok(())
    }

    /// After a power loss in the middle of writes: completes the pages that the server cannot repair.
    fn complete_what_has_no_copy(&self) -> anyhow::Result<()> {
        let system = File::open(self.data.join("ibdata1"))?;
        let mut copies = HashSet::new();
        for number in DOUBLEWRITE {
            copies.insert(read(&system, number * PAGE as u64, PAGE)?);
        }
        for page in &self.pages {
            if page.number == 0 || !copies.contains(&page.bytes) {
                complete(page).with_context(|| format!("{:?}", page.file))?;
            }
        }
        Ok(())
    }
}

fn complete(page: &Page) -> anyhow::Result<()> {
    let file = OpenOptions::new().write(true).open(&page.file)?;
    let at = page.number * PAGE as u64;
    // A page added since the last sync is lost as a whole.
    if at + PAGE as u64 <= file.metadata()?.len() {
        file.write_all_at(&page.bytes, at)?;
        file.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use cloud_volume::{CloudVolume, Options, Profile};

    use super::*;

    fn page(sequence: u64, filler: u8) -> Vec<u8> {
        let mut bytes = vec![filler; PAGE];
        bytes[16..24].copy_from_slice(&sequence.to_be_bytes());
        bytes
    }

    fn make(data: &std::path::Path, name: &str, pages: u64) -> File {
        let path = data.join(name);
        std::fs::write(&path, page(1, 1).repeat(pages as usize)).unwrap();
        let file = OpenOptions::new().write(true).open(path).unwrap();
        file.sync_all().unwrap();
        file
    }

    #[test]
    fn no_more_is_done_than_what_the_server_leaves_undone() {
        let folder = tempfile::tempdir().unwrap();
        let (backing, mountpoint) = (folder.path().join("backing"), folder.path().join("disk"));
        std::fs::create_dir_all(backing.join("data")).unwrap();
        std::fs::create_dir(&mountpoint).unwrap();
        let options = Options {
            profile: Profile::unlimited(),
            forget_unsynced: true,
            ..Options::default()
        };
        let volume = match CloudVolume::mount_with(&backing, &mountpoint, options) {
            Ok(volume) => volume,
            Err(error) => return eprintln!("skipped: {error}"),
        };
        let data = mountpoint.join("data");
        let log = make(&data, "ib_logfile0", 1);
        for (at, sequence) in CHECKPOINTS.into_iter().zip([90, 100_u64]) {
            log.write_all_at(&sequence.to_be_bytes(), at).unwrap();
        }
        log.sync_all().unwrap();
        let system = make(&data, "ibdata1", DOUBLEWRITE.end);
        let [forgotten, other] = ["a.ibd", "b.ibd"].map(|name| make(&data, name, 4));
        let write = |file: &File, number: u64, bytes: &[u8]| {
            file.write_all_at(bytes, number * PAGE as u64).unwrap();
        };
        // The first page and one more have a copy; one has an old one.
        for (slot, copy) in [page(100, 2), page(100, 3), page(100, 7)]
            .iter()
            .enumerate()
        {
            write(&system, DOUBLEWRITE.start + slot as u64, copy);
        }
        system.sync_all().unwrap();
        for torn in [Some(1), Some(2), None] {
            write(&forgotten, 1, &page(99, 9));
            write(&forgotten, 2, &page(150, 9));
            for number in 0..4 {
                write(&other, number, &page(100, number as u8 + 2));
            }
            assert_eq!(lose_power(&volume, torn).unwrap(), 1);
            let read = |name| std::fs::read(backing.join("data").join(name)).unwrap();
            let synced = [page(1, 1), page(99, 9), page(150, 9), page(1, 1)].concat();
            assert!(
                read("a.ibd") == synced,
                "a page was older than the checkpoint"
            );
            let left = read("b.ibd");
            let left: Vec<&[u8]> = left.chunks(PAGE).collect();
            for (number, left) in left.into_iter().enumerate() {
                let (old, new) = (page(1, 1), page(100, number as u8 + 2));
                match torn {
                    None => assert!(left == old, "page {number} was not synced"),
                    Some(_) if number == 1 => assert!(left != old && left != new, "not torn"),
                    Some(_) => assert!(left == new, "page {number} would not be mended"),
                }
            }
            for file in [&forgotten, &other] {
                for number in 0..4 {
                    write(file, number, &page(1, 1));
                }
                file.sync_all().unwrap();
            }
        }
        volume.unmount().unwrap();
    }
}
