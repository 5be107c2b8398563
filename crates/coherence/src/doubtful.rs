//! Pages that another process has cached of a file that may have been changed since: compared before they are served.
//!
//! A file that leaves a [doubt](crate::manifest::Doubt) keeps its identity, and that identity is *doubtful*. A page under it is
//! *settled* once no entry of it can exist that another process has made and nobody has compared. Nothing but settled pages is served.
//! A page becomes settled when
//!
//! - it was read from the data file, and what is cached of it is equal in all bytes, or is dropped, or is not there;
//! - it is written: what was cached of it is dropped before.
//!
//! A new identity has no such entries, so a change of the whole file ends the doubt. Whoever still uses the old one still has it.
//!
//! # Why a comparison needs neither a ticket nor a lock
//! Entries of another process only go, so a settled page stays settled. And a comparison may take as long as it takes: a write drops
//! the entry before it is forwarded. If the entry that was compared is still there, no write of its page was forwarded since files have been followed.
//! So the file has had one and the same page all the time, and that is what the read has brought. What is *offered* needs its ticket as ever.
//!
//! # What it costs
//! Other files: one comparison of two numbers for each read and write. A doubtful page: a read of the cache disk beside that of the data
//! file, once. Memory: a bit for each page of the file, from the first page that is settled out of order until all are.
//!
//! Its lock is a leaf.

use std::sync::atomic::AtomicU64 as Figure;

use extension::{FileId, PageId};

use crate::sync::{AtomicU32, AtomicU64, Mutex, Ordering};

/// No file's identity.
const NOBODY: u32 = u32::MAX;
/// Bytes of memory for the bits, for each TiB of files, begun or whole.
const ROOM: u64 = 8 << 20;
const TIB: u64 = 1 << 40;
/// Pages beyond the end that a file had are noted up to twice its length, and these. Further ones are compared whenever they are read.
const GROWTH: u64 = 1 << 15;

/// Of a file.
pub struct Doubtful {
    identity: AtomicU32,
    /// All pages below are settled.
    below: AtomicU32,
    settled: Mutex<Settled>,
    /// Pages that are still to be compared, more or less. A figure.
    left: Figure,
}

struct Settled {
    /// Of each page. Empty: none but those below.
    bits: Vec<u64>,
    /// That the file had when it became doubtful.
    pages: u32,
    /// No page beyond can have an entry of another process.
    is_all: bool,
    is_done: bool,
}

/// How much of a file becomes doubtful.
#[derive(Clone, Copy, Debug)]
pub struct Extent {
    /// That the file has.
    pub bytes: u64,
    pub pages: u32,
    /// Pages that are cached, more or less.
    pub cached: u64,
    /// No page beyond can be cached by another process.
    pub is_all: bool,
}

/// Of all files.
#[derive(Default)]
pub struct Doubts {
    /// Of doubtful files, ever.
    bytes: AtomicU64,
    /// That the bits take.
    memory: AtomicU64,
    /// Pages that were compared and are equal.
    verified: Figure,
}

/// What has become of noting a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    Yes,
    /// And now there is no doubt any more, which the next process may know.
    All,
    /// There is no memory for it.
    NoRoom,
}

impl Doubts {
    /// None.
    pub const fn new() -> Doubts {
        Doubts {
            bytes: AtomicU64::new(0),
            memory: AtomicU64::new(0),
            verified: Figure::new(0),
        }
    }

    /// That the bits take, bytes.
    pub fn memory_bytes(&self) -> u64 {
        self.memory.load(Ordering::SeqCst)
    }

    /// Whether no file ever was doubtful.
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Ordering::SeqCst) == 0
    }

    /// Pages that were compared and are equal.
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// Whether so many bytes more may be taken. If so, they are.
    fn take(&self, bytes: u64) -> bool {
        let room = (self.bytes.load(Ordering::SeqCst) / TIB + 1) * ROOM;
        let is_room = self.memory.fetch_add(bytes, Ordering::SeqCst) + bytes <= room;
        if !is_room {
            self.give_back(bytes);
        }
        is_room
    }

    fn give_back(&self, bytes: u64) {
        self.memory.fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl Doubtful {
    /// There is no doubt.
    pub const fn new() -> Doubtful {
        Doubtful {
            identity: AtomicU32::new(NOBODY),
            below: AtomicU32::new(0),
            settled: Mutex::new(Settled {
                bits: Vec::new(),
                pages: 0,
                is_all: false,
                is_done: false,
            }),
            left: Figure::new(0),
        }
    }

    /// What is cached under this identity of a file may be old. To be said before any of it is served.
    pub fn begin(&self, id: FileId, file: Extent, doubts: &Doubts) {
        doubts.bytes.fetch_add(file.bytes, Ordering::SeqCst);
        let mut settled = self.settled.lock();
        settled.forget(doubts);
        (settled.pages, settled.is_all, settled.is_done) = (file.pages, file.is_all, false);
        self.below.store(0, Ordering::SeqCst);
        self.left.store(file.cached, Ordering::Relaxed);
        self.identity.store(id.0, Ordering::SeqCst);
    }

    /// Whether anything under this identity may be doubtful.
    #[inline]
    pub fn is(&self, id: FileId) -> bool {
        self.identity.load(Ordering::SeqCst) == id.0
    }

    /// Whether the page must be compared before it is served.
    #[inline]
    pub fn has(&self, page: PageId) -> bool {
        self.is(page.file) && !self.is_settled(page.page)
    }

    #[cold]
    fn is_settled(&self, page: u32) -> bool {
        page < self.below.load(Ordering::SeqCst) || self.settled.lock().has(page)
    }

    /// The first page from there on that is not settled, of those that the file had; `None`: there is none.
    pub fn next(&self, from: u32) -> Option<u32> {
        let settled = self.settled.lock();
        let from = from.max(self.below.load(Ordering::SeqCst));
        let mut page = from;
        while page < settled.pages {
            if page % 64 == 0 && settled.bits.get(page as usize / 64) == Some(&u64::MAX) {
                page = page.saturating_add(64);
            } else if settled.has(page) {
                page += 1;
            } else {
                return Some(page);
            }
        }
        None
    }

    /// These pages are settled, if that says anything under this identity.
    pub fn settle(&self, id: FileId, first: u32, pages: u32, doubts: &Doubts) -> Noted {
        let end = first.saturating_add(pages);
        if !self.is(id) || end <= self.below.load(Ordering::SeqCst) {
            return Noted::Yes;
        }
        let mut settled = self.settled.lock();
        let below = self.below.load(Ordering::SeqCst);
        if first > below {
            return settled.note(first, end, doubts);
        }
        let mut end = end.max(below);
        while end < u32::MAX && settled.has(end) {
            end += 1;
        }
        self.below.store(end, Ordering::SeqCst);
        if end < settled.pages || settled.is_done {
            return Noted::Yes;
        }
        settled.is_done = true;
        settled.forget(doubts);
        self.left.store(0, Ordering::Relaxed);
        match settled.is_all {
            true => Noted::All,
            // Pages beyond the end may be cached that the file once had. Here they stay doubtful.
            false => Noted::Yes,
        }
    }

    /// A page was compared, and is equal or not.
    pub fn count(&self, is_equal: bool, doubts: &Doubts) {
        let one_less = |left: u64| left.checked_sub(1);
        let order = Ordering::Relaxed;
        let _ = self.left.fetch_update(order, order, one_less);
        if is_equal {
            doubts.verified.fetch_add(1, order);
        }
    }

    /// Pages that are still to be compared, more or less.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    /// Whether all pages are settled that the file had.
    pub fn is_done(&self) -> bool {
        self.settled.lock().is_done
    }

    /// Nothing is known of any page. What is doubtful stays so.
    pub fn forget(&self, doubts: &Doubts) {
        self.settled.lock().forget(doubts);
    }
}

impl Settled {
    fn has(&self, page: u32) -> bool {
        let word = self.bits.get(page as usize / 64);
        word.is_some_and(|word| word >> (page % 64) & 1 == 1)
    }

    fn note(&mut self, first: u32, end: u32, doubts: &Doubts) -> Noted {
        if self.is_done || u64::from(end) > u64::from(self.pages) * 2 + GROWTH {
            return Noted::Yes;
        }
        let words = self.pages.max(end).div_ceil(64) as usize;
        if words > self.bits.len() && !self.grow(words, doubts) {
            return Noted::NoRoom;
        }
        for page in first..end {
            self.bits[page as usize / 64] |= 1 << (page % 64);
        }
        Noted::Yes
    }

    /// Makes room for so many words, and some more if this is not the first time. Whether there is.
    fn grow(&mut self, words: usize, doubts: &Doubts) -> bool {
        let had = self.bits.len();
        let words = words.max(had + had / 8);
        let more = (words - had) as u64 * 8;
        if !doubts.take(more) {
            return false;
        }
        let is_room = self.bits.try_reserve_exact(words - had).is_ok();
        if is_room {
            self.bits.resize(words, 0);
        } else {
            doubts.give_back(more);
        }
        is_room
    }

    fn forget(&mut self, doubts: &Doubts) {
        doubts.give_back(self.bits.len() as u64 * 8);
        self.bits = Vec::new();
    }
}

impl Default for Doubtful {
    fn default() -> Doubtful {
        Doubtful::new()
    }
}
