//! Health checks and pages while other callers exhaust the connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration_tests::cluster::free_ports;
use integration_tests::harness::{Outcome, skip_allowed};
use integration_tests::note;
use rustix::process::{Resource, getrlimit, setrlimit};

use super::open;

/// Connections held open without a request.
const IDLE: usize = 10_000;
/// Idle connections opened per second after that.
const REOPENED: usize = 200;
/// Requests with wrong tokens per second.
const WRONG_TOKENS: usize = 1000;
/// Checks timed in a round.
const CHECKS: usize = 100;
/// Rounds. Other load of the machine may disturb one of them.
const ROUNDS: usize = 3;
/// Documented time limit.
const LIMIT: Duration = Duration::from_millis(100);
/// Time limit that holds in each round.
const ALWAYS: Duration = Duration::from_secs(1);

/// Threads of a flood, ended on drop.
struct Flood {
    is_over: Arc<AtomicBool>,
    count: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn new() -> Self {
        Self {
            is_over: Arc::default(),
            count: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Sends `text` on a new connection `a_second` times a second, and holds the last of these connections.
    fn repeat(&mut self, a_second: usize, held: Vec<TcpStream>, address: SocketAddr, text: &str) {
        let (is_over, count) = (Arc::clone(&self.is_over), Arc::clone(&self.count));
        let (mut held, text) = (held, text.to_owned());
        self.threads.push(std::thread::spawn(move || {
            let begin = Instant::now();
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
                let oldest = number % held.len();
                if let Ok(mut stream) = connect(address) {
                    let _ = stream.write_all(text.as_bytes());
                    held[oldest] = stream;
                    count.fetch_add(1, Ordering::Relaxed);
                }
                let due = begin + Duration::from_secs_f64(number as f64 / a_second as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }));
    }
}

fn connect(address: SocketAddr) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&address, Duration::from_secs(5))
}

/// Opens `count` connections at once.
fn connect_all(address: SocketAddr, count: usize) -> anyhow::Result<Vec<TcpStream>> {
    (0..count).map(|_| Ok(connect(address)?)).collect()
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Returns the status, and the time from the connection on.
fn ask(address: SocketAddr, path: &str, headers: &str) -> anyhow::Result<(u16, Duration)> {
    let begin = Instant::now();
    let mut stream = connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(
        stream,
        "GET {path} HTTP/1.0\r\nHost: {address}\r\n{headers}\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).context("no answer")?.parse()?;
    Ok((status, begin.elapsed()))
}

fn raise_descriptors(wanted: u64) -> Outcome {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.maximum.is_some_and(|maximum| maximum < wanted) {
        return Err(skip_allowed(format!(
            "the limit of open files is below {wanted}: ulimit -Hn"
        )));
    }
    if limit.current.is_some_and(|current| current < wanted) {
        limit.current = Some(wanted);
        setrlimit(Resource::Nofile, limit)?;
    }
    Ok(())
}

/// `/ready` and the page answer in time beside idle connections to both ports and wrong tokens.
pub fn checks_are_answered_beside_a_flood() -> Outcome {
    raise_descriptors(IDLE as u64 + 1000)?;
    let folder = tempfile::tempdir()?;
    let [[port]] = free_ports()?;
    let option = format!("--health={port}");
    let console = open(folder.path(), &folder.path().join("no.sock"), &[&option])?;
    let health = SocketAddr::from(([127, 0, 0, 1], port));
    let token = format!("Authorization: {}\r\n", console.bearer());
    let mut flood = Flood::new();
    for address in [console.address, health] {
        let idle = connect_all(address, IDLE / 2)?;
        flood.repeat(REOPENED / 2, idle, address, "");
    }
    let wrong = format!(
        "GET /api/about HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer wrong\r\n\r\n",
        console.address
    );
    let held = connect_all(console.address, 100)?;
    flood.repeat(WRONG_TOKENS, held, console.address, &wrong);
    // Until both listeners have closed the surplus.
    let begin = Instant::now();
    for (address, path, headers) in [
        (health, "/ready?server=main", ""),
        (console.address, "/api/about", token.as_str()),
    ] {
        while ask(address, path, headers)?.1 > LIMIT {
            ensure!(begin.elapsed() < Duration::from_secs(60), "{path} is slow");
        }
    }
    let mut longest = Vec::new();
    for _ in 0..ROUNDS {
        let before = (Instant::now(), flood.count.load(Ordering::Relaxed));
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..CHECKS {
            let (status, took) = ask(health, "/ready?server=main", "")?;
            ensure!(status == 503, "{status}");
            times[0].push(took);
            let (status, took) = ask(console.address, "/api/about", &token)?;
            ensure!(status == 200, "{status}");
            times[1].push(took);
            std::thread::sleep(Duration::from_millis(10));
        }
        let count = flood.count.load(Ordering::Relaxed) - before.1;
        let a_second = count as f64 / before.0.elapsed().as_secs_f64();
        times.iter_mut().for_each(|times| times.sort());
        let [ready, page] = times;
        note(format!(
            "beside {IDLE} idle connections and {a_second:.0} new ones a second: /ready median {:?}, longest {:?}; page {:?}, {:?}",
            ready[CHECKS / 2],
            ready[CHECKS - 1],
            page[CHECKS / 2],
            page[CHECKS - 1]
        ));
        longest.push(ready[CHECKS - 1].max(page[CHECKS - 1]));
    }
    ensure!(longest.iter().all(|took| *took <= ALWAYS), "{longest:?}");
    ensure!(longest.iter().any(|took| *took <= LIMIT), "{longest:?}");
    Ok(())
}

/// All connections of an address count as one caller, a wrong token costs time, and checks refuse foreign host names.
pub fn strangers_are_bounded() -> Outcome {
    let folder = tempfile::tempdir()?;
    let [[port]] = free_ports()?;
    let option = format!("--health={port}");
    let console = open(folder.path(), &folder.path().join("no.sock"), &[&option])?;
    let health = SocketAddr::from(([127, 0, 0, 1], port));
    let mut streams = Vec::new();
    for address in [console.address, health] {
        streams.extend(connect_all(address, 300)?);
        ensure!(ask(address, "/", "")?.1 < Duration::from_secs(2));
    }
    for (name, wanted) in [
        ("127.0.0.1", 503),
        ("localhost", 503),
        ("evil.example", 403),
    ] {
        let mut stream = TcpStream::connect(health)?;
        write!(
            stream,
            "GET /ready?server=main HTTP/1.0\r\nHost: {name}\r\n\r\n"
        )?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        ensure!(text.starts_with(&format!("HTTP/1.0 {wanted}")), "{text}");
        ensure!(
            wanted == 403 || text.ends_with("main is not ready: it does not answer\n"),
            "{text}"
        );
    }
    let begin = Instant::now();
    for _ in 0..12 {
        let wrong = "Authorization: Bearer wrong\r\n";
        ensure!(ask(console.address, "/api/about", wrong)?.0 == 401);
    }
    ensure!(
        begin.elapsed() >= Duration::from_millis(1500),
        "{:?}",
        begin.elapsed()
    );
    Ok(())
}
