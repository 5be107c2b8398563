//! Compares serving with bypass on a server ([`crate::compare`]), and publishes every second to its pages.
//!
//! Holds the server's right to change until the end, so that no other request turns its switch.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::error::Refusal;
use super::events::Level;
use super::watched::Watched;
use crate::compare::options::CompareOptions;
use crate::compare::report::{Comparison, Ended};
use crate::compare::run::{self, Audience, Now};
use crate::compare::schedule::Side;
use crate::support::failure::Failure;

/// Percent of the statements per second, as in the command.
const LIMIT: f64 = 50.0;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    minutes: f64,
    /// Seconds per slice.
    slice_s: u64,
    /// Whether pages written during bypass stay cached.
    refill: bool,
    /// Bypass ends the comparison below this percentage of the serving rate, in statements per second.
    limit_percent: Option<f64>,
}

/// The running or the last comparison.
#[derive(Clone, Default, Serialize)]
pub struct Comparing {
    pub running: bool,
    /// From 1 on; 0 while the server is only watched.
    pub pair: u64,
    pub pairs: u64,
    pub in_bypass: bool,
    pub statements_per_s: f64,
    /// Why there was none.
    pub error: Option<String>,
    pub advice: Option<String>,
    /// Result so far.
    pub found: Option<Comparison>,
}

/// Starts it in another thread than the one that answers requests.
///
/// # Errors
/// Another change of the server is running, or the request is invalid. Problems of the server itself are published to the pages.
pub fn begin(watched: &Arc<Watched>, request: &Request) -> Result<Comparing, Refusal> {
    let wrong = |what: &str| Err(Refusal::bad(what));
    if !(0.1..=480.0).contains(&request.minutes) {
        return wrong("minutes must be 0.1 to 480");
    }
    if !(2..=60).contains(&request.slice_s) {
        return wrong("slice_s must be 2 to 60");
    }
    let limit = request.limit_percent.unwrap_or(LIMIT);
    if !(0.0..100.0).contains(&limit) {
        return wrong("limit_percent must be 0 to 99");
    }
    let wish = CompareOptions::new(request.minutes, request.slice_s, limit, request.refill)?;
    let changing = watched.begin_change().ok_or_else(|| {
        Refusal::conflict("this server is already being changed").advise("wait until that is done")
    })?;
    watched.begin_comparing();
    let now = Comparing {
        running: true,
        pairs: wish.pairs as u64,
        ..Comparing::default()
    };
    let mut page = Page {
        watched: Arc::clone(watched),
        now: now.clone(),
    };
    page.show();
    std::thread::Builder::new()
        .name("compare".into())
        .spawn(move || {
            let target = page.watched.target().clone();
            let run = || run::run(target, &wish, &mut page);
            let result = catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
                Err(Failure::step(
                    "the console failed at this; its terminal shows where",
                ))
            });
            page.watched.end_comparing();
            // Release the right first: a page that sees the end may start the next change at once.
            drop(changing);
            page.end(result);
        })
        .map_err(|error| {
            watched.end_comparing();
            Refusal::from(Failure::step(format!("cannot start a thread: {error}")))
        })?;
    Ok(now)
}

/// Publishes to a server's pages.
struct Page {
    watched: Arc<Watched>,
    now: Comparing,
}

impl Page {
    fn show(&self) {
        let shown = serde_json::to_value(&self.now).unwrap_or_default();
        self.watched.show_comparing(shown);
    }

    fn end(&mut self, result: Result<Comparison, Failure>) {
        self.now.running = false;
        let (level, said) = match result {
            Ok(found) => {
                let level = match found.ended {
                    Ended::Failed => Level::Error,
                    _ => Level::Info,
                };
                let said = found.result();
                self.now.found = Some(found);
                (level, said)
            }
            Err(failure) => {
                self.now.error = Some(failure.what.clone());
                self.now.advice = failure.advice;
                (Level::Error, failure.what)
            }
        };
        self.watched
            .note(level, format!("the comparison has ended: {said}"));
        self.show();
    }
}

impl Audience for Page {
    fn second(&mut self, now: &Now) {
        self.now.pair = now.pair as u64;
        self.now.in_bypass = now.side == Side::Bypass;
        self.now.statements_per_s = now.statements_per_s;
        self.show();
    }

    fn pair(&mut self, so_far: &Comparison) {
        self.now.found = Some(so_far.clone());
    }

    fn is_interrupted(&self) -> bool {
        self.watched.is_to_stop_comparing()
    }
}
