//! The state of this process: the values that hooks, variables and threads share. What needs the controller as well lies in
//! [`crate::diagnostics`].

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

/// Memory is taken page by page, as descriptors are used.
static TABLE: [Slot; DESCRIPTORS] = [const { empty_slot() }; DESCRIPTORS];

/// Of the server that the library was loaded into.
pub static CORE: Core<Linux> = Core::new(Linux, &TABLE);

/// What is known of the server beside its files and requests.
pub struct Known {
    /// What its executable imports, as it was judged; `None` until the calls are intercepted. The lock is a leaf.
    pub verdict: Mutex<Option<Verdict>>,
    /// Nothing may be served before InnoDB has made its choice.
    pub waits_for_innodb: AtomicBool,
    /// InnoDB was seen with its files open, so its variables have their values. It stays so.
    pub innodb_runs: AtomicBool,
    /// It was seen submitting through io_uring.
    pub uses_io_uring: AtomicBool,
    pub suspensions: Suspensions,
    pub tripwire: Tripwire,
    /// The log says that this server exports no check of privileges.
    pub privilege_refusal_logged: AtomicBool,
    pub bypassing: Bypassing,
    pub kept: Kept,
    /// Behind `bpe_warm_io_capacity`: reads of the data disk in a second, while pages are loaded; 0: none are loaded.
    pub warm_io_capacity: AtomicU64,
    pub tables: Tables,
    /// Cache files on the file system of the data directory, as they were opened. The lock is a leaf.
    pub beside_data: Mutex<Vec<PathBuf>>,
}

/// What is known of what outlives the process.
pub struct Kept {
    /// The session of the cache that is to be taken over; 0: none.
    pub session: AtomicU64,
    /// How long the server's start was held up for that, milliseconds.
    pub held_up: AtomicU64,
    /// The number of this process, once something is kept for the next one; 0: nothing is.
    pub process: AtomicI32,
    /// The descriptor of the file with the records of the data files, which is never closed.
    pub records: AtomicI32,
    /// The folder of InnoDB's redo log, once it was seen.
    pub redo: OnceLock<PathBuf>,
    /// The folder of the one that must be opened before what was left is believed, if any must.
    pub fenced: OnceLock<PathBuf>,
    /// Since when it was looked for.
    pub withheld_since: OnceLock<Instant>,
    /// What was taken over was left before the machine's restart.
    pub of_image: AtomicBool,
    /// It is known where InnoDB has its redo log, or that it will not be known.
    pub is_log_known: AtomicBool,
    /// The server stops, and what is cached is left.
    pub ends: AtomicBool,
    /// What is to be left for the machine's restart. The lock is a leaf.
    pub leaving: Mutex<Option<Leaving>>,
}

/// What is to be left for the machine's restart, and where.
pub struct Leaving {
    /// What `bpe_path` names first.
    pub place: PathBuf,
    pub label: Label,
    pub data_device: u64,
}

/// Of the same server.
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

/// Tests that change the state of the process, or count on it, take turns.
#[cfg(test)]
pub static UNDER_TEST: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
