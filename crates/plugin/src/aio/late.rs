//! Reads from cache files that take too long.
//!
//! A redirected read with a bound goes into memory that the extension lends, and carries a *tag* in place of the server's
//! own word. When it is overdue the server's true read is made, and the server gets its event as if nothing had been. What
//! the cache disk answers later is told by its tag, and kept from the server, who may have used the request anew by then.
//!
//! Locks: the table of abandoned reads, then a shard of the requests.

use std::collections::HashMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use extension::GivenUp;
use parking_lot::Mutex;

use super::{IoEvent, Purpose, REQUESTS, Request, Words, read_instead};
use crate::coherence;
use crate::switch::{self, Pending};

/// The longest that a harvester waits in the kernel while a read may become overdue.
pub const SLICE: Duration = Duration::from_millis(100);
/// Requests are looked through at most so often, milliseconds.
const LOOK_EVERY: u64 = 20;

/// No server's own word has this bit: the words are addresses.
const TAG: u64 = 1 << 63;

/// Tagged reads under way that are not abandoned.
static TAGGED: AtomicU32 = AtomicU32::new(0);

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

/// A read that the server has been answered, and the cache disk has not. Hooks stay on until it is.
struct Abandoned {
    _given_up: GivenUp,
    _pending: Pending,
}

static ABANDONED: LazyLock<Mutex<HashMap<u64, Abandoned>>> = LazyLock::new(Mutex::default);

/// Built before it is needed, so that no hook has to.
pub fn prepare() {
    LazyLock::force(&ABANDONED);
}

pub fn is_tag(word: u64) -> bool {
    word & TAG != 0
}

/// Whether this is the answer to an abandoned read, which nobody needs any more.
pub fn forget(word: u64) -> bool {
    is_tag(word) && ABANDONED.lock().remove(&word).is_some()
}

/// The kernel has taken these requests, given by key and tag: from now on they may be given up. Not before: the server's
/// request would be submitted after the server had been told that it is done. Some may be harvested already, and their
/// requests stand for other reads.
pub fn submitted(tagged: &[(usize, u64)]) {
    for &(key, word) in tagged {
        if let Some(request) = super::shard(key).lock().get_mut(&key) {
            if matches!(&request.purpose, Purpose::Redirected { tag: Some(tag), .. } if tag.word() == word)
            {
                request.submitted = Some(Instant::now());
            }
        }
    }
}

/// Whether a read may become overdue while a harvester waits.
pub fn expected() -> bool {
    TAGGED.load(Ordering::SeqCst) > 0
}

/// Gives up the reads of a context that are overdue, `room` of them at most, and makes the server's own in their place.
pub fn give_up(context: usize, room: usize) -> Vec<IoEvent> {
    static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);
    static LOOKED: AtomicU64 = AtomicU64::new(0);
    if !expected() || room == 0 {
        return Vec::new();
    }
    let (now, looked) = (
        EPOCH.elapsed().as_millis() as u64,
        LOOKED.load(Ordering::Relaxed),
    );
    if now < looked + LOOK_EVERY {
        return Vec::new();
    }
    LOOKED.store(now, Ordering::Relaxed);
    abandon(context, room)
        .into_iter()
        .map(|(key, words, length)| {
            let started = Instant::now();
            let mut event = IoEvent {
                data: words.data,
                request: key as u64,
                result: 0,
                result2: 0,
            };
            // SAFETY: the server waits for this request and does not touch it, since it was given no event of it.
            words.restore(unsafe { &mut *(key as *mut super::Iocb) });
            read_instead(&mut event, &words, length);
            if let (Some(active), Some(file)) =
                (&*switch::active(), crate::files::of_descriptor(words.fd))
            {
                coherence::count_data_read(active, file, started);
            }
            event
        })
        .collect()
}

/// Takes overdue reads of a context out of the requests; each with its key, the server's words and its length.
fn abandon(context: usize, room: usize) -> Vec<(usize, Words, usize)> {
    let mut abandoned = ABANDONED.lock();
    let mut out = Vec::new();
    for shard in REQUESTS.iter() {
        let mut shard = shard.lock();
        let keys: Vec<usize> = shard
            .iter()
            .filter(|(_, request)| request.context == context && is_overdue(request))
            .map(|(key, _)| *key)
            .take(room - out.len())
            .collect();
        for key in keys {
            let Some(request) = shard.remove(&key) else {
                continue;
            };
            let Purpose::Redirected {
                located,
                tag: Some(tag),
                ..
            } = request.purpose
            else {
                continue; // it was looked at just now
            };
            let guard = switch::active();
            let active = guard
                .as_deref()
                .filter(|active| active.epoch == request.epoch);
            let given_up = match active {
                Some(active) => active.extension.give_up(located),
                None => located.give_up(),
            };
            if let Some(given_up) = given_up {
                abandoned.insert(
                    tag.word(),
                    Abandoned {
                        _given_up: given_up,
                        _pending: request.pending,
                    },
                );
            }
            out.push((key, request.words, request.length));
        }
    }
    out
}

fn is_overdue(request: &Request) -> bool {
    match (&request.purpose, request.submitted) {
        (
            Purpose::Redirected {
                located,
                tag: Some(_),
                ..
            },
            Some(when),
        ) => located.bound().is_some_and(|bound| when.elapsed() > bound),
        _ => false,
    }
}
