//! Pages whose copy in the data file is damaged while the cached copy is intact.
//!
//! A comparison finds them ([`crate::control::compare`]) and keeps the cached page: it may be the last good copy. A page leaves
//! the list in three cases:
//! - The server writes it.
//! - A comparison finds it equal or no longer cached.
//! - Its file gets another identity.
//!
//! Lock order: leaf.

use cache::FileId;

use crate::platform::sync::{AtomicBool, Mutex, Ordering};

/// Maximum number of listed pages.
const MAX_PAGES: usize = 1024;

/// A page of a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// [`crate::files::DataFile::owner`].
    pub owner: u32,
    /// Identity of the file's contents at detection.
    pub id: FileId,
    pub page: u32,
}

/// List of the known damaged pages.
pub struct Damage {
    pages: Mutex<Vec<Damaged>>,
    /// Whether the list is not empty, for writers. `Relaxed`: if a write misses a page listed at the same time, a later
    /// comparison finds the page equal.
    any: AtomicBool,
}

impl Damage {
    pub(crate) const fn new() -> Damage {
        Damage {
            pages: Mutex::new(Vec::new()),
            any: AtomicBool::new(false),
        }
    }

    /// Adds a page. Returns whether it is new and the list has room.
    pub fn note(&self, page: Damaged) -> bool {
        let mut known = self.pages.lock();
        let is_new = !known.contains(&page) && known.len() < MAX_PAGES;
        if is_new {
            known.push(page);
            self.any.store(true, Ordering::Relaxed);
        }
        is_new
    }

    /// Whether the list is not empty.
    #[inline]
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Removes `pages` pages of a file from `first` on: the server writes them, or a comparison found them intact. Takes the
    /// lock only if the list is not empty.
    #[inline]
    pub fn forget(&self, owner: u32, first: u32, pages: u32) {
        if self.any() {
            self.remove(owner, first, pages);
        }
    }

    #[cold]
    fn remove(&self, owner: u32, first: u32, pages: u32) {
        self.retain(|one| one.owner != owner || one.page.wrapping_sub(first) >= pages);
    }

    /// Keeps only pages of these files, given as owner and identity.
    pub fn keep_of(&self, files: &[(u32, FileId)]) {
        self.retain(|one| files.contains(&(one.owner, one.id)));
    }

    fn retain(&self, keeps: impl Fn(&Damaged) -> bool) {
        let mut known = self.pages.lock();
        known.retain(keeps);
        self.any.store(!known.is_empty(), Ordering::Relaxed);
    }

    pub fn count(&self) -> u64 {
        self.pages.lock().len() as u64
    }

    /// Finds a page by file and number.
    pub fn find(&self, owner: u32, page: u32) -> Option<Damaged> {
        let known = self.pages.lock();
        let mut all = known.iter();
        all.find(|one| one.owner == owner && one.page == page)
            .copied()
    }

    /// Whether a listed page belongs to this file with these contents.
    pub fn is_of(&self, owner: u32, id: FileId) -> bool {
        let is_of = |one: &Damaged| (one.owner, one.id) == (owner, id);
        self.any() && self.pages.lock().iter().any(is_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(owner: u32, page: u32) -> Damaged {
        Damaged {
            owner,
            id: FileId(10 * owner),
            page,
        }
    }

    #[test]
    fn a_page_is_known_until_it_is_written_or_its_file_is_another() {
        let damage = Damage::new();
        assert!(!damage.any());
        assert!(damage.note(page(1, 7)) && !damage.note(page(1, 7)));
        assert!(damage.note(page(2, 7)) && damage.note(page(1, 8)));
        assert!(damage.any() && damage.is_of(1, FileId(10)) && !damage.is_of(1, FileId(11)));
        assert_eq!(damage.find(1, 8), Some(page(1, 8)));
        damage.forget(1, 8, 1);
        damage.forget(1, 0, 7);
        assert_eq!((damage.find(1, 8), damage.count()), (None, 2));
        damage.keep_of(&[(1, FileId(11)), (2, FileId(20))]);
        assert_eq!((damage.count(), damage.is_of(1, FileId(10))), (1, false));
        damage.forget(2, 0, u32::MAX);
        assert!(!damage.any());
    }

    #[test]
    fn what_is_remembered_has_a_bound() {
        let damage = Damage::new();
        let noted = (0..2 * MAX_PAGES as u32).filter(|number| damage.note(page(3, *number)));
        assert_eq!(noted.count(), MAX_PAGES);
    }
}
