//! Loads that are kept aside: they were made after the policies were finished, and no number was chosen on them.

use fastrand::Rng;

use super::chance::{exponential, percent, scattered, zipf};
use super::load::Load;
use super::loads::visit;
use super::pool::Pool;

const TABLE: u32 = 1;
const INDEX: u32 = 2;
const OTHERS: u32 = 3;

/// A queue of jobs in a table. Jobs come at its end; they are done in order, when the queue is twice the pool, and deleted in order, when they
/// are six times the pool old. Each one that is done looks up four of its customers, of eight times the pool.
pub struct Queue {
    /// Jobs that came, were done and were deleted.
    came: u64,
    done: u64,
    deleted: u64,
    waiting: u64,
    kept: u64,
    customers: u32,
}

const JOBS_A_PAGE: u64 = 40;
/// Jobs that come at a time.
const BATCH: u64 = 20;
/// The index of what is waiting is small.
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

/// Messages between users. A message comes at the end of a table of four times the pool at first, and into an index by user of
/// twice the pool. Who reads gets the last ten of a user: those of who writes often are young, those of others old and far apart.
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

    /// By rank: who comes first writes most. And the page of the index.
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
            // Messages of all users that lie between two of this one.
            let apart = 200.0 * f64::from(rank + 1).powf(0.8);
            let mut at = self.messages;
            for _ in 0..10 {
                at = at.saturating_sub(u64::from(exponential(random, apart)) + 1);
                pool.read(TABLE, (at / MESSAGES_A_PAGE) as u32);
            }
        }
    }
}

/// What devices measure, in a partition for each month, of one and a half times the pool and in order of the devices. The month that is
/// under way is written everywhere and looked at for some of the devices. Whoever asks for a year reads twelve months of one.
/// Once in a month the last one is read whole.
pub struct Months {
    pages: u32,
    month: u32,
    until: u64,
    /// What of the last month is still to be read.
    report: std::ops::Range<u32>,
}

/// Accesses, for each page of the pool, in a month.
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
