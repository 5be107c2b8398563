//! What every request may need.

use std::sync::Arc;

use super::events::Events;
use super::guard::Guard;
use super::guest::Guest;
use super::tasks::Tasks;
use super::watched::Watched;
use crate::enable::Places;

/// The servers, and what is kept beside them.
pub struct Console {
    pub guard: Arc<Guard>,
    pub servers: Vec<Arc<Watched>>,
    pub events: Arc<Events>,
    pub tasks: Arc<Tasks>,
    pub places: Places,
    pub guest: Option<Arc<dyn Guest>>,
}
