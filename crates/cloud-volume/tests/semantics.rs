//! Clients must observe the same behaviour on the volume and on a plain directory.

mod common;

use std::ffi::CString;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use cloud_volume::{Options, Profile};
use common::{Page, Trial, open_direct};
use rustix::fs::{CWD, FallocateFlags, RenameFlags, SeekFrom, fallocate, renameat_with, seek};

/// The observations, line by line.
#[derive(Default)]
struct Log(Vec<String>);

impl Log {
    fn note(&mut self, what: &str, seen: impl Debug) {
        self.0.push(format!("{what}: {seen:?}"));
    }

    /// A result: its value, or its error number.
    fn outcome<T: Debug, E: Into<io::Error>>(&mut self, what: &str, result: Result<T, E>) {
        let result = result.map_err(|error| error.into().raw_os_error());
        self.note(what, result);
    }

    fn file(&mut self, what: &str, file: &File) {
        let m = file.metadata().unwrap();
        self.note(what, (m.len(), m.nlink(), m.mode(), m.uid(), m.gid()));
        let mut contents = vec![0; m.len() as usize];
        file.read_exact_at(&mut contents, 0).unwrap();
        let sum = contents
            .iter()
            .fold(17_u64, |sum, byte| sum.wrapping_mul(31) + u64::from(*byte));
        self.note("contents", sum);
    }
}

fn read_write(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

fn contents_and_space(dir: &Path) -> Log {
    let mut log = Log::default();
    let path = dir.join("file");
    let create = || {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        options.open(&path)
    };
    let file = create().unwrap();
    log.outcome("create again", create().map(drop));
    file.write_all_at(&[1; 100_000], 0).unwrap();
    file.write_all_at(&[2; 5000], 150_000).unwrap();
    log.file("written", &file);
    file.set_len(120_001).unwrap();
    log.file("cut", &file);
    file.set_len(300_000).unwrap();
    log.file("grown", &file);
    log.outcome(
        "allocate",
        fallocate(&file, FallocateFlags::empty(), 0, 400_000),
    );
    log.file("allocated", &file);
    log.outcome(
        "allocate beyond, size kept",
        fallocate(&file, FallocateFlags::KEEP_SIZE, 400_000, 100_000),
    );
    log.file("allocated beyond", &file);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    log.outcome("punch", fallocate(&file, punch, 16384, 32768));
    log.file("punched", &file);
    log.outcome("punch unaligned", fallocate(&file, punch, 70_001, 9999));
    log.file("punched unaligned", &file);
    log.outcome(
        "zero",
        fallocate(&file, FallocateFlags::ZERO_RANGE, 1000, 9000),
    );
    log.file("zeroed", &file);
    log.outcome(
        "punch and grow",
        fallocate(&file, FallocateFlags::PUNCH_HOLE, 0, 4096),
    );
    // SAFETY: an open descriptor and plain numbers.
    let result = unsafe { libc::posix_fallocate(file.as_raw_fd(), 300_000, 200_000) };
    log.note("posix_fallocate", result);
    log.file("posix allocated", &file);

    // Plain writes only: in allocated space, the extents that count as data depend on the page cache.
    let holes = File::create_new(dir.join("holes")).unwrap();
    holes.write_all_at(&[1; 65536], 0).unwrap();
    holes.write_all_at(&[2; 4096], 200_704).unwrap();
    log.outcome("punch", fallocate(&holes, punch, 16384, 32768));
    for from in [0, 16384, 50_000, 65536, 200_000, 204_799, 204_800] {
        log.outcome("hole", seek(&holes, SeekFrom::Hole(from)));
        log.outcome("data", seek(&holes, SeekFrom::Data(from)));
    }

    let mut appended = OpenOptions::new().append(true).open(&path).unwrap();
    appended.write_all(b"end").unwrap();
    log.file("appended", &file);
    log.outcome("write to a read-only file", {
        let mut file = File::open(&path).unwrap();
        file.write_all(b"no")
    });
    drop(File::create(&path).unwrap());
    log.file("truncated by open", &file);
    let copied = fs::copy(dir.join("file"), dir.join("copy"));
    log.outcome("copy of nothing", copied);
    file.write_all_at(&[9; 70_000], 0).unwrap();
    log.outcome("copy", fs::copy(&path, dir.join("copy")));
    log.file("copied", &File::open(dir.join("copy")).unwrap());
    log
}

fn direct(dir: &Path) -> Log {
    let mut log = Log::default();
    let path = dir.join("direct");
    let file = open_direct(&path);
    let page = Page::of(5);
    for n in 0..8 {
        file.write_all_at(&page.0, n * 16384).unwrap();
    }
    let mut back = Page::of(0);
    log.outcome("read", file.read_at(&mut back.0, 16384));
    log.note("same", back.0 == page.0);
    log.outcome("read at the end", file.read_at(&mut back.0, 8 * 16384));
    log.outcome("short write", file.write_at(&page.0[..512], 512));
    log.outcome("short read", file.read_at(&mut back.0[..1024], 0));
    log.outcome("odd offset", file.read_at(&mut back.0, 100));
    log.outcome("odd length", file.write_at(&page.0[..100], 0));
    // Like MySQL: enable direct I/O later, on a file opened without it.
    let later = read_write(&path).unwrap();
    rustix::fs::fcntl_setfl(&later, rustix::fs::OFlags::DIRECT).unwrap();
    log.outcome("later", later.write_at(&Page::of(6).0, 0));
    log.outcome("later, odd", later.write_at(&page.0[..100], 0));
    log.file("buffered view", &File::open(&path).unwrap());
    log
}

fn names(dir: &Path) -> Log {
    let mut log = Log::default();
    let [a, b, sub] = ["a", "b", "sub"].map(|name| dir.join(name));
    fs::write(&a, "a").unwrap();
    fs::write(&b, "bb").unwrap();
    log.outcome("mkdir", fs::create_dir(&sub));
    log.outcome("mkdir again", fs::create_dir(&sub));
    log.outcome("open nothing", File::open(dir.join("nothing")).map(drop));
    log.outcome("open below a file", File::open(a.join("x")).map(drop));
    log.outcome("unlink a directory", fs::remove_file(&sub));
    log.outcome("rmdir a file", fs::remove_dir(&a));

    let open_b = read_write(&b).unwrap();
    let exclusive = renameat_with(CWD, &a, CWD, &b, RenameFlags::NOREPLACE);
    log.outcome("rename, not replacing", exclusive);
    let exchange = renameat_with(CWD, &a, CWD, &b, RenameFlags::EXCHANGE);
    log.outcome("exchange", exchange);
    log.outcome("a", fs::read(&a));
    log.outcome("rename over", fs::rename(&b, &a));
    log.outcome("a", fs::read(&a));
    log.file("replaced but open", &open_b);
    open_b.write_all_at(b"still here", 0).unwrap();
    log.file("written after", &open_b);

    let open_a = read_write(&a).unwrap();
    log.outcome("link", fs::hard_link(&a, sub.join("link")));
    log.note("links", open_a.metadata().unwrap().nlink());
    log.outcome("rmdir of a full one", fs::remove_dir(&sub));
    log.outcome("unlink", fs::remove_file(&a));
    log.note("links", open_a.metadata().unwrap().nlink());
    log.outcome("unlink link", fs::remove_file(sub.join("link")));
    log.note("links", open_a.metadata().unwrap().nlink());
    open_a.write_all_at(&[3; 50_000], 0).unwrap();
    log.file("gone but open", &open_a);
    log.outcome("rmdir", fs::remove_dir(&sub));

    log.outcome("symlink", symlink("over/there", dir.join("symbolic")));
    log.outcome("readlink", fs::read_link(dir.join("symbolic")));
    log.outcome("through it", fs::read(dir.join("symbolic")));
    log.outcome(
        "chown symlink",
        std::os::unix::fs::lchown(dir.join("symbolic"), None, None),
    );

    let many = dir.join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..1500 {
        File::create(many.join(format!("a file with number {n}"))).unwrap();
    }
    let mut listed: Vec<_> = fs::read_dir(&many)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| (entry.file_name(), entry.file_type().unwrap().is_file()))
        .collect();
    listed.sort();
    log.note("listed", listed);
    log.outcome("remove all", fs::remove_dir_all(&many));
    log
}

fn attributes(dir: &Path) -> Log {
    let mut log = Log::default();
    let path = dir.join("attributes");
    let create = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o640)
        .open(&path);
    let file = create.unwrap();
    log.note("mode", file.metadata().unwrap().mode());
    log.outcome(
        "chmod",
        fs::set_permissions(&path, PermissionsExt::from_mode(0o4711)),
    );
    log.note("mode", file.metadata().unwrap().mode());
    let owner = std::os::unix::fs::fchown(&file, Some(1234), Some(4321));
    log.outcome("chown", owner);
    let m = file.metadata().unwrap();
    log.note("owner", (m.uid(), m.gid(), m.mode()));
    let old = std::time::UNIX_EPOCH - std::time::Duration::from_secs(1500);
    let later = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(1_234_567_890);
    let times = fs::FileTimes::new().set_modified(old).set_accessed(later);
    log.outcome("times", file.set_times(times));
    let m = file.metadata().unwrap();
    log.note(
        "times",
        (m.mtime(), m.mtime_nsec(), m.atime(), m.atime_nsec()),
    );
    let sticky = dir.join("group");
    fs::create_dir(&sticky).unwrap();
    log.outcome("setgid", std::os::unix::fs::chown(&sticky, None, Some(77)));
    log.outcome(
        "setgid",
        fs::set_permissions(&sticky, PermissionsExt::from_mode(0o2775)),
    );
    fs::create_dir(sticky.join("sub")).unwrap();
    fs::write(sticky.join("file"), "").unwrap();
    for name in ["sub", "file"] {
        let m = fs::metadata(sticky.join(name)).unwrap();
        log.note(name, (m.mode(), m.gid()));
    }
    let fifo = CString::new(dir.join("fifo").as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends in zero, alive during the call.
    log.note("mkfifo", unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) });
    log.note("fifo", fs::metadata(dir.join("fifo")).unwrap().mode());
    log
}

/// Runs `scenario` on a plain directory and on a volume, and compares the observations.
fn compare(scenario: fn(&Path) -> Log) {
    for forget_unsynced in [false, true] {
        let options = Options {
            profile: Profile::unlimited(),
            forget_unsynced,
            ..Options::default()
        };
        let Some(trial) = Trial::mount(options) else {
            return;
        };
        let plain = trial.folder.path().join("plain");
        fs::create_dir(&plain).unwrap();
        let expected = scenario(&plain).0;
        let seen = scenario(trial.volume.mountpoint()).0;
        assert!(!expected.is_empty());
        for (expected, seen) in expected.iter().zip(&seen) {
            assert_eq!(seen, expected, "(volume, plain directory)");
        }
        assert_eq!(seen.len(), expected.len());
    }
}

#[test]
fn contents_and_space_behave_as_on_a_plain_directory() {
    compare(contents_and_space);
}

#[test]
fn direct_files_behave_as_on_a_plain_directory() {
    compare(direct);
}

#[test]
fn names_behave_as_on_a_plain_directory() {
    compare(names);
}

#[test]
fn attributes_behave_as_on_a_plain_directory() {
    if !rustix::process::geteuid().is_root() {
        return common::skip("only root can give files away");
    }
    compare(attributes);
}

#[test]
fn files_are_identified_by_their_backing_inode() {
    let Some(trial) = Trial::mount(unlimited()) else {
        return;
    };
    let path = trial.path("file");
    let file = open_direct(&path);
    let backing = || fs::metadata(trial.backing("file")).unwrap();
    let id = |m: fs::Metadata| {
        (
            m.ino(),
            m.size(),
            m.mtime_nsec(),
            m.ctime_nsec(),
            m.nlink(),
            m.blocks(),
        )
    };
    assert_eq!(id(file.metadata().unwrap()), id(backing()));
    file.write_all_at(&Page::of(1).0, 0).unwrap();
    assert_eq!(id(file.metadata().unwrap()), id(backing()));
    rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 1 << 20).unwrap();
    assert_eq!(id(file.metadata().unwrap()), id(backing()));
    assert_eq!(id(fs::metadata(&path).unwrap()), id(backing()));
    let full = backing().blocks();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, punch, 0, 1 << 19).unwrap();
    assert_eq!(id(file.metadata().unwrap()), id(backing()));
    assert!(backing().blocks() <= full / 2 + 16);
    let device = fs::metadata(trial.volume.mountpoint()).unwrap().dev();
    assert_eq!(file.metadata().unwrap().dev(), device);
    fs::rename(&path, trial.path("renamed")).unwrap();
    let renamed = fs::metadata(trial.backing("renamed")).unwrap();
    assert_eq!(id(file.metadata().unwrap()), id(renamed));
    // While the old file is open, its inode number is not reused.
    fs::remove_file(trial.path("renamed")).unwrap();
    for n in 0..50 {
        let new = File::create(trial.path(&format!("new {n}"))).unwrap();
        assert_ne!(
            new.metadata().unwrap().ino(),
            file.metadata().unwrap().ino()
        );
    }
}

#[test]
fn mappings_see_and_make_changes() {
    let Some(trial) = Trial::mount(unlimited()) else {
        return;
    };
    fs::write(trial.path("mapped"), [1; 8192]).unwrap();
    for file in [
        read_write(&trial.path("mapped")).unwrap(),
        open_direct(&trial.path("mapped")),
    ] {
        // SAFETY: a new shared mapping of a file of this length, at an address chosen by the kernel.
        let map = unsafe {
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                8192,
                prot,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(map, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        let map = map.cast::<u8>();
        // SAFETY: inside the mapping, which no other code uses; unmapped after the last use.
        unsafe {
            assert!(matches!(*map.add(100), 1 | 9));
            *map.add(4096) = 9;
            *map.add(100) = 9;
            assert_eq!(libc::msync(map.cast(), 8192, libc::MS_SYNC), 0);
            libc::munmap(map.cast(), 8192);
        }
        let below = fs::read(trial.backing("mapped")).unwrap();
        assert_eq!((below[100], below[4096], below[4097]), (9, 9, 1));
    }
}

#[test]
fn sockets_work() {
    let Some(trial) = Trial::mount(unlimited()) else {
        return;
    };
    let path = trial.path("socket");
    let listener = UnixListener::bind(&path).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    listener.accept().unwrap();
}

#[test]
fn space_is_that_of_the_backing_directory() {
    let Some(trial) = Trial::mount(unlimited()) else {
        return;
    };
    let through = rustix::fs::statvfs(trial.volume.mountpoint()).unwrap();
    let below = rustix::fs::statvfs(trial.volume.backing()).unwrap();
    assert_eq!(
        through.f_blocks * through.f_frsize,
        below.f_blocks * below.f_frsize
    );
    assert_eq!(through.f_namemax, below.f_namemax);
}

/// POSIX locks hold against another process: this test runs itself as that process.
#[test]
fn locks_hold_against_other_processes() {
    use rustix::fs::{FlockOperation, fcntl_lock};
    const CHILD: &str = "CLOUD_VOLUME_TEST_LOCKED";
    let exclusive = FlockOperation::NonBlockingLockExclusive;
    if let Some(path) = std::env::var_os(CHILD) {
        let file = read_write(Path::new(&path)).unwrap();
        let code = match fcntl_lock(&file, exclusive) {
            Ok(()) => 0,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => 3,
            Err(_) => 4,
        };
        std::process::exit(code);
    }
    let Some(trial) = Trial::mount(unlimited()) else {
        return;
    };
    let path = trial.path("locked");
    fs::write(&path, "x").unwrap();
    let file = read_write(&path).unwrap();
    let other = || {
        std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "locks_hold_against_other_processes"])
            .env(CHILD, &path)
            .current_dir("/")
            .output()
            .unwrap()
            .status
            .code()
    };
    fcntl_lock(&file, exclusive).unwrap();
    assert_eq!(other(), Some(3));
    fcntl_lock(&file, FlockOperation::NonBlockingUnlock).unwrap();
    assert_eq!(other(), Some(0));
}

#[test]
fn files_still_open_are_cut_off_by_an_unmount() {
    let Some(trial) = Trial::mount(unlimited()) else {
        return;
    };
    let file = File::create(trial.path("open")).unwrap();
    let Trial { volume, folder } = trial;
    let (mountpoint, backing) = (volume.mountpoint().to_owned(), volume.backing().to_owned());
    volume.unmount().unwrap();
    assert!(file.write_at(b"x", 0).is_err());
    assert!(!mountpoint.join("open").exists());
    assert!(backing.join("open").exists());
    drop(folder);
}

#[test]
fn a_volume_can_cover_its_own_backing_directory() {
    if !common::fuse() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "below").unwrap();
    let profile = Profile::unlimited();
    let volume = match cloud_volume::CloudVolume::mount(folder.path(), folder.path(), profile) {
        Ok(volume) => volume,
        Err(error) => return common::skip(&error.to_string()),
    };
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"below");
    assert!(volume.statistics().reads > 0);
    volume.unmount().unwrap();
    assert_eq!(fs::read(folder.path().join("file")).unwrap(), b"below");
}

fn unlimited() -> Options {
    Options {
        profile: Profile::unlimited(),
        ..Options::default()
    }
}
