//! What a comparison changes on a server, and putting it back: after the last slice, after a failure, and when it panics.

use super::checks::{BYPASS, Checked, TIMEOUT};
use super::schedule::Side;
use super::wish::Wish;
use crate::connection::plain;
use crate::failure::{Exit, Failure};
use crate::observe::{Observer, Sample};
use crate::quote::{readable, sql_value};
use crate::server::Server;

/// Seconds that bypass lasts longer than a slice if nobody ends it.
const MARGIN: u64 = 5;

/// The server's variables in the hand of a comparison. Dropping it puts them back.
pub struct Held<'a> {
    observer: &'a mut Observer,
    bypass: &'static str,
    timeout: u64,
    /// Name and value, to be set in this order.
    to_put_back: Vec<(&'static str, String)>,
}

impl<'a> Held<'a> {
    /// Prepares the server. Bypass does not begin yet.
    ///
    /// # Errors
    /// In the server's words; what had been changed was put back.
    pub fn take(
        observer: &'a mut Observer,
        checked: &Checked,
        wish: &Wish,
    ) -> Result<Self, Failure> {
        let mut held = Self {
            observer,
            bypass: if wish.refill { "REFILL" } else { "ON" },
            timeout: wish.slice + MARGIN,
            to_put_back: vec![
                (BYPASS, "OFF".to_owned()),
                // Until here it ends bypass if this fails half-way. The change ends the control group.
                (TIMEOUT, checked.timeout.clone()),
            ],
        };
        held.run(&format!("SET GLOBAL {TIMEOUT} = {}", held.timeout))?;
        Ok(held)
    }

    /// Begins a slice, and its timeout anew.
    ///
    /// # Errors
    /// In the server's words.
    pub fn switch(&mut self, side: Side) -> Result<(), Failure> {
        let value = match side {
            Side::Serving => "OFF",
            Side::Bypass => self.bypass,
        };
        self.run(&format!("SET GLOBAL {BYPASS} = {value}"))
    }

    /// # Errors
    /// When the server does not answer.
    pub fn sample(&mut self) -> Result<Sample, Failure> {
        self.observer.sample()
    }

    /// # Errors
    /// When it cannot be reached.
    pub fn server(&mut self) -> Result<&mut Server, Failure> {
        self.observer.server()
    }

    /// Fails where somebody else has turned a switch.
    ///
    /// # Errors
    /// Says which.
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

    /// Puts everything back.
    ///
    /// # Errors
    /// What could not be, and what to do.
    pub fn put_back(mut self) -> Result<(), String> {
        self.try_to_put_back()
    }

    fn try_to_put_back(&mut self) -> Result<(), String> {
        let mut missing: Vec<(String, String)> = Vec::new();
        for (name, value) in std::mem::take(&mut self.to_put_back) {
            let sql = format!("SET GLOBAL {name} = {}", sql_value(&value));
            // Without its timeout, bypass would last.
            if let Some((_, why)) = missing.last().cloned() {
                missing.push((sql, why));
                continue;
            }
            // Once more over another connection where the first one turns out to be lost.
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

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Nothing is left to do after `put_back`.
        if let Err(why) = self.try_to_put_back() {
            crate::terminal::complain!("bpe: {why}");
        }
    }
}
