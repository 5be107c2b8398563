//! Warming: reads pages of the server's own data files that another server has cached, and offers them for admission.
//!
//! Nothing is read while a write may be in flight whose start was not, or whose end will not be, observed
//! ([`is_settled`](crate::files::Files::is_settled)). Otherwise the rules of any read miss apply. Each page gets a ticket before
//! the read and is offered under that ticket. So a page that is written during the read is rejected. Reads go through the
//! server's own descriptor, as in [`compare`](crate::control::compare).

use std::alloc::{Layout, alloc_zeroed};

use cache::{CopyOutcome, InsertOutcome, PageId, ReadTicket, Source};

use crate::core::Core;
use crate::core::page_request::PageRequest;
use crate::files::DataFile;
use crate::files::file_rule::FileRule;
use crate::page::fingerprint::{LeafFingerprint, Secret};
use crate::page::header::header_page;
use crate::platform::os::Os;
use crate::switch::Active;

/// Maximum bytes of one read: the size that cloud volumes count as one operation.
pub const RUN_BYTES: usize = 256 << 10;
/// Bytes of page 0 to read.
const HEAD: usize = 4096;

/// A page that another server has cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hot {
    /// Page number in its file.
    pub page: u32,
    /// Its recent access frequency on that server: [`cache::Extension::heat`].
    pub count: u8,
}

/// Outcomes of a run's pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Warmed {
    /// Offered and admitted.
    pub admitted: u64,
    /// Already cached.
    pub cached: u64,
    /// Colder than the pages they would replace.
    pub rejected: u64,
    /// Written during the read, or not the page of this position.
    pub skipped: u64,
    /// Staging was full, or the daily write limit is reached: retry later.
    pub postponed: u64,
    /// The daily write limit is reached.
    pub is_limited: bool,
    /// The data file was read.
    pub was_read: bool,
}

impl Warmed {
    /// Adds the outcomes of another run.
    pub fn add(&mut self, other: Warmed) {
        self.admitted += other.admitted;
        self.cached += other.cached;
        self.rejected += other.rejected;
        self.skipped += other.skipped;
        self.postponed += other.postponed;
        self.is_limited |= other.is_limited;
        self.was_read |= other.was_read;
    }

    fn count(&mut self, outcome: Option<InsertOutcome>) {
        match outcome {
            Some(InsertOutcome::Admitted) => self.admitted += 1,
            Some(InsertOutcome::AlreadyCached) => self.cached += 1,
            Some(InsertOutcome::Rejected) => self.rejected += 1,
            Some(InsertOutcome::StagingFull) => self.postponed += 1,
            Some(InsertOutcome::WriteLimit) => {
                self.postponed += 1;
                self.is_limited = true;
            }
            Some(InsertOutcome::Stale | InsertOutcome::Unsuitable) | None => self.skipped += 1,
        }
    }
}

/// Page-aligned memory for direct reads.
#[repr(C, align(4096))]
struct Aligned([u8; RUN_BYTES]);

/// Memory for a run, allocated without passing over the stack.
pub struct RunBuffer(Box<Aligned>);

impl RunBuffer {
    /// Returns `None` if the host is out of memory.
    pub fn new() -> Option<RunBuffer> {
        let layout = Layout::new::<Aligned>();
        // SAFETY: the layout has a nonzero size; zeroed memory is a valid value of it; the box frees it.
        unsafe {
            let memory = alloc_zeroed(layout).cast::<Aligned>();
            (!memory.is_null()).then(|| RunBuffer(Box::from_raw(memory)))
        }
    }
}

/// Header fields of a tablespace's page 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tablespace {
    /// Space number on this server.
    pub space: u32,
    /// `FSP_SPACE_FLAGS`.
    pub flags: u32,
}

/// Physical page size from the flags of a tablespace, bytes; `None` for flags that no server writes. MariaDB marks its
/// full_crc32 format with a bit that is 0 in every other format.
pub fn page_size_of(flags: u32) -> Option<u32> {
    const FULL_CRC32: u32 = 1 << 4;
    let size = |base: u32, shift: u32| base << shift;
    let (of_compressed, of_others) = (flags >> 1 & 15, flags >> 6 & 15);
    let bytes = if flags & FULL_CRC32 != 0 {
        size(512, flags & 15)
    } else if of_compressed != 0 {
        size(512, of_compressed)
    } else if of_others != 0 {
        size(512, of_others)
    } else {
        16384
    };
    cache::is_page_length(bytes as usize).then_some(bytes)
}

impl<O: Os> Core<O> {
    /// Reads the header fields from page 0 of an open file; `None` if it cannot be read, or is no page 0.
    pub fn tablespace(
        &'static self,
        file: &'static DataFile,
        buffer: &mut RunBuffer,
    ) -> Option<Tablespace> {
        let lease = self.files.lease(file)?;
        let head = &mut buffer.0.0[..HEAD];
        // SAFETY: a read into our own buffer. If the descriptor now belongs to another file, `is_valid` detects it below.
        let read = unsafe { self.os().read(lease.fd, head.as_mut_ptr(), HEAD, 0) };
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let is_head = read == Ok(HEAD) && header_page(head) == Some(0);
        (is_head && self.files.is_valid(file, &lease)).then(|| Tablespace {
            space: word(34),
            flags: word(54),
        })
    }

    /// The fingerprint of a page, from the cached copy or else from the data file. `None` if the page has no fingerprint.
    pub fn print(
        &'static self,
        file: &'static DataFile,
        page: u32,
        secret: &Secret,
        buffer: &mut RunBuffer,
    ) -> Option<LeafFingerprint> {
        let guard = self.switch().active();
        let active = guard.as_ref()?;
        let bytes = buffer.0.0.get_mut(..file.page_size() as usize)?;
        let id = file.usable_id()?;
        let (fd, pages) = self.open_pages(file)?;
        if page >= pages {
            return None;
        }
        let copied = active.extension.copy(PageId::new(id, page), bytes);
        if copied != CopyOutcome::Copied {
            let offset = u64::from(page) * bytes.len() as u64;
            // SAFETY: a read into our own buffer. Its bytes are only fingerprinted, so it matters little if the descriptor now
            // belongs to another file.
            let read = unsafe {
                self.os()
                    .read(fd, bytes.as_mut_ptr(), bytes.len(), offset as i64)
            };
            if read != Ok(bytes.len()) {
                return None;
            }
        }
        LeafFingerprint::of(bytes, secret)
    }

    /// Reads pages of a file in one read and offers them. `hot` is in ascending order and within [`RUN_BYTES`]. Returns `None` if
    /// no page of the file can be cached now: the extension is off or bypassed, or the server does not have the file open.
    pub fn warm(
        &'static self,
        file: &'static DataFile,
        hot: &[Hot],
        buffer: &mut RunBuffer,
    ) -> Option<Warmed> {
        let guard = self.switch().active();
        let active = guard.as_ref()?;
        let size = file.page_size() as usize;
        let (first, last) = (hot.first()?.page, hot.last()?.page);
        let length = (last.checked_sub(first)? as usize + 1).checked_mul(size)?;
        if !self.switch().mode().fills() || size == 0 || length > RUN_BYTES {
            return None;
        }
        if file.rule() == FileRule::Excluded || !self.may_load() {
            return None;
        }
        let id = file.usable_id()?;
        let lease = self.files.lease(file)?;
        let mut warmed = Warmed::default();
        if active.extension.warm_room() < length as u64 {
            warmed.postponed = hot.len() as u64;
            return Some(warmed);
        }
        let mut tickets = [const { None }; RUN_BYTES / cache::MIN_PAGE];
        self.take_tickets(file, hot, &mut tickets);
        let offset = u64::from(first) * size as u64;
        let bytes = &mut buffer.0.0[..length];
        // SAFETY: a read into our own buffer. If the descriptor now belongs to another file, `is_valid` detects it below.
        let read = unsafe {
            self.os()
                .read(lease.fd, bytes.as_mut_ptr(), length, offset as i64)
        };
        warmed.was_read = true;
        sync_point!("loaded");
        if canary!("warm-ticket-after-read") {
            self.take_tickets(file, hot, &mut tickets);
        }
        let read = read.unwrap_or(0).min(length);
        // A change of the whole file assigns another identity before it is submitted.
        let unchanged = file.id() == id && self.may_load() && self.files.is_valid(file, &lease);
        for (hot, ticket) in hot.iter().zip(tickets) {
            let from = (hot.page - first) as usize * size;
            let whole = unchanged && from + size <= read;
            let page = PageId::new(id, hot.page);
            let outcome = ticket.filter(|_| whole).and_then(|ticket| {
                let bytes = &buffer.0.0[from..from + size];
                self.offer_warm(active, PageRequest { file, page }, bytes, ticket, hot.count)
            });
            warmed.count(outcome);
        }
        Some(warmed)
    }

    /// Whether pages may be read that the server did not request. The server never reads a page while it writes it, so a ticket is
    /// enough for the server's reads. A read of ours may overlap an untracked write.
    fn may_load(&self) -> bool {
        self.files.is_settled() || canary!("warm-unsettled")
    }

    fn take_tickets(&self, file: &DataFile, hot: &[Hot], tickets: &mut [Option<ReadTicket>]) {
        let generations = self.switch().generations();
        for (hot_page, ticket) in hot.iter().zip(&mut *tickets) {
            *ticket = generations.begin_read(file.owner, hot_page.page);
        }
        if canary!("warm-one-ticket") {
            if let Some(Some(first)) = tickets.first().copied() {
                tickets[..hot.len()].fill(Some(first));
            }
        }
    }

    fn offer_warm(
        &self,
        active: &Active,
        target: PageRequest,
        bytes: &[u8],
        ticket: ReadTicket,
        count: u8,
    ) -> Option<InsertOutcome> {
        self.offer(active, target, bytes, ticket, Source::Warm { count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_by_flags_of_both_servers() {
        for (flags, size) in [
            (0, Some(16384)),      // MySQL and MariaDB, old: redundant or compact
            (0x21, Some(16384)),   // dynamic
            (0x4021, Some(16384)), // MySQL 8.0 and later: with dictionary information
            (0x15, Some(16384)),   // MariaDB full_crc32
            (0x13, Some(4096)),
            (0x17, Some(65536)),
            (0x29, Some(8192)), // ROW_FORMAT=COMPRESSED KEY_BLOCK_SIZE=8
            (0x23, Some(1024)),
            (0x21 | 3 << 6, Some(4096)),
            (0x21 | 7 << 6, Some(65536)),
            (0x1f, None),
            (15 << 6, None),
        ] {
            assert_eq!(page_size_of(flags), size, "{flags:#x}");
        }
    }

    #[test]
    fn each_outcome_has_one_count() {
        use InsertOutcome::*;
        let all = [
            Some(Admitted),
            Some(AlreadyCached),
            Some(Rejected),
            Some(StagingFull),
            Some(Stale),
            Some(Unsuitable),
            None,
        ];
        let mut warmed = Warmed::default();
        all.into_iter().for_each(|outcome| warmed.count(outcome));
        let counts = |warmed: &Warmed| {
            let Warmed {
                admitted,
                cached,
                rejected,
                postponed,
                skipped,
                ..
            } = *warmed;
            (admitted, cached, rejected, postponed, skipped)
        };
        assert_eq!(counts(&warmed), (1, 1, 1, 1, 3));
        assert!(!warmed.is_limited);
        warmed.count(Some(WriteLimit));
        assert_eq!(counts(&warmed), (1, 1, 1, 2, 3));
        assert!(warmed.is_limited);
    }
}
