//! What gets in, and what goes for it, once pages compete.

use super::*;
use crate::{OpenError, PolicyName};

const LENGTH: usize = 16384;

/// Reads a page as a server does: offers it if it is not cached. The offer's outcome, if there was one.
fn ask(f: &Fixture, page: PageId) -> Option<OfferOutcome> {
    let hit = f.read(page, 1, LENGTH) == ReadOutcome::Hit;
    let outcome = (!hit).then(|| f.offer(page, 1, LENGTH));
    f.pump();
    outcome
}

/// A full cache of pages of file 1, each asked for so many times.
fn full(times: u32) -> Fixture {
    full_with(PolicyName::Frequency, times)
}

fn full_with(policy: PolicyName, times: u32) -> Fixture {
    let f = inline(|c| {
        c.policy = policy;
        c.admission = AdmissionMode::Frequency;
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
fn a_scan_gets_next_to_nothing_and_what_comes_back_often_gets_in() {
    let f = full(8);
    let welcome = (0..1500)
        .filter(|&n| ask(&f, page(2, n)) == Some(OfferOutcome::Admitted))
        .count();
    // One tag in a hundred or so is taken for another's.
    assert!(welcome < 30, "{welcome} pages of a scan got in");
    let welcome = (0..16).any(|_| ask(&f, page(3, 7)) == Some(OfferOutcome::Admitted));
    assert!(welcome);
    assert_eq!(ask(&f, page(3, 7)), None, "a hit");
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
fn pages_that_are_written_back_are_taken_in_when_they_are_written() {
    let f = full(2);
    // A file of which every page that is read is also written.
    for n in 0..1500 {
        ask(&f, page(2, n % 300 + 1000));
        f.write(page(2, n % 300 + 1000), 1, LENGTH);
        f.pump();
    }
    let wanted = page(2, 7);
    for _ in 0..8 {
        assert_eq!(ask(&f, wanted), Some(OfferOutcome::Rejected));
    }
    assert_eq!(f.write(wanted, 2, LENGTH), OfferOutcome::Admitted);
    f.pump();
    assert_eq!(f.read(wanted, 2, LENGTH), ReadOutcome::Hit);
    f.check_books();
}

#[test]
fn a_page_that_was_hit_and_will_be_written_back_goes_first() {
    let f = full(2);
    for n in 0..1500 {
        ask(&f, page(2, n % 100));
        f.write(page(2, n % 100), 1, LENGTH);
        f.pump();
    }
    // Hit now: InnoDB has them.
    let held: Vec<PageId> = (0..100)
        .map(|n| page(2, n))
        .filter(|&page| f.read(page, 1, LENGTH) == ReadOutcome::Hit)
        .collect();
    assert!(held.len() > 20, "{}", held.len());
    let evicted = f.extension.statistics().evicted;
    let mut welcome = 0;
    for n in 0..200 {
        for _ in 0..8 {
            if ask(&f, page(3, n)) == Some(OfferOutcome::Admitted) {
                welcome += 1;
            }
        }
        if f.extension.statistics().evicted - evicted >= 10 {
            break;
        }
    }
    assert!(welcome >= 10);
    let gone = held
        .iter()
        .filter(|&&page| f.read(page, 1, LENGTH) != ReadOutcome::Hit)
        .count();
    assert!(gone >= 10, "{gone} of those that were hit have gone");
    f.check_books();
}

#[test]
fn a_new_working_set_is_believed_soon() {
    let f = full(2);
    for _ in 0..12 {
        for n in 0..480 {
            ask(&f, page(1, n));
        }
    }
    let before = f.extension.statistics();
    let mut asked = 0;
    for _ in 0..24 {
        for n in 0..400 {
            ask(&f, page(9, n));
            asked += 1;
        }
    }
    let hits = f.extension.statistics().hits - before.hits;
    assert!(hits * 2 > asked, "{hits} hits of {asked}");
    f.check_books();
}

#[test]
fn another_policy_runs_in_the_same_engine() {
    let f = inline(|c| {
        c.policy = PolicyName::SecondChance;
        c.admission = AdmissionMode::Frequency;
        c.instances = 1;
    });
    let held = || (0..100).map(|n| page(1, n));
    held().for_each(|page| _ = ask(&f, page));
    let mut missed = 0;
    for n in 0..3000 {
        assert_ne!(ask(&f, page(2, n)), Some(OfferOutcome::Rejected));
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

/// What is hit all the time stays, whatever is scanned beside it.
#[test]
fn density_keeps_what_comes_back_and_lets_scans_pass() {
    let f = full_with(PolicyName::Density, 20);
    let held: Vec<PageId> = (0..500)
        .map(|n| page(1, n))
        .filter(|&page| ask(&f, page).is_none())
        .collect();
    assert!(held.len() > 300, "{} of 500 are cached", held.len());
    let admitted = (0..4000)
        .filter(|&n| {
            let outcome = ask(&f, page(2, n));
            ask(&f, held[n as usize % held.len()]);
            outcome == Some(OfferOutcome::Admitted)
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
    let f = full_with(PolicyName::Density, 4);
    // A file of which every page that is read is also written.
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
    let f = full_with(PolicyName::Density, 40);
    let before = f.extension.statistics();
    let mut asked = 0;
    for _ in 0..24 {
        for n in 0..400 {
            ask(&f, page(9, n));
            asked += 1;
        }
    }
    let hits = f.extension.statistics().hits - before.hits;
    assert!(hits * 2 > asked, "{hits} hits of {asked}");
    f.check_books();
}

/// Of one page, of one file, of writes only: nothing is divided by nothing, and what fits is served.
#[test]
fn density_serves_streams_that_teach_nothing() {
    let f = full_with(PolicyName::Density, 1);
    (0..5000).for_each(|_| _ = ask(&f, page(3, 1)));
    assert_eq!(ask(&f, page(3, 1)), None, "the only page there is");
    let f = inline(|c| c.policy = PolicyName::Density);
    for n in 0..5000 {
        f.write(page(1, n % 700), 1, LENGTH);
        f.pump();
    }
    let s = f.extension.statistics();
    assert!(s.admission_threshold.is_finite(), "{s:?}");
    assert!(s.pages_cached > 100, "{s:?}");
    f.check_books();
}

#[test]
fn another_policy_takes_over_what_is_cached() {
    let f = full_with(PolicyName::Frequency, 8);
    let cached = f.extension.statistics().pages_cached;
    assert_eq!(f.extension.follow_policy().unwrap(), None);
    f.extension.set_policy(PolicyName::Density);
    let followed = f.extension.follow_policy().unwrap();
    assert_eq!(followed, Some(PolicyName::Density));
    assert_eq!(f.extension.follow_policy().unwrap(), None, "it is done");
    let s = f.extension.statistics();
    assert_eq!(s.pages_cached, cached);
    for _ in 0..20 {
        (0..400).for_each(|n| _ = ask(&f, page(1, n)));
    }
    let hits = || (0..400).filter(|&n| f.read(page(1, n), 1, LENGTH) == ReadOutcome::Hit);
    let before = hits().count();
    assert!(before > 300, "{before} of 400");
    for n in 0..1500 {
        ask(&f, page(2, n));
        ask(&f, page(1, n % 400));
    }
    let after = hits().count();
    assert!(after + 20 > before, "{after} of {before} after a scan");
    f.extension.set_policy(PolicyName::Frequency);
    let followed = f.extension.follow_policy().unwrap();
    assert_eq!(followed, Some(PolicyName::Frequency));
    f.check_books();
}

/// Policies of the instances, in order.
fn policies(f: &Fixture) -> Vec<PolicyName> {
    let instances = f.extension.shared.instances.iter();
    instances.map(|instance| instance.0.policy()).collect()
}

#[test]
fn instances_exchange_their_policies_one_by_one_and_go_on_when_there_is_memory() {
    use PolicyName::{Density, Frequency};
    let f = inline(|c| {
        c.admission = AdmissionMode::Frequency;
        c.instances = 3;
    });
    (0..900).for_each(|n| _ = ask(&f, page(1, n % 450)));
    f.extension.set_policy(Density);
    f.extension.shared.policies.refuse_from(1);
    assert!(f.extension.follow_policy().is_err());
    assert_eq!(policies(&f), [Density, Frequency, Frequency]);
    f.extension.shared.policies.refuse_from(2);
    assert!(f.extension.follow_policy().is_err());
    assert_eq!(policies(&f), [Density, Density, Frequency]);
    (0..900).for_each(|n| _ = ask(&f, page(2, n % 450)));
    // Somebody wants it as it was.
    f.extension.set_policy(Frequency);
    f.extension.shared.policies.refuse_from(usize::MAX);
    assert_eq!(f.extension.follow_policy().unwrap(), Some(Frequency));
    assert_eq!(policies(&f), [Frequency; 3]);
    assert_eq!(f.extension.follow_policy().unwrap(), None);
    f.check_books();
}

#[test]
fn where_a_limit_has_no_room_for_two_policies_one_goes_first() {
    use PolicyName::{Density, Frequency, SecondChance};
    let limited = |limit| {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("cache");
        let config = Config {
            devices: vec![DeviceConfig {
                path,
                bytes: 64 << 20,
                owner: OwnerIdentity::default(),
                file_name: String::new(),
            }],
            instances: 2,
            memory_limit: limit,
            ..Config::default()
        };
        let opened = Extension::open_inline(config, Arc::new(Generations::new()));
        opened.map(|extension| (extension, directory))
    };
    let Err(OpenError::MemoryLimit { needed, .. }) = limited(1) else {
        panic!("it needs more than a byte")
    };
    for (limit, meanwhile) in [(needed, SecondChance), (needed + (1 << 20), Frequency)] {
        let (extension, _directory) = limited(limit).unwrap();
        let policy = |at: usize| extension.shared.instances[at].0.policy();
        extension.set_policy(Density);
        extension.shared.policies.refuse_from(1);
        assert!(extension.follow_policy().is_err());
        assert_eq!((policy(0), policy(1)), (Density, meanwhile));
        extension.shared.policies.refuse_from(usize::MAX);
        assert_eq!(extension.follow_policy().unwrap(), Some(Density));
        assert_eq!((policy(0), policy(1)), (Density, Density));
    }
}

/// What happens follows from the calls alone.
#[test]
fn policies_are_repeatable() {
    let run = |name| {
        let f = inline(|c| {
            c.policy = name;
            c.admission = AdmissionMode::Frequency;
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
