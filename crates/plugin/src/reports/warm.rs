//! Loads a heat list into the cache, through `bpe_report()`:
//!
//! | argument | effect; the answer is a JSON object |
//! |---|---|
//! | `warm-put PART` | adds a part of a list: what `heat` answers ([`crate::reports::heat`]). The first part (`"first": true`) drops the parts that were put before and not loaded. The answer has `page_size` and `pages` of each file; null for a file that the server does not have open. A file without `list` is only asked about |
//! | `warm-load SECONDS` | the list is complete and so many seconds old: the server loads it. The answer has `pages`, and how many of them are `listed`: a small cache gets the hottest. If nothing was put, loading ends |
//! | `warm-status` | `state`, `percent`, `age_seconds`, `listed`, `loaded`, `skipped`, `reads`; `left_out`: the files of which nothing is loaded, by their reasons |
//!
//! A failed request has `error` in its answer, with the reason. The arguments need the right to `SET GLOBAL`.
//!
//! One list is loaded at a time, hottest pages first, with at most `bpe_warm_io_capacity` reads of the data disk per second;
//! 0 ends loading. A newer list replaces it. Clients do not have to wait: a load ends when it has visited all pages. Pages
//! are read from the server's own files ([`coherence::warm`]), so a wrong list costs reads and nothing else. Two clients
//! that put parts at the same time mix their lists.
//!
//! After a restart the server loads the unproven pages in the same way. A client's list has priority, and its progress is
//! shown again afterwards.
//!
//! Memory: [`list::MAX_MEMORY`] for the list being put, and for the one being loaded.
//!
//! Locks: the load and the list being put are leaves, held only briefly.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use coherence::os::Os as _;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};

use crate::intercept::untracked::io_uring_seen;
use crate::platform::{CORE, Linux};
use crate::reports::heat::{FirstPages, files_by_name, off_reason};

pub mod list;
mod load;
mod rate_limiter;
mod rejected;

use list::List;
use load::{CachedShare, LoadCounts, Pass, SkippedFiles};
use rate_limiter::{LoadMonitor, RateLimiter};

/// Interval at which a load checks the clock, the server's reads and the settings.
const TICK: Duration = Duration::from_millis(20);
/// Reads per second of each additional thread.
const READS_PER_THREAD: u64 = 250;
const MAX_THREADS: u64 = 8;
/// Maximum number of passes over a list: staging may have no room.
const MAX_PASSES: u32 = 3;
/// Intervals between counts of the list's cached pages: during a load, and later. Counting takes at most 1/`COUNT_PART` of
/// the time.
const LOADING_COUNT_INTERVAL: Duration = Duration::from_secs(2);
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
const COUNT_PART: u32 = 50;
/// Bytes of a part of a list. The answers of `heat` take less.
const MAX_PART: usize = 4 << 20;
/// Maximum number of files named for a reason.
const MAX_NAMED: usize = 16;
/// Interval of the attempts to load the list after a restart, while its files are closed or a client's list is loaded.
const RELOAD_INTERVAL: Duration = Duration::from_secs(5);
/// Timeout of an unload that waits for threads.
const END_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Loading,
    Loaded,
    Limited,
    Ended,
}

/// The latest list and its progress. Its pace identifies it.
struct Load {
    list: Arc<List>,
    taken: Instant,
    state: State,
    /// The list has pages that were unproven after a restart.
    is_restart: bool,
    limiter: Arc<RateLimiter>,
    percent: f64,
    skipped: u64,
    skipped_files: SkippedFiles,
}

/// Progress of the latest list. `loaded` and `reads` count from the server's start.
#[derive(Serialize)]
pub struct Figures {
    pub state: &'static str,
    pub percent: f64,
    pub age_seconds: u64,
    pub listed: u64,
    pub loaded: u64,
    pub skipped: u64,
    pub reads: u64,
}

pub struct Warming {
    put: Mutex<List>,
    load: Mutex<Option<Load>>,
    busy: Mutex<LoadMonitor>,
    counts: LoadCounts,
    reloading: AtomicBool,
    is_ending: AtomicBool,
    threads: AtomicU64,
    first_pages: FirstPages,
}

impl Load {
    /// Whether a client's list is being loaded, which goes before the list after a restart.
    fn is_client_loading(&self) -> bool {
        self.state == State::Loading && !self.is_restart
    }

    fn end(&mut self) {
        self.limiter.end();
        if self.state == State::Loading {
            self.state = State::Ended;
        }
    }
}

/// Returns the reason if pages cannot be loaded.
fn check() -> Result<(), String> {
    crate::settings::check_installed()?;
    if crate::settings::warm_io_capacity().is_none() {
        return Err(
            "loading is refused on this server: bpe_warm_io_capacity is 0. It limits the reads of the data disk a second that loading \
             makes: SET GLOBAL bpe_warm_io_capacity = 500"
                .into(),
        );
    }
    if let Some(why) = off_reason() {
        return Err(format!("{why}, so nothing can be loaded"));
    }
    if io_uring_seen() {
        return Err(
            "this server writes through io_uring, and the end of such a write cannot be seen, so nothing can be loaded beside it"
                .into(),
        );
    }
    Ok(())
}

impl Warming {
    pub(crate) const fn new() -> Warming {
        Warming {
            put: Mutex::new(List::new()),
            load: Mutex::new(None),
            busy: Mutex::new(LoadMonitor::new()),
            counts: LoadCounts {
                loaded: AtomicU64::new(0),
                reads: AtomicU64::new(0),
            },
            reloading: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            threads: AtomicU64::new(0),
            first_pages: FirstPages::new(),
        }
    }

    /// The answer to an argument of `bpe_report()` that begins with `warm-` or `heat`; `None` for an unknown one.
    pub fn answer(&'static self, argument: &str) -> Option<Value> {
        let result = match argument.split_once(' ').unwrap_or((argument, "")) {
            ("warm-put", part) => self.put(part),
            ("warm-load", seconds) => self.load(Duration::from_secs(seconds.parse().ok()?)),
            ("warm-status", "") => Ok(self.status()),
            _ => return self.first_pages.answer(argument),
        };
        Some(result.unwrap_or_else(|reason| json!({ "error": reason })))
    }

    fn put(&self, part: &str) -> Result<Value, String> {
        if part.len() > MAX_PART {
            return Err(format!("a part of a list takes {MAX_PART} bytes at most"));
        }
        check()?;
        let names = self.put.lock().put(part)?;
        let files = files_by_name();
        let known = names.iter().map(|name| {
            let file = files.get(name)?;
            // The length in pages takes the page size, which may have to be learned.
            let page_size = load::size_of(file, &self.first_pages);
            let (_, pages) = CORE.open_pages(file)?;
            Some(json!({ "page_size": page_size, "pages": pages }))
        });
        Ok(json!({ "files": known.collect::<Vec<_>>() }))
    }

    fn load(&'static self, age: Duration) -> Result<Value, String> {
        let mut put = self.put.lock();
        if put.files.is_empty() {
            drop(put);
            self.end_soon();
            return Ok(json!({ "listed": 0, "pages": 0 }));
        }
        check()?;
        let list = std::mem::replace(&mut *put, List::new());
        drop(put);
        let (list, limiter, before) = self
            .begin(list, age, false)
            .ok_or("another list is loaded")?;
        let listed: u64 = list.listed.iter().sum();
        let answer = json!({ "listed": listed, "pages": list.pages });
        let work = move || {
            if let Some(before) = before.filter(|before| !before.is_restart) {
                load::cool(&before.list, &list);
            }
            self.run(&list, &limiter, false);
            self.watch(&list, &limiter);
        };
        if let Err(error) = self.spawn("bpe-warm", work) {
            self.end_soon();
            return Err(format!("cannot start a thread: {error}"));
        }
        Ok(answer)
    }

    fn status(&self) -> Value {
        let mut status = json!(self.figures());
        let load = self.load.lock();
        let skipped_files = load.iter().flat_map(|load| &load.skipped_files);
        let skipped_files = skipped_files.map(|(reason, names)| {
            let some: Vec<&str> = names.iter().take(MAX_NAMED).map(|name| &**name).collect();
            json!({ "reason": reason, "files": names.len(), "names": some })
        });
        status["left_out"] = skipped_files.collect();
        status
    }

    /// Replaces the previous list and ends its load. The caller runs the new one. `None`: the list is the one after a restart, and a
    /// client's list is being loaded.
    fn begin(
        &self,
        mut list: List,
        age: Duration,
        is_restart: bool,
    ) -> Option<(Arc<List>, Arc<RateLimiter>, Option<Load>)> {
        let skipped_files = load::skip_files(&mut list, &self.first_pages);
        let capacity = CORE
            .switch()
            .active()
            .as_ref()
            .map_or(0, |active| active.extension.statistics().bytes_capacity);
        list.rank(capacity);
        let (list, limiter) = (Arc::new(list), Arc::new(RateLimiter::new()));
        let now = Instant::now();
        let mut current = self.load.lock();
        if is_restart && current.as_ref().is_some_and(Load::is_client_loading) {
            return None;
        }
        let percent = current.as_ref().map_or(0.0, |before| before.percent);
        let mut before = current.replace(Load {
            list: Arc::clone(&list),
            taken: now.checked_sub(age).unwrap_or(now),
            state: State::Loading,
            is_restart,
            limiter: Arc::clone(&limiter),
            percent,
            skipped: 0,
            skipped_files,
        });
        if let Some(before) = &mut before {
            before.end();
        }
        Some((list, limiter, before))
    }

    /// Loads a list until it is complete, replaced or ended.
    fn run(&'static self, list: &Arc<List>, limiter: &Arc<RateLimiter>, is_restart: bool) {
        let mut state = State::Loaded;
        for _ in 0..MAX_PASSES {
            let pass = Arc::new(Pass::new(list, &self.counts));
            self.pass(&pass, list, limiter, is_restart);
            let pages = |pages: &AtomicU64| pages.load(Ordering::SeqCst);
            let skipped = pages(&pass.skipped) + pages(&pass.rejected);
            self.of(limiter, |load| load.skipped = skipped);
            if pass.is_limited.load(Ordering::SeqCst) {
                state = State::Limited;
                break;
            }
            if limiter.has_ended() || pages(&pass.postponed) == 0 {
                break;
            }
        }
        self.count(list, limiter);
        self.of(limiter, |load| {
            if load.state == State::Loading {
                load.state = state;
            }
        });
    }

    /// Counts the cached pages of a list until it is replaced, since they may be evicted again.
    fn watch(&self, list: &List, limiter: &Arc<RateLimiter>) {
        let mut until = Instant::now();
        while self.of(limiter, |_| ()).is_some() && !self.is_ending.load(Ordering::SeqCst) {
            if Instant::now() >= until {
                let took = self.count(list, limiter);
                until = Instant::now() + COUNT_INTERVAL.max(took * COUNT_PART);
            }
            std::thread::sleep(10 * TICK);
        }
    }

    /// Counts the cached pages of a list. Returns the time that it took.
    fn count(&self, list: &List, limiter: &Arc<RateLimiter>) -> Duration {
        let began = Instant::now();
        let percent = CachedShare::count(list).percent();
        self.of(limiter, |load| load.percent = percent);
        began.elapsed()
    }

    /// One pass over a list, in threads whose rate this one sets.
    fn pass(
        &'static self,
        pass: &Arc<Pass>,
        list: &List,
        limiter: &Arc<RateLimiter>,
        is_restart: bool,
    ) {
        let running = Arc::new(AtomicU64::new(0));
        let threads = crate::settings::warm_io_capacity().unwrap_or(0) / READS_PER_THREAD;
        for _ in 0..threads.clamp(1, MAX_THREADS) {
            let (pass, limiter, running_too) =
                (Arc::clone(pass), Arc::clone(limiter), Arc::clone(&running));
            running.fetch_add(1, Ordering::SeqCst);
            let work = move || {
                pass.work(&limiter);
                running_too.fetch_sub(1, Ordering::SeqCst);
            };
            if self.spawn("bpe-warm-read", work).is_err() {
                running.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let (mut last, mut counts) = (Instant::now(), Instant::now());
        while running.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(TICK);
            let now = Instant::now();
            let Some(capacity) = crate::settings::warm_io_capacity() else {
                if !limiter.has_ended() {
                    Linux.note("loading of pages ends: bpe_warm_io_capacity is 0");
                    self.of(limiter, Load::end);
                }
                continue;
            };
            if now >= counts {
                let took = self.count(list, limiter);
                counts = now + LOADING_COUNT_INTERVAL.max(took * COUNT_PART);
            }
            let guard = CORE.switch().active();
            let reads = guard.as_ref().map(|active| active.data_reads.snapshot());
            drop(guard);
            let (reads, nanos) = reads.map_or((0, 0), |reads| (reads.count, reads.sum_nanos));
            // After a restart the server makes many reads, because the pages are missing.
            let limit = if is_restart { u64::MAX } else { capacity };
            let is_busy = self.busy.lock().sample(now, reads, nanos, limit);
            let rests = is_busy || !CORE.files.is_settled();
            limiter.rest(rests);
            if !rests {
                limiter.grant(capacity, now - last);
            }
            last = now;
        }
    }

    /// Changes the load of this pace, unless another one has replaced it.
    fn of<T>(&self, limiter: &Arc<RateLimiter>, change: impl FnOnce(&mut Load) -> T) -> Option<T> {
        let mut load = self.load.lock();
        let load = load
            .as_mut()
            .filter(|load| Arc::ptr_eq(&load.limiter, limiter));
        load.map(change)
    }

    /// Loads the pages of files that were not proven after a restart, in a thread. The controller calls this at intervals.
    pub fn reload_rejected(&'static self) {
        if CORE.switch().active().is_none()
            || CORE.files.recoveries.is_withheld()
            || !CORE.files.recoveries.has_unlisted()
            || self.reloading.swap(true, Ordering::SeqCst)
        {
            return;
        }
        let work = || {
            self.reload();
            self.reloading.store(false, Ordering::SeqCst);
        };
        if self.spawn("bpe-warm-list", work).is_err() {
            self.reloading.store(false, Ordering::SeqCst);
        }
    }

    /// Lists rejected files, and loads their pages when they are open, until none is left. InnoDB opens a file, closes it,
    /// and reopens it when it needs pages.
    fn reload(&'static self) {
        let mut list = List::new();
        loop {
            let recoveries = &CORE.files.recoveries;
            recoveries.take_unlisted(|files| rejected::list(files, &mut list));
            if list.files.is_empty() {
                return;
            }
            // A look before the list is copied; `begin` decides.
            let is_first = self
                .load
                .lock()
                .as_ref()
                .is_some_and(Load::is_client_loading);
            if check().is_ok() && !is_first && self.reload_open(&mut list) {
                continue;
            }
            let until = Instant::now() + RELOAD_INTERVAL;
            while Instant::now() < until && !CORE.files.recoveries.has_unlisted() {
                if self.is_ending.load(Ordering::SeqCst) {
                    return;
                }
                std::thread::sleep(TICK);
            }
        }
    }

    /// Loads the open files of a list, removes them from it, and restores the client's previous load: the list after a
    /// restart does not describe the later working set. `false`: no file is open, or a client's list came first.
    fn reload_open(&'static self, list: &mut List) -> bool {
        let files = files_by_name();
        let mut open = list.clone();
        open.retain(|name, _| {
            let file = files.get(&**name);
            file.is_some_and(|file| CORE.files.descriptor_of(file).is_some())
        });
        if open.files.is_empty() {
            return false;
        }
        let names: BTreeSet<_> = open.files.keys().cloned().collect();
        let Some((open, limiter, before)) = self.begin(open, Duration::ZERO, true) else {
            return false;
        };
        let pages: u64 = open.listed.iter().sum();
        Linux.note(&format!(
            "{pages} pages that were not proven after the restart are loaded from the data files"
        ));
        self.run(&open, &limiter, true);
        let mut load = self.load.lock();
        if limiter.has_ended() {
            return false;
        }
        let client = before.as_ref();
        let client = client.map(|load| (Arc::clone(&load.list), Arc::clone(&load.limiter)));
        *load = before;
        drop(load);
        if let Some((list, limiter)) = client {
            let _ = self.spawn("bpe-warm", move || self.watch(&list, &limiter));
        }
        list.retain(|name, _| !names.contains(name));
        let loaded = self.counts.loaded.load(Ordering::SeqCst);
        Linux.note(&format!(
            "the pages that were not proven after the restart are loaded again: {loaded} pages"
        ));
        true
    }

    /// Progress of the latest list.
    pub fn figures(&self) -> Figures {
        let is_off = CORE.switch().active().is_none();
        let load = self.load.lock();
        let load = load.as_ref();
        Figures {
            state: load.map_or("none", |load| match load.state {
                State::Loading if load.limiter.is_paused() => "paused",
                State::Loading => "loading",
                State::Loaded => "loaded",
                State::Limited => "limited",
                State::Ended => "ended",
            }),
            percent: load.map_or(-1.0, |load| if is_off { 0.0 } else { load.percent }),
            age_seconds: load.map_or(0, |load| load.taken.elapsed().as_secs()),
            listed: load.map_or(0, |load| load.list.listed.iter().sum()),
            loaded: self.counts.loaded.load(Ordering::SeqCst),
            skipped: load.map_or(0, |load| load.skipped),
            reads: self.counts.reads.load(Ordering::SeqCst),
        }
    }

    /// Memory of the lists, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let loaded = self
            .load
            .lock()
            .as_ref()
            .map_or(0, |load| load.list.memory());
        (loaded + self.put.lock().memory()) as u64
    }

    /// Ends loading without waiting for threads. The list and the loaded pages stay.
    pub fn end_soon(&self) {
        if let Some(load) = &mut *self.load.lock() {
            load.end();
        }
    }

    /// The plugin is being unloaded.
    pub fn end(&self) {
        self.is_ending.store(true, Ordering::SeqCst);
        self.end_soon();
        let until = Instant::now() + END_TIMEOUT;
        while self.threads.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        *self.load.lock() = None;
        *self.put.lock() = List::new();
        self.first_pages.forget();
        self.is_ending.store(false, Ordering::SeqCst);
    }

    fn spawn(
        &'static self,
        name: &str,
        body: impl FnOnce() + Send + 'static,
    ) -> std::io::Result<()> {
        self.threads.fetch_add(1, Ordering::SeqCst);
        let started = Linux.spawn(name, move || {
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            self.threads.fetch_sub(1, Ordering::SeqCst);
        });
        if started.is_err() {
            self.threads.fetch_sub(1, Ordering::SeqCst);
        }
        started.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_a_bound() {
        let refusal = |bytes| Warming::new().put(&"x".repeat(bytes)).unwrap_err();
        assert_eq!(
            refusal(MAX_PART + 1),
            "a part of a list takes 4194304 bytes at most"
        );
        assert!(!refusal(MAX_PART).contains("at most"));
    }
}
