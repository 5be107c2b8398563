//! Audit: detects writes to the data files by other programs.
//!
//! The cache is correct only if every change of a data file is observed. An unobserved write changes the file's size and
//! modification time. Its cause is another process, or a server call that the hooks do not know. When no change of a file was
//! observed for a while, the audit remembers its size and times. If they differ later, and still no change was observed, that
//! is a *suspicion*. Possible causes: `touch`, a file system that reports writes late, or an unobserved write.
//!
//! A suspicion affects only its file. From then on none of the file's pages is served or inserted. A sample of its cached pages
//! is compared with the data file, and then all of them are dropped.
//! - A page differs: the extension is no longer trusted. It drops everything and stays off until an administrator enables it.
//! - A page is damaged in the file ([`crate::core::damage`]): no page of the file is served or dropped until the damage is
//!   repaired.
//! - Otherwise the file is cached again after a quiet period (`QUIET_PERIOD`) with constant size and times. If the server keeps
//!   changing it, it is cached again after `MAX_SUSPENSION`.
//!
//! The audit compares only the kernel's values of a file with each other, never with a clock, so the clock of a file server does
//! no harm. It skips a file with a change in flight ([`DataFile::idle_changes`]).

use std::collections::HashMap;
use std::time::Duration;

use crate::control::compare::Sample;
use crate::core::Core;
use crate::files::{DataFile, Suspended};
use crate::platform::os::Os;
use crate::platform::sync::JoinHandle;
use suspended::{Listed, Suspensions};
use watch::{Seen, Watch};

pub mod suspended;
pub mod watch;

/// Interval between two passes over the files.
const PASS_INTERVAL: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(1)
} else {
    Duration::from_secs(10)
};
/// Time without a change before a file's size and times are remembered. A file server may report the effect of a write late,
/// and a write with an unobservable end may end late.
pub const QUIET_PERIOD: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(4)
} else {
    Duration::from_secs(90)
};
/// A suspected file is cached again after this time even if the server keeps changing it: its times prove nothing then.
pub const MAX_SUSPENSION: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(40)
} else {
    Duration::from_secs(900)
};
/// Passes of one round over all files: a minute, for any number of files. A file is remembered after two or three rounds.
const PASSES_PER_ROUND: usize = 6;
/// Minimum number of files in one pass.
const MIN_PASS_FILES: usize = 256;
/// Time limit for further files: 0.5 % of a processor. Cost of one file: about 1 µs, on a file server much more.
const MAX_PASS_TIME: Duration = Duration::from_millis(50);

/// A suspected file. No page of it is served while this value exists.
struct Suspicion {
    #[allow(dead_code, reason = "suspends the file")]
    suspended: Suspended<'static>,
    listed: Listed,
    stage: Stage,
}

enum Stage {
    /// Its pages are not compared yet. Holds the observed difference.
    Open(String),
    /// Its pages were compared, and some are damaged in the file. All of them stay, for an administrator to save.
    Damaged,
    /// Its pages were compared and dropped; the file must become quiet. Holds the time since which nothing suspicious was seen.
    Cleared(Duration),
}

/// Audit state of a file.
struct Known {
    watch: Watch,
    suspicion: Option<Suspicion>,
}

/// A running comparison, in its own thread because the data disk may not answer.
struct Comparing {
    file: &'static DataFile,
    difference: String,
    thread: JoinHandle<Sample>,
}

/// State of the files between two passes. Times are those of [`Os::running`].
pub struct Audit<O: 'static> {
    core: &'static Core<O>,
    list: &'static Suspensions,
    known: HashMap<u32, Known>,
    looked: Option<Duration>,
    comparing: Option<Comparing>,
    log_limit: LogLimit,
    /// The epoch of the active extension.
    epoch: Option<u32>,
    /// Number of the file at which the next pass continues.
    next: u32,
}

impl<O: Os> Audit<O> {
    /// Creates an audit that knows no file. It adds suspended files to `list`.
    pub fn new(core: &'static Core<O>, list: &'static Suspensions) -> Audit<O> {
        Audit {
            core,
            list,
            known: HashMap::new(),
            looked: None,
            comparing: None,
            log_limit: LogLimit::default(),
            epoch: None,
            next: 0,
        }
    }

    fn now(&self) -> Duration {
        self.core.os().running()
    }

    /// Whether the extension of this audit has served without interruption until now.
    fn still_serves(&self) -> bool {
        let switch = self.core.switch();
        self.epoch.is_some_and(|epoch| switch.still_serves(epoch))
    }

    /// Runs a pass if one is due. Call periodically while the extension is active. Returns the reason once an unobserved change is
    /// proven.
    pub fn look(&mut self) -> Option<String> {
        if let Some(reason) = self.conclude() {
            return Some(reason);
        }
        let now = self.now();
        if self
            .looked
            .is_none_or(|when| now.saturating_sub(when) >= PASS_INTERVAL)
        {
            self.looked = Some(now);
            self.look_at_some();
        }
        self.compare_next();
        None
    }

    /// Whether the remembered state belongs to this extension.
    pub fn belongs_to(&self, epoch: Option<u32>) -> bool {
        self.epoch == epoch
    }

    /// Starts with another extension, and forgets the files' state.
    pub fn begin(&mut self, epoch: Option<u32>) {
        *self = Audit {
            epoch,
            log_limit: std::mem::take(&mut self.log_limit),
            ..Audit::new(self.core, self.list)
        };
    }

    fn look_at_some(&mut self) {
        let core = self.core;
        let mut all = core.files.all();
        all.sort_unstable_by_key(|file| file.owner);
        self.known
            .retain(|owner, _| all.binary_search_by_key(owner, |file| file.owner).is_ok());
        // A file without a page read has no cached page. Another tool of the server may be filling it (clone).
        all.retain(|file| file.page_size() != 0);
        // Suspected files first, so that their time without caching does not depend on the number of files.
        let suspected = |file: &&&DataFile| {
            let known = self.known.get(&file.owner);
            known.is_some_and(|known| known.suspicion.is_some())
        };
        let begun = self.now();
        let taken = || core.os().running().saturating_sub(begun);
        let first: Vec<_> = all
            .iter()
            .filter(suspected)
            .take(MIN_PASS_FILES)
            .copied()
            .collect();
        for file in first {
            if taken() >= MAX_PASS_TIME {
                break;
            }
            self.look_at(file);
        }
        let mut part = Part::of(all.len());
        let from = all.partition_point(|file| file.owner < self.next);
        self.next = 0;
        for &file in &all[from..] {
            if part.is_over(taken) {
                self.next = file.owner;
                break;
            }
            self.look_at(file);
        }
    }

    fn look_at(&mut self, file: &'static DataFile) {
        let now = self.now();
        let known = self.known.entry(file.owner).or_insert_with(|| Known {
            watch: Watch::new(now),
            suspicion: None,
        });
        let seen = known.watch.look_at(&self.core.files, file, QUIET_PERIOD);
        match (seen, &mut known.suspicion) {
            (Seen::Otherwise(difference), None) => {
                let suspended = file.suspend();
                // Once the extension is off, the server changes files untracked.
                let switch = self.core.switch();
                if self.epoch.is_some_and(|epoch| switch.still_serves(epoch)) {
                    known.suspicion = Some(Suspicion {
                        suspended,
                        listed: self.list.add(file.name(), difference.clone(), now),
                        stage: Stage::Open(difference),
                    });
                }
            }
            (seen, Some(suspicion)) => {
                if matches!(suspicion.stage, Stage::Damaged)
                    && !self.core.damage.is_of(file.owner, file.id())
                {
                    file.assign_new_id();
                    suspicion.stage = Stage::Cleared(now);
                }
                let Stage::Cleared(since) = &mut suspicion.stage else {
                    return;
                };
                match seen {
                    Seen::Otherwise(_) => {
                        *since = now;
                        suspicion.listed.again(now);
                    }
                    Seen::Quiet { steady: true } => known.suspicion = None,
                    _ if now.saturating_sub(*since) >= MAX_SUSPENSION => known.suspicion = None,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Starts a comparison for one suspected file at a time. Retries later if no thread could be started.
    fn compare_next(&mut self) {
        if self.comparing.is_some() {
            return;
        }
        let open =
            self.known
                .iter()
                .find_map(|(owner, known)| match &known.suspicion.as_ref()?.stage {
                    Stage::Open(difference) => Some((*owner, difference.clone())),
                    Stage::Damaged | Stage::Cleared(_) => None,
                });
        let Some((owner, difference)) = open else {
            return;
        };
        let core = self.core;
        let all = core.files.all();
        let Some(file) = all.into_iter().find(|file| file.owner == owner) else {
            return; // the file is gone; the next pass forgets it
        };
        let id = file.id();
        let sample = move || core.sample(file, id);
        if let Ok(thread) = core.os().spawn("bpe-audit", sample) {
            self.comparing = Some(Comparing {
                file,
                difference,
                thread,
            });
        }
    }

    /// Processes a completed comparison. Returns the reason if pages differ.
    fn conclude(&mut self) -> Option<String> {
        let done = self
            .comparing
            .take_if(|comparing| comparing.thread.is_finished())?;
        let Comparing {
            file,
            difference,
            thread,
        } = done;
        let Sample {
            compared,
            different,
            damaged,
        } = thread.join().unwrap_or_default();
        if !self.still_serves() {
            return None;
        }
        let now = self.now();
        let changed = format!(
            "changed ({difference}), but not by a call of the server that the extension has seen"
        );
        let what = format!("the data file '{}' {changed}", file.name());
        if different > 0 {
            self.core.os().warning(&what);
            // Every account may read the reason, so only the error log names the table's file.
            return Some(format!(
                "a data file {changed}; {different} of {compared} cached pages of it no longer match the file; the error log names it"
            ));
        }
        let known = self.known.get_mut(&file.owner)?;
        let suspicion = known
            .suspicion
            .as_mut()
            .filter(|suspicion| matches!(suspicion.stage, Stage::Open(_)))?;
        if damaged > 0 {
            suspicion.stage = Stage::Damaged;
            suspicion.listed.cleared(compared, now);
            self.core.os().warning(&format!(
                "{what}. {damaged} of {compared} cached pages that were compared are damaged in the file, and the others equal. Nothing \
                 of the file is served, and the cache keeps its pages until these are well"
            ));
            return None;
        }
        file.assign_new_id();
        suspicion.stage = Stage::Cleared(now);
        suspicion.listed.cleared(compared, now);
        known.watch = Watch::new(now);
        if self.log_limit.may_log(&file.name(), now) {
            self.core.os().warning(&format!(
                "{what}. {compared} cached pages of it were compared with the file, and none differs. They are \
                 dropped, and the file is cached again once it has been at rest for {} s. A copy, a restore or `touch` \
                 may have set its times; only the server should. (Logged once an hour for each file.)",
                QUIET_PERIOD.as_secs()
            ));
        }
        None
    }
}

/// One pass's share of a round. It grows with the number of files, so that a round takes constant time.
struct Part {
    files: usize,
    looked: usize,
}

impl Part {
    fn of(files: usize) -> Part {
        Part {
            files: files.div_ceil(PASSES_PER_ROUND).max(MIN_PASS_FILES),
            looked: 0,
        }
    }

    /// Whether the pass is over and leaves the rest to the next one. Otherwise counts one more file.
    fn is_over(&mut self, taken: impl FnOnce() -> Duration) -> bool {
        let over =
            self.looked >= self.files || self.looked >= MIN_PASS_FILES && taken() >= MAX_PASS_TIME;
        self.looked += usize::from(!over);
        over
    }
}

/// Rate limit of log messages for each file.
#[derive(Default)]
struct LogLimit(HashMap<String, Duration>);

impl LogLimit {
    const INTERVAL: Duration = Duration::from_secs(3600);
    /// Maximum number of remembered files. Above it no message is logged within the hour.
    const MAX_FILES: usize = 256;

    fn may_log(&mut self, file: &str, now: Duration) -> bool {
        self.0
            .retain(|_, when| now.saturating_sub(*when) < LogLimit::INTERVAL);
        if self.0.contains_key(file) || self.0.len() >= LogLimit::MAX_FILES {
            return false;
        }
        self.0.insert(file.to_owned(), now);
        true
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod rounds {
    use super::*;

    /// Passes in a round over this number of files, at this time for each.
    fn round(files: usize, each: Duration) -> usize {
        let (mut left, mut looks) = (files, 0);
        while left > 0 {
            let mut part = Part::of(files);
            let before = left;
            while left > 0 && !part.is_over(|| each * (before - left) as u32) {
                left -= 1;
            }
            looks += 1;
        }
        looks
    }

    #[test]
    fn a_round_takes_a_minute_however_many_files_there_are() {
        let fast = Duration::from_nanos(1500);
        for (files, looks) in [
            (1, 1),
            (256, 1),
            (257, 2),
            (1536, 6),
            (10_000, 6),
            (100_000, 6),
        ] {
            assert_eq!(round(files, fast), looks, "{files}");
        }
        // With slow files a pass is limited by time, but never below the minimum number of files.
        assert_eq!(round(100_000, Duration::from_micros(50)), 100);
        assert_eq!(round(1024, Duration::from_secs(1)), 4);
    }

    #[test]
    fn a_file_is_spoken_of_once_an_hour() {
        let mut log_limit = LogLimit::default();
        let now = Duration::from_secs(1);
        let minutes = |minutes: u64| now + Duration::from_secs(60 * minutes);
        assert!(log_limit.may_log("./d/t.ibd", now));
        assert!(!log_limit.may_log("./d/t.ibd", minutes(59)));
        assert!(log_limit.may_log("./d/u.ibd", minutes(59)));
        assert!(log_limit.may_log("./d/t.ibd", minutes(61)));
        for n in 0..2 * LogLimit::MAX_FILES {
            log_limit.may_log(&n.to_string(), minutes(62));
        }
        assert_eq!(log_limit.0.len(), LogLimit::MAX_FILES);
        assert!(log_limit.may_log("x", minutes(200)) && log_limit.0.len() == 1);
    }
}
