//! Each part is correct with its orderings, and fails if a kind of ordering that it needs is weakened.

use weak_memory::sync::{Kind, weaken};
use weak_memory::{generations, pins, ring};

fn check(piece: fn()) {
    loom::model(piece);
}

/// Whether some execution fails with this kind of order weakened.
fn misses(piece: fn(), kind: Kind) -> bool {
    let found = std::thread::spawn(move || {
        weaken(Some(kind));
        loom::model(piece);
    });
    found.join().is_err()
}

#[test]
fn what_the_ring_gives_is_whole() {
    check(ring);
    assert!(misses(ring, Kind::Stores));
    assert!(misses(ring, Kind::Loads));
}

#[test]
fn no_old_page_gets_in() {
    check(generations);
    assert!(misses(generations, Kind::Loads));
    assert!(misses(generations, Kind::Exchanges));
}

#[test]
fn a_frame_is_not_written_while_it_is_read() {
    check(pins);
    assert!(misses(pins, Kind::Exchanges));
    assert!(misses(pins, Kind::Fences));
}
