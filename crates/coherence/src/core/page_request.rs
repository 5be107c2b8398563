//! Page requests: reads and writes of a tracked file.

use cache::PageId;

use crate::files::{Blocked, DataFile};
use crate::platform::sync::Instant;
use crate::switch::Mode;
use crate::switch::control_group::{self, Timed};

/// A page of a tracked file.
#[derive(Clone, Copy)]
pub struct PageRequest {
    /// The file.
    pub file: &'static DataFile,
    /// The page, under the file's identity when the request arrived.
    pub page: PageId,
}

impl PageRequest {
    /// Starts to time a read of this page. Returns `None` while there is no control group.
    #[inline]
    pub fn timed(&self, mode: Mode) -> Option<Timed> {
        mode.compares().then(|| Timed {
            began: Instant::now(),
            bypassed: !mode.serves(),
            control: control_group::has(self.file.owner, self.page.page),
        })
    }
}

/// Whether the end of a write is observed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Completion {
    /// Certainly, through [`finish_write`](crate::core::Core::finish_write).
    Observed,
    /// Possibly: the thread that waits for it may have begun to wait before the hook was active.
    MaybeObserved,
    /// Never.
    Unobserved,
}

/// A write in flight.
pub enum Write {
    /// Tracked page by page.
    Pages {
        /// The file.
        file: &'static DataFile,
        /// The first page, under the file's identity when the write began.
        first: PageId,
        /// Number of touched pages.
        pages: u32,
        /// Exactly one whole page. The file was cacheable when the write began, and the end of the write is observed.
        whole: bool,
        /// The page was cached.
        was_cached: bool,
        /// Whether the end of the write is observed.
        completion: Completion,
    },
    /// Tracked as a change of the whole file.
    File(Blocked<'static>),
}

impl Write {
    /// The file that is written.
    pub fn file(&self) -> &'static DataFile {
        match self {
            Write::Pages { file, .. } => file,
            Write::File(blocked) => blocked.file(),
        }
    }
}
