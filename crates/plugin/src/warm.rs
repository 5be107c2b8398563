//! Loads a heat list into the cache, through `bpe_report()`:
//!
//! | argument | effect; the answer is a JSON object |
//! |---|---|
//! | `warm-put PART` | adds a part of a list: what `heat` answers ([`crate::heat`]). The first part (`"first": true`) drops the parts that were put before and not loaded. The answer has what this server knows of each file: `open`, `page_size`, `pages`, `space`, `flags`; a file without `list` is only asked about |
//! | `warm-load SECONDS` | the list is complete and so many seconds old: the server loads it. Nothing was put: loading ends |
//! | `warm-status` | `state`, `percent`, `age_seconds`, `listed`, `loaded`, `skipped`, `reads`, and the files that are left out with reasons |
//!
//! An answer with `error` says why nothing was done. The arguments need the right to `SET GLOBAL`.
//!
//! One list is loaded at a time, hottest pages first, with at most `bpe_warm_io_capacity` reads of the data disk a second; 0 ends loading. A
//! newer list replaces it. No client has to wait for it: it ends when all pages were looked at. The pages are read from the server's own
//! files ([`coherence::warm`]), so a wrong list costs reads and nothing else. Two clients that put at the same time mix their lists.
//!
//! After a restart the server loads the pages that were not proven in the same way. A client's list goes first.
//!
//! Memory: [`list::MAX_MEMORY`] for the list that is put, and for the one that is loaded.
//!
//! Locks: the load, then the reload after a restart; the list that is put is a leaf. All are held for moments only.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::heat::{Heads, files_by_name, io_capacity, reason_off};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::{CORE, KNOWN};

pub mod list;
mod load;
mod pace;
mod rejected;

use list::{List, Part};
use load::{Brought, Pass, Present, Unfit};
use pace::{Busy, Pace};

/// How often a load looks at the clock, the server's reads and the settings.
const TICK: Duration = Duration::from_millis(20);
/// One more thread for each so many reads a second.
const READS_PER_THREAD: u64 = 250;
const MAX_THREADS: u64 = 8;
/// Passes over a list: staging may have no room, or pages may be written meanwhile.
const MAX_PASSES: u32 = 3;
/// How often cached pages are counted: while loading, and else.
const LOADING_COUNT_INTERVAL: Duration = Duration::from_secs(2);
const COUNT_INTERVAL: Duration = Duration::from_secs(10);
/// Counting takes at most one part in so many of the time.
const COUNT_PART: u32 = 20;
/// How often the closed files of the list after a restart are looked at.
const CLOSED_INTERVAL: Duration = Duration::from_secs(5);
/// How long an unload waits for threads.
const END_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Loading,
    Loaded,
    Limited,
    Ended,
}

/// The list that was loaded last, and its progress. Its pace identifies it.
struct Load {
    list: Arc<List>,
    taken: Instant,
    state: State,
    /// The list is of pages that were not proven after a restart.
    is_restart: bool,
    pace: Arc<Pace>,
    present: Option<Present>,
    counted: Option<Instant>,
    count_took: Duration,
    skipped: u64,
    unfit: Vec<(Arc<str>, Unfit)>,
    unfit_files: u64,
}

/// Progress, for people.
pub struct Figures {
    pub state: &'static str,
    pub percent: f64,
    pub age_seconds: u64,
    pub listed: u64,
    pub loaded: u64,
    pub skipped: u64,
    pub reads: u64,
}

/// Pages of files that were not proven after a restart.
struct Reload {
    list: List,
    /// They are to be loaded when no other list is.
    is_due: bool,
    /// A thread adds to the list.
    is_listing: bool,
    /// When none of its files was open.
    closed_since: Option<Instant>,
}

pub struct Warming {
    put: Mutex<List>,
    load: Mutex<Option<Load>>,
    reload: Mutex<Reload>,
    busy: Mutex<Busy>,
    brought: Brought,
    counting: AtomicBool,
    threads: AtomicU64,
    heads: Heads,
}

impl Load {
    fn end(&mut self) {
        self.pace.end();
        if self.state == State::Loading {
            self.state = State::Ended;
        }
    }
}

/// Says why pages cannot be loaded.
fn check() -> Result<(), String> {
    crate::settings::check_installed()?;
    if io_capacity().is_none() {
        return Err(
            "loading is refused on this server: bpe_warm_io_capacity is 0. It limits the reads of the data disk a second that loading \
             makes: SET GLOBAL bpe_warm_io_capacity = 500"
                .into(),
        );
    }
    if let Some(why) = reason_off() {
        return Err(format!("{why}, so nothing can be loaded"));
    }
    if KNOWN.uses_io_uring.load(Ordering::SeqCst) {
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
            reload: Mutex::new(Reload {
                list: List::new(),
                is_due: false,
                is_listing: false,
                closed_since: None,
            }),
            busy: Mutex::new(Busy::new()),
            brought: Brought {
                loaded: AtomicU64::new(0),
                reads: AtomicU64::new(0),
            },
            counting: AtomicBool::new(false),
            threads: AtomicU64::new(0),
            heads: Heads::new(),
        }
    }

    /// The answer to an argument of `bpe_report()` that begins with `warm-` or `heat`; `None` for an unknown one.
    pub fn answer(&'static self, argument: &str) -> Option<Value> {
        let result = match argument.split_once(' ').unwrap_or((argument, "")) {
            ("warm-put", part) => self.put(part),
            ("warm-load", seconds) => self.load(Duration::from_secs(seconds.parse().ok()?)),
            ("warm-status", "") => Ok(self.status()),
            _ => return self.heads.answer(argument),
        };
        Some(result.unwrap_or_else(|reason| json!({ "error": reason })))
    }

    fn put(&self, part: &str) -> Result<Value, String> {
        check()?;
        let part = Part::parse(part)?;
        let names: Vec<String> = part.files.iter().map(|(name, _)| name.clone()).collect();
        self.put.lock().put(part)?;
        let files = files_by_name();
        let known = names.iter().map(|name| {
            let file = files.get(name)?;
            let page_size = load::size_of(file, &self.heads);
            let head = self.heads.of(file);
            Some(json!({
                "open": CORE.files.descriptor_of(file).is_some(),
                "page_size": page_size,
                "pages": CORE.open_pages(file).map(|(_, pages)| pages),
                "space": head.map(|head| head.space),
                "flags": head.map(|head| head.flags),
            }))
        });
        Ok(json!({ "files": known.collect::<Vec<_>>() }))
    }

    fn load(&'static self, age: Duration) -> Result<Value, String> {
        let list = std::mem::replace(&mut *self.put.lock(), List::new());
        if list.files.is_empty() {
            self.end_soon();
            return Ok(json!({ "listed": 0 }));
        }
        check()?;
        let listed = self.begin(list, age, false)?;
        Ok(json!({ "listed": listed }))
    }

    fn status(&'static self) -> Value {
        let figures = self.figures();
        let load = self.load.lock();
        let unfit = load.iter().flat_map(|load| &load.unfit);
        let unfit = unfit.map(|(name, why)| json!({ "file": &**name, "reason": why.text() }));
        json!({
            "state": figures.state,
            "percent": figures.percent,
            "age_seconds": figures.age_seconds,
            "listed": figures.listed,
            "loaded": figures.loaded,
            "skipped": figures.skipped,
            "reads": figures.reads,
            "files_left_out": load.as_ref().map_or(0, |load| load.unfit_files),
            "left_out": unfit.collect::<Vec<_>>(),
        })
    }

    /// Loads a list, in the place of the one before. Returns the pages to load.
    fn begin(
        &'static self,
        mut list: List,
        age: Duration,
        is_restart: bool,
    ) -> Result<u64, String> {
        let capacity = CORE
            .switch()
            .active()
            .as_ref()
            .map_or(0, |active| active.extension.statistics().bytes_capacity);
        list.rank(capacity);
        let (list, pace) = (Arc::new(list), Arc::new(Pace::new()));
        let listed = list.listed.iter().sum();
        let now = Instant::now();
        let mut current = self.load.lock();
        let load = Load {
            list: Arc::clone(&list),
            taken: now.checked_sub(age).unwrap_or(now),
            state: State::Loading,
            is_restart,
            pace: Arc::clone(&pace),
            present: current.as_ref().and_then(|before| before.present),
            counted: None,
            count_took: Duration::ZERO,
            skipped: 0,
            unfit: Vec::new(),
            unfit_files: 0,
        };
        let mut before = current.replace(load);
        if let Some(before) = &mut before {
            if before.is_restart && before.state == State::Loading {
                self.reload.lock().is_due = true;
            }
            before.end();
        }
        let work = move || match is_restart {
            true => self.run_restart(&list, &pace, before),
            false => {
                if let Some(before) = before.filter(|before| !before.is_restart) {
                    load::cool(&before.list, &list);
                }
                self.run(&list, &pace, false);
            }
        };
        if let Err(error) = self.spawn("bpe-warm", work) {
            *current = None;
            return Err(format!("cannot start a thread: {error}"));
        }
        Ok(listed)
    }

    /// Loads a list until it is complete, replaced or ended.
    fn run(&'static self, list: &Arc<List>, pace: &Arc<Pace>, is_restart: bool) {
        let mut state = State::Loaded;
        for _ in 0..MAX_PASSES {
            let pass = Arc::new(Pass::new(list, &self.heads, &self.brought));
            self.pass(&pass, pace, is_restart);
            self.of(pace, |load| {
                let skipped = [&pass.skipped, &pass.rejected];
                load.skipped = skipped
                    .map(|pages| pages.load(Ordering::SeqCst))
                    .iter()
                    .sum();
                load.unfit.clone_from(&pass.unfit);
                load.unfit_files = pass.unfit_files;
            });
            if pass.is_limited.load(Ordering::SeqCst) {
                state = State::Limited;
                break;
            }
            if pace.is_over() || pass.postponed.load(Ordering::SeqCst) == 0 {
                break;
            }
        }
        self.count();
        self.of(pace, |load| {
            if load.state == State::Loading {
                load.state = state;
            }
        });
    }

    /// One pass over a list, in threads whose rate this one sets.
    fn pass(&'static self, pass: &Arc<Pass>, pace: &Arc<Pace>, is_restart: bool) {
        let running = Arc::new(AtomicU64::new(0));
        let threads = io_capacity().unwrap_or(0) / READS_PER_THREAD;
        for _ in 0..threads.clamp(1, MAX_THREADS) {
            let (pass, pace, running_too) =
                (Arc::clone(pass), Arc::clone(pace), Arc::clone(&running));
            running.fetch_add(1, Ordering::SeqCst);
            let work = move || {
                pass.work(&pace);
                running_too.fetch_sub(1, Ordering::SeqCst);
            };
            if self.spawn("bpe-warm-read", work).is_err() {
                running.fetch_sub(1, Ordering::SeqCst);
            }
        }
        let mut last = Instant::now();
        while running.load(Ordering::SeqCst) > 0 {
            std::thread::sleep(TICK);
            let now = Instant::now();
            let Some(capacity) = io_capacity() else {
                if !pace.is_over() {
                    Linux.note("loading of pages ends: bpe_warm_io_capacity is 0");
                    self.of(pace, Load::end);
                }
                continue;
            };
            let guard = CORE.switch().active();
            let reads = guard.as_ref().map(|active| active.data_reads.snapshot());
            drop(guard);
            let (reads, nanos) = reads.map_or((0, 0), |reads| (reads.count, reads.sum_nanos));
            // After a restart the server has many reads of its own because the pages are missing.
            let limit = if is_restart { u64::MAX } else { capacity };
            let is_busy = self.busy.lock().look(now, reads, nanos, limit);
            let rests = is_busy || !CORE.files.is_settled();
            pace.rest(rests);
            if !rests {
                pace.grant(capacity, now - last);
            }
            last = now;
        }
    }

    /// Changes the load of this pace, unless another one has replaced it.
    fn of<T>(&self, pace: &Arc<Pace>, change: impl FnOnce(&mut Load) -> T) -> Option<T> {
        let mut load = self.load.lock();
        let load = load.as_mut().filter(|load| Arc::ptr_eq(&load.pace, pace));
        load.map(change)
    }

    /// Loads the pages of a restart, then puts the client's load of before back: the list after a restart says nothing of the working set
    /// later on.
    fn run_restart(&'static self, list: &Arc<List>, pace: &Arc<Pace>, before: Option<Load>) {
        self.run(list, pace, true);
        let mut load = self.load.lock();
        if pace.is_over() {
            return;
        }
        *load = before;
        let mut reload = self.reload.lock();
        reload.list.retain(|name| !list.files.contains_key(name));
        reload.is_due = !reload.list.files.is_empty();
        let loaded = self.brought.loaded.load(Ordering::SeqCst);
        Linux.note(&format!(
            "the pages that were not proven after the restart are loaded again: {loaded} pages"
        ));
    }

    /// Lists the pages of files that were not proven after a restart, and loads them. The controller calls this at intervals.
    pub fn reload_rejected(&'static self) {
        if CORE.switch().active().is_none() || crate::persist::is_withheld() {
            return;
        }
        if CORE.files.recoveries.has_unlisted() {
            self.list_rejected();
            return;
        }
        let is_loading = |load: &Load| load.state == State::Loading;
        if io_capacity().is_none() || self.load.lock().as_ref().is_some_and(is_loading) {
            return;
        }
        let mut list = {
            let reload = self.reload.lock();
            let since = reload.closed_since;
            if !reload.is_due || since.is_some_and(|since| since.elapsed() < CLOSED_INTERVAL) {
                return;
            }
            reload.list.clone()
        };
        // InnoDB opens a file, closes it and opens it again when it needs pages. The pages of a closed file wait.
        let files = files_by_name();
        list.retain(|name| {
            let file = files.get(name);
            file.is_some_and(|file| CORE.files.descriptor_of(file).is_some())
        });
        if list.files.is_empty() {
            self.reload.lock().closed_since = Some(Instant::now());
            return;
        }
        self.reload.lock().is_due = false;
        match self.begin(list, Duration::ZERO, true) {
            Ok(pages) => Linux.note(&format!(
                "{pages} pages that were not proven after the restart are loaded from the data files"
            )),
            Err(_) => self.reload.lock().is_due = true,
        }
    }

    /// Adds the cached pages of rejected files to the list, in a thread: they may be many.
    fn list_rejected(&'static self) {
        let mut reload = self.reload.lock();
        if std::mem::replace(&mut reload.is_listing, true) {
            return;
        }
        let add = move || {
            let files = CORE.files.recoveries.take_unlisted();
            let mut list = std::mem::replace(&mut self.reload.lock().list, List::new());
            let listed = rejected::list(&files, &mut list);
            let mut reload = self.reload.lock();
            reload.is_due |= !list.files.is_empty();
            if listed > 0 {
                reload.closed_since = None;
            }
            reload.list = list;
            reload.is_listing = false;
        };
        if self.spawn("bpe-warm-list", add).is_err() {
            reload.is_listing = false;
        }
    }

    /// Counts the cached pages of the list.
    fn count(&self) {
        let began = Instant::now();
        let of = |load: &Load| (Arc::clone(&load.list), Arc::clone(&load.pace));
        let current = self.load.lock().as_ref().map(of);
        let Some((list, pace)) = current else {
            return;
        };
        let present = Present::count(&list);
        self.of(&pace, |load| {
            load.present = Some(present);
            load.counted = Some(Instant::now());
            load.count_took = began.elapsed();
        });
    }

    /// Counts in a thread of its own if the last count is old.
    fn count_if_old(&'static self) {
        let is_old = |load: &Load| {
            let interval = match load.state {
                State::Loading => LOADING_COUNT_INTERVAL,
                _ => COUNT_INTERVAL,
            };
            let interval = interval.max(load.count_took * COUNT_PART);
            load.counted
                .is_none_or(|counted| counted.elapsed() >= interval)
        };
        let is_due = self.load.lock().as_ref().is_some_and(is_old);
        if is_due && !self.counting.swap(true, Ordering::SeqCst) {
            let count = || {
                self.count();
                self.counting.store(false, Ordering::SeqCst);
            };
            if self.spawn("bpe-warm-count", count).is_err() {
                self.counting.store(false, Ordering::SeqCst);
            }
        }
    }

    /// The progress of the list that was loaded last.
    pub fn figures(&'static self) -> Figures {
        self.count_if_old();
        let is_off = CORE.switch().active().is_none();
        let load = self.load.lock();
        let load = load.as_ref();
        Figures {
            state: load.map_or("none", |load| match load.state {
                State::Loading if load.pace.is_paused() => "paused",
                State::Loading => "loading",
                State::Loaded => "loaded",
                State::Limited => "limited",
                State::Ended => "ended",
            }),
            percent: load.map_or(-1.0, |load| match load.present {
                Some(present) if !is_off => present.percent(),
                _ => 0.0,
            }),
            age_seconds: load.map_or(0, |load| load.taken.elapsed().as_secs()),
            listed: load.map_or(0, |load| load.list.listed.iter().sum()),
            loaded: self.brought.loaded.load(Ordering::SeqCst),
            skipped: load.map_or(0, |load| load.skipped),
            reads: self.brought.reads.load(Ordering::SeqCst),
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

    /// Ends loading without waiting for threads. The list stays, and what was loaded.
    pub fn end_soon(&self) {
        if let Some(load) = &mut *self.load.lock() {
            load.end();
        }
    }

    /// The plugin is being unloaded.
    pub fn end(&self) {
        self.end_soon();
        let until = Instant::now() + END_TIMEOUT;
        while self.threads.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        *self.load.lock() = None;
        *self.put.lock() = List::new();
        let mut reload = self.reload.lock();
        (reload.list, reload.is_due) = (List::new(), false);
        self.heads.forget();
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
