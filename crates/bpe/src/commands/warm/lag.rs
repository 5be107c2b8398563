//! Whether a standby falls behind. It needs its data disk for catching up, so loading slows down until it has caught
//! up. A failover waits until all changes are applied, and a warm cache does not compensate for that. An unknown lag
//! slows nothing down.

use std::time::{Duration, Instant};

use crate::cluster::membership::Membership;
use crate::connect::server::Server;

/// Polling interval.
const INTERVAL: Duration = Duration::from_secs(2);
/// Lag in seconds that does not count, and the growth between two answers that does.
const NEAR: f64 = 2.0;
const FURTHER: f64 = 0.5;
/// Limit on queued write sets of a Galera node. From 16 on, flow control stops the whole cluster.
const WRITE_SETS: u64 = 8;

#[derive(Default)]
pub struct Lag {
    asked: Option<Instant>,
    /// Lag of the previous answer in seconds.
    last: Option<f64>,
    is_growing: bool,
    /// State that the account lacks the privilege to see.
    pub unseen: Vec<String>,
}

impl Lag {
    /// Whether the server is known to fall behind.
    pub fn is_growing(&mut self, server: &mut Server) -> bool {
        if self.asked.is_none_or(|asked| asked.elapsed() >= INTERVAL) {
            self.asked = Some(Instant::now());
            let Ok(membership) = Membership::read(server) else {
                return self.take(None, false);
            };
            let is_crowded = membership.write_sets.is_some_and(|n| n > WRITE_SETS);
            // The lag of a delayed replica grows with each write of its source, so it is ignored.
            let lag = membership.lag_s.filter(|_| membership.delay_s == 0);
            self.unseen = membership.unseen;
            self.take(lag, is_crowded);
        }
        self.is_growing
    }

    fn take(&mut self, lag: Option<f64>, is_crowded: bool) -> bool {
        let further = lag
            .zip(self.last)
            .is_some_and(|(lag, last)| lag > NEAR && lag > last + FURTHER);
        self.last = lag;
        let is_near = lag.is_none_or(|lag| lag <= NEAR);
        self.is_growing = is_crowded || further || (self.is_growing && !is_near);
        self.is_growing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_lag_counts_until_caught_up() {
        let mut behind = Lag::default();
        for lag in [0.0, 1.0, 1.9] {
            assert!(!behind.take(Some(lag), false), "near");
        }
        assert!(behind.take(Some(3.0), false));
        assert!(behind.take(Some(3.0), false), "not caught up");
        assert!(behind.take(Some(2.5), false));
        assert!(!behind.take(Some(1.0), false));
    }

    #[test]
    fn steady_or_unknown_lag_does_not_count() {
        let mut behind = Lag::default();
        for lag in [3600.0, 3600.2, 3599.9, 3600.0] {
            assert!(!behind.take(Some(lag), false));
        }
        assert!(!behind.take(None, false) && !behind.take(Some(9.0), false));
        assert!(
            behind.take(None, true),
            "a node of Galera whose queue grows"
        );
        assert!(!behind.take(None, false));
    }
}
