//! The state of this process: values that hooks, variables and threads share. [`crate::diagnostics`] has the values that
//! also need the controller.

use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64};
use std::time::Instant;

use interface::Verdict;
use parking_lot::Mutex;

use crate::audit::suspended::Suspensions;
use crate::bypass::Bypassing;
use crate::core::Core;
use crate::files::{Slot, empty_slot};
use crate::label::Label;
use crate::linux::{DESCRIPTORS, Linux};
use crate::tables::Tables;
use crate::tripwire::Tripwire;

/// Memory is allocated page by page, as descriptors are used.
static TABLE: [Slot; DESCRIPTORS] = [const { empty_slot() }; DESCRIPTORS];

/// The core of this server.
pub static CORE: Core<Linux> = Core::new(Linux, &TABLE);

/// State of the server, except its files and requests.
pub struct Known {
    /// The verdict on the executable's imports; `None` until the calls are intercepted. The lock is a leaf.
    pub verdict: Mutex<Option<Verdict>>,
    /// Serving is withheld until InnoDB has chosen its kind of asynchronous I/O.
    pub waits_for_innodb: AtomicBool,
    /// InnoDB was seen with its files open, so its variables have their values. Never reset.
    pub innodb_runs: AtomicBool,
    /// The server was seen submitting through io_uring.
    pub uses_io_uring: AtomicBool,
    pub suspensions: Suspensions,
    pub tripwire: Tripwire,
    /// The log has the message that this server exports no privilege check.
    pub privilege_refusal_logged: AtomicBool,
    pub bypassing: Bypassing,
    pub kept: Kept,
    /// Behind `bpe_warm_io_capacity`: reads of the data disk per second while pages are loaded; 0: loading is disabled.
    pub warm_io_capacity: AtomicU64,
    pub tables: Tables,
    /// Cache files on the file system of the data directory, when they were opened. The lock is a leaf.
    pub beside_data: Mutex<Vec<PathBuf>>,
}

/// Values of the persisted state.
pub struct Kept {
    /// The session of the cache to recover; 0: none.
    pub session: AtomicU64,
    /// Delay of the server's start by the recovery, milliseconds.
    pub held_up: AtomicU64,
    /// The process id, once state is persisted for the next process; 0: none is.
    pub process: AtomicI32,
    /// The descriptor of the file with the records. Never closed.
    pub records: AtomicI32,
    /// The directory of InnoDB's redo log, once it was seen.
    pub redo: OnceLock<PathBuf>,
    /// The directory of the redo log that InnoDB must open before the recovered state is trusted, if any.
    pub fenced: OnceLock<PathBuf>,
    /// When the search for that log began.
    pub withheld_since: OnceLock<Instant>,
    /// The recovered state was persisted before the machine's restart.
    pub of_image: AtomicBool,
    /// The directory of InnoDB's redo log is known, or will stay unknown.
    pub is_log_known: AtomicBool,
    /// The server stops, and the cache is persisted.
    pub ends: AtomicBool,
    /// The image to write for a machine restart. The lock is a leaf.
    pub leaving: Mutex<Option<Leaving>>,
}

/// Parameters of the image for a machine restart.
pub struct Leaving {
    /// The first path in `bpe_path`.
    pub place: PathBuf,
    pub label: Label,
    pub data_device: u64,
}

/// The state of this server.
pub static KNOWN: Known = Known {
    verdict: Mutex::new(None),
    waits_for_innodb: AtomicBool::new(false),
    innodb_runs: AtomicBool::new(false),
    uses_io_uring: AtomicBool::new(false),
    suspensions: Suspensions::new(),
    tripwire: Tripwire::new(),
    privilege_refusal_logged: AtomicBool::new(false),
    bypassing: Bypassing::new(),
    warm_io_capacity: AtomicU64::new(interface::variables::WARM_IO_CAPACITY.default_number()),
    kept: Kept {
        session: AtomicU64::new(0),
        held_up: AtomicU64::new(0),
        process: AtomicI32::new(0),
        records: AtomicI32::new(-1),
        redo: OnceLock::new(),
        fenced: OnceLock::new(),
        withheld_since: OnceLock::new(),
        of_image: AtomicBool::new(false),
        is_log_known: AtomicBool::new(false),
        ends: AtomicBool::new(false),
        leaving: Mutex::new(None),
    },
    tables: Tables::new(),
    beside_data: Mutex::new(Vec::new()),
};

/// Serialises tests that change the state of the process, or depend on it.
#[cfg(test)]
pub static UNDER_TEST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
