//! One server's part of a rolling change: measure, change, wait for replication, measure again, compare.

use std::time::Duration;

use super::catch_up;
use super::regression::{self, Window};
use crate::connect::Target;
use crate::observe::Observer;
use crate::support::failure::Failure;

/// Settings of the change of one node.
pub struct NodeChange<'a> {
    /// The change leaves the extension on.
    pub is_on: bool,
    /// Length of each measurement.
    pub watch: Duration,
    /// Longest wait for replication.
    pub wait: Duration,
    pub max_lag_s: f64,
    pub interrupted: &'a dyn Fn() -> bool,
    /// An interruption does not cut the measurement after the change.
    pub to_the_end: bool,
}

impl NodeChange<'_> {
    /// Measures, changes and compares. `say` gets the progress. Returns the measurement after the change.
    ///
    /// # Errors
    /// The change failed, the server left the cluster, or its figures got worse.
    pub fn run(
        &self,
        target: Target,
        patience: Duration,
        say: &dyn Fn(&str),
        change: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<Window, Failure> {
        let mut observer = Observer::with_limit(target, patience);
        let seconds = self.watch.as_secs();
        say(&format!("watching it for {seconds} s first"));
        let before = Window::of(&mut observer, self.watch, self.interrupted)?;
        change()?;
        observer.disconnect();
        say("waiting until it is in step");
        let mut waiting = |words: &str| say(&format!("waiting until it is in step: {words}"));
        catch_up::until_in_step(
            &mut observer,
            self.max_lag_s,
            self.wait,
            self.interrupted,
            &mut waiting,
        )?;
        say(&format!("watching it for {seconds} s"));
        let ends = || self.to_the_end || !(self.interrupted)();
        let after = Window::of(&mut observer, self.watch, &|| !ends());
        let after = after.map_err(|failure| failure.about("it was changed, but then"))?;
        match regression::judge(&before, &after, self.is_on, self.max_lag_s) {
            Some(worse) => Err(Failure::step(format!(
                "it was changed and is worse off: {}",
                worse.text
            ))),
            None => Ok(after),
        }
    }
}
