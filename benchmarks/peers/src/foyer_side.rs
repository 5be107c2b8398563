//! foyer's hybrid cache: memory over its block engine.
//!
//! Its defaults hold for everything but the sizes, direct I/O, and what a [`Variant`] is there for. It is given time to
//! flush: whenever half of what its queue takes may have been queued, the replay waits until it is written, so that no entry
//! is dropped for a full queue.

use std::num::NonZeroUsize;
use std::path::Path;

use anyhow::{Result, bail};
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, Throttle,
};
use replay::{PAGE_BYTES, Trace};
use tokio::runtime::Runtime;

use crate::overflow::Overflow;
use crate::side::{Page, Side};

/// foyer's default.
const BLOCK_BYTES: usize = 16 << 20;
/// Bytes that may go to the queue before the replay waits. foyer drops entries from 16 MiB on.
const WAIT_AT: usize = 8 << 20;
/// Bytes of a page on the device: with its header, in units of 4 KiB.
const ENTRY_BYTES: usize = PAGE_BYTES + 4096;

#[derive(Clone, Copy, Debug)]
pub struct Variant {
    /// Past the page cache.
    pub direct: bool,
    /// Of what is evicted at a time. foyer uses only whole blocks of a device.
    pub block_bytes: usize,
    /// A page that is written is inserted whether it was cached or not.
    pub all_writes: bool,
    /// Bytes per second.
    pub write_limit: Option<NonZeroUsize>,
}

impl Default for Variant {
    fn default() -> Variant {
        Variant {
            direct: true,
            block_bytes: BLOCK_BYTES,
            all_writes: false,
            write_limit: None,
        }
    }
}

pub struct FoyerSide {
    /// Dropped before the runtime it runs on.
    cache: HybridCache<u64, Vec<u8>>,
    runtime: Runtime,
    overflow: Overflow,
    all_writes: bool,
    memory_bytes: u64,
    /// Bytes that may have been queued since the last wait.
    queued: usize,
}

impl FoyerSide {
    /// # Errors
    /// If files or threads cannot be made.
    pub fn open(
        folder: &Path,
        bytes: u64,
        memory_bytes: u64,
        variant: Variant,
    ) -> Result<FoyerSide> {
        // As `#[tokio::main]` makes it, which foyer's documentation uses.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()?;
        let overflow = Overflow::default();
        let mut throttle = Throttle::new();
        throttle.write_throughput = variant.write_limit;
        let cache = runtime.block_on(async {
            let device = FsDeviceBuilder::new(folder)
                .with_capacity((bytes as usize).next_multiple_of(variant.block_bytes))
                .with_throttle(throttle)
                .with_direct(variant.direct)
                .build()?;
            HybridCacheBuilder::new()
                .with_metrics_registry(Box::new(overflow.clone()))
                .with_flush_on_close(false)
                .memory(memory_bytes as usize)
                .with_weighter(|_: &u64, page: &Vec<u8>| size_of::<u64>() + page.len())
                .storage()
                .with_engine_config(
                    BlockEngineConfig::new(device).with_block_size(variant.block_bytes),
                )
                .build()
                .await
        })?;
        Ok(FoyerSide {
            cache,
            runtime,
            overflow,
            all_writes: variant.all_writes,
            memory_bytes,
            queued: 0,
        })
    }

    /// A page came into memory, which may have pushed another out to the device.
    fn note_insertion(&mut self) {
        self.queued += ENTRY_BYTES;
        if self.queued >= WAIT_AT {
            self.settle();
        }
    }
}

fn key(page: Page) -> u64 {
    u64::from(page.file) << 32 | u64::from(page.number)
}

impl Side for FoyerSide {
    fn read(&mut self, page: Page, frame: &mut [u8], content: &[u8]) -> Result<bool> {
        let key = key(page);
        let found = self.runtime.block_on(self.cache.get(&key))?;
        let hit = match &found {
            Some(entry) => {
                frame.copy_from_slice(entry.value());
                true
            }
            None => {
                self.cache.insert(key, content.to_vec());
                false
            }
        };
        drop(found);
        self.note_insertion();
        Ok(hit)
    }

    fn write(&mut self, page: Page, content: &[u8]) -> Result<()> {
        let key = key(page);
        let was_cached = self.cache.contains(&key);
        if was_cached {
            // As the extension does: dropped before the write, so that no failure to queue the new one leaves the old.
            self.cache.remove(&key);
        }
        if was_cached || self.all_writes {
            self.cache.insert(key, content.to_vec());
            self.note_insertion();
        }
        Ok(())
    }

    fn settle(&mut self) {
        self.runtime.block_on(self.cache.storage().wait());
        self.queued = 0;
    }

    fn device_bytes(&self) -> u64 {
        self.cache.statistics().disk_write_bytes() as u64
    }

    fn dropped(&self) -> u64 {
        self.overflow.count()
    }

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes
    }

    fn pages_cached(&self, trace: &Trace) -> u64 {
        (0..trace.distinct_pages() as u32)
            .map(|index| trace.page(index))
            .filter(|page| {
                let (file, number) = (page.file, page.number);
                self.cache.contains(&key(Page { file, number }))
            })
            .count() as u64
    }

    fn check(&self) -> Result<()> {
        if !self.cache.is_hybrid() {
            bail!("foyer runs without its disk cache");
        }
        Ok(())
    }
}

impl Drop for FoyerSide {
    fn drop(&mut self) {
        // Nothing of the cache is wanted any more.
        let _ = self.runtime.block_on(self.cache.close());
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
        let variant = Variant {
            direct: false,
            ..Variant::default()
        };
        let open = || FoyerSide::open(folder.path(), 64 << 20, 1 << 20, variant);
        tests::check_all_hits(&replay(&trace, 2000..6000, open).unwrap());
    }
}
