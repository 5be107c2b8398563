//! The files with pages in an instance: their highest page numbers, and their shares of the instance's pages.
//!
//! A directory entry does not name its file, so the pages of a file can only be estimated: each page written to a device counts
//! for its file until its segment is reclaimed. Guarded by the instance's lock. Each operation but [`FileTable::scale`] is one
//! lookup, and that one visits all files once in dozens of failures of a device.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use crate::common::page::{FileId, NumberHasher};
use crate::common::violations::Violations;

/// Weight of a page at which all weights are divided by it.
const MAX_WEIGHT: f64 = 1e100;

/// What is known of a file's pages.
#[derive(Default)]
pub(crate) struct FilePages {
    /// Pages of the file in segments, including garbage: the pages that the clock evicts are unknown. Each has the weight of
    /// its time.
    weight: f64,
    /// Highest page number that this process has entered, and highest persisted one: `u32::MAX` if unknown.
    pub entered: Option<u32>,
    pub persisted: Option<u32>,
}

/// Every file that has had a page in an instance and is not forgotten.
pub(crate) struct FileTable {
    files: HashMap<FileId, FilePages, BuildHasherDefault<NumberHasher>>,
    /// Sum over all files.
    sum: f64,
    /// Weight of a page that is counted now. Later pages weigh more after entries of unknown files were removed.
    page: f64,
}

impl FileTable {
    pub fn new() -> FileTable {
        FileTable {
            files: HashMap::default(),
            sum: 0.0,
            page: 1.0,
        }
    }

    /// Bytes of memory.
    pub fn memory_bytes(&self) -> u64 {
        // The table has one byte for each place besides, and keeps an eighth of its places empty.
        let place = size_of::<(FileId, FilePages)>() + 1;
        (self.files.capacity() as u64 * place as u64).div_ceil(7) * 8
    }

    pub fn get(&self, file: FileId) -> Option<&FilePages> {
        self.files.get(&file)
    }

    /// The file, which is added if it is unknown.
    pub fn enter(&mut self, file: FileId) -> &mut FilePages {
        self.files.entry(file).or_default()
    }

    /// Removes the file. Returns what was known, and its pages in segments.
    pub fn remove(&mut self, file: FileId) -> Option<(FilePages, u64)> {
        let pages = self.files.remove(&file)?;
        self.sum = (self.sum - pages.weight).max(0.0);
        let count = (pages.weight / self.page) as u64;
        Some((pages, count))
    }

    /// Counts further pages of a known file.
    pub fn add(&mut self, file: FileId, count: u64) {
        self.change(file, count as f64 * self.page);
    }

    /// Counts one page of a known file less.
    pub fn subtract(&mut self, file: FileId) {
        self.change(file, -self.page);
    }

    fn change(&mut self, file: FileId, weight: f64) {
        if let Some(pages) = self.files.get_mut(&file) {
            let before = pages.weight;
            pages.weight = (before + weight).max(0.0);
            self.sum = (self.sum + pages.weight - before).max(0.0);
        }
    }

    /// The file's share of `alive` pages. Garbage is attributed proportionally.
    pub fn share(&self, file: FileId, alive: u64) -> u64 {
        let weight = self.files.get(&file).map_or(0.0, |pages| pages.weight);
        if weight == 0.0 {
            return 0;
        }
        let alive = (alive as f64).min(self.sum / self.page);
        (weight / self.sum * alive + ROUNDING) as u64
    }

    /// Call after entries of unknown files were removed: of `before` pages, `now` remain.
    pub fn scale(&mut self, before: u64, now: u64) {
        debug_assert!(now <= before, "entries were added");
        self.page *= before.max(1) as f64 / now.max(1) as f64;
        if self.page > MAX_WEIGHT {
            let page = std::mem::replace(&mut self.page, 1.0);
            self.files.values_mut().for_each(|file| file.weight /= page);
            self.sum /= page;
        }
    }

    /// Checks the sum.
    pub fn validate(&self, violations: &mut Violations) {
        let sum: f64 = self.files.values().map(|file| file.weight).sum();
        violations.expect((sum - self.sum).abs() <= sum.max(self.page) * 1e-6, || {
            format!("the files' pages weigh {sum} instead of {}", self.sum)
        });
    }
}

/// Keeps whole numbers whole.
const ROUNDING: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    const A: FileId = FileId(1);
    const B: FileId = FileId(2);

    fn table(pages: &[(FileId, u64)]) -> FileTable {
        let mut table = FileTable::new();
        for &(file, count) in pages {
            table.enter(file);
            table.add(file, count);
        }
        table
    }

    fn check(table: &FileTable) {
        let mut violations = Violations::default();
        table.validate(&mut violations);
        assert!(violations.0.is_empty(), "{:?}", violations.0);
    }

    #[test]
    fn shares_follow_counted_pages() {
        let mut table = table(&[(A, 300), (B, 100)]);
        assert_eq!((table.share(A, 200), table.share(B, 200)), (150, 50));
        assert_eq!(table.share(A, 999), 300, "no more than were counted");
        (0..200).for_each(|_| table.subtract(B));
        assert_eq!((table.share(A, 300), table.share(B, 300)), (300, 0));
        table.add(FileId(3), 7);
        assert_eq!(table.share(FileId(3), 300), 0, "an unknown file");
        assert_eq!(table.remove(A).map(|(_, count)| count), Some(300));
        assert_eq!(table.share(B, 300), 0);
        check(&table);
    }

    #[test]
    fn scaled_pages_weigh_less_than_later_ones() {
        let mut table = table(&[(A, 300)]);
        table.scale(300, 100);
        table.enter(B);
        table.add(B, 100);
        assert_eq!((table.share(A, 200), table.share(B, 200)), (100, 100));
        // A device that fails again and again.
        for _ in 0..100 {
            table.scale(1 << 30, 0);
            check(&table);
        }
        table.add(B, 100);
        assert_eq!((table.share(A, 100), table.share(B, 100)), (0, 100));
        table.subtract(B);
        assert_eq!(table.remove(B).map(|(_, count)| count), Some(99));
        check(&table);
    }
}
