//! Measuring tools of the engine: moving average, token bucket, histogram.

use std::time::Instant;

pub(crate) mod histogram;

/// Moving average after one more value with the weight 2^-`weight`. It stops up to 2^`weight` - 1 away from a steady
/// value, so use a unit small enough.
pub(crate) fn averaged(average: u64, value: u64, weight: u32) -> u64 {
    if value >= average {
        average + ((value - average) >> weight)
    } else {
        average - ((average - value) >> weight)
    }
}

/// A token bucket that may be overdrawn.
#[derive(Debug, Default)]
pub(crate) struct TokenBucket {
    /// Below 0: the debt that gains repay first.
    pub tokens: f64,
    /// When it was last filled; `None`: never.
    at: Option<Instant>,
}

impl TokenBucket {
    pub fn new(tokens: f64, now: Instant) -> TokenBucket {
        TokenBucket {
            tokens,
            at: Some(now),
        }
    }

    /// Adds the gain since the last call, `rate` tokens per second, up to a total of `most`. Time before the first call
    /// gains nothing.
    pub fn fill(&mut self, rate: f64, most: f64, now: Instant) {
        let passed = now.saturating_duration_since(self.at.unwrap_or(now));
        self.at = Some(now);
        self.tokens = (self.tokens + passed.as_secs_f64() * rate).min(most);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_average_follows_from_above_and_from_below() {
        assert_eq!(averaged(1000, 1000, 3), 1000);
        assert_eq!(
            (averaged(1000, 1800, 3), averaged(1000, 200, 3)),
            (1100, 900)
        );
        let settled = |from| (0..200).fold(from, |average, _| averaged(average, 5000, 3));
        assert!((4993..=5000).contains(&settled(0)) && (5000..=5007).contains(&settled(1_000_000)));
    }

    #[test]
    fn a_bucket_gains_no_more_than_it_holds_and_pays_its_debt_first() {
        let start = Instant::now();
        let mut bucket = TokenBucket::default();
        bucket.fill(10.0, 25.0, start);
        assert_eq!(bucket.tokens, 0.0, "there was no time before");
        bucket.fill(10.0, 25.0, start + Duration::from_secs(2));
        assert_eq!(bucket.tokens, 20.0);
        bucket.tokens -= 50.0;
        bucket.fill(10.0, 25.0, start + Duration::from_secs(4));
        assert_eq!(bucket.tokens, -10.0);
        bucket.fill(10.0, 25.0, start + Duration::from_secs(60));
        assert_eq!(bucket.tokens, 25.0);
        bucket.fill(10.0, 25.0, start);
        assert_eq!(bucket.tokens, 25.0, "time does not run backwards");
    }
}
