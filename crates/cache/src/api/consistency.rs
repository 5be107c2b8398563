//! Consistency check: recomputes every count of the extension, and follows every reference between its parts.
//!
//! For tests, the model and fuzzers; never called in a hook. The engine must be idle: no other thread calls the
//! extension, and writer threads have no work. Incomplete work is allowed for (writes in flight, pages taken by a
//! writer). Locks: those of the instances, one at a time, and separately the lock of staging's blocks; then that of the
//! writers without threads.

use std::collections::HashMap;

use crate::api::extension::Extension;
use crate::common::violations::Violations;
use crate::device::segment::Live;
use crate::index::directory::Kind;
use crate::instance::shared::Shared;

/// Totals of a consistent extension.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Figures {
    /// Pages with an entry.
    pub pages: u64,
    /// Of these, in staging.
    pub staged: u64,
    /// Frames of staged pages, and of pages being written whose entries were removed.
    pub frames: u64,
    /// Segments that are not empty.
    pub segments: u64,
}

impl Extension {
    /// Checks all invariants. See the module's documentation.
    ///
    /// # Errors
    /// The list of inconsistencies.
    pub fn validate(&self) -> Result<Figures, Vec<String>> {
        let mut violations = Violations::default();
        let mut seen = Seen::default();
        self.look_at_instances(&mut violations, &mut seen);
        let frames = self.shared.store.staging.validate(&mut violations);
        violations.expect(frames >= seen.figures.staged, || {
            format!("{frames} frames for {} staged pages", seen.figures.staged)
        });
        for (at, device) in self.shared.store.devices.iter().enumerate() {
            let live = |segment| *seen.live.get(&(at, segment)).unwrap_or(&Live::default());
            device.table.validate(live, &mut violations);
        }
        let held = self.look_at_writers(&seen, &mut violations);
        if held == Some(0) {
            violations.equal(frames, seen.figures.staged, "frames of staged pages");
        }
        let figures = Figures {
            frames,
            segments: seen.live.len() as u64,
            ..seen.figures
        };
        if violations.0.is_empty() {
            Ok(figures)
        } else {
            Err(violations.0)
        }
    }

    fn look_at_instances(&self, violations: &mut Violations, seen: &mut Seen) {
        let shared = &*self.shared;
        for (at, instance) in shared.instances.iter().enumerate() {
            let state = instance.0.lock();
            state.directory.validate(violations);
            state.validate_files(violations);
            let mut staged = 0;
            state.directory.for_each(|slot, entry| {
                seen.figures.pages += 1;
                if entry.kind != Kind::STAGED {
                    return seen.note(shared, entry.location, entry.kind, violations);
                }
                staged += 1;
                let frame = entry.location;
                if !shared.store.staging.is_in_use(frame) {
                    return violations.expect(false, || format!("entry of free frame {frame}"));
                }
                let page = shared.store.staging.page(frame);
                violations.equal(
                    page.instance(shared.instances.len() as u32),
                    at,
                    "instance of a staged page",
                );
                violations.expect(
                    state.find(&shared.store, page).map(|(s, _)| s) == Some(slot),
                    || format!("{page:?} is not found where its entry is"),
                );
                let highest = state.highest_page(page.file);
                violations.expect(highest.is_none_or(|highest| highest >= page.page), || {
                    format!("{page:?} is above the highest page, {highest:?}")
                });
            });
            seen.figures.staged += staged;
            let listed = state.validate_staged(&shared.store, violations);
            violations.expect(listed <= staged, || {
                format!("instance {at}: {listed} pages listed, {staged} staged")
            });
            // Before the lock is released, which publishes the removals.
            violations.equal(instance.0.removals(), state.directory.gone(), "removals");
        }
    }

    /// Bytes of frames that writers hold; `None` if writers have threads, whose state is not accessible.
    fn look_at_writers(&self, seen: &Seen, violations: &mut Violations) -> Option<usize> {
        let writers = self.inline.lock();
        let mut held = 0;
        for writer in writers.iter() {
            let at = writer.device;
            let device = &self.shared.store.devices[at];
            let places = seen.places.iter().filter(|place| place.0 == at);
            let places: Vec<(u32, u32)> = places.map(|&(_, s, unit)| (s, unit)).collect();
            writer.log.validate(device, &places, violations);
            held += writer.held();
        }
        (!writers.is_empty()).then_some(held)
    }
}

/// Facts collected from the entries.
#[derive(Default)]
struct Seen {
    figures: Figures,
    /// By device and segment.
    live: HashMap<(usize, u32), Live>,
    /// Device, segment, and unit within it of each page.
    places: Vec<(usize, u32, u32)>,
}

impl Seen {
    fn note(&mut self, shared: &Shared, location: u32, kind: Kind, violations: &mut Violations) {
        let mut holds = (0..shared.store.devices.len())
            .filter(|&at| shared.store.devices[at].geometry.holds(location));
        let (Some(at), None) = (holds.next(), holds.next()) else {
            return violations.expect(false, || format!("location {location} is on no device"));
        };
        let geometry = &shared.store.devices[at].geometry;
        let segment = geometry.segment_of(location);
        let unit = location - geometry.location(segment, 0);
        let (units, page_units) = shared.store.units(kind);
        let live = self.live.entry((at, segment)).or_default();
        live.entries += 1;
        live.units += u64::from(units);
        live.page_units += u64::from(page_units);
        self.places.push((at, segment, unit));
    }
}
