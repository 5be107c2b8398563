//! Concurrent sessions that switch, record and audit: properties 3, 13 and 14.

use std::time::Duration;

use super::world::World;
use super::{explore, is_noticed, seen, side_by_side};

/// One session interrupts the publication of another; exactly one of them closes the unpublished extension.
fn two_who_switch_off() {
    let world = World::new(2, Duration::ZERO);
    side_by_side(
        world,
        [
            |w| {
                let published = w.on();
                seen("interrupted", u64::from(!published));
                w.on();
            },
            |w| {
                w.kill();
                w.switch_off();
            },
            |w| w.kill(),
        ],
    );
    world.all_are_retired(2);
    world.end();
}

/// On, with a descriptor that a scan found.
fn found() -> World {
    let world = World::new(2, Duration::ZERO);
    world.open(0);
    world.on();
    world
}

/// A recording begins and ends while the extension is switched off and on: files are tracked without a gap, or forgotten.
fn a_recording_beside() {
    let world = found();
    side_by_side(
        world,
        [
            |w| {
                w.start_recording();
                w.core.switch().stop_recording();
            },
            |w| {
                w.switch_off();
                w.on();
                w.read(0, 1);
            },
            |w| {
                w.read(0, 1);
                let fd = w.open(0);
                w.write(fd, 1);
                w.close(fd);
                let fd = w.open(1);
                w.read(fd, 1);
                w.read(0, 1);
            },
        ],
    );
    world.end();
}

/// A file is opened a second time while the extension is switched on, and the call takes longer than the scan.
fn an_opening_that_takes_long() {
    let world = World::new(1, Duration::ZERO);
    world.open(0);
    side_by_side(
        world,
        [
            |w| {
                let fd = w.open(0);
                w.write(fd, 1);
            },
            |w| {
                w.on();
                w.read(0, 1);
                w.read(0, 1);
            },
        ],
    );
    world.end();
}

/// The audit checks a file that only the server changes.
fn a_watch() {
    let world = found();
    side_by_side(
        world,
        [
            |w| (0..3).for_each(|_| w.look_twice(0)),
            |w| {
                w.write(0, 1);
                w.truncate(0);
                w.write(0, 2);
            },
            |w| (0..4).for_each(|_| w.kernel().pass(Duration::from_secs(1))),
        ],
    );
    world.end();
}

#[test]
fn what_is_interrupted_has_one_owner() {
    let seen = explore("owners", two_who_switch_off);
    assert!(seen["interrupted"] > 0);
}

#[test]
fn two_owners_are_noticed() {
    is_noticed("interrupted-keeps-it", two_who_switch_off);
}

#[test]
fn a_recording_and_the_extension_follow_for_each_other() {
    explore("recording", a_recording_beside);
    explore("long opening", an_opening_that_takes_long);
}

#[test]
fn openings_that_end_after_the_scan_unseen_are_noticed() {
    is_noticed("open-seen-late", an_opening_that_takes_long);
}

#[test]
fn what_is_remembered_over_a_gap_is_noticed() {
    is_noticed("gap-not-seen", a_recording_beside);
}

#[test]
fn the_audit_does_not_blame_the_server() {
    explore("watch", a_watch);
}

#[test]
fn changes_counted_from_their_end_are_noticed() {
    is_noticed("count-after", a_watch);
}
