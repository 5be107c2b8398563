//! Context shared by all stages of a run.

use private_server::Installation;

use super::plan::Plan;
use super::progress::Progress;
use super::tools::Tools;
use super::workspace::Workspace;
use crate::sysbench::Workload;

/// A plan and its environment.
pub struct Bench<'a> {
    pub plan: &'a Plan,
    pub tools: &'a Tools,
    pub installation: &'a Installation,
    pub workspace: &'a Workspace,
    pub progress: &'a Progress,
    /// The tests to run, in order.
    pub tests: &'a [Workload],
}

impl Bench<'_> {
    /// Name of a log, unique among runs with several pools.
    pub fn log_name(&self, what: &str) -> String {
        format!("pool-{}M-{what}", self.plan.pool >> 20)
    }
}
