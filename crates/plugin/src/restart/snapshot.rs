//! The snapshot preserves the persisted state over a host reboot, after a clean shutdown. This module decides when
//! the snapshot ([`file`]) is written, restored and invalidated.
//!
//! 1. [`prepare`] runs when a stopping server ends the plugin and has a state to persist. [`at_end`] runs when the main
//!    thread ends the process, after InnoDB. It ends the writers, syncs the cache files, and copies the state from memory.
//! 2. [`restore`] runs when a process starts and finds no state in memory, or another mount of the data. It copies the
//!    snapshot to memory, and invalidates it before anything of it is trusted. So each snapshot is used once.
//! 3. [`discard`] runs when a snapshot is known to be useless.
//!
//! A separate thread does this work, since the disk may hang. The server stops waiting for it after [`END_TIMEOUT`] or
//! [`START_TIMEOUT`]. (The kernel does not end a process with an I/O request in flight, so a disk known to hang gets no
//! requests.) A snapshot that is left behind and found later is useless: its fence no longer matches InnoDB's redo log.

mod file;

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use cache::OwnerIdentity;
use coherence::os::Os as _;
use parking_lot::Mutex;

use crate::platform::{CORE, Linux, identity};
use crate::restart::redo_fence::{self, Fence};
use crate::restart::redo_gate;
use crate::restart::state::{RESTART, ShutdownSnapshot};
use crate::restart::state_header::{STATE_HEADER_BYTES, StateHeader};
use crate::restart::token::{Token, TokenFile};
use crate::settings;
use file::{Head, Refused, Snapshot};

/// Timeout of the server's start for the snapshot.
pub const START_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval and number of the checks whether the clock of file times has advanced past the latest change stamp. Only then does
/// a later change of a file get another stamp.
const TICK: Duration = Duration::from_millis(1);
const MAX_TICKS: u32 = 200;
/// Timeout of the server's end for the snapshot. After it there is no snapshot.
const END_TIMEOUT: Duration = Duration::from_secs(5);
/// Part of [`END_TIMEOUT`] for the cache's writes in flight.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(2);

/// Limit of the host's data that wait to be written, in bytes: 10 s at 100 MB/s. The process cannot end before a sync that has
/// begun, whatever the timeout.
const MAX_UNWRITTEN: u64 = 1 << 30;

/// The server stops and persists its cache. At its very end, [`at_end`] writes the snapshot.
pub fn prepare(owner: OwnerIdentity) {
    let snapshot = settings::first_path()
        .zip(data_device())
        .and_then(|(place, data_device)| {
            Some(ShutdownSnapshot {
                place,
                header: StateHeader::now(owner.0).ok()?,
                data_device,
            })
        });
    *RESTART.snapshot.lock() = snapshot;
}

/// Registers [`at_end`] for the end of the process. Once for each process.
pub fn register_exit_handler() {
    extern "C" fn ends() {
        let _ = std::panic::catch_unwind(at_end);
    }
    // SAFETY: the library stays loaded. If registration fails for lack of memory, no snapshot is written.
    unsafe { libc::atexit(ends) };
}

/// The process ends. Acts only in the main thread, once, after [`prepare`].
pub fn at_end() {
    let process = rustix::process::getpid();
    // A forked child that ends is not the server.
    let is_server = RESTART.is_of_process(process.as_raw_nonzero().get());
    if !is_server || rustix::thread::gettid() != process {
        return;
    }
    let snapshot = RESTART.snapshot.try_lock();
    let Some(snapshot) = snapshot.and_then(|mut snapshot| snapshot.take()) else {
        return;
    };
    let began = Instant::now();
    let written = run_with_timeout(END_TIMEOUT, move || snapshot.write());
    let why = match written {
        Some(Ok(bytes)) => {
            let took = began.elapsed().as_millis();
            return Linux.note(&format!(
                "what is cached will be there after a restart of the machine, too: {bytes} bytes were written beside the cache file in {took} ms"
            ));
        }
        Some(Err(why)) => why,
        None => "the cache disk has not answered in time".into(),
    };
    Linux.note(&format!(
        "what is cached will be lost if the machine is restarted now: {why}"
    ));
}

impl ShutdownSnapshot {
    /// Returns the number of bytes written.
    fn write(&self) -> Result<u64, String> {
        let guard = CORE.switch().active();
        let active = guard.as_ref().ok_or("the extension is off")?;
        let token = stop_cleanly()?;
        let redo = redo_gate::directory().ok_or("it was not seen where InnoDB has its redo log")?;
        let fence = redo_fence::of(redo)?;
        let frozen = active.extension.freeze(FREEZE_TIMEOUT);
        let frozen = frozen.ok_or("a cache disk does not answer")?;
        for path in &frozen.devices {
            let device = cache::open_own(path).map_err(|error| error.to_string())?;
            let device = device.ok_or("a cache file is gone")?;
            device.sync_data().map_err(|error| error.to_string())?;
        }
        let records = RESTART.records().ok_or("the plugin was uninstalled")?;
        let records = records.try_clone_to_owned();
        let records = File::from(records.map_err(|error| error.to_string())?);
        let length = |file: &File| file.metadata().map(|metadata| metadata.len());
        let parts = length(&records).and_then(|records| Ok([records, length(&frozen.arena)?]));
        debug_assert!(token != 0 && frozen.session != 0);
        let head = Head {
            owner: self.header.owner,
            boot: self.header.boot,
            data_device: self.data_device,
            fence,
            redo: redo.into(),
            token,
            session: frozen.session,
            parts: parts.map_err(|error| error.to_string())?,
            number: frozen.session ^ CORE.os().since_boot() as u64,
        };
        file::write(&self.path(), &head, [&records, &frozen.arena])
    }

    fn path(&self) -> PathBuf {
        snapshot_path(&self.place, &OwnerIdentity(self.header.owner))
    }
}

/// Makes all data durable, and replaces the token. From here on the records count as records of a clean shutdown.
fn stop_cleanly() -> Result<Token, String> {
    let manifest = CORE.switch().manifest().ok_or("nothing is kept")?;
    // InnoDB has waited for all of its requests.
    CORE.end_unobserved_writes(Duration::ZERO);
    if !CORE.files.are_idle() {
        return Err("a change of a data file is in flight".into());
    }
    let latest = manifest.latest_stamp();
    for _ in 0..MAX_TICKS {
        if CORE.os().file_time() > latest {
            break;
        }
        std::thread::sleep(TICK);
    }
    manifest.live();
    let memory = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match unwritten(&memory) {
        Some(bytes) if bytes <= MAX_UNWRITTEN => {}
        Some(bytes) => {
            return Err(format!(
                "{bytes} bytes of the host wait to be written to its disks"
            ));
        }
        None => return Err("the kernel does not report how much waits to be written".into()),
    }
    let text = |error: io::Error| error.to_string();
    let file = TokenFile::open(&identity::data_directory())?;
    file.sync_file_system().map_err(text)?;
    let token = file.replace().map_err(text)?;
    manifest.stop_cleanly();
    Ok(token)
}

/// Data that wait to be written to any disk, in bytes, according to `/proc/meminfo`.
fn unwritten(meminfo: &str) -> Option<u64> {
    let kib = |name: &str| {
        let mut lines = meminfo.lines();
        let rest = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        rest.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    Some(
        kib("Dirty")?
            .saturating_add(kib("Writeback")?)
            .saturating_mul(1024),
    )
}

/// Returns the path of the server's snapshot, from its first cache file or the directory of that file. Accesses the disk.
fn snapshot_path(first: &Path, owner: &OwnerIdentity) -> PathBuf {
    let folder = match first.parent() {
        Some(parent) if !first.is_dir() => parent,
        _ => first,
    };
    folder.join(format!("{}.image", identity::stem(owner)))
}

fn data_device() -> Option<u64> {
    Some(std::fs::metadata(identity::data_directory()).ok()?.dev())
}

/// Runs a function that may block on a disk. `None` if it takes longer than `limit`.
pub(super) fn run_with_timeout<T: Send + 'static>(
    limit: Duration,
    body: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (sender, receiver) = sync_channel(1);
    let thread = Linux.spawn("bpe-image", move || {
        let _ = sender.send(body());
    });
    let (thread, result) = (thread.ok()?, receiver.recv_timeout(limit).ok()?);
    // The thread is about to exit. It must not outlive this call.
    let _ = thread.join();
    Some(result)
}

/// Invalidates the snapshot, if there is one: it has become useless. A failure is harmless.
pub fn discard(owner: &OwnerIdentity) {
    if let Some(first) = settings::first_path() {
        let owner = *owner;
        let discarded = run_with_timeout(START_TIMEOUT, move || {
            file::discard(&snapshot_path(&first, &owner))
        });
        if let Some(Err(why)) = discarded {
            Linux.warning(&format!("an image of what was cached may be left: {why}"));
        }
    }
}

/// Destination of a restored snapshot. A thread whose destination was taken away stops writing.
struct Destination {
    records: File,
    arena: Option<File>,
}

type Shared = Arc<Mutex<Option<Destination>>>;

/// Copies this server's snapshot to memory, if there is one, and removes it. `records` are locked, and get no state
/// header. `token` is the token of the data directory before this start replaced it.
pub fn restore(
    owner: &OwnerIdentity,
    header: &StateHeader,
    records: &File,
    token: Option<Token>,
) -> Option<Restored> {
    let first = settings::first_path()?;
    let (arena, of) = (settings::persisted_file(owner, "arena"), *owner);
    let path = move || snapshot_path(&first, &of);
    let proof = Proof {
        token,
        fence: redo_fence::of,
    };
    match load(path, *header, arena, records, proof) {
        Ok(loaded) => {
            let (head, is_proven) = loaded?;
            if let Err(why) = &is_proven {
                Linux.warning(&format!(
                    "what was cached is only listed, and loaded anew: {why}"
                ));
            }
            Some(Restored {
                device: head.data_device,
                redo: head.redo,
                is_proven: is_proven.is_ok(),
            })
        }
        Err(why) => {
            Linux.warning(&format!(
                "what was cached before the machine's restart or the remount is not used: {why}"
            ));
            None
        }
    }
}

/// The current state, which the snapshot must match.
struct Proof<F> {
    token: Option<Token>,
    /// Computes the current fence of the redo log in a directory.
    fence: F,
}

/// The copied state, before anything of it is trusted.
pub struct Restored {
    /// The device of the data directory when the snapshot was written.
    pub device: u64,
    /// The directory of the redo log when the snapshot was written.
    pub redo: PathBuf,
    /// Token and redo log match the stop that wrote the snapshot.
    pub is_proven: bool,
}

/// The head of the copied snapshot, and the reason if the snapshot proves nothing.
type Loaded = (Head, Result<(), String>);

/// Copies the whole snapshot, or nothing.
fn load(
    path: impl FnOnce() -> PathBuf + Send + 'static,
    header: StateHeader,
    arena: PathBuf,
    records: &File,
    proof: Proof<impl FnOnce(&Path) -> Result<Fence, String> + Send + 'static>,
) -> Result<Option<Loaded>, String> {
    let destination = Destination {
        records: records.try_clone().map_err(|error| error.to_string())?,
        arena: None,
    };
    let destination: Shared = Arc::new(Mutex::new(Some(destination)));
    let copied = {
        let (destination, arena) = (Arc::clone(&destination), arena.clone());
        run_with_timeout(START_TIMEOUT, move || {
            copy(&path(), &header, &arena, &destination, proof)
        })
    };
    // Taking the destination also drops its locks.
    let destination = destination.lock().take();
    let why = match copied {
        Some(Ok(loaded)) => return Ok(Some(loaded)),
        Some(Err(Refused::Absent)) => return Ok(None),
        Some(Err(Refused::Useless(why) | Refused::Failed(why))) => why,
        None => "the cache disk has not answered in time".into(),
    };
    let _ = records.set_len(0);
    if let Some(copy) = destination.and_then(|destination| destination.arena) {
        let _ = copy.set_len(0);
        let _ = std::fs::remove_file(&arena);
    }
    Err(why)
}

fn copy(
    path: &Path,
    header: &StateHeader,
    arena: &Path,
    destination: &Shared,
    proof: Proof<impl FnOnce(&Path) -> Result<Fence, String>>,
) -> Result<Loaded, Refused> {
    // After a timeout InnoDB may be using its log. Reading and closing the log would then release InnoDB's locks.
    let fence = |redo: &Path| match destination.lock().is_some() {
        true => (proof.fence)(redo),
        false => Err("it took too long".into()),
    };
    let snapshot = match Snapshot::open(path).and_then(|snapshot| is_ours(snapshot, header)) {
        Err(why @ (Refused::Useless(_) | Refused::Absent)) => {
            // Also removes an unfinished snapshot.
            let _ = file::discard(path);
            return Err(why);
        }
        other => other?,
    };
    let is_proven = prove_snapshot(snapshot.head(), proof.token, fence);
    let copied = fill(&snapshot, header, arena, destination);
    let head = snapshot.head().clone();
    // Invalidates the snapshot before anything of it is trusted, even if the copy failed.
    match (snapshot.discard(), copied) {
        (_, Err(why)) => Err(why),
        (Err(error), Ok(())) => Err(Refused::Failed(format!(
            "it cannot be made invalid: {error}"
        ))),
        (Ok(()), Ok(())) => Ok((head, is_proven)),
    }
}

fn fill(
    snapshot: &Snapshot,
    header: &StateHeader,
    arena: &Path,
    destination: &Shared,
) -> Result<(), Refused> {
    let gone = || io::Error::other("it took too long");
    {
        // Held while the arena is opened: after a timeout, `take` also drops the lock of the arena.
        let mut destination = destination.lock();
        let destination = destination.as_mut().ok_or_else(gone)?;
        let arena = cache::open_in_memory(arena)?;
        destination.records.set_len(0)?;
        arena.set_len(0)?;
        destination.arena = Some(arena);
    }
    snapshot.read(|part, at, block| {
        let destination = destination.lock();
        let destination = destination.as_ref().ok_or_else(gone)?;
        let file = match part {
            0 => Some(&destination.records),
            _ => destination.arena.as_ref(),
        };
        let file = file.ok_or_else(gone)?;
        if (part, at) != (0, 0) {
            return file.write_all_at(block, at);
        }
        // The state header is written later, with this boot of the host, when nothing can fail any longer.
        let (was, rest) = block
            .split_at_checked(STATE_HEADER_BYTES)
            .ok_or_else(gone)?;
        if was != header.of_boot(snapshot.head().boot).bytes() {
            return Err(io::Error::other("another version has written it"));
        }
        file.write_all_at(rest, STATE_HEADER_BYTES as u64)
    })
}

fn is_ours(snapshot: Snapshot, header: &StateHeader) -> Result<Snapshot, Refused> {
    match snapshot.head().owner == header.owner {
        true => Ok(snapshot),
        false => Err(Refused::Failed("it is another server's".into())),
    }
}

/// Checks that data directory and redo log are as the stop that wrote the snapshot has left them.
fn prove_snapshot(
    snapshot: &Head,
    token: Option<Token>,
    fence: impl FnOnce(&Path) -> Result<Fence, String>,
) -> Result<(), String> {
    if token != Some(snapshot.token) && !coherence::canary!("token") {
        return Err("the data directory is not as the server's stop has left it".into());
    }
    match fence(&snapshot.redo)? {
        _ if coherence::canary!("fence") => Ok(()),
        fence if fence == [0; 4] || snapshot.fence != fence => {
            Err("InnoDB has run without it since".into())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
