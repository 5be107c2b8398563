//! InnoDB's log sequence number must never be lower than that of any page that was written or served.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::ensure;
use integration_tests::place::copy_folder;
use integration_tests::{Options, Outcome, Place, Server, Suite, note, sql};

const CACHE: u64 = 128 << 20;
const ROWS: u32 = 2000;
const WIDTH: u32 = 3000;
/// Sessions compare at most every 5 s, and the controller thread every second.
const PATIENCE: Duration = Duration::from_secs(30);
/// Part of the state's reason.
const ALARM: &str = "older than the cache";

/// The tests of this subject.
pub fn suite() -> Suite {
    Suite::new("tripwire")
        .each("older_directory_that_is_believed_is_noticed", believed)
        .in_turn("older_directory_is_no_alarm", not_believed)
}

/// An older version replaces the data directory, with the same inodes; then the server starts with `rules`.
fn goes_back(place: &Place, rules: &str) -> anyhow::Result<Server> {
    let options = |rules: &str| -> anyhow::Result<Options> {
        // Pages of the servers' own tables that are too new would end the server before it can compare.
        let options = place
            .canary(CACHE, rules)?
            .option("--bpe-tables=include d.t");
        Ok(options.option("--bpe-warm-io-capacity=0"))
    };
    let server = place.start(options("none")?)?;
    sql::fill(&mut server.connect()?, "d.t", ROWS, WIDTH, "")?;
    server.stop()?;
    let older = place.root().join("older");
    copy_folder(&place.data(), &older)?;
    let server = place.start(options("none")?)?;
    for _ in 0..3 {
        server.sql("UPDATE d.t SET v = v + 1")?;
    }
    sql::write_dirty_pages(&server)?;
    sql::read_all(&mut server.connect()?, "d.t", ROWS)?;
    server.stop()?;
    put_back(&older, &place.data())?;
    place.start(options(rules)?)
}

/// Gives each file below a directory the content that it has below another. Removes files that are not there.
fn put_back(from: &Path, to: &Path) -> Outcome {
    for entry in std::fs::read_dir(to)? {
        let (entry, source) = (entry?, from);
        let source = source.join(entry.file_name());
        if entry.file_type()?.is_dir() && source.is_dir() {
            put_back(&source, &entry.path())?;
        } else if source.is_file() {
            // The file is truncated and rewritten: the inode stays.
            std::fs::copy(&source, entry.path())?;
        } else if entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_file() && !target.exists() {
            std::fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}

/// Polls the status until the log has the alarm, or the timeout expires.
fn alarm(server: &Server, patience: Duration) -> anyhow::Result<Option<String>> {
    let until = Instant::now() + patience;
    while Instant::now() < until {
        // Pages that are too new for their file may fail a query. Their rows have older versions in no undo log, which ends MySQL
        // when it looks for them.
        let _ = server.sql(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED; SELECT SUM(v), MAX(LENGTH(pad)) FROM d.t",
        );
        let _ = sql::status(server, "state_reason");
        let log = std::fs::read_to_string(server.log())?;
        if let Some(line) = log.lines().find(|line| line.contains(ALARM)) {
            return Ok(Some(line.to_owned()));
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    Ok(None)
}

/// A canary that trusts every persisted file.
fn believed(place: &Place) -> Outcome {
    let server = goes_back(place, "inherit-blindly")?;
    let reason = alarm(&server, PATIENCE)?;
    let Some(reason) = reason else {
        anyhow::bail!("pages of later were served, and no alarm came");
    };
    note(reason);
    server.kill();
    Ok(())
}

fn not_believed(place: &Place) -> Outcome {
    let server = goes_back(place, "none")?;
    // Twice the interval of sessions and the controller thread.
    let reason = alarm(&server, Duration::from_secs(12))?;
    ensure!(reason.is_none(), "{reason:?}");
    sql::expect_state(&server, "active")?;
    let sum = sql::number(&server, "SELECT SUM(v) FROM d.t")?;
    ensure!(sum == 0, "rows of the newer version are answered: {sum}");
    server.stop()?;
    Ok(())
}
