//! Who may submit a read to a device, so that nobody who waits for a page is caught in the kernel.
//!
//! `io_submit` does not return while the disk has no free request, and a disk that hangs has none once its requests are all
//! under way. `RWF_NOWAIT` alone does not help: it keeps the caller from waiting for the lock of the file, which a write may
//! hold, but ext4, XFS and whatever else goes through iomap do not pass it on to the block layer (seen on 6.18, in
//! `blk_mq_get_tag`; a block device itself answers EAGAIN).
//!
//! So what we have under way at a device is counted, and a thread that waits for a page submits its read itself only while
//! that is less than half of the requests that the disk has ([`request_slots`]). Beyond that, or where the kernel would have
//! waited (EAGAIN), it hands the read to the device's [`Submitter`], a thread of ours that may be caught instead, and waits for it
//! no longer than for the disk. Somebody who submits by himself, as a server does, is turned away instead.
//!
//! Others use the same disk, so its requests may be taken although we have few: then no more than [`MOST_SUBMITTING`]
//! threads are caught at a time.
//!
//! Locks: the orders, then a handover; nothing else under either.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::directness::reads_without_waiting;
use super::file::CacheFile;
use super::kernel::{Destination, MOST_SLOTS, submit};
use crate::statistics::{Counter, Padded};

/// Threads that submit to a device by themselves at the same time.
const MOST_SUBMITTING: u64 = 4;
/// Under way at most, for a read to be submitted by whoever wants it, where it is not known how many requests the disk has: a
/// quarter of what the smallest have.
const UNKNOWN_LIMIT: u32 = 8;
/// Of a write, what is likely to be one request of the disk.
const WRITE_PIECE: usize = 128 << 10;

/// Requests of the disk that a write of so many bytes is likely to be.
pub(crate) fn requests(bytes: usize) -> usize {
    bytes.div_ceil(WRITE_PIECE)
}

const ONE: u64 = 1;
const SUBMITTING: u64 = 1 << 32;

/// What is under way at a device.
///
/// `state` is all that its exchanges tell each other: each is the pair of the one before it (`AcqRel`). `limit`, `slots` and
/// `without_flag` stand for themselves: `Relaxed`.
pub(crate) struct Submissions {
    /// Requests of ours under way in the low half, threads that submit one by themselves just now in the high half.
    state: AtomicU64,
    /// Requests of ours under way from which on nobody submits by himself.
    limit: AtomicU32,
    /// Requests that the disk has; 0: not known.
    pub slots: AtomicU32,
    /// The file system refuses `RWF_NOWAIT`, or does not read with it.
    without_flag: AtomicBool,
    /// Reads that were not made because the disk could take no more just then.
    pub busy: Counter,
    /// Reads that the device's thread was to submit.
    handed_over: Counter,
    orders: Mutex<Orders>,
    news: Condvar,
}

struct Orders {
    waiting: VecDeque<Order>,
    /// There is a thread that takes them.
    served: bool,
}

/// A read that somebody wants submitted.
pub(crate) struct Order {
    pub destination: Destination,
    pub slot: usize,
    /// Keeps the descriptor open.
    pub _file: Arc<CacheFile>,
}

impl Submissions {
    pub fn new() -> Submissions {
        Submissions {
            state: AtomicU64::new(0),
            limit: AtomicU32::new(UNKNOWN_LIMIT),
            slots: AtomicU32::new(0),
            without_flag: AtomicBool::new(false),
            busy: Counter::default(),
            handed_over: Counter::default(),
            orders: Mutex::new(Orders {
                waiting: VecDeque::new(),
                served: false,
            }),
            news: Condvar::new(),
        }
    }

    /// The file was opened.
    pub fn begin_with(&self, file: BorrowedFd<'_>) {
        self.set_slots(request_slots(file));
        let without = !reads_without_waiting(file);
        self.without_flag.store(without, Ordering::Relaxed);
    }

    pub fn set_slots(&self, slots: Option<u32>) {
        self.slots.store(slots.unwrap_or(0), Ordering::Relaxed);
        let limit = slots.map_or(UNKNOWN_LIMIT, |slots| slots / 2);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Flags for a request that must not wait for others in the kernel.
    pub fn flags(&self) -> u32 {
        if self.without_flag.load(Ordering::Relaxed) {
            0
        } else {
            libc::RWF_NOWAIT as u32
        }
    }

    /// The file system does not know the flag.
    pub fn leave_flag_out(&self) {
        self.without_flag.store(true, Ordering::Relaxed);
    }

    /// One more read is under way, until [`end`](Submissions::end). Whether the caller may submit it, and then says
    /// [`submitted`](Submissions::submitted).
    pub fn begin(&self) -> bool {
        let before = self.state.fetch_add(ONE | SUBMITTING, Ordering::AcqRel);
        let few = (before as u32) < self.limit.load(Ordering::Relaxed);
        let alone = before >> 32 < MOST_SUBMITTING;
        if !(few && alone) {
            self.submitted();
        }
        few && alone
    }

    pub fn submitted(&self) {
        self.state.fetch_sub(SUBMITTING, Ordering::AcqRel);
    }

    pub fn end(&self) {
        self.state.fetch_sub(ONE, Ordering::AcqRel);
    }

    /// Counts a write while it is made.
    pub fn during_write<R>(&self, bytes: usize, write: impl FnOnce() -> R) -> R {
        self.begin_write(bytes);
        let result = write();
        self.end_write(bytes);
        result
    }

    /// A write of so many bytes is under way, until [`end_write`](Submissions::end_write).
    pub fn begin_write(&self, bytes: usize) {
        self.state
            .fetch_add(requests(bytes) as u64, Ordering::AcqRel);
    }

    /// A write that was begun with as many bytes has landed.
    pub fn end_write(&self, bytes: usize) {
        self.state
            .fetch_sub(requests(bytes) as u64, Ordering::AcqRel);
    }

    /// Requests that writes may have under way: half of what is ours, so that reads are not turned away for them.
    pub fn most_of_writes(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize / 2
    }

    /// Requests of ours under way.
    #[cfg(test)]
    pub fn under_way(&self) -> u32 {
        self.state.load(Ordering::Acquire) as u32
    }

    /// Has a read submitted by the device's thread, and waits for that. Gives the order back if there is no such thread.
    pub fn hand_over(&self, order: Order, until: Instant) -> Result<Handed, Order> {
        let slot = order.slot;
        let handover = &HANDOVERS[slot].0;
        {
            let mut orders = self.orders.lock();
            if !orders.served {
                return Err(order);
            }
            *handover.stage.lock() = Stage::Waiting;
            orders.waiting.push_back(order);
        }
        self.handed_over.add(1);
        self.news.notify_one();
        let mut stage = handover.stage.lock();
        while *stage == Stage::Waiting
            && !handover.changed.wait_until(&mut stage, until).timed_out()
        {}
        let stage_then = *stage;
        drop(stage);
        Ok(match stage_then {
            Stage::Submitted => Handed::Submitted,
            Stage::Refused(errno) => Handed::Refused(errno),
            Stage::Waiting => self.withdraw(slot),
        })
    }

    /// Takes an order back, unless it was taken.
    fn withdraw(&self, slot: usize) -> Handed {
        let mut orders = self.orders.lock();
        let at = orders.waiting.iter().position(|order| order.slot == slot);
        match at.and_then(|at| orders.waiting.remove(at)) {
            Some(_) => Handed::Withdrawn,
            None => Handed::Caught,
        }
    }

    /// Reads that were handed over.
    pub fn handed_over(&self) -> u64 {
        self.handed_over.get()
    }

    pub fn next(&self) -> Option<Order> {
        let mut orders = self.orders.lock();
        loop {
            if let Some(order) = orders.waiting.pop_front() {
                return Some(order);
            }
            if !orders.served {
                return None;
            }
            self.news.wait(&mut orders);
        }
    }

    /// There will be a thread that takes orders.
    pub fn serve(&self) {
        let mut orders = self.orders.lock();
        orders.waiting.reserve(MOST_SLOTS);
        orders.served = true;
    }

    /// Ends the thread, once it has submitted what was ordered.
    pub fn stop(&self) {
        self.orders.lock().served = false;
        self.news.notify_all();
    }

    /// Body of the thread.
    pub fn work(&self) {
        while let Some(order) = self.next() {
            self.submit_for(&order);
        }
    }

    /// It may wait as long as the disk likes.
    pub fn submit_for(&self, order: &Order) {
        let stage = match submit(&order.destination, 0) {
            Ok(()) => Stage::Submitted,
            Err(error) => Stage::Refused(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let handover = &HANDOVERS[order.slot].0;
        *handover.stage.lock() = stage;
        handover.changed.notify_one();
    }

    /// For people: what limits reads of the device; empty if nothing is special.
    pub fn describe(&self) -> &'static str {
        if self.without_flag.load(Ordering::Relaxed) {
            "; its file system does not read with RWF_NOWAIT"
        } else {
            ""
        }
    }
}

/// What became of an order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    Submitted,
    /// With this errno.
    Refused(i32),
    /// Not in time, and nobody will submit it.
    Withdrawn,
    /// Not in time: the thread is caught with it.
    Caught,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Waiting,
    Submitted,
    Refused(i32),
}

/// Between whoever reads into a slot and the thread that submits.
struct Handover {
    stage: Mutex<Stage>,
    changed: Condvar,
}

static HANDOVERS: [Padded<Handover>; MOST_SLOTS] = [const {
    Padded(Handover {
        stage: Mutex::new(Stage::Submitted),
        changed: Condvar::new(),
    })
}; MOST_SLOTS];

/// Of a slot's last order: `Some(true)` if it was submitted, `Some(false)` if it was refused, `None` if neither yet.
pub(crate) fn was_submitted(slot: usize) -> Option<bool> {
    match *HANDOVERS[slot].0.stage.lock() {
        Stage::Waiting => None,
        Stage::Submitted => Some(true),
        Stage::Refused(_) => Some(false),
    }
}

/// Requests that the disk below a file can have under way, as far as the kernel tells: the least of all disks that it lies on.
fn request_slots(file: BorrowedFd<'_>) -> Option<u32> {
    let device = rustix::fs::fstat(file).ok()?.st_dev;
    let (major, minor) = (libc::major(device), libc::minor(device));
    let of_disk = |major, minor| {
        let link = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
        slots_of_disk(&link.canonicalize().ok()?, 0)
    };
    of_disk(major, minor)
        .or_else(|| number_in(format!("/sys/fs/fuse/connections/{minor}/max_background").as_ref()))
        .or_else(|| {
            // Some file systems have numbers of their own: the mount tells the disk.
            let source = source_of_mount(file)?;
            let disk = source.metadata().ok()?.rdev();
            of_disk(libc::major(disk), libc::minor(disk))
        })
        .filter(|slots| *slots > 0)
}

fn number_in(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Of a disk, or a partition, in `/sys`; of what it is made of, if that is so.
fn slots_of_disk(folder: &Path, depth: u32) -> Option<u32> {
    const DEEPEST: u32 = 8;
    let below: Vec<PathBuf> = std::fs::read_dir(folder.join("slaves"))
        .map(|found| found.flatten().map(|entry| entry.path()).collect())
        .unwrap_or_default();
    if below.is_empty() || depth == DEEPEST {
        return number_in(&folder.join("queue/nr_requests"))
            .or_else(|| number_in(&folder.parent()?.join("queue/nr_requests")));
    }
    below
        .iter()
        .map(|disk| slots_of_disk(&disk.canonicalize().ok()?, depth + 1))
        .min()?
}

/// The block device that the file system of a file is mounted from.
fn source_of_mount(file: BorrowedFd<'_>) -> Option<PathBuf> {
    let facts = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", file.as_raw_fd())).ok()?;
    let mount = facts
        .lines()
        .find_map(|line| line.strip_prefix("mnt_id:"))?
        .trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let line = mounts
        .lines()
        .find(|line| line.split(' ').next() == Some(mount))?;
    let source = line.split(" - ").nth(1)?.split(' ').nth(1)?;
    source.starts_with("/dev/").then(|| PathBuf::from(source))
}

/// Whether the kernel would have waited for something.
pub(crate) fn would_wait(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

/// Whether a request may have been refused for its flag.
pub(crate) fn is_flag_refused(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::EINVAL)
}
