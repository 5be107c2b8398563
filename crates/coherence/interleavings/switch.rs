//! The mode word, and announced requests: property 2.

use shuttle::thread;

use super::{explore, is_noticed};
use crate::restart::manifest::{Head, Manifest, Memory, Record};
use crate::switch::Switch;

/// A serving switch. Never freed: requests refer to it.
fn serving() -> &'static Switch {
    let switch: &'static Switch = Box::leak(Box::default());
    switch_on(switch);
    switch
}

fn switch_on(switch: &Switch) {
    switch.start_tracking(|| ());
    let _ = switch.begin_to_serve(Some(1));
}

/// The hooks stay active until an announced request ends, despite any switching in between.
fn a_request(switch: &'static Switch, meanwhile: impl FnOnce()) {
    if let Some(request) = switch.begin_request() {
        meanwhile();
        for _ in 0..2 {
            assert!(!switch.mode().is_off(), "off with a request under way");
        }
        drop(request);
    }
}

/// The word leaves `HARVEST` only without requests in flight, even if other threads switch off and on.
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

/// The persisted state claims tracked files only while files are tracked: property 17. Two threads switch off, one of them
/// possibly delayed, while a third switches on.
fn what_is_left_is_followed() {
    let switch: &'static Switch = Box::leak(Box::default());
    let records: &'static [Record] = &[];
    let memory = Memory {
        now: || 0,
        grow: |_| false,
    };
    let head: &'static Head = Box::leak(Box::default());
    switch.keep(Manifest::new(head, records, 0, memory));
    switch_on(switch);
    let manifest = switch.manifest().expect("kept");
    assert!(manifest.is_tracked());
    let off = || thread::spawn(move || drop(switch.kill()));
    let threads = [off(), off(), thread::spawn(move || switch_on(switch))];
    for thread in threads {
        thread.join().expect("no thread panics");
    }
    let is_tracked = switch.mode().tracks();
    assert!(
        is_tracked || !manifest.is_tracked(),
        "the next process takes over what nobody has followed"
    );
    super::seen("followed", u64::from(is_tracked));
    drop(switch.kill());
    assert!(!manifest.is_tracked());
}

#[test]
fn what_is_left_was_followed_to_the_end() {
    let seen = explore("left", what_is_left_is_followed);
    assert!(seen["followed"] > 0);
}

#[test]
fn detaching_once_is_noticed() {
    is_noticed("detached-once", what_is_left_is_followed);
}

#[test]
fn not_detaching_is_noticed() {
    is_noticed("off-keeps-live", what_is_left_is_followed);
}
