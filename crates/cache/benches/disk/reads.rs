//! Random reads: fio, bare preads, the extension.

use std::hint::black_box;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cache::{FileId, Group, PageId, ReadOutcome};
use fastrand::Rng;

use crate::common::cache::{Buffer, Cache, Places};
use crate::common::machine::{self, Usage, median};
use crate::common::options::Outcome;
use crate::{Setting, fio};

const FILE: FileId = FileId(1);
/// As in a server.
const BOUND: Duration = Duration::from_secs(1);

pub fn measure(setting: &Setting) -> Outcome {
    let cache = Cache::open(&setting.directory, setting.pages, true, |config| {
        config.read_timeout = Some(BOUND);
    })?;
    let device = cache.extension.device_statistics().remove(0);
    if !device.direct_io {
        return Err(format!(
            "no O_DIRECT in '{}'; set BENCH_DIRECTORY to a directory on the disk to measure",
            setting.directory.display()
        )
        .into());
    }
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    // The file counts as full from 97 % on.
    let pages = setting.pages / 100 * 95;
    cache.fill((0..pages).map(|n| PageId::new(FILE, n)), &mut buffer);
    let places = cache.places(FILE, 0..pages)?;
    println!(
        "\nrandom reads of 16 KiB from {} pages; CPU time in microseconds of a bare pread, with a hash of the page (XXH3), of Extension::read\n{:>7} {:>10} {:>10} {:>10} {:>11} {:>13} | {:>8} {:>8} {:>8} {:>8} {:>7}",
        places.pages.len(),
        "threads",
        "fio/s",
        "pread/s",
        "read/s",
        "read to fio",
        "read to pread",
        "us pread",
        "+ hash",
        "read",
        "added",
        "misses"
    );
    let cores = machine::cores();
    for threads in [1, cores, cores * 4] {
        if threads > 1 || cores > 1 {
            row(setting, &cache, &places, &device.path, threads)?;
        }
    }
    let s = cache.extension.statistics();
    println!(
        "goals: 90 % of fio, 2 us added. Misses are pages that look like another one to the directory.\nlatency of hits: median {:.0} us, 99 % {:.0} us; lock found held {:.3} %",
        s.read_latency.quantile(0.5),
        s.read_latency.quantile(0.99),
        s.lock_waits as f64 * 100.0 / s.lock_accesses.max(1) as f64
    );
    Ok(())
}

fn row(setting: &Setting, cache: &Cache, places: &Places, path: &Path, threads: usize) -> Outcome {
    let first = places
        .pages
        .iter()
        .map(|&(_, offset)| offset)
        .min()
        .unwrap_or(0);
    let last = places
        .pages
        .iter()
        .map(|&(_, offset)| offset)
        .max()
        .unwrap_or(0);
    let misses = AtomicU64::new(0);
    let by_fio = || fio::random_reads(path, first, last - first, threads, setting.options.time);
    let by_pread = || {
        drive(setting, threads, |random, buffer| {
            let (_, offset) = places.any(random);
            places.file.read_exact_at(&mut buffer.0, offset).is_ok()
        })
    };
    let by_checked_pread = || {
        drive(setting, threads, |random, buffer| {
            let (_, offset) = places.any(random);
            let read = places.file.read_exact_at(&mut buffer.0, offset).is_ok();
            black_box(twox_hash::XxHash3_64::oneshot(&buffer.0));
            read
        })
    };
    let by_read = || {
        drive(setting, threads, |random, buffer| {
            let (page, _) = places.any(random);
            if cache.extension.read(page, Group::NORMAL, &mut buffer.0) != ReadOutcome::Hit {
                misses.fetch_add(1, Ordering::Relaxed);
            }
            true
        })
    };
    let (mut raw, mut plain) = (Vec::new(), Vec::new());
    let (mut checked, mut ours) = (Vec::new(), Vec::new());
    for round in 0..setting.rounds {
        // Alternate the order, so that a disk that slows down affects all alike.
        if round % 2 == 0 {
            raw.push(by_fio()?);
            plain.push(by_pread()?);
            ours.push(by_read()?);
            checked.push(by_checked_pread()?);
        } else {
            checked.push(by_checked_pread()?);
            ours.push(by_read()?);
            plain.push(by_pread()?);
            raw.push(by_fio()?);
        }
    }
    let ratios = |others: &[f64]| {
        let each: Vec<f64> = ours
            .iter()
            .zip(others)
            .map(|(ours, other)| ours.rate * 100.0 / other)
            .collect();
        median(&each)
    };
    let rates = |loops: &[Loop]| loops.iter().map(|l| l.rate).collect::<Vec<_>>();
    let cpu = |loops: &[Loop]| median(&loops.iter().map(|l| l.cpu_micros).collect::<Vec<_>>());
    let added: Vec<f64> = ours
        .iter()
        .zip(&plain)
        .map(|(ours, plain)| ours.cpu_micros - plain.cpu_micros)
        .collect();
    println!(
        "{threads:>7} {:>10.0} {:>10.0} {:>10.0} {:>10.1}% {:>12.1}% | {:>8.2} {:>8.2} {:>8.2} {:>8.2} {:>7}",
        median(&raw),
        median(&rates(&plain)),
        median(&rates(&ours)),
        ratios(&raw),
        ratios(&rates(&plain)),
        cpu(&plain),
        cpu(&checked),
        cpu(&ours),
        median(&added),
        misses.load(Ordering::Relaxed)
    );
    Ok(())
}

struct Loop {
    /// Calls per second of all threads together.
    rate: f64,
    /// CPU time of one call, user and system.
    cpu_micros: f64,
}

/// Calls `act` until it returns false or the time is over.
fn drive(
    setting: &Setting,
    threads: usize,
    act: impl Fn(&mut Rng, &mut Buffer) -> bool + Sync,
) -> Outcome<Loop> {
    let (stop, failed) = (AtomicBool::new(false), AtomicBool::new(false));
    let (done, cpu) = (AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..threads {
            let (stop, failed, done, cpu, act) = (&stop, &failed, &done, &cpu, &act);
            scope.spawn(move || {
                let mut random = Rng::with_seed(seed as u64 + begun.elapsed().as_nanos() as u64);
                let mut buffer = Buffer::random(&mut random);
                let before = Usage::of_this_thread();
                let mut count = 0;
                while !stop.load(Ordering::Relaxed) {
                    if !act(&mut random, &mut buffer) {
                        failed.store(true, Ordering::Relaxed);
                        break;
                    }
                    count += 1;
                }
                let used = Usage::of_this_thread().since(before);
                done.fetch_add(count, Ordering::Relaxed);
                cpu.fetch_add(used.cpu.as_nanos() as u64, Ordering::Relaxed);
            });
        }
        std::thread::sleep(setting.options.time);
        stop.store(true, Ordering::Relaxed);
    });
    if failed.load(Ordering::Relaxed) {
        return Err("the cache file cannot be read".into());
    }
    let done = done.load(Ordering::Relaxed).max(1) as f64;
    Ok(Loop {
        rate: done / begun.elapsed().as_secs_f64(),
        cpu_micros: cpu.load(Ordering::Relaxed) as f64 / 1000.0 / done,
    })
}
