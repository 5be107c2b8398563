//! Undo log: completed actions with their inverse, undone newest first, and the connection for that. The failure
//! may have broken the old connection.

use std::time::{Duration, Instant};

use crate::connect::server::{Lost, Server};
use crate::support::failure::Failure;

pub type Undo = Box<dyn FnOnce(&mut Server) -> Result<(), String>>;

struct Entry {
    step: usize,
    undone: String,
    /// Later entries depend on it.
    is_needed: bool,
    undo: Undo,
}

/// Result of undoing one action.
pub struct Undone {
    /// Number of the step that performed the action.
    pub step: usize,
    /// The restored state, or what could not be restored and why.
    pub result: Result<String, String>,
}

#[derive(Default)]
pub struct UndoLog {
    step: usize,
    entries: Vec<Entry>,
}

impl UndoLog {
    /// Assigns later entries to this step.
    pub fn begin(&mut self, step: usize) {
        self.step = step;
    }

    /// Records an action. `undone` describes the result of undoing it. If `is_needed`, all later actions depend on it, and it
    /// is not undone if undoing any of those failed.
    pub fn push(&mut self, undone: String, is_needed: bool, undo: Undo) {
        self.entries.push(Entry {
            step: self.step,
            undone,
            is_needed,
            undo,
        });
    }

    /// Undoes all actions, continuing after failures, and returns each result. Actions that others depend on also stay
    /// if `connection` leaves a statement running.
    pub fn roll_back(self, server: &mut Server, connection: &Reconnection) -> Vec<Undone> {
        let mut all = !connection.leaves_a_statement();
        let entries = self.entries.into_iter().rev();
        entries
            .map(|entry| {
                let Entry {
                    step,
                    undone,
                    is_needed,
                    undo,
                } = entry;
                let result = if is_needed && !all {
                    Err("what remains needs it".to_owned())
                } else {
                    undo(server)
                };
                all &= result.is_ok();
                Undone {
                    step,
                    result: match result {
                        Ok(()) => Ok(undone),
                        Err(why) => Err(format!("NOT {undone}: {why}")),
                    },
                }
            })
            .collect()
    }
}

/// Logs in to the server again.
pub type Reopen<'a> = &'a dyn Fn() -> Result<Server, Failure>;

/// State of the connection after a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Reconnection {
    /// The original connection still works.
    Unchanged,
    /// It was lost and replaced by a new one.
    Replaced(Lost),
    /// Replaced, but the server still executes the lost connection's statement, or does not answer whether it does.
    ReplacedWhileBusy(Lost),
    /// It was lost, and logging in again failed for this reason.
    Failed(Lost, String),
}

impl Reconnection {
    /// The message about it; `None` if nothing was lost.
    pub fn message(&self) -> Option<String> {
        let (Self::Replaced(lost) | Self::ReplacedWhileBusy(lost) | Self::Failed(lost, _)) = self
        else {
            return None;
        };
        let lost = match lost {
            Lost::Unanswered => {
                "the server did not answer in time: its last statement may have taken effect, or still may"
            }
            Lost::Closed => "the connection was lost: the last statement may have taken effect",
        };
        Some(match self {
            Self::Failed(_, why) => format!("{lost}; logging in once more failed: {why}"),
            Self::ReplacedWhileBusy(_) => format!(
                "{lost}; logged in once more; that statement was told to stop and has not: it may still redo what is \
                 undone now, so check again later"
            ),
            _ => format!("{lost}; logged in once more"),
        })
    }

    /// Whether a new connection replaced the lost one.
    pub fn is_another(&self) -> bool {
        matches!(self, Self::Replaced(_) | Self::ReplacedWhileBusy(_))
    }

    /// Whether the server may still execute a statement that would redo what the rollback undoes.
    pub fn leaves_a_statement(&self) -> bool {
        matches!(self, Self::ReplacedWhileBusy(_))
    }
}

/// Ensures a connection for the rollback: logs in again if the original is lost.
pub fn connected(server: &mut Server, reopen: Reopen<'_>) -> Reconnection {
    if server.lost().is_none() && server.value("SELECT 1").is_ok() {
        return Reconnection::Unchanged;
    }
    let lost = server.lost().unwrap_or(Lost::Closed);
    match reopen() {
        Ok(mut again) => {
            // A statement that still runs would redo later what the rollback undoes now.
            let has_ended = again.end_statement_of(server);
            *server = again;
            if has_ended {
                Reconnection::Replaced(lost)
            } else {
                Reconnection::ReplacedWhileBusy(lost)
            }
        }
        Err(failure) => Reconnection::Failed(lost, failure.what),
    }
}

/// A point in a server's uptime.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Uptime in seconds; `None` if the server did not report it.
    uptime: Option<u64>,
    /// When the server had reported it.
    at: Instant,
}

impl Moment {
    pub fn of(server: &mut Server) -> Self {
        Self {
            uptime: server.number_of_status("uptime").ok().flatten(),
            at: Instant::now(),
        }
    }

    /// Whether the server has started since then. A restart within its first seconds may go undetected.
    pub fn has_started_since(&self, server: &mut Server) -> bool {
        let elapsed = self.at.elapsed();
        let now = server.number_of_status("uptime").ok().flatten();
        matches!((self.uptime, now), (Some(before), Some(now)) if has_started(before, now, elapsed))
    }
}

/// Whether a restart happened between two uptimes. Both are in whole seconds and taken at least `elapsed` apart. A
/// server that was not restarted is older by the elapsed time. A clock that was set back does not make a server young.
fn has_started(before: u64, now: u64, elapsed: Duration) -> bool {
    now < before.saturating_add(elapsed.as_secs()) && now <= elapsed.as_secs() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn young_server_was_not_restarted() {
        let started = |before, now, millis| has_started(before, now, Duration::from_millis(millis));
        // The same server process, started just before or long ago.
        for (before, now, millis) in [
            (0, 0, 0),
            (0, 0, 900),
            (0, 1, 1100),
            (0, 2, 1100),
            (5, 8, 3900),
        ] {
            assert!(!started(before, now, millis), "{before} {now} {millis}");
        }
        // A restarted server.
        for (before, now, millis) in [(1, 0, 300), (0, 0, 1100), (5, 1, 1200), (90_000, 2, 3000)] {
            assert!(started(before, now, millis), "{before} {now} {millis}");
        }
        assert!(!started(u64::MAX, u64::MAX, 1000));
        // The clock was set back by a minute.
        assert!(!started(90_000, 89_941, 1000));
    }
}
