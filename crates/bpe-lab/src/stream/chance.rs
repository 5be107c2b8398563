//! Random numbers with the distributions of the loads.

use fastrand::Rng;

/// Returns a number below `n`, lower ones more often: the probability of k is about 1 / (k + 1) to this exponent, which is
/// not 1.
pub fn zipf(random: &mut Rng, n: u32, exponent: f64) -> u32 {
    let power = 1.0 - exponent;
    let most = f64::from(n + 1).powf(power);
    let at = (1.0 + random.f64() * (most - 1.0)).powf(1.0 / power);
    (at as u32).clamp(1, n.max(1)) - 1
}

/// Like sysbench's `pareto` with its parameter at 0.2: four of five numbers are in the first fifth, and so on.
pub fn pareto(random: &mut Rng, n: u32) -> u32 {
    const POWER: f64 = 7.212_567; // ln 0.2 / ln 0.8
    below(random.f64().powf(POWER), n)
}

/// Like sysbench's `special`: three of four numbers are in the middle hundredth, the others around the middle.
pub fn special(random: &mut Rng, n: u32) -> u32 {
    if random.u32(..4) < 3 {
        let width = (n / 100).max(1);
        return (n / 2 - width / 2 + random.u32(..width)).min(n - 1);
    }
    let sum: f64 = (0..12).map(|_| random.f64()).sum();
    below(sum / 12.0, n)
}

/// Returns a number from 0 with this mean; half of all are below 0.7 of it.
pub fn exponential(random: &mut Rng, mean: f64) -> u32 {
    (-(1.0 - random.f64()).ln() * mean) as u32
}

/// TPC-C's non-uniform number below `n`.
pub fn nurand(random: &mut Rng, a: u32, n: u32, constant: u32) -> u32 {
    ((random.u32(..=a) | random.u32(..n)) + constant) % n
}

/// Returns true with this probability, percent.
pub fn percent(random: &mut Rng, percent: u32) -> bool {
    random.u32(..100) < percent
}

/// Permutes the numbers below `n` so that neighbours are far apart. `n` is at most 2^31.
pub fn scattered(number: u32, n: u32) -> u32 {
    // A prime larger than every `n` has no common factor with it.
    const PRIME: u64 = 2_654_435_761;
    (u64::from(number) * PRIME % u64::from(n)) as u32
}

fn below(part: f64, n: u32) -> u32 {
    ((part * f64::from(n)) as u32).min(n - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The share of numbers in a range, for numbers below 1,000.
    fn share(low: u32, high: u32, mut number: impl FnMut(&mut Rng) -> u32) -> f64 {
        let mut random = Rng::with_seed(7);
        let between = (0..20_000).filter(|_| {
            let number = number(&mut random);
            assert!(number < 1000);
            (low..high).contains(&number)
        });
        between.count() as f64 / 20_000.0
    }

    #[test]
    fn distributions_are_what_they_say() {
        let near = |share: f64, wanted: f64| assert!((share - wanted).abs() < 0.02, "{share}");
        near(share(0, 200, |r| pareto(r, 1000)), 0.8);
        near(share(495, 505, |r| special(r, 1000)), 0.76);
        near(share(0, 999, |r| nurand(r, 255, 1000, 9)), 1.0);
        near(share(0, 32, |r| zipf(r, 1000, 0.5)), 0.15);
        near(
            share(0, 70, |r| exponential(r, 100.0).min(999)),
            1.0 - (-0.7f64).exp(),
        );
    }

    #[test]
    fn scattered_numbers_are_all_there() {
        let mut there: Vec<u32> = (0..1000).map(|n| scattered(n, 1000)).collect();
        there.sort_unstable();
        assert!(there.into_iter().eq(0..1000));
    }
}
