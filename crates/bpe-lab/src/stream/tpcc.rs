//! A TPC-C-like load: nine tables with the standard's rows and widths, five transactions and non-uniform numbers.
//!
//! Inner pages of the trees are omitted: they are always in the pool. Pages of warehouses and districts are always in the
//! pool, too, but they are included, because they are changed and written continuously.

use fastrand::Rng;

use super::chance::{nurand, percent};
use super::load::Load;
use super::pool::Pool;

const WAREHOUSE: u32 = 1;
const CUSTOMER: u32 = 2;
const CUSTOMER_NAMES: u32 = 3;
const STOCK: u32 = 4;
const ITEM: u32 = 5;
const ORDERS: u32 = 6;
const NEW_ORDERS: u32 = 7;
const ORDER_LINES: u32 = 8;
const HISTORY: u32 = 9;

/// Rows of a warehouse.
const DISTRICTS: u32 = 10;
const CUSTOMERS: u32 = 3000;
const ITEMS: u32 = 100_000;
/// Rows of a page.
const CUSTOMERS_A_PAGE: u32 = 22;
const NAMES_A_PAGE: u32 = 200;
const STOCK_A_PAGE: u32 = 45;
const ITEMS_A_PAGE: u32 = 170;
const ORDERS_A_PAGE: u32 = 300;
const NEW_ORDERS_A_PAGE: u32 = 500;
const LINES_A_PAGE: u32 = 190;
const HISTORY_A_PAGE: u32 = 180;
const LINES: u32 = 10;
/// Approximate initial pages of a warehouse.
const PAGES: usize = 5300;
/// Pages reserved for each district in the growing files.
const ROOM: u32 = 1 << 16;

struct District {
    next: u32,
    /// The oldest undelivered order.
    oldest: u32,
    /// The last order of each customer.
    last_order: Vec<u32>,
}

pub struct Tpcc {
    warehouses: u32,
    districts: Vec<District>,
    history: u32,
}

impl Tpcc {
    /// Seven times the pool, in whole warehouses.
    pub fn new(pool: usize, random: &mut Rng) -> Tpcc {
        let warehouses = (pool * 7 / PAGES).max(1) as u32;
        let districts = (0..warehouses * DISTRICTS).map(|_| {
            let mut last_order: Vec<u32> = (0..CUSTOMERS).collect();
            random.shuffle(&mut last_order);
            District {
                next: CUSTOMERS,
                oldest: CUSTOMERS * 7 / 10,
                last_order,
            }
        });
        Tpcc {
            warehouses,
            districts: districts.collect(),
            history: 0,
        }
    }

    fn customer(&self, random: &mut Rng, pool: &mut Pool, district: u32, by_name: bool) -> u32 {
        if !by_name {
            return nurand(random, 1023, CUSTOMERS, 259);
        }
        let name = nurand(random, 255, 1000, 123);
        let entry = district * CUSTOMERS + name * 3;
        pool.read(CUSTOMER_NAMES, entry / NAMES_A_PAGE);
        // One of the three customers with this name.
        let (of_name, spread) = (entry.wrapping_mul(0x9e37_79b1), CUSTOMERS - 1000);
        match random.u32(..3) {
            0 => name,
            n => 1000 + (of_name >> (4 * n)) % spread,
        }
    }

    fn customer_page(district: u32, customer: u32) -> u32 {
        (district * CUSTOMERS + customer) / CUSTOMERS_A_PAGE
    }

    /// Appends rows of a district. The first row on a page creates it.
    fn append(pool: &mut Pool, file: u32, district: u32, rows: std::ops::Range<u32>, a_page: u32) {
        for page in rows.start / a_page..=(rows.end - 1) / a_page {
            let at = district * ROOM + page;
            if page * a_page >= rows.start {
                pool.create(file, at);
            } else {
                pool.change(file, at);
            }
        }
    }

    fn lines(order: u32) -> (u32, u32) {
        let first = order * LINES;
        (first / LINES_A_PAGE, (first + LINES - 1) / LINES_A_PAGE)
    }

    fn new_order(&mut self, random: &mut Rng, pool: &mut Pool, district: u32) {
        let warehouse = district / DISTRICTS;
        pool.change(WAREHOUSE, district);
        let customer = self.customer(random, pool, district, false);
        pool.read(CUSTOMER, Self::customer_page(district, customer));
        for _ in 0..random.u32(5..=15) {
            let item = nurand(random, 8191, ITEMS, 7911);
            pool.read(ITEM, item / ITEMS_A_PAGE);
            let from = if percent(random, 1) {
                random.u32(..self.warehouses)
            } else {
                warehouse
            };
            pool.change(STOCK, (from * ITEMS + item) / STOCK_A_PAGE);
        }
        let of = &mut self.districts[district as usize];
        let order = of.next;
        of.next += 1;
        of.last_order[customer as usize] = order;
        let one = order..order + 1;
        Self::append(pool, ORDERS, district, one.clone(), ORDERS_A_PAGE);
        Self::append(pool, NEW_ORDERS, district, one, NEW_ORDERS_A_PAGE);
        let lines = order * LINES..(order + 1) * LINES;
        Self::append(pool, ORDER_LINES, district, lines, LINES_A_PAGE);
    }

    fn payment(&mut self, random: &mut Rng, pool: &mut Pool, district: u32) {
        pool.change(WAREHOUSE, district);
        let home = if percent(random, 15) {
            random.u32(..self.warehouses * DISTRICTS)
        } else {
            district
        };
        let by_name = percent(random, 60);
        let customer = self.customer(random, pool, home, by_name);
        pool.change(CUSTOMER, Self::customer_page(home, customer));
        let row = self.history;
        self.history += 1;
        Self::append(pool, HISTORY, 0, row..row + 1, HISTORY_A_PAGE);
    }

    fn order_status(&mut self, random: &mut Rng, pool: &mut Pool, district: u32) {
        let by_name = percent(random, 60);
        let customer = self.customer(random, pool, district, by_name);
        pool.read(CUSTOMER, Self::customer_page(district, customer));
        let order = self.districts[district as usize].last_order[customer as usize];
        pool.read(ORDERS, district * ROOM + order / ORDERS_A_PAGE);
        pool.read(ORDER_LINES, district * ROOM + Self::lines(order).0);
    }

    fn delivery(&mut self, random: &mut Rng, pool: &mut Pool, warehouse: u32) {
        for district in warehouse * DISTRICTS..(warehouse + 1) * DISTRICTS {
            let of = &mut self.districts[district as usize];
            if of.oldest == of.next {
                continue;
            }
            let order = of.oldest;
            of.oldest += 1;
            pool.change(NEW_ORDERS, district * ROOM + order / NEW_ORDERS_A_PAGE);
            pool.change(ORDERS, district * ROOM + order / ORDERS_A_PAGE);
            pool.change(ORDER_LINES, district * ROOM + Self::lines(order).0);
            let customer = random.u32(..CUSTOMERS);
            pool.change(CUSTOMER, Self::customer_page(district, customer));
        }
    }

    fn stock_level(&mut self, random: &mut Rng, pool: &mut Pool, district: u32) {
        let next = self.districts[district as usize].next;
        let pages = Self::lines(next - 20).0..=Self::lines(next - 1).1;
        pages.for_each(|page| pool.read(ORDER_LINES, district * ROOM + page));
        for _ in 0..20 * LINES {
            let item = nurand(random, 8191, ITEMS, 7911);
            pool.read(STOCK, (district / DISTRICTS * ITEMS + item) / STOCK_A_PAGE);
        }
    }
}

impl Load for Tpcc {
    fn step(&mut self, random: &mut Rng, pool: &mut Pool) {
        let district = random.u32(..self.warehouses * DISTRICTS);
        match random.u32(..100) {
            0..45 => self.new_order(random, pool, district),
            45..88 => self.payment(random, pool, district),
            88..92 => self.order_status(random, pool, district),
            92..96 => self.delivery(random, pool, district / DISTRICTS),
            _ => self.stock_level(random, pool, district),
        }
    }
}
