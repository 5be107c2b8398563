//! What the next process has to know of the data files, in memory that outlives this one.
//!
//! A record says which file has which identity, and how it was left: closed, with its size and times; or open, with the times
//! around the last change that the server made to it. Whoever comes next believes what is cached of a file if nobody can have
//! changed it since: its times say so, by the clock of the same machine, which has not been started anew, on the same mount.
//!
//! A process may end between any two instructions. So a record never says more than is true:
//!
//! - A new identity stands in it before the change that makes it necessary.
//! - Times are noted before a change is forwarded, and after its end. The file's own time lies between them. A change that was
//!   under way at the end has a time up to the last one at which the process is known to have lived.
//! - Whoever stops following files says so first ([`Manifest::detach`]). What is open then is not believed any more: somebody may
//!   change it at once, within the same tick of the clock.
//!
//! Records may be kept until the machine was started anew ([`Manifest::of_another_boot`]). Then a file is believed only if it was
//! closed, its times are exactly what they were, and all that was written to it had been flushed: else the disk may have less than
//! the file had.
//!
//! Everything in it is a word of its own, zero in the beginning. Orders are `SeqCst`: what counts is the order of the
//! instructions, not what another processor sees.

use extension::FileId;

pub use doubt::Doubt;

use crate::identity::{Clocks, Closed, Identity, TICK, has_whole_seconds};
use crate::os::{Os, Stat};
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Identities are announced in such steps, so that none is given twice whenever the process ends.
const STEP: u64 = 4096;
/// Beyond this they begin anew, with an empty cache.
const MOST_IDS: u64 = 1 << 31;

/// The beginning of the memory.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Head {
    /// For whoever makes the memory: what it is, whose, and of which start of the machine.
    pub mark: [AtomicU64; 8],
    /// The session of the cache whose pages the records are about; 0: none.
    session: AtomicU64,
    /// How often somebody has stopped following.
    detached: AtomicU64,
    /// What `detached` was when following began that has gone on since.
    followed_since: AtomicU64,
    /// Identities from here on were never given.
    ids: AtomicU64,
    /// Both clocks, of late.
    since_boot: AtomicU64,
    file_time: AtomicU64,
    /// When the process changed a file last, by the clock of the files.
    alive: AtomicU64,
    /// The page size that the cache is laid out for, bytes.
    page: AtomicU64,
    /// When this process has taken over what another has left, since the machine was started; 0: it has not.
    taken_over: AtomicU64,
    /// This process has ended itself.
    crashed: AtomicU64,
    /// A flush has failed since the machine was started: the kernel may have thrown away what it could not write.
    lost: AtomicU64,
    /// By which settings the cache is laid out, and what came of them: bytes of memory, and of each device.
    settings: AtomicU64,
    memory: AtomicU64,
    sizes: [AtomicU64; DEVICES],
}

/// The sizes of so many devices are kept.
const DEVICES: usize = 32;

/// Whoever crashes so soon after he has taken over a cache may have crashed because of it, nanoseconds.
const SOON: i128 = 600_000_000_000;

/// States of a record.
const FREE: u64 = 0;
const CLOSED: u64 = 1;
/// Closed, and all that was written to it is on the disk.
const FLUSHED: u64 = 2;
/// The same, before the machine was started anew.
const BEFORE: u64 = 3;
/// From here on: not to be believed since the machine was started anew, for a reason that this counts from ([`Doubt::number`]).
const LOST: u64 = 8;
const OPEN: u64 = 64;
/// From here on: open, and when a change began whose end will not be seen, nanoseconds since 1970.
const UNSEEN: u64 = 65;

/// In a record's identity: what is cached under it may be old.
const DOUBTED: u64 = 1 << 32;
/// Besides: of pages beyond the end of the file, too.
const ENDLESS: u64 = 1 << 33;

/// A change whose end was not seen has ended after this.
const LONGEST_CHANGE: i128 = 60_000_000_000;

/// Of one file.
#[repr(C, align(128))]
#[derive(Debug, Default)]
pub struct Record {
    state: AtomicU64,
    device: AtomicU64,
    inode: AtomicU64,
    birth: AtomicU64,
    mount: AtomicU64,
    /// The identity, and above it what is doubted.
    id: AtomicU64,
    /// Page size, and above it the first page number.
    shape: AtomicU64,
    pages: AtomicU64,
    /// What it was when it was opened, or closed.
    size: AtomicU64,
    modified: AtomicU64,
    changed: AtomicU64,
    /// When that was.
    file_time: AtomicU64,
    /// If it is open: when the last change began; if it is closed: when that was, since the machine was started.
    begun: AtomicU64,
    /// When the last change ended.
    ended: AtomicU64,
    /// When the last change began, once all had ended.
    completed: AtomicU64,
    /// A change is under way.
    under_way: AtomicU64,
}

/// Which file it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Which {
    /// Device and number on it.
    pub inode: (u64, u64),
    /// When it was made; `None` if that is not told. Nanoseconds since 1970.
    pub birth: Option<u64>,
    /// Tells this mount of its file system from others since the machine was started, if that can be told.
    pub mount: Option<u64>,
}

/// The memory.
#[derive(Debug)]
pub struct Manifest {
    head: &'static Head,
    records: &'static [Record],
    /// Records that may be touched.
    room: AtomicUsize,
    memory: Memory,
}

/// What a manifest needs of whoever made its memory.
#[derive(Clone, Copy, Debug)]
pub struct Memory {
    /// [`Os::file_time`].
    pub now: fn() -> i128,
    /// Makes room for so many records. Whether there is.
    pub grow: fn(usize) -> bool,
}

fn unsigned(number: i64) -> u64 {
    u64::from_ne_bytes(number.to_ne_bytes())
}

fn signed(number: u64) -> i64 {
    i64::from_ne_bytes(number.to_ne_bytes())
}

fn word(number: i128) -> u64 {
    unsigned(i64::try_from(number).unwrap_or(i64::MAX))
}

fn get(word: &AtomicU64) -> i128 {
    signed(word.load(Ordering::SeqCst)).into()
}

fn set(word: &AtomicU64, value: u64) {
    #[cfg(all(test, not(checker)))]
    tests::may_die();
    word.store(value, Ordering::SeqCst);
}

fn exchange(word: &AtomicU64, from: u64, to: u64) {
    #[cfg(all(test, not(checker)))]
    tests::may_die();
    let order = Ordering::SeqCst;
    let _ = word.compare_exchange(from, to, order, order);
}

impl Manifest {
    /// Of the records, as many as `room` may be touched.
    pub fn new(
        head: &'static Head,
        records: &'static [Record],
        room: usize,
        memory: Memory,
    ) -> Manifest {
        Manifest {
            head,
            records,
            room: AtomicUsize::new(room.min(records.len())),
            memory,
        }
    }

    /// The record of the file object of this number, which counts from 1; `None` if there is no room for it.
    #[inline]
    pub fn record(&self, owner: u32) -> Option<&'static Record> {
        let at = owner.checked_sub(1)? as usize;
        // Acquire: of the store in `make_room`. What it counts is there before.
        (at < self.room.load(Ordering::Acquire)).then(|| &self.records[at])
    }

    /// Makes room for the record of a new file object, if that is possible. One thread at a time.
    pub fn make_room(&self, owner: u32) {
        let (wanted, room) = (owner as usize, self.room.load(Ordering::SeqCst));
        if wanted <= room || room >= self.records.len() {
            return;
        }
        let more = wanted.max(room * 2).min(self.records.len());
        if (self.memory.grow)(more) {
            self.room.store(more, Ordering::SeqCst);
        }
    }

    /// Records that may be touched.
    pub fn room(&self) -> usize {
        self.room.load(Ordering::SeqCst)
    }

    /// Where it begins.
    pub fn head(&self) -> &'static Head {
        self.head
    }

    fn known(&self) -> &'static [Record] {
        &self.records[..self.room.load(Ordering::SeqCst)]
    }

    /// The cache whose pages the records are about.
    pub fn session(&self) -> Option<u64> {
        Some(self.head.session.load(Ordering::SeqCst)).filter(|&session| session != 0)
    }

    /// The page size that the cache is laid out for, bytes.
    pub fn page(&self) -> Option<u32> {
        let page = self.head.page.load(Ordering::SeqCst);
        u32::try_from(page).ok().filter(|&page| page != 0)
    }

    /// The same, for whoever comes next.
    pub fn lay_out_for(&self, page: u32) {
        set(&self.head.page, page.into());
    }

    /// What has come of these settings: bytes of memory, and of each device. So the next process lays out the cache in the same way,
    /// whatever room there is then.
    pub fn remember(&self, settings: u64, memory: u64, sizes: &[u64]) {
        set(&self.head.settings, 0);
        if sizes.len() > DEVICES {
            return;
        }
        set(&self.head.memory, memory);
        let all = sizes.iter().chain(std::iter::repeat(&0));
        let words = self.head.sizes.iter();
        words.zip(all).for_each(|(word, size)| set(word, *size));
        set(&self.head.settings, settings);
    }

    /// What has come of these settings in the process before.
    pub fn remembered(&self, settings: u64) -> Option<(u64, Vec<u64>)> {
        let get = |word: &AtomicU64| word.load(Ordering::SeqCst);
        let sizes = self.head.sizes.iter().map(get);
        let sizes = sizes.take_while(|&size| size != 0).collect();
        (get(&self.head.settings) == settings).then(|| (get(&self.head.memory), sizes))
    }

    /// Somebody stops following files. To be said before he does.
    pub fn detach(&self) {
        if left_out!("off-keeps-live") {
            return;
        }
        self.head.detached.fetch_add(1, Ordering::SeqCst);
    }

    /// The cache will not be used any more.
    pub fn abandon(&self) {
        set(&self.head.session, 0);
    }

    /// How often somebody has stopped. Before following begins.
    pub fn detached(&self) -> u64 {
        self.head.detached.load(Ordering::SeqCst)
    }

    /// The cache of this session is active, and files have been followed without a gap since [`detached`](Self::detached) said this.
    pub fn attach(&self, session: Option<u64>, since: u64) {
        set(&self.head.session, session.unwrap_or(0));
        set(&self.head.followed_since, since);
    }

    /// Whether files have been followed without a gap since the cache became active.
    pub fn is_followed(&self) -> bool {
        self.head.followed_since.load(Ordering::SeqCst) == self.detached()
    }

    /// This identity is about to be given to a file.
    #[inline]
    pub fn announce(&self, id: u32) {
        if u64::from(id) >= self.head.ids.load(Ordering::SeqCst) {
            self.head
                .ids
                .fetch_max(u64::from(id) + STEP, Ordering::SeqCst);
        }
    }

    /// Identities up to this one may have been given. `None`: too many.
    pub fn given(&self) -> Option<u32> {
        let ids = self.head.ids.load(Ordering::SeqCst);
        (ids < MOST_IDS).then_some(ids as u32)
    }

    /// What time it is, from time to time.
    pub fn note_clocks(&self, os: &impl Os) {
        let clocks = Clocks::now(os);
        if self.clocks().were_set_back(clocks) {
            // What is changed from now on may get times of before.
            self.detach();
        }
        set(&self.head.file_time, word(clocks.file_time));
        set(&self.head.since_boot, word(clocks.since_boot));
    }

    fn clocks(&self) -> Clocks {
        Clocks {
            since_boot: get(&self.head.since_boot),
            file_time: get(&self.head.file_time),
        }
    }

    #[inline]
    fn live(&self) -> u64 {
        let now = word((self.memory.now)());
        if self.head.alive.load(Ordering::SeqCst) != now {
            set(&self.head.alive, now);
        }
        now
    }

    /// The process is about to end itself because something is wrong with it.
    pub fn crash(&self) {
        self.head.crashed.store(1, Ordering::SeqCst);
    }

    /// Whether the process before may have crashed because of what it has taken over.
    pub fn crashed_soon(&self) -> bool {
        let taken_over = get(&self.head.taken_over);
        let lived = get(&self.head.since_boot) - taken_over;
        let crashed = self.head.crashed.load(Ordering::SeqCst) != 0;
        crashed && taken_over != 0 && lived < SOON
    }

    /// What was left turned out to be of no use: a crash has nothing to do with it.
    pub fn took_nothing(&self) {
        set(&self.head.taken_over, 0);
    }

    /// Nothing is said of any file.
    pub fn clear(&self) {
        self.abandon();
        if self.given().is_none() {
            set(&self.head.ids, 0);
        }
        set(&self.head.taken_over, 0);
        set(&self.head.crashed, 0);
        self.known().iter().for_each(Record::free);
    }

    /// Takes over what another process has left. Of each file the number of its object, and what is known.
    pub fn take_over(&self, os: &impl Os) -> Vec<(u32, Left)> {
        let now = Clocks::now(os);
        let alive = get(&self.head.alive);
        let open_ones_count = self.is_followed() && !self.clocks().were_set_back(now);
        let mut taken = Vec::new();
        for (owner, record) in (1..).zip(self.known()) {
            let Some(left) = record.left(open_ones_count.then_some(alive)) else {
                record.free();
                continue;
            };
            if left.how == How::Unfollowed {
                // Before the next process may think that this one has followed it.
                record.doubt(left.id.0, false);
            }
            taken.push((owner, left));
        }
        self.note_clocks(os);
        set(&self.head.crashed, 0);
        set(&self.head.taken_over, word(now.since_boot));
        taken
    }

    /// The same in a server that has opened and changed files before anybody followed them. So what is said of a file is not true any
    /// more, and goes: whoever dies now has left nothing.
    pub fn take_over_late(&self, os: &impl Os) -> Vec<Left> {
        // A hook that follows a file for a recording writes to the record of another one.
        self.abandon();
        let taken = self.take_over(os);
        let since = self.head.taken_over.load(Ordering::SeqCst);
        self.clear();
        set(&self.head.taken_over, since);
        taken.into_iter().map(|(_, left)| left.late()).collect()
    }
}

impl Record {
    /// It stands for no file.
    pub fn free(&self) {
        if self.state.load(Ordering::SeqCst) != FREE {
            set(&self.state, FREE);
        }
    }

    /// The file has this identity from now on. If it is another one, there is no doubt of it.
    #[inline]
    pub fn identify(&self, id: u32) {
        if self.id.load(Ordering::SeqCst) as u32 != id {
            set(&self.id, id.into());
        }
    }

    /// What is cached under this identity may be old, unless the file has another one by now. `ends`: as [`Left::ends_within`].
    pub fn doubt(&self, id: u32, ends: bool) {
        let doubt = if ends { DOUBTED } else { DOUBTED | ENDLESS };
        let before = self.id.load(Ordering::SeqCst);
        if before as u32 == id && !left_out!("doubt-forgotten") {
            exchange(&self.id, before, before | doubt);
        }
    }

    /// All that is cached under this identity was compared, unless the file has another one by now.
    pub fn trust(&self, id: u32) {
        exchange(&self.id, u64::from(id) | DOUBTED, id.into());
    }

    /// Its page size in bytes, and its first page number.
    pub fn shape(&self, page_size: u32, base: u32) {
        set(&self.shape, u64::from(page_size) | u64::from(base) << 32);
    }

    /// So many pages of it are cached, more or less.
    pub fn count(&self, pages: u64) {
        set(&self.pages, pages);
    }

    /// The file has its first descriptor.
    pub fn open(&self, which: &Which, stat: &Stat, manifest: &Manifest) {
        set(&self.device, which.inode.0);
        set(&self.inode, which.inode.1);
        set(&self.birth, which.birth.unwrap_or(0));
        set(&self.mount, which.mount.unwrap_or(0));
        let times = [&self.begun, &self.ended, &self.completed, &self.under_way];
        // Before: what is closed has another time in one of them.
        self.free();
        times.iter().for_each(|time| set(time, 0));
        self.be(&Identity::of(stat));
        set(&self.file_time, manifest.live());
        set(&self.state, OPEN);
    }

    fn be(&self, identity: &Identity) {
        set(&self.size, unsigned(identity.size));
        set(&self.modified, unsigned(identity.modified));
        set(&self.changed, unsigned(identity.changed));
    }

    /// It has lost its last one, and was this then. `flushed`: all of it is on the disk.
    pub fn close(&self, closed: &Closed, flushed: bool) {
        // The server waits for its changes before it closes a file.
        if !self.is_open() {
            return;
        }
        self.free();
        self.be(&closed.identity);
        set(&self.file_time, word(closed.clocks.file_time));
        set(&self.begun, word(closed.clocks.since_boot));
        set(&self.state, if flushed { FLUSHED } else { CLOSED });
    }

    fn closed(&self) -> Closed {
        let clocks = Clocks {
            since_boot: get(&self.begun),
            file_time: get(&self.file_time),
        };
        Closed {
            identity: self.identity(),
            clocks,
        }
    }

    fn identity(&self) -> Identity {
        let now = |word: &AtomicU64| signed(word.load(Ordering::SeqCst));
        Identity {
            size: now(&self.size),
            modified: now(&self.modified),
            changed: now(&self.changed),
        }
    }

    /// A change is about to be made.
    #[inline]
    pub fn begin(&self, manifest: &Manifest) {
        if !self.is_open() {
            return;
        }
        set(&self.under_way, 1);
        set(&self.begun, manifest.live());
    }

    /// A change has ended; `all`: no other is under way.
    #[inline]
    pub fn end(&self, all: bool, manifest: &Manifest) {
        if !self.is_open() {
            return;
        }
        set(&self.ended, manifest.live());
        if all {
            set(&self.completed, self.begun.load(Ordering::SeqCst));
            set(&self.under_way, 0);
        }
    }

    /// A change is about to be made whose end will not be seen.
    #[inline]
    pub fn begin_unseen(&self, manifest: &Manifest) {
        if self.is_open() {
            let now = manifest.live();
            set(&self.begun, now);
            set(&self.state, now.max(UNSEEN));
        }
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.state.load(Ordering::SeqCst) >= OPEN
    }

    /// What it says. `alive`: when the process lived last, if open files are believed at all.
    pub fn left(&self, alive: Option<i128>) -> Option<Left> {
        let now = |word: &AtomicU64| word.load(Ordering::SeqCst);
        let known = |word: u64| Some(word).filter(|&word| word != 0);
        let how = match (now(&self.state), alive) {
            (CLOSED | FLUSHED, _) => How::Closed(self.closed()),
            (BEFORE, _) => How::Before(self.closed()),
            (state @ LOST..OPEN, _) => How::Lost(Doubt::of(state.checked_sub(LOST)?)?),
            (state, Some(alive))
                if state == OPEN
                    || state >= UNSEEN && alive - i128::from(signed(state)) > LONGEST_CHANGE =>
            {
                if now(&self.under_way) != 0 {
                    // For whoever comes after the next.
                    set(&self.ended, word(alive.max(get(&self.ended))));
                    set(&self.under_way, 0);
                }
                How::Open {
                    was: self.identity(),
                    since: get(&self.file_time),
                    completed: get(&self.completed),
                    latest: get(&self.begun).max(get(&self.ended)),
                }
            }
            (FREE, _) => return None,
            _ => How::Unfollowed,
        };
        let (shape, id) = (now(&self.shape), now(&self.id));
        let left = Left {
            which: Which {
                inode: (now(&self.device), now(&self.inode)),
                birth: known(now(&self.birth)),
                mount: known(now(&self.mount)),
            },
            id: FileId(id as u32),
            is_doubted: id & DOUBTED != 0,
            is_endless: id & ENDLESS != 0,
            page_size: shape as u32,
            base: (shape >> 32) as u32,
            pages: now(&self.pages),
            flushed: matches!(now(&self.state), FLUSHED | BEFORE),
            how,
        };
        // Without a page size nothing was cached of it.
        (left.page_size != 0).then_some(left)
    }
}

/// A file as another process has left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    pub which: Which,
    pub id: FileId,
    /// The process before has not compared all of it either.
    is_doubted: bool,
    /// And it may have cached pages beyond the end of the file.
    is_endless: bool,
    /// Bytes.
    pub page_size: u32,
    /// The number of its first page.
    pub base: u32,
    /// So many of it are cached, more or less.
    pub pages: u64,
    /// All of it was on the disk.
    pub flushed: bool,
    how: How,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// Nobody has followed it since, in this process.
    Off,
    /// Nobody has followed what this process did to it at first. Bytes that it had when it was closed; `None`: it was not.
    Late(Option<i64>),
    Closed(Closed),
    /// Before the machine was started anew.
    Before(Closed),
    /// The machine was started anew, and then it is not believed.
    Lost(Doubt),
    /// Times in nanoseconds since 1970; 0: there is none.
    Open {
        /// When it was opened, with the time.
        was: Identity,
        since: i128,
        /// When the last change that was followed by rest began.
        completed: i128,
        /// The last at which a change can have been made.
        latest: i128,
    },
    /// Open, and perhaps not followed to the end.
    Unfollowed,
}

impl Left {
    /// Whether nothing can be cached beyond this end of the file.
    pub fn ends_within(&self, stat: &Stat) -> bool {
        let ends = match &self.how {
            How::Closed(closed) | How::Before(closed) => closed.identity.size <= stat.size,
            How::Late(Some(size)) => *size <= stat.size,
            _ => false,
        };
        ends && !self.is_endless
    }

    /// Of this process, when the extension was switched off.
    pub fn while_off(inode: (u64, u64), id: FileId, page_size: u32, base: u32, pages: u64) -> Left {
        Left {
            which: Which {
                inode,
                ..Which::default()
            },
            id,
            page_size,
            base,
            is_doubted: true,
            is_endless: true,
            pages,
            flushed: false,
            how: How::Off,
        }
    }

    /// The same file, which this process may have changed since, and nobody has seen it.
    fn late(self) -> Left {
        let size = match &self.how {
            How::Closed(closed) | How::Before(closed) => Some(closed.identity.size),
            _ => None,
        };
        Left {
            flushed: false,
            how: How::Late(size),
            ..self
        }
    }

    /// Why what is cached of it is not what the file has, if that cannot be excluded.
    pub fn doubt(&self, which: &Which, stat: &Stat, os: &impl Os) -> Option<Doubt> {
        if left_out!("inherit-blindly") {
            return None;
        }
        let doubt = self.by_times(which, stat, os);
        doubt.or(self.is_doubted.then_some(Doubt::NotCompared))
    }

    fn by_times(&self, which: &Which, stat: &Stat, os: &impl Os) -> Option<Doubt> {
        if self.how == How::Off {
            return Some(Doubt::Off);
        }
        if self.which.inode != which.inode || self.which.birth != which.birth {
            return Some(Doubt::OtherFile);
        }
        if let How::Late(_) = self.how {
            return Some(Doubt::Late);
        }
        if let How::Lost(doubt) = self.how {
            return Some(doubt);
        }
        // Files of a file server have none: their times are of its clock.
        if self.which.mount.is_none() || which.mount.is_none() {
            return Some(Doubt::UnknownMount);
        }
        let is_before = matches!(self.how, How::Before(_));
        if self.which.mount != which.mount && !is_before {
            return Some(Doubt::OtherMount);
        }
        match &self.how {
            How::Lost(doubt) => Some(*doubt),
            How::Before(closed) if os.file_time() < closed.clocks.file_time - TICK => {
                Some(Doubt::ClockSetBack)
            }
            How::Before(closed) => {
                (closed.identity != Identity::of(stat)).then_some(Doubt::Changed)
            }
            How::Unfollowed => Some(Doubt::NotFollowed),
            How::Off => Some(Doubt::Off),
            How::Late(_) => Some(Doubt::Late),
            How::Closed(closed) if closed.clocks.were_set_back(Clocks::now(os)) => {
                Some(Doubt::ClockSetBack)
            }
            How::Closed(closed) => (!closed.is(stat, os)).then_some(Doubt::Changed),
            How::Open {
                was,
                since,
                completed,
                latest,
            } => {
                if has_whole_seconds(stat) {
                    return Some(Doubt::WholeSeconds);
                }
                let identity = Identity::of(stat);
                if *completed == 0 && identity == *was {
                    return None;
                }
                let earliest = if *completed == 0 { *since } else { *completed };
                let changed = i128::from(identity.changed);
                if left_out!("one-sided-times") {
                    return (changed < earliest - TICK).then_some(Doubt::Changed);
                }
                let is_ours = (earliest - TICK..=latest + TICK).contains(&changed);
                (*latest == 0 || !is_ours).then_some(Doubt::Changed)
            }
        }
    }
}

mod doubt;
mod reboot;
#[cfg(test)]
mod tests;
