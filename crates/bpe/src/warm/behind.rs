//! A standby that falls behind needs its data disk for that, so loading slows down until it has caught up. A takeover waits for what is not
//! applied yet, and no warmth makes up for that.
//!
//! It is advice: what cannot be seen slows nothing down, and a connection of its own asks, so that a server that does not answer this
//! question delays nothing.

use std::time::{Duration, Instant};

use crate::cluster::membership::Membership;
use crate::connection::Target;
use crate::server::Server;

/// What is left to loading meanwhile, of `bpe_warm_io_capacity`.
pub const PERCENT: u64 = 10;
/// Between two looks at the server, and between two attempts to reach it.
const EVERY: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(30);
/// How long an answer is waited for.
const PATIENCE: Duration = Duration::from_secs(1);
/// Seconds that do not count yet, and by how many it must be further behind than at the look before.
const NEAR: f64 = 2.0;
const FURTHER: f64 = 0.5;
/// Write sets that wait at a node of Galera; from 16 on it makes the whole cluster wait.
const WRITE_SETS: u64 = 8;

/// Looks at a server from time to time.
pub struct Watch {
    target: Target,
    server: Option<Server>,
    next: Instant,
    behind: Behind,
    /// What the account may not see.
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

    /// Whether the server falls behind, as far as is known.
    pub fn falls(&mut self) -> bool {
        if Instant::now() < self.next {
            return self.behind.is_falling;
        }
        let server = match self.server.take() {
            Some(server) => Some(server),
            None => Server::open(&mut self.target, Some(PATIENCE)).ok(),
        };
        let mut looked = None;
        if let Some(mut server) = server {
            server.wait_for_answers(Some(PATIENCE));
            looked = Membership::look(&mut server).ok();
            self.server = Some(server).filter(|server| looked.is_some() && server.lost().is_none());
        }
        self.next = Instant::now() + if looked.is_some() { EVERY } else { AGAIN };
        match looked {
            Some(membership) => {
                let crowded = membership.write_sets.is_some_and(|n| n > WRITE_SETS);
                // One that is late on purpose gets further behind whenever its source writes.
                let lag = membership.lag_s.filter(|_| membership.delay_s == 0);
                self.unseen = membership.unseen;
                self.behind.take(lag, crowded)
            }
            None => self.behind.take(None, false),
        }
    }
}

/// What is known of how far behind it is.
#[derive(Default)]
struct Behind {
    /// Seconds, at the look before.
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
    fn it_falls_behind_and_catches_up() {
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
    fn a_steady_distance_and_what_cannot_be_told_are_nothing() {
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
