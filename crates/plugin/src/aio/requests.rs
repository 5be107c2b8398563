//! Requests under way, by their address, and the contexts whose completions are seen.

use std::collections::HashMap;
use std::ffi::c_int;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use extension::{Located, ReadTicket};
use parking_lot::Mutex;

use crate::coherence::{self, Target, Write};
use crate::switch::{self, Pending};

/// The kernel's `struct iocb`, as libaio lays it out.
#[repr(C)]
pub struct Iocb {
    pub data: u64,
    pub key: u32,
    pub rw_flags: u32,
    pub opcode: i16,
    pub priority: i16,
    pub fd: c_int,
    pub buffer: u64,
    pub length: u64,
    pub offset: i64,
    pub reserved: u64,
    pub flags: u32,
    pub event_fd: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
pub struct IoEvent {
    pub data: u64,
    pub request: u64,
    pub result: i64,
    pub result2: i64,
}

pub const PREAD: i16 = 0;
pub const PWRITE: i16 = 1;
pub const PWRITEV: i16 = 8;

/// Requests followed at the same time; the servers have a few thousand slots at most.
pub const MOST_REQUESTS: usize = 1 << 16;

pub enum Purpose {
    /// Reads from a cache file instead of the data file.
    Redirected {
        target: Target,
        located: Located,
        /// If it goes into memory that the extension lends.
        tag: Option<Tag>,
    },
    /// Reads from the data file, to be offered.
    Missed {
        target: Target,
        ticket: ReadTicket,
        started: Instant,
    },
    /// Writes to the data file.
    Write(Write),
}

pub struct Request {
    pub purpose: Purpose,
    pub context: usize,
    /// When the kernel had taken it, for reads that may be given up: before, nobody but the submitter may touch it.
    pub submitted: Option<Instant>,
    /// As the server has set them.
    pub words: Words,
    pub length: usize,
    pub epoch: u32,
    pub pending: Pending,
}

/// What is changed in a request that is pointed at a cache file.
#[derive(Clone, Copy)]
pub struct Words {
    pub data: u64,
    pub rw_flags: u32,
    pub fd: c_int,
    pub buffer: u64,
    pub offset: i64,
}

impl Words {
    pub fn of(iocb: &Iocb) -> Words {
        Words {
            data: iocb.data,
            rw_flags: iocb.rw_flags,
            fd: iocb.fd,
            buffer: iocb.buffer,
            offset: iocb.offset,
        }
    }

    pub fn restore(self, iocb: &mut Iocb) {
        (iocb.data, iocb.rw_flags, iocb.fd) = (self.data, self.rw_flags, self.fd);
        (iocb.buffer, iocb.offset) = (self.buffer, self.offset);
    }
}

pub const SHARDS: usize = 32;
/// Requests of a shard for which there is room from the start.
pub const LIKELY_REQUESTS: usize = 14;

pub static REQUESTS: LazyLock<[Mutex<HashMap<usize, Request>>; SHARDS]> =
    LazyLock::new(|| std::array::from_fn(|_| Mutex::new(HashMap::with_capacity(LIKELY_REQUESTS))));

pub fn shard(request: usize) -> &'static Mutex<HashMap<usize, Request>> {
    &REQUESTS[(request >> 6).wrapping_mul(0x9E37_79B9) >> 7 & (SHARDS - 1)]
}

pub const CONTEXTS: usize = 512;
pub static ARMED: [AtomicUsize; CONTEXTS] = [const { AtomicUsize::new(0) }; CONTEXTS];

/// Forgets which contexts are harvested through the hook.
pub fn disarm_all() {
    LazyLock::force(&REQUESTS);
    for context in &ARMED {
        context.store(0, Ordering::SeqCst);
    }
}

pub fn is_armed(context: usize) -> bool {
    number_of(context).is_some()
}

/// Where an armed context stands among them.
pub fn number_of(context: usize) -> Option<usize> {
    for (number, slot) in ARMED.iter().enumerate() {
        match slot.load(Ordering::Acquire) {
            0 => return None,
            known if known == context => return Some(number),
            _ => {}
        }
    }
    None
}

/// A harvester is about to wait inside the hook: completions of this context will be seen.
pub fn entering_harvest(context: usize) {
    if !switch::mode().serves() || context == 0 || is_armed(context) {
        return;
    }
    for slot in &ARMED {
        match slot.compare_exchange(0, context, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => return,
            Err(known) if known == context => return,
            Err(_) => {}
        }
    }
}

/// Announces a request on a context whose completions are seen. The context is looked at again after the announcement:
/// from there on the hooks cannot be switched off without the request being waited for.
pub fn begin(context: usize) -> Option<Pending> {
    Pending::begin().filter(|_| is_armed(context))
}

/// Remembers a request until it is harvested; gives it back if there are too many.
pub fn follow(iocb: &Iocb, request: Request) -> Option<Request> {
    let key = std::ptr::from_ref(iocb) as usize;
    let mut shard = shard(key).lock();
    if shard.len() >= MOST_REQUESTS / SHARDS {
        return Some(request);
    }
    let left_over = shard.insert(key, request);
    drop(shard);
    if let Some(Request {
        purpose: Purpose::Write(write),
        ..
    }) = left_over
    {
        coherence::finish_write(write, None, None); // its completion passed unseen
    }
    None
}

pub fn take(request: usize) -> Option<Request> {
    shard(request).lock().remove(&request)
}

/// Memory of the request table, bytes.
pub fn memory_bytes() -> u64 {
    REQUESTS
        .iter()
        .map(|shard| (shard.lock().capacity() * (size_of::<Request>() + 16)) as u64)
        .sum()
}

/// No server's own word has this bit: the words are addresses.
pub const TAG: u64 = 1 << 63;

/// Tagged reads under way that are not abandoned.
pub static TAGGED: AtomicU32 = AtomicU32::new(0);

/// What stands in for the server's word in a read's request.
pub struct Tag(u64);

impl Tag {
    pub fn new() -> Tag {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        TAGGED.fetch_add(1, Ordering::SeqCst);
        Tag(TAG | NEXT.fetch_add(1, Ordering::Relaxed))
    }

    pub fn word(&self) -> u64 {
        self.0
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        TAGGED.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether it is a tag.
pub fn is_tag(word: u64) -> bool {
    word & TAG != 0
}

/// Whether a read may become overdue while a harvester waits.
pub fn expected() -> bool {
    TAGGED.load(Ordering::SeqCst) > 0
}
