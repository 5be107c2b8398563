//! State of the restart: recovered from the previous process, and persisted for the next one.

use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Instant;

use parking_lot::Mutex;

use super::state_header::StateHeader;
use super::tripwire::Tripwire;

/// Everything that the files of this room share. Other rooms use only its methods.
pub struct RestartState {
    /// The session of the cache to recover; 0: none.
    pub(super) session: AtomicU64,
    /// Delay of the server's start by the recovery, milliseconds.
    pub(super) start_delay: AtomicU64,
    /// The process id, once state is persisted for the next process; 0: none is.
    pub(super) process: AtomicI32,
    /// The descriptor of the file with the records; negative: none.
    pub(super) records: AtomicI32,
    /// The directory of InnoDB's redo log, once it was seen.
    pub(super) redo_log: OnceLock<PathBuf>,
    /// The directory of the redo log that InnoDB must open before the recovered state is trusted, if any.
    pub(super) required_redo_log: OnceLock<PathBuf>,
    /// When the search for that log began.
    pub(super) search_began: OnceLock<Instant>,
    /// The recovered state was persisted before the host rebooted.
    pub(super) is_from_snapshot: AtomicBool,
    /// A thread has decided whether that log is the required one.
    pub(super) is_redo_log_judged: AtomicBool,
    /// The directory of InnoDB's redo log is known, or will stay unknown.
    pub(super) is_redo_log_known: AtomicBool,
    /// The server stops, and the cache is persisted.
    pub(super) is_stopping: AtomicBool,
    /// The snapshot to write for a host reboot. The lock is a leaf.
    pub(super) snapshot: Mutex<Option<ShutdownSnapshot>>,
    pub tripwire: Tripwire,
}

/// Parameters of the snapshot for a host reboot.
pub struct ShutdownSnapshot {
    /// The first path in `bpe_path`.
    pub place: PathBuf,
    pub header: StateHeader,
    pub data_device: u64,
}

/// The restart state of this server.
pub static RESTART: RestartState = RestartState {
    session: AtomicU64::new(0),
    start_delay: AtomicU64::new(0),
    process: AtomicI32::new(0),
    records: AtomicI32::new(-1),
    redo_log: OnceLock::new(),
    required_redo_log: OnceLock::new(),
    search_began: OnceLock::new(),
    is_from_snapshot: AtomicBool::new(false),
    is_redo_log_judged: AtomicBool::new(false),
    is_redo_log_known: AtomicBool::new(false),
    is_stopping: AtomicBool::new(false),
    snapshot: Mutex::new(None),
    tripwire: Tripwire::new(),
};

impl RestartState {
    /// The file with the records, which holds their lock; `None` before it is opened, and after the plugin was
    /// uninstalled.
    pub(super) fn records(&self) -> Option<BorrowedFd<'static>> {
        let file = self.records.load(Ordering::SeqCst);
        // SAFETY: the descriptor is closed only when the plugin is uninstalled, which needs a session. No file is tracked
        // any longer then, and the controller has ended.
        (file >= 0).then(|| unsafe { BorrowedFd::borrow_raw(file) })
    }

    /// Whether this process persists its state for the next one. False in a forked child. Async-signal-safe.
    pub fn is_of_process(&self, process: i32) -> bool {
        self.process.load(Ordering::SeqCst) == process
    }
}
