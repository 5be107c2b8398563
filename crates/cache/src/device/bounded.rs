//! Bounded reads: reads with a timeout, abandoned when the disk does not answer in time.
//!
//! A thread inside `pread` cannot return before the disk answers, and a hanging disk may take half a minute. A bounded
//! read is therefore submitted through the kernel's asynchronous I/O, and the thread waits no longer than the bound. An
//! abandoned read may still complete. So the kernel never reads into the caller's memory but into a *slot*, and the bytes
//! are copied from there. A slot with an abandoned read keeps its memory and its kernel context until the read completes.
//! Slots belong to the process, so closing an extension does not wait for a hanging disk either. A caller that reads
//! asynchronously on its own borrows the memory of a slot ([`lend`]).
//!
//! While reads are overdue, and during a rest afterwards ([`Overdue`]), the device serves no reads. Its pages stay in the
//! directory and are served again when the disk recovers.
//!
//! Submitting a read may block on the disk, too. [`submission`] decides which thread submits, and when.
//!
//! The kernel reads asynchronously from direct files only. Reads of other files are synchronous and unbounded.
//!
//! Locks: the reading thread holds its slot's lock. Other threads only try that lock, wait at most `SLOT_WAIT`, or lock a
//! lent slot, whose lock is held only for a moment. Only the leaves of [`submission`] are locked under it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::file::CacheFile;
use super::kernel::{
    Destination, Event, MAX_SLOTS, count_context, ring_bytes, submit, uncount_context,
};
use super::submission::{self, Handed, Order, Submissions, is_flag_refused, would_wait};
use crate::common::memory::{Bounce, add_bounce_bytes, page};
use crate::common::statistics::{CachePadded, Counter};

/// Slots that are never lent: they are reserved for readers that wait for a page.
const KEPT_BACK: usize = MAX_SLOTS / 4;
/// Longest wait of a reader for a slot that another reader holds, when all slots are taken.
const SLOT_WAIT: Duration = Duration::from_millis(5);
/// Rest of a device after its last overdue read completed, in milliseconds: initial value and maximum. The rest doubles
/// each time, unless the device has worked for `WORKED_MILLIS` before.
const FIRST_REST: u64 = 1000;
const LAST_REST: u64 = 60_000;
const WORKED_MILLIS: u64 = 120_000;
/// Shortest interval between two scans of the slots for completed reads, in milliseconds.
const LOOK_EVERY: u64 = 50;

/// Why a bounded read returned no bytes.
#[derive(Debug)]
pub(crate) enum Unread {
    /// This read or an earlier one is overdue.
    Overdue,
    /// All slots are taken, or the disk accepts no further request at present.
    Busy,
    /// The kernel offers no asynchronous I/O to this process, or none for this file.
    Unsupported,
    Failed(io::Error),
}

/// Overdue reads of a device, and its rest after them. Times are milliseconds since `epoch`.
///
/// `rest` and `looked` are `Relaxed`: an outdated value only makes a rest or an interval a little longer or shorter. The
/// exchanges of `unanswered` (`AcqRel`) pair with its loads (`Acquire`). The store of `rests_until` in `begin_rest`
/// (`Release`) pairs with its loads (`Acquire`). A read that starts between the last completion and the rest that it begins
/// does no harm.
pub(crate) struct Overdue {
    epoch: Instant,
    /// Abandoned reads that have not completed.
    unanswered: AtomicU32,
    /// The device serves no reads before this time; 0: no rest.
    rests_until: AtomicU64,
    rest: AtomicU64,
    looked: AtomicU64,
    /// Reads abandoned since the device was opened.
    pub given_up: Counter,
    pub submissions: Submissions,
}

impl Overdue {
    pub fn new() -> Overdue {
        Overdue {
            epoch: Instant::now(),
            unanswered: AtomicU32::new(0),
            rests_until: AtomicU64::new(0),
            rest: AtomicU64::new(0),
            looked: AtomicU64::new(0),
            given_up: Counter::default(),
            submissions: Submissions::new(),
        }
    }

    fn now(&self) -> u64 {
        self.epoch.elapsed().as_millis() as u64
    }

    /// Whether the device serves reads. If it does not, the call polls for completed reads at most every `LOOK_EVERY`.
    pub fn answers(&self) -> bool {
        if self.rests_until.load(Ordering::Acquire) == 0 {
            return true;
        }
        self.answers_again()
    }

    #[cold]
    fn answers_again(&self) -> bool {
        let now = self.now();
        if self.unanswered.load(Ordering::Acquire) > 0 {
            let looked = self.looked.load(Ordering::Relaxed);
            let due = now >= looked + LOOK_EVERY
                && self
                    .looked
                    .compare_exchange(looked, now, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok();
            if due {
                collect_answers();
            }
            return false;
        }
        let until = self.rests_until.load(Ordering::Acquire);
        if now < until {
            return false;
        }
        // A failed exchange means that another thread set a later time or ended the rest.
        let _ = self
            .rests_until
            .compare_exchange(until, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.rests_until.load(Ordering::Acquire) == 0
    }

    fn give_up(&self) {
        self.given_up.add(1);
        if self.unanswered.fetch_add(1, Ordering::AcqRel) == 0 {
            let (now, before) = (self.now(), self.rest.load(Ordering::Relaxed));
            let last = self.looked.load(Ordering::Relaxed);
            let rest = if before == 0 || now > last + WORKED_MILLIS {
                FIRST_REST
            } else {
                (before * 2).min(LAST_REST)
            };
            self.rest.store(rest, Ordering::Relaxed);
            self.looked.store(now, Ordering::Relaxed);
        }
        self.begin_rest();
    }

    fn answered(&self) {
        let before = self.unanswered.fetch_sub(1, Ordering::AcqRel);
        debug_assert_ne!(before, 0, "no read was given up");
        if before == 1 {
            self.begin_rest();
        }
    }

    fn begin_rest(&self) {
        let until = self.now() + self.rest.load(Ordering::Relaxed);
        self.rests_until.store(until.max(1), Ordering::Release);
    }

    /// Status text for administrators; empty while the device answers in time.
    pub fn describe(&self) -> String {
        let unanswered = self.unanswered.load(Ordering::Acquire);
        let until = self.rests_until.load(Ordering::Acquire);
        if unanswered > 0 {
            format!(
                "{unanswered} reads were not answered in time, so pages are read from the data files until the disk \
                 answers"
            )
        } else if until != 0 {
            let left = until.saturating_sub(self.now()).div_ceil(1000);
            format!(
                "reads were not answered in time; the disk answers again, and is read from again in {left} s"
            )
        } else {
            String::new()
        }
    }
}

struct Slot {
    /// Context of the kernel; 0: not set up.
    context: libc::c_ulong,
    memory: Bounce,
    /// Used since `give_idle_memory_back` last ran.
    used: bool,
    state: State,
}

enum State {
    Free,
    /// An abandoned read may still write into the slot's memory. `handed`: it was handed to the device's submitter thread.
    GivenUp {
        overdue: Arc<Overdue>,
        handed: bool,
    },
    /// A [`LentSlot`] owns the memory.
    Lent,
}

static SLOTS: [CachePadded<Mutex<Slot>>; MAX_SLOTS] = [const {
    CachePadded(Mutex::new(Slot {
        context: 0,
        memory: Bounce::NONE,
        used: false,
        state: State::Free,
    }))
}; MAX_SLOTS];

/// Maps the error of a failed submission.
fn refused(errno: i32) -> Unread {
    match errno {
        libc::EAGAIN => Unread::Busy,
        libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM => Unread::Unsupported,
        _ => Unread::Failed(io::Error::from_raw_os_error(errno)),
    }
}

impl Slot {
    /// Whether no read is in flight into the slot. Frees it if its abandoned read has completed.
    fn is_free(&mut self, number: usize) -> bool {
        if let State::GivenUp { overdue, handed } = &self.state {
            let submitted = if *handed {
                submission::was_submitted(number)
            } else {
                Some(true)
            };
            let over = match submitted {
                None => false,
                Some(false) => true,
                Some(true) => matches!(self.wait(Duration::ZERO), Ok(Some(_))),
            };
            if over {
                overdue.answered();
                overdue.submissions.end();
                self.state = State::Free;
            }
        }
        matches!(self.state, State::Free)
    }

    fn set_up(&mut self) -> Result<(), Unread> {
        if self.context == 0 {
            count_context();
            // SAFETY: requests a context for one request; the kernel writes the context's number.
            let result = unsafe { libc::syscall(libc::SYS_io_setup, 1, &raw mut self.context) };
            if result != 0 {
                uncount_context();
                self.context = 0;
                return Err(Unread::Unsupported);
            }
            add_bounce_bytes(ring_bytes(1));
        }
        Ok(())
    }

    /// The result of the read in flight; `None` if it does not complete in time.
    fn wait(&self, at_most: Duration) -> io::Result<Option<i64>> {
        let until = Instant::now() + at_most;
        let mut left = at_most;
        loop {
            let mut event = Event::default();
            let mut time = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: there is room for the one requested event.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_io_getevents,
                    self.context,
                    1,
                    1,
                    &raw mut event,
                    &raw mut time,
                )
            };
            match result {
                1 => return Ok(Some(event.result)),
                0 => return Ok(None),
                _ => {
                    let error = io::Error::last_os_error();
                    if error.kind() != io::ErrorKind::Interrupted {
                        return Err(error);
                    }
                    left = until.saturating_duration_since(Instant::now());
                }
            }
        }
    }
}

/// Polls all abandoned reads for completion.
fn collect_answers() {
    for (number, slot) in SLOTS.iter().enumerate() {
        if let Some(mut slot) = slot.0.try_lock() {
            slot.is_free(number);
        }
    }
}

/// A free slot of a range, and its number; the search starts at `from`.
fn free_slot(range: Range<usize>, from: usize) -> Option<(usize, MutexGuard<'static, Slot>)> {
    for number in (from..range.end).chain(range.start..from) {
        if let Some(mut slot) = SLOTS[number].0.try_lock() {
            if slot.is_free(number) {
                slot.used = true;
                return Some((number, slot));
            }
        }
    }
    None
}

/// The memory of a slot, for a read that the borrower submits.
pub(crate) struct LentSlot {
    number: u32,
    bytes: u32,
    start: *mut u8,
}

// SAFETY: this value owns the slot's memory.
unsafe impl Send for LentSlot {}
// SAFETY: a shared reference only gives read access, and `bytes` requires that no read is in flight.
unsafe impl Sync for LentSlot {}

impl LentSlot {
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// # Safety
    /// No read into the memory may be in flight.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the slot keeps its memory while it is lent; the caller guarantees that nothing writes to it.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes as usize) }
    }

    /// For an owner that fills the memory itself and has submitted no read into it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: this value owns the slot's memory and is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes as usize) }
    }
}

impl Drop for LentSlot {
    /// Drop it only when no read into the memory is in flight.
    fn drop(&mut self) {
        let mut slot = SLOTS[self.number as usize].0.lock();
        debug_assert!(matches!(slot.state, State::Lent));
        slot.state = State::Free;
    }
}

/// Releases the memory of all slots unused since the previous call. A slot allocates memory again on demand. A burst of
/// reads may have allocated the memory of 256 pages.
pub fn give_idle_memory_back() {
    give_memory_back(|slot| std::mem::take(&mut slot.used));
}

/// Releases the memory of all slots that are not in use.
pub(crate) fn give_all_memory_back() {
    give_memory_back(|_| false);
}

fn give_memory_back(keeps: impl Fn(&mut Slot) -> bool) {
    for (number, slot) in SLOTS.iter().enumerate() {
        if let Some(mut slot) = slot.0.try_lock() {
            if !keeps(&mut slot) && slot.is_free(number) {
                slot.memory = Bounce::NONE;
            }
        }
    }
}

/// Lends the memory of the first free slot. Taking the first one keeps the number of slots with memory low.
pub(crate) fn lend(bytes: usize) -> Option<LentSlot> {
    let (number, mut slot) = free_slot(KEPT_BACK..MAX_SLOTS, KEPT_BACK)?;
    if !slot.memory.grow(bytes.next_multiple_of(page())) {
        return None;
    }
    slot.state = State::Lent;
    Some(LentSlot {
        number: number as u32,
        bytes: bytes as u32,
        start: slot.memory.as_ptr(),
    })
}

/// Counts a read that its caller submits as in flight at the device, until it is dropped.
pub(crate) struct Counted {
    overdue: Arc<Overdue>,
    submitting: bool,
}

impl Counted {
    /// `None` if the disk may have no free request, so that submitting might block.
    pub fn begin(overdue: &Arc<Overdue>) -> Option<Counted> {
        let submitting = overdue.submissions.begin();
        let counted = Counted {
            overdue: Arc::clone(overdue),
            submitting,
        };
        if !submitting {
            overdue.submissions.busy.add(1);
        }
        submitting.then_some(counted)
    }

    /// Call when the kernel has accepted the read.
    pub fn submitted(&mut self) {
        if std::mem::take(&mut self.submitting) {
            self.overdue.submissions.submitted();
        }
    }

    pub fn submissions(&self) -> &Submissions {
        &self.overdue.submissions
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.submitted();
        self.overdue.submissions.end();
    }
}

/// An abandoned read into a lent slot: the borrower keeps this value until the read completes.
pub struct GivenUp {
    pub(crate) counted: Counted,
    pub(crate) _slot: LentSlot,
    pub(crate) _file: Arc<CacheFile>,
}

impl GivenUp {
    pub(crate) fn new(counted: Counted, slot: LentSlot, file: Arc<CacheFile>) -> GivenUp {
        counted.overdue.give_up();
        GivenUp {
            counted,
            _slot: slot,
            _file: file,
        }
    }
}

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.counted.overdue.answered();
    }
}

/// The slot at which this thread starts its search.
fn home() -> usize {
    // Relaxed: starting at the same slot as another thread does no harm.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    HOME.try_with(|home| *home).unwrap_or(0)
}

/// Source and limit of a bounded read.
pub(crate) struct Request<'a> {
    pub file: &'a Arc<CacheFile>,
    /// A multiple of the file's alignment for direct reads, as is the length.
    pub offset: u64,
    pub bytes: usize,
    pub bound: Duration,
    pub overdue: &'a Arc<Overdue>,
}

/// A slot for a read whose thread waits.
fn wait_for_slot() -> Option<(usize, MutexGuard<'static, Slot>)> {
    let number = home() % KEPT_BACK;
    let free =
        free_slot(0..KEPT_BACK, number).or_else(|| free_slot(KEPT_BACK..MAX_SLOTS, KEPT_BACK));
    if free.is_some() {
        return free;
    }
    // All slots are taken. Wait at most `SLOT_WAIT` for the reader that holds this thread's first slot.
    let mut slot = SLOTS[number].0.try_lock_for(SLOT_WAIT)?;
    slot.is_free(number).then_some((number, slot))
}

/// How a read in flight was submitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submitted {
    /// By the waiting thread, with these flags.
    Directly(u32),
    ByThread,
}

/// Why a read that was begun returned no bytes.
enum Lost {
    /// No read is in flight into the slot.
    Ended(Unread),
    /// The read may still complete; `handed` as in [`State::GivenUp`].
    Caught { handed: bool },
}

/// Reads into a slot and passes the bytes on. A short read is an error.
pub(crate) fn read<R>(request: &Request<'_>, pass: impl FnOnce(&[u8]) -> R) -> Result<R, Unread> {
    let mask = request.file.alignment - 1;
    debug_assert_eq!((request.offset as usize | request.bytes) & mask, 0);
    let until = Instant::now() + request.bound;
    let (number, mut slot) = wait_for_slot().ok_or(Unread::Busy)?;
    slot.set_up()?;
    if !slot.memory.grow(request.bytes.next_multiple_of(page())) {
        return Err(Unread::Unsupported);
    }
    let submissions = &request.overdue.submissions;
    let by_itself = submissions.begin();
    let ended = match into_slot(request, number, &slot, by_itself, until) {
        Ok(()) => Ok(pass(&slot.memory.bytes()[..request.bytes])),
        Err(Lost::Ended(why)) => Err(why),
        Err(Lost::Caught { handed }) => {
            request.overdue.give_up();
            let overdue = Arc::clone(request.overdue);
            slot.state = State::GivenUp { overdue, handed };
            return Err(Unread::Overdue);
        }
    };
    submissions.end();
    ended
}

/// Submits the read from this thread or from the device's submitter thread, and waits for it.
fn into_slot(
    request: &Request<'_>,
    number: usize,
    slot: &Slot,
    by_itself: bool,
    until: Instant,
) -> Result<(), Lost> {
    let submissions = &request.overdue.submissions;
    let destination = Destination {
        context: slot.context,
        fd: request.file.storage.raw_fd(),
        memory: slot.memory.as_ptr() as u64,
        offset: request.offset,
        bytes: request.bytes as u64,
    };
    let mut submitted = None;
    if by_itself {
        let flags = submissions.flags();
        let result = submit(&destination, flags);
        submissions.submitted();
        submitted = after(result, flags, submissions)?;
    }
    loop {
        let how = match submitted {
            Some(how) => how,
            None => hand_over(request, number, &destination, until)?,
        };
        let handed = how == Submitted::ByThread;
        let left = until.saturating_duration_since(Instant::now());
        return match slot.wait(left) {
            Ok(Some(result)) if result == request.bytes as i64 => Ok(()),
            Ok(Some(result)) if result < 0 => {
                let errno = i32::try_from(-result).unwrap_or(libc::EIO);
                if let (Submitted::Directly(flags), true) = (how, flags_matter(how, errno)) {
                    submitted =
                        after(Err(io::Error::from_raw_os_error(errno)), flags, submissions)?;
                    continue;
                }
                Err(Lost::Ended(match errno {
                    libc::EAGAIN => Unread::Busy,
                    _ => Unread::Failed(io::Error::from_raw_os_error(errno)),
                }))
            }
            Ok(Some(_)) => Err(Lost::Ended(Unread::Failed(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the cache file has become shorter",
            )))),
            // If the kernel cannot report the completion, the read may still complete later.
            Ok(None) | Err(_) => Err(Lost::Caught { handed }),
        };
    }
}

/// Whether the read might succeed without the flags that it was submitted with.
fn flags_matter(how: Submitted, errno: i32) -> bool {
    matches!(how, Submitted::Directly(flags) if flags != 0)
        && (errno == libc::EAGAIN || is_flag_refused(errno))
}

/// Evaluates a submission by this thread. `None`: the submitter thread is to retry without flags.
fn after(
    result: io::Result<()>,
    flags: u32,
    submissions: &Submissions,
) -> Result<Option<Submitted>, Lost> {
    match result {
        Ok(()) => Ok(Some(Submitted::Directly(flags))),
        Err(error) if flags != 0 && would_wait(&error) => Ok(None),
        Err(error) => {
            let errno = error.raw_os_error().unwrap_or(libc::EIO);
            if flags != 0 && is_flag_refused(errno) {
                if errno == libc::EOPNOTSUPP {
                    submissions.leave_flag_out();
                }
                return Ok(None);
            }
            Err(Lost::Ended(refused(errno)))
        }
    }
}

/// Hands the read to the device's submitter thread. Without one (an extension without threads), this thread submits.
fn hand_over(
    request: &Request<'_>,
    number: usize,
    destination: &Destination,
    until: Instant,
) -> Result<Submitted, Lost> {
    let order = Order {
        destination: *destination,
        slot: number,
        _file: Arc::clone(request.file),
    };
    match request.overdue.submissions.hand_over(order, until) {
        Ok(Handed::Submitted) => Ok(Submitted::ByThread),
        Ok(Handed::Refused(errno)) => Err(Lost::Ended(refused(errno))),
        Ok(Handed::Withdrawn) => {
            // The read never left the queue, so it does not count as unanswered. The reads that did will show whether the disk
            // answers.
            request.overdue.given_up.add(1);
            Err(Lost::Ended(Unread::Overdue))
        }
        Ok(Handed::Caught) => Err(Lost::Caught { handed: true }),
        Err(_) => match submit(destination, 0) {
            Ok(()) => Ok(Submitted::Directly(0)),
            Err(error) => Err(Lost::Ended(refused(
                error.raw_os_error().unwrap_or(libc::EIO),
            ))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::{FileExt, OpenOptionsExt};

    use crate::device::storage::{Closed, Storage};

    const PAGES: u64 = 8;

    /// The slots belong to the process, so the tests run one at a time.
    static SERIAL: Mutex<()> = Mutex::new(());

    /// A file whose pages are filled with their number; `None` where the file system has no direct I/O.
    fn file() -> Option<Arc<CacheFile>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let plain = File::create_new(&path).unwrap();
        for page in 0..PAGES {
            plain
                .write_all_at(&[page as u8; 16384], page * 16384)
                .unwrap();
        }
        plain.sync_all().unwrap();
        let direct = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(path);
        Some(Arc::new(CacheFile::of(Box::new(direct.ok()?))))
    }

    fn request<'a>(file: &'a Arc<CacheFile>, page: u64, overdue: &'a Arc<Overdue>) -> Request<'a> {
        Request {
            file,
            offset: page * 16384,
            bytes: 16384,
            bound: Duration::from_secs(60),
            overdue,
        }
    }

    #[test]
    fn pages_are_read_by_many_threads() {
        let _serial = SERIAL.lock();
        let Some(file) = file() else { return };
        let overdue = Arc::new(Overdue::new());
        std::thread::scope(|scope| {
            for thread in 0..64 {
                let (file, overdue) = (&file, &overdue);
                scope.spawn(move || {
                    for n in 0..200 {
                        let page = (n + thread) % PAGES;
                        let all = |bytes: &[u8]| bytes.iter().all(|&byte| byte == page as u8);
                        match read(&request(file, page, overdue), all) {
                            Ok(right) => assert!(right),
                            Err(Unread::Busy) => {}
                            Err(other) => panic!("{other:?}"),
                        }
                    }
                });
            }
        });
        assert!(overdue.answers() && overdue.given_up.get() == 0);
        assert!(crate::common::memory::bounce_bytes() >= 16384);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let _serial = SERIAL.lock();
        let Some(file) = file() else { return };
        let overdue = Arc::new(Overdue::new());
        let beyond = read(&request(&file, PAGES, &overdue), <[u8]>::len);
        assert!(matches!(beyond, Err(Unread::Failed(_))), "{beyond:?}");
        let closed: Box<dyn Storage> = Box::new(Closed);
        let closed = Arc::new(CacheFile::of(closed));
        let closed = request(&closed, 0, &overdue);
        assert!(matches!(read(&closed, <[u8]>::len), Err(Unread::Failed(_))));
        let crooked = Request {
            offset: 1,
            ..request(&file, 0, &overdue)
        };
        assert!(read(&crooked, <[u8]>::len).is_err());
        assert!(overdue.answers());
    }

    /// With a bound of zero most reads complete in time. When one does not, its slot must become free again later, and its
    /// late completion must not be mistaken for that of another read.
    #[test]
    fn late_answers_are_not_those_of_later_reads() {
        let _serial = SERIAL.lock();
        let Some(file) = file() else { return };
        let overdue = Arc::new(Overdue::new());
        for n in 0..2000 {
            let page = n % PAGES;
            let at_once = Request {
                bound: Duration::ZERO,
                ..request(&file, page, &overdue)
            };
            let right = |bytes: &[u8]| bytes.iter().all(|&byte| byte == page as u8);
            match read(&at_once, right) {
                Ok(right) => assert!(right),
                Err(Unread::Overdue | Unread::Busy) => {}
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(
            overdue.given_up.get() > 0,
            "every read was answered at once"
        );
        let until = Instant::now() + Duration::from_secs(60);
        while overdue.unanswered.load(Ordering::Acquire) > 0 {
            assert!(Instant::now() < until, "{}", overdue.describe());
            assert!(!overdue.answers());
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(!overdue.answers(), "it rests");
        assert!(overdue.describe().contains("is read from again in"));
        overdue.rests_until.store(1, Ordering::Release);
        while overdue.now() < 2 {}
        assert!(overdue.answers() && overdue.describe().is_empty());
    }

    /// Runs the submitter thread while `body` runs.
    fn with_submitter<R>(overdue: &Arc<Overdue>, body: impl FnOnce() -> R) -> R {
        overdue.submissions.serve();
        std::thread::scope(|scope| {
            scope.spawn(|| overdue.submissions.work());
            let result = body();
            overdue.submissions.stop();
            result
        })
    }

    #[test]
    fn beyond_half_of_the_requests_reads_are_handed_over() {
        let _serial = SERIAL.lock();
        let Some(file) = file() else { return };
        let overdue = Arc::new(Overdue::new());
        overdue.submissions.set_slots(Some(4));
        let right = |page: u8| move |bytes: &[u8]| bytes.iter().all(|&byte| byte == page);
        with_submitter(&overdue, || {
            for busy in 0..4 {
                assert!(read(&request(&file, 3, &overdue), right(3)).unwrap());
                assert_eq!(overdue.submissions.handed_over(), u64::from(busy >= 2));
                if busy == 2 {
                    break;
                }
                overdue.submissions.begin();
                overdue.submissions.submitted();
            }
        });
        assert_eq!(overdue.submissions.under_way(), 2);
        // A caller that submits on its own is rejected.
        assert!(Counted::begin(&overdue).is_none());
        assert_eq!(overdue.submissions.busy.get(), 1);
        overdue.submissions.end();
        let counted = Counted::begin(&overdue).unwrap();
        assert!(Counted::begin(&overdue).is_none());
        drop(counted);
        assert_eq!(overdue.submissions.under_way(), 1);
    }

    /// Readers do not wait for a blocked submitter thread and keep off its slot's memory. Its read completes eventually.
    #[test]
    fn a_thread_that_is_caught_is_not_waited_for() {
        let _serial = SERIAL.lock();
        let Some(file) = file() else { return };
        let overdue = Arc::new(Overdue::new());
        overdue.submissions.set_slots(Some(1)); // half of that is none
        overdue.submissions.serve();
        let soon = |page| Request {
            bound: Duration::from_millis(300),
            ..request(&file, page, &overdue)
        };
        std::thread::scope(|scope| {
            let caught = scope.spawn(|| read(&soon(1), <[u8]>::len));
            // From here on the submitter behaves as if the kernel blocked it with this order.
            let order = overdue.submissions.next().unwrap();
            let behind = scope.spawn(|| read(&soon(2), <[u8]>::len));
            assert!(matches!(caught.join().unwrap(), Err(Unread::Overdue)));
            assert!(matches!(behind.join().unwrap(), Err(Unread::Overdue)));
            assert_eq!(overdue.given_up.get(), 2);
            assert_eq!(overdue.unanswered.load(Ordering::Acquire), 1);
            assert_eq!(overdue.submissions.under_way(), 1);
            assert!(!overdue.answers());
            collect_answers();
            assert_eq!(overdue.unanswered.load(Ordering::Acquire), 1);
            overdue.submissions.submit_for(&order);
        });
        let until = Instant::now() + Duration::from_secs(60);
        while overdue.unanswered.load(Ordering::Acquire) > 0 {
            assert!(Instant::now() < until, "{}", overdue.describe());
            collect_answers();
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(overdue.submissions.under_way(), 0);
        overdue.submissions.stop();
        with_submitter(&overdue, || {
            assert!(read(&request(&file, 2, &overdue), |bytes| bytes[0] == 2).unwrap());
        });
    }

    #[test]
    fn a_slot_is_lent_to_one_at_a_time() {
        let _serial = SERIAL.lock();
        let lendable = MAX_SLOTS - KEPT_BACK;
        let lent: Vec<LentSlot> = (0..lendable).map(|_| lend(16384).unwrap()).collect();
        assert!(lend(16384).is_none());
        let mut starts: Vec<_> = lent.iter().map(LentSlot::as_ptr).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), lendable);
        // The reserved slots remain available to waiting readers.
        assert!(wait_for_slot().is_some());
        drop(lent);
        assert!(lend(16384).is_some());
        // Slots used since the previous call keep their memory. Other tests use the first slots.
        let last = || SLOTS[MAX_SLOTS - 1].0.lock();
        assert!(last().used);
        give_idle_memory_back();
        assert!(!last().used);
        give_idle_memory_back();
        assert!(last().memory.bytes().is_empty());
    }

    #[test]
    fn a_disk_that_often_does_not_answer_rests_longer() {
        let overdue = Overdue::new();
        for rest in [1000, 2000, 4000] {
            overdue.give_up();
            overdue.give_up();
            assert!(!overdue.answers());
            overdue.answered();
            assert!(overdue.describe().starts_with("1 reads"));
            overdue.answered();
            assert_eq!(overdue.rest.load(Ordering::Relaxed), rest);
        }
        assert_eq!(overdue.given_up.get(), 6);
    }
}
