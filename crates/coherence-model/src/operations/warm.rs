//! What another server has cached is loaded: several pages are read at once, without being asked for by InnoDB, which may write them
//! meanwhile.

use bpe::process::CORE;
use coherence::warm::{Hot, RUN_BYTES, RunBuffer};

use crate::coverage::{Reached, reached};
use crate::random::{below, one_in};
use crate::world::world;

/// Pages of a run at most.
const MOST: usize = 16;

/// Loads some pages of a run.
pub fn load() {
    let Some(user) = world().slot().file().enter() else {
        return;
    };
    let file = &user.0;
    let all = file.pages();
    if all == 0 {
        return;
    }
    let known = CORE.files.of_descriptor(file.fd());
    let Some(known) = known.filter(|known| known.page_size() > 0) else {
        return;
    };
    let first = below(all);
    let last = first + (1 + below(MOST)).min(RUN_BYTES / known.page_size() as usize);
    let mut hot = Vec::new();
    for page in first..last {
        if !one_in(3) {
            hot.push(Hot {
                page: page as u32,
                count: 1 + below(4) as u8,
            });
        }
    }
    let Some(mut buffer) = RunBuffer::new() else {
        return;
    };
    if let Some(warmed) = CORE.warm(known, &hot, &mut buffer) {
        if warmed.admitted > 0 {
            reached(Reached::Warmed);
        }
        if warmed.skipped > 0 {
            reached(Reached::WarmedTooLate);
        }
        world().note(file, format_args!("loaded from {first} on: {warmed:?}"));
    }
}
