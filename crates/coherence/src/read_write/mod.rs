//! Coherence protocol: keeps the cached pages equal to the data files.
//!
//! # Rules
//! 1. Read miss: take a [`ReadTicket`](cache::ReadTicket) *before* the server's read. Admit the page under that ticket, which
//!    is void once a write of the page has begun.
//! 2. Write: increment the generations of the pages and drop their entries *before* the write is submitted. Admit the written
//!    page only after the write has succeeded, and only if no other write of the page overlapped.
//! 3. Any other change of a file (truncation, holes, unlink, replacement, calls without an offset) assigns a new identity
//!    before it is submitted. It blocks the admission of reads until it has completed.
//! 4. Each change stores the file's [change stamp](crate::restart::stamp) when the call returns, for the next process.
//!
//! In bypass rule 1 is suspended, because no read is served or admitted. The other rules hold in every mode.

use cache::{OfferOutcome, PageId, ReadOutcome, ReadTicket, Source};

use crate::core::Core;
use crate::core::page_request::{End, Target, Write};
use crate::files::DataFile;
use crate::files::file_rule::Treatment;
use crate::page::header::{header_lsn, header_page};
use crate::platform::os::Os;
use crate::platform::sync::{Instant, Ordering};
use crate::switch::control_group::Timed;
use crate::switch::{Active, Bypass, Mode};

/// A write of more pages than this makes the whole file's entries unreachable instead of dropping each page.
const PAGES_BY_PAGE: u32 = 4096;

impl<O: Os> Core<O> {
    /// The page that a read requests, if it requests exactly one page that may be cached. Call once for each of the server's
    /// reads, before submitting it.
    #[inline]
    pub fn target_of_read(
        &self,
        mode: Mode,
        file: &'static DataFile,
        length: usize,
        offset: i64,
    ) -> Option<Target> {
        let page = file.page_of_read(length, offset)?;
        if mode.records() {
            self.notes.note_read(file, page);
        }
        if file.treatment() == Treatment::Excluded && !canary!("exclude") {
            if mode.serves() {
                self.count_kept_out(file, length);
            }
            return None;
        }
        let id = file.cacheable()?;
        Some(Target {
            file,
            page: PageId { file: id, page },
        })
    }

    /// Counts a page read or write of an excluded file.
    #[cold]
    fn count_kept_out(&self, file: &DataFile, length: usize) {
        let treatments = &self.files.treatments;
        file.kept_out.fetch_add(1, Ordering::Relaxed);
        treatments.pages.fetch_add(1, Ordering::Relaxed);
        treatments.bytes.fetch_add(length as u64, Ordering::Relaxed);
    }

    /// Serves a synchronous read from the cache, or calls `real` and offers its page for admission. In bypass it only calls `real`.
    ///
    /// # Safety
    /// `buffer` must be valid for writes of `length` bytes, as the server's own call requires.
    #[inline]
    pub unsafe fn read(
        &self,
        mode: Mode,
        target: Target,
        buffer: *mut u8,
        length: usize,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let guard = self.switch().active();
        let Some(active) = &*guard else { return real() };
        let timed = target.timed(mode);
        let result = match timed {
            _ if !mode.serves() => {
                let result = real();
                if let Some(timed) = timed {
                    self.count_data_read(active, target.file, timed.began);
                }
                result
            }
            Some(Timed { control: true, .. }) => {
                active.extension.count_access(target.page);
                // SAFETY: the caller's promise.
                unsafe { self.read_data_file(active, target, buffer, length, real) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.serve(active, target, buffer, length, real) },
        };
        if let Some(timed) = timed {
            active.waits.record(timed);
        }
        result
    }

    /// Reads from the cache, or after a miss from the data file.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    unsafe fn serve(
        &self,
        active: &Active,
        target: Target,
        buffer: *mut u8,
        length: usize,
        real: impl FnOnce() -> isize,
    ) -> isize {
        {
            // SAFETY: the caller's promise; the slice ends before the server's own read uses the buffer.
            let bytes = unsafe { std::slice::from_raw_parts_mut(buffer, length) };
            if matches!(
                active
                    .extension
                    .read_of(target.file.group(), target.page, bytes),
                ReadOutcome::Hit
            ) && self.is_the_page(active, target, bytes)
            {
                target.file.hits.fetch_add(1, Ordering::Relaxed);
                return length as isize;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.read_data_file(active, target, buffer, length, real) }
    }

    /// Calls `real` and offers the page for admission.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    unsafe fn read_data_file(
        &self,
        active: &Active,
        target: Target,
        buffer: *mut u8,
        length: usize,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let begin_read = || {
            let generations = self.switch().generations();
            generations.begin_read(target.file.owner, target.page.page)
        };
        let mut ticket = begin_read();
        let started = Instant::now();
        let result = real();
        if canary!("ticket-after-read") {
            ticket = begin_read();
        }
        self.count_data_read(active, target.file, started);
        if let (true, Some(ticket)) = (result == length as isize, ticket) {
            // SAFETY: the read filled the buffer.
            let bytes = unsafe { std::slice::from_raw_parts(buffer, length) };
            self.offer(active, target, bytes, ticket, Source::Read);
        }
        result
    }

    /// Last check of a hit: the page number in the header. Drops a page that fails it.
    pub fn is_the_page(&self, active: &Active, target: Target, bytes: &[u8]) -> bool {
        if canary!("checks") {
            return true;
        }
        let fits = header_page(bytes)
            .is_some_and(|header| target.file.header_is(target.page.page, header));
        if !fits {
            active
                .extension
                .invalidate(target.page.file, target.page.page, 1);
        } else if target.file.is_inherited() {
            self.files.recoveries.note_served(header_lsn(bytes));
        }
        fits
    }

    /// Counts a page read that went to the data file.
    pub fn count_data_read(&self, active: &Active, file: &DataFile, started: Instant) {
        let nanos = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        active.data_reads.record(nanos);
        active.data_read_count.fetch_add(1, Ordering::Relaxed);
        if let Some(manifest) = self.switch().manifest() {
            manifest.live();
        }
        file.misses.fetch_add(1, Ordering::Relaxed);
    }

    /// Offers a page for admission if its header has the page number of this position. In bypass without refill it
    /// offers nothing. Returns the outcome, or `None` if the page was not offered.
    pub fn offer(
        &self,
        active: &Active,
        target: Target,
        bytes: &[u8],
        ticket: ReadTicket,
        source: Source,
    ) -> Option<OfferOutcome> {
        // Under an outdated identity the page would take space that no read can use.
        let is_it = self.switch().mode().fills()
            && target.file.id() == target.page.file
            && header_page(bytes)
                .is_some_and(|header| target.file.header_fits(target.page.page, header));
        is_it.then(|| {
            let group = target.file.group();
            active
                .extension
                .offer_of(group, target.page, bytes, ticket, source)
        })
    }

    /// Prepares a write: increments generations and drops entries. Call before submitting it.
    ///
    /// Returns the handle for [`finish_write`](Self::finish_write), which is called after the write has completed.
    /// - `End::Seen`: `finish_write` may admit the page.
    /// - `End::Perhaps`: blocks the admission of reads of its pages until `finish_write`, or until the server reuses the request.
    ///   A read that is submitted after such a write may complete before it.
    /// - `End::Unseen`: the end of the write is never observed, and the preparation is all that happens.
    pub fn begin_write(
        &self,
        file: &'static DataFile,
        length: usize,
        offset: i64,
        end: End,
    ) -> Option<Write> {
        if end == End::Unseen {
            // Before the increment: a thread that takes a ticket afterwards must see this.
            self.files.note_unseen_write();
        }
        if canary!("writes") || length == 0 {
            return None;
        }
        if canary!("bypass-skips-writes") && self.switch().mode().bypass() != Bypass::Off {
            return None;
        }
        if offset < 0 {
            return Some(whole_file(file, end));
        }
        let mut page_size = file.page_size();
        if page_size == 0 {
            if canary!("unlearned") {
                return None;
            }
            // No page of the file is cached. A read that overlaps this write may learn the page size.
            if end == End::Unseen {
                file.void_stamp();
            }
            let blocked = file.block_inserts();
            page_size = file.page_size();
            if page_size == 0 {
                return Some(match end {
                    End::Perhaps => self.one_page(file, length, offset),
                    _ => Write::File(blocked),
                });
            }
        }
        let size = u64::from(page_size);
        let begin = offset as u64 / size;
        let until = (offset as u64 + length as u64 - 1) / size;
        let (Ok(first), Ok(last)) = (u32::try_from(begin), u32::try_from(until)) else {
            return Some(whole_file(file, end));
        };
        let pages = last - first + 1;
        if pages > PAGES_BY_PAGE {
            return Some(whole_file(file, end));
        }
        self.damage.forget(file.owner, first, pages);
        let generations = self.switch().generations();
        let early = canary!("id-before-bump").then(|| file.id());
        match end {
            End::Seen | End::Perhaps => {
                file.begin_change();
                generations.begin_write(file.owner, first, pages);
            }
            End::Unseen => {
                file.note_change();
                generations.bump(file.owner, first, pages);
            }
        }
        let id = early.unwrap_or_else(|| file.id());
        let was_cached = match &*self.switch().active() {
            Some(active) => active.extension.invalidate(id, first, pages),
            None => {
                file.write_unseen();
                false
            }
        };
        if file.page_size() != page_size {
            file.replace_contents(); // relearned since: the pages dropped above were the wrong ones
        }
        // A page written while the whole file changes may be outdated before its admission. Checked after the identity: see
        // `cacheable`.
        let one = length as u64 == size && offset as u64 % size == 0;
        let whole = one && end == End::Seen && !file.is_kept_out();
        Some(Write::Pages {
            file,
            first: PageId {
                file: id,
                page: first,
            },
            pages,
            whole,
            was_cached,
            end,
        })
    }

    /// Completes a write. `written`: the bytes that are now in the file, if the write was complete.
    pub fn finish_write(&self, write: Write, active: Option<&Active>, written: Option<&[u8]>) {
        let Write::Pages {
            file,
            first,
            pages,
            whole,
            was_cached,
            end,
        } = write
        else {
            return;
        };
        if end != End::Unseen {
            file.end_change();
        }
        let ticket = self
            .switch()
            .generations()
            .end_write(file.owner, first.page, pages);
        let (Some(ticket), Some(bytes), Some(active), true) = (ticket, written, active, whole)
        else {
            return;
        };
        if file.treatment() == Treatment::Excluded && !canary!("exclude") {
            return self.count_kept_out(file, bytes.len());
        }
        if let (Some(manifest), false) = (self.switch().manifest(), canary!("lsn"))
            && header_page(bytes).is_some_and(|header| file.header_may_be(first.page, header))
        {
            manifest.note_lsn(header_lsn(bytes));
        }
        // The identity must not have changed since the write began.
        if file.cacheable() == Some(first.file) && bytes.len() == file.page_size() as usize {
            self.offer(
                active,
                Target { file, page: first },
                bytes,
                ticket,
                Source::Write { was_cached },
            );
        }
    }

    /// Submits a synchronous write under the write rules.
    ///
    /// # Safety
    /// `buffer` must be valid for reads of `length` bytes, as the server's own call requires.
    pub unsafe fn write(
        &self,
        mode: Mode,
        (fd, file): (i32, &'static DataFile),
        buffer: *const u8,
        length: usize,
        offset: i64,
        real: impl FnOnce() -> isize,
    ) -> isize {
        if mode.records() && length != 0 {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(buffer, length) };
            self.notes.note_write(file, Some(bytes), length, offset);
        }
        let Some(write) = self.begin_write(file, length, offset, End::Seen) else {
            return real();
        };
        if canary!("stamp-before-call") {
            self.files.stamp(file, fd);
        }
        let result = real();
        if !canary!("stamp-before-call") {
            self.files.stamp(file, fd);
        }
        // SAFETY: the caller's promise; the server keeps the buffer unchanged during its own call.
        let written = (result == length as isize || canary!("results"))
            .then(|| unsafe { std::slice::from_raw_parts(buffer, length) });
        self.finish_write(write, self.switch().active().as_deref(), written);
        result
    }

    /// Submits a change of a file's range that brings no bytes (holes, zeroing).
    pub fn change_range<R>(
        &self,
        (fd, file): (i32, &'static DataFile),
        length: i64,
        offset: i64,
        real: impl FnOnce() -> R,
    ) -> R {
        if canary!("ranges") {
            return real();
        }
        let write = usize::try_from(length)
            .ok()
            .and_then(|length| self.begin_write(file, length, offset, End::Seen));
        let result = real();
        self.files.stamp(file, fd);
        if let Some(write) = write {
            self.finish_write(write, None, None);
        }
        result
    }

    /// Submits a change of a whole file.
    pub fn change_file<R>(&self, file: Option<&'static DataFile>, real: impl FnOnce() -> R) -> R {
        if canary!("truncation") {
            return real();
        }
        let _blocked = file.map(DataFile::block);
        self.stamped_after(file, real)
    }

    /// Submits a call whose effect on the file's contents is not tracked. The file is not cached until it is reopened.
    pub fn change_unfollowed<R>(&self, file: &'static DataFile, real: impl FnOnce() -> R) -> R {
        if canary!("unfollowed") {
            return real();
        }
        let _changing = file.change();
        file.bar();
        real()
    }

    /// Submits a flush of a file. `real` returns 0 on success. After a failure the kernel may have dropped pages that it could not
    /// write, so no file is proven from then on.
    pub fn flush(&self, real: impl FnOnce() -> i32) -> i32 {
        let result = real();
        if result != 0
            && !canary!("flush-failed")
            && let Some(manifest) = self.switch().manifest()
        {
            manifest.detach();
        }
        result
    }

    /// Submits a call that changes a file's size, names or times, but no bytes that may be cached.
    pub fn change_looks<R>(&self, file: Option<&'static DataFile>, real: impl FnOnce() -> R) -> R {
        if canary!("looks") {
            return real();
        }
        let _changing = file.map(DataFile::change);
        self.stamped_after(file, real)
    }

    fn stamped_after<R>(&self, file: Option<&'static DataFile>, real: impl FnOnce() -> R) -> R {
        let result = real();
        if let Some(file) = file {
            self.files.stamp_open(file);
        }
        result
    }
}

impl<O: Os> Core<O> {
    /// Tracks a write of a file with unknown page size as a write of one page, as both servers write. Blocking the whole file until
    /// the end of the write is observed would be too costly: that may take a minute.
    #[cold]
    fn one_page(&self, file: &'static DataFile, length: usize, offset: i64) -> Write {
        let page = u32::try_from(offset as u64 / length as u64).unwrap_or(u32::MAX);
        file.begin_change();
        self.switch().generations().begin_write(file.owner, page, 1);
        Write::Pages {
            file,
            first: PageId {
                file: file.id(),
                page,
            },
            pages: 1,
            whole: false,
            was_cached: false,
            end: End::Perhaps,
        }
    }
}

/// Tracks a write as a change of the whole file.
#[cold]
fn whole_file(file: &'static DataFile, end: End) -> Write {
    if end == End::Unseen {
        file.void_stamp();
    }
    Write::File(file.block())
}

#[cfg(test)]
pub(crate) mod read_write_tests;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::files::Attach;
    use crate::testing::os_for_tests;

    const PAGE: usize = 16384;

    /// Creates and opens a data file whose page size is known.
    fn opened(
        core: &'static Core<os_for_tests::Machine>,
        folder: &std::path::Path,
    ) -> (std::fs::File, &'static DataFile) {
        let file = std::fs::File::create_new(folder.join("a.ibd")).unwrap();
        let fd = file.as_raw_fd();
        let stat = core.os().stat(fd).unwrap();
        core.files
            .attach(fd, &stat, b"a.ibd", Attach::Opened { anew: true });
        let known = core.files.of_descriptor(fd).unwrap();
        assert_eq!(known.page_of_read(PAGE, PAGE as i64), Some(1));
        (file, known)
    }

    /// The audit ignores a file from before each of these changes until after it.
    #[test]
    fn every_change_counts_from_its_beginning_to_its_end() {
        let core = os_for_tests::core();
        core.switch().start_tracking(|| ());
        let folder = tempfile::tempdir().unwrap();
        let (file, known) = opened(core, folder.path());
        let fd = file.as_raw_fd();

        let mut before = known.at_rest();
        let mut counted = |what: &str| {
            let now = known.at_rest();
            assert!(before.is_some() && now > before, "{what}");
            before = now;
        };
        let under_way = || assert_eq!(known.at_rest(), None);
        for offset in [0, 16384, 100, -1] {
            let write = core.begin_write(known, 16384, offset, End::Seen).unwrap();
            under_way();
            core.finish_write(write, None, None);
            counted("a write");
        }
        // A write with an unobserved end counts only when it begins.
        drop(core.begin_write(known, 16384, 0, End::Unseen));
        counted("a write whose end is not seen");
        core.change_range((fd, known), 16384, 0, under_way);
        counted("a range");
        core.change_file(Some(known), under_way);
        counted("the whole file");
        core.change_looks(Some(known), under_way);
        counted("size or times");
        core.change_unfollowed(known, under_way);
        counted("a write without an offset");
    }

    /// After a restart, the tripwire compares this LSN with InnoDB's own.
    #[cfg(debug_assertions)]
    #[test]
    fn highest_lsn_of_written_pages_is_kept() {
        use crate::restart::manifest::{Head, Manifest, Memory, Record};
        use crate::testing::canary::{leave_out, noticed};
        let core = os_for_tests::core();
        let folder = tempfile::tempdir().unwrap();
        let active = os_for_tests::active_in(core.switch(), folder.path());
        let head: &Head = Box::leak(Box::default());
        let records: &[Record] = Box::leak((0..4).map(|_| Record::default()).collect());
        let memory = Memory {
            now: || 1,
            grow: |_| false,
        };
        core.switch().keep(Manifest::new(head, records, 4, memory));
        core.switch().start_tracking(|| ());
        let (_file, known) = opened(core, folder.path());
        assert!(matches!(core.switch().publish(active), Ok(None)));
        let kept = |lsn: u64| {
            let mut page = vec![1; PAGE];
            page[4..8].copy_from_slice(&1u32.to_be_bytes());
            page[16..24].copy_from_slice(&lsn.to_be_bytes());
            let write = core.begin_write(known, PAGE, PAGE as i64, End::Seen);
            core.finish_write(
                write.unwrap(),
                core.switch().active().as_deref(),
                Some(&page),
            );
            core.switch().manifest().unwrap().take_lsn()
        };
        assert_eq!(kept(7), 7);
        leave_out("lsn");
        assert_eq!(kept(9), 0);
        noticed("lsn", "1 write");
        leave_out("");
    }

    /// The order of the whole-file change and the page write is unknown.
    #[test]
    fn a_write_that_begins_while_the_whole_file_is_changed_is_not_offered() {
        let core = os_for_tests::core();
        let folder = tempfile::tempdir().unwrap();
        let active = os_for_tests::active_in(core.switch(), folder.path());
        core.switch().start_tracking(|| ());
        let (_file, known) = opened(core, folder.path());
        assert!(matches!(core.switch().publish(active), Ok(None)));
        let mut page = vec![1; PAGE];
        page[4..8].copy_from_slice(&1u32.to_be_bytes());

        let begin = || {
            core.begin_write(known, PAGE, PAGE as i64, End::Seen)
                .unwrap()
        };
        let is_cached_after = |write| {
            let guard = core.switch().active();
            let active = guard.as_deref().unwrap();
            core.finish_write(write, Some(active), Some(&page));
            let place = PageId {
                file: known.id(),
                page: 1,
            };
            active.extension.read(place, &mut vec![0; PAGE]) == ReadOutcome::Hit
        };
        assert!(is_cached_after(begin()));
        let write = core.change_file(Some(known), begin);
        assert!(
            !is_cached_after(write),
            "it began before the change had ended"
        );
        assert!(is_cached_after(begin()));

        // Nor a page that a read returns under an identity that its file has lost since.
        known.replace_contents();
        let offset = PAGE as i64;
        let mode = core.switch().mode();
        let target = core.target_of_read(mode, known, PAGE, offset).unwrap();
        let mut buffer = vec![0; PAGE];
        // SAFETY: the buffer is valid for its length.
        let read = unsafe {
            core.read(mode, target, buffer.as_mut_ptr(), PAGE, || {
                known.replace_contents();
                buffer.copy_from_slice(&page);
                PAGE as isize
            })
        };
        assert_eq!(read, PAGE as isize);
        let guard = core.switch().active();
        let extension = &guard.as_deref().unwrap().extension;
        assert_ne!(extension.read(target.page, &mut buffer), ReadOutcome::Hit);
        drop(core.switch().kill());
    }
}
