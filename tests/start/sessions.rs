//! Concurrent sessions switch, set, install and record at random. Afterwards the extension has the state of the last statement,
//! and nothing remains.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cloud_volume::{Fault, Operation, Volume};
use integration_tests::mysql::{self, Conn, prelude::Queryable};
use integration_tests::place::{cache_files_in, files_in};
use integration_tests::{Outcome, Place, Server, Suite, library, mounts, note, sql, trace};

const SESSIONS: u64 = 5;
const ROUNDS: u64 = 5;
/// Duration of the random statements in each round.
const ROUND: Duration = Duration::from_millis(2500);
/// Timeout for automatic actions that normally take at most a second.
const SOON: Duration = Duration::from_secs(20);
const ROWS: u32 = 12_000;

/// Permitted errors of statements that conflict with other sessions.
const REFUSALS: [&str; 7] = [
    "is not set;",
    "is too small",
    "switched the extension off meanwhile",
    "Unknown system variable",
    "does not exist",
    "already installed",
    "already exists",
];

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("sessions")
        .each("a_setting_just_before_on", a_setting_just_before_on)
        .each(
            "a_setting_between_check_and_assignment",
            a_setting_between_check_and_assignment,
        )
        .each(
            "installed_anew_while_the_controller_hangs",
            installed_anew_while_the_controller_hangs,
        )
        .each("at_once_at_random", at_once_at_random)
        .in_turn(
            "at_once_at_random_on_a_bad_disk",
            at_once_at_random_on_a_bad_disk,
        )
}

/// Parameters of the sessions.
struct Setup<'a> {
    server: &'a Server,
    install: &'static str,
    uninstall: &'static str,
    folders: [PathBuf; 2],
    bad: bool,
}

/// Errors of a failing disk.
const BAD_DISK: [&str; 3] = [
    "Input/output error",
    "try again in some seconds",
    "in use by",
];

fn refusals(bad_disk: bool) -> impl Iterator<Item = &'static str> {
    let more: &[&str] = if bad_disk { &BAD_DISK } else { &[] };
    REFUSALS.iter().chain(more).copied()
}

const CACHE: u64 = 64 << 20;

/// Enabling an enabled extension does not discard a setting changed just before.
fn a_setting_just_before_on(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    sql::expect_state(&server, "active")?;
    let mut connection = server.connect()?;
    for instances in [3u64, 2, 4] {
        connection.query_drop(format!("SET GLOBAL bpe_instances = {instances}"))?;
        connection.query_drop("SET GLOBAL bpe_enabled = ON")?;
        sql::wait_until("rebuilt as it was set", SOON, || {
            Ok(sql::summary_figure(&server, "/instances")? == instances)
        })?;
    }
    server.stop()?;
    Ok(())
}

/// A setting changed after another session has built the extension, and before it enabled it, takes effect.
fn a_setting_between_check_and_assignment(place: &Place) -> Outcome {
    let server = place.start(place.early_disabled(CACHE)?)?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, 1000, "")?;
    std::thread::scope(|scope| -> Outcome {
        let client = scope.spawn(|| server.sql(&gap(3000)));
        sql::wait_until("built", SOON, || Ok(!place.cache_files().is_empty()))?;
        // One page a second.
        server.sql("SET GLOBAL bpe_io_capacity = 1")?;
        client.join().expect("no panic")?;
        Ok(())
    })?;
    sql::expect_state(&server, "active")?;
    sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
    std::thread::sleep(Duration::from_secs(2));
    let written = sql::figure(&server, "bytes_written")?;
    ensure!(
        written < 2 << 20,
        "{written} bytes were written, though 16 KiB a second are allowed"
    );
    // Without the limit the pages are written.
    server.sql("SET GLOBAL bpe_io_capacity = 0")?;
    sql::wait_until("written", SOON, || {
        sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
        Ok(sql::figure(&server, "bytes_written")? > 2 << 20)
    })?;
    server.stop()?;
    Ok(())
}

/// The plugin is uninstalled while its controller waits for a disk, and reinstalled. At the end there is one controller, and
/// nothing of the former installation.
fn installed_anew_while_the_controller_hangs(place: &Place) -> Outcome {
    let disk = mounts::disk_with_faults(place, "bad")?;
    let folder = disk.mountpoint().join("cache");
    std::fs::create_dir_all(&folder)?;
    let server = place.start(place.installable()?)?;
    place.install(&server, CACHE)?;
    server.sql(&format!("SET GLOBAL bpe_path = '{}'", folder.display()))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    disk.stall(Duration::from_secs(600));
    server.sql("SET GLOBAL bpe_instances = 2")?;
    sql::wait_until("it is built anew", SOON, || {
        Ok(sql::status(&server, "state")? != "active")
    })?;
    server.sql(place.uninstall_statement())?;
    server.sql(place.install_statement())?;
    disk.resume();
    sql::wait_until("one controller, and nothing else", SOON, || {
        Ok(library::threads(&server)? == ["bpe-controller"] && files_in(&folder).is_empty())
    })
    .with_context(|| format!("{:?}, {:?}", library::threads(&server), files_in(&folder)))?;
    server.sql(&format!(
        "SET GLOBAL bpe_path = '{}', bpe_size = {CACHE}",
        folder.display()
    ))?;
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    server.stop()?;
    ensure!(
        cache_files_in(&folder).len() == 1,
        "{:?}",
        files_in(&folder)
    );
    disk.unmount()?;
    Ok(())
}

#[derive(Default)]
struct Seen {
    statements: u64,
    refused: BTreeMap<String, u64>,
    longest: (Duration, String),
}

impl Seen {
    fn add(&mut self, statement: &str, took: Duration, refused: Option<String>) {
        self.statements += 1;
        if let Some(text) = refused {
            *self.refused.entry(text).or_default() += 1;
        }
        if took > self.longest.0 {
            self.longest = (took, statement.to_owned());
        }
    }
}

fn at_once_at_random(place: &Place) -> Outcome {
    at_random(place, None)
}

/// One of the two disks fails and hangs repeatedly, and works at the end.
fn at_once_at_random_on_a_bad_disk(place: &Place) -> Outcome {
    let disk = mounts::disk_with_faults(place, "bad")?;
    at_random(place, Some(&disk))?;
    disk.unmount()?;
    Ok(())
}

fn at_random(place: &Place, bad: Option<&Volume>) -> Outcome {
    let seed = std::env::var("BPE_SESSIONS_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..1_000_000));
    let rounds = std::env::var("BPE_SESSIONS_ROUNDS")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(ROUNDS);
    let other = bad.map_or(place.root(), Volume::mountpoint).join("cache2");
    std::fs::create_dir_all(&other)?;
    let server = place.start(place.installable()?)?;
    let setup = Setup {
        server: &server,
        install: place.install_statement(),
        uninstall: place.uninstall_statement(),
        folders: [place.cache(), other],
        bad: bad.is_some(),
    };
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", ROWS, 1000, "")?;
    connection.query_drop(setup.install)?;
    connection.query_drop(trace::CREATE_FUNCTION)?;
    let seen = Mutex::new(Seen::default());
    let done = AtomicBool::new(false);
    let outcome = std::thread::scope(|scope| {
        let load: Vec<_> = (0..2)
            .map(|_| scope.spawn(|| load(&server, &done)))
            .collect();
        let mut random = fastrand::Rng::with_seed(seed);
        let outcome = (0..rounds).try_for_each(|round| {
            let until = Instant::now() + ROUND;
            std::thread::scope(|scope| -> Outcome {
                let sessions: Vec<_> = (0..SESSIONS)
                    .map(|number| {
                        let random = random.fork();
                        let (setup, seen) = (&setup, &seen);
                        scope.spawn(move || session(setup, number, random, until, seen))
                    })
                    .collect();
                if let Some(disk) = bad {
                    fail_now_and_then(disk, &mut random, until);
                }
                sessions
                    .into_iter()
                    .try_for_each(|session| session.join().expect("no panic"))
            })
            .with_context(|| format!("round {round}"))?;
            settle(&setup, &mut random).with_context(|| format!("after round {round}"))
        });
        done.store(true, Ordering::Relaxed);
        load.into_iter()
            .try_for_each(|load| load.join().expect("no panic"))
            .and(outcome)
    });
    let seen = seen.into_inner().expect("no panic");
    note(format!(
        "seed {seed}: {} statements, the longest took {:.1} ms: {}",
        seen.statements,
        seen.longest.0.as_secs_f64() * 1e3,
        seen.longest.1
    ));
    if std::env::var_os("BPE_SESSIONS_SEED").is_some() {
        seen.refused
            .iter()
            .for_each(|(text, times)| eprintln!("    {times} x {text}"));
    }
    outcome.with_context(|| format!("seed {seed}"))?;
    let log = std::fs::read_to_string(server.log())?;
    let errors: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("[ERROR]"))
        .filter(|line| !refusals(bad.is_some()).any(|known| line.contains(known)))
        .collect();
    ensure!(errors.is_empty(), "{errors:#?}");
    server.stop()?;
    Ok(())
}

/// Makes the disk fail and hang at random; it works again at the end.
fn fail_now_and_then(disk: &Volume, random: &mut fastrand::Rng, until: Instant) {
    while Instant::now() < until {
        match random.u8(..4) {
            0 => disk.stall(Duration::from_millis(random.u64(..1500))),
            1 => disk.add_fault(Fault {
                every: random.u64(1..5),
                ..Fault::error(Operation::Any)
            }),
            _ => disk.clear_faults(),
        }
        std::thread::sleep(Duration::from_millis(random.u64(..300)));
    }
    disk.clear_faults();
    disk.resume();
}

/// Continuous reads and writes; no statement may fail.
fn load(server: &Server, done: &AtomicBool) -> Outcome {
    let mut connection = server.connect()?;
    while !done.load(Ordering::Relaxed) {
        let ids: Vec<String> = (0..20)
            .map(|_| fastrand::u32(1..=ROWS).to_string())
            .collect();
        let ids = ids.join(",");
        let sum: Option<Option<u64>> = connection.query_first(format!(
            "SELECT CAST(SUM(LENGTH(pad)) AS UNSIGNED) FROM d.t WHERE id IN ({ids})"
        ))?;
        ensure!(sum.flatten().is_some_and(|sum| sum % 1000 == 0));
        match connection.query_drop(format!("UPDATE d.t SET v = v + 1 WHERE id IN ({ids})")) {
            Err(mysql::Error::MySqlError(error)) if error.code == 1213 => {}
            result => result?,
        }
    }
    Ok(())
}

/// One session with random statements.
fn session(
    setup: &Setup,
    number: u64,
    mut random: fastrand::Rng,
    until: Instant,
    seen: &Mutex<Seen>,
) -> Outcome {
    let mut connection = setup.server.connect_within(Duration::from_secs(100))?;
    let mut recording = None;
    while Instant::now() < until {
        let statement = match (number, random.u8(..20)) {
            (0, 0..2) => setup.uninstall.into(),
            (0, 2..=6) => setup.install.into(),
            (0, 7..=9) => format!(
                "SET GLOBAL bpe_size = {}, bpe_path = '{}'",
                64 << 20,
                setup.folders[0].display()
            ),
            (1, 0..10) => {
                record(&mut connection, &mut recording, &mut random)?;
                continue;
            }
            (_, 0..4) => "SET GLOBAL bpe_enabled = ON".into(),
            (_, 4..=6) => "SET GLOBAL bpe_enabled = OFF".into(),
            // Leaves time for other sessions between checking and assigning the value.
            (_, 7..9) => gap(random.u32(..300)),
            // Checked, but never assigned.
            (_, 9) => "SET GLOBAL bpe_enabled = ON, bpe_size = 1".into(),
            (_, 10) => "SHOW GLOBAL STATUS LIKE 'bpe%'".into(),
            (_, 11) => "SELECT bpe_report('summary')".into(),
            (_, 12..16) => setting(setup, &mut random),
            (_, 16) => "SELECT bpe_report('files')".into(),
            _ => {
                std::thread::sleep(Duration::from_millis(random.u64(..100)));
                continue;
            }
        };
        let began = Instant::now();
        let refused = match connection.query_drop(&statement) {
            Ok(()) if statement == setup.uninstall => {
                let took = began.elapsed();
                until_gone(&mut connection)?;
                seen.lock().expect("no panic").add(&statement, took, None);
                continue;
            }
            Ok(()) => None,
            Err(mysql::Error::MySqlError(error)) => {
                ensure!(
                    refusals(setup.bad).any(|known| error.message.contains(known)),
                    "{statement}: {error}"
                );
                Some(error.message)
            }
            Err(error) => return Err(error).context(statement),
        };
        seen.lock()
            .expect("no panic")
            .add(&statement, began.elapsed(), refused);
    }
    Ok(())
}

/// Waits until no statement uses the uninstalled plugin. MariaDB crashes if a plugin is installed while another session removes
/// it (`docs/evidence/reliability.md`). A query for the plugin would itself use it.
fn until_gone(connection: &mut Conn) -> Outcome {
    let warnings: Vec<(String, u32, String)> = connection.query("SHOW WARNINGS")?;
    if warnings.iter().any(|(_, _, text)| text.contains("busy")) {
        std::thread::sleep(Duration::from_secs(1));
    }
    Ok(())
}

fn gap(milliseconds: u32) -> String {
    format!(
        "SET GLOBAL bpe_enabled = ON, max_connections = 151 + SLEEP({})",
        f64::from(milliseconds) / 1e3
    )
}

fn setting(setup: &Setup, random: &mut fastrand::Rng) -> String {
    match random.usize(..7) {
        which @ 0..2 => format!("SET GLOBAL bpe_path = '{}'", setup.folders[which].display()),
        2 => format!("SET GLOBAL bpe_size = {}", random.u64(64..80) << 20),
        3 => format!("SET GLOBAL bpe_instances = {}", random.u32(1..4)),
        4 => format!("SET GLOBAL bpe_io_capacity = {}", random.u32(..2000)),
        5 => format!(
            "SET GLOBAL bpe_compression = {}",
            if random.bool() { "lz4" } else { "off" }
        ),
        _ => format!("SET GLOBAL bpe_memory_limit = {}", random.u64(50..60) << 20),
    }
}

/// Begins, drains or ends a recording.
fn record(
    connection: &mut Conn,
    recording: &mut Option<String>,
    random: &mut fastrand::Rng,
) -> Outcome {
    let Some(name) = recording else {
        let answer = trace::ask(connection, "trace-start")?;
        *recording = answer["recording"].as_str().map(str::to_owned);
        return Ok(());
    };
    let argument = if random.u8(..4) == 0 {
        format!("trace-stop {name}")
    } else {
        format!("trace-next {name} {}", u64::MAX >> 1)
    };
    let answer = trace::ask(connection, &argument)?;
    if answer["done"] == true || answer.get("error").is_some() {
        *recording = None;
    }
    Ok(())
}

/// The settings of the last session must take effect.
fn settle(setup: &Setup, random: &mut fastrand::Rng) -> Outcome {
    let Setup {
        server, folders, ..
    } = setup;
    let mut connection = server.connect()?;
    let installed: Option<u32> = connection.query_first(
        "SELECT COUNT(*) FROM information_schema.PLUGINS WHERE PLUGIN_NAME = 'bpe' AND PLUGIN_STATUS = 'ACTIVE'",
    )?;
    if installed == Some(0) {
        connection.query_drop(setup.install)?;
    }
    let which = random.usize(..2);
    let instances = random.u32(1..4);
    connection.query_drop(format!(
        "SET GLOBAL bpe_path = '{}', bpe_size = {}, bpe_instances = {instances}",
        folders[which].display(),
        64u64 << 20
    ))?;
    connection.query_drop("SET GLOBAL bpe_memory_limit = 0")?;
    let began = Instant::now();
    connection.query_drop("SET GLOBAL bpe_enabled = ON")?;
    let mut now = String::new();
    sql::wait_until("active as it was set", SOON, || {
        let (instances_now, files) = (
            sql::summary_figure(server, "/instances")?,
            folders.each_ref().map(|folder| files_in(folder).len()),
        );
        now = format!(
            "{} ({}), {instances_now} instances instead of {instances}, files {files:?}, wanted in {which}",
            sql::status(server, "state")?,
            sql::status(server, "state_reason")?
        );
        Ok(sql::status(server, "state")? == "active"
            && instances_now == u64::from(instances)
            && files[which] == 1
            && files[1 - which] == 0)
    })
    .with_context(|| now.clone())?;
    note(format!(
        "active as set after {:.1} ms",
        began.elapsed().as_secs_f64() * 1e3
    ));
    let began = Instant::now();
    connection.query_drop("SET GLOBAL bpe_enabled = OFF")?;
    sql::wait_until("no cache file", SOON, || {
        Ok(folders.iter().all(|folder| files_in(folder).is_empty()))
    })?;
    note(format!(
        "no cache file {:.1} ms after OFF",
        began.elapsed().as_secs_f64() * 1e3
    ));
    // The hooks are off, or serve only the recording of an ended session.
    sql::wait_until("hooks are off", SOON, || {
        Ok([0, 8].contains(&trace::hook_mode(server)?))
    })?;
    if random.bool() {
        connection.query_drop(setup.uninstall)?;
        sql::wait_until("no thread of ours", SOON, || {
            Ok(library::threads(server)?.is_empty())
        })
        .with_context(|| format!("{:?}", library::threads(server)))?;
        connection.query_drop(setup.install)?;
    }
    Ok(())
}
