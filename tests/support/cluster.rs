//! Shared parts of the tests of several servers with the same rows.

pub mod galera;
pub mod group;
pub mod replicas;
pub mod servers;

use anyhow::{Context, ensure};
use private_server::Server;
pub use private_server::free_ports;
use private_server::mysql::prelude::Queryable;

use crate::harness::Outcome;
use crate::ledger::Ledger;

/// Checks that the servers' own checksums of the tables of a small ledger are equal.
pub fn expect_equal_sums(servers: &[&Server]) -> Outcome {
    let mut sums = Vec::new();
    for server in servers {
        let statement = "CHECKSUM TABLE ledger.t0, ledger.t1 EXTENDED";
        let sum: Vec<(String, Option<String>)> = server.connect()?.query(statement)?;
        sums.push(sum);
    }
    ensure!(sums.windows(2).all(|pair| pair[0] == pair[1]), "{sums:?}");
    Ok(())
}

/// The same, and that the rows match the clients' versions.
pub fn expect_the_same(ledger: &Ledger, servers: &[&Server]) -> Outcome {
    for (number, server) in servers.iter().enumerate() {
        ledger
            .verify(server)
            .with_context(|| format!("server {number}"))?;
    }
    expect_equal_sums(servers)
}
