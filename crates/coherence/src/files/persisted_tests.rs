//! Files that one process persists and another opens. Each process is a separate value with the same records, above real files.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::atomic::Ordering as Order;

use super::data_file::*;
use super::registry::*;
use crate::core::Core;
use crate::platform::os::Os as _;
use crate::restart::manifest::{Head, Manifest, Memory, Record};
use crate::restart::proof::{Recovery, Rejection};
use crate::restart::stamp::{change_stamp, has_fraction};
#[cfg(debug_assertions)]
use crate::testing::canary::{noticed, remove_rule};
use crate::testing::os_for_tests::{self, TestOs};

const FINE: Recovery = Recovery::SameMount {
    has_fine_stamps: true,
};
const COARSE: Recovery = Recovery::SameMount {
    has_fine_stamps: false,
};

/// The memory of all processes, and a directory with one file.
struct Place {
    head: &'static Head,
    records: &'static [Record],
    folder: tempfile::TempDir,
}

fn now() -> i64 {
    TestOs::default().file_time()
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir_in(".").unwrap();
        std::fs::write(folder.path().join("a.ibd"), [0; 65536]).unwrap();
        Place {
            head: Box::leak(Box::default()),
            records: Box::leak((0..4).map(|_| Record::default()).collect()),
            folder,
        }
    }

    /// Starts a process that recovers the persisted state.
    fn process(&self, by: Recovery) -> &'static Files<TestOs> {
        &self.core(by).files
    }

    fn core(&self, by: Recovery) -> &'static Core<TestOs> {
        let core = os_for_tests::core();
        let files = &core.files;
        files.os.superblock.store(1, Order::SeqCst);
        files.os.birth.store(1, Order::SeqCst);
        let memory = Memory {
            now,
            grow: |_| false,
        };
        files
            .switch
            .keep(Manifest::new(self.head, self.records, 4, memory));
        files.recover(by);
        assert!(files.switch.start_tracking(|| ()));
        let manifest = files.switch.manifest().unwrap();
        manifest.be_on(1);
        manifest.attach(Some(1), manifest.detached());
        core
    }

    fn open(&self, files: &'static Files<TestOs>) -> (File, &'static DataFile) {
        let mut options = File::options();
        let file = options.read(true).write(true);
        let file = file.custom_flags(libc::O_DIRECT);
        let file = file.open(self.folder.path().join("a.ibd")).unwrap();
        let fd = file.as_raw_fd();
        let stat = files.os.stat(fd).unwrap();
        let how = Attach::Opened { anew: false };
        files.attach(fd, &stat, b"./t/a.ibd", how);
        let known = files.of_descriptor(fd).unwrap();
        known.page_of_read(16384, 16384);
        (file, known)
    }

    /// Writes like the server.
    fn write(files: &Files<TestOs>, file: &File, known: &'static DataFile) {
        #[repr(align(4096))]
        struct Block([u8; 4096]);
        known.begin_change();
        file.write_all_at(&Block([7; 4096]).0, 16384).unwrap();
        files.stamp(known, file.as_raw_fd());
        known.end_change();
    }
}

fn outcome(files: &Files<TestOs>) -> (u64, Option<Rejection>) {
    let report = files.recoveries.report();
    let reason = report.reasons.first().map(|(_, reason)| *reason);
    (report.trusted.0, reason)
}

#[test]
fn unchanged_file_keeps_its_identity() {
    let place = Place::new();
    let first = place.process(FINE);
    let (open, file) = place.open(first);
    Place::write(first, &open, file);
    let second = place.process(FINE);
    let (open, again) = place.open(second);
    assert_eq!((again.id(), again.page_size()), (file.id(), 16384));
    assert!(again.is_inherited());
    assert_eq!(outcome(second), (1, None));
    // Close it, and open it in the next process.
    second.detach(open.as_raw_fd());
    drop(open);
    let third = place.process(FINE);
    assert_eq!(place.open(third).1.id(), file.id());
}

#[test]
fn recovered_files_and_pages_are_counted() {
    let place = Place::new();
    let first = place.process(FINE);
    let (_open, file) = place.open(first);
    let manifest = first.switch.manifest().unwrap();
    manifest.record(file.owner).unwrap().count(5);
    let second = place.process(FINE);
    assert_eq!(second.recoveries.report().pending, (1, 5));
    place.open(second);
    assert_eq!(second.recoveries.report().trusted, (1, 5));
}

#[test]
fn trusted_file_requires_lsn_of_previous_process() {
    let place = Place::new();
    let first = place.process(FINE);
    place.open(first);
    first.switch.manifest().unwrap().note_lsn(77);
    let second = place.process(FINE);
    assert_eq!(second.recoveries.least_lsn(), 0, "no file is trusted yet");
    place.open(second);
    assert_eq!(second.recoveries.least_lsn(), 77);
}

#[test]
fn unopened_file_is_proven_two_processes_later() {
    let place = Place::new();
    let first = place.process(FINE);
    let (_open, file) = place.open(first);
    place.process(FINE);
    let third = place.process(FINE);
    assert_eq!(place.open(third).1.id(), file.id());
    assert_eq!(outcome(third), (1, None));
}

#[test]
fn file_changed_by_others_gets_a_new_identity() {
    let place = Place::new();
    let (open, file) = place.open(place.process(FINE));
    // Hooks do not observe this change.
    open.set_len(1 << 20).unwrap();
    let second = place.process(FINE);
    let (_open, again) = place.open(second);
    assert_ne!(again.id(), file.id());
    assert!(!again.is_inherited());
    assert_eq!(outcome(second), (0, Some(Rejection::Changed)));
    let unlisted = second.recoveries.take_unlisted(<[_]>::to_vec);
    assert_eq!((unlisted[0].id, unlisted[0].pages), (file.id(), 64));
    assert!(unlisted[0].is_listed);
    // The next process trusts the pages that this one has cached.
    let third = place.process(FINE);
    assert_eq!(place.open(third).1.id(), again.id());
}

#[test]
fn replaced_subvolume_and_remount_are_rejected() {
    for (what, reason) in [
        ("subvolume", Rejection::OtherSubvolume),
        ("superblock", Rejection::OtherMount),
        ("birth", Rejection::OtherFile),
    ] {
        let place = Place::new();
        place.open(place.process(FINE));
        let second = place.process(FINE);
        match what {
            "subvolume" => second.os.subvolume.store(5, Order::SeqCst),
            "superblock" => second.os.superblock.store(5, Order::SeqCst),
            _ => second.os.birth.store(5, Order::SeqCst),
        }
        place.open(second);
        assert_eq!(outcome(second), (0, Some(reason)), "{what}");
    }
}

#[test]
fn coarse_stamp_of_the_last_tick_is_rejected() {
    let place = Place::new();
    let first = place.process(FINE);
    let (open, file) = place.open(first);
    Place::write(first, &open, file);
    let stamp = change_stamp(&first.os.stat(open.as_raw_fd()).unwrap());
    assert!(has_fraction(stamp));
    // The last sign of life is from the tick of the write, or from an earlier one.
    let second = place.process(COARSE);
    place.open(second);
    assert_eq!(outcome(second), (0, Some(Rejection::LastTick)));
}

#[test]
fn untracked_write_and_page_cache_are_rejected_after_a_kill() {
    let place = Place::new();
    let first = place.process(FINE);
    let (open, file) = place.open(first);
    file.note_change();
    Place::write(first, &open, file);
    let second = place.process(FINE);
    let (open, file) = place.open(second);
    assert_eq!(outcome(second), (0, Some(Rejection::Untracked)));
    // SAFETY: a plain call.
    unsafe { libc::fcntl(open.as_raw_fd(), libc::F_SETFL, 0) };
    Place::write(second, &open, file);
    let third = place.process(FINE);
    let (_open, _) = place.open(third);
    assert_eq!(outcome(third), (0, Some(Rejection::PageCache)));
    // After a clean stop the write is durable.
    third.switch.manifest().unwrap().stop_cleanly();
    let fourth = place.process(FINE);
    place.open(fourth);
    assert_eq!(outcome(fourth), (1, None));
}

#[cfg(debug_assertions)]
#[test]
fn untracked_change_and_failed_flush_are_not_trusted() {
    let is_trusted_after_change = || {
        let place = Place::new();
        let first = place.process(FINE);
        let (_open, file) = place.open(first);
        file.note_change();
        let second = place.process(FINE);
        place.open(second);
        outcome(second) == (1, None)
    };
    let is_followed_after = |result: i32| {
        let place = Place::new();
        let core = place.core(FINE);
        core.flush(|| result);
        core.files.switch.manifest().unwrap().is_tracked()
    };
    assert!(!is_trusted_after_change());
    remove_rule("io-uring-voids");
    assert!(is_trusted_after_change());
    noticed("io-uring-voids", "1 file");
    remove_rule("");
    assert!(is_followed_after(0) && !is_followed_after(-1));
    remove_rule("flush-failed");
    assert!(is_followed_after(-1));
    noticed("flush-failed", "1 flush");
    remove_rule("");
}

/// The end of such a write is unknown, and so is whether it used the page cache.
#[test]
fn untracked_write_counts_as_buffered_after_reopen() {
    for through_ring in [true, false] {
        let place = Place::new();
        let core = place.core(FINE);
        let first = &core.files;
        let (open, file) = place.open(first);
        match through_ring {
            true => file.void_stamp(),
            false => core.change_untracked(file, || ()),
        }
        first.detach(open.as_raw_fd());
        drop(open);
        place.open(first);
        let second = place.process(FINE);
        place.open(second);
        assert_eq!(outcome(second), (0, Some(Rejection::PageCache)));
    }
}

#[test]
fn write_before_the_extension_is_active_gives_a_new_identity() {
    let place = Place::new();
    let (_open, file) = place.open(place.process(FINE));
    let second = place.process(FINE);
    let (_open, again) = place.open(second);
    again.write_while_off();
    assert_ne!(again.id(), file.id());
    assert!(!again.is_inherited());
}

/// The inode of the file of a place.
fn inode(place: &Place, files: &Files<TestOs>) -> (u64, u64) {
    let file = File::open(place.folder.path().join("a.ibd")).unwrap();
    files.os.stat(file.as_raw_fd()).unwrap().inode
}

/// Pending, trusted and rejected files.
fn counts(files: &Files<TestOs>) -> [u64; 3] {
    let report = files.recoveries.report();
    [report.pending.0, report.trusted.0, report.rejected.0]
}

#[test]
fn rejected_state_is_listed_when_its_files_are_opened() {
    for is_open in [false, true] {
        let place = Place::new();
        let (_first, file) = place.open(place.process(FINE));
        let second = place.process(FINE);
        let opened = is_open.then(|| place.open(second));
        second.reject_persisted();
        let (_second, again) = opened.unwrap_or_else(|| place.open(second));
        assert_ne!(again.id(), file.id(), "{is_open}");
        assert!(!again.is_inherited());
        assert_eq!(counts(second), [0, 0, 1], "{is_open}");
        assert_eq!(second.recoveries.least_lsn(), 0);
        let unlisted = second.recoveries.take_unlisted(<[_]>::to_vec);
        assert!(!second.recoveries.has_unlisted());
        let listed: Vec<_> = unlisted
            .iter()
            .map(|file| (file.id, file.pages, file.is_listed))
            .collect();
        assert_eq!(listed, [(file.id(), 4, true)], "{is_open}");
    }
    // The process after that one does not trust the pages either.
    let place = Place::new();
    let (_first, file) = place.open(place.process(FINE));
    place.process(FINE).reject_persisted();
    let third = place.process(FINE);
    let (_third, again) = place.open(third);
    assert_ne!(again.id(), file.id());
    assert_eq!(counts(third), [0, 0, 1]);
    // What that one caches is trusted after a kill: the rejection says nothing about its writes.
    let fourth = place.process(FINE);
    assert_eq!(place.open(fourth).1.id(), again.id());
    assert_eq!(counts(fourth), [0, 1, 0]);
}

#[test]
fn dropped_file_that_was_never_opened_is_rejected() {
    let place = Place::new();
    place.open(place.process(FINE));
    let second = place.process(FINE);
    let file = second.of_number(inode(&place, second)).unwrap();
    second.forget_unlinked(file);
    assert_eq!(counts(second), [0, 0, 1]);
    assert!(second.of_number(inode(&place, second)).is_none());
}

#[test]
fn file_that_stays_closed_is_forgotten() {
    let place = Place::new();
    let (_first, file) = place.open(place.process(FINE));
    let second = place.process(FINE);
    second.forget_pending();
    assert_eq!(counts(second), [0, 0, 1]);
    assert!(second.registry.lock().closed.is_empty());
    let (_second, again) = place.open(second);
    assert_ne!(again.id(), file.id());
    second.forget_pending();
    assert_eq!(counts(second), [0, 0, 1], "it is open");
    assert_eq!(
        second.of_number(inode(&place, second)).map(DataFile::id),
        Some(again.id())
    );
}

#[test]
fn file_written_before_the_extension_is_active_is_forgotten() {
    let place = Place::new();
    let (open, file) = place.open(place.process(FINE));
    open.set_len(1 << 30).unwrap();
    let first = place.process(FINE);
    let (open, file_again) = place.open(first);
    assert_ne!(file.id(), file_again.id());
    let record = first.switch.manifest().unwrap().record(file_again.owner);
    record.unwrap().count(1000);
    let second = place.process(FINE);
    let active = os_for_tests::active_in(&second.switch, place.folder.path());
    second.register_persisted(&active.extension);
    let (_second, again) = place.open(second);
    assert_eq!(counts(second), [0, 1, 0]);
    let id = again.id();
    again.write_while_off();
    assert!(second.switch.publish(active).is_ok());
    second.forget_replaced();
    assert_eq!(counts(second), [0, 0, 1]);
    let [listed] = second.recoveries.take_unlisted(<[_]>::to_vec)[..] else {
        panic!("{:?}", counts(second))
    };
    assert_eq!((listed.id, listed.pages), (id, 65536));
    second.forget_replaced();
    assert!(!second.recoveries.has_unlisted());
    drop(open);
}
