//! The experience: a load on the demonstration's server, with the extension off and on, second by second.
//!
//! In a manual run, the user operates the switch while the load runs. A comparison runs the load with the extension off,
//! switches it on, lets the cache fill ([`runner`]), and runs the load again. It restores the switch, and blocks other
//! changes through this console until then. One run at a time. Results are kept in memory, and are available as JSON or as a
//! self-contained page ([`page`]).

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use axum::Router;
use bpe::connection::{Address, plain};
use bpe::console::{self, ConsoleExtension, Opening, Refusal, Watched, now_ms};
use bpe::enable::Locations;
use bpe::failure::Failure;
use bpe::terminal::complain;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::sysbench::{Tables, Workload, in_path};
use load::{Bench, DATABASE};
use run::{Mode, Phase, Request, Run, State, Test, Work};
use state::{Experience, Runs};

mod load;
mod page;
mod routes;
mod run;
mod runner;
mod state;
mod statements;

/// Maximum number of kept results.
const MAX_RESULTS: usize = 50;
const THREADS: std::ops::RangeInclusive<u64> = 1..=256;
const SECONDS: std::ops::RangeInclusive<u64> = 3..=3600;

/// The options of `bpe-lab console`.
#[derive(clap::Args)]
#[group(skip)] // the console's has this name
pub struct Args {
    #[command(flatten)]
    console: console::Args,
}

pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    console::run_with(&args.console, |opening| offer(opening, None))
}

/// Offers the experience on the console's first server. `folder` keeps its results and sysbench's outputs.
///
/// # Errors
/// There is no server, or no directory for outputs.
pub fn offer(opening: &mut Opening, folder: Option<PathBuf>) -> Result<(), Failure> {
    let server = opening
        .first()
        .ok_or_else(|| Failure::usage("there is no server for the experience"))?;
    let experience = Experience::new(server, opening.locations(), folder)?;
    if let Some(why) = experience.missing() {
        complain!("bpe-lab: note: the experience does not run the reference's tests: {why}");
    }
    opening.invite(Arc::new(experience));
    Ok(())
}

/// Directory for sysbench's outputs, if none was given.
static LOGS: Mutex<Option<TempDir>> = Mutex::new(None);

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

impl Experience {
    /// Detects the possible loads on this server. Results and sysbench's outputs go to `folder`.
    ///
    /// # Errors
    /// There is no directory for sysbench's outputs.
    pub fn new(
        server: &Arc<Watched>,
        places: &Locations,
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

    /// The reason why sysbench's tests cannot run.
    pub fn missing(&self) -> Option<&str> {
        let tables = self.bench.as_ref().map(|bench| bench.tables.as_ref());
        match tables {
            Ok(Ok(_)) => None,
            Ok(Err(why)) | Err(why) => Some(why),
        }
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Changes the current run.
    fn update(&self, change: impl FnOnce(&mut Run)) {
        if let Some(run) = &mut self.runs().run {
            change(run);
        }
    }

    /// Whether a run is active.
    fn is_running(&self) -> bool {
        let runs = self.runs();
        runs.run
            .as_ref()
            .is_some_and(|run| run.state == State::Running)
    }

    /// The page's data.
    pub fn json(&self) -> Value {
        let mut tests = match self.missing() {
            None => vec![Test::ReadOnly, Test::WriteOnly, Test::ReadWrite],
            Some(_) => Vec::new(),
        };
        tests.push(Test::Sql);
        let runs = self.runs();
        json!({
            "available": true,
            "server": self.server.id,
            "tests": tests,
            "missing": self.missing(),
            "run": runs.run,
            "results": runs.results.iter().rev().map(summary).collect::<Vec<_>>(),
        })
    }

    /// A result by its id.
    pub fn result(&self, id: &str) -> Option<Run> {
        self.runs().results.iter().find(|run| run.id == id).cloned()
    }

    /// Validates a request.
    fn work(&self, request: &Request) -> Result<Work, Refusal> {
        if let Some(workload) = request.test.workload() {
            return match self.missing() {
                None => Ok(Work::Test(workload)),
                Some(why) => Err(Refusal::conflict(why)),
            };
        }
        let statements = statements::split(request.sql.as_deref().unwrap_or_default());
        if statements.is_empty() {
            return Err(Refusal::bad("there is no SQL statement to run"));
        }
        Ok(Work::Statements(statements))
    }

    /// Starts a run.
    ///
    /// # Errors
    /// Another run is active, or the run cannot be started.
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
        let busy = || {
            Refusal::conflict("a test is running already").advise("stop it, or wait for its end")
        };
        // Before the server is asked, which would disturb a measurement.
        if self.is_running() {
            return Err(busy());
        }
        let work = self.work(request)?;
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
            return Err(busy());
        }
        self.stop.store(false, Ordering::SeqCst);
        runs.run = Some(run.clone());
        drop(runs);
        let experience = Arc::clone(self);
        let started = std::thread::Builder::new()
            .name("experience".into())
            .spawn(move || experience.run(work));
        if let Err(error) = started {
            self.runs().run = None;
            return Err(Failure::step(format!("cannot start a thread: {error}")).into());
        }
        Ok(run)
    }

    /// Stops the current run. Its measurements are kept.
    fn stop_run(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Stores the finished run.
    fn keep(&self) {
        let mut runs = self.runs();
        let Some(run) = runs.run.clone().filter(|run| !run.points.is_empty()) else {
            return;
        };
        if runs.results.len() == MAX_RESULTS {
            runs.results.pop_front();
        }
        runs.results.push_back(run.clone());
        drop(runs);
        if let Some(folder) = &self.folder {
            let path = folder.join(format!(
                "experience-{}-{}.json",
                run.title(),
                run.at_ms / 1000
            ));
            // A failure is tolerable: the page offers the result as well. A link is not followed.
            if let Ok(mut file) = File::create_new(path) {
                let text = serde_json::to_string_pretty(&run).unwrap_or_default();
                let _ = file.write_all(text.as_bytes());
            }
        }
    }
}

impl ConsoleExtension for Experience {
    fn server(&self) -> &Arc<Watched> {
        &self.server
    }

    fn is_comparing(&self) -> bool {
        self.runs()
            .run
            .as_ref()
            .is_some_and(|run| run.state == State::Running && run.mode == Mode::Compare)
    }

    fn stop(&self) {
        self.stop_run();
    }

    fn end(&self) {
        private_server::process::end_all(Duration::from_secs(5));
        drop(LOGS.lock().unwrap_or_else(|e| e.into_inner()).take());
    }

    fn routes(self: Arc<Self>) -> Router {
        routes::router(self)
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

/// Prepares sysbench for this server; the error names the missing requirement.
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
    let mut tables = || {
        let count = number(format!(
            "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = '{DATABASE}' AND table_name LIKE 'sbtest%'"
        ))?;
        if count == 0 {
            return Err(format!(
                "there are no tables of sysbench in database {DATABASE} (sysbench oltp_read_only prepare)"
            ));
        }
        Ok(Tables {
            database: DATABASE,
            count,
            rows: number(format!("SELECT MAX(id) FROM {DATABASE}.sbtest1"))?,
        })
    };
    Ok(Bench {
        program,
        socket: socket.clone(),
        user: target.user.clone(),
        tables: tables(),
        logs,
    })
}
