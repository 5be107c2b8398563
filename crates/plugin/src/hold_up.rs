//! Moments at which a test can hold a thread up, to let others get in between. Compiled into builds for tests only.

use std::sync::OnceLock;

/// Called at each of the moments, with its name.
pub static AT: OnceLock<fn(&'static str)> = OnceLock::new();

/// The moment has come.
pub fn at(moment: &'static str) {
    if let Some(hold_up) = AT.get() {
        hold_up(moment);
    }
}
