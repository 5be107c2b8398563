//! Compares pages with their data files of which nobody knows whether they are still the same, and for which nobody asks.
//!
//! The controller's thread looks at it twice a second. If there are such pages, a thread of its own compares as many as
//! `bpe_scrub_rate` allows since the last time ([`Core::scrub`](coherence::core::Core::scrub)), and ends.

use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::{CORE, KNOWN};

/// A write that began before files were followed may still be under way for so long. A page that is asked for is none that is
/// written, but the scrub takes any.
const REST: Duration = Duration::from_secs(60);
/// What was not compared for longer is not made up for.
const LONGEST: Duration = Duration::from_secs(1);
/// A thread is at it for so long, about.
const TIME: Duration = Duration::from_millis(400);

/// What is remembered between two looks.
#[derive(Default)]
pub struct Scrub {
    /// When files were followed already, for which extension.
    since: Option<(u32, Instant)>,
    /// When it was last at work, and where it goes on.
    last: Option<Instant>,
    from: (u32, u32),
    at_work: Option<JoinHandle<(u32, u32)>>,
    is_over: bool,
}

impl Scrub {
    /// Goes on, if there is something to compare.
    pub fn look(&mut self) {
        let now = Instant::now();
        match self.at_work.take() {
            Some(thread) if !thread.is_finished() => {
                self.at_work = Some(thread);
                return;
            }
            Some(thread) => self.from = thread.join().unwrap_or_default(),
            None => {}
        }
        let guard = CORE.switch().active();
        let Some(epoch) = guard.as_ref().map(|active| active.epoch) else {
            return;
        };
        // Nobody may have followed between two of them.
        let since = match self.since {
            Some((of, since)) if of == epoch => since,
            _ => self.since.insert((epoch, now)).1,
        };
        let files = CORE.files.to_compare().0;
        let verified = CORE.switch().doubts.verified();
        if files == 0 && verified > 0 && !self.is_over {
            Linux.note(&format!(
                "all files that were doubtful and are open were compared; {verified} cached pages were equal"
            ));
        }
        self.is_over = files == 0;
        let rate = KNOWN.kept.scrub_rate.load(Ordering::SeqCst);
        let time = self.last.map_or(LONGEST, |last| now - last).min(LONGEST);
        let most = u64::try_from(u128::from(rate) * time.as_millis() / 1000).unwrap_or(0);
        if self.is_over || most == 0 || now - since < REST {
            return;
        }
        let from = self.from;
        let scrub = move || CORE.scrub(from, most, TIME);
        self.at_work = Linux.spawn("bpe-scrub", scrub).ok();
        self.last = Some(now);
    }
}
