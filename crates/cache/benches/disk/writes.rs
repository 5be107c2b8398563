//! Write benches of the extension: into an empty file, compared with sequential writes by fio in blocks of the same
//! size; into a full file, where pages fill holes, compared with random page writes by fio in an existing file, with
//! the extension's maximum number of writes in flight; and at a limited rate.

use std::time::{Duration, Instant};

use cache::{FileId, InsertOutcome, PageId};
use fastrand::Rng;

use crate::common::cache::{Buffer, Cache, PAGE};
use crate::common::machine::{Usage, median};
use crate::common::options::Outcome;
use crate::{Setting, fio};

const MIB: f64 = (1 << 20) as f64;
/// Size of one write of the extension.
const BLOCK: usize = 256 << 10;
/// Maximum number of the extension's writes in flight.
const DEPTH: usize = 16;
/// Sleep of the inserting thread when staging is full. The extension does not impose this wait.
const PAUSE: Duration = Duration::from_micros(100);

pub fn measure(setting: &Setting) -> Outcome {
    let bytes = u64::from(setting.pages) * PAGE as u64;
    println!("\nwrites, MiB/s");
    println!(
        "{:>5} {:>12} {:>8} {:>8} {:>8} {:>14} {:>14}",
        "round", "fio 256 KiB", "empty", "16 KiB", "full", "empty to fio", "full to fio"
    );
    let (mut ratios, mut ratios_full) = (Vec::new(), Vec::new());
    let mut latencies = Latencies::default();
    let mut shape = [(0.0, 0.0); 2];
    let mut costs = [const { Vec::new() }; 4];
    for round in 0..setting.rounds {
        let by_fio = || -> Outcome<(f64, (f64, f64))> {
            let folder = tempfile::tempdir_in(&setting.directory)?;
            let file = folder.path().join("fio");
            let empty = fio::sequential_writes(&file, bytes, BLOCK, DEPTH)?;
            Ok((empty, fio::random_writes(&file, bytes, PAGE, DEPTH)?))
        };
        let mut ours = || -> Outcome<[Filled; 2]> {
            let cache = Cache::open(&setting.directory, setting.pages, true, |_| ())?;
            let pages = setting.pages / 100 * 95;
            let empty = fill(&cache, 0..pages, &mut latencies);
            let full = fill(&cache, pages..pages * 2, &mut latencies);
            Ok([empty, full])
        };
        let ((raw, (raw_pages, raw_cpu)), [empty, full]) = if round % 2 == 0 {
            (by_fio()?, ours()?)
        } else {
            let ours = ours()?;
            (by_fio()?, ours)
        };
        println!(
            "{round:>5} {:>12.0} {:>8.0} {:>8.0} {:>8.0} {:>13.1}% {:>13.1}%",
            raw / MIB,
            empty.rate / MIB,
            raw_pages / MIB,
            full.rate / MIB,
            empty.rate * 100.0 / raw,
            full.rate * 100.0 / raw_pages
        );
        ratios.push(empty.rate * 100.0 / raw);
        ratios_full.push(full.rate * 100.0 / raw_pages);
        let cost = [raw_cpu, empty.cpu, full.cpu, full.waits];
        costs
            .iter_mut()
            .zip(cost)
            .for_each(|(all, one)| all.push(one));
        shape = [&empty, &full].map(|filled| (filled.amplification, filled.write / 1024.0));
    }
    println!(
        "median: {:.1} % of fio into an empty file (goal: 80 %), {:.1} % into a full one (goal: 90 %)",
        median(&ratios),
        median(&ratios_full)
    );
    let [fio, empty, full, waits] = costs.map(|cost| median(&cost));
    println!(
        "microseconds of CPU time a page: fio 16 KiB {fio:.1}; the writer {empty:.1} into an empty file, {full:.1} into a full \
         one, where it waited {waits:.2} times a page (for the disk, or for pages)"
    );
    let [empty, full] = shape;
    println!(
        "bytes written for each byte of admitted pages: {:.3} in writes of {:.0} KiB into an empty file, {:.3} in writes of \
         {:.0} KiB into a full one",
        empty.0, empty.1, full.0, full.1
    );
    println!(
        "locks of instances found held: {} of {}",
        latencies.lock_waits, latencies.lock_accesses
    );
    latencies.print("insert, as fast as the writer takes pages");
    rate_limited(setting)
}

struct Filled {
    /// Bytes per second written to the device.
    rate: f64,
    amplification: f64,
    /// Average bytes of one write.
    write: f64,
    /// The writer's cost of one page: microseconds of CPU time, and number of waits.
    cpu: f64,
    waits: f64,
}

/// Offers each of the pages until it is staged, then waits until all are written.
fn fill(cache: &Cache, pages: std::ops::Range<u32>, latencies: &mut Latencies) -> Filled {
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    let writes = || cache.extension.device_statistics()[0].writes;
    let (before, writes_before) = (cache.extension.statistics(), writes());
    let begun = Instant::now();
    let usage = Usage::of_this_thread();
    let (count, writer) = (pages.len() as f64, || Usage::of_threads("bpe-writer"));
    let writer_before = writer();
    let mut pauses = 0;
    for number in pages {
        while latencies.insert(cache, number, &mut buffer) == InsertOutcome::StagingFull {
            pauses += 1;
            std::thread::sleep(PAUSE);
        }
    }
    latencies.count_waits(usage, pauses);
    cache.settle();
    let time = begun.elapsed().as_secs_f64();
    let of_writer = writer().since(writer_before);
    let after = cache.extension.statistics();
    let written = (after.bytes_written_total - before.bytes_written_total) as f64;
    let candidates = (after.bytes_written_user - before.bytes_written_user) as f64;
    latencies.lock_accesses += after.lock_accesses - before.lock_accesses;
    latencies.lock_waits += after.lock_waits - before.lock_waits;
    Filled {
        rate: written / time,
        amplification: written / candidates.max(1.0),
        write: written / (writes() - writes_before).max(1) as f64,
        cpu: of_writer.cpu.as_secs_f64() * 1e6 / count,
        waits: of_writer.waits as f64 / count,
    }
}

/// With a limit on the bytes per second.
fn rate_limited(setting: &Setting) -> Outcome {
    const LIMIT: u64 = 32 << 20;
    let cache = Cache::open(&setting.directory, setting.pages, true, |config| {
        config.io_capacity = LIMIT;
    })?;
    let mut latencies = Latencies::default();
    let mut buffer = Buffer::random(&mut Rng::with_seed(1));
    let mut number = 0;
    let mut insert_for = |time: Duration| {
        let (until, usage) = (Instant::now() + time, Usage::of_this_thread());
        let mut pauses = 0;
        while Instant::now() < until {
            number += 1;
            if latencies.insert(&cache, number, &mut buffer) == InsertOutcome::StagingFull {
                pauses += 1;
                std::thread::sleep(PAUSE);
            }
        }
        latencies.count_waits(usage, pauses);
    };
    // The limit allows an initial burst of a tenth of a second, so a shorter time would prove nothing.
    let least = if setting.options.quick {
        Duration::ZERO
    } else {
        Duration::from_secs(1)
    };
    insert_for((setting.options.time / 2).max(least / 2));
    let (before, begun) = (
        cache.extension.statistics().bytes_written_total,
        Instant::now(),
    );
    insert_for((setting.options.time * 4).max(least * 4));
    let written = cache.extension.statistics().bytes_written_total - before;
    let rate = written as f64 / begun.elapsed().as_secs_f64();
    println!(
        "\nlimit of {} MiB/s: {:.2} MiB/s written, {:+.1} % (goal: within 5 %)",
        LIMIT >> 20,
        rate / MIB,
        (rate / LIMIT as f64 - 1.0) * 100.0
    );
    latencies.print("insert, at that limit");
    Ok(())
}

/// Durations of `insert`.
#[derive(Default)]
struct Latencies {
    nanos: Vec<u64>,
    full: u64,
    /// Number of times that the thread slept, except for the bench's own pauses.
    waits: u64,
    /// Lock accesses of the instances, including the writer's.
    lock_accesses: u64,
    lock_waits: u64,
}

impl Latencies {
    fn insert(&mut self, cache: &Cache, number: u32, buffer: &mut Buffer) -> InsertOutcome {
        let page = PageId::new(FileId(1), number);
        let begun = Instant::now();
        let outcome = cache.insert(page, buffer);
        self.nanos.push(begun.elapsed().as_nanos() as u64);
        self.full += u64::from(outcome == InsertOutcome::StagingFull);
        outcome
    }

    /// Adds the number of times that this thread slept since `since`, except for the bench's own pauses.
    fn count_waits(&mut self, since: Usage, pauses: u64) {
        self.waits += Usage::of_this_thread()
            .since(since)
            .waits
            .saturating_sub(pauses);
    }

    fn print(&mut self, what: &str) {
        self.nanos.sort_unstable();
        let quantile = |q: f64| {
            let at = (self.nanos.len().saturating_sub(1) as f64 * q) as usize;
            self.nanos.get(at).copied().unwrap_or(0) as f64 / 1000.0
        };
        println!(
            "{what}: {} calls, {} found staging full; median {:.1} us, 99 % {:.1} us, 99.9 % {:.1} us, longest {:.0} us \
             (with what other processes took of the processor); {} waits in all calls (for a lock)",
            self.nanos.len(),
            self.full,
            quantile(0.5),
            quantile(0.99),
            quantile(0.999),
            quantile(1.0),
            self.waits
        );
    }
}
