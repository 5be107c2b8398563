//! Asynchronous replication by GTID. The demonstration promotes the standby, as a tool like Orchestrator does.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use mysql::prelude::Queryable;
use private_server::Server;

use super::wiring::{Wiring, run, wait_until};

/// The primary counts as dead after this many failed attempts, at this interval.
const ATTEMPTS: u32 = 3;
const DISTANCE: Duration = Duration::from_millis(500);
/// Timeout of one query for a replica's position, seconds.
const SLICE: u32 = 1;

pub fn options(wiring: &Wiring) -> Vec<String> {
    let own: &[&str] = match wiring.flavour.is_mysql() {
        true => &[
            "--gtid-mode=ON",
            "--enforce-gtid-consistency=ON",
            "--skip-replica-start",
        ],
        false => &[
            "--log-slave-updates=ON",
            "--slave-parallel-threads=4",
            "--skip-slave-start",
        ],
    };
    own.iter().map(|&option| option.to_owned()).collect()
}

pub fn prepare(server: &Server) -> Result<()> {
    let account = [
        "CREATE USER replica@'%' IDENTIFIED BY 'x'",
        "GRANT REPLICATION SLAVE ON *.* TO replica@'%'",
    ];
    run(server, &account)?;
    // Every copy contains the changes so far.
    run(
        server,
        &[match server.flavour().is_mysql() {
            true => "RESET BINARY LOGS AND GTIDS",
            false => "RESET MASTER",
        }],
    )
}

pub fn join(wiring: &Wiring, node: usize, server: &Server) -> Result<()> {
    if node == 0 {
        return Ok(());
    }
    server.sql("SET GLOBAL read_only = ON")?;
    // The standby follows the primary, and the third node follows the standby. So the third node is never ahead of the
    // promoted standby, and continues to follow it.
    let port = wiring.ports[node - 1].clients;
    let is_mysql = server.flavour().is_mysql();
    let (change, start) = match is_mysql {
        true => (
            format!(
                "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = {port}, SOURCE_USER = 'replica', \
                 SOURCE_PASSWORD = 'x', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1"
            ),
            "START REPLICA",
        ),
        false => (
            format!(
                "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = {port}, MASTER_USER = 'replica', MASTER_PASSWORD = 'x', \
                 MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"
            ),
            "START SLAVE",
        ),
    };
    run(server, &[&change, start])?;
    let (show, column) = match is_mysql {
        true => ("SHOW REPLICA STATUS", "Replica_IO_Running"),
        false => ("SHOW SLAVE STATUS", "Slave_IO_Running"),
    };
    wait_until("the replica is connected", || {
        Ok(field(server, show, column)?.as_deref() == Some("Yes"))
    })
}

fn field(server: &Server, statement: &str, column: &str) -> Result<Option<String>> {
    let row: Option<mysql::Row> = server.connect()?.query_first(statement)?;
    let row = row.with_context(|| format!("{statement} says nothing"))?;
    Ok(row.get::<Option<String>, _>(column).flatten())
}

pub fn promote(dead: &Path, standby: &Server) -> Result<()> {
    let mut attempts = 0;
    while attempts < ATTEMPTS {
        std::thread::sleep(DISTANCE);
        ensure!(UnixStream::connect(dead).is_err(), "the primary lives");
        attempts += 1;
    }
    let mysql = standby.flavour().is_mysql();
    let stop = match mysql {
        true => "STOP REPLICA IO_THREAD",
        false => "STOP SLAVE IO_THREAD",
    };
    standby.sql(stop)?;
    let received = match mysql {
        true => standby.value(
            "SELECT RECEIVED_TRANSACTION_SET FROM performance_schema.replication_connection_status WHERE CHANNEL_NAME = ''",
        )?,
        false => field(standby, "SHOW SLAVE STATUS", "Gtid_IO_Pos")?,
    };
    let received = received.unwrap_or_default().replace('\n', "");
    let wait = match mysql {
        true => "WAIT_FOR_EXECUTED_GTID_SET",
        false => "MASTER_GTID_WAIT",
    };
    if !received.is_empty() {
        let question = format!("SELECT {wait}('{received}', {SLICE})");
        wait_until("all that was received is applied", || {
            Ok(standby.value(&question)?.as_deref() == Some("0"))
        })?;
    }
    let statements: &[&str] = match mysql {
        true => &["STOP REPLICA", "RESET REPLICA ALL"],
        false => &["STOP SLAVE", "RESET SLAVE ALL"],
    };
    run(standby, statements)?;
    run(standby, &["SET GLOBAL read_only = OFF"])
}
