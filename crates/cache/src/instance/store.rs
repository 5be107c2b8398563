//! The places of pages: frames of staging, and devices.
//!
//! Instances have the entries that point here, and are independent of each other. This module does not depend on instances.

use crate::common::config::Compression;
use crate::common::page::UNIT;
use crate::device::Device;
use crate::index::directory::{Entry, Kind};
use crate::instance::balancing::Balancing;
use crate::instance::staging::Staging;

/// Share of all pages that forms the spare room, and its limit: as many pages as writes are likely to be in flight.
const SPARE_SHARE: u64 = 128;
const MAX_SPARE_PAGES: usize = 1024;

pub(crate) struct Store {
    pub staging: Staging,
    pub devices: Box<[Device]>,
    pub compression: Compression,
    nominal_page: usize,
    /// Bytes of room for which pages already compete although no eviction is necessary.
    spare_bytes: usize,
    #[cfg(test)]
    pub canary: crate::tests::Canary,
}

impl Store {
    /// `nominal_page`: bytes. `pages`: pages for which all directories are sized.
    pub fn new(
        staging: Staging,
        devices: Box<[Device]>,
        compression: Compression,
        nominal_page: usize,
        pages: u64,
    ) -> Store {
        let spare_pages = ((pages / SPARE_SHARE) as usize).min(MAX_SPARE_PAGES);
        Store {
            staging,
            devices,
            compression,
            nominal_page,
            spare_bytes: spare_pages * nominal_page,
            #[cfg(test)]
            canary: crate::tests::Canary::default(),
        }
    }

    /// Input of the rules that distribute pages among the devices.
    pub fn balancing(&self) -> Balancing<'_> {
        Balancing {
            devices: &self.devices,
            staging: &self.staging,
            compression: self.compression,
        }
    }

    /// Bytes of a page of the usual size.
    pub fn nominal_page(&self) -> u64 {
        self.nominal_page as u64
    }

    /// The device that holds a location.
    pub fn device_at(&self, location: u32) -> Option<&Device> {
        self.devices
            .iter()
            .find(|device| device.geometry.holds(location))
    }

    /// Units that a page of this kind takes on a device, and units of the page itself, as far as the kind determines them.
    pub fn units(&self, kind: Kind) -> (u32, u32) {
        let units = kind.units(self.nominal_page);
        if kind.is_raw() {
            (units, units)
        } else {
            (units, (self.nominal_page / UNIT) as u32)
        }
    }

    /// Counts the removal of an entry. Under the lock of its instance.
    pub fn entry_removed(&self, entry: Entry) {
        if entry.kind != Kind::STAGED {
            debug_assert!(self.device_at(entry.location).is_some());
            if let Some(device) = self.device_at(entry.location) {
                let segment = device.geometry.segment_of(entry.location);
                let (units, page) = self.units(entry.kind);
                device.table.dead(segment, units, page);
            }
        }
    }

    /// Bytes of staged pages that no writer has taken.
    pub fn waiting(&self) -> u64 {
        let taken: u64 = self.devices.iter().map(|device| device.in_hand.get()).sum();
        self.staging.used().saturating_sub(taken)
    }

    /// Whether at least one device accepts pages.
    pub fn any_active(&self) -> bool {
        self.devices.iter().any(|device| device.health.active())
    }

    /// Whether there is so much room that pages need not compete for it. Room of pages that writes have just dropped does not
    /// count: they are inserted again when the writes have completed.
    pub fn has_spare_room(&self) -> bool {
        self.balancing().has_room(self.spare_bytes)
    }
}
