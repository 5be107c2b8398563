//! Count-min sketch of 4-bit counters: recent reads per page.

/// Reads per page of the cache between two halvings of all counters.
const SAMPLE: u64 = 10;
const MOST: u64 = 15;
const HALVES: u64 = 0x7777_7777_7777_7777;

/// Eight bytes, that is 16 counters, for each page of the cache.
pub struct Sketch {
    words: Vec<u64>,
    counted: u64,
    halve_at: u64,
}

impl Sketch {
    pub fn new(pages: usize) -> Sketch {
        Sketch {
            words: vec![0; pages.next_power_of_two()],
            counted: 0,
            halve_at: pages as u64 * SAMPLE,
        }
    }

    /// Word and shift of the four counters of a page.
    fn counters(&self, page: u32) -> [(usize, u32); 4] {
        std::array::from_fn(|row| {
            let hash = scramble(u64::from(page) | (row as u64 + 1) << 32);
            let word = hash as usize & (self.words.len() - 1);
            (word, (hash >> 60) as u32 * 4)
        })
    }

    pub fn add(&mut self, page: u32) {
        let counters = self.counters(page);
        let mut raised = false;
        for (word, shift) in counters {
            if self.words[word] >> shift & MOST < MOST {
                self.words[word] += 1 << shift;
                raised = true;
            }
        }
        if raised {
            self.counted += 1;
            if self.counted >= self.halve_at {
                self.counted /= 2;
                for word in &mut self.words {
                    *word = *word >> 1 & HALVES;
                }
            }
        }
    }

    /// 0..=15; too high for pages that share counters.
    pub fn frequency(&self, page: u32) -> u64 {
        let counters = self.counters(page).into_iter();
        let counts = counters.map(|(word, shift)| self.words[word] >> shift & MOST);
        counts.min().unwrap_or(0)
    }
}

/// The finaliser of SplitMix64 (public domain).
fn scramble(mut x: u64) -> u64 {
    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_saturate_and_age() {
        let mut sketch = Sketch::new(100);
        for n in 1..=20 {
            sketch.add(7);
            assert_eq!(sketch.frequency(7), n.min(MOST));
        }
        assert_eq!(sketch.frequency(8), 0);
        (0..1000).for_each(|n| sketch.add(100 + n));
        assert!((7..15).contains(&sketch.frequency(7)));
    }
}
