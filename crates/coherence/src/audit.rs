//! Looks whether somebody else writes to the data files.
//!
//! Everything rests on our seeing every change of a data file. A write that we do not see - by another process, or by a call
//! of the server that we do not know - shows in the file's size and time of change. A file that nothing was seen to change
//! for a while is remembered as it is then; if it looks otherwise later, and still nothing was seen to change it, that is a
//! *suspicion*: `touch` does it, a file system that tells late what was written, or a write that we have missed.
//!
//! A suspicion costs the file and nothing else. From that moment none of its pages is served or inserted; a sample of what is
//! cached of it is compared with the data file; then all of it is dropped. If a page differs, the extension is not to be
//! trusted any more: it drops everything, and stays off until an administrator asks for it again. If a page is damaged in the file
//! ([`crate::damage`]), nothing of the file is served or dropped until it is damaged no more. If none of that is so, the file is
//! cached again once it has been at rest, looking the same, for as long as it takes to be remembered, or after a longer time
//! in which the server was seen to change it again and again.
//!
//! Only what the kernel says of the file now and then is compared, never clocks, so that a file server with a clock of its
//! own does no harm. A file that a change is under way of is not looked at ([`DataFile::at_rest`]).

use std::collections::HashMap;
use std::time::Duration;

use crate::compare::Sample;
use crate::core::Core;
use crate::files::{DataFile, Suspended};
use crate::os::Os;
use crate::sync::JoinHandle;
use suspended::{Listed, Suspensions};
use watch::{Seen, Watch};

pub mod suspended;
pub mod watch;

/// Between two looks at the files.
const EVERY: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(1)
} else {
    Duration::from_secs(10)
};
/// How long nothing may have changed before a file's looks are remembered. A file server may tell late what a write has
/// changed, and a write whose end cannot be seen may end late.
pub const QUIET: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(4)
} else {
    Duration::from_secs(90)
};
/// A file that was suspected is cached again after this, though the server goes on changing it: its looks tell nothing then.
pub const LONGEST: Duration = if cfg!(debug_assertions) {
    Duration::from_secs(40)
} else {
    Duration::from_secs(900)
};
/// Looks in which all files come round, however many there are: a minute. A file is remembered after two or three rounds.
const LOOKS_A_ROUND: usize = 6;
/// Files that are looked at in one go at least.
const AT_A_TIME: usize = 256;
/// Time for the others: half a percent of a processor. A look at a file takes about a microsecond, on a file server much more.
const AT_MOST: Duration = Duration::from_millis(50);

/// A file that is suspected; nothing of it is served while this lives.
struct Suspicion {
    #[allow(dead_code, reason = "suspends the file")]
    suspended: Suspended<'static>,
    listed: Listed,
    stage: Stage,
}

enum Stage {
    /// Its pages are still to be compared. How it looked otherwise.
    Open(String),
    /// They were, and some are damaged in the file. All stay, for an administrator to save.
    Damaged,
    /// They were, and dropped; it has to come to rest. Since when nothing suspicious was seen.
    Cleared(Duration),
}

/// What is known of a file.
struct Known {
    watch: Watch,
    suspicion: Option<Suspicion>,
}

/// A sample that is being compared, in a thread of its own: the data disk may not answer.
struct Comparing {
    file: &'static DataFile,
    difference: String,
    thread: JoinHandle<Sample>,
}

/// Remembers the files between two looks. Moments are those of [`Os::running`].
pub struct Audit<O: 'static> {
    core: &'static Core<O>,
    list: &'static Suspensions,
    known: HashMap<u32, Known>,
    looked: Option<Duration>,
    comparing: Option<Comparing>,
    said: Said,
    /// Of the active extension.
    epoch: Option<u32>,
    /// Number of the file to go on with.
    next: u32,
}

impl<O: Os> Audit<O> {
    /// Nothing is known. Suspended files are put on the list.
    pub fn new(core: &'static Core<O>, list: &'static Suspensions) -> Audit<O> {
        Audit {
            core,
            list,
            known: HashMap::new(),
            looked: None,
            comparing: None,
            said: Said::default(),
            epoch: None,
            next: 0,
        }
    }

    fn now(&self) -> Duration {
        self.core.os().running()
    }

    /// Whether the extension whose files are known serves up to now.
    fn still_serves(&self) -> bool {
        let switch = self.core.switch();
        self.epoch.is_some_and(|epoch| switch.still_serves(epoch))
    }

    /// To be called now and then while the extension is active. What was changed behind its back, if that is proven.
    pub fn look(&mut self) -> Option<String> {
        if let Some(reason) = self.conclude() {
            return Some(reason);
        }
        let now = self.now();
        if self
            .looked
            .is_none_or(|when| now.saturating_sub(when) >= EVERY)
        {
            self.looked = Some(now);
            self.look_at_some();
        }
        self.compare_next();
        None
    }

    /// Whether what is remembered is of the time of this extension.
    pub fn belongs_to(&self, epoch: Option<u32>) -> bool {
        self.epoch == epoch
    }

    /// Another extension is active: nothing is known of the time before.
    pub fn begin(&mut self, epoch: Option<u32>) {
        *self = Audit {
            epoch,
            said: std::mem::take(&mut self.said),
            ..Audit::new(self.core, self.list)
        };
    }

    fn look_at_some(&mut self) {
        let core = self.core;
        let mut all = core.files.all();
        all.sort_unstable_by_key(|file| file.owner);
        self.known
            .retain(|owner, _| all.binary_search_by_key(owner, |file| file.owner).is_ok());
        // Of a file of which no page was read nothing is cached; another tool of the server may be filling it (clone).
        all.retain(|file| file.page_size() != 0);
        // How long those stay uncached must not depend on how many others there are.
        let suspected = |file: &&&DataFile| {
            let known = self.known.get(&file.owner);
            known.is_some_and(|known| known.suspicion.is_some())
        };
        let begun = self.now();
        let taken = || core.os().running().saturating_sub(begun);
        let first: Vec<_> = all
            .iter()
            .filter(suspected)
            .take(AT_A_TIME)
            .copied()
            .collect();
        for file in first {
            if taken() >= AT_MOST {
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
        let seen = known.watch.look_at(&self.core.files, file, QUIET);
        match (seen, &mut known.suspicion) {
            (Seen::Otherwise(difference), None) => {
                let suspended = file.suspend();
                // Switched off meanwhile, the server changes files, and nobody follows that.
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
                    file.replace_contents();
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
                    _ if now.saturating_sub(*since) >= LONGEST => known.suspicion = None,
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Begins to compare pages of a file that is suspected, one file at a time. Without a thread it is tried again.
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
            return; // it is gone, and will be forgotten
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

    /// Ends a suspicion whose pages have been compared. What was changed, if pages differ.
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
        file.replace_contents();
        suspicion.stage = Stage::Cleared(now);
        suspicion.listed.cleared(compared, now);
        known.watch = Watch::new(now);
        if self.said.may_say(&file.name(), now) {
            self.core.os().warning(&format!(
                "{what}. {compared} cached pages of it were compared with the file, and none differs. They are \
                 dropped, and the file is cached again once it has been at rest for {} s. A copy, a restore or `touch` \
                 may have set its times; only the server should. (Logged once an hour for each file.)",
                QUIET.as_secs()
            ));
        }
        None
    }
}

/// How much of a round is made in one look: more where there are more files, so that a round takes as long as ever.
struct Part {
    files: usize,
    looked: usize,
}

impl Part {
    fn of(files: usize) -> Part {
        Part {
            files: files.div_ceil(LOOKS_A_ROUND).max(AT_A_TIME),
            looked: 0,
        }
    }

    /// Whether the rest is left to the next look; if not, one more file is looked at.
    fn is_over(&mut self, taken: impl FnOnce() -> Duration) -> bool {
        let over = self.looked >= self.files || self.looked >= AT_A_TIME && taken() >= AT_MOST;
        self.looked += usize::from(!over);
        over
    }
}

/// What was said of which file, so that it is not said again and again.
#[derive(Default)]
struct Said(HashMap<String, Duration>);

impl Said {
    const AGAIN_AFTER: Duration = Duration::from_secs(3600);
    /// Files that are remembered; of more than these nothing is said within the hour.
    const FILES: usize = 256;

    fn may_say(&mut self, file: &str, now: Duration) -> bool {
        self.0
            .retain(|_, when| now.saturating_sub(*when) < Said::AGAIN_AFTER);
        if self.0.contains_key(file) || self.0.len() >= Said::FILES {
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

    /// Looks that a round over so many files takes, each of them so long.
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
        // Bounded where a look takes long, and never fewer than before.
        assert_eq!(round(100_000, Duration::from_micros(50)), 100);
        assert_eq!(round(1024, Duration::from_secs(1)), 4);
    }

    #[test]
    fn a_file_is_spoken_of_once_an_hour() {
        let mut said = Said::default();
        let now = Duration::from_secs(1);
        let minutes = |minutes: u64| now + Duration::from_secs(60 * minutes);
        assert!(said.may_say("./d/t.ibd", now));
        assert!(!said.may_say("./d/t.ibd", minutes(59)));
        assert!(said.may_say("./d/u.ibd", minutes(59)));
        assert!(said.may_say("./d/t.ibd", minutes(61)));
        for n in 0..2 * Said::FILES {
            said.may_say(&n.to_string(), minutes(62));
        }
        assert_eq!(said.0.len(), Said::FILES);
        assert!(said.may_say("x", minutes(200)) && said.0.len() == 1);
    }
}
