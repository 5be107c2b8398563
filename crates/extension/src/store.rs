//! Where pages lie: in frames of staging, and on devices.
//!
//! Instances have the entries that point here, and know nothing of each other; this knows nothing of instances.

use crate::config::Compression;
use crate::device::Device;
use crate::directory::{Entry, Kind};
use crate::spread::Spread;
use crate::staging::{Staging, UNIT};

/// Room that pages compete for is this part of all, but not more pages than writes are likely to be under way.
const SPARE_SHARE: u64 = 128;
const MOST_SPARE_PAGES: usize = 1024;

pub(crate) struct Store {
    pub staging: Staging,
    pub devices: Box<[Device]>,
    pub compression: Compression,
    nominal_page: usize,
    /// Of room for which pages compete although nobody would have to go.
    spare_bytes: usize,
    #[cfg(test)]
    pub canary: crate::tests::Canary,
}

impl Store {
    /// `nominal_page`: bytes. `pages`: those for which all directories are made.
    pub fn new(
        staging: Staging,
        devices: Box<[Device]>,
        compression: Compression,
        nominal_page: usize,
        pages: u64,
    ) -> Store {
        let spare_pages = ((pages / SPARE_SHARE) as usize).min(MOST_SPARE_PAGES);
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

    /// What the rules need that say who takes the next pages.
    pub fn spread(&self) -> Spread<'_> {
        Spread {
            devices: &self.devices,
            staging: &self.staging,
            compression: self.compression,
        }
    }

    /// Bytes of a page of the usual size.
    pub fn nominal_page(&self) -> u64 {
        self.nominal_page as u64
    }

    /// The device on which a location lies.
    pub fn device_at(&self, location: u32) -> Option<&Device> {
        self.devices
            .iter()
            .find(|device| device.geometry.holds(location))
    }

    /// Units on a device of a page of this kind, and of the page itself, as far as the kind tells.
    pub fn units(&self, kind: Kind) -> (u32, u32) {
        let units = kind.units(self.nominal_page);
        if kind.is_raw() {
            (units, units)
        } else {
            (units, (self.nominal_page / UNIT) as u32)
        }
    }

    /// An entry was removed. Under the lock of its instance.
    pub fn entry_removed(&self, entry: Entry) {
        if entry.kind != Kind::STAGED {
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

    /// Some device takes pages.
    pub fn any_active(&self) -> bool {
        self.devices.iter().any(|device| device.health.active())
    }

    /// There is so much room that pages need not compete for it. What writes have just dropped, and what is offered again
    /// when they have completed, does not count as room.
    pub fn has_spare_room(&self) -> bool {
        self.spread().has_room(self.spare_bytes)
    }
}
