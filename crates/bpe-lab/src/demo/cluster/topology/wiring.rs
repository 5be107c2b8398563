//! Connections between the nodes, and helpers of all kinds of clusters.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use private_server::{Flavour, Server};

use crate::demo::cluster::name::NODES;

/// Ports of a node: for clients, for the cluster, and for catching up.
#[derive(Clone, Copy, Default)]
pub struct Ports {
    pub clients: u16,
    pub group: u16,
    pub missed: u16,
}

/// Timeout for servers to find each other, or to catch up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(120);
/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Settings that all nodes share.
pub struct Wiring {
    pub flavour: Flavour,
    pub ports: [Ports; NODES],
}

pub fn run(server: &Server, statements: &[&str]) -> Result<()> {
    for statement in statements {
        server.sql(statement)?;
    }
    Ok(())
}

pub fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let end = Instant::now() + ANSWER_TIMEOUT;
    while !is_so()? {
        if Instant::now() > end {
            bail!("{what}: not within {} s", ANSWER_TIMEOUT.as_secs());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    Ok(())
}
