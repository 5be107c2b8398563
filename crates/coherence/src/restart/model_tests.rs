//! A random model of restarts: a server writes, dies and starts again. Its file systems are snapshotted, rolled back, remounted and
//! changed by other programs. The product's records, stamps and decisions run unchanged; kernel, disks and cache are simulated.
//!
//! The property: whenever a process trusts a file, each of its cached pages equals the file as the kernel shows it.
//!
//! Not simulated, because the protocol does not cover it ([`crate::restart::stamp`]): changes by others while the server runs; an
//! inode that is evicted and changed within the tick of its stamp; a tool other than InnoDB that writes right before a loss of
//! power; writes by others through the page cache that are never written back.
//!
//! `BPE_RESTART_HISTORIES` sets the number of histories, `BPE_RESTART_SEED` the first seed.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ffi::CStr;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::files::{Attach, DataFile, Files, Slot, empty_slot};
use crate::platform::os::{Errno, FileSystem, Level, Os, Stat};
use crate::platform::sync::{AtomicU64, JoinHandle, Ordering};
use crate::restart::manifest::{Head, Manifest, Memory, Record};
use crate::restart::proof::Found;
use crate::testing::canary::{is_removed, noticed, remove_rule};
use crate::testing::failpoint::{Death, die_in, may_die};

const FILES: usize = 3;
const PAGES: usize = 3;
const TICK: i64 = 4_000_000;
const START: i64 = 1_700_000_000_123_456_789;
const HISTORIES: u64 = 1500;
/// Histories in a batch while a rule is left out, and the maximum number of batches.
const BATCH: u64 = 250;
const MAX_BATCHES: u64 = 40;
const STEPS: usize = 60;

#[derive(Clone, Copy, Default, PartialEq, Debug)]
struct Inode {
    number: u64,
    birth: u64,
    content: [u32; PAGES],
    ctime: i64,
    /// The ctime was queried since it was set. In memory only.
    is_queried: bool,
}

/// Contents of a file system: the data directory.
#[derive(Clone, Copy, Default)]
struct Volume {
    files: [Inode; FILES],
    token: u128,
    /// InnoDB's redo log, which is written before each page.
    redo: u64,
    /// UUID of the subvolume.
    subvolume: u128,
}

#[derive(Default)]
struct Kernel {
    now: i64,
    /// The latest assigned fine stamp. Coarse stamps are never earlier.
    floor: i64,
    has_fine_stamps: bool,
    has_whole_seconds: bool,
    superblock: u64,
    device: u64,
    /// Contents as the kernel shows them.
    shown: Volume,
    /// Contents on the disk.
    durable: Volume,
    /// The server's descriptor of the file lacks O_DIRECT.
    is_buffered: [bool; FILES],
    /// The redo log is on another volume, which is not rolled back with the data.
    redo_is_elsewhere: bool,
    numbers: u64,
}

impl Kernel {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Stamps a file like `inode_set_ctime_current` of Linux.
    fn stamp(&mut self, file: usize) {
        let coarse = match self.has_fine_stamps {
            true => self.now.max(self.floor),
            false => self.now,
        };
        let inode = &mut self.shown.files[file];
        inode.ctime = match self.has_fine_stamps && inode.is_queried && inode.ctime >= coarse {
            true => {
                self.floor = self.floor.max(coarse) + 17;
                self.floor
            }
            false => coarse,
        };
        if self.has_whole_seconds {
            inode.ctime -= inode.ctime % 1_000_000_000;
        }
        inode.is_queried = false;
    }

    fn write(&mut self, file: usize, page: usize, version: u32, is_buffered: bool) {
        self.shown.files[file].content[page] = version;
        if !is_buffered {
            self.durable.files[file].content[page] = version;
        }
    }

    /// Unmounts and mounts the volume: another superblock, and no marks in memory.
    fn mount(&mut self) {
        self.superblock = self.number();
        self.device = 8 + self.number() % 2;
        self.shown = self.durable;
        for inode in &mut self.shown.files {
            inode.is_queried = false;
        }
    }
}

thread_local! {
    static KERNEL: RefCell<Kernel> = RefCell::default();
    static RANDOM: RefCell<fastrand::Rng> = const { RefCell::new(fastrand::Rng::with_seed(0)) };
}

fn kernel<R>(body: impl FnOnce(&mut Kernel) -> R) -> R {
    KERNEL.with_borrow_mut(body)
}

fn below(limit: usize) -> usize {
    RANDOM.with_borrow_mut(|random| random.usize(..limit))
}

fn one_in(n: usize) -> bool {
    below(n) == 0
}

/// The simulated machine. Descriptor n is file n.
#[derive(Default)]
struct Machine;

impl Os for Machine {
    const HERE: i32 = -100;

    fn stat(&self, fd: i32) -> Option<Stat> {
        kernel(|kernel| {
            let device = kernel.device;
            let inode = &mut kernel.shown.files[fd as usize];
            inode.is_queried = true;
            let time = (inode.ctime / 1_000_000_000, inode.ctime % 1_000_000_000);
            Some(Stat {
                inode: (device, inode.number),
                size: (PAGES * 4096) as i64,
                modified: time,
                changed: time,
                links: 1,
                is_regular: true,
            })
        })
    }

    fn stat_at(&self, _: i32, _: &CStr) -> Option<Stat> {
        None
    }

    unsafe fn read(&self, _: i32, _: *mut u8, _: usize, _: i64) -> Result<usize, Errno> {
        Err(Errno::IO)
    }

    fn open_descriptors(&self) -> Vec<i32> {
        Vec::new()
    }

    fn path_of(&self, _: i32) -> Option<Vec<u8>> {
        None
    }

    fn running(&self) -> Duration {
        Duration::from_secs(1000)
    }

    fn since_boot(&self) -> i128 {
        1_000_000_000_000
    }

    fn file_time(&self) -> i64 {
        now()
    }

    fn birth(&self, fd: i32) -> Option<u64> {
        Some(kernel(|kernel| kernel.shown.files[fd as usize].birth))
    }

    fn file_system(&self, _: u64, _: i32) -> Option<FileSystem> {
        kernel(|kernel| {
            Some(FileSystem {
                superblock: kernel.superblock,
                subvolume: kernel.shown.subvolume,
            })
        })
    }

    fn is_direct(&self, fd: i32) -> bool {
        !kernel(|kernel| kernel.is_buffered[fd as usize])
    }

    fn spawn<T: Send + 'static>(
        &self,
        name: &str,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        std::thread::Builder::new().name(name.into()).spawn(body)
    }

    fn log(&self, _: Level, _: &str) {}
}

fn now() -> i64 {
    kernel(|kernel| kernel.now)
}

/// Entries by identity and page.
type Entries = HashMap<(u32, usize), u32>;

#[derive(Clone)]
struct Image {
    words: Vec<u64>,
    entries: Entries,
    token: u128,
    redo: u64,
    device: u64,
}

/// State that outlives a process.
struct World {
    head: &'static Head,
    records: &'static [Record],
    /// The memory is from this boot of the host.
    has_area: bool,
    entries: Entries,
    image: Option<Image>,
    /// The snapshot that the last start consumed. A loss of power may undo its removal.
    taken: Option<Image>,
    snapshot: Option<(Volume, Option<u64>)>,
    area_copy: Option<(Vec<u64>, Entries)>,
    image_copy: Option<Image>,
    version: u32,
    trusted: u64,
    rejected: u64,
    starts: u64,
}

/// A server with the plugin.
struct Process {
    files: &'static mut Files<Machine>,
    open: [bool; FILES],
    /// Stamped writes in flight: file, page, version, buffered.
    in_flight: Vec<(usize, usize, u32, bool)>,
}

impl World {
    fn new(head: &'static Head, records: &'static [Record]) -> World {
        let world = World {
            head,
            records,
            has_area: false,
            entries: Entries::new(),
            image: None,
            taken: None,
            snapshot: None,
            area_copy: None,
            image_copy: None,
            version: 0,
            trusted: 0,
            rejected: 0,
            starts: 0,
        };
        world.restore(&vec![0; world.words().len()]);
        kernel(|kernel| {
            *kernel = Kernel {
                now: START,
                floor: START,
                has_fine_stamps: one_in(2),
                has_whole_seconds: one_in(20),
                redo_is_elsewhere: one_in(3),
                numbers: 100,
                ..Kernel::default()
            };
            kernel.durable.subvolume = 1;
            for file in 0..FILES {
                let number = kernel.number();
                kernel.durable.files[file] = Inode {
                    number,
                    birth: number,
                    ctime: START - 1_000_000_000_000,
                    ..Inode::default()
                };
            }
            kernel.mount();
        });
        world
    }

    fn words_of(&self) -> impl Iterator<Item = &'static AtomicU64> + use<> {
        let head = std::ptr::from_ref(self.head).cast::<AtomicU64>();
        let records = self.records.as_ptr().cast::<AtomicU64>();
        // SAFETY: both consist of atomic words, and are never freed.
        let (head, records) = unsafe {
            (
                std::slice::from_raw_parts(head, size_of::<Head>() / 8),
                std::slice::from_raw_parts(records, size_of_val(self.records) / 8),
            )
        };
        head.iter().chain(records)
    }

    fn words(&self) -> Vec<u64> {
        let words = self.words_of();
        words.map(|word| word.load(Ordering::SeqCst)).collect()
    }

    fn restore(&self, words: &[u64]) {
        for (word, value) in self.words_of().zip(words) {
            word.store(*value, Ordering::SeqCst);
        }
    }

    /// Starts a process, which decides like the plugin.
    fn start(&mut self) -> Process {
        self.starts += 1;
        let table: Vec<Slot> = (0..16).map(|_| empty_slot()).collect();
        let files = Box::leak(Box::new(Files::new(Machine, table.leak())));
        let memory = Memory {
            now,
            grow: |_| false,
        };
        let manifest = Manifest::new(self.head, self.records, FILES, memory);
        let (token, redo) = kernel(|kernel| (kernel.durable.token, kernel.durable.redo));
        kernel(|kernel| {
            let next: u128 = kernel.number().into();
            if !is_removed("token-stays") {
                (kernel.shown.token, kernel.durable.token) = (next, next);
            }
        });
        let superblock = kernel(|kernel| kernel.superblock);
        let is_other = manifest.superblock() != superblock;
        let is_same_mount = self.has_area && (!is_other || is_removed("superblock"));
        let mut image = None;
        if let Some(written) = self.image.take().filter(|_| !is_same_mount) {
            self.restore(&written.words);
            self.taken = Some(written.clone());
            self.entries = written.entries;
            let is_proven = written.token == token || is_removed("token");
            let is_fenced = written.redo == redo || is_removed("fence");
            image = Some((written.device, is_proven && is_fenced));
            if !(is_proven && is_fenced) {
                manifest.distrust();
            }
            if one_in(2) {
                // The process dies before it rejects a record.
                self.has_area = true;
                return self.start();
            }
        }
        let found = Found {
            device: kernel(|kernel| kernel.device),
            superblock,
            is_same_mount,
            has_fine_stamps: kernel(|kernel| kernel.has_fine_stamps && !kernel.has_whole_seconds),
            image,
        };
        let is_valid = (self.has_area || image.is_some())
            && manifest.session().is_some()
            && manifest.is_tracked();
        self.has_area = true;
        if !is_valid {
            manifest.clear();
            manifest.be_on(superblock);
            self.entries.clear();
        }
        files.switch.keep(manifest);
        files.use_fine_stamps(found.has_fine_stamps);
        // SAFETY: freed by `end`, when nothing refers to it.
        let lent: &'static Files<Machine> = unsafe { &*std::ptr::from_ref(files) };
        if is_valid {
            lent.recover(found.recovery());
        }
        lent.switch.start_tracking(|| ());
        let manifest = lent.switch.manifest().expect("kept");
        manifest.attach(Some(1), manifest.detached());
        Process {
            files,
            open: [false; FILES],
            in_flight: Vec::new(),
        }
    }
}

impl Process {
    fn files(&self) -> &'static Files<Machine> {
        // SAFETY: as in `start`.
        unsafe { &*std::ptr::from_ref(&*self.files) }
    }

    fn file(&self, file: usize) -> &'static DataFile {
        self.files().of_descriptor(file as i32).expect("open")
    }

    /// Opens a file, and compares its trusted entries with its contents.
    fn open(&mut self, world: &mut World, file: usize) {
        if std::mem::replace(&mut self.open[file], true) {
            return;
        }
        kernel(|kernel| kernel.is_buffered[file] = one_in(6));
        let before = self.files().recoveries.report();
        let stat = Machine.stat(file as i32).expect("a file");
        let how = Attach::Opened { anew: false };
        self.files()
            .attach(file as i32, &stat, format!("{file}.ibd").as_bytes(), how);
        let known = self.file(file);
        known.learn_page_size(4096);
        let after = self.files().recoveries.report();
        world.trusted += after.trusted.0 - before.trusted.0;
        world.rejected += after.rejected.0 - before.rejected.0;
        let content = kernel(|kernel| kernel.shown.files[file].content);
        for (page, version) in content.into_iter().enumerate() {
            let entry = world.entries.get(&(known.id().0, page));
            assert!(
                entry.is_none_or(|entry| *entry == version),
                "stale: page {page} of file {file} is {version}, and {entry:?} is served"
            );
        }
    }

    fn close(&mut self, file: usize) {
        if self.in_flight.iter().all(|write| write.0 != file)
            && std::mem::take(&mut self.open[file])
        {
            self.files().detach(file as i32);
        }
    }

    /// Starts a write, up to the return of the submission.
    fn submit(&mut self, world: &mut World, file: usize, page: usize) {
        if self
            .in_flight
            .iter()
            .any(|write| (write.0, write.1) == (file, page))
        {
            return;
        }
        let known = self.file(file);
        known.begin_change();
        if !is_removed("drop-before-write") {
            world.entries.remove(&(known.id().0, page));
        }
        let is_buffered = kernel(|kernel| kernel.is_buffered[file]);
        if is_removed("stamp-before-call") {
            self.files().stamp(known, file as i32);
        }
        world.version += 1;
        let version = world.version;
        kernel(|kernel| {
            // Redo is written ahead, and the copy in the page cache is visible at once.
            kernel.shown.redo += 1;
            kernel.durable.redo = kernel.shown.redo;
            kernel.stamp(file);
            if is_buffered {
                kernel.write(file, page, version, true);
            }
        });
        if is_removed("insert-before-completion") {
            world.entries.insert((known.id().0, page), version);
        }
        self.in_flight.push((file, page, version, is_buffered));
        may_die();
        if one_in(8) {
            kernel(|kernel| kernel.now += TICK);
        }
        if !is_removed("stamp-before-call") {
            self.files().stamp(known, file as i32);
        }
        if one_in(12) && is_removed("io-uring-voids") || one_in(12) {
            // Through io_uring: the write may land after the death of the process, and the new process may read earlier.
            known.void_stamp();
        }
    }

    fn complete(&mut self, world: &mut World, at: usize) {
        let (file, page, version, is_buffered) = self.in_flight.swap_remove(at);
        kernel(|kernel| kernel.write(file, page, version, is_buffered));
        may_die();
        let known = self.file(file);
        known.end_change();
        world.entries.insert((known.id().0, page), version);
    }

    fn read(&mut self, world: &mut World, file: usize, page: usize) {
        let is_written = self
            .in_flight
            .iter()
            .any(|write| (write.0, write.1) == (file, page));
        if !is_written {
            let version = kernel(|kernel| kernel.shown.files[file].content[page]);
            let id = self.file(file).id().0;
            let entry = world.entries.entry((id, page)).or_insert(version);
            assert_eq!(*entry, version, "a stale hit of page {page} of file {file}");
            if let Some(manifest) = self.files().switch.manifest() {
                manifest.live();
            }
        }
    }

    /// Renames a file, whether it is open or not.
    fn rename(&self, file: usize) {
        let inode = kernel(|kernel| (kernel.device, kernel.shown.files[file].number));
        let Some(known) = self.files().of_number(inode) else {
            return;
        };
        known.begin_change();
        kernel(|kernel| kernel.stamp(file));
        self.files().stamp_open(known);
        known.end_change();
    }

    /// One random action of a server.
    fn step(&mut self, world: &mut World) {
        let (file, page) = (below(FILES), below(PAGES));
        match below(12) {
            0..=4 => {
                self.open(world, file);
                self.submit(world, file, page);
            }
            5..=7 if !self.in_flight.is_empty() => {
                let at = below(self.in_flight.len());
                self.complete(world, at);
            }
            8..=9 => {
                self.open(world, file);
                self.read(world, file, page);
            }
            10 if one_in(2) => self.rename(file),
            10 => self.close(file),
            _ => kernel(|kernel| kernel.now += TICK * below(3) as i64),
        }
    }

    /// The last step of a clean stop, like the plugin's `snapshot::at_end`.
    fn stop(&mut self, world: &mut World) {
        while let Some(at) = self.in_flight.len().checked_sub(1) {
            self.complete(world, at);
        }
        (0..FILES).for_each(|file| self.close(file));
        let files = self.files();
        let manifest = files.switch.manifest().expect("kept");
        assert!(files.are_idle());
        let latest = manifest.latest_stamp();
        kernel(|kernel| {
            while kernel.now <= latest {
                kernel.now += TICK;
            }
        });
        manifest.live();
        may_die();
        if !is_removed("sync") {
            kernel(|kernel| {
                let token = kernel.durable.token;
                kernel.durable = kernel.shown;
                kernel.durable.token = token;
            });
        }
        may_die();
        let token = kernel(|kernel| {
            let token: u128 = kernel.number().into();
            (kernel.shown.token, kernel.durable.token) = (token, token);
            token
        });
        manifest.stop_cleanly();
        if one_in(8) {
            return; // The cache disk is slow: there is no snapshot.
        }
        world.image = Some(Image {
            words: world.words(),
            entries: world.entries.clone(),
            token,
            redo: kernel(|kernel| kernel.durable.redo),
            device: kernel(|kernel| kernel.device),
        });
    }

    /// Ends the process: its requests complete.
    fn end(mut self) {
        for (file, page, version, is_buffered) in std::mem::take(&mut self.in_flight) {
            // Some fail.
            if is_buffered || !one_in(8) {
                kernel(|kernel| kernel.write(file, page, version, is_buffered));
            }
        }
        // SAFETY: nothing refers to it any longer.
        unsafe {
            self.files.free();
            drop(Box::from_raw(std::ptr::from_mut(self.files)));
        }
    }
}

impl World {
    /// One random event between two processes.
    fn between(&mut self) {
        let file = below(FILES);
        match below(17) {
            16 => kernel(|kernel| {
                // The page cache cannot be written back, so the file has the contents of the disk.
                let durable = kernel.durable.files[file].content;
                kernel.shown.files[file].content = durable;
            }),
            0 | 1 => kernel(|kernel| kernel.now += TICK * below(500) as i64),
            2 => {
                // Another program writes, perhaps within the same tick.
                self.version += 1;
                let version = self.version;
                kernel(|kernel| {
                    kernel.stamp(file);
                    kernel.write(file, below(PAGES), version, false);
                    kernel.durable.files[file].ctime = kernel.shown.files[file].ctime;
                });
            }
            3 => kernel(|kernel| kernel.stamp(file)), // chmod, a hard link
            4 => {
                // Another inode with an older version takes the name.
                let content = self
                    .snapshot
                    .map_or([0; PAGES], |snapshot| snapshot.0.files[file].content);
                kernel(|kernel| {
                    let number = match one_in(2) {
                        true => kernel.number(),
                        false => kernel.shown.files[file].number,
                    };
                    let birth = kernel.number();
                    kernel.shown.files[file] = Inode {
                        number,
                        birth,
                        content,
                        ..Inode::default()
                    };
                    kernel.stamp(file);
                    kernel.durable.files[file] = kernel.shown.files[file];
                });
            }
            5 => {
                let redo = kernel(|kernel| kernel.redo_is_elsewhere).then_some(0);
                self.snapshot = Some((kernel(|kernel| kernel.shown), redo));
            }
            6 | 7 => self.roll_back_subvolume(),
            8 => self.roll_back_device(),
            9 => kernel(|kernel| {
                // A clean unmount: all is durable.
                let token = kernel.durable.token;
                kernel.durable = kernel.shown;
                kernel.durable.token = token;
                kernel.mount();
            }),
            10 | 11 => {
                // The host restarts, cleanly or by a loss of power: each page and each time may be as on the disk.
                if one_in(2) {
                    kernel(|kernel| {
                        let token = kernel.durable.token;
                        kernel.durable = kernel.shown;
                        kernel.durable.token = token;
                    });
                } else {
                    kernel(|kernel| {
                        for file in 0..FILES {
                            if one_in(2) {
                                kernel.durable.files[file].ctime = kernel.shown.files[file].ctime;
                            }
                            for page in 0..PAGES {
                                if one_in(2) {
                                    kernel.durable.files[file].content[page] =
                                        kernel.shown.files[file].content[page];
                                }
                            }
                        }
                    });
                    if let Some(taken) = self.taken.take().filter(|_| one_in(2)) {
                        // A redo log on another volume may be restored as well.
                        kernel(|kernel| {
                            if kernel.redo_is_elsewhere && one_in(2) {
                                kernel.durable.redo = taken.redo;
                            }
                        });
                        self.image = Some(taken);
                    }
                }
                kernel(|kernel| {
                    kernel.floor = 0;
                    let superblock = kernel.superblock;
                    kernel.mount();
                    if one_in(2) {
                        // Numbers of superblocks are unique only within a boot.
                        kernel.superblock = superblock;
                    }
                });
                self.has_area = false;
                self.area_copy = None;
                self.entries.clear();
            }
            12 => {
                // Another run of InnoDB without the plugin: redo before pages.
                self.version += 1;
                let version = self.version;
                kernel(|kernel| {
                    kernel.shown.redo += 1;
                    kernel.durable.redo = kernel.shown.redo;
                    kernel.stamp(file);
                    kernel.write(file, below(PAGES), version, false);
                });
            }
            13 => kernel(|kernel| {
                // The kernel keeps the floor by a clock that is never set.
                let step = (below(7200) as i64 - 3600) * 1_000_000_007;
                (kernel.now, kernel.floor) = (kernel.now + step, kernel.floor + step);
            }),
            14 => {
                // An administrator copies the persisted state, or restores the copy.
                match self.area_copy.take() {
                    Some((words, entries)) if self.has_area => {
                        self.restore(&words);
                        self.entries = entries;
                    }
                    _ => self.area_copy = Some((self.words(), self.entries.clone())),
                }
            }
            15 if one_in(2) => {
                // The cache disk is rolled back, with its snapshot of that time.
                match self.image_copy.take() {
                    Some(image) => self.image = Some(image),
                    None => self.image_copy = self.image.clone(),
                }
            }
            _ => {
                // Parts of the cache disk are lost: those entries fail their proof.
                self.entries.retain(|_, _| !one_in(3));
            }
        }
    }

    /// btrfs: the subvolume is replaced by a snapshot while the file system stays mounted.
    fn roll_back_subvolume(&mut self) {
        let Some((snapshot, redo)) = self.snapshot else {
            return;
        };
        kernel(|kernel| {
            let now = redo.map(|_| kernel.durable.redo);
            kernel.shown = snapshot;
            kernel.shown.subvolume = kernel.number().into();
            kernel.shown.redo = now.unwrap_or(snapshot.redo);
            kernel.durable = kernel.shown;
        });
    }

    /// A volume is unmounted, rolled back, and mounted again.
    fn roll_back_device(&mut self) {
        let Some((snapshot, redo)) = self.snapshot else {
            return;
        };
        kernel(|kernel| {
            let now = redo.map(|_| kernel.durable.redo);
            let subvolume = kernel.durable.subvolume;
            kernel.durable = snapshot;
            kernel.durable.subvolume = subvolume;
            kernel.durable.redo = now.unwrap_or(snapshot.redo);
            kernel.mount();
        });
    }

    /// Runs one process from start to end.
    fn live(&mut self) {
        let process = Cell::new(Some(self.start()));
        let dies = !one_in(3);
        die_in(dies.then(|| below(60) as u32));
        let lived = catch_unwind(AssertUnwindSafe(|| {
            let mut alive = process.take().expect("started");
            let result = catch_unwind(AssertUnwindSafe(|| {
                for _ in 0..below(STEPS) {
                    alive.step(self);
                }
                if !dies {
                    alive.stop(self);
                }
            }));
            process.set(Some(alive));
            if let Err(panic) = result {
                std::panic::resume_unwind(panic);
            }
        }));
        die_in(None);
        if let Some(process) = process.take() {
            process.end();
        }
        if let Err(panic) = lived
            && !panic.is::<Death>()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Runs this number of histories from a seed on. Returns the numbers of trusted files, rejected files and starts.
fn run(seed: u64, histories: u64) -> (u64, u64, u64) {
    let head: &'static Head = Box::leak(Box::default());
    let records: Vec<Record> = (0..FILES).map(|_| Record::default()).collect();
    let records = records.leak();
    let mut sums = (0, 0, 0);
    for history in seed..seed + histories {
        RANDOM.set(fastrand::Rng::with_seed(history));
        let mut world = World::new(head, records);
        let result = catch_unwind(AssertUnwindSafe(|| {
            for _ in 0..2 + below(6) {
                world.live();
                for _ in 0..below(4) {
                    world.between();
                }
            }
        }));
        if let Err(panic) = result {
            eprintln!("BPE_RESTART_SEED={history} BPE_RESTART_HISTORIES=1 repeats it");
            std::panic::resume_unwind(panic);
        }
        sums.0 += world.trusted;
        sums.1 += world.rejected;
        sums.2 += world.starts;
    }
    sums
}

fn setting(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn trusted_pages_equal_their_files() {
    let quiet = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if !panic.payload().is::<Death>() {
            quiet(panic);
        }
    }));
    let seed = setting("BPE_RESTART_SEED", 1);
    let histories = setting("BPE_RESTART_HISTORIES", HISTORIES);
    let (trusted, rejected, starts) = run(seed, histories);
    println!(
        "{histories} histories, {starts} starts: {trusted} files trusted, {rejected} rejected"
    );
    assert!(
        histories < 1000 || trusted > starts / 10 && rejected > starts / 20,
        "{trusted} trusted, {rejected} rejected, {starts} starts: too few to prove anything"
    );
}

/// Rules to leave out, one at a time. Without any of them a page becomes stale, or less than half as many files are trusted.
const MUTATIONS: [&str; 14] = [
    "drop-before-write",
    "stamp-before-call",
    "insert-before-completion",
    "stamp-order",
    "superblock",
    "subvolume",
    "tick-rule",
    "whole-seconds",
    "page-cache",
    "token",
    "token-stays",
    "unproven-image",
    "fence",
    "sync",
];

#[test]
fn left_out_rules_are_noticed() {
    std::panic::set_hook(Box::new(|_| ()));
    let mut unnoticed = Vec::new();
    let (usual, ..) = run(0, BATCH);
    for rule in MUTATIONS {
        remove_rule(rule);
        let batches = (0..MAX_BATCHES).find(|n| {
            let trusted = catch_unwind(|| run(n * BATCH, BATCH).0);
            trusted.is_err() || trusted.is_ok_and(|trusted| trusted < usual / 2)
        });
        remove_rule("");
        match batches {
            Some(n) => noticed(rule, &format!("{} histories", (n + 1) * BATCH)),
            None => unnoticed.push(rule),
        }
    }
    let _ = std::panic::take_hook();
    assert!(unnoticed.is_empty(), "not noticed: {unnoticed:?}");
}
