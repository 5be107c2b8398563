//! Compression: which pages a writer compresses, and how much CPU time it may spend.
//!
//! A page is stored compressed only if it shrinks by at least an eighth. Pages of one file are alike, so a writer keeps
//! a moving average of the saved share for each file. Some files save next to nothing: their tables are
//! `ROW_FORMAT=COMPRESSED` or encrypted, or hold pictures. Of such a file the writer tries only one page in 64, which
//! detects a change. The averages are in a table of fixed size; of two files in the same slot, the later one counts.
//!
//! A writer may spend half of its time on compression, and an eighth while staging is more than half full. Beyond that
//! it stores pages uncompressed, because a full staging area would drop them. A writer that waits for its disk, or for
//! its capacity, has time to spare, and compresses everything that shrinks. A writer that is delayed by compression
//! itself has none. So a writer's CPU use is bounded, and compression costs at most an eighth of the admission rate.
//! Time is wall-clock time: a host without an idle core compresses less.

use std::time::{Duration, Instant};

use crate::common::page::FileId;
use crate::common::statistics::Counter;
use crate::device::segment::format::{self, PACKED_HEADER};
use crate::index::directory::Kind;

/// Slots for files. A power of two.
const FILES: usize = 2048;
/// Shares are counted in 65,535ths.
const WHOLE: u32 = 65535;
/// A file with a lower average is rarely tried.
const MIN_SAVED: u32 = WHOLE / 16;
/// Assumed share for an unknown file: enough for a dozen pages.
const EXPECTED: u32 = WHOLE / 4;
/// Weight of a new page in the average is 1 / WEIGHT.
const WEIGHT: u32 = 8;
/// Of a file that saves little, one page in `PAUSE` is tried.
const PAUSE: u8 = 64;
/// Maximum time credit.
const BURST: Duration = Duration::from_millis(20);
/// Part of a writer's time: one in `SHARE`, or in `SHARE_PRESSED` under pressure.
const SHARE: u32 = 2;
const SHARE_PRESSED: u32 = 8;

/// Counters of the writers.
#[derive(Default)]
pub(crate) struct Counts {
    /// Compression attempts, successful or not.
    pub attempts: Counter,
    /// Attempts whose result was stored.
    pub packed: Counter,
    pub nanos: Counter,
    /// Pages of files that do not shrink, stored without an attempt.
    pub left_alone: Counter,
    /// Pages stored uncompressed because the time was used up.
    pub no_time: Counter,
}

#[derive(Clone, Copy, Default)]
struct FileRecord {
    file: u32,
    /// Moving average of the share saved.
    saved: u16,
    /// Pages until the next attempt.
    pause: u8,
    known: bool,
}

/// A writer's statistics of files, and its time account.
pub(crate) struct Compressor {
    files: Box<[FileRecord]>,
    packed: Vec<u8>,
    nanos: i64,
    at: Option<Instant>,
}

impl Compressor {
    /// Memory of a compressor.
    pub const BYTES: u64 = (FILES * size_of::<FileRecord>()) as u64 + (80 << 10);

    pub fn new() -> Compressor {
        Compressor {
            files: vec![FileRecord::default(); FILES].into(),
            packed: vec![
                0;
                lz4_flex::block::get_maximum_output_size(crate::common::page::MAX_PAGE)
                    + 64
            ],
            nanos: BURST.as_nanos() as i64,
            at: None,
        }
    }

    /// Compresses a page if its file usually shrinks, there is time, and an eighth is saved. Returns kind and bytes to
    /// store. `pressed`: staging is filling up; `timed`: time counts.
    pub fn pack(
        &mut self,
        file: FileId,
        bytes: &[u8],
        timed: bool,
        pressed: bool,
        counts: &Counts,
    ) -> Option<(Kind, &[u8])> {
        if self.spares(file) {
            counts.left_alone.add(1);
            return None;
        }
        let began = Instant::now();
        if timed && !self.has_time(began, pressed) {
            counts.no_time.add(1);
            return None;
        }
        let packed = pack(bytes, &mut self.packed);
        let took = began.elapsed();
        self.nanos -= took.as_nanos() as i64;
        counts.attempts.add(1);
        counts.nanos.add(took.as_nanos() as u64);
        let stored = packed.map_or(bytes.len(), |(_, stored)| stored);
        self.note(file, bytes.len() - stored, bytes.len());
        let (kind, stored) = packed?;
        debug_assert_eq!(kind.stored(bytes.len()), Some(stored));
        counts.packed.add(1);
        Some((kind, &self.packed[..stored]))
    }

    fn record(&mut self, file: FileId) -> &mut FileRecord {
        let at = crate::common::page::mix64(u64::from(file.0)) as usize % FILES;
        let record = &mut self.files[at];
        if !record.known || record.file != file.0 {
            *record = FileRecord {
                file: file.0,
                saved: EXPECTED as u16,
                pause: PAUSE,
                known: true,
            };
        }
        record
    }

    /// Whether a page of the file is stored without an attempt.
    fn spares(&mut self, file: FileId) -> bool {
        let record = self.record(file);
        if u32::from(record.saved) >= MIN_SAVED {
            return false;
        }
        record.pause -= 1;
        if record.pause == 0 {
            record.pause = PAUSE;
            return false;
        }
        true
    }

    fn note(&mut self, file: FileId, saved: usize, of: usize) {
        let share = (saved as u64 * u64::from(WHOLE) / of as u64) as u32;
        let record = self.record(file);
        record.saved = ((u32::from(record.saved) * (WEIGHT - 1) + share) / WEIGHT) as u16;
    }

    fn has_time(&mut self, now: Instant, pressed: bool) -> bool {
        let passed = self
            .at
            .map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        self.at = Some(now);
        let share = if pressed { SHARE_PRESSED } else { SHARE };
        let gained = (passed / share).min(BURST).as_nanos() as i64;
        self.nanos = (self.nanos + gained).min(BURST.as_nanos() as i64);
        self.nanos > 0
    }
}

/// Compresses a page into `packed`, if that saves an eighth. Returns kind and number of bytes to store.
fn pack(bytes: &[u8], packed: &mut [u8]) -> Option<(Kind, usize)> {
    let unit = Kind::packed_unit(bytes.len());
    let most = (bytes.len() / 8 * 7).min(Kind::MAX_PACKED * unit);
    let most = most / unit * unit;
    if most == 0 {
        return None;
    }
    // The destination may exceed `most`, because LZ4 needs room for the worst case.
    let length = lz4_flex::block::compress_into(bytes, &mut packed[PACKED_HEADER..]).ok()?;
    let stored = (PACKED_HEADER + length).next_multiple_of(unit);
    if stored > most {
        return None;
    }
    format::encode_packed_header(length, bytes.len(), packed);
    packed[PACKED_HEADER + length..stored].fill(0);
    Some((Kind::packed(stored / unit), stored))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common::page::mix64;

    fn noise(n: u64) -> Vec<u8> {
        (0..2048)
            .flat_map(|i| mix64(n << 32 | i).to_le_bytes())
            .collect()
    }

    fn text(n: u64) -> Vec<u8> {
        let mut bytes = noise(n);
        bytes[4096..].fill(b' ');
        bytes
    }

    fn attempts(
        compressor: &mut Compressor,
        file: u32,
        pages: impl Iterator<Item = Vec<u8>>,
    ) -> u64 {
        let counts = Counts::default();
        for page in pages {
            compressor.pack(FileId(file), &page, false, false, &counts);
        }
        counts.attempts.get()
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of pages")]
    fn files_that_do_not_shrink_are_left_alone_until_they_do() {
        let mut c = Compressor::new();
        let tried = attempts(&mut c, 1, (0..6400).map(noise));
        assert!((100..130).contains(&tried), "{tried}");
        assert_eq!(attempts(&mut c, 2, (0..100).map(text)), 100, "another file");
        // The first attempt shrinks, so the writer tries the other pages, too.
        let tried = attempts(&mut c, 1, (0..1000).map(text));
        assert!(tried > 1000 - 3 * u64::from(PAUSE), "{tried}");
        let tried = attempts(&mut c, 1, (0..6400).map(noise));
        assert!(tried < 140, "{tried}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "thousands of pages")]
    fn mixed_files_are_compressed() {
        let mut c = Compressor::new();
        let pages = (0..1000).map(|n| if n % 3 == 0 { text(n) } else { noise(n) });
        assert_eq!(attempts(&mut c, 1, pages), 1000);
    }

    #[test]
    fn time_is_bounded() {
        const PAGES: u32 = if cfg!(miri) { 1000 } else { 100_000 };
        let begin = Instant::now();
        for (pressed, share) in [(false, SHARE), (true, SHARE_PRESSED)] {
            let (mut now, mut spent) = (begin, Duration::ZERO);
            let mut c = Compressor::new();
            let page = Duration::from_micros(20);
            for _ in 0..PAGES {
                // Storing a page takes 2 us, compressing it 20 us.
                if c.has_time(now, pressed) {
                    c.nanos -= page.as_nanos() as i64;
                    spent += page;
                    now += page;
                }
                now += Duration::from_micros(2);
            }
            let most = (now - begin) / share + BURST + page;
            assert!(spent <= most && spent > most / 2, "{spent:?} of {most:?}");
        }
        // A writer that waits for its disk always has time.
        let mut now = begin;
        let mut c = Compressor::new();
        for _ in 0..PAGES / 10 {
            assert!(c.has_time(now, true));
            c.nanos -= 20_000;
            now += Duration::from_micros(200);
        }
    }

    #[test]
    fn packed_pages_come_back() {
        let mut c = Compressor::new();
        let (page, counts) = (text(1), Counts::default());
        let (kind, stored) = c.pack(FileId(1), &page, true, false, &counts).unwrap();
        assert_eq!(kind.stored(page.len()), Some(stored.len()));
        let mut out = vec![0; page.len()];
        assert!(format::unpack(stored, &mut out) && out == page);
        // A new one: on a slow host the first has used up its time.
        let mut c = Compressor::new();
        assert!(c.pack(FileId(1), &noise(1), true, false, &counts).is_none());
        assert_eq!((counts.attempts.get(), counts.packed.get()), (2, 1));
    }
}
