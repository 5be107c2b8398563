//! Held-out loads: written after the policies were finished, and never used for tuning.

use fastrand::Rng;

use super::chance::{exponential, percent, scattered, zipf};
use super::load::Load;
use super::loads::visit;
use super::pool::Pool;

const TABLE: u32 = 1;
const INDEX: u32 = 2;
const OTHERS: u32 = 3;

/// A job queue in a table. Jobs are appended, processed in order when the queue is twice the pool, and deleted in order when
/// they are six times the pool old. Processing a job looks up four of its customers, whose table is eight times the pool.
pub struct Queue {
    /// Numbers of jobs appended, processed and deleted.
    came: u64,
    done: u64,
    deleted: u64,
    waiting: u64,
    kept: u64,
    customers: u32,
}

const JOBS_A_PAGE: u64 = 40;
/// Jobs appended at a time.
const BATCH: u64 = 20;
/// The index of waiting jobs is small.
const INDEX_PAGES: u64 = 30;

impl Queue {
    pub fn new(pool: usize) -> Queue {
        Queue {
            came: 0,
            done: 0,
            deleted: 0,
            waiting: pool as u64 * 2 * JOBS_A_PAGE,
            kept: pool as u64 * 6 * JOBS_A_PAGE,
            customers: pool as u32 * 8,
        }
    }
}

impl Load for Queue {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        let page = |job: u64| (job / JOBS_A_PAGE) as u32;
        let entry = |job: u64| (job / (JOBS_A_PAGE * 10) % INDEX_PAGES) as u32;
        for _ in 0..BATCH {
            if self.came % JOBS_A_PAGE == 0 {
                pool.create(TABLE, page(self.came));
            } else {
                pool.change(TABLE, page(self.came));
            }
            self.came += 1;
        }
        pool.change(INDEX, entry(self.came));
        while self.done + self.waiting < self.came {
            pool.change(TABLE, page(self.done));
            pool.change(INDEX, entry(self.done));
            for _ in 0..4 {
                let customer = scattered(zipf(random, self.customers, 0.9), self.customers);
                visit(random, pool, OTHERS, customer, 25);
            }
            self.done += 1;
        }
        while self.deleted + self.kept < self.came {
            pool.change(TABLE, page(self.deleted));
            self.deleted += 1;
        }
    }
}

/// Messages between users. A message is appended to a table that starts at four times the pool, and to an index by user of
/// twice the pool. A reader gets the last ten messages of a user. Messages of active users are recent; those of others are
/// old and far apart.
pub struct Messages {
    messages: u64,
    users: u32,
}

const MESSAGES_A_PAGE: u64 = 50;
const USERS_A_PAGE: u32 = 60;

impl Messages {
    pub fn new(pool: usize) -> Messages {
        Messages {
            messages: pool as u64 * 4 * MESSAGES_A_PAGE,
            users: pool as u32 * 2 * USERS_A_PAGE,
        }
    }

    /// Returns a user by rank (rank 0 writes most), and the page of the index.
    fn user(&self, random: &mut Rng) -> (u32, u32) {
        let rank = zipf(random, self.users, 0.8);
        (rank, scattered(rank, self.users) / USERS_A_PAGE)
    }
}

impl Load for Messages {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        for _ in 0..2 {
            let (_, index) = self.user(random);
            let page = (self.messages / MESSAGES_A_PAGE) as u32;
            if self.messages % MESSAGES_A_PAGE == 0 {
                pool.create(TABLE, page);
            } else {
                pool.change(TABLE, page);
            }
            pool.change(INDEX, index);
            self.messages += 1;
        }
        for _ in 0..3 {
            let (rank, index) = self.user(random);
            pool.read(INDEX, index);
            // Messages of other users between two of this one.
            let apart = 200.0 * f64::from(rank + 1).powf(0.8);
            let mut at = self.messages;
            for _ in 0..10 {
                at = at.saturating_sub(u64::from(exponential(random, apart)) + 1);
                pool.read(TABLE, (at / MESSAGES_A_PAGE) as u32);
            }
        }
    }
}

/// Measurements of devices, in monthly partitions of one and a half times the pool, ordered by device. The current month is
/// written everywhere, and read for some devices. A yearly query reads twelve months of one device. Once a month the
/// previous month is read as a whole.
pub struct Months {
    pages: u32,
    month: u32,
    until: u64,
    /// Pages of the last month that remain to be read.
    report: std::ops::Range<u32>,
}

/// Accesses in a month, per page of the pool.
const MONTH: u64 = 40;
const YEAR: u32 = 12;

impl Months {
    pub fn new(pool: usize) -> Months {
        Months {
            pages: pool as u32 * 3 / 2,
            month: YEAR,
            until: pool as u64 * MONTH,
            report: 0..0,
        }
    }
}

impl Load for Months {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        (0..4).for_each(|_| pool.change(self.month, random.u32(..self.pages)));
        for _ in 0..6 {
            let device = scattered(zipf(random, self.pages, 0.9), self.pages);
            pool.read(self.month, device);
        }
        if percent(random, 20) {
            let device = scattered(zipf(random, self.pages, 0.7), self.pages);
            (self.month - YEAR + 1..=self.month).for_each(|month| pool.read(month, device));
        }
        if let Some(page) = self.report.next() {
            pool.read(self.month - 1, page);
        }
        if pool.accesses() >= self.until {
            self.month += 1;
            self.until += pool.capacity() as u64 * MONTH;
            self.report = 0..self.pages;
        }
    }
}
