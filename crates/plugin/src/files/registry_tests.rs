//! The table of descriptors and the registry under the eyes of threads that come late, and clocks that are set.

use std::os::fd::AsRawFd;

use super::*;

/// Data files of a server that begins to follow them, one test at a time.
struct Server {
    folder: tempfile::TempDir,
    _turn: MutexGuard<'static, ()>,
}

impl Server {
    fn new() -> Server {
        let turn = switch::MODE_UNDER_TEST.lock();
        let server = Server {
            folder: tempfile::tempdir().unwrap(),
            _turn: turn,
        };
        server.follow();
        server
    }

    fn follow(&self) {
        assert!(switch::kill().is_none());
        assert!(switch::start_tracking(forget_all));
    }

    /// A file that was not changed of late.
    fn file(&self, name: &str) -> std::fs::File {
        let file = std::fs::File::create(self.folder.path().join(name)).unwrap();
        std::thread::sleep(Duration::from_millis(30));
        file
    }

    fn open(&self, file: &std::fs::File, how: Attach) -> &'static DataFile {
        let fd = file.as_raw_fd();
        attach(fd, &Linux.stat(fd).unwrap(), b"a.ibd", how);
        of_descriptor(fd).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = switch::kill();
        forget_all();
        crate::clock::SET_BY.store(0, Ordering::SeqCst);
    }
}

const OPENED: Attach = Attach::Opened { anew: false };

fn let_pass(time: Duration) {
    crate::clock::PASSED.fetch_add(time.as_nanos() as u64, Ordering::SeqCst);
}

/// What is to be done at which moment.
type Meanwhile = Option<(&'static str, fn())>;

thread_local! {
    static MEANWHILE: std::cell::Cell<Meanwhile> = const { std::cell::Cell::new(None) };
}

/// Does something at a moment of this thread, once.
fn at(moment: &'static str, act: fn()) {
    crate::hold_up::AT.get_or_init(|| {
        |now| {
            let meanwhile = MEANWHILE.take();
            match meanwhile {
                Some((moment, act)) if moment == now => act(),
                other => MEANWHILE.set(other),
            }
        }
    });
    MEANWHILE.set(Some((moment, act)));
}

/// What another session does at a moment of the thread that attaches, or, where the registry's lock keeps it out, after it.
fn switch_off_and_on() {
    if registry_is_free() {
        forget_all();
    }
}

#[test]
fn no_descriptor_leads_to_a_file_at_rest() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let fd = one.as_raw_fd();
    let stat = Linux.stat(fd).unwrap();
    at("attach, registered", switch_off_and_on);
    attach(fd, &stat, b"a.ibd", OPENED);
    assert_eq!(contradictions(), Vec::<String>::new());
    // Objects at rest stand for other files by and by.
    let resting = REGISTRY.lock().resting.len();
    for _ in 0..=resting {
        let_pass(2 * REST);
        let file = server.open(&other, OPENED);
        let known = of_descriptor(fd);
        assert!(
            known.is_none_or(|known| !std::ptr::eq(known, file)),
            "two files have one identity"
        );
        detach(other.as_raw_fd());
        forget_unlinked(file);
    }
}

#[test]
fn who_comes_late_registers_nothing_once_files_are_not_followed() {
    let server = Server::new();
    let file = server.file("a.ibd");
    assert!(switch::kill().is_none());
    forget_all();
    let stat = Linux.stat(file.as_raw_fd()).unwrap();
    attach(file.as_raw_fd(), &stat, b"a.ibd", OPENED);
    assert!(of_descriptor(file.as_raw_fd()).is_none());
}

#[test]
fn a_release_too_many_changes_nothing() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let file = server.open(&one, OPENED);
    let again = loop {
        // The objects at rest stand for files again by and by, this one too.
        forget_all();
        let_pass(2 * REST);
        let again = server.open(&other, OPENED);
        if std::ptr::eq(again, file) {
            break again;
        }
    };
    let known = of_descriptor(other.as_raw_fd()).unwrap();
    let id = again.id();
    for _ in 0..2 {
        REGISTRY.lock().release(file, i32::MAX, None);
    }
    assert!(known.is_open() && known.id() == id);
    assert_eq!(contradictions(), Vec::<String>::new());
}

#[test]
fn an_object_that_somebody_will_come_back_to_is_not_reused() {
    let server = Server::new();
    let (one, other) = (server.file("a.ibd"), server.file("b.ibd"));
    let file = server.open(&one, OPENED);
    let blocked = file.block_inserts();
    forget_all();
    let_pass(2 * REST);
    let resting = REGISTRY.lock().resting.len();
    for _ in 0..=resting {
        assert!(!std::ptr::eq(server.open(&other, OPENED), file));
        forget_all();
        let_pass(2 * REST);
    }
    drop(blocked);
}

#[test]
fn a_clock_set_back_does_not_make_the_time_of_proving_longer() {
    let server = Server::new();
    let one = server.file("a.ibd");
    let fd = one.as_raw_fd();
    let is_marked = || TABLE[fd as usize].load(Ordering::SeqCst).addr() & FOUND != 0;
    server.open(&one, Attach::Found);
    assert!(is_marked());
    crate::clock::SET_BY.store(-3_600_000_000_000, Ordering::SeqCst);
    assert!(of_descriptor(fd).is_some() && is_marked());
    // Nor shorter.
    crate::clock::SET_BY.store(3_600_000_000_000, Ordering::SeqCst);
    assert!(of_descriptor(fd).is_some() && is_marked());
    crate::clock::SET_BY.store(-3_600_000_000_000, Ordering::SeqCst);
    let_pass(PROVE_FOR + Duration::from_secs(1));
    assert!(of_descriptor(fd).is_some() && !is_marked());
}

#[test]
fn a_descriptor_that_was_found_and_closed_unseen_is_forgotten_when_its_file_is_opened() {
    let server = Server::new();
    let one = server.file("a.ibd");
    let second = one.try_clone().unwrap();
    let fd = one.as_raw_fd();
    server.open(&one, Attach::Found);
    drop(one);
    let file = server.open(&second, OPENED);
    assert!(registered(second.as_raw_fd()) && !registered(fd));
    assert_eq!(descriptor_of(file), Some(second.as_raw_fd()));
}

#[test]
fn a_file_closed_and_opened_is_believed_unless_the_clock_was_set_back_meanwhile() {
    let server = Server::new();
    let one = server.file("a.ibd");
    let fd = one.as_raw_fd();
    let first = server.open(&one, OPENED).id();
    detach(fd);
    assert_eq!(server.open(&one, OPENED).id(), first, "nothing has changed");
    detach(fd);
    crate::clock::SET_BY.store(-10_000_000_000, Ordering::SeqCst);
    let second = server.open(&one, OPENED).id();
    assert_ne!(
        second, first,
        "a change may have got the times of the one before"
    );
    detach(fd);
    let third = server.open(&one, OPENED).id();
    assert_ne!(third, second, "changed in the future: nobody knows when");
}
