//! What every hook looks at first: the mode, and the extension that is active.
//!
//! The mode is a set of bits in one atomic word, so that "off" is one load and one comparison with zero.
//!
//! | mode | meaning |
//! |---|---|
//! | `0` | off: every hook jumps straight to the call it replaced |
//! | `TRACK` | data files and writes are followed, nothing is served (while enabling) |
//! | `TRACK + SERVE` | on |
//! | `HARVEST` | switched off, but asynchronous requests that we touched are still under way and must be looked at when they complete |
//! | `RECORD`, alone or with the others | page reads and writes are noted for a recording |
//!
//! Files and writes are followed for two reasons that come and go independently: the extension (`TRACK`) and a recording
//! (`RECORD`). What was learned of files is good as long as one of them has lasted without a gap; [`Switch::start_tracking`] and
//! [`Switch::start_recording`] say whether it has.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;

use extension::{Extension, FileId, Generations, LatencyHistogram};

use crate::sync::{Alone, ArcSwapOption, AtomicU32, Guard, Ordering};

/// Data files and writes to them are followed.
pub const TRACK: u8 = 1;
/// Reads are served and pages are offered.
pub const SERVE: u8 = 2;
/// Completions of asynchronous requests have to be looked at.
pub const HARVEST: u8 = 4;
/// Page reads and writes are noted for a recording; data files and writes to them are followed for that.
pub const RECORD: u8 = 8;

/// The reasons to follow files and writes.
const FOLLOWING: u8 = TRACK | RECORD;

/// What is counted above the mode bits.
const HARVESTS: u32 = 1 << 8;

/// An extension with the number of the switching-on that made it active.
pub struct Active {
    /// The cache.
    pub extension: Extension,
    /// Which switching-on this is; a request that straddles two of them is not trusted.
    pub epoch: u32,
    /// Latency of reads that went to the data files.
    pub data_reads: LatencyHistogram,
    /// Page reads that went to the data files.
    pub data_read_count: AtomicU64,
}

impl Active {
    /// A line for each device that has failed.
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

/// The mode, what is under way in it, and the extension that is active.
pub struct Switch {
    /// The mode bits in the lowest byte. Above them is counted how often `HARVEST` began: it is left only if it is still the
    /// one for which no request was found under way.
    word: Alone<AtomicU32>,
    /// Asynchronous requests that were touched by us and have not been harvested.
    pending: Alone<AtomicU32>,
    epoch: AtomicU32,
    active: ArcSwapOption<Active>,
    /// Built before anything is followed, so that no hook has to.
    generations: OnceLock<Arc<Generations>>,
    /// The last identity that a file was given. They are never used twice, whatever is switched.
    file_ids: AtomicU32,
}

/// The mode as a hook finds it at its beginning. It is passed on, so that one call sees one mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode(u8);

impl Mode {
    /// Whether the hooks do nothing at all.
    #[inline(always)]
    pub fn is_off(self) -> bool {
        self.0 == 0
    }

    /// Whether reads are served and pages are offered.
    #[inline(always)]
    pub fn serves(self) -> bool {
        self.0 & SERVE != 0
    }

    /// Whether data files and writes to them are followed.
    #[inline(always)]
    pub fn follows(self) -> bool {
        self.0 & FOLLOWING != 0
    }

    /// Whether page reads and writes are noted.
    #[inline(always)]
    pub fn records(self) -> bool {
        self.0 & RECORD != 0
    }

    /// The bits, for people.
    pub fn bits(self) -> u8 {
        self.0
    }
}

#[inline(always)]
fn bits(word: u32) -> u8 {
    word as u8
}

/// Files were not followed without interruption while switching on. Holds the extension, for the caller to retire, unless
/// whoever interrupted has got it already: two who retire it would wait for each other.
pub struct Interrupted(pub Option<Arc<Active>>);

impl Default for Switch {
    fn default() -> Switch {
        Switch::new()
    }
}

impl Switch {
    /// Off.
    pub const fn new() -> Switch {
        Switch {
            word: Alone(AtomicU32::new(0)),
            pending: Alone(AtomicU32::new(0)),
            epoch: AtomicU32::new(0),
            active: ArcSwapOption::const_empty(),
            generations: OnceLock::new(),
            file_ids: AtomicU32::new(0),
        }
    }

    /// An identity for a file, under which nothing is cached.
    pub fn new_file_id(&self) -> FileId {
        // Relaxed: that each is given once is all that counts.
        FileId(self.file_ids.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Announces a request. `None` when the extension was switched off meanwhile: the request must pass untouched.
    #[inline]
    pub fn begin_request(&'static self) -> Option<Pending> {
        if left_out!("pending-after-look") {
            let serves = bits(self.word.0.load(Ordering::SeqCst)) & SERVE != 0;
            self.pending.0.fetch_add(1, Ordering::SeqCst);
            return serves.then_some(Pending(self));
        }
        self.pending.0.fetch_add(1, Ordering::SeqCst);
        let pending = Pending(self);
        if bits(self.word.0.load(Ordering::SeqCst)) & SERVE != 0 {
            Some(pending)
        } else {
            None // dropping `pending` takes the announcement back
        }
    }

    /// The mode now. `Relaxed` is enough for a hook to decide whether to look closer: whoever acts on `SERVE` goes on to
    /// load the active extension, which is published with its own ordering.
    #[inline(always)]
    pub fn mode(&self) -> Mode {
        Mode(bits(self.word.0.load(Ordering::Relaxed)))
    }

    /// The active extension; holding the guard keeps it alive.
    #[inline]
    pub fn active(&self) -> Guard<Option<Arc<Active>>> {
        self.active.load()
    }

    /// The generations of all pages: one table for the life of the process, so that a write that straddles a switching
    /// off and on is never lost sight of.
    #[inline]
    pub fn generations(&self) -> &Arc<Generations> {
        self.generations
            .get_or_init(|| Arc::new(Generations::new()))
    }

    /// The number the next extension will carry.
    pub fn next_epoch(&self) -> u32 {
        self.epoch.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// First step of switching on: hooks follow files and writes. Returns whether they begin to; if they do, `forget` was
    /// called just before, and the open files have to be looked for. If not, a recording has followed them already.
    pub fn start_tracking(&self, forget: impl Fn()) -> bool {
        self.follow(TRACK, forget)
    }

    /// A recording begins. As for [`start_tracking`](Self::start_tracking).
    pub fn start_recording(&self, forget: impl Fn()) -> bool {
        self.follow(RECORD, forget)
    }

    fn follow(&self, reason: u8, forget: impl Fn()) -> bool {
        self.generations();
        let mut before = self.word.0.load(Ordering::SeqCst);
        loop {
            let followed = Mode(bits(before)).follows();
            if !followed && !left_out!("gap-not-seen") {
                forget();
            }
            // The exchange proves that the mode was this one up to now: the other reason may end at any time.
            let after = before & !u32::from(HARVEST) | u32::from(reason);
            match self
                .word
                .0
                .compare_exchange(before, after, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return !followed,
                Err(now) => before = now,
            }
        }
    }

    /// The recording ends; hooks go on only if the extension needs them.
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
                let mode = to(bits(word));
                let harvests = if mode & HARVEST == 0 { 0 } else { HARVESTS };
                Some((word & !u32::from(u8::MAX)).wrapping_add(harvests) | u32::from(mode))
            });
    }

    /// Last step of switching on. Returns the extension that was active before, if any.
    ///
    /// # Errors
    /// Refused when files were not followed without interruption since [`start_tracking`](Self::start_tracking).
    pub fn publish(&self, active: Arc<Active>) -> Result<Option<Arc<Active>>, Interrupted> {
        self.publish_after(active, || ())
    }

    fn publish_after(
        &self,
        active: Arc<Active>,
        between: impl FnOnce(),
    ) -> Result<Option<Arc<Active>>, Interrupted> {
        let ours = left_out!("interrupted-keeps-it").then(|| Arc::clone(&active));
        let before = self.active.swap(Some(active));
        between();
        match self.begin_to_serve() {
            Ok(_) => Ok(before),
            Err(_) if ours.is_some() => Err(Interrupted(ours)),
            Err(_) => Err(Interrupted(self.active.swap(None))),
        }
    }

    pub(crate) fn begin_to_serve(&self) -> Result<u32, u32> {
        self.word
            .0
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |word| {
                (bits(word) & (TRACK | SERVE) == TRACK).then_some(word | u32::from(SERVE))
            })
    }

    /// Whether the extension of this switching-on has served without interruption up to now.
    pub fn still_serves(&self, epoch: u32) -> bool {
        // In this order: what serves after an interruption was made the active one before.
        self.word.0.load(Ordering::SeqCst) & u32::from(SERVE) != 0
            && self
                .active()
                .as_ref()
                .is_some_and(|active| active.epoch == epoch)
    }

    /// Stops serving, at once. Returns the extension that was active; the caller retires it. A recording goes on.
    pub fn switch_off(&self) -> Option<Arc<Active>> {
        // Order matters: a submitter adds to `pending` and then looks at `word` (see `begin_request`), we write `word` and
        // then look at `pending`. One of the two sees the other.
        self.change(|mode| mode & RECORD | HARVEST);
        self.leave_harvest();
        self.active.swap(None)
    }

    /// The kill switch: every hook is off at once, a recording ends too. Otherwise as [`switch_off`](Self::switch_off).
    pub fn kill(&self) -> Option<Arc<Active>> {
        self.change(|_| HARVEST);
        self.leave_harvest();
        self.active.swap(None)
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

    /// Leaves `HARVEST` unless anything was switched since the mode was seen: requests may be under way again.
    fn leave(&self, seen: u32) -> Result<u32, u32> {
        if left_out!("word-not-compared") {
            return Ok(self.word.0.fetch_and(!u32::from(HARVEST), Ordering::SeqCst));
        }
        let after = seen & !u32::from(HARVEST);
        self.word
            .0
            .compare_exchange(seen, after, Ordering::SeqCst, Ordering::SeqCst)
    }

    /// Requests announced and not harvested.
    pub fn pending_requests(&self) -> u32 {
        self.pending.0.load(Ordering::SeqCst)
    }
}

/// One asynchronous request that we must see again when it completes.
pub struct Pending(&'static Switch);

impl Drop for Pending {
    #[inline]
    fn drop(&mut self) {
        self.0.pending.0.fetch_sub(1, Ordering::SeqCst);
        self.0.leave_harvest();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine_for_tests::active_in;

    fn a_switch() -> &'static Switch {
        Box::leak(Box::default())
    }

    #[test]
    fn off_waits_for_pending_requests() {
        let switch = a_switch();
        switch.start_tracking(|| ());
        switch.change(|_| TRACK | SERVE);
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
            switch.change(|mode| mode | SERVE);
            let request = switch.begin_request().expect("serving");
            assert!(switch.switch_off().is_none());
            request
        };
        let first = off_with_a_request();
        let seen = switch.word.0.load(Ordering::SeqCst);
        drop(first);
        // A thread that saw the first request gone is held up here, while the next one gets on its way.
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
        // Not followed at all: nobody else knows of it.
        let Err(Interrupted(ours)) = switch.publish(killed) else {
            panic!("published while off");
        };
        assert_eq!(ours.as_ref().map(Arc::strong_count), Some(1));
        assert!(switch.active().is_none());
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

    #[test]
    fn requests_under_way_are_waited_for_behind_a_recording() {
        let switch = a_switch();
        switch.start_tracking(|| ());
        switch.change(|mode| mode | SERVE);
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
    fn nothing_is_published_after_a_switching_off_that_a_recording_outlived() {
        let switch = a_switch();
        switch.start_recording(|| ());
        switch.start_tracking(|| ());
        assert!(switch.switch_off().is_none());
        assert_eq!(switch.begin_to_serve().map_err(bits), Err(RECORD));
        switch.stop_recording();
        assert_eq!(switch.mode().bits(), 0);
    }
}
