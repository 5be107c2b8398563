use super::*;

const OWNER: [u8; 16] = [3; 16];
const BOOT: u128 = 77;
const REDO: &str = "/var/lib/mysql";
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
            records: extension::open_in_memory(&memory.path().join("files")).unwrap(),
            memory,
        }
    }

    fn path(&self) -> PathBuf {
        self.disk.path().join("bpe-0.image")
    }

    fn arena(&self) -> PathBuf {
        self.memory.path().join("arena")
    }

    /// As the server has left it in this start of the machine.
    fn write(&self, boot: u128, owner: [u8; 16], fence: [u64; 4]) {
        self.write_labelled(&Label { boot, owner }.bytes(), boot, owner, fence);
    }

    fn write_labelled(&self, label: &[u8], boot: u128, owner: [u8; 16], fence: [u64; 4]) {
        let parts = PARTS.map(|length| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&vec![1; length], 0).unwrap();
            file
        });
        parts[0].write_all_at(label, 0).unwrap();
        let head = Head {
            owner,
            boot,
            data_device: 5,
            fence,
            redo: REDO.into(),
            session: 99,
            parts: PARTS.map(|length| length as u64),
            number: 1,
        };
        file::write(&self.path(), &head, parts.each_ref()).unwrap();
    }

    fn take(&self) -> Result<Option<Head>, String> {
        self.take_with(Some(now))
    }

    /// The same of somebody who comes late.
    fn take_late(&self) -> Result<Option<Head>, String> {
        self.take_with(None::<fn(&Path) -> Result<Fence, String>>)
    }

    fn take_with(
        &self,
        fence: Option<impl FnOnce(&Path) -> Result<Fence, String> + Send + 'static>,
    ) -> Result<Option<Head>, String> {
        let (path, label) = (self.path(), label());
        let path = move || path;
        take(path, label, self.arena(), &self.records, fence, PATIENCE)
    }

    fn wait_until_invalid(&self) {
        let until = Instant::now() + Duration::from_secs(30);
        while Image::open(&self.path()).is_ok() && Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(Image::open(&self.path()).is_err(), "it is still there");
    }

    /// Nothing was taken over, and the next look finds nothing either.
    fn expect_nothing(&self, what: &str) {
        let taken = self.take();
        assert!(taken.is_err(), "{what}: {taken:?}");
        assert_eq!(self.records.metadata().unwrap().len(), 0, "{what}");
        assert!(!self.arena().exists(), "{what}");
        // It does no harm to anybody who opens it now.
        assert!(extension::open_in_memory(&self.arena()).is_ok(), "{what}");
        std::fs::remove_file(self.arena()).unwrap();
    }
}

fn label() -> Label {
    Label {
        boot: BOOT,
        owner: OWNER,
    }
}

fn fence() -> Fence {
    [1, 2, 3, 4]
}

/// Of the log as it is now.
fn now(folder: &Path) -> Result<Fence, String> {
    assert_eq!(folder, Path::new(REDO));
    Ok(fence())
}

#[test]
fn all_of_it_is_taken_once() {
    let place = Place::new();
    assert_eq!(place.take(), Ok(None));
    assert!(!place.arena().exists(), "nobody has needed it");
    place.write(BOOT + 1, OWNER, fence());
    let head = place.take().unwrap().unwrap();
    assert_eq!((head.session, head.data_device), (99, 5));
    assert_eq!(head.redo, Path::new(REDO));
    assert_eq!(std::fs::read(place.arena()).unwrap(), vec![1; PARTS[1]]);
    let mut records = vec![9; PARTS[0]];
    place.records.read_exact_at(&mut records, 0).unwrap();
    // Whose and of which start it is, is not said before it is believed.
    assert_eq!(records[..LABEL], [0; LABEL]);
    assert!(records[LABEL..].iter().all(|&byte| byte == 1));
    assert!(!place.path().exists());
    // The arena's lock is free.
    extension::open_in_memory(&place.arena()).unwrap();
    assert_eq!(place.take(), Ok(None));
}

#[test]
fn what_does_not_fit_is_refused_and_invalid_from_then_on() {
    let place = Place::new();
    for (what, boot, written) in [
        ("the same start", BOOT, fence()),
        ("another redo log", BOOT + 1, [1, 2, 3, 5]),
        ("no redo log", BOOT + 1, [0; 4]),
    ] {
        place.write(boot, OWNER, written);
        place.expect_nothing(what);
        assert_eq!(place.take(), Ok(None), "{what}");
    }
    let other = Label {
        boot: BOOT + 2,
        owner: OWNER,
    };
    for (what, bytes) in [("another start", other.bytes()), ("nothing", [0; LABEL])] {
        place.write_labelled(&bytes, BOOT + 1, OWNER, fence());
        place.expect_nothing(what);
        assert_eq!(place.take(), Ok(None), "{what}");
    }
}

#[test]
fn whoever_comes_late_asks_no_log() {
    let place = Place::new();
    for fence in [fence(), [1, 2, 3, 5]] {
        place.write(BOOT + 1, OWNER, fence);
        let head = place.take_late().unwrap().unwrap();
        assert_eq!(head.session, 99);
        assert!(!place.path().exists());
        assert_eq!(place.take_late(), Ok(None));
    }
    for (owner, boot) in [([4; 16], BOOT + 1), (OWNER, BOOT)] {
        place.write(boot, owner, fence());
        assert!(place.take_late().is_err());
    }
}

#[test]
fn another_servers_is_left_alone() {
    let place = Place::new();
    place.write(BOOT + 1, [4; 16], fence());
    place.expect_nothing("another server");
    Image::open(&place.path()).unwrap();
}

#[test]
fn damage_that_is_found_late_leaves_nothing() {
    let place = Place::new();
    for at in [4096 + 10, 4096 + 150_000, 4096 + PARTS[0] + PARTS[1] - 1] {
        place.write(BOOT + 1, OWNER, fence());
        let file = extension::open_own(&place.path()).unwrap().unwrap();
        file.write_all_at(&[2], at as u64).unwrap();
        place.expect_nothing("damage");
        assert_eq!(place.take(), Ok(None));
    }
}

#[test]
fn memory_that_cannot_be_had_leaves_nothing() {
    let place = Place::new();
    place.write(BOOT + 1, OWNER, fence());
    let arena = extension::open_in_memory(&place.arena()).unwrap();
    assert!(place.take().is_err(), "somebody has it");
    drop(arena);
    assert_eq!(place.records.metadata().unwrap().len(), 0);
    // It may be older than what is there the next time.
    place.wait_until_invalid();
    place.write(BOOT + 1, OWNER, fence());
    std::fs::remove_file(place.arena()).unwrap();
    std::fs::create_dir(place.arena()).unwrap();
    assert!(place.take().is_err(), "not a file");
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
    let taken = take(
        hangs,
        label(),
        place.arena(),
        &place.records,
        Some(now),
        PATIENCE,
    );
    assert!(taken.is_err_and(|why| why.contains("not answered")));
    assert!(began.elapsed() < Duration::from_secs(30));
    place.records.write_all_at(b"in use", 0).unwrap();
    drop(free);
    // When it comes at last it finds that nobody wants it.
    place.wait_until_invalid();
    assert!(extension::open_in_memory(&place.arena()).is_ok());
    assert_eq!(place.records.metadata().unwrap().len(), 6);
}

#[test]
fn the_image_lies_beside_the_first_cache_file() {
    let folder = tempfile::tempdir().unwrap();
    let owner = OwnerIdentity(OWNER);
    let image = folder.path().join("bpe-0303030303030303.image");
    assert_eq!(image_at(folder.path(), &owner), image);
    assert_eq!(image_at(&folder.path().join("my.cache"), &owner), image);
}

#[test]
fn an_end_of_somebody_else_writes_nothing() {
    let _turn = crate::process::UNDER_TEST.lock();
    *KNOWN.kept.leaving.lock() = Some(Leaving {
        place: PathBuf::from("/nowhere"),
        label: label(),
        data_device: 0,
    });
    let process = rustix::process::getpid().as_raw_nonzero().get();
    let before = KNOWN.kept.process.swap(process, Ordering::SeqCst);
    // This is a thread of the test.
    at_end();
    KNOWN.kept.process.store(before, Ordering::SeqCst);
    assert!(KNOWN.kept.leaving.lock().take().is_some());
}
