//! Compares cached pages with their data files while the server runs: for `bpe verify`, for the [audit](crate::control::audit),
//! and for a sample of recovered pages.
//!
//! A comparison takes a ticket before it reads both pages. If the ticket is still current afterwards, no write of the page began
//! in between, so the two must be equal. It reads the data file through the server's own descriptor. Opening and closing another
//! one would drop the server's locks.

use std::alloc::{Layout, alloc_zeroed};
use std::time::Duration;

use cache::{CopyOutcome, FileId, PageId};

use crate::core::Core;
use crate::core::damage::Damaged;
use crate::files::DataFile;
use crate::page::checksum;
use crate::platform::os::{Errno, Os};

/// Pages between two checks of the clock.
const CLOCK_INTERVAL_PAGES: u32 = 64;
/// Maximum pages that [`Core::sample`] compares.
const SAMPLE: u64 = 2048;
/// Maximum pages that it looks up in the cache.
const MAX_SAMPLE_LOOKUPS: u32 = 1 << 18;
/// Time limit of a sample. A disk that does not answer may exceed it.
const SAMPLE_TIME: Duration = Duration::from_secs(2);
/// Delay before an apparently damaged page is read again.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

/// The position at which a comparison continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// [`DataFile::owner`].
    pub file: u32,
    /// Page number in that file.
    pub page: u32,
    /// Compares every n-th page of the data files.
    pub every: u32,
}

/// Outcome of the comparison of one page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Compared {
    /// Not in the cache.
    Absent,
    /// Cached, but unreadable, so it would not have been served.
    Unproven,
    /// Written during the comparison, or not readable just then.
    Skipped,
    Equal,
    /// The page is damaged or unreadable in the data file, and intact in the cache, which keeps it.
    Damaged,
    /// The cached page differs from the data file. It is dropped.
    Different,
}

/// Result for a sample of a file's cached pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Compared pages.
    pub compared: u64,
    /// Of `compared`: different from the data file.
    pub different: u64,
    /// Of `compared`: damaged in the data file.
    pub damaged: u64,
}

/// Page-aligned memory for direct reads.
#[repr(C, align(4096))]
struct Buffer([u8; cache::MAX_PAGE]);

/// Two buffers, allocated without passing over the stack, which is small in a server's thread.
pub struct Buffers(Box<[Buffer; 2]>);

impl Buffers {
    /// Returns `None` if the host is out of memory.
    pub fn new() -> Option<Buffers> {
        let layout = Layout::new::<[Buffer; 2]>();
        // SAFETY: the layout has a nonzero size; zeroed memory is a valid value of a buffer; the box frees it.
        unsafe {
            let memory = alloc_zeroed(layout).cast::<[Buffer; 2]>();
            (!memory.is_null()).then(|| Buffers(Box::from_raw(memory)))
        }
    }
}

impl<O: Os> Core<O> {
    /// Compares cached pages with the data files from `cursor` on, in order of the files' numbers, for about `time`. Reports each
    /// page to `tell`. Returns where to continue, or `None` at the end.
    pub fn compare_from(
        &'static self,
        cursor: Cursor,
        time: Duration,
        buffers: &mut Buffers,
        mut tell: impl FnMut(&DataFile, u32, Compared),
    ) -> Option<Cursor> {
        let until = self.os().running() + time;
        let mut all = self.files.all();
        all.sort_unstable_by_key(|file| file.owner);
        let mut page = cursor.page;
        for file in all.into_iter().filter(|file| file.owner >= cursor.file) {
            if file.owner > cursor.file {
                page = 0;
            }
            let Some((fd, pages)) = self.open_pages(file) else {
                continue;
            };
            while page < pages {
                let last = pages
                    .min(page.saturating_add(CLOCK_INTERVAL_PAGES.saturating_mul(cursor.every)));
                for number in (page..last).step_by(cursor.every as usize) {
                    // A suspended file with known damage is compared too.
                    let suspended =
                        || Some(file.id()).filter(|id| self.damage.is_of(file.owner, *id));
                    if let Some(id) = file.usable_id().or_else(suspended) {
                        tell(file, number, self.compare(file, id, fd, number, buffers));
                    }
                }
                page = last.next_multiple_of(cursor.every);
                if self.os().running() >= until {
                    return Some(Cursor {
                        file: file.owner,
                        page,
                        ..cursor
                    });
                }
            }
        }
        None
    }

    /// A descriptor of an open file, and its length in pages; `None` if no page of it can be cached.
    pub fn open_pages(&self, file: &'static DataFile) -> Option<(i32, u32)> {
        let size = u64::from(file.page_size());
        if size == 0 {
            return None;
        }
        let fd = self.files.descriptor_of(file)?;
        let stat = self.os().stat(fd)?;
        let pages = u64::try_from(stat.size).ok()? / size;
        Some((fd, u32::try_from(pages).unwrap_or(u32::MAX)))
    }

    /// Compares the page that is cached under this identity of the file.
    fn compare(
        &'static self,
        file: &'static DataFile,
        id: FileId,
        fd: i32,
        number: u32,
        buffers: &mut Buffers,
    ) -> Compared {
        let [cached, stored] = &mut *buffers.0;
        let guard = self.switch().active();
        let Some(active) = &*guard else {
            return Compared::Absent;
        };
        let length = file.page_size() as usize;
        let page = PageId::new(id, number);
        let (Some(cached), Some(stored)) = (cached.0.get_mut(..length), stored.0.get_mut(..length))
        else {
            return Compared::Absent;
        };
        let Some(ticket) = self.switch().generations().begin_read(file.owner, number) else {
            return Compared::Absent; // a write is in flight, so the page is not cached
        };
        match active.extension.copy(page, cached) {
            CopyOutcome::Absent => {
                self.damage.forget(file.owner, number, 1);
                return Compared::Absent;
            }
            CopyOutcome::Unproven | CopyOutcome::Unanswered => return Compared::Unproven,
            CopyOutcome::Copied => {}
        }
        let offset = u64::from(number) * length as u64;
        let read = |stored: &mut [u8]| {
            // SAFETY: a read into our own buffer. If the descriptor now belongs to another file, `is_unchanged` detects it.
            unsafe {
                self.os()
                    .read(fd, stored.as_mut_ptr(), length, offset as i64)
            }
        };
        let was_read = read(stored);
        // A change of the whole file assigns another identity before it is submitted.
        let is_unchanged = || {
            self.switch().generations().is_current(ticket)
                && file.id() == id
                && self
                    .files
                    .of_descriptor(fd)
                    .is_some_and(|now| std::ptr::eq(now, file))
        };
        let is_unreadable = was_read == Err(Errno::IO);
        if was_read != Ok(length) && !is_unreadable || !is_unchanged() {
            return Compared::Skipped;
        }
        if !is_unreadable && cached == stored {
            self.damage.forget(file.owner, number, 1);
            return Compared::Equal;
        }
        let looks_damaged = match is_unreadable {
            true => checksum::is_right(cached),
            false => checksum::is_damaged(stored, cached),
        };
        if looks_damaged {
            // Another program may be writing it now.
            let sum = was_read.map(|_| crc32c::crc32c(stored));
            self.os().pause(AGAIN_AFTER);
            let is_same = read(stored).map(|_| crc32c::crc32c(stored)) == sum;
            if !is_same || !is_unchanged() {
                return Compared::Skipped;
            }
            self.note_damage(file, id, number, is_unreadable);
            return Compared::Damaged;
        }
        if is_unreadable {
            return Compared::Skipped;
        }
        active.extension.invalidate(id, number, 1);
        Compared::Different
    }

    fn note_damage(&self, file: &DataFile, id: FileId, page: u32, is_unreadable: bool) {
        let damaged = Damaged {
            owner: file.owner,
            id,
            page,
        };
        if !self.damage.note(damaged) {
            return;
        }
        let how = match is_unreadable {
            true => "the data disk cannot read it",
            false => "its checksum is wrong in the data file",
        };
        self.os().error(&format!(
            "page {page} of '{}' is damaged: {how}, and the cache has it whole. Save it with `bpe verify --save-pages DIRECTORY`, and copy \
             the table, before this server is restarted",
            file.name()
        ));
    }

    /// Copies a page with known damage from the cache, if it is still cached and intact.
    pub fn copy_of_damaged(&'static self, owner: u32, page: u32) -> Option<Vec<u8>> {
        let damaged = self.damage.find(owner, page)?;
        let mut all = self.files.all().into_iter();
        let file = all.find(|file| file.owner == owner && file.id() == damaged.id)?;
        let guard = self.switch().active();
        let mut bytes = vec![0; file.page_size() as usize];
        let found = guard
            .as_ref()?
            .extension
            .copy(PageId::new(damaged.id, page), &mut bytes);
        (found == CopyOutcome::Copied && checksum::is_right(&bytes)).then_some(bytes)
    }

    /// Compares a sample of the pages that are cached under this identity of a file, spread over the file. Call only where waiting
    /// for the data disk blocks no other work.
    pub fn sample(&'static self, file: &'static DataFile, id: FileId) -> Sample {
        self.sample_at_most(file, id, SAMPLE, SAMPLE_TIME)
    }

    /// Compares about `most` of the pages that were recovered from another process, in the files opened since. Otherwise like
    /// [`sample`](Self::sample).
    pub fn sample_inherited(&'static self, most: u64) -> Sample {
        let mut sum = Sample::default();
        let mut files = self.files.all();
        files.retain(|file| file.is_inherited() && self.files.descriptor_of(file).is_some());
        let share = (most / files.len().max(1) as u64).max(4);
        for file in files {
            if sum.compared >= most {
                break;
            }
            let time = SAMPLE_TIME / 10;
            let sample = self.sample_at_most(file, file.id(), share, time);
            sum.compared += sample.compared;
            sum.different += sample.different;
        }
        sum
    }

    fn sample_at_most(
        &'static self,
        file: &'static DataFile,
        id: FileId,
        most: u64,
        time: Duration,
    ) -> Sample {
        let mut sample = Sample::default();
        let (Some((fd, pages)), Some(mut buffers)) = (self.open_pages(file), Buffers::new()) else {
            return sample;
        };
        let until = self.os().running() + time;
        for (looked_for, number) in (0..MAX_SAMPLE_LOOKUPS).zip(spread(pages)) {
            if looked_for % CLOCK_INTERVAL_PAGES == 0 && self.os().running() >= until
                || sample.compared == most
            {
                break;
            }
            let compared = self.compare(file, id, fd, number, &mut buffers);
            match compared {
                Compared::Equal | Compared::Different | Compared::Damaged => sample.compared += 1,
                Compared::Absent | Compared::Unproven | Compared::Skipped => {}
            }
            sample.different += u64::from(compared == Compared::Different);
            sample.damaged += u64::from(compared == Compared::Damaged);
        }
        sample
    }
}

/// Each of `pages` numbers once, in an order whose every prefix is spread over all of them.
fn spread(pages: u32) -> impl Iterator<Item = u32> {
    let pages = u64::from(pages);
    // The golden section of the count, increased until both are coprime.
    let mut stride = (pages * 618 / 1000).max(1);
    while gcd(stride, pages) > 1 {
        stride += 1;
    }
    (0..pages).map(move |n| (n * stride % pages) as u32)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_and_has_each_page_once() {
        for pages in [0, 1, 2, 3, 7, 100, 1024, 6180] {
            let mut all: Vec<u32> = spread(pages).collect();
            let (low, high) = all
                .iter()
                .take(16)
                .partition::<Vec<u32>, _>(|page| **page < pages / 2);
            assert!(pages < 100 || low.len() >= 6 && high.len() >= 6, "{all:?}");
            all.sort_unstable();
            assert!(all.into_iter().eq(0..pages), "{pages}");
        }
        assert_eq!(spread(u32::MAX).take(1000).count(), 1000);
    }
}
