//! Warming: pages inserted on behalf of another server, and the report on local pages.

use super::*;
use crate::{EXTENT_PAGES, Group, PolicyName};

const LENGTH: usize = 16384;

impl Fixture {
    fn warm(&self, page: PageId, count: u8) -> InsertOutcome {
        let ticket = self.generations.begin_read(page.file.0, page.page).unwrap();
        let bytes = content(page, 1, LENGTH);
        let outcome =
            self.extension
                .insert(page, Group::NORMAL, &bytes, ticket, Source::Warm { count });
        self.pump();
        outcome
    }
}

fn one_instance() -> Fixture {
    inline(|c| {
        c.policy = PolicyName::Density;
        c.instances = 1;
    })
}

/// Reads a page like a server, and inserts it after a miss.
fn ask(f: &Fixture, page: PageId) {
    if f.read(page, 1, LENGTH) != ReadOutcome::Hit {
        f.insert(page, 1, LENGTH);
    }
    f.pump();
}

/// A cache full of pages of file 1, each read `times` times, in rounds.
fn full(times: u32) -> Fixture {
    let f = one_instance();
    for _ in 0..times {
        (0..500).for_each(|n| ask(&f, page(1, n)));
    }
    f
}

#[test]
fn what_was_asked_for_more_often_is_hotter() {
    let f = one_instance();
    for round in 0..8 {
        (round..8).for_each(|n| ask(&f, page(1, 64 + n)));
        // Reads of other pages in between, because an immediate repetition does not count.
        (0..200).for_each(|n| ask(&f, page(2, n)));
    }
    let accesses = |f: &Fixture| f.extension.instance_statistics()[0].accesses;
    let before = accesses(&f);
    let heat = f.extension.heat(FileId(1), 1);
    assert_eq!(heat.cached, 0xff);
    assert!(
        heat.of[..8].is_sorted() && heat.of[0] < heat.of[7],
        "{heat:?}"
    );
    assert_eq!(f.extension.heat(FileId(1), 0).cached, 0);
    assert_eq!(f.extension.heat(FileId(7), 1).cached, 0);
    assert_eq!(accesses(&f), before, "looking is no access");
}

#[test]
fn what_is_loaded_is_cached_as_hot_as_it_was_elsewhere() {
    let f = one_instance();
    let before = f.extension.instance_statistics()[0].accesses;
    for n in 0..4 {
        assert_eq!(f.warm(page(1, n), 4 - n as u8), InsertOutcome::Admitted);
        assert_eq!(f.warm(page(1, n), 4), InsertOutcome::AlreadyCached);
    }
    assert_eq!(f.extension.instance_statistics()[0].accesses, before);
    let heat = f.extension.heat(FileId(1), 0);
    assert!(
        heat.of[..4].iter().rev().is_sorted() && heat.of[0] > heat.of[3],
        "{heat:?}"
    );
    assert_eq!(f.read(page(1, 2), 1, LENGTH), ReadOutcome::Hit);
    f.extension.cool(FileId(1), 0, 1);
    assert!(f.extension.heat(FileId(1), 0).of[0] < heat.of[0]);
    f.check_books();
}

/// Pages that were not read for so long that they lost their counters.
#[test]
fn what_was_forgotten_is_colder() {
    let f = one_instance();
    // No read has touched them, so they have no counters.
    (0..64).for_each(|n| _ = f.insert(page(1, n), 1, LENGTH));
    f.pump();
    (0..40_000).for_each(|_| f.extension.count_access(page(2, 0)));
    assert_eq!(f.read(page(1, 7), 1, LENGTH), ReadOutcome::Hit);
    let heat = f.extension.heat(FileId(1), 0);
    assert!(heat.cached.count_ones() > 60, "{heat:?}");
    let others = heat.of.iter().filter(|&&of| of == 0).count();
    assert!(others > 60, "{heat:?}");
    assert!(heat.of[7] > 0, "{heat:?}");
}

/// Density's entries share one clock for all recently read pages, so it cannot rank the hottest.
#[test]
fn density_tells_the_hottest_apart() {
    let f = one_instance();
    for n in 0..15 {
        assert_eq!(f.warm(page(1, n), n as u8 + 1), InsertOutcome::Admitted);
    }
    let heat = f.extension.heat(FileId(1), 0);
    let counts: Vec<u8> = (1..=15).collect();
    assert_eq!(heat.of[..15], counts);
}

#[test]
fn only_what_is_colder_goes_for_it() {
    // Each was read eight times.
    let f = full(8);
    let cached = |f: &Fixture| f.extension.statistics().pages_cached;
    let before = cached(&f);
    let rejected = (0..200).filter(|&n| f.warm(page(2, n), 4) == InsertOutcome::Rejected);
    let rejected = rejected.count();
    // Room reserved for writes in flight remains; one collision in a hundred appears colder.
    assert!(rejected > 180, "{rejected}");
    let wanted = f
        .extension
        .wanted(FileId(2), 10, u64::MAX, &[4; EXTENT_PAGES]);
    assert!(wanted.cached.count_ones() < 4, "{wanted:?}");
    assert!(wanted.admissible.count_ones() < 8, "{wanted:?}");
    assert!(cached(&f) + 20 > before);
    // Pages with more reads.
    let admitted = (0..200).filter(|&n| f.warm(page(3, n), 15) == InsertOutcome::Admitted);
    assert!(admitted.count() > 150);
    f.check_books();
}

/// A list's hottest class has the count 4, the next the count 3.
#[test]
fn a_page_that_was_read_twice_goes_for_a_warm_one() {
    let f = full(2);
    let admitted = |count, file| {
        let of = (0..200).filter(|&n| f.warm(page(file, n), count) == InsertOutcome::Admitted);
        of.count()
    };
    // Collisions, and the room left in the store.
    assert!(admitted(1, 2) < 40, "{}", admitted(1, 3));
    assert!(admitted(3, 4) > 150, "{}", admitted(3, 5));
    f.check_books();
}

#[test]
fn a_page_that_is_written_meanwhile_is_turned_away() {
    let f = one_instance();
    let p = page(1, 5);
    let ticket = f.generations.begin_read(1, 5).unwrap();
    f.write(p, 2, LENGTH);
    let bytes = content(p, 1, LENGTH);
    let warm = |ticket| {
        f.extension
            .insert(p, Group::NORMAL, &bytes, ticket, Source::Warm { count: 4 })
    };
    assert_eq!(warm(ticket), InsertOutcome::Stale);
    assert_eq!(f.read(p, 2, LENGTH), ReadOutcome::Hit);
}

#[test]
fn half_of_staging_is_left_to_the_server() {
    let f = one_instance();
    let mut admitted = 0u64;
    let full = (0..10_000).find_map(|n| {
        let p = page(1, n);
        let ticket = f.generations.begin_read(1, n)?;
        let bytes = content(p, 1, LENGTH);
        let outcome =
            f.extension
                .insert(p, Group::NORMAL, &bytes, ticket, Source::Warm { count: 1 });
        admitted += u64::from(outcome == InsertOutcome::Admitted);
        (outcome != InsertOutcome::Admitted).then_some(outcome)
    });
    assert!(
        matches!(
            full,
            Some(InsertOutcome::StagingFull | InsertOutcome::Rejected)
        ),
        "{full:?}"
    );
    assert!(admitted > 0);
    assert_eq!(
        f.insert(page(2, 1), 1, LENGTH),
        InsertOutcome::Admitted,
        "the server's own"
    );
    assert_eq!(f.extension.statistics().dropped_staging_full, 0);
    f.pump();
    f.check_books();
}
