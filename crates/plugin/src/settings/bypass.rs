//! Effective values of `bpe_bypass` and `bpe_bypass_timeout`, and their expiry.
//!
//! | actor | action |
//! |---|---|
//! | a client, or the configuration | sets `bpe_bypass`: it takes effect at once, and the timeout restarts |
//! | the controller's thread, and status queries | end bypass when the timeout has expired ([`BypassState::expire`]) |
//!
//! With a timeout, every `SET` of `bpe_bypass`, also to OFF, begins a comparison. Until the timeout expires there is a
//! control group, and reads are timed. A change of the timeout while nothing is bypassed ends the comparison. Without a
//! timeout there is no control group.
//!
//! A command that dies therefore leaves no server in bypass. The values are in the variables' own memory, so `@@bpe_bypass`
//! is always the effective value. They persist while the extension is off, and apply to the next one.
//!
//! Lock: a leaf. The switch adopts the wanted value under it, so an older setting never overwrites a newer one. A disk can
//! delay the controller's thread only while no extension is active, when there is nothing to end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coherence::core::Core;
use coherence::os::Os;
use coherence::switch::Bypass;
use parking_lot::Mutex;

/// Maximum of `bpe_bypass_timeout`, seconds.
pub const MAX_TIMEOUT: u64 = 86_400;

pub struct BypassState {
    /// Behind `bpe_bypass`, an index into the names of [`Bypass::ALL`].
    pub bypass: AtomicU64,
    /// Behind `bpe_bypass_timeout`: seconds; 0: no timeout.
    pub timeout: AtomicU64,
    since: Mutex<Since>,
}

/// The bypass of this server.
pub static BYPASS: BypassState = BypassState::new();

struct Since {
    /// When a client last set bypass, by [`Os::running`]; `None` after the timeout has expired.
    set: Option<Duration>,
    /// When bypass began; `None` without bypass.
    began: Option<Began>,
}

struct Began {
    at: Duration,
    /// Pages invalidated by writes before bypass began, and the extension that counted them.
    dropped: u64,
    epoch: u32,
}

/// Values for status.
#[derive(Debug, PartialEq, Eq)]
pub struct BypassStatus {
    pub bypass: Bypass,
    /// Since it began; 0 without bypass.
    pub seconds: u64,
    /// Until bypass and comparison end; `None` if they have no timeout.
    pub left: Option<u64>,
    /// Pages invalidated by writes since bypass began.
    pub dropped: u64,
    /// Whether there is a control group.
    pub compares: bool,
}

/// The origin of a change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Client,
    Time,
}

impl BypassState {
    /// The defaults of the variables.
    pub(crate) const fn new() -> BypassState {
        BypassState {
            bypass: AtomicU64::new(0),
            timeout: AtomicU64::new(0),
            since: Mutex::new(Since {
                set: None,
                began: None,
            }),
        }
    }

    fn wanted(&self) -> Bypass {
        let at = usize::try_from(self.bypass.load(Ordering::SeqCst)).ok();
        let bypass = at.and_then(|at| Bypass::ALL.get(at).copied());
        bypass.unwrap_or_default()
    }

    fn timeout(&self) -> Option<Duration> {
        let seconds = self.timeout.load(Ordering::SeqCst);
        (seconds != 0).then(|| Duration::from_secs(seconds))
    }

    /// Applies the configured values when the plugin is initialised.
    pub fn begin<O: Os>(&self, core: &Core<O>) {
        self.since.lock().began = None;
        self.change(core, By::Client, self.wanted());
        self.end_comparison(core);
    }

    /// A client sets `bpe_bypass`.
    pub fn set<O: Os>(&self, core: &Core<O>, bypass: Bypass) {
        self.change(core, By::Client, bypass);
    }

    /// A client sets `bpe_bypass_timeout`.
    pub fn set_timeout<O: Os>(&self, core: &Core<O>, seconds: u64) {
        self.timeout.store(seconds, Ordering::SeqCst);
        self.end_comparison(core);
    }

    /// Ends the comparison if nothing is bypassed.
    fn end_comparison<O: Os>(&self, core: &Core<O>) {
        let mut since = self.since.lock();
        if self.wanted() == Bypass::Off {
            since.set = None;
        }
        self.apply(core, &since);
    }

    /// Ends bypass and comparison if their time is over.
    pub fn expire<O: Os>(&self, core: &Core<O>) {
        if self.timeout().is_some() {
            self.change(core, By::Time, Bypass::Off);
        }
    }

    fn change<O: Os>(&self, core: &Core<O>, by: By, to: Bypass) {
        let now = core.os().running();
        let (epoch, dropped) = match by {
            By::Client => dropped(core),
            By::Time => (0, 0), // only ends bypass
        };
        let mut since = self.since.lock();
        let timeout = self.timeout();
        let is_over = |(set, timeout): (Duration, Duration)| now.saturating_sub(set) >= timeout;
        if by == By::Time && !since.set.zip(timeout).is_some_and(is_over) {
            return; // a client was faster
        }
        let before = self.wanted();
        self.bypass.store(to as u64, Ordering::SeqCst);
        since.set = (by == By::Client).then_some(now);
        self.apply(core, &since);
        let was = since.began.as_ref().map(|began| (before, began.at));
        if to == Bypass::Off {
            since.began = None;
        } else if was.is_none() {
            since.began = Some(Began {
                at: now,
                dropped,
                epoch,
            });
        }
        drop(since);
        if let Some(line) = log_line(was, to, by, now, timeout) {
            core.os().note(&line);
        }
    }

    /// Call after serving was withheld or released.
    pub fn reapply<O: Os>(&self, core: &Core<O>) {
        self.apply(core, &self.since.lock());
    }

    /// While serving is withheld, everything is bypassed.
    fn apply<O: Os>(&self, core: &Core<O>, since: &Since) {
        let bypass = match core.files.recoveries.is_withheld() {
            true => Bypass::On,
            false => self.wanted(),
        };
        core.switch().use_for(bypass, self.compares(since));
    }

    fn compares(&self, since: &Since) -> bool {
        since.set.is_some() && self.timeout().is_some()
    }

    pub fn status<O: Os>(&self, core: &Core<O>) -> BypassStatus {
        self.expire(core);
        let now = core.os().running();
        let (epoch, dropped) = dropped(core);
        let since = self.since.lock();
        let bypass = self.wanted();
        let left = since.set.zip(self.timeout());
        let left = left.map(|(set, timeout)| (set + timeout).saturating_sub(now));
        let began = since.began.as_ref();
        BypassStatus {
            bypass,
            seconds: began.map_or(0, |began| now.saturating_sub(began.at).as_secs()),
            left: left.map(|left| left.as_millis().div_ceil(1000) as u64),
            dropped: began.map_or(0, |began| match began.epoch == epoch {
                true => dropped.saturating_sub(began.dropped),
                false => dropped,
            }),
            compares: self.compares(&since),
        }
    }
}

/// Returns the epoch of the active extension, and the pages that writes have invalidated since it was opened.
fn dropped<O: Os>(core: &Core<O>) -> (u32, u64) {
    core.switch().active().as_ref().map_or((0, 0), |active| {
        (active.epoch, active.extension.statistics().invalidated)
    })
}

/// Returns the line for the error log. `was`: the previous bypass, and when it began.
fn log_line(
    was: Option<(Bypass, Duration)>,
    is: Bypass,
    by: By,
    now: Duration,
    timeout: Option<Duration>,
) -> Option<String> {
    let name = is.name().to_uppercase();
    let until = timeout.map_or_else(String::new, |timeout| {
        format!(
            "; it ends {} s after bpe_bypass was last set",
            timeout.as_secs()
        )
    });
    let what = match is {
        Bypass::Refill => {
            "reads go to the data files, pages that are written are taken into the cache"
        }
        _ => "reads go to the data files, what is cached stays until it is written",
    };
    match was {
        None if is != Bypass::Off => Some(format!(
            "bypass begins: {what} (bpe_bypass = {name}){until}"
        )),
        Some((_, at)) if is == Bypass::Off => {
            let lasted = now.saturating_sub(at).as_secs();
            let why = match (by, timeout) {
                (By::Time, Some(timeout)) => format!(
                    "bpe_bypass was last set {} s ago (bpe_bypass_timeout)",
                    timeout.as_secs()
                ),
                _ => "bpe_bypass was set to OFF".into(),
            };
            Some(format!(
                "bypass ends after {lasted} s: {why}; reads are served again"
            ))
        }
        Some((before, _)) if before != is => {
            Some(format!("bypass goes on: {what} (bpe_bypass = {name})"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::clock::TEST_CLOCK;
    use crate::platform::process::CORE;

    fn pass(time: Duration) {
        TEST_CLOCK
            .passed
            .fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    fn shown(of: &BypassState) -> (Bypass, Option<u64>, bool) {
        let shown = of.status(&CORE);
        let wanted = Bypass::ALL[of.bypass.load(Ordering::SeqCst) as usize];
        assert_eq!(wanted, shown.bypass, "the variable tells what counts");
        (shown.bypass, shown.left, shown.compares)
    }

    #[test]
    fn bypass_and_comparison_end_after_the_last_setting() {
        let _turn = crate::platform::process::UNDER_TEST.lock();
        let of = BypassState::new();
        of.set(&CORE, Bypass::On);
        pass(Duration::from_secs(100_000));
        assert_eq!(
            shown(&of),
            (Bypass::On, None, false),
            "without a timeout it stays"
        );
        assert!(of.status(&CORE).seconds >= 100_000);
        of.set(&CORE, Bypass::On);
        of.set_timeout(&CORE, 60);
        assert!(matches!(shown(&of), (Bypass::On, Some(55..=60), true)));
        pass(Duration::from_secs(40));
        of.set(&CORE, Bypass::On);
        pass(Duration::from_secs(40));
        assert!(
            matches!(shown(&of), (Bypass::On, Some(15..=20), true)),
            "the time began anew"
        );
        pass(Duration::from_secs(25));
        assert_eq!(shown(&of), (Bypass::Off, None, false));
        assert_eq!(of.status(&CORE).seconds, 0);
        // Serving in between, as in a comparison: the control group also ends if no further change follows.
        of.set(&CORE, Bypass::Refill);
        of.set(&CORE, Bypass::Off);
        pass(Duration::from_secs(50));
        assert!(matches!(shown(&of), (Bypass::Off, Some(_), true)));
        pass(Duration::from_secs(15));
        assert_eq!(shown(&of), (Bypass::Off, None, false));
        // A comparison that restores the previous values leaves no control group.
        of.set(&CORE, Bypass::Off);
        of.set_timeout(&CORE, 60);
        assert_eq!(shown(&of), (Bypass::Off, None, false));
        // Nor does a start with a timeout in the configuration.
        of.begin(&CORE);
        assert_eq!(shown(&of), (Bypass::Off, None, false));
        of.set(&CORE, Bypass::On);
        of.begin(&CORE);
        assert!(matches!(shown(&of), (Bypass::On, Some(_), true)));
        of.set_timeout(&CORE, 0);
        assert_eq!(shown(&of), (Bypass::On, None, false));
        of.set(&CORE, Bypass::Off);
    }

    #[test]
    fn log_names_begin_and_cause_of_end() {
        let second = Duration::from_secs(1);
        let line = |was, is, by| log_line(was, is, by, 30 * second, Some(60 * second));
        let has = |line: Option<String>, text| line.is_some_and(|line| line.contains(text));
        let on = Some((Bypass::On, 20 * second));
        assert!(has(line(None, Bypass::On, By::Client), "begins"));
        assert!(has(line(None, Bypass::On, By::Client), "60 s after"));
        assert!(has(
            line(on, Bypass::Off, By::Client),
            "after 10 s: bpe_bypass was set to OFF"
        ));
        assert!(has(line(on, Bypass::Off, By::Time), "bpe_bypass_timeout"));
        assert!(has(line(on, Bypass::Refill, By::Client), "REFILL"));
        assert_eq!(line(on, Bypass::On, By::Client), None);
        assert_eq!(line(None, Bypass::Off, By::Client), None);
    }
}
