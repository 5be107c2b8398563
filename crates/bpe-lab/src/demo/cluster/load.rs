//! A load at a fixed rate that follows the primary.
//!
//! Requests are due at regular intervals, independent of earlier answers: users do not wait for each other. Clients process
//! them in order. A request that no client could begin or finish within [`REQUEST_TIMEOUT`] of its due time is lost. So a backlog
//! from the outage does not count as throughput later.
//!
//! sysbench is unsuitable: it ends with its server, and its random rates hide differences of a few percent per second. Rows
//! follow its `special` distribution: 75 % of the requests go to 15 % of the rows.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use mysql::Conn;
use mysql::prelude::Queryable;

use crate::sysbench::Tables;

/// Client threads.
pub const CLIENTS: usize = 16;
/// Maximum delay of a request's start.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Client timeout for an answer of a server that may be gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which a client looks for a primary while there is none.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// UPDATE statements of a writing transaction, in addition to BEGIN and COMMIT.
const UPDATES: u64 = 5;
/// One in this many tables is written.
const WRITTEN_EVERY: u64 = 8;
/// Percent of the requests that go to [`HOT_ROWS`] percent of the rows, in the middle of each table.
const HOT: u64 = 75;
const HOT_ROWS: u64 = 15;

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Request {
    /// Due time and answer time, seconds since the load began.
    pub due: f64,
    pub answered: Option<f64>,
    /// Number of SQL statements.
    pub statements: u32,
}

/// Rate and mix of the load.
#[derive(Clone, Copy, Debug)]
pub struct Demand {
    /// Requests per second.
    pub rate: f64,
    /// One in this many requests is a writing transaction.
    pub writes_every: u64,
}

impl Demand {
    /// Statements per second.
    pub fn statements(self) -> f64 {
        let of_all = self.writes_every - 1 + UPDATES + 2;
        self.rate * of_all as f64 / self.writes_every as f64
    }

    /// Describes the load.
    pub fn description(self, tables: Tables) -> String {
        let Demand { rate, writes_every } = self;
        format!(
            "{rate:.0} requests a second by {CLIENTS} clients on {} tables of {} rows: {} of {writes_every} read a row by its key, one \
             is a transaction of {UPDATES} updates in the last {} tables; {HOT} % of the rows are picked among {HOT_ROWS} % of each table",
            tables.count,
            tables.rows,
            writes_every - 1,
            written(tables)
        )
    }
}

struct Shared {
    began: Instant,
    demand: Demand,
    tables: Tables,
    next: AtomicU64,
    is_over: AtomicBool,
    /// The socket of the primary, if there is one. The two locks here are never held together.
    primary: Mutex<Option<PathBuf>>,
    /// Counts the changes of `primary`.
    version: AtomicU64,
    requests: Mutex<Vec<Request>>,
}

/// The running load.
pub struct Load {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts the load on this primary.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn begin(primary: &Path, tables: Tables, demand: Demand) -> Result<Load> {
        let shared = Arc::new(Shared {
            began: Instant::now(),
            demand,
            tables,
            next: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            primary: Mutex::new(Some(primary.to_owned())),
            version: AtomicU64::new(0),
            requests: Mutex::new(Vec::new()),
        });
        let client = |number: usize| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("client-{number}"))
                .spawn(move || Client::new(&shared, number).run())
        };
        let clients = (0..CLIENTS).map(client).collect::<Result<_, _>>();
        Ok(Load {
            clients: clients.context("cannot start a thread")?,
            shared,
        })
    }

    /// Seconds since it began.
    pub fn now(&self) -> f64 {
        self.shared.now()
    }

    /// Redirects the clients to this server. Without a server they wait.
    pub fn follow(&self, primary: Option<&Path>) {
        *lock(&self.shared.primary) = primary.map(Path::to_owned);
        self.shared.version.fetch_add(1, Ordering::SeqCst);
    }

    /// Statements answered per second in the last `seconds`.
    pub fn recent(&self, seconds: f64) -> f64 {
        let from = self.now() - seconds;
        let requests = lock(&self.shared.requests);
        // Requests answered in the last second or so are near the end.
        let late = requests
            .iter()
            .rev()
            .take_while(|one| one.due > from - 5.0)
            .filter(|one| one.answered.is_some_and(|at| at > from));
        late.map(|one| f64::from(one.statements)).sum::<f64>() / seconds
    }

    /// Ends the load. Returns the outcome of all requests.
    pub fn end(mut self) -> Vec<Request> {
        self.stop();
        std::mem::take(&mut *lock(&self.shared.requests))
    }

    fn stop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        for client in self.clients.drain(..) {
            let _ = client.join();
        }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop();
    }
}

fn written(tables: Tables) -> u64 {
    tables.count.div_ceil(WRITTEN_EVERY)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

impl Shared {
    fn now(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }
}

/// A client's connection, and the version of its primary.
struct Client<'a> {
    shared: &'a Shared,
    random: Rng,
    connection: Option<(u64, Conn)>,
}

impl<'a> Client<'a> {
    fn new(shared: &'a Shared, number: usize) -> Client<'a> {
        Client {
            shared,
            random: Rng::with_seed(number as u64),
            connection: None,
        }
    }

    fn run(&mut self) {
        let shared = self.shared;
        while !shared.is_over() {
            let number = shared.next.fetch_add(1, Ordering::Relaxed);
            let due = number as f64 / shared.demand.rate;
            let wait = due - shared.now();
            if wait > 0.0 {
                std::thread::sleep(Duration::from_secs_f64(wait));
            }
            let writes = number % shared.demand.writes_every == 0;
            let answered = self.serve(due + REQUEST_TIMEOUT.as_secs_f64(), writes);
            lock(&shared.requests).push(Request {
                due,
                answered: answered.then(|| shared.now()),
                statements: if writes { UPDATES as u32 + 2 } else { 1 },
            });
        }
    }

    /// Sends one request; it must begin before `latest`. Returns whether it was answered.
    fn serve(&mut self, latest: f64, writes: bool) -> bool {
        while !self.shared.is_over() && self.shared.now() < latest {
            self.connect();
            if let Some((_, connection)) = &mut self.connection {
                let tables = self.shared.tables;
                let outcome = match writes {
                    true => write(connection, tables, &mut self.random),
                    false => read(connection, tables, &mut self.random),
                };
                if outcome.is_ok() {
                    return true;
                }
                // The primary is gone, or was demoted: the request may go to the next one.
                self.connection = None;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        false
    }

    /// Connects to the current primary, if there is one that accepts the client.
    fn connect(&mut self) {
        let version = self.shared.version.load(Ordering::SeqCst);
        if self
            .connection
            .as_ref()
            .is_some_and(|(of, _)| *of == version)
        {
            return;
        }
        self.connection = None;
        let Some(socket) = lock(&self.shared.primary).clone() else {
            return;
        };
        let options = mysql::OptsBuilder::new()
            .socket(Some(socket.display().to_string()))
            .user(Some("root"))
            .db_name(Some(self.shared.tables.database))
            .read_timeout(Some(ANSWER_TIMEOUT))
            .write_timeout(Some(ANSWER_TIMEOUT))
            .prefer_socket(false);
        self.connection = Conn::new(options)
            .ok()
            .map(|connection| (version, connection));
    }
}

fn read(connection: &mut Conn, tables: Tables, random: &mut Rng) -> mysql::Result<()> {
    let table = random.u64(..tables.count) + 1;
    let id = pick_row(random, tables.rows);
    connection.query_drop(format!("SELECT c FROM sbtest{table} WHERE id = {id}"))
}

fn write(connection: &mut Conn, tables: Tables, random: &mut Rng) -> mysql::Result<()> {
    let mut rows: Vec<(u64, u64)> = (0..UPDATES)
        .map(|_| {
            let table = tables.count - random.u64(..written(tables));
            (table, pick_row(random, tables.rows))
        })
        .collect();
    // In a fixed order, so that transactions cannot deadlock.
    rows.sort_unstable();
    connection.query_drop("BEGIN")?;
    for (table, id) in rows {
        let text = format!("{:020}", random.u64(..10_000_000_000));
        connection.query_drop(format!(
            "UPDATE sbtest{table} SET c = REPEAT('{text}', 5) WHERE id = {id}"
        ))?;
    }
    connection.query_drop("COMMIT")
}

/// Picks a row's key, from 1.
fn pick_row(random: &mut Rng, rows: u64) -> u64 {
    let hot = (rows * HOT_ROWS / 100).max(1);
    match random.u64(..100) < HOT {
        true => (rows - hot) / 2 + random.u64(..hot) + 1,
        false => random.u64(..rows) + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_rows_are_hot_ones() {
        let mut random = Rng::with_seed(7);
        let rows = 1000;
        let picked: Vec<u64> = (0..10_000).map(|_| pick_row(&mut random, rows)).collect();
        assert!(picked.iter().all(|id| (1..=rows).contains(id)));
        let hot = picked.iter().filter(|id| (426..=575).contains(*id)).count();
        // 75 % of them, and 15 % of the rest.
        assert!((7_600..8_150).contains(&hot), "{hot}");
    }

    #[test]
    fn without_a_primary_requests_are_lost_in_time() {
        let tables = Tables {
            database: "sbtest",
            count: 2,
            rows: 10,
        };
        let demand = Demand {
            rate: 50.0,
            writes_every: 8,
        };
        assert_eq!(demand.statements(), 50.0 / 8.0 * 14.0);
        let load = Load::begin(Path::new("/nonexistent/socket"), tables, demand).unwrap();
        load.follow(None);
        std::thread::sleep(REQUEST_TIMEOUT + Duration::from_millis(300));
        let requests = load.end();
        assert!(!requests.is_empty());
        assert!(requests.iter().all(|one| one.answered.is_none()));
    }
}
