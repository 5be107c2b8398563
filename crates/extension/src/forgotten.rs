//! Files that are asked for no more: dropped, emptied, rebuilt, or closed for too long. Their pages give their room back.
//!
//! An entry does not name its file. So the pages of such a file are looked up one by one, up to the highest that may have an entry: by
//! whoever needs room for a page, before any other page has to go, and in the background (`clearing.rs`). A processor looks up some 3
//! million pages a second.
//!
//! A page with the same fingerprint may go with them: of pages without an entry that are looked up, one in some 1,400. That
//! loses a page of the cache and nothing else. A file of which few pages are cached is left alone, so that others do not lose more.

use crate::page::{EXTENT_SHIFT, FileId, PageId, extent_instance};

/// Pages that are looked up for each that is cached.
const MOST_LOOKUPS: u64 = 500;

struct File {
    id: FileId,
    /// Pages below have no entry any more.
    next: u64,
    /// Pages from here on have none.
    end: u64,
}

/// Those of one instance.
pub(crate) struct Forgotten {
    /// Which instance it is, and of how many.
    at: usize,
    instances: u32,
    files: Vec<File>,
}

/// What comes next.
pub(crate) enum Next {
    /// This page may have an entry.
    Page(PageId),
    /// An extent of another instance was passed over.
    Passed,
    /// No page of a file has an entry any more.
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

    /// Pages of this file are below `end`, and so many are cached, or a little more. Whether they are to be cleared: not if so many would be
    /// looked up for so few that others lose more.
    pub fn add(&mut self, id: FileId, end: u64, cached: u64) -> bool {
        let lookups = end / u64::from(self.instances);
        let is_worth_it = end > 0 && lookups < MOST_LOOKUPS * (cached + 1);
        if is_worth_it {
            self.files.push(File { id, next: 0, end });
        }
        is_worth_it
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
