//! Ends a comparison when bypass degrades the server too much. Judged each second, over the last two.

use super::statistics::median;
use crate::observe::are_piled_up;

/// Number of serving slices that the baseline is computed from.
const REMEMBERED: usize = 3;
/// Random variation of a statement count, in standard deviations.
const BY_CHANCE: f64 = 3.0;

/// One second of a slice.
#[derive(Clone, Copy, Debug)]
pub struct Second {
    pub seconds: f64,
    pub statements_per_s: f64,
    /// At the end of the second.
    pub threads_running: f64,
}

/// Why the comparison ends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Hurt {
    /// Statements of the last two seconds, in percent of the expected number while serving.
    pub percent: f64,
    pub threads_running: f64,
    pub threads_running_serving: f64,
}

/// The limit, and the server's recent performance while serving.
pub struct Limit {
    percent: f64,
    serving: Vec<Second>,
}

impl Limit {
    /// `percent`: lower limit, relative to the statements per second while serving.
    pub fn new(percent: f64) -> Self {
        Self {
            percent,
            serving: Vec::new(),
        }
    }

    /// Adds a whole slice of serving; its thread count is the mean.
    pub fn served(&mut self, slice: Second) {
        if self.serving.len() == REMEMBERED {
            self.serving.remove(0);
        }
        self.serving.push(slice);
    }

    /// The baseline: medians of the recorded slices, as one second.
    fn usual(&self) -> Option<Second> {
        let middle = |of: fn(&Second) -> f64| {
            let values: Vec<f64> = self.serving.iter().map(of).collect();
            median(&values)
        };
        Some(Second {
            seconds: 1.0,
            statements_per_s: middle(|slice| slice.statements_per_s)?,
            threads_running: middle(|slice| slice.threads_running)?,
        })
    }

    /// Checks the seconds of a bypass slice so far against the limit.
    pub fn exceeded(&self, slice: &[Second]) -> Option<Hurt> {
        let [.., one, two] = slice else { return None };
        let usual = self.usual()?;
        let expected = usual.statements_per_s * (one.seconds + two.seconds);
        let done = one.statements_per_s * one.seconds + two.statements_per_s * two.seconds;
        let too_few =
            done < expected * self.percent / 100.0 && expected - done > BY_CHANCE * expected.sqrt();
        let piled_up = [one, two]
            .iter()
            .all(|second| are_piled_up(second.threads_running, usual.threads_running));
        (too_few || piled_up).then(|| Hurt {
            percent: if expected > 0.0 {
                done * 100.0 / expected
            } else {
                100.0
            },
            threads_running: two.threads_running,
            threads_running_serving: usual.threads_running,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(statements_per_s: f64, threads_running: f64) -> Second {
        Second {
            seconds: 1.0,
            statements_per_s,
            threads_running,
        }
    }

    #[test]
    fn two_bad_seconds_end_it() {
        let mut limit = Limit::new(50.0);
        assert_eq!(limit.exceeded(&[second(0.0, 100.0); 3]), None, "of what?");
        limit.served(second(1000.0, 3.0));
        let exceeded = |seconds: &[Second]| limit.exceeded(seconds);
        assert_eq!(exceeded(&[second(0.0, 3.0)]), None);
        assert_eq!(exceeded(&[second(900.0, 3.0), second(200.0, 3.0)]), None);
        let hurt = exceeded(&[second(900.0, 3.0), second(200.0, 3.0), second(0.0, 3.0)]);
        assert_eq!(hurt.map(|hurt| hurt.percent), Some(10.0));
        // The statement rate is unchanged, but threads pile up.
        assert_eq!(exceeded(&[second(1000.0, 7.0); 2]), None);
        assert!(exceeded(&[second(1000.0, 8.0); 2]).is_some());
        assert_eq!(
            exceeded(&[second(1000.0, 8.0), second(1000.0, 5.0)]),
            None,
            "it passes"
        );
        assert!(Limit::new(0.0).exceeded(&[second(0.0, 1.0); 2]).is_none());
    }

    #[test]
    fn few_statements_vary_by_chance() {
        let mut limit = Limit::new(50.0);
        limit.served(second(4.0, 1.0));
        assert_eq!(limit.exceeded(&[second(1.0, 1.0); 2]), None);
    }

    #[test]
    fn it_follows_the_load() {
        let mut limit = Limit::new(50.0);
        for rate in [1000.0, 1000.0, 1000.0, 300.0, 300.0] {
            limit.served(second(rate, 1.0));
        }
        assert_eq!(limit.exceeded(&[second(200.0, 1.0); 2]), None);
        assert!(limit.exceeded(&[second(100.0, 1.0); 2]).is_some());
    }
}
