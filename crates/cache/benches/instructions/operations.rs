//! The counted operations, each with a private extension.

use std::hint::black_box;

use cache::{
    Compression, FileId, Generations, Group, InsertOutcome, PageId, PolicyName, ReadOutcome,
};
use fastrand::Rng;

use crate::common::cache::{Buffer, Cache, PAGE};
use crate::common::instructions::{Act, Prepare};
use crate::common::options::{Outcome, memory_directory};

pub const OPERATIONS: [(&str, Prepare); 13] = [
    ("locate, hit", locate_hit),
    ("locate, miss", locate_miss),
    ("read, hit", read_hit),
    ("read, hit in staging", read_staged),
    ("read, hit of a compressed page", read_compressed),
    ("read, miss", read_miss),
    ("hash of a page", checksum),
    ("insert, rejected", insert_rejected),
    ("insert, admitted and written", insert_written),
    ("invalidate, page absent", invalidate_absent),
    ("invalidate, file without pages", invalidate_nothing),
    ("generation, read", generation_read),
    ("generation, begin and end of a write", generation_write),
];

/// Fits into the smallest device and, partly, into staging.
const PAGES: u32 = 480;
const ROOM: u32 = 1024;

fn page(n: u32) -> PageId {
    PageId::new(FileId(1), n % PAGES)
}

fn absent(n: u32) -> PageId {
    PageId::new(FileId(2), n)
}

fn opened(room: u32, change: impl FnOnce(&mut cache::Config)) -> Outcome<Cache> {
    Cache::open(&memory_directory(), room, false, |config| {
        // So that every instance has some pages.
        config.instances = 2;
        config.policy = PolicyName::default();
        change(config);
    })
}

fn filled() -> Outcome<(Cache, Box<Buffer>)> {
    let cache = opened(ROOM, |_| ())?;
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    cache.fill((0..PAGES).map(page), &mut buffer);
    Ok((cache, buffer))
}

fn locate_hit() -> Outcome<Box<Act>> {
    let (cache, _) = filled()?;
    Ok(Box::new(move |n| {
        let located = cache.extension.locate(page(n), Group::NORMAL, PAGE, 0);
        assert!(located.is_some());
        drop(located);
    }))
}

fn locate_miss() -> Outcome<Box<Act>> {
    let (cache, _) = filled()?;
    Ok(Box::new(move |n| {
        drop(black_box(cache.extension.locate(
            absent(n),
            Group::NORMAL,
            PAGE,
            0,
        )));
    }))
}

fn read_hit() -> Outcome<Box<Act>> {
    let (cache, mut buffer) = filled()?;
    Ok(Box::new(move |n| {
        assert_eq!(
            cache.extension.read(page(n), Group::NORMAL, &mut buffer.0),
            ReadOutcome::Hit
        );
    }))
}

fn read_staged() -> Outcome<Box<Act>> {
    let cache = opened(ROOM, |_| ())?;
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    let staged = (0..PAGES)
        .take_while(|&n| cache.insert(page(n), &mut buffer) == InsertOutcome::Admitted)
        .count() as u32;
    Ok(Box::new(move |n| {
        let outcome = cache
            .extension
            .read(page(n % staged), Group::NORMAL, &mut buffer.0);
        assert_eq!(outcome, ReadOutcome::Hit);
    }))
}

fn read_compressed() -> Outcome<Box<Act>> {
    let cache = opened(ROOM, |config| config.compression = Compression::Lz4)?;
    let mut buffer = Buffer::compressible(&mut Rng::with_seed(1));
    cache.fill((0..PAGES).map(page), &mut buffer);
    let bytes = cache.extension.statistics().bytes_cached;
    assert!(
        bytes < u64::from(PAGES) * PAGE as u64 / 2,
        "the pages are compressed"
    );
    Ok(Box::new(move |n| {
        assert_eq!(
            cache.extension.read(page(n), Group::NORMAL, &mut buffer.0),
            ReadOutcome::Hit
        );
    }))
}

fn read_miss() -> Outcome<Box<Act>> {
    let (cache, mut buffer) = filled()?;
    Ok(Box::new(move |n| {
        black_box(
            cache
                .extension
                .read(absent(n), Group::NORMAL, &mut buffer.0),
        );
    }))
}

fn checksum() -> Outcome<Box<Act>> {
    let buffer = Buffer::random(&mut Rng::with_seed(1));
    Ok(Box::new(move |_| {
        black_box(twox_hash::XxHash3_64::oneshot(black_box(&buffer.0)));
    }))
}

/// A full cache of pages that were each read several times.
fn insert_rejected() -> Outcome<Box<Act>> {
    let cache = opened(ROOM, |_| ())?;
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    cache.fill((0..ROOM).map(|n| PageId::new(FileId(1), n)), &mut buffer);
    for n in 0..ROOM * 4 {
        cache.extension.read(
            PageId::new(FileId(1), n % ROOM),
            Group::NORMAL,
            &mut buffer.0,
        );
    }
    let before = cache.extension.statistics();
    (0..100).for_each(|n| _ = cache.insert(absent(n), &mut buffer));
    let rejected = cache.extension.statistics().rejected - before.rejected;
    assert!(rejected > 90, "only {rejected} of 100 offers are rejected");
    Ok(Box::new(move |n| {
        black_box(cache.insert(absent(n), &mut buffer));
    }))
}

/// Includes the writer's share of the work.
fn insert_written() -> Outcome<Box<Act>> {
    let cache = opened(ROOM * 4, |_| ())?;
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    let mut next = 0;
    Ok(Box::new(move |_| {
        next += 1;
        // One in some thousands collides with a cached page.
        let outcome = cache.insert(absent(next), &mut buffer);
        assert_ne!(outcome, InsertOutcome::StagingFull);
        if next % 32 == 0 {
            cache.extension.pump();
        }
    }))
}

fn invalidate_absent() -> Outcome<Box<Act>> {
    let (cache, _) = filled()?;
    (0..PAGES / 2).for_each(|n| _ = cache.extension.invalidate(FileId(1), n, 1));
    Ok(Box::new(move |n| {
        assert!(!cache.extension.invalidate(FileId(1), n % (PAGES / 2), 1));
    }))
}

fn invalidate_nothing() -> Outcome<Box<Act>> {
    let (cache, _) = filled()?;
    Ok(Box::new(move |n| {
        assert!(!cache.extension.invalidate(FileId(2), n, 1));
    }))
}

fn generation_read() -> Outcome<Box<Act>> {
    let generations = Generations::new();
    Ok(Box::new(move |n| {
        let ticket = generations.begin_read(1, n);
        assert!(ticket.is_some_and(|ticket| generations.is_current(ticket)));
    }))
}

fn generation_write() -> Outcome<Box<Act>> {
    let generations = Generations::new();
    Ok(Box::new(move |n| {
        generations.begin_write(1, n, 1);
        assert!(generations.end_write(1, n, 1).is_some());
    }))
}
