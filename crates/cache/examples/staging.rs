//! Simulates insertions at a given rate on a disk with a given write time, and counts drops and hits.
//!
//! Usage: staging [NAME=VALUE ...], such as `staging cache=512 data=505 reads=6000 writes=5000 write_us=1000 seconds=20`
//!
//! A server in miniature. Threads read random pages of the data, like a buffer pool that holds a small part of it, and
//! insert the misses. One more thread writes batches of pages back, like InnoDB's page cleaner, and inserts each batch
//! after its completion. Both keep a rate, and catch up after a delay with a burst, as on a host with busy processors.
//! With `hot` and `share`, that share of all accesses in percent goes to the first `hot` percent of the data.
//!
//! Prints one line: insertions, how many were admitted and dropped (of the insertions that passed admission), hits in the
//! second half, peak reported memory, writes to the disk, and the writer's cost per page: CPU time, and number of
//! waits. The cache file is created in BENCH_DIRECTORY, or in /dev/shm.

#[allow(dead_code, reason = "only the time of the writer is needed")]
#[path = "../benches/common/machine.rs"]
mod machine;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cache::{
    Config, DeviceConfig, Extension, FileId, Generations, Group, OwnerIdentity, PageId,
    ReadOutcome, Source, Statistics, benching,
};
use fastrand::Rng;

const PAGE: usize = 16384;
const FILE: u32 = 1;

struct Settings(HashMap<String, u64>);

impl Settings {
    fn read() -> Settings {
        let known = [
            ("cache", 512),
            ("data", 505),
            ("reads", 6000),
            ("writes", 5000),
            ("batch", 128),
            ("threads", 16),
            ("write_us", 1000),
            ("seconds", 20),
            ("busy", 0),
            ("hot", 100),
            ("share", 100),
            ("memory", 0),
        ];
        let mut all: HashMap<String, u64> = known.map(|(name, n)| (name.into(), n)).into();
        for argument in std::env::args().skip(1) {
            let pair = argument.split_once('=');
            let pair = pair.and_then(|(name, value)| Some((name, value.parse().ok()?)));
            match pair.and_then(|(name, value)| all.get_mut(name).map(|old| (old, value))) {
                Some((old, value)) => *old = value,
                None => {
                    eprintln!(
                        "staging: '{argument}' is not NAME=NUMBER with one of the names {:?}",
                        known.map(|(name, _)| name)
                    );
                    std::process::exit(2);
                }
            }
        }
        Settings(all)
    }

    fn get(&self, name: &str) -> u64 {
        self.0[name]
    }

    fn page(&self, random: &mut Rng) -> u32 {
        let pages = (self.get("data") << 20) / PAGE as u64;
        let hot = (pages * self.get("hot") / 100).max(1);
        if random.u64(..100) < self.get("share") {
            random.u64(..hot) as u32
        } else {
            random.u64(..pages) as u32
        }
    }
}

struct Server {
    extension: Extension,
    generations: Arc<Generations>,
    settings: Settings,
    stop: AtomicBool,
    memory: AtomicU64,
}

/// Calls `act` `rate` times a second until the end.
fn at_rate(server: &Server, rate: u64, mut act: impl FnMut()) {
    let begun = Instant::now();
    let mut done = 0;
    while !server.stop.load(Ordering::Relaxed) {
        let due = (begun.elapsed().as_secs_f64() * rate as f64) as u64;
        while done < due {
            act();
            done += 1;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn stamp(bytes: &mut [u8], page: u32, random: &mut Rng) {
    bytes[4..8].copy_from_slice(&page.to_be_bytes());
    bytes[16..24].copy_from_slice(&random.u64(..).to_be_bytes());
}

fn reads(server: &Server, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let (mut buffer, mut fresh) = (vec![0; PAGE], vec![7; PAGE]);
    let rate = server.settings.get("reads") / server.settings.get("threads").max(1);
    at_rate(server, rate, || {
        let number = server.settings.page(&mut random);
        let page = PageId::new(FileId(FILE), number);
        if server.extension.read(page, Group::NORMAL, &mut buffer) != ReadOutcome::Hit {
            if let Some(ticket) = server.generations.begin_read(FILE, number) {
                stamp(&mut fresh, number, &mut random);
                server
                    .extension
                    .insert(page, Group::NORMAL, &fresh, ticket, Source::Read);
            }
        }
    });
}

fn writes(server: &Server) {
    let mut random = Rng::with_seed(77);
    let mut bytes = vec![9; PAGE];
    let batch = server.settings.get("batch").max(1);
    at_rate(server, server.settings.get("writes") / batch, || {
        let mut pages: Vec<u32> = (0..batch)
            .map(|_| server.settings.page(&mut random))
            .collect();
        pages.sort_unstable();
        pages.dedup();
        let cached: Vec<bool> = pages
            .iter()
            .map(|&page| {
                server.generations.begin_write(FILE, page, 1);
                server.extension.invalidate(FileId(FILE), page, 1)
            })
            .collect();
        // Time of the data disk.
        std::thread::sleep(Duration::from_millis(1));
        for (&number, was_cached) in pages.iter().zip(cached) {
            if let Some(ticket) = server.generations.end_write(FILE, number, 1) {
                stamp(&mut bytes, number, &mut random);
                let page = PageId::new(FileId(FILE), number);
                let source = Source::Write { was_cached };
                server
                    .extension
                    .insert(page, Group::NORMAL, &bytes, ticket, source);
            }
        }
    });
}

/// Records the peak memory.
fn watch(server: &Server) {
    while !server.stop.load(Ordering::Relaxed) {
        let now = server.extension.statistics().memory_bytes;
        server.memory.fetch_max(now, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Competing load on the processor.
fn spin(server: &Server) {
    while !server.stop.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

fn hits(since: &Statistics, now: &Statistics) -> f64 {
    let (hits, misses) = (now.hits - since.hits, now.misses - since.misses);
    hits as f64 * 100.0 / (hits + misses).max(1) as f64
}

fn main() {
    let settings = Settings::read();
    let folder = std::env::var_os("BENCH_DIRECTORY").map_or("/dev/shm".into(), PathBuf::from);
    let folder = tempfile::tempdir_in(folder).expect("a folder in BENCH_DIRECTORY");
    let config = Config {
        devices: vec![DeviceConfig {
            path: folder.path().into(),
            bytes: settings.get("cache") << 20,
            owner: OwnerIdentity::default(),
            file_name: "cache".into(),
        }],
        instances: 1,
        memory_limit: settings.get("memory"),
        nominal_page: PAGE as u32,
        ..Config::default()
    };
    let generations = Arc::new(Generations::new());
    let shared = Arc::clone(&generations);
    let extension = match settings.get("write_us") {
        0 => Extension::open(config, shared),
        micros => benching::open_slow(&config, shared, Duration::from_micros(micros)),
    };
    let server = Server {
        extension: extension.expect("the extension opens"),
        generations,
        settings,
        stop: AtomicBool::new(false),
        memory: AtomicU64::new(0),
    };
    let half = Duration::from_secs(server.settings.get("seconds")) / 2;
    let (middle, end, writer) = std::thread::scope(|scope| {
        for seed in 0..server.settings.get("threads") {
            let server = &server;
            scope.spawn(move || reads(server, seed));
        }
        scope.spawn(|| writes(&server));
        scope.spawn(|| watch(&server));
        for _ in 0..server.settings.get("busy") {
            scope.spawn(|| spin(&server));
        }
        std::thread::sleep(half);
        let middle = server.extension.statistics();
        std::thread::sleep(half);
        let end = server.extension.statistics();
        server.stop.store(true, Ordering::Relaxed);
        (middle, end, machine::Usage::of_threads("bpe-writer"))
    });
    let writes: u64 = server
        .extension
        .device_statistics()
        .iter()
        .map(|device| device.writes)
        .sum();
    let dropped = |s: &Statistics| {
        s.dropped_staging_full as f64 * 100.0 / (s.dropped_staging_full + s.admitted).max(1) as f64
    };
    let pages = (end.bytes_written_user / PAGE as u64).max(1) as f64;
    println!(
        "candidates {} taken {} dropped {} ({:.2} %) hits {:.1} % memory {:.2} MiB writes {writes} of {:.0} KiB; for a page the \
         writer took {:.2} us and waited {:.2} times",
        end.offered,
        end.admitted,
        end.dropped_staging_full,
        dropped(&end),
        hits(&middle, &end),
        server.memory.load(Ordering::Relaxed) as f64 / f64::from(1 << 20),
        end.bytes_written_total as f64 / 1024.0 / writes.max(1) as f64,
        writer.cpu.as_secs_f64() * 1e6 / pages,
        writer.waits as f64 / pages,
    );
}
