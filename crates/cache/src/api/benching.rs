//! A disk with a given write time, for the staging bench. Compiled with the feature `bench` only.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::api::extension::Extension;
use crate::common::config::{Config, OpenError};
use crate::device::queue::{Part, Queue};
use crate::device::storage::{Storage, write_all};
use crate::index::generation::Generations;

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

    fn queue(&self, _threaded: bool) -> Option<Box<dyn Queue>> {
        Some(Box::new(SlowQueue {
            file: self.file.try_clone().ok()?,
            time: self.time,
            under_way: Vec::new(),
        }))
    }
}

/// Writes in flight take that time each, in parallel, and happen when it has passed.
struct SlowQueue {
    file: File,
    time: Duration,
    under_way: Vec<Write>,
}

struct Write {
    slot: usize,
    due: Instant,
    parts: Vec<Part>,
    offset: u64,
}

// SAFETY: the parts stay unchanged until the write has completed, whichever thread polls.
unsafe impl Send for SlowQueue {}

impl Queue for SlowQueue {
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64) {
        self.under_way.push(Write {
            slot,
            due: Instant::now() + self.time,
            parts: parts.to_vec(),
            offset,
        });
    }

    fn complete(
        &mut self,
        _: usize,
        wait: Duration,
        completed: &mut Vec<(usize, io::Result<usize>)>,
    ) {
        let Some(first) = self.under_way.iter().map(|write| write.due).min() else {
            return;
        };
        std::thread::sleep(first.saturating_duration_since(Instant::now()).min(wait));
        let now = Instant::now();
        let (due, rest) = std::mem::take(&mut self.under_way)
            .into_iter()
            .partition(|write: &Write| write.due <= now);
        self.under_way = rest;
        let due: Vec<Write> = due;
        for write in due {
            let mut offset = write.offset;
            let written = write.parts.iter().try_fold(0, |sum, part| {
                // SAFETY: see `submit`.
                let bytes = unsafe { std::slice::from_raw_parts(part.start, part.bytes) };
                write_all(&self.file, bytes, offset)?;
                offset += part.bytes as u64;
                Ok(sum + part.bytes)
            });
            completed.push((write.slot, written));
        }
    }
}

/// As `Extension::open`, on disks whose writes take `time` each, at any length.
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
