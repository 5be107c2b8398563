//! A server with two files on a kernel in memory, with the hooks around its calls as in the plugin.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsRawFd, IntoRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use cache::{Config, DeviceConfig, Extension, OwnerIdentity, PolicyName};

use super::host::Process;
use super::kernel::{DESCRIPTORS, Kernel, LENGTH, PAGES, content, parse};
use super::requests::Own;
use super::seen;
use crate::control::controller::{Controller, Engine};
use crate::core::Core;
use crate::files::{Attach, DataFile, Slot, empty_slot};
use crate::platform::sync::Mutex;
use crate::platform::sync::checked::{OnPurpose, panic_at};
use crate::switch::Interrupted;

pub const FILES: usize = 2;

/// State shared by the threads of a schedule. Must not be used after [`World::end`].
#[derive(Clone, Copy)]
pub struct World(&'static Shared);

pub struct Shared {
    pub core: &'static Core<Kernel>,
    controller: Controller<Process>,
    /// InnoDB's page latches, held during a read or write of the page.
    latches: [[Mutex<()>; PAGES]; FILES],
    /// Held while switching on or starting a recording, as in the controller.
    building: Mutex<()>,
    /// The controller's state: whether an engine was published and not switched off since. Lock order: after `building`.
    running: Mutex<bool>,
    /// Lock of the next hook at which its thread is to panic, counted from 1; 0: none.
    panics: AtomicU32,
    /// The server's asynchronous requests.
    pub own: [Box<Own>; 3],
    _folder: tempfile::TempDir,
}

impl std::ops::Deref for World {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        self.0
    }
}

/// Directory of the cache files: in memory if direct reads work there, because other reads of a cache file have no time limit.
fn folder() -> tempfile::TempDir {
    static IN_MEMORY: LazyLock<bool> = LazyLock::new(|| {
        // Descriptors below `DESCRIPTORS` belong to the kernel in memory.
        keep_small_numbers();
        let direct = tempfile::tempdir_in("/dev/shm").and_then(|folder| {
            let path = folder.path().join("direct");
            let mut options = File::options();
            options.write(true).create_new(true);
            options.custom_flags(libc::O_DIRECT).open(path)
        });
        direct.is_ok()
    });
    match *IN_MEMORY {
        true => tempfile::tempdir_in("/dev/shm"),
        false => tempfile::tempdir(),
    }
    .unwrap()
}

/// Reserves the small descriptor numbers for simulated descriptors. Waits for numbers that another test holds briefly.
fn keep_small_numbers() {
    let mut kept = BTreeSet::from([0, 1, 2]);
    for _ in 0..200 {
        while let Ok(file) = File::open("/dev/null") {
            if file.as_raw_fd() >= DESCRIPTORS as i32 {
                break;
            }
            kept.insert(file.into_raw_fd());
        }
        if (0..DESCRIPTORS as i32).all(|fd| kept.contains(&fd)) {
            return;
        }
        // A descriptor from before the tests remains reserved.
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl World {
    /// Off, with this many extensions available to switch on. `bound` limits the wait for a cache disk, if it is not 0.
    pub fn new(engines: usize, bound: Duration) -> World {
        let table: Vec<Slot> = (0..DESCRIPTORS).map(|_| empty_slot()).collect();
        let core: &Core<Kernel> = Box::leak(Box::new(Core::new(Kernel::new(FILES), table.leak())));
        let folder = folder();
        let open = |number| {
            let config = Config {
                devices: vec![DeviceConfig {
                    path: folder.path().to_path_buf(),
                    bytes: cache::MIN_DEVICE_BYTES,
                    owner: OwnerIdentity([7; 16]),
                    file_name: format!("cache{number}"),
                }],
                policy: PolicyName::SecondChance,
                read_timeout: (!bound.is_zero()).then_some(bound),
                nominal_page: 65536,
                ..Config::default()
            };
            Extension::open_inline(config, Arc::clone(core.switch().generations())).unwrap()
        };
        World(Box::leak(Box::new(Shared {
            core,
            controller: Controller::new(core, Process::new(core, (0..engines).map(open).collect())),
            latches: std::array::from_fn(|_| std::array::from_fn(|_| Mutex::new(()))),
            building: Mutex::new(()),
            running: Mutex::new(false),
            panics: AtomicU32::new(0),
            own: std::array::from_fn(|_| Own::new()),
            _folder: folder,
        })))
    }

    /// On, with this many descriptors of the first file; otherwise as [`new`](Self::new).
    pub fn serving(engines: usize, bound: Duration, descriptors: usize) -> World {
        let world = World::new(engines, bound);
        world.on();
        for _ in 0..descriptors {
            world.open(0);
        }
        world
    }

    pub fn controller(&self) -> &'static Controller<Process> {
        &self.0.controller
    }

    pub fn kernel(&self) -> &'static Kernel {
        self.core.os()
    }

    // The hooks.

    pub fn open(&self, inode: usize) -> i32 {
        let inside = self.kernel().enter();
        let off = || self.core.switch().mode().is_off();
        let was_off = off();
        let fd = self.kernel().open(inode);
        drop(inside);
        if !was_off || !off() && !canary!("open-seen-late") {
            self.opened(fd, inode);
        }
        fd
    }

    /// Second half of [`open`](Self::open).
    pub fn opened(&self, fd: i32, inode: usize) {
        let _inside = self.kernel().enter();
        self.core.files.opened_anew(fd);
        if let Some(stat) = crate::platform::os::Os::stat(self.kernel(), fd) {
            let how = Attach::Opened { anew: false };
            let name = format!("{inode}.ibd");
            self.core.files.attach(fd, &stat, name.as_bytes(), how);
        }
    }

    pub fn close(&self, fd: i32) {
        let _inside = self.kernel().enter();
        if !self.core.switch().mode().is_off() {
            self.core.files.detach(fd);
        }
        self.kernel().close(fd);
    }

    /// Reads a page, and compares it with its possible versions.
    pub fn read(&self, fd: i32, page: usize) {
        let inode = self.kernel().inode_of(fd);
        let _latch = self.latches[inode][page].lock();
        self.read_unlatched(fd, page);
    }

    /// Reads a page without its latch, as the read-ahead of a freed page: a write may overlap.
    pub fn read_unlatched(&self, fd: i32, page: usize) {
        let inode = self.kernel().inode_of(fd);
        let first = self.kernel().versions(inode, page);
        let mut bytes = [0; LENGTH];
        let asked_file = self.read_hooked(fd, page, &mut bytes);
        self.check(inode, page, &bytes, first);
        seen("reads", 1);
        seen("hits", u64::from(!asked_file));
    }

    /// Makes the next thread in a hook panic at this lock of the hook.
    pub fn panic_in_next_hook(&self, lock: u32) {
        self.panics.store(lock, Ordering::SeqCst);
    }

    /// Models the plugin's guard around each hook: the call is made exactly once, and a panic switches off.
    fn guarded(
        &self,
        real: impl Fn() -> isize,
        rules: impl FnOnce(&dyn Fn() -> isize) -> isize,
    ) -> isize {
        let made = Cell::new(None);
        let once = || {
            let result = made.get().unwrap_or_else(&real);
            made.set(Some(result));
            result
        };
        let lock = self.panics.swap(0, Ordering::SeqCst);
        let rules = || {
            panic_at(lock);
            let result = rules(&once);
            panic_at(0);
            result
        };
        match catch_unwind(AssertUnwindSafe(rules)) {
            Ok(result) => result,
            Err(payload) if payload.is::<OnPurpose>() => {
                self.controller().panicked();
                self.is_off_after_a_panic();
                once()
            }
            Err(payload) => resume_unwind(payload),
        }
    }

    /// Checks that the hooks are off after a panic. A thread that has just enabled tracking reverts it under the same lock.
    fn is_off_after_a_panic(&self) {
        let mode = || self.core.switch().mode();
        for _ in 0..3 {
            assert!(!mode().is_active(), "hooks serve after a panic");
            let follows = mode().tracks() && self.controller().when_free(|| mode().tracks());
            assert!(!follows, "hooks are at work after a panic");
        }
    }

    /// Returns whether the data file was read.
    fn read_hooked(&self, fd: i32, page: usize, bytes: &mut [u8; LENGTH]) -> bool {
        let _inside = self.kernel().enter();
        let start = bytes.as_mut_ptr();
        let asked = Cell::new(false);
        let real = || {
            asked.set(true);
            // SAFETY: the caller's buffer; only one real call uses it at a time.
            let bytes = unsafe { std::slice::from_raw_parts_mut(start, LENGTH) };
            self.kernel().read(fd, page, bytes)
        };
        let mode = self.core.switch().mode();
        let offset = (page * LENGTH) as i64;
        let result = self.guarded(real, |real| {
            let file = if mode.handles_reads() || mode.records() {
                self.core.files.of_descriptor(fd)
            } else {
                None
            };
            let target =
                file.and_then(|file| self.core.page_of_request(mode, file, LENGTH, offset));
            match target {
                // SAFETY: as above.
                Some(target) => unsafe { self.core.read(mode, target, start, LENGTH, real) },
                None => real(),
            }
        });
        assert_eq!(result, LENGTH as isize);
        asked.get()
    }

    pub fn check(&self, inode: usize, page: usize, bytes: &[u8], first: usize) {
        let (its_inode, its_page, version) = parse(bytes);
        assert!(
            (its_inode, its_page) == (inode, page)
                && self.kernel().had(inode, page, version, first)
                && bytes == content(inode, page, version),
            "page {page} of file {inode} was read as version {version} of page {its_page} of file {its_inode}; since the \
             {first}th of {:?}",
            self.kernel().history(inode, page)
        );
    }

    fn followed(&self, fd: i32) -> Option<&'static DataFile> {
        if self.core.switch().mode().is_off() {
            return None;
        }
        self.core.files.of_descriptor(fd)
    }

    pub fn write(&self, fd: i32, page: usize) {
        let inode = self.kernel().inode_of(fd);
        let _latch = self.latches[inode][page].lock();
        self.write_unlatched(fd, page);
    }

    pub fn write_unlatched(&self, fd: i32, page: usize) {
        let _inside = self.kernel().enter();
        let inode = self.kernel().inode_of(fd);
        let version = self.kernel().new_version();
        let real = || self.kernel().write(fd, page, version);
        let bytes = content(inode, page, version);
        let mode = self.core.switch().mode();
        let offset = (page * LENGTH) as i64;
        self.guarded(real, |real| match self.followed(fd) {
            // SAFETY: the buffer is valid for its length.
            Some(file) => unsafe {
                self.core
                    .write(mode, (fd, file), bytes.as_ptr(), LENGTH, offset, real)
            },
            None => real(),
        });
    }

    /// Truncates the file, as `ftruncate` does.
    pub fn truncate(&self, fd: i32) {
        let _inside = self.kernel().enter();
        let real = || self.kernel().truncate(fd);
        match self.followed(fd) {
            Some(file) => self.core.change_file(Some(file), real),
            None => real(),
        }
    }

    // Actions of sessions and of the controller.

    /// Switches on, as `SET GLOBAL bpe_enabled = ON` does, including the steps between its two halves.
    pub fn on(&self) -> bool {
        let _building = self.building.lock();
        let running = self.running.lock();
        if *running {
            return true;
        }
        let active = self.controller().host.activate();
        self.core.requests.disarm_all();
        let begins = self
            .core
            .switch()
            .start_tracking(|| self.core.files.forget_all());
        drop(running);
        if begins {
            self.scan();
        }
        let mut running = self.running.lock();
        match self.core.switch().publish(active) {
            Ok(before) => {
                self.retire(before);
                *running = true;
                true
            }
            Err(Interrupted(ours)) => {
                self.retire(ours);
                false
            }
        }
    }

    fn scan(&self) {
        let _inside = self.kernel().enter();
        self.core.register_open_files();
    }

    pub fn start_recording(&self) {
        let _building = self.building.lock();
        let running = self.running.lock();
        let begins = self
            .core
            .switch()
            .start_recording(|| self.core.files.forget_all());
        drop(running);
        if begins {
            self.scan();
        }
    }

    /// Starts and stops a recording, which forgets all known files.
    pub fn record_for_a_moment(&self) {
        self.start_recording();
        self.core.switch().stop_recording();
    }

    /// Switches off for a rebuild: a recording continues.
    pub fn switch_off(&self) {
        let mut running = self.running.lock();
        *running = false;
        let before = self.core.switch().switch_off();
        self.retire(before);
    }

    /// Switches off, as `SET GLOBAL bpe_enabled = OFF` does: immediately, and again when no publication is in progress.
    pub fn kill(&self) {
        let before = self.core.switch().kill();
        self.retire(before);
        let mut running = self.running.lock();
        *running = false;
        let late = self.core.switch().kill();
        self.retire(late);
    }

    fn retire(&self, active: Option<Engine>) {
        self.controller().host.retire(active);
    }

    /// Checks that each of this many extensions was unused or reached a thread that closes it.
    pub fn all_are_retired(&self, engines: usize) {
        self.kill();
        let host = &self.controller().host;
        let unused = host.engines.lock().len();
        assert_eq!(host.retired.lock().len() + unused, engines);
    }

    /// Compares two stats of a file, as the audit does: a file that was idle in between must not have changed.
    pub fn look_twice(&self, fd: i32) {
        let _inside = self.kernel().enter();
        let Some(file) = self.followed(fd) else {
            return;
        };
        let look = || {
            let before = file.idle_changes();
            let looks = self.core.files.stat_of(file);
            (before.filter(|_| file.idle_changes() == before), looks)
        };
        let (first, second) = (look(), look());
        if let (Some(first_rest), Some(second_rest)) = (first.0, second.0) {
            if first_rest == second_rest {
                assert_eq!(first.1, second.1, "the server is blamed for its own change");
            }
        }
    }

    /// Runs the device's writer.
    pub fn pump(&self) {
        let active = self.core.switch().active();
        if let Some(active) = &*active {
            active.extension.pump();
        }
    }

    /// Reads every page of the open files once more, and checks the books.
    pub fn end(self) {
        for fd in 0..DESCRIPTORS as i32 {
            if crate::platform::os::Os::path_of(self.kernel(), fd).is_some() {
                (1..PAGES).for_each(|page| self.read(fd, page));
            }
        }
        self.kill();
        assert_eq!(self.core.switch().pending_requests(), 0);
        assert!(self.core.switch().mode().is_off(), "nothing is under way");
        assert_eq!(self.core.files.contradictions(), Vec::<String>::new());
        let shared = std::ptr::from_ref(self.0).cast_mut();
        let core = std::ptr::from_ref(self.core).cast_mut();
        // SAFETY: `new` leaked both, and the threads that used them have ended.
        unsafe {
            drop(Box::from_raw(shared));
            (*core).files.free();
            drop(Box::from_raw(core));
        }
    }
}
