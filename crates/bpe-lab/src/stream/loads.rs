//! Simple loads.

use fastrand::Rng;

use super::chance::{exponential, percent, scattered, zipf};
use super::load::Load;
use super::pool::Pool;

const HOT: u32 = 1;
const SCANNED: u32 = 2;

/// Reads a page, or changes it with a probability of `changes` percent.
pub fn visit(random: &mut Rng, pool: &mut Pool, file: u32, page: u32, changes: u32) {
    if percent(random, changes) {
        pool.change(file, page);
    } else {
        pool.read(file, page);
    }
}

/// A skewed load on six times the pool by day. By night a report also reads a table of ten times the pool, two pages for
/// each access of the load.
pub struct Report {
    pages: u32,
    scanned: u32,
    /// Pages that the report has read; `None` by day.
    at: Option<u32>,
    until: u64,
}

const DAY: u64 = 20;

impl Report {
    pub fn new(pool: usize) -> Report {
        Report {
            pages: pool as u32 * 6,
            scanned: pool as u32 * 10,
            at: None,
            until: pool as u64 * DAY,
        }
    }
}

impl Load for Report {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        let page = scattered(zipf(random, self.pages, 0.9), self.pages);
        visit(random, pool, HOT, page, 15);
        match self.at {
            None if pool.accesses() >= self.until => self.at = Some(0),
            None => {}
            Some(at) => {
                (at..at + 2).for_each(|page| pool.read(SCANNED, page));
                self.at = Some(at + 2);
                if at + 2 >= self.scanned {
                    self.at = None;
                    self.until = pool.accesses() + pool.capacity() as u64 * DAY;
                }
            }
        }
    }
}

/// A table of six times the pool that grows at its end, where most reads occur.
pub struct Growing {
    rows: u32,
}

const ROWS_A_PAGE: u32 = 60;

impl Growing {
    pub fn new(pool: usize) -> Growing {
        Growing {
            rows: pool as u32 * 6 * ROWS_A_PAGE,
        }
    }
}

impl Load for Growing {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        for _ in 0..24 {
            let page = self.rows / ROWS_A_PAGE;
            if self.rows % ROWS_A_PAGE == 0 {
                pool.create(HOT, page);
            } else {
                pool.change(HOT, page);
            }
            self.rows += 1;
        }
        let last = (self.rows - 1) / ROWS_A_PAGE;
        let size = pool.capacity() as f64;
        for _ in 0..12 {
            let back = match random.u32(..10) {
                0..7 => exponential(random, size * 1.5),
                7..9 => exponential(random, size * 6.0),
                _ => random.u32(..=last),
            };
            visit(random, pool, HOT, last.saturating_sub(back), 20);
        }
    }
}

/// Eight tenants of three times the pool each. One of them is busy and has three of four accesses for ten minutes; then
/// another one is.
pub struct Tenants {
    pages: u32,
}

const TENANTS: u64 = 8;
/// Accesses in ten minutes, per page of the pool.
const TEN_MINUTES: u64 = 30;

impl Tenants {
    pub fn new(pool: usize) -> Tenants {
        Tenants {
            pages: pool as u32 * 3,
        }
    }
}

impl Load for Tenants {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        let busy = pool.accesses() / (pool.capacity() as u64 * TEN_MINUTES) % TENANTS;
        let tenant = if percent(random, 75) {
            busy
        } else {
            random.u64(..TENANTS)
        };
        let page = scattered(zipf(random, self.pages, 0.8), self.pages);
        visit(random, pool, HOT + tenant as u32, page, 15);
    }
}

/// A skewed load on ten times the pool. The popularity of pages changes continuously. At intervals, a part of another table
/// of the same size is scanned, one page for each access.
pub struct Drift {
    /// By rank.
    pages: Vec<u32>,
    /// Pages that remain to be scanned.
    scan: std::ops::Range<u32>,
    until: u64,
}

/// Accesses between two swaps of pages, and accesses per page of the pool between two scans.
const CHANGE_EVERY: u32 = 16;
const SCAN_EVERY: u64 = 25;

impl Drift {
    pub fn new(pool: usize, random: &mut Rng) -> Drift {
        let mut pages: Vec<u32> = (0..pool as u32 * 10).collect();
        random.shuffle(&mut pages);
        Drift {
            pages,
            scan: 0..0,
            until: pool as u64 * SCAN_EVERY,
        }
    }
}

impl Load for Drift {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        let pages = self.pages.len();
        if random.u32(..CHANGE_EVERY) == 0 {
            self.pages
                .swap(random.usize(..pages), random.usize(..pages));
        }
        let page = self.pages[zipf(random, pages as u32, 0.85) as usize];
        visit(random, pool, HOT, page, 15);
        if let Some(page) = self.scan.next() {
            pool.read(SCANNED, page);
        } else if pool.accesses() >= self.until {
            let length = pool.capacity() as u32 * 3;
            let first = random.u32(..pages as u32 - length);
            self.scan = first..first + length;
            self.until = pool.accesses() + pool.capacity() as u64 * SCAN_EVERY;
        }
    }
}
