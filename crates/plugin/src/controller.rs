//! Switches the extension on and off, rebuilds it when a setting changes, tries again when something failed, and
//! retires what is no longer active.
//!
//! Switching on happens while the client who asks waits, so that it gets the error: [`prepare`] while the server
//! checks the value of `bpe_enabled`, [`commit`] when it assigns it. Everything slow happens in `prepare` or in the
//! controller's own thread; a server thread that reads or writes pages never waits for any of it, and the client waits for
//! [`PATIENCE`] at most.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use extension::Extension;
use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::audit::Audit;
use crate::settings::{self, AsyncIo, Settings};
use crate::switch::{self, Active};
use crate::{aio, files, journal, recorder, scan};

/// How long switching on waits for the extension before it to let go of its files.
const RETIRE_WAIT: Duration = Duration::from_secs(20);
/// How long a client waits for a disk: for longer than for other sessions and for the extension before, together.
const PATIENCE: Duration = Duration::from_secs(60);
/// A prepared extension that nobody commits is given up after this.
const PREPARED_FOR: Duration = Duration::from_secs(10);
/// How often settings are looked at while other sessions switch on and off.
const CHECKS: u32 = 5;
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(500);
/// Between two rebuilds for another page size.
const RESIZE_PAUSE: Duration = Duration::from_secs(30);
/// How long a recording waits for a switching on that is under way.
const RECORDING_WAIT: Duration = Duration::from_secs(5);
const BUSY: &str = "the extension is just being built or switched; try again in some seconds; if that goes on, a disk in bpe_path does not answer";
const PANIC: &str = "switched off by an internal error, see the error log";
const AFTER_PANIC: &str = "an internal error switched the extension off; see the error log, and restart the server to use it again";
const DEFAULT_PAGE: u32 = 16384;
/// Smaller pages than this do not make the directory larger: some tables of tiny pages must not multiply its memory.
const LEAST_NOMINAL_PAGE: u32 = 4096;

/// What the extension is doing, as status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Switched off.
    Disabled = 0,
    /// Serving.
    Active = 1,
    /// The server's calls cannot be intercepted, or somebody else writes to its files.
    Passive = 2,
    /// Asked for, but not possible just now; tried again by itself.
    Failed = 3,
}

impl State {
    /// As shown in `Bpe_state`.
    pub fn name(self) -> &'static str {
        match self {
            State::Disabled => "disabled",
            State::Active => "active",
            State::Passive => "passive",
            State::Failed => "failed",
        }
    }
}

struct Prepared {
    active: Arc<Active>,
    settings: Settings,
    since: Instant,
    intent: u64,
}

#[derive(Default)]
struct Inner {
    /// Why the calls could not be intercepted.
    passive: Option<String>,
    /// The administrator wants the extension on. Only a client's ON, or the configuration, sets it.
    wanted: bool,
    /// Raised by every switching off: what was begun under an earlier number must not come into effect any more.
    intent: u64,
    /// Why it is not on although it is wanted.
    failure: Option<String>,
    /// What was changed behind our back; it stays off until a client asks for it.
    distrusted: Option<String>,
    retry: Option<(Instant, Duration)>,
    prepared: Option<Prepared>,
    /// Settings the active extension was built with.
    running: Option<Settings>,
    /// Settings with which switching on was tried last.
    tried: Option<Settings>,
    nominal_page: u32,
    /// A page size for which the extension could not be laid out.
    refused_page: Option<u32>,
    resized: Option<Instant>,
    rebuild: bool,
    retiring: Vec<Arc<Active>>,
    /// Extensions taken out of `retiring` and not gone yet.
    being_retired: usize,
    /// Extensions that some thread of the server is still waiting in, long after they were switched off.
    lingering: Vec<Arc<Active>>,
    stop: bool,
    /// Which installation of the plugin this is: a controller's thread that hung when the plugin went must not go on
    /// beside the next one.
    life: u64,
    thread: Option<std::thread::JoinHandle<()>>,
    early: bool,
}

static INNER: LazyLock<Mutex<Inner>> = LazyLock::new(Mutex::default);
static CHANGED: Condvar = Condvar::new();
/// Held while an extension is built, so that two never compete for the same files.
static BUILDING: Mutex<()> = Mutex::new(());
type Building = MutexGuard<'static, ()>;
static PANICKED: AtomicBool = AtomicBool::new(false);
/// What was active when a hook panicked, for the controller's thread to retire.
static AFTER_A_PANIC: LazyLock<ArcSwapOption<Active>> = LazyLock::new(ArcSwapOption::empty);
static SWITCHED_ON: AtomicU64 = AtomicU64::new(0);

/// Called when the plugin is initialised and the calls are intercepted (or `passive` says why not).
pub fn start(passive: Option<String>, early: bool) {
    {
        let mut inner = INNER.lock();
        inner.passive = passive.clone();
        inner.early = early;
        inner.stop = false;
        inner.life += 1;
        inner.nominal_page = DEFAULT_PAGE;
        if let Err(reason) = ensure_thread(&mut inner) {
            journal::warning(&format!(
                "{reason}. It is tried again when the extension is switched or its status is looked at."
            ));
        }
    }
    if let Some(reason) = passive {
        journal::warning(&format!(
            "passive: {reason}. The server works as it would without the extension."
        ));
    } else if settings::ENABLED.load(Ordering::SeqCst) != 0 {
        // In the controller's thread: a disk that hangs must not keep the server from starting.
        let mut inner = INNER.lock();
        inner.wanted = true;
        inner.rebuild = true;
        CHANGED.notify_all();
    }
}

/// Starts the controller's thread if it could not be started before.
fn ensure_thread(inner: &mut Inner) -> Result<(), String> {
    if inner.thread.is_some() || inner.stop {
        return Ok(());
    }
    LazyLock::force(&AFTER_A_PANIC);
    let life = inner.life;
    let thread = spawn("bpe-controller", move || run(life)).map_err(|error| {
        format!("cannot start the controller's thread: {error}; raise the limit on threads")
    })?;
    inner.thread = Some(thread);
    Ok(())
}

/// Starts a thread with all signals blocked: a signal meant for the server must never be taken by one of ours.
pub fn spawn(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    // SAFETY: the sets are local; the mask of this thread is put back right after, the new thread inherits it full.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .stack_size(256 * 1024)
            .spawn(body);
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        thread
    }
}

/// Switches on for the controller, unless the administrator has switched off since the number was taken.
fn switch_on_or_retry(settings: &Settings, intent: u64, building: &Building) {
    match prepare_for(settings, Some(intent), building) {
        Ok(warnings) => {
            warnings
                .iter()
                .for_each(|warning| journal::warning(warning));
            commit_prepared(&mut INNER.lock());
        }
        Err(reason) => failed(reason, intent),
    }
}

fn failed(reason: String, intent: u64) {
    let mut inner = INNER.lock();
    if inner.intent != intent {
        return;
    }
    let pause = inner
        .retry
        .map_or(FIRST_RETRY, |(_, pause)| (pause * 2).min(LAST_RETRY));
    if inner.failure.as_ref() != Some(&reason) {
        journal::error(&format!(
            "not switched on: {reason}. It is tried again by itself."
        ));
    }
    inner.failure = Some(reason);
    inner.retry = Some((Instant::now() + pause, pause));
}

/// First half of switching on, for a client: builds the extension and gets to know the open files. Returns warnings.
pub fn prepare() -> Result<Vec<String>, String> {
    waiting_at_most(PATIENCE, || {
        let building = BUILDING.try_lock_for(RETIRE_WAIT).ok_or(BUSY)?;
        let result = prepare_for(&Settings::current(), None, &building);
        let mut inner = INNER.lock();
        if inner.stop {
            // The plugin was uninstalled while this was waiting for a disk.
            close_retiring(&mut inner);
        }
        result
    })
}

/// Does something that may have to wait for a disk in a thread of its own, so that a client does not wait for ever.
fn waiting_at_most<T: Send + 'static>(
    limit: Duration,
    body: impl Fn() -> Result<T, String> + Send + Sync + 'static,
) -> Result<T, String> {
    let body = Arc::new(body);
    let (sender, receiver) = sync_channel(1);
    let its_body = Arc::clone(&body);
    let begun = spawn("bpe-session", move || {
        let _ = sender.send(its_body());
    });
    if begun.is_err() {
        return body();
    }
    match receiver.recv_timeout(limit) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(format!(
            "a disk in bpe_path has not answered for {} s; try again when it does",
            limit.as_secs()
        )),
        Err(RecvTimeoutError::Disconnected) => Err("an internal error occurred".into()),
    }
}

/// Builds the extension, for a client or, under the number of the controller's own intent, for the controller.
fn prepare_for(
    settings: &Settings,
    intent: Option<u64>,
    _building: &Building,
) -> Result<Vec<String>, String> {
    const OVERTAKEN: &str = "the extension was switched off by another session meanwhile";
    let (nominal_page, intent) = {
        let mut inner = INNER.lock();
        if let Some(reason) = &inner.passive {
            return Err(reason.clone());
        }
        if PANICKED.load(Ordering::SeqCst) {
            return Err(AFTER_PANIC.into());
        }
        // Without it nothing would be retired, nor tried again.
        ensure_thread(&mut inner)?;
        if inner.running.is_some() || inner.prepared.is_some() {
            // If it was built with other settings, the controller will see to that.
            return Ok(Vec::new());
        }
        inner.tried = Some(settings.clone());
        let (intent, own) = (intent.unwrap_or(inner.intent), intent.is_some());
        if own {
            // Nobody but this thread would close them.
            close_retiring(&mut inner);
        } else {
            wait_for_retired(&mut inner)?;
        }
        if inner.intent != intent {
            return Err(OVERTAKEN.into());
        }
        (usual_page(&inner), intent)
    };
    let (active, warnings, nominal_page) = lay_out(settings, nominal_page)?;
    let begins_to_follow = {
        let mut inner = INNER.lock();
        if inner.intent != intent {
            retire(&mut inner, active);
            return Err(OVERTAKEN.into());
        }
        aio::disarm_all();
        // A recording that is under way has followed the files since it began, under the same lock as this.
        switch::start_tracking(files::forget_all)
    };
    if begins_to_follow {
        scan::register_open_files();
    }
    let mut inner = INNER.lock();
    let panicked = PANICKED.load(Ordering::SeqCst);
    if inner.intent != intent || panicked {
        // The mode is off again: switching off has seen to that.
        retire(&mut inner, active);
        return Err(if panicked { AFTER_PANIC } else { OVERTAKEN }.into());
    }
    inner.nominal_page = nominal_page;
    inner.prepared = Some(Prepared {
        active,
        settings: settings.clone(),
        since: Instant::now(),
        intent,
    });
    Ok(warnings)
}

/// Lets the hooks follow files and note page reads and writes for a recording, whether the extension is on or off.
///
/// # Errors
/// The reason, for the client, why the hooks cannot be switched on.
pub fn follow_for_recording() -> Result<(), String> {
    let _building = BUILDING.try_lock_for(RECORDING_WAIT).ok_or(BUSY)?;
    let begins_to_follow = {
        let inner = INNER.lock();
        if let Some(reason) = &inner.passive {
            return Err(format!("the server's I/O cannot be seen: {reason}"));
        }
        if inner.stop || inner.thread.is_none() {
            return Err("the plugin is not installed, only its function is".into());
        }
        if PANICKED.load(Ordering::SeqCst) {
            return Err(AFTER_PANIC.into());
        }
        switch::start_recording(files::forget_all)
    };
    if begins_to_follow {
        scan::register_open_files();
    }
    if PANICKED.load(Ordering::SeqCst) {
        switch::stop_recording();
        return Err(AFTER_PANIC.into());
    }
    Ok(())
}

/// Builds the extension for this page size, or for the usual one where memory does not allow it.
fn lay_out(settings: &Settings, page: u32) -> Result<(Arc<Active>, Vec<String>, u32), String> {
    settings.wait_for_room();
    let mut warnings = settings.check_any()?;
    let mut opened = |active: Arc<Active>, page| {
        let failures = crate::report::device_failures(&active.extension);
        warnings.extend(failures);
        (active, std::mem::take(&mut warnings), page)
    };
    match build(settings, page) {
        Ok(active) => Ok(opened(active, page)),
        Err(reason) if page < DEFAULT_PAGE => {
            INNER.lock().refused_page = Some(page);
            journal::warning(&format!(
                "not laid out for pages of {page} bytes: {reason}. It is laid out for pages of {DEFAULT_PAGE} bytes, \
                 and can keep fewer of the smaller ones."
            ));
            Ok(opened(build(settings, DEFAULT_PAGE)?, DEFAULT_PAGE))
        }
        Err(reason) => Err(reason),
    }
}

/// Second half of switching on, for a client: hooks serve from here on.
pub fn commit() {
    let mut inner = INNER.lock();
    inner.wanted = true;
    inner.distrusted = None;
    commit_prepared(&mut inner);
    if inner.running.is_none() {
        // Another session switched off between the halves: this one came last, so the controller builds anew.
        inner.rebuild = true;
        CHANGED.notify_all();
    }
}

fn commit_prepared(inner: &mut MutexGuard<'_, Inner>) {
    let Some(prepared) = inner.prepared.take() else {
        return;
    };
    if prepared.intent != inner.intent || PANICKED.load(Ordering::SeqCst) {
        retire(inner, prepared.active);
        return;
    }
    let settings = prepared.settings;
    match switch::publish(prepared.active) {
        Ok(None) => {}
        Ok(Some(before)) => retire(inner, before),
        Err(switch::Interrupted(ours)) => {
            if let Some(ours) = ours {
                retire(inner, ours);
            }
            return;
        }
    }
    adjust(inner);
    journal::note(&format!(
        "switched on: {} bytes on {}, {} instance(s), {} mode",
        settings.size,
        settings.path,
        settings.instance_count(),
        if inner.early { "early" } else { "run-time" }
    ));
    inner.running = Some(settings);
    inner.failure = None;
    inner.retry = None;
    SWITCHED_ON.fetch_add(1, Ordering::Relaxed);
}

/// Settings that need no other layout have changed: the active extension takes them over.
pub fn settings_changed() {
    adjust(&mut INNER.lock());
}

/// Under the lock, so that values of before never come last.
fn adjust(_inner: &mut MutexGuard<'_, Inner>) {
    if let Some(active) = &*switch::active() {
        active.extension.set_io_capacity(settings::io_capacity());
        active.extension.set_admission(settings::admission());
    }
}

fn build(settings: &Settings, nominal_page: u32) -> Result<Arc<Active>, String> {
    let config = settings.config(nominal_page)?;
    let generations = Arc::clone(switch::generations());
    let open = std::panic::AssertUnwindSafe(|| Extension::open(config, generations));
    match std::panic::catch_unwind(open) {
        Ok(Ok(extension)) => Ok(Arc::new(Active {
            extension,
            epoch: switch::next_epoch(),
            data_reads: extension::LatencyHistogram::new(),
            data_read_count: AtomicU64::new(0),
        })),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("an internal error occurred while the extension was opened".into()),
    }
}

/// Switches off at once, a recording too. What was active is retired in the background.
pub fn disable() {
    disable_because(None);
}

/// The same; with a reason, it counts as passive until a client switches it on.
fn disable_because(distrusted: Option<String>) {
    // At once, before waiting for any lock.
    let before = switch::kill();
    let mut inner = INNER.lock();
    inner.intent += 1;
    // And once more: a commit may have come in between. Every other one sees the number.
    let late = switch::kill();
    inner.wanted = false;
    inner.failure = None;
    inner.distrusted = distrusted;
    inner.retry = None;
    inner.rebuild = false;
    let was_on = inner.running.take().is_some();
    if let Some(prepared) = inner.prepared.take() {
        retire(&mut inner, prepared.active);
    }
    for old in [before, late].into_iter().flatten() {
        retire(&mut inner, old);
    }
    if !inner.retiring.is_empty() {
        let _ = ensure_thread(&mut inner);
    }
    drop(inner);
    if was_on {
        journal::note("switched off; the cache files are removed");
    }
}

fn retire(inner: &mut MutexGuard<'_, Inner>, active: Arc<Active>) {
    inner.retiring.push(active);
    CHANGED.notify_all();
}

/// Waits until extensions before this one have let go of their files.
fn wait_for_retired(inner: &mut MutexGuard<'_, Inner>) -> Result<(), String> {
    let until = Instant::now() + RETIRE_WAIT;
    while !inner.retiring.is_empty() || inner.being_retired != 0 {
        if CHANGED.wait_until(inner, until).timed_out() {
            return Err("the cache files of the time before are still being closed; try again in some seconds".into());
        }
    }
    Ok(())
}

/// Switches off for good after a panic in a hook. Takes no lock that the hook might hold.
pub fn panicked() {
    PANICKED.store(true, Ordering::SeqCst);
    let before = switch::kill();
    journal::error(
        "an internal error occurred (see above); the extension is switched off until the server restarts",
    );
    if before.is_some() {
        AFTER_A_PANIC.store(before);
    }
    if let Some(mut inner) = INNER.try_lock() {
        clean_up_after_panic(&mut inner);
    } // otherwise rather a moment later than a wait
}

/// What [`panicked`] may have had to leave to the controller's thread.
fn clean_up_after_panic(inner: &mut MutexGuard<'_, Inner>) {
    let prepared = inner.prepared.take().map(|prepared| prepared.active);
    for old in AFTER_A_PANIC.swap(None).into_iter().chain(prepared) {
        retire(inner, old);
    }
    if inner.running.take().is_some() || inner.wanted {
        inner.failure = Some(PANIC.into());
        inner.wanted = false;
    }
}

/// The plugin is being unloaded, or the server stops.
pub fn stop() {
    disable();
    let thread = {
        let mut inner = INNER.lock();
        inner.stop = true;
        CHANGED.notify_all();
        inner.thread.take()
    };
    recorder::stop();
    if thread.is_none() {
        // There was no thread to be had: nobody else will do it.
        let old = std::mem::take(&mut INNER.lock().retiring);
        old.into_iter().for_each(close_when_unused);
    }
    if let Some(thread) = thread {
        let until = Instant::now() + RETIRE_WAIT;
        while !thread.is_finished() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        if thread.is_finished() {
            let _ = thread.join();
        }
    }
}

/// The controller's thread, for one installation of the plugin.
fn run(life: u64) {
    let mut audit = Audit::default();
    let mut someone_builds = false;
    loop {
        let mut inner = INNER.lock();
        close_retiring(&mut inner);
        let gone = take_unused(&mut inner.lingering);
        if inner.stop || inner.life != life {
            drop(inner);
            drop(gone);
            return;
        }
        if (!inner.rebuild || someone_builds) && gone.is_empty() {
            CHANGED.wait_for(&mut inner, TICK);
        }
        drop(inner);
        let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            drop(gone);
            // Whoever builds, a client, may be about to bring what is wanted; and it waits for this thread to close what
            // was before.
            let building = BUILDING.try_lock();
            someone_builds = building.is_none();
            if let Some(building) = building {
                tick(&building);
            }
            look_behind_our_back(&mut audit);
        }));
    }
}

/// Closes what is retired, one after the other. For the controller's thread, or when there is none any more.
fn close_retiring(inner: &mut MutexGuard<'_, Inner>) {
    while let Some(old) = inner.retiring.pop() {
        inner.being_retired += 1;
        MutexGuard::unlocked(inner, || close_when_unused(old));
        inner.being_retired -= 1;
        CHANGED.notify_all();
    }
}

/// Takes the extensions that nobody uses any more out of a list.
fn take_unused(list: &mut Vec<Arc<Active>>) -> Vec<Arc<Active>> {
    let (unused, used) = std::mem::take(list)
        .into_iter()
        .partition(|active| Arc::strong_count(active) == 1);
    *list = used;
    unused
}

/// Waits until no hook uses it any more, then closes it. What is in use for very long is put aside: the last user must not
/// be the one who closes it, since that may take time.
fn close_when_unused(old: Arc<Active>) {
    let until = Instant::now() + RETIRE_WAIT;
    while Arc::strong_count(&old) > 1 {
        if Instant::now() >= until {
            INNER.lock().lingering.push(old);
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        say_what_it_did(&old);
        drop(old);
    }));
}

/// One line of figures for an extension that is closed: a server's status variables end with the server.
fn say_what_it_did(old: &Active) {
    let figures = old.extension.statistics();
    if figures.hits + figures.misses == 0 {
        return;
    }
    journal::note(&format!(
        "the cache is closed: it served {} of {} page reads; it took in {} pages and dropped {} because they were \
         written; {} failed proofs, {} device errors",
        figures.hits,
        figures.hits + figures.misses,
        figures.admitted,
        figures.invalidated,
        figures.failed_proofs,
        figures.device_errors,
    ));
}

/// Goes passive if somebody else has written to the data files.
fn look_behind_our_back(audit: &mut Audit) {
    if left_out!("audit") {
        return;
    }
    let epoch = switch::active().as_ref().map(|active| active.epoch);
    if epoch.is_none() || !audit.belongs_to(epoch) {
        audit.begin(epoch);
        return;
    }
    let Some(reason) = audit.look() else {
        return;
    };
    if !epoch.is_some_and(switch::still_serves) {
        return; // switched off meanwhile: the server changes files, and nobody follows that
    }
    disable_because(Some(reason.clone()));
    journal::error(&format!(
        "{reason}. Everything cached is dropped and the extension is off. Find out who writes to the data files of a \
         running server, which is a danger to the data itself; SET GLOBAL bpe_enabled = ON uses the extension again."
    ));
}

fn tick(building: &Building) {
    let mut inner = INNER.lock();
    if PANICKED.load(Ordering::SeqCst) {
        clean_up_after_panic(&mut inner);
    }
    if !inner.wanted {
        // A client whose SET failed after the check leaves a prepared extension behind.
        let expired = |prepared: &mut Prepared| prepared.since.elapsed() > PREPARED_FOR;
        if let Some(prepared) = inner.prepared.take_if(expired) {
            inner.intent += 1;
            retire(&mut inner, prepared.active);
            let _ = switch::switch_off();
        }
    }
    if !inner.wanted || inner.passive.is_some() || PANICKED.load(Ordering::SeqCst) {
        inner.rebuild = false;
        return;
    }
    let settings = Settings::current();
    let changed = inner
        .tried
        .as_ref()
        .is_some_and(|tried| !tried.same_layout(&settings));
    let due = match inner.retry {
        Some((when, _)) => Instant::now() >= when,
        None => inner.running.is_none() && inner.prepared.is_none(),
    };
    if inner.prepared.is_some() && !changed {
        // A client is about to commit what it has prepared. That is what is wanted, so it need not be built anew; and if
        // its statement fails after all, nobody else would commit it.
        inner.rebuild = false;
        commit_prepared(&mut inner);
        return;
    }
    let resize = resize_needed(&mut inner);
    if !(inner.rebuild || changed || resize || due) {
        return;
    }
    inner.rebuild = false;
    inner.running = None;
    if let Some(prepared) = inner.prepared.take() {
        retire(&mut inner, prepared.active);
    }
    if let Some(before) = switch::switch_off() {
        retire(&mut inner, before);
    }
    let intent = inner.intent;
    drop(inner);
    switch_on_or_retry(&settings, intent, building);
}

/// Whether most of what is read are smaller pages than the extension is laid out for.
fn resize_needed(inner: &mut Inner) -> bool {
    let looked = inner
        .resized
        .is_some_and(|when| when.elapsed() < RESIZE_PAUSE);
    if looked || inner.running.is_none() {
        return false;
    }
    inner.resized = Some(Instant::now());
    let page = usual_page(inner);
    let needed = page < inner.nominal_page && inner.refused_page != Some(page);
    if needed {
        journal::note(&format!(
            "most data is read in pages of {page} bytes; the cache is laid out anew for them"
        ));
    }
    needed
}

/// The page size in which most bytes were read, but not below [`LEAST_NOMINAL_PAGE`].
fn usual_page(inner: &Inner) -> u32 {
    let mut bytes = std::collections::BTreeMap::<u32, u64>::new();
    for file in files::all() {
        let page = file.page_size();
        if page != 0 {
            let reads = file.hits.load(Ordering::Relaxed) + file.misses.load(Ordering::Relaxed);
            *bytes.entry(page.max(LEAST_NOMINAL_PAGE)).or_default() += reads * u64::from(page);
        }
    }
    let known = if inner.nominal_page == 0 {
        DEFAULT_PAGE
    } else {
        inner.nominal_page
    };
    bytes
        .into_iter()
        .filter(|(_, bytes)| *bytes > 0)
        .max_by_key(|(_, bytes)| *bytes)
        .map_or(known, |(page, _)| page)
}

/// State and reason, for status.
pub fn state() -> (State, String) {
    let mut inner = INNER.lock();
    if let Some(reason) = &inner.passive {
        return (State::Passive, reason.clone());
    }
    if let Some(reason) = &inner.distrusted {
        return (State::Passive, reason.clone());
    }
    if let Some(reason) = &inner.failure {
        return (State::Failed, reason.clone());
    }
    if inner.running.is_some() {
        (State::Active, String::new())
    } else if inner.wanted {
        // Where there was no thread at the start, somebody who looks is the one chance to notice that there is one now.
        if let Err(reason) = ensure_thread(&mut inner) {
            return (State::Failed, reason);
        }
        (State::Disabled, "being switched on".into())
    } else {
        (State::Disabled, String::new())
    }
}

/// Whether the administrator wants the extension on.
pub fn is_wanted() -> bool {
    INNER.lock().wanted
}

/// Whether the plugin was loaded before InnoDB started.
pub fn loaded_early() -> bool {
    INNER.lock().early
}

/// What kind of asynchronous I/O the server was seen using.
pub fn async_mode() -> &'static str {
    if settings::async_io() == AsyncIo::Off {
        "off"
    } else if crate::uring::seen() {
        "io_uring"
    } else if aio::seen() {
        "libaio"
    } else {
        "none seen"
    }
}

/// Looks at paths and size of new settings. What is just being built or closed is waited for, so that its files are known
/// as this server's own; but not for ever, since a path may be changed because its disk hangs. Returns warnings.
pub fn check(settings: Settings) -> Result<Vec<String>, String> {
    waiting_at_most(PATIENCE, move || check_at_leisure(&settings))
}

fn check_at_leisure(settings: &Settings) -> Result<Vec<String>, String> {
    let mut result = Ok(Vec::new());
    for _ in 0..CHECKS {
        drop(BUILDING.try_lock_for(RETIRE_WAIT));
        let _ = wait_for_retired(&mut INNER.lock());
        let own = own_files();
        result = settings.check(&own);
        // Refused for a file that another session has just made our own?
        if result.is_ok() || !BUILDING.is_locked() && own == own_files() {
            break;
        }
    }
    result
}

/// Cache files of the extension that is active, or waits to become it.
fn own_files() -> Vec<PathBuf> {
    let prepared = INNER
        .lock()
        .prepared
        .as_ref()
        .map(|prepared| Arc::clone(&prepared.active));
    switch::active()
        .as_ref()
        .into_iter()
        .chain(&prepared)
        .flat_map(|active| active.extension.device_statistics())
        .map(|device| device.path)
        .collect()
}

/// How often the extension was switched on.
pub fn switched_on() -> u64 {
    SWITCHED_ON.load(Ordering::Relaxed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_does_not_wait_for_ever() {
        let (end, until) = sync_channel::<()>(0);
        let until = Mutex::new(until);
        let refused = waiting_at_most(Duration::from_millis(20), move || {
            let _ = until.lock().recv();
            Ok(())
        });
        assert!(refused.is_err_and(|reason| reason.contains("has not answered")));
        drop(end);
        assert_eq!(waiting_at_most(PATIENCE, || Ok(7)), Ok(7));
        let failed = waiting_at_most(PATIENCE, || Err::<(), _>("why".to_owned()));
        assert_eq!(failed, Err("why".into()));
        let panicked = waiting_at_most(PATIENCE, || -> Result<(), String> { panic!("on purpose") });
        assert!(panicked.is_err_and(|reason| reason.contains("internal error")));
    }
}
