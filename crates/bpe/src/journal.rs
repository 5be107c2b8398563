//! What has been done so far and how to put it back, newest first; and the connection to do that over, which what failed
//! may have taken along.

use std::time::Instant;

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

    /// Undoes everything, going on after failures. Returns what became of each.
    pub fn roll_back(self, server: &mut Server) -> Vec<Undone> {
        let mut all = true;
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
    /// It is lost, and no other was to be had for this reason.
    Gone(Lost, String),
}

impl Connection {
    /// What is to be said of it.
    pub fn in_words(&self) -> Option<String> {
        let (Self::Anew(lost) | Self::Gone(lost, _)) = self else {
            return None;
        };
        let lost = match lost {
            Lost::Unanswered => {
                "the server gave no answer in time: what it was asked for last may have taken effect, or still will"
            }
            Lost::Closed => {
                "the connection was lost: what the server was asked for last may have taken effect"
            }
        };
        Some(match self {
            Self::Gone(_, why) => format!("{lost}; logging in once more failed: {why}"),
            _ => format!("{lost}; logged in once more"),
        })
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
            again.end_statement_of(server);
            *server = again;
            Connection::Anew(lost)
        }
        Err(failure) => Connection::Gone(lost, failure.what),
    }
}

/// Whether the server has started since then.
pub fn has_started_since(server: &mut Server, begin: Instant) -> bool {
    let uptime = server.number_of_status("uptime").ok().flatten();
    uptime.is_some_and(|seconds| seconds <= begin.elapsed().as_secs())
}
