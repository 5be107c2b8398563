//! The plugin is loaded, or switched on, after InnoDB has started: the cache starts empty, and the persisted state is discarded.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::taken::{self, Reads, Taken};
use integration_tests::verification::Compared;
use integration_tests::{
    Load, Options, Outcome, Place, Server, Suite, note, sql, trace, verification,
};

/// Large enough for all data, including MySQL's growing undo logs.
const CACHE: u64 = 256 << 20;
/// Rows of a table besides the ledger's, and their bytes.
const ROWS: u32 = 600;
const WIDTH: u32 = 1300;
const LONG: Duration = Duration::from_secs(150);

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("warm_late")
        .each("late_load_starts_empty", late_load_starts_empty)
        .each("late_load_under_writes_is_right", late_load_under_writes)
}

/// How the plugin is loaded, or the extension enabled, after InnoDB has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// A statement installs it.
    Installed,
    /// `mysql.plugin` names it, as after such a statement.
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

    /// Options of a server for this way. The extension is on once [`Way::load`] returns.
    fn options(self, place: &Place, library: &Path, bytes: u64) -> anyhow::Result<Options> {
        let set = |options: Options, prefix: &str| {
            options
                .option(format!("{prefix}bpe-path={}", place.cache().display()))
                .option(format!("{prefix}bpe-size={bytes}"))
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

    /// Runs the statement that this way still needs, and waits until the extension is on.
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
    place.early(CACHE)
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

/// Reads all tables, so that they are cached.
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

/// As [`check`]; returns how its pages were read since the file was opened.
fn read(server: &Server, table: &str, version: u64) -> anyhow::Result<Reads> {
    check(server, table, version)?;
    Reads::of(server, table)
}

/// Cached pages equal the data files.
fn compare(server: &Server) -> Outcome {
    server.sql("DROP FUNCTION IF EXISTS bpe_report")?;
    server.sql(trace::CREATE_FUNCTION)?;
    let mut sums = Compared::default();
    verification::compare_cached(server, &mut sums)?;
    ensure!(sums.compared > 0 && sums.wrong == 0, "{sums:?}");
    Ok(())
}

/// Stops the server so that the next one loads the plugin early.
fn end_late(late: Server, ledger: &Ledger, kills: bool) -> Outcome {
    late.sql("DELETE FROM mysql.plugin WHERE name = 'bpe'")?;
    taken::expect_written(&late)?;
    if kills {
        ledger.run_and_kill(late, Duration::from_millis(500))?;
    } else {
        late.stop()?;
    }
    Ok(())
}

/// A persisted cache and its image exist, and a server without the plugin has changed rows since. A late load uses nothing of
/// them. The next early load recovers the pages that the late one cached.
fn late_load_starts_empty(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    let mut server = Some(server);
    let mut version = 0;
    for (round, way) in Way::all(place).into_iter().enumerate() {
        let (kills, context) = (round % 2 == 1, || format!("{way:?}"));
        server.take().context("a server")?.stop()?;
        place.expect_left().with_context(context)?;
        ensure!(place.images_in(&place.cache()).len() == 1, "no image");
        version += 2;
        let plain = place.start(place.options())?;
        plain.sql("UPDATE d.written SET v = v + 1")?;
        if way == Way::Known {
            plain.sql("REPLACE INTO mysql.plugin VALUES ('bpe', 'bpe.so')")?;
        }
        plain.stop()?;

        let late = place.start(way.options(place, place.library()?, CACHE)?)?;
        late.sql("UPDATE d.written SET v = v + 1")?;
        // The pool holds pages before the load.
        ledger.verify(&late)?;
        way.load(place, &late).with_context(context)?;
        let first = read(&late, "d.rest", 0).with_context(context)?;
        check(&late, "d.written", version).with_context(context)?;
        ledger.verify(&late).with_context(context)?;
        check(&late, "d.other", 0)?;
        let second = read(&late, "d.rest", 0)?;
        let taken = Taken::by(&late)?;
        note(format!(
            "{}: {first:?}, then {second:?}; {taken:?}",
            context()
        ));
        taken.expect_cold().with_context(context)?;
        ensure!(
            first.are_cold() && second.hits > first.hits + 20,
            "{}: {first:?}, {second:?}",
            context()
        );
        let load_mode = sql::status(&late, "load_mode")?;
        ensure!((load_mode == "early") == (way == Way::SwitchedOn));
        ensure!(
            place.images_in(&place.cache()).is_empty(),
            "{}: the image can be used again",
            context()
        );
        compare(&late).with_context(context)?;
        end_late(late, &ledger, kills)?;
        place.expect_left().with_context(context)?;

        let next = place.start(early(place)?)?;
        ledger.settle(&next)?;
        let rest = read(&next, "d.rest", 0).with_context(context)?;
        cache_again(&next, &ledger, version).with_context(context)?;
        let taken = Taken::by(&next)?;
        note(format!("{}, then early: {rest:?}; {taken:?}", context()));
        ensure!(
            taken.files > 0 && rest.are_warm(),
            "{}: {rest:?}; {taken:?}",
            context()
        );
        server = Some(next);
    }
    let server = server.context("a server")?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}

/// Reads and writes are in flight at the load.
fn late_load_under_writes(place: &Place) -> Outcome {
    let (server, ledger) = filled(place)?;
    ledger.run_and_kill(server, Duration::from_secs(1))?;
    for way in [Way::Installed, Way::SwitchedOn] {
        let context = || format!("{way:?}");
        let late = place.start(way.options(place, place.library()?, CACHE)?)?;
        ledger.settle(&late)?;
        ledger
            .run_while(&late, Duration::from_secs(3), || {
                std::thread::sleep(Duration::from_secs(1));
                way.load(place, &late)
            })
            .with_context(context)?;
        check(&late, "d.rest", 0).with_context(context)?;
        ledger.verify(&late).with_context(context)?;
        Taken::by(&late)?.expect_cold().with_context(context)?;
        compare(&late).with_context(context)?;
        end_late(late, &ledger, true)?;
    }
    let server = place.start(early(place)?)?;
    ledger.settle(&server)?;
    ledger.verify(&server)?;
    verification::stop_and_verify(place, server, &ledger, place.options())?;
    Ok(())
}
