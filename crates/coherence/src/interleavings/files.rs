//! Which file a descriptor stands for: properties 4 to 8.

use std::time::Duration;

use super::world::World;
use super::{explore, is_noticed, side_by_side};

fn new_world(engines: usize) -> World {
    World::new(engines, Duration::ZERO)
}

/// An open is held up at any of its steps while the extension is switched off and on, and objects at rest are used again.
fn a_late_open() {
    let world = new_world(2);
    world.on();
    side_by_side(
        world,
        [
            |w| {
                let fd = w.open(0);
                w.read(fd, 1);
                w.close(fd);
                w.open(0);
            },
            |w| {
                w.switch_off();
                w.on();
            },
            |w| {
                w.kernel().pass_long();
                let fd = w.open(1);
                w.read(fd, 1);
                w.kernel().pass_long();
                w.read(fd, 1);
            },
        ],
    );
    world.end();
}

#[test]
fn no_entry_of_the_time_before_is_used() {
    let seen = explore("late open", a_late_open);
    assert!(seen["reads"] > 0);
}

#[test]
fn a_store_outside_the_lock_is_noticed() {
    is_noticed("store-outside-lock", a_late_open);
}
