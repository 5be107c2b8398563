//! Switches the cache on and off, rebuilds it and changes its layout, concurrently with all other operations.
//!
//! With threads, the controller does the work, as in a server. In the exact mode the extension has no threads: this module runs
//! the controller's steps, and [`pump`] runs the writers.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use bpe_plugin::control::{self, CONTROLLER};
use bpe_plugin::platform::CORE;
use bpe_plugin::settings::{self, BYPASS, VALUES};
use cache::{Compression, Config, DeviceConfig, Extension, OwnerIdentity, PolicyName, Statistics};
use coherence::switch::{Active, Bypass};
use parking_lot::Mutex;

use crate::coverage::{self, Reached, reached};
use crate::kernel::{SWITCHING, exact, minutes_pass};
use crate::operations::INSIDE;
use crate::random::{self, below, one_in};
use crate::world::{Overlap, world};

/// Sizes of the caches in bytes: much smaller than the files.
const SIZES: [u64; 3] = [10 << 20, 12 << 20, 16 << 20];

/// Statistics of the closed extensions, and the latest ones of the active extension.
#[derive(Default)]
struct Books {
    epoch: u32,
    last: Option<Statistics>,
}

static BOOKS: Mutex<Books> = Mutex::new(Books {
    epoch: 0,
    last: None,
});

/// Samples the active extension's statistics, so that little is missed when it closes.
pub fn look() {
    let guard = CORE.switch().active();
    let Some(active) = &*guard else { return };
    let mut books = BOOKS.lock();
    if books.epoch != active.epoch {
        close_books(&mut books);
        books.epoch = active.epoch;
    }
    books.last = Some(active.extension.statistics());
}

fn close_books(books: &mut Books) {
    let Some(s) = books.last.take() else { return };
    for (what, count) in [
        (Reached::Hits, s.hits),
        (Reached::HitsStaged, s.hits_staged),
        (Reached::HitsLocated, s.hits_located),
        (
            Reached::HitsOnDevice,
            s.hits - s.hits_staged - s.hits_located,
        ),
        (Reached::Compressed, s.compressed),
        (Reached::Stale, s.stale_offers),
        (Reached::Invalidated, s.invalidated),
        (Reached::Evicted, s.evicted),
        (Reached::GivenUp, s.reads_given_up),
    ] {
        coverage::add(what, count);
    }
}

/// Checks and totals at the end of the run.
pub fn finish() {
    #[cfg(debug_assertions)]
    if let Some(wrong) = CORE.files.contradictions().first() {
        world().violated(None, wrong);
    }
    look();
    close_books(&mut BOOKS.lock());
}

fn set_variables() {
    VALUES
        .size
        .store(SIZES[below(SIZES.len())], Ordering::SeqCst);
    VALUES
        .instances
        .store([1, 4, 8][below(3)], Ordering::SeqCst);
    VALUES
        .compression
        .store(u64::from(one_in(3)), Ordering::SeqCst);
    // A millisecond is so short that some reads of the cache time out and are answered late.
    settings::READ_TIMEOUT.store([0, 1, 1000][below(3)], Ordering::SeqCst);
}

/// Starts the controller, with cache files in the world's directory.
///
/// # Errors
/// The directory cannot be created.
pub fn begin_with_threads() -> anyhow::Result<()> {
    let folder = world().cache.join("cache");
    std::fs::create_dir(&folder)?;
    let path = CString::new(folder.as_os_str().as_bytes())?;
    VALUES.path.store(path.into_raw(), Ordering::SeqCst); // for the life of the process
    settings::LOADED.store(true, Ordering::SeqCst);
    set_variables();
    control::start(None, true);
    switch_on();
    Ok(())
}

fn switch_on() {
    SWITCHING.store(true, Ordering::Relaxed);
    match control::prepare() {
        Ok(_) => {
            CONTROLLER.commit();
            reached(Reached::SwitchedOn);
        }
        // Of two concurrent rebuilds, one is refused.
        Err(reason) if reason.contains("another session") => {}
        Err(reason) => world().violated(
            None,
            &format!("the extension cannot be switched on: {reason}"),
        ),
    }
    SWITCHING.store(false, Ordering::Relaxed);
}

/// Body of the thread that plays the administrator.
pub fn administrator() {
    while !world().stopping() {
        for _ in 0..10 + below(80) {
            if world().stopping() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
            look();
        }
        for _ in 0..below(4) {
            bypass();
            std::thread::sleep(Duration::from_millis(below(60) as u64));
            serve_again();
            std::thread::sleep(Duration::from_millis(below(60) as u64));
        }
        let _kept_out = KeptOut::wait();
        match below(8) {
            7 => let_a_minute_pass(),
            0 => {
                set_variables();
                wait_for_rebuild();
            }
            _ => {
                CONTROLLER.disable();
                reached(Reached::SwitchedOff);
                if one_in(2) {
                    std::thread::sleep(Duration::from_millis(below(60) as u64));
                }
                set_variables();
                switch_on();
            }
        }
    }
}

/// Body of an administrator's thread that switches off and on quickly. Announces each switching beforehand.
pub fn hasty_administrator() {
    while !world().stopping() {
        std::thread::sleep(Duration::from_millis(below(40) as u64));
        let _kept_out = KeptOut::wait();
        println!("about to switch off");
        CONTROLLER.disable();
        if one_in(2) {
            std::thread::sleep(Duration::from_millis(below(30) as u64));
        }
        switch_on();
    }
}

/// Body of an administrator's thread that uses bypass and leaves the extension on.
pub fn bypassing_administrator() {
    while !world().stopping() {
        std::thread::sleep(Duration::from_millis(below(20) as u64));
        bypass();
        std::thread::sleep(Duration::from_millis(below(20) as u64));
        serve_again();
    }
}

/// Starts bypass or changes its kind, possibly with a control group.
pub fn bypass() {
    let bypass = [Bypass::On, Bypass::Refill][below(2)];
    let seconds = if one_in(2) { 86_400 } else { 0 };
    BYPASS.set_timeout(&CORE, seconds);
    BYPASS.set(&CORE, bypass);
    if CORE.switch().mode().bypass() == bypass {
        reached(match bypass {
            Bypass::Refill => Reached::Refilled,
            _ => Reached::Bypassed,
        });
        if CORE.switch().pending_requests() > 0 {
            reached(Reached::BypassedUnderWay);
        }
    }
}

/// Ends bypass.
pub fn serve_again() {
    if CORE.switch().mode().bypass() != Bypass::Off {
        reached(Reached::ServedAgain);
    }
    BYPASS.set(&CORE, Bypass::Off);
}

/// Blocks concurrent writes and reads of freed pages while it exists.
struct KeptOut;

impl KeptOut {
    fn wait() -> KeptOut {
        while !Overlap::keep_out() && !world().stopping() {
            std::thread::sleep(Duration::from_millis(1));
        }
        KeptOut
    }

    /// For the exact mode, which cannot wait.
    fn now() -> Option<KeptOut> {
        if Overlap::keep_out() {
            return Some(KeptOut);
        }
        Overlap::let_in();
        None
    }
}

impl Drop for KeptOut {
    fn drop(&mut self) {
        Overlap::let_in();
    }
}

/// Waits for the controller, which rebuilds within a second after a change of the variables.
fn wait_for_rebuild() {
    let until = std::time::Instant::now() + Duration::from_millis(1500);
    let before = CONTROLLER.switched_on();
    while CONTROLLER.switched_on() == before
        && std::time::Instant::now() < until
        && !world().stopping()
    {
        std::thread::sleep(Duration::from_millis(5));
        look();
    }
}

/// Ends the work of [`begin_with_threads`].
pub fn end_with_threads() {
    finish();
    CONTROLLER.stop(|| ());
}

/// Extensions of the exact mode that an outer call may still use.
static RETIRED: Mutex<Vec<Arc<Active>>> = Mutex::new(Vec::new());
static BUILT: AtomicU32 = AtomicU32::new(0);

/// In the exact mode: runs the writers.
pub fn pump() {
    if let Some(active) = &*CORE.switch().active() {
        active.extension.pump();
    }
}

/// In the exact mode: switches off if the extension is on, and mostly on again.
pub fn off_or_on() {
    let Some(_kept_out) = KeptOut::now() else {
        return;
    };
    if let Some(active) = if one_in(2) {
        CORE.switch().kill()
    } else {
        CORE.switch().switch_off()
    } {
        let mut books = BOOKS.lock();
        books.last = Some(active.extension.statistics());
        close_books(&mut books);
        RETIRED.lock().push(active);
        reached(Reached::SwitchedOff);
    }
    let mut retired = RETIRED.lock();
    let unused: Vec<_> = retired.extract_if_unused();
    drop(retired);
    for active in &unused {
        if let Err(wrong) = active.extension.validate() {
            let what = format!("the books of an extension do not agree: {wrong:?}");
            world().violated(None, &what);
        }
    }
    drop(unused);
    if !one_in(4) {
        on();
    }
}

/// In the exact mode: ends a period without the extension.
pub fn on_again() {
    let excluded_accesses = KeptOut::now();
    if excluded_accesses.is_some() && CORE.switch().active().is_none() {
        on();
    }
}

trait ExtractIfUnused {
    fn extract_if_unused(&mut self) -> Self;
}

impl ExtractIfUnused for Vec<Arc<Active>> {
    fn extract_if_unused(&mut self) -> Self {
        let (unused, used) = std::mem::take(self)
            .into_iter()
            .partition(|active| Arc::strong_count(active) == 1);
        *self = used;
        unused
    }
}

/// Requests in flight end, and a minute passes: objects of forgotten files may be reused, and scanned descriptors become
/// trusted. With threads, the administrator calls it. Only in test builds.
pub fn let_a_minute_pass() {
    if exact() && random::depth() > 0 {
        return;
    }
    let _nobody_is_inside = (!exact()).then(|| INSIDE.write());
    #[cfg(debug_assertions)]
    if minutes_pass() {
        bpe_plugin::platform::clock::TEST_CLOCK
            .passed
            .fetch_add(61_000_000_000, Ordering::SeqCst);
    }
    reached(Reached::MinutesPassed);
}

/// In the exact mode: runs the controller's steps to switch on.
pub fn on() {
    let folder = world()
        .cache
        .join(format!("cache{}", BUILT.fetch_add(1, Ordering::Relaxed)));
    let _ = std::fs::create_dir(&folder);
    let config = Config {
        devices: vec![DeviceConfig {
            path: folder,
            bytes: SIZES[below(SIZES.len())],
            owner: OwnerIdentity([7; 16]),
            file_name: "cache".into(),
        }],
        instances: [1, 4, 8][below(3)],
        compression: if one_in(3) {
            Compression::Lz4
        } else {
            Compression::Off
        },
        policy: PolicyName::ALL[below(PolicyName::ALL.len())],
        ..Config::default()
    };
    let extension = match Extension::open_inline(config, Arc::clone(CORE.switch().generations())) {
        Ok(extension) => extension,
        Err(error) => {
            return world().violated(None, &format!("the extension cannot be opened: {error}"));
        }
    };
    CORE.requests.disarm_all();
    SWITCHING.store(true, Ordering::Relaxed);
    if CORE.switch().start_tracking(|| CORE.files.forget_all()) {
        CORE.register_open_files_twice(Duration::ZERO);
    }
    SWITCHING.store(false, Ordering::Relaxed);
    let active = Active::new(extension, CORE.switch().next_epoch());
    let published = CORE.switch().publish(Arc::new(active));
    if published.is_err() {
        world().violated(None, "the extension was not published");
    }
    reached(Reached::SwitchedOn);
}
