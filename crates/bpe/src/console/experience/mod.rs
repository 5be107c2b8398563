//! The experience: a load on the server of the demonstration, with the extension off and on, second by second.
//!
//! By hand, the load runs and whoever watches turns the switch. A comparison runs it with the extension off, switches it
//! on, lets the cache fill ([`runner`]), and runs it again. The switch is left as it was found, and nobody else can turn it
//! here meanwhile. One run at a time; results are kept in memory, and can be
//! fetched as JSON or as a page of their own ([`page`]).

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::error::Refusal;
use super::events::now_ms;
use super::watched::Watched;
use crate::connection::{Address, plain};
use crate::demo::plan::Tables;
use crate::demo::sysbench::Workload;
use crate::demo::tools::in_path;
use crate::enable::Places;
use crate::failure::Failure;
use load::{Bench, Side};

mod load;
mod page;
mod runner;
mod statements;

/// The database whose tables the tests use; their names and shape are sysbench's.
const DATABASE: &str = "sbtest";
/// Results kept.
const KEPT: usize = 50;
const THREADS: std::ops::RangeInclusive<u64> = 1..=256;
const SECONDS: std::ops::RangeInclusive<u64> = 3..=3600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Test {
    #[serde(rename = "oltp_read_only")]
    ReadOnly,
    #[serde(rename = "oltp_write_only")]
    WriteOnly,
    #[serde(rename = "oltp_read_write")]
    ReadWrite,
    #[serde(rename = "sql")]
    Sql,
}

impl Test {
    fn workload(self) -> Option<Workload> {
        match self {
            Self::ReadOnly => Some(Workload::ReadOnly),
            Self::WriteOnly => Some(Workload::WriteOnly),
            Self::ReadWrite => Some(Workload::ReadWrite),
            Self::Sql => None,
        }
    }

    /// For people.
    fn title(self) -> &'static str {
        self.workload().map_or("Own SQL", Workload::script)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Manual,
    Compare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Running,
    Done,
    Stopped,
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Switching.
    Prepare,
    Off,
    /// With the extension, while the cache fills: not counted.
    Warm,
    On,
    Manual,
}

/// What a page asks for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub test: Test,
    #[serde(default)]
    pub sql: Option<String>,
    pub mode: Mode,
    pub threads: u64,
    pub seconds: u64,
}

/// A second of it.
#[derive(Clone, Debug, Serialize)]
pub struct Point {
    pub run: String,
    pub at_ms: u64,
    pub phase: Phase,
    pub qps: f64,
    pub p95_ms: f64,
    pub enabled: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct Run {
    pub id: String,
    /// Milliseconds since 1970, of its beginning.
    pub at_ms: u64,
    /// The server's id, and which one it is.
    pub server: String,
    pub server_version: String,
    pub test: Test,
    pub mode: Mode,
    pub threads: u64,
    pub seconds: u64,
    pub state: State,
    pub phase: Phase,
    pub points: Vec<Point>,
    pub off: Option<Side>,
    pub on: Option<Side>,
    /// In statements a second, from off to on.
    pub gain_percent: Option<f64>,
    pub reference_gain_percent: Option<f64>,
    pub error: Option<String>,
}

/// Locks: `state` is a leaf.
pub struct Experience {
    server: Arc<Watched>,
    places: Places,
    /// None: sysbench or its tables are missing, for this reason.
    bench: Result<Bench, String>,
    /// Where results and sysbench's outputs are written.
    folder: Option<PathBuf>,
    state: Mutex<Runs>,
    stop: AtomicBool,
    last: AtomicU64,
}

/// A folder for sysbench's outputs, where none was given.
static LOGS: Mutex<Option<TempDir>> = Mutex::new(None);

/// Removes what was made for sysbench, at the end of the process.
pub fn clean() {
    drop(LOGS.lock().unwrap_or_else(|e| e.into_inner()).take());
}

fn temporary_folder() -> Result<PathBuf, Failure> {
    let folder = tempfile::Builder::new()
        .prefix("bpe-console-")
        .tempdir()
        .map_err(|error| {
            Failure::refused(format!(
                "cannot make a folder for sysbench's outputs: {error}"
            ))
        })?;
    let path = folder.path().to_owned();
    *LOGS.lock().unwrap_or_else(|e| e.into_inner()) = Some(folder);
    Ok(path)
}

#[derive(Default)]
struct Runs {
    run: Option<Run>,
    /// Newest last.
    results: VecDeque<Run>,
}

impl Experience {
    /// Looks what there is to run on this server. Results and sysbench's outputs are written to `folder`.
    ///
    /// # Errors
    /// When there is no place for sysbench's outputs.
    pub fn new(
        server: &Arc<Watched>,
        places: &Places,
        folder: Option<PathBuf>,
    ) -> Result<Self, Failure> {
        let logs = match &folder {
            Some(folder) => folder.clone(),
            None => temporary_folder()?,
        };
        Ok(Self {
            bench: bench(server, logs),
            server: Arc::clone(server),
            places: places.clone(),
            folder,
            state: Mutex::default(),
            stop: AtomicBool::new(false),
            last: AtomicU64::new(0),
        })
    }

    pub fn server(&self) -> &Arc<Watched> {
        &self.server
    }

    /// Why the tests of sysbench cannot be run.
    pub fn missing(&self) -> Option<&str> {
        self.bench.as_ref().err().map(String::as_str)
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether a comparison is under way, which alone turns the switch then.
    pub fn is_comparing(&self) -> bool {
        self.runs()
            .run
            .as_ref()
            .is_some_and(|run| run.state == State::Running && run.mode == Mode::Compare)
    }

    /// Changes the present run.
    fn update(&self, change: impl FnOnce(&mut Run)) {
        if let Some(run) = &mut self.runs().run {
            change(run);
        }
    }

    /// What a page shows.
    pub fn json(&self) -> Value {
        let tests: &[Test] = match &self.bench {
            Ok(_) => &[Test::ReadOnly, Test::WriteOnly, Test::ReadWrite, Test::Sql],
            Err(_) => &[Test::Sql],
        };
        let runs = self.runs();
        json!({
            "available": true,
            "server": self.server.id,
            "tests": tests,
            "missing": self.bench.as_ref().err(),
            "run": runs.run,
            "results": runs.results.iter().rev().map(summary).collect::<Vec<_>>(),
        })
    }

    /// A result by its id.
    pub fn result(&self, id: &str) -> Option<Run> {
        self.runs().results.iter().find(|run| run.id == id).cloned()
    }

    /// The result as a page of its own.
    pub fn page(run: &Run) -> String {
        page::html(run)
    }

    /// Begins a run.
    ///
    /// # Errors
    /// When one is under way, or it cannot be begun.
    pub fn begin(self: &Arc<Self>, request: &Request) -> Result<Run, Refusal> {
        let within = |name: &str, value: u64, range: std::ops::RangeInclusive<u64>| {
            if range.contains(&value) {
                return Ok(());
            }
            Err(Refusal::bad(format!(
                "{name} must be {} to {}",
                range.start(),
                range.end()
            )))
        };
        within("threads", request.threads, THREADS)?;
        within("seconds", request.seconds, SECONDS)?;
        let statements = match (request.test, &self.bench) {
            (Test::Sql, _) => {
                let statements = statements::split(request.sql.as_deref().unwrap_or_default());
                if statements.is_empty() {
                    return Err(Refusal::bad("there is no SQL statement to run"));
                }
                Some(statements)
            }
            (_, Ok(_)) => None,
            (_, Err(why)) => return Err(Refusal::conflict(why.clone())),
        };
        let mut server = self.server.open()?;
        if request.mode == Mode::Compare {
            runner::check(&mut server)?;
        }
        let run = Run {
            id: (self.last.fetch_add(1, Ordering::Relaxed) + 1).to_string(),
            at_ms: now_ms(),
            server: self.server.id.clone(),
            server_version: format!("{} {}", server.flavour, server.version),
            test: request.test,
            mode: request.mode,
            threads: request.threads,
            seconds: request.seconds,
            state: State::Running,
            phase: match request.mode {
                Mode::Manual => Phase::Manual,
                Mode::Compare => Phase::Prepare,
            },
            points: Vec::new(),
            off: None,
            on: None,
            gain_percent: None,
            reference_gain_percent: request.test.workload().map(Workload::reference_gain),
            error: None,
        };
        let mut runs = self.runs();
        if runs
            .run
            .as_ref()
            .is_some_and(|run| run.state == State::Running)
        {
            return Err(Refusal::conflict("a test is running already")
                .advise("stop it, or wait for its end"));
        }
        self.stop.store(false, Ordering::SeqCst);
        runs.run = Some(run.clone());
        drop(runs);
        let experience = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("experience".into())
            .spawn(move || experience.run(statements));
        if let Err(error) = started {
            self.runs().run = None;
            return Err(Failure::step(format!("cannot start a thread: {error}")).into());
        }
        Ok(run)
    }

    /// Has the present run end. What it measured is kept.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// The run is over: keeps it.
    fn keep(&self) {
        let mut runs = self.runs();
        let Some(run) = runs.run.clone().filter(|run| !run.points.is_empty()) else {
            return;
        };
        if runs.results.len() == KEPT {
            runs.results.pop_front();
        }
        runs.results.push_back(run.clone());
        drop(runs);
        if let Some(folder) = &self.folder {
            let path = folder.join(format!(
                "experience-{}-{}.json",
                run.test.title(),
                run.at_ms / 1000
            ));
            // It can be fetched from the page as well.
            let _ = std::fs::write(path, serde_json::to_string_pretty(&run).unwrap_or_default());
        }
    }
}

/// A result without its points.
fn summary(run: &Run) -> Value {
    let mut value = serde_json::to_value(run).unwrap_or_default();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("points");
    }
    value
}

/// sysbench and its tables on this server, or what is missing.
fn bench(server: &Watched, logs: PathBuf) -> Result<Bench, String> {
    let target = server.target();
    let Address::Socket(socket) = &target.address else {
        return Err(
            "the tests of sysbench run over the server's socket only: give it with --socket"
                .to_owned(),
        );
    };
    if target.has_password() {
        return Err("the tests of sysbench need an account without a password, as it would stand on the command line".to_owned());
    }
    let program =
        in_path("sysbench").ok_or("sysbench is not installed (apt-get install sysbench)")?;
    let mut connection = server.open().map_err(|failure| failure.to_string())?;
    let mut number = |sql: String| -> Result<u64, String> {
        let value = connection.value(&sql).map_err(|error| plain(&error))?;
        Ok(value.and_then(|text| text.parse().ok()).unwrap_or(0))
    };
    let count = number(format!(
        "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{DATABASE}' AND table_name LIKE 'sbtest%'"
    ))?;
    if count == 0 {
        return Err(format!(
            "there are no tables of sysbench in database {DATABASE} (sysbench oltp_read_only prepare)"
        ));
    }
    let rows = number(format!("SELECT MAX(id) FROM {DATABASE}.sbtest1"))?;
    Ok(Bench {
        program,
        socket: socket.clone(),
        user: target.user.clone(),
        tables: Tables {
            database: DATABASE,
            count,
            rows,
        },
        logs,
    })
}
