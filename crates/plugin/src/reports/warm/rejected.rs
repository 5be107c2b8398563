//! Pages of files that were not proven after a restart: lists them, and drops their entries, which no read can reach.

use std::collections::HashMap;

use cache::{EXTENT_PAGES, EXTENT_SHIFT};
use coherence::outcomes::RejectedFile;

use super::list::List;
use crate::platform::CORE;
use crate::reports::heat::ListNames;

/// Adds the cached pages of these files to a list, and drops their entries. Files that are never listed add nothing. Pages
/// for which the list has no room are skipped.
pub fn list(files: &[RejectedFile], list: &mut List) {
    let names = ListNames::below_here();
    let all = CORE.files.all().into_iter();
    let known: HashMap<_, _> = all.map(|file| (file.owner, file)).collect();
    for rejected in files {
        let pages = drain(rejected);
        let name = known
            .get(&rejected.owner)
            .filter(|_| rejected.is_listed)
            .and_then(|file| names.of(file));
        if let Some(name) = name {
            let _ = list.add(&name, rejected.page_size, &pages);
        }
    }
}

/// The cached pages and their heat.
fn drain(rejected: &RejectedFile) -> Vec<(u32, u8)> {
    let mut pages = Vec::new();
    for extent in 0..rejected.pages.div_ceil(1 << EXTENT_SHIFT) {
        // Taken anew for each extent, so that switching off does not wait for the whole file.
        let guard = CORE.switch().active();
        let Some(active) = &*guard else { break };
        let heat = active.extension.drain(rejected.id, extent);
        let first = extent << EXTENT_SHIFT;
        let cached = (0..EXTENT_PAGES).filter(|n| heat.cached >> n & 1 != 0);
        pages.extend(cached.map(|n| (first + n as u32, heat.of[n])));
    }
    pages
}
