//! Result of a read: property 1.

use std::time::Duration;

use super::world::World;
use super::{explore, is_noticed, side_by_side};

/// Two readers and a writer of one page, a reader of another page, and the thread that writes to the cache disk.
fn a_page() {
    let world = World::serving(1, Duration::ZERO, 2);
    side_by_side(
        world,
        [
            |w| {
                w.read_unlatched(0, 1);
                w.read_unlatched(0, 1);
            },
            |w| {
                w.write_unlatched(1, 1);
                w.read_unlatched(1, 1);
            },
            |w| {
                w.read_unlatched(1, 2);
                w.read_unlatched(0, 1);
            },
            |w| (0..2).for_each(|_| w.pump()),
        ],
    );
    world.end();
}

#[test]
fn a_hit_is_a_version_that_the_page_had_during_the_read() {
    let seen = explore("page", a_page);
    assert!(seen["hits"] > 0);
}

#[test]
fn writes_that_drop_nothing_are_noticed() {
    is_noticed("writes", a_page);
}

#[test]
fn tickets_taken_late_are_noticed() {
    is_noticed("ticket-after-read", a_page);
}

#[test]
fn writes_before_the_page_size_is_known_are_noticed() {
    is_noticed("unlearned", a_page);
}
