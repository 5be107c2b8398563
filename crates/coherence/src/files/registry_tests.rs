//! The descriptor table and the registry with late threads and changed clocks.

use std::os::fd::AsRawFd;
use std::time::Duration;

use super::data_file::*;
use super::descriptor_table::*;
use super::registry::*;
use crate::platform::os::Os as _;
use crate::platform::sync::Ordering;
use crate::testing::os_for_tests::{self, TestOs};
use crate::testing::sync_point::run_at as at;

/// Data files of a server when tracking begins.
struct Server {
    folder: tempfile::TempDir,
    files: &'static Files<TestOs>,
}

impl Server {
    fn new() -> Server {
        let server = Server {
            folder: tempfile::tempdir().unwrap(),
            files: &os_for_tests::core().files,
        };
        assert!(server.files.switch.start_tracking(|| ()));
        server
    }

    fn let_pass(&self, time: Duration) {
        self.files.os.let_pass(time);
    }

    /// A file that was not changed recently.
    fn file(&self, name: &str) -> std::fs::File {
        let file = std::fs::File::create(self.folder.path().join(name)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        file
    }

    fn open(&self, file: &std::fs::File, how: Attach) -> &'static DataFile {
        let fd = file.as_raw_fd();
        let stat = self.files.os.stat(fd).unwrap();
        self.files.attach(fd, &stat, b"a.ibd", how);
        self.files.of_descriptor(fd).unwrap()
    }
}

const OPENED: Attach = Attach::Opened { anew: false };

/// Forgets all files like another session, while a thread attaches. Does nothing while that thread holds the registry's lock.
fn switch_off_and_on(files: &'static Files<TestOs>) {
    if files.registry_is_free() {
        files.forget_all();
    }
}

#[test]
fn no_descriptor_leads_to_a_file_at_rest() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let fd = one.as_raw_fd();
    let stat = server.files.os.stat(fd).unwrap();
    let files = server.files;
    at("attach, registered", || switch_off_and_on(files));
    server.files.attach(fd, &stat, b"a.ibd", OPENED);
    assert_eq!(server.files.contradictions(), Vec::<String>::new());
    // Quarantined objects are reused for other files one by one.
    let quarantined = server.files.registry.lock().quarantined.len();
    for _ in 0..=quarantined {
        server.let_pass(2 * QUARANTINE);
        let file = server.open(&other, OPENED);
        let known = server.files.of_descriptor(fd);
        assert!(
            known.is_none_or(|known| !std::ptr::eq(known, file)),
            "two files have one identity"
        );
        server.files.detach(other.as_raw_fd());
        server.files.forget_unlinked(file);
    }
}

#[test]
fn descriptor_beyond_the_table_is_listed_once() {
    let server = Server::new();
    let stat = server
        .files
        .os
        .stat(server.file("a.ibd").as_raw_fd())
        .unwrap();
    let beyond = server.files.table.used_slots().len() as i32 + 100_000;
    for _ in 0..2 {
        server.files.attach(beyond, &stat, b"a.ibd", OPENED);
    }
    let file = server.files.of_number(stat.inode).unwrap();
    assert_eq!(file.details.lock().descriptors, [beyond]);
}

#[test]
fn who_comes_late_registers_nothing_once_files_are_not_followed() {
    let server = Server::new();
    let file = server.file("a.ibd");
    assert!(server.files.switch.kill().is_none());
    server.files.forget_all();
    let stat = server.files.os.stat(file.as_raw_fd()).unwrap();
    server
        .files
        .attach(file.as_raw_fd(), &stat, b"a.ibd", OPENED);
    assert!(server.files.of_descriptor(file.as_raw_fd()).is_none());
}

#[test]
fn a_release_too_many_changes_nothing() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let file = server.open(&one, OPENED);
    let again = loop {
        // Quarantined objects are reused one by one, this one too.
        server.files.forget_all();
        server.let_pass(2 * QUARANTINE);
        let again = server.open(&other, OPENED);
        if std::ptr::eq(again, file) {
            break again;
        }
    };
    let known = server.files.of_descriptor(other.as_raw_fd()).unwrap();
    let id = again.id();
    for _ in 0..2 {
        server
            .files
            .release(&mut server.files.registry.lock(), file, i32::MAX, None);
    }
    assert!(known.is_open() && known.id() == id);
    assert_eq!(server.files.contradictions(), Vec::<String>::new());
}

#[test]
fn an_object_that_somebody_will_come_back_to_is_not_reused() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let file = server.open(&one, OPENED);
    let blocked = file.block();
    server.files.forget_all();
    server.let_pass(2 * QUARANTINE);
    let quarantined = server.files.registry.lock().quarantined.len();
    for _ in 0..=quarantined {
        assert!(!std::ptr::eq(server.open(&other, OPENED), file));
        server.files.forget_all();
        server.let_pass(2 * QUARANTINE);
    }
    drop(blocked);
}

/// The query takes a minute. During it the files are forgotten, and the object comes to represent another file.
#[test]
fn descriptor_with_slow_stat_is_looked_up_again() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let files = server.files;
    let fd = one.as_raw_fd();
    let stat = files.os.stat(fd).unwrap();
    files.attach(fd, &stat, b"a.ibd", Attach::Found);
    let object = file_of(files.table.slots[fd as usize].load(Ordering::SeqCst)).unwrap();
    let other_fd = other.as_raw_fd();
    at("prove, asked", move || {
        let stat = files.os.stat(other_fd).unwrap();
        loop {
            files.forget_all();
            files.os.let_pass(2 * QUARANTINE);
            files.attach(other_fd, &stat, b"b.ibd", Attach::Found);
            let entry = files.table.slots[other_fd as usize].load(Ordering::SeqCst);
            if std::ptr::eq(file_of(entry).unwrap(), object) {
                break;
            }
        }
    });
    assert!(files.of_descriptor(fd).is_none(), "it is another file's");
}

#[test]
fn a_clock_set_back_does_not_make_the_time_of_proving_longer() {
    let server = Server::new();
    let one = server.file("a.ibd");
    let fd = one.as_raw_fd();
    let is_marked = || {
        server.files.table.slots[fd as usize]
            .load(Ordering::SeqCst)
            .addr()
            & FOUND
            != 0
    };
    server.open(&one, Attach::Found);
    assert!(is_marked());
    server.files.os.set_clock_by(-3_600_000_000_000);
    assert!(server.files.of_descriptor(fd).is_some() && is_marked());
    // A clock set forward does not make it shorter.
    server.files.os.set_clock_by(3_600_000_000_000);
    assert!(server.files.of_descriptor(fd).is_some() && is_marked());
    server.files.os.set_clock_by(-3_600_000_000_000);
    server.let_pass(FOUND_TIMEOUT + Duration::from_secs(1));
    assert!(server.files.of_descriptor(fd).is_some() && !is_marked());
}

#[test]
fn found_descriptor_closed_unseen_is_forgotten_at_open() {
    let server = Server::new();
    let one = server.file("a.ibd");
    let second = one.try_clone().unwrap();
    let fd = one.as_raw_fd();
    server.open(&one, Attach::Found);
    drop(one);
    let file = server.open(&second, OPENED);
    assert!(server.files.is_registered(second.as_raw_fd()) && !server.files.is_registered(fd));
    assert_eq!(server.files.descriptor_of(file), Some(second.as_raw_fd()));
}

#[test]
fn closed_file_keeps_identity_if_its_stamp_is_settled() {
    let server = Server::new();
    let one = server.file("a.ibd");
    let fd = one.as_raw_fd();
    let first = server.open(&one, OPENED).id();
    server.files.detach(fd);
    assert_eq!(server.open(&one, OPENED).id(), first, "nothing has changed");
    server.files.detach(fd);
    one.set_len(100).unwrap();
    let second = server.open(&one, OPENED).id();
    assert_ne!(second, first, "it was changed while it was closed");
    // The clock shows the tick of the last change, so a further change may have the same stamp.
    server.files.os.set_clock_by(-10_000_000_000);
    server.files.detach(fd);
    assert_ne!(server.open(&one, OPENED).id(), second);
}

#[test]
fn descriptor_of_another_file_in_between_voids_lease() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let files = server.files;
    let fd = one.as_raw_fd();
    let stats = [&one, &other].map(|file| files.os.stat(file.as_raw_fd()).unwrap());
    let file = server.open(&one, OPENED);
    let lease = files.lease(file).unwrap();
    assert!(files.is_valid(file, &lease));
    files.detach(fd);
    assert!(!files.is_valid(file, &lease), "it is closed");
    files.attach(fd, &stats[1], b"b.ibd", OPENED);
    files.detach(fd);
    files.attach(fd, &stats[0], b"a.ibd", OPENED);
    assert!(
        files
            .of_descriptor(fd)
            .is_some_and(|now| std::ptr::eq(now, file))
    );
    assert!(
        !files.is_valid(file, &lease),
        "what was read meanwhile is the other's"
    );
}
