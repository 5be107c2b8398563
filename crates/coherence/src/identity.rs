//! Whether a file is what it was, by its size and its times.

use crate::os::{Os, Stat};

/// What identifies the contents of a file that nobody has open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Bytes.
    pub size: i64,
    /// Nanoseconds since 1970, as the next.
    pub modified: i64,
    pub changed: i64,
}

impl Identity {
    /// Of a file of which the kernel says this.
    pub fn of(stat: &Stat) -> Identity {
        Identity {
            size: stat.size,
            modified: nanoseconds(stat.modified),
            changed: nanoseconds(stat.changed),
        }
    }
}

fn nanoseconds((seconds, nanoseconds): (i64, i64)) -> i64 {
    seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(nanoseconds)
}

/// What every change of a file's contents changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looks {
    size: i64,
    modified: (i64, i64),
}

impl Looks {
    /// Of a file of which the kernel says this.
    pub fn of(stat: &Stat) -> Looks {
        Looks {
            size: stat.size,
            modified: stat.modified,
        }
    }

    /// For people.
    pub fn difference(&self, later: &Looks) -> String {
        if self.size == later.size {
            String::from("its modification time differs")
        } else {
            format!("it had {} bytes and now has {}", self.size, later.size)
        }
    }
}

/// Whether a change of the file from now on would leave other times than it has. File systems take them from a clock that
/// goes by ticks (10 ms at most), or keep whole seconds only: what is changed twice between two of them looks unchanged.
/// `now` is that clock, in nanoseconds.
fn is_settled(stat: &Stat, now: i128) -> bool {
    if left_out!("settled") {
        return true;
    }
    let changed = i128::from(nanoseconds(stat.changed));
    let longest = if has_whole_seconds(stat) {
        2_000_000_000
    } else {
        TICK
    };
    now - changed >= longest
}

/// Longer than the clock by which file systems stamp changes stands still, nanoseconds.
pub const TICK: i128 = 20_000_000;

/// Whether the file system seems to keep no fractions of a second.
pub fn has_whole_seconds(stat: &Stat) -> bool {
    stat.changed.1 == 0 && stat.modified.1 == 0
}

/// Both clocks at one moment, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// By [`Os::since_boot`].
    pub since_boot: i128,
    /// By [`Os::file_time`].
    pub file_time: i128,
}

impl Clocks {
    /// Now.
    pub fn now(os: &impl Os) -> Clocks {
        Clocks {
            since_boot: os.since_boot(),
            file_time: os.file_time(),
        }
    }

    /// Whether the clock of the files was set back since: a change may then have got the times of one before.
    pub fn were_set_back(&self, now: Clocks) -> bool {
        let passed = now.since_boot - self.since_boot;
        // By how much clocks that nobody sets may differ: a tick, and the 500 millionths by which the kernel keeps them right.
        let allowed = TICK + passed / 2000;
        now.file_time - self.file_time < passed - allowed
    }
}

/// What a file was when the last descriptor of it was closed, by which it is known again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed {
    pub identity: Identity,
    pub clocks: Clocks,
}

impl Closed {
    /// Of a file that is just being closed.
    pub fn now(stat: &Stat, os: &impl Os) -> Closed {
        Closed {
            identity: Identity::of(stat),
            clocks: Clocks::now(os),
        }
    }

    /// The same; `None` if a change from now on might leave the times that the file has.
    pub fn of(stat: &Stat, os: &impl Os) -> Option<Closed> {
        let closed = Closed::now(stat, os);
        is_settled(stat, closed.clocks.file_time).then_some(closed)
    }

    /// Whether a change right afterwards would have left other times.
    pub fn is_settled(&self) -> bool {
        self.clocks.file_time - i128::from(self.identity.changed) >= TICK
    }

    /// Whether a file that looks like this was not changed since.
    pub fn is(&self, stat: &Stat, os: &impl Os) -> bool {
        self.identity == Identity::of(stat) && !self.clocks.were_set_back(Clocks::now(os))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_a_moment_ago_do_not_tell_a_change() {
        let mut stat = Stat {
            changed: (1000, 500),
            ..Stat::default()
        };
        let at = |nanos: i128| 1000 * 1_000_000_000 + nanos;
        assert!(!is_settled(&stat, at(500)));
        assert!(!is_settled(&stat, at(10_000_500)), "the tick may be 10 ms");
        assert!(is_settled(&stat, at(20_000_500)));
        assert!(!is_settled(&stat, at(-1)), "a clock that was put back");
        stat.changed.1 = 0;
        assert!(
            !is_settled(&stat, at(1_500_000_000)),
            "a file system that keeps seconds"
        );
        assert!(is_settled(&stat, at(2_000_000_000)));
    }
}
