//! Pages of files that were not proven after a restart: lists them, and drops their entries, which are out of reach and still take room.

use std::collections::HashMap;

use coherence::recovery::RejectedFile;
use extension::{EXTENT_PAGES, EXTENT_SHIFT};
use interface::heat::{GRANULE_PAGES, LEVELS, classes};

use super::list::List;
use crate::heat::Names;
use crate::process::CORE;

/// A page number and its heat.
type Hot = (u32, u8);

/// Adds the pages that were cached of these files to a list, and drops their entries. Returns the number of pages. Nothing is added where
/// the list has no room, or of files that are never listed.
pub fn list(files: &[RejectedFile], list: &mut List) -> u64 {
    let drained: Vec<(&RejectedFile, Vec<Hot>)> =
        files.iter().map(|file| (file, drain(file))).collect();
    let classes = classes(
        drained
            .iter()
            .flat_map(|(_, pages)| pages)
            .map(|&(_, heat)| heat),
    );
    let names = Names::below_here();
    let known: HashMap<_, _> = CORE
        .files
        .all()
        .into_iter()
        .map(|file| (file.owner, file))
        .collect();
    let mut listed = 0;
    for (rejected, pages) in drained {
        let name = known
            .get(&rejected.owner)
            .filter(|_| rejected.is_listed)
            .and_then(|file| names.of(file));
        let Some(name) = name else { continue };
        for granule in pages.chunk_by(|a, b| a.0 / GRANULE_PAGES == b.0 / GRANULE_PAGES) {
            let granule: Vec<Hot> = granule
                .iter()
                .map(|&(page, heat)| (page, classes[usize::from(heat) % LEVELS]))
                .collect();
            if list.add(&name, rejected.page_size, &granule).is_ok() {
                listed += granule.len() as u64;
            }
        }
    }
    listed
}

fn drain(rejected: &RejectedFile) -> Vec<Hot> {
    let mut pages = Vec::new();
    for extent in 0..rejected.pages.div_ceil(1 << EXTENT_SHIFT) {
        // Taken anew each time, so that switching off waits for none of this.
        let guard = CORE.switch().active();
        let Some(active) = &*guard else { break };
        let heat = active.extension.drain(rejected.id, extent);
        let first = extent << EXTENT_SHIFT;
        let cached = (0..EXTENT_PAGES).filter(|n| heat.cached >> n & 1 != 0);
        pages.extend(cached.map(|n| (first + n as u32, heat.of[n])));
    }
    pages
}
