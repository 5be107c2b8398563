//! What is read or written of a followed file.

use extension::PageId;

use crate::control::{self, Timed};
use crate::files::{Blocked, DataFile};
use crate::switch::Mode;
use crate::sync::Instant;

/// A page of a followed file.
#[derive(Clone, Copy)]
pub struct Target {
    /// The file.
    pub file: &'static DataFile,
    /// The page under the identity the file had when the request came.
    pub page: PageId,
}

impl Target {
    /// The read of this page begins. `None` while there is no control group.
    #[inline]
    pub fn timed(&self, mode: Mode) -> Option<Timed> {
        mode.compares().then(|| Timed {
            began: Instant::now(),
            bypassed: !mode.serves(),
            control: control::has(self.file.owner, self.page.page),
        })
    }
}

/// Whether the end of a write is seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// Surely, through [`finish_write`](crate::core::Core::finish_write).
    Seen,
    /// As far as is known: the thread that waits for it may have begun to wait before we looked.
    Perhaps,
    /// By nobody.
    Unseen,
}

/// A write under way.
pub enum Write {
    /// Followed page by page.
    Pages {
        /// The file.
        file: &'static DataFile,
        /// Its identity when the write began.
        first: PageId,
        /// Pages touched.
        pages: u32,
        /// Exactly one whole page, of a file that could be cached when the write began, and whose end is seen.
        whole: bool,
        /// The page was in the cache.
        was_cached: bool,
        /// What the write was begun with.
        end: End,
    },
    /// Followed as a change of the whole file.
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
