//! Interim: the interface over a map in memory.
use std::collections::HashMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadOutcome {
    /// The buffer holds the page, proven.
    Hit,
    /// The buffer's contents are undefined.
    Miss(MissReason),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MissReason {
    /// Not cached.
    Absent,
    /// Cached, but on a device that has failed.
    DeviceFailed,
    /// The device's read failed or came short.
    DeviceError,
    /// The page's segment was reclaimed during the read.
    Reclaimed,
    /// The page was invalidated during the read.
    Invalidated,
    /// The bytes read were not the page; the entry was dropped.
    FailedProof,
    /// Another page shares the fingerprint.
    Collision,
    /// No page of this length can be, or is, cached here.
    Unsuitable,
}

/// Where offered bytes come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    Read,
    /// `was_cached`: what `invalidate` returned for the write.
    Write {
        was_cached: bool,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OfferOutcome {
    Admitted,
    AlreadyCached,
    /// By admission.
    Rejected,
    StagingFull,
    /// A write has begun since the ticket was given.
    Stale,
    /// Not the length of a page, or no device is active.
    Unsuitable,
}

/// A page lies at `offset` of `fd`, `length` bytes, uncompressed. `fd` stays open as long as this value lives.
#[derive(Debug)]
pub struct Located {
    pub fd: RawFd,
    pub offset: u64,
    pub length: u32,
    pub page: PageId,
}

pub struct Extension {
    pages: Mutex<HashMap<PageId, Vec<u8>>>,
    generations: Arc<Generations>,
    hits: AtomicU64,
}

pub fn check_device(config: &DeviceConfig) -> Result<DeviceFacts, OpenError> {
    Ok(DeviceFacts {
        path: config.path.join(&config.file_name),
        exists: false,
        direct: true,
        device_number: 0,
        free_bytes: 0,
        segment_bytes: 1 << 20,
    })
}

impl Extension {
    pub fn open(config: Config, generations: Arc<Generations>) -> Result<Extension, OpenError> {
        if config.devices.is_empty() {
            return Err(OpenError::NoDevice);
        }
        Ok(Extension {
            pages: Mutex::default(),
            generations,
            hits: AtomicU64::new(0),
        })
    }
    /// Reads the page into `buffer`, whose length is the physical page size.
    pub fn read(&self, page: PageId, buffer: &mut [u8]) -> ReadOutcome {
        match self.pages.lock().get(&page) {
            Some(bytes) if bytes.len() == buffer.len() => {
                buffer.copy_from_slice(bytes);
                self.hits.fetch_add(1, Ordering::Relaxed);
                ReadOutcome::Hit
            }
            _ => ReadOutcome::Miss(MissReason::Absent),
        }
    }
    pub fn locate(&self, _page: PageId, _length: usize) -> Option<Located> {
        None
    }
    pub fn prove(&self, _located: &Located, _bytes: &[u8]) -> bool {
        false
    }
    pub fn release(&self, _located: Located) {}
    /// The read of a located page failed with this errno (0: it came short).
    pub fn release_failed(&self, _located: Located, _errno: i32) {}
    pub fn offer(
        &self,
        page: PageId,
        bytes: &[u8],
        ticket: ReadTicket,
        _source: Source,
    ) -> OfferOutcome {
        let mut pages = self.pages.lock();
        if !self.generations.is_current(ticket) {
            return OfferOutcome::Stale;
        }
        if pages.len() < 1024 {
            pages.insert(page, bytes.to_vec());
        }
        OfferOutcome::Admitted
    }
    pub fn invalidate(&self, file: FileId, first: u32, pages: u32) -> bool {
        let mut map = self.pages.lock();
        let before = map.len();
        map.retain(|p, _| p.file != file || p.page.wrapping_sub(first) >= pages);
        map.len() < before
    }
    pub fn forget_file(&self, file: FileId) {
        self.pages.lock().retain(|p, _| p.file != file);
    }
    pub fn set_io_capacity(&self, _bytes_per_second: u64) {}
    pub fn set_admission(&self, _mode: AdmissionMode) {}
    pub fn statistics(&self) -> Statistics {
        Statistics {
            hits: self.hits.load(Ordering::Relaxed),
            ..Statistics::default()
        }
    }
    pub fn instance_statistics(&self) -> Vec<InstanceStatistics> {
        vec![InstanceStatistics::default()]
    }
    pub fn device_statistics(&self) -> Vec<DeviceStatistics> {
        vec![DeviceStatistics::default()]
    }
    pub fn file_pages(&self, files: &[FileId]) -> Vec<u64> {
        let pages = self.pages.lock();
        files
            .iter()
            .map(|f| pages.keys().filter(|p| p.file == *f).count() as u64)
            .collect()
    }
}
