//! Statements that create, truncate, rebuild and drop files and undo logs beside another load. A crash must undo or keep each
//! as a whole.

use std::path::Path;

use anyhow::{Context, ensure};
use private_server::Server;
use private_server::mysql::{self, Conn, prelude::Queryable};

use crate::harness::note;
use crate::sql;

/// Rows of the table that is created and dropped.
const ROWS: u32 = 400;
/// Rows of the table that each transaction updates as a whole: more than an undo tablespace of 10 MiB in a few rounds.
const MANY: u32 = 2000;
const WIDTH: u32 = 1300;
const CREATE: &str = "CREATE TABLE churn.comes LIKE churn.many";

/// Creates the tables.
pub fn prepare(server: &Server) -> anyhow::Result<()> {
    let mut connection = server.connect()?;
    sql::fill(&mut connection, "churn.many", MANY, WIDTH, "")?;
    sql::fill(&mut connection, "churn.comes", ROWS, WIDTH, "")
}

/// Changes files until the server is gone; returns the number of completed statements. A refused statement is an error, except
/// for deadlocks with the other load.
pub fn until_killed(server: &Server, rebuilt: &[&str]) -> anyhow::Result<u32> {
    let Ok(mut connection) = server.connect() else {
        return Ok(0);
    };
    let mut statements = 0;
    loop {
        for round in 0..4u32 {
            let rebuilt = rebuilt[round as usize % rebuilt.len()];
            for statement in [
                "UPDATE churn.many SET v = v + 1, pad = REVERSE(pad)".to_owned(),
                "TRUNCATE TABLE churn.comes".to_owned(),
                filled(),
                format!("ALTER TABLE {rebuilt} FORCE"),
                "DROP TABLE churn.comes".to_owned(),
                CREATE.to_owned(),
                filled(),
                "ALTER TABLE churn.comes FORCE".to_owned(),
                "RENAME TABLE churn.comes TO churn.goes, churn.goes TO churn.comes".to_owned(),
            ] {
                match connection.query_drop(&statement) {
                    Ok(()) => statements += 1,
                    Err(mysql::Error::MySqlError(error))
                        if [1205, 1213, 1020].contains(&error.code) => {}
                    Err(mysql::Error::MySqlError(error)) if error.code != 1053 => {
                        let short: String = statement.chars().take(60).collect();
                        return Err(error).context(short);
                    }
                    Err(_) => return Ok(statements),
                }
            }
        }
    }
}

fn filled() -> String {
    let values: Vec<String> = (1..=ROWS)
        .map(|id| format!("({id},0,x'{}')", sql::hex_pad(id, 0, WIDTH)))
        .collect();
    format!("INSERT INTO churn.comes VALUES {}", values.join(","))
}

/// After a crash, checks that each transaction is there as a whole or not at all. Recreates missing tables.
pub fn settle(server: &Server) -> anyhow::Result<()> {
    let mut connection = server.connect()?;
    let seen: Option<(u32, u32, u32)> = connection
        .query_first("SELECT COUNT(*), MIN(v), MAX(v) FROM churn.many FORCE INDEX (PRIMARY)")?;
    let (rows, least, most) = seen.context("no row")?;
    ensure!(
        rows == MANY && least == most,
        "one transaction changed all {MANY} rows: there are {rows} with versions {least} to {most}"
    );
    let right = forwards_or_backwards(&mut connection, least)?;
    ensure!(
        right == MANY,
        "{} of {MANY} rows are not those of version {least}",
        MANY - right
    );
    let there: Vec<String> = connection.query("SHOW TABLES IN churn LIKE 'comes'")?;
    if there.is_empty() {
        if let Err(error) = connection.query_drop(CREATE) {
            remove_orphan(server).context(error)?;
            connection.query_drop(CREATE)?;
        }
    } else {
        let rows = sql::verify_pads(&mut connection, "churn.comes", WIDTH)?;
        ensure!(
            rows == 0 || rows == ROWS,
            "one statement inserted {ROWS} rows: there are {rows}"
        );
    }
    Ok(())
}

/// MariaDB killed between the commit of DROP TABLE and the removal of its file leaves the file behind, and then refuses a table
/// of this name (MDEV-25506, `docs/evidence/reliability.md`). This is how an administrator removes it.
fn remove_orphan(server: &Server) -> anyhow::Result<()> {
    let known = server.value(
        "SELECT GROUP_CONCAT(NAME) FROM information_schema.INNODB_SYS_TABLESPACES WHERE NAME LIKE 'churn%'",
    )?;
    let data = server.value("SELECT @@datadir")?.context("a folder")?;
    let file = Path::new(&data).join("churn/comes.ibd");
    let is_known = known.iter().any(|names| names.contains("churn/comes"));
    ensure!(
        file.exists() && !is_known,
        "{file:?} is no orphan; InnoDB knows {known:?}"
    );
    note("MariaDB left the file of a dropped table behind");
    Ok(std::fs::remove_file(file)?)
}

/// Number of rows whose bytes are the original ones, reversed `version` times.
fn forwards_or_backwards(connection: &mut Conn, version: u32) -> anyhow::Result<u32> {
    let mut right = 0;
    connection
        .query_iter("SELECT id, pad FROM churn.many")?
        .try_for_each(|row| {
            let (id, mut bytes): (u32, Vec<u8>) = mysql::from_row(row?);
            if version % 2 == 1 {
                bytes.reverse();
            }
            right += u32::from(bytes == sql::pad(id, 0, WIDTH));
            Ok::<_, mysql::Error>(())
        })?;
    Ok(right)
}
