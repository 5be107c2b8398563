//! Health of a device: when it is given up, and when it is tried again.
//!
//! ```text
//!            8 errors in a row, 32 in 10 s,                 the writer has removed every
//!            a read unanswered for 2 s, a                   entry of the device, and a probe
//!            write error, a truncated file                  (every 5 s, doubling to 5 min)
//!   Active ----------------------------------> Failed ---------------------------------> Active
//!            a panic in the writer                          succeeds
//!          ----------------------------------> Defunct (until the extension is closed)
//! ```
//! Anybody may fail a device; only its writer brings it back.

use std::fmt::Display;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::statistics::{Counter, Padded};

const MOST_CONSECUTIVE: u32 = 8;
const MOST_IN_WINDOW: u32 = 32;
const WINDOW: Duration = Duration::from_secs(10);
/// A read that has not been answered for so long.
const STALL: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Active,
    Failed,
    Defunct,
}

pub(crate) struct Health {
    state: AtomicU8,
    /// Why the device failed.
    reason: Mutex<String>,
    /// What else people should know.
    remark: Mutex<String>,
    errors: Counter,
    consecutive: AtomicU32,
    window_began: AtomicU64,
    in_window: AtomicU32,
    reads: Padded<Reads>,
    epoch: Instant,
}

/// Reads under way; written at every read.
#[derive(Default)]
struct Reads {
    pending: AtomicU32,
    /// Milliseconds after the epoch at which a read was last answered, or was begun when none was pending.
    progress: AtomicU64,
}

/// A read under way.
pub(crate) struct Underway<'a>(&'a Health);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        let reads = &self.0.reads.0;
        reads.progress.store(self.0.now(), Ordering::Relaxed);
        reads.pending.fetch_sub(1, Ordering::Release);
    }
}

impl Health {
    pub fn new() -> Health {
        Health {
            state: AtomicU8::new(State::Active as u8),
            reason: Mutex::default(),
            remark: Mutex::default(),
            errors: Counter::default(),
            consecutive: AtomicU32::new(0),
            window_began: AtomicU64::new(0),
            in_window: AtomicU32::new(0),
            reads: Padded::default(),
            epoch: Instant::now(),
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }

    pub fn state(&self) -> State {
        match self.state.load(Ordering::Acquire) {
            0 => State::Active,
            1 => State::Failed,
            _ => State::Defunct,
        }
    }

    pub fn active(&self) -> bool {
        self.state() == State::Active
    }

    pub fn errors(&self) -> u64 {
        self.errors.get()
    }

    /// For people.
    pub fn describe(&self) -> String {
        let mut text = match self.state() {
            State::Active => String::from("active"),
            State::Failed | State::Defunct => format!("failed: {}", self.reason.lock()),
        };
        let remark = self.remark.lock();
        if !remark.is_empty() {
            text.push_str("; ");
            text.push_str(&remark);
        }
        text
    }

    pub fn set_remark(&self, remark: &str) {
        let mut now = self.remark.lock();
        if *now != remark {
            remark.clone_into(&mut now);
        }
    }

    /// Begins a read; `None` if the device is failed, which it is from now on if reads have been stuck.
    pub fn begin_read(&self) -> Option<Underway<'_>> {
        if !self.active() {
            return None;
        }
        let reads = &self.reads.0;
        let now = self.now();
        if reads.pending.fetch_add(1, Ordering::Acquire) == 0 {
            reads.progress.store(now, Ordering::Relaxed);
        }
        let underway = Underway(self);
        let stuck = now.saturating_sub(reads.progress.load(Ordering::Relaxed));
        if stuck > STALL.as_millis() as u64 {
            self.fail(format_args!("no read was answered for {stuck} ms"));
            // Not progress: the reads before are still stuck.
            std::mem::forget(underway);
            reads.pending.fetch_sub(1, Ordering::Release);
            return None;
        }
        Some(underway)
    }

    pub fn note_success(&self) {
        if self.consecutive.load(Ordering::Relaxed) != 0 {
            self.consecutive.store(0, Ordering::Relaxed);
        }
    }

    /// A read has failed or come short.
    pub fn note_error(&self, error: &dyn Display) {
        self.errors.add(1);
        let consecutive = self.consecutive.fetch_add(1, Ordering::Relaxed) + 1;
        let now = self.now();
        // Threads that race here may count one error too few or too many.
        if now.saturating_sub(self.window_began.load(Ordering::Relaxed)) > WINDOW.as_millis() as u64
        {
            self.window_began.store(now, Ordering::Relaxed);
            self.in_window.store(0, Ordering::Relaxed);
        }
        let in_window = self.in_window.fetch_add(1, Ordering::Relaxed) + 1;
        if consecutive >= MOST_CONSECUTIVE || in_window >= MOST_IN_WINDOW {
            self.fail(format_args!(
                "{error} ({in_window} errors within {} s)",
                WINDOW.as_secs()
            ));
        }
    }

    /// A write has failed: there is no use in going on.
    pub fn note_write_error(&self, error: &dyn Display) {
        self.errors.add(1);
        self.fail(format_args!("a write failed: {error}"));
    }

    pub fn fail(&self, reason: impl Display) {
        // The lock is held over both so that a reader of the state finds its reason.
        let mut text = self.reason.lock();
        if self.active() {
            *text = format!("{reason}; it is tried again from time to time");
            self.state.store(State::Failed as u8, Ordering::Release);
        }
    }

    /// The writer cannot go on.
    pub fn give_up(&self, reason: impl Display) {
        *self.reason.lock() = reason.to_string();
        self.state.store(State::Defunct as u8, Ordering::Release);
    }

    /// The device works again, and no entry points to it.
    pub fn recover(&self) {
        let _reason = self.reason.lock();
        if self.state() == State::Failed {
            self.consecutive.store(0, Ordering::Relaxed);
            self.in_window.store(0, Ordering::Relaxed);
            self.state.store(State::Active as u8, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_errors_in_a_row_fail_it_and_recovery_clears_them() {
        let h = Health::new();
        for _ in 0..3 {
            (0..7).for_each(|_| h.note_error(&"EIO"));
            assert!(h.active());
            h.note_success();
        }
        (0..8).for_each(|_| h.note_error(&"EIO"));
        assert!(!h.active() && h.begin_read().is_none());
        assert!(
            h.describe().starts_with("failed: EIO ("),
            "{}",
            h.describe()
        );
        h.recover();
        assert!(h.active() && h.begin_read().is_some());
        assert_eq!(h.describe(), "active");
        assert_eq!(h.errors(), 29);
    }

    #[test]
    fn many_scattered_errors_fail_it() {
        let h = Health::new();
        for n in 0..MOST_IN_WINDOW {
            assert!(h.active(), "{n}");
            h.note_error(&"EIO");
            h.note_success();
        }
        assert!(!h.active());
    }

    #[test]
    fn stuck_reads_fail_it() {
        let h = Health::new();
        let stuck = h.begin_read().unwrap();
        assert!(h.begin_read().is_some());
        // As if the first had been begun long ago.
        let mut h2 = Health::new();
        h2.epoch = Instant::now() - Duration::from_secs(60);
        h2.reads.0.pending.store(1, Ordering::Relaxed);
        assert!(h2.begin_read().is_none());
        assert!(h2.describe().contains("no read was answered"));
        drop(stuck);
        assert_eq!(h.reads.0.pending.load(Ordering::Relaxed), 0);
        assert_eq!(h2.reads.0.pending.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn given_up_is_for_good_and_the_first_reason_stays() {
        let h = Health::new();
        h.fail("one");
        h.fail("two");
        assert!(h.describe().contains("one"));
        h.give_up("three");
        h.recover();
        assert_eq!(h.state(), State::Defunct);
        h.set_remark("the file was deleted");
        assert_eq!(h.describe(), "failed: three; the file was deleted");
    }
}
