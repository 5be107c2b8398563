//! Pages that are compared before they are served.

use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use crate::compare::{Buffers, Compared, Cursor};
use crate::doubtful::{Doubtful, Doubts, Extent, Noted};
use crate::files::DataFile;
use crate::os::Os;
use crate::rules_tests::{Served, page};
use crate::target::End;

const PAGE: usize = 16384;

impl Served {
    /// All ten pages are cached, and then doubtful.
    fn doubtful() -> Served {
        let served = Served::new();
        // No page size is learned from the first page.
        (0..10)
            .rev()
            .for_each(|number| assert_eq!(served.read(number), (1, true)));
        served.doubt(true);
        served
    }

    fn doubt(&self, is_all: bool) {
        let stat = self.core.os().stat(self.file.as_raw_fd()).unwrap();
        let id = self.known.id();
        self.known.doubt(id, &stat, 10, is_all);
    }

    /// By somebody else.
    fn spoil(&self, number: u32, content: u8) {
        let offset = u64::from(number) * PAGE as u64;
        self.file
            .write_all_at(&page(number, content), offset)
            .unwrap();
    }

    fn write_page(&self, number: u32, content: u8) {
        let (page, offset) = (page(number, content), i64::from(number) * PAGE as i64);
        let mode = self.core.switch().mode();
        let real = || {
            self.file.write_all_at(&page, offset as u64).unwrap();
            PAGE as isize
        };
        // SAFETY: the buffer has the length.
        unsafe {
            self.core
                .write(mode, self.known, page.as_ptr(), PAGE, offset, real)
        };
    }

    /// Pages that are still to be compared, and those that were and are equal.
    fn figures(&self) -> (u64, u64) {
        let doubts = &self.core.switch().doubts;
        (self.known.doubtful().left(), doubts.verified())
    }
}

#[test]
fn a_doubtful_page_is_served_once_it_was_compared() {
    let served = Served::doubtful();
    served.spoil(4, 9);
    assert_eq!(served.read(3), (1, true));
    assert_eq!(served.figures(), (9, 1));
    assert_eq!(served.read(3), (1, false));
    // Not equal: what was read is cached instead.
    assert_eq!(served.read(4), (9, true));
    assert_eq!(served.read(4), (9, false));
    assert_eq!(served.figures(), (8, 1));
    // Each page once, in any order; then nothing is remembered of them.
    assert!(served.core.switch().doubts.memory_bytes() > 0);
    (0..10)
        .rev()
        .for_each(|number| assert_eq!(served.read(number).1, !matches!(number, 3 | 4)));
    (0..10).for_each(|number| assert!(!served.read(number).1));
    assert_eq!(served.figures(), (0, 9));
    assert_eq!(served.core.switch().doubts.memory_bytes(), 0);
    assert_eq!(served.active.extension.statistics().misses_not_believed, 10);
    drop(served.core.switch().kill());
}

#[test]
fn a_page_that_is_written_is_doubtful_no_more() {
    let served = Served::doubtful();
    served.spoil(2, 7);
    served.write_page(2, 8);
    assert_eq!(served.read(2), (8, false));
    // One that is written while it is compared.
    served.spoil(3, 7);
    let write = || served.write_page(3, 8);
    assert_eq!(served.read_while(3, write), (7, true));
    assert_eq!(served.read(3).0, 8);
    // Nobody sees the end of that one, nor is it offered.
    served.spoil(5, 7);
    let offset = 5 * PAGE as i64;
    let write = served
        .core
        .begin_write(served.known, PAGE, offset, End::Unseen);
    drop(write);
    assert_eq!(served.read(5), (7, true));
    drop(served.core.switch().kill());
}

#[test]
fn a_new_identity_is_not_doubtful() {
    let served = Served::doubtful();
    assert_eq!(served.read(9), (1, true));
    let before = served.known.id();
    served.core.change_file(Some(served.known), || ());
    assert!(!served.known.is_doubtful(served.known.id()));
    assert_eq!(served.core.switch().doubts.memory_bytes(), 0);
    // Whoever has found the file before still has the doubt.
    assert!(served.known.is_doubtful(before));
    assert_eq!(served.read(9), (1, true));
    assert_eq!(served.read(9), (1, false));
    drop(served.core.switch().kill());
}

/// The file was shorter for a while, or is. What was cached of its end is not what it has there now.
#[test]
fn pages_beyond_the_end_stay_doubtful() {
    let served = Served::new();
    (0..10).for_each(|number| assert_eq!(served.read(number), (1, true)));
    served.file.set_len(5 * PAGE as u64).unwrap();
    served.doubt(false);
    (0..5).for_each(|number| assert_eq!(served.read(number), (1, true)));
    (0..5).for_each(|number| assert_eq!(served.read(number), (1, false)));
    // Room is made at its end, which changes nothing that may be cached.
    let longer = || served.file.set_len(10 * PAGE as u64).unwrap();
    served.core.change_looks(Some(served.known), longer);
    (5..10).for_each(|number| assert_eq!(served.read(number), (0, true)));
    (5..10).for_each(|number| served.write_page(number, 3));
    (5..10).for_each(|number| assert_eq!(served.read(number), (3, false)));
    drop(served.core.switch().kill());
}

/// `bpe verify` is about what is served.
#[test]
fn a_doubtful_page_that_differs_is_no_fault() {
    let served = Served::doubtful();
    served.spoil(6, 5);
    let (mut equal, mut unproven) = (0, Vec::new());
    let from = Cursor {
        file: 0,
        page: 0,
        every: 1,
    };
    let tell = |_: &DataFile, number, compared| match compared {
        Compared::Equal => equal += 1,
        Compared::Unproven => unproven.push(number),
        _ => panic!("page {number}"),
    };
    let mut buffers = Buffers::new().unwrap();
    let next = served
        .core
        .compare_from(from, Duration::from_secs(60), &mut buffers, tell);
    assert_eq!((next, equal, unproven), (None, 9, vec![6]));
    // It may come just after files began to be followed, while a write is under way that nobody saw begin: so it believes nothing.
    (0..10).for_each(|number| assert!(served.read(number).1));
    (0..10).for_each(|number| assert!(!served.read(number).1));
    assert_eq!(served.figures(), (0, 9));
    drop(served.core.switch().kill());
}

/// Nobody asks for the pages. Those that are not cached cost nothing.
#[test]
fn a_scrub_compares_what_nobody_asks_for() {
    let served = Served::doubtful();
    served.spoil(6, 5);
    served.active.extension.invalidate(served.known.id(), 1, 4);
    let scrub = |from, most| served.core.scrub(from, most, Duration::from_secs(60));
    let owner = served.known.owner;
    assert_eq!(scrub((0, 0), 2), (owner, 6));
    assert_eq!(served.core.files.to_compare(), (1, 8));
    assert_eq!(scrub((owner, 6), 1), (owner, 7));
    assert_eq!(served.figures(), (7, 2));
    // What is written meanwhile waits for the next time.
    let write = served
        .core
        .begin_write(served.known, PAGE, 8 * PAGE as i64, End::Seen)
        .unwrap();
    assert_eq!(scrub((owner, 7), 10), (0, 0));
    served.core.finish_write(write, None, None);
    assert_eq!(served.core.files.to_compare(), (0, 0));
    for number in [0, 5, 7, 9] {
        assert_eq!(served.read(number), (1, false));
    }
    assert_eq!(served.read(6), (5, true));
    assert_eq!(scrub((0, 0), 10), (0, 0));
    drop(served.core.switch().kill());
}

fn extent(pages: u32) -> Extent {
    Extent {
        bytes: u64::from(pages) * PAGE as u64,
        pages,
        cached: 0,
        is_all: true,
    }
}

/// A bit for each page of 16 KiB is what there is room for.
#[test]
fn memory_is_bounded() {
    let doubts = Doubts::new();
    let (known, other) = (Doubtful::new(), Doubtful::new());
    let id = extension::FileId(7);
    // 3 TiB.
    known.begin(id, extent(3 << 26), &doubts);
    assert_eq!(doubts.memory_bytes(), 0);
    assert_eq!(known.settle(id, 100, 1, &doubts), Noted::Yes);
    assert_eq!(doubts.memory_bytes(), 24 << 20);
    // Of smaller pages there are more.
    let smaller = Extent {
        bytes: 1 << 40,
        ..extent(1 << 28)
    };
    other.begin(id, smaller, &doubts);
    assert_eq!(other.settle(id, 100, 1, &doubts), Noted::NoRoom);
    assert_eq!(doubts.memory_bytes(), 24 << 20);
    let page = |number| extension::PageId::new(id, number);
    assert!(other.has(page(100)) && known.has(page(99)) && !known.has(page(100)));
    assert_eq!(known.settle(id, 0, 3 << 26, &doubts), Noted::All);
    assert_eq!(doubts.memory_bytes(), 0);
}

#[test]
fn a_file_for_which_there_is_no_room_is_dropped() {
    let served = Served::doubtful();
    let doubts = &served.core.switch().doubts;
    // Somebody else needs it all.
    let (other, id) = (Doubtful::new(), extension::FileId(1 << 30));
    other.begin(id, extent(1 << 26), doubts);
    assert_eq!(other.settle(id, 1, 1, doubts), Noted::Yes);
    let more = Doubtful::new();
    more.begin(
        id,
        Extent {
            bytes: 0,
            ..extent(1 << 26)
        },
        doubts,
    );
    assert_eq!(more.settle(id, 1, 1, doubts), Noted::Yes);
    let before = served.known.id();
    assert_eq!(served.read(0), (1, true));
    assert_eq!(served.known.id(), before, "in order, no room is needed");
    assert_eq!(served.read(5), (1, true));
    assert_ne!(served.known.id(), before);
    assert_eq!(served.read(5), (1, true));
    assert_eq!(served.read(5), (1, false));
    drop(served.core.switch().kill());
}

/// Pages are settled in an order that chance gives, and are what they are.
#[test]
fn what_is_settled_is_known() {
    for seed in 0..200u64 {
        let mut state = seed;
        let mut random = |below: u32| {
            state = (state ^ 0x9e37_79b9).wrapping_mul(6_364_136_223_846_793_005) ^ state >> 29;
            (state >> 33) as u32 % below
        };
        let (doubts, doubtful) = (Doubts::new(), Doubtful::new());
        let id = extension::FileId(7);
        let pages = 1 + random(300);
        doubtful.begin(id, extent(pages), &doubts);
        let mut settled = vec![false; 400];
        let mut all = false;
        for _ in 0..1 + random(400) {
            let (first, many) = (random(350), 1 + random(19));
            let noted = doubtful.settle(id, first, many, &doubts);
            settled[first as usize..(first + many) as usize].fill(true);
            assert!(!all || noted != Noted::All, "seed {seed}: it is said twice");
            all |= noted == Noted::All;
            let is_all = settled[..pages as usize].iter().all(|is| *is);
            assert_eq!(all, is_all, "seed {seed}");
            for (page, is) in (0..).zip(&settled) {
                let known = !doubtful.has(extension::PageId::new(id, page));
                // Afterwards less may be known of what lies beyond the end.
                assert!(known == *is || *is && all, "seed {seed}: page {page}");
            }
            let next = settled[..pages as usize].iter().position(|is| !is);
            assert_eq!(
                doubtful.next(0),
                next.map(|page| page as u32),
                "seed {seed}"
            );
        }
    }
}
