//! Recovery report: how many persisted files and pages this process trusts, and why it rejected the others.
//!
//! Lock order: leaf.

use cache::FileId;

use crate::platform::os::FileSystem;
use crate::platform::sync::{AtomicBool, AtomicU64, Mutex, Ordering};
use crate::restart::proof::{PersistedFile, Rejection};

/// Maximum number of files whose reasons are kept.
const MAX_REASONS: usize = 16;
/// Maximum number of rejected files that wait to be listed. The pages of further files are not loaded again.
const MAX_REJECTED: usize = 65_536;

/// The outcome for each persisted file.
pub struct Recoveries {
    outcomes: Mutex<Outcomes>,
    /// No page may be served yet.
    withheld: AtomicBool,
    /// The highest LSN of a page that the previous process wrote, and of a served page of a recovered file.
    written: AtomicU64,
    served: AtomicU64,
}

/// File names, and the reasons why their pages are not served.
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
    /// Reasons of the first rejected files.
    pub reasons: Reasons,
}

/// Status queries copy only the report.
struct Outcomes {
    report: Report,
    /// Files whose pages are to be listed and dropped.
    unlisted: Vec<RejectedFile>,
    /// File systems of the devices that were queried.
    systems: Vec<(u64, Option<FileSystem>)>,
}

/// A rejected file. Its entries are unreachable, but still take space.
#[derive(Clone, Copy)]
pub struct RejectedFile {
    /// Number of its file object.
    pub owner: u32,
    /// The identity under which its pages were cached.
    pub id: FileId,
    /// The file's number of pages when it was opened. Cached pages beyond its end are left to
    /// [`cache::Extension::clear_unknown`].
    pub pages: u32,
    /// Page size, bytes.
    pub page_size: u32,
    /// The pages still belong to the file, perhaps in another version, and are worth loading.
    pub is_listed: bool,
}

impl Recoveries {
    /// Creates a report without persisted files.
    pub(crate) const fn new() -> Recoveries {
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

    /// Stores the highest LSN of a page that the previous process wrote.
    pub(crate) fn found_lsn(&self, lsn: u64) {
        self.written.store(lsn, Ordering::SeqCst);
    }

    /// Records the LSN of a served page of a recovered file.
    #[inline]
    pub(crate) fn note_served(&self, lsn: u64) {
        // Relaxed: only the maximum matters.
        if lsn > self.served.load(Ordering::Relaxed) {
            self.served.fetch_max(lsn, Ordering::Relaxed);
        }
    }

    /// The minimum LSN that InnoDB must have; 0 if no file is trusted, so that nothing is known.
    pub fn least_lsn(&self) -> u64 {
        if self.outcomes.lock().report.trusted.0 == 0 {
            return 0;
        }
        let served = self.served.load(Ordering::SeqCst);
        self.written.load(Ordering::SeqCst).max(served)
    }

    /// Withholds all recovered pages until [`release`](Self::release). The persisted state may prove unusable as a whole, whatever
    /// the outcome of each file.
    pub fn withhold(&self) {
        self.withheld.store(true, Ordering::SeqCst);
    }

    /// Ends the withholding, once it is known whether the persisted state is usable.
    pub fn release(&self) {
        self.withheld.store(false, Ordering::SeqCst);
    }

    /// Whether recovered pages are withheld.
    #[inline]
    pub fn is_withheld(&self) -> bool {
        self.withheld.load(Ordering::SeqCst)
    }

    /// Stores the number of persisted files, and of their pages.
    pub fn found(&self, files: u64, pages: u64) {
        self.outcomes.lock().report.pending = (files, pages);
    }

    /// Counts every trusted file as rejected.
    pub(crate) fn reject_trusted(&self) {
        let report = &mut self.outcomes.lock().report;
        let trusted = report.trusted;
        transfer(&mut report.trusted, &mut report.rejected, trusted);
    }

    /// Counts a trusted file of about `pages` pages as rejected, and lists it.
    pub(crate) fn replaced(&self, file: RejectedFile, pages: u64) {
        let mut outcomes = self.outcomes.lock();
        let Report {
            trusted, rejected, ..
        } = &mut outcomes.report;
        transfer(trusted, rejected, (1, pages));
        outcomes.list(file);
    }

    /// Counts a file that the server did not open as rejected.
    pub(crate) fn forgotten(&self, persisted: &PersistedFile) {
        let Report {
            pending, rejected, ..
        } = &mut self.outcomes.lock().report;
        transfer(pending, rejected, (1, persisted.pages));
    }

    /// The file system of a device. Queries each device once: superblock numbers are never reused, so an old answer proves nothing
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

    /// A copy of the current report.
    pub fn report(&self) -> Report {
        self.outcomes.lock().report.clone()
    }

    /// Records the outcome of a persisted file when the server opens it, with the file's name and length.
    pub fn opened(
        &self,
        owner: u32,
        persisted: &PersistedFile,
        (name, bytes): (&str, i64),
        outcome: Result<(), Rejection>,
    ) {
        let mut outcomes = self.outcomes.lock();
        let report = &mut outcomes.report;
        debug_assert_ne!(report.pending.0, 0, "it was opened or rejected before");
        let part = (1, persisted.pages);
        let Err(rejection) = outcome else {
            return transfer(&mut report.pending, &mut report.trusted, part);
        };
        transfer(&mut report.pending, &mut report.rejected, part);
        if report.reasons.len() < MAX_REASONS {
            report.reasons.push((name.to_owned(), rejection));
        }
        let pages = bytes / i64::from(persisted.page_size.max(1));
        outcomes.list(RejectedFile {
            owner,
            id: persisted.id,
            pages: u32::try_from(pages).unwrap_or(u32::MAX),
            page_size: persisted.page_size,
            is_listed: rejection.keeps_pages(),
        });
    }

    /// Whether rejected files wait to be listed and dropped.
    pub fn has_unlisted(&self) -> bool {
        !self.outcomes.lock().unlisted.is_empty()
    }

    /// Lists these files by `list`, each once. They wait until it has returned. One thread at a time may call this.
    pub fn take_unlisted<T>(&self, list: impl FnOnce(&[RejectedFile]) -> T) -> T {
        let files = self.outcomes.lock().unlisted.clone();
        let result = list(&files);
        let unlisted = &mut self.outcomes.lock().unlisted;
        unlisted.drain(..files.len().min(unlisted.len()));
        result
    }
}

/// Counts these files and pages under another outcome.
fn transfer(from: &mut (u64, u64), to: &mut (u64, u64), (files, pages): (u64, u64)) {
    *from = (from.0.saturating_sub(files), from.1.saturating_sub(pages));
    *to = (to.0 + files, to.1 + pages);
}

impl Outcomes {
    fn list(&mut self, file: RejectedFile) {
        if self.unlisted.len() < MAX_REJECTED {
            self.unlisted.push(file);
        }
    }
}
