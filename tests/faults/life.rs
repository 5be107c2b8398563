//! The life of a server: load, idle time, growth, statements that rebuild and drop files, undo truncation, backups and
//! administrators, at random, for a configurable time. At the end the extension is active and has raised only the intended
//! suspicions. Every row and the sum of the ledger are right, and no cached page differs from its file.
//!
//! The library is the test build: its audit runs every second and considers a file quiet after four seconds. `BPE_LIFE_SECONDS`
//! is the duration (60; `make life` 4 hours), `BPE_LIFE_SEED` seeds the order of events. Both servers run at the same time.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration_tests::ledger::{Counts, Ledger};
use integration_tests::ordinary::{self, EVENTS, Month, REST};
use integration_tests::{Outcome, Place, Server, Suite, note, sql, verification};

/// Smaller than the data.
const POOL: u64 = 16 << 20;
const CACHE: u64 = 32 << 20;
/// Interval of progress reports in a longer run.
const TELL_EVERY: Duration = Duration::from_secs(300);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("life").each("ends_active", life)
}

fn from_environment(name: &str) -> anyhow::Result<Option<u64>> {
    let Ok(text) = std::env::var(name) else {
        return Ok(None);
    };
    let number = text
        .parse()
        .with_context(|| format!("{name} is '{text}', and not a number"))?;
    Ok(Some(number))
}

/// Counts of the events so far.
#[derive(Default)]
struct Book {
    events: BTreeMap<&'static str, u32>,
    rests: u32,
    compared: u64,
    hits: u64,
    rows: u64,
    last: Vec<&'static str>,
}

impl Book {
    fn done(&mut self, what: &'static str) {
        *self.events.entry(what).or_default() += 1;
        self.last.push(what);
        if self.last.len() > 12 {
            self.last.remove(0);
        }
    }

    fn summary(&self) -> String {
        let events: Vec<String> = self
            .events
            .iter()
            .map(|(name, count)| format!("{count} {name}"))
            .collect();
        format!(
            "{} rests, {} rows read or changed by the ledger, {} hits, {} cached pages compared; {}",
            self.rests,
            self.rows,
            self.hits,
            self.compared,
            events.join(", ")
        )
    }
}

fn life(place: &Place) -> Outcome {
    let time = Duration::from_secs(from_environment("BPE_LIFE_SECONDS")?.unwrap_or(60));
    let seed = from_environment("BPE_LIFE_SEED")?.unwrap_or_else(|| fastrand::u64(..1 << 32));
    let mut random = fastrand::Rng::with_seed(seed);
    let own = ordinary::place_with_undo(place)?;
    let place = own.as_ref().unwrap_or(place);
    let options = || ordinary::with_undo(place.options().buffer_pool(POOL), place);
    let mut with_extension = ordinary::with_undo(place.canary(CACHE, "none")?, place);
    with_extension = with_extension.buffer_pool(POOL);
    if place.is_mysql() && random.bool() {
        with_extension = with_extension.option("--innodb-extend-and-initialize=OFF");
    }
    let server = place.start(with_extension)?;
    let mut book = Book::default();
    let outcome = live(place, &server, &mut random, time, &mut book);
    let last = book.last.join(", ");
    let ledger = outcome
        .with_context(|| format!("seed {seed}, {}; the last ones: {last}", book.summary()))
        .map_err(|error| error.context(place.last_words()))?;
    let clean = verification::stop_and_verify(place, server, &ledger, options())?;
    note(format!(
        "seed {seed}, {} s: {}; {} files and {} tables right",
        time.as_secs(),
        book.summary(),
        clean.files,
        clean.tables
    ));
    Ok(())
}

fn live(
    place: &Place,
    server: &Server,
    random: &mut fastrand::Rng,
    time: Duration,
    book: &mut Book,
) -> anyhow::Result<Ledger> {
    let ledger = Ledger::create(server, 2, 5000, 2600, 6)?;
    let mut month = Month::begin(place, server)?;
    sql::expect_state(server, "active")?;
    let began = Instant::now();
    let mut told = began;
    let mut order: Vec<usize> = Vec::new();
    while began.elapsed() < time {
        load(server, &ledger, &mut month, random, book)?;
        if random.u32(0..3) == 0 {
            std::thread::sleep(REST + Duration::from_secs(random.u64(0..6)));
            book.rests += 1;
        }
        // Each event comes once before one repeats.
        if order.is_empty() {
            order = (0..EVENTS.len()).collect();
            random.shuffle(&mut order);
        }
        let event = &EVENTS[order.pop().unwrap_or(0)];
        book.done(event.name);
        // Switching off resets the counters.
        let hits = sql::figure(server, "hits")?;
        month.make(event)?;
        book.hits += hits.saturating_sub(sql::figure(server, "hits")?);
        book.compared += month.check()?;
        if random.u32(0..8) == 0 {
            month.verify()?;
            ledger.verify(server)?;
        }
        if told.elapsed() > TELL_EVERY {
            told = Instant::now();
            let minutes = began.elapsed().as_secs() / 60;
            let name = place.installation.flavour.name();
            eprintln!("    {name}, {minutes} minutes: {}", book.summary());
        }
    }
    // When idle, check everything once more.
    std::thread::sleep(REST);
    book.compared += month.check()?;
    month.verify()?;
    ledger.verify(server)?;
    book.compared += month.check()?;
    book.hits += sql::figure(server, "hits")?;
    ensure!(book.hits > 0, "nothing was served");
    ensure!(book.compared > 0, "nothing was compared");
    Ok(ledger)
}

/// Runs the ledger, sometimes beside another event.
fn load(
    server: &Server,
    ledger: &Ledger,
    month: &mut Month<'_>,
    random: &mut fastrand::Rng,
    book: &mut Book,
) -> Outcome {
    let time = Duration::from_millis(random.u64(1000..4000));
    let beside = &EVENTS[random.usize(0..EVENTS.len())];
    let counts: Counts = if random.bool() && beside.may_run_beside_a_load() {
        book.done(beside.name);
        ledger.run_while(server, time, || month.make(beside))?
    } else {
        ledger.run(server, time)?
    };
    use std::sync::atomic::Ordering::Relaxed;
    book.rows += counts.reads.load(Relaxed) + counts.updates.load(Relaxed);
    Ok(())
}
