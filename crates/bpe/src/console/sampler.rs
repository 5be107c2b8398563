//! The sampler thread polls a server once a second and logs changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::events::Level;
use super::switching;
use super::watched::Watched;
use crate::cluster::membership::{Membership, Role};
use crate::cluster::probe::NodeState;
use crate::cluster::warmth::Warmth;
use crate::connect::server::Server;
use crate::observe::{Figures, Observer};
use crate::support::failure::Failure;

const INTERVAL: Duration = Duration::from_secs(1);
/// Retry interval for a server that has been unreachable for some time.
const RETRY_INTERVAL: Duration = Duration::from_secs(3);
/// Failed attempts after which `RETRY_INTERVAL` applies.
const AT_ONCE: u32 = 10;
/// A poll that fails sooner than this is retried at once.
const SOON: Duration = Duration::from_secs(1);
/// Seconds between polls of rarely changing facts.
const FACTS_EVERY: u32 = 10;
/// Interval between polls of the cluster role.
const PLACE_INTERVAL: Duration = Duration::from_secs(2);

/// Starts the thread, which runs until the process ends.
///
/// # Errors
/// The system cannot start a thread.
pub fn start(server: &Arc<Watched>) -> std::io::Result<()> {
    let server = Arc::clone(server);
    std::thread::Builder::new()
        .name(format!("sampler {}", server.id))
        .spawn(move || {
            // Returns only after a panic; a new sampler then starts from scratch.
            while fails(|| Sampler::new(&server).run()) {
                server.show_trouble(
                    "the console failed while it read this server (its terminal shows where), and starts again",
                );
                std::thread::sleep(RETRY_INTERVAL);
            }
        })
        .map(drop)
}

/// Whether it panicked.
fn fails(work: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(work)).is_err()
}

struct Sampler<'a> {
    server: &'a Watched,
    observer: Observer,
    failures: u32,
    /// Seconds until the next poll of facts.
    facts_in: u32,
    place_at: Instant,
    before: Before,
}

/// State at the previous poll, to detect changes.
#[derive(Default)]
struct Before {
    state: Option<(String, String)>,
    troubles: u64,
    suspicions: u64,
    role: Option<Role>,
    in_step: Option<bool>,
}

impl<'a> Sampler<'a> {
    fn new(server: &'a Watched) -> Self {
        Self {
            server,
            observer: Observer::of(server.target().clone()),
            failures: 0,
            facts_in: 0,
            place_at: Instant::now(),
            before: Before::default(),
        }
    }

    fn run(mut self) {
        let mut next = Instant::now();
        loop {
            if self.server.wait(next) {
                self.facts_in = 0;
            }
            // A requested poll between two seconds only refreshes the facts.
            if Instant::now() >= next || self.failures > 0 {
                match self.look_twice() {
                    Ok(()) => self.failures = 0,
                    Err(failure) => self.lost(&failure),
                }
                next = Instant::now().max(next) + self.pause();
            } else if let Err(failure) = self.look_at_facts() {
                self.lost(&failure);
            }
        }
    }

    fn pause(&self) -> Duration {
        if self.failures > AT_ONCE {
            RETRY_INTERVAL
        } else {
            INTERVAL
        }
    }

    fn lost(&mut self, failure: &Failure) {
        self.observer.disconnect();
        self.place_at = Instant::now();
        self.failures = self.failures.saturating_add(1);
        // Forget the last state, so that it is logged again when the server is back.
        self.before = Before::default();
        let advice = failure.advice.as_ref().map(|advice| format!(" ({advice})"));
        self.server
            .show_trouble(&format!("{}{}", failure.what, advice.unwrap_or_default()));
    }

    /// Polls, and retries once over a new session after a fast failure. A closed session (KILL, `wait_timeout`) says
    /// nothing about the server. A poll that timed out is not retried, as it has waited long enough.
    fn look_twice(&mut self) -> Result<(), Failure> {
        let began = Instant::now();
        match self.look() {
            Err(_) if self.failures == 0 && began.elapsed() < SOON => {
                self.observer.disconnect();
                self.look()
            }
            result => result,
        }
    }

    fn look(&mut self) -> Result<(), Failure> {
        if self.failures > 0 {
            self.facts_in = 0;
        }
        // The comparison may end between the answer and its use.
        let was_comparing = self.server.is_comparing();
        let figures = self.observer.figures()?;
        self.look_at_facts()?;
        self.look_at_place()?;
        self.server.show_answer();
        if let Some(locations) = self.server.take_remains() {
            switching::note_remains(self.server, self.observer.server()?, &locations);
            // The search does not report its errors. Disconnect, so that no late answer arrives over this connection.
            self.observer.disconnect();
        }
        // `None`: the first poll, or the first one after a restart.
        if let Some(figures) = figures {
            self.compare(&figures, was_comparing || self.server.is_comparing());
            self.server.show_figures(figures);
        }
        Ok(())
    }

    fn look_at_facts(&mut self) -> Result<(), Failure> {
        if self.facts_in == 0 {
            self.server.show_facts(facts(self.observer.server()?)?);
            self.facts_in = FACTS_EVERY;
        }
        self.facts_in -= 1;
        Ok(())
    }

    fn look_at_place(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        if now < self.place_at {
            return Ok(());
        }
        self.place_at = now + PLACE_INTERVAL;
        let membership = Membership::read(self.observer.server()?)?;
        let status = self.observer.last().map(|sample| &sample.status);
        let warmth = status.map(Warmth::of).unwrap_or_default();
        let before = self.before.role.replace(membership.role);
        if let Some(before) = before.filter(|before| *before != membership.role) {
            self.server.note(
                Level::Warning,
                format!(
                    "it is {}, and was {}",
                    membership.role.describe(),
                    before.describe()
                ),
            );
        }
        let before = self.before.in_step.replace(membership.in_step);
        if before.is_some_and(|before| before != membership.in_step) {
            let (level, said) = match membership.in_step {
                true => (Level::Info, "it is in step with the others again"),
                false => (Level::Warning, "it is not in step with the others"),
            };
            self.server
                .note(level, format!("{said}: {}", membership.describe()));
        }
        self.server.show_place(NodeState { membership, warmth });
        Ok(())
    }

    /// Logs state changes since the previous poll. `was_comparing`: a comparison ran at some time of this poll, and changed the state
    /// itself.
    fn compare(&mut self, figures: &Figures, was_comparing: bool) {
        let state = (figures.state.clone(), figures.state_reason.clone());
        let first = self.before.state.is_none();
        let compared = was_comparing && ["active", "bypass"].contains(&&*state.0);
        if self.before.state.as_ref() != Some(&state) && !compared {
            let level = match (state.0.as_str(), state.1.is_empty()) {
                ("failed", _) => Level::Error,
                ("passive" | "bypass", _) | ("active", false) => Level::Warning,
                _ => Level::Info,
            };
            let said = match state.0.as_str() {
                "bypass" => "the extension is bypassed".to_owned(),
                state => format!("the extension is {state}"),
            };
            let reason = if state.1.is_empty() {
                String::new()
            } else {
                format!(": {}", state.1)
            };
            self.server.note(level, format!("{said}{reason}"));
            self.before.state = Some(state);
        }
        let troubles = figures.errors();
        if troubles > self.before.troubles && !first {
            self.server.note(
                Level::Warning,
                format!(
                    "{} errors of cache disks and {} pages that failed their proof so far; the server got each of \
                     these pages from the data file",
                    figures.device_errors, figures.failed_proofs
                ),
            );
        }
        self.before.troubles = troubles;
        if figures.audit_suspicions > self.before.suspicions && !first {
            self.server.note(
                Level::Warning,
                "a data file was changed, but not by a call of the server; nothing of it is cached for a while, and the server's \
                 error log names it"
                    .to_owned(),
            );
        }
        self.before.suspicions = figures.audit_suspicions;
    }
}

/// Facts about a server besides its figures.
fn facts(server: &mut Server) -> Result<Map<String, Value>, Failure> {
    let variables = server.variables("bpe\\_%")?;
    let status = server.status("bpe\\_%")?;
    let number = |name: &str| {
        variables
            .get(name)
            .and_then(|text| text.parse::<u64>().ok())
    };
    let facts = json!({
        "flavour": server.flavour.to_string(),
        "version": server.version_text,
        "data_directory": server.variable("datadir")?,
        "pool_bytes": server.number("innodb_buffer_pool_size")?,
        "cache_bytes": number("bpe_size").unwrap_or(0),
        "cache_path": variables.get("bpe_path").map_or("", String::as_str),
        "load_mode": status.get("bpe_load_mode"),
        "async_mode": status.get("bpe_async_mode"),
        // Shown until the first figures arrive.
        "state": status.get("bpe_state").map_or("not installed", String::as_str),
    });
    match facts {
        Value::Object(facts) => Ok(facts),
        _ => Ok(Map::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_noticed() {
        assert!(fails(|| panic!("on purpose")));
        assert!(!fails(|| {}));
    }
}
