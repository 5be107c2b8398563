//! Files of the model, and the rules of concurrent access.
//!
//! The model's locks enforce InnoDB's guarantees. One request at a time reads or writes a page, until that request is harvested
//! ([`Pages`]). A file is closed, replaced or imported only without requests in flight ([`Alone`]), but may be unlinked
//! earlier. Everything else happens concurrently.

use std::collections::{HashSet, VecDeque};
use std::ffi::{CString, c_int};
use std::fmt::Arguments;
use std::hash::{DefaultHasher, Hasher};
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bpe_plugin::platform::CORE;
use parking_lot::Mutex;

use crate::content::{self, SECTOR, Shape, Stamp, ZERO};
use crate::kernel::exact;
use crate::random::{self, below, low};

static WORLD: OnceLock<World> = OnceLock::new();

/// The world of this process.
pub fn world() -> &'static World {
    WORLD.get().expect("made by `World::make` before all else")
}

pub struct World {
    pub folder: PathBuf,
    /// Directory of the cache files.
    pub cache: PathBuf,
    pub slots: Vec<Slot>,
    /// Contexts of asynchronous I/O: one for each way to harvest.
    pub contexts: [usize; 2],
    /// Unlinked files that are closed once their last requests have ended.
    pub closing: Mutex<Vec<Arc<File>>>,
    /// Descriptors other than files, such as those of client connections.
    connections: Mutex<VecDeque<c_int>>,
    /// Inodes of dropped files.
    pub dropped: Mutex<HashSet<u64>>,
    pub stop: AtomicBool,
    pub operations: AtomicU64,
    next_file: AtomicU32,
    next_version: AtomicU64,
    violation: Mutex<Option<String>>,
    tracing: bool,
    history: Mutex<History>,
    /// Log with immediate writes, if the process may die at any moment.
    log: Option<std::fs::File>,
}

/// Parameters of a world.
pub struct Plan<'a> {
    pub folder: &'a Path,
    pub cache: &'a Path,
    pub contexts: [usize; 2],
    pub tracing: bool,
    /// Divisor for the usual number of pages in a file.
    pub smaller: usize,
    /// Lower bounds of the versions and file numbers.
    pub from: (u64, u32),
    pub log: Option<std::fs::File>,
}

#[derive(Default)]
struct History {
    lines: VecDeque<String>,
    digest: DefaultHasher,
}

/// A tablespace: a name with a file at all times.
pub struct Slot {
    pub name: &'static str,
    pub shape: Shape,
    pub most_bytes: usize,
    /// One change of names at a time, as InnoDB's table locks guarantee.
    ddl: AtomicBool,
    file: Mutex<Option<Arc<File>>>,
}

/// Guard of a change to a slot's names.
pub struct Ddl<'a>(pub &'a Slot);

impl Drop for Ddl<'_> {
    fn drop(&mut self) {
        self.0.ddl.store(false, Ordering::SeqCst);
    }
}

impl Slot {
    pub fn file(&self) -> Arc<File> {
        Arc::clone(self.file.lock().as_ref().expect("every slot has a file"))
    }

    pub fn put(&self, file: Arc<File>) {
        *self.file.lock() = Some(file);
    }

    /// `None` while another change is in progress.
    pub fn ddl(&self) -> Option<Ddl<'_>> {
        (!self.ddl.swap(true, Ordering::SeqCst)).then(|| Ddl(self))
    }

    pub fn path(&self) -> CString {
        world().path(self.name)
    }
}

const NAMES: [(&str, usize, u32); 11] = [
    ("orders.ibd", 16384, 0),
    ("lines.ibd", 16384, 0),
    ("items.ibd", 16384, 0),
    ("stock.ibd", 16384, 0),
    ("small.ibd", 4096, 0),
    ("eight.ibd", 8192, 0),
    ("packed.ibd", 1024, 0),
    ("large.ibd", 65536, 0),
    ("wide.ibd", 32768, 0),
    ("undo_001", 16384, 0),
    ("ibdata2", 16384, 768),
];

impl World {
    /// Creates the world of this process, without files.
    pub fn make(plan: Plan<'_>) -> &'static World {
        let slots = NAMES.map(|(name, page_size, base)| Slot {
            name,
            shape: Shape { page_size, base },
            most_bytes: (page_size * 224).clamp(1 << 20, 4 << 20) / plan.smaller,
            ddl: AtomicBool::new(false),
            file: Mutex::new(None),
        });
        WORLD.get_or_init(|| World {
            folder: plan.folder.to_path_buf(),
            cache: plan.cache.to_path_buf(),
            slots: slots.into(),
            contexts: plan.contexts,
            closing: Mutex::default(),
            connections: Mutex::default(),
            dropped: Mutex::default(),
            stop: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            next_file: AtomicU32::new(plan.from.1),
            next_version: AtomicU64::new(plan.from.0),
            violation: Mutex::default(),
            tracing: plan.tracing || exact(),
            history: Mutex::default(),
            log: plan.log,
        })
    }

    pub fn path(&self, name: &str) -> CString {
        let path = self.folder.join(name);
        CString::new(path.as_os_str().as_bytes()).expect("a path without zero bytes")
    }

    pub fn slot(&self) -> &Slot {
        &self.slots[below(self.slots.len())]
    }

    /// Returns a unique version.
    pub fn new_version(&self) -> u64 {
        self.next_version.fetch_add(1, Ordering::Relaxed)
    }

    /// A client connects and gets the lowest free descriptor number; an older client may disconnect.
    pub fn take_number(&self) {
        // SAFETY: plain arguments.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
        let oldest = {
            let mut connections = self.connections.lock();
            connections.push_back(fd);
            (connections.len() > 12)
                .then(|| connections.pop_front())
                .flatten()
        };
        if let Some(oldest) = oldest {
            // SAFETY: our own descriptor.
            unsafe { crate::calls::close(oldest) };
        }
    }

    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Records an operation, for a violation's report and for the digest of the exact mode.
    pub fn note(&self, file: &File, what: Arguments<'_>) {
        if let Some(mut log) = self.log.as_ref() {
            // One immediate write: nothing is lost if the process is killed.
            let line = format!("{}#{}: {what}\n", file.name, file.number);
            let _ = log.write_all(line.as_bytes());
        }
        if !self.tracing {
            return;
        }
        let thread = std::thread::current();
        let line = format!(
            "{:>8} {} {}#{}: {what}",
            self.operations.load(Ordering::Relaxed),
            thread.name().unwrap_or("-"),
            file.name,
            file.number
        );
        let mut history = self.history.lock();
        history.digest.write(line.as_bytes());
        if history.lines.len() == 200_000 {
            history.lines.pop_front();
        }
        history.lines.push_back(line);
    }

    /// The latest operations, one a line.
    pub fn history(&self) -> String {
        let history = self.history.lock();
        history
            .lines
            .iter()
            .flat_map(|line| [line.as_str(), "\n"])
            .collect()
    }

    /// Hash of all operations so far in the exact mode.
    pub fn digest(&self) -> u64 {
        self.history.lock().digest.finish()
    }

    /// Records a violation. The first one ends the run.
    pub fn violated(&self, file: Option<&File>, what: &str) {
        self.violated_at(file, 0, what);
    }

    fn violated_at(&self, file: Option<&File>, offset: usize, what: &str) {
        let mut violation = self.violation.lock();
        if violation.is_none() {
            let mut text = format!(
                "VIOLATION after {} operations: {what}",
                self.operations.load(Ordering::Relaxed)
            );
            if let Some(file) = file.filter(|_| self.tracing) {
                let mark = format!("{}#{}:", file.name, file.number);
                let history = self.history.lock();
                let mut lines: Vec<_> = history
                    .lines
                    .iter()
                    .rev()
                    .filter(|line| line.contains(&mark))
                    .take(40)
                    .collect();
                lines.reverse();
                text.push_str("\nwhat was done with the file before, the last at the end:");
                for line in lines {
                    text.push('\n');
                    text.push_str(line);
                }
                text.push_str("\nand with this place of it:");
                let place = format!(" at {offset}");
                let with_place = |line: &&String| {
                    line.contains(&mark)
                        && line
                            .split_once(&place)
                            .is_some_and(|(_, rest)| !rest.starts_with(char::is_numeric))
                };
                let mut lines: Vec<_> = history
                    .lines
                    .iter()
                    .rev()
                    .filter(with_place)
                    .take(12)
                    .collect();
                lines.reverse();
                for line in lines {
                    text.push('\n');
                    text.push_str(line);
                }
            }
            *violation = Some(text);
        }
        self.stop.store(true, Ordering::SeqCst);
    }

    pub fn violation(&self) -> Option<String> {
        self.violation.lock().clone()
    }
}

const SHUT: i32 = 1 << 30;

/// An inode of the model.
pub struct File {
    pub number: u32,
    pub name: &'static str,
    pub shape: Shape,
    pub most_bytes: usize,
    /// The server's descriptor; negative while the file is closed.
    pub fd: AtomicI32,
    /// Opened with `O_DIRECT`.
    pub direct: AtomicBool,
    /// Number of requests in flight, and whether new ones are blocked.
    gate: AtomicI32,
    size: AtomicU64,
    growing: AtomicBool,
    locked: Box<[AtomicBool]>,
    sectors: Box<[AtomicU64]>,
    /// Metadata without requests in flight, for the audit's rule.
    pub watched: Mutex<Option<Watched>>,
}

/// The audit's record of a file.
pub struct Watched {
    /// Epoch of the extension at its beginning.
    pub epoch: u32,
    /// The plugin's number of the file.
    pub owner: u32,
    /// The plugin's count of the file's last change.
    pub idle_changes: u64,
    pub watch: coherence::audit::watch::Watch,
}

impl File {
    pub fn new(slot: &Slot) -> Arc<File> {
        let Shape { page_size, .. } = slot.shape;
        let sectors = slot.most_bytes / SECTOR;
        Arc::new(File {
            number: world().next_file.fetch_add(1, Ordering::Relaxed),
            name: slot.name,
            shape: slot.shape,
            most_bytes: slot.most_bytes,
            fd: AtomicI32::new(-1),
            direct: AtomicBool::new(false),
            gate: AtomicI32::new(SHUT),
            size: AtomicU64::new(0),
            growing: AtomicBool::new(false),
            locked: (0..slot.most_bytes / page_size)
                .map(|_| AtomicBool::new(false))
                .collect(),
            sectors: (0..sectors).map(|_| AtomicU64::new(0)).collect(),
            watched: Mutex::default(),
        })
    }

    pub fn fd(&self) -> c_int {
        self.fd.load(Ordering::SeqCst)
    }

    pub fn page_size(&self) -> usize {
        self.shape.page_size
    }

    pub fn size(&self) -> usize {
        self.size.load(Ordering::SeqCst) as usize
    }

    pub fn set_size(&self, bytes: usize) {
        self.size.store(bytes as u64, Ordering::SeqCst);
    }

    pub fn pages(&self) -> usize {
        self.size() / self.page_size()
    }

    /// Returns a stamp that no other sector has.
    pub fn new_stamp(&self) -> Stamp {
        Stamp::new(self.number, world().new_version())
    }

    /// Sets the model's expectation.
    pub fn expect(&self, offset: usize, length: usize, stamp: Stamp) {
        for sector in &self.sectors[offset / SECTOR..(offset + length) / SECTOR] {
            sector.store(stamp.0, Ordering::Relaxed);
        }
    }

    /// Sets the model's expectation to bytes that the model wrote. Returns false for other bytes.
    pub fn expect_bytes(&self, offset: usize, bytes: &[u8]) -> bool {
        let mut composed = [0; SECTOR];
        bytes.chunks_exact(SECTOR).enumerate().all(|(n, sector)| {
            let (at, stamp) = (offset / SECTOR + n, content::stamp_of(sector));
            self.sectors[at].store(stamp.0, Ordering::Relaxed);
            content::fill(at as u64, stamp, self.shape, &mut composed);
            composed == sector
        })
    }

    /// Fills `bytes` with the expected contents.
    pub fn compose(&self, offset: usize, bytes: &mut [u8]) {
        for (n, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
            let at = offset / SECTOR + n;
            let stamp = Stamp(self.sectors[at].load(Ordering::Relaxed));
            content::fill(at as u64, stamp, self.shape, sector);
        }
    }

    /// Compares bytes with the expectation. A difference ends the run.
    pub fn check(&self, how: &str, offset: usize, bytes: &[u8]) {
        let mut expected = [0; SECTOR];
        for (n, found) in bytes.chunks_exact(SECTOR).enumerate() {
            let at = offset / SECTOR + n;
            let stamp = Stamp(self.sectors[at].load(Ordering::Relaxed));
            content::fill(at as u64, stamp, self.shape, &mut expected);
            if found != expected {
                let text = format!(
                    "{how} of {} bytes at {offset} of {} (file {}, page {} of {} bytes): sector {at} was {}, but {stamp} \
                     was written there last",
                    bytes.len(),
                    self.name,
                    self.number,
                    offset / self.page_size(),
                    self.page_size(),
                    content::describe(found),
                );
                return world().violated_at(Some(self), offset, &text);
            }
        }
    }

    /// Begins a request. `None` while the file is closed or about to be.
    pub fn enter(self: &Arc<File>) -> Option<User> {
        let step = self
            .gate
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |gate| {
                (gate & SHUT == 0).then_some(gate + 1)
            });
        step.is_ok().then(|| User(Arc::clone(self)))
    }

    /// Blocks new requests. Returns whether no other thread blocks them.
    pub fn shut(&self) -> bool {
        self.gate.fetch_or(SHUT, Ordering::SeqCst) & SHUT == 0
    }

    pub fn open_gate(&self) {
        self.gate.fetch_and(!SHUT, Ordering::SeqCst);
    }

    /// Whether no request is in flight and no close is pending.
    pub fn is_calm(&self) -> bool {
        self.gate.load(Ordering::SeqCst) == 0
    }

    /// Number of requests in flight.
    pub fn users(&self) -> i32 {
        self.gate.load(Ordering::SeqCst) & !SHUT
    }

    /// Waits for the requests in flight. Returns false where waiting is impossible, and after 30 s as a violation.
    pub fn quiet(&self) -> bool {
        let until = Instant::now() + Duration::from_secs(30);
        while self.users() > 0 {
            if exact() {
                if random::depth() > 0 {
                    return false;
                }
                crate::asynchronous::harvest_some();
            } else {
                std::thread::sleep(Duration::from_micros(50));
            }
            if Instant::now() > until {
                world().violated(Some(self), "a request was never answered");
                return false;
            }
        }
        true
    }

    /// Exclusive access: no requests in flight, and new ones blocked.
    pub fn alone(self: &Arc<File>) -> Option<Alone> {
        if !self.shut() {
            return None;
        }
        if self.quiet() {
            return Some(Alone(Arc::clone(self)));
        }
        self.open_gate();
        None
    }

    /// Locks pages for one request.
    pub fn lock(self: &Arc<File>, first: usize, count: usize) -> Option<Arc<Pages>> {
        for page in first..first + count {
            if self.locked[page].swap(true, Ordering::SeqCst) {
                self.unlock(first, page - first);
                return None;
            }
        }
        Some(Arc::new(Pages {
            file: Arc::clone(self),
            first,
            count,
            overlap: None,
        }))
    }

    fn unlock(&self, first: usize, count: usize) {
        self.locked[first..first + count]
            .iter()
            .for_each(|page| page.store(false, Ordering::SeqCst));
    }

    /// Locks up to this many existing pages for one request, preferring low page numbers.
    pub fn some_pages(self: &Arc<File>, most: usize) -> Option<Arc<Pages>> {
        for _ in 0..4 {
            let all = self.pages();
            if all == 0 {
                return None;
            }
            let first = low(all);
            let count = (1 + below(most)).min(all - first);
            if let Some(pages) = self.lock(first, count) {
                // A truncation may have removed them since.
                if first + count <= self.pages() {
                    return Some(pages);
                }
            }
        }
        None
    }

    /// The right to extend the file.
    pub fn grow(self: &Arc<File>) -> Option<Growth> {
        (!self.growing.swap(true, Ordering::SeqCst)).then(|| Growth(Arc::clone(self)))
    }

    /// Identity of the file's cached pages.
    pub fn identity(&self) -> Option<u32> {
        CORE.files.of_descriptor(self.fd()).map(|file| file.id().0)
    }

    /// Expects an empty file.
    pub fn forget_contents(&self) {
        self.expect(0, self.most_bytes, ZERO);
        self.set_size(0);
    }
}

/// A request in flight.
pub struct User(pub Arc<File>);

impl Drop for User {
    fn drop(&mut self) {
        self.0.gate.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A file without requests.
pub struct Alone(pub Arc<File>);

impl Drop for Alone {
    fn drop(&mut self) {
        self.0.open_gate();
    }
}

/// Number of freed pages that are written and read concurrently, and whether new ones are blocked.
static OVERLAPS: AtomicI32 = AtomicI32::new(0);

/// A freed page that is written and read concurrently. With the extension off, the hooks do not observe this write, so it must
/// not overlap with switching on. InnoDB ignores the contents of such a read, but the page would stay cached until it is
/// written again.
pub struct Overlap(());

impl Overlap {
    /// `None` while the extension is being switched.
    pub fn begin() -> Option<Overlap> {
        let step = OVERLAPS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |count| {
            (count & SHUT == 0).then_some(count + 1)
        });
        step.is_ok().then(|| Overlap(()))
    }

    /// Blocks new ones. Returns whether none is in flight.
    pub fn keep_out() -> bool {
        OVERLAPS.fetch_or(SHUT, Ordering::SeqCst) & !SHUT == 0
    }

    pub fn let_in() {
        OVERLAPS.fetch_and(!SHUT, Ordering::SeqCst);
    }
}

impl Drop for Overlap {
    fn drop(&mut self) {
        OVERLAPS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Guard of a change to the file's size.
pub struct Growth(Arc<File>);

impl Drop for Growth {
    fn drop(&mut self) {
        self.0.growing.store(false, Ordering::SeqCst);
    }
}

/// Pages locked by one request.
pub struct Pages {
    pub file: Arc<File>,
    pub first: usize,
    pub count: usize,
    /// Present for freed pages that are written and read concurrently.
    pub overlap: Option<Overlap>,
}

impl Pages {
    pub fn offset(&self) -> usize {
        self.first * self.file.page_size()
    }

    pub fn bytes(&self) -> usize {
        self.count * self.file.page_size()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        self.file.unlock(self.first, self.count);
    }
}

/// Memory of a transfer, aligned for direct I/O where necessary.
pub struct Buffer {
    memory: Vec<Block>,
    start: usize,
    length: usize,
}

#[repr(align(4096))]
#[derive(Clone)]
struct Block(#[allow(dead_code, reason = "only its memory is used")] [u8; 4096]);

impl Buffer {
    pub fn new(length: usize) -> Buffer {
        Buffer::shifted(length, 0)
    }

    /// Memory that begins this many bytes after an aligned address.
    pub fn shifted(length: usize, start: usize) -> Buffer {
        Buffer {
            memory: vec![Block([0xAA; 4096]); (length + start).div_ceil(4096).max(1)],
            start,
            length,
        }
    }

    /// Memory for a transfer of a file: always aligned for direct I/O, otherwise sometimes unaligned.
    pub fn for_file(file: &File, length: usize) -> Buffer {
        let shift = if !file.direct.load(Ordering::Relaxed) && random::one_in(3) {
            1024
        } else {
            0
        };
        Buffer::shifted(length, shift)
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: inside the blocks, which are plain bytes.
        unsafe {
            std::slice::from_raw_parts_mut(
                self.memory.as_mut_ptr().cast::<u8>().add(self.start),
                self.length,
            )
        }
    }

    pub fn at(&mut self, offset: usize) -> *mut libc::c_void {
        self.bytes()[offset..].as_mut_ptr().cast()
    }
}
