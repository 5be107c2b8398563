//! What the controller's thread watches: the usual page size, and whether the server can still be followed.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coherence::compare::Sample;
use extension::PolicyName;

use super::building::usual_page;
use super::disks::Disks;
use super::texts;
use crate::audit::Audit;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::{CORE, KNOWN};
use crate::{persist, settings, unseen};

/// Between two looks at the page size in which most is read.
const RESIZE_PAUSE: Duration = Duration::from_secs(30);

/// Between two counts of each file's pages.
const NOTE_PAUSE: Duration = Duration::from_secs(2);

/// Between two tries to follow `bpe_admission` for which there is no memory.
const POLICY_PAUSE: Duration = Duration::from_secs(60);

/// What is remembered between two looks.
pub struct Watch {
    audit: Audit<Linux>,
    unseen: unseen::Watch,
    pages_looked_at: Option<Instant>,
    noted: Option<Instant>,
    disks: Disks,
    inherited: Look,
    refused: Refused,
}

/// The policy for which there was no memory, which was said, and when that was found last.
#[derive(Default)]
struct Refused(Option<(PolicyName, Instant)>);

impl Refused {
    /// Whether there may be memory for this policy now.
    fn may_try(&self, wanted: PolicyName, now: Instant) -> bool {
        self.0.is_none_or(|(policy, when)| {
            policy != wanted || now.duration_since(when) >= POLICY_PAUSE
        })
    }

    /// There is memory for it, or none. Whether the latter is news.
    fn note(&mut self, wanted: PolicyName, now: Instant, refused: bool) -> bool {
        let known = self.0.is_some_and(|(policy, _)| policy == wanted);
        self.0 = refused.then_some((wanted, now));
        refused && !known
    }
}

/// At pages that were taken over at the server's start.
enum Look {
    /// Not yet, or once more: when, and how often.
    Due(Option<Instant>, usize),
    Under(JoinHandle<Sample>, usize),
    Done,
}

/// After the start, and how many pages each time.
const LOOKS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(45)];
const LOOKED_AT: u64 = 256;

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            audit: Audit::new(&CORE, &KNOWN.suspensions),
            unseen: unseen::Watch::default(),
            pages_looked_at: None,
            noted: None,
            disks: Disks::default(),
            inherited: Look::Due(None, 0),
            refused: Refused::default(),
        }
    }
}

impl Watch {
    /// The usual page size, if it is smaller than the one the extension is laid out for. Bytes.
    pub fn smaller_page(&mut self, nominal: u32) -> Option<u32> {
        if self
            .pages_looked_at
            .is_some_and(|when| when.elapsed() < RESIZE_PAUSE)
        {
            return None;
        }
        self.pages_looked_at = Some(Instant::now());
        Some(usual_page(nominal)).filter(|page| *page < nominal)
    }

    /// Notes for the next process what time it is, and now and then how many pages of each file are cached. Ends writes whose end was
    /// not seen. Tells of cache disks that are not used.
    pub fn note(&mut self) {
        persist::note_life();
        if self.noted.is_some_and(|when| when.elapsed() < NOTE_PAUSE) {
            return;
        }
        self.noted = Some(Instant::now());
        CORE.end_unseen(crate::aio::UNSEEN);
        let devices = CORE.switch().active().as_ref().map(|active| {
            persist::note(&active.extension);
            active.extension.device_statistics()
        });
        for text in self.disks.look(devices, Instant::now()) {
            Linux.warning(&text);
        }
    }

    /// Lets the extension go on with the policy that `bpe_admission` asks for. That takes memory, so it is done here.
    pub fn follow_policy(&mut self) {
        let guard = CORE.switch().active();
        let Some(active) = &*guard else {
            return;
        };
        let (wanted, now) = (settings::admission().policy(), Instant::now());
        if !self.refused.may_try(wanted, now) {
            return;
        }
        let followed = active.extension.follow_policy();
        let is_news = self.refused.note(wanted, now, followed.is_err());
        if let Some(text) = texts::policy(&followed, is_news) {
            Linux.note(&text);
        }
    }

    /// Compares some pages that were taken over at the start. While which extension served, and what is wrong with them.
    pub fn inherited(&mut self) -> Option<(u32, String)> {
        let guard = CORE.switch().active();
        let active = guard
            .as_ref()
            .filter(|active| active.extension.inherited().any)?;
        match std::mem::replace(&mut self.inherited, Look::Done) {
            Look::Due(since, times) => {
                let since = since.unwrap_or_else(Instant::now);
                self.inherited = Look::Due(Some(since), times);
                if since.elapsed() >= LOOKS[times] {
                    let look = || CORE.sample_inherited(LOOKED_AT);
                    if let Ok(thread) = Linux.spawn("bpe-look", look) {
                        self.inherited = Look::Under(thread, times + 1);
                    }
                }
            }
            Look::Under(thread, times) if !thread.is_finished() => {
                self.inherited = Look::Under(thread, times);
            }
            Look::Under(thread, times) => {
                let Sample {
                    compared,
                    different,
                } = thread.join().unwrap_or_default();
                if different > 0 {
                    let why = format!(
                        "{different} of {compared} cached pages that were taken over at the server's start are not those of the data files"
                    );
                    return Some((active.epoch, why));
                }
                if times < LOOKS.len() {
                    let since = Instant::now().checked_sub(LOOKS[times - 1]);
                    self.inherited = Look::Due(since, times);
                } else {
                    Linux.note(&texts::kept(&persist::recovered(), persist::is_of_image()));
                }
            }
            Look::Done => {}
        }
        None
    }

    /// Whether somebody else has written to the data files: while which extension served, and what was seen.
    pub fn foreign(&mut self) -> Option<(u32, String)> {
        if coherence::left_out!("audit") {
            return None;
        }
        let epoch = CORE.switch().active().as_ref().map(|active| active.epoch);
        if let Some(epoch) = epoch
            && let Some(why) = KNOWN.tripwire.take(&KNOWN.suspensions)
        {
            return Some((epoch, why));
        }
        let Some(epoch) = epoch.filter(|_| self.audit.belongs_to(epoch)) else {
            self.audit.begin(epoch);
            return None;
        };
        let why = self.audit.look()?;
        // Switched off meanwhile, the server changes files, and nobody follows that.
        CORE.switch().still_serves(epoch).then_some((epoch, why))
    }

    /// Why the server cannot be followed any more, if it uses asynchronous I/O that passes the hooks by.
    pub fn unseen(&mut self) -> Option<String> {
        if CORE.switch().active().is_none() {
            return None;
        }
        Some(self.unseen.look()?.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_without_memory_is_tried_again_in_a_minute_and_said_once() {
        use PolicyName::{Density, Frequency};
        let mut refused = Refused::default();
        let now = Instant::now();
        assert!(refused.may_try(Density, now));
        assert!(refused.note(Density, now, true), "it is said");
        let soon = now + POLICY_PAUSE / 2;
        assert!(!refused.may_try(Density, soon));
        assert!(refused.may_try(Frequency, soon), "somebody changed it");
        let later = now + POLICY_PAUSE;
        assert!(refused.may_try(Density, later));
        assert!(!refused.note(Density, later, true), "it was said");
        assert!(!refused.may_try(Density, later + POLICY_PAUSE / 2));
        assert!(!refused.note(Density, later, false));
        assert!(refused.may_try(Density, later));
    }
}
