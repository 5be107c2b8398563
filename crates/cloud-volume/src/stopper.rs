//! Requests the end of a volume, and signals it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    #[default]
    Running,
    Stopping,
    Ended,
}

/// Requests the end of a volume. See [`crate::Volume::stopper`].
#[derive(Clone, Default)]
pub struct Stopper {
    stage: Arc<(Mutex<Stage>, Condvar)>,
}

impl Stopper {
    /// Ends [`crate::Volume::wait`].
    pub fn stop(&self) {
        self.set(Stage::Stopping);
    }

    pub(crate) fn set(&self, stage: Stage) {
        let mut now = self.stage.0.lock();
        *now = stage.max(*now);
        self.stage.1.notify_all();
    }

    pub(crate) fn ended(&self) -> bool {
        *self.stage.0.lock() == Stage::Ended
    }

    pub(crate) fn wait_while(&self, waits: impl Fn(Stage) -> bool) {
        let mut stage = self.stage.0.lock();
        self.stage.1.wait_while(&mut stage, |stage| waits(*stage));
    }

    pub(crate) fn wait_for_end(&self, patience: Duration) -> bool {
        let mut stage = self.stage.0.lock();
        let not_yet = |stage: &mut Stage| *stage != Stage::Ended;
        self.stage.1.wait_while_for(&mut stage, not_yet, patience);
        *stage == Stage::Ended
    }
}
