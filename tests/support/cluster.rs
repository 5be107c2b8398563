//! Shared parts of the tests of several servers with the same rows.

pub mod galera;
pub mod group;
pub mod replicas;
pub mod servers;

use std::net::TcpListener;

use anyhow::{Context, ensure};
use private_server::Server;
use private_server::mysql::prelude::Queryable;

use crate::harness::Outcome;
use crate::ledger::Ledger;

/// Returns `EACH` unused ports for each of `SERVERS` servers, all different.
pub fn free_ports<const EACH: usize, const SERVERS: usize>()
-> anyhow::Result<[[u16; EACH]; SERVERS]> {
    // All at once, or the same port might be returned again.
    let taken = (0..SERVERS * EACH)
        .map(|_| TcpListener::bind("127.0.0.1:0"))
        .collect::<Result<Vec<_>, _>>()?;
    let mut ports = [[0; EACH]; SERVERS];
    for (port, listener) in ports.as_flattened_mut().iter_mut().zip(&taken) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

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
