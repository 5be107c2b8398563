//! Unit tests of the write rules.

use std::os::fd::AsRawFd;

use cache::{Group, PageId, ReadOutcome};

use crate::core::Core;
use crate::core::page_request::Completion;
use crate::files::Attach;
use crate::files::DataFile;
use crate::platform::os::Os;
use crate::testing::os_for_tests;

const PAGE: usize = 16384;

/// Creates and opens a data file whose page size is known.
fn opened(
    core: &'static Core<os_for_tests::TestOs>,
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

    let mut before = known.idle_changes();
    let mut counted = |what: &str| {
        let now = known.idle_changes();
        assert!(before.is_some() && now > before, "{what}");
        before = now;
    };
    let under_way = || assert_eq!(known.idle_changes(), None);
    for offset in [0, 16384, 100, -1] {
        let write = core
            .begin_write(known, 16384, offset, Completion::Observed)
            .unwrap();
        under_way();
        core.finish_write(write, None, None);
        counted("a write");
    }
    // A write with an unobserved end counts only when it begins.
    drop(core.begin_write(known, 16384, 0, Completion::Unobserved));
    counted("a write whose end is not seen");
    core.change_range((fd, known), 16384, 0, under_way);
    counted("a range");
    core.change_file(Some(known), under_way);
    counted("the whole file");
    core.change_metadata(Some(known), under_way);
    counted("size or times");
    core.change_untracked(known, under_way);
    counted("a write without an offset");
}

/// After a restart, the tripwire compares this LSN with InnoDB's own.
#[cfg(debug_assertions)]
#[test]
fn highest_lsn_of_written_pages_is_kept() {
    use crate::restart::manifest::{Head, Manifest, Memory, Record};
    use crate::testing::canary::{noticed, remove_rule};
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
        let write = core.begin_write(known, PAGE, PAGE as i64, Completion::Observed);
        core.finish_write(
            write.unwrap(),
            core.switch().active().as_deref(),
            Some(&page),
        );
        core.switch().manifest().unwrap().take_lsn()
    };
    assert_eq!(kept(7), 7);
    remove_rule("lsn");
    assert_eq!(kept(9), 0);
    noticed("lsn", "1 write");
    remove_rule("");
}

/// The order of the whole-file change and the page write is unknown.
#[test]
fn write_during_change_of_whole_file_is_not_offered() {
    let core = os_for_tests::core();
    let folder = tempfile::tempdir().unwrap();
    let active = os_for_tests::active_in(core.switch(), folder.path());
    core.switch().start_tracking(|| ());
    let (_file, known) = opened(core, folder.path());
    assert!(matches!(core.switch().publish(active), Ok(None)));
    let mut page = vec![1; PAGE];
    page[4..8].copy_from_slice(&1u32.to_be_bytes());

    let begin = || {
        core.begin_write(known, PAGE, PAGE as i64, Completion::Observed)
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
        active
            .extension
            .read(place, Group::NORMAL, &mut vec![0; PAGE])
            == ReadOutcome::Hit
    };
    assert!(is_cached_after(begin()));
    let write = core.change_file(Some(known), begin);
    assert!(
        !is_cached_after(write),
        "it began before the change had ended"
    );
    assert!(is_cached_after(begin()));

    // Nor a page that a read returns under an identity that its file has lost since.
    known.assign_new_id();
    let offset = PAGE as i64;
    let mode = core.switch().mode();
    let target = core.page_of_request(mode, known, PAGE, offset).unwrap();
    let mut buffer = vec![0; PAGE];
    // SAFETY: the buffer is valid for its length.
    let read = unsafe {
        core.read(mode, target, buffer.as_mut_ptr(), PAGE, || {
            known.assign_new_id();
            buffer.copy_from_slice(&page);
            PAGE as isize
        })
    };
    assert_eq!(read, PAGE as isize);
    let guard = core.switch().active();
    let extension = &guard.as_deref().unwrap().extension;
    assert_ne!(
        extension.read(target.page, Group::NORMAL, &mut buffer),
        ReadOutcome::Hit
    );
    drop(core.switch().kill());
}
