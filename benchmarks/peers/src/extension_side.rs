//! The extension, with its defaults, as `bpe-lab replay` runs it: without threads, its writers getting a turn whenever enough is
//! staged. Their CPU time is the process's either way.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, bail};
use cache::{
    Config, DeviceConfig, Extension, FileId, Generations, Group, OwnerIdentity, PageId,
    ReadOutcome, Source,
};
use replay::Trace;

use crate::side::{Page, Side};

/// Staged bytes at which the writers get a turn.
const PUMP_AT: u64 = 512 << 10;

pub struct ExtensionSide {
    cache: Extension,
    generations: Arc<Generations>,
}

impl ExtensionSide {
    /// `bytes`: of the cache file.
    ///
    /// # Errors
    /// If the file cannot be made or is too small.
    pub fn open(folder: &Path, bytes: u64) -> Result<ExtensionSide> {
        let device = DeviceConfig {
            path: std::path::absolute(folder)?,
            bytes,
            owner: OwnerIdentity::default(),
            file_name: String::from("peers.bpe"),
        };
        let config = Config {
            devices: vec![device],
            ..Config::default()
        };
        let generations = Arc::new(Generations::new());
        Ok(ExtensionSide {
            cache: Extension::open_inline(config, Arc::clone(&generations))?,
            generations,
        })
    }

    fn make_room(&self) {
        if self.cache.staged_bytes() >= PUMP_AT {
            self.cache.pump();
        }
    }
}

impl Side for ExtensionSide {
    fn read(&mut self, page: Page, frame: &mut [u8], content: &[u8]) -> Result<bool> {
        let id = PageId::new(FileId(page.file), page.number);
        let Some(ticket) = self.generations.begin_read(page.file, page.number) else {
            return Ok(false);
        };
        let hit = self.cache.read(id, Group::NORMAL, frame) == ReadOutcome::Hit;
        if !hit {
            self.cache
                .insert(id, Group::NORMAL, content, ticket, Source::Read);
            self.make_room();
        }
        Ok(hit)
    }

    fn write(&mut self, page: Page, content: &[u8]) -> Result<()> {
        let (file, number) = (FileId(page.file), page.number);
        self.generations.begin_write(page.file, number, 1);
        let was_cached = self.cache.invalidate(file, number, 1);
        if let Some(ticket) = self.generations.end_write(page.file, number, 1) {
            let source = Source::Write { was_cached };
            let id = PageId::new(file, number);
            self.cache
                .insert(id, Group::NORMAL, content, ticket, source);
            self.make_room();
        }
        Ok(())
    }

    fn settle(&mut self) {
        self.cache.pump();
    }

    fn device_bytes(&self) -> u64 {
        self.cache.statistics().bytes_written_total
    }

    fn dropped(&self) -> u64 {
        self.cache.statistics().dropped_staging_full
    }

    fn memory_bytes(&self) -> u64 {
        self.cache.statistics().memory_bytes
    }

    fn pages_cached(&self, _trace: &Trace) -> u64 {
        self.cache.statistics().pages_cached
    }

    fn check(&self) -> Result<()> {
        let devices = self.cache.device_statistics();
        if let Some(device) = devices.iter().find(|device| !device.active) {
            bail!("the cache file failed during the replay: {}", device.state);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::side::{replay, tests};

    #[test]
    fn what_fits_is_hit() {
        let folder = tempfile::tempdir().unwrap();
        let trace = tests::stream();
        let open = || ExtensionSide::open(folder.path(), 64 << 20);
        tests::check_all_hits(&replay(&trace, 2000..6000, open).unwrap());
    }
}
