//! Changes to the data directory between two runs of a server. No answer may come from a cached page that differs.
//!
//! Each attack fills tables larger than the buffer pool, caches them, ends the server, changes something, and
//! starts it again. A server without the plugin, on a copy of the data directory, gives the right answers.
//!
//! A short list always runs. `BPE_ATTACKS=all` runs all of them (`make attacks`). `BPE_ROLLBACK_TRIES` repeats the rollbacks,
//! `BPE_ROLLBACK_AFTER` (milliseconds) and `BPE_ROLLBACK_IOPS` set their timing.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration_tests::copies::run;
use integration_tests::mysql::prelude::Queryable;
use integration_tests::taken::{self, Reads};
use integration_tests::verification::{Compared, compare_cached};
use integration_tests::volumes::{FileSystem, Throttle, Volume};
use integration_tests::{
    Flavour, Options, Outcome, Place, Server, Suite, note, place, skip_allowed, sql,
};
use parking_lot::Mutex;

mod attack_list;

/// Large enough for all data.
const CACHE: u64 = 64 << 20;
/// Bytes of a volume. Its file is sparse.
const DISK: u64 = 1 << 30;
/// Rows of the table that the attacks change, about 20 MiB, and of the other one.
const HOT_ROWS: u32 = 6000;
const HOT_WIDTH: u32 = 2500;
const REST_ROWS: u32 = 1500;
const REST_WIDTH: u32 = 1300;
/// Clients that write at the same time.
const WRITERS: usize = 24;
/// Pages of their rows, at least.
const HOT_PAGES: u64 = 1000;
const REST_PAGES: u64 = 120;
/// Pages that the cache serves at least where writes have dropped many.
const WARM_PAGES: u64 = 40;
/// How often an attack may miss its moment.
const LATE_LIMIT: u32 = 8;

/// Activity of the clients when the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Load {
    Idle,
    /// They update rows on a throttled volume.
    Writing,
}

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Stop,
    Kill,
}

/// Where the pages of a table come from after the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Warmth {
    Warm,
    Cold,
    Any,
}

/// Expected remains of the cache after an attack.
#[derive(Clone, Copy, Debug)]
struct Expected {
    hot: Warmth,
    rest: Warmth,
    /// The protocol does not cover it: a wrong answer is reported and is no failure.
    is_covered: bool,
}

const fn expect(hot: Warmth, rest: Warmth) -> Expected {
    Expected {
        hot,
        rest,
        is_covered: true,
    }
}

/// Nothing changed: all pages stay.
const WARM: Expected = expect(Warmth::Warm, Warmth::Warm);
/// No page stays.
const COLD: Expected = expect(Warmth::Cold, Warmth::Cold);
/// The changed table loses its pages.
const HOT_COLD: Expected = expect(Warmth::Cold, Warmth::Warm);
/// Only the answers count.
const ANY: Expected = expect(Warmth::Any, Warmth::Any);
const NOT_COVERED: Expected = Expected {
    is_covered: false,
    ..ANY
};

type Step = fn(&mut Scene) -> Outcome;

/// One line of the list.
#[derive(Clone, Copy)]
struct Attack {
    name: &'static str,
    file_system: FileSystem,
    loads: &'static [Load],
    ends: &'static [End],
    /// Before the first start: the tables have version 0.
    before: Step,
    /// A first session with the plugin caches version 0 and stops before `between`.
    two_sessions: bool,
    between: Step,
    /// The server runs, version 1 is cached, and the writers are active.
    live: Step,
    /// The server is down.
    down: Step,
    expected: Expected,
    /// The bytes stay as they are.
    costs_only_warmth: bool,
    /// Slots of the cache disk are old: page proofs may fail.
    proofs_may_fail: bool,
    /// Runs without `BPE_ATTACKS`, with this server.
    quick: Option<Flavour>,
    /// More options of all servers.
    server: fn(&Scene, Options) -> anyhow::Result<Options>,
}

fn nothing(_: &mut Scene) -> Outcome {
    Ok(())
}

const ATTACK: Attack = Attack {
    name: "",
    file_system: FileSystem::Ext4,
    loads: &[Load::Idle],
    ends: &[End::Stop, End::Kill],
    before: nothing,
    two_sessions: false,
    between: nothing,
    live: nothing,
    down: nothing,
    expected: ANY,
    costs_only_warmth: false,
    proofs_may_fail: false,
    quick: None,
    server: |_, options| Ok(options),
};

/// Where an attack happens.
struct Scene<'a> {
    place: &'a Place,
    attack: Attack,
    // Declared before the volume: the server ends and leaves its group before the volume is unmounted.
    writers: Option<Writers>,
    server: Option<Server>,
    throttle: Option<Throttle>,
    /// Anything that is released at the end.
    guards: Vec<Box<dyn std::any::Any>>,
    /// Another disk, for files that are not in the data directory's file system.
    second: Option<Volume>,
    volume: Volume,
    load: Load,
    end: End,
    /// The attack missed its moment on a busy machine.
    is_too_late: bool,
}

impl Scene<'_> {
    fn data(&self) -> PathBuf {
        self.volume.top().join("data")
    }

    /// The file of the table that is changed.
    fn hot(&self) -> PathBuf {
        self.data().join("d/hot.ibd")
    }

    /// A path for copies that the attack makes, on another file system than the data.
    fn aside(&self, name: &str) -> PathBuf {
        self.place.root().join(format!("aside-{name}"))
    }

    fn server(&self) -> anyhow::Result<&Server> {
        self.server.as_ref().context("no server runs")
    }

    /// Options without the plugin.
    fn plain(&self) -> Options {
        self.place.options_of(&text(&self.data()), "run")
    }

    fn options(&self) -> anyhow::Result<Options> {
        let options = place::extended(
            self.plain(),
            self.place.library()?,
            &self.place.cache(),
            CACHE,
        );
        // Pages that the loader of rejected files fetches would count as hits of proven pages; `warm_events` covers them.
        let options = options.option("--bpe-warm-io-capacity=0");
        (self.attack.server)(self, options)
    }

    /// Runs a server without the plugin for these statements, and stops it.
    fn run_without_plugin(&self, statements: &[&str], more: &[&str]) -> Outcome {
        let options = (self.attack.server)(self, self.plain())?;
        let options = more
            .iter()
            .fold(options, |options, one| options.option(*one));
        let server = self.place.start(options)?;
        sql::run(&server, statements)?;
        server.stop()?;
        Ok(())
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// Clients that update rows until they are dropped or lose their server.
struct Writers {
    is_over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Writers {
    fn start(server: &Server) -> anyhow::Result<Writers> {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut writers = Writers {
            is_over: is_over.clone(),
            threads: Vec::new(),
        };
        for number in 0..WRITERS {
            let mut connection = server.connect()?;
            let is_over = is_over.clone();
            writers.threads.push(std::thread::spawn(move || {
                let mut random = fastrand::Rng::with_seed(number as u64);
                while !is_over.load(Ordering::Relaxed) {
                    let ids: Vec<String> = (0..4)
                        .map(|_| random.u32(1..=HOT_ROWS).to_string())
                        .collect();
                    let statement =
                        format!("UPDATE d.hot SET v = v + 1 WHERE id IN ({})", ids.join(","));
                    match connection.query_drop(statement) {
                        // A deadlock.
                        Err(integration_tests::mysql::Error::MySqlError(error))
                            if [1213, 1205].contains(&error.code) => {}
                        Err(_) => return,
                        Ok(()) => {}
                    }
                }
            }));
        }
        Ok(writers)
    }
}

impl Drop for Writers {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// A server's answers: for each table a checksum of all rows.
#[derive(Debug, PartialEq, Eq)]
struct Answers(Vec<String>);

impl Answers {
    fn of(server: &Server) -> anyhow::Result<Answers> {
        let mut connection = server.connect()?;
        let mut answers = Vec::new();
        for table in ["d.hot", "d.rest"] {
            for index in ["PRIMARY", "v"] {
                let sums: Option<(u64, Option<String>)> = connection.query_first(format!(
                    "SELECT COUNT(*), CAST(SUM(v) AS CHAR) FROM {table} FORCE INDEX ({index})"
                ))?;
                answers.push(format!("{table} by {index}: {sums:?}"));
            }
            let sum: Option<(String, Option<String>)> =
                connection.query_first(format!("CHECKSUM TABLE {table} EXTENDED"))?;
            answers.push(format!("{sum:?}"));
        }
        Ok(Answers(answers))
    }

    fn differences(&self, right: &Answers) -> String {
        let pairs = self.0.iter().zip(&right.0);
        let different: Vec<String> = pairs
            .filter(|(seen, right)| seen != right)
            .map(|(seen, right)| format!("{seen} instead of {right}"))
            .collect();
        different.join("; ")
    }
}

/// Reads every row in an order that visits pages often, so that all are admitted.
fn read_often(server: &Server) -> Outcome {
    let mut connection = server.connect()?;
    sql::read_all(&mut connection, "d.hot", HOT_ROWS)?;
    sql::read_all(&mut connection, "d.rest", REST_ROWS)?;
    Ok(())
}

/// Reads every page of both tables once; returns where they came from.
fn scan(server: &Server) -> anyhow::Result<[Reads; 2]> {
    let mut connection = server.connect()?;
    let mut reads = ["d.hot", "d.rest"].map(|table| {
        connection.query_drop(format!(
            "SELECT SUM(LENGTH(pad)) FROM {table} FORCE INDEX (PRIMARY)"
        ))?;
        Reads::of(server, table)
    });
    let [hot, rest] = &mut reads;
    Ok([take(hot)?, take(rest)?])
}

fn take(reads: &mut anyhow::Result<Reads>) -> anyhow::Result<Reads> {
    std::mem::replace(reads, Ok(Reads { hits: 0, misses: 0 }))
}

/// The tables with version 0, in a data directory that is created once for each server.
fn filled(place: &Place) -> anyhow::Result<PathBuf> {
    let name = format!("attacks-{}", place.installation.version.replace('/', "-"));
    place::made_once(&name, |partial| {
        let server = place.start(place.roomy())?;
        let mut connection = server.connect()?;
        sql::fill(&mut connection, "d.hot", HOT_ROWS, HOT_WIDTH, "")?;
        sql::fill(&mut connection, "d.rest", REST_ROWS, REST_WIDTH, "")?;
        drop(connection);
        server.sql("SET GLOBAL innodb_fast_shutdown = 0")?;
        server.stop()?;
        place::copy_folder(&place.data(), partial)
    })
}

/// Starts the server with the plugin, and caches both tables.
fn warm_up(scene: &Scene, update: bool) -> anyhow::Result<Server> {
    let server = scene.place.start(scene.options()?)?;
    if update {
        server.sql("UPDATE d.hot SET v = v + 1, pad = REVERSE(pad)")?;
        sql::write_dirty_pages(&server)?;
    }
    for _ in 0..2 {
        read_often(&server)?;
    }
    taken::expect_written(&server)?;
    Ok(server)
}

/// A number from the environment.
fn setting(name: &str, default: u32) -> u32 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Starts overlapping writes on the throttled volume.
fn begin_writing(scene: &mut Scene) -> Outcome {
    let server = scene.server.as_ref().context("no server runs")?;
    sql::run(
        server,
        &[
            "SET GLOBAL innodb_io_capacity_max = 8000",
            "SET GLOBAL innodb_io_capacity = 4000",
            "SET GLOBAL innodb_max_dirty_pages_pct_lwm = 0.1",
            "SET GLOBAL innodb_max_dirty_pages_pct = 1",
        ],
    )?;
    let iops = setting("BPE_ROLLBACK_IOPS", 120);
    if iops > 0 {
        let throttle = Throttle::create(&scene.volume)?;
        throttle.add(server.pid())?;
        throttle.set(iops)?;
        scene.throttle = Some(throttle);
    }
    scene.writers = Some(Writers::start(server)?);
    std::thread::sleep(Duration::from_millis(4000));
    Ok(())
}

/// Ends the server while the clients write.
fn end(scene: &mut Scene) -> Outcome {
    if scene.load == Load::Writing {
        let after = setting("BPE_ROLLBACK_AFTER", 700);
        std::thread::sleep(Duration::from_millis(after.into()));
    }
    if let Some(throttle) = &scene.throttle {
        throttle.set(0)?;
    }
    let server = scene.server.take().context("no server runs")?;
    match scene.end {
        End::Stop => drop(server.stop()?),
        End::Kill => server.kill(),
    }
    scene.writers = None;
    scene.throttle = None;
    Ok(())
}

/// The answers of a server without the plugin on a copy of the data directory.
fn right_answers(scene: &Scene) -> anyhow::Result<Answers> {
    let place = scene.place;
    let truth = place.root().join("truth");
    run(Command::new("cp")
        .args(["-a", "--reflink=never", "--sparse=auto"])
        .arg(scene.data())
        .arg(&truth))?;
    let options = place.options_of("truth", "run-truth");
    let mut options = (scene.attack.server)(scene, options.buffer_pool(place::ROOMY))?;
    // Files elsewhere are copied as well. A private mount namespace shows the server the copies at the same path.
    let elsewhere = place.root().join("truth-elsewhere");
    if let Some(second) = &scene.second {
        run(Command::new("cp")
            .args(["-a", "--reflink=never"])
            .arg(second.top())
            .arg(&elsewhere))?;
        let script = "mount --bind \"$0\" \"$1\" && shift && exec \"$@\"";
        let (copy, path) = (text(&elsewhere), text(&second.top()));
        options = options.wrapper(&["unshare", "--mount", "sh", "-c", script, &copy, &path]);
    }
    let server = place.start(options)?;
    let answers = Answers::of(&server)?;
    server.kill();
    std::fs::remove_dir_all(&truth)?;
    if scene.second.is_some() {
        std::fs::remove_dir_all(&elsewhere)?;
    }
    Ok(answers)
}

/// Results of the server with the plugin after the attack.
#[derive(Default)]
struct Seen {
    hot: Option<Reads>,
    rest: Option<Reads>,
    trusted: u64,
    lost: u64,
    differing: u64,
    failed_proofs: u64,
    wrong: String,
}

impl Seen {
    fn by(scene: &mut Scene, right: &Answers) -> anyhow::Result<Seen> {
        let mut seen = Seen::default();
        // InnoDB may crash on an old page: a wrong answer as well.
        if let Err(error) = seen.look(scene, right) {
            let words = format!("{error:#}");
            seen.wrong = format!("{} the server: {words}", seen.wrong);
        }
        Ok(seen)
    }

    fn look(&mut self, scene: &mut Scene, right: &Answers) -> Outcome {
        let server = scene.place.start(scene.options()?)?;
        let server = scene.server.insert(server);
        let [hot, rest] = scan(server)?;
        (self.hot, self.rest) = (Some(hot), Some(rest));
        let inherited = &sql::report(server, "summary")?["inherited"];
        let pages = |kind: &str| inherited[kind]["pages"].as_u64().unwrap_or_default();
        (self.trusted, self.lost) = (pages("trusted"), pages("lost"));
        let answers = Answers::of(server)?;
        self.wrong = answers.differences(right);
        let known = server.value("SELECT 1 FROM mysql.func WHERE name = 'bpe_report'")?;
        if known.is_none() {
            server.sql(integration_tests::trace::CREATE_FUNCTION)?;
        }
        let mut sums = Compared::default();
        compare_cached(server, &mut sums)?;
        self.differing = sums.wrong;
        self.failed_proofs = sql::figure(server, "failed_proofs")?;
        // A failed proof counts as an error of the cache disk as well.
        let errors = sql::figure(server, "device_errors")?;
        ensure!(
            errors <= self.failed_proofs,
            "Bpe_device_errors is {errors}"
        );
        Ok(())
    }

    fn judge(&self, attack: &Attack, load: Load) -> Outcome {
        if !attack.expected.is_covered {
            return Ok(());
        }
        ensure!(
            self.wrong.is_empty() && self.differing == 0,
            "{} differing pages; {}",
            self.differing,
            self.wrong
        );
        ensure!(
            self.failed_proofs == 0 || attack.proofs_may_fail,
            "{} failed proofs",
            self.failed_proofs
        );
        let tables = [
            ("hot", attack.expected.hot, self.hot, HOT_PAGES),
            ("rest", attack.expected.rest, self.rest, REST_PAGES),
        ];
        for (table, expected, reads, pages) in tables {
            let reads = reads.context("no reads")?;
            // Each page that is not there must be read from the file once. Reads by recovery and rollback count as well.
            let is_right = match expected {
                Warmth::Any => true,
                Warmth::Cold => reads.misses * 100 >= pages * 95,
                Warmth::Warm if load == Load::Writing => reads.misses + WARM_PAGES <= pages,
                Warmth::Warm => reads.misses * 2 < pages,
            };
            ensure!(is_right, "{table} is not {expected:?}: {reads:?}");
        }
        Ok(())
    }

    fn in_words(&self) -> String {
        let reads = |reads: Option<Reads>| match reads {
            Some(reads) => format!("{}/{}", reads.hits, reads.hits + reads.misses),
            None => "-".into(),
        };
        let answers = match self.wrong.is_empty() {
            true => "right",
            false => "WRONG",
        };
        let proofs = match self.failed_proofs {
            0 => String::new(),
            count => format!(", {count} failed proofs"),
        };
        format!(
            "{answers}, {} differing{proofs} | {} | {} | {} | {}",
            self.differing,
            reads(self.hot),
            reads(self.rest),
            self.trusted,
            self.lost
        )
    }
}

/// Lines of the table at the end.
static TABLE: Mutex<Vec<String>> = Mutex::new(Vec::new());

const HEAD: &str = "| attack | server | volume | load | end | expected | seen | hot | rest | trusted | lost | s | verdict |\n\
                    |---|---|---|---|---|---|---|---|---|---|---|---|---|";

fn expected_words(attack: &Attack) -> String {
    let Expected {
        hot,
        rest,
        is_covered,
    } = attack.expected;
    let mut words = match (is_covered, hot == rest) {
        (false, _) => "not covered".into(),
        (true, true) => format!("{hot:?}").to_lowercase(),
        (true, false) => format!("hot {hot:?}, rest {rest:?}").to_lowercase(),
    };
    if attack.costs_only_warmth && [hot, rest].contains(&Warmth::Cold) {
        words.push_str(" (costs only warmth)");
    }
    words
}

fn play(place: &Place, attack: Attack, load: Load, end_by: End) -> Outcome {
    let tries = match load {
        Load::Writing => setting("BPE_ROLLBACK_TRIES", 1),
        Load::Idle => 1,
    };
    for _ in 0..tries {
        let mut late = 0;
        while !play_once(place, attack, load, end_by)? {
            late += 1;
            if late == LATE_LIMIT {
                return Err(skip_allowed("each time the change came too late"));
            }
        }
    }
    Ok(())
}

/// Returns false where the attack missed its moment.
fn play_once(place: &Place, attack: Attack, load: Load, end_by: End) -> anyhow::Result<bool> {
    let began = Instant::now();
    let template = filled(place)?;
    for path in place
        .kept()
        .into_iter()
        .chain(place::files_in(&place.cache()))
    {
        std::fs::remove_file(path)?;
    }
    let volume = Volume::create(place.root(), "disk", attack.file_system, DISK)?;
    let mut scene = Scene {
        place,
        attack,
        writers: None,
        server: None,
        throttle: None,
        guards: Vec::new(),
        second: None,
        volume,
        load,
        end: end_by,
        is_too_late: false,
    };
    if attack.file_system == FileSystem::Btrfs {
        // As databases on btrfs are kept: without copy on write, direct I/O is direct.
        std::fs::create_dir(scene.data())?;
        run(Command::new("chattr").arg("+C").arg(scene.data()))?;
        run(Command::new("cp")
            .args(["-a", "--reflink=never"])
            .arg(template.join("."))
            .arg(scene.data()))?;
    } else {
        place::copy_folder(&template, &scene.data())?;
    }
    (attack.before)(&mut scene).context("before the first start")?;
    if attack.two_sessions {
        warm_up(&scene, false)?.stop()?;
        (attack.between)(&mut scene).context("between the sessions")?;
    }
    scene.server = Some(warm_up(&scene, true)?);
    if load == Load::Writing {
        begin_writing(&mut scene)?;
    }
    (attack.live)(&mut scene).context("while the server runs")?;
    end(&mut scene)?;
    (attack.down)(&mut scene).context("while the server is down")?;
    if scene.is_too_late {
        return Ok(false);
    }
    let right = match right_answers(&scene) {
        Err(error) if !attack.expected.is_covered => {
            note(format!("{}: no server starts: {error:#}", attack.name));
            return Ok(true);
        }
        right => right.context("a server without the plugin")?,
    };
    let seen = Seen::by(&mut scene, &right)?;
    let verdict = seen.judge(&attack, load);
    let line = format!(
        "| {} | {} | {} | {load:?} | {end_by:?} | {} | {} | {:.0} | {} |",
        attack.name,
        place.installation.flavour.name(),
        attack.file_system.name(),
        expected_words(&attack),
        seen.in_words(),
        began.elapsed().as_secs_f64(),
        if verdict.is_ok() { "pass" } else { "FAIL" }
    );
    note(&line);
    TABLE.lock().push(line);
    verdict?;
    if let Some(server) = scene.server.take() {
        match attack.expected.is_covered {
            true => drop(server.stop()?),
            false => server.kill(),
        }
    }
    Ok(true)
}

/// The tests of this subject.
pub fn suite() -> Suite {
    let all = std::env::var("BPE_ATTACKS").is_ok_and(|value| value == "all");
    let mut suite = Suite::new("attacks");
    for attack in attack_list::attacks() {
        let cases = attack
            .loads
            .iter()
            .flat_map(|load| attack.ends.iter().map(move |end| (*load, *end)));
        for (number, (load, end)) in cases.enumerate() {
            for flavour in [Flavour::MariaDb1011, Flavour::MySql97] {
                let is_quick = number == 0 && attack.quick == Some(flavour);
                if all || is_quick {
                    let file_system = attack.file_system.name().replace(" -I ", "_");
                    let name = format!("{}_{file_system}_{load:?}_{end:?}", attack.name);
                    let name = name.to_lowercase();
                    suite = suite.with(flavour, &name, move |place| play(place, attack, load, end));
                }
            }
        }
    }
    suite
}

/// Prints the table of results, if any attack ran.
pub fn print_table() {
    let mut table = TABLE.lock().clone();
    if !table.is_empty() {
        table.sort();
        println!("\n{HEAD}\n{}", table.join("\n"));
    }
}
