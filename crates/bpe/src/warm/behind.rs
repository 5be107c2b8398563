//! A standby that falls behind needs its data disk for that, so loading slows down until it keeps up again. A takeover waits for what is not
//! applied yet, and no warmth makes up for that.

use std::time::{Duration, Instant};

use crate::cluster::membership::Membership;

/// Between two looks at the server.
const EVERY: Duration = Duration::from_secs(2);
/// Seconds that do not count yet, and by how many it must be further behind than at the look before. A replica that is delayed on
/// purpose is behind all the time, and no further.
const NEAR: f64 = 2.0;
const FURTHER: f64 = 0.5;
/// Write sets that wait at a node of Galera; from 16 on it makes the whole cluster wait.
const WRITE_SETS: u64 = 8;
/// Looks at which it must not have fallen behind any further.
const CALM: u32 = 5;

/// What is known of how far behind it is.
#[derive(Default)]
pub struct Behind {
    looked: Option<Instant>,
    /// Seconds, at the look before.
    last: Option<f64>,
    /// Looks since it fell behind.
    calm: u32,
    is_falling: bool,
}

impl Behind {
    /// Whether it is time for another look.
    pub fn is_due(&self) -> bool {
        self.looked.is_none_or(|looked| looked.elapsed() >= EVERY)
    }

    /// Takes a look in. Whether it falls behind.
    pub fn look(&mut self, membership: &Membership) -> bool {
        self.looked = Some(Instant::now());
        let crowded = membership.write_sets.is_some_and(|n| n > WRITE_SETS);
        self.take(membership.lag_s, crowded)
    }

    fn take(&mut self, lag: Option<f64>, crowded: bool) -> bool {
        let further = lag
            .zip(self.last)
            .is_some_and(|(lag, last)| lag > NEAR && lag > last + FURTHER);
        self.last = lag;
        if further || crowded {
            self.is_falling = true;
            self.calm = 0;
        } else {
            self.calm += 1;
            self.is_falling &= self.calm < CALM;
        }
        self.is_falling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_falls_behind_and_keeps_up_again() {
        let mut behind = Behind::default();
        assert!(behind.is_due());
        for lag in [0.0, 1.0, 1.9] {
            assert!(!behind.take(Some(lag), false), "near");
        }
        assert!(behind.take(Some(3.0), false));
        for _ in 1..CALM {
            assert!(behind.take(Some(3.0), false), "not calm for long enough");
        }
        assert!(!behind.take(Some(1.0), false));
    }

    #[test]
    fn who_is_late_on_purpose_or_cannot_tell_is_not_behind() {
        let mut behind = Behind::default();
        for lag in [3600.0, 3600.2, 3599.9, 3600.0] {
            assert!(!behind.take(Some(lag), false));
        }
        assert!(!behind.take(None, false) && !behind.take(Some(9.0), false));
        assert!(
            behind.take(None, true),
            "a node of Galera whose queue grows"
        );
    }
}
