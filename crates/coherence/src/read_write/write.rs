//! A write: from the increment of the generations to the admission of the written page.

use cache::{PageId, Source};

use super::steps;
use crate::core::Core;
use crate::core::page_request::{Completion, PageRequest, Write};
use crate::files::DataFile;
use crate::page::header::{header_lsn, header_page};
use crate::platform::os::Os;
use crate::switch::{Active, Mode};

/// A write of more pages than this makes the whole file's entries unreachable instead of dropping each page.
const MAX_TRACKED_PAGES: u32 = 4096;

impl<O: Os> Core<O> {
    /// Prepares a write: increments generations and drops entries. Call before submitting it.
    ///
    /// Returns the handle for [`finish_write`](Self::finish_write), which is called after the write has completed.
    /// - `Completion::Observed`: `finish_write` may admit the page.
    /// - `Completion::MaybeObserved`: blocks the admission of reads of its pages until `finish_write`, or until the server reuses
    ///   the request. A read that is submitted after such a write may complete before it.
    /// - `Completion::Unobserved`: the end of the write is never observed, and the preparation is all that happens.
    pub fn begin_write(
        &self,
        file: &'static DataFile,
        length: usize,
        offset: i64,
        completion: Completion,
    ) -> Option<Write> {
        if completion == Completion::Unobserved {
            // Before the increment: a thread that takes a ticket afterwards must see this.
            self.files.note_unobserved_write();
        }
        if length == 0 || steps::skips_write(self.switch(), file, offset) {
            return None;
        }
        if offset < 0 {
            return Some(whole_file(file, completion));
        }
        let mut page_size = file.page_size();
        if page_size == 0 {
            // No page of the file is cached. A read that overlaps this write may learn the page size.
            if completion == Completion::Unobserved {
                file.void_stamp();
            }
            let blocked = file.block();
            page_size = file.page_size();
            if page_size == 0 {
                return Some(match completion {
                    Completion::MaybeObserved => self.one_page(file, length, offset),
                    _ => Write::File(blocked),
                });
            }
        }
        let size = u64::from(page_size);
        let begin = offset as u64 / size;
        let until = (offset as u64 + length as u64 - 1) / size;
        let (Ok(first), Ok(last)) = (u32::try_from(begin), u32::try_from(until)) else {
            return Some(whole_file(file, completion));
        };
        let pages = last - first + 1;
        if pages > MAX_TRACKED_PAGES {
            return Some(whole_file(file, completion));
        }
        self.damage.forget(file.owner, first, pages);
        let generations = self.switch().generations();
        let id = steps::id_after(file, || match completion {
            Completion::Observed | Completion::MaybeObserved => {
                file.begin_change();
                generations.begin_write(file.owner, first, pages);
            }
            Completion::Unobserved => {
                file.note_change();
                generations.bump(file.owner, first, pages);
            }
        });
        let was_cached = match &*self.switch().active() {
            Some(active) => active.extension.invalidate(id, first, pages),
            None => {
                file.write_while_off();
                false
            }
        };
        if file.page_size() != page_size {
            file.assign_new_id(); // relearned since: the pages dropped above were the wrong ones
        }
        // A page written while the whole file changes may be outdated before its admission. Checked after the identity: see
        // `usable_id`.
        let one = length as u64 == size && offset as u64 % size == 0;
        let whole = one && completion == Completion::Observed && !file.is_blocked();
        Some(Write::Pages {
            file,
            first: PageId {
                file: id,
                page: first,
            },
            pages,
            whole,
            was_cached,
            completion,
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
            completion,
        } = write
        else {
            return;
        };
        debug_assert_ne!(completion, Completion::Unobserved);
        debug_assert!(!whole || pages == 1 && completion == Completion::Observed);
        file.end_change();
        let ticket = self
            .switch()
            .generations()
            .end_write(file.owner, first.page, pages);
        let (Some(ticket), Some(bytes), Some(active), true) = (ticket, written, active, whole)
        else {
            return;
        };
        if steps::is_excluded(file) {
            return self.count_excluded(file, bytes.len());
        }
        if steps::keeps_lsn()
            && let Some(manifest) = self.switch().manifest()
            && header_page(bytes).is_some_and(|header| file.header_may_be(first.page, header))
        {
            manifest.note_lsn(header_lsn(bytes));
        }
        // The identity must not have changed since the write began.
        if file.usable_id() == Some(first.file) && bytes.len() == file.page_size() as usize {
            self.offer(
                active,
                PageRequest { file, page: first },
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
            self.trace.record_write(file, Some(bytes), length, offset);
        }
        let Some(write) = self.begin_write(file, length, offset, Completion::Observed) else {
            return real();
        };
        let result = steps::call_then_stamp(real, || self.files.stamp(file, fd));
        // SAFETY: the caller's promise; the server keeps the buffer unchanged during its own call.
        let written = steps::is_complete(result, length)
            .then(|| unsafe { std::slice::from_raw_parts(buffer, length) });
        self.finish_write(write, self.switch().active().as_deref(), written);
        result
    }

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
            completion: Completion::MaybeObserved,
        }
    }
}

/// Tracks a write as a change of the whole file.
#[cold]
fn whole_file(file: &'static DataFile, completion: Completion) -> Write {
    if completion == Completion::Unobserved {
        file.void_stamp();
    }
    Write::File(file.begin_file_change())
}
