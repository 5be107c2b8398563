//! Opens a cache file safely, exclusively and at its full size, and closes it.
//!
//! The file is created by this process, or was left by an earlier process of this server, or is an empty one that an
//! administrator has provided. No symbolic link is followed in its name, and a file that other users could change is
//! refused. Unless its contents are wanted and its header matches, it is emptied and allocated anew, so that a full disk is
//! detected now and not later.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::directness::{is_buffered, take_copy_on_write};
use super::exposure::{Who, exposures};
use super::storage::{Storage, read_exact, write_all};
use crate::common::config::{DeviceConfig, DeviceFacts, OpenError, OwnerIdentity};
use crate::common::memory::with_buffer;
use crate::common::sizing::Room;
use crate::device::segment::MIN_DEVICE_BYTES;
use crate::device::segment::format::{
    BLOCK, HEADER_BYTES, Header, HeaderError, PROBE_OFFSET, VERSION,
};

/// Space that stays free on a file system: one part in `RESERVE_SHARE`, at least `MIN_RESERVE`.
const RESERVE_SHARE: u64 = 100;
const MIN_RESERVE: u64 = 64 << 20;

/// Longest time that a checker holds its shared lock, on a busy disk.
const LOOKED_AT_FOR: Duration = Duration::from_secs(5);
/// Longest time that a lock remains after its holder has ended or without its knowledge: a killed process holds it until
/// its last request has ended, a child of this process until it runs its own program.
const LEFT_LOCKED_FOR: Duration = Duration::from_secs(1);
/// Limit of names tried for a temporary file that tests whether files can be created.
const NAMES: u32 = 100;

const ADVICE_ACCESS: &str = "check that the directory exists and that the server's user may use it \
                             (and that AppArmor or SELinux lets the server do so)";

const ADVICE_ROOM: &str =
    "free room there: inodes may be used up, too (df -i), or the quota of the server's user";

const ADVICE_FILE: &str = "let the server's user make files there";

/// Wraps a file that was just opened. For tests.
pub(crate) type Wrap = dyn Fn(File) -> Box<dyn Storage> + Send + Sync;

/// An open cache file.
pub(crate) struct CacheFile {
    pub storage: Box<dyn Storage>,
    /// Reads and writes bypass the kernel's page cache.
    pub direct: bool,
    /// Offsets, lengths and addresses of direct reads must be multiples of this.
    pub alignment: usize,
    /// The file existed, empty, before: it is emptied rather than removed at the end.
    provided: bool,
    identity: (u64, u64),
    /// It has the contents with which it was found.
    pub kept: bool,
}

/// The path of the configured cache file.
pub(crate) fn file_path(config: &DeviceConfig) -> Result<PathBuf, OpenError> {
    let path = &config.path;
    if !path.is_absolute() {
        return Err(OpenError::RelativePath { path: path.clone() });
    }
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(path.join(&config.file_name)),
        Ok(metadata) if !metadata.is_file() => Err(OpenError::NotRegular {
            path: path.clone(),
            what: kind_of(metadata.file_type()),
        }),
        _ if path.as_os_str().as_bytes().ends_with(b"/") => Err(OpenError::Io {
            path: path.clone(),
            action: "use directory",
            source: io::ErrorKind::NotFound.into(),
            advice: "create the directory, owned by the server's user, or correct the path",
        }),
        _ => Ok(path.clone()),
    }
}

fn kind_of(kind: fs::FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_symlink() {
        "a symbolic link"
    } else if kind.is_block_device() {
        "a block device"
    } else if kind.is_char_device() {
        "a character device"
    } else if kind.is_fifo() {
        "a pipe"
    } else {
        "a socket"
    }
}

/// An error of the kernel, with the attempted action and advice.
pub(crate) fn failed(
    path: &Path,
    action: &'static str,
    advice: &'static str,
) -> impl FnOnce(io::Error) -> OpenError {
    let path = path.to_path_buf();
    move |source| OpenError::Io {
        path,
        action,
        advice: match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ADVICE_ROOM,
            _ => advice,
        },
        source,
    }
}

/// State of the place before the file is opened.
struct Survey {
    path: PathBuf,
    parent: PathBuf,
    existing: Option<fs::Metadata>,
    warnings: Vec<String>,
}

fn survey(config: &DeviceConfig) -> Result<Survey, OpenError> {
    if config.bytes < MIN_DEVICE_BYTES {
        let (path, bytes) = (config.path.clone(), config.bytes);
        return Err(OpenError::TooSmall {
            path,
            bytes,
            minimum: MIN_DEVICE_BYTES,
        });
    }
    let path = file_path(config)?;
    let parent = path.parent().unwrap_or(Path::new("/")).to_path_buf();
    let warnings = check_parent(&parent)?;
    let existing = match fs::symlink_metadata(&path) {
        Ok(metadata) => {
            check_file(&path, &metadata)?;
            Some(metadata)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(&path, "look at", ADVICE_ACCESS)(error)),
    };
    Ok(Survey {
        path,
        parent,
        existing,
        warnings,
    })
}

/// Checks all directories up to the root: a user who may write to one of them can replace the cache file. A directory that
/// every user may write to is refused. One that a group or its owner may write to can be intended, so it is only reported.
fn check_parent(parent: &Path) -> Result<Vec<String>, OpenError> {
    let refused = failed(parent, "use directory", ADVICE_ACCESS);
    let (user, group) = (
        rustix::process::geteuid().as_raw(),
        rustix::process::getegid().as_raw(),
    );
    let exposures = parent
        .canonicalize()
        .and_then(|parent| exposures(&parent, user, group, |path| fs::metadata(path)))
        .map_err(refused)?;
    let mut warnings = Vec::new();
    for exposure in exposures {
        if exposure.who == Who::Everybody {
            return Err(OpenError::Insecure {
                advice: exposure.advice(),
                path: exposure.directory,
                what: String::from("is a directory that every user may write to"),
            });
        }
        warnings.push(format!(
            "{exposure}, so users other than root and the server's can replace the cache file or a directory above it; {}",
            exposure.advice()
        ));
    }
    Ok(warnings)
}

pub(crate) fn check_file(path: &Path, metadata: &fs::Metadata) -> Result<(), OpenError> {
    if !metadata.is_file() {
        return Err(OpenError::NotRegular {
            path: path.to_path_buf(),
            what: kind_of(metadata.file_type()),
        });
    }
    let us = rustix::process::geteuid().as_raw();
    let what = if metadata.uid() != us {
        format!(
            "belongs to user {}, not to the server's user {us}",
            metadata.uid()
        )
    } else if metadata.nlink() > 1 {
        format!("has {} names (hard links)", metadata.nlink())
    } else if metadata.mode() & 0o077 != 0 {
        format!("has mode {:04o}", metadata.mode() & 0o7777)
    } else {
        return Ok(());
    };
    Err(OpenError::Insecure {
        path: path.to_path_buf(),
        what,
        advice: "remove the file, or give it mode 0600 and the server's user as its owner",
    })
}

/// Bytes that an unprivileged user may still allocate, and how many of them must stay free.
fn free_space(directory: &Path) -> Result<(u64, u64), OpenError> {
    let fs = rustix::fs::statvfs(directory)
        .map_err(|e| failed(directory, "ask for the free space of", ADVICE_ACCESS)(e.into()))?;
    let reserve = reserve(fs.f_blocks.saturating_mul(fs.f_frsize));
    Ok((fs.f_bavail.saturating_mul(fs.f_frsize), reserve))
}

/// Bytes that must stay free on a file system of this size.
pub fn reserve(file_system: u64) -> u64 {
    (file_system / RESERVE_SHARE).max(MIN_RESERVE)
}

/// Room for the cache file of this configuration, whatever its size; `None` if the room is unknown, or if the file could not
/// be created there anyway.
pub fn room(config: &DeviceConfig) -> Option<Room> {
    let path = file_path(config).ok()?;
    let parent = path.parent()?;
    let existing = fs::symlink_metadata(&path).ok();
    if existing.is_none() {
        let flags = rustix::fs::AtFlags::EACCESS;
        let writable = rustix::fs::Access::WRITE_OK;
        rustix::fs::accessat(rustix::fs::CWD, parent, writable, flags).ok()?;
    }
    let (free, reserve) = free_space(parent).ok()?;
    Some(Room {
        file_system: fs::metadata(parent).ok()?.dev(),
        free,
        reserve,
        own: existing.map_or(0, |metadata| metadata.blocks() * 512),
    })
}

fn check_space(survey: &Survey, bytes: u64) -> Result<u64, OpenError> {
    let (free, reserve) = free_space(&survey.parent)?;
    // An existing file first releases its allocated blocks.
    let ours = survey
        .existing
        .as_ref()
        .map_or(0, |metadata| metadata.blocks() * 512);
    let needed = bytes.saturating_add(reserve);
    if free.saturating_add(ours) < needed {
        return Err(OpenError::NoSpace {
            path: survey.path.clone(),
            free: free + ours,
            needed,
            reserve,
        });
    }
    Ok(free)
}

/// `O_NONBLOCK`: an open does not wait for the holder of a lease. Regular files ignore it otherwise.
pub(crate) const FLAGS: OFlags = OFlags::RDWR
    .union(OFlags::NOFOLLOW)
    .union(OFlags::NONBLOCK)
    .union(OFlags::CLOEXEC);

pub(crate) fn open(path: &Path, flags: OFlags) -> Result<File, Errno> {
    rustix::fs::open(path, flags, Mode::RUSR | Mode::WUSR).map(File::from)
}

/// Opens a file that only this server's user can have created, if it exists. As for cache files, it follows no link and
/// refuses a file that other users could change.
///
/// # Errors
/// The file is unsuitable.
pub fn open_own(path: &Path) -> Result<Option<File>, OpenError> {
    match open(path, FLAGS) {
        Ok(file) => checked(path, file).map(Some),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(not_opened(path, error, ADVICE_FILE)),
    }
}

fn not_opened(path: &Path, error: Errno, advice: &'static str) -> OpenError {
    let path = path.to_path_buf();
    match error {
        Errno::LOOP => OpenError::NotRegular {
            path,
            what: "a symbolic link",
        },
        // Another process has leased the file.
        Errno::WOULDBLOCK => OpenError::InUse { path },
        _ => failed(&path, "open", advice)(error.into()),
    }
}

/// Creates an empty file. The name must not exist.
///
/// # Errors
/// The file cannot be created.
pub fn make_own(path: &Path) -> Result<File, OpenError> {
    let made = open(path, FLAGS | OFlags::CREATE | OFlags::EXCL);
    let file = made.map_err(|error| failed(path, "create", ADVICE_FILE)(error.into()))?;
    checked(path, file)
}

/// Removes a cache file that this server created under former settings. A file that an administrator has provided under
/// another name is emptied instead. Returns whether it did either: a foreign file, or one of another server, stays.
///
/// # Errors
/// The file is in use, or the kernel reports an error.
pub fn remove_persisted(path: &Path, owner: OwnerIdentity) -> io::Result<bool> {
    let config = DeviceConfig {
        path: path.to_path_buf(),
        bytes: 0,
        owner,
        file_name: String::new(),
    };
    let refused = |error: OpenError| io::Error::other(error.to_string());
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
        Ok(metadata) if !metadata.is_file() || metadata.len() == 0 => return Ok(false),
        Ok(_) => {}
    }
    let (file, _) = open_existing(path).map_err(refused)?;
    let is_ours = matches!(check_header(path, &file, &config), Ok(Some(_)));
    if !is_ours {
        return Ok(false);
    }
    lock(path, &file, FlockOperation::NonBlockingLockExclusive).map_err(refused)?;
    let is_made_by_us = path.extension() == Some(OsStr::new("cache"));
    if is_made_by_us {
        fs::remove_file(path)?;
    } else {
        file.set_len(0)?;
    }
    Ok(true)
}

fn checked(path: &Path, file: File) -> Result<File, OpenError> {
    let metadata = file.metadata();
    check_file(
        path,
        &metadata.map_err(failed(path, "look at", ADVICE_FILE))?,
    )?;
    Ok(file)
}

/// Opens with direct I/O where that is possible.
fn open_direct(path: &Path, flags: OFlags) -> Result<(File, bool), Errno> {
    match open(path, flags | OFlags::DIRECT) {
        Ok(file) => Ok((file, true)),
        // Whether O_CREAT has created the file before O_DIRECT was refused depends on the file system.
        Err(Errno::INVAL | Errno::OPNOTSUPP) => match open(path, flags) {
            Err(Errno::EXIST) => open(path, flags - OFlags::EXCL).map(|file| (file, false)),
            other => other.map(|file| (file, false)),
        },
        Err(error) => Err(error),
    }
}

/// Checks whether the device could be opened as configured. Leaves nothing behind.
///
/// # Errors
/// The errors of `Extension::open`, as far as they can occur without allocating the space.
pub fn check_device(config: &DeviceConfig) -> Result<DeviceFacts, OpenError> {
    let survey = survey(config)?;
    let direct = match &survey.existing {
        Some(_) => {
            let (file, direct) = open_existing(&survey.path)?;
            // Shared: several processes may check it at once.
            lock(&survey.path, &file, FlockOperation::NonBlockingLockShared)
                .map_err(|error| by_whom(error, &file, config))?;
            check_header(&survey.path, &file, config)?;
            direct
        }
        None => try_creating(&survey)?,
    };
    let free_bytes = check_space(&survey, config.bytes)?;
    let parent =
        fs::metadata(&survey.parent).map_err(failed(&survey.parent, "look at", ADVICE_ACCESS))?;
    Ok(DeviceFacts {
        exists: survey.existing.is_some(),
        path: survey.path,
        direct,
        device_number: parent.dev(),
        free_bytes,
        warnings: survey.warnings,
    })
}

fn try_creating(survey: &Survey) -> Result<bool, OpenError> {
    let refused = |error: Errno| failed(&survey.path, "create", ADVICE_ACCESS)(error.into());
    let unnamed = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
    match open_direct(&survey.parent, unnamed) {
        Ok((_, direct)) => Ok(direct),
        // The file system does not support unnamed files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::NOENT | Errno::INVAL) => {
            create_and_remove(survey).map_err(refused)
        }
        Err(error) => Err(refused(error)),
    }
}

fn create_and_remove(survey: &Survey) -> Result<bool, Errno> {
    // Another session may check the same place, and a crash may have left a file of that name.
    // Relaxed: only uniqueness matters.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let mut attempts = 1..=NAMES;
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = survey.path.file_name().unwrap_or(OsStr::new("bpe"));
        let mut name = name.to_os_string();
        name.push(format!(".check-{}-{number}", std::process::id()));
        let path = survey.parent.join(name);
        match open_direct(&path, FLAGS | OFlags::CREATE | OFlags::EXCL) {
            Ok((_, direct)) => {
                let _ = fs::remove_file(&path);
                return Ok(direct);
            }
            Err(Errno::EXIST) if attempts.next().is_some() => {}
            Err(error) => return Err(error),
        }
    }
}

fn open_existing(path: &Path) -> Result<(File, bool), OpenError> {
    let opened = open_direct(path, FLAGS);
    let (file, direct) = opened.map_err(|error| not_opened(path, error, ADVICE_ACCESS))?;
    // Check the file that is open now: it may have been replaced since the survey.
    let metadata = file
        .metadata()
        .map_err(failed(path, "look at", ADVICE_ACCESS))?;
    check_file(path, &metadata)?;
    Ok((file, direct))
}

/// Takes an exclusive lock, and waits for checkers. A checker holds its shared lock briefly. After `LEFT_LOCKED_FOR` a shared
/// lock must succeed; otherwise the file is in use.
pub(crate) fn lock_alone(path: &Path, file: &File) -> Result<(), OpenError> {
    let began = Instant::now();
    loop {
        match lock(path, file, FlockOperation::NonBlockingLockExclusive) {
            Err(OpenError::InUse { .. } | OpenError::HeldHere { .. })
                if began.elapsed() < LOOKED_AT_FOR =>
            {
                if began.elapsed() >= LEFT_LOCKED_FOR {
                    lock(path, file, FlockOperation::NonBlockingLockShared)?;
                    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            result => return result,
        }
    }
}

fn lock(path: &Path, file: &File, operation: FlockOperation) -> Result<(), OpenError> {
    rustix::fs::flock(file, operation).map_err(|error| match error {
        Errno::WOULDBLOCK => {
            let path = path.to_path_buf();
            match is_held_here(file) {
                true => OpenError::HeldHere { path },
                false => OpenError::InUse { path },
            }
        }
        _ => failed(path, "lock", "put the cache file on a local file system")(error.into()),
    })
}

/// Detects that the file is in use by a server on the same data directory.
fn by_whom(error: OpenError, file: &File, config: &DeviceConfig) -> OpenError {
    match error {
        OpenError::InUse { path } if matches!(check_header(&path, file, config), Ok(Some(_))) => {
            OpenError::SameData { path }
        }
        other => other,
    }
}

/// Whether another descriptor of this process has the file open. Compares names: a `stat` could block on any disk.
fn is_held_here(file: &File) -> bool {
    let own = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
    let entries = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let all = entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok());
    own.is_ok_and(|own| all.filter(|name| *name == own).count() > 1)
}

/// The header of the existing file; `None` if the file is empty. Refuses a foreign file.
fn check_header(
    path: &Path,
    file: &File,
    config: &DeviceConfig,
) -> Result<Option<Header>, OpenError> {
    let metadata = file
        .metadata()
        .map_err(failed(path, "look at", ADVICE_ACCESS))?;
    if metadata.len() == 0 {
        return Ok(None);
    }
    let foreign = || OpenError::Foreign {
        path: path.to_path_buf(),
    };
    if metadata.len() < HEADER_BYTES as u64 {
        return Err(foreign());
    }
    let header = with_buffer(|buffer| {
        read_exact(file, &mut buffer[..HEADER_BYTES], 0)?;
        Ok(Header::decode(&buffer[..HEADER_BYTES]))
    });
    match header
        .unwrap_or(Err(io::ErrorKind::OutOfMemory.into()))
        .map_err(failed(path, "read", ADVICE_ACCESS))?
    {
        Ok(header) if header.owner == config.owner => Ok(Some(header)),
        Ok(_) => Err(OpenError::OtherOwner {
            path: path.to_path_buf(),
        }),
        Err(HeaderError::Foreign) => Err(foreign()),
        Err(HeaderError::Version(version)) => Err(OpenError::Version {
            path: path.to_path_buf(),
            version,
            known: VERSION,
        }),
    }
}

impl CacheFile {
    /// A storage without a name.
    pub fn of(storage: Box<dyn Storage>) -> CacheFile {
        CacheFile {
            storage,
            direct: false,
            alignment: 1,
            provided: false,
            identity: (0, 0),
            kept: false,
        }
    }

    /// Opens, locks, allocates and stamps the file. If `contents` are wanted and the file already has exactly this header, it
    /// keeps its contents.
    pub fn open(
        config: &DeviceConfig,
        header: Header,
        contents: bool,
        wrap: &Wrap,
    ) -> Result<CacheFile, OpenError> {
        let survey = survey(config)?;
        check_space(&survey, header.file_bytes)?;
        let path = &survey.path;
        let mut kept = false;
        let (file, direct, created, provided) = match &survey.existing {
            None => {
                let (file, direct) = open_direct(path, FLAGS | OFlags::CREATE | OFlags::EXCL)
                    .map_err(|error| failed(path, "create", ADVICE_ACCESS)(error.into()))?;
                let metadata = file
                    .metadata()
                    .map_err(failed(path, "look at", ADVICE_ACCESS))?;
                check_file(path, &metadata)?;
                lock_alone(path, &file)?;
                (file, direct, true, false)
            }
            Some(_) => {
                let (file, direct) = open_existing(path)?;
                lock_alone(path, &file).map_err(|error| by_whom(error, &file, config))?;
                let found = check_header(path, &file, config)?;
                let length = file.metadata().map_or(0, |metadata| metadata.len());
                kept = contents && found == Some(header) && length == header.file_bytes;
                // An empty file of the name that is created in a directory was left by this server.
                let provided = found.is_none() && *path == config.path;
                (file, direct, false, provided)
            }
        };
        let metadata = file
            .metadata()
            .map_err(failed(path, "look at", ADVICE_ACCESS))?;
        let identity = (metadata.dev(), metadata.ino());
        let undo = Undo {
            path,
            file: file.try_clone().ok(),
            created,
        };
        let handle = file
            .try_clone()
            .map_err(failed(path, "open", ADVICE_ACCESS))?;
        let mut opened = CacheFile {
            storage: wrap(file),
            direct,
            alignment: BLOCK,
            provided,
            identity,
            kept,
        };
        // The header comes first, and is synced: after a crash or power loss, a file without it would count as foreign and be
        // refused from then on.
        let begun = match kept {
            true => Ok(()),
            false => handle.set_len(0).and_then(|()| {
                take_copy_on_write(&handle);
                opened.write_header(header)
            }),
        };
        if begun.is_ok() && !kept {
            let _ = handle.sync_all();
        }
        if let Err(error) = begun.and_then(|()| allocate(&handle, header.file_bytes)) {
            if error.raw_os_error() == Some(Errno::NOSPC.raw_os_error()) {
                let (free, reserve) = free_space(&survey.parent)?;
                drop(undo);
                return Err(OpenError::NoSpace {
                    path: path.clone(),
                    free,
                    needed: header.file_bytes,
                    reserve,
                });
            }
            return Err(failed(
                path,
                "write to or allocate",
                "see the system log for errors of that disk; or lower the size, or raise a quota or file size limit",
            )(error));
        }
        opened.probe(header.session).map_err(failed(
            path,
            "write to and read from",
            "see the system log for errors of that disk",
        ))?;
        opened.direct = direct && !is_buffered(&handle, PROBE_OFFSET);
        if direct {
            opened.alignment = opened.find_alignment(&handle);
        } else {
            opened.alignment = 1;
        }
        undo.keep();
        Ok(opened)
    }

    pub fn write_header(&self, header: Header) -> io::Result<()> {
        with_buffer(|buffer| {
            header.encode(&mut buffer[..HEADER_BYTES]);
            write_all(&*self.storage, &buffer[..HEADER_BYTES], 0)
        })
        .unwrap_or(Err(io::ErrorKind::OutOfMemory.into()))
    }

    /// Writes a block and reads it back.
    pub fn probe(&self, nonce: u64) -> io::Result<()> {
        let fill = |block: &mut [u8]| {
            for (i, word) in block.chunks_exact_mut(8).enumerate() {
                word.copy_from_slice(&crate::common::page::mix64(nonce ^ i as u64).to_le_bytes());
            }
        };
        with_buffer(|buffer| {
            let (written, read) = buffer.split_at_mut(BLOCK);
            fill(written);
            write_all(&*self.storage, written, PROBE_OFFSET)?;
            let read = &mut read[..BLOCK];
            read_exact(&*self.storage, read, PROBE_OFFSET)?;
            if read == written {
                Ok(())
            } else {
                Err(io::Error::other(
                    "a test block was not read back as it was written",
                ))
            }
        })
        .unwrap_or(Err(io::ErrorKind::OutOfMemory.into()))
    }

    /// Direct reads of many devices need an alignment of 512 bytes only, which saves a copy for small pages. btrfs makes such
    /// reads through the page cache.
    fn find_alignment(&self, file: &File) -> usize {
        let small = with_buffer(|buffer| {
            self.storage
                .read_at(&mut buffer[512..1024], PROBE_OFFSET + 512)
        });
        if matches!(small, Some(Ok(512))) && !is_buffered(file, PROBE_OFFSET) {
            return 512;
        }
        let _ = rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed);
        BLOCK
    }

    /// Restores the length of a truncated file. Fails if the file has lost its name.
    pub fn extend(&self, path: &Path, bytes: u64) -> io::Result<()> {
        let (now, names) = self.storage.facts()?;
        if names == 0 {
            return Err(io::Error::other("the cache file was deleted"));
        }
        if now >= bytes {
            return Ok(());
        }
        let file = open(path, FLAGS)?;
        let metadata = file.metadata()?;
        if (metadata.dev(), metadata.ino()) != self.identity {
            return Err(io::Error::other("the cache file was replaced"));
        }
        allocate(&file, bytes)
    }

    /// Releases the disk space. If that fails, `header` marks the file as empty.
    pub fn remove(&self, path: &Path, header: Header) {
        let Ok(metadata) = fs::symlink_metadata(path) else {
            return;
        };
        if (metadata.dev(), metadata.ino()) != self.identity {
            return;
        }
        if !self.provided && fs::remove_file(path).is_ok() {
            return;
        }
        if open(path, FLAGS)
            .map_err(io::Error::from)
            .and_then(|file| file.set_len(0))
            .is_err()
        {
            let _ = self.write_header(header);
        }
    }
}

fn allocate(file: &File, bytes: u64) -> io::Result<()> {
    if cfg!(checker) {
        return file.set_len(bytes); // thousands of files, each for a moment
    }
    match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => Ok(()),
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => file.set_len(bytes),
        Err(error) => Err(error.into()),
    }
}

/// Undoes the changes of the file if opening fails.
struct Undo<'a> {
    path: &'a Path,
    file: Option<File>,
    created: bool,
}

impl Undo<'_> {
    fn keep(mut self) {
        self.file = None;
        self.created = false;
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        if self.created {
            let _ = fs::remove_file(self.path);
        } else if let Some(file) = &self.file {
            let _ = file.set_len(0);
        }
    }
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
