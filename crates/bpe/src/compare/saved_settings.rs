//! Changes of a comparison on a server, and their restoration: after the last slice, after a failure, and on a panic.

use super::checks::{BYPASS, Checked, TIMEOUT};
use super::options::CompareOptions;
use super::schedule::Side;
use crate::connect::plain;
use crate::connect::server::Server;
use crate::observe::{Observer, Sample};
use crate::support::failure::{Exit, Failure};
use crate::support::quote::{readable, sql_value};

/// Seconds by which the bypass timeout exceeds a slice.
const MARGIN: u64 = 5;

/// The server's variables while a comparison changes them. Dropping it restores them.
pub struct SavedSettings<'a> {
    observer: &'a mut Observer,
    bypass: &'static str,
    timeout: u64,
    /// Name and value, in the order of restoration.
    to_put_back: Vec<(&'static str, String)>,
}

impl<'a> SavedSettings<'a> {
    /// Prepares the server, without starting bypass.
    ///
    /// # Errors
    /// The server's own error; earlier changes were undone.
    pub fn take(
        observer: &'a mut Observer,
        checked: &Checked,
        wish: &CompareOptions,
    ) -> Result<Self, Failure> {
        let mut held = Self {
            observer,
            bypass: if wish.refill { "REFILL" } else { "ON" },
            timeout: wish.slice + MARGIN,
            to_put_back: vec![
                (BYPASS, "OFF".to_owned()),
                // Restored last: until then the timeout ends bypass if the restoration fails half-way. This change also
                // ends the control group.
                (TIMEOUT, checked.timeout.clone()),
            ],
        };
        held.run(&format!("SET GLOBAL {TIMEOUT} = {}", held.timeout))?;
        Ok(held)
    }

    /// Begins a slice, which restarts the timeout.
    ///
    /// # Errors
    /// The server's own error.
    pub fn switch(&mut self, side: Side) -> Result<(), Failure> {
        let value = match side {
            Side::Serving => "OFF",
            Side::Bypass => self.bypass,
        };
        self.run(&format!("SET GLOBAL {BYPASS} = {value}"))
    }

    /// # Errors
    /// The server does not answer.
    pub fn sample(&mut self) -> Result<Sample, Failure> {
        self.observer.sample()
    }

    /// # Errors
    /// The server is unreachable.
    pub fn server(&mut self) -> Result<&mut Server, Failure> {
        self.observer.server()
    }

    /// Fails if another session has turned the switch, or if bypass timed out.
    ///
    /// # Errors
    /// The changed variable or state.
    pub fn expect(&self, side: Side, reading: &Sample) -> Result<(), Failure> {
        let wanted = match side {
            Side::Serving => "off",
            Side::Bypass => self.bypass,
        };
        let (state, bypass) = (reading.text("bpe_state"), reading.text("bpe_bypass"));
        if !["active", "bypass"].contains(&state) {
            return Err(Failure::step(format!("the extension is {state} now")));
        }
        if bypass.eq_ignore_ascii_case(wanted) {
            return Ok(());
        }
        Err(Failure::step(format!(
            "somebody else has set {BYPASS}, or it ended by its timeout of {} s: it is {bypass} instead of {wanted}",
            self.timeout
        )))
    }

    fn run(&mut self, sql: &str) -> Result<(), Failure> {
        let server = self.observer.server()?;
        let Err(error) = server.execute(sql) else {
            return Ok(());
        };
        let failure = Failure::step(format!("{} failed: {}", readable(sql), plain(&error)));
        let failure = server.without_answer(failure);
        if failure.exit == Exit::Connect {
            self.observer.disconnect();
        }
        Err(failure)
    }

    /// Restores all variables.
    ///
    /// # Errors
    /// The variables that could not be restored, and an advice.
    pub fn put_back(mut self) -> Result<(), String> {
        self.try_to_put_back()
    }

    fn try_to_put_back(&mut self) -> Result<(), String> {
        let mut missing: Vec<(String, String)> = Vec::new();
        for (name, value) in std::mem::take(&mut self.to_put_back) {
            let sql = format!("SET GLOBAL {name} = {}", sql_value(&value));
            // If bypass could not be switched off, keep the timeout, which ends it.
            if let Some((_, why)) = missing.last().cloned() {
                missing.push((sql, why));
                continue;
            }
            // Retry over a new connection if the first one is lost.
            let result = match self.run(&sql) {
                Err(failure) if failure.exit == Exit::Connect => self.run(&sql),
                result => result,
            };
            if let Err(failure) = result {
                missing.push((sql, failure.what));
            }
        }
        let Some((_, why)) = missing.first() else {
            return Ok(());
        };
        let statements: Vec<_> = missing.iter().map(|(sql, _)| readable(sql)).collect();
        Err(format!(
            "NOT everything was put back ({why}). Bypass ends by itself within {} s; then run: {}",
            self.timeout,
            statements.join("; ")
        ))
    }
}

impl Drop for SavedSettings<'_> {
    fn drop(&mut self) {
        // Does nothing after `put_back`.
        if let Err(why) = self.try_to_put_back() {
            crate::support::terminal::complain!("bpe: {why}");
        }
    }
}
