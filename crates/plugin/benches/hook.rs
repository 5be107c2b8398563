//! Overhead of a hook on a call that it does not handle: nanoseconds per call, compared with the direct call.
//!
//! `cargo bench -p plugin --bench hook`
//!
//! The call behind the hook returns immediately, so only the hook is measured. Rows: extension off; extension on, with a
//! descriptor that is no data file; the cost of a trace record. Each row is the median of several rounds that alternate with
//! the direct call.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use bpe_plugin::hooks;
use bpe_plugin::platform::CORE;
use cache::{Config, DeviceConfig, Extension, OwnerIdentity};
use coherence::switch;
use coherence::trace::ring::{Event, Ring};

const CALLS: u32 = 20_000_000;
const ROUNDS: usize = 7;

type Pread = unsafe extern "C" fn(i32, *mut libc::c_void, usize, i64) -> isize;
type Pwrite = unsafe extern "C" fn(i32, *const libc::c_void, usize, i64) -> isize;
type Write = unsafe extern "C" fn(i32, *const libc::c_void, usize) -> isize;

unsafe extern "C" fn read_nothing(_: i32, _: *mut libc::c_void, length: usize, _: i64) -> isize {
    length as isize
}

unsafe extern "C" fn write_nothing(_: i32, _: *const libc::c_void, length: usize, _: i64) -> isize {
    length as isize
}

unsafe extern "C" fn append_nothing(_: i32, _: *const libc::c_void, length: usize) -> isize {
    length as isize
}

/// Nanoseconds per call.
fn time(mut call: impl FnMut() -> isize) -> f64 {
    let started = Instant::now();
    for _ in 0..CALLS {
        black_box(call());
    }
    started.elapsed().as_nanos() as f64 / f64::from(CALLS)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn row(name: &str, mut direct: impl FnMut() -> isize, mut hooked: impl FnMut() -> isize) {
    let (mut plain, mut through) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        plain.push(time(&mut direct));
        through.push(time(&mut hooked));
    }
    let (plain, through) = (median(plain), median(through));
    println!(
        "{name:<44} {plain:>6.2} {through:>6.2} {:>6.2}",
        through - plain
    );
}

/// Returns the hook of an import, after replacing its original with `original`.
fn hook(name: &str, original: usize) -> usize {
    let imports = hooks::imports();
    let import = imports
        .iter()
        .find(|import| import.names.contains(&name))
        .expect("an intercepted call");
    import.original.store(original, Ordering::SeqCst);
    import.hook
}

fn main() {
    // SAFETY: each hook has the type of the call it replaces.
    let (pread, pwrite, write) = unsafe {
        (
            std::mem::transmute::<usize, Pread>(hook(
                "pread64",
                read_nothing as *const () as usize,
            )),
            std::mem::transmute::<usize, Pwrite>(hook(
                "pwrite64",
                write_nothing as *const () as usize,
            )),
            std::mem::transmute::<usize, Write>(hook(
                "write",
                append_nothing as *const () as usize,
            )),
        )
    };
    let (read_direct, write_direct, append_direct) = (
        black_box(read_nothing as Pread),
        black_box(write_nothing as Pwrite),
        black_box(append_nothing as Write),
    );
    let (pread, pwrite, write) = (black_box(pread), black_box(pwrite), black_box(write));
    let mut page = vec![0u8; 16384];
    let buffer = page.as_mut_ptr().cast::<libc::c_void>();
    let rows = |state: &str| {
        // SAFETY: the functions access no memory, and the hooks forward descriptors that are no data files.
        unsafe {
            row(
                &format!("pread64, {state}"),
                || read_direct(7, buffer, 16384, 16384),
                || pread(7, buffer, 16384, 16384),
            );
            row(
                &format!("pwrite64, {state}"),
                || write_direct(7, buffer, 16384, 0),
                || pwrite(7, buffer, 16384, 0),
            );
            row(
                &format!("write, {state}"),
                || append_direct(7, buffer, 512),
                || write(7, buffer, 512),
            );
        }
    };
    println!(
        "{:<44} {:>6} {:>6} {:>6}",
        "nanoseconds per call", "direct", "hooked", "more"
    );
    rows("extension off");

    let folder = tempfile::tempdir().expect("a temporary folder");
    let config = Config {
        devices: vec![DeviceConfig {
            path: folder.path().to_path_buf(),
            bytes: 64 << 20,
            owner: OwnerIdentity::default(),
            file_name: "bench.cache".into(),
        }],
        ..Config::default()
    };
    CORE.switch().start_tracking(|| ());
    let extension =
        Extension::open(config, Arc::clone(CORE.switch().generations())).expect("an extension");
    let active = switch::Active::new(extension, CORE.switch().next_epoch());
    let published = CORE.switch().publish(Arc::new(active));
    assert!(published.is_ok(), "published");
    rows("extension on, no data file");
    drop(CORE.switch().switch_off());

    // Cost of recording, for each page read or written in a data file.
    let ring = Ring::new(1 << 18);
    let mut page = 0u32;
    let note = || {
        page = page.wrapping_add(1);
        if page % 32768 == 0 {
            ring.acknowledge(u64::MAX); // as the client does
        }
        let event = Event {
            file: 1,
            page,
            write: false,
        };
        ring.push(event, 16384);
        1
    };
    row("an event of a recording, one thread", || 1, note);
    assert_eq!(ring.lost(), 0);
}
