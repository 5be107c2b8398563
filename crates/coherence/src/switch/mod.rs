//! The mode and the active extension, which every hook loads first.
//!
//! The mode is a set of bits in one atomic word, so that "off" is one load and one comparison with zero.
//!
//! | mode | meaning |
//! |---|---|
//! | `0` | off: every hook jumps straight to the call it replaced |
//! | `TRACK` | data files and writes are tracked, nothing is served (while enabling) |
//! | `TRACK + ACTIVE + SERVE + FILL` | on |
//! | `TRACK + ACTIVE` | bypass: reads go to the data files, writes drop the pages they touch, nothing is admitted |
//! | `TRACK + ACTIVE + FILL` | bypass with refill: as bypass, but written pages are admitted |
//! | one of the last three modes, `+ CONTROL` | a control group of pages is read from the data files, and every read is timed |
//! | `HARVEST` | switched off, but announced asynchronous requests are in flight; their completions must be processed |
//! | `RECORD`, alone or with the others | page reads and writes are recorded in a trace |
//!
//! Tracking has two independent reasons: the extension (`TRACK`) and a recording (`RECORD`). Knowledge about files stays valid
//! while at least one of them lasts without a gap. [`Switch::start_tracking`] and [`Switch::start_recording`] return whether
//! there was a gap.
//!
//! The use of an active extension ([`Bypass`], control group) can be set at any time. The same word holds the setting beside
//! the mode. It becomes part of the mode with [`Switch::publish`], or at once while an extension is active
//! ([`Switch::use_for`]). Writes follow the same rules when on and in both kinds of bypass, so no entry outlives a write of
//! its page.

pub mod control_group;
mod mode;

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use cache::{Extension, FileId, Generations, LatencyHistogram};

use control_group::Waits;
pub use mode::{ACTIVE, Bypass, CONTROL, FILL, HARVEST, Mode, RECORD, SERVE, TRACK};
use mode::{USE, WANTED, bits, in_use, with_mode};

use crate::platform::sync::{ArcSwapOption, AtomicU32, CachePadded, Guard, Ordering, fence};
use crate::restart::manifest::Manifest;

/// An extension with the epoch of its activation.
pub struct Active {
    /// The cache.
    pub extension: Extension,
    /// Number of the activation. A request that spans two activations is not trusted.
    pub epoch: u32,
    /// Latency of reads that went to the data files.
    pub data_reads: LatencyHistogram,
    /// Page reads that went to the data files.
    pub data_read_count: AtomicU64,
    /// How long the server waited for each read; recorded while there is a control group.
    pub waits: Waits,
}

impl Active {
    /// Wraps an extension that has served nothing yet.
    pub fn new(extension: Extension, epoch: u32) -> Active {
        debug_assert_ne!(epoch, 0, "0 marks requests without an extension");
        Active {
            extension,
            epoch,
            data_reads: LatencyHistogram::new(),
            data_read_count: AtomicU64::new(0),
            waits: Waits::default(),
        }
    }

    /// One line for each failed device.
    pub fn device_failures(&self) -> Vec<String> {
        let devices = self.extension.device_statistics();
        let count = devices.len();
        devices
            .iter()
            .filter(|device| !device.active)
            .map(|device| {
                let others = if count > 1 {
                    ", the other disks are used without it"
                } else {
                    ""
                };
                format!("'{}' {}{others}", device.path.display(), device.state)
            })
            .collect()
    }
}

/// The mode, its requests in flight, and the active extension.
pub struct Switch {
    /// Lowest byte: the mode bits. Next byte: the wanted use of an active extension. Above: a counter of `HARVEST` periods.
    /// `HARVEST` ends only if the counter shows the period for which no request was found in flight.
    word: CachePadded<AtomicU32>,
    /// Announced asynchronous requests that are not yet harvested.
    pending: CachePadded<AtomicU32>,
    epoch: AtomicU32,
    active: ArcSwapOption<Active>,
    /// Created before tracking starts, so that no hook allocates it.
    generations: OnceLock<Arc<Generations>>,
    /// The last identity assigned to a file. Identities are never reused, whatever is switched.
    file_ids: AtomicU32,
    /// The persisted state for the next process, if the cache is kept.
    manifest: OnceLock<Manifest>,
    /// The value of [`Manifest::detached`] when tracking for an extension began.
    tracked_since: AtomicU64,
}

/// Tracking was interrupted while switching on. Holds the extension, which the caller must retire. It is `None` if the
/// interrupting thread has already taken the extension: two retiring threads would wait for each other.
pub struct Interrupted(pub Option<Arc<Active>>);

impl Default for Switch {
    fn default() -> Switch {
        Switch::new()
    }
}

impl Switch {
    /// Creates a switch in mode off.
    pub const fn new() -> Switch {
        Switch {
            word: CachePadded(AtomicU32::new(((SERVE | FILL) as u32) << WANTED)),
            pending: CachePadded(AtomicU32::new(0)),
            epoch: AtomicU32::new(0),
            active: ArcSwapOption::const_empty(),
            generations: OnceLock::new(),
            file_ids: AtomicU32::new(0),
            manifest: OnceLock::new(),
            tracked_since: AtomicU64::new(0),
        }
    }

    /// The persisted state for the next process, if the cache is kept.
    #[inline]
    pub fn manifest(&self) -> Option<&Manifest> {
        self.manifest.get()
    }

    /// Persists file records for the next process from now on. Call once per process, before tracking starts for an extension.
    pub fn keep(&self, manifest: Manifest) {
        if let Some(given) = manifest.given() {
            // Relaxed: as in `new_file_id`.
            self.file_ids.fetch_max(given, Ordering::Relaxed);
        }
        // Relaxed: as above. A recording may already have assigned identities.
        manifest.announce(self.file_ids.load(Ordering::Relaxed));
        // Relaxed: as in `track`. Tracking may have begun before.
        self.tracked_since
            .store(manifest.detached(), Ordering::Relaxed);
        let _ = self.manifest.set(manifest);
    }

    /// Assigns an identity under which nothing is cached.
    pub fn new_file_id(&self) -> FileId {
        // Relaxed: only uniqueness matters.
        let id = self.file_ids.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(manifest) = self.manifest() {
            manifest.announce(id);
        }
        FileId(id)
    }

    /// Announces a request. Returns `None` if the extension was switched off since: the request must pass unmodified.
    #[inline]
    pub fn begin_request(&'static self) -> Option<Pending> {
        if canary!("pending-after-look") {
            let is_active = bits(self.word.0.load(Ordering::SeqCst)) & ACTIVE != 0;
            self.pending.0.fetch_add(1, Ordering::SeqCst);
            return is_active.then_some(Pending(self));
        }
        self.pending.0.fetch_add(1, Ordering::SeqCst);
        let pending = Pending(self);
        if bits(self.word.0.load(Ordering::SeqCst)) & ACTIVE != 0 {
            Some(pending)
        } else {
            None // dropping `pending` reverts the announcement
        }
    }

    /// The mode now. `Relaxed` is enough for a hook that is off. A hook that continues must not have loaded anything before the
    /// mode, above all no descriptor that `track` has forgotten. The fence pairs with the exchanges of `word`. It is an
    /// instruction on ARM64, and none on x86-64.
    #[inline(always)]
    pub fn mode(&self) -> Mode {
        let mode = Mode(bits(self.word.0.load(Ordering::Relaxed)));
        if !mode.is_off() {
            fence(Ordering::Acquire);
        }
        mode
    }

    /// The active extension; holding the guard keeps it alive.
    #[inline]
    pub fn active(&self) -> Guard<Option<Arc<Active>>> {
        self.active.load()
    }

    /// The generations of all pages: one table for the life of the process. So a write that spans switching off and on again
    /// stays tracked.
    #[inline]
    pub fn generations(&self) -> &Arc<Generations> {
        self.generations
            .get_or_init(|| Arc::new(Generations::new()))
    }

    /// The epoch of the next extension.
    pub fn next_epoch(&self) -> u32 {
        // Relaxed: only uniqueness matters.
        self.epoch.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// First step of switching on: hooks track files and writes. Returns whether tracking started now. If so, `forget` was
    /// called just before, and the caller must find the open files. If not, a recording has tracked them already.
    pub fn start_tracking(&self, forget: impl Fn()) -> bool {
        self.track(TRACK, forget)
    }

    /// Starts a recording. Returns as [`start_tracking`](Self::start_tracking).
    pub fn start_recording(&self, forget: impl Fn()) -> bool {
        self.track(RECORD, forget)
    }

    fn track(&self, reason: u8, forget: impl Fn()) -> bool {
        self.generations();
        let mut before = self.word.0.load(Ordering::SeqCst);
        loop {
            let begins = bits(before) & TRACK == 0 || canary!("gap-forgotten");
            if let (TRACK, true, Some(manifest)) = (reason, begins, self.manifest()) {
                // Before the exchange: a thread that stops tracking increments `detached` first, and then changes the word.
                let detached = manifest.detached();
                self.tracked_since.store(detached, Ordering::Relaxed);
            }
            let was_tracked = Mode(bits(before)).tracks();
            if !was_tracked && !canary!("gap-not-seen") {
                forget();
            }
            // The exchange proves that the mode was the same until now. The other reason may end at any time.
            let after = before & !u32::from(HARVEST) | u32::from(reason);
            match self
                .word
                .0
                .compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return !was_tracked,
                Err(now) => before = now,
            }
        }
    }

    /// Ends the recording. Hooks continue only if the extension needs them.
    pub fn stop_recording(&self) {
        self.change(|mode| match mode & (RECORD | TRACK) {
            RECORD => HARVEST,
            _ => mode & !RECORD,
        });
        self.leave_harvest();
    }

    fn change(&self, to: impl Fn(u8) -> u8) {
        let _ = self
            .word
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                Some(with_mode(word, to(bits(word))))
            });
    }

    /// Last step of switching on. Returns the previously active extension, if any.
    ///
    /// # Errors
    /// [`Interrupted`] if tracking has been interrupted since [`start_tracking`](Self::start_tracking).
    pub fn publish(&self, active: Arc<Active>) -> Result<Option<Arc<Active>>, Interrupted> {
        self.publish_after(active, || ())
    }

    fn publish_after(
        &self,
        active: Arc<Active>,
        between: impl FnOnce(),
    ) -> Result<Option<Arc<Active>>, Interrupted> {
        let ours = canary!("interrupted-keeps-it").then(|| Arc::clone(&active));
        let session = active.extension.session();
        let before = self.active.swap(Some(active));
        between();
        match self.begin_to_serve(session) {
            Ok(_) => Ok(before),
            Err(_) if ours.is_some() => Err(Interrupted(ours)),
            Err(_) => Err(Interrupted(self.active.swap(None))),
        }
    }

    /// `session`: the session of the active extension.
    pub(crate) fn begin_to_serve(&self, session: Option<u64>) -> Result<u32, u32> {
        let begun = self
            .word
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                (bits(word) & (TRACK | ACTIVE) == TRACK).then(|| in_use(word))
            })?;
        if let Some(manifest) = self.manifest() {
            // Relaxed: only one thread at a time starts tracking for an extension, and it is this thread.
            manifest.attach(session, self.tracked_since.load(Ordering::Relaxed));
        }
        Ok(begun)
    }

    /// Sets the use of the active extension and of each later one. A hook in progress completes in its mode.
    pub fn use_for(&self, bypass: Bypass, control_group: bool) {
        let control = if control_group { CONTROL } else { 0 };
        let wanted = u32::from(bypass.bits() | control) << WANTED;
        let _ = self
            .word
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                let word = word & !(u32::from(USE) << WANTED) | wanted;
                let is_active = bits(word) & ACTIVE != 0 || canary!("used-while-off");
                Some(if is_active { in_use(word) } else { word })
            });
    }

    /// Whether the extension of this epoch has been active without interruption until now.
    pub fn still_serves(&self, epoch: u32) -> bool {
        // In this order: after an interruption, a new extension is stored before `ACTIVE` is set again.
        self.word.0.load(Ordering::SeqCst) & u32::from(ACTIVE) != 0
            && self
                .active()
                .as_ref()
                .is_some_and(|active| active.epoch == epoch)
    }

    /// Stops serving at once. Returns the previously active extension, which the caller must retire. A recording continues.
    pub fn switch_off(&self) -> Option<Arc<Active>> {
        // Order: a submitter increments `pending` and then loads `word` (see `begin_request`). This function stores `word` and
        // then loads `pending`. So one of the two sees the other.
        self.stop_tracking(|mode| mode & RECORD | HARVEST);
        self.leave_harvest();
        self.active.swap(None)
    }

    /// The kill switch: turns every hook off at once and also ends a recording. Otherwise like [`switch_off`](Self::switch_off).
    pub fn kill(&self) -> Option<Arc<Active>> {
        self.stop_tracking(|_| HARVEST);
        self.leave_harvest();
        self.active.swap(None)
    }

    /// Prepares the end of the process: stops serving, admission and recording. Writes stay tracked until the process ends, so
    /// that the persisted state stays current.
    pub fn only_track(&self) {
        self.use_for(Bypass::On, false);
        self.change(|mode| mode & !RECORD);
    }

    /// Marks the persisted state as untracked before tracking stops. Retries if the word has changed since: tracking may have
    /// started again.
    fn stop_tracking(&self, to: impl Fn(u8) -> u8) {
        loop {
            let word = self.word.0.load(Ordering::SeqCst);
            if let Some(manifest) = self.manifest() {
                manifest.detach();
                if bits(word) & ACTIVE != 0 && !canary!("off-keeps-live") {
                    manifest.abandon();
                }
            }
            if canary!("detached-once") {
                return self.change(to);
            }
            let after = with_mode(word, to(bits(word)));
            let exchanged =
                self.word
                    .0
                    .compare_exchange(word, after, Ordering::SeqCst, Ordering::SeqCst);
            if exchanged.is_ok() {
                return;
            }
        }
    }

    #[inline]
    fn leave_harvest(&self) {
        let mut seen = self.word.0.load(Ordering::SeqCst);
        while seen & u32::from(HARVEST) != 0 && self.pending.0.load(Ordering::SeqCst) == 0 {
            match self.leave(seen) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// Ends `HARVEST` unless the word has changed since `seen`: requests may be in flight again.
    fn leave(&self, seen: u32) -> Result<u32, u32> {
        if canary!("word-not-compared") {
            return Ok(self.word.0.fetch_and(!u32::from(HARVEST), Ordering::SeqCst));
        }
        let after = seen & !u32::from(HARVEST);
        self.word
            .0
            .compare_exchange(seen, after, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Announced requests that are not yet harvested.
    pub fn pending_requests(&self) -> u32 {
        self.pending.0.load(Ordering::SeqCst)
    }
}

/// An asynchronous request whose completion we must process.
pub struct Pending(&'static Switch);

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        let before = self.0.pending.0.fetch_sub(1, Ordering::SeqCst);
        debug_assert_ne!(before, 0);
        self.0.leave_harvest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restart::manifest::Memory;
    use crate::testing::os_for_tests::active_in;

    fn a_switch() -> &'static Switch {
        Box::leak(Box::default())
    }

    #[test]
    fn off_waits_for_pending_requests() {
        let switch = a_switch();
        switch.start_tracking(|| ());
        switch.change(|_| TRACK | ACTIVE | SERVE);
        let request = switch.begin_request().expect("serving");
        assert!(switch.switch_off().is_none());
        assert_eq!(
            switch.mode().bits(),
            HARVEST,
            "a request is still under way"
        );
        assert!(switch.begin_request().is_none(), "no new request once off");
        assert_eq!(switch.mode().bits(), HARVEST);
        drop(request);
        assert_eq!(switch.mode().bits(), 0);
    }

    #[test]
    fn harvest_is_not_left_for_a_look_of_the_time_before() {
        let switch = a_switch();
        let off_with_a_request = || {
            switch.start_tracking(|| ());
            switch.change(|mode| mode | ACTIVE | SERVE);
            let request = switch.begin_request().expect("serving");
            assert!(switch.switch_off().is_none());
            request
        };
        let first = off_with_a_request();
        let seen = switch.word.0.load(Ordering::SeqCst);
        drop(first);
        // A thread that saw the first request gone stalls here, while the next one is submitted.
        let second = off_with_a_request();
        assert!(switch.leave(seen).is_err());
        assert_eq!(
            switch.mode().bits(),
            HARVEST,
            "a request is still under way"
        );
        drop(second);
        assert_eq!(switch.mode().bits(), 0);
    }

    #[test]
    fn what_is_interrupted_has_one_owner() {
        let switch = a_switch();
        let folder = tempfile::tempdir().unwrap();
        switch.start_tracking(|| ());
        let mut killed = None;
        let Err(Interrupted(ours)) =
            switch.publish_after(active_in(switch, folder.path()), || killed = switch.kill())
        else {
            panic!("published after the kill switch");
        };
        assert!(ours.is_none(), "whoever switched off has got it");
        let killed = killed.expect("it was the active one already");
        assert_eq!(Arc::strong_count(&killed), 1, "or it would never be closed");
        // Not tracked at all: no other thread knows the extension.
        let Err(Interrupted(ours)) = switch.publish(killed) else {
            panic!("published while off");
        };
        assert_eq!(ours.as_ref().map(Arc::strong_count), Some(1));
        assert!(switch.active().is_none());
    }

    #[test]
    fn each_extension_has_an_epoch_of_its_own() {
        let switch = a_switch();
        let first = switch.next_epoch();
        assert!(first > 0, "epoch 0 belongs to no extension");
        assert_eq!(
            [switch.next_epoch(), switch.next_epoch()],
            [first + 1, first + 2]
        );
    }

    #[test]
    fn who_still_serves() {
        let switch = a_switch();
        let folder = tempfile::tempdir().unwrap();
        switch.start_tracking(|| ());
        let first = active_in(switch, folder.path());
        let epoch = first.epoch;
        assert!(!switch.still_serves(epoch));
        assert!(matches!(switch.publish(first), Ok(None)));
        assert!(switch.still_serves(epoch));
        let first = switch.switch_off().expect("it was active");
        assert!(!switch.still_serves(epoch));
        switch.start_tracking(|| ());
        assert!(matches!(switch.publish(first), Ok(None)));
        assert!(switch.still_serves(epoch) && !switch.still_serves(epoch + 1));
        assert!(switch.kill().is_some());
    }

    #[test]
    fn a_recording_and_the_extension_follow_files_for_each_other() {
        let switch = a_switch();
        let forgot = std::cell::Cell::new(0);
        let forget = || forgot.set(forgot.get() + 1);
        assert!(switch.start_recording(forget), "nobody followed before");
        assert!(!switch.start_tracking(forget), "the recording did");
        assert_eq!((switch.mode().bits(), forgot.get()), (TRACK | RECORD, 1));
        switch.stop_recording();
        assert_eq!(switch.mode().bits(), TRACK, "the extension still needs it");
        assert!(!switch.start_recording(forget));
        assert!(switch.switch_off().is_none());
        assert_eq!(switch.mode().bits(), RECORD, "the recording still needs it");
        switch.stop_recording();
        assert_eq!(switch.mode().bits(), 0);
        switch.stop_recording();
        assert_eq!(switch.mode().bits(), 0, "nothing to stop");
        assert!(switch.start_tracking(forget), "there was a gap");
        assert_eq!(forgot.get(), 2);
        switch.start_recording(forget);
        assert!(switch.kill().is_none());
        assert_eq!(
            switch.mode().bits(),
            0,
            "the kill switch ends the recording too"
        );
    }

    /// The flush fails between the start of the recovery and the switching on of the extension.
    #[test]
    fn failed_flush_before_activation_stays_known() {
        let memory = Memory {
            now: || 0,
            grow: |_| false,
        };
        let is_tracked = || {
            let switch = a_switch();
            switch.keep(Manifest::new(Box::leak(Box::default()), &[], 0, memory));
            let manifest = switch.manifest().unwrap();
            switch.start_tracking(|| ());
            manifest.detach();
            switch.start_tracking(|| ());
            switch.begin_to_serve(Some(1)).expect("not interrupted");
            let is_tracked = manifest.is_tracked();
            // Switching off and on starts another period.
            switch.switch_off();
            switch.start_recording(|| ());
            switch.start_tracking(|| ());
            switch.begin_to_serve(Some(2)).expect("not interrupted");
            assert!(manifest.is_tracked());
            is_tracked
        };
        assert!(!is_tracked());
        #[cfg(debug_assertions)]
        {
            use crate::testing::canary::{noticed, remove_rule};
            remove_rule("gap-forgotten");
            assert!(is_tracked());
            noticed("gap-forgotten", "1 flush");
            remove_rule("");
        }
    }

    #[test]
    fn requests_under_way_are_waited_for_behind_a_recording() {
        let switch = a_switch();
        switch.start_tracking(|| ());
        switch.change(|mode| mode | ACTIVE | SERVE);
        let request = switch.begin_request().expect("serving");
        switch.start_recording(|| ());
        assert!(switch.switch_off().is_none());
        assert_eq!(switch.mode().bits(), RECORD | HARVEST);
        assert!(switch.begin_request().is_none());
        switch.stop_recording();
        assert_eq!(
            switch.mode().bits(),
            HARVEST,
            "a request is still under way"
        );
        drop(request);
        assert_eq!(switch.mode().bits(), 0);
    }

    #[test]
    fn publish_after_switch_off_during_recording_is_refused() {
        let switch = a_switch();
        switch.start_recording(|| ());
        switch.start_tracking(|| ());
        assert!(switch.switch_off().is_none());
        assert_eq!(switch.begin_to_serve(None).map_err(bits), Err(RECORD));
        switch.stop_recording();
        assert_eq!(switch.mode().bits(), 0);
    }

    const ON: u8 = TRACK | ACTIVE | SERVE | FILL;

    #[test]
    fn bypass_holds_for_an_active_extension_and_for_those_to_come() {
        let switch = a_switch();
        let mode = || switch.mode().bits();
        let publish = || {
            switch.start_tracking(|| ());
            switch.begin_to_serve(None).expect("not interrupted");
        };
        switch.use_for(Bypass::On, false);
        assert_eq!(mode(), 0, "off is off, whatever is wanted");
        switch.start_tracking(|| ());
        switch.use_for(Bypass::Refill, false);
        assert_eq!(mode(), TRACK, "nothing is active while enabling");
        switch.begin_to_serve(None).expect("not interrupted");
        assert_eq!(mode(), TRACK | ACTIVE | FILL);
        assert!(switch.begin_to_serve(None).is_err(), "it is active already");
        switch.use_for(Bypass::On, false);
        assert_eq!(
            (mode(), switch.mode().bypass()),
            (TRACK | ACTIVE, Bypass::On)
        );
        assert!(!switch.mode().handles_reads());
        switch.start_recording(|| ());
        switch.use_for(Bypass::Off, true);
        assert_eq!(mode(), ON | CONTROL | RECORD, "a recording goes on");
        switch.use_for(Bypass::On, true);
        assert!(switch.switch_off().is_none());
        assert_eq!(mode(), RECORD);
        assert_eq!(switch.mode().bypass(), Bypass::Off, "nothing is bypassed");
        publish();
        assert_eq!(mode(), TRACK | ACTIVE | CONTROL | RECORD);
        assert!(switch.kill().is_none());
        switch.use_for(Bypass::Off, false);
        assert_eq!(mode(), 0);
        publish();
        assert_eq!((mode(), switch.mode().bypass()), (ON, Bypass::Off));
    }

    #[test]
    fn requests_are_waited_for_whatever_was_bypassed_meanwhile() {
        for (at_first, at_last) in [
            (Bypass::Off, Bypass::On),
            (Bypass::On, Bypass::Off),
            (Bypass::Refill, Bypass::On),
        ] {
            let switch = a_switch();
            switch.use_for(at_first, false);
            switch.start_tracking(|| ());
            switch.begin_to_serve(None).expect("not interrupted");
            let request = switch.begin_request().expect("active");
            switch.use_for(at_last, false);
            assert!(switch.switch_off().is_none());
            assert_eq!(switch.mode().bits(), HARVEST);
            switch.use_for(at_first, false);
            assert_eq!(
                switch.mode().bits(),
                HARVEST,
                "a request is still under way"
            );
            drop(request);
            assert_eq!(switch.mode().bits(), 0);
        }
    }
}
