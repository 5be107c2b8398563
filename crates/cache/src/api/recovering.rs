//! Recovers persisted contents of a previous process: entries in the arena, and the pages on devices to which they
//! point.
//!
//! Runs while the extension is opened, before other threads see it. All counts are computed anew. An entry is kept if
//! its location is on a device that was opened with its contents. A read verifies that the bytes belong to the page, as
//! always. The engine cannot know whether the page still equals the data file; the caller decides this, and names the
//! files that may be served ([`crate::Extension::trust_file`]).

use std::time::Instant;

use crate::common::canary::{Rule, is_disabled};
use crate::common::page::UNIT;
use crate::index::directory::{Entry, Kind};
use crate::instance::arena::RecoveredEntries;
use crate::instance::shared::Shared;

/// `kept`: which devices still have their contents.
pub(crate) fn attach(shared: &Shared, kept: &[bool]) -> RecoveredEntries {
    let begin = Instant::now();
    let mut recovered = RecoveredEntries {
        any: true,
        ..RecoveredEntries::default()
    };
    for instance in &shared.instances {
        let directory = &mut instance.0.lock().directory;
        let (pages, dropped) = directory.attach(|entry| attach_entry(shared, kept, entry));
        recovered.pages += pages;
        recovered.dropped += dropped;
    }
    for device in &shared.store.devices {
        // A footer that names such a segment is outdated, whatever is written to it now.
        (0..device.geometry.segments)
            .filter(|&segment| device.table.live(segment) == 0 && !is_disabled(Rule::Footers))
            .for_each(|segment| device.table.freed(segment));
    }
    recovered.took = begin.elapsed();
    recovered
}

/// Whether the entry is kept. If so, counts it.
fn attach_entry(shared: &Shared, kept: &[bool], entry: Entry) -> bool {
    let Some(kind) = Kind::from_byte(entry.kind.to_byte()) else {
        return is_disabled(Rule::Staged);
    };
    let mut devices = shared.store.devices.iter().zip(kept);
    let holder = devices.find(|(device, _)| device.geometry.holds(entry.location));
    let Some((device, true)) = holder else {
        return false;
    };
    let geometry = &device.geometry;
    let segment = geometry.segment_of(entry.location);
    let within = u64::from(entry.location - geometry.location(segment, 0));
    let (units, page) = shared.store.units(kind);
    if (within + u64::from(units)) * UNIT as u64 > geometry.segment_bytes {
        return false;
    }
    if !is_disabled(Rule::Counts) {
        device.table.born(segment, units, page);
    }
    true
}
