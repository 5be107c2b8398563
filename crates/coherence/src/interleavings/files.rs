//! Which file a descriptor stands for: properties 4 to 8.

use std::time::Duration;

use super::world::World;
use super::{explore, is_noticed, seen, side_by_side};

fn new_world(engines: usize) -> World {
    World::new(engines, Duration::ZERO)
}

/// On, with two files that a scan found, of which the first was open twice.
fn two_files() -> World {
    let world = new_world(2);
    world.open(0);
    world.open(1);
    world.open(0);
    world.on();
    world.close(0);
    world
}

/// Off and on twice, so that the objects of files come to stand for others.
fn use_objects_again(world: World) {
    world.switch_off();
    world.record_for_a_moment();
    world.kernel().pass_long();
    world.on();
    world.read(1, 1);
    world.read(1, 1);
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

/// A thread that found a file before it was forgotten goes on when its object stands for another one.
fn a_late_read() {
    let world = two_files();
    side_by_side(
        world,
        [
            |w| {
                w.read(2, 1);
                w.write(2, 1);
            },
            |w| {
                use_objects_again(w);
                w.read(2, 1);
            },
        ],
    );
    world.end();
}

/// A file is changed by another program while the server has it closed.
fn a_stranger() {
    let world = new_world(1);
    world.on();
    side_by_side(
        world,
        [
            |w| {
                for _ in 0..2 {
                    let fd = w.open(0);
                    w.read(fd, 1);
                    w.read(fd, 2);
                    w.write(fd, 2);
                    w.close(fd);
                }
                let fd = w.open(0);
                w.read(fd, 1);
            },
            |w| {
                for _ in 0..3 {
                    let changed = w.kernel().foreign_write(0, 1);
                    seen("foreign writes", changed.into());
                }
            },
            |w| {
                for _ in 0..3 {
                    w.kernel().pass(Duration::from_millis(15));
                }
            },
        ],
    );
    world.end();
}

/// What a scan found is closed by somebody who began while the extension was off, and its number is given to another file,
/// whose opening began then, too.
fn a_found_descriptor() {
    let world = new_world(1);
    world.open(0);
    world.open(0);
    side_by_side(
        world,
        [
            |w| {
                w.kernel().close(0);
                let fd = w.kernel().open(1);
                w.read(fd, 1);
                w.read(fd, 1);
            },
            |w| {
                w.on();
                w.read(1, 1);
                w.read(1, 1);
            },
        ],
    );
    world.end();
}

/// A descriptor that was found and closed unseen is asked about while its number is given to the same file again.
fn a_number_that_comes_back() {
    let world = new_world(1);
    world.open(0);
    world.open(0);
    world.on();
    world.kernel().open(0);
    world.kernel().close(0);
    world.read(1, 1);
    side_by_side(
        world,
        [
            |w| w.opened(2, 0),
            |w| {
                let fd = w.open(0);
                w.write(fd, 1);
                w.read(fd, 1);
            },
        ],
    );
    world.end();
}

/// An opening that began before the extension was switched off registers its file between the steps of switching on.
fn a_late_registration() {
    let world = new_world(1);
    world.core.switch().start_tracking(|| ());
    world.open(0);
    world.kernel().open(0);
    side_by_side(
        world,
        [
            |w| {
                w.opened(1, 0);
                w.close(1);
                let fd = w.open(1);
                w.read(fd, 1);
            },
            |w| {
                w.kill();
                w.on();
                w.read(0, 1);
            },
        ],
    );
    world.end();
}

/// A file server takes long to answer what a found descriptor is; meanwhile its object comes to stand for another file.
fn a_long_question() {
    let world = two_files();
    side_by_side(
        world,
        [
            |w| {
                w.read(2, 1);
                w.read(2, 1);
            },
            use_objects_again,
        ],
    );
    world.end();
}

/// All pages of a file change at once while one is read.
fn a_truncation() {
    let world = World::serving(1, Duration::ZERO, 1);
    world.read(0, 1);
    side_by_side(
        world,
        [
            |w| {
                w.read_unlatched(0, 1);
                w.read_unlatched(0, 1);
                w.read_unlatched(0, 1);
            },
            |w| {
                w.truncate(0);
                w.read_unlatched(0, 1);
            },
            |w| w.write_unlatched(0, 1),
        ],
    );
    world.end();
}

#[test]
fn no_entry_of_the_time_before_is_used() {
    explore("late registration", a_late_registration);
    let seen = explore("late open", a_late_open);
    assert!(seen["reads"] > 0);
}

#[test]
fn a_store_outside_the_lock_is_noticed() {
    is_noticed("store-outside-lock", a_late_open);
}

#[test]
fn registering_while_nobody_follows_is_noticed() {
    is_noticed("attach-while-off", a_late_registration);
}

#[test]
fn an_object_that_is_used_again_harms_nobody() {
    explore("late read", a_late_read);
}

#[test]
fn objects_without_rest_are_noticed() {
    is_noticed("rest", a_late_read);
}

#[test]
fn a_strangers_change_of_a_closed_file_is_noticed() {
    let seen = explore("stranger", a_stranger);
    assert!(seen["foreign writes"] > 0 && seen["hits"] > 0);
}

#[test]
fn times_of_a_moment_ago_believed_are_noticed() {
    is_noticed("tick-rule", a_stranger);
}

#[test]
fn files_taken_for_unchanged_are_noticed() {
    is_noticed("reopening", a_stranger);
}

#[test]
fn found_descriptors_are_proven() {
    explore("found", a_found_descriptor);
    explore("number that comes back", a_number_that_comes_back);
    explore("long question", a_long_question);
}

#[test]
fn found_descriptors_believed_are_noticed() {
    is_noticed("no-prove", a_found_descriptor);
}

#[test]
fn not_looking_again_after_the_question_is_noticed() {
    is_noticed("prove-again", a_long_question);
}

#[test]
fn an_answer_about_another_entry_is_noticed() {
    is_noticed("prove-without-lock", a_number_that_comes_back);
}

#[test]
fn no_page_outlives_a_change_of_the_whole_file() {
    explore("truncation", a_truncation);
}

#[test]
fn truncations_that_drop_nothing_are_noticed() {
    is_noticed("truncation", a_truncation);
}

#[test]
fn blocking_after_the_new_identity_is_noticed() {
    is_noticed("block-after-id", a_truncation);
}

#[test]
fn an_identity_taken_too_early_is_noticed() {
    is_noticed("id-before-bump", a_truncation);
}
