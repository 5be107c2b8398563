//! Files that one process leaves, and another opens: each is a value of its own, with the same records.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Duration;

use super::*;
use crate::machine_for_tests::{self, Machine};
use crate::manifest::{Head, Memory};

/// The memory of all processes, and a folder with one file that was not changed of late.
struct Place {
    head: &'static Head,
    records: &'static [Record],
    folder: tempfile::TempDir,
}

fn now() -> i128 {
    Machine::default().file_time()
}

impl Place {
    fn new() -> Place {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.ibd"), [0; 65536]).unwrap();
        std::thread::sleep(Duration::from_millis(40));
        Place {
            head: Box::leak(Box::default()),
            records: Box::leak((0..4).map(|_| Record::default()).collect()),
            folder,
        }
    }

    /// A process that takes over what was left. How many files that are.
    fn process(&self) -> (&'static Files<Machine>, u64) {
        let files = &machine_for_tests::core().files;
        files.os.mount.store(1, std::sync::atomic::Ordering::SeqCst);
        let memory = Memory {
            now,
            grow: |_| false,
        };
        let manifest = Manifest::new(self.head, self.records, 4, memory);
        files.switch.keep(manifest);
        let inherited = files.inherit();
        assert!(files.switch.start_tracking(|| ()));
        let manifest = files.switch.manifest().unwrap();
        manifest.attach(Some(1), manifest.detached());
        (files, inherited)
    }

    /// A process that has opened and changed files before somebody looks for what was left. Files are not followed yet.
    fn late(&self) -> (&'static Files<Machine>, u64) {
        let files = &machine_for_tests::core().files;
        files.os.mount.store(1, std::sync::atomic::Ordering::SeqCst);
        let memory = Memory {
            now,
            grow: |_| false,
        };
        let manifest = Manifest::new(self.head, self.records, 4, memory);
        files.switch.keep(manifest);
        (files, files.inherit_late())
    }

    /// The same, and now they are followed, and found.
    fn find(&self, files: &'static Files<Machine>, fd: i32) -> &'static DataFile {
        files.switch.start_tracking(|| files.forget_all());
        let stat = files.os.stat(fd).unwrap();
        files.attach(fd, &stat, b"./t/a.ibd", Attach::Found);
        let manifest = files.switch.manifest().unwrap();
        manifest.attach(Some(1), manifest.detached());
        files.of_descriptor(fd).unwrap()
    }

    fn open(&self, files: &'static Files<Machine>) -> (File, &'static DataFile) {
        let mut options = File::options();
        let file = options.read(true).write(true);
        let file = file.open(self.folder.path().join("a.ibd")).unwrap();
        let fd = file.as_raw_fd();
        let stat = files.os.stat(fd).unwrap();
        let how = Attach::Opened { anew: false };
        files.attach(fd, &stat, b"./t/a.ibd", how);
        let known = files.of_descriptor(fd).unwrap();
        known.page_of_read(16384, 16384);
        (file, known)
    }
}

#[test]
fn a_file_keeps_its_identity() {
    let place = Place::new();
    let (first, none) = place.process();
    let (_open, file) = place.open(first);
    assert_eq!(none, 0);
    let (second, left) = place.process();
    assert_eq!(left, 1);
    let (open, again) = place.open(second);
    assert_eq!((again.id(), again.page_size()), (file.id(), 16384));
    assert!(again.is_inherited());
    assert_eq!(again.name(), "./t/a.ibd");
    assert_eq!(second.inheritance.became().trusted.0, 1);
    // A new identity is none that was given before.
    again.replace_contents();
    assert!(again.id().0 > file.id().0 && !again.is_inherited());
    // Closed, and opened by the next.
    let kept = again.id();
    second.detach(open.as_raw_fd());
    drop(open);
    let (third, _) = place.process();
    assert_eq!(place.open(third).1.id(), kept);
}

#[test]
fn a_file_that_somebody_else_has_changed_is_doubtful() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let (first, _) = place.process();
    let (open, file) = place.open(first);
    std::thread::sleep(Duration::from_millis(60));
    open.write_all_at(&[1], 0).unwrap();
    let (second, _) = place.process();
    let (_open, again) = place.open(second);
    assert_eq!(again.id(), file.id());
    assert!(again.is_doubtful(again.id()));
    let became = second.inheritance.became();
    assert_eq!(
        (became.trusted.0, became.doubtful.0, became.lost.0),
        (0, 1, 0)
    );
    assert_eq!(became.reasons[0].1, Doubt::Changed);
    // So it is for the process after that, whatever this one has seen.
    let (third, _) = place.process();
    let (open, again) = place.open(third);
    assert!(again.is_doubtful(file.id()) && again.id() == file.id());
    let became = third.inheritance.became();
    assert_eq!(became.reasons[0].1, Doubt::NotCompared);
    // Once all was compared it stays so: nobody knows how long the file was when it was cached.
    again.settle(again.id(), 0, 4);
    third.detach(open.as_raw_fd());
    drop(open);
    let (fourth, _) = place.process();
    assert!(place.open(fourth).1.is_doubtful(file.id()));
    // A new identity has none.
    let known = fourth.all()[0];
    known.replace_contents();
    let id = known.id();
    assert!(!known.is_doubtful(id));
    let (fifth, _) = place.process();
    let (_open, last) = place.open(fifth);
    assert!(last.id() == id && !last.is_doubtful(id));
}

/// The server closes its files, and is told to stop after that.
#[test]
fn a_file_that_was_closed_right_after_a_change_is_settled_at_the_servers_end() {
    use std::os::unix::fs::FileExt;
    const SECOND: i64 = 1_000_000_000;
    for (what, settled) in [("nothing", true), ("changed", false), ("another", false)] {
        let place = Place::new();
        let (files, _) = place.process();
        let path = place.folder.path().join("a.ibd");
        let mut options = File::options();
        let open = options.read(true).write(true).open(&path).unwrap();
        let fd = open.as_raw_fd();
        let stat = files.os.stat(fd).unwrap();
        let name = path.to_str().unwrap().as_bytes();
        files.attach(fd, &stat, name, Attach::Opened { anew: false });
        open.write_all_at(&[1], 0).unwrap();
        // However long the test is held up: it is closed before its own time.
        files.os.set_clock_by(-100 * SECOND);
        files.detach(fd);
        let record = files.switch.manifest().unwrap().record(1).unwrap();
        assert!(record.unsettled().is_some());
        assert!(files.settle_closed(), "it is too early");
        match what {
            "changed" => {
                std::thread::sleep(Duration::from_millis(40));
                open.write_all_at(&[2], 0).unwrap();
            }
            "another" => {
                std::fs::copy(&path, place.folder.path().join("b.ibd")).unwrap();
                std::fs::rename(place.folder.path().join("b.ibd"), &path).unwrap();
            }
            _ => {}
        }
        // The clock of the files goes on while the machine runs, and by as much.
        files.os.set_clock_by(100 * SECOND);
        assert!(!files.settle_closed(), "it is not too early any more");
        assert_eq!(record.unsettled().is_none(), settled, "{what}");
    }
}

/// It was closed, so it is known how long it was.
#[test]
fn a_file_is_believed_again_once_all_was_compared() {
    let place = Place::new();
    let (first, _) = place.process();
    let (open, file) = place.open(first);
    first.detach(open.as_raw_fd());
    std::thread::sleep(Duration::from_millis(60));
    open.set_permissions(open.metadata().unwrap().permissions())
        .unwrap();
    drop(open);
    for (settled, is_doubtful) in [(3, true), (4, true), (0, false)] {
        let (next, _) = place.process();
        let (open, again) = place.open(next);
        assert_eq!(again.id(), file.id());
        assert_eq!(again.is_doubtful(file.id()), is_doubtful, "{settled}");
        again.settle(again.id(), 0, settled);
        next.detach(open.as_raw_fd());
    }
}

/// Whoever stops following leaves open files that nobody knows.
#[test]
fn a_file_that_was_not_followed_to_the_end_is_doubtful() {
    let place = Place::new();
    let (first, _) = place.process();
    let (_open, file) = place.open(first);
    first.switch.manifest().unwrap().detach();
    // Neither this one nor the next one opens it.
    place.process();
    place.process();
    let (fourth, left) = place.process();
    assert_eq!(left, 1);
    let (_open, again) = place.open(fourth);
    assert!(again.is_doubtful(file.id()) && again.id() == file.id());
}

#[test]
fn another_file_with_the_same_number_is_lost() {
    let place = Place::new();
    let (first, _) = place.process();
    let (_open, file) = place.open(first);
    let (second, _) = place.process();
    let birth = &second.os.birth;
    birth.store(7, std::sync::atomic::Ordering::SeqCst);
    let (_open, other) = place.open(second);
    assert!(other.id() != file.id() && !other.is_doubtful(other.id()));
    let became = second.inheritance.became();
    assert_eq!((became.doubtful.0, became.lost.0), (0, 1));
    assert_eq!(became.lost_reasons[0].1, Doubt::OtherFile);
}

/// Somebody else changes an open file. Then the server does, while it stops, and so do its times say.
#[test]
fn a_file_that_was_changed_while_it_was_open_is_dropped_at_the_stop() {
    use std::os::unix::fs::FileExt;
    for foreign in [false, true] {
        let place = Place::new();
        let (first, _) = place.process();
        let (open, file) = place.open(first);
        let id = file.id();
        let change = || {
            let _changing = file.change();
            open.write_all_at(&[1], 0).unwrap();
        };
        change();
        std::thread::sleep(Duration::from_millis(60));
        if foreign {
            open.write_all_at(&[2], 0).unwrap();
        }
        assert_eq!(first.drop_changed(), usize::from(foreign));
        assert_eq!(file.id() == id, !foreign);
        std::thread::sleep(Duration::from_millis(60));
        change();
        let (second, _) = place.process();
        let again = place.open(second).1.id();
        assert_eq!(again == id, !foreign);
    }
}

/// Somebody else changes the file. The next process renames it without opening it, and so do its times say.
#[test]
fn a_file_that_is_renamed_before_it_was_opened_is_new_to_the_next() {
    use std::os::unix::fs::FileExt;
    let place = Place::new();
    let (first, _) = place.process();
    let (open, file) = place.open(first);
    std::thread::sleep(Duration::from_millis(60));
    open.write_all_at(&[1], 0).unwrap();
    let (second, left) = place.process();
    assert_eq!(left, 1);
    std::thread::sleep(Duration::from_millis(60));
    {
        let known = second.of_inode(&second.os.stat(open.as_raw_fd()).unwrap());
        let _changing = known.unwrap().change();
        open.set_permissions(open.metadata().unwrap().permissions())
            .unwrap();
    }
    let (third, _) = place.process();
    assert_ne!(place.open(third).1.id(), file.id());
}

#[test]
fn a_write_before_an_extension_is_active_drops_what_was_inherited() {
    let place = Place::new();
    let (first, _) = place.process();
    let (_open, file) = place.open(first);
    let (second, _) = place.process();
    let (_open, again) = place.open(second);
    again.write_unseen();
    assert_ne!(again.id(), file.id());
    let id = again.id();
    again.write_unseen();
    assert_eq!(again.id(), id, "nothing of it was inherited");
}

/// A recording follows files before anything is kept for the next process; then it is kept. What lies in the memory is of an earlier process.
#[test]
fn a_file_that_was_followed_before_records_were_kept_is_not_taken_for_another() {
    let place = Place::new();
    std::fs::write(place.folder.path().join("b.ibd"), [0; 65536]).unwrap();
    // An earlier process: its first file has some identity.
    let (first, _) = place.process();
    let (_open, of_before) = place.open(first);
    let of_before = of_before.id();
    // The next one begins with a recording, and keeps nothing yet.
    let files = &machine_for_tests::core().files;
    files.os.mount.store(1, std::sync::atomic::Ordering::SeqCst);
    assert!(files.switch.start_recording(|| ()));
    let (open, file) = place.open(files);
    file.replace_contents();
    // Now somebody switches on: as in `persist::open` without inheriting.
    let memory = Memory {
        now,
        grow: |_| false,
    };
    let manifest = Manifest::new(place.head, place.records, 4, memory);
    manifest.clear();
    files.switch.keep(manifest);
    assert!(!files.switch.start_tracking(|| ()), "the recording did");
    let manifest = files.switch.manifest().unwrap();
    manifest.attach(Some(2), manifest.detached());
    // The file is closed and opened again, unchanged: its identity stays.
    std::thread::sleep(Duration::from_millis(40));
    let id = file.id();
    assert_ne!(id, of_before);
    files.detach(open.as_raw_fd());
    drop(open);
    let (_open, again) = place.open(files);
    assert_eq!(again.id(), id);
    // Whoever comes next may know it as what it was, or not at all.
    let (third, left) = place.process();
    let (_open, now) = place.open(third);
    assert!(
        left == 0 || now.id() == id,
        "it was {id:?}, and is taken for {:?}, which is another file's or of an earlier process",
        now.id()
    );
    assert!(
        now.id() == id || now.id().0 > id.0,
        "an identity is given twice"
    );
}

/// The same, with memory in which nothing was before: identities that were given before records were kept are not given again.
#[test]
fn identities_that_were_given_before_records_were_kept_are_not_given_again() {
    let place = Place::new();
    let files = &machine_for_tests::core().files;
    let given: Vec<_> = (0..100).map(|_| files.switch.new_file_id()).collect();
    let memory = Memory {
        now,
        grow: |_| false,
    };
    files
        .switch
        .keep(Manifest::new(place.head, place.records, 4, memory));
    let (next, _) = place.process();
    assert!(next.switch.new_file_id().0 > given[99].0);
}

/// A file whose old identity stands in its record without the doubt would be believed by the next process.
#[test]
fn what_was_kept_while_the_extension_was_off_is_doubtful_for_the_next_process_too() {
    let place = Place::new();
    let (first, _) = place.process();
    let (open, file) = place.open(first);
    let (id, inode) = (file.id(), file.details.lock().key);
    let left = Left::while_off(inode, id, 16384, 0, 3);
    file.replace_contents();
    first.registry.lock().kept.insert(inode, left);
    let manifest = first.switch.manifest().unwrap();
    manifest.detach();
    first.forget_all();
    // Switched on again.
    let fd = open.as_raw_fd();
    let stat = first.os.stat(fd).unwrap();
    first.attach(fd, &stat, b"./t/a.ibd", Attach::Found);
    manifest.attach(Some(1), manifest.detached());
    let again = first.of_descriptor(fd).unwrap();
    assert!(again.id() == id && again.is_doubtful(id));
    let (second, _) = place.process();
    let (_open, next) = place.open(second);
    assert!(next.id() == id && next.is_doubtful(id));
}

/// Whatever it looks like: a write may be under way, and this server may have changed it a moment ago.
#[test]
fn a_file_is_doubtful_that_was_open_before_it_was_known() {
    use std::os::unix::fs::FileExt;
    for closes in [true, false] {
        let place = Place::new();
        let (first, _) = place.process();
        let (open, file) = place.open(first);
        if closes {
            first.detach(open.as_raw_fd());
        }
        let (late, left) = place.late();
        assert_eq!(left, 1);
        assert!(late.switch.new_file_id().0 > file.id().0);
        let again = place.find(late, open.as_raw_fd());
        assert_eq!((again.id(), again.page_size()), (file.id(), 16384));
        assert!(again.is_inherited() && again.is_doubtful(file.id()));
        let became = late.inheritance.became();
        assert_eq!((became.left.0, became.doubtful.0, became.lost.0), (0, 1, 0));
        assert_eq!(became.reasons[0].1, Doubt::Late);
        if closes {
            late.detach(open.as_raw_fd());
        }
        // So it is for the next one, until all was compared of one whose end was known.
        for is_doubtful in [true, !closes] {
            let (next, _) = place.process();
            let (open, known) = place.open(next);
            assert_eq!(known.id(), file.id());
            assert_eq!(known.is_doubtful(file.id()), is_doubtful);
            known.settle(known.id(), 0, 4);
            next.detach(open.as_raw_fd());
        }
        // What is not right any more is not said for a moment.
        let (late, left) = place.late();
        let (next, none) = place.process();
        assert_eq!((left, none), (1, 0));
        open.write_all_at(&[1], 0).unwrap();
        let (_open, new) = place.open(next);
        assert!(new.id() != file.id() && !new.is_doubtful(new.id()));
        drop(late.switch.kill());
    }
}

#[test]
fn another_file_that_was_open_before_it_was_known_is_lost() {
    let place = Place::new();
    let (first, _) = place.process();
    let (open, file) = place.open(first);
    let (late, _) = place.late();
    let birth = &late.os.birth;
    birth.store(7, std::sync::atomic::Ordering::SeqCst);
    let other = place.find(late, open.as_raw_fd());
    assert!(other.id() != file.id() && !other.is_doubtful(other.id()));
    assert_eq!(
        late.inheritance.became().lost_reasons[0].1,
        Doubt::OtherFile
    );
}

/// A recording has given identities before it was known which of them other files have.
#[test]
fn nothing_is_taken_over_late_where_files_have_identities() {
    let place = Place::new();
    std::fs::write(place.folder.path().join("b.ibd"), [0; 65536]).unwrap();
    let (first, _) = place.process();
    let (open, _) = place.open(first);
    let files = &machine_for_tests::core().files;
    assert!(files.switch.start_recording(|| ()));
    let other = File::open(place.folder.path().join("b.ibd")).unwrap();
    let fd = other.as_raw_fd();
    let stat = files.os.stat(fd).unwrap();
    files.attach(fd, &stat, b"./t/b.ibd", Attach::Found);
    let memory = Memory {
        now,
        grow: |_| false,
    };
    let manifest = Manifest::new(place.head, place.records, 4, memory);
    files.switch.keep(manifest);
    assert_eq!(files.inherit_late(), 0);
    let found = place.find(files, open.as_raw_fd());
    assert!(!found.is_inherited());
}

/// A file that was not opened while the extension was on is known again after it was off and on.
#[test]
fn what_was_left_of_a_file_is_kept_while_the_extension_is_off() {
    let place = Place::new();
    let (first, _) = place.process();
    let (open, file) = place.open(first);
    let (late, _) = place.late();
    late.switch.start_tracking(|| late.forget_all());
    let folder = tempfile::tempdir().unwrap();
    let active = machine_for_tests::active_in(&late.switch, folder.path());
    drop(late.switch.kill());
    late.keep(&active.extension);
    let again = place.find(late, open.as_raw_fd());
    assert!(again.id() == file.id() && again.is_doubtful(file.id()));
}
