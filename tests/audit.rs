//! Somebody else writes to the data files of a running server: the extension notices, and does not go on.
//!
//! With the library that is built for tests, which looks every second, and takes a file for quiet after four.

use std::os::unix::fs::FileExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration_tests::ledger::Ledger;
use integration_tests::{Options, Outcome, Place, Server, Suite, note, sql};

const CACHE: u64 = 64 << 20;

fn main() -> ExitCode {
    Suite::new("audit")
        .each("a_foreign_write_is_noticed", a_foreign_write_is_noticed)
        .each("the_servers_own_are_not", the_servers_own_are_not)
        .all("innodb_counts_the_same_reads", innodb_counts_the_same_reads)
        .run()
}

fn options(place: &Place) -> anyhow::Result<Options> {
    place.canary(CACHE, "none")
}

fn state(server: &Server) -> anyhow::Result<(String, String)> {
    Ok((
        sql::status(server, "state")?,
        sql::status(server, "state_reason")?,
    ))
}

fn a_foreign_write_is_noticed(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 8000, 2000, "")?;
    sql::read_all(&mut connection, "d.t", 8000)?;
    sql::run(&server, &["FLUSH TABLES d.t FOR EXPORT"])?;
    std::thread::sleep(Duration::from_secs(10));
    ensure!(state(&server)?.0 == "active", "{:?}", state(&server)?);

    // The bytes that are there already: nothing but the time of change tells.
    let file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(place.data().join("d/t.ibd"))?;
    let mut page = vec![0; 16384];
    file.read_exact_at(&mut page, 20 * 16384)?;
    file.write_all_at(&page, 20 * 16384)?;
    file.sync_all()?;
    sql::wait_until("passive", Duration::from_secs(20), || {
        Ok(state(&server)?.0 == "passive")
    })?;
    let (_, reason) = state(&server)?;
    note(&reason);
    ensure!(
        reason.contains("d/t.ibd") && reason.contains("changed"),
        "{reason}"
    );
    ensure!(place.last_words().contains("Find out who writes"));
    // The server goes on without it, and with it when it is asked for.
    ensure!(sql::verify_pads(&mut connection, "d.t", 2000)? == 8000);
    ensure!(sql::figure(&server, "hits")? == 0, "still served");
    server.sql("SET GLOBAL bpe_enabled = ON")?;
    sql::expect_state(&server, "active")?;
    server.sql("SET GLOBAL bpe_enabled = OFF")?;
    ensure!(state(&server)? == ("disabled".into(), String::new()));
    server.stop()?;
    Ok(())
}

/// Load with rests in which files are quiet for long enough, and everything that changes files in other ways.
fn the_servers_own_are_not(place: &Place) -> Outcome {
    let server = place.start(options(place)?)?;
    let ledger = Ledger::create(&server, 2, 4000, 2000, 4)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 4000, 1000, "")?;
    for round in 0..3 {
        ledger.run(&server, Duration::from_secs(2))?;
        std::thread::sleep(Duration::from_secs(7));
        let (state, reason) = state(&server)?;
        ensure!(state == "active", "round {round}: {state} ({reason})");
        sql::run(
            &server,
            &[
                "ALTER TABLE ledger.t0 FORCE",
                "TRUNCATE TABLE d.t",
                "FLUSH TABLES",
                "CREATE TABLE d.other LIKE d.t",
                "RENAME TABLE d.t TO d.old, d.other TO d.t",
                "DROP TABLE d.old",
            ],
        )?;
        sql::insert(&mut connection, "d.t", 1, 3000, 1000)?;
    }
    ledger.verify(&server)?;
    ensure!(state(&server)?.0 == "active");
    server.stop()?;
    Ok(())
}

/// Every page that InnoDB says it has read is a hit or a read of a data file that the hooks have seen, read-ahead included.
fn innodb_counts_the_same_reads(place: &Place) -> Outcome {
    let server = place.start(place.early(CACHE)?)?;
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "d.t", 20_000, 1000, "")?;
    let counted = || -> anyhow::Result<(u64, u64)> {
        let status = server.status("innodb_pages_read")?;
        let innodb = status.values().next().context("no such counter")?.parse()?;
        let hooks = sql::figure(&server, "hits")? + sql::figure(&server, "data_reads")?;
        Ok((innodb, hooks))
    };
    let before = counted()?;
    sql::read_all(&mut connection, "d.t", 20_000)?;
    for _ in 0..3 {
        server.sql("SELECT SUM(LENGTH(pad)) FROM d.t FORCE INDEX (PRIMARY)")?;
    }
    let after = counted()?;
    let (innodb, hooks) = (after.0 - before.0, after.1 - before.1);
    note(format!(
        "InnoDB has read {innodb} pages, the hooks have seen {hooks}"
    ));
    ensure!(innodb > 3000, "only {innodb} pages read");
    // The two are not read at the same moment.
    ensure!(innodb.abs_diff(hooks) * 50 < innodb, "{innodb} and {hooks}");
    server.stop()?;
    Ok(())
}
