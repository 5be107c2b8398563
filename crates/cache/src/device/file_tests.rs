//! Tests of opening cache files.

use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::common::config::OwnerIdentity;
use crate::device::segment::format::DATA_OFFSET;

const BYTES: u64 = MIN_DEVICE_BYTES;

fn config(path: &Path) -> DeviceConfig {
    DeviceConfig {
        path: path.to_path_buf(),
        bytes: BYTES,
        owner: OwnerIdentity([3; 16]),
        file_name: "bpe.cache".into(),
    }
}

fn header(owner: u8) -> Header {
    Header {
        in_use: true,
        owner: OwnerIdentity([owner; 16]),
        session: 5,
        file_bytes: DATA_OFFSET + (8 << 20),
        segment_bytes: 1 << 20,
    }
}

fn try_open(path: &Path) -> Result<CacheFile, OpenError> {
    CacheFile::open(&config(path), header(3), false, &|file| Box::new(file))
}

/// Both the dry run and the opening refuse, with this in the message, and change nothing.
fn refused(path: &Path, wanted: &str) {
    let listing = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path.parent().unwrap())
            .unwrap()
            .flatten()
            .map(|e| e.file_name())
            .collect();
        names.sort();
        names
    };
    let before = listing(path);
    for error in [
        check_device(&config(path)).map(drop).unwrap_err(),
        try_open(path).map(drop).unwrap_err(),
    ] {
        let message = error.to_string();
        assert!(message.contains(wanted), "{message}");
        assert!(message.contains(';'), "no advice: {message}");
    }
    assert_eq!(listing(path), before);
}

#[test]
fn advice_is_about_room_where_there_is_none() {
    for (code, words) in [
        (libc::ENOSPC, "df -i"),
        (libc::EDQUOT, "quota"),
        (libc::EACCES, "check that the directory exists"),
    ] {
        let error =
            failed(Path::new("/x"), "create", ADVICE_ACCESS)(io::Error::from_raw_os_error(code));
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_directory_gets_a_file_and_loses_it() {
    let d = tempfile::tempdir().unwrap();
    let facts = check_device(&config(d.path())).unwrap();
    assert_eq!(
        (facts.exists, facts.path.clone()),
        (false, d.path().join("bpe.cache"))
    );
    assert_eq!(
        fs::read_dir(d.path()).unwrap().count(),
        0,
        "the dry run left something"
    );
    let file = try_open(d.path()).unwrap();
    let metadata = fs::metadata(&facts.path).unwrap();
    assert_eq!(
        (metadata.len(), metadata.mode() & 0o7777),
        (header(3).file_bytes, 0o600)
    );
    assert!(metadata.blocks() * 512 >= metadata.len(), "allocated");
    assert_eq!(facts.direct, file.direct);
    file.remove(&facts.path, header(3));
    assert!(!facts.path.exists());
}

#[test]
fn a_file_left_behind_is_taken_over_by_its_owner_alone() {
    let d = tempfile::tempdir().unwrap();
    let path = d.path().join("bpe.cache");
    drop(try_open(d.path()).unwrap());
    assert!(path.exists(), "as after a crash");
    assert!(check_device(&config(&path)).unwrap().exists);
    let file = try_open(&path).unwrap();
    refused(&path, "open in this server already");
    drop(file);
    // Another process.
    let mut holder = std::process::Command::new("flock")
        .arg("--close")
        .arg(&path)
        .args(["sleep", "10"])
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while try_open(&path).is_ok() {
        assert!(begin.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(20));
    }
    refused(&path, "data directory has the same path");
    let mut other = config(&path);
    other.owner = OwnerIdentity([4; 16]);
    let open_other = || {
        CacheFile::open(&other, header(4), false, &|file| Box::new(file))
            .map(drop)
            .unwrap_err()
    };
    assert!(
        open_other()
            .to_string()
            .contains("in use by another server")
    );
    holder.kill().unwrap();
    holder.wait().unwrap();
    assert!(matches!(open_other(), OpenError::OtherOwner { .. }));
    assert!(matches!(
        check_device(&other),
        Err(OpenError::OtherOwner { .. })
    ));
    try_open(&path).unwrap().remove(&path, header(3));
    assert!(!path.exists());
}

/// Every local user can lease a file of their own at a known name in a shared directory.
#[test]
fn leased_file_is_refused_at_once() {
    let d = tempfile::tempdir().unwrap();
    let path = d.path().join("bpe.cache");
    make_own(&path).unwrap();
    let holder = File::open(&path).unwrap();
    // SAFETY: plain calls. The signal is ignored by default.
    let leased = unsafe {
        libc::fcntl(holder.as_raw_fd(), 10, libc::SIGURG); // F_SETSIG
        libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_RDLCK)
    };
    assert_eq!(leased, 0, "{}", io::Error::last_os_error());
    let began = Instant::now();
    let opened = [open_own(&path).map(drop), open_existing(&path).map(drop)];
    let took = began.elapsed();
    // SAFETY: a plain call.
    unsafe { libc::fcntl(holder.as_raw_fd(), libc::F_SETLEASE, libc::F_UNLCK) };
    assert!(took < Duration::from_secs(5), "{took:?}");
    for error in opened {
        assert!(matches!(error, Err(OpenError::InUse { .. })), "{error:?}");
    }
    open_own(&path).unwrap().unwrap();
}

#[test]
fn who_only_looks_stands_in_nobodys_way() {
    let d = tempfile::tempdir().unwrap();
    let file = try_open(d.path()).unwrap();
    let path = d.path().join("bpe.cache");
    assert!(matches!(
        check_device(&config(d.path())),
        Err(OpenError::HeldHere { .. })
    ));
    drop(file);
    let (looker, _) = open_existing(&path).unwrap();
    lock(&path, &looker, FlockOperation::NonBlockingLockShared).unwrap();
    // A second checker succeeds, too; an opener waits a moment.
    check_device(&config(d.path())).unwrap();
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| try_open(d.path()).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        drop(looker);
        opener.join().unwrap().unwrap();
    });
}

#[test]
fn who_has_ended_stands_in_nobodys_way_for_long() {
    let d = tempfile::tempdir().unwrap();
    let of_before = try_open(d.path()).unwrap();
    std::thread::scope(|scope| {
        let opener = scope.spawn(|| try_open(d.path()).map(drop));
        std::thread::sleep(Duration::from_millis(50));
        drop(of_before);
        opener.join().unwrap().unwrap();
    });
}

#[test]
fn several_try_a_place_without_unnamed_files() {
    let d = tempfile::tempdir().unwrap();
    let survey = survey(&config(d.path())).unwrap();
    // Files that a crash has left.
    for number in 0..3 {
        let name = format!("bpe.cache.check-{}-{number}", std::process::id());
        fs::write(d.path().join(name), "").unwrap();
    }
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..100 {
                    create_and_remove(&survey).unwrap();
                }
            });
        }
    });
    assert_eq!(fs::read_dir(d.path()).unwrap().count(), 3);
}

#[test]
fn a_provided_empty_file_is_used_and_left_empty() {
    let d = tempfile::tempdir().unwrap();
    let path = d.path().join("mine");
    File::create(&path)
        .unwrap()
        .set_permissions(fs::Permissions::from_mode(0o600))
        .unwrap();
    let file = try_open(&path).unwrap();
    assert_eq!(fs::metadata(&path).unwrap().len(), header(3).file_bytes);
    file.remove(&path, header(3));
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
}

#[test]
fn what_is_not_ours_is_left_alone() {
    let d = tempfile::tempdir().unwrap();
    let path = d.path().join("x");
    let private = fs::Permissions::from_mode(0o600);
    for bytes in [&b"precious"[..], &[0; 10_000]] {
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, private.clone()).unwrap();
        refused(&path, "not a cache file");
        assert_eq!(fs::read(&path).unwrap(), bytes);
    }
    let mut block = vec![0; HEADER_BYTES];
    header(3).encode(&mut block);
    block[8] = 9;
    fs::write(&path, &block).unwrap();
    refused(&path, "format version 9");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
    refused(&path, "mode 0640");
    fs::set_permissions(&path, private).unwrap();
    fs::hard_link(&path, d.path().join("y")).unwrap();
    refused(&path, "2 names");
}

#[test]
fn links_and_special_files_are_refused() {
    let d = tempfile::tempdir().unwrap();
    let target = d.path().join("target");
    fs::write(&target, b"").unwrap();
    let link = d.path().join("link");
    symlink(&target, &link).unwrap();
    refused(&link, "a symbolic link");
    symlink(d.path().join("nowhere"), d.path().join("dangling")).unwrap();
    refused(&d.path().join("dangling"), "a symbolic link");
    let fifo = d.path().join("fifo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
    refused(&fifo, "a pipe");
    refused(Path::new("/dev/null"), "a character device");
    // In a directory, too.
    let inner = d.path().join("inner");
    fs::create_dir(&inner).unwrap();
    symlink(&target, inner.join("bpe.cache")).unwrap();
    assert!(matches!(
        try_open(&inner),
        Err(OpenError::NotRegular { .. })
    ));
    assert_eq!(fs::metadata(&target).unwrap().len(), 0);
}

#[test]
fn bad_places_are_refused() {
    let d = tempfile::tempdir().unwrap();
    refused(
        &d.path()
            .join("none")
            .join("file")
            .parent()
            .unwrap()
            .join(""),
        "create the directory",
    );
    assert!(matches!(
        check_device(&config(Path::new("cache"))),
        Err(OpenError::RelativePath { .. })
    ));
    let missing = d.path().join("missing").join("file");
    assert!(
        check_device(&config(&missing))
            .unwrap_err()
            .to_string()
            .contains("No such file")
    );
    let open = d.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).unwrap();
    refused(&open.join("file"), "every user may write");
    fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(check_device(&config(&open)).is_ok());
    let small = DeviceConfig {
        bytes: BYTES - 1,
        ..config(d.path())
    };
    assert!(matches!(
        check_device(&small),
        Err(OpenError::TooSmall { minimum: BYTES, .. })
    ));
}

#[test]
fn a_disk_too_small_is_refused_before_anything_is_allocated() {
    let d = tempfile::tempdir().unwrap();
    let huge = DeviceConfig {
        bytes: 1 << 50,
        ..config(d.path())
    };
    let Err(OpenError::NoSpace {
        free,
        needed,
        reserve,
        ..
    }) = check_device(&huge)
    else {
        panic!()
    };
    assert!(needed > 1 << 50 && free < needed && reserve >= MIN_RESERVE);
    let header = Header {
        file_bytes: 1 << 50,
        ..header(3)
    };
    assert!(matches!(
        CacheFile::open(&huge, header, false, &|file| Box::new(file)),
        Err(OpenError::NoSpace { .. })
    ));
    assert_eq!(fs::read_dir(d.path()).unwrap().count(), 0);
}

/// State after a crash right after creation: it must not prevent the next start, nor stay forever.
#[test]
fn an_empty_leftover_in_a_directory_is_taken_over_and_removed() {
    let d = tempfile::tempdir().unwrap();
    let path = d.path().join("bpe.cache");
    fs::write(&path, b"").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let file = try_open(d.path()).unwrap();
    file.remove(&path, header(3));
    assert!(!path.exists());
}

/// The header is written before the space is allocated: a file of full size without a header would count as foreign.
#[test]
fn a_file_that_could_not_be_allocated_has_its_header_already() {
    let d = tempfile::tempdir().unwrap();
    let path = d.path().join("bpe.cache");
    CacheFile::open(&config(d.path()), header(3), false, &|file| {
        assert_eq!(file.metadata().unwrap().len(), 0, "room was made first");
        Box::new(file)
    })
    .unwrap();
    // State after a crash between the two.
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(crate::device::segment::format::HEADER_BYTES as u64)
        .unwrap();
    drop(file);
    try_open(d.path()).unwrap();
}
