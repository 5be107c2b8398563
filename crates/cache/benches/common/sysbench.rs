//! Popularity of pages under sysbench with `--rand-type=special --rand-spec-pct=15`.
//!
//! The formula is that of sysbench 1.0.20, `sb_rand_special` in src/sb_rand.c, with its defaults `--rand-spec-iter=12`
//! and `--rand-spec-res=75`. One number in four is the mean of twelve uniform ones, a bell over the whole range. The
//! others are uniform in the share `rand-spec-pct` at the middle of the range. The random number that chooses between
//! the two (at least a quarter for the others) also gives the position in that share. So the first quarter of the share
//! is empty: 75 % of the numbers fall on 11.25 % of the range.

use cache::{FileId, PageId};
use fastrand::Rng;

const SPECIAL_SHARE: f64 = 0.15;
/// Share of the numbers from the bell.
const BELL_SHARE: f64 = 0.25;
const BELL_NUMBERS: u32 = 12;

/// Rows of sysbench's `sbtest` in a leaf page of 16 KiB filled to 15/16: about 209 bytes each.
pub const ROWS_PER_PAGE: u32 = 73;

/// A number from `low` to `high`.
pub fn special(random: &mut Rng, low: u32, high: u32) -> u32 {
    let range = f64::from(high - low);
    let choice = random.f64();
    let place = if choice < BELL_SHARE {
        (0..BELL_NUMBERS).map(|_| random.f64()).sum::<f64>() / f64::from(BELL_NUMBERS) * range
    } else {
        let special = range * SPECIAL_SHARE;
        (choice * (special + 1.0) + range / 2.0 - special / 2.0).floor()
    };
    low + place as u32
}

/// Tables of equal size, from which rows are read at random like `oltp_read_only` does.
#[derive(Clone, Copy)]
pub struct Tables {
    pub name: &'static str,
    pub tables: u32,
    /// Leaf pages of a table.
    pub pages: u32,
}

impl Tables {
    /// The leaf page of the next random row.
    pub fn next(&self, random: &mut Rng) -> PageId {
        let table = random.u32(0..self.tables);
        let row = special(random, 0, self.pages * ROWS_PER_PAGE - 1);
        PageId::new(FileId(table + 1), row / ROWS_PER_PAGE)
    }
}
