//! Periodic checks of the controller's thread: the usual page size, and whether the server can still be tracked.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use cache::Extension;
use coherence::audit::Audit;
use coherence::compare::Sample;
use coherence::os::Os as _;

use super::building::usual_page;
use super::disks::Disks;
use super::messages;
use crate::intercept::untracked;
use crate::platform::{CORE, Linux, SUSPENSIONS};
use crate::restart::{RESTART, persist};

/// Interval between checks of the usual page size.
const RESIZE_INTERVAL: Duration = Duration::from_secs(30);

/// Time limit for clearing forgotten files in each iteration. Switching off waits for it.
const CLEAR_LIMIT: Duration = Duration::from_millis(20);

/// Times after the recovery at which unreachable recovered pages are removed. First, files that InnoDB opens at its start are
/// known, and what of them was rejected is listed. Last, files that were never opened count as dropped: an inode does not
/// tell whether its file still exists, and a table that is not read for a day has no hot pages.
const CLEANUPS: [Duration; 2] = [Duration::from_secs(600), Duration::from_secs(24 * 3600)];

/// Interval between counts of each file's pages.
const COUNT_INTERVAL: Duration = Duration::from_secs(2);

/// State between two iterations.
pub struct Checks {
    audit: Audit<Linux>,
    untracked_io: untracked::Watch,
    size_checked: Option<Instant>,
    counted: Option<Instant>,
    disks: Disks,
    sampling: Sampling,
    began: Instant,
    /// Number of finished [`CLEANUPS`].
    cleanups: usize,
}

/// Sampling of the pages recovered at the server's start.
enum Sampling {
    /// Not yet, or once more: when, and how often.
    Due(Option<Instant>, usize),
    Running(JoinHandle<Sample>, usize),
    Done,
}

/// Delays after the start, and the number of pages of each sample.
const SAMPLE_DELAYS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(45)];
const SAMPLE_PAGES: u64 = 256;

impl Default for Checks {
    fn default() -> Checks {
        Checks {
            audit: Audit::new(&CORE, &SUSPENSIONS),
            untracked_io: untracked::Watch::default(),
            size_checked: None,
            counted: None,
            disks: Disks::default(),
            sampling: Sampling::Due(None, 0),
            began: Instant::now(),
            cleanups: 0,
        }
    }
}

impl Checks {
    /// Returns the usual page size in bytes, if it is smaller than the one of the layout.
    pub fn smaller_page(&mut self, nominal: u32) -> Option<u32> {
        if self
            .size_checked
            .is_some_and(|when| when.elapsed() < RESIZE_INTERVAL)
        {
            return None;
        }
        self.size_checked = Some(Instant::now());
        Some(usual_page(nominal)).filter(|page| *page < nominal)
    }

    /// Records the current time for the next process and, at intervals, the number of cached pages of each file. Also clears
    /// forgotten files, frees memory of reads, ends writes with unobserved completions, and logs unused cache disks.
    pub fn record(&mut self) {
        persist::record_alive();
        if let Some(active) = &*CORE.switch().active() {
            active.extension.clear_forgotten(CLEAR_LIMIT);
        }
        if self
            .counted
            .is_some_and(|when| when.elapsed() < COUNT_INTERVAL)
        {
            return;
        }
        self.counted = Some(Instant::now());
        cache::give_idle_memory_back();
        CORE.end_unobserved_writes(coherence::async_io::UNOBSERVED_TIMEOUT);
        let devices = CORE.switch().active().as_ref().map(|active| {
            persist::record(&active.extension);
            self.clear_unreachable(&active.extension);
            active.extension.device_statistics()
        });
        for text in self.disks.update(devices, Instant::now()) {
            Linux.warning(&text);
        }
    }

    /// Removes the recovered pages that no read can reach, at the times of [`CLEANUPS`].
    fn clear_unreachable(&mut self, extension: &Extension) {
        let due = CLEANUPS.get(self.cleanups);
        if !extension.recovered().any || due.is_none_or(|due| self.began.elapsed() < *due) {
            return;
        }
        // These pages are still to be listed. A load that goes on delays that.
        if CORE.files.recoveries.has_unlisted() {
            return;
        }
        self.cleanups += 1;
        if self.cleanups == CLEANUPS.len() {
            CORE.files.forget_pending();
        }
        extension.clear_unknown();
    }

    /// Compares a sample of recovered pages with the data files. Returns the epoch of the extension, and the damage.
    pub fn sample_recovered(&mut self) -> Option<(u32, String)> {
        let guard = CORE.switch().active();
        let active = guard
            .as_ref()
            .filter(|active| active.extension.recovered().any)?;
        match std::mem::replace(&mut self.sampling, Sampling::Done) {
            Sampling::Due(since, times) => {
                let since = since.unwrap_or_else(Instant::now);
                self.sampling = Sampling::Due(Some(since), times);
                if since.elapsed() >= SAMPLE_DELAYS[times] {
                    let sample = || CORE.sample_inherited(SAMPLE_PAGES);
                    if let Ok(thread) = Linux.spawn("bpe-look", sample) {
                        self.sampling = Sampling::Running(thread, times + 1);
                    }
                }
            }
            Sampling::Running(thread, times) if !thread.is_finished() => {
                self.sampling = Sampling::Running(thread, times);
            }
            Sampling::Running(thread, times) => {
                let Sample {
                    compared,
                    different,
                    damaged: _,
                } = thread.join().unwrap_or_default();
                if different > 0 {
                    let why = format!(
                        "{different} of {compared} cached pages that were taken over at the server's start are not those of the data files"
                    );
                    return Some((active.epoch, why));
                }
                if times < SAMPLE_DELAYS.len() {
                    let since = Instant::now().checked_sub(SAMPLE_DELAYS[times - 1]);
                    self.sampling = Sampling::Due(since, times);
                } else {
                    Linux.note(&messages::recovery_result(
                        &persist::recovered(),
                        persist::is_from_snapshot(),
                    ));
                }
            }
            Sampling::Done => {}
        }
        None
    }

    /// Whether a foreign process has written to the data files. Returns the epoch of the extension, and the evidence.
    pub fn foreign_writer(&mut self) -> Option<(u32, String)> {
        if coherence::canary!("audit") {
            return None;
        }
        let epoch = CORE.switch().active().as_ref().map(|active| active.epoch);
        if let Some(epoch) = epoch
            && let Some(why) = RESTART.tripwire.take(&SUSPENSIONS)
        {
            return Some((epoch, why));
        }
        let Some(epoch) = epoch.filter(|_| self.audit.belongs_to(epoch)) else {
            self.audit.begin(epoch);
            return None;
        };
        let why = self.audit.look()?;
        // If the extension was switched off since, the server itself changes files without being tracked.
        CORE.switch().still_serves(epoch).then_some((epoch, why))
    }

    /// Returns why the server can no longer be tracked, if its asynchronous I/O bypasses the hooks.
    pub fn untracked_io(&mut self) -> Option<String> {
        if CORE.switch().active().is_none() {
            return None;
        }
        Some(self.untracked_io.check()?.to_string())
    }
}
