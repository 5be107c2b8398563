//! Takes over what another process has left: entries in the arena, and pages on the devices to which they point.
//!
//! It runs while the extension is opened, before anybody else knows of it. All that can be counted is counted anew. An entry
//! is kept if its place is on a device that was opened with its contents. What it says of its page is proven when that is read,
//! as always; whether the page is still what the data file has is for others to know, who name the files that may be
//! asked for ([`crate::Extension::inherit_file`]).

use std::time::{Duration, Instant};

use crate::directory::{Entry, Kind};
use crate::shared::Shared;
use crate::staging::UNIT;

/// What was taken over from another process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inherited {
    pub pages: u64,
    /// Entries that were left, and could not be taken over: of staged pages, or of a device without its contents.
    pub dropped: u64,
    /// How long that took.
    pub took: Duration,
    /// Why nothing will outlive this process, though it was wanted.
    pub refused: Option<String>,
}

/// A rule that tests leave out, to show that they would notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Rule {
    /// Entries of staged pages go.
    Staged,
    /// What was written in a segment is of before once it is empty.
    Footers,
    /// Segments' sequence numbers go on.
    Sequences,
    /// Entries are counted in their segments.
    Counts,
    /// Pages of inherited files are looked for when they are written.
    Files,
}

#[cfg(not(test))]
#[inline(always)]
pub(crate) fn leaves_out(_: Rule) -> bool {
    false
}

#[cfg(test)]
pub(crate) use left_out::leaves_out;

#[cfg(test)]
pub(crate) mod left_out {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    pub(crate) use super::Rule;

    thread_local! {
        static LEFT_OUT: Cell<Option<Rule>> = const { Cell::new(None) };
    }

    pub fn leaves_out(rule: Rule) -> bool {
        LEFT_OUT.get() == Some(rule)
    }

    pub fn leaving_out(rule: Rule, act: impl FnOnce()) -> std::thread::Result<()> {
        LEFT_OUT.set(Some(rule));
        let result = catch_unwind(AssertUnwindSafe(act));
        LEFT_OUT.set(None);
        result
    }
}

/// `kept`: which devices have their contents.
pub(crate) fn adopt(shared: &Shared, kept: &[bool]) -> Inherited {
    let begin = Instant::now();
    let mut inherited = Inherited::default();
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
