//! Checks whether another user can redirect or change a path.
//!
//! A directory determines its entries, its parent determines the directory, and so on up to the root. Each symbolic
//! link on the path starts a new path. So every part is checked in the order in which the kernel follows them. Each
//! must belong to the caller or to root, and no other user may write to it. A directory with sticky bit, such as
//! `/tmp`, is the exception: others may create files there, but cannot remove or rename files of other owners.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

/// Maximum number of symbolic links on a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// Why other users could change the file or directory itself.
pub fn changeable(meta: &Metadata) -> Option<String> {
    if !is_trusted(meta) {
        return Some(format!("it belongs to another user (id {})", meta.uid()));
    }
    // The mode of a link has no effect.
    (!meta.is_symlink() && meta.mode() & 0o022 != 0).then(|| "others can write to it".to_owned())
}

/// Whether it belongs to root or the caller.
fn is_trusted(meta: &Metadata) -> bool {
    meta.uid() == 0 || meta.uid() == rustix::process::geteuid().as_raw()
}

/// Checks every part of an absolute path. Parts at its end may be missing if no other user can create them.
///
/// # Errors
/// The part that others could change.
pub fn check(path: &Path) -> Result<(), String> {
    walk(path, false).map(drop)
}

/// Checks every part of an absolute path, as [`check`] does, and creates missing directories. No other user can write
/// to the last one.
///
/// # Errors
/// The part that others could change, or whose creation failed.
pub fn make(path: &Path) -> Result<(), String> {
    let meta = walk(path, true)?;
    match meta.and_then(|meta| changeable(&meta)) {
        None => Ok(()),
        Some(why) => Err(failed(path, why)),
    }
}

/// Creates a directory that other users cannot enter, and missing ones above it. An existing one of the caller loses the
/// access of users outside its group.
///
/// # Errors
/// It is no directory, belongs to another user, or the file system refuses.
pub fn make_private(path: &Path) -> io::Result<()> {
    make_private_or_adopt(path, false)
}

/// As [`make_private`]. With `adopts` the directory may belong to another user: the caller changes its owner afterwards.
pub(crate) fn make_private_or_adopt(path: &Path, adopts: bool) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() {
        return Err(io::Error::other("it is no directory"));
    }
    if !adopts && meta.uid() != rustix::process::geteuid().as_raw() {
        let why = format!("it belongs to another user (id {})", meta.uid());
        return Err(io::Error::other(why));
    }
    if meta.mode() & 0o007 != 0 {
        fs::set_permissions(path, Permissions::from_mode(meta.mode() & 0o770))?;
    }
    Ok(())
}

/// Opens a lock file and creates it if it is missing. It is never truncated, and never reached through a link.
///
/// # Errors
/// Those of the file system, or that it is no regular file.
pub fn open_lock(path: &Path) -> io::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        // A pipe is rejected below; opening it must not block.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    Ok(file)
}

/// Metadata of the end of the path; None if it is missing.
fn walk(path: &Path, make: bool) -> Result<Option<Metadata>, String> {
    if !path.is_absolute() {
        return Err(failed(path, "it is no absolute path"));
    }
    let mut rest = names(path);
    let mut at = PathBuf::from("/");
    let mut meta = stat(&at)?;
    let mut is_shared = judge(&at, &meta)?;
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == OsStr::new("..") {
            // It was already checked on the way down.
            at.pop();
            meta = stat(&at)?;
            is_shared = judge(&at, &meta)?;
            continue;
        }
        let next = at.join(&name);
        let mut found = fs::symlink_metadata(&next);
        if make && found.as_ref().is_err_and(is_missing) {
            match DirBuilder::new().mode(0o755).create(&next) {
                // Another process may have created it.
                Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                    return Err(failed(&next, error));
                }
                _ => found = fs::symlink_metadata(&next),
            }
        }
        meta = match found {
            Ok(meta) => meta,
            Err(error) if is_missing(&error) && !is_shared => return Ok(None),
            Err(error) => return Err(failed(&next, error)),
        };
        if meta.is_symlink() {
            links += 1;
            if links > MAX_LINKS {
                return Err(failed(path, "too many symbolic links"));
            }
            if let Some(why) = changeable(&meta) {
                return Err(failed(&next, why));
            }
            let target = fs::read_link(&next).map_err(|error| failed(&next, error))?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            meta = stat(&at)?;
            is_shared = judge(&at, &meta)?;
            for name in names(&target).into_iter().rev() {
                rest.push_front(name);
            }
            continue;
        }
        is_shared = judge(&next, &meta)?;
        at = next;
    }
    Ok(Some(meta))
}

fn is_missing(error: &io::Error) -> bool {
    error.kind() == ErrorKind::NotFound
}

/// Components of the path, without the root.
fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

fn stat(path: &Path) -> Result<Metadata, String> {
    fs::symlink_metadata(path).map_err(|error| failed(path, error))
}

/// Whether others may create files there, beside files that they cannot change.
fn judge(path: &Path, meta: &Metadata) -> Result<bool, String> {
    match changeable(meta) {
        None => Ok(false),
        Some(_) if meta.is_dir() && meta.mode() & libc::S_ISVTX != 0 && is_trusted(meta) => {
            Ok(true)
        }
        Some(why) => Err(failed(path, why)),
    }
}

fn failed(path: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};

    use super::*;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn directory(path: &Path) {
        fs::create_dir(path).unwrap();
        set(path, 0o755);
    }

    #[test]
    fn check_covers_every_part_of_the_path() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (outer, inner) = (place.join("outer"), place.join("outer/inner"));
        directory(&outer);
        directory(&inner);
        let file = inner.join("file");
        fs::write(&file, "x").unwrap();
        set(&file, 0o644);
        let why = |path: &Path| check(path).unwrap_err();
        assert_eq!(check(&file), Ok(()));

        for (path, wrong, right) in [
            (&outer, 0o777, 0o755),
            (&inner, 0o775, 0o755),
            (&file, 0o646, 0o644),
        ] {
            set(path, wrong);
            assert_eq!(
                why(&file),
                format!("{}: others can write to it", path.display())
            );
            set(path, right);
        }
        // There, our files stay ours, but any user can create a missing one.
        set(&outer, 0o1777);
        assert_eq!(check(&file), Ok(()));
        assert_eq!(check(&inner.join("none")), Ok(()));
        assert!(why(&outer.join("none")).contains("none"));
        set(&outer, 0o755);

        // A link requires a safe path to its target, and recursively to that link's target.
        let open = place.join("open");
        directory(&open);
        symlink(&file, open.join("second")).unwrap();
        symlink("../../open/second", inner.join("first")).unwrap();
        assert_eq!(check(&inner.join("first")), Ok(()));
        set(&open, 0o777);
        assert_eq!(
            why(&inner.join("first")),
            format!("{}: others can write to it", open.display())
        );
        assert_eq!(check(&file), Ok(()));
        symlink("circle", inner.join("circle")).unwrap();
        assert!(why(&inner.join("circle")).contains("too many"));

        if rustix::process::geteuid().is_root() {
            chown(&outer, Some(65534), None).unwrap();
            assert!(why(&file).contains("outer: it belongs to another user (id 65534)"));
            // The owner of a directory can change it, sticky or not.
            set(&outer, 0o1777);
            assert!(why(&file).contains("another user"));
        }
    }

    #[test]
    fn make_creates_nothing_behind_foreign_links() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let deep = place.join("a/b");
        assert_eq!(make(&deep), Ok(()));
        assert_eq!(make(&deep), Ok(()));
        assert_eq!(deep.metadata().unwrap().mode() & 0o022, 0);
        set(&deep, 0o1777);
        assert!(make(&deep).unwrap_err().contains("others can write to it"));
        // A new directory there belongs to the caller.
        assert_eq!(make(&deep.join("c")), Ok(()));
        assert!(
            make(Path::new("relative"))
                .unwrap_err()
                .contains("absolute")
        );
        fs::write(place.join("file"), "").unwrap();
        assert!(make(&place.join("file/x")).is_err());
        if rustix::process::geteuid().is_root() {
            let target = place.join("target");
            directory(&target);
            let link = place.join("link");
            symlink(&target, &link).unwrap();
            std::os::unix::fs::lchown(&link, Some(65534), None).unwrap();
            assert!(make(&link.join("x")).unwrap_err().contains("another user"));
            let foreign = place.join("foreign");
            directory(&foreign);
            chown(&foreign, Some(65534), None).unwrap();
            assert!(make(&foreign.join("x")).is_err());
            assert!(!target.join("x").exists() && !foreign.join("x").exists());
        }
    }

    #[test]
    fn private_directory_excludes_other_users() {
        let place = tempfile::tempdir().unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        let (above, private) = (place.path().join("a"), place.path().join("a/b"));
        let before = rustix::process::umask(rustix::fs::Mode::empty());
        let made = make_private(&private);
        rustix::process::umask(before);
        made.unwrap();
        assert_eq!((mode(&above), mode(&private)), (0o700, 0o700));
        for (open, closed) in [(0o777, 0o770), (0o755, 0o750), (0o700, 0o700)] {
            set(&private, open);
            make_private(&private).unwrap();
            assert_eq!(mode(&private), closed);
        }
        let why = |path: &Path| make_private(path).unwrap_err().to_string();
        symlink(&private, place.path().join("link")).unwrap();
        assert!(why(&place.path().join("link")).contains("no directory"));
        if rustix::process::geteuid().is_root() {
            chown(&private, Some(65534), None).unwrap();
            assert!(why(&private).contains("another user (id 65534)"));
        }
    }

    #[test]
    fn lock_is_neither_truncated_nor_followed() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::write(path("lock"), "text").unwrap();
        drop(open_lock(&path("lock")).unwrap());
        assert_eq!(fs::read(path("lock")).unwrap(), b"text");
        drop(open_lock(&path("new")).unwrap());
        assert_eq!(path("new").metadata().unwrap().mode() & 0o777, 0o600);
        symlink(path("lock"), path("link")).unwrap();
        symlink(path("none"), path("dangling")).unwrap();
        fs::create_dir(path("directory")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), rustix::fs::Mode::RUSR).unwrap();
        for name in ["link", "dangling", "directory", "pipe"] {
            assert!(open_lock(&path(name)).is_err(), "{name}");
        }
        assert!(!path("none").exists());
    }
}
