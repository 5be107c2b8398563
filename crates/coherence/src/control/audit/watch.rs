//! Audit state of one file: whether its size or times changed although no change was observed.

use std::time::Duration;

use crate::files::{DataFile, FileStat, Files};
use crate::platform::os::Os;

/// Observations of one file. Times are those of [`Os::running`].
pub struct Watch {
    /// The last value of [`DataFile::idle_changes`].
    idle_changes: Option<u64>,
    /// Start of the current observation: of this value, or of the last unexplained difference.
    since: Duration,
    /// The last size and times, and since when they have been constant.
    last: Option<FileStat>,
    steady_since: Duration,
    /// Size and times after a quiet period; later ones are compared with them.
    remembered: Option<FileStat>,
}

/// Result of observing a file.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// The file changed recently, is changing, or is closed.
    Busy,
    /// No change was observed for a quiet period.
    Quiet {
        /// Size and times were constant all that time.
        steady: bool,
    },
    /// Size or times differ although no change was observed. Holds the difference as text.
    Otherwise(String),
}

impl Watch {
    /// Creates the state of a file that was never observed.
    pub fn new(now: Duration) -> Watch {
        Watch {
            idle_changes: None,
            since: now,
            last: None,
            steady_since: now,
            remembered: None,
        }
    }

    /// Observes a file. `quiet` is the time without a change before its size and times are remembered.
    pub fn look_at<O: Os>(
        &mut self,
        files: &Files<O>,
        file: &'static DataFile,
        quiet: Duration,
    ) -> Seen {
        // In this order: a change is counted before it is submitted.
        let before = file.idle_changes();
        let looks = files.stat_of(file);
        let idle_changes = before.filter(|_| file.idle_changes() == before);
        self.look(idle_changes, looks, files.os.running(), quiet)
    }

    fn look(
        &mut self,
        idle_changes: Option<u64>,
        looks: Option<FileStat>,
        now: Duration,
        quiet: Duration,
    ) -> Seen {
        let (Some(idle_changes), Some(looks)) = (idle_changes, looks) else {
            *self = Watch::new(now);
            return Seen::Busy;
        };
        if self.idle_changes != Some(idle_changes) {
            *self = Watch {
                idle_changes: Some(idle_changes),
                last: Some(looks),
                ..Watch::new(now)
            };
        }
        if self.last.replace(looks) != Some(looks) {
            self.steady_since = now;
        }
        match self.remembered {
            Some(remembered) if remembered != looks => {
                self.since = now;
                self.remembered = None;
                return Seen::Otherwise(remembered.difference(&looks));
            }
            None if now.saturating_sub(self.since) >= quiet => self.remembered = Some(looks),
            Some(_) | None => {}
        }
        if self.remembered.is_none() {
            return Seen::Busy;
        }
        Seen::Quiet {
            steady: now.saturating_sub(self.steady_since) >= quiet,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::platform::os::Stat;

    const QUIET_PERIOD: Duration = Duration::from_secs(90);

    fn looks(size: i64) -> Option<FileStat> {
        Some(FileStat::of(&Stat {
            size,
            ..Stat::default()
        }))
    }

    /// A watch, and a clock that advances ten seconds with each observation.
    struct Clocked(Watch, Duration);

    impl Clocked {
        fn new() -> Clocked {
            Clocked(Watch::new(Duration::ZERO), Duration::ZERO)
        }

        fn look(&mut self, idle_changes: Option<u64>, size: i64) -> Seen {
            self.1 += Duration::from_secs(10);
            self.0.look(idle_changes, looks(size), self.1, QUIET_PERIOD)
        }

        fn rest(&mut self, number: u64, size: i64) {
            for _ in 0..9 {
                assert_eq!(self.look(Some(number), size), Seen::Busy);
            }
            assert_eq!(self.look(Some(number), size), Seen::Quiet { steady: true });
        }
    }

    #[test]
    fn a_file_that_looks_otherwise_without_a_change_is_suspected() {
        let mut file = Clocked::new();
        file.rest(7, 100);
        let Seen::Otherwise(difference) = file.look(Some(7), 200) else {
            panic!("not noticed");
        };
        assert!(difference.contains("100") && difference.contains("200"));
        // It must become quiet before it is remembered again.
        assert_eq!(file.look(Some(7), 300), Seen::Busy);
        for _ in 0..7 {
            assert_eq!(file.look(Some(7), 300), Seen::Busy);
        }
        assert_eq!(file.look(Some(7), 300), Seen::Quiet { steady: false });
        assert_eq!(file.look(Some(7), 300), Seen::Quiet { steady: true });
    }

    #[test]
    fn a_change_that_was_seen_explains_all_looks() {
        let mut file = Clocked::new();
        file.rest(7, 100);
        assert_eq!(file.look(Some(8), 200), Seen::Busy);
        // A late report of a file server.
        assert_eq!(file.look(Some(8), 300), Seen::Busy);
        for _ in 0..7 {
            assert_eq!(file.look(Some(8), 300), Seen::Busy);
        }
        assert_eq!(file.look(Some(8), 300), Seen::Quiet { steady: false });
    }

    #[test]
    fn a_change_under_way_is_waited_for() {
        let mut file = Clocked::new();
        file.rest(7, 100);
        for size in 100..120 {
            assert_eq!(file.look(None, size), Seen::Busy);
        }
        file.rest(8, 120);
        // The audit ignores closed files.
        assert_eq!(file.0.look(Some(8), None, file.1, QUIET_PERIOD), Seen::Busy);
        file.rest(8, 50);
    }
}
