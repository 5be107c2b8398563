//! The old contents of one file, and their restoration.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::faults::SECTOR;

/// Granularity of saved contents.
const BLOCK: u64 = 4096;

/// Partial power loss: each aligned unit of `unit` bytes of the unsynced changes survives as a whole or not at all, at
/// random.
pub(crate) struct Tear {
    pub unit: u64,
    pub random: fastrand::Rng,
}

impl Tear {
    pub fn new(seed: u64, unit: u64) -> Tear {
        Tear {
            unit: unit.next_multiple_of(SECTOR as u64).max(SECTOR as u64),
            random: fastrand::Rng::with_seed(seed),
        }
    }
}

/// The durable contents of a file's changed blocks.
pub(crate) struct Undo {
    pub(crate) durable_size: u64,
    /// Old contents by block number; `None` for zeros.
    pub(crate) blocks: BTreeMap<u64, Option<Box<[u8]>>>,
}

impl Undo {
    pub(crate) fn save(&mut self, file: &File, offset: u64, length: u64) -> io::Result<u64> {
        let end = offset.saturating_add(length).min(self.durable_size);
        let mut saved = 0;
        let mut buffer = [0; BLOCK as usize];
        for block in offset / BLOCK..end.div_ceil(BLOCK) {
            let std::collections::btree_map::Entry::Vacant(entry) = self.blocks.entry(block) else {
                continue;
            };
            let read = read_fully(file, &mut buffer, block * BLOCK)?;
            buffer[read..].fill(0);
            entry.insert(if buffer.iter().all(|byte| *byte == 0) {
                None
            } else {
                saved += BLOCK;
                Some(buffer.into())
            });
        }
        Ok(saved)
    }

    pub(crate) fn revert(&self, file: &File, mut torn: Option<&mut Tear>) -> io::Result<()> {
        if file.metadata()?.len() != self.durable_size {
            file.set_len(self.durable_size)?;
        }
        let zeros = [0; BLOCK as usize];
        let (mut unit, mut lost) = (None, false);
        for (block, old) in &self.blocks {
            let old = old.as_deref().unwrap_or(&zeros);
            let start = block * BLOCK;
            let length = (self.durable_size - start).min(BLOCK) as usize;
            let Some(tear) = &mut torn else {
                file.write_all_at(&old[..length], start)?;
                continue;
            };
            for (n, sector) in old[..length].chunks(SECTOR).enumerate() {
                let offset = start + (n * SECTOR) as u64;
                if unit.replace(offset / tear.unit) != Some(offset / tear.unit) {
                    lost = tear.random.bool();
                }
                if lost {
                    file.write_all_at(sector, offset)?;
                }
            }
        }
        Ok(())
    }

    pub(crate) fn offsets(&self) -> impl Iterator<Item = u64> + '_ {
        self.blocks.keys().map(|block| block * BLOCK)
    }

    pub(crate) fn bytes(&self) -> u64 {
        let full = self.blocks.values().filter(|old| old.is_some()).count();
        full as u64 * BLOCK
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_fully(file: &File, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}
