//! Decides which thread submits a read, so that no thread that waits for a page blocks inside the kernel.
//!
//! `io_submit` does not return while the disk has no free request. A hanging disk has none once all its requests are in
//! flight. `RWF_NOWAIT` alone does not help. It only avoids the wait for the file's lock, which a write may hold. ext4, XFS
//! and other iomap file systems do not pass it on to the block layer (seen on 6.18, in `blk_mq_get_tag`). A block device
//! itself answers EAGAIN.
//!
//! So the extension counts its requests in flight at each device. A waiting thread submits its own read only while that
//! count is less than half of the disk's requests ([`request_slots`]). Beyond that, or where the kernel would have blocked
//! (EAGAIN), it hands the read to the device's submitter thread ([`Submissions::work`]), which may block in its place. The
//! waiting thread waits for the submission and the disk no longer than its bound. A caller that submits on its own, such as
//! a server, is rejected instead.
//!
//! Other processes use the same disk, so its requests may be exhausted although this count is low. Then at most
//! [`MAX_SUBMITTING`] threads block at a time.
//!
//! Lock order: `orders`, then a handover; nothing else is locked under either.

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
use super::kernel::{Destination, MAX_SLOTS, submit};
use crate::common::statistics::{CachePadded, Counter};

/// Limit of threads that submit directly to a device at the same time.
const MAX_SUBMITTING: u64 = 4;
/// Limit for direct submission where the disk's number of requests is unknown: a quarter of what the smallest disks have.
const UNKNOWN_LIMIT: u32 = 8;
/// Bytes of a write that are likely to become one disk request.
const WRITE_PIECE: usize = 128 << 10;

/// Estimated disk requests of a write of this many bytes.
pub(crate) fn requests(bytes: usize) -> usize {
    bytes.div_ceil(WRITE_PIECE)
}

const ONE: u64 = 1;
const SUBMITTING: u64 = 1 << 32;

/// Requests in flight at a device, and the orders for its submitter thread.
///
/// `state` carries all information between its exchanges: each pairs with the previous one (`AcqRel`). `limit`, `slots` and
/// `without_flag` are independent values: `Relaxed`.
pub(crate) struct Submissions {
    /// Low half: our requests in flight. High half: threads that are just submitting a read directly.
    state: AtomicU64,
    /// From this number of our requests in flight on, reads go to the submitter thread.
    limit: AtomicU32,
    /// Requests of the disk; 0: unknown.
    pub slots: AtomicU32,
    /// The file system refuses `RWF_NOWAIT`, or does not read with it.
    without_flag: AtomicBool,
    /// Reads rejected because the disk had no request to spare.
    pub busy: Counter,
    /// Reads handed to the submitter thread.
    handed_over: Counter,
    orders: Mutex<Orders>,
    news: Condvar,
}

struct Orders {
    waiting: VecDeque<Order>,
    /// A submitter thread takes the orders.
    served: bool,
}

/// A read to be submitted by the submitter thread.
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

    /// Call when the file has been opened.
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

    /// Flags for a request that must not block in the kernel.
    pub fn flags(&self) -> u32 {
        if self.without_flag.load(Ordering::Relaxed) {
            0
        } else {
            libc::RWF_NOWAIT as u32
        }
    }

    /// Call when the file system rejects the flag.
    pub fn leave_flag_out(&self) {
        self.without_flag.store(true, Ordering::Relaxed);
    }

    /// Counts a read as in flight until [`end`](Submissions::end). Returns whether the caller may submit it. If so, it calls
    /// [`submitted`](Submissions::submitted) afterwards.
    pub fn begin(&self) -> bool {
        let before = self.state.fetch_add(ONE | SUBMITTING, Ordering::AcqRel);
        let few = (before as u32) < self.limit.load(Ordering::Relaxed);
        let alone = before >> 32 < MAX_SUBMITTING;
        if !(few && alone) {
            self.submitted();
        }
        few && alone
    }

    pub fn submitted(&self) {
        let before = self.state.fetch_sub(SUBMITTING, Ordering::AcqRel);
        debug_assert!(before >= SUBMITTING);
    }

    pub fn end(&self) {
        let before = self.state.fetch_sub(ONE, Ordering::AcqRel);
        debug_assert_ne!(before as u32, 0, "no request is in flight");
    }

    /// Counts a write as in flight while the closure runs.
    pub fn during_write<R>(&self, bytes: usize, write: impl FnOnce() -> R) -> R {
        self.begin_write(bytes);
        let result = write();
        self.end_write(bytes);
        result
    }

    /// Counts a write as in flight until [`end_write`](Submissions::end_write).
    pub fn begin_write(&self, bytes: usize) {
        self.state
            .fetch_add(requests(bytes) as u64, Ordering::AcqRel);
    }

    /// Ends a write that was begun with the same `bytes`.
    pub fn end_write(&self, bytes: usize) {
        let ended = requests(bytes) as u64;
        let before = self.state.fetch_sub(ended, Ordering::AcqRel);
        debug_assert!(ended <= u64::from(before as u32));
    }

    /// Limit of the requests of writes in flight: half of our share, so that writes do not cause reads to be rejected.
    pub fn max_writes(&self) -> usize {
        self.limit.load(Ordering::Relaxed) as usize / 2
    }

    /// Our requests in flight.
    #[cfg(test)]
    pub fn under_way(&self) -> u32 {
        self.state.load(Ordering::Acquire) as u32
    }

    /// Hands a read to the submitter thread and waits for its submission. Without such a thread, returns the order.
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

    /// Takes an order back, unless the submitter thread has already taken it.
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

    /// Accepts orders from now on. Call before the submitter thread starts.
    pub fn serve(&self) {
        let mut orders = self.orders.lock();
        orders.waiting.reserve(MAX_SLOTS);
        orders.served = true;
    }

    /// Ends the thread, once it has submitted the remaining orders.
    pub fn stop(&self) {
        self.orders.lock().served = false;
        self.news.notify_all();
    }

    /// Body of the submitter thread.
    pub fn work(&self) {
        while let Some(order) = self.next() {
            self.submit_for(&order);
        }
    }

    /// May block as long as the disk does.
    pub fn submit_for(&self, order: &Order) {
        let stage = match submit(&order.destination, 0) {
            Ok(()) => Stage::Submitted,
            Err(error) => Stage::Refused(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        let handover = &HANDOVERS[order.slot].0;
        *handover.stage.lock() = stage;
        handover.changed.notify_one();
    }

    /// Status text for administrators: limits of the device's reads; empty if there are none.
    pub fn describe(&self) -> &'static str {
        if self.without_flag.load(Ordering::Relaxed) {
            "; its file system does not read with RWF_NOWAIT"
        } else {
            ""
        }
    }
}

/// Outcome of an order.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    Submitted,
    /// With this errno.
    Refused(i32),
    /// Not submitted in time, and withdrawn.
    Withdrawn,
    /// Not submitted in time: the submitter thread is blocked with it.
    Caught,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Waiting,
    Submitted,
    Refused(i32),
}

/// Shared by the reader of a slot and the submitter thread.
struct Handover {
    stage: Mutex<Stage>,
    changed: Condvar,
}

static HANDOVERS: [CachePadded<Handover>; MAX_SLOTS] = [const {
    CachePadded(Handover {
        stage: Mutex::new(Stage::Submitted),
        changed: Condvar::new(),
    })
}; MAX_SLOTS];

/// State of a slot's last order: `Some(true)`: submitted; `Some(false)`: refused; `None`: still waiting.
pub(crate) fn was_submitted(slot: usize) -> Option<bool> {
    match *HANDOVERS[slot].0.stage.lock() {
        Stage::Waiting => None,
        Stage::Submitted => Some(true),
        Stage::Refused(_) => Some(false),
    }
}

/// Requests that the disk under a file can have in flight, according to the kernel; the minimum if there are several disks.
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
            // Some file systems use private device numbers. The mount names the disk.
            let source = source_of_mount(file)?;
            let disk = source.metadata().ok()?.rdev();
            of_disk(libc::major(disk), libc::minor(disk))
        })
        .filter(|slots| *slots > 0)
}

fn number_in(path: &Path) -> Option<u32> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Requests of a disk or partition in `/sys`; for a stacked device, the minimum of the devices below it.
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

/// The block device that the file's file system is mounted from.
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

/// Whether the kernel would have blocked.
pub(crate) fn would_wait(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EAGAIN)
}

/// Whether the flag may be the reason for this refusal.
pub(crate) fn is_flag_refused(errno: i32) -> bool {
    matches!(errno, libc::EOPNOTSUPP | libc::EINVAL)
}
