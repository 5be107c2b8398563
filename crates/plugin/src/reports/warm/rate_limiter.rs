//! The rate of loading: limits the reads of the data disk per second, and pauses while the server needs the disk.
//!
//! The server needs the disk while its own reads of data files take more than [`MAX_SLOWDOWN`] times their recent best,
//! or exceed half of the limit. Loading then pauses for a second.
//!
//! Lock: a leaf.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Factor by which reads may be slower than their best.
const MAX_SLOWDOWN: f64 = 2.0;
/// Faster reads are never slow, microseconds: they come from memory.
const MIN_SLOW_MICROSECONDS: f64 = 300.0;
/// Minimum reads per second for a sample.
const MIN_SAMPLE_READS: u64 = 10;
/// Growth of the recent best per second, so that an old one expires.
const BEST_GROWTH: f64 = 1.005;
/// Seconds of reads that are allowed in one burst.
const BURST_SECONDS: f64 = 0.1;

/// Shared by the threads of a load.
pub struct RateLimiter {
    /// Reads allowed now.
    tokens: Mutex<f64>,
    granted: Condvar,
    over: AtomicBool,
    paused: AtomicBool,
}

/// Measures the server's own reads of data files.
#[derive(Debug)]
pub struct LoadMonitor {
    sampled: Option<(Instant, u64, u64)>,
    best: Option<f64>,
    busy: bool,
}

impl LoadMonitor {
    pub const fn new() -> LoadMonitor {
        LoadMonitor {
            sampled: None,
            best: None,
            busy: false,
        }
    }

    /// Whether the server needs the disk. `reads` and `nanos`: its reads so far, and their time. `capacity`: the limit of
    /// loading, reads per second.
    pub fn sample(&mut self, now: Instant, reads: u64, nanos: u64, capacity: u64) -> bool {
        let Some((then, reads_then, nanos_then)) = self.sampled else {
            self.sampled = Some((now, reads, nanos));
            return false;
        };
        let passed = now.saturating_duration_since(then).as_secs_f64();
        if passed < 1.0 {
            return self.busy;
        }
        self.sampled = Some((now, reads, nanos));
        // A new extension counts from 0.
        let Some(reads) = reads.checked_sub(reads_then) else {
            return false;
        };
        let micros = nanos.saturating_sub(nanos_then) as f64 / 1e3 / reads.max(1) as f64;
        let numerous = reads as f64 / passed > capacity as f64 / 2.0;
        let mut slow = false;
        if reads >= MIN_SAMPLE_READS {
            let best = self
                .best
                .map_or(micros, |best| (best * BEST_GROWTH).min(micros));
            slow = micros > best.max(MIN_SLOW_MICROSECONDS / MAX_SLOWDOWN) * MAX_SLOWDOWN;
            self.best = Some(best);
        }
        self.busy = numerous || slow;
        self.busy
    }
}

impl RateLimiter {
    pub fn new() -> RateLimiter {
        RateLimiter {
            tokens: Mutex::new(0.0),
            granted: Condvar::new(),
            over: AtomicBool::new(false),
            paused: AtomicBool::new(false),
        }
    }

    /// Allows `capacity` reads per second for the elapsed time.
    pub fn grant(&self, capacity: u64, passed: Duration) {
        let most = (capacity as f64 * BURST_SECONDS).max(1.0);
        let mut tokens = self.tokens.lock();
        *tokens = (*tokens + capacity as f64 * passed.as_secs_f64()).min(most);
        drop(tokens);
        self.granted.notify_all();
    }

    /// Stops reads while the server needs the disk.
    pub fn rest(&self, rests: bool) {
        if rests {
            *self.tokens.lock() = 0.0;
        }
        self.paused.store(rests, Ordering::SeqCst);
    }

    /// Whether loading is paused.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    /// Waits until a read is allowed. `false`: loading has ended.
    pub fn acquire(&self) -> bool {
        let mut tokens = self.tokens.lock();
        while !self.has_ended() {
            if *tokens >= 1.0 {
                *tokens -= 1.0;
                return true;
            }
            self.granted
                .wait_for(&mut tokens, Duration::from_millis(500));
        }
        false
    }

    /// Ends the threads.
    pub fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        self.granted.notify_all();
    }

    pub fn has_ended(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_follow_grants() {
        let limiter = RateLimiter::new();
        limiter.grant(1000, Duration::from_millis(10));
        assert!((0..10).all(|_| limiter.acquire()));
        limiter.grant(1000, Duration::from_secs(60));
        assert_eq!(*limiter.tokens.lock(), 100.0, "nothing is made up for");
        limiter.rest(true);
        assert_eq!(*limiter.tokens.lock(), 0.0);
        limiter.end();
        assert!(!limiter.acquire());
    }

    #[test]
    fn busy_server_pauses_loading() {
        let mut busy = LoadMonitor::new();
        let (mut now, mut reads, mut nanos) = (Instant::now(), 0, 0);
        let mut second = |count: u64, micros: u64| {
            now += Duration::from_secs(1);
            reads += count;
            nanos += count * micros * 1000;
            busy.sample(now, reads, nanos, 500)
        };
        assert!(!second(0, 0) && !second(100, 500) && !second(100, 900));
        assert!(second(100, 1100), "more than twice of 500");
        assert!(second(100, 1100), "still");
        assert!(!second(3, 9000), "too few to tell");
        assert!(!second(100, 600));
        assert!(second(251, 500), "more than half of 500");
        assert!(!second(249, 500));
        // Reads from memory.
        let mut fast = LoadMonitor::new();
        assert!(!fast.sample(now, 0, 0, 5000));
        assert!(!fast.sample(now + Duration::from_secs(1), 100, 100 * 10_000, 5000));
        assert!(!fast.sample(
            now + Duration::from_secs(2),
            200,
            100 * 10_000 + 100 * 200_000,
            5000
        ));
        // Switched off and on.
        assert!(!fast.sample(now + Duration::from_secs(3), 0, 0, 5000));
    }
}
