//! What is seen of one file: whether it looks otherwise than it did though nothing was seen to change it.

use std::time::Duration;

use crate::files::{DataFile, Files, Looks};
use crate::os::Os;

/// What was seen of one file. Moments are those of [`Os::running`].
pub struct Watch {
    /// The number of [`DataFile::at_rest`], if it was.
    at_rest: Option<u64>,
    /// Since when that is so.
    since: Duration,
    /// Looks at the last time, and since when they are these.
    last: Option<Looks>,
    steady_since: Duration,
    /// Looks once nothing was seen to change it for long enough.
    remembered: Option<Looks>,
}

/// What a look at a file tells.
#[derive(Debug, PartialEq, Eq)]
pub enum Seen {
    /// It was changed a short while ago, or is being changed, or is closed.
    Busy,
    /// It was not changed for long enough, and has looked the same all the time, or has not.
    Quiet {
        /// The same all the time.
        steady: bool,
    },
    /// It looks otherwise than it did, and nothing was seen to change it. How, for people.
    Otherwise(String),
}

impl Watch {
    /// Of a file that was never looked at.
    pub fn new(now: Duration) -> Watch {
        Watch {
            at_rest: None,
            since: now,
            last: None,
            steady_since: now,
            remembered: None,
        }
    }

    /// Looks at a file of which nothing else is changed than what is seen, or which is quiet for `quiet` first.
    pub fn look_at<O: Os>(
        &mut self,
        files: &Files<O>,
        file: &'static DataFile,
        quiet: Duration,
    ) -> Seen {
        // In this order: a change begins to count before it is made.
        let before = file.at_rest();
        let looks = files.looks(file);
        let at_rest = before.filter(|_| file.at_rest() == before);
        self.look(at_rest, looks, files.os.running(), quiet)
    }

    fn look(
        &mut self,
        at_rest: Option<u64>,
        looks: Option<Looks>,
        now: Duration,
        quiet: Duration,
    ) -> Seen {
        let (Some(at_rest), Some(looks)) = (at_rest, looks) else {
            *self = Watch::new(now);
            return Seen::Busy;
        };
        if self.at_rest != Some(at_rest) {
            *self = Watch {
                at_rest: Some(at_rest),
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
    use crate::os::Stat;

    const QUIET: Duration = Duration::from_secs(90);

    fn looks(size: i64) -> Option<Looks> {
        Some(Looks::of(&Stat {
            size,
            ..Stat::default()
        }))
    }

    /// A watch, and a clock that goes on by ten seconds for each look.
    struct Clocked(Watch, Duration);

    impl Clocked {
        fn new() -> Clocked {
            Clocked(Watch::new(Duration::ZERO), Duration::ZERO)
        }

        fn look(&mut self, at_rest: Option<u64>, size: i64) -> Seen {
            self.1 += Duration::from_secs(10);
            self.0.look(at_rest, looks(size), self.1, QUIET)
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
        // It has to come to rest before it is remembered again.
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
        // What a file server tells late.
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
        // A closed file is no affair of the audit's.
        assert_eq!(file.0.look(Some(8), None, file.1, QUIET), Seen::Busy);
        file.rest(8, 50);
    }
}
