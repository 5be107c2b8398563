//! Mapping from descriptors to files: properties 4 to 8.

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

/// Switches off and on twice, so that file objects are reused for other files.
fn use_objects_again(world: World) {
    world.switch_off();
    world.record_for_a_moment();
    world.kernel().pass_long();
    world.on();
    world.read(1, 1);
    world.read(1, 1);
}

/// An open is delayed at any of its steps while the extension is switched off and on, and quarantined objects are reused.
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

/// A thread found a file before it was forgotten, and continues after its object was reused for another file.
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

/// Another program changes a file while the server has it closed.
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

/// A close that began while the extension was off closes a scanned descriptor. Its number is reused by an open of another file
/// that began while off, too.
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

/// A scanned descriptor was closed unobserved. Its lookup overlaps with the reuse of its number for the same file.
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

/// An open that began before the extension was switched off registers its file between the steps of switching on.
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

/// A file server is slow to answer the fstat of a scanned descriptor, while the object is reused for another file.
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
