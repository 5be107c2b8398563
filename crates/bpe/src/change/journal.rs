//! What has been done so far and how to put it back, newest first; and the connection to do that over, which what failed
//! may have taken along.

use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::server::{Lost, Server};

type Undo = Box<dyn FnOnce(&mut Server) -> Result<(), String>>;

struct Entry {
    step: usize,
    undone: String,
    /// What came after it needs it.
    is_needed: bool,
    undo: Undo,
}

/// What became of undoing one thing.
pub struct Undone {
    /// Number of the step that had done it.
    pub step: usize,
    /// What was put back, or what was not and why.
    pub result: Result<String, String>,
}

#[derive(Default)]
pub struct Journal {
    step: usize,
    entries: Vec<Entry>,
}

impl Journal {
    /// What is noted from now on belongs to this step.
    pub fn begin(&mut self, step: usize) {
        self.step = step;
    }

    /// Notes what has been done. `undone` names the result of undoing it.
    pub fn note(
        &mut self,
        undone: impl Into<String>,
        undo: impl FnOnce(&mut Server) -> Result<(), String> + 'static,
    ) {
        self.keep(undone.into(), false, Box::new(undo));
    }

    /// The same of what everything done after it needs: it stays when any of that could not be undone.
    pub fn note_needed(
        &mut self,
        undone: impl Into<String>,
        undo: impl FnOnce(&mut Server) -> Result<(), String> + 'static,
    ) {
        self.keep(undone.into(), true, Box::new(undo));
    }

    fn keep(&mut self, undone: String, is_needed: bool, undo: Undo) {
        self.entries.push(Entry {
            step: self.step,
            undone,
            is_needed,
            undo,
        });
    }

    /// Undoes everything, going on after failures. Returns what became of each. What the rest needs stays also where
    /// `connection` leaves a statement that goes on.
    pub fn roll_back(self, server: &mut Server, connection: &Connection) -> Vec<Undone> {
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

/// Logs in to the server once more.
pub type Reopen<'a> = &'a dyn Fn() -> Result<Server, Failure>;

/// The connection after a failure.
#[derive(Debug, PartialEq, Eq)]
pub enum Connection {
    /// It is the one of before.
    Kept,
    /// It was lost, and another one is there.
    Anew(Lost),
    /// The same, but the server is still at the statement that it was lost with, or cannot be asked for it.
    AnewBeside(Lost),
    /// It is lost, and no other was to be had for this reason.
    Gone(Lost, String),
}

impl Connection {
    /// What is to be said of it.
    pub fn in_words(&self) -> Option<String> {
        let (Self::Anew(lost) | Self::AnewBeside(lost) | Self::Gone(lost, _)) = self else {
            return None;
        };
        let lost = match lost {
            Lost::Unanswered => {
                "the server did not answer in time: its last statement may have taken effect, or still may"
            }
            Lost::Closed => "the connection was lost: the last statement may have taken effect",
        };
        Some(match self {
            Self::Gone(_, why) => format!("{lost}; logging in once more failed: {why}"),
            Self::AnewBeside(_) => format!(
                "{lost}; logged in once more; that statement was told to stop and has not: it may still redo what is \
                 undone now, so check again later"
            ),
            _ => format!("{lost}; logged in once more"),
        })
    }

    /// Whether there is another connection than before.
    pub fn is_another(&self) -> bool {
        matches!(self, Self::Anew(_) | Self::AnewBeside(_))
    }

    /// Whether the server may still be at a statement that does later what is undone now.
    pub fn leaves_a_statement(&self) -> bool {
        matches!(self, Self::AnewBeside(_))
    }
}

/// Sees that there is a connection to undo things over: where it was lost, logs in once more.
pub fn connected(server: &mut Server, reopen: Reopen<'_>) -> Connection {
    if server.lost().is_none() && server.value("SELECT 1").is_ok() {
        return Connection::Kept;
    }
    let lost = server.lost().unwrap_or(Lost::Closed);
    match reopen() {
        Ok(mut again) => {
            // A statement that goes on there would do later what is undone now.
            let has_ended = again.end_statement_of(server);
            *server = again;
            if has_ended {
                Connection::Anew(lost)
            } else {
                Connection::AnewBeside(lost)
            }
        }
        Err(failure) => Connection::Gone(lost, failure.what),
    }
}

/// A moment of a server's life.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    /// Seconds it had been up; None where it did not tell.
    uptime: Option<u64>,
    /// After it had told them.
    at: Instant,
}

impl Moment {
    pub fn of(server: &mut Server) -> Self {
        Self {
            uptime: server.number_of_status("uptime").ok().flatten(),
            at: Instant::now(),
        }
    }

    /// Whether the server has started since then. In its first seconds that may not show: then it has not.
    pub fn has_started_since(&self, server: &mut Server) -> bool {
        let elapsed = self.at.elapsed();
        let now = server.number_of_status("uptime").ok().flatten();
        matches!((self.uptime, now), (Some(before), Some(now)) if has_started(before, now, elapsed))
    }
}

/// Whether a server with these uptimes, in whole seconds and at least so long apart, was started between them: one that
/// was not is older by the time that has passed. A clock that was put back does not make a server young.
fn has_started(before: u64, now: u64, elapsed: Duration) -> bool {
    now < before + elapsed.as_secs() && now <= elapsed.as_secs() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_young_server_has_not_started_again() {
        let started = |before, now, millis| has_started(before, now, Duration::from_millis(millis));
        // The same one, which was started just before, or long ago.
        for (before, now, millis) in [
            (0, 0, 0),
            (0, 0, 900),
            (0, 1, 1100),
            (0, 2, 1100),
            (5, 8, 3900),
        ] {
            assert!(!started(before, now, millis), "{before} {now} {millis}");
        }
        // Another one.
        for (before, now, millis) in [(1, 0, 300), (0, 0, 1100), (5, 1, 1200), (90_000, 2, 3000)] {
            assert!(started(before, now, millis), "{before} {now} {millis}");
        }
        // A clock that was put back by a minute.
        assert!(!started(90_000, 89_941, 1000));
    }
}
