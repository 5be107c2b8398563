//! Health of a device: when it fails, and when it is retried.
//!
//! ```text
//!            8 errors in a row, 32 in 10 s,                 the writer has removed every
//!            a write error, a truncated file                entry of the device, and a probe
//!                                                           (every 5 s, doubling to 5 min)
//!   Active ----------------------------------> Failed ---------------------------------> Active
//!            a panic in the writer                          succeeds
//!          ----------------------------------> Defunct (until the extension is closed)
//! ```
//! Any thread may fail a device; only its writer reactivates it.
//!
//! A silent device is active. Reads skip it until it answers, and it keeps its contents. So a pause of the process costs no page.

use std::fmt::Display;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::bounded::Overdue;
use crate::common::statistics::{CachePadded, Counter};

const MAX_CONSECUTIVE: u32 = 8;
const MAX_IN_WINDOW: u32 = 32;
const WINDOW: Duration = Duration::from_secs(10);
/// Milliseconds without a completion after which a device with reads in flight is silent.
const SILENT: u64 = 2000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Active,
    Failed,
    Defunct,
}

pub(crate) struct Health {
    /// Stored with `Release` under the lock of `reason`; pairs with the load in `state`. A thread that sees the device active
    /// again also sees that the writer has removed the entries that referred to it.
    state: AtomicU8,
    /// Why the device failed.
    reason: Mutex<String>,
    /// Further information for administrators.
    remark: Mutex<String>,
    errors: Counter,
    /// Errors in a row and within a window: `Relaxed`, one too few or too many does no harm.
    consecutive: AtomicU32,
    window_began: AtomicU64,
    in_window: AtomicU32,
    reads: CachePadded<Reads>,
    pub overdue: Arc<Overdue>,
    epoch: Instant,
}

/// Reads in flight and the time of their last progress, in one word, so that both are always consistent. Low bits: the
/// number of reads. Above: milliseconds since `epoch` at which a read last completed, or was begun when none was in flight.
///
/// Each exchange pairs with the previous one (`AcqRel`): the word carries all information between them.
#[derive(Default)]
struct Reads(AtomicU64);

const PENDING_BITS: u32 = 20;
const PENDING: u64 = (1 << PENDING_BITS) - 1;

impl Reads {
    /// Adds a read.
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

    /// Removes a read that has just completed.
    fn end(&self, now: u64) {
        let mut before = self.0.load(Ordering::Acquire);
        loop {
            debug_assert_ne!(before & PENDING, 0, "no read is in flight");
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

/// A read in flight.
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
            reads: CachePadded::default(),
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

    /// Whether pages are read from the device. It must be active, must have no overdue reads and not rest after such, and must
    /// have completed a read within `SILENT` milliseconds if any are in flight.
    pub fn answers(&self) -> bool {
        self.active() && self.overdue.answers() && self.silence().is_none()
    }

    /// Milliseconds since the last completion, if reads are pending for longer than [`SILENT`].
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

    /// Status text for administrators.
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

    /// Begins a read; `None` if the device serves no reads.
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

    /// Records a read that failed or was short.
    pub fn note_error(&self, error: &dyn Display) {
        self.errors.add(1);
        let consecutive = self.consecutive.fetch_add(1, Ordering::Relaxed) + 1;
        let now = self.now();
        // Racing threads may count one error too few or too many.
        if now.saturating_sub(self.window_began.load(Ordering::Relaxed)) > WINDOW.as_millis() as u64
        {
            self.window_began.store(now, Ordering::Relaxed);
            self.in_window.store(0, Ordering::Relaxed);
        }
        let in_window = self.in_window.fetch_add(1, Ordering::Relaxed) + 1;
        if consecutive >= MAX_CONSECUTIVE || in_window >= MAX_IN_WINDOW {
            self.fail(format_args!(
                "{error} ({in_window} errors within {} s)",
                WINDOW.as_secs()
            ));
        }
    }

    /// Records a failed write: fails the device at once.
    pub fn note_write_error(&self, error: &dyn Display) {
        self.errors.add(1);
        self.fail(format_args!("a write failed: {error}"));
    }

    pub fn fail(&self, reason: impl Display) {
        // Hold the lock over both stores, so that a reader of the state finds its reason.
        let mut text = self.reason.lock();
        if self.active() {
            *text = format!("{reason}; the extension retries it from time to time");
            self.state.store(State::Failed as u8, Ordering::Release);
        }
    }

    /// Replaces the reason of a failed device after another failed attempt.
    pub fn set_reason(&self, reason: impl Display) {
        let mut text = self.reason.lock();
        if self.state() == State::Failed {
            *text = format!("{reason}; the extension retries it from time to time");
        }
    }

    /// Fails the device permanently: its writer cannot continue.
    pub fn give_up(&self, reason: impl Display) {
        *self.reason.lock() = reason.to_string();
        self.state.store(State::Defunct as u8, Ordering::Release);
    }

    /// Reactivates the device. It must work again, and no entry may point to it.
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
        for n in 0..MAX_IN_WINDOW {
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
        // Simulates a read that began a minute ago, without any completion since.
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
        // Two threads begin at the same moment, a minute later: the second one must see the time of the first.
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
