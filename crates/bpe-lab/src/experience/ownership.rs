//! Whether others could change what a path leads to.
//!
//! A file is what its folder says it is, that folder what the folder above it says, and so on up to the root, and each
//! symbolic link on the way begins this anew. So all of them are looked at, one name after the other as the kernel follows
//! them: each must belong to this user or to root, and nobody else may write to it. A folder with sticky bit, such as
//! `/tmp`, is the exception: others may put things there, but neither remove nor rename what is not theirs.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use bpe_command::console::may_own;

/// Symbolic links on the way, as many as the kernel follows.
const LINKS: usize = 40;

/// Why others could change it, as opposed to what lies around it.
pub fn changeable(meta: &Metadata) -> Option<String> {
    let own = rustix::process::geteuid().as_raw();
    if !may_own(meta.uid(), own) {
        return Some(format!("it belongs to another user (id {})", meta.uid()));
    }
    // The mode of a link says nothing.
    (!meta.is_symlink() && meta.mode() & 0o022 != 0).then(|| "others can write to it".to_owned())
}

/// Looks at everything on an absolute path. Where there is nothing at its end, nobody else can put anything there.
///
/// # Errors
/// Says what of it others could change.
pub fn check(path: &Path) -> Result<(), String> {
    let mut rest = names(path);
    let mut at = PathBuf::from("/");
    let mut is_shared = folder(&at)?;
    let mut links = 0;
    while let Some(name) = rest.pop_front() {
        if name == OsStr::new("..") {
            // It was looked at on the way here.
            at.pop();
            is_shared = folder(&at)?;
            continue;
        }
        let next = at.join(&name);
        let meta = match fs::symlink_metadata(&next) {
            Ok(meta) => meta,
            Err(error) if error.kind() == ErrorKind::NotFound && !is_shared => return Ok(()),
            Err(error) => return Err(said(&next, error)),
        };
        if meta.is_symlink() {
            links += 1;
            if links > LINKS {
                return Err(said(path, "too many symbolic links"));
            }
            if let Some(why) = changeable(&meta) {
                return Err(said(&next, why));
            }
            let target = fs::read_link(&next).map_err(|error| said(&next, error))?;
            if target.is_absolute() {
                at = PathBuf::from("/");
                is_shared = folder(&at)?;
            }
            for name in names(&target).into_iter().rev() {
                rest.push_front(name);
            }
            continue;
        }
        is_shared = judged(&next, &meta)?;
        at = next;
    }
    Ok(())
}

/// Its names, without the root.
fn names(path: &Path) -> VecDeque<OsString> {
    path.components()
        .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
        .map(|part| part.as_os_str().to_owned())
        .collect()
}

fn folder(path: &Path) -> Result<bool, String> {
    let meta = fs::symlink_metadata(path).map_err(|error| said(path, error))?;
    judged(path, &meta)
}

/// Whether others may put things there beside those that they cannot touch.
fn judged(path: &Path, meta: &Metadata) -> Result<bool, String> {
    match changeable(meta) {
        None => Ok(false),
        Some(_)
            if meta.is_dir()
                && meta.mode() & libc::S_ISVTX != 0
                && may_own(meta.uid(), rustix::process::geteuid().as_raw()) =>
        {
            Ok(true)
        }
        Some(why) => Err(said(path, why)),
    }
}

fn said(path: &Path, why: impl std::fmt::Display) -> String {
    format!("{}: {why}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn make(path: &Path) {
        fs::create_dir(path).unwrap();
        set(path, 0o755);
    }

    #[test]
    fn everything_on_the_way_counts() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let (outer, inner) = (place.join("outer"), place.join("outer/inner"));
        make(&outer);
        make(&inner);
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
        // What is ours stays ours there; what is not there yet can be anybody's.
        set(&outer, 0o1777);
        assert_eq!(check(&file), Ok(()));
        assert_eq!(check(&inner.join("none")), Ok(()));
        assert!(why(&outer.join("none")).contains("none"));
        set(&outer, 0o755);

        // Of a link the way to what it leads to counts, and of that again.
        let open = place.join("open");
        make(&open);
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
            // The owner of a folder does there what he likes, sticky or not.
            set(&outer, 0o1777);
            assert!(why(&file).contains("another user"));
        }
    }
}
