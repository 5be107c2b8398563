//! Health of a device: when it is given up, and when it is tried again.
//!
//! ```text
//!            8 errors in a row, 32 in 10 s,                 the writer has removed every
//!            a write error, a truncated file                entry of the device, and a probe
//!                                                           (every 5 s, doubling to 5 min)
//!   Active ----------------------------------> Failed ---------------------------------> Active
//!            a panic in the writer                          succeeds
//!          ----------------------------------> Defunct (until the extension is closed)
//! ```
//! Anybody may fail a device; only its writer brings it back.
//!
//! A silent device is active. Reads skip it until it answers, and it keeps its contents. So a pause of the process costs no page.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::bounded::Overdue;
use crate::statistics::{Counter, Padded};

const MOST_CONSECUTIVE: u32 = 8;
const MOST_IN_WINDOW: u32 = 32;
const WINDOW: Duration = Duration::from_secs(10);
/// Milliseconds without an answer after which a device with reads under way is silent.
const SILENT: u64 = 2000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Active,
    Failed,
    Defunct,
}

pub(crate) struct Health {
    /// Stored with `Release` under the lock of `reason`, the pair of the load in `state`: who finds the device active again finds
    /// that the writer has removed what referred to it.
    state: AtomicU8,
    /// Why the device failed.
    reason: Mutex<String>,
    /// What else people should know.
    remark: Mutex<String>,
    errors: Counter,
    /// Errors in a row and within a window: `Relaxed`, one too few or too many does no harm.
    consecutive: AtomicU32,
    window_began: AtomicU64,
    in_window: AtomicU32,
    reads: Padded<Reads>,
    pub overdue: Arc<Overdue>,
    epoch: Instant,
}

/// Reads under way, and when one of them last made progress, in one word, so that nobody sees the one without the other:
/// the number in the low bits; above it the milliseconds after the epoch at which a read was last answered, or was begun
/// when none was under way.
///
/// Each exchange is the pair of the one before it (`AcqRel`): the word is all that they tell each other.
#[derive(Default)]
struct Reads(AtomicU64);

const PENDING_BITS: u32 = 20;
const PENDING: u64 = (1 << PENDING_BITS) - 1;

impl Reads {
    /// One more.
    fn begin(&self, now: u64) {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let progress = if before & PENDING == 0 {
                now
            } else {
                before >> PENDING_BITS
            };
            let after = progress << PENDING_BITS | ((before & PENDING) + 1);
            match self
                .0
                .compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(other) => before = other,
            }
        }
    }

    /// One less: it was answered just now.
    fn end(&self, now: u64) {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            let pending = (before & PENDING).saturating_sub(1);
            let time = now.max(before >> PENDING_BITS);
            let after = time << PENDING_BITS | pending;
            match self
                .0
                .compare_exchange_weak(before, after, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(other) => before = other,
            }
        }
    }
}

/// A read under way.
pub(crate) struct Underway<'a>(&'a Health);

impl Drop for Underway<'_> {
    fn drop(&mut self) {
        self.0.reads.0.end(self.0.now());
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
            overdue: Arc::new(Overdue::new()),
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

    /// Whether pages are read from it: it is active, has no answers overdue, and is not silent.
    pub fn answers(&self) -> bool {
        self.active() && self.overdue.answers() && self.silence().is_none()
    }

    /// Milliseconds since the last answer, if reads are pending for longer than [`SILENT`].
    fn silence(&self) -> Option<u64> {
        let reads = self.reads.0.0.load(Ordering::Acquire);
        if reads & PENDING == 0 {
            return None;
        }
        Some(self.now().saturating_sub(reads >> PENDING_BITS)).filter(|&silence| silence > SILENT)
    }

    pub fn errors(&self) -> u64 {
        self.errors.get()
    }

    /// For people.
    pub fn describe(&self) -> String {
        let mut text = match self.state() {
            State::Active => match (self.overdue.describe(), self.silence()) {
                (overdue, _) if !overdue.is_empty() => format!("does not answer: {overdue}"),
                (_, Some(silence)) => {
                    format!("does not answer: no read was answered for {silence} ms")
                }
                (_, None) => String::from("active"),
            },
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

    /// Begins a read; `None` if pages are not read from the device.
    pub fn begin_read(&self) -> Option<Underway<'_>> {
        self.answers().then(|| {
            self.reads.0.begin(self.now());
            Underway(self)
        })
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
            *text = format!("{reason}; the extension retries it from time to time");
            self.state.store(State::Failed as u8, Ordering::Release);
        }
    }

    /// A failed device was tried again, and this is what is wrong with it now.
    pub fn set_reason(&self, reason: impl Display) {
        let mut text = self.reason.lock();
        if self.state() == State::Failed {
            *text = format!("{reason}; the extension retries it from time to time");
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
    fn silent_device_is_read_again_when_it_has_answered() {
        let mut h = Health::new();
        assert!(h.begin_read().is_some());
        // As if a read had been begun a minute ago, and nothing had been answered since.
        h.epoch = Instant::now() - Duration::from_secs(60);
        h.reads.0.begin(0);
        assert!(h.begin_read().is_none() && h.active());
        assert!(h.describe().starts_with("does not answer: no read"));
        assert_eq!(h.reads.0.0.load(Ordering::Relaxed) & PENDING, 1);
        h.reads.0.end(h.now());
        assert_eq!(h.describe(), "active");
        let (one, other) = (h.begin_read(), h.begin_read());
        assert!(one.is_some() && other.is_some());
        drop((one, other));
        assert_eq!(h.reads.0.0.load(Ordering::Relaxed) & PENDING, 0);
    }

    #[test]
    fn reads_that_begin_together_after_a_long_rest_are_not_silent() {
        let reads = Reads::default();
        reads.begin(10);
        reads.end(11);
        // Two threads begin at the same moment, a minute later: whichever comes second sees the time of the first.
        for round in 1..2000u64 {
            let now = round * 60_000;
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| reads.begin(now));
                }
            });
            let word = reads.0.load(Ordering::Relaxed);
            assert_eq!(
                (word >> PENDING_BITS, word & PENDING),
                (now, 2),
                "round {round}"
            );
            reads.end(now + 1);
            reads.end(now + 1);
        }
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
