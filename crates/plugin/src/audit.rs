//! Looks whether somebody else writes to the data files.
//!
//! Everything rests on our seeing every change of a data file. A write that we do not see - by another process, or by a call
//! of the server that we do not know - shows in the file's size and time of change. A file that nothing was seen to change
//! for a while is remembered as it is then; if it looks otherwise later, and still nothing was seen to change it, the
//! extension is not to be trusted any more: it drops everything, and stays off until an administrator asks for it again.
//!
//! Only what the kernel says of the file now and then is compared, never clocks, so that a file server with a clock of its
//! own does no harm. Writes that are under way are changes too ([`DataFile::changes`] counts beginnings and ends).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::files::{self, DataFile, Looks};

/// Between two looks at the files.
const EVERY: Duration = if cfg!(feature = "canary") {
    Duration::from_secs(1)
} else {
    Duration::from_secs(10)
};
/// How long nothing may have changed before a file's looks are remembered. A file server may tell late what a write has
/// changed.
const QUIET: Duration = if cfg!(feature = "canary") {
    Duration::from_secs(4)
} else {
    Duration::from_secs(90)
};
/// Files that are looked at in one go.
const AT_A_TIME: usize = 256;

/// What is known of a file.
struct Known {
    /// Of `changes`, and since when.
    changes: u64,
    since: Instant,
    /// Looks of the file once it was quiet.
    looks: Option<Looks>,
}

/// Remembers the files between two looks.
#[derive(Default)]
pub struct Audit {
    known: HashMap<u32, Known>,
    looked: Option<Instant>,
    /// Of the active extension.
    epoch: Option<u32>,
    /// Number of the file to go on with.
    next: u32,
}

impl Audit {
    /// To be called now and then while the extension is active. What was changed behind its back, if anything was.
    pub fn look(&mut self) -> Option<String> {
        if self.looked.is_some_and(|when| when.elapsed() < EVERY) {
            return None;
        }
        self.looked = Some(Instant::now());
        let mut all = files::all();
        all.sort_unstable_by_key(|file| file.owner);
        self.known
            .retain(|owner, _| all.binary_search_by_key(owner, |file| file.owner).is_ok());
        let from = all.partition_point(|file| file.owner < self.next);
        let part: Vec<_> = all[from..].iter().take(AT_A_TIME).collect();
        self.next = match part.last() {
            Some(last) if part.len() == AT_A_TIME => last.owner + 1,
            _ => 0,
        };
        part.into_iter().find_map(|file| self.look_at(file))
    }

    /// Whether what is remembered is of the time of this extension.
    pub fn belongs_to(&self, epoch: Option<u32>) -> bool {
        self.epoch == epoch
    }

    /// Another extension is active: nothing is known of the time before.
    pub fn begin(&mut self, epoch: Option<u32>) {
        *self = Audit {
            epoch,
            ..Audit::default()
        };
    }

    fn look_at(&mut self, file: &'static DataFile) -> Option<String> {
        let before = file.changes();
        let looks = file.looks();
        let now = Instant::now();
        let known = self.known.entry(file.owner).or_insert(Known {
            changes: before,
            since: now,
            looks: None,
        });
        let Some(looks) = looks.filter(|_| file.changes() == before && known.changes == before)
        else {
            *known = Known {
                changes: file.changes(),
                since: now,
                looks: None,
            };
            return None;
        };
        match known.looks {
            Some(remembered) if remembered != looks => Some(format!(
                "the data file '{}' was changed ({}), but not by a call of the server that the extension has seen",
                file.name(),
                remembered.difference(&looks)
            )),
            Some(_) => None,
            None => {
                if now.duration_since(known.since) >= QUIET {
                    known.looks = Some(looks);
                }
                None
            }
        }
    }
}
