//! Tests of the policies against models, and of common invariants.

use std::collections::{HashMap, HashSet, VecDeque};

use super::*;
use crate::trace::Operation;

/// A trace in which some pages are more popular than others.
fn stream(random: &mut fastrand::Rng, events: usize, pages: u32, writes: f64) -> Trace {
    Trace::from_events((0..events).map(|_| {
        let page = random.u32(..pages).min(random.u32(..pages));
        let operation = if random.f64() < writes {
            Operation::Write
        } else {
            Operation::Read
        };
        (1, page, operation)
    }))
}

fn whole(name: PolicyName, trace: &Trace, capacity: usize) -> Outcome {
    let all = 0..trace.events().len();
    run(name, trace, all, capacity, &mut |_| {})
}

/// Maximum possible number of hits, by exhaustive search: for each set of residents the most hits so far.
fn most_hits(trace: &Trace, capacity: usize) -> u64 {
    let mut best: HashMap<u32, u64> = HashMap::from([(0, 0)]);
    for event in trace.events() {
        let page = 1u32 << event.page();
        let mut after: HashMap<u32, u64> = HashMap::new();
        for (&set, &hits) in &best {
            let mut reach = |set: u32, hits: u64| {
                let known = after.entry(set).or_default();
                *known = hits.max(*known);
            };
            if set & page != 0 {
                reach(set, hits + u64::from(!event.is_write()));
                continue;
            }
            reach(set, hits);
            if (set.count_ones() as usize) < capacity {
                reach(set | page, hits);
            }
            for victim in (0..32).map(|n| 1 << n).filter(|n| set & n != 0) {
                reach(set & !victim | page, hits);
            }
        }
        best = after;
    }
    best.into_values().max().unwrap_or(0)
}

/// OPT by linear search at every event.
fn naive_opt(trace: &Trace, capacity: usize) -> (u64, u64) {
    let events = trace.events();
    let next_read = |page, from: usize| {
        let mut rest = events.iter().skip(from);
        rest.position(|event| event.page() == page && !event.is_write())
    };
    let mut residents: HashSet<u32> = HashSet::new();
    let (mut hits, mut writes) = (0, 0);
    for (n, event) in events.iter().enumerate() {
        let page = event.page();
        if residents.contains(&page) {
            hits += u64::from(!event.is_write());
            writes += u64::from(event.is_write());
            continue;
        }
        let Some(due) = next_read(page, n + 1) else {
            continue;
        };
        if residents.len() == capacity {
            let distance = |page: &u32| next_read(*page, n + 1).unwrap_or(usize::MAX);
            let Some(&victim) = residents.iter().max_by_key(|&page| (distance(page), page)) else {
                continue;
            };
            if distance(&victim) < due {
                continue;
            }
            residents.remove(&victim);
        }
        residents.insert(page);
        writes += 1;
    }
    (hits, writes)
}

#[test]
fn opt_does_what_it_says() {
    let mut random = fastrand::Rng::with_seed(6);
    for capacity in [1, 3, 20, 60] {
        let trace = stream(&mut random, 1500, 80, 0.3);
        let opt = whole(PolicyName::Opt, &trace, capacity);
        let (hits, writes) = naive_opt(&trace, capacity);
        assert_eq!((opt.hits, opt.page_writes), (hits, writes as f64));
    }
}

#[test]
fn opt_is_the_best_there_is() {
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..300 {
        let pages = random.u32(2..8);
        let reads = stream(&mut random, 40, pages, 0.0);
        let mixed = stream(&mut random, 40, pages, 0.3);
        for capacity in 1..5 {
            let opt = whole(PolicyName::Opt, &reads, capacity);
            assert_eq!(opt.hits, most_hits(&reads, capacity));
            let opt = whole(PolicyName::Opt, &mixed, capacity);
            assert!(opt.hits <= most_hits(&mixed, capacity));
        }
    }
}

#[test]
fn nothing_beats_opt() {
    let mut random = fastrand::Rng::with_seed(8);
    let trace = stream(&mut random, 60_000, 3000, 0.2);
    for capacity in [1, 2, 30, 300, 2000] {
        let opt = whole(PolicyName::Opt, &trace, capacity);
        for name in PolicyName::ALL {
            let other = whole(name, &trace, capacity);
            assert!(other.hits <= opt.hits, "{name} {capacity}");
            assert_eq!((other.events, other.reads), (opt.events, opt.reads));
        }
    }
}

#[test]
fn lru_is_what_a_queue_does() {
    let mut random = fastrand::Rng::with_seed(9);
    let trace = stream(&mut random, 5000, 60, 0.3);
    for capacity in [1, 7, 40] {
        let mut queue = VecDeque::new();
        let (mut hits, mut writes) = (0, 0);
        for event in trace.events() {
            let page = event.page();
            let found = queue.iter().position(|&p| p == page);
            if event.is_write() {
                writes += u64::from(found.is_some());
                continue;
            }
            match found {
                Some(at) => _ = queue.remove(at),
                None => writes += 1,
            }
            hits += u64::from(found.is_some());
            queue.push_front(page);
            queue.truncate(capacity);
        }
        let lru = whole(PolicyName::Lru, &trace, capacity);
        assert_eq!((lru.hits, lru.page_writes), (hits, writes as f64));
    }
}

/// Tracks insertions from the policy's results. The residents must never exceed the capacity, and only an inserted page
/// can be a hit.
#[test]
fn no_policy_holds_more_than_its_capacity() {
    let mut random = fastrand::Rng::with_seed(10);
    let trace = stream(&mut random, 30_000, 2000, 0.2);
    for name in PolicyName::ALL {
        for capacity in [1, 2, 5, 99, 1000, 5000] {
            let mut policy = build(name, trace.events(), trace.distinct_pages(), capacity);
            let mut inserted = HashSet::new();
            for event in trace.events() {
                let page = event.page();
                if event.is_write() {
                    let written = policy.write(page);
                    if name == PolicyName::Opt && written {
                        inserted.insert(page);
                    }
                    assert!(!written || inserted.contains(&page), "{name}");
                } else {
                    match policy.read(page) {
                        Read::Hit => assert!(inserted.contains(&page), "{name}"),
                        Read::Inserted => _ = inserted.insert(page),
                        Read::Bypassed => assert_eq!(name, PolicyName::Opt),
                    }
                }
                assert!(policy.resident() <= capacity, "{name} {capacity}");
            }
            let wanted = capacity.min(inserted.len());
            if name != PolicyName::Opt && capacity < 1000 {
                assert_eq!(policy.resident(), wanted, "{name} uses its room");
            }
        }
    }
}

#[test]
fn what_fits_is_read_once() {
    let mut random = fastrand::Rng::with_seed(11);
    let trace = stream(&mut random, 20_000, 300, 0.0);
    let reads = trace.events().len() as u64;
    for name in PolicyName::ALL {
        let outcome = whole(name, &trace, 100_000);
        let misses = reads - outcome.hits;
        assert_eq!(misses, trace.distinct_pages() as u64, "{name}");
    }
}

#[test]
fn only_the_measured_part_counts() {
    use Operation::{Read, Write};
    let trace = Trace::from_events([
        (1, 1, Read),
        (1, 2, Read),
        (1, 1, Read),
        (1, 2, Write),
        (1, 3, Write),
        (1, 3, Read),
        (1, 1, Read),
    ]);
    let mut last = 0;
    let outcome = run(PolicyName::Lru, &trace, 2..6, 10, &mut |n| last = n);
    let expected = Outcome {
        events: 4,
        reads: 2,
        hits: 1,
        page_writes: 2.0,
    };
    assert_eq!(outcome, expected);
    assert_eq!(last, 0);
}

#[test]
fn names_are_understood() {
    for name in PolicyName::ALL {
        assert_eq!(name.to_string().parse(), Ok(name));
    }
    assert!("best".parse::<PolicyName>().is_err());
}
