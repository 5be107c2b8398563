//! Statements, and checks of their results.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use interface::Status;
use private_server::Server;
use private_server::mysql::{self, Conn, prelude::Queryable};
use serde_json::Value;

/// Whether a status variable, named without `Bpe_`, is a text and no number.
pub fn is_text(name: &str) -> bool {
    Status::texts().any(|text| text == name)
}

/// Runs each statement on one connection.
pub fn run(server: &Server, statements: &[&str]) -> anyhow::Result<()> {
    let mut connection = server.connect()?;
    for statement in statements {
        connection
            .query_drop(statement)
            .with_context(|| short(statement))?;
    }
    Ok(())
}

/// First column of the first row as a number.
pub fn number(server: &Server, statement: &str) -> anyhow::Result<u64> {
    let value = server.value(statement)?;
    value
        .as_deref()
        .and_then(|text| text.parse().ok())
        .with_context(|| format!("{}: no number but {value:?}", short(statement)))
}

/// The error message of a statement that must fail; the server must continue.
pub fn refusal(server: &Server, statement: &str) -> anyhow::Result<String> {
    let mut connection = server.connect()?;
    match connection.query_drop(statement) {
        Ok(()) => bail!("{}: accepted, but should be refused", short(statement)),
        Err(mysql::Error::MySqlError(error)) => {
            ensure!(
                server.value("SELECT 1")?.as_deref() == Some("1"),
                "{}: the server does not answer any more",
                short(statement)
            );
            Ok(error.message)
        }
        Err(error) => Err(error).with_context(|| short(statement)),
    }
}

/// Runs a statement and returns its warnings.
pub fn warnings(server: &Server, statement: &str) -> anyhow::Result<Vec<String>> {
    let mut connection = server.connect()?;
    connection
        .query_drop(statement)
        .with_context(|| short(statement))?;
    let rows: Vec<(String, u32, String)> = connection.query("SHOW WARNINGS")?;
    Ok(rows.into_iter().map(|(_, _, text)| text).collect())
}

/// A status variable of the plugin as text; `name` without `Bpe_`.
pub fn status(server: &Server, name: &str) -> anyhow::Result<String> {
    let all = server.status("bpe\\_%")?;
    all.iter()
        .find(|(known, _)| known.eq_ignore_ascii_case(&format!("bpe_{name}")))
        .map(|(_, value)| value.clone())
        .with_context(|| {
            format!(
                "there is no status variable Bpe_{name}; there are {:?}",
                all.keys()
            )
        })
}

/// A status variable of the plugin as a number.
pub fn figure(server: &Server, name: &str) -> anyhow::Result<u64> {
    let text = status(server, name)?;
    text.parse()
        .with_context(|| format!("Bpe_{name} is '{text}'"))
}

/// A report of the plugin, by the session variable. It needs no function.
pub fn report(server: &Server, name: &str) -> anyhow::Result<Value> {
    let mut connection = server.connect()?;
    connection.query_drop(format!("SET SESSION bpe_report = '{name}'"))?;
    let text: Option<String> = connection.query_first("SELECT @@SESSION.bpe_report")?;
    Ok(serde_json::from_str(&text.context("no report")?)?)
}

/// A count of the report `summary`, by its path, as in `/warm/reads`.
pub fn summary_figure(server: &Server, path: &str) -> anyhow::Result<u64> {
    let summary = report(server, "summary")?;
    let figure = summary.pointer(path).and_then(Value::as_u64);
    figure.with_context(|| format!("no count {path} in {summary}"))
}

/// Waits until the cache of a server with pages of less than 16 KiB was laid out anew for them, which takes up to half a minute.
/// The rebuild resets the figures, and a stop during it leaves no cache.
pub fn wait_for_smaller_pages(server: &Server) -> anyhow::Result<()> {
    wait_until("laid out anew", Duration::from_secs(90), || {
        Ok(summary_figure(server, "/switched_on")? == 2)
    })?;
    expect_state(server, "active")
}

/// Fails unless the state is as expected; the error contains the reason that the server gives.
pub fn expect_state(server: &Server, state: &str) -> anyhow::Result<()> {
    // A server configured to enable the extension answers before the controller thread has done so.
    wait_until("switched on", Duration::from_secs(180), || {
        Ok(status(server, "state_reason")? != "being switched on")
    })?;
    let now = status(server, "state")?;
    ensure!(
        now == state,
        "the state is '{now}' ({}), expected '{state}'",
        status(server, "state_reason")?
    );
    Ok(())
}

/// Writes dirty pages, so that the counters stop changing.
pub fn write_dirty_pages(server: &Server) -> anyhow::Result<()> {
    server.sql("SET GLOBAL innodb_max_dirty_pages_pct = 0")?;
    wait_until("dirty pages are written", Duration::from_secs(60), || {
        let status = server.status("Innodb_buffer_pool_pages_dirty")?;
        Ok(status.values().all(|dirty| dirty == "0"))
    })?;
    server.sql("SET GLOBAL innodb_max_dirty_pages_pct = DEFAULT")?;
    Ok(())
}

/// Waits until `done` returns true, at most `limit`.
pub fn wait_until(
    what: &str,
    limit: Duration,
    mut done: impl FnMut() -> anyhow::Result<bool>,
) -> anyhow::Result<()> {
    let started = Instant::now();
    loop {
        if done()? {
            return Ok(());
        }
        ensure!(
            started.elapsed() < limit,
            "not after {} s: {what}",
            limit.as_secs()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Creates `table` (with its database) and fills it with `rows` rows of about `width` bytes that do not compress well. Columns:
/// `id` from 1 on, `v` (0), `pad`. `attributes` follow the columns, for example `ROW_FORMAT=COMPRESSED`.
pub fn fill(
    connection: &mut Conn,
    table: &str,
    rows: u32,
    width: u32,
    attributes: &str,
) -> anyhow::Result<()> {
    let database = table.split('.').next().unwrap_or("d");
    connection.query_drop(format!("CREATE DATABASE IF NOT EXISTS {database}"))?;
    connection.query_drop(format!(
        "CREATE TABLE {table} (id INT UNSIGNED PRIMARY KEY, v INT UNSIGNED NOT NULL, pad VARBINARY(4000) NOT NULL, \
         KEY (v)) ENGINE=InnoDB {attributes}"
    ))?;
    insert(connection, table, 1, rows, width)?;
    // Without statistics the servers scan the table instead of using the index.
    connection.query_drop(format!("ANALYZE TABLE {table}"))?;
    Ok(())
}

/// Inserts rows `first` to `last` as [`fill`] does.
pub fn insert(
    connection: &mut Conn,
    table: &str,
    first: u32,
    last: u32,
    width: u32,
) -> anyhow::Result<()> {
    let mut row = first;
    while row <= last {
        let batch = (last - row + 1).min(500);
        let values: Vec<String> = (row..row + batch)
            .map(|id| format!("({id},0,x'{}')", hex_pad(id, 0, width)))
            .collect();
        connection.query_drop(format!("INSERT INTO {table} VALUES {}", values.join(",")))?;
        row += batch;
    }
    Ok(())
}

/// Bytes of `pad` for a row and version: `width` pseudo-random bytes.
pub fn pad(id: u32, version: u32, width: u32) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(u64::from(id) << 32 | u64::from(version));
    let width = width as usize;
    let mut bytes = Vec::with_capacity(width + 8);
    while bytes.len() < width {
        bytes.extend_from_slice(&random.u64(..).to_be_bytes());
    }
    bytes.truncate(width);
    bytes
}

/// [`pad`] as hexadecimal digits, for statements.
pub fn hex_pad(id: u32, version: u32, width: u32) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |four: u8| char::from(DIGITS[usize::from(four)]);
    let bytes = pad(id, version, width);
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// Reads all rows of a table from [`fill`] by primary key, in another order than stored, so that pages are read one by one.
/// Returns the sums of `id` and `v`.
pub fn read_all(connection: &mut Conn, table: &str, rows: u32) -> anyhow::Result<(u64, u64)> {
    // A stride that has no common factor with the number of rows visits each row once.
    let mut stride = (rows / 7 * 3).max(1);
    while gcd(stride, rows) != 1 {
        stride += 1;
    }
    let (mut ids, mut versions) = (0u64, 0u64);
    let mut at = 0u32;
    let mut visited = 0;
    while visited < rows {
        let batch = (rows - visited).min(200);
        let list: Vec<String> = (0..batch)
            .map(|_| {
                let id = at + 1;
                at = (at + stride) % rows;
                id.to_string()
            })
            .collect();
        visited += batch;
        let sums: Option<(u64, u64)> = connection.query_first(format!(
            "SELECT CAST(SUM(id) AS UNSIGNED), CAST(SUM(v + LENGTH(pad) * 0) AS UNSIGNED) FROM {table} \
             FORCE INDEX (PRIMARY) WHERE id IN ({})",
            list.join(",")
        ))?;
        let (id, version) = sums.context("no sums")?;
        ids += id;
        versions += version;
    }
    Ok((ids, versions))
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Checks that `v` and `pad` of all rows match [`pad`]; returns the number of rows.
pub fn verify_pads(connection: &mut Conn, table: &str, width: u32) -> anyhow::Result<u32> {
    let mut rows = 0;
    let mut wrong = Vec::new();
    connection
        .query_iter(format!("SELECT id, v, pad FROM {table}"))?
        .try_for_each(|row| {
            let (id, version, bytes): (u32, u32, Vec<u8>) = mysql::from_row(row?);
            rows += 1;
            if bytes != pad(id, version, width) {
                wrong.push(id);
            }
            Ok::<_, mysql::Error>(())
        })?;
    ensure!(
        wrong.is_empty(),
        "{table}: {} rows have other contents than written, first ids {:?}",
        wrong.len(),
        &wrong[..wrong.len().min(10)]
    );
    Ok(rows)
}

fn short(statement: &str) -> String {
    statement.chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digits_are_those_of_the_bytes() {
        for width in [1, 8, 1001] {
            let bytes = pad(7, 3, width);
            let digits: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(bytes.len(), width as usize);
            assert_eq!(hex_pad(7, 3, width), digits.concat());
        }
        assert_ne!(pad(7, 3, 100), pad(7, 4, 100));
        assert_ne!(pad(7, 3, 100), pad(8, 3, 100));
    }
}
