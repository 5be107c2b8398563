//! How many persisted files and pages this process trusts, and why it has rejected the others.
//!
//! Lock order: leaf.

use extension::FileId;

use crate::manifest::{PersistedFile, Rejection};
use crate::os::FileSystem;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// The reasons of so many files are kept.
const MAX_REASONS: usize = 16;
/// So many rejected files wait until their pages are listed. The pages of more are evicted in time.
const MAX_REJECTED: usize = 65_536;

/// The outcome for each persisted file.
pub struct Recoveries {
    outcomes: Mutex<Outcomes>,
    /// Nothing may be served yet.
    withheld: AtomicBool,
    /// The highest LSN of a page that the process before has written, and of one that was served of a recovered file.
    written: AtomicU64,
    served: AtomicU64,
}

/// Names of files, and why their pages are not served.
pub type Reasons = Vec<(String, Rejection)>;

/// Files and pages by outcome. Page counts are approximate.
#[derive(Clone, Default)]
pub struct Report {
    /// Not opened by the server yet.
    pub pending: (u64, u64),
    /// Proven: their pages are served.
    pub trusted: (u64, u64),
    /// Not proven: their pages are dropped, and listed for the loader.
    pub rejected: (u64, u64),
    /// Of the first rejected files.
    pub reasons: Reasons,
}

/// Queries of the status copy the report alone.
struct Outcomes {
    report: Report,
    /// Files whose pages are to be listed and dropped.
    unlisted: Vec<RejectedFile>,
    /// File systems of devices that were asked for.
    systems: Vec<(u64, Option<FileSystem>)>,
}

/// A file whose entries are out of reach, and still take room.
#[derive(Clone, Copy)]
pub struct RejectedFile {
    /// The number of its object.
    pub owner: u32,
    /// The identity under which its pages were cached.
    pub id: FileId,
    /// Pages that the file has now.
    pub pages: u32,
    /// Bytes of a page.
    pub page_size: u32,
    /// The pages are still the file's, perhaps in another version: worth loading.
    pub is_listed: bool,
}

impl Default for Recoveries {
    fn default() -> Recoveries {
        Recoveries::new()
    }
}

impl Recoveries {
    /// There is no persisted file.
    pub const fn new() -> Recoveries {
        Recoveries {
            outcomes: Mutex::new(Outcomes {
                report: Report {
                    pending: (0, 0),
                    trusted: (0, 0),
                    rejected: (0, 0),
                    reasons: Vec::new(),
                },
                unlisted: Vec::new(),
                systems: Vec::new(),
            }),
            withheld: AtomicBool::new(false),
            written: AtomicU64::new(0),
            served: AtomicU64::new(0),
        }
    }

    /// The process before has written a page with this LSN, and none with a higher one.
    pub(crate) fn found_lsn(&self, lsn: u64) {
        self.written.store(lsn, Ordering::SeqCst);
    }

    /// A page with this LSN was served of a recovered file.
    #[inline]
    pub(crate) fn note_served(&self, lsn: u64) {
        // Relaxed: a larger value is all that counts.
        if lsn > self.served.load(Ordering::Relaxed) {
            self.served.fetch_max(lsn, Ordering::Relaxed);
        }
    }

    /// The least LSN that InnoDB must have; 0 if no file was trusted, and nothing is known.
    pub fn least_lsn(&self) -> u64 {
        if self.outcomes.lock().report.trusted.0 == 0 {
            return 0;
        }
        let served = self.served.load(Ordering::SeqCst);
        self.written.load(Ordering::SeqCst).max(served)
    }

    /// The persisted state may turn out to be of no use, whatever is known of each file. Nothing is served before that is known.
    pub fn withhold(&self) {
        self.withheld.store(true, Ordering::SeqCst);
    }

    /// It is known.
    pub fn release(&self) {
        self.withheld.store(false, Ordering::SeqCst);
    }

    /// Whether it is not known yet.
    #[inline]
    pub fn is_withheld(&self) -> bool {
        self.withheld.load(Ordering::SeqCst)
    }

    /// So many files, and pages of them, were persisted.
    pub fn found(&self, files: u64, pages: u64) {
        self.outcomes.lock().report.pending = (files, pages);
    }

    /// Rejects every file, trusted ones included.
    pub fn reject_all(&self) {
        let report = &mut self.outcomes.lock().report;
        let (trusted, pending) = (report.trusted, report.pending);
        report.rejected.0 += trusted.0 + pending.0;
        report.rejected.1 += trusted.1 + pending.1;
        (report.trusted, report.pending) = ((0, 0), (0, 0));
    }

    /// The file system of a device. It is asked for once: a number of a superblock is never used twice, so an old answer proves nothing
    /// wrong.
    pub fn system(
        &self,
        device: u64,
        ask: impl FnOnce() -> Option<FileSystem>,
    ) -> Option<FileSystem> {
        let known = |systems: &[(u64, Option<FileSystem>)]| {
            let mut systems = systems.iter();
            systems
                .find(|system| system.0 == device)
                .map(|system| system.1)
        };
        if let Some(system) = known(&self.outcomes.lock().systems) {
            return system;
        }
        let system = ask();
        self.outcomes.lock().systems.push((device, system));
        system
    }

    /// As it is now.
    pub fn report(&self) -> Report {
        self.outcomes.lock().report.clone()
    }

    /// The server has opened a persisted file of this name and so many bytes, which is proven or not.
    pub fn opened(
        &self,
        owner: u32,
        persisted: &PersistedFile,
        (name, bytes): (&str, i64),
        outcome: Result<(), Rejection>,
    ) {
        let mut outcomes = self.outcomes.lock();
        let Outcomes {
            report, unlisted, ..
        } = &mut *outcomes;
        report.pending.0 = report.pending.0.saturating_sub(1);
        report.pending.1 = report.pending.1.saturating_sub(persisted.pages);
        let Err(rejection) = outcome else {
            report.trusted.0 += 1;
            report.trusted.1 += persisted.pages;
            return;
        };
        report.rejected.0 += 1;
        report.rejected.1 += persisted.pages;
        if report.reasons.len() < MAX_REASONS {
            report.reasons.push((name.to_owned(), rejection));
        }
        if unlisted.len() < MAX_REJECTED {
            let pages = bytes / i64::from(persisted.page_size.max(1));
            unlisted.push(RejectedFile {
                owner,
                id: persisted.id,
                pages: u32::try_from(pages).unwrap_or(u32::MAX),
                page_size: persisted.page_size,
                is_listed: rejection.keeps_pages(),
            });
        }
    }

    /// Whether there are files whose pages are to be listed and dropped.
    pub fn has_unlisted(&self) -> bool {
        !self.outcomes.lock().unlisted.is_empty()
    }

    /// These files. Each is returned once.
    pub fn take_unlisted(&self) -> Vec<RejectedFile> {
        std::mem::take(&mut self.outcomes.lock().unlisted)
    }
}
