//! A read: from the cache, or from the data file with the admission of its page.

use cache::{InsertOutcome, PageId, ReadOutcome, ReadTicket, Source};

use super::steps;
use crate::core::Core;
use crate::core::page_request::PageRequest;
use crate::files::DataFile;
use crate::page::header::{header_lsn, header_page};
use crate::platform::os::Os;
use crate::platform::sync::{Instant, Ordering};
use crate::switch::control_group::Timed;
use crate::switch::{Active, Mode};

impl<O: Os> Core<O> {
    /// The page that a read requests, if it requests exactly one page that may be cached. Call once for each of the server's
    /// reads, before submitting it.
    #[inline]
    pub fn page_of_request(
        &self,
        mode: Mode,
        file: &'static DataFile,
        length: usize,
        offset: i64,
    ) -> Option<PageRequest> {
        let page = file.page_of_read(length, offset)?;
        if mode.records() {
            self.trace.record_read(file, page);
        }
        if steps::is_excluded(file) {
            if mode.serves() {
                self.count_excluded(file, length);
            }
            return None;
        }
        let id = file.usable_id()?;
        Some(PageRequest {
            file,
            page: PageId { file: id, page },
        })
    }

    /// Counts a page read or write of an excluded file.
    #[cold]
    pub(super) fn count_excluded(&self, file: &DataFile, length: usize) {
        let rules = &self.files.rules;
        file.excluded_accesses.fetch_add(1, Ordering::Relaxed);
        rules.pages.fetch_add(1, Ordering::Relaxed);
        rules.bytes.fetch_add(length as u64, Ordering::Relaxed);
    }

    /// Serves a synchronous read from the cache, or calls `real` and offers its page for admission. In bypass it only calls `real`.
    ///
    /// # Safety
    /// `buffer` must be valid for writes of `length` bytes, as the server's own call requires.
    #[inline]
    pub unsafe fn read(
        &self,
        mode: Mode,
        request: PageRequest,
        buffer: *mut u8,
        length: usize,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let guard = self.switch().active();
        let Some(active) = &*guard else { return real() };
        let timed = request.timed(mode);
        let result = match timed {
            _ if !mode.serves() => {
                let result = real();
                if let Some(timed) = timed {
                    self.count_data_read(active, request.file, timed.began);
                }
                result
            }
            Some(Timed { control: true, .. }) => {
                active.extension.count_access(request.page);
                // SAFETY: the caller's promise.
                unsafe { self.read_data_file(active, request, buffer, length, real) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { self.serve(active, request, buffer, length, real) },
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
        request: PageRequest,
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
                    .read(request.page, request.file.group(), bytes),
                ReadOutcome::Hit
            ) && self.confirm_page(active, request, bytes)
            {
                request.file.hits.fetch_add(1, Ordering::Relaxed);
                return length as isize;
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.read_data_file(active, request, buffer, length, real) }
    }

    /// Calls `real` and offers the page for admission.
    ///
    /// # Safety
    /// As for [`read`](Self::read).
    #[inline]
    unsafe fn read_data_file(
        &self,
        active: &Active,
        request: PageRequest,
        buffer: *mut u8,
        length: usize,
        real: impl FnOnce() -> isize,
    ) -> isize {
        let begin_read = || {
            let generations = self.switch().generations();
            generations.begin_read(request.file.owner, request.page.page)
        };
        let (ticket, result) = steps::ticket_then_read(begin_read, || {
            let started = Instant::now();
            let result = real();
            self.count_data_read(active, request.file, started);
            result
        });
        if let (true, Some(ticket)) = (result == length as isize, ticket) {
            // SAFETY: the read filled the buffer.
            let bytes = unsafe { std::slice::from_raw_parts(buffer, length) };
            self.offer(active, request, bytes, ticket, Source::Read);
        }
        result
    }

    /// Last check of a hit: the page number in the header. Drops a page that fails it.
    pub fn confirm_page(&self, active: &Active, request: PageRequest, bytes: &[u8]) -> bool {
        if !steps::checks_header() {
            return true;
        }
        let fits = header_page(bytes)
            .is_some_and(|header| request.file.header_is(request.page.page, header));
        if !fits {
            active
                .extension
                .invalidate(request.page.file, request.page.page, 1);
        } else if request.file.is_inherited() {
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
        request: PageRequest,
        bytes: &[u8],
        ticket: ReadTicket,
        source: Source,
    ) -> Option<InsertOutcome> {
        debug_assert!(bytes.len().is_power_of_two() && bytes.len() <= cache::MAX_PAGE);
        // Under an outdated identity the page would take space that no read can use.
        let is_it = self.switch().mode().fills()
            && request.file.id() == request.page.file
            && header_page(bytes)
                .is_some_and(|header| request.file.header_fits(request.page.page, header));
        is_it.then(|| {
            let group = request.file.group();
            active
                .extension
                .insert(request.page, group, bytes, ticket, source)
        })
    }
}
