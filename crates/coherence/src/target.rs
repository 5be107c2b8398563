//! What is read or written of a followed file.

use extension::PageId;

use crate::files::{Blocked, DataFile};

/// A page of a followed file.
#[derive(Clone, Copy)]
pub struct Target {
    /// The file.
    pub file: &'static DataFile,
    /// The page under the identity the file had when the request came.
    pub page: PageId,
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
        /// Exactly one whole page, of a file that could be cached when the write began.
        whole: bool,
        /// The page was in the cache.
        was_cached: bool,
    },
    /// Followed as a change of the whole file.
    File(Blocked<'static>),
}
