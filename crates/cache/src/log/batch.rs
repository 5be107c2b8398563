//! Pages that are being written to a segment, and the updates of their entries.
//!
//! Until the write has succeeded, an entry refers to the frame or to the old place. [`Batch::publish`] then switches it to
//! the new place, under the lock of its instance, if it still refers there. After a failed write, [`Batch::discard`] removes
//! it instead. The frames are released only afterwards, so a page can be read at any time. Call one of the two before
//! dropping a batch.

use crate::common::page::PageId;
use crate::index::directory::{Entry, Kind};
use crate::instance::shared::{Shared, Site};
use crate::instance::staging::Frame;

/// The place that a page's entry refers to until the page is written.
#[derive(Clone, Copy)]
pub(crate) enum Origin {
    /// The writer holds a reference to the frame.
    Staged(Frame),
    /// An older place on the device.
    Moved { location: u32, kind: Kind },
}

impl Origin {
    /// Location and kind in the entry.
    fn entry(self) -> (u32, Kind) {
        match self {
            Origin::Staged(frame) => (frame, Kind::STAGED),
            Origin::Moved { location, kind } => (location, kind),
        }
    }
}

/// A page, and the place it is written to.
pub(crate) struct Pending {
    pub page: PageId,
    pub check: u32,
    pub location: u32,
    pub kind: Kind,
    pub origin: Origin,
}

/// The pages of one write, all to the same segment.
pub(crate) struct Batch {
    pending: Vec<Pending>,
    /// Bytes of their frames.
    held: usize,
}

impl Batch {
    pub fn new(pages: usize) -> Batch {
        Batch {
            pending: Vec::with_capacity(pages),
            held: 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Bytes of the frames that its pages hold.
    pub fn held(&self) -> usize {
        self.held
    }

    pub fn add(&mut self, at: Site<'_>, pending: Pending) {
        debug_assert!(at.device.geometry.holds(pending.location));
        if let Origin::Staged(frame) = pending.origin {
            let length = at.shared.store.staging.length(frame);
            self.held += length;
            at.device.in_hand.add(length as u64);
        }
        self.pending.push(pending);
    }

    /// Call when the pages are on the device, in this segment: switches their entries to it.
    pub fn publish(&mut self, at: Site<'_>, segment: u32) {
        let shared = at.shared;
        let instances = shared.instances.len() as u32;
        let instance = |p: &Pending| p.page.instance(instances);
        for group in self.pending.chunk_by(|a, b| instance(a) == instance(b)) {
            let mut state = shared.instance(group[0].page).lock();
            for p in group {
                debug_assert_eq!(at.device.geometry.segment_of(p.location), segment);
                state.note_record(p.page.file);
                let (old, kind) = p.origin.entry();
                let Some((slot, entry)) = state.still(p.page, old, kind) else {
                    continue;
                };
                if let Origin::Moved { .. } = p.origin {
                    shared.written.reinserted.add(1);
                }
                shared.store.entry_removed(entry);
                let (units, page) = shared.store.units(p.kind);
                at.device.table.born(segment, units, page);
                let Entry { clock, .. } = entry;
                state.directory.replace(
                    slot,
                    Entry {
                        check: p.check,
                        location: p.location,
                        kind: p.kind,
                        clock,
                    },
                );
            }
            drop(state);
            for p in group {
                release_frame(shared, p.origin);
            }
        }
        self.clear(at);
    }

    /// Call when the write failed: removes the pages' entries.
    pub fn discard(&mut self, at: Site<'_>) {
        for p in &self.pending {
            discard(at.shared, p.page, p.origin);
        }
        self.clear(at);
    }

    fn clear(&mut self, at: Site<'_>) {
        self.pending.clear();
        at.device.in_hand.sub(self.held as u64);
        self.held = 0;
    }
}

/// Removes the entry of a page that will not be written.
pub(crate) fn discard(shared: &Shared, page: PageId, origin: Origin) {
    let (location, kind) = origin.entry();
    let mut state = shared.instance(page).lock();
    state.remove_if_same(&shared.store, page, location, kind);
    drop(state);
    release_frame(shared, origin);
}

fn release_frame(shared: &Shared, origin: Origin) {
    if let Origin::Staged(frame) = origin {
        drop(shared.store.staging.collected(frame));
    }
}
