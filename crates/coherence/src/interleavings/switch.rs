//! The word, and requests announced: property 2.

use shuttle::thread;

use super::{explore, is_noticed};
use crate::switch::Switch;

/// Serving, and never freed: requests refer to it.
fn serving() -> &'static Switch {
    let switch: &'static Switch = Box::leak(Box::default());
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
fn harvest_is_waited_for() {
    let switch = serving();
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
    explore("harvest", harvest_is_waited_for);
}

#[test]
fn leaving_harvest_whatever_the_word_is_now_is_noticed() {
    is_noticed("word-not-compared", harvest_is_waited_for);
}

#[test]
fn a_request_that_looks_before_it_is_announced_is_noticed() {
    is_noticed("pending-after-look", harvest_is_waited_for);
}
