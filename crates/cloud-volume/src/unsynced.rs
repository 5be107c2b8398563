//! Undo log for a power loss: the old contents of all changes since the last sync.
//!
//! The model is a disk with a volatile write cache. Every change reaches the backing file at once. Before it, the old
//! contents of the affected blocks are saved, once per block and sync. fsync and fdatasync drop the saved contents. A
//! power loss writes them back and restores the old size. Writes with O_DIRECT are as volatile as others. Creating,
//! renaming and removing files is durable at once, as if the file system's journal were synchronous.
//!
//! Saved blocks use memory until the next sync. Blocks that were holes, zeros, or beyond the durable end of the file
//! use only their index entry.
//!
//! Lock order: `gate`, then an inode's `undo`, then `files`.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::fs::OFlags;

use crate::inodes::Inode;
use crate::undo::{Tear, Undo};

/// All files with unsynced changes.
#[derive(Default)]
pub(crate) struct Unsynced {
    /// Changes hold it shared, a power loss exclusively.
    gate: RwLock<()>,
    /// Keeps the inodes alive, although the kernel may forget them.
    files: Mutex<HashMap<u64, Arc<Inode>>>,
    bytes: AtomicU64,
}

impl Unsynced {
    /// Makes a change to `length` bytes at `offset`, and keeps the old contents for a power loss. `file` must be open
    /// for reading.
    pub(crate) fn change<R>(
        &self,
        inode: &Arc<Inode>,
        file: &File,
        offset: u64,
        length: u64,
        change: impl FnOnce() -> io::Result<R>,
    ) -> io::Result<R> {
        let _open = self.gate.read();
        let mut undo = inode.undo.lock();
        if undo.is_none() {
            *undo = Some(Undo {
                durable_size: file.metadata()?.len(),
                blocks: BTreeMap::new(),
            });
            self.files.lock().insert(inode.number, inode.clone());
        }
        if let Some(undo) = &mut *undo {
            let saved = undo.save(file, offset, length)?;
            self.bytes.fetch_add(saved, Ordering::Relaxed);
        }
        change()
    }

    /// Makes everything written to the file so far durable. Also for a removed file.
    pub(crate) fn sync(&self, inode: &Arc<Inode>) {
        let _open = self.gate.read();
        let mut undo = inode.undo.lock();
        self.forget(inode, &mut undo);
    }

    /// The inode of a file with unsynced changes, which the kernel may have forgotten.
    pub(crate) fn find(&self, number: u64) -> Option<Arc<Inode>> {
        self.files.lock().get(&number).cloned()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// The files whose contents a power loss would change, and the offsets of the affected blocks.
    pub(crate) fn blocks(&self) -> Vec<(Arc<Inode>, Vec<u64>)> {
        let files: Vec<_> = self.files.lock().values().cloned().collect();
        let offsets = |inode: &Arc<Inode>| {
            let undo = inode.undo.lock();
            undo.iter().flat_map(Undo::offsets).collect()
        };
        files
            .into_iter()
            .map(|inode| (inode.clone(), offsets(&inode)))
            .collect()
    }

    /// Reverts all files to their last sync, completely or partly. Returns the changed files.
    pub(crate) fn power_loss(
        &self,
        mut torn: Option<Tear>,
    ) -> Result<Vec<Arc<Inode>>, (Arc<Inode>, io::Error)> {
        let _alone = self.gate.write();
        let mut files: Vec<_> = self.files.lock().values().cloned().collect();
        files.sort_by_key(|inode| inode.number);
        for inode in &files {
            let mut undo = inode.undo.lock();
            if let Some(undo) = &*undo {
                inode
                    .open(OFlags::RDWR)
                    .and_then(|file| undo.revert(&file, torn.as_mut()))
                    .map_err(|error| (inode.clone(), error))?;
            }
            self.forget(inode, &mut undo);
        }
        Ok(files)
    }

    fn forget(&self, inode: &Arc<Inode>, undo: &mut Option<Undo>) {
        if let Some(undo) = undo.take() {
            self.bytes.fetch_sub(undo.bytes(), Ordering::Relaxed);
            self.files.lock().remove(&inode.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;
    use crate::faults::SECTOR;

    fn file_of(contents: &[u8]) -> File {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(contents, 0).unwrap();
        file
    }

    fn contents(file: &File) -> Vec<u8> {
        let mut contents = vec![0; file.metadata().unwrap().len() as usize];
        file.read_exact_at(&mut contents, 0).unwrap();
        contents
    }

    /// Writes, shrinks and grows at random, and checks that reverting restores the original contents.
    #[test]
    fn reverting_restores_the_durable_contents() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..50 {
            let mut old = vec![0; random.usize(0..40_000)];
            random.fill(&mut old);
            let file = file_of(&old);
            let mut undo = Undo {
                durable_size: old.len() as u64,
                blocks: BTreeMap::new(),
            };
            for _ in 0..random.usize(1..20) {
                let offset = random.u64(0..50_000);
                if random.bool() {
                    let data = vec![random.u8(..); random.usize(1..9000)];
                    undo.save(&file, offset, data.len() as u64).unwrap();
                    file.write_all_at(&data, offset).unwrap();
                } else {
                    undo.save(&file, offset, u64::MAX).unwrap();
                    file.set_len(offset).unwrap();
                }
            }
            undo.revert(&file, None).unwrap();
            assert!(contents(&file) == old, "{} bytes", old.len());
        }
    }

    #[test]
    fn torn_sectors_are_old_or_new() {
        let file = file_of(&[1; 65536]);
        let mut undo = Undo {
            durable_size: 65536,
            blocks: BTreeMap::new(),
        };
        undo.save(&file, 16384, 16384).unwrap();
        file.write_all_at(&[2; 16384], 16384).unwrap();
        let mut tear = Tear::new(1, SECTOR as u64);
        undo.revert(&file, Some(&mut tear)).unwrap();
        let after = contents(&file);
        let sectors: Vec<u8> = after
            .chunks(SECTOR)
            .map(|sector| {
                assert!(sector.iter().all(|byte| *byte == sector[0]));
                sector[0]
            })
            .collect();
        assert!(sectors[..32].iter().all(|byte| *byte == 1));
        assert!(sectors[64..].iter().all(|byte| *byte == 1));
        assert!(sectors[32..64].contains(&1) && sectors[32..64].contains(&2));
    }
}
