//! Random test of the plugin: runs all of InnoDB's file operations from several threads through the plugin's intercepted calls,
//! with a small cache. The model knows for every sector what a read must return.
//!
//! Modules:
//! * [`calls`]: the hooks; [`kernel`]: the calls behind them.
//! * [`world`]: the files and the permitted concurrency; [`content`]: the written contents.
//! * [`operations`]: the operations; [`asynchronous`]: libaio in both servers' ways.
//! * [`switching`]: the administrator; [`coverage`]: counters of the tried cases.
//! * [`deaths`]: a separate mode that kills the process repeatedly; the next process recovers the cache.
//!
//! With one thread (`--threads 1`) the mode is *exact*: a seed repeats the same operations in the same order with the same
//! result, including operations inside the calls of others. With more threads, a seed repeats only the choices of each thread;
//! their timing varies.

mod asynchronous;
mod calls;
mod content;
mod coverage;
mod deaths;
mod kernel;
mod operations;
mod options;
mod process;
mod random;
mod switching;
mod world;

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use clap::Parser;
use kernel::{EXACT, MINUTES};
use options::{Options, SHARED_MEMORY};
use process::{redirect_errors, set_up_context, stay_at_fixed_addresses};
use world::{Plan, World, world};

/// Operations after which every case must have been tried.
const ENOUGH: u64 = 100_000;
fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(code) => code,
        Err(error) => {
            println!("{error:#}");
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> anyhow::Result<ExitCode> {
    #[cfg(debug_assertions)]
    if options.rules {
        for (rule, without) in coherence::canary::RULES {
            println!("{rule}\t{without}");
        }
        return Ok(ExitCode::SUCCESS);
    }
    let canary = std::env::var("BPE_CANARY").unwrap_or_default();
    ensure!(
        canary.is_empty() || cfg!(debug_assertions),
        "BPE_CANARY leaves out a rule; that needs a build with debug assertions"
    );
    ensure!(
        !options.minutes || cfg!(debug_assertions),
        "--minutes needs a build with debug assertions"
    );
    MINUTES.store(options.minutes, Ordering::SeqCst);
    if let Some(life) = options.life {
        return deaths::live(options, life);
    }
    if let Some(deaths) = options.deaths {
        return deaths::run(options, deaths);
    }
    let exact = options.threads <= 1;
    if exact {
        stay_at_fixed_addresses()?;
    }
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let seconds = options.seconds.unwrap_or(10.0);
    EXACT.store(exact, Ordering::SeqCst);
    #[cfg(debug_assertions)]
    if options.minutes {
        // In the exact mode, only the model advances the test clock. So the host's speed does not affect the results.
        bpe_plugin::platform::clock::TEST_CLOCK
            .stands
            .store(exact, Ordering::SeqCst);
        coherence::sync_point::AT.get_or_init(|| kernel::at_sync_point);
    }
    let parent = match &options.folder {
        Some(folder) => folder.clone(),
        // Inode numbers must not depend on other activity on the same file system.
        None if exact && Path::new(SHARED_MEMORY).is_dir() => SHARED_MEMORY.into(),
        None => std::env::temp_dir(),
    };
    let folder = tempfile::Builder::new()
        .prefix("coherence-")
        .tempdir_in(&parent)
        .with_context(|| format!("no folder for the files in '{}'", parent.display()))?;
    let cache = tempfile::Builder::new()
        .prefix("coherence-")
        .tempdir_in(options.cache.as_deref().unwrap_or(&parent))
        .context("no folder for the cache")?;
    // Absolute, because names are compared with the kernel's paths.
    let place = folder.path().canonicalize()?;
    redirect_errors(&place.join("journal"))?;

    calls::install()?;
    let contexts = [set_up_context()?, set_up_context()?];
    World::make(Plan {
        folder: &place,
        cache: cache.path(),
        contexts,
        tracing: options.trace,
        smaller: 1,
        from: (1, 1),
        log: None,
    });
    random::seed(seed, 0);
    println!("seed {seed}, {} thread(s)", options.threads.max(1));
    let began = Instant::now();
    let until = began + Duration::from_secs_f64(seconds);
    let last = options.operations.unwrap_or(u64::MAX);
    if exact {
        exactly(until, last);
    } else {
        with_threads(seed, options, until, last)?;
    }
    let report = report(options, seed, began.elapsed());
    if report.is_err() {
        show_end_of(&place.join("journal"));
    }
    report
}

fn exactly(until: Instant, last: u64) {
    operations::create_all();
    switching::on();
    kernel::READY.store(true, Ordering::SeqCst);
    while !world().stopping()
        && Instant::now() < until
        && world().operations.load(Ordering::Relaxed) < last
    {
        operations::step();
    }
    switching::finish();
}

fn with_threads(seed: u64, options: &Options, until: Instant, last: u64) -> anyhow::Result<()> {
    operations::create_all();
    switching::begin_with_threads()?;
    kernel::READY.store(true, Ordering::SeqCst);
    let named = |name: String| std::thread::Builder::new().name(name);
    let harvesters: Vec<_> = (0..2)
        .map(|number| {
            named(format!("harvester {number}")).spawn(move || {
                random::seed(seed, 1000 + number as u64);
                asynchronous::harvester(number);
            })
        })
        .collect::<Result<_, _>>()?;
    let administrator = named("administrator".into()).spawn(move || {
        random::seed(seed, 2000);
        switching::administrator();
    })?;
    let workers: Vec<_> = (1..=options.threads)
        .map(|number| {
            named(format!("worker {number}")).spawn(move || {
                random::seed(seed, number);
                while !world().stopping() {
                    operations::step();
                }
            })
        })
        .collect::<Result<_, _>>()?;
    // On a busy host, the administrator may have done little so far.
    let is_missing = || !options.partial && last >= ENOUGH && !coverage::missing().is_empty();
    while !world().stopping()
        && Instant::now() < until
        && (world().operations.load(Ordering::Relaxed) < last || is_missing())
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    world().stop.store(true, Ordering::SeqCst);
    let mut panicked = 0;
    for thread in workers.into_iter().chain([administrator]) {
        panicked += usize::from(thread.join().is_err());
    }
    asynchronous::CLOSING.store(true, Ordering::SeqCst);
    for context in world().contexts {
        // Waits for its requests, and wakes its harvester.
        kernel::destroy(context);
    }
    for thread in harvesters {
        panicked += usize::from(thread.join().is_err());
    }
    switching::end_with_threads();
    ensure!(
        panicked == 0,
        "{panicked} threads of the model panicked; see the lines above"
    );
    Ok(())
}

fn show_end_of(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    println!("the end of the error log:");
    for line in &lines[lines.len().saturating_sub(12)..] {
        println!("  {line}");
    }
}

fn report(options: &Options, seed: u64, took: Duration) -> anyhow::Result<ExitCode> {
    let world = world();
    let operations = world.operations.load(Ordering::Relaxed);
    if options.verbose {
        for (what, count) in coverage::all() {
            println!("{count:>9} {what}");
        }
        for (call, count) in calls::made() {
            println!("{count:>9} calls of {call}");
        }
    }
    let of = |name: &str| {
        coverage::all()
            .find(|(what, _)| *what == name)
            .map_or(0, |(_, count)| count)
    };
    println!(
        "{operations} operations in {:.1} s ({:.0} per second), {} hits, {} by asynchronous reads, {} insertions turned away",
        took.as_secs_f64(),
        operations as f64 / took.as_secs_f64(),
        of("hits"),
        of("of them: read from the device by the server's own asynchronous read"),
        of("insertions turned away by the generation"),
    );
    if options.threads <= 1 {
        println!("digest {:016x}", world.digest());
    }
    if let Some(path) = &options.history {
        std::fs::write(path, world.history())?;
    }
    if let Some(violation) = world.violation() {
        println!("{violation}");
        let minutes = if options.minutes { " --minutes" } else { "" };
        println!(
            "to repeat it: cargo run -p coherence-model -- --seed {seed} --threads {} --seconds {}{}",
            options.threads.max(1),
            options.seconds.unwrap_or(10.0),
            if options.threads <= 1 {
                format!(" --operations {}{minutes}", operations + 1)
            } else {
                format!(" --trace{minutes}")
            },
        );
        anyhow::bail!(
            "the cache returned something else than was written, or a call went wrong (seed {seed})"
        );
    }
    let missing = coverage::missing();
    if !missing.is_empty() && operations >= ENOUGH && !options.partial {
        anyhow::bail!(
            "never tried in {operations} operations: {}",
            missing.join("; ")
        );
    }
    Ok(ExitCode::SUCCESS)
}
