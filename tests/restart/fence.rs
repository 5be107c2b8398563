//! Tests whether the redo digest detects a run of InnoDB. No server here has the plugin: the digest must detect runs that the
//! plugin cannot see.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use bpe_plugin::restart::redo_fence::{self, Fence};
use integration_tests::{Options, Outcome, Place, Server, Suite, note, sql};

/// Rows of the table, and their bytes.
const ROWS: u32 = 300;
const WIDTH: u32 = 1300;

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("fence")
        .all("runs_without_the_plugin", runs_without_the_plugin)
        .each("a_log_elsewhere", a_log_elsewhere)
        .each("a_log_that_goes_round", a_log_that_goes_round)
        .with(
            integration_tests::Flavour::MySql97,
            "redo_disabled",
            redo_disabled,
        )
}

/// Compared state: the digest of the log, and the digests of the data files.
#[derive(Debug, PartialEq)]
struct State {
    fence: Fence,
    files: BTreeMap<PathBuf, u32>,
}

impl State {
    fn of(place: &Place, redo: &Path) -> anyhow::Result<State> {
        let mut files = BTreeMap::new();
        digest_files(&place.data(), &mut files)?;
        ensure!(files.len() > 3, "only {files:?}");
        let fence = redo_fence::of(redo).map_err(anyhow::Error::msg)?;
        // Reading the log changes nothing.
        ensure!(Ok(fence) == redo_fence::of(redo), "two looks");
        Ok(State { fence, files })
    }

    /// The log's contents differ; its file attributes are not compared.
    fn log_differs(&self, other: &State) -> bool {
        self.fence[..2] != other.fence[..2]
    }

    fn changed_files(&self, other: &State) -> Vec<&Path> {
        let files = self.files.iter();
        files
            .filter(|(path, digest)| other.files.get(*path) != Some(digest))
            .map(|(path, _)| path.as_path())
            .collect()
    }
}

/// Digests of all files that pages are read from. Files of temporary tables are recreated at each start.
fn digest_files(folder: &Path, files: &mut BTreeMap<PathBuf, u32>) -> Outcome {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().context("a name")?.to_string_lossy();
        let is_data = name.ends_with(".ibd") || name.starts_with("undo");
        if path.is_dir() {
            if !name.starts_with("#innodb_") {
                digest_files(&path, files)?;
            }
        } else if is_data || name == "ibdata1" {
            let digest = crc32c::crc32c(&fs::read(&path)?);
            files.insert(path, digest);
        }
    }
    Ok(())
}

/// Creates a table on a server, and stops it.
fn with_table(place: &Place, options: impl Fn() -> Options) -> Outcome {
    let server = place.start(options())?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, WIDTH, "")?;
    server.stop()?;
    Ok(())
}

/// If the log is unchanged after a run, no page was written.
fn expect_seen(what: &str, before: &State, after: &State) -> Outcome {
    let changed = before.changed_files(after);
    let differs = before.log_differs(after);
    note(format!(
        "{what}: log differs: {differs}; {} data files do",
        changed.len()
    ));
    ensure!(
        differs || changed.is_empty(),
        "{what}: the log is the same, and {changed:?} are not"
    );
    Ok(())
}

const CHANGE: &str = "UPDATE d.t SET v = v + 1 WHERE id = 7";

fn runs_without_the_plugin(place: &Place) -> Outcome {
    with_table(place, || place.options())?;
    let state = || State::of(place, &place.data());
    let mut before = state()?;
    ensure!(before.fence[3] > 0, "{before:?}");
    // Each run, and whether the log's contents must differ after it.
    type Run = fn(&Place, Server) -> Outcome;
    let stop: Run = |_, server| {
        server.stop()?;
        Ok(())
    };
    let runs: [(&str, bool, Run); 6] = [
        ("started and stopped", false, stop),
        ("read", false, |_, server| {
            sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
            server.stop()?;
            Ok(())
        }),
        ("one row changed, stopped", true, |_, server| {
            server.sql(CHANGE)?;
            server.stop()?;
            Ok(())
        }),
        ("one row changed, killed", true, |_, server| {
            server.sql(CHANGE)?;
            std::thread::sleep(std::time::Duration::from_secs(1));
            server.kill();
            Ok(())
        }),
        ("started after a kill, and stopped", true, stop),
        ("started, and killed at once", false, |_, server| {
            server.kill();
            Ok(())
        }),
    ];
    for (what, must_differ, run) in runs {
        run(place, place.start(place.options())?).context(what)?;
        let after = state().context(what)?;
        expect_seen(what, &before, &after)?;
        ensure!(!must_differ || before.log_differs(&after), "{what}: unseen");
        before = after;
    }
    // A copy of log and data of one moment: the same log contents, in another file.
    let copy = place.root().join("copy");
    integration_tests::place::copy_folder(&place.data(), &copy)?;
    let copied = redo_fence::of(&copy).map_err(anyhow::Error::msg)?;
    ensure!(copied[..2] == before.fence[..2] && copied[2] != before.fence[2]);
    Ok(())
}

/// A running server's open files show the log's directory.
fn a_log_elsewhere(place: &Place) -> Outcome {
    let folder = place.root().join("redo");
    fs::create_dir(&folder)?;
    let name = if place.is_mysql() {
        "#innodb_redo"
    } else {
        "ib_logfile0"
    };
    fs::rename(place.data().join(name), folder.join(name))?;
    let options = || {
        let option = format!("--innodb-log-group-home-dir={}", folder.display());
        place.options().option(option)
    };
    with_table(place, options)?;
    ensure!(
        redo_fence::of(&place.data()).is_err(),
        "a fence where no log is used"
    );
    let before = State::of(place, &folder)?;
    let server = place.start(options())?;
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid()))?;
    let open: Vec<PathBuf> = open
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .collect();
    let folders: Vec<&Path> = open
        .iter()
        .filter_map(|path| redo_fence::directory_of(path))
        .collect();
    ensure!(
        !folders.is_empty() && folders.iter().all(|found| *found == folder),
        "{folders:?} of {open:?}"
    );
    server.sql(CHANGE)?;
    server.stop()?;
    let after = State::of(place, &folder)?;
    expect_seen("elsewhere", &before, &after)?;
    ensure!(before.log_differs(&after), "unseen");
    Ok(())
}

/// Records after the checkpoint may wrap from the log's end to its start.
fn a_log_that_goes_round(place: &Place) -> Outcome {
    let options = || {
        let least = if place.is_mysql() {
            "--innodb-redo-log-capacity=8M"
        } else {
            "--innodb-log-file-size=4M"
        };
        place.options().option(least)
    };
    with_table(place, options)?;
    let mut before = State::of(place, &place.data())?;
    for round in 0..4 {
        let server = place.start(options())?;
        // Some MB of redo, and another amount in each round.
        for _ in 0..4 + round % 3 {
            server.sql("UPDATE d.t SET pad = REVERSE(CONCAT('x', SUBSTR(pad, 2)))")?;
        }
        server.stop()?;
        let filled = State::of(place, &place.data())?;
        expect_seen("filled", &before, &filled)?;
        ensure!(before.log_differs(&filled), "round {round}: unseen");
        let server = place.start(options())?;
        server.sql(CHANGE)?;
        server.stop()?;
        before = State::of(place, &place.data())?;
        expect_seen("one row", &filled, &before)?;
        ensure!(filled.log_differs(&before), "round {round}: one row unseen");
    }
    Ok(())
}

/// Pages are written without redo, so such a log proves nothing. After redo is enabled again, the digest differs.
fn redo_disabled(place: &Place) -> Outcome {
    with_table(place, || place.options())?;
    let before = State::of(place, &place.data())?;
    let server = place.start(place.options())?;
    server.sql("ALTER INSTANCE DISABLE INNODB REDO_LOG")?;
    server.sql(CHANGE)?;
    server.stop()?;
    let disabled = redo_fence::of(&place.data());
    note(format!("disabled: {disabled:?}"));
    ensure!(disabled.is_err(), "{disabled:?}");
    for enable in [false, true] {
        let server = place.start(place.options())?;
        server.sql(CHANGE)?;
        if enable {
            server.sql("ALTER INSTANCE ENABLE INNODB REDO_LOG")?;
        }
        server.stop()?;
        ensure!(redo_fence::of(&place.data()).is_ok() == enable);
    }
    let after = State::of(place, &place.data())?;
    expect_seen("disabled and enabled", &before, &after)?;
    ensure!(before.log_differs(&after), "unseen");
    // All in one run.
    let server = place.start(place.options())?;
    server.sql("ALTER INSTANCE DISABLE INNODB REDO_LOG")?;
    server.sql(CHANGE)?;
    server.sql("ALTER INSTANCE ENABLE INNODB REDO_LOG")?;
    server.stop()?;
    let again = State::of(place, &place.data())?;
    expect_seen("disabled and enabled in one run", &after, &again)?;
    ensure!(after.log_differs(&again), "unseen");
    Ok(())
}
