//! Requests under way, by their address, and the contexts whose completions are seen.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::c_int;
use std::hash::BuildHasherDefault;
use std::sync::OnceLock;

use extension::{GivenUp, Located, NumberHasher, ReadTicket};

use crate::control::Timed;
use crate::switch::{Pending, Switch};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Instant, Mutex, Ordering};
use crate::target::{Target, Write};

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
    /// Reads from the data file, to be offered if there is a ticket.
    Missed {
        target: Target,
        ticket: Option<ReadTicket>,
        started: Instant,
    },
    /// Writes to the data file.
    Write(Write),
}

pub struct Request {
    pub purpose: Purpose,
    pub context: usize,
    /// When the kernel had taken it, for reads that may be given up: before, nobody but the submitter may touch it. When it began,
    /// for writes whose end may pass unseen.
    pub submitted: Option<Instant>,
    /// A read that is compared with others. Elsewhere, since most are not: a request is copied several times.
    pub timed: Option<Box<Timed>>,
    /// As the server has set them.
    pub words: Words,
    /// Bytes, of which the kernel takes less than 2 GiB at a time.
    pub length: u32,
    /// Of the extension, 0 for a write that began without one.
    pub epoch: u32,
    /// `None`: its completion may have passed unseen, so nobody waits for it.
    pub pending: Option<Pending>,
}

/// What fits is copied in one go.
#[cfg(not(checker))]
const _: () = assert!(size_of::<(usize, Request)>() <= 256);

impl Request {
    /// What a request of so many bytes keeps of its length.
    #[inline]
    pub fn length_of(bytes: u64) -> u32 {
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }

    #[inline]
    pub fn timed(&self) -> Option<Timed> {
        self.timed.as_deref().copied()
    }
}

/// What is changed in a request that is pointed at a cache file.
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
/// Requests of a shard for which there is room from the start.
const LIKELY_REQUESTS: usize = 14;
/// Contexts whose completions are seen, at most.
pub const CONTEXTS: usize = if cfg!(checker) { 2 } else { 512 };

type Table<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;
type Shard = Mutex<Table<usize, Request>>;

/// All that are under way.
pub struct Requests {
    shards: [Shard; SHARDS],
    /// Contexts whose completions are seen, without a gap.
    armed: [AtomicUsize; CONTEXTS],
    /// Tagged reads under way that are not abandoned.
    tagged: AtomicU32,
    /// That each is given once is all that counts: `Relaxed`.
    next_tag: AtomicU64,
    /// Stands for itself: `Relaxed` everywhere.
    seen: AtomicBool,
    pub abandoned: Mutex<Table<u64, Abandoned>>,
    /// What was late was looked for on a context at this time, by its number among the armed ones. The last one is for all that
    /// are not armed any more, because the extension was switched on or off meanwhile. `Relaxed` everywhere: to look once more or
    /// less does no harm.
    pub looked: [AtomicU64; CONTEXTS + 1],
    /// When time began for what is late.
    began: OnceLock<Instant>,
}

/// A read that the server has been answered, and the cache disk has not. Hooks stay on until it is.
pub struct Abandoned {
    pub _given_up: GivenUp,
    pub _pending: Option<Pending>,
}

impl Default for Requests {
    fn default() -> Requests {
        Requests::new()
    }
}

impl Requests {
    /// None, on no context.
    pub const fn new() -> Requests {
        Requests {
            shards: [const { Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())) }; SHARDS],
            armed: [const { AtomicUsize::new(0) }; CONTEXTS],
            tagged: AtomicU32::new(0),
            next_tag: AtomicU64::new(1),
            seen: AtomicBool::new(false),
            abandoned: Mutex::new(HashMap::with_hasher(BuildHasherDefault::new())),
            looked: [const { AtomicU64::new(0) }; CONTEXTS + 1],
            began: OnceLock::new(),
        }
    }

    /// Whether the server was seen submitting through libaio.
    #[inline]
    pub fn seen(&self) -> bool {
        self.seen.load(Ordering::Relaxed)
    }

    /// The server submits through libaio.
    #[inline]
    pub fn see(&self) {
        if !self.seen() {
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

    /// Forgets which contexts are harvested through the hook; to be called before serving begins. Makes room, so that no hook
    /// has to.
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

    /// Where an armed context stands among them.
    #[inline]
    pub fn number_of(&self, context: usize) -> Option<usize> {
        for (number, slot) in self.armed.iter().enumerate() {
            // Acquire: of the exchange in `arm`.
            match slot.load(Ordering::Acquire) {
                0 => return None,
                known if known == context => return Some(number),
                _ => {}
            }
        }
        None
    }

    /// Completions of this context will be seen.
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

    /// Announces a request on a context whose completions are seen. The context is looked at again after the announcement:
    /// from there on the hooks cannot be switched off without the request being waited for.
    #[inline]
    pub fn begin(&self, switch: &'static Switch, context: usize) -> Option<Pending> {
        switch.begin_request().filter(|_| self.is_armed(context))
    }

    /// Remembers a request until it is harvested. Gives back one whose completion passed unseen, since the server uses its request
    /// anew; it is pending until the caller has ended it.
    ///
    /// # Errors
    /// The request, if there are too many.
    #[allow(
        clippy::result_large_err,
        reason = "it is moved once, where no server gets"
    )]
    #[inline]
    pub fn follow(&self, iocb: &Iocb, request: Request) -> Result<Option<Request>, Request> {
        let key = std::ptr::from_ref(iocb) as usize;
        let mut shard = self.shard(key).lock();
        if shard.len() >= MOST_REQUESTS / SHARDS {
            return Err(request);
        }
        Ok(shard.insert(key, request))
    }

    #[inline]
    pub fn take(&self, request: usize) -> Option<Request> {
        self.shard(request).lock().remove(&request)
    }

    /// Takes the request that an event answers, told by the event's word.
    ///
    /// An answer of the cache disk carries its tag. If another thread has just given that read up, the server's own read stands in
    /// its place, under the same key: the answer is not that of this one. That takes two threads that harvest one context, which
    /// neither server has: each context of theirs belongs to one thread.
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

    /// Whether this is the answer to an abandoned read, which nobody needs any more.
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

    /// A tag that no other request has.
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

    /// Milliseconds since time began here.
    pub fn now(&self) -> u64 {
        self.began.get_or_init(Instant::now).elapsed().as_millis() as u64
    }
}

/// No server's own word has this bit: the words are addresses.
const TAG: u64 = 1 << 63;

/// What stands in for the server's word in a read's request.
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

/// Whether it is a tag.
#[inline]
pub fn is_tag(word: u64) -> bool {
    word & TAG != 0
}

#[cfg(test)]
#[path = "requests_tests.rs"]
mod tests;
