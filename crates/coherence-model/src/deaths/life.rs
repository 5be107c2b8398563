//! One life of a server: recovers, verifies, works, ends.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fs::OpenOptions;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bpe_plugin::control;
use bpe_plugin::platform::CORE;
use bpe_plugin::settings::{self, VALUES};

use super::common::{OF_A_CHILD, SMALLER};
use super::left::{self, Found};
use crate::operations::{self, OTHERS, Others, flush_file, write_pages};
use crate::options::{Life, Options};
use crate::process::{redirect_errors, set_up_context};
use crate::random::{self, below, one_in};
use crate::world::{Plan, World, world};
use crate::{asynchronous, calls, kernel, switching};

/// Timeout of the extension's start, which needs only a fraction of it.
const PATIENCE: Duration = Duration::from_secs(30);
/// Time in which most staged pages are written.
const WRITERS: Duration = Duration::from_millis(400);
/// Rounds after which version and file numbers repeat.
const ROUNDS: u64 = 1 << 16;

/// Runs the complete life. Its output is for the parent.
///
/// # Errors
/// The obstacle.
pub fn live(options: &Options, life: Life) -> anyhow::Result<ExitCode> {
    die_with_the_parent();
    let born = Instant::now();
    let (seed, round) = (options.seed.unwrap_or(0), options.round);
    let folder = options.folder.as_deref().context("no folder")?;
    let cache = options
        .cache
        .as_deref()
        .context("no folder for the cache")?;
    let kept = options.kept.as_deref().context("no folder in memory")?;
    redirect_errors(&kept.join(format!("journal-{round}")))?;
    calls::install()?;
    #[cfg(debug_assertions)]
    if options.minutes {
        coherence::sync_point::AT.get_or_init(|| kernel::at_sync_point);
    }
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(kept.join(format!("log-{round}")))?;
    World::make(Plan {
        folder,
        cache,
        contexts: [set_up_context()?, set_up_context()?],
        tracing: false,
        smaller: SMALLER,
        from: (
            ((round % ROUNDS) << OF_A_CHILD) + 1,
            ((round % ROUNDS) << 7) as u32 + 1,
        ),
        log: Some(log),
    });
    random::seed(seed, 0);
    OTHERS.store(Others::AndDie as u8, Ordering::SeqCst);
    operations::IS_CALM.store(!one_in(3), Ordering::SeqCst);
    operations::RINGS_ARE_USED.store(one_in(16), Ordering::SeqCst);
    set_variables(cache, kept, options.run_seed)?;
    let harvesters = harvesters(seed)?;
    let found = left::look().context("the files cannot be read")?;
    // A late load happens either under load or with known file contents.
    let loads_under_load = life == Life::Late && one_in(2);
    match life {
        Life::Killed | Life::Switching | Life::Stopped => {
            take_over(seed, &found)?;
            check(&found);
        }
        Life::Late if loads_under_load => {}
        Life::Late => {
            // The hooks do not observe writes before the plugin is loaded.
            found.iter().flatten().for_each(Found::open);
            write_some(&found);
            control::start(None, false);
            wait_until_active()?;
            check(&found);
            ensure!(
                CORE.files.recoveries.report().trusted.0 == 0,
                "VIOLATION: a file is trusted that was not tracked"
            );
        }
        Life::Off => {
            VALUES.enabled.store(0, Ordering::SeqCst);
            control::start(None, true);
        }
        Life::Unkept => {
            // SAFETY: a valid string.
            unsafe { settings::set_text(&VALUES.persist_path, c"".as_ptr()) };
            control::start(None, true);
            wait_until_active()?;
        }
        Life::Brief => {
            control::start(None, true);
            stop(false);
            return Ok(ExitCode::SUCCESS);
        }
        Life::Without => {}
    }
    found.iter().flatten().for_each(Found::open);
    left::complete(found);
    if !one_in(4) {
        wait_for_writers();
    }
    println!("working after {} ms", born.elapsed().as_millis());
    kernel::READY.store(true, Ordering::SeqCst);
    let workers = workers(options, life, seed)?;
    if loads_under_load {
        load_late()?;
    }
    let until = Instant::now() + Duration::from_millis(2 + below(200) as u64);
    let last = if life == Life::Stopped {
        until
    } else {
        until + PATIENCE
    };
    while !world().stopping() && Instant::now() < last {
        std::thread::sleep(Duration::from_millis(1));
    }
    if life == Life::Stopped && !world().stopping() {
        stop(one_in(5));
    }
    end(life, workers, harvesters)
}

/// Kills this process when its parent dies: no other process would.
fn die_with_the_parent() {
    // SAFETY: plain arguments.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Layout settings are mostly equal for all children of a run, so that the cache can be recovered.
fn set_variables(cache: &Path, kept: &Path, run: u64) -> anyhow::Result<()> {
    let text = |path: &Path, variable: &AtomicPtr<c_char>| -> anyhow::Result<()> {
        let text = CString::new(path.as_os_str().as_bytes())?;
        variable.store(text.into_raw(), Ordering::SeqCst); // for the life of the process
        Ok(())
    };
    text(cache, &VALUES.path)?;
    text(kept, &VALUES.persist_path)?;
    // SAFETY: both are valid strings and are never freed.
    unsafe { settings::load() };
    let megabytes = if one_in(24) { 12 } else { 10 };
    VALUES.size.store(megabytes << 20, Ordering::SeqCst);
    VALUES
        .instances
        .store([1, 4, 8][(run % 3) as usize], Ordering::SeqCst);
    let compresses = (run / 3 % 2 == 1) != one_in(24);
    VALUES
        .compression
        .store(u64::from(compresses), Ordering::SeqCst);
    VALUES.enabled.store(1, Ordering::SeqCst);
    Ok(())
}

fn harvesters(seed: u64) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let harvester = |number: usize| {
        let name = format!("harvester {number}");
        std::thread::Builder::new().name(name).spawn(move || {
            random::seed(seed, 1000 + number as u64);
            asynchronous::harvester(number);
        })
    };
    Ok((0..2).map(harvester).collect::<Result<_, _>>()?)
}

/// Starts the server. It may continue, and write, before the extension is active.
fn take_over(seed: u64, found: &[Option<Found>]) -> anyhow::Result<()> {
    let is_active = AtomicBool::new(false);
    let hastes = one_in(3);
    std::thread::scope(|scope| {
        let hasty = scope.spawn(|| {
            if hastes {
                random::seed(seed, 3000);
                haste(found, &is_active);
            }
        });
        control::start(None, true);
        let active = wait_until_active();
        is_active.store(true, Ordering::SeqCst);
        ensure!(
            hasty.join().is_ok(),
            "whoever opens and writes has panicked"
        );
        active
    })
}

/// Opens files and writes as soon as the hooks track files, before an extension is active.
fn haste(found: &[Option<Found>], is_active: &AtomicBool) {
    let over = || is_active.load(Ordering::SeqCst);
    while !CORE.switch().mode().tracks() {
        if over() {
            return;
        }
        std::thread::yield_now();
    }
    // Each write makes its whole file unrecoverable, so a few files are enough.
    let in_place = |found: &&Found| found.is_in_place() && found.file.pages() > 0;
    let files = found.iter().flatten().filter(in_place);
    let files: Vec<_> = files.filter(|_| one_in(4)).collect();
    while !files.is_empty() && !over() {
        let found = files[below(files.len())];
        found.open();
        write_one(found);
    }
}

fn write_one(Found { file, .. }: &Found) {
    let page = below(file.pages());
    write_pages(file, page * file.page_size(), file.page_size());
}

fn write_some(found: &[Option<Found>]) {
    for found in found.iter().flatten() {
        if one_in(2) && found.file.pages() > 0 {
            write_one(found);
        }
    }
}

fn wait_until_active() -> anyhow::Result<()> {
    let until = Instant::now() + PATIENCE;
    while !CORE.switch().mode().is_active() {
        ensure!(
            Instant::now() < until,
            "the extension does not become active: {:?}",
            control::state()
        );
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Loads the plugin while other threads write and wait for their requests.
fn load_late() -> anyhow::Result<()> {
    std::thread::sleep(Duration::from_micros(below(20_000) as u64));
    kernel::SWITCHING.store(true, Ordering::Relaxed);
    control::start(None, false);
    let active = wait_until_active();
    kernel::SWITCHING.store(false, Ordering::Relaxed);
    active
}

/// Waits for staged pages, which a death would lose. Once written, they can be recovered.
fn wait_for_writers() {
    let staged = || {
        let guard = CORE.switch().active();
        guard
            .as_ref()
            .map_or(0, |active| active.extension.staged_bytes())
    };
    let until = Instant::now() + WRITERS;
    while staged() > 0 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Reads every page once. Returns the number of pages and hits.
fn look(found: &[Option<Found>]) -> (u64, u64) {
    let hits = || {
        let guard = CORE.switch().active();
        guard
            .as_ref()
            .map_or(0, |active| active.extension.statistics().hits)
    };
    let before = hits();
    let pages = left::check(found);
    (pages, hits() - before)
}

/// Verifies every page, and prints how much was recovered.
fn check(found: &[Option<Found>]) {
    found.iter().flatten().for_each(Found::open);
    let (pages, hits) = look(found);
    let guard = CORE.switch().active();
    let inherited = guard
        .as_ref()
        .map(|active| active.extension.recovered().clone());
    let inherited = inherited.unwrap_or_default();
    let report = CORE.files.recoveries.report();
    println!(
        "checked pages={pages} hits={hits} inherited={} dropped={} trusted={} rejected={} reasons: {:?} {:?}",
        inherited.pages,
        inherited.dropped,
        report.trusted.0,
        report.rejected.0,
        report.reasons,
        inherited.refused,
    );
}

fn workers(options: &Options, life: Life, seed: u64) -> anyhow::Result<Vec<JoinHandle<()>>> {
    let spawn = |name: String, number: u64, work: fn()| {
        std::thread::Builder::new().name(name).spawn(move || {
            random::seed(seed, number);
            work();
        })
    };
    let work = || {
        while !world().stopping() {
            operations::step();
        }
    };
    let mut threads = Vec::new();
    for number in 1..=options.threads.max(2) {
        threads.push(spawn(format!("worker {number}"), number, work)?);
    }
    let administrator: Option<fn()> = match life {
        Life::Switching => Some(switching::hasty_administrator),
        Life::Off if one_in(2) => Some(switching::hasty_administrator),
        Life::Killed if one_in(3) => Some(switching::bypassing_administrator),
        _ => None,
    };
    if let Some(work) = administrator {
        threads.push(spawn("administrator".into(), 2000, work)?);
    }
    Ok(threads)
}

/// Stops the plugin as a server's shutdown does. The other threads continue to write pages for a while. With `uninstalls`, a
/// session uninstalls the plugin instead, which then does not track later calls.
fn stop(uninstalls: bool) {
    println!("about to stop");
    let code = if uninstalls {
        std::thread::spawn(deinit).join().unwrap_or(-1)
    } else {
        deinit()
    };
    if code != 0 {
        world().violated(None, &format!("the plugin's deinit returned {code}"));
    }
    std::thread::sleep(Duration::from_millis(below(40) as u64));
}

/// Calls `deinit` through the plugin's descriptor, as a server does.
fn deinit() -> c_int {
    /// Offset of `deinit` in MySQL's `st_mysql_plugin`, bytes.
    const DEINIT: usize = 64;
    let declaration = bpe_plugin::abi::descriptor::_mysql_plugin_declarations_.get();
    // SAFETY: the descriptor has the servers' layout, which a test of the plugin verifies.
    unsafe {
        let call = declaration.cast::<u8>().add(DEINIT);
        let call = call
            .cast::<unsafe extern "C" fn(*mut c_void) -> c_int>()
            .read();
        call(std::ptr::null_mut())
    }
}

/// Ends the last writes, closes the files or not, and returns the exit code.
fn end(
    life: Life,
    workers: Vec<JoinHandle<()>>,
    harvesters: Vec<JoinHandle<()>>,
) -> anyhow::Result<ExitCode> {
    if let Some(violation) = world().violation() {
        println!("{violation}");
        return Ok(ExitCode::FAILURE);
    }
    world().stop.store(true, Ordering::SeqCst);
    let mut panicked = 0;
    for thread in workers {
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
    ensure!(panicked == 0, "{panicked} threads of the model panicked");
    if one_in(2) || life == Life::Stopped && one_in(2) {
        let flushes = !one_in(3);
        for slot in world().slots.iter().filter(|_| flushes) {
            flush_file(&slot.file());
        }
        if one_in(2) {
            std::thread::sleep(Duration::from_millis(25));
        }
        for slot in &world().slots {
            let file = slot.file();
            if one_in(3) {
                flush_file(&file);
            }
            world().note(&file, format_args!("closed at the end"));
            // SAFETY: the file's own descriptor.
            unsafe { calls::close(file.fd()) };
        }
    }
    if let Some(violation) = world().violation() {
        println!("{violation}");
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
