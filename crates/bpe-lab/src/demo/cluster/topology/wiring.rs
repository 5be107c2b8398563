//! How the nodes of a cluster are connected, and what all kinds of clusters use.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use private_server::{Flavour, Server};

use crate::demo::cluster::name::NODES;

/// Of a node: for clients, for the cluster, and for what a node has missed.
#[derive(Clone, Copy, Default)]
pub struct Ports {
    pub clients: u16,
    pub group: u16,
    pub missed: u16,
}

/// How long servers may take to find each other, or to catch up.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether they have.
const LOOK: Duration = Duration::from_millis(100);

/// What all nodes know of each other.
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
    let end = Instant::now() + PATIENCE;
    while !is_so()? {
        if Instant::now() > end {
            bail!("{what}: not within {} s", PATIENCE.as_secs());
        }
        std::thread::sleep(LOOK);
    }
    Ok(())
}
