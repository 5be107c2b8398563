//! Records page reads and writes in the hooks, for a recording.

pub mod ring;

use std::sync::Arc;

use cache::{MAX_PAGE, MIN_PAGE};

use crate::files::DataFile;
use crate::page::header::header_page;
use crate::platform::sync::ArcSwapOption;
use ring::{Event, Ring};

/// Maximum number of pages recorded for one write; the servers write at most 128.
const MAX_WRITE_PAGES: u32 = 1024;

/// The ring of the active recording, if any.
pub struct Trace {
    ring: ArcSwapOption<Ring>,
}

impl Trace {
    /// State without a recording.
    pub(crate) const fn new() -> Trace {
        Trace {
            ring: ArcSwapOption::const_empty(),
        }
    }

    /// Sets the ring into which hooks record; `None` ends recording.
    pub fn record_into(&self, ring: Option<Arc<Ring>>) {
        self.ring.store(ring);
    }

    /// Records a read of one page. Call in mode `RECORD`.
    pub fn record_read(&self, file: &DataFile, page: u32) {
        self.note(file, page, false, file.page_size());
    }

    /// Records the pages of a write that is about to be submitted. Call in mode `RECORD`.
    ///
    /// `bytes` is the content, if it is contiguous. Two kinds of pages are not recorded:
    /// - The header's number differs from the page's position: MariaDB's doublewrite area in the system tablespace.
    /// - All-zero pages, which extend files.
    pub fn record_write(&self, file: &DataFile, bytes: Option<&[u8]>, length: usize, offset: i64) {
        let Ok(offset) = u64::try_from(offset) else {
            return;
        };
        let page_size = match file.page_size() {
            // Page size not known yet: the header of the first page determines it.
            0 => match bytes.and_then(|bytes| page_size_by_header(bytes, offset)) {
                Some(page_size) => page_size,
                None => return,
            },
            page_size => page_size,
        };
        let size = u64::from(page_size);
        if offset % size != 0 {
            return; // the second part of a partly written page
        }
        let Ok(first) = u32::try_from(offset / size) else {
            return;
        };
        let pages = (length as u64)
            .div_ceil(size)
            .min(u64::from(MAX_WRITE_PAGES)) as u32;
        for number in 0..pages {
            let page = first.wrapping_add(number);
            let its_own = match bytes {
                Some(bytes) => bytes
                    .get(number as usize * page_size as usize..)
                    .and_then(header_page)
                    .is_some_and(|header| file.header_may_be(page, header)),
                None => true,
            };
            if its_own {
                self.note(file, page, true, page_size);
            }
        }
    }

    fn note(&self, file: &DataFile, page: u32, write: bool, page_size: u32) {
        if let Some(ring) = &*self.ring.load() {
            let file = file.id().0;
            ring.push(Event { file, page, write }, page_size);
        }
    }
}

/// Page size for which the number in the page header equals the page's position in the file. A write of several pages is
/// rejected: it may be MariaDB's doublewrite batch, whose pages belong elsewhere.
fn page_size_by_header(bytes: &[u8], offset: u64) -> Option<u32> {
    let header = u64::from(header_page(bytes)?);
    if header == 0 || offset % header != 0 {
        return None;
    }
    let size = offset / header;
    let least = (bytes.len() as u64).max(MIN_PAGE as u64);
    (size.is_power_of_two() && (least..=MAX_PAGE as u64).contains(&size)).then_some(size as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_size_shows_in_a_header() {
        let mut page = vec![0u8; 16384];
        assert_eq!(page_size_by_header(&page, 16384), None, "zeros");
        page[0] = 1;
        page[4..8].copy_from_slice(&5u32.to_be_bytes());
        assert_eq!(page_size_by_header(&page, 5 * 16384), Some(16384));
        assert_eq!(page_size_by_header(&page, 5 * 1024), None, "too long");
        assert_eq!(page_size_by_header(&page[..1024], 5 * 1024), Some(1024));
        assert_eq!(
            page_size_by_header(&page[..4096], 5 * 16384),
            Some(16384),
            "compressed"
        );
        assert_eq!(page_size_by_header(&page, 5 * 3000), None);
        assert_eq!(page_size_by_header(&page, 7 * 16384), None);
        assert_eq!(page_size_by_header(&page[..20], 5 * 16384), None);
    }
}
