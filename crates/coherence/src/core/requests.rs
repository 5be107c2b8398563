//! Requests in flight, by address, and the contexts whose completions are observed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_int;
use std::hash::BuildHasherDefault;
use std::sync::OnceLock;

use cache::{GivenUp, Located, NumberHasher, ReadTicket};

use crate::core::page_request::{PageRequest, Write};
use crate::platform::sync::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Instant, Mutex, Ordering,
};
use crate::switch::control_group::Timed;
use crate::switch::{Pending, Switch};

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

/// The kernel's `struct iovec`.
#[repr(C)]
pub struct Vector {
    pub base: u64,
    pub length: usize,
}

/// Bytes that a vector of buffers describes.
///
/// # Safety
/// `vector` must point to `count` valid entries.
#[inline]
pub unsafe fn vector_bytes(vector: *const Vector, count: c_int) -> usize {
    let count = usize::try_from(count).unwrap_or(0);
    if vector.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(vector, count) }
        .iter()
        .fold(0usize, |sum, entry| sum.saturating_add(entry.length))
}

pub const PREAD: i16 = 0;
pub const PWRITE: i16 = 1;
pub const PWRITEV: i16 = 8;

/// Maximum number of tracked requests. The servers have a few thousand slots at most.
pub const MAX_REQUESTS: usize = 1 << 16;

pub enum Purpose {
    /// Reads from a cache file instead of the data file.
    Redirected {
        target: PageRequest,
        located: Located,
        /// Given if the read goes into memory that the extension lends.
        tag: Option<Tag>,
    },
    /// Reads from the data file. The page is offered for admission if there is a ticket.
    Missed {
        target: PageRequest,
        ticket: Option<ReadTicket>,
        started: Instant,
    },
    /// Writes to the data file.
    Write(Write),
}

pub struct Request {
    pub purpose: Purpose,
    pub context: usize,
    /// For reads that may be given up: when the kernel accepted the request. Until then only the submitter may touch it.
    /// For writes whose end may pass unobserved: when the write began.
    pub submitted: Option<Instant>,
    /// Timing of a read for the control group. Boxed, because most reads have none and a request is copied several times.
    pub timed: Option<Box<Timed>>,
    /// The server's values.
    pub words: Words,
    /// Length in bytes. The kernel transfers less than 2 GiB at a time.
    pub length: u32,
    /// Epoch of the extension; 0 for a write that began without one.
    pub epoch: u32,
    /// `None`: the completion may pass unobserved, so no thread waits for it.
    pub pending: Option<Pending>,
}

/// Up to this size a request is copied in one step.
#[cfg(not(checker))]
const _: () = assert!(size_of::<(usize, Request)>() <= 256);

impl Request {
    /// The stored length of a request of this number of bytes.
    #[inline]
    pub fn length_of(bytes: u64) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    #[inline]
    pub fn timed(&self) -> Option<Timed> {
        self.timed.as_deref().copied()
    }
}

/// The fields of a request that redirection to a cache file changes.
#[derive(Clone, Copy)]
pub struct Words {
    pub data: u64,
    pub rw_flags: u32,
    pub fd: c_int,
    pub buffer: u64,
    pub length: u64,
    pub offset: i64,
}

impl Words {
    #[inline]
    pub fn of(iocb: &Iocb) -> Words {
        Words {
            data: iocb.data,
            rw_flags: iocb.rw_flags,
            fd: iocb.fd,
            buffer: iocb.buffer,
            length: iocb.length,
            offset: iocb.offset,
        }
    }

    #[inline]
    pub fn restore(self, iocb: &mut Iocb) {
        (iocb.data, iocb.rw_flags, iocb.fd) = (self.data, self.rw_flags, self.fd);
        (iocb.buffer, iocb.length, iocb.offset) = (self.buffer, self.length, self.offset);
    }
}

const SHARDS: usize = if cfg!(checker) { 2 } else { 32 };
/// Requests for which a shard reserves memory in advance.
const LIKELY_REQUESTS: usize = 14;
/// Maximum number of contexts whose completions are observed.
pub const CONTEXTS: usize = if cfg!(checker) { 2 } else { 512 };

type Table<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;
type Shard = Mutex<Table<usize, Request>>;

/// All requests in flight.
pub struct Requests {
    shards: [Shard; SHARDS],
    /// The armed contexts, without a gap.
    armed: [AtomicUsize; CONTEXTS],
    /// Tagged reads in flight that are not abandoned.
    tagged: AtomicU32,
    /// `Relaxed`: only uniqueness matters.
    next_tag: AtomicU64,
    /// Guards no other memory: `Relaxed` everywhere.
    seen: AtomicBool,
    pub abandoned: Mutex<Table<u64, Abandoned>>,
    /// Time of the last search for overdue reads, by the index of the armed context. The last slot is for all contexts that are no
    /// longer armed because the extension was switched on or off since. `Relaxed` everywhere: an extra or a skipped search does
    /// no harm.
    pub searched_at: [AtomicU64; CONTEXTS + 1],
    /// The origin of these times.
    began: OnceLock<Instant>,
}

/// A read that was answered to the server, but not by the cache disk. Hooks stay on until the disk answers.
pub struct Abandoned {
    pub _given_up: GivenUp,
    pub _pending: Option<Pending>,
}

impl Requests {
    /// Creates an empty table without armed contexts.
    pub(crate) const fn new() -> Requests {
        Requests {
            shards: [const { Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())) }; SHARDS],
            armed: [const { AtomicUsize::new(0) }; CONTEXTS],
            tagged: AtomicU32::new(0),
            next_tag: AtomicU64::new(1),
            seen: AtomicBool::new(false),
            abandoned: Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())),
            searched_at: [const { AtomicU64::new(0) }; CONTEXTS + 1],
            began: OnceLock::new(),
        }
    }

    /// Whether the server has submitted through libaio.
    #[inline]
    pub fn is_used(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// Records that the server submits through libaio.
    #[inline]
    pub fn note_use(&self) {
        if !self.is_used() {
            self.seen.store(true, Ordering::Relaxed);
        }
    }

    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    #[inline]
    pub fn shard(&self, request: usize) -> &Shard {
        &self.shards[(request >> 6).wrapping_mul(0x9E37_79B9) >> 7 & (SHARDS - 1)]
    }

    /// Disarms all contexts; call before serving begins. Reserves memory, so that no hook allocates it.
    pub fn disarm_all(&self) {
        for shard in &self.shards {
            shard.lock().reserve(LIKELY_REQUESTS);
        }
        for context in &self.armed {
            context.store(0, Ordering::SeqCst);
        }
    }

    #[inline]
    pub fn is_armed(&self, context: usize) -> bool {
        self.number_of(context).is_some()
    }

    /// The index of an armed context.
    #[inline]
    pub fn number_of(&self, context: usize) -> Option<usize> {
        for (number, slot) in self.armed.iter().enumerate() {
            // Acquire: pairs with the exchange in `arm`.
            match slot.load(Ordering::Acquire) {
                0 => return None,
                known if known == context => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// Arms a context: its completions will be observed.
    #[inline]
    pub fn arm(&self, context: usize) {
        if context == 0 || self.is_armed(context) {
            return;
        }
        for slot in &self.armed {
            match slot.compare_exchange(0, context, Ordering::SeqCst, Ordering::SeqCst) {
                Ok(_) => return,
                Err(known) if known == context => return,
                Err(_) => {}
            }
        }
    }

    /// Announces a request on an armed context. Checks the context again after the announcement: from then on, switching off
    /// waits for the request.
    #[inline]
    pub fn begin(&self, switch: &'static Switch, context: usize) -> Option<Pending> {
        switch.begin_request().filter(|_| self.is_armed(context))
    }

    /// Tracks a request until it is harvested. Returns the previous request if one is still tracked at this address. The
    /// server reuses the address only after completion, so that completion passed unobserved. The previous request stays
    /// pending until the caller ends it.
    ///
    /// # Errors
    /// The request, if too many are tracked.
    #[allow(
        clippy::result_large_err,
        reason = "it is moved once, where no server gets"
    )]
    #[inline]
    pub fn track(&self, iocb: &Iocb, request: Request) -> Result<Option<Request>, Request> {
        let key = std::ptr::from_ref(iocb) as usize;
        let mut shard = self.shard(key).lock();
        if shard.len() >= MAX_REQUESTS / SHARDS {
            return Err(request);
        }
        Ok(shard.insert(key, request))
    }

    #[inline]
    pub fn take(&self, request: usize) -> Option<Request> {
        self.shard(request).lock().remove(&request)
    }

    /// Takes the request that an event answers. `word` is the event's data word.
    ///
    /// An answer of the cache disk carries its tag. If another thread has just given up that read, the server's own read has the
    /// same key, and the answer does not belong to it. That requires two threads that harvest one context. Neither server has
    /// them: each of its contexts belongs to one thread.
    #[inline]
    pub fn take_answered(&self, request: usize, word: u64) -> Option<Request> {
        let mut shard = self.shard(request).lock();
        let Entry::Occupied(known) = shard.entry(request) else {
            return None;
        };
        let tag = match &known.get().purpose {
            Purpose::Redirected { tag: Some(tag), .. } => Some(tag.word()),
            _ => None,
        };
        (!is_tag(word) || tag == Some(word)).then(|| known.remove())
    }

    /// Removes the abandoned read that this word answers. Returns whether there was one.
    #[inline]
    pub fn forget(&self, word: u64) -> bool {
        is_tag(word) && self.abandoned.lock().remove(&word).is_some()
    }

    /// Memory of the request table, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.shards
            .iter()
            .map(|shard| (shard.lock().capacity() * (size_of::<Request>() + 16)) as u64)
            .sum()
    }

    /// Creates a unique tag.
    pub fn new_tag(&'static self) -> Tag {
        self.tagged.fetch_add(1, Ordering::SeqCst);
        Tag {
            word: TAG | self.next_tag.fetch_add(1, Ordering::Relaxed),
            tagged: &self.tagged,
        }
    }

    /// Whether a read may become overdue while a harvester waits.
    #[inline]
    pub fn expects_tags(&self) -> bool {
        self.tagged.load(Ordering::SeqCst) > 0
    }

    /// Milliseconds since the first call.
    pub fn now(&self) -> u64 {
        self.began.get_or_init(Instant::now).elapsed().as_millis() as u64
    }
}

/// Never set in a server's own word: those are addresses.
const TAG: u64 = 1 << 63;

/// Replaces the server's word in a redirected read.
pub struct Tag {
    word: u64,
    tagged: &'static AtomicU32,
}

impl Tag {
    pub fn word(&self) -> u64 {
        self.word
    }
}

impl Drop for Tag {
    fn drop(&mut self) {
        self.tagged.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether the word is a tag.
#[inline]
pub fn is_tag(word: u64) -> bool {
    word & TAG != 0
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
