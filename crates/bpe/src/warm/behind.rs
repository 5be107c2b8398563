//! Whether a standby falls behind. It needs its data disk for catching up, so loading slows down until it has: a takeover waits for what
//! is not applied yet, and a warm cache does not make up for that.
//!
//! This is advice: an unknown lag slows nothing down. A connection of its own asks, so that a server that does not answer this question
//! delays nothing.

use std::time::{Duration, Instant};

use crate::cluster::membership::Membership;
use crate::connection::Target;
use crate::server::Server;

/// How often the server is asked, and how often a connection is tried.
const INTERVAL: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_secs(30);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// A shorter lag does not count, seconds; and the growth between two answers that does.
const NEAR: f64 = 2.0;
const FURTHER: f64 = 0.5;
/// Write sets that wait at a node of Galera. From 16 on it makes the whole cluster wait.
const WRITE_SETS: u64 = 8;

/// Asks a server at intervals.
pub struct Watch {
    target: Target,
    server: Option<Server>,
    next: Instant,
    behind: Behind,
    /// What the account lacks the right to see.
    pub unseen: Vec<String>,
}

impl Watch {
    pub fn new(target: &Target) -> Watch {
        Watch {
            target: target.clone(),
            server: None,
            next: Instant::now(),
            behind: Behind::default(),
            unseen: Vec::new(),
        }
    }

    /// Whether the server is known to fall behind.
    pub fn falls(&mut self) -> bool {
        if Instant::now() < self.next {
            return self.behind.is_falling;
        }
        let server = match self.server.take() {
            Some(server) => Some(server),
            None => Server::open(&mut self.target, Some(ANSWER_TIMEOUT)).ok(),
        };
        let mut looked = None;
        if let Some(mut server) = server {
            server.wait_for_answers(Some(ANSWER_TIMEOUT));
            looked = Membership::look(&mut server).ok();
            self.server = Some(server).filter(|server| looked.is_some() && server.lost().is_none());
        }
        self.next = Instant::now()
            + if looked.is_some() {
                INTERVAL
            } else {
                RETRY_INTERVAL
            };
        match looked {
            Some(membership) => {
                let crowded = membership.write_sets.is_some_and(|n| n > WRITE_SETS);
                // The lag of a delayed replica grows with each write of its source.
                let lag = membership.lag_s.filter(|_| membership.delay_s == 0);
                self.unseen = membership.unseen;
                self.behind.take(lag, crowded)
            }
            None => self.behind.take(None, false),
        }
    }
}

/// The lag so far.
#[derive(Default)]
struct Behind {
    /// Seconds, by the answer before.
    last: Option<f64>,
    is_falling: bool,
}

impl Behind {
    fn take(&mut self, lag: Option<f64>, crowded: bool) -> bool {
        let further = lag
            .zip(self.last)
            .is_some_and(|(lag, last)| lag > NEAR && lag > last + FURTHER);
        self.last = lag;
        let is_near = lag.is_none_or(|lag| lag <= NEAR);
        self.is_falling = crowded || further || (self.is_falling && !is_near);
        self.is_falling
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growing_lag_counts_until_caught_up() {
        let mut behind = Behind::default();
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
        let mut behind = Behind::default();
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
