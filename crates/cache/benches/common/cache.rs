//! An extension on a private file, and pages to fill it with.

use std::ops::Range;
use std::os::fd::{BorrowedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cache::{
    Config, DeviceConfig, Extension, FileId, Generations, Group, InsertOutcome, OwnerIdentity,
    PageId, PolicyName, Source,
};
use fastrand::Rng;
use tempfile::TempDir;

use super::options::Outcome;

pub const PAGE: usize = 16384;

/// A buffer that direct I/O can read into.
#[repr(align(4096))]
pub struct Buffer(pub [u8; PAGE]);

impl Buffer {
    /// Random bytes, which do not compress.
    pub fn random(random: &mut Rng) -> Box<Buffer> {
        let mut buffer = Box::new(Buffer([0; PAGE]));
        random.fill(&mut buffer.0);
        buffer
    }

    /// A quarter random bytes, the rest always the same.
    pub fn compressible(random: &mut Rng) -> Box<Buffer> {
        let mut buffer = Box::new(Buffer([0; PAGE]));
        for chunk in buffer.0.chunks_exact_mut(64) {
            let (random_part, rest) = chunk.split_at_mut(16);
            random.fill(random_part);
            rest.fill(7);
        }
        buffer
    }

    /// Writes the page number where InnoDB stores it.
    pub fn stamp(&mut self, page: PageId) {
        self.0[4..8].copy_from_slice(&page.page.to_be_bytes());
    }
}

pub struct Cache {
    pub extension: Extension,
    pub generations: Arc<Generations>,
    _folder: TempDir,
}

impl Cache {
    /// An extension for `pages` pages on a new file in the directory; with a writer thread, or without (`open_inline`).
    ///
    /// # Errors
    /// The directory cannot be written to, or the extension cannot be opened there.
    pub fn open(
        directory: &Path,
        pages: u32,
        threaded: bool,
        change: impl FnOnce(&mut Config),
    ) -> Outcome<Cache> {
        let folder = tempfile::Builder::new()
            .prefix("bpe-bench-")
            .tempdir_in(directory)
            .map_err(|error| {
                format!("cannot make a folder in '{}': {error}", directory.display())
            })?;
        let device = DeviceConfig {
            path: folder.path().to_path_buf(),
            bytes: (64 << 10) + u64::from(pages) * PAGE as u64,
            owner: OwnerIdentity::default(),
            file_name: String::from("cache"),
        };
        let mut config = Config {
            devices: vec![device],
            policy: PolicyName::SecondChance,
            ..Config::default()
        };
        change(&mut config);
        let generations = Arc::new(Generations::new());
        let open = if threaded {
            Extension::open
        } else {
            Extension::open_inline
        };
        Ok(Cache {
            extension: open(config, Arc::clone(&generations))?,
            generations,
            _folder: folder,
        })
    }

    /// Stamps the bytes with the page number, and inserts them as that page.
    pub fn insert(&self, page: PageId, buffer: &mut Buffer) -> InsertOutcome {
        buffer.stamp(page);
        match self.generations.begin_read(page.file.0, page.page) {
            Some(ticket) => {
                self.extension
                    .insert(page, Group::NORMAL, &buffer.0, ticket, Source::Read)
            }
            None => InsertOutcome::Stale,
        }
    }

    /// Offers the page until staging has room for it.
    pub fn enter(&self, page: PageId, buffer: &mut Buffer) {
        while self.insert(page, buffer) == InsertOutcome::StagingFull {
            self.write_some();
        }
    }

    /// Enters each page, then waits until all are written.
    pub fn fill(&self, pages: impl Iterator<Item = PageId>, buffer: &mut Buffer) {
        pages.for_each(|page| self.enter(page, buffer));
        self.settle();
    }

    /// Waits until nothing is staged.
    pub fn settle(&self) {
        while self.extension.staged_bytes() > 0 {
            self.write_some();
        }
    }

    fn write_some(&self) {
        // False if there are writer threads, too.
        if !self.extension.pump() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Pages of the range that are uncompressed on the device, their offsets, and a private duplicate of the
    /// descriptor.
    ///
    /// # Errors
    /// No page is on the device.
    pub fn places(&self, file: FileId, numbers: Range<u32>) -> Outcome<Places> {
        let (mut pages, mut fd): (_, Option<RawFd>) = (Vec::new(), None);
        for number in numbers {
            let page = PageId::new(file, number);
            if let Some(located) = self.extension.locate(page, Group::NORMAL, PAGE, 0) {
                fd = Some(located.fd);
                pages.push((page, located.offset));
                self.extension.release(located);
            }
        }
        let fd = fd.ok_or("no page came to lie on the device")?;
        // SAFETY: the extension is open, and so is the descriptor while it is duplicated.
        let fd = unsafe { BorrowedFd::borrow_raw(fd) }.try_clone_to_owned()?;
        Ok(Places {
            file: fd.into(),
            pages,
        })
    }
}

/// Pages on a device, for reads that bypass the extension.
pub struct Places {
    pub file: std::fs::File,
    pub pages: Vec<(PageId, u64)>,
}

impl Places {
    /// A random one of them.
    pub fn any(&self, random: &mut Rng) -> (PageId, u64) {
        self.pages[random.usize(..self.pages.len())]
    }
}
