//! Reading: finds a page, reads it, and verifies it.

use std::time::Instant;

use crate::api::extension::{CopyOutcome, Extension, MissReason, ReadOutcome};
use crate::common::group::Group;
use crate::common::page::{PageId, check, identity_of, is_page_length};
use crate::common::statistics::Counter;
use crate::device::segment::format::{PACKED_HEADER, packed_page_length, unpack};
use crate::device::{Device, Fault};
use crate::index::directory::Kind;
use crate::instance::{Counters, Found, Instance, Spot};

/// Bytes read for an entry, before their verification.
#[derive(Clone, Copy)]
pub(crate) enum Content<'a> {
    /// A page of the requested length.
    Page(&'a [u8]),
    /// The entry led to an intact page of another length: this one. An entry does not name its page, and files differ in the
    /// length of their pages: those of tables with compressed pages are shorter. For a damaged page this is a random one.
    OtherLength(PageId),
    /// Decompression failed at every length.
    Damaged,
}

impl Counters {
    /// The counter of misses for this reason.
    pub fn of(&self, reason: MissReason) -> &Counter {
        match reason {
            MissReason::Absent => &self.absent,
            MissReason::DeviceFailed => &self.device_failed,
            MissReason::DeviceError => &self.device_error,
            MissReason::Reclaimed => &self.reclaimed,
            MissReason::Invalidated => &self.invalidated_during,
            MissReason::FailedProof => &self.failed_proof,
            MissReason::Collision => &self.collision,
            MissReason::Unsuitable => &self.unsuitable,
        }
    }
}

impl Extension {
    /// Reads the page of this group into `buffer`, whose length is the physical page size. Counts the access.
    pub fn read(&self, page: PageId, group: Group, buffer: &mut [u8]) -> ReadOutcome {
        let started = Instant::now();
        let shared = &*self.shared;
        let instance = shared.instance(page);
        let counters = &instance.counters;
        if !is_page_length(buffer.len()) {
            return miss(&counters.unsuitable, MissReason::Unsuitable);
        }
        let mut state = instance.lock();
        let found_at = state.slot_of(&shared.store, page);
        let known = state.record_access(page, group, found_at, &shared.store);
        let found = state.look_up(&shared.store, instance, page, group, found_at);
        drop(state);
        let outcome = match found {
            Found::Absent => {
                counters.returned.add(u64::from(known));
                Err(MissReason::Absent)
            }
            Found::DeviceFailed => Err(MissReason::DeviceFailed),
            Found::Staged(pinned, removals) => {
                let bytes = pinned.bytes();
                if bytes.len() == buffer.len() {
                    buffer.copy_from_slice(bytes);
                    let expected = shared.store.staging.check(pinned.frame());
                    self.verify_staged(instance, page, pinned.frame(), expected, removals, buffer)
                        .inspect(|()| counters.hits_staged.add(1))
                } else {
                    Err(MissReason::Unsuitable)
                }
            }
            Found::OnDevice(spot) => self
                .read_device(spot, buffer)
                .and_then(|content| self.verify(instance, page, spot, content)),
        };
        match outcome {
            Ok(()) => {
                counters.hits.add(1);
                counters.hit_bytes.add(buffer.len() as u64);
                shared.latency.record(started.elapsed().as_nanos() as u64);
                ReadOutcome::Hit
            }
            Err(reason) => miss(counters.of(reason), reason),
        }
    }

    /// Counts an access to a page that is deliberately read elsewhere: for the policy only.
    pub fn count_access(&self, page: PageId) {
        let shared = &*self.shared;
        let mut state = shared.instance(page).lock();
        let found_at = state.slot_of(&shared.store, page);
        let group = found_at.map_or(Group::NORMAL, |slot| state.directory.group_at(slot));
        state.record_access(page, group, found_at, &shared.store);
    }

    /// Copies a cached page, for comparison with its origin. Counts nothing, and does not affect the policy.
    pub fn copy(&self, page: PageId, buffer: &mut [u8]) -> CopyOutcome {
        let shared = &*self.shared;
        let instance = shared.instance(page);
        let state = instance.lock();
        let found = state.find(&shared.store, page).map(|(_, entry)| entry);
        let Some(entry) = found.filter(|_| is_page_length(buffer.len())) else {
            return CopyOutcome::Absent;
        };
        let pinned = (entry.kind == Kind::STAGED).then(|| shared.store.staging.pin(entry.location));
        drop(state);
        let whole = if let Some(pinned) = pinned {
            let bytes = pinned.bytes();
            let whole = bytes.len() == buffer.len();
            if whole {
                buffer.copy_from_slice(bytes);
            }
            whole
        } else {
            let Some(device) = shared.store.device_at(entry.location) else {
                return CopyOutcome::Unproven;
            };
            match read_stored(device, entry.location, entry.kind, buffer) {
                Some(Err(Fault::Failed)) => return CopyOutcome::Unanswered,
                read => matches!(read, Some(Ok(true))),
            }
        };
        if whole && check(page, buffer) == entry.check {
            CopyOutcome::Copied
        } else {
            CopyOutcome::Unproven
        }
    }

    /// Reads the bytes at the spot into `buffer`, if they are a page of its length.
    fn read_device<'a>(&self, spot: Spot, buffer: &'a mut [u8]) -> Result<Content<'a>, MissReason> {
        let device = &self.shared.store.devices[spot.device as usize];
        match read_stored(device, spot.location, spot.kind, buffer) {
            Some(Ok(true)) => Ok(Content::Page(buffer)),
            Some(Err(fault)) => Err(fault.into()),
            Some(Ok(false)) | None => Ok(read_other_length(device, spot, buffer.len())?),
        }
    }

    /// Verifies the bytes read from a spot.
    pub(crate) fn verify(
        &self,
        instance: &Instance,
        page: PageId,
        spot: Spot,
        content: Content<'_>,
    ) -> Result<(), MissReason> {
        let device = &self.shared.store.devices[spot.device as usize];
        let segment = device.geometry.segment_of(spot.location);
        let reused = device.table.sequence(segment) != spot.sequence;
        if reused || instance.removals() != spot.removals {
            // If the entry still refers to the place, the place was not rewritten. If it is the same entry, neither was the page.
            let entry = instance.lock().still(page, spot.location, spot.kind);
            if entry.is_none_or(|(_, entry)| entry.check != spot.check) {
                return Err(if reused {
                    MissReason::Reclaimed
                } else {
                    MissReason::Invalidated
                });
            }
        }
        #[cfg(test)]
        if self.shared.store.canary.skip_proof() {
            return Ok(());
        }
        let actual = match content {
            Content::Page(bytes) if check(page, bytes) == spot.check => return Ok(()),
            Content::OtherLength(actual) if actual == page => return Err(MissReason::Unsuitable),
            Content::Page(bytes) => Some(identity_of(spot.check, bytes)),
            Content::OtherLength(actual) => Some(actual),
            Content::Damaged => None,
        };
        // Damaged, or another page with the same fingerprint: its bytes show which. In both cases the entry is useless.
        let mut state = instance.lock();
        let collision = actual.is_some_and(|actual| {
            // A page that does not carry its number cannot be identified, and damage is rarer than a collision.
            !spot.kind.is_numbered()
                || std::ptr::eq(self.shared.instance(actual), instance)
                    && state.directory.look_alike(actual, page)
        });
        #[cfg(debug_assertions)]
        if !collision
            && crate::common::canary::IGNORE_CHECKS.load(std::sync::atomic::Ordering::Relaxed)
        {
            return Ok(());
        }
        if let Some((slot, _)) = state.still(page, spot.location, spot.kind) {
            state.remove(&self.shared.store, slot);
        }
        drop(state);
        if collision {
            return Err(MissReason::Collision);
        }
        device
            .health
            .note_error(&"a page was not read back as it was written");
        Err(MissReason::FailedProof)
    }

    pub(crate) fn verify_staged(
        &self,
        instance: &Instance,
        page: PageId,
        frame: u32,
        expected: u32,
        removals: u64,
        bytes: &[u8],
    ) -> Result<(), MissReason> {
        // If the entry was switched to a device, the bytes are still the page's. But that cannot be distinguished from a removal by
        // a write, so it is a miss. The bytes may be a copy, and the frame may hold a later version.
        if instance.removals() != removals {
            let entry = instance.lock().still(page, frame, Kind::STAGED);
            if entry.is_none_or(|(_, entry)| entry.check != expected) {
                return Err(MissReason::Invalidated);
            }
        }
        if check(page, bytes) == expected {
            return Ok(());
        }
        let mut state = instance.lock();
        if let Some((slot, _)) = state.still(page, frame, Kind::STAGED) {
            state.remove(&self.shared.store, slot);
        }
        Err(MissReason::FailedProof)
    }
}

/// Reads a page of this kind, raw or packed, into `buffer`; `None` if pages of that length are not stored in this kind.
/// Returns whether it could be decompressed.
fn read_stored(
    device: &Device,
    location: u32,
    kind: Kind,
    buffer: &mut [u8],
) -> Option<Result<bool, Fault>> {
    let length = kind.stored(buffer.len())?;
    Some(if kind.is_raw() {
        device.read_into(location, buffer).map(|()| true)
    } else {
        device.read_with(location, length, |stored| unpack(stored, buffer))
    })
}

/// Identifies the page at a spot that holds no page of `length`. This takes up to two more reads, and is rare: one lookup
/// of an absent page in 1,400 finds the entry of another page.
#[cold]
pub(crate) fn read_other_length(
    device: &Device,
    spot: Spot,
    length: usize,
) -> Result<Content<'static>, Fault> {
    let own_length = match spot.kind.raw_length() {
        Some(own_length) => own_length,
        None => device.read_with(spot.location, PACKED_HEADER, packed_page_length)?,
    };
    if own_length == length || !is_page_length(own_length) {
        return Ok(Content::Damaged);
    }
    let mut bytes = vec![0; own_length];
    let read = read_stored(device, spot.location, spot.kind, &mut bytes).transpose()?;
    Ok(match read {
        Some(true) => Content::OtherLength(identity_of(spot.check, &bytes)),
        Some(false) | None => Content::Damaged,
    })
}

impl From<Fault> for MissReason {
    fn from(fault: Fault) -> MissReason {
        match fault {
            Fault::Failed => MissReason::DeviceFailed,
            Fault::Error => MissReason::DeviceError,
        }
    }
}

fn miss(counter: &Counter, reason: MissReason) -> ReadOutcome {
    counter.add(1);
    ReadOutcome::Miss(reason)
}
