//! What `bpe_bypass`, `bpe_bypass_timeout` and `bpe_control_group` say, and for how long it counts.
//!
//! | who | what |
//! |---|---|
//! | a client, or the configuration | sets one of the first two, or the control group: it counts at once, and the time begins anew |
//! | the controller's thread, and whoever asks for the status | ends bypass and control group when the time is over ([`Bypassing::look`]) |
//!
//! A command that dies therefore leaves no server in bypass. The values stand in the variables' own memory, so that
//! `@@bpe_bypass` is what counts, whoever has set it. They hold while the extension is off, too, for the next one.
//!
//! Lock: a leaf. The switch takes over what is wanted under it, so that what was set first never comes last. The controller's
//! thread may be held up by a disk only while no extension is active, when there is nothing to end.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::core::Core;
use crate::os::Os;
use crate::switch::Bypass;

/// The longest `bpe_bypass_timeout`, seconds.
pub const LONGEST: u64 = 86_400;

pub struct Bypassing {
    /// Behind `bpe_bypass`, an index into the names of [`Bypass::ALL`].
    pub bypass: AtomicU64,
    /// Behind `bpe_bypass_timeout`: seconds; 0: until it is changed.
    pub timeout: AtomicU64,
    /// Behind `bpe_control_group`.
    pub control_group: AtomicU8,
    since: Mutex<Since>,
}

struct Since {
    /// When bypass or control group was last set, by [`Os::running`].
    set: Duration,
    /// When bypass began, if it has.
    began: Option<Began>,
}

struct Began {
    at: Duration,
    /// Pages that writes had dropped by then, and of which extension.
    dropped: u64,
    epoch: u32,
}

/// For status.
#[derive(Debug, PartialEq, Eq)]
pub struct Shown {
    pub bypass: Bypass,
    /// Since it began; 0 without bypass.
    pub seconds: u64,
    /// Until bypass and control group end; `None` if they do not by themselves.
    pub left: Option<u64>,
    /// Pages that writes have dropped since it began.
    pub dropped: u64,
    pub control_group: bool,
}

/// Who changes it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Client,
    Time,
}

impl Bypassing {
    /// As the variables are by default.
    pub(crate) const fn new() -> Bypassing {
        Bypassing {
            bypass: AtomicU64::new(0),
            timeout: AtomicU64::new(0),
            control_group: AtomicU8::new(0),
            since: Mutex::new(Since {
                set: Duration::ZERO,
                began: None,
            }),
        }
    }

    fn wanted(&self) -> (Bypass, bool) {
        let at = usize::try_from(self.bypass.load(Ordering::SeqCst)).ok();
        let bypass = at.and_then(|at| Bypass::ALL.get(at).copied());
        let control_group = self.control_group.load(Ordering::SeqCst) != 0;
        (bypass.unwrap_or_default(), control_group)
    }

    fn timeout(&self) -> Option<Duration> {
        let seconds = self.timeout.load(Ordering::SeqCst);
        (seconds != 0).then(|| Duration::from_secs(seconds))
    }

    /// The plugin is initialised: what the configuration says counts.
    pub fn begin<O: Os>(&self, core: &Core<O>) {
        self.since.lock().began = None;
        let (bypass, control_group) = self.wanted();
        self.change(core, By::Client, |_| (bypass, control_group));
    }

    /// A client sets `bpe_bypass`.
    pub fn set<O: Os>(&self, core: &Core<O>, bypass: Bypass) {
        self.change(core, By::Client, |(_, control_group)| {
            (bypass, control_group)
        });
    }

    /// A client sets `bpe_control_group`.
    pub fn set_control_group<O: Os>(&self, core: &Core<O>, on: bool) {
        self.change(core, By::Client, |(bypass, _)| (bypass, on));
    }

    /// Ends bypass and control group if their time is over.
    pub fn look<O: Os>(&self, core: &Core<O>) {
        if self.wanted() != (Bypass::Off, false) && self.timeout().is_some() {
            self.change(core, By::Time, |_| (Bypass::Off, false));
        }
    }

    fn change<O: Os>(
        &self,
        core: &Core<O>,
        by: By,
        to: impl FnOnce((Bypass, bool)) -> (Bypass, bool),
    ) {
        let now = core.os().running();
        let (epoch, dropped) = match by {
            By::Client => dropped(core),
            By::Time => (0, 0), // it only ends
        };
        let mut since = self.since.lock();
        let timeout = self.timeout();
        if by == By::Time && timeout.is_none_or(|timeout| now.saturating_sub(since.set) < timeout) {
            return; // a client was faster
        }
        let before = self.wanted();
        let after = to(before);
        self.bypass.store(after.0 as u64, Ordering::SeqCst);
        self.control_group.store(after.1.into(), Ordering::SeqCst);
        apply(core, after);
        since.set = now;
        let was = since.began.as_ref().map(|began| (before.0, began.at));
        if after.0 == Bypass::Off {
            since.began = None;
        } else if was.is_none() {
            since.began = Some(Began {
                at: now,
                dropped,
                epoch,
            });
        }
        drop(since);
        if let Some(line) = told(was, after.0, by, now, timeout) {
            core.os().note(&line);
        }
    }

    /// It has changed whether anything may be served.
    pub fn again<O: Os>(&self, core: &Core<O>) {
        let _since = self.since.lock();
        apply(core, self.wanted());
    }

    pub fn shown<O: Os>(&self, core: &Core<O>) -> Shown {
        self.look(core);
        let now = core.os().running();
        let (epoch, dropped) = dropped(core);
        let since = self.since.lock();
        let (bypass, control_group) = self.wanted();
        let ends = (bypass, control_group) != (Bypass::Off, false);
        let left = self.timeout().filter(|_| ends);
        let left = left.map(|timeout| (since.set + timeout).saturating_sub(now));
        let began = since.began.as_ref();
        Shown {
            bypass,
            seconds: began.map_or(0, |began| now.saturating_sub(began.at).as_secs()),
            left: left.map(|left| left.as_millis().div_ceil(1000) as u64),
            dropped: began.map_or(0, |began| match began.epoch == epoch {
                true => dropped.saturating_sub(began.dropped),
                false => dropped,
            }),
            control_group,
        }
    }
}

/// As long as nothing may be served, all is bypassed.
fn apply<O: Os>(core: &Core<O>, (bypass, control_group): (Bypass, bool)) {
    let bypass = match core.files.recoveries.is_withheld() {
        true => Bypass::On,
        false => bypass,
    };
    core.switch().use_for(bypass, control_group);
}

/// Pages that writes have dropped since the active extension was opened, and which one that is.
fn dropped<O: Os>(core: &Core<O>) -> (u32, u64) {
    core.switch().active().as_ref().map_or((0, 0), |active| {
        (active.epoch, active.extension.statistics().invalidated)
    })
}

/// The line for the error log. `was`: how reads were bypassed before, and since when.
fn told(
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
    use crate::clock::TURNED;
    use crate::process::CORE;

    fn pass(time: Duration) {
        TURNED
            .passed
            .fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
    }

    fn shown(of: &Bypassing) -> (Bypass, Option<u64>, bool) {
        let shown = of.shown(&CORE);
        let wanted = (
            Bypass::ALL[of.bypass.load(Ordering::SeqCst) as usize],
            of.control_group.load(Ordering::SeqCst),
        );
        assert_eq!(
            wanted,
            (shown.bypass, u8::from(shown.control_group)),
            "the variables tell what counts"
        );
        (shown.bypass, shown.left, shown.control_group)
    }

    #[test]
    fn bypass_and_control_group_end_after_the_last_setting() {
        let _turn = crate::process::UNDER_TEST.lock();
        let of = Bypassing::new();
        of.set(&CORE, Bypass::On);
        pass(Duration::from_secs(100_000));
        assert_eq!(
            shown(&of),
            (Bypass::On, None, false),
            "without a timeout it stays"
        );
        assert!(of.shown(&CORE).seconds >= 100_000);
        of.set(&CORE, Bypass::On);
        of.timeout.store(60, Ordering::SeqCst);
        pass(Duration::from_secs(40));
        of.set(&CORE, Bypass::On);
        of.set_control_group(&CORE, true);
        pass(Duration::from_secs(40));
        assert!(
            matches!(shown(&of), (Bypass::On, Some(15..=20), true)),
            "the time began anew"
        );
        pass(Duration::from_secs(25));
        assert_eq!(shown(&of), (Bypass::Off, None, false));
        assert_eq!(of.shown(&CORE).seconds, 0);
        // Serving in between, as a comparison does: the control group ends too if nobody goes on.
        of.set(&CORE, Bypass::Refill);
        of.set_control_group(&CORE, true);
        of.set(&CORE, Bypass::Off);
        pass(Duration::from_secs(50));
        assert!(matches!(shown(&of), (Bypass::Off, Some(_), true)));
        pass(Duration::from_secs(15));
        assert_eq!(shown(&of), (Bypass::Off, None, false));
    }

    #[test]
    fn the_log_says_what_begins_and_who_ended_it() {
        let second = Duration::from_secs(1);
        let line = |was, is, by| told(was, is, by, 30 * second, Some(60 * second));
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
