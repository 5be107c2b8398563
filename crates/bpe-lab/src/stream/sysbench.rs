//! sysbench's `oltp_read_write`: four tables of eight times the pool together, each with an index.

use fastrand::Rng;

use super::load::Load;
use super::pool::Pool;

const TABLES: u32 = 4;
const ROWS_A_PAGE: u32 = 73;
const ENTRIES_A_PAGE: u32 = 900;
/// Rows of a range query.
const RANGE: u32 = 100;

pub struct Sysbench {
    rows: u32,
    /// Picks a number below its argument.
    chosen: fn(&mut Rng, u32) -> u32,
}

impl Sysbench {
    pub fn new(pool: usize, chosen: fn(&mut Rng, u32) -> u32) -> Sysbench {
        let pages = pool as u32 * 8 / TABLES;
        Sysbench {
            rows: pages * ROWS_A_PAGE,
            chosen,
        }
    }

    fn row(&self, random: &mut Rng) -> u32 {
        (self.chosen)(random, self.rows)
    }

    /// Inserts or removes an index entry.
    fn change_index(&self, random: &mut Rng, pool: &mut Pool, table: u32) {
        pool.change(TABLES + table, self.row(random) / ENTRIES_A_PAGE);
    }
}

impl Load for Sysbench {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        let table = random.u32(1..=TABLES);
        for _ in 0..10 {
            pool.read(table, self.row(random) / ROWS_A_PAGE);
        }
        for _ in 0..4 {
            let first = self.row(random);
            let last = (first + RANGE).min(self.rows - 1);
            (first / ROWS_A_PAGE..=last / ROWS_A_PAGE).for_each(|page| pool.read(table, page));
        }
        // An update of an indexed column, an update of another column, and a row that is deleted and reinserted.
        for of_index in [2, 0, 2] {
            pool.change(table, self.row(random) / ROWS_A_PAGE);
            (0..of_index).for_each(|_| self.change_index(random, pool, table));
        }
    }
}
