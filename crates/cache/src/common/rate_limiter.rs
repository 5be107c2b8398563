//! Limits the bytes written to all devices per second. Also the writers' clock.
//!
//! Only writers wait for the rate limiter. When they fall behind, staging fills up and insertions are rejected.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::common::measure::TokenBucket;

/// Seconds of writing that the bucket holds. It compensates for a thread that sleeps too long, and is small enough that the
/// rate is kept to 5 % within two seconds.
const BURST: f64 = 0.1;

/// A token bucket that may be overdrawn by one write, so that a write larger than the burst is not stuck.
pub(crate) struct RateLimiter {
    /// Bytes per second; 0: no limit. An independent value: `Relaxed` everywhere.
    rate: AtomicU64,
    /// In bytes.
    bucket: Mutex<TokenBucket>,
}

/// The time. Tests can set it.
#[derive(Default)]
pub(crate) struct Clock {
    #[cfg(test)]
    pub set: Mutex<Option<Instant>>,
}

impl Clock {
    pub fn now(&self) -> Instant {
        #[cfg(test)]
        if let Some(set) = *self.set.lock() {
            return set;
        }
        Instant::now()
    }

    /// If the clock is set by a test, advances it by the wait. Returns whether it is.
    #[cfg(test)]
    pub fn skip(&self, time: Duration) -> bool {
        let mut set = self.set.lock();
        if let Some(now) = set.as_mut() {
            *now += time;
        }
        set.is_some()
    }
}

impl RateLimiter {
    pub fn new(rate: u64, now: Instant) -> RateLimiter {
        RateLimiter {
            rate: AtomicU64::new(rate),
            bucket: Mutex::new(TokenBucket::new(rate as f64 * BURST, now)),
        }
    }

    pub fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
    }

    /// Requests permission to write: `None` if granted, or the time after which to try again.
    pub fn take(&self, bytes: u64, now: Instant) -> Option<Duration> {
        let rate = self.rate.load(Ordering::Relaxed) as f64;
        if rate == 0.0 {
            return None;
        }
        let mut bucket = self.bucket.lock();
        bucket.fill(rate, rate * BURST, now);
        if bucket.tokens <= 0.0 {
            return Some(Duration::from_secs_f64(
                (-bucket.tokens / rate).clamp(0.001, 3600.0),
            ));
        }
        bucket.tokens -= bytes as f64;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_kept() {
        let start = Instant::now();
        let rate_limiter = RateLimiter::new(1_000_000, start);
        let (mut now, mut written) = (start, 0);
        while now < start + Duration::from_secs(10) {
            match rate_limiter.take(262_144, now) {
                None => written += 262_144,
                Some(wait) => now += wait,
            }
        }
        assert!((9_900_000..10_500_000).contains(&written), "{written}");
    }

    #[test]
    fn no_limit_and_a_changed_limit() {
        let now = Instant::now();
        let rate_limiter = RateLimiter::new(0, now);
        assert!((0..1000).all(|_| rate_limiter.take(1 << 30, now).is_none()));
        rate_limiter.set_rate(1);
        let later = now + Duration::from_secs(1);
        assert_eq!(rate_limiter.take(1 << 20, later), None);
        assert!(rate_limiter.take(1, later).is_some());
        rate_limiter.set_rate(0);
        assert_eq!(rate_limiter.take(1, later), None);
    }
}
