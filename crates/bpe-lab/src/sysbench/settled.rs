//! Detects when a curve has settled: a hit ratio that stopped rising, a throughput that recovered.

/// Length of the comparison, and the rise that counts as none.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Values in each of the two compared windows: one per second.
    pub window: usize,
    /// Maximum difference of the later window to the earlier one, points.
    pub rise: f64,
}

impl Rule {
    /// Whether the last window exceeds the previous one by less than the rule's rise. A mean of zero means that filling has
    /// not begun.
    pub fn is_met(self, ratios: impl DoubleEndedIterator<Item = f64>) -> bool {
        let mut latest_first = ratios.rev();
        let mut next = || -> Option<f64> {
            let window: Vec<f64> = latest_first.by_ref().take(self.window).collect();
            let is_whole = window.len() == self.window;
            is_whole.then(|| window.iter().sum::<f64>() / self.window as f64)
        };
        match (next(), next()) {
            (Some(after), Some(before)) => after > 0.0 && after - before < self.rise,
            _ => false,
        }
    }
}

/// Consecutive seconds whose average must reach a throughput, so that a single outlier does not count.
const STEADY: usize = 3;

/// The end of the first second with the throughput `goal`, if the average with the two following seconds reaches it, too.
pub fn recovery(curve: impl Iterator<Item = (f64, f64)>, goal: f64) -> Option<f64> {
    let curve: Vec<_> = curve.collect();
    let mean = |of: &[(f64, f64)]| of.iter().map(|one| one.1).sum::<f64>() / STEADY as f64;
    let mut windows = curve.windows(STEADY);
    let found = windows.find(|of| of[0].1 >= goal && mean(of) >= goal)?;
    Some(found[0].0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        window: 8,
        rise: 0.5,
    };

    #[test]
    fn a_rising_or_short_ratio_is_not_settled() {
        assert!(!RULE.is_met((0..40).map(|second| f64::from(second) * 2.0)));
        assert!(!RULE.is_met([90.0; 15].into_iter()));
        assert!(!RULE.is_met([0.0; 40].into_iter()));
    }

    #[test]
    fn a_flat_ratio_is_settled() {
        assert!(RULE.is_met([90.0; 16].into_iter()));
        assert!(RULE.is_met((0..40).map(|second| 88.0 + f64::from(second % 2) * 0.6)));
        let fell_and_rose = [95.0; 16].into_iter().chain([90.0; 16]);
        assert!(RULE.is_met(fell_and_rose));
    }
}
