//! Model checking of a page's life cycle: the checker chooses the next thread at every lock and every atomic operation.
//!
//! Compiled only in `checks/interleavings`. The threads are few and short, the schedules many. There are random
//! schedules, and schedules with a bounded number of preemptions (PCT), which have a known probability of finding bugs
//! that need few preemptions. A hit must be a version that the page had between the beginning and the end of the read.
//! Each part of the protocol is disabled once, to prove that the checker detects its absence.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32 as PlainU32;
use std::time::Duration;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::sync::RwLock;
use shuttle::thread;
use shuttle::{Config as Checker, Runner};

use super::*;
use crate::Group;
use crate::device::queue::{Part, Queue};
use crate::device::storage::{Storage, write_all};

const LENGTH: usize = 4096;

/// A data file of a few pages: the version of each page, and a lock that represents InnoDB's latch on it.
struct World {
    extension: Extension,
    generations: Arc<Generations>,
    pages: Vec<RwLock<u32>>,
    _directory: TempDir,
}

/// Hits of all schedules, to detect a test without hits.
static HITS: PlainU32 = PlainU32::new(0);
static STALE: PlainU32 = PlainU32::new(0);
static LOCATED: PlainU32 = PlainU32::new(0);
static EVICTED: PlainU32 = PlainU32::new(0);

/// A device with several writes in flight, of which the last completes first.
struct Aloft(File);

struct Sky {
    file: File,
    under_way: Vec<(usize, Vec<Part>, u64)>,
}

// SAFETY: the writer keeps the parts until the write has completed.
unsafe impl Send for Sky {}

static ALOFT: PlainU32 = PlainU32::new(0);

impl Storage for Aloft {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        Storage::read_at(&self.0, buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        Storage::write_at(&self.0, bytes, offset)
    }

    fn facts(&self) -> io::Result<(u64, u64)> {
        self.0.facts()
    }

    fn raw_fd(&self) -> RawFd {
        self.0.raw_fd()
    }

    fn queue(&self, _: bool) -> Option<Box<dyn Queue>> {
        Some(Box::new(Sky {
            file: self.0.try_clone().ok()?,
            under_way: Vec::new(),
        }))
    }
}

impl Queue for Sky {
    unsafe fn submit(&mut self, slot: usize, parts: &[Part], offset: u64) {
        self.under_way.push((slot, parts.to_vec(), offset));
        ALOFT.fetch_max(self.under_way.len() as u32, Ordering::Relaxed);
    }

    fn complete(
        &mut self,
        _: usize,
        wait: Duration,
        completed: &mut Vec<(usize, io::Result<usize>)>,
    ) {
        thread::yield_now();
        if wait.is_zero() {
            return;
        }
        if let Some((slot, parts, mut offset)) = self.under_way.pop() {
            let begun = offset;
            for part in parts {
                // SAFETY: as above.
                let bytes = unsafe { std::slice::from_raw_parts(part.start, part.bytes) };
                write_all(&self.file, bytes, offset).unwrap();
                offset += part.bytes as u64;
            }
            thread::yield_now();
            completed.push((slot, Ok((offset - begun) as usize)));
        }
    }
}

fn world(aloft: bool, break_it: fn(&Canary)) -> Arc<World> {
    let directory = match Path::new("/dev/shm").is_dir() {
        true => tempfile::tempdir_in("/dev/shm"),
        false => tempfile::tempdir(),
    }
    .unwrap();
    let config = Config {
        instances: 1,
        nominal_page: 65536,
        ..config(directory.path(), SMALLEST)
    };
    let generations = Arc::new(Generations::new());
    let wrap = move |file| -> Box<dyn Storage> {
        match aloft {
            true => Box::new(Aloft(file)),
            false => Box::new(file),
        }
    };
    let extension =
        Extension::open_with(&config, Arc::clone(&generations), Arc::new(wrap), false).unwrap();
    break_it(&extension.shared.store.canary);
    Arc::new(World {
        extension,
        generations,
        pages: (0..2).map(|_| RwLock::new(1)).collect(),
        _directory: directory,
    })
}

impl World {
    fn page(n: usize) -> PageId {
        page(1, n as u32)
    }

    /// A read that a write may overlap, such as a read-ahead of a freed page. The version may be any that the page had
    /// during the read. Its result is inserted late.
    fn read(&self, n: usize) {
        let before = *self.pages[n].read().unwrap();
        let (ticket, version) = {
            let page = self.pages[n].read().unwrap();
            (self.generations.begin_read(1, n as u32), *page)
        };
        let mut buffer = vec![0; LENGTH];
        if self
            .extension
            .read(Self::page(n), Group::NORMAL, &mut buffer)
            == ReadOutcome::Hit
        {
            self.check(n, &buffer, before);
        } else if let Some(ticket) = ticket {
            let bytes = content(Self::page(n), version, LENGTH);
            if self
                .extension
                .insert(Self::page(n), Group::NORMAL, &bytes, ticket, Source::Read)
                == InsertOutcome::Stale
            {
                STALE.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Serves a read like a server's asynchronous reads.
    fn read_located(&self, n: usize) {
        use std::os::unix::fs::FileExt;
        let before = *self.pages[n].read().unwrap();
        let Some(located) = self
            .extension
            .locate(Self::page(n), Group::NORMAL, LENGTH, 0)
        else {
            return;
        };
        // SAFETY: the descriptor stays open as long as `located` lives, and is not closed here.
        let file = std::mem::ManuallyDrop::new(unsafe {
            <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(located.fd)
        });
        // Aligned for direct I/O.
        let mut block = vec![0; 2 * LENGTH];
        let shift = block.as_ptr().align_offset(LENGTH);
        // SAFETY: no read fills the memory; a page in staging is present.
        let lent = unsafe { located.bytes() };
        assert_eq!(lent.is_some(), located.length == 0);
        let to = &mut block[shift..shift + located.length as usize];
        if FileExt::read_at(&*file, to, located.offset).is_err() {
            return self.extension.release_failed(located, libc::EIO);
        }
        let bytes = &mut block[shift..shift + LENGTH];
        // A slow disk.
        (0..20).for_each(|_| thread::yield_now());
        // `prove_page` checks against the page at the time of the call, not only at the time of the read.
        let before = before.max(*self.pages[n].read().unwrap());
        if self.extension.prove_page(&located, lent, bytes) {
            LOCATED.fetch_add(1, Ordering::Relaxed);
            self.check(n, bytes, before);
        }
    }

    /// Evicts the page in favour of another one.
    fn evict(&self, n: usize) {
        let shared = &*self.extension.shared;
        let page = Self::page(n);
        if shared.instance(page).lock().evict_page(&shared.store, page) {
            EVICTED.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn check(&self, n: usize, bytes: &[u8], before: u32) {
        HITS.fetch_add(1, Ordering::Relaxed);
        let version = version_of(bytes);
        let now = *self.pages[n].read().unwrap();
        assert!(
            (before..=now).contains(&version) && bytes == content(Self::page(n), version, LENGTH),
            "page {n} was read as version {version}, but it had {before} to {now}"
        );
    }

    fn write(&self, n: usize) {
        self.generations.begin_write(1, n as u32, 1);
        let was_cached = self.extension.invalidate(FileId(1), n as u32, 1);
        let version = {
            let mut page = self.pages[n].write().unwrap();
            *page += 1;
            *page
        };
        if let Some(ticket) = self.generations.end_write(1, n as u32, 1) {
            let bytes = content(Self::page(n), version, LENGTH);
            self.extension.insert(
                Self::page(n),
                Group::NORMAL,
                &bytes,
                ticket,
                Source::Write { was_cached },
            );
        }
    }

    /// A change without an observed end: only InnoDB's latch blocks reads until then.
    fn change_unseen(&self, n: usize) {
        let mut page = self.pages[n].write().unwrap();
        self.generations.bump(1, n as u32, 1);
        self.extension.invalidate(FileId(1), n as u32, 1);
        *page += 1;
    }
}

/// Two readers of a page, a writer of it, a user of another page, and the device writer thread.
fn lives_of_pages(aloft: bool, break_it: fn(&Canary)) {
    let world = world(aloft, break_it);
    let threads: [(fn(&World), usize); 5] = [
        (
            |w| {
                thread::yield_now();
                w.evict(0);
                w.evict(1);
            },
            1,
        ),
        (|w| (0..2).for_each(|_| w.read(0)), 1),
        (
            |w| {
                w.write(0);
                w.read(0);
                w.change_unseen(0);
            },
            1,
        ),
        (
            |w| {
                w.read(1);
                w.read_located(0);
                w.read(0);
                w.read_located(1);
            },
            1,
        ),
        (
            |w| {
                (0..3).for_each(|_| {
                    w.extension.pump();
                    thread::yield_now();
                });
            },
            1,
        ),
    ];
    let handles: Vec<_> = threads
        .into_iter()
        .flat_map(|(body, count)| std::iter::repeat_n(body, count))
        .map(|body| {
            let world = Arc::clone(&world);
            thread::spawn(move || body(&world))
        })
        .collect();
    handles
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
    // A hit must now be the last version.
    for n in 0..world.pages.len() {
        let last = *world.pages[n].read().unwrap();
        let mut buffer = vec![0; LENGTH];
        if world
            .extension
            .read(World::page(n), Group::NORMAL, &mut buffer)
            == ReadOutcome::Hit
        {
            assert_eq!(version_of(&buffer), last, "page {n} at the end");
        }
    }
    while world.extension.pump() {}
    let statistics = world.extension.statistics();
    assert_eq!(
        (statistics.pages_staged, world.extension.staged_bytes()),
        (0, 0),
        "frames were lost"
    );
}

/// A page on the device is read, evicted and written concurrently.
fn eviction_of_a_page(break_it: fn(&Canary)) {
    let world = world(false, break_it);
    world.read(0);
    while world.extension.pump() {}
    let bodies: [fn(&World); 3] = [|w| w.read_located(0), |w| w.evict(0), |w| w.write(0)];
    let handles = bodies.map(|body| {
        let world = Arc::clone(&world);
        thread::spawn(move || body(&world))
    });
    handles
        .into_iter()
        .for_each(|handle| handle.join().unwrap());
}

fn check(scheduler: impl Scheduler + 'static, body: fn()) {
    let mut checker = Checker::new();
    checker.stack_size = 1 << 20;
    checker.failure_persistence = shuttle::FailurePersistence::Print;
    Runner::new(scheduler, checker).run(body);
}

/// Number of schedules of each kind, from the environment variable `INTERLEAVINGS`.
fn schedules() -> usize {
    std::env::var("INTERLEAVINGS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1500)
}

fn in_all_ways(body: fn()) {
    check(RandomScheduler::new(schedules()), body);
    check(PctScheduler::new(3, schedules()), body);
}

#[test]
fn no_schedule_makes_an_old_page_a_hit() {
    in_all_ways(|| lives_of_pages(false, |_| ()));
    in_all_ways(|| lives_of_pages(true, |_| ()));
    in_all_ways(|| eviction_of_a_page(|_| ()));
    let [hits, located, stale, evicted] =
        [&HITS, &LOCATED, &STALE, &EVICTED].map(|count| count.load(Ordering::Relaxed));
    println!(
        "{} schedules: {hits} hits, {located} of them located, {stale} insertions turned away, {evicted} evictions",
        6 * schedules()
    );
    assert!(hits > 0 && located > 0 && stale > 0 && evicted > 0);
    assert!(ALOFT.load(Ordering::Relaxed) > 1);
}

fn is_noticed(body: fn()) -> bool {
    catch_unwind(AssertUnwindSafe(|| {
        check(RandomScheduler::new(20_000), body)
    }))
    .is_err()
}

#[test]
fn insertion_without_comparing_generations_is_noticed() {
    assert!(is_noticed(|| lives_of_pages(true, |canary| canary
        .generation
        .store(true, Ordering::Relaxed))));
}

#[test]
fn writes_that_drop_nothing_are_noticed() {
    assert!(is_noticed(|| lives_of_pages(true, |canary| canary
        .invalidation
        .store(true, Ordering::Relaxed))));
}

#[test]
fn evictions_that_are_not_counted_are_noticed() {
    assert!(is_noticed(|| eviction_of_a_page(|canary| canary
        .eviction
        .store(true, Ordering::Relaxed))));
}
