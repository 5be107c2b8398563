//! The daily write budget: limits the bytes written to all devices in 24 hours, for disks of limited endurance.
//!
//! # Rule
//! A token bucket holds a quarter of the limit, is full at first, and gains three quarters of the limit in 24 hours. So in
//! *any* 24 hours at most the whole limit is written: the contents of the bucket, and its gain.
//! - A cache that is filled for the first time has a quarter of a day's budget at once.
//! - A cache that has been quiet for eight hours has it again.
//! - A cache that always wants to write more gets three quarters of the limit, evenly.
//!
//! # Alternatives
//! - A sum over the last 24 hours as the only rule would allow the whole limit. But a busy cache would spend it within hours,
//!   and would then admit nothing until the next day, every day.
//! - A bucket that holds a whole limit would allow twice the limit in 24 hours.
//!
//! # Charging
//! Writers charge the budget. Insertions check it: a candidate is rejected unless the remaining budget covers it and everything
//! that is staged. So no thread waits for the budget, and admitted pages can always be written. Offers do not account for
//! footers and for the pages that compaction moves. Those are charged when written, as a debt that the bucket must first
//! regain.
//!
//! # Lifetime
//! The account lives as long as the process. It survives a rebuild of the cache, but a restarted server begins with a full
//! bucket. It is not stored: a separate file would have to be written to the same disk, and found again, only to save a
//! quarter of a limit.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::common::measure::TokenBucket;

const DAY: Duration = Duration::from_secs(24 * 3600);
/// Parts of the limit that the bucket holds, and that it gains in 24 hours: together at most the whole.
const HELD: f64 = 0.25;
const GAINED: f64 = 0.75;
/// Resolution of the record of written bytes: a quarter of an hour.
const SLOT: Duration = Duration::from_secs(900);
const SLOTS: usize = 97;

/// Bytes written to all devices in 24 hours, and their limit. One for the life of the process.
#[derive(Debug)]
pub struct WriteBudget {
    /// Bytes in 24 hours; 0: no limit. Like `left` an independent value: `Relaxed` everywhere. Both are written under the lock.
    limit: AtomicU64,
    /// Bytes that may be written now. Read without the lock.
    left: AtomicI64,
    account: Mutex<Account>,
}

#[derive(Debug)]
struct Account {
    /// In bytes.
    bucket: TokenBucket,
    /// Ring of the bytes written in each slot of the last 24 hours.
    slots: [u64; SLOTS],
    /// Number of the current slot, counted from `epoch`.
    slot: u64,
    epoch: Option<Instant>,
}

impl Default for WriteBudget {
    fn default() -> WriteBudget {
        WriteBudget {
            limit: AtomicU64::new(0),
            left: AtomicI64::new(0),
            account: Mutex::new(Account {
                bucket: TokenBucket::default(),
                slots: [0; SLOTS],
                slot: 0,
                epoch: None,
            }),
        }
    }
}

impl WriteBudget {
    /// Bytes that may be written in 24 hours; 0: no limit.
    pub fn set_limit(&self, bytes: u64) {
        let mut account = self.account.lock();
        let before = self.limit.swap(bytes, Ordering::Relaxed);
        if before == bytes {
            return;
        }
        let held = bytes as f64 * HELD;
        let written: u64 = account.slots.iter().sum();
        let bucket = &mut account.bucket;
        bucket.tokens = if before == 0 {
            // A limit that was suspended must not refill the bucket.
            (held - written as f64).max(0.0)
        } else {
            bucket.tokens.min(held)
        };
        self.left.store(bucket.tokens as i64, Ordering::Relaxed);
    }

    /// Bytes written in the last 24 hours, with a resolution of a quarter of an hour.
    pub fn written_in_a_day(&self) -> u64 {
        self.account.lock().slots.iter().sum()
    }

    /// Whether this many bytes, including staged ones, can be written. Costs one load if there is no limit.
    pub(crate) fn allows(&self, bytes: u64) -> bool {
        self.limit.load(Ordering::Relaxed) == 0
            || self.left.load(Ordering::Relaxed) >= i64::try_from(bytes).unwrap_or(i64::MAX)
    }

    /// Charges written bytes. 0 only updates the bucket to the current time.
    pub(crate) fn charge(&self, bytes: u64, now: Instant) {
        let limit = self.limit.load(Ordering::Relaxed) as f64;
        let mut account = self.account.lock();
        account.turn(now);
        let slot = account.slot as usize % SLOTS;
        account.slots[slot] += bytes;
        let bucket = &mut account.bucket;
        bucket.fill(limit * GAINED / DAY.as_secs_f64(), limit * HELD, now);
        bucket.tokens -= bytes as f64;
        if limit == 0.0 {
            bucket.tokens = 0.0;
        }
        self.left.store(bucket.tokens as i64, Ordering::Relaxed);
    }
}

impl Account {
    /// Clears the slots that are older than a day.
    fn turn(&mut self, now: Instant) {
        let epoch = *self.epoch.get_or_insert(now);
        let slot = now.saturating_duration_since(epoch).as_secs() / SLOT.as_secs();
        let passed = slot.saturating_sub(self.slot).min(SLOTS as u64);
        for n in 1..=passed {
            self.slots[(self.slot + n) as usize % SLOTS] = 0;
        }
        self.slot = self.slot.max(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 16384;
    const MINUTE: Duration = Duration::from_secs(60);

    /// Writes as much as is allowed for this many minutes, in pages. Returns the bytes of each minute.
    fn greedy(budget: &WriteBudget, from: Instant, minutes: u32, most: u64) -> Vec<u64> {
        (0..minutes)
            .map(|n| {
                let now = from + MINUTE * n;
                budget.charge(0, now);
                let mut written = 0;
                while written < most && budget.allows(PAGE) {
                    budget.charge(PAGE, now);
                    written += PAGE;
                }
                written
            })
            .collect()
    }

    fn max_in_a_day(minutes: &[u64]) -> u64 {
        let day = 24 * 60;
        let mut sum: u64 = minutes[..day].iter().sum();
        let mut most = sum;
        for n in day..minutes.len() {
            sum = sum + minutes[n] - minutes[n - day];
            most = most.max(sum);
        }
        most
    }

    #[test]
    fn no_day_gets_more_than_the_limit_and_a_busy_cache_most_of_it() {
        let limit = if cfg!(miri) { 1 << 26 } else { 10 << 30 };
        let budget = WriteBudget::default();
        budget.set_limit(limit);
        let minutes = greedy(&budget, Instant::now(), 5 * 24 * 60, u64::MAX);
        let most = max_in_a_day(&minutes);
        assert!(most <= limit && most > limit * 95 / 100, "{most}");
        assert!(
            minutes[0] > limit / 4 - PAGE * 2,
            "a cache that is new warms up"
        );
        for day in minutes.chunks(24 * 60) {
            let sum: u64 = day.iter().sum();
            assert!(sum > limit * 74 / 100, "{sum}");
        }
        // Evenly: each hour has some.
        assert!(
            minutes
                .chunks(60)
                .all(|hour| hour.iter().sum::<u64>() > limit / 40)
        );
    }

    #[test]
    fn bursts_after_quiet_times_keep_the_limit_too() {
        let limit = if cfg!(miri) { 1 << 24 } else { 1 << 30 };
        let budget = WriteBudget::default();
        budget.set_limit(limit);
        let (begin, mut all) = (Instant::now(), Vec::new());
        for round in 0..40u32 {
            let most = if round % 2 == 0 { u64::MAX } else { 0 };
            all.extend(greedy(&budget, begin + MINUTE * round * 240, 240, most));
        }
        assert!(max_in_a_day(&all) <= limit);
    }

    #[test]
    fn what_was_written_in_a_day_is_shown_and_forgotten() {
        let (budget, begin) = (WriteBudget::default(), Instant::now());
        for hour in 0..30 {
            budget.charge(100, begin + SLOT * 4 * hour);
            assert!(budget.allows(u64::MAX / 4), "there is no limit");
        }
        assert_eq!(budget.written_in_a_day(), 25 * 100);
        budget.charge(0, begin + DAY * 9);
        assert_eq!(budget.written_in_a_day(), 0);
    }

    #[test]
    fn suspended_limit_keeps_its_account() {
        let (budget, now) = (WriteBudget::default(), Instant::now());
        budget.set_limit(4000);
        budget.charge(1000, now);
        for _ in 0..5 {
            budget.set_limit(0);
            budget.charge(0, now);
            budget.set_limit(4000);
            if budget.allows(1000) {
                budget.charge(1000, now);
            }
        }
        // The bucket gains three quarters of the limit within the next day.
        let written = budget.written_in_a_day();
        assert_eq!(written, 1000);
        budget.charge(0, now + DAY);
        assert!(budget.allows(1000) && !budget.allows(1001));
        // Bytes that were written without a limit are no debt.
        budget.set_limit(0);
        budget.charge(1 << 40, now + DAY);
        budget.set_limit(4000);
        budget.charge(0, now + DAY + DAY / 3);
        assert!(budget.allows(999));
    }

    #[test]
    fn a_limit_that_is_changed() {
        let (budget, now) = (WriteBudget::default(), Instant::now());
        budget.set_limit(4000);
        assert!(budget.allows(1000) && !budget.allows(1001));
        budget.charge(900, now);
        assert!(!budget.allows(101));
        budget.set_limit(8000);
        assert!(!budget.allows(101), "raised: gained from now on");
        budget.charge(0, now + DAY / 10);
        assert!(budget.allows(690));
        budget.set_limit(40);
        assert!(!budget.allows(11));
        budget.set_limit(0);
        assert!(budget.allows(u64::MAX / 4));
    }
}
