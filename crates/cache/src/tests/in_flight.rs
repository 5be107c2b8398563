//! Several writes in flight, on a device that completes them in a chosen order, or fails some of them. No other write
//! and no read may touch a region with a write in flight.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Weak;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::*;
use crate::common::wake::TICK;
use crate::device::queue::{DEPTH, Part, Queue, READS};
use crate::device::storage::{Storage, write_all};
use crate::instance::shared::Shared;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Completion {
    /// Complete some of them, in any order.
    AtRandom(u64),
    /// Complete none.
    Held,
}

struct Write {
    slot: usize,
    parts: Vec<Part>,
    offset: u64,
}

/// A read in flight.
struct Read {
    slot: usize,
    memory: *mut u8,
    bytes: usize,
    offset: u64,
}

// SAFETY: the writer does not touch the memory until the read has completed.
unsafe impl Send for Read {}

impl Read {
    fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes as u64
    }
}

// SAFETY: the writer keeps the parts until the write has completed.
unsafe impl Send for Write {}

impl Write {
    fn range(&self) -> Range<u64> {
        let bytes: usize = self.parts.iter().map(|part| part.bytes).sum();
        self.offset..self.offset + bytes as u64
    }
}

struct Sky {
    completion: Completion,
    under_way: Vec<Write>,
    reads: Vec<Read>,
    reads_completed: usize,
    /// Owner of the clock.
    shared: Weak<Shared>,
    /// Time of the last poll for completions, or of the last idle moment; and the longest interval between polls.
    looked: Option<Instant>,
    longest: Duration,
    /// One in `fails` completed writes fails; 0: none.
    fails: u64,
    most: usize,
    random: u64,
}

impl Sky {
    fn next(&mut self, below: usize) -> usize {
        self.random = crate::common::page::mix64(self.random.wrapping_add(0x9e37_79b9_7f4a_7c15));
        (self.random >> 32) as usize % below
    }

    /// Records a poll for completions.
    fn look(&mut self) {
        let Some(now) = self.shared.upgrade().map(|shared| shared.clock.now()) else {
            return;
        };
        let left = now - self.looked.replace(now).unwrap_or(now);
        self.longest = self.longest.max(left);
    }

    fn assert_clear(&self, what: &str, range: Range<u64>) {
        for other in self.under_way.iter().map(Write::range) {
            let apart = range.end <= other.start || other.end <= range.start;
            assert!(apart, "{what} of {range:?} while {other:?} is written");
        }
    }

    /// Completes some of the reads, some of them with an error or a short count.
    fn complete_reads(&mut self, file: &File, completed: &mut Vec<(usize, io::Result<usize>)>) {
        while !self.reads.is_empty() && self.next(2) == 0 {
            let count = self.reads.len();
            let at = self.next(count);
            let read = self.reads.swap_remove(at);
            // SAFETY: the writer does not touch it until the read has completed.
            let memory = unsafe { std::slice::from_raw_parts_mut(read.memory, read.bytes) };
            Storage::read_at(file, memory, read.offset).unwrap();
            self.reads_completed += 1;
            completed.push(match self.next(8) {
                0 => (read.slot, Err(io::Error::from_raw_os_error(libc::EIO))),
                1 => (read.slot, Ok(read.bytes / 2)),
                _ => (read.slot, Ok(read.bytes)),
            });
        }
    }
}

struct Unruly {
    file: File,
    sky: Arc<Mutex<Sky>>,
}

impl Storage for Unruly {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let range = offset..offset + buffer.len() as u64;
        self.sky.lock().assert_clear("a read", range);
        Storage::read_at(&self.file, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        let range = offset..offset + bytes.len() as u64;
        self.sky.lock().assert_clear("a write", range);
        Storage::write_at(&self.file, bytes, offset)
    }

    fn facts(&self) -> io::Result<(u64, u64)> {
        self.file.facts()
    }

    fn raw_fd(&self) -> RawFd {
        self.file.raw_fd()
    }

    fn queue(&self, _: bool) -> Option<Box<dyn Queue>> {
        let (file, sky) = (self.file.try_clone().ok()?, Arc::clone(&self.sky));
        Some(Box::new(UnrulyQueue { file, sky }))
    }
}

struct UnrulyQueue {
    file: File,
    sky: Arc<Mutex<Sky>>,
}

impl Queue for UnrulyQueue {
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64) {
        let mut sky = self.sky.lock();
        let parts = parts.to_vec();
        let write = Write {
            slot,
            parts,
            offset,
        };
        assert!(sky.under_way.iter().all(|other| other.slot != slot) && slot < DEPTH);
        if sky.under_way.is_empty() {
            sky.looked = None;
            sky.look();
        }
        sky.assert_clear("a write", write.range());
        for read in sky.reads.iter().map(Read::range) {
            let apart = read.end <= write.offset || write.range().end <= read.start;
            assert!(apart, "a write to what is being read ahead");
        }
        sky.under_way.push(write);
        sky.most = sky.most.max(sky.under_way.len());
    }

    unsafe fn read(&mut self, slot: usize, memory: *mut u8, bytes: usize, offset: u64) -> bool {
        let mut sky = self.sky.lock();
        let read = Read {
            slot,
            memory,
            bytes,
            offset,
        };
        assert!((DEPTH..DEPTH + READS).contains(&slot));
        assert!(sky.reads.iter().all(|other| other.slot != slot));
        sky.assert_clear("a read ahead", read.range());
        sky.reads.push(read);
        true
    }

    fn complete(
        &mut self,
        _: usize,
        wait: Duration,
        completed: &mut Vec<(usize, io::Result<usize>)>,
    ) {
        let mut sky = self.sky.lock();
        sky.look();
        let Completion::AtRandom(one_in) = sky.completion else {
            return;
        };
        sky.complete_reads(&self.file, completed);
        while !sky.under_way.is_empty() {
            if sky.next(one_in as usize) != 0 && (wait.is_zero() || !completed.is_empty()) {
                break;
            }
            let count = sky.under_way.len();
            let at = sky.next(count);
            let write = sky.under_way.swap_remove(at);
            let fails = sky.fails as usize;
            if fails > 0 && sky.next(fails) == 0 {
                let error = io::Error::from_raw_os_error(libc::EIO);
                completed.push((write.slot, Err(error)));
                continue;
            }
            let mut offset = write.offset;
            for part in &write.parts {
                // SAFETY: the writer keeps it until the write has completed.
                let bytes = unsafe { std::slice::from_raw_parts(part.start, part.bytes) };
                write_all(&self.file, bytes, offset).unwrap();
                offset += part.bytes as u64;
            }
            // Some writes are short, and the writer must write the rest.
            let written = (offset - write.offset) as usize;
            let short = if sky.next(8) == 0 { 4096 } else { 0 };
            completed.push((write.slot, Ok(written - short)));
        }
    }
}

impl Drop for UnrulyQueue {
    /// The kernel would wait for the requests.
    fn drop(&mut self) {
        let mut sky = self.sky.lock();
        sky.reads.clear();
        let forgotten = !sky.under_way.is_empty();
        assert!(
            !forgotten || std::thread::panicking(),
            "writes are forgotten"
        );
    }
}

fn unruly(completion: Completion, change: impl FnOnce(&mut Config)) -> (Fixture, Arc<Mutex<Sky>>) {
    let sky = Arc::new(Mutex::new(Sky {
        completion,
        under_way: Vec::new(),
        reads: Vec::new(),
        reads_completed: 0,
        shared: Weak::new(),
        looked: None,
        longest: Duration::ZERO,
        fails: 0,
        most: 0,
        random: 1,
    }));
    let directory = tempfile::tempdir().unwrap();
    let mut config = config(directory.path(), SMALLEST);
    change(&mut config);
    let generations = Arc::new(Generations::new());
    let wrapped = Arc::clone(&sky);
    let wrap = move |file| -> Box<dyn Storage> {
        let sky = Arc::clone(&wrapped);
        Box::new(Unruly { file, sky })
    };
    let extension =
        Extension::open_with(&config, Arc::clone(&generations), Arc::new(wrap), false).unwrap();
    sky.lock().shared = Arc::downgrade(&extension.shared);
    let fixture = Fixture {
        extension,
        generations,
        directory,
    };
    (fixture, sky)
}

fn step(f: &Fixture) -> crate::log::writer::Step {
    f.extension.with_writers(|writers| writers[0].step())
}

fn on_device(f: &Fixture) -> u64 {
    f.extension.device_statistics()[0].pages
}

#[test]
fn entry_is_switched_only_by_its_own_completed_write() {
    let (f, sky) = unruly(Completion::Held, |c| c.instances = 1);
    for n in 0..60 {
        f.insert(page(1, n), 1, 16384);
    }
    (0..4).for_each(|_| _ = step(&f));
    let under_way = sky.lock().under_way.len();
    assert_eq!(under_way, 4, "writes of 256 KiB");
    let all_hit = |f: &Fixture, new: u32| {
        (0..60).for_each(|n| {
            let version = if n == new { 2 } else { 1 };
            assert_eq!(f.read(page(1, n), version, 16384), ReadOutcome::Hit, "{n}");
        });
    };
    all_hit(&f, 60);
    assert_eq!(on_device(&f), 0);
    // Rewrite a page of the first write while that is in flight.
    f.write(page(1, 3), 2, 16384);
    all_hit(&f, 3);
    // The last one completes.
    let earlier: Vec<_> = sky.lock().under_way.drain(..under_way - 1).collect();
    sky.lock().completion = Completion::AtRandom(1);
    step(&f);
    assert!((12..=13).contains(&on_device(&f)), "{}", on_device(&f));
    all_hit(&f, 3);
    sky.lock().under_way.extend(earlier);
    f.pump();
    assert_eq!(on_device(&f), 60);
    all_hit(&f, 3);
    f.check_books();
}

#[test]
fn failed_write_purges_only_after_all_writes_completed() {
    let (f, sky) = unruly(Completion::Held, |c| c.instances = 1);
    for n in 0..64 {
        f.insert(page(1, n), 1, 16384);
    }
    (0..4).for_each(|_| _ = step(&f));
    // The second fails, the third completes, two remain.
    let mut others = std::mem::take(&mut sky.lock().under_way);
    let (third, second) = (others.remove(2), others.remove(1));
    sky.lock().under_way.push(second);
    sky.lock().completion = Completion::AtRandom(1);
    sky.lock().fails = 1;
    step(&f);
    let state = || f.extension.device_statistics()[0].state.clone();
    assert!(state().contains("a write failed"), "{}", state());
    sky.lock().fails = 0;
    sky.lock().under_way.push(third);
    step(&f);
    assert_eq!(f.extension.statistics().purged, 0);
    assert!(
        f.extension.staged_bytes() >= 32 * 16384,
        "held until they land"
    );
    f.extension
        .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
    step(&f);
    assert!(state().starts_with("failed"), "not tried before that");
    sky.lock().under_way.extend(others);
    for _ in 0..3 {
        step(&f);
        f.extension
            .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
    }
    f.pump();
    assert_eq!(state(), "active");
    let s = f.extension.statistics();
    assert_eq!(
        (s.pages_cached, f.extension.staged_bytes(), s.purged),
        (0, 0, 48)
    );
    for n in 0..64 {
        assert_ne!(f.read(page(1, n), 1, 16384), ReadOutcome::Hit);
        f.insert(page(1, n), 1, 16384);
    }
    f.pump();
    (0..64).for_each(|n| assert_eq!(f.read(page(1, n), 1, 16384), ReadOutcome::Hit));
    f.check_books();
}

#[test]
fn what_lands_while_the_pace_is_waited_for_is_under_way_no_more() {
    let (f, sky) = unruly(Completion::AtRandom(1), |c| c.io_capacity = 16 << 10);
    let begun = Instant::now();
    *f.extension.shared.clock.set.lock() = Some(begun);
    for n in 0..64 {
        f.insert(page(1, n), 1, 16384);
    }
    f.pump();
    let passed = f.extension.shared.clock.now() - begun;
    assert!(passed > Duration::from_secs(40), "{passed:?}");
    let longest = sky.lock().longest;
    assert!(longest <= TICK, "{longest:?} without looking");
    f.check_books();
}

#[test]
fn completed_write_is_processed_before_device_comparison() {
    let other = tempfile::tempdir().unwrap();
    let (f, sky) = unruly(Completion::Held, |c| {
        c.devices.push(device(other.path(), "other", SMALLEST));
    });
    f.extension
        .with_writers(|writers| writers[0].set_threaded(true));
    for n in 0..64 {
        f.insert(page(1, n), 1, 16384);
    }
    step(&f);
    assert!(!sky.lock().under_way.is_empty());
    // The writer was delayed, not its disk.
    let long_ago = Instant::now() - Duration::from_secs(20);
    let device = &f.extension.shared.store.devices[0];
    device.speed.set_oldest(Some(long_ago));
    sky.lock().completion = Completion::AtRandom(1);
    step(&f);
    assert!(
        device.health.active(),
        "{:?}",
        f.extension.device_statistics()[0]
    );
    f.extension
        .with_writers(|writers| writers[0].set_threaded(false));
    f.pump();
    f.check_books();
}

#[test]
fn a_page_written_again_while_it_waits_is_written_once() {
    let (f, _) = unruly(Completion::AtRandom(1), |_| {});
    f.insert(page(1, 1), 1, 16384);
    (2..500).for_each(|version| {
        assert_eq!(f.write(page(1, 1), version, 16384), InsertOutcome::Admitted);
        assert_eq!(f.extension.staged_bytes(), 16384);
    });
    f.pump();
    assert_eq!(f.read(page(1, 1), 499, 16384), ReadOutcome::Hit);
    assert_eq!(f.extension.statistics().bytes_written_user, 16384);
    f.check_books();
}

#[test]
fn when_staging_is_full_the_page_that_was_asked_for_least_goes() {
    let (f, _) = unruly(Completion::AtRandom(1), |c| {
        c.policy = PolicyName::Density;
        c.instances = 1;
    });
    let room = f.extension.shared.store.staging.capacity() as u32 / 16384;
    (0..room).for_each(|n| assert_eq!(f.insert(page(1, n), 1, 16384), InsertOutcome::Admitted));
    let known = |n| (0..2).for_each(|_| _ = f.read(page(1, n), 1, 16384));
    (1..room).for_each(known);
    assert_eq!(
        f.insert(page(1, 5000), 1, 16384),
        InsertOutcome::StagingFull
    );
    known(6000);
    known(6000);
    assert_eq!(f.insert(page(1, 6000), 1, 16384), InsertOutcome::Admitted);
    assert_eq!(f.read(page(1, 6000), 1, 16384), ReadOutcome::Hit);
    let gone = (0..room).filter(|&n| f.read(page(1, n), 1, 16384) != ReadOutcome::Hit);
    assert_eq!(gone.collect::<Vec<_>>(), [0]);
    assert_eq!(f.extension.statistics().dropped_staging_full, 2);
    f.pump();
    f.check_books();
}

/// Reads, inserts and writes more pages of these lengths than fit, at random, with writes completing at random.
fn churn(lengths: &[usize], fails: u64, steps: u64) {
    let (f, sky) = unruly(Completion::AtRandom(3), |c| c.nominal_page = 4096);
    sky.lock().fails = fails;
    let mut versions = vec![0; (96 << 20) / lengths.iter().max().unwrap()];
    let mut hits = 0;
    for step in 0..steps {
        let random = crate::common::page::mix64(7 << 32 | step);
        let n = random as usize % versions.len();
        let (page, length) = (page(1, n as u32), lengths[n % lengths.len()]);
        if random >> 40 & 3 == 0 {
            versions[n] += 1;
            f.write(page, versions[n], length);
        } else {
            match f.read(page, versions[n], length) {
                ReadOutcome::Hit => hits += 1,
                ReadOutcome::Miss(_) => _ = f.insert(page, versions[n], length),
            }
        }
        if random >> 50 & 15 == 0 {
            self::step(&f);
        }
        if fails > 0 && step % 256 == 0 {
            f.extension
                .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
        }
    }
    sky.lock().fails = 0;
    while !f.extension.device_statistics()[0].active || !sky.lock().under_way.is_empty() {
        f.extension
            .with_writers(|writers| writers[0].recovery_mut().hurry_probe());
        self::step(&f);
    }
    f.pump();
    let s = f.extension.statistics();
    let Sky {
        most,
        reads_completed,
        ..
    } = *sky.lock();
    assert!(
        hits > 50 && s.evicted + s.purged > 0 && most > 2 && reads_completed > 2,
        "{hits} {most} {reads_completed} {s:?}"
    );
    assert_eq!((s.failed_proofs, s.misses_failed_proof), (0, 0));
    f.check_books();
}

#[test]
fn no_two_writes_meet_while_a_full_device_is_churned() {
    churn(&[16384], 0, 16_000);
    churn(&[16384, 4096, 65536], 0, 10_000);
    churn(&[16384, 1024, 4096, 2048, 8192], 0, 10_000);
}

#[test]
fn no_two_writes_meet_while_some_fail() {
    churn(&[16384], 40, 10_000);
    churn(&[16384, 1024, 4096, 2048, 8192], 40, 10_000);
}
