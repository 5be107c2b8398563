//! A token bucket with optional burst credits.
//!
//! The caller passes the time in nanoseconds, so that a test can use its own clock. Tokens are I/Os for the IOPS cap
//! and bytes for the bandwidth cap.
//!
//! The bucket holds at most [`DEPTH`] of its rate. That small depth lets simultaneous requests start together, and
//! bounds the excess over the cap in any window (0.5 % over a second). A request larger than the bucket starts when the
//! bucket is full and leaves it in debt, so the long-run rate is exact for any sizes.
//!
//! Credits are a second, large bucket behind the first. Overflow of the first is saved there (in proportion, if a
//! refill rate is set), and covers its deficits. While credits are drawn, a pacer at the burst rate spaces the starts.

use crate::profile::Burst;

/// Nanoseconds since the volume was mounted.
pub(crate) type Nanos = u64;

/// Depth of a bucket, in seconds of its rate.
const DEPTH: f64 = 0.005;

const SECOND: f64 = 1e9;

#[derive(Debug)]
pub(crate) struct Bucket {
    /// Tokens per nanosecond.
    rate: f64,
    depth: f64,
    level: f64,
    at: Nanos,
    credits: Option<Credits>,
}

#[derive(Debug)]
struct Credits {
    capacity: f64,
    level: f64,
    /// Credits saved per overflowing token.
    earned: f64,
    peak_rate: f64,
    /// Time at which the pacer catches up with the started requests.
    peak_at: f64,
}

impl Bucket {
    /// A bucket that is empty at `now`, with all its credits.
    pub(crate) fn new(now: Nanos, per_second: u64, burst: Option<Burst>) -> Self {
        let per_second = per_second.max(1) as f64;
        Bucket {
            rate: per_second / SECOND,
            depth: (per_second * DEPTH).max(1.0),
            level: 0.0,
            at: now,
            credits: burst.map(|burst| Credits {
                capacity: burst.credits as f64,
                level: burst.credits as f64,
                earned: burst.refill.map_or(1.0, |r| r as f64 / per_second),
                peak_rate: burst.iops.max(1) as f64 / SECOND,
                peak_at: now as f64,
            }),
        }
    }

    /// Discards the schedule after `now`, and starts again empty at `now`. Credits are unchanged.
    pub(crate) fn restart(&mut self, now: Nanos) {
        self.level = 0.0;
        self.at = now;
        if let Some(credits) = &mut self.credits {
            credits.peak_at = now as f64;
        }
    }

    /// The earliest time from `now` on at which a request for `amount` may start. Times passed to this bucket never
    /// decrease.
    pub(crate) fn ready_at(&mut self, now: Nanos, amount: u64) -> Nanos {
        let mut start = now.max(self.at);
        if let Some(credits) = &self.credits {
            let paced = credits.peak_at - DEPTH * SECOND;
            start = start.max(paced.max(0.0).ceil() as Nanos);
        }
        self.advance(start);
        let needed = (amount as f64).min(self.depth);
        let saved = self.credits.as_ref().map_or(0.0, |c| c.level);
        let lacking = needed - self.level - saved;
        if lacking <= 0.0 {
            start
        } else {
            start + (lacking / self.rate).ceil() as Nanos
        }
    }

    /// Takes `amount` tokens at `start`, a result of [`Bucket::ready_at`] or a later time.
    pub(crate) fn take(&mut self, start: Nanos, amount: u64) {
        self.advance(start);
        let amount = amount as f64;
        if let Some(credits) = &mut self.credits {
            let drawn = (amount - self.level).clamp(0.0, credits.level);
            credits.level -= drawn;
            self.level += drawn;
            credits.peak_at = credits.peak_at.max(start as f64) + amount / credits.peak_rate;
        }
        self.level -= amount;
    }

    fn advance(&mut self, now: Nanos) {
        if now <= self.at {
            return;
        }
        self.level += (now - self.at) as f64 * self.rate;
        self.at = now;
        if self.level > self.depth {
            let over = self.level - self.depth;
            self.level = self.depth;
            if let Some(credits) = &mut self.credits {
                credits.level = (credits.level + over * credits.earned).min(credits.capacity);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = 1_000_000;
    const S: Nanos = 1_000_000_000;

    /// Number of starts within `[from, from + window)` on a volume that always has a waiting request.
    fn saturate(bucket: &mut Bucket, from: Nanos, window: Nanos, amount: u64) -> u64 {
        let mut now = from;
        let mut started = 0;
        loop {
            now = bucket.ready_at(now, amount);
            if now >= from + window {
                return started;
            }
            bucket.take(now, amount);
            started += 1;
        }
    }

    #[test]
    fn saturated_rate_is_exact() {
        let mut bucket = Bucket::new(0, 3000, None);
        for second in 0..10 {
            let started = saturate(&mut bucket, second * S, S, 1);
            assert!((2999..=3001).contains(&started), "{started}");
        }
    }

    #[test]
    fn idle_time_is_not_saved_beyond_the_depth() {
        let mut bucket = Bucket::new(0, 3000, None);
        saturate(&mut bucket, 0, S, 1);
        let started = saturate(&mut bucket, 60 * S, S, 1);
        assert!((3000..=3016).contains(&started), "{started}");
    }

    #[test]
    fn requests_larger_than_the_bucket_keep_the_rate() {
        // 1 MiB at 125 MB/s: the bucket holds 625 kB.
        let mut bucket = Bucket::new(0, 125_000_000, None);
        let started = saturate(&mut bucket, 0, 10 * S, 1 << 20);
        let bytes = started * (1 << 20);
        assert!((1_240_000_000..=1_252_000_000).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_late_clock_loses_nothing_while_requests_wait() {
        // All requests arrive at once; their starts are scheduled in virtual time.
        let mut bucket = Bucket::new(0, 1000, None);
        let mut last = 0;
        for _ in 0..1000 {
            last = bucket.ready_at(0, 1);
            bucket.take(last, 1);
        }
        assert!(last.abs_diff(S) <= 2 * MS, "{last}");
    }

    #[test]
    fn slow_volumes_start_single_requests() {
        let mut bucket = Bucket::new(0, 10, None);
        assert_eq!(saturate(&mut bucket, 0, 10 * S, 1), 99);
    }

    fn burst(credits: u64, iops: u64, refill: Option<u64>) -> Option<Burst> {
        Some(Burst {
            credits,
            iops,
            refill,
        })
    }

    #[test]
    fn credits_carry_the_volume_to_its_burst_rate_until_spent() {
        // 100/s and 2,900 credits spent at 3,000/s: they last one second.
        let mut bucket = Bucket::new(0, 100, burst(2900, 3000, None));
        let first = saturate(&mut bucket, 0, S, 1);
        assert!((2985..=3016).contains(&first), "{first}");
        let after = saturate(&mut bucket, S, 10 * S, 1);
        assert!((1000..=1020).contains(&after), "{after}");
    }

    #[test]
    fn credits_come_back_while_idle() {
        for (refill, earned) in [(None, 1000), (Some(10), 100), (Some(0), 0)] {
            let mut bucket = Bucket::new(0, 100, burst(2900, 3000, refill));
            saturate(&mut bucket, 0, 2 * S, 1);
            let later = saturate(&mut bucket, 12 * S, S, 1);
            let expected = earned + 100;
            assert!(
                (expected - 2..=expected + 20).contains(&later),
                "{later} with refill {refill:?}"
            );
        }
    }

    #[test]
    fn credits_have_an_upper_bound() {
        let mut bucket = Bucket::new(0, 100, burst(500, 3000, None));
        saturate(&mut bucket, 0, S, 1);
        let later = saturate(&mut bucket, 1000 * S, S, 1);
        assert!((590..=602).contains(&later), "{later}");
    }
}
