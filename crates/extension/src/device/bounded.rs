//! Reads that are given up when the disk does not answer in time.
//!
//! A thread inside `pread` cannot leave it before the disk answers, and a disk that hangs may take half a minute. A read
//! with a bound is therefore submitted to the kernel's asynchronous I/O and waited for: not longer than the bound. What was
//! given up may still arrive, so such a read never goes into the caller's memory but into that of a *slot*, from where it
//! is copied. A slot whose read was given up is left alone, with its memory and the kernel's context, until the answer has
//! come. Slots belong to the process, so that closing an extension need not wait for a disk that hangs either. Somebody who
//! reads by himself asynchronously is lent a slot's memory for that ([`lend`]).
//!
//! While answers are overdue, and for a while after ([`Overdue`]), nobody reads from the device: what it holds stays in
//! the directory and is there again when the disk is.
//!
//! To submit a read may take as long as the disk likes, too; who does it, and when: [`submission`].
//!
//! Only direct reads of a file are asynchronous to the kernel. Others are made as ever, without a bound.
//!
//! The lock of a slot is held by the thread that reads; nobody waits for it but for a moment, and only the leaves of
//! [`submission`] are locked under it.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::file::CacheFile;
use super::kernel::{
    Destination, Event, MOST_SLOTS, count_context, ring_bytes, submit, uncount_context,
};
use super::submission::{self, Handed, Order, Submissions, is_flag_refused, would_wait};
use crate::memory::{Bounce, add_bounce_bytes, page};
use crate::statistics::{Counter, Padded};

/// Slots that are never lent: whoever reads asynchronously must leave some to those who wait for a page.
const KEPT_BACK: usize = MOST_SLOTS / 4;
/// How long a reader waits for another one to leave a slot when all are taken.
const SLOT_WAIT: Duration = Duration::from_millis(5);
/// Rest of a device after its overdue answers have come: at first, and at most. It doubles each time unless the device has
/// worked for a while.
const FIRST_REST: u64 = 1000;
const LAST_REST: u64 = 60_000;
const WORKED_MILLIS: u64 = 120_000;
/// Slots are looked through for answers at most so often, milliseconds.
const LOOK_EVERY: u64 = 50;

/// Why a read with a bound brought nothing.
#[derive(Debug)]
pub(crate) enum Unread {
    /// Answers are overdue, this one or others.
    Overdue,
    /// All slots are taken, or the disk can take no more just now.
    Busy,
    /// The kernel has no asynchronous I/O for us, or not for this file.
    Unsupported,
    Failed(io::Error),
}

/// How a device stands with answers that are overdue. Times are milliseconds after its epoch.
///
/// `rest` and `looked` are `Relaxed`: older values rest or look a little longer or shorter. The exchanges of `unanswered`
/// (`AcqRel`) are the pair of its loads (`Acquire`), the store of `rests_until` in `begin_rest` (`Release`) that of its loads. A read that
/// slips in between the last answer and the rest which that begins does no harm.
pub(crate) struct Overdue {
    epoch: Instant,
    /// Reads that were given up and not answered yet.
    unanswered: AtomicU32,
    /// No reads before this.
    rests_until: AtomicU64,
    rest: AtomicU64,
    looked: AtomicU64,
    /// Reads given up since the device was opened.
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

    /// Whether the device may be read from. Looks for answers, now and then, when it may not.
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
        // Whoever fails here finds a newer time, or that the rest is over.
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
        if self.unanswered.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.begin_rest();
        }
    }

    fn begin_rest(&self) {
        let until = self.now() + self.rest.load(Ordering::Relaxed);
        self.rests_until.store(until.max(1), Ordering::Release);
    }

    /// For people; empty while the device answers in time.
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
    /// Of the kernel; 0: not set up.
    context: libc::c_ulong,
    memory: Bounce,
    /// Since memory was last given back.
    used: bool,
    state: State,
}

enum State {
    Free,
    /// There is a read into the slot's memory that nobody waits for any more; `handed`: the device's thread submits it, or
    /// has done so.
    GivenUp {
        overdue: Arc<Overdue>,
        handed: bool,
    },
    /// Somebody else reads into it.
    Lent,
}

static SLOTS: [Padded<Mutex<Slot>>; MOST_SLOTS] = [const {
    Padded(Mutex::new(Slot {
        context: 0,
        memory: Bounce::NONE,
        used: false,
        state: State::Free,
    }))
}; MOST_SLOTS];

/// Why a read could not be submitted.
fn refused(errno: i32) -> Unread {
    match errno {
        libc::EAGAIN => Unread::Busy,
        libc::EINVAL | libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM => Unread::Unsupported,
        _ => Unread::Failed(io::Error::from_raw_os_error(errno)),
    }
}

impl Slot {
    /// Whether the slot can be used: there is no read under way into it.
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
            // SAFETY: asks for a context for one request; the kernel writes the context's number.
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

    /// The result of the read under way; `None` if it does not come in time.
    fn wait(&self, at_most: Duration) -> io::Result<Option<i64>> {
        let until = Instant::now() + at_most;
        let mut left = at_most;
        loop {
            let mut event = Event::default();
            let mut time = libc::timespec {
                tv_sec: left.as_secs() as libc::time_t,
                tv_nsec: left.subsec_nanos().into(),
            };
            // SAFETY: room for the one event that is asked for.
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

/// Looks whether reads that were given up have been answered.
fn collect_answers() {
    for (number, slot) in SLOTS.iter().enumerate() {
        if let Some(mut slot) = slot.0.try_lock() {
            slot.is_free(number);
        }
    }
}

/// A free slot in a range, with its number, looked for from this one on.
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

/// The memory of a slot, for a read that somebody else makes.
pub(crate) struct LentSlot {
    number: u32,
    bytes: u32,
    start: *mut u8,
}

// SAFETY: the slot's memory belongs to whoever has this value.
unsafe impl Send for LentSlot {}
// SAFETY: a shared reference only lets the memory be read, by whoever knows that nothing writes to it.
unsafe impl Sync for LentSlot {}

impl LentSlot {
    pub fn as_ptr(&self) -> *mut u8 {
        self.start
    }

    /// # Safety
    /// No read into the memory may be under way.
    pub unsafe fn bytes(&self) -> &[u8] {
        // SAFETY: the slot's memory stays as it is while it is lent; nobody writes to it, says the caller.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes as usize) }
    }

    /// To be filled by whoever has it, who has submitted no read into it.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the slot's memory belongs to whoever has this value, which is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes as usize) }
    }
}

impl Drop for LentSlot {
    /// To be dropped only when no read into the memory is under way.
    fn drop(&mut self) {
        SLOTS[self.number as usize].0.lock().state = State::Free;
    }
}

/// Gives the memory back of all slots that were not used since this was last called; it is taken anew when it is needed. A burst of
/// reads takes the memory of 256 pages.
pub fn give_idle_memory_back() {
    give_memory_back(|slot| std::mem::take(&mut slot.used));
}

/// Gives the memory of all slots back that are not in use.
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

/// Lends the memory of a slot, if one is free: the first one, so that few have memory.
pub(crate) fn lend(bytes: usize) -> Option<LentSlot> {
    let (number, mut slot) = free_slot(KEPT_BACK..MOST_SLOTS, KEPT_BACK)?;
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

/// A read of somebody who submits by himself, counted as under way at the device as long as it is.
pub(crate) struct Counted {
    overdue: Arc<Overdue>,
    submitting: bool,
}

impl Counted {
    /// `None` if the disk may have no free request, so that whoever submits the read would wait.
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

    /// The kernel has taken it.
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

/// A read that was given up by somebody who was lent the memory for it: to be kept until it was answered.
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

/// Where this thread begins to look for a slot.
fn home() -> usize {
    // Relaxed: to begin at the same slot does no harm.
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static HOME: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    HOME.try_with(|home| *home).unwrap_or(0)
}

/// Where a read with a bound goes.
pub(crate) struct Request<'a> {
    pub file: &'a Arc<CacheFile>,
    /// A multiple of what the file needs for direct reads, as is the length.
    pub offset: u64,
    pub bytes: usize,
    pub bound: Duration,
    pub overdue: &'a Arc<Overdue>,
}

/// A slot for a read that is waited for.
fn wait_for_slot() -> Option<(usize, MutexGuard<'static, Slot>)> {
    let number = home() % KEPT_BACK;
    let free =
        free_slot(0..KEPT_BACK, number).or_else(|| free_slot(KEPT_BACK..MOST_SLOTS, KEPT_BACK));
    if free.is_some() {
        return free;
    }
    // One of those that others wait for in turn.
    let mut slot = SLOTS[number].0.try_lock_for(SLOT_WAIT)?;
    slot.is_free(number).then_some((number, slot))
}

/// A read on its way: how it came to the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Submitted {
    /// With these flags, by the thread that waits for it.
    Directly(u32),
    ByThread,
}

/// Why a read that was begun brought nothing.
enum Lost {
    /// Nothing is under way into the slot.
    Ended(Unread),
    /// The answer may still come; `handed` as in [`State::GivenUp`].
    Caught { handed: bool },
}

/// Reads into a slot and passes the bytes on. A read that comes short is an error.
pub(crate) fn read<R>(request: &Request<'_>, pass: impl FnOnce(&[u8]) -> R) -> Result<R, Unread> {
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

/// Has the read submitted, by this thread or by that of the device, and waits for it.
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
            // An answer that cannot be asked for is one that may still come.
            Ok(None) | Err(_) => Err(Lost::Caught { handed }),
        };
    }
}

/// Whether an answer may be another one without the flags with which the read was submitted.
fn flags_matter(how: Submitted, errno: i32) -> bool {
    matches!(how, Submitted::Directly(flags) if flags != 0)
        && (errno == libc::EAGAIN || is_flag_refused(errno))
}

/// What follows from a submission by this thread; `None`: the device's thread shall try it without flags.
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

/// Has the device's thread submit the read. Where there is none, as in an extension without threads, this one does.
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
            // Others, whose reads were taken, will find out that the disk does not answer.
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

    /// The slots are those of the process: one test at a time.
    static TURN: Mutex<()> = Mutex::new(());

    /// A file of pages that are filled with their number; `None` where files cannot be read directly.
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
        let _turn = TURN.lock();
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
        assert!(crate::memory::bounce_bytes() >= 16384);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let _turn = TURN.lock();
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

    /// A disk is too quick to be waited for no time at all, most of the time; when it is not, the slot must be found free
    /// again later and its late answer must not be taken for that of another read.
    #[test]
    fn late_answers_are_not_those_of_later_reads() {
        let _turn = TURN.lock();
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

    /// The thread that submits reads, while `body` runs.
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
        let _turn = TURN.lock();
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
        // Somebody who submits by himself is turned away.
        assert!(Counted::begin(&overdue).is_none());
        assert_eq!(overdue.submissions.busy.get(), 1);
        overdue.submissions.end();
        let counted = Counted::begin(&overdue).unwrap();
        assert!(Counted::begin(&overdue).is_none());
        drop(counted);
        assert_eq!(overdue.submissions.under_way(), 1);
    }

    /// Nobody waits for a thread that is caught in the kernel, nor takes its memory; what it was caught with is answered one day.
    #[test]
    fn a_thread_that_is_caught_is_not_waited_for() {
        let _turn = TURN.lock();
        let Some(file) = file() else { return };
        let overdue = Arc::new(Overdue::new());
        overdue.submissions.set_slots(Some(1)); // a half of that is none
        overdue.submissions.serve();
        let soon = |page| Request {
            bound: Duration::from_millis(300),
            ..request(&file, page, &overdue)
        };
        std::thread::scope(|scope| {
            let caught = scope.spawn(|| read(&soon(1), <[u8]>::len));
            // As if it were in the kernel with this one from here on.
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
        let _turn = TURN.lock();
        let lendable = MOST_SLOTS - KEPT_BACK;
        let lent: Vec<LentSlot> = (0..lendable).map(|_| lend(16384).unwrap()).collect();
        assert!(lend(16384).is_none());
        let mut starts: Vec<_> = lent.iter().map(LentSlot::as_ptr).collect();
        starts.sort_unstable();
        starts.dedup();
        assert_eq!(starts.len(), lendable);
        // There is room for those who wait all the same.
        assert!(wait_for_slot().is_some());
        drop(lent);
        assert!(lend(16384).is_some());
        // Slots that were used since the last time keep their memory. Other tests use the first ones.
        let last = || SLOTS[MOST_SLOTS - 1].0.lock();
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
