//! A load whose final state does not depend on timing. Each client has a seed and exclusive rows, and increments may come in
//! any order. After it, two servers have tables with equal checksums.

use std::collections::BTreeMap;

use anyhow::{Context, bail};
use private_server::Server;
use private_server::mysql::{Conn, prelude::Queryable};

use crate::sql;

/// Size of the load.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub tables: u32,
    /// Initial rows of each table.
    pub rows: u32,
    pub width: u32,
    pub clients: u32,
    /// Statements of each client.
    pub statements: u32,
}

const DATABASE: &str = "steady";

/// Creates and fills the tables.
pub fn prepare(server: &Server, load: Load) -> anyhow::Result<()> {
    let mut connection = server.connect()?;
    for table in 0..load.tables {
        sql::fill(
            &mut connection,
            &format!("{DATABASE}.t{table}"),
            load.rows,
            load.width,
            "",
        )?;
    }
    Ok(())
}

/// Runs the load to its end. Every statement must succeed.
pub fn run(server: &Server, load: Load) -> anyhow::Result<()> {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..load.clients)
            .map(|number| scope.spawn(move || client(server, load, number)))
            .collect();
        for client in clients {
            match client.join() {
                Ok(result) => result?,
                Err(_) => bail!("a client panicked"),
            }
        }
        Ok(())
    })
}

fn client(server: &Server, load: Load, number: u32) -> anyhow::Result<()> {
    let mut connection = server.connect()?;
    let mut random = fastrand::Rng::with_seed(u64::from(number) + 77);
    // Rows that only this client inserts and deletes.
    let mut next = 1_000_000 * (number + 1);
    let mut own: Vec<(u32, u32)> = Vec::new();
    for _ in 0..load.statements {
        let table = random.u32(0..load.tables);
        let id = random.u32(1..=load.rows);
        match random.u32(0..100) {
            0..40 => {
                let from = id.saturating_sub(20);
                connection.query_drop(format!(
                    "SELECT COUNT(pad) FROM {DATABASE}.t{table} WHERE id BETWEEN {from} AND {id}"
                ))?;
            }
            // An increment of any row: the order does not matter.
            40..70 => repeat(
                &mut connection,
                &format!("UPDATE {DATABASE}.t{table} SET v = v + 1 WHERE id = {id}"),
            )?,
            // Only this client changes the bytes of these rows.
            70..85 => {
                let id = id / load.clients * load.clients + number + 1;
                let pad = sql::hex_pad(id, random.u32(..), load.width);
                repeat(
                    &mut connection,
                    &format!("UPDATE {DATABASE}.t{table} SET pad = x'{pad}' WHERE id = {id}"),
                )?;
            }
            85..95 => {
                let pad = sql::hex_pad(next, 0, load.width);
                repeat(
                    &mut connection,
                    &format!("INSERT INTO {DATABASE}.t{table} VALUES ({next},0,x'{pad}')"),
                )?;
                own.push((table, next));
                next += 1;
            }
            _ => {
                if !own.is_empty() {
                    let (table, id) = own.swap_remove(random.usize(0..own.len()));
                    repeat(
                        &mut connection,
                        &format!("DELETE FROM {DATABASE}.t{table} WHERE id = {id}"),
                    )?;
                }
            }
        }
    }
    Ok(())
}

/// Repeats the statement after deadlocks, so that the final state is the same.
fn repeat(connection: &mut Conn, statement: &str) -> anyhow::Result<()> {
    use private_server::mysql::Error;
    loop {
        match connection.query_drop(statement) {
            Err(Error::MySqlError(error)) if [1213, 1205, 1020].contains(&error.code) => {}
            other => return other.with_context(|| statement.chars().take(80).collect::<String>()),
        }
    }
}

/// Checksums of all tables of the load, independent of the order of rows.
pub fn checksums(server: &Server, load: Load) -> anyhow::Result<BTreeMap<String, String>> {
    let mut connection = server.connect()?;
    let mut sums = BTreeMap::new();
    for table in 0..load.tables {
        let row: Option<(String, Option<String>)> =
            connection.query_first(format!("CHECKSUM TABLE {DATABASE}.t{table} EXTENDED"))?;
        let (name, sum) = row.context("CHECKSUM TABLE gave no row")?;
        sums.insert(name, sum.context("CHECKSUM TABLE gave NULL")?);
    }
    Ok(sums)
}
