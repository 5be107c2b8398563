//! The hooks whose instructions are counted. Each operation runs in its own process and sets up its own state.

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bpe_plugin::hooks;
use bpe_plugin::platform::CORE;
use cache::{Config, DeviceConfig, Extension, OwnerIdentity, PolicyName};
use coherence::manifest::{Head, Manifest, Memory, Record};
use coherence::switch::{Active, Bypass};
use libc::{size_t, ssize_t};

use crate::instructions::{Act, Prepare};
use crate::options::{Outcome, memory_directory};

pub const OPERATIONS: [(&str, Prepare); 14] = [
    ("pread64, off", || read(State::Off)),
    ("pwrite64, off", || write(State::Off)),
    ("io_submit and io_getevents, off", || submit(State::Off)),
    ("pread64, no data file", || read(State::NoDataFile)),
    ("pwrite64, no data file", || write(State::NoDataFile)),
    ("pread64, miss", || read(State::Absent)),
    ("pread64, hit in staging", || read(State::Staged)),
    ("pread64, hit on the device", || read(State::OnDevice)),
    ("pwrite64, page absent", || write(State::Absent)),
    ("pwrite64, page absent, with records", || {
        write(State::Recorded)
    }),
    ("pwrite64, page dropped and offered", || {
        write(State::Staged)
    }),
    ("io_submit and io_getevents, miss", || submit(State::Absent)),
    ("pread64, bypassed", || read(State::Bypassed)),
    ("io_submit and io_getevents, bypassed", || {
        submit(State::Bypassed)
    }),
];

/// State of the cache when the call arrives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Off,
    NoDataFile,
    Absent,
    /// As `Absent`, with records for the next process.
    Recorded,
    Staged,
    OnDevice,
    /// The page is in staging.
    Bypassed,
}

const PAGE: usize = 16384;
/// Fits into the smallest staging area.
const PAGES: u32 = 64;
const CONTEXT: usize = 0x1000;

type Pread = unsafe extern "C" fn(c_int, *mut c_void, size_t, i64) -> ssize_t;
type Pwrite = unsafe extern "C" fn(c_int, *const c_void, size_t, i64) -> ssize_t;
type Open = unsafe extern "C" fn(*const c_char, c_int, ...) -> c_int;
type Submit = unsafe extern "C" fn(usize, c_long, *mut *mut Iocb) -> c_int;
type GetEvents =
    unsafe extern "C" fn(usize, c_long, c_long, *mut Event, *mut libc::timespec) -> c_int;

/// The kernel's `struct iocb`.
#[repr(C)]
#[derive(Default)]
struct Iocb {
    data: u64,
    key: u32,
    rw_flags: u32,
    opcode: i16,
    priority: i16,
    fd: c_int,
    buffer: u64,
    length: u64,
    offset: i64,
    reserved: u64,
    flags: u32,
    event_fd: u32,
}

/// The kernel's `struct io_event`.
#[repr(C)]
#[derive(Default)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    result2: i64,
}

/// Leaves the buffer unchanged.
unsafe extern "C" fn read_nothing(_: c_int, _: *mut c_void, length: size_t, _: i64) -> ssize_t {
    length as ssize_t
}

unsafe extern "C" fn write_nothing(_: c_int, _: *const c_void, length: size_t, _: i64) -> ssize_t {
    length as ssize_t
}

static SUBMITTED: AtomicU64 = AtomicU64::new(0);

unsafe extern "C" fn submit_nothing(_: usize, count: c_long, requests: *mut *mut Iocb) -> c_int {
    // SAFETY: the caller passes one request.
    SUBMITTED.store(unsafe { *requests } as u64, Ordering::Relaxed);
    count as c_int
}

unsafe extern "C" fn events_of_nothing(
    _: usize,
    _: c_long,
    _: c_long,
    events: *mut Event,
    _: *mut libc::timespec,
) -> c_int {
    let request = SUBMITTED.swap(0, Ordering::Relaxed);
    if request == 0 {
        return 0;
    }
    // SAFETY: the request is valid until it is harvested, and there is room for one event.
    unsafe {
        let iocb = &*(request as *const Iocb);
        *events = Event {
            data: iocb.data,
            request,
            result: iocb.length as i64,
            result2: 0,
        };
    }
    1
}

/// Returns the hook of an import, after replacing its original with `original`.
///
/// # Safety
/// `F` must be the type of the call.
unsafe fn hook<F: Copy>(name: &str, original: *const ()) -> F {
    let imports = hooks::imports();
    let import = imports
        .iter()
        .find(|import| import.names.contains(&name))
        .expect("an intercepted call");
    import.original.store(original as usize, Ordering::SeqCst);
    // SAFETY: the caller's promise.
    unsafe { std::mem::transmute_copy(&import.hook) }
}

fn keep_records() {
    let records: Vec<Record> = (0..4).map(|_| Record::default()).collect();
    let memory = Memory {
        now: bpe_plugin::platform::clock::file_time,
        grow: |_| false,
    };
    let head = Box::leak(Box::new(Head::default()));
    let manifest = Manifest::new(head, records.leak(), 4, memory);
    CORE.switch().keep(manifest);
}

struct World {
    fd: c_int,
    page: Box<Page>,
    pread: Pread,
    _folder: tempfile::TempDir,
}

#[repr(align(4096))]
struct Page([u8; PAGE]);

impl World {
    fn new(state: State) -> Outcome<World> {
        // SAFETY: the types match the calls.
        let (pread, open) = unsafe {
            (
                hook::<Pread>("pread64", read_nothing as *const ()),
                hook::<Open>("open64", libc::open64 as *const ()),
            )
        };
        let folder = tempfile::tempdir_in(memory_directory())?;
        if state == State::Recorded {
            keep_records();
        }
        if state != State::Off {
            switch_on(folder.path())?;
        }
        let name = if state == State::NoDataFile {
            "other"
        } else {
            "a.ibd"
        };
        let path = CString::new(folder.path().join(name).as_os_str().as_bytes())?;
        // SAFETY: a valid path.
        let fd = unsafe { open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600) };
        assert!(fd >= 0);
        let mut world = World {
            fd,
            page: Box::new(Page([7; PAGE])),
            pread,
            _folder: folder,
        };
        // The first read teaches the page size. Its header does not match, so the page is not admitted.
        world.read(PAGES + 1);
        if matches!(state, State::Staged | State::OnDevice | State::Bypassed) {
            for page in 1..=PAGES {
                world.stamp(page);
                world.read(page);
                if state == State::OnDevice {
                    CORE.switch()
                        .active()
                        .as_ref()
                        .expect("on")
                        .extension
                        .pump();
                }
            }
        }
        world.stamp(u32::MAX);
        if state == State::Bypassed {
            CORE.switch().use_for(Bypass::On, false);
        }
        Ok(world)
    }

    fn stamp(&mut self, page: u32) {
        self.page.0[4..8].copy_from_slice(&page.to_be_bytes());
    }

    fn read(&mut self, page: u32) {
        let offset = i64::from(page) * PAGE as i64;
        let to = self.page.0.as_mut_ptr().cast();
        // SAFETY: the buffer has that many bytes.
        let read = unsafe { (self.pread)(self.fd, to, PAGE, offset) };
        assert_eq!(read, PAGE as ssize_t);
    }
}

fn switch_on(folder: &std::path::Path) -> Outcome {
    let config = Config {
        devices: vec![DeviceConfig {
            path: folder.to_path_buf(),
            bytes: 64 << 20,
            owner: OwnerIdentity::default(),
            file_name: "bench.cache".into(),
        }],
        policy: PolicyName::SecondChance,
        ..Config::default()
    };
    CORE.requests.disarm_all();
    CORE.switch().start_tracking(|| ());
    let extension = Extension::open_inline(config, Arc::clone(CORE.switch().generations()))?;
    let active = Active::new(extension, CORE.switch().next_epoch());
    let published = CORE.switch().publish(Arc::new(active));
    assert!(published.is_ok(), "published");
    Ok(())
}

fn hits() -> u64 {
    CORE.switch()
        .active()
        .as_ref()
        .map_or(0, |active| active.extension.statistics().hits)
}

fn read(state: State) -> Outcome<Box<Act>> {
    let mut world = World::new(state)?;
    let before = hits();
    world.read(1);
    let hit = matches!(state, State::Staged | State::OnDevice);
    assert_eq!(hits() - before, u64::from(hit));
    Ok(Box::new(move |n| world.read(1 + n % PAGES)))
}

fn write(state: State) -> Outcome<Box<Act>> {
    let mut world = World::new(state)?;
    // SAFETY: the type matches the call.
    let pwrite: Pwrite = unsafe { hook("pwrite64", write_nothing as *const ()) };
    Ok(Box::new(move |n| {
        let page = 1 + n % PAGES;
        if state == State::Staged {
            world.stamp(page);
        }
        let offset = i64::from(page) * PAGE as i64;
        // SAFETY: the buffer has that many bytes.
        let written = unsafe { pwrite(world.fd, world.page.0.as_ptr().cast(), PAGE, offset) };
        assert_eq!(written, PAGE as ssize_t);
    }))
}

fn submit(state: State) -> Outcome<Box<Act>> {
    let mut world = World::new(state)?;
    // SAFETY: the types match the calls.
    let (submit, get_events) = unsafe {
        (
            hook::<Submit>("io_submit", submit_nothing as *const ()),
            hook::<GetEvents>("io_getevents", events_of_nothing as *const ()),
        )
    };
    let mut request = Box::new(Iocb::default());
    Ok(Box::new(move |n| {
        *request = Iocb {
            data: 1,
            fd: world.fd,
            buffer: world.page.0.as_mut_ptr() as u64,
            length: PAGE as u64,
            offset: i64::from(1 + n % PAGES) * PAGE as i64,
            ..Iocb::default()
        };
        let mut list = [&raw mut *request];
        let mut events = [Event::default()];
        let mut wait = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: one valid request, and room for one event.
        let (submitted, harvested) = unsafe {
            (
                submit(CONTEXT, 1, list.as_mut_ptr()),
                get_events(CONTEXT, 1, 1, events.as_mut_ptr(), &raw mut wait),
            )
        };
        assert_eq!((submitted, harvested), (1, 1));
    }))
}
