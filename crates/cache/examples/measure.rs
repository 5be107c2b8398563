//! Measures an extension on a disk: memory, time of a lookup, and reads per second compared with plain reads of the
//! same file.
//!
//! Usage: measure DIRECTORY MIB THREADS SECONDS [INSTANCES]

use std::io::Write;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cache::{
    Config, DeviceConfig, Extension, FileId, Generations, Group, InsertOutcome, OwnerIdentity,
    PageId, PolicyName, ReadOutcome, Source,
};

const PAGE: usize = 16384;

/// A page-aligned buffer.
#[repr(align(4096))]
struct Buffer([u8; PAGE]);

fn random(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Calls per second of all threads together.
fn rate(threads: u64, time: Duration, act: impl Fn(&mut u64, &mut Buffer) + Sync) -> f64 {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for seed in 0..threads {
            let (stop, done, act) = (&stop, &done, &act);
            scope.spawn(move || {
                let (mut state, mut buffer, mut n) = (seed + 1, Box::new(Buffer([0; PAGE])), 0);
                while !stop.load(Ordering::Relaxed) {
                    act(&mut state, &mut buffer);
                    n += 1;
                }
                done.fetch_add(n, Ordering::Relaxed);
            });
        }
        std::thread::sleep(time);
        stop.store(true, Ordering::Relaxed);
    });
    done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [directory, mib, threads, seconds, rest @ ..] = &arguments[..] else {
        return Err("usage: measure DIRECTORY MIB THREADS SECONDS [INSTANCES]".into());
    };
    let (threads, time) = (
        threads.parse::<u64>()?,
        Duration::from_secs(seconds.parse()?),
    );
    let generations = Arc::new(Generations::new());
    let device = DeviceConfig {
        path: directory.into(),
        bytes: mib.parse::<u64>()? << 20,
        owner: OwnerIdentity::default(),
        file_name: String::from("measure.bpe"),
    };
    let config = Config {
        devices: vec![device],
        instances: rest.first().map_or(Ok(1), |n| n.parse())?,
        policy: PolicyName::SecondChance,
        ..Config::default()
    };
    let begun = Instant::now();
    let cache = Extension::open(config, Arc::clone(&generations))?;
    let mut out = std::io::stdout();
    let s = cache.statistics();
    let pages = (s.bytes_capacity / PAGE as u64 * 95 / 100) as u32;
    let per_page = s.memory_bytes as f64 / (s.bytes_capacity / PAGE as u64) as f64;
    writeln!(
        out,
        "opened in {:?}; {} bytes of memory, {per_page:.1} a page",
        begun.elapsed(),
        s.memory_bytes
    )?;

    let begun = Instant::now();
    let mut bytes = vec![0; PAGE];
    for n in 0..pages {
        bytes[4..8].copy_from_slice(&n.to_be_bytes());
        let page = PageId::new(FileId(1), n);
        while let Some(ticket) = generations.begin_read(1, n) {
            if cache.insert(page, Group::NORMAL, &bytes, ticket, Source::Read)
                != InsertOutcome::StagingFull
            {
                break;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }
    while cache.staged_bytes() > 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    writeln!(
        out,
        "filled with {:.0} pages per second",
        f64::from(pages) / begun.elapsed().as_secs_f64()
    )?;

    for (what, file) in [("absent", 2), ("present", 1)] {
        let r = rate(1, Duration::from_secs(2), |state, _| {
            let page = PageId::new(FileId(file), random(state) as u32 % pages);
            drop(cache.locate(page, Group::NORMAL, PAGE, 0));
        });
        writeln!(
            out,
            "lookup (locate) of a page that is {what}: {:.0} ns",
            1e9 / r
        )?;
    }

    let located = (0..pages)
        .find_map(|n| cache.locate(PageId::new(FileId(1), n), Group::NORMAL, PAGE, 0))
        .ok_or("nothing is cached")?;
    // SAFETY: the descriptor is valid as long as `located` lives. The file made of it is never dropped, so it is never
    // closed.
    let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(located.fd) });
    for round in 1..=2 {
        let raw = rate(threads, time, |state, buffer| {
            let offset = 65536 + random(state) % u64::from(pages) * PAGE as u64;
            let _ = file.read_exact_at(&mut buffer.0, offset);
        });
        let misses = AtomicU64::new(0);
        let ours = rate(threads, time, |state, buffer| {
            let page = PageId::new(FileId(1), random(state) as u32 % pages);
            if cache.read(page, Group::NORMAL, &mut buffer.0) != ReadOutcome::Hit {
                misses.fetch_add(1, Ordering::Relaxed);
            }
        });
        writeln!(
            out,
            "round {round}, {threads} threads: {raw:.0} plain reads/s, {ours:.0} reads/s through the cache ({:.1} %), {} misses",
            ours * 100.0 / raw,
            misses.load(Ordering::Relaxed)
        )?;
    }
    let s = cache.statistics();
    let latency = &s.read_latency;
    writeln!(
        out,
        "read latency: median {:.0} us, 99 % {:.0} us; lock accesses {}, found held {:.2} %",
        latency.quantile(0.5),
        latency.quantile(0.99),
        s.lock_accesses,
        s.lock_waits as f64 * 100.0 / s.lock_accesses as f64
    )?;
    Ok(())
}
