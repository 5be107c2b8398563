//! Order of the slices. Serving and bypass form a pair in random order, so that periodic load affects both sides
//! equally often. Every second pair mirrors the previous one (ABBA), so that a steady trend of the load affects both
//! sides by the same amount.

use serde::Serialize;

/// State of the extension during a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    Serving,
    Bypass,
}

/// An endless sequence of pairs. A coin toss decides every second pair.
pub struct Schedule<Coin> {
    coin: Coin,
    to_mirror: Option<[Side; 2]>,
}

impl<Coin: FnMut() -> bool> Schedule<Coin> {
    pub fn new(coin: Coin) -> Self {
        Self {
            coin,
            to_mirror: None,
        }
    }
}

impl<Coin: FnMut() -> bool> Iterator for Schedule<Coin> {
    type Item = [Side; 2];

    fn next(&mut self) -> Option<[Side; 2]> {
        if let Some([first, second]) = self.to_mirror.take() {
            return Some([second, first]);
        }
        let mut pair = [Side::Serving, Side::Bypass];
        if (self.coin)() {
            pair.reverse();
        }
        self.to_mirror = Some(pair);
        Some(pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_mirrored_and_random() {
        let mut random = fastrand::Rng::with_seed(7);
        let pairs: Vec<_> = Schedule::new(|| random.bool()).take(200).collect();
        let mut bypass_first = 0;
        for block in pairs.chunks(2) {
            assert_ne!(block[0][0], block[0][1]);
            assert_eq!(block[1], [block[0][1], block[0][0]]);
            bypass_first += usize::from(block[0][0] == Side::Bypass);
        }
        assert!((30..=70).contains(&bypass_first), "{bypass_first}");
    }
}
