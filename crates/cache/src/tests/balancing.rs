//! Several devices, the write rate and the daily budget.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

use super::*;
use crate::device::storage::Storage;
use crate::{Compression, DeviceStatistics, Group, OpenError, WriteBudget};

/// A storage whose writes take as many milliseconds as the gate holds; they hang while that is `u64::MAX`.
struct Slow {
    file: File,
    millis: Arc<AtomicU64>,
}

impl Storage for Slow {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Storage::read_at(&self.file, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        while self.millis.load(Ordering::SeqCst) == u64::MAX {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(self.millis.load(Ordering::SeqCst)));
        Storage::write_at(&self.file, bytes, offset)
    }

    fn facts(&self) -> io::Result<(u64, u64)> {
        self.file.facts()
    }

    fn raw_fd(&self) -> RawFd {
        self.file.raw_fd()
    }
}

/// Two devices with writer threads, the second of them with a gate.
struct Pair {
    fixture: Fixture,
    millis: Arc<AtomicU64>,
    _second: tempfile::TempDir,
}

fn pair(first: u64, second: u64) -> Pair {
    let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut config = config(directory.path(), first);
    config.devices.push(device(other.path(), "other", second));
    let generations = Arc::new(Generations::new());
    let millis = Arc::new(AtomicU64::new(0));
    let (gate, opened) = (Arc::clone(&millis), AtomicU64::new(0));
    let wrap = move |file| -> Box<dyn Storage> {
        let millis = match opened.fetch_add(1, Ordering::SeqCst) {
            0 => Arc::default(),
            _ => Arc::clone(&gate),
        };
        Box::new(Slow { file, millis })
    };
    let extension =
        Extension::open_with(&config, Arc::clone(&generations), Arc::new(wrap), true).unwrap();
    Pair {
        fixture: Fixture {
            extension,
            generations,
            directory,
        },
        millis,
        _second: other,
    }
}

impl Pair {
    fn devices(&self) -> Vec<DeviceStatistics> {
        self.fixture.extension.device_statistics()
    }

    /// Offers pages, waiting for room in staging. Gives up after a minute.
    fn insert(&self, pages: std::ops::Range<u32>) {
        let begun = Instant::now();
        for n in pages {
            while self.fixture.insert(page(1, n), 1, 16384) == InsertOutcome::StagingFull {
                assert!(begun.elapsed() < Duration::from_secs(60), "nothing moves");
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    }

    fn settle(&self) {
        while self.fixture.extension.staged_bytes() > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn state_of(device: &DeviceStatistics) -> &str {
    &device.state
}

#[test]
fn devices_are_filled_in_proportion_to_their_size() {
    let second = tempfile::tempdir().unwrap();
    let f = inline(|c| c.devices.push(device(second.path(), "other", SMALLEST * 4)));
    // While they are being filled, when they are full, and long after.
    for pages in [0..800, 800..2400, 2400..8000] {
        for n in pages.clone() {
            f.insert(page(1, n), 1, 16384);
            if n % 8 == 0 {
                f.extension.with_writers(|writers| writers.reverse());
                f.pump();
            }
        }
        f.pump();
        f.check_books();
        let d = f.extension.device_statistics();
        let ratio = d[1].pages as f64 / d[0].pages as f64;
        // The smaller device reserves as many segments as the larger.
        assert!((3.2..6.0).contains(&ratio), "{pages:?}: {ratio}");
        let s = f.extension.statistics();
        assert!(
            s.write_amplification < 1.1,
            "no device is written over and over: {s:?}"
        );
    }
}

#[test]
fn small_device_is_not_rewritten_beside_empty_large_one() {
    let second = tempfile::tempdir().unwrap();
    let f = inline(|c| c.devices.push(device(second.path(), "other", SMALLEST * 8)));
    for n in 0..3200 {
        f.insert(page(1, n), 1, 16384);
        if n % 16 == 0 {
            f.pump();
        }
    }
    f.pump();
    let s = f.extension.statistics();
    assert_eq!((s.evicted, s.reinserted), (0, 0), "{s:?}");
    // Except for some collisions.
    assert!(s.pages_cached > 3180, "{s:?}");
}

#[test]
fn a_slow_device_gets_fewer_pages_and_holds_nobody_up() {
    let pair = pair(SMALLEST * 8, SMALLEST * 8);
    const SLOW: u64 = 200;
    pair.millis.store(SLOW, Ordering::SeqCst);
    // Until its writes are measured as slow in comparison with the other device, whose disk may be busy as well.
    let begun = Instant::now();
    let mut next = 0;
    while !state_of(&pair.devices()[1]).contains("take much longer") {
        pair.insert(next..next + 100);
        next += 100;
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert_eq!(pair.devices()[0].state, "active");
    let before = pair.devices();
    let begun = Instant::now();
    pair.insert(100_000..102_000);
    let took = begun.elapsed();
    let after = pair.devices();
    let [fast, slow] = [0, 1].map(|n| after[n].writes - before[n].writes);
    assert!(fast > 4 * slow, "{fast} writes, and {slow} slow ones");
    // If the other device waited for each of its writes, both would have equally many.
    assert!(u128::from(slow) <= took.as_millis() / u128::from(SLOW) + 2);
    // It returns to normal use.
    pair.millis.store(0, Ordering::SeqCst);
    let begun = Instant::now();
    let mut next = 200_000;
    while state_of(&pair.devices()[1]) != "active" {
        pair.insert(next..next + 100);
        next += 100;
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    pair.settle();
    pair.fixture.check_books();
}

#[test]
fn a_device_that_hangs_in_a_write_holds_little() {
    let pair = pair(SMALLEST * 8, SMALLEST * 8);
    pair.millis.store(u64::MAX, Ordering::SeqCst);
    // More than staging holds, several times.
    pair.insert(0..1500);
    let held = pair.fixture.extension.shared.store.balancing().max_held() as u64;
    while pair.fixture.extension.staged_bytes() > held {
        std::thread::sleep(Duration::from_millis(1));
    }
    let devices = pair.devices();
    assert!(devices[0].pages > 1300, "{devices:?}");
    // Pages that it holds in memory are served.
    let served = (0..1500)
        .filter(|&n| pair.fixture.read(page(1, n), 1, 16384) == ReadOutcome::Hit)
        .count();
    assert!(served > 1480, "{served}");
    pair.millis.store(0, Ordering::SeqCst);
    pair.settle();
    pair.fixture.check_books();
}

#[test]
fn unopenable_device_does_not_stop_others() {
    let missing = tempfile::tempdir().unwrap();
    let folder = missing.path().join("not mounted");
    let wanted = folder.clone();
    let f = inline(|c| {
        c.devices
            .push(device(&folder.join("sub"), "other", SMALLEST));
    });
    let devices = f.extension.device_statistics();
    assert_eq!(devices[0].state, "active");
    assert!(
        !devices[1].active && devices[1].state.contains("not mounted"),
        "{}",
        devices[1].state
    );
    for n in 0..200 {
        f.insert(page(1, n), 1, 16384);
        f.pump();
    }
    let hits = (0..200).filter(|&n| f.read(page(1, n), 1, 16384) == ReadOutcome::Hit);
    assert!(hits.count() > 190);
    // Its path is available now, and the next probe finds it: a directory instead of a new file.
    std::fs::create_dir_all(wanted.join("sub")).unwrap();
    f.extension
        .with_writers(|writers| writers[1].recovery_mut().hurry_probe());
    f.pump();
    assert_eq!(f.extension.device_statistics()[1].state, "active");
    let path = wanted.join("sub").join("other");
    assert!(path.exists() && f.extension.device_statistics()[1].path == path);
    for n in 200..600 {
        f.insert(page(1, n), 1, 16384);
        f.pump();
    }
    assert!(f.extension.device_statistics()[1].pages > 100);
    f.check_books();
    drop(f);
    assert!(!path.exists());
}

#[test]
fn without_any_device_opening_fails_and_names_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let gone = |name: &str| device(&directory.path().join(name).join("x"), "cache", SMALLEST);
    let c = Config {
        devices: vec![gone("one"), gone("two")],
        ..config(directory.path(), SMALLEST)
    };
    let opened = Extension::open_inline(c, Arc::new(Generations::new()));
    let Err(error @ OpenError::Io { .. }) = opened else {
        panic!()
    };
    assert!(error.to_string().contains("/one'"), "{error}");
}

/// Writes for `seconds` of a clock that advances only by waiting. Returns bytes written per second.
fn rate(f: &Fixture, seconds: u64) -> f64 {
    let shared = &f.extension.shared;
    let begun = shared.clock.now();
    let before = f.extension.statistics().bytes_written_total;
    let mut n = 0;
    while shared.clock.now() < begun + Duration::from_secs(seconds) {
        // A colliding page may be reported as already cached.
        while f.insert(page(1, n), 1, 16384) != InsertOutcome::StagingFull {
            n += 1;
        }
        f.extension.with_writers(|writers| writers.reverse());
        f.extension.pump();
    }
    let written = f.extension.statistics().bytes_written_total - before;
    written as f64 / (shared.clock.now() - begun).as_secs_f64()
}

#[test]
fn the_io_capacity_is_kept_by_all_devices_together() {
    let second = tempfile::tempdir().unwrap();
    let f = inline(|c| {
        c.devices.push(device(second.path(), "other", SMALLEST * 2));
        c.io_capacity = 8 << 20;
    });
    *f.extension.shared.clock.set.lock() = Some(Instant::now());
    for mib in [8, 3, 20] {
        let capacity = f64::from(mib << 20);
        f.extension.set_io_capacity(capacity as u64);
        let got = rate(&f, 5);
        assert!((got / capacity - 1.0).abs() < 0.05, "{got} of {capacity}");
    }
    f.check_books();
}

#[test]
fn the_daily_limit_is_kept_and_cached_pages_are_served_on() {
    let budget = Arc::new(WriteBudget::default());
    let shared_budget = Arc::clone(&budget);
    let f = inline(|c| c.budget = shared_budget);
    let begin = Instant::now();
    *f.extension.shared.clock.set.lock() = Some(begin);
    let limit = 64 << 20;
    budget.set_limit(limit);
    let (mut version, mut refused) = (1, 0);
    // For three days in steps of five minutes, insert more than the budget allows.
    let mut written = vec![];
    for _ in 0..3 * 288 {
        f.extension.shared.clock.skip(Duration::from_secs(300));
        f.pump();
        version += 1;
        let before = f.extension.statistics().bytes_written_total;
        for n in 0..64 {
            match f.write(page(1, n), version, 16384) {
                InsertOutcome::Admitted => {
                    assert_eq!(f.read(page(1, n), version, 16384), ReadOutcome::Hit);
                }
                InsertOutcome::WriteLimit => {
                    refused += 1;
                    assert!(matches!(
                        f.read(page(1, n), version, 16384),
                        ReadOutcome::Miss(_)
                    ));
                }
                other => panic!("{other:?}"),
            }
            f.pump();
        }
        written.push(f.extension.statistics().bytes_written_total - before);
    }
    let s = f.extension.statistics();
    assert!(refused > 0 && s.rejected_write_limit == refused, "{s:?}");
    let most = written
        .windows(288)
        .map(|day| day.iter().sum::<u64>())
        .max()
        .unwrap();
    assert!(most <= limit * 105 / 100, "{most} of {limit}");
    assert!(s.bytes_written_total > limit * 22 / 10, "{s:?}");
    assert!(s.bytes_written_in_a_day <= limit * 105 / 100);
    // The budget is used up: cached pages are still served.
    budget.set_limit(1);
    let cached = (0..64).filter(|&n| f.read(page(1, n), version, 16384) == ReadOutcome::Hit);
    assert!(cached.count() > 0 || refused > 0);
    assert_eq!(f.insert(page(9, 9), 1, 16384), InsertOutcome::WriteLimit);
    budget.set_limit(0);
    assert_eq!(f.insert(page(9, 9), 1, 16384), InsertOutcome::Admitted);
    // Another extension of the process continues the account.
    let again = Arc::clone(&budget);
    let other = inline(|c| c.budget = again);
    assert!(other.extension.statistics().bytes_written_in_a_day > 0);
}

#[test]
fn compressed_pages_are_more_pages() {
    let count = |compression| {
        let f = inline(|c| c.compression = compression);
        for n in 0..3000 {
            // Half of each page is zeros.
            let p = page(1, n);
            let mut bytes = content(p, 1, 16384);
            bytes[6000..].fill(0);
            let ticket = f.generations.begin_read(1, n).unwrap();
            f.extension
                .insert(p, Group::NORMAL, &bytes, ticket, Source::Read);
            f.pump();
        }
        f.check_books();
        f.extension.statistics()
    };
    let (raw, packed) = (count(Compression::Off), count(Compression::Lz4));
    assert_eq!((raw.compression_ratio, raw.compress_attempts), (1.0, 0));
    assert!(packed.compression_ratio > 2.0, "{packed:?}");
    assert!(
        packed.pages_cached * 10 > raw.pages_cached * 17,
        "{packed:?}"
    );
    assert!(packed.write_amplification < 0.6, "{packed:?}");
    assert!(raw.write_amplification >= 1.0);
}

#[test]
fn pages_that_do_not_shrink_are_left_alone() {
    let f = inline(|c| c.compression = Compression::Lz4);
    for n in 0..500 {
        let p = page(1, n);
        let mut bytes: Vec<u8> = (0..2048)
            .flat_map(|i| crate::common::page::mix64(u64::from(n) << 32 | i).to_le_bytes())
            .collect();
        bytes[4..8].copy_from_slice(&n.to_be_bytes());
        let ticket = f.generations.begin_read(1, n).unwrap();
        f.extension
            .insert(p, Group::NORMAL, &bytes, ticket, Source::Read);
        f.pump();
    }
    let s = f.extension.statistics();
    assert!(s.compress_attempts < 30 && s.compressed == 0, "{s:?}");
    assert_eq!(s.compress_attempts + s.compress_left_alone, s.admitted);
    assert_eq!(s.compression_ratio, 1.0);
}

/// A page of noise that ends in zeros, so that each page shrinks to a different length.
fn shrinking(p: PageId, version: u64) -> Vec<u8> {
    let seed = crate::common::page::mix64(version << 32 | u64::from(p.page));
    let mut bytes: Vec<u8> = (0..2048)
        .flat_map(|i| crate::common::page::mix64(seed ^ i).to_le_bytes())
        .collect();
    bytes[4..8].copy_from_slice(&p.page.to_be_bytes());
    bytes[4000 + seed as usize % 9000..].fill(0);
    bytes
}

/// Pages that compress to different lengths leave holes of different lengths, and share blocks.
#[test]
fn compressed_pages_of_many_lengths_are_written_about_once() {
    const PAGES: u32 = 4000;
    let f = inline(|c| {
        c.compression = Compression::Lz4;
        c.devices[0].bytes = SMALLEST * 4;
    });
    let mut versions = vec![0; PAGES as usize];
    for n in 0..4 * PAGES {
        let p = page(1, crate::common::page::mix64(u64::from(n)) as u32 % PAGES);
        versions[p.page as usize] += 1;
        f.generations.begin_write(1, p.page, 1);
        let was_cached = f.extension.invalidate(p.file, p.page, 1);
        let ticket = f.generations.end_write(1, p.page, 1).unwrap();
        let bytes = shrinking(p, versions[p.page as usize]);
        f.extension.insert(
            p,
            Group::NORMAL,
            &bytes,
            ticket,
            Source::Write { was_cached },
        );
        if n % 7 == 0 {
            f.pump();
        }
    }
    f.pump();
    f.check_books();
    let mut buffer = vec![0; 16384];
    for n in 0..PAGES {
        if f.extension.read(page(1, n), Group::NORMAL, &mut buffer) == ReadOutcome::Hit {
            assert!(buffer == shrinking(page(1, n), versions[n as usize]));
        }
    }
    let s = f.extension.statistics();
    assert!(s.hits > 2500 && s.compression_ratio > 1.6, "{s:?}");
    assert!(s.write_amplification < 1.25, "{s:?}");
    assert_eq!((s.failed_proofs, s.device_errors), (0, 0));
}
