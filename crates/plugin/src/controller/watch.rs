//! What the controller's thread watches: the usual page size, and whether the server can still be followed.

use std::time::{Duration, Instant};

use super::building::usual_page;
use crate::audit::Audit;
use crate::linux::Linux;
use crate::process::{CORE, KNOWN};
use crate::unseen;

/// Between two looks at the page size in which most is read.
const RESIZE_PAUSE: Duration = Duration::from_secs(30);

/// What is remembered between two looks.
pub struct Watch {
    audit: Audit<Linux>,
    unseen: unseen::Watch,
    pages_looked_at: Option<Instant>,
}

impl Default for Watch {
    fn default() -> Watch {
        Watch {
            audit: Audit::new(&CORE, &KNOWN.suspensions),
            unseen: unseen::Watch::default(),
            pages_looked_at: None,
        }
    }
}

impl Watch {
    /// The usual page size, if it is smaller than the one the extension is laid out for. Bytes.
    pub fn smaller_page(&mut self, nominal: u32) -> Option<u32> {
        if self
            .pages_looked_at
            .is_some_and(|when| when.elapsed() < RESIZE_PAUSE)
        {
            return None;
        }
        self.pages_looked_at = Some(Instant::now());
        Some(usual_page(nominal)).filter(|page| *page < nominal)
    }

    /// Whether somebody else has written to the data files: while which extension served, and what was seen.
    pub fn foreign(&mut self) -> Option<(u32, String)> {
        if coherence::left_out!("audit") {
            return None;
        }
        let epoch = CORE.switch().active().as_ref().map(|active| active.epoch);
        let Some(epoch) = epoch.filter(|_| self.audit.belongs_to(epoch)) else {
            self.audit.begin(epoch);
            return None;
        };
        let why = self.audit.look()?;
        // Switched off meanwhile, the server changes files, and nobody follows that.
        CORE.switch().still_serves(epoch).then_some((epoch, why))
    }

    /// Why the server cannot be followed any more, if it uses asynchronous I/O that passes the hooks by.
    pub fn unseen(&mut self) -> Option<String> {
        if CORE.switch().active().is_none() {
            return None;
        }
        Some(self.unseen.look()?.to_string())
    }
}
