//! The switch under a model checker, which decides at every atomic which thread goes on.
//!
//! Compiled only in `checks/interleavings`. Schedules are random, or have a bounded number of preemptions (PCT). Each part of the
//! protocol is left out once, to show that the checker notices.

use std::panic::{AssertUnwindSafe, catch_unwind};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner, thread};

use crate::switch::{Canary, Switch};

/// Of each kind; `INTERLEAVINGS` sets another number.
fn schedules() -> usize {
    let named = std::env::var("INTERLEAVINGS").ok();
    named.and_then(|number| number.parse().ok()).unwrap_or(2000)
}

/// Within these the checker notices what is left out.
const CANARY_SCHEDULES: usize = 20_000;

fn explore(scheduler: impl Scheduler + 'static, body: impl Fn() + Send + Sync + 'static) {
    Runner::new(scheduler, Config::new()).run(body);
}

/// Serving, and never freed: requests refer to it.
fn serving(canary: Canary) -> &'static Switch {
    let switch: &'static mut Switch = Box::leak(Box::default());
    switch.canary = canary;
    switch_on(switch);
    switch
}

fn switch_on(switch: &Switch) {
    switch.start_tracking(|| ());
    let _ = switch.begin_to_serve();
}

/// Whoever has announced a request finds the hooks at work until it ends, whatever is done meanwhile.
fn a_request(switch: &'static Switch, meanwhile: impl FnOnce()) {
    if let Some(request) = switch.begin_request() {
        meanwhile();
        for _ in 0..2 {
            assert!(!switch.mode().is_off(), "off with a request under way");
        }
        drop(request);
    }
}

/// The word leaves `HARVEST` only with nothing under way, whoever switches off and on meanwhile.
fn harvest_is_waited_for(canary: Canary) {
    let switch = serving(canary);
    let off = thread::spawn(move || drop(switch.switch_off()));
    let request = thread::spawn(move || a_request(switch, || ()));
    let off_and_on = thread::spawn(move || {
        drop(switch.kill());
        switch_on(switch);
        a_request(switch, || drop(switch.kill()));
    });
    for thread in [off, request, off_and_on] {
        thread.join().expect("no thread panics");
    }
    assert_eq!(switch.pending_requests(), 0);
    drop(switch.kill());
    assert!(switch.mode().is_off(), "nothing is under way");
}

#[test]
fn harvest_is_left_only_with_nothing_under_way() {
    let body = || harvest_is_waited_for(Canary::None);
    explore(RandomScheduler::new(schedules()), body);
    explore(PctScheduler::new(3, schedules()), body);
}

#[test]
fn what_is_left_out_is_noticed() {
    for canary in [Canary::WordNotCompared, Canary::PendingAfterLook] {
        let found = catch_unwind(AssertUnwindSafe(|| {
            explore(RandomScheduler::new(CANARY_SCHEDULES), move || {
                harvest_is_waited_for(canary);
            });
        }));
        assert!(found.is_err(), "{canary:?} is not noticed");
    }
}
