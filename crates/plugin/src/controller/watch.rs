//! What the controller's thread watches: the usual page size, and whether the server can still be followed.

use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use coherence::compare::Sample;

use super::building::usual_page;
use super::disks::Disks;
use super::texts;
use crate::audit::Audit;
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::{CORE, KNOWN};
use crate::{persist, unseen};

/// Between two looks at the page size in which most is read.
const RESIZE_PAUSE: Duration = Duration::from_secs(30);

/// Time for clearing forgotten files at each look. Switching off waits for it.
const CLEARING: Duration = Duration::from_millis(20);

/// Between two counts of each file's pages.
const NOTE_PAUSE: Duration = Duration::from_secs(2);

/// What is remembered between two looks.
pub struct Watch {
    audit: Audit<Linux>,
    unseen: unseen::Watch,
    pages_looked_at: Option<Instant>,
    noted: Option<Instant>,
    disks: Disks,
    inherited: Look,
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

    /// Notes for the next process what time it is, and now and then how many pages of each file are cached. Clears forgotten files.
    /// Gives memory of reads back. Ends writes whose end was not seen. Tells of cache disks that are not used.
    pub fn note(&mut self) {
        persist::note_life();
        if let Some(active) = &*CORE.switch().active() {
            active.extension.clear_forgotten(CLEARING);
        }
        if self.noted.is_some_and(|when| when.elapsed() < NOTE_PAUSE) {
            return;
        }
        self.noted = Some(Instant::now());
        extension::give_idle_memory_back();
        CORE.end_unseen(crate::aio::UNSEEN);
        let devices = CORE.switch().active().as_ref().map(|active| {
            persist::note(&active.extension);
            active.extension.device_statistics()
        });
        for text in self.disks.look(devices, Instant::now()) {
            Linux.warning(&text);
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
                    damaged: _,
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
