//! The turn of one server in a rolling change: watched, changed, waited for until it is in step, watched again, and judged.

use std::time::Duration;

use super::waiting;
use super::worse::{self, Window};
use crate::connection::Target;
use crate::failure::Failure;
use crate::observe::Observer;

/// How it goes about.
pub struct Turn<'a> {
    /// Whether the extension is on after the change.
    pub is_on: bool,
    /// How long it is watched before and after.
    pub watch: Duration,
    /// How long it may take until it is in step again.
    pub wait: Duration,
    pub max_lag_s: f64,
    pub interrupted: &'a dyn Fn() -> bool,
    /// Whether a change that was done is watched to its end, though it was interrupted.
    pub to_the_end: bool,
}

impl Turn<'_> {
    /// Takes it. `change` does the change, `say` gets what is going on. Returns how the server is doing.
    ///
    /// # Errors
    /// It was not changed, it has left, or it is worse off.
    pub fn take(
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
        waiting::until_in_step(
            &mut observer,
            self.max_lag_s,
            self.wait,
            self.interrupted,
            &mut waiting,
        )?;
        say(&format!("watching it for {seconds} s"));
        let ends = || self.to_the_end || !(self.interrupted)();
        let after = Window::of(&mut observer, self.watch, &|| !ends());
        let after = after.map_err(|mut failure| {
            failure.what = format!("it was changed, but then: {}", failure.what);
            failure
        })?;
        match worse::judge(&before, &after, self.is_on, self.max_lag_s) {
            Some(worse) => Err(Failure::step(format!(
                "it was changed and is worse off: {}",
                worse.text
            ))),
            None => Ok(after),
        }
    }
}
