//! Write speed of a device, and detection of devices that lag behind the others.
//!
//! The measure is a moving average of the time of a write, normalised to one length. The time is divided by the bytes plus
//! the fixed cost of a write, which is expressed in bytes. A device lags if its average exceeds twice the best average plus
//! a tolerance for devices that are all fast, or if a write has been in flight for very long. It no longer lags at one and
//! a half times the best average. [`crate::instance::balancing`] uses the result.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::health::Health;
use crate::common::measure::averaged;

/// Fixed cost of a write, in bytes.
const FIXED_BYTES: u64 = 128 << 10;
/// Weight of a new write in the average is 2^-WEIGHT.
const WEIGHT: u32 = 3;
/// Bytes of the write to which times are normalised.
const USUAL: u64 = 256 << 10;
/// Devices within this many nanoseconds of the best do not lag, whatever the ratio.
const NEAR: u64 = 500_000;
/// A device lags if a write is in flight for longer than this, and for longer than four times the best average.
const LONG: Duration = Duration::from_millis(100);
/// A device that has not completed a write for this long counts as taking none.
const SILENT: Duration = Duration::from_secs(3);

/// `Relaxed` everywhere: the values are independent, and outdated ones do no harm.
pub(crate) struct Speed {
    epoch: Instant,
    /// Average nanoseconds of a write; 0: nothing was written yet.
    average: AtomicU64,
    /// Start of the oldest write in flight, in nanoseconds since `epoch`; 0: there is none.
    began: AtomicU64,
    lags: AtomicBool,
}

impl Speed {
    pub fn new() -> Speed {
        Speed {
            // Tests set the start of a write to a time before they began.
            epoch: Instant::now() - Duration::from_secs(if cfg!(test) { 60 } else { 0 }),
            average: AtomicU64::new(0),
            began: AtomicU64::new(0),
            lags: AtomicBool::new(false),
        }
    }

    /// Measures a write. Called by the device's writer.
    pub fn measured<R>(&self, bytes: usize, write: impl FnOnce() -> R) -> R {
        let began = self.now().max(1);
        self.began.store(began, Ordering::Relaxed);
        let result = write();
        self.note(bytes, self.now().saturating_sub(began));
        self.began.store(0, Ordering::Relaxed);
        result
    }

    /// Records one of several concurrent writes, which started at `began`. Called by the device's writer.
    pub fn completed(&self, bytes: usize, began: Instant) {
        self.note(bytes, began.elapsed().as_nanos() as u64);
    }

    /// Sets the start of the oldest write in flight. Called by the device's writer.
    pub fn set_oldest(&self, began: Option<Instant>) {
        let began = began.map_or(0, |began| {
            (began.saturating_duration_since(self.epoch).as_nanos() as u64).max(1)
        });
        self.began.store(began, Ordering::Relaxed);
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    fn note(&self, bytes: usize, nanos: u64) {
        let usual = (u128::from(nanos) * u128::from(USUAL + FIXED_BYTES)
            / (bytes as u128 + u128::from(FIXED_BYTES))) as u64;
        let before = self.average.load(Ordering::Relaxed);
        let after = if before == 0 {
            usual
        } else {
            averaged(before, usual, WEIGHT)
        };
        self.average.store(after.max(1), Ordering::Relaxed);
    }

    /// Average microseconds of a write of 256 KiB.
    pub fn micros(&self) -> f64 {
        self.average.load(Ordering::Relaxed) as f64 / 1000.0
    }

    pub fn lags(&self) -> bool {
        self.lags.load(Ordering::Relaxed)
    }

    /// Age of the oldest write in flight, if it exceeds `SILENT`, as on a frozen file system. Reads may still succeed.
    pub fn silence(&self) -> Option<Duration> {
        Some(self.under_way()).filter(|&time| time > SILENT)
    }

    /// Age of the oldest write in flight.
    fn under_way(&self) -> Duration {
        match self.began.load(Ordering::Relaxed) {
            0 => Duration::ZERO,
            began => Duration::from_nanos(self.now().saturating_sub(began)),
        }
    }
}

/// Compares the devices. Any writer calls it now and then.
pub(crate) fn compare<'a>(devices: impl Iterator<Item = (&'a Speed, &'a Health)> + Clone) {
    if devices.clone().count() < 2 {
        return;
    }
    let active = || devices.clone().filter(|(_, health)| health.active());
    let best = active()
        .map(|(speed, _)| speed.average.load(Ordering::Relaxed))
        .filter(|&average| average > 0)
        .min()
        .unwrap_or(0);
    for (speed, _) in active() {
        let waits = speed.under_way() > LONG.max(Duration::from_nanos(best) * 4);
        speed
            .lags
            .store(waits || is_slow(speed, best), Ordering::Relaxed);
    }
}

fn is_slow(speed: &Speed, best: u64) -> bool {
    let most = if speed.lags() { best / 2 * 3 } else { best * 2 };
    best > 0 && speed.average.load(Ordering::Relaxed) > most + NEAR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_of_different_lengths_are_comparable() {
        let (long, short) = (Speed::new(), Speed::new());
        for _ in 0..50 {
            long.note(256 << 10, 3_000_000);
            short.note(64 << 10, 1_500_000);
        }
        assert!((long.micros() - short.micros()).abs() < 10.0);
        (0..50).for_each(|_| long.note(256 << 10, 30_000_000));
        assert!(long.micros() > 29_000.0);
    }

    #[test]
    fn slow_is_relative_and_has_some_play() {
        let speed = Speed::new();
        speed.note(256 << 10, 1_200_000);
        assert!(!is_slow(&speed, 0) && !is_slow(&speed, 400_000));
        assert!(is_slow(&speed, 300_000));
        speed.lags.store(true, Ordering::Relaxed);
        assert!(is_slow(&speed, 400_000) && !is_slow(&speed, 500_000));
    }

    #[test]
    fn a_write_under_way_is_seen() {
        let mut speed = Speed::new();
        speed.epoch = Instant::now() - Duration::from_secs(60);
        assert_eq!(speed.under_way(), Duration::ZERO);
        speed.began.store(1, Ordering::Relaxed);
        assert!(
            speed
                .silence()
                .is_some_and(|time| time > Duration::from_secs(59))
        );
        assert_eq!(speed.measured(4096, || 7), 7);
        assert_eq!((speed.under_way(), speed.silence()), (Duration::ZERO, None));
    }
}
