//! Demonstrations of the extension after its tests, on the same server. Each phase is a file: its entry in `results.json`,
//! its run, and its part of the report. This module lists the phases.

pub mod restart;
mod second;
mod switching;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::bench::Bench;
use super::rig::Rig;
use crate::report::Part;
use restart::Restarts;
use switching::Switching;

/// The completed phases, each under its name in `results.json`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Phases {
    pub switching: Option<Switching>,
    pub restarts: Option<Restarts>,
}

/// Runs the phases of the plan on the server with the extension, whose cache is full.
///
/// # Errors
/// The first failure of a phase.
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
    /// The completed phases, in order, for the report.
    pub fn parts(&self) -> Vec<Part> {
        let switching = self.switching.iter().map(Switching::part);
        let restarts = self.restarts.iter().map(Restarts::part);
        switching.chain(restarts).collect()
    }
}
