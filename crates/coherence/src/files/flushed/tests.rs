//! What a flush covers.

use std::cell::RefCell;
use std::fs::File;
use std::os::fd::AsRawFd;

use super::*;
use crate::core::Core;
use crate::identity::Closed;
use crate::machine_for_tests::{self, Machine};
use crate::manifest::{Head, Manifest, Memory, Record, Which};
use crate::target::End;

const PAGE: usize = 16384;

/// A process with one file, which is not open yet.
struct Place {
    core: &'static Core<Machine>,
    folder: tempfile::TempDir,
    open: RefCell<Option<File>>,
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.ibd"), vec![0; 4 * PAGE]).unwrap();
        let core = machine_for_tests::core();
        let records: Vec<Record> = (0..4).map(|_| Record::default()).collect();
        let memory = Memory {
            now: || Machine::default().file_time(),
            grow: |_| false,
        };
        let head: &'static Head = Box::leak(Box::default());
        core.switch()
            .keep(Manifest::new(head, records.leak(), 4, memory));
        core.os()
            .mount
            .store(1, std::sync::atomic::Ordering::SeqCst);
        core.switch().start_tracking(|| ());
        let open = RefCell::default();
        Place { core, folder, open }
    }

    fn open(&self, how: Attach) -> &'static DataFile {
        let mut options = File::options();
        let file = options.read(true).write(true);
        let file = file.open(self.folder.path().join("a.ibd")).unwrap();
        let stat = self.core.os().stat(file.as_raw_fd()).unwrap();
        let files = &self.core.files;
        files.attach(file.as_raw_fd(), &stat, b"./t/a.ibd", how);
        let known = files.of_descriptor(file.as_raw_fd()).unwrap();
        known.page_of_read(PAGE, PAGE as i64);
        *self.open.borrow_mut() = Some(file);
        known
    }

    fn opened(&self) -> &'static DataFile {
        self.open(Attach::Opened { anew: false })
    }

    fn close(&self) {
        // Settled, so that it is known again.
        std::thread::sleep(Duration::from_millis(40));
        let file = self.open.take().unwrap();
        self.core.files.detach(file.as_raw_fd());
    }

    fn write(&self, file: &'static DataFile, end: End) {
        let write = self.core.begin_write(file, PAGE, PAGE as i64, end);
        self.core.finish_write(write.unwrap(), None, None);
    }

    fn flush(&self, file: &'static DataFile) {
        self.core.flush(file, || 0);
    }

    /// Whether the record says so after the file was closed.
    fn is_left_flushed(&self) -> bool {
        self.close();
        let manifest = self.core.switch().manifest().unwrap();
        manifest.record(1).unwrap().left(None).unwrap().flushed
    }
}

#[test]
fn a_flush_covers_the_changes_that_had_ended() {
    let place = Place::new();
    let file = place.opened();
    assert!(!file.is_flushed(), "who knows who wrote it, and when");
    let change: [(&str, &dyn Fn()); 4] = [
        ("a write", &|| place.write(file, End::Seen)),
        ("a hole", &|| {
            place.core.change_range(file, PAGE as i64, 0, || ())
        }),
        ("a truncation", &|| {
            place.core.change_file(Some(file), || ())
        }),
        ("more room", &|| place.core.change_looks(Some(file), || ())),
    ];
    for (what, change) in change {
        change();
        assert!(!file.is_flushed(), "{what}");
        place.flush(file);
        assert!(file.is_flushed(), "{what}");
        // While the flush is under way.
        place.core.flush(file, || {
            change();
            0
        });
        assert!(!file.is_flushed(), "{what} during the flush");
        place.flush(file);
        assert!(file.is_flushed(), "{what}");
    }
    assert!(place.is_left_flushed());
}

#[test]
fn a_flush_does_not_cover_a_change_under_way() {
    let place = Place::new();
    let file = place.opened();
    let begin = || place.core.begin_write(file, PAGE, 0, End::Seen).unwrap();
    let write = begin();
    place.flush(file);
    assert!(!file.is_flushed());
    place.core.finish_write(write, None, None);
    assert!(!file.is_flushed(), "it has ended after the flush began");
    let write = begin();
    place.core.flush(file, || 0);
    place.core.finish_write(write, None, None);
    let write = RefCell::new(Some(begin()));
    place.core.flush(file, || {
        place.core.finish_write(write.take().unwrap(), None, None);
        0
    });
    assert!(
        !file.is_flushed(),
        "it has ended while the flush was under way"
    );
    place.flush(file);
    assert!(place.is_left_flushed());
}

#[test]
fn a_flush_that_failed_is_not_made_good_by_a_later_one() {
    let place = Place::new();
    let file = place.opened();
    place.flush(file);
    assert!(file.is_flushed());
    // One that had begun before ends after it.
    place.core.flush(file, || {
        assert_eq!(place.core.flush(file, || -1), -1);
        0
    });
    assert!(!file.is_flushed());
    place.flush(file);
    assert!(!file.is_flushed());
    place.close();
    let again = place.opened();
    assert!(std::ptr::eq(file, again));
    place.flush(file);
    assert!(!place.is_left_flushed());
}

/// Whatever the server had of its other files: the disk does not do what it says.
#[test]
fn after_a_flush_that_failed_no_file_outlives_the_machines_start() {
    for fails in [false, true] {
        let place = Place::new();
        let file = place.opened();
        let stat = place
            .core
            .os()
            .stat(place.open.borrow().as_ref().unwrap().as_raw_fd());
        place.core.flush(file, || -i32::from(fails));
        let manifest = place.core.switch().manifest().unwrap();
        let other = manifest.record(2).unwrap();
        let which = Which {
            mount: Some(1),
            ..Which::default()
        };
        other.shape(16384, 0);
        other.open(&which, &stat.unwrap(), manifest);
        std::thread::sleep(Duration::from_millis(40));
        other.close(&Closed::now(&stat.unwrap(), place.core.os()), true);
        manifest.of_another_boot((0, 0));
        assert_eq!(other.left(None).unwrap().flushed, !fails);
    }
}

#[test]
fn what_ends_unseen_is_covered_by_a_flush_after_the_file_was_closed() {
    let place = Place::new();
    let file = place.opened();
    place.write(file, End::Unseen);
    place.flush(file);
    assert!(!file.is_flushed());
    place.core.os().let_pass(Duration::from_secs(3600));
    place.flush(file);
    assert!(!place.is_left_flushed());
    let file = place.opened();
    assert!(!file.is_flushed());
    place.flush(file);
    assert!(place.is_left_flushed());
    // Without an offset the whole file is changed.
    let file = place.opened();
    drop(place.core.begin_write(file, PAGE, -1, End::Unseen));
    place.flush(file);
    assert!(!file.is_flushed());
}

/// The server has used its request anew, or it was seen to end.
#[test]
fn what_has_ended_after_all_is_covered_by_a_flush_after_that() {
    for offset in [0, -1] {
        let place = Place::new();
        let file = place.opened();
        let write = place.core.begin_write(file, PAGE, offset, End::Perhaps);
        place.flush(file);
        assert!(!file.is_flushed(), "it may be under way");
        place.core.finish_write(write.unwrap(), None, None);
        assert!(!file.is_flushed());
        place.flush(file);
        assert!(file.is_flushed());
    }
}

#[test]
fn through_a_descriptor_that_was_found_writes_may_be_under_way() {
    let place = Place::new();
    let file = place.open(Attach::Found);
    place.flush(file);
    assert!(!file.is_flushed());
    place.core.os().let_pass(PROVE_FOR);
    place.flush(file);
    assert!(file.is_flushed());
    // The file is open already, and a flush is under way while another descriptor is found.
    let first = place.open.take().unwrap();
    place.core.flush(file, || {
        assert!(std::ptr::eq(file, place.open(Attach::Found)));
        0
    });
    assert!(!file.is_flushed());
    drop(first);
}

#[test]
fn a_file_that_is_opened_again_is_flushed_as_it_was() {
    for flushed in [false, true] {
        let place = Place::new();
        let file = place.opened();
        place.write(file, End::Seen);
        if flushed {
            place.flush(file);
        }
        place.close();
        assert_eq!(place.opened().is_flushed(), flushed);
        assert_eq!(place.is_left_flushed(), flushed);
        // Somebody else writes to it.
        std::fs::write(place.folder.path().join("a.ibd"), vec![1; 4 * PAGE]).unwrap();
        assert!(!place.opened().is_flushed());
        place.close();
        // The server empties it.
        assert!(!place.open(Attach::Opened { anew: true }).is_flushed());
    }
}

#[test]
fn what_was_written_before_the_machine_was_started_is_on_the_disk() {
    for (later, flushed) in [(0, false), (3500, false), (7200, true)] {
        let place = Place::new();
        // The machine's own start is as much later than the file.
        let os = place.core.os();
        let since = os.since_boot();
        os.set_clock_by((since + later * 1_000_000_000) as i64);
        assert_eq!(place.opened().is_flushed(), flushed, "{later}");
        assert_eq!(place.is_left_flushed(), flushed);
        assert!(!place.open(Attach::Opened { anew: true }).is_flushed());
    }
}

#[test]
fn another_name_changes_nothing_on_the_disk() {
    let place = Place::new();
    let file = place.opened();
    let rename = || place.core.change_names(Some(file), || ());
    rename();
    assert!(!file.is_flushed());
    place.flush(file);
    rename();
    rename();
    assert!(file.is_flushed());
    // A write meanwhile.
    place
        .core
        .change_names(Some(file), || place.write(file, End::Seen));
    assert!(!file.is_flushed());
    rename();
    assert!(!file.is_flushed());
    let write = place.core.begin_write(file, PAGE, 0, End::Seen).unwrap();
    rename();
    place.core.finish_write(write, None, None);
    assert!(!file.is_flushed());
}
