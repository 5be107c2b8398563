//! Reads and writes of one file against a cache: which pages are served and admitted, and which must not be.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cache::{CopyOutcome, PageId};

use crate::core::Core;
use crate::core::page_request::Completion;
use crate::files::{Attach, DataFile};
use crate::platform::os::Os;
use crate::switch::control_group;
use crate::switch::{Active, Bypass};
use crate::testing::os_for_tests::{self, TestOs};

const PAGE: usize = 16384;

pub(crate) fn page(number: u32, content: u8) -> Vec<u8> {
    let mut page = vec![content; PAGE];
    page[4..8].copy_from_slice(&number.to_be_bytes());
    page
}

/// A data file of ten pages, none of them cached.
pub(crate) struct Served {
    pub core: &'static Core<TestOs>,
    pub active: Arc<Active>,
    pub file: File,
    pub known: &'static DataFile,
    _folder: tempfile::TempDir,
}

impl Served {
    pub fn new() -> Served {
        let core = os_for_tests::core();
        let folder = tempfile::tempdir().unwrap();
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(folder.path().join("t.ibd")).unwrap();
        for number in 0..10 {
            file.write_all_at(&page(number, 1), u64::from(number) * PAGE as u64)
                .unwrap();
        }
        core.switch().start_tracking(|| core.files.forget_all());
        let fd = file.as_raw_fd();
        let stat = core.os().stat(fd).unwrap();
        let attach = Attach::Opened { anew: false };
        core.files.attach(fd, &stat, b"./t/t.ibd", attach);
        let active = os_for_tests::active_in(core.switch(), folder.path());
        assert!(core.switch().publish(Arc::clone(&active)).is_ok());
        let known = core.files.of_descriptor(fd).unwrap();
        Served {
            core,
            active,
            file,
            known,
            _folder: folder,
        }
    }

    /// The content that a read of a page returns, and whether it used the data file. The closure runs during that read.
    pub fn read_while(&self, number: u32, meanwhile: impl FnOnce()) -> (u8, bool) {
        let offset = i64::from(number) * PAGE as i64;
        let mode = self.core.switch().mode();
        let mut buffer = vec![0; PAGE];
        let address = buffer.as_mut_ptr();
        let mut asked = false;
        let real = || {
            asked = true;
            // SAFETY: a slice of the buffer, which lives longer.
            let buffer = unsafe { std::slice::from_raw_parts_mut(address, PAGE) };
            self.file.read_exact_at(buffer, offset as u64).unwrap();
            meanwhile();
            PAGE as isize
        };
        let target = self.core.page_of_request(mode, self.known, PAGE, offset);
        let read = match target {
            // SAFETY: the buffer has this length.
            Some(target) => unsafe { self.core.read(mode, target, address, PAGE, real) },
            None => real(),
        };
        assert_eq!(read, PAGE as isize);
        (buffer[PAGE - 1], asked)
    }

    pub fn read(&self, number: u32) -> (u8, bool) {
        self.read_while(number, || ())
    }

    /// Whether the page is cached.
    pub fn has(&self, number: u32) -> bool {
        let (page, mut copy) = (PageId::new(self.known.id(), number), vec![0; PAGE]);
        let found = self.active.extension.copy(page, &mut copy);
        matches!(found, CopyOutcome::Copied)
    }

    /// Caches a page with content 1.
    pub fn cached(&self, number: u32) {
        self.read(number);
        assert_eq!(self.read(number), (1, false), "page {number}");
    }

    /// Writes bytes like the server; `result` is the kernel's return value.
    pub fn write(&self, bytes: &[u8], offset: i64, result: isize) {
        let mode = self.core.switch().mode();
        let real = || {
            let written = result.max(0) as usize;
            self.file
                .write_all_at(&bytes[..written], offset as u64)
                .unwrap();
            result
        };
        // SAFETY: the slice has this length.
        let returned = unsafe {
            self.core.write(
                mode,
                self.target(),
                bytes.as_ptr(),
                bytes.len(),
                offset,
                real,
            )
        };
        assert_eq!(returned, result);
    }
}

impl Served {
    /// The file and its descriptor.
    pub fn target(&self) -> (i32, &'static DataFile) {
        (self.file.as_raw_fd(), self.known)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.core.files.detach(self.file.as_raw_fd());
        drop(self.core.switch().kill());
    }
}

#[test]
fn a_page_is_served_from_its_second_read_on() {
    let served = Served::new();
    assert_eq!(served.read(3), (1, true));
    assert_eq!(served.read(3), (1, false));
    let count = |of: &AtomicU64| of.load(Ordering::Relaxed);
    assert_eq!(
        (count(&served.known.hits), count(&served.known.misses)),
        (1, 1)
    );
    assert_eq!(count(&served.active.data_read_count), 1);
}

#[test]
fn a_read_that_a_write_overlaps_leaves_nothing() {
    let served = Served::new();
    served.cached(2);
    let overlapped = served.read_while(3, || {
        served.write(&page(3, 2), 3 * PAGE as i64, PAGE as isize)
    });
    assert_eq!(overlapped, (1, true), "as the kernel gave it");
    assert_eq!(served.read(3).0, 2);
    assert_eq!(served.read(3).0, 2);
    assert_eq!(served.read(2), (1, false), "another page is left alone");
}

#[test]
fn a_page_that_is_written_is_served_as_written() {
    let served = Served::new();
    served.cached(4);
    served.write(&page(4, 2), 4 * PAGE as i64, PAGE as isize);
    assert_eq!(served.read(4), (2, false));
}

#[test]
fn a_write_that_fails_or_comes_short_drops_the_page() {
    for result in [-1, 0, 100, PAGE as isize - 1] {
        let served = Served::new();
        served.cached(4);
        served.write(&page(4, 2), 4 * PAGE as i64, result);
        let (_, asked) = served.read(4);
        assert!(asked, "{result}");
        let mut stored = vec![0; PAGE];
        served
            .file
            .read_exact_at(&mut stored, 4 * PAGE as u64)
            .unwrap();
        assert_eq!(served.read(4).0, stored[PAGE - 1], "{result}");
    }
}

#[test]
fn write_of_part_or_several_pages_drops_all_it_touches() {
    // Length, offset, and the first and last page that the write touches.
    for (length, offset, first, last) in [
        (1, 5 * PAGE, 5, 5),
        (1, 6 * PAGE - 1, 5, 5),
        (2, 6 * PAGE - 1, 5, 6),
        (PAGE, 5 * PAGE + 1, 5, 6),
        (3 * PAGE, 4 * PAGE, 4, 6),
    ] {
        let served = Served::new();
        (3..9).for_each(|number| served.cached(number));
        let bytes = vec![9; length];
        served.write(&bytes, offset as i64, length as isize);
        for number in 3..9 {
            let (_, asked) = served.read(number);
            let touched = (first..=last).contains(&number);
            assert_eq!(asked, touched, "{length} at {offset}: page {number}");
        }
    }
}

#[test]
fn overlapping_writes_of_a_page_are_not_offered() {
    let served = Served::new();
    served.cached(4);
    let offset = 4 * PAGE as i64;
    let begin = || {
        served
            .core
            .begin_write(served.known, PAGE, offset, Completion::Observed)
    };
    let (one, other) = (begin().unwrap(), begin().unwrap());
    for write in [one, other] {
        let active = Some(&*served.active);
        served.core.finish_write(write, active, Some(&page(4, 2)));
        assert!(!served.has(4));
    }
}

#[test]
fn a_write_whose_end_is_not_seen_only_drops() {
    let served = Served::new();
    served.cached(4);
    drop(
        served
            .core
            .begin_write(served.known, PAGE, 4 * PAGE as i64, Completion::Unobserved),
    );
    assert_eq!(served.read(4), (1, true));
    assert_eq!(served.read(4), (1, false), "it does not keep the page out");
}

#[test]
fn whatever_is_not_a_write_of_pages_drops_the_whole_file() {
    type Change = fn(&Served);
    let changes: [(&str, Change); 6] = [
        ("a write without an offset", |served| served.change(100, -1)),
        ("a write of very many pages", |served| {
            served.change(5000 * PAGE, 0);
        }),
        ("a write beyond all page numbers", |served| {
            served.change(PAGE, i64::MAX - PAGE as i64);
        }),
        ("a change of the file", |served| {
            served.core.change_file(Some(served.known), || ());
        }),
        ("a change that is not followed", |served| {
            served.core.change_untracked(served.known, || ());
        }),
        ("other contents", |served| served.known.assign_new_id()),
    ];
    for (what, change) in changes {
        let served = Served::new();
        served.cached(1);
        served.cached(8);
        let before = served.known.id();
        change(&served);
        assert_ne!(served.known.id(), before, "{what}");
        assert!(served.read(1).1 && served.read(8).1, "{what}");
    }
}

#[test]
fn a_hole_drops_its_pages_and_no_other() {
    let served = Served::new();
    (3..6).for_each(|number| served.cached(number));
    let offset = 4 * PAGE as i64;
    served
        .core
        .change_range(served.target(), PAGE as i64, offset, || ());
    assert_eq!(served.read(3), (1, false));
    assert_eq!(served.read(4), (1, true));
    assert_eq!(served.read(5), (1, false));
}

#[test]
fn size_and_times_drop_nothing() {
    let served = Served::new();
    served.cached(4);
    served.core.change_metadata(Some(served.known), || ());
    assert_eq!(served.read(4), (1, false));
}

#[test]
fn a_page_of_another_number_is_neither_taken_nor_served() {
    let served = Served::new();
    served.cached(4);
    // A foreign write puts another page there, unobserved.
    served
        .file
        .write_all_at(&page(5, 7), 6 * PAGE as u64)
        .unwrap();
    assert_eq!(served.read(6), (7, true));
    assert!(!served.has(6));
    assert_eq!(served.read(6), (7, true));
    // A page of zeros has no number, so its position cannot be verified.
    served
        .file
        .write_all_at(&vec![0; PAGE], 7 * PAGE as u64)
        .unwrap();
    assert_eq!(served.read(7), (0, true));
    assert!(!served.has(7) && served.has(4));
}

#[test]
fn a_cached_page_of_another_number_is_dropped_when_it_is_read() {
    let served = Served::new();
    served.cached(4);
    let mode = served.core.switch().mode();
    let of_page = |number: i64| {
        let offset = number * PAGE as i64;
        served
            .core
            .page_of_request(mode, served.known, PAGE, offset)
            .expect("a page of the file")
    };
    let confirm_page = |bytes: &[u8]| {
        let target = of_page(4);
        served.core.confirm_page(&served.active, target, bytes)
    };
    assert!(confirm_page(&page(4, 1)) && served.has(4));
    assert!(!confirm_page(&page(5, 1)) && !served.has(4));
}

#[test]
fn off_serves_nothing_and_begins_empty() {
    let served = Served::new();
    served.cached(4);
    drop(served.core.switch().kill());
    assert!(served.core.switch().mode().is_off());
    assert_eq!(served.read(4), (1, true));
    assert_eq!(served.read(4), (1, true));
}

#[test]
fn in_bypass_contents_stay_and_writes_drop() {
    let served = Served::new();
    let uses = |bypass| served.core.switch().use_for(bypass, false);
    (3..8).for_each(|number| served.cached(number));
    uses(Bypass::On);
    assert_eq!((served.read(3), served.read(3)), ((1, true), (1, true)));
    assert_eq!((served.read(8), served.has(8)), ((1, true), false));
    served.write(&page(4, 2), 4 * PAGE as i64, PAGE as isize);
    served.change(PAGE, 5 * PAGE as i64);
    assert!(!served.has(4) && !served.has(5));
    let data_reads = served.active.data_read_count.load(Ordering::Relaxed);
    assert_eq!(data_reads, 5, "nobody looks at reads in bypass");
    uses(Bypass::Refill);
    assert_eq!(served.read(3), (1, true));
    served.write(&page(6, 3), 6 * PAGE as i64, PAGE as isize);
    assert!(served.has(6), "what is written is offered");
    uses(Bypass::Off);
    assert_eq!(served.read(3), (1, false), "what was kept");
    assert_eq!((served.read(4), served.read(4)), ((2, true), (2, false)));
    assert_eq!(served.read(6), (3, false));
    assert_eq!(served.read(7), (1, false));
}

#[test]
fn read_across_start_of_bypass_is_right_and_not_offered() {
    let served = Served::new();
    let uses = |bypass| served.core.switch().use_for(bypass, false);
    served.cached(4);
    assert_eq!(served.read_while(3, || uses(Bypass::On)), (1, true));
    assert!(!served.has(3));
    uses(Bypass::Off);
    // A write that begins before bypass and ends in it, and the reverse.
    let begin = || {
        let write =
            served
                .core
                .begin_write(served.known, PAGE, 4 * PAGE as i64, Completion::Observed);
        write.unwrap()
    };
    for (at_first, at_last) in [(Bypass::Off, Bypass::On), (Bypass::On, Bypass::Off)] {
        uses(at_first);
        let write = begin();
        uses(at_last);
        let active = Some(&*served.active);
        served.core.finish_write(write, active, Some(&page(4, 2)));
        assert_eq!(served.has(4), at_last == Bypass::Off);
    }
}

#[test]
fn the_control_group_is_read_from_the_data_file_in_both_modes() {
    let served = Served::new();
    let uses = |bypass| served.core.switch().use_for(bypass, true);
    let in_group = |page: &u32| control_group::has(served.known.owner, *page);
    let control = (0..).step_by(64).find(in_group).unwrap() + 1;
    let offset = u64::from(control) * PAGE as u64;
    served.file.write_all_at(&page(control, 1), offset).unwrap();
    assert!(!in_group(&3));
    (3..5).for_each(|number| served.cached(number));
    served.cached(control);
    let counts = || {
        let of = |bypassed, control| served.active.waits.of(bypassed, control).count;
        let data = served.active.data_reads.snapshot().count;
        [
            of(false, false),
            of(false, true),
            of(true, false),
            of(true, true),
            data,
        ]
    };
    assert_eq!(counts(), [0, 0, 0, 0, 3], "there is no group yet");
    uses(Bypass::Off);
    assert_eq!(served.read(3), (1, false));
    assert_eq!(served.read(control), (1, true));
    assert!(served.has(control), "it is kept");
    assert_eq!(counts(), [1, 1, 0, 0, 4]);
    uses(Bypass::On);
    assert_eq!(served.read(3), (1, true));
    assert_eq!(served.read(control), (1, true));
    assert_eq!(counts(), [1, 1, 1, 1, 6], "in bypass every read is timed");
    // A written or uncached page takes the path of every miss.
    uses(Bypass::Off);
    served.write(&page(control, 2), offset as i64, PAGE as isize);
    served
        .active
        .extension
        .invalidate(served.known.id(), control, 1);
    assert_eq!(
        (served.read(control), served.has(control)),
        ((2, true), true)
    );
    served.core.switch().use_for(Bypass::Off, false);
    assert_eq!(served.read(control), (2, false));
    assert_eq!(counts(), [1, 2, 1, 1, 7]);
}

impl Served {
    /// Begins and ends a write that never reaches the file.
    fn change(&self, length: usize, offset: i64) {
        let write = self
            .core
            .begin_write(self.known, length, offset, Completion::Observed);
        self.core.finish_write(write.unwrap(), None, None);
    }
}
