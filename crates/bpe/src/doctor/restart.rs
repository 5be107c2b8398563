//! Whether the cache survives a restart of the server.

use std::path::Path;

use super::confinement;
use super::finding::Finding;
use crate::connect::process::Process;
use crate::connect::server::Server;
use crate::installation::persistence::{self, Obstacle};
use crate::installation::server_options::ServerOptions;

const TOPIC: &str = "restart";

/// `size`: cache size in bytes; `data`: the data directory as this command reaches it.
pub fn check(
    server: &mut Server,
    process: &Process,
    size: u64,
    data: Option<&Path>,
) -> Vec<Finding> {
    let variables = server.variables("bpe\\_persist%").unwrap_or_default();
    if variables
        .get("bpe_persist_path")
        .is_some_and(String::is_empty)
    {
        return vec![Finding::ok(TOPIC, persistence::EMPTY)];
    }
    let folder = persistence::folder(variables.get("bpe_persist_path").map(String::as_str));
    let mut obstacles = Vec::new();
    // If the plugin is not installed yet, `bpe enable` will configure early loading.
    let state = server.status("bpe\\_load\\_mode").unwrap_or_default();
    if state
        .get("bpe_load_mode")
        .is_some_and(|mode| mode != "early")
    {
        let options = ServerOptions::read(process, server.flavour, server.version);
        obstacles.extend(persistence::loaded_early(&options, process, server.flavour).err());
    }
    let place = persistence::place(process, &folder, persistence::needed(size));
    let confined = match place {
        Ok(_) => confinement::memory(process, &folder),
        Err(_) => Vec::new(),
    };
    obstacles.extend(data.and_then(|data| persistence::data(data).err()));
    let kept = match place {
        Ok(text) if obstacles.is_empty() => Some(format!("what is cached is kept: {text}")),
        Ok(_) => None,
        Err(obstacle) => {
            obstacles.push(obstacle);
            None
        }
    };
    let kept = kept.map(|text| Finding::ok(TOPIC, text));
    let warnings = obstacles.into_iter().map(warning);
    confined.into_iter().chain(kept).chain(warnings).collect()
}

/// A warning only: the extension works, but starts empty.
fn warning(obstacle: Obstacle) -> Finding {
    Finding::warn(
        TOPIC,
        format!("the cache will be empty after a restart: {}", obstacle.what),
    )
    .advise(obstacle.advice)
}
