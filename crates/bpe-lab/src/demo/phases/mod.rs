//! What is shown of the extension after its tests, on the same server. Each phase is a file: what it keeps in
//! `results.json`, how it runs, and what table and report show of it. Here the phases are listed.

mod restart;
mod second;
mod shown;
pub mod switching;

pub use shown::Shown;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::rig::Rig;
use restart::Restarts;
use switching::Switching;

/// The phases that were run, each under its name in `results.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phases {
    pub switching: Option<Switching>,
    pub restarts: Option<Restarts>,
}

/// Runs the phases of the plan on the server with the extension, whose cache is full.
///
/// # Errors
/// Whatever stopped one of them.
pub fn run(bench: &Bench, rig: &mut Rig) -> Result<Phases> {
    let mut phases = Phases::default();
    if bench.plan.restart {
        phases.restarts = Some(restart::run(bench, rig)?);
    } else {
        phases.switching = Some(switching::run(bench, rig)?);
    }
    Ok(phases)
}

impl Phases {
    /// Those that were run, in their order.
    pub fn shown(&self) -> impl Iterator<Item = &dyn Shown> {
        let switching = self.switching.iter().map(|phase| phase as &dyn Shown);
        let restarts = self.restarts.iter().map(|phase| phase as &dyn Shown);
        switching.chain(restarts)
    }
}
