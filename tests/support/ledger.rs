//! A load that detects a stale page.
//!
//! Every row belongs to one client, which remembers its last committed version. A row that is read long after its page left the
//! buffer pool must have exactly that version and the matching bytes. Money moves between rows of all clients; the sum over all
//! tables is the same in every snapshot.
//!
//! The servers may be killed under the load. Each client then has at most one statement whose outcome is unknown;
//! [`Ledger::settle`] reads the outcome.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use parking_lot::Mutex;
use private_server::Server;
use private_server::mysql::{self, Conn, prelude::Queryable};

use crate::{sql, stuck};

/// Initial money of each row.
const START: i64 = 1000;
/// Steps per second of all clients of a paced load. Two busy cores leave it about as many.
const PACE: u32 = 800;
/// Time limit of a load with a given number of steps, for very slow hosts.
const STEPS_LIMIT: Duration = Duration::from_secs(600);
/// Time limit of a load that runs beside something else.
const BESIDE_LIMIT: Duration = Duration::from_secs(1800);

/// The tables, and the expected state of their rows.
pub struct Ledger {
    database: String,
    tables: u32,
    rows: u32,
    width: u32,
    clients: Vec<Mutex<Client>>,
    /// Minimum time from one step of a client to the next.
    pace: Duration,
}

/// Limits of a load; it ends at the first one reached.
#[derive(Clone, Copy)]
struct Bound {
    time: Duration,
    steps: u64,
    /// Ends together with the closure beside it.
    is_beside: bool,
}

impl From<Duration> for Bound {
    fn from(time: Duration) -> Bound {
        Bound {
            time,
            steps: u64::MAX,
            is_beside: false,
        }
    }
}

/// A client's knowledge of its rows.
struct Client {
    number: u32,
    random: fastrand::Rng,
    /// Version of row `index`; the row is `index * clients + number`.
    versions: Vec<u32>,
    /// An update with an unknown outcome: index and new version.
    unsettled: Option<(usize, u32)>,
}

/// The versions of all rows at some time.
pub struct Versions(Vec<Vec<u32>>);

/// Counts of a run.
#[derive(Debug, Default)]
pub struct Counts {
    pub reads: AtomicU64,
    pub updates: AtomicU64,
    pub transfers: AtomicU64,
    pub audits: AtomicU64,
    /// Microseconds of the longest step, without audits.
    pub longest_us: AtomicU64,
}

impl Counts {
    /// Steps of all clients.
    fn steps(&self) -> u64 {
        let kinds = [&self.reads, &self.updates, &self.transfers];
        kinds.map(|kind| kind.load(Ordering::Relaxed)).iter().sum()
    }
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} rows read, {} updates, {} transfers, {} audits",
            self.reads.load(Ordering::Relaxed),
            self.updates.load(Ordering::Relaxed),
            self.transfers.load(Ordering::Relaxed),
            self.audits.load(Ordering::Relaxed)
        )
    }
}

/// Why a client stopped.
enum Stop {
    /// The server went away or refused a statement.
    Server(mysql::Error),
    /// A row has a wrong version or wrong bytes, or the server is stuck.
    Wrong(anyhow::Error),
}

impl From<mysql::Error> for Stop {
    fn from(error: mysql::Error) -> Stop {
        Stop::Server(error)
    }
}

type Step = Result<(), Stop>;

impl Ledger {
    /// 2 tables of 3,000 rows of 2,600 bytes, 20 MiB with their pages and more than twice the pool, and 6 clients.
    pub fn small(server: &Server) -> anyhow::Result<Ledger> {
        Ledger::create(server, 2, 3000, 2600, 6)
    }

    /// Creates and fills `tables` tables of `rows` rows of about `width` bytes in database `ledger`, for `clients` clients.
    pub fn create(
        server: &Server,
        tables: u32,
        rows: u32,
        width: u32,
        clients: u32,
    ) -> anyhow::Result<Ledger> {
        Ledger::create_in(server, "ledger", tables, rows, width, clients)
    }

    /// [`Ledger::create`] with another name of the database.
    pub fn create_in(
        server: &Server,
        database: &str,
        tables: u32,
        rows: u32,
        width: u32,
        clients: u32,
    ) -> anyhow::Result<Ledger> {
        let rows = rows / clients * clients;
        let mut connection = server.connect()?;
        connection.query_drop(format!("CREATE DATABASE {database}"))?;
        for table in 0..tables {
            connection.query_drop(format!(
                "CREATE TABLE {database}.t{table} (id INT UNSIGNED PRIMARY KEY, version INT UNSIGNED NOT NULL, \
                 money BIGINT NOT NULL, pad VARBINARY(4000) NOT NULL, KEY (version)) ENGINE=InnoDB"
            ))?;
            for first in (0..rows).step_by(500) {
                let values: Vec<String> = (first..rows.min(first + 500))
                    .map(|id| format!("({id},0,{START},x'{}')", hex_pad(table, id, 0, width)))
                    .collect();
                connection.query_drop(format!(
                    "INSERT INTO {database}.t{table} VALUES {}",
                    values.join(",")
                ))?;
            }
        }
        let own = (rows / clients * tables) as usize;
        Ok(Ledger {
            database: database.into(),
            tables,
            rows,
            width,
            clients: (0..clients)
                .map(|number| {
                    Mutex::new(Client {
                        number,
                        random: fastrand::Rng::with_seed(u64::from(number) + 1),
                        versions: vec![0; own],
                        unsettled: None,
                    })
                })
                .collect(),
            pace: Duration::ZERO,
        })
    }

    /// Limits the steps per second, for a test that needs continuous but not maximum load: it leaves the processors to others.
    pub fn paced(self) -> Ledger {
        let pace = Duration::from_secs(1) * self.clients.len() as u32 / PACE;
        Ledger { pace, ..self }
    }

    /// Runs all clients for `time`. Any failed statement and any wrong row is an error; deadlocks are retried.
    pub fn run(&self, server: &Server, time: Duration) -> anyhow::Result<Counts> {
        self.run_while(server, time, || Ok(()))
    }

    /// As [`run`](Self::run), while the closure runs once in this thread.
    pub fn run_while(
        &self,
        server: &Server,
        time: Duration,
        meanwhile: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Counts> {
        self.run_within(server, time.into(), meanwhile)
    }

    /// Runs all clients while the closure runs once in this thread, for up to 30 minutes.
    pub fn run_beside(
        &self,
        server: &Server,
        meanwhile: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Counts> {
        let bound = Bound {
            is_beside: true,
            ..Bound::from(BESIDE_LIMIT)
        };
        self.run_within(server, bound, meanwhile)
    }

    /// Runs all clients for `time`, and up to a minute longer, until the plugin's figure `name` is above `above`: on a busy
    /// machine the effect of a load comes later.
    pub fn run_until_above(
        &self,
        server: &Server,
        time: Duration,
        name: &str,
        above: u64,
    ) -> anyhow::Result<()> {
        if !time.is_zero() {
            self.run(server, time)?;
        }
        let end = Instant::now() + Duration::from_secs(60);
        loop {
            let now = sql::figure(server, name)?;
            if now > above {
                return Ok(());
            }
            ensure!(
                Instant::now() < end,
                "Bpe_{name} is {now} after the load, not above {above}"
            );
            self.run(server, Duration::from_secs(1))?;
        }
    }

    /// Runs all clients until together they have made `steps` steps, for up to 10 minutes.
    pub fn run_steps(&self, server: &Server, steps: u64) -> anyhow::Result<Counts> {
        let time = STEPS_LIMIT;
        let bound = Bound {
            steps,
            ..Bound::from(time)
        };
        let counts = self.run_within(server, bound, || Ok(()))?;
        let made = counts.steps();
        ensure!(made >= steps, "{made} of {steps} steps in {STEPS_LIMIT:?}");
        Ok(counts)
    }

    fn run_within(
        &self,
        server: &Server,
        bound: Bound,
        meanwhile: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<Counts> {
        let (counts, stops) = self.drive(server, bound, meanwhile)?;
        let mut lost = None;
        for stop in stops {
            match stop {
                // A wrong row is the more specific error.
                Stop::Wrong(what) => return Err(what),
                Stop::Server(error) => lost = Some(error),
            }
        }
        if let Some(error) = lost {
            return Err(error).context("a statement of the load failed");
        }
        Ok(counts)
    }

    /// Runs all clients until the server is killed after `time`; wrong rows are an error, lost connections are not.
    pub fn run_and_kill(&self, server: Server, time: Duration) -> anyhow::Result<Counts> {
        self.run_beside_and_kill(server, time, |_| Ok(()))
    }

    /// As [`run_and_kill`](Self::run_and_kill), with a closure beside the clients, which must end when it loses its connection.
    pub fn run_beside_and_kill(
        &self,
        server: Server,
        time: Duration,
        beside: impl FnOnce(&Server) -> anyhow::Result<()> + Send,
    ) -> anyhow::Result<Counts> {
        let pid = rustix::process::Pid::from_raw(server.pid() as i32).context("a pid")?;
        let (counts, stops) =
            self.drive(&server, (time + Duration::from_secs(60)).into(), || {
                std::thread::scope(|scope| {
                    let beside = scope.spawn(|| beside(&server));
                    std::thread::sleep(time);
                    rustix::process::kill_process(pid, rustix::process::Signal::KILL)?;
                    beside
                        .join()
                        .map_err(|_| anyhow::anyhow!("what ran beside the load panicked"))?
                })
            })?;
        server.kill();
        for stop in stops {
            if let Stop::Wrong(what) = stop {
                return Err(what);
            }
        }
        Ok(counts)
    }

    fn drive(
        &self,
        server: &Server,
        bound: Bound,
        meanwhile: impl FnOnce() -> anyhow::Result<()>,
    ) -> anyhow::Result<(Counts, Vec<Stop>)> {
        let counts = Counts::default();
        let until = Instant::now() + bound.time;
        let failed = AtomicBool::new(false);
        let is_over = AtomicBool::new(false);
        let go_on = || {
            Instant::now() < until
                && !is_over.load(Ordering::Relaxed)
                && !failed.load(Ordering::Relaxed)
                && counts.steps() < bound.steps
        };
        let guard = |step: Step| {
            let stop = step.err()?;
            let first = !failed.swap(true, Ordering::Relaxed);
            match stop {
                Stop::Server(error) if first && stuck::is_timeout(&error) => {
                    let report = stuck::report(server);
                    Some(Stop::Wrong(anyhow::Error::new(error).context(report)))
                }
                other => Some(other),
            }
        };
        let (stops, meanwhile) =
            std::thread::scope(|scope| {
                let mut workers = Vec::new();
                for client in &self.clients {
                    let (counts, go_on, guard) = (&counts, &go_on, &guard);
                    workers.push(scope.spawn(move || {
                        guard(self.client(server, &mut client.lock(), counts, go_on))
                    }));
                }
                let (counts, go_on, guard) = (&counts, &go_on, &guard);
                workers.push(scope.spawn(move || guard(self.auditor(server, counts, go_on))));
                let meanwhile = meanwhile();
                is_over.store(bound.is_beside, Ordering::Relaxed);
                if meanwhile.is_err() {
                    failed.store(true, Ordering::Relaxed);
                }
                let stops: Vec<Stop> = workers
                    .into_iter()
                    .filter_map(|worker| match worker.join() {
                        Ok(stop) => stop,
                        Err(_) => Some(Stop::Wrong(anyhow::anyhow!("a client panicked"))),
                    })
                    .collect();
                (stops, meanwhile)
            });
        // A wrong row is more specific than an error of the closure.
        if stops.iter().all(|stop| matches!(stop, Stop::Server(_))) {
            meanwhile?;
        }
        Ok((counts, stops))
    }

    fn client(
        &self,
        server: &Server,
        client: &mut Client,
        counts: &Counts,
        go_on: &dyn Fn() -> bool,
    ) -> Step {
        let mut connection = connect(server)?;
        while go_on() {
            let begun = Instant::now();
            match client.random.u32(0..100) {
                0..55 => {
                    let index = client.any();
                    self.expect(&mut connection, client, index)?;
                    counts.reads.fetch_add(1, Ordering::Relaxed);
                }
                55..90 => {
                    self.update(&mut connection, client)?;
                    counts.updates.fetch_add(1, Ordering::Relaxed);
                }
                _ => {
                    self.transfer(&mut connection, client)?;
                    counts.transfers.fetch_add(1, Ordering::Relaxed);
                }
            }
            let took = begun.elapsed().as_micros() as u64;
            counts.longest_us.fetch_max(took, Ordering::Relaxed);
            std::thread::sleep(self.pace.saturating_sub(begun.elapsed()));
        }
        Ok(())
    }

    fn place(&self, client: &Client, index: usize) -> (u32, u32) {
        let clients = self.clients.len() as u32;
        let each = (self.rows / clients) as usize;
        (
            (index / each) as u32,
            (index % each) as u32 * clients + client.number,
        )
    }

    fn fetch(
        &self,
        connection: &mut Conn,
        table: u32,
        id: u32,
    ) -> Result<Option<(u32, Vec<u8>)>, mysql::Error> {
        repeat(|| {
            connection.query_first(format!(
                "SELECT version, pad FROM {}.t{table} WHERE id = {id}",
                self.database
            ))
        })
    }

    /// The row must have the client's last version.
    fn expect(&self, connection: &mut Conn, client: &Client, index: usize) -> Step {
        let (table, id) = self.place(client, index);
        let expected = client.versions[index];
        let row = self.fetch(connection, table, id)?;
        match row {
            Some((version, bytes))
                if version == expected && bytes == pad(table, id, version, self.width) =>
            {
                Ok(())
            }
            Some((version, bytes)) => Err(Stop::Wrong(anyhow::anyhow!(
                "a wrong row: {}.t{table} id {id} has version {version}, but {expected} was committed; its bytes are {}",
                self.database,
                if bytes == pad(table, id, version, self.width) {
                    "those of that version"
                } else {
                    "of neither"
                }
            ))),
            None => Err(Stop::Wrong(anyhow::anyhow!(
                "a missing row: {}.t{table} id {id}",
                self.database
            ))),
        }
    }

    fn update(&self, connection: &mut Conn, client: &mut Client) -> Step {
        let index = client.any();
        let (table, id) = self.place(client, index);
        let new = client.versions[index] + 1;
        client.unsettled = Some((index, new));
        repeat(|| {
            connection.query_drop(format!(
                "UPDATE {}.t{table} SET version = {new}, pad = x'{}' WHERE id = {id}",
                self.database,
                hex_pad(table, id, new, self.width)
            ))
        })?;
        client.unsettled = None;
        client.versions[index] = new;
        Ok(())
    }

    fn transfer(&self, connection: &mut Conn, client: &mut Client) -> Step {
        let tables = client.random.u32(0..self.tables);
        let (from, to) = (
            client.random.u32(0..self.rows),
            client.random.u32(0..self.rows),
        );
        let other = client.random.u32(0..self.tables);
        let amount = client.random.i64(1..100);
        Ok(repeat(|| {
            connection.query_drop("BEGIN")?;
            for (table, id, amount) in [(tables, from, -amount), (other, to, amount)] {
                connection.query_drop(format!(
                    "UPDATE {}.t{table} SET money = money + {amount} WHERE id = {id}",
                    self.database
                ))?;
            }
            connection.query_drop("COMMIT")
        })?)
    }

    /// Sums all money in one snapshot, which reads everything, with read-ahead.
    fn auditor(&self, server: &Server, counts: &Counts, go_on: &dyn Fn() -> bool) -> Step {
        let mut connection = connect(server)?;
        while go_on() {
            let sum = self.sum(&mut connection)?;
            if sum != self.money() {
                return Err(Stop::Wrong(anyhow::anyhow!(
                    "the money does not sum up: {sum} instead of {}",
                    self.money()
                )));
            }
            counts.audits.fetch_add(1, Ordering::Relaxed);
            let pause = Instant::now() + Duration::from_millis(500);
            while go_on() && Instant::now() < pause {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        Ok(())
    }

    fn money(&self) -> i64 {
        START * i64::from(self.rows) * i64::from(self.tables)
    }

    fn sum(&self, connection: &mut Conn) -> Result<i64, mysql::Error> {
        let sums: Vec<String> = (0..self.tables)
            .map(|table| {
                format!(
                    "(SELECT SUM(money) FROM {}.t{table} FORCE INDEX (PRIMARY))",
                    self.database
                )
            })
            .collect();
        let statement = format!("SELECT CAST({} AS SIGNED)", sums.join(" + "));
        let sum: Option<i64> = repeat(|| connection.query_first(&statement))?;
        Ok(sum.unwrap_or_default())
    }

    /// After a crash: reads the outcome of each client's unfinished statement.
    pub fn settle(&self, server: &Server) -> anyhow::Result<()> {
        let mut connection = server.connect()?;
        for client in &self.clients {
            let client = &mut *client.lock();
            let Some((index, new)) = client.unsettled.take() else {
                continue;
            };
            let (table, id) = self.place(client, index);
            let (version, _) = self
                .fetch(&mut connection, table, id)?
                .context("a row is missing")?;
            ensure!(
                version == new || version == client.versions[index],
                "{}.t{table} id {id} has version {version}, neither {new} nor the one before",
                self.database
            );
            client.versions[index] = version;
        }
        Ok(())
    }

    /// The versions that every client has committed last. Call it only while no load runs.
    pub fn versions(&self) -> Versions {
        let versions = |client: &Mutex<Client>| client.lock().versions.clone();
        Versions(self.clients.iter().map(versions).collect())
    }

    /// Call after the tables were restored to these versions.
    pub fn put_back(&self, versions: &Versions) {
        for (client, versions) in self.clients.iter().zip(&versions.0) {
            let client = &mut *client.lock();
            client.versions.clone_from(versions);
            client.unsettled = None;
        }
    }

    /// Checks every row and the sum.
    pub fn verify(&self, server: &Server) -> anyhow::Result<()> {
        self.verify_copy(server, &self.versions())
    }

    /// Checks every row and the sum of a copy that was taken between `earliest` and now.
    pub fn verify_copy(&self, server: &Server, earliest: &Versions) -> anyhow::Result<()> {
        let mut connection = server.connect()?;
        for client in &self.clients {
            let client = client.lock();
            ensure!(client.unsettled.is_none(), "settle first");
        }
        let clients: Vec<_> = self.clients.iter().map(|client| client.lock()).collect();
        let each = (self.rows / clients.len() as u32) as usize;
        for table in 0..self.tables {
            let mut seen = 0;
            let mut wrong = Vec::new();
            connection
                .query_iter(format!(
                    "SELECT id, version, pad FROM {}.t{table}",
                    self.database
                ))?
                .try_for_each(|row| {
                    let (id, version, bytes): (u32, u32, Vec<u8>) = mysql::from_row(row?);
                    let client = id as usize % clients.len();
                    let index = table as usize * each + id as usize / clients.len();
                    let (least, most) =
                        (earliest.0[client][index], clients[client].versions[index]);
                    if !(least..=most).contains(&version)
                        || bytes != pad(table, id, version, self.width)
                    {
                        let expected = if least == most {
                            format!("{most}")
                        } else {
                            format!("{least} to {most}")
                        };
                        wrong.push(format!("id {id}: version {version} instead of {expected}"));
                    }
                    seen += 1;
                    Ok::<_, mysql::Error>(())
                })?;
            ensure!(
                wrong.is_empty(),
                "{}.t{table}: {} wrong rows, {}",
                self.database,
                wrong.len(),
                wrong[..wrong.len().min(5)].join("; ")
            );
            ensure!(
                seen == self.rows,
                "{}.t{table} has {seen} rows instead of {}",
                self.database,
                self.rows
            );
        }
        let sum = self.sum(&mut connection)?;
        ensure!(
            sum == self.money(),
            "the money does not sum up: {sum} instead of {}",
            self.money()
        );
        Ok(())
    }

    /// Minimum bytes of all rows.
    pub fn bytes(&self) -> u64 {
        u64::from(self.tables) * u64::from(self.rows) * u64::from(self.width)
    }
}

impl Client {
    fn any(&mut self) -> usize {
        self.random.usize(0..self.versions.len())
    }
}

fn pad(table: u32, id: u32, version: u32, width: u32) -> Vec<u8> {
    sql::pad(seed(table, id), version, width)
}

fn hex_pad(table: u32, id: u32, version: u32, width: u32) -> String {
    sql::hex_pad(seed(table, id), version, width)
}

fn seed(table: u32, id: u32) -> u32 {
    id.wrapping_mul(31).wrapping_add(table)
}

fn connect(server: &Server) -> Result<Conn, Stop> {
    Ok(stuck::connect(server)?)
}

/// Repeats a transaction after a deadlock or a lock wait timeout, like any application. Galera also reports the latter for
/// a read whose node did not catch up within the timeout of `wsrep_sync_wait`.
fn repeat<T>(mut transaction: impl FnMut() -> Result<T, mysql::Error>) -> Result<T, mysql::Error> {
    const DEADLOCK: u16 = 1213;
    const LOCK_WAIT_TIMEOUT: u16 = 1205;
    const CHANGED_SINCE_SNAPSHOT: u16 = 1020;
    loop {
        match transaction() {
            Err(mysql::Error::MySqlError(error))
                if [DEADLOCK, LOCK_WAIT_TIMEOUT, CHANGED_SINCE_SNAPSHOT].contains(&error.code) => {}
            other => return other,
        }
    }
}
