//! Takes over what another process has left: entries in the arena, and pages on the devices to which they point.
//!
//! It runs while the extension is opened, before anybody else knows of it. All that can be counted is counted anew. An entry
//! is kept if its place is on a device that was opened with its contents. What it says of its page is proven when that is read,
//! as always; whether the page is still what the data file has is for others to know, who name the files that may be
//! asked for ([`crate::Extension::inherit_file`]).

use std::time::Instant;

use crate::arena::Inherited;
use crate::directory::{Entry, Kind};
use crate::left_out::{Rule, leaves_out};
use crate::shared::Shared;
use crate::staging::UNIT;

/// `kept`: which devices have their contents.
pub(crate) fn adopt(shared: &Shared, kept: &[bool]) -> Inherited {
    let begin = Instant::now();
    let mut inherited = Inherited {
        any: true,
        ..Inherited::default()
    };
    for instance in &shared.instances {
        let directory = &mut instance.0.lock().directory;
        let (pages, dropped) = directory.adopt(|entry| adopt_entry(shared, kept, entry));
        inherited.pages += pages;
        inherited.dropped += dropped;
    }
    for device in &shared.store.devices {
        // A footer that names such a segment is of before, whatever is written to it now.
        (0..device.geometry.segments)
            .filter(|&segment| device.table.live(segment) == 0 && !leaves_out(Rule::Footers))
            .for_each(|segment| device.table.freed(segment));
    }
    inherited.took = begin.elapsed();
    inherited
}

/// Whether the entry stays. Then it is counted.
fn adopt_entry(shared: &Shared, kept: &[bool], entry: Entry) -> bool {
    let Some(kind) = Kind::from_byte(entry.kind.to_byte()) else {
        return leaves_out(Rule::Staged);
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
    if !leaves_out(Rule::Counts) {
        device.table.born(segment, units, page);
    }
    true
}
