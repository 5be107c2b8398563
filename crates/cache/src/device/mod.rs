//! A device: one cache file, its reads and writes, and its health.
//!
//! Any thread reads; only the device's writer writes. A failed device ([`health`]) serves no reads. Its writer removes every
//! entry that points to it before the device is used again. The segments' sequence numbers reveal this to reads that were
//! in flight throughout.
//!
//! - File: [`file`], [`storage`] (its I/O), [`directness`], [`exposure`] (who can read it).
//! - Reads: [`bounded`] (with a time limit), [`submission`], [`kernel`] (requests of Linux).
//! - Writes: [`queue`].
//! - Contents: [`segment`], [`compression`].
//! - Condition: [`health`], [`speed`].

pub(crate) mod bounded;
pub(crate) mod compression;
mod directness;
pub(crate) mod exposure;
pub(crate) mod file;
pub(crate) mod health;
pub(crate) mod kernel;
pub(crate) mod queue;
pub(crate) mod segment;
pub(crate) mod speed;
pub(crate) mod storage;
pub(crate) mod submission;

use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;

use crate::common::config::{DeviceConfig, OpenError};
use crate::common::memory::BOUNCE;
use crate::common::statistics::{Counter, DeviceStatistics};
use bounded::{Request, Unread};
use file::{CacheFile, Wrap};
use health::Health;
use queue::Part;
use segment::format::{BLOCK, Header, SegmentName};
use segment::{Geometry, Table};
use speed::Speed;
use storage::{Closed, read_exact, write_all};
use submission::Submissions;

pub(crate) struct Device {
    pub config: DeviceConfig,
    path: ArcSwap<PathBuf>,
    pub geometry: Geometry,
    pub table: Table,
    pub health: Health,
    pub speed: Speed,
    pub session: u64,
    read_timeout: Option<Duration>,
    /// Reads of this file cannot be bounded. An independent value: `Relaxed` everywhere; a thread with an outdated value finds out
    /// again.
    unbounded: AtomicBool,
    file: ArcSwap<CacheFile>,
    closed: AtomicBool,
    /// The file is kept for another process when it is closed. Set before that. Same ordering as `closed`.
    persisted: AtomicBool,
    /// Pages of several lengths have left holes that are too small, so segments must be emptied, and one is kept in reserve. Set
    /// once, by the device's writer. `Relaxed` everywhere: an outdated value overestimates the room a little.
    pub compacts: AtomicBool,
    pub free_segments: Counter,
    /// Bytes of staged pages that its writer has taken and that are not on the device yet.
    pub in_hand: Counter,
    pub reads: Counter,
    pub bytes_read: Counter,
    pub writes: Counter,
    pub bytes_written: Counter,
}

/// Why a read or write failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The device has failed, or does not answer in time.
    Failed,
    /// This read or write failed, or the read was short.
    Error,
}

impl Device {
    /// A device that is not opened yet, and counts as failed until then.
    pub fn new(
        config: &DeviceConfig,
        geometry: Geometry,
        table: Table,
        session: u64,
        read_timeout: Option<Duration>,
    ) -> Device {
        let path = file::file_path(config).unwrap_or_else(|_| config.path.clone());
        Device {
            config: config.clone(),
            path: ArcSwap::from_pointee(path),
            geometry,
            table,
            health: Health::new(),
            speed: Speed::new(),
            session,
            read_timeout,
            unbounded: AtomicBool::new(false),
            file: ArcSwap::from_pointee(CacheFile::closed()),
            // Nothing is to be removed before the file is open.
            closed: AtomicBool::new(true),
            persisted: AtomicBool::new(false),
            compacts: AtomicBool::new(false),
            free_segments: Counter::default(),
            in_hand: Counter::default(),
            reads: Counter::default(),
            bytes_read: Counter::default(),
            writes: Counter::default(),
            bytes_written: Counter::default(),
        }
    }

    /// Opens the cache file at the currently configured place. Keeps the contents if they are wanted and belong to this session;
    /// returns whether it did.
    pub fn open(&self, contents: bool, wrap: &Wrap) -> Result<bool, OpenError> {
        let path = file::file_path(&self.config)?;
        let file = CacheFile::open(&self.config, self.header(true), contents, wrap)?;
        let kept = file.kept;
        let fd = file.storage.raw_fd();
        if fd >= 0 {
            // SAFETY: the descriptor of the file just opened, which stays open.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            self.health.overdue.submissions.begin_with(fd);
        }
        self.path.store(Arc::new(path));
        self.file.store(Arc::new(file));
        self.closed.store(false, Ordering::SeqCst);
        self.free_segments.set(u64::from(self.geometry.segments));
        Ok(kept)
    }

    pub fn path(&self) -> Arc<PathBuf> {
        self.path.load_full()
    }

    pub fn header(&self, in_use: bool) -> Header {
        Header {
            in_use,
            owner: self.config.owner,
            // Differs for each device: disks that are swapped lose their contents.
            session: self.session ^ u64::from(self.geometry.base),
            file_bytes: self.geometry.file_bytes(),
            segment_bytes: self.geometry.segment_bytes,
        }
    }

    pub fn segment_name(&self, segment: u32) -> SegmentName {
        SegmentName {
            session: self.session,
            segment,
            sequence: self.table.sequence(segment),
        }
    }

    pub fn file(&self) -> Arc<CacheFile> {
        self.file.load_full()
    }

    /// Releases the file. Its descriptor is closed once no located page holds it.
    pub fn close_file(&self) {
        self.file.store(Arc::new(CacheFile::closed()));
    }

    /// Removes the file permanently, or releases it if it is to be kept.
    pub fn close(&self) {
        if !self.closed.swap(true, Ordering::SeqCst) {
            if !self.is_persisted() {
                self.file.load().remove(&self.path(), self.header(false));
            }
            self.close_file();
        }
    }

    /// Keeps the file for another process.
    pub fn persist(&self) {
        self.persisted.store(true, Ordering::SeqCst);
    }

    pub fn is_persisted(&self) -> bool {
        self.persisted.load(Ordering::SeqCst)
    }

    /// Whether a page at this location can be read directly into a buffer at this address.
    pub fn suits(&self, file: &CacheFile, location: u32, address: usize, length: usize) -> bool {
        let offset = self.geometry.offset_of(location);
        (offset as usize | address | length) & (file.alignment - 1) == 0
    }

    /// Reads the stored bytes at `location` into `buffer`, whatever its alignment.
    pub fn read_into(&self, location: u32, buffer: &mut [u8]) -> Result<(), Fault> {
        let file = self.file.load();
        let suits = self.suits(&file, location, buffer.as_ptr() as usize, buffer.len());
        if suits && self.bound(&file).is_none() {
            let offset = self.geometry.offset_of(location);
            self.read_if_healthy(buffer.len(), || {
                read_exact(&*file.storage, buffer, offset).map_err(Unread::Failed)
            })
        } else {
            drop(file);
            self.read_with(location, buffer.len(), |bytes| {
                buffer.copy_from_slice(bytes)
            })
        }
    }

    /// Reads whole blocks into aligned memory, without a bound. Only for the device's writer, which may block.
    pub fn read_whole(&self, location: u32, buffer: &mut [u8]) -> Result<(), Fault> {
        debug_assert_eq!(buffer.len() % BLOCK, 0);
        let file = self.file.load();
        self.reads.add(1);
        match read_exact(&*file.storage, buffer, self.geometry.offset_of(location)) {
            Ok(()) => {
                self.bytes_read.add(buffer.len() as u64);
                self.health.note_success();
                Ok(())
            }
            Err(error) => {
                self.health.note_error(&error);
                Err(Fault::Error)
            }
        }
    }

    /// Reads `length` bytes, at most a largest page, into the memory of a slot and passes them on.
    pub fn read_with<R>(
        &self,
        location: u32,
        length: usize,
        pass: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, Fault> {
        let file = self.file.load();
        let mask = file.alignment - 1;
        let offset = self.geometry.offset_of(location);
        let before = offset as usize & mask;
        let whole = (before + length + mask) & !mask;
        if whole > BOUNCE {
            return Err(Fault::Error);
        }
        let start = offset - before as u64;
        let mut pass = Some(pass);
        let mut pass = |bytes: &[u8]| {
            let pass = pass.take();
            pass.map(|pass| pass(&bytes[before..before + length]))
        };
        let passed = self.read_if_healthy(length, || {
            if let Some(bound) = self.bound(&file) {
                let request = Request {
                    file: &file,
                    offset: start,
                    bytes: whole,
                    bound,
                    overdue: &self.health.overdue,
                };
                match bounded::read(&request, &mut pass) {
                    Err(Unread::Unsupported) => self.unbounded.store(true, Ordering::Relaxed),
                    other => return other,
                }
            }
            // The number of slots is limited: without a free one the page is not read from this device.
            let mut slot = bounded::lend(whole).ok_or(Unread::Busy)?;
            read_exact(&*file.storage, slot.bytes_mut(), start).map_err(Unread::Failed)?;
            // SAFETY: the read has ended.
            Ok(pass(unsafe { slot.bytes() }))
        });
        passed?.ok_or(Fault::Error)
    }

    /// Bound of a read of the file; `None`: unbounded.
    pub fn bound(&self, file: &CacheFile) -> Option<Duration> {
        let bounded = file.direct && !self.unbounded.load(Ordering::Relaxed);
        self.read_timeout
            .filter(|_| bounded && file.storage.raw_fd() >= 0)
    }

    fn read_if_healthy<R>(
        &self,
        bytes: usize,
        read: impl FnOnce() -> Result<R, Unread>,
    ) -> Result<R, Fault> {
        let underway = self.health.begin_read().ok_or(Fault::Failed)?;
        let result = read();
        drop(underway);
        self.reads.add(1);
        match result {
            Ok(passed) => {
                self.bytes_read.add(bytes as u64);
                self.health.note_success();
                Ok(passed)
            }
            Err(Unread::Failed(error)) => {
                self.health.note_error(&error);
                Err(Fault::Error)
            }
            Err(Unread::Busy) => {
                self.health.overdue.submissions.busy.add(1);
                Err(Fault::Failed)
            }
            Err(Unread::Overdue | Unread::Unsupported) => Err(Fault::Failed),
        }
    }

    /// Requests in flight at the device.
    pub fn submissions(&self) -> &Submissions {
        &self.health.overdue.submissions
    }

    /// Writes whole blocks. Called by the device's writer.
    pub fn write(&self, bytes: &[u8], offset: u64) -> Result<(), Fault> {
        debug_assert!(bytes.len() % BLOCK == 0 && offset % BLOCK as u64 == 0);
        debug_assert!(offset + bytes.len() as u64 <= self.geometry.file_bytes());
        let file = self.file.load();
        self.writes.add(1);
        let write = || {
            self.submissions()
                .during_write(bytes.len(), || write_all(&*file.storage, bytes, offset))
        };
        match self.speed.measured(bytes.len(), write) {
            Ok(()) => {
                self.bytes_written.add(bytes.len() as u64);
                Ok(())
            }
            Err(error) => {
                self.health.note_write_error(&error);
                Err(Fault::Error)
            }
        }
    }

    /// Handles the completion of a submitted write: `result` is the number of bytes written. Writes missing bytes now.
    pub fn completed(
        &self,
        parts: &[Part],
        offset: u64,
        began: Instant,
        result: io::Result<usize>,
    ) -> Result<(), Fault> {
        let bytes: usize = parts.iter().map(|part| part.bytes).sum();
        let result = match result {
            Ok(written) => self.write_rest(parts, offset, written),
            // A write that is impossible asynchronously may succeed synchronously.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(
                        libc::EAGAIN | libc::EINVAL | libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP
                    )
                ) =>
            {
                self.write_rest(parts, offset, 0)
            }
            Err(error) => Err(error),
        };
        self.writes.add(1);
        self.speed.completed(bytes, began);
        match result {
            Ok(()) => {
                self.bytes_written.add(bytes as u64);
                Ok(())
            }
            Err(error) => {
                self.health.note_write_error(&error);
                Err(Fault::Error)
            }
        }
    }

    /// Writes these parts except the first `written` bytes.
    fn write_rest(&self, parts: &[Part], mut offset: u64, mut written: usize) -> io::Result<()> {
        let file = self.file.load();
        for part in parts {
            if written < part.bytes {
                // SAFETY: the owner of the write holds the memory.
                let bytes = unsafe { std::slice::from_raw_parts(part.start, part.bytes) };
                // From a whole block on: direct writes need that.
                let from = written / BLOCK * BLOCK;
                write_all(&*file.storage, &bytes[from..], offset + from as u64)?;
            }
            written = written.saturating_sub(part.bytes);
            offset += part.bytes as u64;
        }
        Ok(())
    }

    /// Status text for administrators.
    fn describe(&self) -> String {
        let mut text = match self.silence() {
            Some(silence) => format!(
                "takes no writes: none was completed for {} s; look whether its file system is frozen",
                silence.as_secs()
            ),
            None => self.health.describe(),
        };
        if self.unbounded.load(Ordering::Relaxed) {
            text.push_str(
                "; the kernel gives no asynchronous reads of it, so reads have no timeout",
            );
        }
        if self.health.answers() {
            text.push_str(self.health.overdue.submissions.describe());
        }
        if self.health.active() && self.speed.lags() {
            text.push_str(
                "; its writes take much longer than those of other devices, so it gets fewer",
            );
        }
        text
    }

    /// Age of the oldest write in flight, if it is excessive and the device is otherwise healthy.
    fn silence(&self) -> Option<Duration> {
        self.speed.silence().filter(|_| self.health.answers())
    }

    pub fn statistics(&self) -> DeviceStatistics {
        DeviceStatistics {
            path: self.path().to_path_buf(),
            bytes: self.geometry.file_bytes(),
            segment_bytes: self.geometry.segment_bytes,
            segments: self.geometry.segments.into(),
            free_segments: self.free_segments.get(),
            pages: self.table.cached().0,
            bytes_written: self.bytes_written.get(),
            bytes_read: self.bytes_read.get(),
            reads: self.reads.get(),
            writes: self.writes.get(),
            errors: self.health.errors(),
            reads_given_up: self.health.overdue.given_up.get(),
            reads_busy: self.health.overdue.submissions.busy.get(),
            reads_handed_over: self.health.overdue.submissions.handed_over(),
            request_slots: self
                .health
                .overdue
                .submissions
                .slots
                .load(Ordering::Relaxed)
                .into(),
            active: self.health.answers() && self.speed.silence().is_none(),
            state: self.describe(),
            write_us: self.speed.micros(),
            direct_io: self.file.load().direct,
        }
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        self.close();
    }
}

impl CacheFile {
    /// Placeholder for a released file.
    pub fn closed() -> CacheFile {
        CacheFile::of(Box::new(Closed))
    }
}
