//! One server that the console watches: its address, its last state, and the live stream that pages subscribe to.
//!
//! Only the sampler's thread polls the server. Pages get its results, so any number of pages costs the server one poll.
//! Locks here are leaves, taken one at a time. The lock of `details` is held during its query, so that concurrent
//! requests share one answer.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};

use super::details::Details;
use super::events::{Event, Events, Level, now_ms, shortened};
use super::task::{Task, TaskState};
use crate::change::enable::Locations;
use crate::cluster::probe;
use crate::connect::Target;
use crate::connect::server::Server;
use crate::observe::Figures;
use crate::support::failure::{Exit, Failure};

/// Seconds of figures that a page receives when it is opened.
const HISTORY: usize = 15 * 60;
/// Lines that a page may fall behind before it loses some.
const BEHIND: usize = 256;
/// A server that does not answer within this time counts as unreachable.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Answer timeout of a change. Installing a plugin or shrinking a large pool may take minutes. A server that hangs must
/// not hold the right to change it forever.
pub const CHANGE_SECONDS: u64 = 300;

/// Threads for each server, and so the requests that may wait for it at a time. A server that hangs cannot delay requests to the others.
pub const TURNS: usize = 3;

/// One line of the live stream, as sent.
pub type Line = Arc<str>;

pub struct Watched {
    /// Identifier in URLs: letters, digits and `-`.
    pub id: String,
    pub name: String,
    pub address: String,
    wish: OnceLock<CacheDefaults>,
    target: Target,
    events: Arc<Events>,
    live: broadcast::Sender<Line>,
    seen: Mutex<Seen>,
    details: Mutex<Details>,
    /// Set while a change of the server runs; admits one change at a time.
    changing: AtomicBool,
    comparing: AtomicBool,
    stop_comparing: AtomicBool,
    change_seconds: AtomicU64,
    asked: (Mutex<bool>, Condvar),
    turns: Arc<Semaphore>,
}

/// Settings of a server that the servers file may contain.
#[derive(Clone, Default)]
pub struct CacheDefaults {
    pub cluster: Option<String>,
    pub path: Option<String>,
    /// As in a request: bytes, or text.
    pub size: Option<Value>,
}

#[derive(Default)]
struct Seen {
    /// Oldest first.
    history: VecDeque<Line>,
    latest: Option<Figures>,
    facts: Map<String, Value>,
    trouble: Option<Trouble>,
    /// Whether the last poll got an answer.
    answers: bool,
    /// Time of the last answer.
    answered: Option<Instant>,
    /// Cluster role and cache warmth at the last answer.
    place: Option<Arc<probe::NodeState>>,
    task: Option<Task>,
    run: Option<Value>,
    comparing: Option<Value>,
    /// Set when the server ended during a change. The sampler searches these locations for leftovers once the server is back.
    remains: Option<Locations>,
}

#[derive(Clone)]
struct Trouble {
    error: String,
    since_ms: u64,
}

impl Watched {
    pub fn new(id: String, name: String, target: Target, events: Arc<Events>) -> Self {
        Self {
            id,
            name,
            address: target.address.to_string(),
            wish: OnceLock::new(),
            target,
            events,
            live: broadcast::channel(BEHIND).0,
            seen: Mutex::default(),
            details: Mutex::default(),
            changing: AtomicBool::new(false),
            comparing: AtomicBool::new(false),
            stop_comparing: AtomicBool::new(false),
            change_seconds: AtomicU64::new(CHANGE_SECONDS),
            asked: (Mutex::new(true), Condvar::new()),
            turns: Arc::new(Semaphore::new(TURNS)),
        }
    }

    /// Stores the server's other settings from the servers file; only the first call has an effect.
    pub fn wish(&self, wish: CacheDefaults) {
        let _ = self.wish.set(wish);
    }

    /// The server's other settings from the servers file.
    pub fn cache_defaults(&self) -> CacheDefaults {
        self.wish.get().cloned().unwrap_or_default()
    }

    /// Logs in for monitoring.
    pub fn open(&self) -> Result<Server, Failure> {
        Server::open(&mut self.target.clone(), Some(ANSWER_TIMEOUT))
    }

    /// Details that a page shows beside the figures; cached for two seconds.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn details(&self) -> Result<Arc<str>, Failure> {
        let mut details = self.details.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(answer) = details.fresh() {
            return Ok(answer);
        }
        // The server is known to be unreachable, perhaps since this call began to wait: do not wait for it again.
        if let Some(error) = self.trouble() {
            details.disconnect();
            return Err(Failure::new(Exit::Connect, error));
        }
        details.ask(|| self.open(), || self.latest())
    }

    /// Drops the cached details. Call after a change, which outdates them.
    pub fn forget_details(&self) {
        let mut details = self.details.lock().unwrap_or_else(|e| e.into_inner());
        details.forget();
    }

    /// Logs in for a change. The login has a short timeout; statements may then take as long as a change.
    pub fn open_to_change(&self) -> Result<Server, Failure> {
        let mut server = self.open()?;
        self.wait_for_changes(&mut server);
        Ok(server)
    }

    /// Sets a connection's answer timeout to that of a change.
    pub fn wait_for_changes(&self, server: &mut Server) {
        let limit = Duration::from_secs(self.change_seconds.load(Ordering::Relaxed));
        server.wait_for_answers(Some(limit));
    }

    /// Sets the answer timeout in seconds for each statement of a change.
    pub fn set_change_limit(&self, seconds: u64) {
        self.change_seconds.store(seconds, Ordering::Relaxed);
    }

    /// Permits a request to wait for this server until the permit is dropped. Returns `None` if none became free in
    /// time: earlier requests still wait.
    pub async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        let turn = Arc::clone(&self.turns).acquire_owned();
        tokio::time::timeout(ANSWER_TIMEOUT, turn).await.ok()?.ok()
    }

    pub fn target(&self) -> &Target {
        &self.target
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(|e| e.into_inner())
    }

    // --- results of the sampler --------------------------------------------------------------------------------------

    /// Publishes the figures of the last second.
    pub fn show_figures(&self, figures: Figures) {
        let line: Line = line("figures", &figures);
        let mut seen = self.seen();
        if seen.history.len() == HISTORY {
            seen.history.pop_front();
        }
        seen.history.push_back(json_of(&figures));
        seen.latest = Some(figures);
        drop(seen);
        self.send(line);
    }

    /// Records that the server answered.
    pub fn show_answer(&self) {
        let mut seen = self.seen();
        seen.answers = true;
        seen.answered = Some(Instant::now());
        if seen.trouble.take().is_some() {
            drop(seen);
            self.note(Level::Info, "the server answers again".to_owned());
        }
    }

    /// Records that the server does not answer: informs every page, and logs an event if this is new.
    pub fn show_trouble(&self, error: &str) {
        let mut seen = self.seen();
        let new = seen.trouble.is_none();
        seen.answers = false;
        let since_ms = seen
            .trouble
            .as_ref()
            .map_or_else(now_ms, |trouble| trouble.since_ms);
        seen.trouble = Some(Trouble {
            error: error.to_owned(),
            since_ms,
        });
        let line = trouble_line(seen.trouble.as_ref());
        drop(seen);
        if new {
            self.note(Level::Error, error.to_owned());
        }
        if let Some(line) = line {
            self.send(line);
        }
    }

    /// Stores facts about the server besides its figures.
    pub fn show_facts(&self, facts: Map<String, Value>) {
        self.seen().facts = facts;
    }

    pub fn show_place(&self, place: probe::NodeState) {
        self.seen().place = Some(Arc::new(place));
    }

    /// The cluster role at the last answer.
    pub fn place(&self) -> Option<Arc<probe::NodeState>> {
        self.seen().place.clone()
    }

    /// The cluster role, if the server answers now.
    ///
    /// # Errors
    /// Why the server does not answer.
    pub fn present(&self) -> Result<Arc<probe::NodeState>, Failure> {
        let seen = self.seen();
        let lost = |why: String| Err(Failure::new(Exit::Connect, why));
        if let Some(trouble) = &seen.trouble {
            return lost(trouble.error.clone());
        }
        match (&seen.place, seen.answered) {
            (Some(place), Some(at)) if at.elapsed() < ANSWER_TIMEOUT => Ok(Arc::clone(place)),
            (_, Some(at)) => lost(format!(
                "it has not answered for {} s",
                at.elapsed().as_secs()
            )),
            _ => lost("it was not asked yet".to_owned()),
        }
    }

    /// Why the last poll got no answer.
    pub fn trouble(&self) -> Option<String> {
        self.seen()
            .trouble
            .as_ref()
            .map(|trouble| trouble.error.clone())
    }

    pub fn latest(&self) -> Option<Figures> {
        self.seen().latest.clone()
    }

    // --- results for pages -------------------------------------------------------------------------------------------

    fn send(&self, line: Line) {
        // Fails only if no page is subscribed.
        let _ = self.live.send(line);
    }

    /// The lines that a new page starts with, and a receiver for later ones.
    pub fn listen(&self) -> (Vec<Line>, broadcast::Receiver<Line>) {
        // Subscribe before copying the state, so that no line between the two is lost.
        let receiver = self.live.subscribe();
        let seen = self.seen();
        let mut first = Vec::new();
        match trouble_line(seen.trouble.as_ref()) {
            Some(line) => first.push(line),
            None => first.extend(seen.latest.as_ref().map(|figures| line("figures", figures))),
        }
        if let Some(task) = &seen.task {
            if task.state == TaskState::Running {
                first.push(line("task", task));
            }
        }
        if let Some(point) = &seen.run {
            first.push(line("run", point));
        }
        if let Some(now) = &seen.comparing {
            first.push(line("comparing", now));
        }
        (first, receiver)
    }

    /// Figures of the last 15 minutes, oldest first, each a JSON object.
    pub fn history(&self) -> String {
        let seen = self.seen();
        let mut text = String::from("{\"figures\":[");
        for (index, figures) in seen.history.iter().enumerate() {
            if index > 0 {
                text.push(',');
            }
            text.push_str(figures);
        }
        text.push_str("]}");
        text
    }

    /// Entry for the list of servers.
    pub fn summary(&self) -> Value {
        let seen = self.seen();
        let mut summary = json!({
            "id": self.id,
            "name": self.name,
            "address": self.address,
            "reachable": seen.answers,
            "error": match &seen.trouble {
                Some(trouble) => Some(trouble.error.as_str()),
                None if !seen.answers => Some("not asked yet"),
                None => None,
            },
        });
        let mut put = |name: &str, value: Value| summary[name] = value;
        for name in [
            "flavour",
            "version",
            "data_directory",
            "pool_bytes",
            "cache_bytes",
            "cache_path",
            "load_mode",
            "async_mode",
        ] {
            put(name, seen.facts.get(name).cloned().unwrap_or_default());
        }
        if let Some(figures) = &seen.latest {
            put("pool_bytes", json!(figures.pool_bytes));
            put("state", json!(figures.state));
            put("state_reason", json!(figures.state_reason));
        } else {
            put(
                "state",
                seen.facts.get("state").cloned().unwrap_or_default(),
            );
            put("state_reason", json!(""));
        }
        let place = seen.place.as_ref().filter(|_| seen.answers);
        summary["role"] = json!(place.map(|place| place.membership.role));
        let state = summary["state"].as_str();
        summary["installed"] = json!(state.is_some_and(|state| state != "not installed"));
        summary
    }

    pub fn note(&self, level: Level, text: String) {
        let event = Event {
            at_ms: now_ms(),
            server: self.id.clone(),
            level,
            text: shortened(text),
        };
        self.send(line("event", &event));
        self.events.note(event);
    }

    pub fn show_task(&self, task: &Task) {
        self.seen().task = Some(task.clone());
        self.send(line("task", task));
    }

    /// Publishes one second of an experience; `None` when it has ended.
    pub fn show_run(&self, point: Option<Value>) {
        self.seen().run.clone_from(&point);
        if let Some(point) = point {
            self.send(line("run", &point));
        }
    }

    /// Publishes one second of a comparison, or its end.
    pub fn show_comparing(&self, now: Value) {
        self.seen().comparing = Some(now.clone());
        self.send(line("comparing", &now));
    }

    pub fn begin_comparing(&self) {
        self.stop_comparing.store(false, Ordering::SeqCst);
        self.comparing.store(true, Ordering::SeqCst);
    }

    pub fn end_comparing(&self) {
        self.comparing.store(false, Ordering::SeqCst);
    }

    /// Whether a comparison runs. It changes the server's state every few seconds.
    pub fn is_comparing(&self) -> bool {
        self.comparing.load(Ordering::SeqCst)
    }

    /// Asks the comparison to restore everything and end.
    pub fn stop_comparing(&self) {
        self.stop_comparing.store(true, Ordering::SeqCst);
    }

    pub fn is_to_stop_comparing(&self) -> bool {
        self.stop_comparing.load(Ordering::SeqCst)
    }

    // --- one change at a time ----------------------------------------------------------------------------------------

    /// The right to change the server, until it is dropped. Returns `None` while another change holds it.
    pub fn begin_change(self: &Arc<Self>) -> Option<Changing> {
        let free = self
            .changing
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst);
        free.is_ok().then(|| Changing(Arc::clone(self)))
    }

    pub fn is_changing(&self) -> bool {
        self.changing.load(Ordering::SeqCst)
    }

    /// Asks the sampler to report leftovers of an interrupted change once the server answers again.
    pub fn look_for_remains(&self, locations: Locations) {
        self.seen().remains = Some(locations);
    }

    pub fn take_remains(&self) -> Option<Locations> {
        self.seen().remains.take()
    }

    /// Asks the sampler to poll now, facts included.
    pub fn look_again(&self) {
        let (asked, condition) = &self.asked;
        *asked.lock().unwrap_or_else(|e| e.into_inner()) = true;
        condition.notify_all();
    }

    /// Waits until this time or until a caller of [`look_again`](Self::look_again) asks for a poll; returns whether one did.
    pub fn wait(&self, until: Instant) -> bool {
        let (asked, condition) = &self.asked;
        let asked = asked.lock().unwrap_or_else(|e| e.into_inner());
        let limit = until.saturating_duration_since(Instant::now());
        let (mut asked, _) = condition
            .wait_timeout_while(asked, limit, |asked| !*asked)
            .unwrap_or_else(|e| e.into_inner());
        std::mem::take(&mut *asked)
    }
}

/// The right to change the server. Dropping it admits the next change.
pub struct Changing(Arc<Watched>);

impl Drop for Changing {
    fn drop(&mut self) {
        self.0.changing.store(false, Ordering::SeqCst);
        self.0.look_again();
    }
}

fn json_of(value: &impl serde::Serialize) -> Line {
    serde_json::to_string(value).unwrap_or_default().into()
}

/// A line of the stream: the object with its type, and a line feed.
fn line(kind: &str, value: &impl serde::Serialize) -> Line {
    let mut value = serde_json::to_value(value).unwrap_or_default();
    value["type"] = kind.into();
    format!("{value}\n").into()
}

fn trouble_line(trouble: Option<&Trouble>) -> Option<Line> {
    trouble.map(|trouble| {
        line(
            "unreachable",
            &json!({ "error": trouble.error, "since_ms": trouble.since_ms }),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::Args;

    #[test]
    fn a_hung_server_has_only_its_own_turns() {
        let watched = |socket: &str| {
            let args = Args {
                socket: Some(socket.to_owned()),
                no_defaults: true,
                ..Args::default()
            };
            Watched::new(
                "a".into(),
                "a".into(),
                args.target().unwrap(),
                Arc::default(),
            )
        };
        let (hung, other) = (watched("/a"), watched("/b"));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut waiting = Vec::new();
            for _ in 0..TURNS {
                waiting.push(hung.turn().await.unwrap());
            }
            assert!(hung.turn().await.is_none());
            assert!(other.turn().await.is_some());
            waiting.pop();
            assert!(hung.turn().await.is_some());
        });
    }
}
