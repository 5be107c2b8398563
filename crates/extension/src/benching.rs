//! A disk whose writes take a given time, for the bench of staging. Compiled with the feature `bench` only.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use crate::config::{Config, OpenError};
use crate::device::storage::Storage;
use crate::extension::Extension;
use crate::generation::Generations;

struct Slow {
    file: File,
    time: Duration,
}

impl Storage for Slow {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Storage::read_at(&self.file, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        std::thread::sleep(self.time);
        Storage::write_at(&self.file, bytes, offset)
    }

    fn facts(&self) -> io::Result<(u64, u64)> {
        self.file.facts()
    }

    fn raw_fd(&self) -> RawFd {
        self.file.raw_fd()
    }
}

/// As `Extension::open`, on disks each of whose writes takes so long, whatever its length.
///
/// # Errors
/// As `Extension::open`.
pub fn open_slow(
    config: &Config,
    generations: Arc<Generations>,
    time: Duration,
) -> Result<Extension, OpenError> {
    let wrap = move |file| -> Box<dyn Storage> { Box::new(Slow { file, time }) };
    Extension::open_with(config, generations, Arc::new(wrap), true)
}
