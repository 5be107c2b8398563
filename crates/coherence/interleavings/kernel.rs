//! A kernel in memory: inodes with the history of their pages, descriptors, and clocks that the checker's threads set.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::seen;
use crate::async_io::{IoEvent, Iocb};
use crate::core::requests::{PWRITE, Words};
use crate::platform::os::{Errno, Level, Os, Stat};
use crate::platform::sync::checked::{begin, set_time, spawn};
use crate::platform::sync::{AtomicU32, JoinHandle, Ordering};

pub const LENGTH: usize = 4096;
/// Pages of each file. Page 0 is not read, because no page size is learned from it.
pub const PAGES: usize = 3;
pub const DESCRIPTORS: usize = 6;

/// A page in InnoDB's format: page number in the header, then inode and version.
pub fn content(inode: usize, page: usize, version: u32) -> [u8; LENGTH] {
    let mut bytes = [inode as u8 + 1; LENGTH];
    bytes[4..8].copy_from_slice(&(page as u32).to_be_bytes());
    bytes[64..68].copy_from_slice(&(inode as u32).to_be_bytes());
    bytes[68..72].copy_from_slice(&version.to_be_bytes());
    bytes
}

/// Parses inode, page and version.
pub fn parse(bytes: &[u8]) -> (usize, usize, u32) {
    let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    (word(64) as usize, word(4) as usize, word(68))
}

struct Inode {
    modified: i128,
    /// Versions of each page, the latest last.
    pages: [Vec<u32>; PAGES],
}

struct State {
    /// Nanoseconds.
    now: i128,
    inodes: Vec<Inode>,
    descriptors: [Option<usize>; DESCRIPTORS],
    versions: u32,
    /// Asynchronous requests in flight.
    under_way: Vec<UnderWay>,
    /// Behaviour of the cache disk.
    answers: bool,
    spoils: u32,
    /// Limit of the next submission.
    accepts: usize,
    /// Threads inside a hook, and those of them that wait for a file's metadata.
    inside: u32,
    asking: u32,
    /// The controller's threads, of this installation and of others.
    threads: u32,
}

/// A request as the kernel accepted it.
struct UnderWay {
    request: usize,
    words: Words,
    opcode: i16,
    length: usize,
    /// The memory must no longer be written: the server has the event.
    late: bool,
}

impl UnderWay {
    fn is_of_the_cache(&self) -> bool {
        self.words.fd as usize >= DESCRIPTORS
    }

    /// A read of a staged page, which needs no disk.
    fn reads_nothing(&self) -> bool {
        self.length == 0
    }
}

pub struct Kernel {
    state: Mutex<State>,
    /// Scheduling point.
    step: AtomicU32,
}

impl Kernel {
    /// With this many files, recently changed.
    pub fn new(inodes: usize) -> Kernel {
        let now: i128 = 1_000_000_000_123;
        begin(Duration::from_nanos(now as u64));
        let inode = |_| Inode {
            modified: now,
            pages: std::array::from_fn(|_| vec![1]),
        };
        Kernel {
            state: Mutex::new(State {
                now,
                inodes: (0..inodes).map(inode).collect(),
                descriptors: [None; DESCRIPTORS],
                versions: 1,
                under_way: Vec::new(),
                answers: true,
                spoils: 0,
                accepts: usize::MAX,
                inside: 0,
                asking: 0,
                threads: 0,
            }),
            step: AtomicU32::new(0),
        }
    }

    fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Offers a scheduling point to other threads.
    pub fn step(&self) {
        self.step.load(Ordering::SeqCst);
    }

    pub fn open(&self, inode: usize) -> i32 {
        self.step();
        self.with(|state| {
            let free = state.descriptors.iter().position(Option::is_none);
            let fd = free.expect("descriptors enough");
            state.descriptors[fd] = Some(inode);
            fd as i32
        })
    }

    pub fn close(&self, fd: i32) {
        self.step();
        self.with(|state| state.descriptors[fd as usize] = None);
    }

    pub fn read(&self, fd: i32, page: usize, to: &mut [u8]) -> isize {
        self.step();
        self.with(|state| {
            let inode = state.descriptors[fd as usize].expect("open");
            let version = *state.inodes[inode].pages[page].last().expect("a first one");
            to.copy_from_slice(&content(inode, page, version));
        });
        self.step();
        LENGTH as isize
    }

    /// Gives these pages new, unique versions.
    pub fn change(&self, inode: usize, pages: std::ops::Range<usize>) {
        self.with(|state| {
            for page in pages {
                state.versions += 1;
                let version = state.versions;
                state.inodes[inode].pages[page].push(version);
            }
            state.inodes[inode].modified = state.now;
        });
    }

    /// A version that no page has had.
    pub fn new_version(&self) -> u32 {
        self.with(|state| {
            state.versions += 1;
            state.versions
        })
    }

    pub fn write(&self, fd: i32, page: usize, version: u32) -> isize {
        self.step();
        self.with(|state| {
            let inode = state.descriptors[fd as usize].expect("open");
            state.inodes[inode].pages[page].push(version);
            state.inodes[inode].modified = state.now;
        });
        self.step();
        LENGTH as isize
    }

    /// Changes all pages at once.
    pub fn truncate(&self, fd: i32) {
        self.step();
        self.change(self.inode_of(fd), 0..PAGES);
        self.step();
    }

    /// Writes a page as another program, unless the server has the file open.
    pub fn foreign_write(&self, inode: usize, page: usize) -> bool {
        self.step();
        let open = self.with(|state| state.descriptors.contains(&Some(inode)));
        if !open {
            self.change(inode, page..page + 1);
        }
        !open
    }

    pub fn stop_answering(&self) {
        self.with(|state| state.answers = false);
    }

    pub fn answer_from_now_on(&self) {
        self.step();
        self.with(|state| state.answers = true);
    }

    /// Makes the cache disk's next answer wrong.
    pub fn spoil(&self) {
        self.with(|state| state.spoils = 1);
    }

    pub fn accept_at_most(&self, requests: usize) {
        self.with(|state| state.accepts = requests);
    }

    pub fn submit(&self, list: &[*mut Iocb]) -> i32 {
        self.step();
        let accepted = self.with(|state| {
            let most = std::mem::replace(&mut state.accepts, usize::MAX);
            let accepted = &list[..list.len().min(most)];
            for &request in accepted {
                // SAFETY: the server does not touch its request until it has the event.
                let iocb = unsafe { &*request };
                let new = UnderWay {
                    request: request as usize,
                    words: Words::of(iocb),
                    opcode: iocb.opcode,
                    length: iocb.length as usize,
                    late: false,
                };
                for known in &mut state.under_way {
                    assert_ne!(
                        known.words.buffer, new.words.buffer,
                        "two requests write to the same memory"
                    );
                    known.late |= known.request == new.request;
                }
                let is_read = new.is_of_the_cache() && !new.reads_nothing();
                seen("cache reads", is_read.into());
                seen("copied", new.reads_nothing().into());
                state.under_way.push(new);
            }
            accepted.len() as i32
        });
        self.step();
        accepted
    }

    /// Events of the completed requests.
    pub fn events(&self) -> Vec<IoEvent> {
        self.step();
        let events = self.with(|state| {
            let answers = state.answers;
            let over = |request: &mut UnderWay| {
                answers || request.reads_nothing() || !request.is_of_the_cache()
            };
            let over: Vec<UnderWay> = state.under_way.extract_if(.., over).collect();
            over.into_iter().map(|over| state.end(over)).collect()
        });
        self.step();
        events
    }

    pub fn inode_of(&self, fd: i32) -> usize {
        self.with(|state| state.descriptors[fd as usize].expect("open"))
    }

    /// Number of the page's versions so far.
    pub fn versions(&self, inode: usize, page: usize) -> usize {
        self.with(|state| state.inodes[inode].pages[page].len())
    }

    /// Whether the page had this version at or after its `first`th version.
    pub fn had(&self, inode: usize, page: usize, version: u32, first: usize) -> bool {
        self.with(|state| state.inodes[inode].pages[page][first - 1..].contains(&version))
    }

    pub fn history(&self, inode: usize, page: usize) -> Vec<u32> {
        self.with(|state| state.inodes[inode].pages[page].clone())
    }

    pub fn pass(&self, time: Duration) {
        self.step();
        let now = self.with(|state| {
            state.now += time.as_nanos() as i128;
            state.now
        });
        set_time(Duration::from_nanos(now as u64));
    }

    /// Advances time so far that no thread is still in a hook that it entered before, unless it waits for a file server.
    /// Returns whether that was possible.
    pub fn pass_long(&self) -> bool {
        self.step();
        // In one step: no thread may enter between the check and the new time.
        let now = self.with(|state| {
            let can = state.inside == state.asking;
            if can {
                state.now += Duration::from_secs(120).as_nanos() as i128;
            }
            can.then_some(state.now)
        });
        if let Some(now) = now {
            set_time(Duration::from_nanos(now as u64));
        }
        now.is_some()
    }

    /// Threads that have started and not ended.
    pub fn threads(&self) -> u32 {
        self.with(|state| state.threads)
    }

    /// A thread enters a hook.
    pub fn enter(&self) -> Inside<'_> {
        self.with(|state| state.inside += 1);
        Inside(self)
    }

    fn asked(&self, answer: impl FnOnce(&State) -> Option<Stat>) -> Option<Stat> {
        self.step();
        self.with(|state| state.asking += 1);
        self.step();
        let stat = self.with(|state| answer(state));
        self.step();
        self.with(|state| state.asking -= 1);
        stat
    }
}

impl State {
    fn end(&mut self, over: UnderWay) -> IoEvent {
        let mut bytes = [0; LENGTH];
        // SAFETY: a request's memory stays valid until its event is taken.
        let memory =
            unsafe { std::slice::from_raw_parts_mut(over.words.buffer as *mut u8, over.length) };
        if over.reads_nothing() {
            // A read of a staged page writes no memory.
        } else if over.is_of_the_cache() {
            // SAFETY: the descriptor stays open while the request is in flight.
            let file = unsafe { ManuallyDrop::new(File::from_raw_fd(over.words.fd)) };
            let at = over.words.offset as u64;
            let mut aligned = vec![0; 2 * LENGTH];
            let shift = aligned.as_ptr().align_offset(LENGTH);
            let aligned = &mut aligned[shift..shift + LENGTH];
            file.read_exact_at(aligned, at).expect("of the cache file");
            bytes.copy_from_slice(aligned);
            if std::mem::take(&mut self.spoils) > 0 {
                seen("spoilt", 1);
                bytes[70] ^= 0xff;
            }
        } else {
            let inode = self.descriptors[over.words.fd as usize].expect("open");
            let page = over.words.offset as usize / LENGTH;
            if over.opcode == PWRITE {
                let version = parse(memory).2;
                self.inodes[inode].pages[page].push(version);
                self.inodes[inode].modified = self.now;
            }
            let version = *self.inodes[inode].pages[page].last().expect("a first one");
            bytes = content(inode, page, version);
        }
        seen("late", over.late.into());
        if over.opcode != PWRITE && !over.late && !over.reads_nothing() {
            memory.copy_from_slice(&bytes);
        }
        IoEvent {
            data: over.words.data,
            request: over.request as u64,
            result: over.length as i64,
            result2: 0,
        }
    }
}

pub struct Inside<'a>(&'a Kernel);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.with(|state| state.inside -= 1);
    }
}

fn stat(state: &State, inode: usize) -> Stat {
    const SECOND: i128 = 1_000_000_000;
    let modified = state.inodes[inode].modified;
    let time = ((modified / SECOND) as i64, (modified % SECOND) as i64);
    Stat {
        inode: (1, inode as u64 + 1),
        size: (PAGES * LENGTH) as i64,
        modified: time,
        changed: time,
        links: 1,
        is_regular: true,
    }
}

impl Os for Kernel {
    const HERE: i32 = -100;

    fn stat(&self, fd: i32) -> Option<Stat> {
        self.asked(|state| {
            let inode = *state.descriptors.get(fd as usize)?;
            inode.map(|inode| stat(state, inode))
        })
    }

    fn stat_at(&self, _: i32, path: &CStr) -> Option<Stat> {
        let inode = path.to_str().ok()?.parse().ok()?;
        self.asked(|state| Some(stat(state, inode)))
    }

    unsafe fn read(&self, fd: i32, to: *mut u8, length: usize, at: i64) -> Result<usize, Errno> {
        // SAFETY: the caller's promise.
        let to = unsafe { std::slice::from_raw_parts_mut(to, length) };
        Ok(Kernel::read(self, fd, at as usize / LENGTH, to) as usize)
    }

    fn open_descriptors(&self) -> Vec<i32> {
        self.step();
        self.with(|state| {
            let open = |fd: &i32| state.descriptors[*fd as usize].is_some();
            (0..DESCRIPTORS as i32).filter(open).collect()
        })
    }

    fn path_of(&self, fd: i32) -> Option<Vec<u8>> {
        self.step();
        self.with(|state| state.descriptors[fd as usize])
            .map(|inode| format!("{inode}.ibd").into_bytes())
    }

    fn running(&self) -> Duration {
        Duration::from_nanos(self.with(|state| state.now) as u64)
    }

    fn since_boot(&self) -> i128 {
        self.with(|state| state.now)
    }

    fn file_time(&self) -> i64 {
        self.with(|state| state.now) as i64
    }

    fn spawn<T: Send + 'static>(
        &self,
        _: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        self.with(|state| state.threads += 1);
        // The kernel outlives its threads, as does its world.
        let kernel = std::ptr::from_ref(self) as usize;
        Ok(spawn(move || {
            let result = body();
            // SAFETY: as above.
            let kernel = unsafe { &*(kernel as *const Kernel) };
            kernel.with(|state| state.threads -= 1);
            result
        }))
    }

    fn log(&self, _: Level, _: &str) {}
}
