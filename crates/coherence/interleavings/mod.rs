//! Tests of cache coherence under a model checker, which chooses at every atomic and every lock which thread continues.
//!
//! Compiled only in `checks/interleavings`. Schedules are random, or have a bounded number of preemptions (PCT). Each schedule
//! runs two files of a server ([`world`]) on a kernel in memory ([`kernel`]), with the real engine as the cache. Each property
//! has a test that explores it. Other tests remove one rule at a time and prove that the checker detects it.

mod bypass;
mod controller;
mod files;
mod host;
mod kernel;
mod pages;
mod requests;
mod ring;
mod sessions;
mod switch;
mod world;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, FailurePersistence, Runner, thread};

use crate::testing::canary;

/// Schedules of each kind; `INTERLEAVINGS` overrides the number.
fn schedules() -> usize {
    let named = std::env::var("INTERLEAVINGS").ok();
    named.and_then(|number| number.parse().ok()).unwrap_or(600)
}

/// Schedules within which the checker must detect a removed rule, half of each kind.
const CANARY_SCHEDULES: usize = 20_000;
/// Schedules of one kind before the other kind runs.
const TURN: usize = 100;

thread_local! {
    /// All threads of a schedule run in one thread of the host, and each test has its own.
    static SEEN: RefCell<BTreeMap<&'static str, u64>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts an event, so that a test in which nothing happens is detected.
fn seen(what: &'static str, times: u64) {
    SEEN.with_borrow_mut(|seen| *seen.entry(what).or_default() += times);
}

/// `INTERLEAVINGS_SEED` repeats a run.
fn seed() -> u64 {
    let named = std::env::var("INTERLEAVINGS_SEED").ok();
    named.and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(0, |now| now.subsec_nanos().into())
    })
}

fn run(scheduler: impl Scheduler + 'static, body: fn()) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    config.failure_persistence = FailurePersistence::Print;
    Runner::new(scheduler, config).run(body);
}

/// Explores a property that must always hold. Returns the event counts of all schedules together.
fn explore(name: &str, body: fn()) -> BTreeMap<&'static str, u64> {
    let (seed, begun) = (seed(), Instant::now());
    println!("{name}: INTERLEAVINGS_SEED={seed}");
    SEEN.with_borrow_mut(BTreeMap::clear);
    run(RandomScheduler::new_from_seed(seed, schedules()), body);
    run(PctScheduler::new_from_seed(seed, 3, schedules()), body);
    let seen = SEEN.with_borrow(Clone::clone);
    println!(
        "{name}: {} schedules, {:.1} s, {seen:?}",
        2 * schedules(),
        begun.elapsed().as_secs_f64()
    );
    seen
}

/// Explores with a rule removed, and requires that a check fails.
fn is_noticed(rule: &'static str, body: fn()) {
    thread_local! {
        static TRIED: Cell<u32> = const { Cell::new(0) };
        static BODY: Cell<fn()> = const { Cell::new(|| ()) };
    }
    let seed = seed();
    println!("without '{rule}': INTERLEAVINGS_SEED={seed}");
    canary::remove_rule(rule);
    TRIED.set(0);
    BODY.set(body);
    let body = || {
        TRIED.set(TRIED.get() + 1);
        BODY.get()();
    };
    let found = catch_unwind(AssertUnwindSafe(|| {
        for seed in (seed..).take(CANARY_SCHEDULES / TURN / 2) {
            run(RandomScheduler::new_from_seed(seed, TURN), body);
            run(PctScheduler::new_from_seed(seed, 3, TURN), body);
        }
    }));
    canary::remove_rule("");
    assert!(found.is_err(), "'{rule}' is not noticed");
    canary::noticed(rule, &format!("{} schedules", TRIED.get()));
}

/// Runs threads concurrently and joins them.
fn side_by_side<const N: usize>(world: world::World, bodies: [fn(world::World); N]) {
    let threads = bodies.map(|body| thread::spawn(move || body(world)));
    for thread in threads {
        thread.join().expect("no thread panics");
    }
}
