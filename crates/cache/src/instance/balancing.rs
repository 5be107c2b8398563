//! Distribution of pages over several devices.
//!
//! The writers pull pages out of staging. These rules decide when a writer leaves pages to the others. Each device is filled
//! to the same share: a device that is fuller than the emptiest, by more than a tolerance, waits. While devices are filled,
//! pages are distributed in proportion to the remaining room. So a small device is not rewritten over and over beside a large
//! empty one. Once all are full, room appears where pages are evicted or rewritten, in proportion to size.
//!
//! No device waits for one that has failed or lags ([`crate::device::speed`]). That one takes as much as it can, and the
//! others ignore it. Its room does not count in the decision whether a page must replace another. While staging is more than
//! half full, every device that has room takes pages, however full it is: then speed matters more than evenness. The part of
//! staging that one writer may hold is limited ([`Balancing::max_held`]), so that a writer which hangs in a write leaves the
//! rest to the others.

use std::sync::atomic::Ordering;

use crate::common::config::Compression;
use crate::common::page::{MAX_PAGE, UNIT};
use crate::device::Device;
use crate::device::queue::{CHUNK, DEPTH};
use crate::device::segment::Geometry;
use crate::instance::staging::Staging;

/// Room that stays free if all pages have the same length: in thousandths, and at least in bytes. An update leaves a hole of
/// exactly the size that it needs. So this only ensures that a reopened segment has some holes.
const FREE_PER_MILLE: u64 = 8;
const MIN_FREE: u64 = 512 << 10;
/// If lengths differ: segments that are reserved or that compaction has begun to fill; and the percentage of the rest that
/// may be live.
const SEGMENTS_AT_WORK: u64 = 2;
const LIVE_PERCENT: u64 = 97;
/// The same for compressed pages: holes of many lengths do not all find a page that fits.
const LIVE_PERCENT_PACKED: u64 = 90;
/// Tolerance by which a device may be ahead of the emptiest, in bytes and as part of its size; the smaller one counts.
const AHEAD: u64 = 1 << 20;
const AHEAD_PART: u64 = 32;

/// Units of a device that may be live while all pages have the usual length.
pub(crate) fn max_uniform_units(geometry: &Geometry) -> u64 {
    let all = u64::from(geometry.segments) * geometry.segment_units;
    let free = (all * FREE_PER_MILLE / 1000).max(MIN_FREE / UNIT as u64);
    all.saturating_sub(free)
}

/// Units of a device that may be live. The rest are the holes for new pages: with fewer holes, more segments would have to
/// be opened for the same pages.
fn max_live_units(device: &Device, compression: Compression) -> u64 {
    let geometry = &device.geometry;
    if compression == Compression::Off && !device.compacts.load(Ordering::Relaxed) {
        return max_uniform_units(geometry);
    }
    let percent = match compression {
        Compression::Off => LIVE_PERCENT,
        Compression::Lz4 => LIVE_PERCENT_PACKED,
    };
    let at_work = u64::from(geometry.segments).saturating_sub(SEGMENTS_AT_WORK);
    at_work * (geometry.segment_bytes / UNIT as u64) * percent / 100
}

/// Devices and staging, as input of the rules.
pub(crate) struct Balancing<'a> {
    pub devices: &'a [Device],
    pub staging: &'a Staging,
    pub compression: Compression,
}

impl Balancing<'_> {
    /// Whether this many more bytes can be cached without evictions.
    pub fn has_room(&self, bytes: usize) -> bool {
        let staged = (self.staging.used() + bytes as u64) / UNIT as u64;
        let active = || self.devices.iter().filter(|device| device.health.active());
        // The best device does not lag, but may hang in a write: then all count.
        let any_prompt = active().any(|device| !device.speed.lags());
        let (mut live, mut most) = (staged, 0);
        for device in active().filter(|device| !any_prompt || !device.speed.lags()) {
            live += device.table.all_live_units();
            most += max_live_units(device, self.compression);
        }
        live <= most
    }

    /// Staging is more than half full.
    pub fn pressed(&self) -> bool {
        self.staging.used() > self.staging.capacity() / 2
    }

    /// Whether the writer of this device may take pages, when it already has `pending` units that are not written yet.
    pub fn may_take(&self, at: usize, pending: u64) -> bool {
        if self.devices.len() == 1 {
            return true;
        }
        let own = &self.devices[at];
        let most = max_live_units(own, self.compression);
        let live = own.table.all_live_units() + pending;
        let others = self
            .devices
            .iter()
            .enumerate()
            .filter(|(n, device)| *n != at && device.health.active() && !device.speed.lags());
        let emptiest = others
            .map(|(_, device)| {
                let most = max_live_units(device, self.compression);
                device.table.all_live_units() as f64 / most as f64
            })
            .min_by(f64::total_cmp);
        let Some(emptiest) = emptiest else {
            return true;
        };
        let ahead = (AHEAD / UNIT as u64).min(most / AHEAD_PART);
        live as f64 <= emptiest * most as f64 + ahead as f64 || live < most && self.pressed()
    }

    /// Bytes of staging that one writer may hold. A single writer need not leave some to others.
    pub fn max_held(&self) -> usize {
        let part = match self.devices.len() as u64 {
            1 => self.staging.capacity(),
            several => self.staging.capacity() / (2 * several),
        };
        (part as usize).clamp(2 * MAX_PAGE, 2 * DEPTH * CHUNK)
    }
}
