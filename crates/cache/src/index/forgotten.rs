//! Forgotten files: dropped, truncated, rebuilt, or evicted from the table of closed files. No read names them again.
//!
//! A directory entry does not name its file. So `clearing.rs` looks up each page number of a forgotten file, up to the highest entered
//! one, and removes the entry. One processor looks up about 3 million pages a second.
//!
//! A lookup of an absent page finds the entry of another page with the same fingerprint once in about 1,400 times. The cache then loses
//! that page. A file with few cached pages is skipped, because its lookups would cost more pages than they free.

use crate::common::page::{EXTENT_SHIFT, FileId, PageId, extent_instance};

/// Lookups for each cached page.
const MAX_LOOKUPS: u64 = 500;

struct File {
    id: FileId,
    /// Number of the next page to look up.
    next: u64,
    /// Number after the last page to look up.
    end: u64,
}

/// The forgotten files of one instance.
pub(crate) struct Forgotten {
    /// Index of the instance, and number of instances.
    at: usize,
    instances: u32,
    files: Vec<File>,
}

/// Result of one step.
pub(crate) enum Next {
    /// The page may have an entry.
    Page(PageId),
    /// The extent belongs to another instance.
    Passed,
    /// All pages of a file were looked up.
    Ended,
    Nothing,
}

impl Forgotten {
    pub fn new(at: usize, instances: u32) -> Forgotten {
        Forgotten {
            at,
            instances,
            files: Vec::new(),
        }
    }

    /// Adds a file with pages below `end`, of which at most `cached` have entries. Returns false if the file is skipped.
    pub fn add(&mut self, id: FileId, end: u64, cached: u64) -> bool {
        debug_assert!(end <= 1 << 32, "page numbers have 32 bits");
        let lookups = end / u64::from(self.instances);
        let is_worthwhile = end > 0 && lookups < MAX_LOOKUPS * (cached + 1);
        if is_worthwhile {
            self.files.push(File { id, next: 0, end });
        }
        is_worthwhile
    }

    pub fn next(&mut self) -> Next {
        let Some(File { id, next, end }) = self.files.last_mut() else {
            return Next::Nothing;
        };
        if next >= end {
            self.files.pop();
            return Next::Ended;
        }
        let page = PageId::new(*id, *next as u32);
        let extent = page.page >> EXTENT_SHIFT;
        if extent_instance(page.file, extent, self.instances) != self.at {
            *next = (u64::from(extent) + 1) << EXTENT_SHIFT;
            return Next::Passed;
        }
        *next += 1;
        Next::Page(page)
    }

    #[cfg(test)]
    pub fn clear(&mut self) {
        self.files.clear();
    }
}
