//! Tests of the whole engine, and their shared fixtures.

#[cfg(not(checker))]
mod balancing;
#[cfg(not(checker))]
mod basics;
#[cfg(not(checker))]
mod faults;
#[cfg(not(checker))]
mod groups;
#[cfg(not(checker))]
mod in_flight;
#[cfg(checker)]
mod interleavings;
#[cfg(not(checker))]
mod model;
#[cfg(not(any(checker, miri)))]
mod persistence;
#[cfg(not(checker))]
mod policy;
#[cfg(not(checker))]
mod warming;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use crate::{
    Config, DeviceConfig, Extension, FileId, Generations, Group, InsertOutcome, OwnerIdentity,
    PageId, PolicyName, ReadOutcome, Source,
};

/// Switches that break the engine, to prove that the tests detect it.
#[derive(Default)]
pub(crate) struct Canary {
    pub generation: AtomicBool,
    pub invalidation: AtomicBool,
    pub proof: AtomicBool,
    /// Lock-free readers do not observe evictions.
    pub eviction: AtomicBool,
    /// Breaks nothing: segments are emptied, and none is reopened.
    pub compaction: AtomicBool,
}

impl Canary {
    pub fn skip_generation(&self) -> bool {
        self.generation.load(Ordering::Relaxed)
    }

    pub fn skip_invalidation(&self) -> bool {
        self.invalidation.load(Ordering::Relaxed)
    }

    pub fn skip_reopening(&self) -> bool {
        self.compaction.load(Ordering::Relaxed)
    }

    pub fn skip_counting_evictions(&self) -> bool {
        self.eviction.load(Ordering::Relaxed)
    }

    pub fn skip_proof(&self) -> bool {
        self.proof.load(Ordering::Relaxed)
    }
}

/// Size of the smallest device.
pub(crate) const SMALLEST: u64 = crate::device::segment::MIN_DEVICE_BYTES;

pub(crate) fn device(directory: &Path, name: &str, bytes: u64) -> DeviceConfig {
    DeviceConfig {
        path: directory.to_path_buf(),
        bytes,
        owner: OwnerIdentity([1; 16]),
        file_name: name.to_owned(),
    }
}

pub(crate) fn config(directory: &Path, bytes: u64) -> Config {
    Config {
        devices: vec![device(directory, "cache", bytes)],
        instances: 4,
        policy: PolicyName::SecondChance,
        ..Config::default()
    }
}

/// Content of `page` in version `version`: its number where InnoDB stores it, the version, and bytes that depend on
/// everything. It compresses to half.
pub(crate) fn content(page: PageId, version: u32, length: usize) -> Vec<u8> {
    let seed = crate::common::page::mix64((u64::from(version) << 32) ^ page.hash());
    let mut bytes = vec![0; length];
    for (n, word) in bytes.chunks_exact_mut(16).enumerate() {
        let value = (seed ^ n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        word[..8].copy_from_slice(&value.to_le_bytes());
    }
    bytes[4..8].copy_from_slice(&page.page.to_be_bytes());
    bytes[8..12].copy_from_slice(&version.to_le_bytes());
    bytes
}

pub(crate) fn version_of(bytes: &[u8]) -> u32 {
    u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]])
}

/// An extension in a private directory.
pub(crate) struct Fixture {
    pub extension: Extension,
    pub generations: Arc<Generations>,
    pub directory: TempDir,
}

pub(crate) fn inline(change: impl FnOnce(&mut Config)) -> Fixture {
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), SMALLEST);
    change(&mut config);
    let generations = Arc::new(Generations::new());
    let extension = Extension::open_inline(config, Arc::clone(&generations)).unwrap();
    Fixture {
        extension,
        generations,
        directory,
    }
}

pub(crate) fn page(file: u32, page: u32) -> PageId {
    PageId::new(FileId(file), page)
}

impl Fixture {
    pub fn insert(&self, page: PageId, version: u32, length: usize) -> InsertOutcome {
        let ticket = self.generations.begin_read(page.file.0, page.page).unwrap();
        self.extension.insert(
            page,
            Group::NORMAL,
            &content(page, version, length),
            ticket,
            Source::Read,
        )
    }

    /// Reads the page and asserts that a hit has this version.
    pub fn read(&self, page: PageId, version: u32, length: usize) -> ReadOutcome {
        let mut buffer = vec![0xee; length];
        let outcome = self.extension.read(page, Group::NORMAL, &mut buffer);
        if outcome == ReadOutcome::Hit {
            assert!(buffer == content(page, version, length), "{page:?}");
        }
        outcome
    }

    /// Writes the page, and inserts the written version.
    pub fn write(&self, page: PageId, version: u32, length: usize) -> InsertOutcome {
        self.generations.begin_write(page.file.0, page.page, 1);
        let was_cached = self.extension.invalidate(page.file, page.page, 1);
        let ticket = self
            .generations
            .end_write(page.file.0, page.page, 1)
            .unwrap();
        self.extension.insert(
            page,
            Group::NORMAL,
            &content(page, version, length),
            ticket,
            Source::Write { was_cached },
        )
    }

    pub fn pump(&self) {
        while self.extension.pump() {}
    }

    /// Checks the invariants of an idle engine.
    pub fn check_books(&self) {
        let figures = self.extension.validate();
        let statistics = self.extension.statistics();
        assert_eq!(
            figures.map(|figures| (figures.pages, figures.staged)),
            Ok((statistics.pages_cached, statistics.pages_staged))
        );
        let on_devices: u64 = self
            .extension
            .device_statistics()
            .iter()
            .map(|d| d.pages)
            .sum();
        assert_eq!(
            on_devices + statistics.pages_staged,
            statistics.pages_cached,
            "{statistics:?}"
        );
        if statistics.pages_staged == 0 {
            assert_eq!(self.extension.staged_bytes(), 0, "frames were lost");
        }
    }
}
