//! Admission and eviction while pages compete.

use super::*;

const LENGTH: usize = 16384;

/// Reads a page like a server, and inserts it after a miss. Returns the outcome of the insertion, if any.
fn ask(f: &Fixture, page: PageId) -> Option<InsertOutcome> {
    let hit = f.read(page, 1, LENGTH) == ReadOutcome::Hit;
    let outcome = (!hit).then(|| f.insert(page, 1, LENGTH));
    f.pump();
    outcome
}

/// A cache full of pages of file 1, each read `times` times.
fn full(times: u32) -> Fixture {
    let f = inline(|c| {
        c.policy = PolicyName::Density;
        c.instances = 1;
    });
    for _ in 0..times {
        for n in 0..500 {
            ask(&f, page(1, n));
        }
    }
    let s = f.extension.statistics();
    assert!(s.rejected > 0, "it is full: {s:?}");
    f
}

#[test]
fn rereads_are_admitted_and_unknown_updates_are_not() {
    let f = full(8);
    let admissible = (0..16).any(|_| ask(&f, page(3, 7)) == Some(InsertOutcome::Admitted));
    assert!(admissible);
    assert_eq!(ask(&f, page(3, 7)), None, "a hit");
    assert_eq!(f.write(page(3, 7), 1, LENGTH), InsertOutcome::Admitted);
    assert_eq!(f.write(page(3, 8), 1, LENGTH), InsertOutcome::Rejected);
    f.check_books();
}

#[test]
fn misses_of_pages_that_come_back_are_counted_apart() {
    let f = full(8);
    let mut counted = f.extension.statistics().misses_returned;
    let mut since = || {
        let all = f.extension.statistics().misses_returned;
        all - std::mem::replace(&mut counted, all)
    };
    let scan = || (0..200).for_each(|n| _ = ask(&f, page(2, n)));
    scan();
    let (first, missed) = (since(), f.extension.statistics().misses_absent);
    scan();
    let (second, missed) = (since(), f.extension.statistics().misses_absent - missed);
    assert!(first < 20, "{first} of 200 new pages");
    assert!(second > 100 && second <= missed, "{second} of {missed}");
}

#[test]
fn another_policy_runs_in_the_same_engine() {
    let f = inline(|c| {
        c.policy = PolicyName::SecondChance;
        c.instances = 1;
    });
    let held = || (0..100).map(|n| page(1, n));
    held().for_each(|page| _ = ask(&f, page));
    let mut missed = 0;
    for n in 0..3000 {
        assert_ne!(ask(&f, page(2, n)), Some(InsertOutcome::Rejected));
        if n % 100 == 0 {
            missed += held().filter(|&page| ask(&f, page).is_some()).count();
        }
    }
    let s = f.extension.statistics();
    assert!(s.evicted > 1000, "it is full: {s:?}");
    assert!(
        missed < 200,
        "{missed} reads of 3000 of what is hit all the time"
    );
    let kept = (0..2000).filter(|&n| ask(&f, page(2, n)).is_none()).count();
    assert!(kept < 100, "{kept} of 2000 that were not");
    f.check_books();
}

/// Frequently hit pages stay during scans of other pages.
#[test]
fn density_keeps_what_comes_back_and_lets_scans_pass() {
    let f = full(20);
    let held: Vec<PageId> = (0..500)
        .map(|n| page(1, n))
        .filter(|&page| ask(&f, page).is_none())
        .collect();
    assert!(held.len() > 300, "{} of 500 are cached", held.len());
    let admitted = (0..4000)
        .filter(|&n| {
            let outcome = ask(&f, page(2, n));
            ask(&f, held[n as usize % held.len()]);
            outcome == Some(InsertOutcome::Admitted)
        })
        .count();
    assert!(admitted < 120, "{admitted} of 4000 pages of a scan");
    let kept = held.iter().filter(|&&page| ask(&f, page).is_none());
    let kept = kept.count();
    assert!(kept * 100 > held.len() * 95, "{kept} of {}", held.len());
    f.check_books();
}

#[test]
fn density_learns_of_pages_that_are_written_back() {
    let f = full(4);
    // Every read page of this file is also written.
    for n in 0..6000 {
        ask(&f, page(2, n % 400));
        f.write(page(2, n % 400), 1, LENGTH);
        f.pump();
    }
    let hits = (0..400).filter(|&n| {
        let hit = ask(&f, page(2, n)).is_none();
        f.write(page(2, n), 1, LENGTH);
        f.pump();
        hit
    });
    let hits = hits.count();
    assert!(hits > 200, "{hits} of 400");
    f.check_books();
}

#[test]
fn density_believes_in_a_new_working_set_soon() {
    let f = full(40);
    let before = f.extension.statistics();
    let mut requested = 0;
    for _ in 0..24 {
        for n in 0..400 {
            ask(&f, page(9, n));
            requested += 1;
        }
    }
    let hits = f.extension.statistics().hits - before.hits;
    assert!(hits * 2 > requested, "{hits} hits of {requested}");
    f.check_books();
}

/// Streams of one page, of one file, of writes only: no division of zero by zero, and pages that fit are served.
#[test]
fn density_serves_streams_that_teach_nothing() {
    let f = full(1);
    (0..5000).for_each(|_| _ = ask(&f, page(3, 1)));
    assert_eq!(ask(&f, page(3, 1)), None, "the only page there is");
    let f = inline(|c| c.policy = PolicyName::Density);
    for n in 0..5000 {
        f.write(page(1, n % 700), 1, LENGTH);
        f.pump();
    }
    let s = f.extension.statistics();
    assert!(s.pages_cached > 100, "{s:?}");
    f.check_books();
}

/// The calls alone determine the behaviour.
#[test]
fn policies_are_repeatable() {
    let run = |name| {
        let f = inline(|c| {
            c.policy = name;
        });
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..20_000 {
            let page = page(random.u32(1..4), random.u32(..1500).min(random.u32(..1500)));
            if random.u8(..4) == 0 {
                f.write(page, 1, LENGTH);
                f.pump();
            } else {
                ask(&f, page);
            }
        }
        f.check_books();
        let s = f.extension.statistics();
        (s.hits, s.admitted, s.rejected, s.evicted, s.pages_cached)
    };
    for &name in PolicyName::ALL {
        let one = run(name);
        assert!(one.0 > 1000 && one.3 > 100, "{name}: {one:?}");
        assert_eq!(one, run(name), "{name}");
    }
}
