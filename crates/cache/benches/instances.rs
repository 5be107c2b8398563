//! Lock contention of the instances: 1, 2, 4, 8, 16 instances; 1, 2, 4 threads per core.
//!
//! `cargo bench -p cache --bench instances [-- --quick]`
//!
//! Threads read pages like sysbench with `rand-type=special` and `rand-spec-pct=15`, on one table and on thirty. An
//! access is `Extension::read`, and an insertion of the page after a miss. The cache file is in memory, so that no disk
//! affects the figures. The cache holds an eighth of the data. Its hit ratio is that of the raw access pattern: no
//! buffer pool absorbs the hottest pages, so threads collide more often than behind a real server.
//!
//! For comparison, the bench runs a model of the reference with the same keys and the same work outside the lock
//! (reading 16 KiB and their hash). The reference is MySQL 5.5's multiple buffer pools: one mutex held for the whole
//! lookup and the update of the LRU list. Then both run with no work outside the lock: `Extension::locate`, and the
//! model's lookup alone.
//!
//! Figures are medians of three rounds, each with all numbers of instances.
//!
//! BENCH_SECONDS: duration of one measurement (of 120; three rounds together), default 0.8. BENCH_MEMORY_DIRECTORY:
//! directory of the cache file, default /dev/shm.

#[allow(dead_code, reason = "each bench uses a part")]
mod common;
#[path = "instances/reference.rs"]
mod reference;

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use cache::{Group, InstanceStatistics, PageId, PolicyName, ReadOutcome, Source};
use fastrand::Rng;

use common::cache::{Buffer, Cache, PAGE};
use common::machine;
use common::options::{Options, Outcome, memory_directory};
use common::sysbench::Tables;
use reference::{Counts, Reference};

const INSTANCES: [u32; 5] = [1, 2, 4, 8, 16];
const THREADS_PER_CORE: [usize; 3] = [1, 2, 4];
const ROUNDS: usize = 3;
const DATA_PAGES: u32 = 64 << 10;
const CACHE_PAGES: u32 = DATA_PAGES / 8;
/// Accesses before the first measurement.
const WARM_UP: u32 = CACHE_PAGES * 12;
/// Keys of a thread. They are generated before the clock starts, and reused cyclically.
const KEYS: usize = 1 << 17;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("instances: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Outcome {
    let options = Options::read(0.8)?;
    options.no_more()?;
    println!("{}", machine::describe());
    println!(
        "{} MiB of data, {} MiB of cache in {}; {} s a measurement{}",
        DATA_PAGES / 64,
        CACHE_PAGES / 64,
        memory_directory().display(),
        options.time.as_secs_f64(),
        if options.quick {
            " (quick: the figures mean nothing)"
        } else {
            ""
        }
    );
    println!(
        "relative: to one instance with as many threads in the same round; held: share of lock acquisitions that found it held; \
         hottest: share of the hottest instance"
    );
    for tables in [
        Tables {
            name: "one table",
            tables: 1,
            pages: DATA_PAGES,
        },
        Tables {
            name: "thirty tables",
            tables: 30,
            pages: DATA_PAGES / 30,
        },
    ] {
        table(&options, tables)?;
    }
    Ok(())
}

fn table(options: &Options, tables: Tables) -> Outcome {
    println!("\n{}", tables.name);
    println!(
        "{:17} | {:^43} | {:^43} | {:^43}",
        "",
        "extension: read, prove, insert",
        "model of the reference, same work outside",
        "lookups alone: extension | reference"
    );
    let columns = format!(
        "{:>10} {:>5} {:>7} {:>8} {:>9}",
        "accesses/s", "hits", "held", "hottest", "relative"
    );
    println!(
        "{:>7} {:>9} | {columns} | {columns} | {:>11} {:>7} | {:>11} {:>7}",
        "threads", "instances", "per s", "held", "per s", "held"
    );
    let subjects = INSTANCES
        .into_iter()
        .map(|instances| Subject::new(tables, instances))
        .collect::<Outcome<Vec<Subject>>>()?;
    for per_core in THREADS_PER_CORE {
        let load = Load {
            tables,
            threads: per_core * machine::cores(),
            time: options.time / ROUNDS as u32,
        };
        // Alternate, so that other load of the host affects all alike.
        let rounds: Vec<Vec<[Figures; 4]>> = (0..ROUNDS)
            .map(|_| {
                subjects
                    .iter()
                    .map(|subject| subject.measure(&load))
                    .collect()
            })
            .collect();
        for (at, instances) in INSTANCES.into_iter().enumerate() {
            let median = |way: usize| {
                Figures::median(rounds.iter().map(|round| (&round[at][way], &round[0][way])))
            };
            let [ours, theirs, located, looked_up] = [0, 1, 2, 3].map(median);
            println!(
                "{:>7} {instances:>9} | {} | {} | {:>11.0} {:>6.2}% | {:>11.0} {:>6.2}%",
                load.threads,
                ours.columns(),
                theirs.columns(),
                located.rate,
                located.held,
                looked_up.rate,
                looked_up.held,
            );
        }
    }
    shares(tables);
    Ok(())
}

/// Hottest instance by mapping alone if root and inner pages count, too, as they do for InnoDB's own pool.
fn shares(tables: Tables) {
    const LOOKUPS: usize = 200_000;
    /// Pages that an inner page points to: entries of about 13 bytes.
    const FANOUT: u32 = 1100;
    print!(
        "the reference's mapping, share of the hottest if each lookup descends from the root (no adaptive hash index):"
    );
    for instances in INSTANCES {
        let mut counts = vec![0u64; instances as usize];
        let mut random = Rng::with_seed(7);
        for _ in 0..LOOKUPS {
            let leaf = tables.next(&mut random);
            // The root is page 3 of a tablespace; the few pages between root and leaves follow soon after it.
            for number in [3, 4 + leaf.page / FANOUT, leaf.page + 64] {
                let page = PageId::new(leaf.file, number);
                counts[reference::instance(page, instances.into())] += 1;
            }
        }
        print!(" {instances}: {:.0} %", hottest(&counts));
    }
    println!();
}

/// Workload of the threads, and its duration.
struct Load {
    tables: Tables,
    threads: usize,
    time: Duration,
}

/// Results of one measurement.
#[derive(Default)]
struct Figures {
    rate: f64,
    /// Percent.
    hits: f64,
    held: f64,
    hottest: f64,
    /// Ratio to the rate of one instance.
    relative: f64,
}

impl Figures {
    /// Medians of several rounds; each figure is paired with that of one instance in the same round.
    fn median<'a>(rounds: impl Iterator<Item = (&'a Figures, &'a Figures)> + Clone) -> Figures {
        let of = |part: fn(&Figures) -> f64| {
            machine::median(
                &rounds
                    .clone()
                    .map(|(figures, _)| part(figures))
                    .collect::<Vec<_>>(),
            )
        };
        let ratios: Vec<f64> = rounds
            .clone()
            .map(|(figures, first)| figures.rate / first.rate)
            .collect();
        Figures {
            rate: of(|f| f.rate),
            hits: of(|f| f.hits),
            held: of(|f| f.held),
            hottest: of(|f| f.hottest),
            relative: machine::median(&ratios),
        }
    }

    fn columns(&self) -> String {
        format!(
            "{:>10.0} {:>4.0}% {:>6.2}% {:>7.1}% {:>8.2}x",
            self.rate, self.hits, self.held, self.hottest, self.relative
        )
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

fn hottest(accesses: &[u64]) -> f64 {
    percent(
        accesses.iter().copied().max().unwrap_or(0),
        accesses.iter().sum(),
    )
}

/// Accesses per second of threads with separate keys.
fn drive(load: &Load, access: impl Fn(PageId, &mut Buffer) + Sync) -> f64 {
    let barrier = Barrier::new(load.threads + 1);
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut begun = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..load.threads {
            let (barrier, stop, done, access) = (&barrier, &stop, &done, &access);
            scope.spawn(move || {
                let mut random = Rng::with_seed(1000 + thread as u64);
                let keys: Vec<PageId> = (0..KEYS).map(|_| load.tables.next(&mut random)).collect();
                let mut buffer = Buffer::random(&mut random);
                barrier.wait();
                let mut count = 0;
                for &key in keys.iter().cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    access(key, &mut buffer);
                    count += 1;
                }
                done.fetch_add(count, Ordering::Relaxed);
            });
        }
        barrier.wait();
        begun = Instant::now();
        std::thread::sleep(load.time);
        stop.store(true, Ordering::Relaxed);
    });
    done.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64()
}

/// An extension and a model of the reference, both warmed up.
struct Subject {
    cache: Cache,
    reference: Reference,
    /// Frames of the reference.
    frames: File,
}

impl Subject {
    fn new(tables: Tables, instances: u32) -> Outcome<Subject> {
        let directory = memory_directory();
        let cache = Cache::open(&directory, CACHE_PAGES, true, |config| {
            config.instances = instances;
            config.policy = PolicyName::Density;
        })?;
        let frames = CACHE_PAGES / instances;
        let reference = Reference::new(instances, frames);
        let file = tempfile::tempfile_in(&directory)?;
        let mut random = Rng::with_seed(1);
        let mut buffer = Buffer::random(&mut random);
        for frame in 0..CACHE_PAGES {
            file.write_all_at(&buffer.0, u64::from(frame) * PAGE as u64)?;
        }
        // The first pages enter because there is room; the others teach the sketch their popularity.
        for _ in 0..WARM_UP {
            let page = tables.next(&mut random);
            reference.look_up(page, true);
            if cache.extension.read(page, Group::NORMAL, &mut buffer.0) != ReadOutcome::Hit {
                cache.enter(page, &mut buffer);
            }
        }
        cache.settle();
        Ok(Subject {
            cache,
            reference,
            frames: file,
        })
    }

    fn measure(&self, load: &Load) -> [Figures; 4] {
        [
            self.extension(load),
            self.reference(load),
            self.locate(load),
            self.look_up(load),
        ]
    }

    fn extension(&self, load: &Load) -> Figures {
        self.of_extension(|| {
            drive(load, |page, buffer| {
                let ticket = self.cache.generations.begin_read(page.file.0, page.page);
                if self
                    .cache
                    .extension
                    .read(page, Group::NORMAL, &mut buffer.0)
                    != ReadOutcome::Hit
                {
                    buffer.stamp(page);
                    if let Some(ticket) = ticket {
                        self.cache.extension.insert(
                            page,
                            Group::NORMAL,
                            &buffer.0,
                            ticket,
                            Source::Read,
                        );
                    }
                }
            })
        })
    }

    fn locate(&self, load: &Load) -> Figures {
        self.of_extension(|| {
            drive(load, |page, _| {
                if let Some(located) = self.cache.extension.locate(page, Group::NORMAL, PAGE, 0) {
                    self.cache.extension.release(located);
                }
            })
        })
    }

    fn of_extension(&self, measured: impl FnOnce() -> f64) -> Figures {
        let before = self.cache.extension.instance_statistics();
        let rate = measured();
        let after = self.cache.extension.instance_statistics();
        let sum = |part: fn(&InstanceStatistics) -> u64| {
            let of = |all: &[InstanceStatistics]| all.iter().map(part).sum::<u64>();
            of(&after) - of(&before)
        };
        let accesses: Vec<u64> = after
            .iter()
            .zip(&before)
            .map(|(after, before)| after.accesses - before.accesses)
            .collect();
        Figures {
            rate,
            hits: percent(sum(|i| i.hits), sum(|i| i.hits) + sum(|i| i.misses)),
            held: percent(sum(|i| i.lock_waits), sum(|i| i.lock_accesses)),
            hottest: hottest(&accesses),
            relative: 1.0,
        }
    }

    fn reference(&self, load: &Load) -> Figures {
        self.of_reference(|| {
            drive(load, |page, buffer| {
                if let Some((frame, true)) = self.reference.look_up(page, true) {
                    let offset = u64::from(frame) * PAGE as u64;
                    if self.frames.read_exact_at(&mut buffer.0, offset).is_ok() {
                        std::hint::black_box(twox_hash::XxHash3_64::oneshot(&buffer.0));
                    }
                }
            })
        })
    }

    fn look_up(&self, load: &Load) -> Figures {
        self.of_reference(|| {
            drive(load, |page, _| {
                std::hint::black_box(self.reference.look_up(page, false));
            })
        })
    }

    fn of_reference(&self, measured: impl FnOnce() -> f64) -> Figures {
        let before = self.reference.counts();
        let rate = measured();
        let Counts {
            hits,
            waits,
            accesses,
        } = self.reference.counts();
        let each: Vec<u64> = accesses
            .iter()
            .zip(&before.accesses)
            .map(|(after, before)| after - before)
            .collect();
        let all = each.iter().sum();
        Figures {
            rate,
            hits: percent(hits - before.hits, all),
            held: percent(waits - before.waits, all),
            hottest: hottest(&each),
            relative: 1.0,
        }
    }
}
