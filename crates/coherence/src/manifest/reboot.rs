//! What records are worth once the machine was started anew.
//!
//! A file may then have less than it had, if not all of it had been flushed; its times may be older than its contents; and nobody
//! has noted when it was changed. So the reasons to believe it are fewer.

use super::{BEFORE, CLOSED, Doubt, FLUSHED, FREE, LOST, Manifest, OPEN, Record, get, set, word};
use crate::identity::{Clocks, Closed, TICK};
use crate::sync::Ordering;

impl Manifest {
    /// A flush has failed. What the kernel could not write it may have thrown away, and say nothing of it the next time.
    pub fn lose(&self) {
        set(&self.head.lost, 1);
    }

    /// The machine was started anew since these records were made. To be called before they are taken over, and before anything
    /// else says that they are of this start. Whoever dies in between leaves nothing. `device`: the number that the device of the
    /// data directory had, and has now.
    pub fn of_another_boot(&self, device: (u64, u64)) {
        let session = self.session();
        self.abandon();
        let last = get(&self.head.file_time).max(get(&self.head.alive));
        let doubt = if !self.is_followed() {
            Some(Doubt::Unfollowed)
        } else if self.head.lost.load(Ordering::SeqCst) != 0 {
            Some(Doubt::Unflushed)
        } else {
            ((self.memory.now)() < last - TICK).then_some(Doubt::ClockSetBack)
        };
        for record in self.known() {
            record.outlive(device, doubt);
        }
        for word in [&self.head.lost, &self.head.taken_over, &self.head.crashed] {
            set(word, 0);
        }
        set(&self.head.session, session.unwrap_or(0));
    }
}

impl Record {
    /// What it says counts as long as the machine runs.
    pub fn forget_flush(&self) {
        let lost = Doubt::Unflushed
            .number()
            .map_or(FREE, |number| LOST + number);
        match self.state.load(Ordering::SeqCst) {
            FLUSHED => set(&self.state, CLOSED),
            BEFORE => set(&self.state, lost),
            _ => {}
        }
    }

    /// As what it was closed, if it could be changed right afterwards and look the same.
    pub fn unsettled(&self) -> Option<Closed> {
        let is_closed = matches!(self.state.load(Ordering::SeqCst), CLOSED | FLUSHED);
        is_closed
            .then(|| self.closed())
            .filter(|closed| !closed.is_settled())
    }

    /// Now it is still what it was when it was closed.
    pub fn is_still(&self, now: &Clocks) {
        // In this order: whoever dies in between leaves a clock that was set back. What is said is true in any case.
        set(&self.file_time, word(now.file_time));
        set(&self.begun, word(now.since_boot));
    }

    /// The machine was started anew. `doubt`: of every file.
    fn outlive(&self, (then, now): (u64, u64), doubt: Option<Doubt>) {
        let device = self.device.load(Ordering::SeqCst);
        if device == then {
            set(&self.device, now);
        } else if device == now {
            // Of another device: which number that has now is not known.
            return self.free();
        }
        let doubt = match self.state.load(Ordering::SeqCst) {
            FREE | LOST..OPEN => return,
            CLOSED if !left_out!("unflushed") => doubt.or(Some(Doubt::Unflushed)),
            CLOSED | FLUSHED | BEFORE => doubt.or_else(|| doubt_of(&self.closed())),
            _ => Some(Doubt::WasOpen),
        };
        let state = match doubt {
            None => BEFORE,
            Some(doubt) => doubt.number().map_or(FREE, |number| LOST + number),
        };
        set(&self.state, state);
    }
}

/// Why a file that was closed like this is not known again, whatever it looks like.
fn doubt_of(closed: &Closed) -> Option<Doubt> {
    let (modified, changed) = (closed.identity.modified, closed.identity.changed);
    if modified % 1_000_000_000 == 0 && changed % 1_000_000_000 == 0 {
        return Some(Doubt::WholeSeconds);
    }
    (!closed.is_settled()).then_some(Doubt::Unsettled)
}
