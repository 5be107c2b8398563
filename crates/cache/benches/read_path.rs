//! Cost of a read through the extension, compared with a bare pread of the same bytes.
//!
//! `cargo bench -p cache --bench read_path [-- FILTER]`
//!
//! Groups: `memory` (the cache file is in memory, so all of the time is CPU time), `disk` (O_DIRECT, if the file system
//! of BENCH_DIRECTORY or the target directory supports it), `compressed`, `other` (misses, and the operations of a
//! write). At the end, for pages in memory, the bench compares the thread's CPU time in pairs: the overhead of `read`
//! over the pread of the same bytes. The goal is 2 microseconds. The hash of the page is part of it, and also shown
//! separately.

#[allow(dead_code, reason = "each bench uses a part")]
mod common;

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use cache::{Compression, FileId, Group, PageId, PolicyName, ReadOutcome};
use criterion::{BenchmarkGroup, Criterion, Throughput, measurement::WallTime};
use fastrand::Rng;

use common::cache::{Buffer, Cache, PAGE, Places};
use common::machine::{self, Usage};
use common::options::{Outcome, disk_directory, memory_directory};

/// Randomly read pages: 64 MiB, more than processor caches hold.
const PAGES: u32 = 4096;
/// Some more room, so that no page is evicted.
const ROOM: u32 = PAGES * 5 / 4;
const FILE: FileId = FileId(1);
const ABSENT: FileId = FileId(2);

fn main() -> Outcome {
    println!("{}", machine::describe());
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3))
        .configure_from_args();
    let memory = memory_directory();
    in_memory(&mut criterion, &memory)?;
    on_disk(&mut criterion, &disk_directory())?;
    compressed(&mut criterion, &memory)?;
    other(&mut criterion, &memory)?;
    criterion.final_summary();
    if std::env::args().any(|argument| argument == "--bench") {
        paired(&memory)?;
    }
    Ok(())
}

/// An extension with `PAGES` pages on a file in the directory.
fn filled(directory: &Path) -> Outcome<(Cache, Places)> {
    let cache = Cache::open(directory, ROOM, false, |_| ())?;
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    cache.fill((0..PAGES).map(|n| PageId::new(FILE, n)), &mut buffer);
    let places = cache.places(FILE, 0..PAGES)?;
    Ok((cache, places))
}

fn pread_and_read(group: &mut BenchmarkGroup<WallTime>, cache: &Cache, places: &Places) {
    let mut random = Rng::with_seed(2);
    let mut buffer = Buffer::random(&mut random);
    group.throughput(Throughput::Bytes(PAGE as u64));
    group.bench_function("pread", |bench| {
        bench.iter(|| {
            let (_, offset) = places.any(&mut random);
            places
                .file
                .read_exact_at(&mut buffer.0, offset)
                .expect("a page is read");
        });
    });
    group.bench_function("hit", |bench| {
        bench.iter(|| {
            let (page, _) = places.any(&mut random);
            let outcome = cache.extension.read(page, Group::NORMAL, &mut buffer.0);
            assert_eq!(outcome, ReadOutcome::Hit);
        });
    });
}

fn in_memory(criterion: &mut Criterion, directory: &Path) -> Outcome {
    let mut group = criterion.benchmark_group("memory");
    let (cache, places) = filled(directory)?;
    pread_and_read(&mut group, &cache, &places);
    let mut buffer = Buffer::random(&mut Rng::with_seed(2));
    group.bench_function("hash of a page", |bench| {
        bench.iter(|| twox_hash::XxHash3_64::oneshot(black_box(&buffer.0)));
    });

    // As many as staging holds; they are never written.
    let cache = Cache::open(directory, ROOM, false, |_| ())?;
    let mut source = Buffer::random(&mut Rng::with_seed(3));
    let staged: Vec<PageId> = (0..PAGES)
        .map(|n| PageId::new(FILE, n))
        .take_while(|&page| cache.insert(page, &mut source) == cache::InsertOutcome::Admitted)
        .collect();
    let mut random = Rng::with_seed(4);
    group.bench_function("copy of a page", |bench| {
        bench.iter(|| buffer.0.copy_from_slice(black_box(&source.0)));
    });
    group.bench_function("hit, staged", |bench| {
        bench.iter(|| {
            let page = staged[random.usize(..staged.len())];
            assert_eq!(
                cache.extension.read(page, Group::NORMAL, &mut buffer.0),
                ReadOutcome::Hit
            );
        });
    });
    group.finish();
    Ok(())
}

fn on_disk(criterion: &mut Criterion, directory: &Path) -> Outcome {
    let (cache, places) = filled(directory)?;
    if !cache
        .extension
        .device_statistics()
        .iter()
        .all(|device| device.direct_io)
    {
        println!(
            "disk: left out: no O_DIRECT in '{}'; set BENCH_DIRECTORY",
            directory.display()
        );
        return Ok(());
    }
    let mut group = criterion.benchmark_group("disk");
    pread_and_read(&mut group, &cache, &places);
    group.finish();
    Ok(())
}

fn compressed(criterion: &mut Criterion, directory: &Path) -> Outcome {
    let cache = Cache::open(directory, ROOM, false, |config| {
        config.compression = Compression::Lz4
    })?;
    let mut random = Rng::with_seed(5);
    let mut buffer = Buffer::compressible(&mut random);
    cache.fill((0..PAGES).map(|n| PageId::new(FILE, n)), &mut buffer);
    let s = cache.extension.statistics();
    let percent = s.bytes_cached as f64 * 100.0 / (s.pages_cached * PAGE as u64) as f64;
    let mut group = criterion.benchmark_group("compressed");
    group.throughput(Throughput::Bytes(PAGE as u64));
    group.bench_function(format!("hit, page stored in {percent:.0} %"), |bench| {
        bench.iter(|| {
            let page = PageId::new(FILE, random.u32(..PAGES));
            assert_eq!(
                cache.extension.read(page, Group::NORMAL, &mut buffer.0),
                ReadOutcome::Hit
            );
        });
    });
    group.finish();
    Ok(())
}

fn other(criterion: &mut Criterion, directory: &Path) -> Outcome {
    // Full of pages that were all read, so that pages without a read are rejected.
    let cache = Cache::open(directory, PAGES, false, |config| {
        config.policy = PolicyName::Density;
    })?;
    let mut random = Rng::with_seed(6);
    let mut buffer = Buffer::random(&mut random);
    cache.fill((0..PAGES).map(|n| PageId::new(FILE, n)), &mut buffer);
    for n in 0..PAGES * 3 {
        cache
            .extension
            .read(PageId::new(FILE, n % PAGES), Group::NORMAL, &mut buffer.0);
    }
    let mut group = criterion.benchmark_group("other");
    let absent = |random: &mut Rng| PageId::new(ABSENT, random.u32(..));
    // First, because misses teach the sketch that absent pages are read as often as others.
    let before = cache.extension.statistics();
    group.bench_function("insert, rejected", |bench| {
        bench.iter(|| cache.insert(absent(&mut random), &mut buffer));
    });
    let after = cache.extension.statistics();
    let (rejected, candidates) = (
        after.rejected - before.rejected,
        after.offered - before.offered,
    );
    if candidates > 0 {
        println!("other/insert, rejected: {rejected} of {candidates} insertions were");
    }
    group.bench_function("read, miss", |bench| {
        bench.iter(|| {
            cache
                .extension
                .read(absent(&mut random), Group::NORMAL, &mut buffer.0)
        });
    });
    group.bench_function("locate, hit", |bench| {
        bench.iter(|| {
            drop(cache.extension.locate(
                PageId::new(FILE, random.u32(..PAGES)),
                Group::NORMAL,
                PAGE,
                0,
            ))
        });
    });
    group.bench_function("locate, miss", |bench| {
        bench.iter(|| {
            drop(
                cache
                    .extension
                    .locate(absent(&mut random), Group::NORMAL, PAGE, 0),
            )
        });
    });
    group.bench_function("generation begin and end of a write", |bench| {
        bench.iter(|| {
            let page = random.u32(..);
            cache.generations.begin_write(1, page, 1);
            cache.generations.end_write(1, page, 1)
        });
    });
    group.bench_function("invalidate, file without pages", |bench| {
        bench.iter(|| cache.extension.invalidate(FileId(3), random.u32(..), 1));
    });
    group.bench_function("invalidate, page absent", |bench| {
        // The file has pages up to this one, but not this one.
        cache.extension.invalidate(FILE, PAGES / 2, 1);
        bench.iter(|| cache.extension.invalidate(FILE, PAGES / 2, 1));
    });
    group.finish();
    Ok(())
}

/// CPU time of the thread for the same pages, read in both ways alternately.
fn paired(directory: &Path) -> Outcome {
    const ROUNDS: usize = 15;
    const READS: usize = 20_000;
    let (cache, places) = filled(directory)?;
    let mut random = Rng::with_seed(8);
    let mut buffer = Buffer::random(&mut random);
    let mut time = |act: &mut dyn FnMut((PageId, u64), &mut Buffer)| {
        let pages: Vec<_> = (0..READS).map(|_| places.any(&mut random)).collect();
        let before = Usage::of_this_thread();
        pages.iter().for_each(|&page| act(page, &mut buffer));
        Usage::of_this_thread().since(before).cpu.as_nanos() as f64 / READS as f64
    };
    let (mut plain, mut through, mut added) = (Vec::new(), Vec::new(), Vec::new());
    let mut checksum = Vec::new();
    for _ in 0..ROUNDS {
        let direct = time(&mut |(_, offset), buffer| {
            places
                .file
                .read_exact_at(&mut buffer.0, offset)
                .expect("a page is read");
        });
        let ours = time(&mut |(page, _), buffer| {
            assert_eq!(
                cache.extension.read(page, Group::NORMAL, &mut buffer.0),
                ReadOutcome::Hit
            );
        });
        checksum.push(time(&mut |_, buffer| {
            black_box(twox_hash::XxHash3_64::oneshot(black_box(&buffer.0)));
        }));
        plain.push(direct);
        through.push(ours);
        added.push(ours - direct);
    }
    println!(
        "paired, CPU nanoseconds of a 16 KiB page in memory, medians of {ROUNDS} rounds: pread {:.0}, hit {:.0}, \
         added {:.0} (goal: 2000), of which the hash {:.0}",
        machine::median(&plain),
        machine::median(&through),
        machine::median(&added),
        machine::median(&checksum),
    );
    Ok(())
}
