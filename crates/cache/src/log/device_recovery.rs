//! Recovery of a failed device: removes its entries, and retries it until it works again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::config::OpenError;
use crate::common::wake::TICK;
use crate::device::Device;
use crate::device::file::Wrap;
use crate::device::health::State;
use crate::instance::shared::Site;
use crate::log::segment_log::SegmentLog;
use crate::log::sweep::sweep;

/// Interval between two checks of the file.
const CHECK_EVERY: Duration = Duration::from_secs(1);
const FIRST_PROBE: Duration = Duration::from_secs(5);
const LAST_PROBE: Duration = Duration::from_secs(300);
/// A device that has worked for this long is probed early again when it fails.
const PROVEN: Duration = Duration::from_secs(600);

pub(crate) struct Recovery {
    wrap: Arc<Wrap>,
    checked_at: Instant,
    /// Since the device failed: no entry refers to it any longer.
    purged: bool,
    probe_at: Instant,
    probe_after: Duration,
    active_since: Instant,
}

impl Recovery {
    pub fn new(wrap: Arc<Wrap>) -> Recovery {
        let now = Instant::now();
        Recovery {
            wrap,
            checked_at: now,
            purged: false,
            probe_at: now,
            probe_after: FIRST_PROBE,
            active_since: now,
        }
    }

    /// Checks at intervals that the file is still there.
    pub fn check_file(&mut self, device: &Device) {
        if self.checked_at.elapsed() < CHECK_EVERY {
            return;
        }
        self.checked_at = Instant::now();
        if self.active_since.elapsed() > PROVEN {
            self.probe_after = FIRST_PROBE;
        }
        match device.file().storage.facts() {
            Ok((bytes, _)) if bytes < device.geometry.file_bytes() => {
                device.health.fail("the cache file was truncated by somebody else");
            }
            Ok((_, 0)) => device.health.set_remark(
                "the cache file was deleted by somebody else; it is used until the extension is switched off, and takes \
                 up its disk space until then",
            ),
            Ok(_) => device.health.set_remark(""),
            Err(error) => device.health.note_error(&error),
        }
    }

    /// Handles a failed device: removes its entries, then retries it at intervals. `None`: it works again. Otherwise the time
    /// until the next attempt.
    pub fn recover(&mut self, at: Site<'_>, log: &mut SegmentLog) -> Option<Duration> {
        let device = at.device;
        debug_assert!(!device.health.active());
        if device.health.state() == State::Defunct {
            return Some(Duration::MAX);
        }
        // Writes in flight hold frames, and must not overwrite pages that are written after a purge.
        log.in_flight.complete(at, 1, Duration::ZERO);
        if log.in_flight.any() {
            return Some(TICK);
        }
        log.in_flight.end();
        if !self.purged {
            purge(at, log);
            self.purged = true;
            self.probe_at = Instant::now() + self.probe_after;
        }
        let now = Instant::now();
        if now < self.probe_at {
            return Some(self.probe_at - now);
        }
        match self.probe(device) {
            Ok(()) => {
                self.purged = false;
                self.active_since = Instant::now();
                device.health.recover();
                // For the case that it fails again before it has proven itself.
                self.probe_after = (self.probe_after * 2).min(LAST_PROBE);
                None
            }
            Err(error) => {
                device.health.set_reason(&error);
                self.probe_after = (self.probe_after * 2).min(LAST_PROBE);
                self.probe_at = Instant::now() + self.probe_after;
                Some(self.probe_after)
            }
        }
    }

    /// For tests: makes the next probe due.
    #[cfg(test)]
    pub fn hurry_probe(&mut self) {
        self.probe_at = Instant::now();
    }

    #[cfg(test)]
    pub fn hurry_check(&mut self) {
        self.checked_at -= CHECK_EVERY * 2;
    }

    fn probe(&mut self, device: &Device) -> Result<(), OpenError> {
        let nonce = self.active_since.elapsed().as_nanos() as u64;
        let file = device.file();
        let again = file
            .extend(&device.path(), device.geometry.file_bytes())
            .and_then(|()| file.probe(nonce))
            .and_then(|()| file.write_header(device.header(true)));
        drop(file);
        if again.is_ok() {
            return Ok(());
        }
        // The disk may have been remounted: open the file by its name.
        device.close_file();
        device.open(false, &*self.wrap).map(drop)
    }
}

/// Removes every entry that refers to the device or to a frame that waits for it, and frees all segments.
fn purge(at: Site<'_>, log: &mut SegmentLog) {
    let (shared, device) = (at.shared, at.device);
    log.abandon(at);
    let left = || device.table.cached().0;
    let removed = sweep(shared, device, |_| true, left);
    shared.written.purged.add(removed);
    log.in_flight.forget_ahead();
    log.purge(device);
}
