//! Loads pages that another server has cached: reads several at once, without a request of InnoDB, which may write them
//! concurrently.

#[cfg(debug_assertions)]
use std::cell::RefCell;
use std::sync::Arc;

use bpe_plugin::platform::CORE;
use coherence::warm::{Hot, RUN_BYTES, RunBuffer};

#[cfg(debug_assertions)]
use super::pages::write_pages;
use crate::coverage::{Reached, reached};
#[cfg(debug_assertions)]
use crate::random::nested;
use crate::random::{below, low, one_in};
use crate::world::{File, world};

#[cfg(debug_assertions)]
thread_local! {
    /// The run that this thread has read and not inserted yet: its file and pages.
    static READ: RefCell<Option<(Arc<File>, usize, usize)>> = const { RefCell::new(None) };
}

/// Maximum number of pages in a run.
const MOST: usize = 16;

/// Loads some pages of a run.
pub fn load() {
    let Some(user) = world().slot().file().enter() else {
        return;
    };
    let file: &Arc<File> = &user.0;
    let all = file.pages();
    if all == 0 {
        return;
    }
    let known = CORE.files.of_descriptor(file.fd());
    let Some(known) = known.filter(|known| known.page_size() > 0) else {
        return;
    };
    let first = low(all);
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
    #[cfg(debug_assertions)]
    READ.set(Some((Arc::clone(file), first, last)));
    let warmed = CORE.warm(known, &hot, &mut buffer);
    #[cfg(debug_assertions)]
    READ.set(None);
    if let Some(warmed) = warmed {
        if warmed.admitted > 0 {
            reached(Reached::Warmed);
        }
        if warmed.skipped > 0 {
            reached(Reached::WarmedTooLate);
        }
        world().note(file, format_args!("loaded from {first} on: {warmed:?}"));
    }
}

/// Writes two pages of the run before it is inserted. A write of a single page would insert that page.
#[cfg(debug_assertions)]
pub fn write_what_was_read() {
    let Some((file, first, last)) = READ.take() else {
        return;
    };
    let page = first + below(last - first);
    let Some(user) = file.enter() else {
        return;
    };
    if page + 2 > user.0.pages() {
        return;
    }
    if let Some(pages) = user.0.lock(page, 2) {
        if page + 2 <= user.0.pages() {
            nested(|| write_pages(&user.0, pages.offset(), pages.bytes()));
        }
    }
}
