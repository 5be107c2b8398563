//! Whether what is cached will be there again after a restart of the server.

use std::path::Path;

use super::confinement;
use super::finding::Finding;
use crate::persistence::{self, Obstacle};
use crate::process::Process;
use crate::server::Server;
use crate::server_options::ServerOptions;

const TOPIC: &str = "restart";

/// `size` bytes of cache; `data`: the data directory as this command reaches it.
pub fn look(
    server: &mut Server,
    process: &Process,
    size: u64,
    data: Option<&Path>,
) -> Vec<Finding> {
    let variables = server.variables("bpe\\_persist%").unwrap_or_default();
    if variables
        .get("bpe_persist")
        .is_some_and(|value| value == "off")
    {
        return vec![Finding::ok(
            TOPIC,
            "bpe_persist is off: the cache starts empty after each restart",
        )];
    }
    let folder = persistence::folder(variables.get("bpe_persist_path").map(String::as_str));
    let mut findings = Vec::new();
    // Of a plugin that is not there yet `bpe enable` writes what loads it early.
    let state = server.status("bpe\\_load\\_mode").unwrap_or_default();
    if state
        .get("bpe_load_mode")
        .is_some_and(|mode| mode != "early")
    {
        let options = ServerOptions::read(process, server.flavour, server.version);
        let early = persistence::loaded_early(&options, process, server.flavour);
        findings.extend(early.err().map(compared));
    }
    let place = persistence::place(process, &folder, persistence::needed(size));
    if place.is_ok() {
        findings.extend(confinement::memory(process, &folder));
    }
    let place = place.map(|text| Finding::ok(TOPIC, format!("what is cached is kept: {text}")));
    findings.push(place.unwrap_or_else(warning));
    findings.extend(
        data.and_then(|data| persistence::data(data).err())
            .map(warning),
    );
    findings
}

/// It is kept, and takes its time.
fn compared(obstacle: Obstacle) -> Finding {
    Finding::warn(
        TOPIC,
        format!(
            "after a restart each cached page is compared with the data file before it is served: {}",
            obstacle.what
        ),
    )
    .advise(obstacle.advice)
}

/// It works without.
fn warning(obstacle: Obstacle) -> Finding {
    Finding::warn(
        TOPIC,
        format!("the cache will be empty after a restart: {}", obstacle.what),
    )
    .advise(obstacle.advice)
}
