//! The plugin is loaded after InnoDB has started: what the process before has left is taken over, and compared before it is served.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::reboots::Machine;
use integration_tests::taken::{Reads, Taken};
use integration_tests::verification::Compared;
use integration_tests::{
    Load, Options, Outcome, Place, Server, Suite, library, note, sql, trace, verification,
};

/// Room for all data, and for what MySQL's undo logs grow to.
const CACHE: u64 = 256 << 20;
/// Rows of a table besides the ledger's, and their bytes.
const ROWS: u32 = 600;
const WIDTH: u32 = 1300;
/// Rows that fill the buffer pool, which has 8 MiB.
const LARGE: u32 = 7000;
const LONG: Duration = Duration::from_secs(150);
const LATE: &str = "InnoDB had started before the extension was on";

fn main() -> ExitCode {
    Suite::new("warm_late")
        .each("in_each_way", in_each_way)
        .each("a_server_that_believes_it_is_noticed", believed)
        .each("under_load_again_and_again", under_load)
        .each("scrubbed_and_then_early", scrubbed)
        .each("other_settings", other_settings)
        .each("the_machine_restarts", the_machine_restarts)
        .each("a_server_that_believes_an_image_is_noticed", image_believed)
        .run()
}

/// How the plugin comes to a server, or the extension on, after InnoDB has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A statement installs it.
    Installed,
    /// It stands among the server's plugins, as after such a statement.
    Known,
    /// MySQL alone: MariaDB loads plugins that its options name before InnoDB starts.
    PluginLoadAdd,
    /// It was loaded early, and the extension was off.
    SwitchedOn,
}

impl Way {
    fn all(place: &Place) -> Vec<Way> {
        let mut ways = vec![Way::Installed, Way::Known, Way::SwitchedOn];
        ways.extend(place.is_mysql().then_some(Way::PluginLoadAdd));
        ways
    }

    /// Of a server that gets it in this way, and is switched on at once in the end.
    fn options(self, place: &Place, library: &Path, bytes: u64) -> anyhow::Result<Options> {
        let set = |options: Options, prefix: &str| {
            options
                .option(format!("{prefix}bpe-path={}", place.cache().display()))
                .option(format!("{prefix}bpe-size={bytes}"))
                .option(format!("{prefix}bpe-admission=all"))
        };
        let options = place.options();
        Ok(match self {
            Way::SwitchedOn => set(options.plugin(library, "bpe", Load::Early), "--"),
            _ => {
                let options = options.plugin(library, "bpe", Load::BySql);
                let options = set(options, "--loose-").option("--loose-bpe-enabled=ON");
                match self {
                    Way::PluginLoadAdd => options.option("--plugin-load-add=bpe=bpe.so"),
                    _ => options,
                }
            }
        })
    }

    /// What a server that has started still needs.
    fn load(self, place: &Place, server: &Server) -> Outcome {
        match self {
            Way::Installed => server.sql(place.install_statement())?,
            Way::SwitchedOn => server.sql("SET GLOBAL bpe_enabled = ON")?,
            Way::Known | Way::PluginLoadAdd => {}
        }
        sql::wait_until("it is on", LONG, || {
            Ok(sql::status(server, "state")? == "active")
        })
    }
}

fn early(place: &Place) -> anyhow::Result<Options> {
    Ok(place.early(CACHE)?.option("--bpe-admission=all"))
}

fn filled(place: &Place) -> anyhow::Result<(Server, Ledger)> {
    let server = place.start(early(place)?)?;
    let mut connection = server.connect()?;
    for table in ["d.written", "d.rest", "d.other"] {
        sql::fill(&mut connection, table, ROWS, WIDTH, "")?;
    }
    let ledger = Ledger::small(&server)?;
    cache_again(&server, &ledger, 0)?;
    Ok((server, ledger))
}

/// All of it is cached.
fn cache_again(server: &Server, ledger: &Ledger, version: u64) -> Outcome {
    check(server, "d.written", version)?;
    check(server, "d.rest", 0)?;
    ledger.verify(server)?;
    check(server, "d.other", 0)
}

/// Every row of the table has this version.
fn check(server: &Server, table: &str, version: u64) -> Outcome {
    let rows = u64::from(ROWS);
    let sums = sql::read_all(&mut server.connect()?, table, ROWS)?;
    ensure!(
        sums == (rows * (rows + 1) / 2, rows * version),
        "{table}: sums {sums:?}, expected version {version}"
    );
    Ok(())
}

/// The same, and how its pages were read since the file is known.
fn read(server: &Server, table: &str, version: u64) -> anyhow::Result<Reads> {
    check(server, table, version)?;
    Reads::of(server, table)
}

/// A server without the plugin changes rows, and is stopped or killed; the next one does before the plugin is loaded. Returns that one,
/// with the rows as it shows them at the first look.
fn changed_and_loaded(
    place: &Place,
    way: Way,
    options: Options,
    ledger: &Ledger,
    (version, kills): (u64, bool),
) -> anyhow::Result<Server> {
    let server = place.start(place.options())?;
    ledger.settle(&server)?;
    server.sql("UPDATE d.written SET v = v + 1")?;
    server.sql("FLUSH TABLES d.written FOR EXPORT; UNLOCK TABLES")?;
    match way {
        Way::Known => {
            server.sql("REPLACE INTO mysql.plugin VALUES ('bpe', 'bpe.so')")?;
        }
        _ => server.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?,
    }
    if kills {
        ledger.run_and_kill(server, Duration::from_secs(1))?;
    } else {
        ledger.run(&server, Duration::from_secs(1))?;
        server.stop()?;
    }
    let server = place.start(options)?;
    ledger.settle(&server)?;
    server.sql("UPDATE d.written SET v = v + 1")?;
    // Pages of others are in the pool when it is loaded.
    ledger.verify(&server)?;
    way.load(place, &server)?;
    check(&server, "d.written", version)?;
    ledger.verify(&server)?;
    Ok(server)
}

/// What is cached with the data files.
fn compare(server: &Server) -> anyhow::Result<Compared> {
    server.sql("DROP FUNCTION IF EXISTS bpe_report")?;
    server.sql(trace::CREATE_FUNCTION)?;
    let mut sums = Compared::default();
    verification::compare_cached(server, &mut sums)?;
    Ok(sums)
}

fn log_of(server: &Server) -> anyhow::Result<String> {
    Ok(String::from_utf8_lossy(&std::fs::read(server.log())?).into_owned())
}

/// What did not change is served after it was compared, and what did is not.
fn in_each_way(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    let mut server = Some(server);
    let mut version = 0;
    for way in Way::all(place) {
        for kills in [false, true] {
            let context = || format!("{way:?}, killed: {kills}");
            let before = match server.take() {
                Some(server) => server,
                None => {
                    let server = place.start(early(place)?)?;
                    ledger.settle(&server)?;
                    cache_again(&server, &ledger, version)?;
                    server
                }
            };
            if kills {
                ledger.run_and_kill(before, Duration::from_secs(1))?;
            } else {
                before.stop()?;
            }
            place.expect_left().with_context(context)?;
            version += 2;
            let options = way.options(place, place.library()?, CACHE)?;
            let late = changed_and_loaded(place, way, options, &ledger, (version, kills))
                .with_context(context)?;
            let first = read(&late, "d.rest", 0)?;
            check(&late, "d.other", 0)?;
            ledger.verify(&late)?;
            let second = read(&late, "d.rest", 0)?;
            let taken = Taken::by(&late)?;
            note(format!(
                "{}: {first:?}, then {second:?}; {taken:?}",
                context()
            ));
            ensure!(taken.pages > 300, "{}: {taken:?}", context());
            ensure!(taken.files == 0 && taken.trusted == 0, "{}", context());
            ensure!(taken.verified > 20, "{}: {taken:?}", context());
            for table in ["d.rest", "d.written"] {
                let why = taken.doubtful(table);
                ensure!(why == Some(LATE), "{}: {table}: {why:?}", context());
            }
            ensure!(first.are_cold(), "{}: {first:?}", context());
            ensure!(
                second.hits > first.hits + 20,
                "{}: {first:?}, {second:?}",
                context()
            );
            let log = log_of(&late)?;
            ensure!(
                log.contains("all of them are compared with the data files"),
                "{}: {log}",
                context()
            );
            let load_mode = sql::status(&late, "load_mode")?;
            ensure!((load_mode == "early") == (way == Way::SwitchedOn));
            let sums = compare(&late)?;
            ensure!(sums.compared > 0 && sums.wrong == 0, "{sums:?}");
            // The next one is loaded early, and knows what was not compared.
            late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
            if kills {
                ledger.run_and_kill(late, Duration::from_secs(1))?;
            } else {
                late.stop()?;
            }
            place.expect_left().with_context(context)?;
            let next = place.start(early(place)?)?;
            ledger.settle(&next)?;
            cache_again(&next, &ledger, version).with_context(context)?;
            server = Some(next);
        }
    }
    let server = server.context("a server")?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// An image is there after a stop, and a server without the plugin has run since. Its pages are compared, however old it is.
fn the_machine_restarts(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let start = |options| place.start(machine.options(options)?);
    let (server, ledger) = filled(place)?;
    sql::fill(&mut server.connect()?, "d.large", LARGE, WIDTH, "")?;
    server.stop()?;
    // With the number that the machine's start has in this test.
    let server = start(early(place)?)?;
    cache_again(&server, &ledger, 0)?;
    let mut server = Some(server);
    let mut version = 0;
    for way in Way::all(place) {
        let context = || format!("{way:?}");
        let before = match server.take() {
            Some(server) => server,
            None => start(early(place)?)?,
        };
        cache_again(&before, &ledger, version).with_context(context)?;
        before.stop()?;
        ensure!(place.images_in(&place.cache()).len() == 1, "no image");
        machine.start_anew()?;
        version += 2;
        let options = machine.options(way.options(place, place.library()?, CACHE)?)?;
        let late = changed_and_loaded(place, way, options, &ledger, (version, false))
            .with_context(context)?;
        ensure!(place.images_in(&place.cache()).is_empty(), "used twice");
        let first = read(&late, "d.rest", 0)?;
        // The pool has no room for both.
        sql::read_all(&mut late.connect()?, "d.large", LARGE)?;
        let second = read(&late, "d.rest", 0)?;
        let taken = Taken::by(&late)?;
        note(format!(
            "{}: {first:?}, then {second:?}; {taken:?}",
            context()
        ));
        ensure!(taken.pages > 300, "{}: {taken:?}", context());
        ensure!(taken.files == 0 && taken.trusted == 0, "{}", context());
        ensure!(taken.verified > 20, "{}: {taken:?}", context());
        ensure!(first.are_cold(), "{}: {first:?}", context());
        ensure!(
            second.hits > first.hits + 20,
            "{}: {first:?}, {second:?}",
            context()
        );
        let sums = compare(&late)?;
        ensure!(sums.compared > 0 && sums.wrong == 0, "{sums:?}");
        late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
        // What it leaves is of this start of the machine.
        ledger.run_and_kill(late, Duration::from_secs(1))?;
        place.expect_left().with_context(context)?;
        let next = start(early(place)?)?;
        ledger.settle(&next)?;
        let taken = Taken::by(&next)?;
        ensure!(taken.pages > 300, "{}, then killed: {taken:?}", context());
        cache_again(&next, &ledger, version).with_context(context)?;
        server = Some(next);
    }
    let server = server.context("a server")?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// A library that believes an image that is older than the data files shows rows of before.
fn image_believed(place: &Place) -> Outcome {
    let machine = Machine::new(place)?;
    let (server, ledger) = filled(place)?;
    server.stop()?;
    let server = place.start(machine.options(early(place)?)?)?;
    cache_again(&server, &ledger, 0)?;
    server.stop()?;
    machine.start_anew()?;
    let options = Way::Installed.options(place, &library::canary()?, CACHE)?;
    let options = machine.options(options.environment("BPE_CANARY", "inherit-blindly"))?;
    expect_wrong_rows(place, options, &ledger)
}

/// A library that believes what was left shows rows of before.
fn believed(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    server.stop()?;
    let options = Way::Installed.options(place, &library::canary()?, CACHE)?;
    let options = options.environment("BPE_CANARY", "inherit-blindly");
    expect_wrong_rows(place, options, &ledger)
}

fn expect_wrong_rows(place: &Place, options: Options, ledger: &Ledger) -> Outcome {
    let error = changed_and_loaded(place, Way::Installed, options, ledger, (2, false))
        .err()
        .context("pages of before were believed, and nothing was wrong")?;
    note(format!("noticed: {:#}", error.root_cause()));
    // Which of them depends on what was written at the moment of loading. Pages of before may also be such that InnoDB ends at them.
    let text = format!("{error:#}");
    let log = std::fs::read(place.root().join("run/error.log"))?;
    let ended = String::from_utf8_lossy(&log).contains("Assertion failure");
    ensure!(
        text.contains("expected version 2") || text.contains("wrong rows") || ended,
        "{text}"
    );
    Ok(())
}

/// Requests and writes are under way when it is loaded.
fn under_load(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    ledger.run_and_kill(server, Duration::from_secs(1))?;
    let mut taken = Vec::new();
    for round in 0..4 {
        let context = || format!("round {round}");
        let way = [Way::Installed, Way::SwitchedOn][round % 2];
        let late = place.start(way.options(place, place.library()?, CACHE)?)?;
        ledger.settle(&late)?;
        late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
        ledger
            .run_while(&late, Duration::from_secs(4), || {
                std::thread::sleep(Duration::from_secs(1));
                way.load(place, &late)
            })
            .with_context(context)?;
        check(&late, "d.rest", 0).with_context(context)?;
        ledger.verify(&late).with_context(context)?;
        taken.push(Taken::by(&late)?);
        let sums = compare(&late).with_context(context)?;
        ensure!(sums.compared > 0 && sums.wrong == 0, "{sums:?}");
        check(&late, "d.rest", 0)?;
        late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
        ledger.run_and_kill(late, Duration::from_secs(1))?;
    }
    note(format!("{taken:?}"));
    for taken in taken {
        ensure!(taken.pages > 300 && taken.verified > 0, "{taken:?}");
        ensure!(taken.files == 0, "{taken:?}");
    }
    let server = place.start(early(place)?)?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// Nobody asks for the pages: they are compared in the background, and believed by the server after that.
fn scrubbed(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    server.stop()?;
    let options = Way::Installed.options(place, place.library()?, CACHE)?;
    let late = place.start(options.option("--loose-bpe-scrub-rate=100000"))?;
    Way::Installed.load(place, &late)?;
    late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
    late.sql("CREATE TABLE d.looked SELECT id FROM d.rest WHERE id = 1")?;
    let left = || sql::figure(&late, "pages_doubtful");
    let before = left()?;
    ensure!(before > 20, "{before} pages are left in the first minute");
    sql::wait_until("all is compared", LONG, || Ok(left()? == 0))?;
    let verified = sql::figure(&late, "pages_verified")?;
    ensure!(verified > 20, "{verified} pages were equal");
    let rest = read(&late, "d.rest", 0)?;
    ensure!(rest.are_warm(), "{rest:?}");
    late.stop()?;
    let server = place.start(early(place)?)?;
    let rest = read(&server, "d.rest", 0)?;
    let taken = Taken::by(&server)?;
    note(format!("{verified} verified; {rest:?}; {taken:?}"));
    ensure!(rest.are_warm(), "{rest:?}");
    ensure!(taken.doubtful("d.rest").is_none(), "{taken:?}");
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// What is laid out in another way is not taken over, and goes.
fn other_settings(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    server.stop()?;
    let options = Way::Installed.options(place, place.library()?, CACHE * 2)?;
    let late = place.start(options)?;
    Way::Installed.load(place, &late)?;
    late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
    cache_again(&late, &ledger, 0)?;
    Taken::by(&late)?.expect_cold()?;
    ensure!(log_of(&late)?.contains("the cache starts empty"));
    ensure!(sql::figure(&late, "pages_verified")? == 0);
    ledger.run(&late, Duration::from_secs(1))?;
    verification::stop_and_verify(place, late, &ledger, place.options())?;
    Ok(())
}
