//! Checks of the host: missing requirements of the tests, reported in the first second.

use std::fs;
use std::path::Path;

const GIB: u64 = 1 << 30;

/// Free bytes for a build and the data directories of six trials: 16 GB after a full run, 9 after `make test`.
const DISK: u64 = 10 * GIB;
/// Bytes of shared memory that six trials use at once, each at most 64 MiB.
const SHARED_MEMORY: u64 = 400 << 20;

/// Sentences: the missing requirement, its consequence, and the remedy. `without_servers`: only the requirements of a
/// build.
pub fn look(without_servers: bool) -> Vec<String> {
    let mut lacks = Vec::new();
    // Cargo puts this program where the build goes, however that place is named.
    let own = std::env::current_exe();
    if let Some(free) = free_bytes(own.as_deref().unwrap_or(Path::new(".")))
        && free < DISK
    {
        lacks.push(format!(
                "{:.1} GiB are free for what is built, and a first run takes up to {} GiB: what runs out of room fails. \
                 CARGO_TARGET_DIR names another disk.",
                free as f64 / GIB as f64,
                DISK / GIB
            ));
    }
    if without_servers {
        return lacks;
    }
    if !rustix::process::geteuid().is_root() {
        lacks.push(
            "This is not root: FUSE volumes, private server roots and other users are left out; their trials say \
             'skipped'."
                .into(),
        );
    }
    match free_bytes(Path::new("/dev/shm")) {
        None => lacks.push("/dev/shm is missing: servers keep no state between two starts, and the trials of it fail.".into()),
        Some(free) if free < SHARED_MEMORY => lacks.push(format!(
            "/dev/shm has {} MiB free, and six trials keep up to {} MiB: one trial runs at a time.",
            free >> 20,
            SHARED_MEMORY >> 20
        )),
        Some(_) => {}
    }
    let load = load();
    let processors = processors();
    if load > 4.0 * processors as f64 {
        lacks.push(format!(
            "The load is {load:.0} on {processors} processors: the run takes some {:.0} times as long.",
            load / processors as f64
        ));
    }
    lacks
}

/// Processors of this host.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Number of concurrent trials: a trial uses a third of a processor.
pub fn places() -> usize {
    let shared_memory = free_bytes(Path::new("/dev/shm")).unwrap_or(0);
    if shared_memory < SHARED_MEMORY {
        1
    } else {
        (processors() * 3).min(8)
    }
}

fn free_bytes(path: &Path) -> Option<u64> {
    let of = rustix::fs::statvfs(path).ok()?;
    Some(of.f_bavail * of.f_frsize)
}

/// Load average of the last minute.
fn load() -> f64 {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}
