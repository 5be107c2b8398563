//! Messages of the controller: log, clients and status.

use cache::{RecoveredEntries, Statistics};
use coherence::controller::{LogEvent, Refused, Shown};
use coherence::os::Os as _;

use crate::platform::Linux;
use crate::restart::persist::Recovered;
use crate::settings::Settings;

const PANIC: &str = "switched off by an internal error; see the error log";
const AFTER_PANIC: &str = "an internal error switched the extension off; see the error log, and restart the server to use it again";
const BUSY: &str = "the extension is being built or switched; try again in some seconds; if this continues, a disk in \
                        bpe_path does not answer";
const NOT_INSTALLED: &str = "the plugin is not installed, only its function is";

/// State of the extension, for status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Switched off.
    Disabled = 0,
    /// Serving.
    Active = 1,
    /// The server's calls cannot be intercepted, or a foreign process writes to its files.
    Passive = 2,
    /// Requested, but failed; the controller retries automatically.
    Failed = 3,
    /// On, but reads go to the data files.
    Bypass = 4,
}

impl State {
    /// The name in `Bpe_state`.
    pub fn name(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Active => "active",
            State::Passive => "passive",
            State::Failed => "failed",
            State::Bypass => "bypass",
        }
    }
}

/// Logs an event. `early`: the plugin was loaded before InnoDB started.
pub fn log_event(told: LogEvent<Settings>, early: bool) {
    match told {
        LogEvent::SwitchedOn(settings) => Linux.note(&format!(
            "switched on: {} on {}, {} instance(s), {} mode",
            match settings.percent() {
                Some(percent) => format!("{percent} % of the room"),
                None => format!("{} bytes", settings.size),
            },
            settings.path,
            settings.instance_count(),
            if early {
                "early"
            } else {
                "run-time"
            }
        )),
        LogEvent::SwitchedOff => Linux.note("switched off; the cache files are removed"),
        LogEvent::Passive(why) => Linux.warning(&format!(
            "passive: {why} The server works as it would without the extension."
        )),
        LogEvent::Unseen(why) => Linux.error(&format!(
            "passive: {why} Everything cached is dropped and the extension is off."
        )),
        LogEvent::Foreign(why) => Linux.error(&format!(
            "{why}. Everything cached is dropped and the extension is off. Find out who writes to the data files of a running \
             server, or has put back older ones: that is a danger to the data itself. SET GLOBAL bpe_enabled = ON uses the \
             extension again."
        )),
        LogEvent::Failed(why) => Linux.error(&format!(
            "not switched on: {why}. It is tried again by itself."
        )),
        LogEvent::Warnings(warnings) => warnings.iter().for_each(|warning| Linux.warning(warning)),
        LogEvent::SmallerPages(page) => Linux.note(&format!(
            "most data is read in pages of {page} bytes; the cache is laid out anew for them"
        )),
    }
}

/// The text for the client.
pub fn refusal_text(refused: Refused) -> String {
    match refused {
        Refused::Why(why) => why,
        Refused::Busy => BUSY.into(),
        Refused::Overtaken => "another session has switched the extension off meanwhile".into(),
        Refused::Broken => AFTER_PANIC.into(),
        Refused::NotInstalled => NOT_INSTALLED.into(),
        Refused::Unseen(why) => format!("the server's I/O cannot be seen: {why}"),
    }
}

/// The text for status. `no_thread`: the reason why the controller's thread could not be started.
pub fn state_text(shown: Shown<'_>, no_thread: Option<String>) -> (State, String) {
    match (shown, no_thread) {
        (Shown::Off, _) => (State::Disabled, String::new()),
        (Shown::Pending, Some(why)) => (State::Failed, why),
        (Shown::Pending, None) => (State::Disabled, "being switched on".into()),
        (Shown::On, _) => (State::Active, String::new()),
        (Shown::Passive(why), _) => (State::Passive, why.into()),
        (Shown::Failed(why), _) => (State::Failed, why.into()),
        (Shown::Broken, _) => (State::Failed, PANIC.into()),
    }
}

/// The result of a recovery. `from_snapshot`: the host was rebooted, or the data were remounted, since then.
pub fn recovered(engine: &RecoveredEntries, from_snapshot: bool) -> String {
    if !engine.any {
        return String::from(
            "the cache starts empty: what was left is of other settings (bpe_path, bpe_size, bpe_instances, bpe_memory_limit, \
             bpe_compression), or a cache file is gone",
        );
    }
    format!(
        "recovered {} cached pages{}; {} were lost with the process before",
        engine.pages,
        if from_snapshot {
            " of before the machine's restart or the remount"
        } else {
            ""
        },
        engine.dropped
    )
}

/// The result for each file.
pub fn recovery_result(recovered: &Recovered, from_snapshot: bool) -> String {
    let (_, pages) = recovered.rejected;
    let all = recovered.pages + recovered.dropped;
    let percent = 100 * recovered.pages.saturating_sub(pages) / all.max(1);
    let over = if from_snapshot {
        "the machine's restart or the remount"
    } else {
        "the restart"
    };
    let mut text = format!("{percent} % of the cache was kept over {over}");
    if recovered.rejected.0 > 0 {
        let reasons = recovered.reasons.iter().take(3);
        let reasons = reasons.map(|(file, why)| format!("{file} ({})", why.text()));
        let reasons: Vec<_> = reasons.collect();
        text += &format!(
            "; {} files are not proven, and their pages are loaded anew",
            recovered.rejected.0
        );
        // Files that were removed or never opened have no reason.
        if !reasons.is_empty() {
            text += &format!(", among them {}", reasons.join(", "));
        }
    }
    text
}

/// The warning that the cache will not survive this process.
pub fn not_persisted(why: &str) -> String {
    format!("the cache works, but will be empty after a restart (bpe_persist_path): {why}")
}

/// Totals of a closing extension: the server's status variables end with the server. `None` if there were no reads.
pub fn totals(figures: &Statistics, is_persisted: bool) -> Option<String> {
    let ends = if is_persisted {
        "left to the server's next start"
    } else {
        "closed"
    };
    (figures.hits + figures.misses > 0).then(|| format!(
        "the cache is {ends}: it served {} of {} page reads; it took in {} pages and dropped {} because they were \
         written; {} failed proofs, {} device errors",
        figures.hits,
        figures.hits + figures.misses,
        figures.admitted,
        figures.invalidated,
        figures.failed_proofs,
        figures.device_errors,
    ))
}

#[cfg(test)]
mod tests {
    use coherence::proof::Rejection;

    use super::*;

    #[test]
    fn a_result_gives_the_share_that_was_kept_and_three_reasons() {
        let mut result = Recovered {
            pages: 900,
            dropped: 100,
            ..Recovered::default()
        };
        assert_eq!(
            recovery_result(&result, false),
            "90 % of the cache was kept over the restart"
        );
        // Files that were removed have no reason.
        result.rejected = (5, 400);
        assert_eq!(
            recovery_result(&result, true),
            "50 % of the cache was kept over the machine's restart or the remount; 5 files are not proven, and their pages are \
             loaded anew"
        );
        for name in ["a.ibd", "b.ibd", "c.ibd", "d.ibd"] {
            result.reasons.push((name.into(), Rejection::Changed));
        }
        let text = recovery_result(&result, true);
        let (_, reasons) = text.split_once("loaded anew, among them ").unwrap();
        assert_eq!(
            reasons
                .matches("was changed while the server was down")
                .count(),
            3,
            "{reasons}"
        );
        // Nothing was recovered.
        assert!(recovery_result(&Recovered::default(), false).starts_with("0 % "));
    }

    #[test]
    fn a_state_has_its_reason() {
        let no_thread = || Some("no thread".to_owned());
        for (shown, why, state, text) in [
            (Shown::Off, no_thread(), State::Disabled, ""),
            (Shown::Pending, None, State::Disabled, "being switched on"),
            (Shown::Pending, no_thread(), State::Failed, "no thread"),
            (Shown::On, None, State::Active, ""),
            (Shown::Passive("unseen"), None, State::Passive, "unseen"),
            (Shown::Failed("no room"), None, State::Failed, "no room"),
            (Shown::Broken, None, State::Failed, PANIC),
        ] {
            assert_eq!(state_text(shown, why), (state, text.to_owned()));
        }
    }

    #[test]
    fn every_refusal_says_what_a_client_can_do_or_why() {
        for (refused, part) in [
            (Refused::Why("no room".into()), "no room"),
            (Refused::Busy, "try again"),
            (Refused::Overtaken, "another session"),
            (Refused::Broken, "restart the server"),
            (Refused::NotInstalled, "only its function"),
            (Refused::Unseen("libaio".into()), "cannot be seen: libaio"),
        ] {
            let text = refusal_text(refused);
            assert!(text.contains(part), "{text}");
        }
    }
}
