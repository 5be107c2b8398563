//! Shared state of all request handlers.

use std::sync::Arc;

use super::cluster_tasks;
use super::console_extension::ConsoleExtension;
use super::events::Events;
use super::guard::Guard;
use super::tasks::Tasks;
use super::watched::Watched;
use crate::change::enable::Locations;
use crate::cluster::ready::Limits;

/// The servers and the console's other state.
pub struct Console {
    pub guard: Arc<Guard>,
    pub servers: Vec<Arc<Watched>>,
    pub events: Arc<Events>,
    pub tasks: Arc<Tasks>,
    pub rolling: Arc<cluster_tasks::ClusterChanges>,
    pub locations: Locations,
    /// Conditions under which a server is ready.
    pub limits: Limits,
    pub guest: Option<Arc<dyn ConsoleExtension>>,
}
