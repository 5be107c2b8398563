//! Loads what another server has cached, for `bpe warm`, through `bpe_report()`:
//!
//! | argument | answer, a JSON object |
//! |---|---|
//! | `warm-start` | begins a warming; `warming` is its name |
//! | `warm-files NAME NAMES` | what this server knows of files, a JSON array of names: `open`, `page_size`, `pages`, `space`, `flags` |
//! | `warm-prints NAME SECRET FILES` | as `heat-prints` ([`crate::heat`]), and of pages that are not cached |
//! | `warm-put NAME GRANULES` | takes a part of the list, in the place of what was there of it: `[{file, page_size, granule, list}, ...]` |
//! | `warm-go NAME SECONDS` | the list is whole, and so many seconds old: what is not cached of it is loaded |
//! | `warm-next NAME [PERCENT]` | how far it is, and says that the client is still there; of `bpe_warm_io_capacity` it may use so much until the next one |
//! | `warm-stop NAME` | ends it; the list stays, and what was loaded |
//!
//! `error` stands in an answer when something could not be done.
//!
//! An account that may `SET GLOBAL` can bring about no more than this: one warming at a time, [`list::MOST_MEMORY`] twice, as many reads of the data
//! disk in a second as `bpe_warm_io_capacity` says (none by default), and an end by itself [`LEASE`] after the client was last heard of.
//!
//! Pages are read from the server's own files ([`coherence::warm`]). What another server says decides which of them, and nothing else.
//!
//! Locks: the session, then the list; both are held for moments only, and nothing but leaves is taken under them.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::heat::{Heads, Prints, io_capacity};
use crate::linux::Linux;
use crate::os::Os as _;
use crate::process::{CORE, KNOWN};

pub mod list;
mod load;
mod pace;
mod rejected;

use list::List;
use load::{Brought, Pass, Present, Unfit};
use pace::{Busy, Pace};

/// A warming ends by itself when nobody has asked for it for this long.
pub const LEASE: Duration = Duration::from_secs(15);
/// Between two looks at the clock, the server's reads and the settings.
const TICK: Duration = Duration::from_millis(20);
/// Reads in a second for which another thread is started, and threads at most.
const READS_A_THREAD: u64 = 250;
const MOST_THREADS: u64 = 8;
/// Passes over a list in which staging had no room, or pages were written meanwhile.
const MOST_PASSES: u32 = 3;
/// Between two counts of what is cached: while pages are loaded, and else.
const COUNT_EVERY: Duration = Duration::from_secs(2);
const COUNT_SELDOM: Duration = Duration::from_secs(10);
/// A count may take this part of the time.
const COUNT_PART: u32 = 20;
/// The name of the warming that loads the pages of files that were not proven after a restart. No client has it.
const RESTART: &str = "restart";
/// How often the closed files of that list are looked for.
const CLOSED_INTERVAL: Duration = Duration::from_secs(5);
/// How long an unload waits for threads.
const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    None,
    Receiving,
    Loading,
    Loaded,
    Limited,
    Ended,
}

struct Session {
    name: String,
    heard_of: Instant,
    /// What was put in since the last `warm-go`.
    next: List,
    /// The list that is to be loaded, until the thread takes it, and the one before.
    due: Option<(Arc<List>, Arc<List>)>,
    /// The thread is about to begin a pass, or counts what one has brought.
    prepares: bool,
    pass: Option<Arc<Pass>>,
    pace: Arc<Pace>,
    /// What the client lets loading use of `bpe_warm_io_capacity`.
    percent: u64,
}

/// The list that was handed over last, and what has become of it.
#[derive(Default)]
struct Known {
    list: Arc<List>,
    taken: Option<Instant>,
    present: Option<Present>,
    counted: Option<Instant>,
    took: Duration,
    unfit: Vec<(Arc<str>, Unfit)>,
    unfit_files: u64,
}

/// Figures for people.
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
#[derive(Default)]
struct Reload {
    list: List,
    /// They are to be loaded as soon as no other warming is under way.
    is_due: bool,
    /// A thread adds to the list.
    is_listing: bool,
    /// When none of its files was open.
    closed_since: Option<Instant>,
}

pub struct Warming {
    session: Mutex<Option<Session>>,
    reload: Mutex<Option<Reload>>,
    known: Mutex<Option<Known>>,
    state: Mutex<State>,
    brought: Brought,
    skipped: AtomicU64,
    counting: AtomicBool,
    threads: AtomicU64,
    heads: Heads,
    prints: Prints,
}

impl Session {
    /// Whether a pass is under way and leaves the disk to the server.
    fn rests(&self) -> bool {
        self.pass.is_some() && self.pace.paused.load(Ordering::SeqCst)
    }
}

fn named<'a>(session: &'a mut Option<Session>, name: &str) -> Result<&'a mut Session, String> {
    let session = session.as_mut().filter(|session| session.name == name);
    session.ok_or_else(|| {
        format!(
            "there is no such warming: it has ended, or was not asked for during {} seconds",
            LEASE.as_secs()
        )
    })
}

fn off() -> Option<String> {
    if CORE.switch().active().is_some() {
        return None;
    }
    let (state, reason) = crate::controller::state();
    Some(if reason.is_empty() {
        format!("the extension is {}", state.name())
    } else {
        format!("the extension is {}: {reason}", state.name())
    })
}

const REFUSED: &str = "loading is refused on this server: bpe_warm_io_capacity is 0. It says how many reads of the data disk loading may \
                       make in a second: SET GLOBAL bpe_warm_io_capacity = 500";

impl Warming {
    pub(crate) const fn new() -> Warming {
        Warming {
            session: Mutex::new(None),
            reload: Mutex::new(None),
            known: Mutex::new(None),
            state: Mutex::new(State::None),
            brought: Brought {
                loaded: AtomicU64::new(0),
                reads: AtomicU64::new(0),
            },
            skipped: AtomicU64::new(0),
            counting: AtomicBool::new(false),
            threads: AtomicU64::new(0),
            heads: Heads::new(),
            prints: Prints::new(),
        }
    }

    /// The answer to an argument of `bpe_report()` that begins with `warm-` or `heat`; `None` for one that is not known.
    pub fn answer(&'static self, argument: &str) -> Option<Value> {
        if let Some(asked) = argument.strip_prefix("heat-prints ") {
            let result = self.prints.of_cached(asked)?;
            return Some(result.unwrap_or_else(|reason| json!({ "error": reason })));
        }
        if argument.starts_with("heat") {
            return self.heads.answer(argument);
        }
        let (what, rest) = argument
            .strip_prefix("warm-")?
            .split_once(' ')
            .unwrap_or((argument.strip_prefix("warm-")?, ""));
        let (name, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let result = match (what, name, rest) {
            ("start", "", "") => self.start(),
            ("files", name, names) if !names.is_empty() => self.files(name, names),
            ("prints", name, asked) if !asked.is_empty() => match self.hear(name) {
                Ok(()) => self.prints.of_all(asked)?,
                Err(why) => Err(why),
            },
            ("put", name, granules) if !granules.is_empty() => self.put(name, granules),
            ("go", name, seconds) => self.go(name, seconds.parse().ok()?),
            ("next", name, "") if !name.is_empty() => self.next(name, 100),
            ("next", name, percent) if !name.is_empty() => self.next(name, percent.parse().ok()?),
            ("stop", name, "") if !name.is_empty() => self.stop_named(name),
            _ => return None,
        };
        Some(result.unwrap_or_else(|reason| json!({ "error": reason })))
    }

    fn start(&'static self) -> Result<Value, String> {
        crate::settings::check_installed()?;
        let capacity = io_capacity().ok_or(REFUSED)?;
        if let Some(why) = off() {
            return Err(format!("{why}, so nothing can be loaded"));
        }
        if KNOWN.uses_io_uring.load(Ordering::SeqCst) {
            return Err(
                "this server writes through io_uring, and nobody sees when such a write ends, so nothing can be loaded beside it".into(),
            );
        }
        let name = format!("{:016x}", RandomState::new().hash_one(Instant::now()));
        self.begin_session(&name)?;
        *self.state.lock() = State::Receiving;
        Linux.note("pages that another server has cached are going to be loaded");
        let statistics = CORE
            .switch()
            .active()
            .as_ref()
            .map(|active| active.extension.statistics());
        let statistics = statistics.unwrap_or_default();
        Ok(json!({
            "warming": name,
            "lease_seconds": LEASE.as_secs(),
            "io_capacity": capacity,
            "bytes_capacity": statistics.bytes_capacity,
            "pages_cached": statistics.pages_cached,
        }))
    }

    /// A client's warming takes the place of the one after a restart, which goes on afterwards.
    fn begin_session(&'static self, name: &str) -> Result<(), String> {
        let mut session = self.session.lock();
        if session.as_ref().is_some_and(|other| other.name == RESTART) {
            self.end_session(&mut session);
            self.reload.lock().get_or_insert_default().is_due = true;
        }
        if session.is_some() {
            return Err("another warming is under way on this server".into());
        }
        let pace = Arc::new(Pace::new());
        *session = Some(Session {
            name: name.to_owned(),
            heard_of: Instant::now(),
            next: List::default(),
            due: None,
            prepares: false,
            pass: None,
            pace: Arc::clone(&pace),
            percent: 100,
        });
        let watched = name.to_owned();
        if let Err(error) = self.spawn("bpe-warm", move || self.watch(&watched, &pace)) {
            *session = None;
            return Err(format!("cannot start a thread: {error}"));
        }
        Ok(())
    }

    /// Lists the pages of files that were not proven after a restart, and loads them. To be called now and then.
    pub fn reload_rejected(&'static self) {
        if CORE.switch().active().is_none() || crate::persist::is_withheld() {
            return;
        }
        if CORE.files.recoveries.has_unlisted() {
            let mut reload = self.reload.lock();
            let reload = reload.get_or_insert_default();
            if std::mem::replace(&mut reload.is_listing, true) {
                return;
            }
            let add = move || {
                let files = CORE.files.recoveries.take_unlisted();
                let mut list = List::default();
                std::mem::swap(
                    &mut list,
                    &mut self.reload.lock().get_or_insert_default().list,
                );
                let listed = rejected::list(&files, &mut list);
                let mut reload = self.reload.lock();
                let reload = reload.get_or_insert_default();
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
            return;
        }
        let list = {
            let reload = self.reload.lock();
            let is_old = |since: Instant| since.elapsed() >= CLOSED_INTERVAL;
            let due = reload.as_ref().filter(|reload| {
                let is_wanted = reload.closed_since.is_none_or(is_old);
                reload.is_due && is_wanted
            });
            due.map(|reload| reload.list.clone())
        };
        let Some(list) = list.filter(|_| io_capacity().is_some()) else {
            return;
        };
        // InnoDB opens a file, closes it and opens it again when it needs pages. Those of a closed file wait.
        let files = crate::heat::files_by_name();
        let is_open = |name: &str| {
            let file = files.get(name);
            file.is_some_and(|file| CORE.files.descriptor_of(file).is_some())
        };
        if !list.files.keys().any(|name| is_open(name)) {
            self.reload.lock().get_or_insert_default().closed_since = Some(Instant::now());
            return;
        }
        let list = Arc::new(list.only(is_open));
        let is_under_way = self
            .session
            .lock()
            .as_ref()
            .is_some_and(|session| session.name == RESTART);
        if !is_under_way && self.begin_session(RESTART).is_err() {
            return;
        }
        self.reload.lock().get_or_insert_default().is_due = false;
        let pages: u64 = list.counts().iter().sum();
        Linux.note(&format!(
            "{pages} pages that were not proven after the restart are loaded from the data files"
        ));
        self.load(RESTART, list, 0);
    }

    /// The list of a warming is whole, and so many seconds old.
    fn load(&self, name: &str, list: Arc<List>, seconds: u64) {
        let mut session = self.session.lock();
        let Ok(session) = named(&mut session, name) else {
            return;
        };
        let mut known = self.known.lock();
        let before = known.take().unwrap_or_default();
        session.due = Some((Arc::clone(&list), before.list));
        let now = Instant::now();
        *known = Some(Known {
            list,
            taken: now.checked_sub(Duration::from_secs(seconds)).or(Some(now)),
            present: before.present,
            ..Known::default()
        });
        drop(known);
        *self.state.lock() = State::Loading;
    }

    fn files(&self, name: &str, names: &str) -> Result<Value, String> {
        self.hear(name)?;
        let names: Vec<String> = serde_json::from_str(names)
            .map_err(|error| format!("what was asked cannot be understood: {error}"))?;
        let files = crate::heat::files_by_name();
        let told = names.iter().take(1024).map(|name| {
            let file = files.get(name)?;
            let page_size = load::size_of(file, &self.heads);
            let open = CORE.open_pages(file);
            let head = self.heads.of(file);
            Some(json!({
                "open": CORE.files.descriptor_of(file).is_some(),
                "page_size": page_size,
                "pages": open.map(|(_, pages)| pages),
                "space": head.map(|head| head.space),
                "flags": head.map(|head| head.flags),
            }))
        });
        Ok(json!({ "files": told.collect::<Vec<_>>() }))
    }

    fn hear(&self, name: &str) -> Result<(), String> {
        let mut session = self.session.lock();
        named(&mut session, name)?.heard_of = Instant::now();
        Ok(())
    }

    fn put(&self, name: &str, granules: &str) -> Result<Value, String> {
        let mut session = self.session.lock();
        let session = named(&mut session, name)?;
        session.heard_of = Instant::now();
        session.next.put(granules)?;
        Ok(json!({ "memory": session.next.memory() }))
    }

    fn go(&self, name: &str, seconds: u64) -> Result<Value, String> {
        let list = {
            let mut session = self.session.lock();
            let session = named(&mut session, name)?;
            session.heard_of = Instant::now();
            Arc::new(session.next.clone())
        };
        let listed: u64 = list.counts().iter().sum();
        self.load(name, list, seconds);
        Ok(json!({ "listed": listed }))
    }

    fn next(&self, name: &str, percent: u64) -> Result<Value, String> {
        let mut session = self.session.lock();
        let session = named(&mut session, name)?;
        session.heard_of = Instant::now();
        session.percent = percent.min(100);
        let (done, of) = session.pass.as_ref().map_or((0, 0), |pass| pass.progress());
        let is_done = session.due.is_none() && !session.prepares && session.pass.is_none();
        let paused = session.pace.paused.load(Ordering::SeqCst);
        let figures = self.figures_of(session.rests());
        let known = self.known.lock();
        let unfit = |why: Unfit| -> Vec<&str> {
            let all = known.iter().flat_map(|known| &known.unfit);
            let of = all.filter(|(_, one)| *one == why);
            of.map(|(name, _)| &**name).collect()
        };
        Ok(json!({
            "done": is_done,
            "state": figures.state,
            "percent": figures.percent,
            "listed": figures.listed,
            "loaded": figures.loaded,
            "skipped": figures.skipped,
            "reads": figures.reads,
            "parts_done": done,
            "parts": of,
            "paused": paused,
            "files_left_out": known.as_ref().map_or(0, |known| known.unfit_files),
            "not_open": unfit(Unfit::NotOpen),
            "other_page_size": unfit(Unfit::PageSize),
        }))
    }

    fn stop_named(&self, name: &str) -> Result<Value, String> {
        let mut session = self.session.lock();
        named(&mut session, name)?;
        self.end_session(&mut session);
        Ok(json!({}))
    }

    /// The thread of a warming: starts those that load, says how fast they may, and ends with its client.
    fn watch(&'static self, name: &str, pace: &Arc<Pace>) {
        let mut busy = Busy::default();
        let mut last = Instant::now();
        let mut under_way: Option<(Arc<Pass>, Arc<AtomicU64>)> = None;
        let mut passes = 0;
        loop {
            std::thread::sleep(TICK);
            let now = Instant::now();
            let mut session = self.session.lock();
            let Ok(of_this) = named(&mut session, name) else {
                break;
            };
            let capacity = io_capacity();
            let is_restart = name == RESTART;
            let is_left = !is_restart && of_this.heard_of.elapsed() >= LEASE;
            if is_left || capacity.is_none() {
                Linux.note(if capacity.is_none() {
                    "loading of pages ends: bpe_warm_io_capacity is 0"
                } else {
                    "loading of pages ends: its client is gone"
                });
                self.end_session(&mut session);
                break;
            }
            if let Some((pass, running)) = &under_way {
                if running.load(Ordering::SeqCst) == 0 {
                    let pass = Arc::clone(pass);
                    let again = pass.postponed.load(Ordering::SeqCst) > 0
                        && passes < MOST_PASSES
                        && !pass.is_limited.load(Ordering::SeqCst);
                    of_this.pass = None;
                    if again && of_this.due.is_none() {
                        of_this.due = Some((self.list(), self.list()));
                    }
                    let ended = of_this.due.is_none();
                    of_this.prepares = true;
                    drop(session);
                    under_way = None;
                    self.note(&pass, ended);
                    if let Ok(of_this) = named(&mut self.session.lock(), name) {
                        of_this.prepares = false;
                    }
                    continue;
                }
            }
            if under_way.is_none() {
                if let Some((list, before)) = of_this.due.take() {
                    passes += 1;
                    // It reads first pages, so nobody waits for it; but the client must see that there is something to do.
                    of_this.prepares = true;
                    drop(session);
                    load::cool(&before, &list);
                    let pass = Arc::new(Pass::new(&list, &self.heads, &self.brought));
                    session = self.session.lock();
                    let Ok(of_this) = named(&mut session, name) else {
                        break;
                    };
                    of_this.prepares = false;
                    of_this.pass = Some(Arc::clone(&pass));
                    let running = Arc::new(AtomicU64::new(0));
                    let threads = (capacity.unwrap_or(0) / READS_A_THREAD).clamp(1, MOST_THREADS);
                    for _ in 0..threads {
                        let (pass, pace) = (Arc::clone(&pass), Arc::clone(pace));
                        let of_these = Arc::clone(&running);
                        running.fetch_add(1, Ordering::SeqCst);
                        let work = move || {
                            pass.work(&pace);
                            of_these.fetch_sub(1, Ordering::SeqCst);
                        };
                        if self.spawn("bpe-warm-read", work).is_err() {
                            running.fetch_sub(1, Ordering::SeqCst);
                        }
                    }
                    under_way = Some((pass, running));
                } else if is_restart && passes > 0 {
                    self.end_session(&mut session);
                    drop(session);
                    self.forget_restart();
                    break;
                } else {
                    passes = 0;
                }
            }
            let percent = named(&mut session, name).map_or(100, |of_this| of_this.percent);
            drop(session);
            let guard = CORE.switch().active();
            let reads = guard.as_ref().map(|active| active.data_reads.snapshot());
            drop(guard);
            let (reads, nanos) = reads.map_or((0, 0), |reads| (reads.count, reads.sum_nanos));
            let capacity = capacity.unwrap_or(0);
            // After a restart the server's own reads are many just because the pages are missing.
            let many = if is_restart { u64::MAX } else { capacity };
            let rests = busy.look(now, reads, nanos, many) || !CORE.files.is_settled();
            pace.rest(rests);
            if !rests {
                pace.grant((capacity * percent / 100).max(1), now - last);
            }
            last = now;
        }
        pace.end();
    }

    /// A pass has ended.
    fn note(&self, pass: &Pass, is_over: bool) {
        let skipped = pass.skipped.load(Ordering::SeqCst) + pass.rejected.load(Ordering::SeqCst);
        self.skipped.store(skipped, Ordering::SeqCst);
        if let Some(known) = &mut *self.known.lock() {
            known.unfit.clone_from(&pass.unfit);
            known.unfit_files = pass.unfit_files;
        }
        self.count();
        if is_over {
            *self.state.lock() = match pass.is_limited.load(Ordering::SeqCst) {
                true => State::Limited,
                false => State::Loaded,
            };
        }
    }

    /// The pages of a restart are loaded, but for those of closed files. Their list says nothing of the working set later on.
    fn forget_restart(&self) {
        let loaded = self.list();
        let mut reload = self.reload.lock();
        if let Some(reload) = reload.as_mut() {
            reload.list = reload.list.only(|name| !loaded.files.contains_key(name));
            reload.is_due = !reload.list.files.is_empty();
            *self.known.lock() = None;
            *self.state.lock() = State::None;
            let loaded = self.brought.loaded.load(Ordering::SeqCst);
            Linux.note(&format!(
                "the pages that were not proven after the restart are loaded again: {loaded} pages"
            ));
        }
    }

    fn list(&self) -> Arc<List> {
        let known = self.known.lock();
        known
            .as_ref()
            .map(|known| Arc::clone(&known.list))
            .unwrap_or_default()
    }

    /// Counts what is cached of the list.
    fn count(&self) {
        let began = Instant::now();
        let list = self.list();
        let present = Present::count(&list);
        if let Some(known) = &mut *self.known.lock() {
            if Arc::ptr_eq(&known.list, &list) {
                known.present = Some(present);
                known.counted = Some(Instant::now());
                known.took = began.elapsed();
            }
        }
    }

    /// Counts in a thread of its own if the last count is old.
    fn look(&'static self) {
        let loads = *self.state.lock() == State::Loading;
        let is_due = {
            let known = self.known.lock();
            let Some(known) = &*known else {
                return;
            };
            let every = if loads { COUNT_EVERY } else { COUNT_SELDOM };
            let every = every.max(known.took * COUNT_PART);
            known
                .counted
                .is_none_or(|counted| counted.elapsed() >= every)
        };
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

    /// What is shown of it.
    pub fn figures(&'static self) -> Figures {
        self.look();
        let rests = self.session.lock().as_ref().is_some_and(Session::rests);
        self.figures_of(rests)
    }

    fn figures_of(&self, rests: bool) -> Figures {
        let state = *self.state.lock();
        let known = self.known.lock();
        let known = known.as_ref();
        let is_off = CORE.switch().active().is_none();
        let percent = match known {
            None => -1.0,
            Some(_) if is_off => 0.0,
            Some(known) => known.present.map_or(0.0, |present| present.percent()),
        };
        Figures {
            state: match state {
                State::None => "none",
                State::Receiving => "receiving",
                State::Loading if rests => "paused",
                State::Loading => "loading",
                State::Loaded => "loaded",
                State::Limited => "limited",
                State::Ended => "ended",
            },
            percent,
            age_seconds: known
                .and_then(|known| known.taken)
                .map_or(0, |taken| taken.elapsed().as_secs()),
            listed: known.map_or(0, |known| known.list.counts().iter().sum()),
            loaded: self.brought.loaded.load(Ordering::SeqCst),
            skipped: self.skipped.load(Ordering::SeqCst),
            reads: self.brought.reads.load(Ordering::SeqCst),
        }
    }

    /// Memory of the list, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let known = self.known.lock();
        known.as_ref().map_or(0, |known| known.list.memory() as u64)
    }

    fn end_session(&self, session: &mut Option<Session>) {
        let Some(session) = session.take() else {
            return;
        };
        session.pace.end();
        let mut state = self.state.lock();
        let unfinished = session.pass.is_some() || session.prepares || session.due.is_some();
        if unfinished || *state == State::Receiving {
            *state = State::Ended;
        }
    }

    /// Ends it without waiting for anybody.
    pub fn end_soon(&self) {
        self.end_session(&mut self.session.lock());
    }

    /// The plugin is being unloaded.
    pub fn end(&self) {
        self.end_soon();
        let until = Instant::now() + PATIENCE;
        while self.threads.load(Ordering::SeqCst) > 0 && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        *self.known.lock() = None;
        *self.reload.lock() = None;
        self.heads.forget();
        *self.state.lock() = State::None;
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
