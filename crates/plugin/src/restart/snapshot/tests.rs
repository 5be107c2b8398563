use std::sync::atomic::Ordering;

use super::*;
use crate::restart::state::RESTART;

const OWNER: [u8; 16] = [3; 16];
const BOOT: u128 = 77;
const REDO: &str = "/var/lib/mysql";
const TOKEN: Token = 9 << 70;
const PARTS: [usize; 2] = [100_000, 200_000];

struct Place {
    disk: tempfile::TempDir,
    memory: tempfile::TempDir,
    records: File,
}

impl Place {
    fn new() -> Place {
        let memory = tempfile::tempdir_in("/dev/shm").unwrap();
        Place {
            disk: tempfile::tempdir().unwrap(),
            records: cache::open_in_memory(&memory.path().join("files")).unwrap(),
            memory,
        }
    }

    fn path(&self) -> PathBuf {
        self.disk.path().join("bpe-0.image")
    }

    fn arena(&self) -> PathBuf {
        self.memory.path().join("arena")
    }

    /// Writes a snapshot as the server does during this boot of the host.
    fn write(&self, boot: u128, owner: [u8; 16], fence: [u64; 4]) {
        self.write_with_header(&StateHeader { boot, owner }.bytes(), boot, owner, fence);
    }

    fn write_with_header(&self, header: &[u8], boot: u128, owner: [u8; 16], fence: [u64; 4]) {
        let parts = PARTS.map(|length| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![1; length], 0).unwrap();
            file
        });
        parts[0].write_all_at(header, 0).unwrap();
        let head = Head {
            owner,
            boot,
            data_device: 5,
            fence,
            redo: REDO.into(),
            token: TOKEN,
            session: 99,
            parts: PARTS.map(|length| length as u64),
            number: 1,
        };
        file::write(&self.path(), &head, parts.each_ref()).unwrap();
    }

    fn load(&self) -> Result<Option<Loaded>, String> {
        self.load_with(Some(TOKEN))
    }

    fn load_with(&self, token: Option<Token>) -> Result<Option<Loaded>, String> {
        let (path, header) = (self.path(), header());
        let path = move || path;
        let proof = Proof { token, fence: now };
        load(path, header, self.arena(), &self.records, proof)
    }

    fn wait_until_invalid(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while Snapshot::open(&self.path()).is_ok() && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(Snapshot::open(&self.path()).is_err(), "it is still there");
    }

    /// Nothing is recovered, now or later.
    fn expect_nothing(&self, what: &str) {
        let taken = self.load();
        assert!(taken.is_err(), "{what}: {taken:?}");
        assert_eq!(self.records.metadata().unwrap().len(), 0, "{what}");
        assert!(!self.arena().exists(), "{what}");
        // The arena is usable for the next process.
        assert!(cache::open_in_memory(&self.arena()).is_ok(), "{what}");
        std::fs::remove_file(self.arena()).unwrap();
    }
}

fn header() -> StateHeader {
    StateHeader {
        boot: BOOT,
        owner: OWNER,
    }
}

fn fence() -> Fence {
    [1, 2, 3, 4]
}

/// The current fence.
fn now(folder: &Path) -> Result<Fence, String> {
    assert_eq!(folder, Path::new(REDO));
    Ok(fence())
}

#[test]
fn all_of_it_is_taken_once() {
    let place = Place::new();
    assert_eq!(place.load(), Ok(None));
    assert!(!place.arena().exists(), "nobody has needed it");
    place.write(BOOT + 1, OWNER, fence());
    let (head, is_proven) = place.load().unwrap().unwrap();
    assert_eq!((head.session, head.data_device, is_proven), (99, 5, Ok(())));
    assert_eq!(head.redo, Path::new(REDO));
    assert_eq!(std::fs::read(place.arena()).unwrap(), vec![1; PARTS[1]]);
    let mut records = vec![9; PARTS[0]];
    place.records.read_exact_at(&mut records, 0).unwrap();
    // The state header is written only after the proof.
    assert_eq!(records[..STATE_HEADER_BYTES], [0; STATE_HEADER_BYTES]);
    assert!(records[STATE_HEADER_BYTES..].iter().all(|&byte| byte == 1));
    assert!(!place.path().exists());
    // The arena's lock is free.
    cache::open_in_memory(&place.arena()).unwrap();
    assert_eq!(place.load(), Ok(None));
}

#[test]
fn unproven_snapshot_is_copied_untrusted() {
    let place = Place::new();
    for (what, token, written) in [
        ("another token", Some(TOKEN + 1), fence()),
        ("no token", None, fence()),
        ("another redo log", Some(TOKEN), [1, 2, 3, 5]),
        ("no redo log", Some(TOKEN), [0; 4]),
    ] {
        place.write(BOOT, OWNER, written);
        let (_, is_proven) = place.load_with(token).unwrap().unwrap();
        assert!(is_proven.is_err(), "{what}");
        assert_eq!(place.load_with(token), Ok(None), "{what}");
        std::fs::remove_file(place.arena()).unwrap();
    }
    // A remount within one boot of the host.
    place.write(BOOT, OWNER, fence());
    assert!(place.load().unwrap().unwrap().1.is_ok());
    std::fs::remove_file(place.arena()).unwrap();
}

#[test]
fn snapshot_of_another_format_is_removed() {
    let place = Place::new();
    place.records.set_len(0).unwrap();
    let other = StateHeader {
        boot: BOOT + 2,
        owner: OWNER,
    };
    for (what, bytes) in [
        ("another start", other.bytes()),
        ("nothing", [0; STATE_HEADER_BYTES]),
    ] {
        place.write_with_header(&bytes, BOOT + 1, OWNER, fence());
        place.expect_nothing(what);
        assert_eq!(place.load(), Ok(None), "{what}");
    }
}

#[test]
fn another_servers_is_left_alone() {
    let place = Place::new();
    place.write(BOOT + 1, [4; 16], fence());
    place.expect_nothing("another server");
    Snapshot::open(&place.path()).unwrap();
}

#[test]
fn damage_that_is_found_late_leaves_nothing() {
    let place = Place::new();
    for at in [4096 + 10, 4096 + 150_000, 4096 + PARTS[0] + PARTS[1] - 1] {
        place.write(BOOT + 1, OWNER, fence());
        let file = cache::open_own(&place.path()).unwrap().unwrap();
        file.write_all_at(&[2], at as u64).unwrap();
        place.expect_nothing("damage");
        assert_eq!(place.load(), Ok(None));
    }
}

#[test]
fn memory_that_cannot_be_had_leaves_nothing() {
    let place = Place::new();
    place.write(BOOT + 1, OWNER, fence());
    let arena = cache::open_in_memory(&place.arena()).unwrap();
    assert!(place.load().is_err(), "somebody has it");
    drop(arena);
    assert_eq!(place.records.metadata().unwrap().len(), 0);
    // It may be older than the file of the next attempt.
    place.wait_until_invalid();
    place.write(BOOT + 1, OWNER, fence());
    std::fs::remove_file(place.arena()).unwrap();
    std::fs::create_dir(place.arena()).unwrap();
    assert!(place.load().is_err(), "not a file");
    assert_eq!(place.records.metadata().unwrap().len(), 0);
}

#[test]
fn a_disk_that_hangs_is_waited_for_a_second() {
    let place = Place::new();
    place.write(BOOT + 1, OWNER, fence());
    let (free, wait) = std::sync::mpsc::channel::<()>();
    let wait = Mutex::new(wait);
    let path = place.path();
    let began = Instant::now();
    let hangs = move || {
        let _ = wait.lock().recv();
        path
    };
    let proof = Proof {
        token: Some(TOKEN),
        fence: now,
    };
    let taken = load(hangs, header(), place.arena(), &place.records, proof);
    assert!(taken.is_err_and(|why| why.contains("not answered")));
    assert!(began.elapsed() < Duration::from_secs(30));
    place.records.write_all_at(b"in use", 0).unwrap();
    drop(free);
    // The late thread finds its destination taken away.
    place.wait_until_invalid();
    assert!(cache::open_in_memory(&place.arena()).is_ok());
    assert_eq!(place.records.metadata().unwrap().len(), 6);
}

#[test]
fn snapshot_is_beside_first_cache_file() {
    let folder = tempfile::tempdir().unwrap();
    let owner = OwnerIdentity(OWNER);
    let snapshot = folder.path().join("bpe-0303030303030303.image");
    assert_eq!(snapshot_path(folder.path(), &owner), snapshot);
    assert_eq!(
        snapshot_path(&folder.path().join("my.cache"), &owner),
        snapshot
    );
}

#[test]
fn an_end_of_somebody_else_writes_nothing() {
    let _turn = crate::platform::process::UNDER_TEST.lock();
    *RESTART.snapshot.lock() = Some(ShutdownSnapshot {
        place: PathBuf::from("/nowhere"),
        header: header(),
        data_device: 0,
    });
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let before = RESTART.process.swap(process, Ordering::SeqCst);
    // This runs in a thread of the test.
    at_end();
    RESTART.process.store(before, Ordering::SeqCst);
    assert!(RESTART.snapshot.lock().take().is_some());
}

#[test]
fn unwritten_data_are_counted() {
    let text = "MemFree: 9 kB\nDirty:      1000 kB\nWriteback:    24 kB\nWritebackTmp:  7 kB\n";
    assert_eq!(unwritten(text), Some(1 << 20));
    assert_eq!(unwritten("Dirty: 1000 kB\n"), None);
    assert_eq!(unwritten("Dirty: many\nWriteback: 1 kB\n"), None);
    assert!(unwritten(&std::fs::read_to_string("/proc/meminfo").unwrap()).is_some());
}
