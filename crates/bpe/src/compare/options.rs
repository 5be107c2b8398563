//! Options of a comparison.

use crate::support::failure::Failure;

/// Maximum number of pairs; more would not improve the result.
const MAX_PAIRS: f64 = 500.0;

/// Options of a comparison.
#[derive(Clone, Copy, Debug)]
pub struct CompareOptions {
    pub pairs: usize,
    /// Seconds per slice, of which the first is not counted; at least 2.
    pub slice: u64,
    /// Bypass hurts below this percentage of the serving rate, in statements per second.
    pub limit: f64,
    /// Whether pages written during bypass stay cached.
    pub refill: bool,
}

impl CompareOptions {
    /// # Errors
    /// The duration allows more pairs than the maximum.
    pub fn new(minutes: f64, slice: u64, limit: f64, refill: bool) -> Result<Self, Failure> {
        let pairs = (minutes * 60.0 / (2 * slice) as f64).floor().max(1.0);
        if pairs > MAX_PAIRS {
            return Err(Failure::usage(format!(
                "that is {pairs} pairs; {MAX_PAIRS} are enough for every purpose"
            ))
            .advise("choose a larger --slice, or fewer --minutes"));
        }
        Ok(Self {
            pairs: pairs as usize,
            slice,
            limit,
            refill,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_follow_from_minutes() {
        let pairs = |minutes, slice| {
            let wish = CompareOptions::new(minutes, slice, 50.0, true);
            wish.map(|wish| wish.pairs).ok()
        };
        assert_eq!(pairs(10.0, 10), Some(30));
        assert_eq!(pairs(0.1, 60), Some(1));
        assert_eq!(pairs(480.0, 30), Some(480));
        assert_eq!(pairs(480.0, 2), None);
    }
}
