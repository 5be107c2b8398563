//! Pages that are compared before they are served: property 16.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::time::Duration;

use extension::PageId;

use super::kernel::{PAGES, content};
use super::requests::cached;
use super::world::World;
use super::{explore, is_noticed, seen, side_by_side};
use crate::compare::{Buffers, Cursor};
use crate::os::Os;

impl World {
    /// What is cached of the first file, whose descriptor this is, may be old.
    fn doubt(&self, fd: i32) {
        let file = self.core.files.of_descriptor(fd).unwrap();
        let stat = self.kernel().stat(fd).unwrap();
        file.doubt(file.id(), &stat, 2, true);
    }

    /// As `bpe verify` does, and the scrub.
    fn compare_all(&self) {
        let _inside = self.kernel().enter();
        let from = Cursor {
            file: 0,
            page: 0,
            every: 1,
        };
        let tell = |_: &_, page, compared| {
            use crate::compare::Compared;
            assert!(
                compared != Compared::Different,
                "page {page} would have been served"
            );
            seen("compared", u64::from(compared == Compared::Equal));
        };
        let mut buffers = Buffers::new().unwrap();
        let time = Duration::from_secs(1000);
        self.core.compare_from(from, time, &mut buffers, tell);
    }
}

/// Both pages are cached, and somebody else has changed the first one.
fn inherited(world: World) -> World {
    (1..PAGES).for_each(|page| world.read(0, page));
    world.pump();
    world.kernel().change(0, 1..2);
    world.doubt(0);
    world
}

/// Two who read a page, one who writes it, and one who changes the whole file or compares it.
fn a_page(world: World, last: fn(World)) {
    side_by_side(
        world,
        [
            |w| {
                w.read_unlatched(0, 1);
                w.read_unlatched(0, 2);
                w.read_unlatched(0, 1);
            },
            |w| {
                w.read_unlatched(1, 1);
                w.write_unlatched(1, 1);
                w.write_unlatched(1, 2);
            },
            |w| (0..2).for_each(|_| w.pump()),
            last,
        ],
    );
    (1..PAGES).for_each(|page| world.read(0, page));
    seen("verified", world.core.switch().doubts.verified());
}

fn beside_a_comparison() {
    let world = inherited(World::serving(1, Duration::ZERO, 2));
    a_page(world, |w| w.compare_all());
    // The first page as well, which nobody reads.
    world.compare_all();
    let memory = world.core.switch().doubts.memory_bytes();
    assert_eq!(memory, 0, "all pages are settled");
    world.end();
}

fn beside_a_truncation() {
    let world = inherited(World::serving(1, Duration::ZERO, 2));
    a_page(world, |w| w.truncate(0));
    world.end();
}

/// One who reads a page that somebody writes.
fn beside_a_write() {
    let world = inherited(World::serving(1, Duration::ZERO, 2));
    side_by_side(
        world,
        [
            |w| (0..3).for_each(|_| w.read_unlatched(0, 1)),
            |w| w.write_unlatched(1, 1),
        ],
    );
    world.end();
}

/// Reads that are submitted while their pages are doubtful, beside one that waits, and writes.
fn requests() {
    let world = inherited(cached(1));
    side_by_side(
        world,
        [
            |w| {
                w.submit(0, &[(0, 1), (1, 2)]);
                w.submit_write(0, 2, 1);
            },
            |w| (0..4).for_each(|_| w.harvest()),
            |w| {
                w.read_unlatched(0, 1);
                w.read_unlatched(0, 2);
                w.read_unlatched(0, 1);
            },
            |w| w.pump(),
        ],
    );
    world.drain();
    world.end();
}

/// Two versions of the first page that have the same check.
static ALIKE: LazyLock<(u32, u32)> = LazyLock::new(|| {
    let page = PageId::new(extension::FileId(0), 1);
    let mut known = HashMap::new();
    let pair = (1..).find_map(|version| {
        let check = extension::check_of(page, &content(0, 1, version));
        known.insert(check, version).map(|same| (same, version))
    });
    pair.unwrap()
});

/// What somebody else has written has the same check as what is cached.
fn pages_that_are_alike() {
    let world = World::serving(1, Duration::ZERO, 1);
    world.kernel().write(0, 1, ALIKE.0);
    world.read(0, 1);
    world.kernel().write(0, 1, ALIKE.1);
    world.doubt(0);
    side_by_side(world, [|w| w.read(0, 1), |w| w.read(0, 1)]);
    world.read(0, 1);
    world.end();
}

#[test]
fn what_is_served_was_compared() {
    let seen = explore("doubtful page", beside_a_comparison);
    assert!(seen["hits"] > 0 && seen["verified"] > 0 && seen["compared"] > 0);
    let seen = explore("doubtful page, truncation", beside_a_truncation);
    assert!(seen["hits"] > 0 && seen["verified"] > 0);
    explore("doubtful page, a write", beside_a_write);
}

#[test]
fn requests_for_doubtful_pages_bring_what_the_file_has() {
    let seen = explore("doubtful requests", requests);
    assert!(seen["hits"] > 0);
}

#[test]
fn pages_that_look_alike_are_told_apart() {
    explore("alike", pages_that_are_alike);
}

#[test]
fn doubtful_pages_that_are_served_are_noticed() {
    is_noticed("doubt-not-asked", beside_a_truncation);
    is_noticed("doubt-not-asked", requests);
}

#[test]
fn pages_settled_before_they_are_dropped_are_noticed() {
    is_noticed("settled-before-drop", beside_a_write);
}

#[test]
fn comparisons_of_checks_alone_are_noticed() {
    is_noticed("check-is-enough", pages_that_are_alike);
}
