//! Private Debian roots, created by debootstrap and cached between runs.
//!
//! A root is at `$XDG_CACHE_HOME/innodb-bpe/<folder>` (default `~/.cache/innodb-bpe/<folder>`). It is created under a
//! temporary name and renamed when complete, so an existing root is complete. A lock on `innodb-bpe/lock` serialises
//! creation.
//!
//! debootstrap mounts `/proc` into the root during its work. It runs in separate mount and process namespaces, so that
//! an interruption leaves neither a mount nor a process.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{ownership, process};

/// Contents of a root.
#[derive(Clone, Copy, Debug)]
pub struct Recipe {
    /// Debian suite.
    pub suite: &'static str,
    /// Name of the directory.
    pub folder: &'static str,
    /// Packages beyond the minimal base.
    pub packages: &'static [&'static str],
}

/// The product's cache directory: `$XDG_CACHE_HOME/innodb-bpe`, by default `~/.cache/innodb-bpe`. It may be missing.
///
/// Programs in it are executed, so only root and the caller may be able to change its contents.
///
/// # Errors
/// Neither variable is set, or another user may change the directory.
pub fn cache_folder() -> Result<PathBuf, String> {
    cache_folder_of(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))
}

fn cache_folder_of(cache: Option<OsString>, home: Option<OsString>) -> Result<PathBuf, String> {
    let is_set = |value: &OsString| !value.is_empty();
    let base = match (cache.filter(is_set), home.filter(is_set)) {
        (Some(cache), _) => PathBuf::from(cache),
        (None, Some(home)) => Path::new(&home).join(".cache"),
        (None, None) => {
            return Err(
                "HOME is not set, so there is no place for the cache: set XDG_CACHE_HOME".into(),
            );
        }
    };
    let refused = |why: &str| format!("cannot use the cache {why}: set XDG_CACHE_HOME");
    let folder = base.join("innodb-bpe");
    if !folder.is_absolute() {
        return Err(refused(&format!(
            "{}, which is no absolute path",
            folder.display()
        )));
    }
    if folder.is_symlink() {
        return Err(refused(&format!("{}, which is a link", folder.display())));
    }
    ownership::check(&folder).map_err(|why| refused(&why))?;
    Ok(folder)
}

/// Directory in which `scripts/install-dependencies` unpacks programs.
///
/// # Errors
/// As [`cache_folder`].
pub fn tools() -> Result<PathBuf, String> {
    let folder = cache_folder()?.join("tools/usr/bin");
    ownership::check(&folder)?;
    Ok(folder)
}

/// Path of the root of `recipe`, existing or not.
///
/// # Errors
/// As [`cache_folder`].
pub fn place(recipe: &Recipe) -> Result<PathBuf, String> {
    Ok(cache_folder()?.join(recipe.folder))
}

/// The root of `recipe`, if it exists.
///
/// # Errors
/// As [`cache_folder`], or another user may change the root.
pub fn existing(recipe: &Recipe) -> Result<Option<PathBuf>, String> {
    let place = place(recipe)?;
    let programs = place.join("usr/sbin");
    ownership::check(&programs)?;
    Ok(programs.is_dir().then_some(place))
}

/// Creates the root of `recipe`, or waits for another process that is creating it. `progress` receives debootstrap's
/// output. The error is a reason in words.
pub fn make(recipe: &Recipe, progress: &mut dyn FnMut(&str)) -> Result<PathBuf, String> {
    if !rustix::process::geteuid().is_root() {
        return Err(format!(
            "making a private Debian {} root needs root: run this once as root or with sudo",
            recipe.suite
        ));
    }
    let folder = cache_folder()?;
    ownership::make(&folder)?;
    let _lock = lock(&folder, progress)?;
    if let Some(root) = existing(recipe)? {
        return Ok(root);
    }
    remove_partial_roots(&folder, recipe);
    let partial = folder.join(format!("{}.partial", recipe.folder));
    progress(&format!(
        "making a private Debian {} root with {} in {} (once, a minute or two)",
        recipe.suite,
        recipe.packages.join(" and "),
        folder.display()
    ));
    if let Err(reason) = debootstrap(recipe, &partial, progress) {
        let _ = fs::remove_dir_all(&partial);
        return Err(reason);
    }
    // Half of the space holds packages that are no longer needed.
    for waste in ["var/cache/apt/archives", "var/lib/apt/lists"] {
        let _ = fs::remove_dir_all(partial.join(waste));
    }
    let root = place(recipe)?;
    fs::rename(&partial, &root)
        .map_err(|error| format!("cannot rename {}: {error}", partial.display()))?;
    Ok(root)
}

/// The command line prefix that runs `program`, a file in `root`, with the root's own dynamic
/// loader and libraries. The error is a reason in words.
pub fn command_in(root: &Path, program: &Path) -> Result<Vec<OsString>, String> {
    let (loader, triplet) = if cfg!(target_arch = "x86_64") {
        ("usr/lib64/ld-linux-x86-64.so.2", "x86_64-linux-gnu")
    } else if cfg!(target_arch = "aarch64") {
        ("usr/lib/ld-linux-aarch64.so.1", "aarch64-linux-gnu")
    } else {
        return Err("private roots are known for x86-64 and arm64 only".into());
    };
    // Preferred to the name in lib64, which is a link that might lead out of the root.
    let direct = root.join("usr/lib").join(triplet).join(
        Path::new(loader)
            .file_name()
            .expect("the loader has a name"),
    );
    let loader = if direct.is_file() {
        direct
    } else {
        root.join(loader)
    };
    if !loader.is_file() || !program.is_file() {
        return Err(format!(
            "the private root {} is incomplete ({} or {} is missing); remove it and run again",
            root.display(),
            loader.display(),
            program.display()
        ));
    }
    // Private libraries of the server (such as protobuf or ICU, if it has its own).
    let mut libraries = root.join("usr/lib").join(triplet).into_os_string();
    libraries.push(":");
    libraries.push(root.join("usr/lib/mysql/private"));
    Ok(vec![
        loader.into(),
        "--library-path".into(),
        libraries,
        program.into(),
    ])
}

/// Holds the lock until dropped.
fn lock(folder: &Path, progress: &mut dyn FnMut(&str)) -> Result<File, String> {
    let path = folder.join("lock");
    let file = ownership::open_lock(&path)
        .map_err(|error| format!("cannot open {}: {error}", path.display()))?;
    use rustix::fs::{FlockOperation, flock};
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        progress("waiting for another run that is making a private Debian root");
        flock(&file, FlockOperation::LockExclusive)
            .map_err(|error| format!("cannot lock {}: {error}", path.display()))?;
    }
    Ok(file)
}

/// Removes the remains of an interrupted run. Call with the lock held.
fn remove_partial_roots(folder: &Path, recipe: &Recipe) {
    let partial = folder.join(format!("{}.partial", recipe.folder));
    if partial.exists() {
        let _ = fs::remove_dir_all(partial);
    }
}

fn debootstrap(
    recipe: &Recipe,
    target: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<(), String> {
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .args(["debootstrap", "--variant=minbase"])
        .arg(format!("--include={}", recipe.packages.join(",")))
        .arg(recipe.suite)
        .arg(target)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    if !["/usr/sbin/debootstrap", "/usr/bin/debootstrap"]
        .iter()
        .any(|path| Path::new(path).exists())
    {
        return Err("debootstrap is not installed: apt-get install debootstrap".into());
    }
    let mut child = process::spawn(command, libc::SIGKILL)
        .map_err(|error| format!("cannot run unshare and debootstrap: {error}"))?;
    let mut last = Vec::new();
    let output = child.stdout.take().expect("stdout is piped");
    for line in BufReader::new(output).lines().map_while(Result::ok) {
        progress(line.trim_start_matches("I: "));
        last.push(line);
        if last.len() > 5 {
            last.remove(0);
        }
    }
    let status = child
        .wait()
        .map_err(|error| format!("waiting for debootstrap: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!(
        "debootstrap of {} failed ({status}): {}{}",
        recipe.suite,
        last.join(" / "),
        tail_of_log(target)
    ))
}

/// debootstrap writes its own log in the new root.
fn tail_of_log(target: &Path) -> String {
    let log = crate::error::tail(&target.join("debootstrap/debootstrap.log"), 5);
    if log.is_empty() {
        String::new()
    } else {
        format!("\nits log ends:\n{log}")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};

    use super::*;

    fn of(cache: impl AsRef<std::ffi::OsStr>) -> Result<PathBuf, String> {
        cache_folder_of(Some(cache.as_ref().to_owned()), None)
    }

    #[test]
    fn cache_needs_an_absolute_place() {
        for unset in [None, Some(OsString::new())] {
            let error = cache_folder_of(unset.clone(), unset).unwrap_err();
            assert!(error.contains("HOME is not set"), "{error}");
        }
        assert!(of("cache").unwrap_err().contains("absolute"));
        let home = cache_folder_of(None, Some("home".into()));
        assert!(home.unwrap_err().contains("absolute"));
    }

    #[test]
    fn cache_of_another_user_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let place = place.path().canonicalize().unwrap();
        let cache = place.join("innodb-bpe");
        assert_eq!(of(&place), Ok(cache.clone()));
        fs::create_dir(&cache).unwrap();
        assert_eq!(of(&place), Ok(cache.clone()));
        for (changed, mode) in [(&cache, 0o777), (&cache, 0o775), (&place, 0o777)] {
            let set =
                |mode| fs::set_permissions(changed, fs::Permissions::from_mode(mode)).unwrap();
            set(mode);
            assert!(of(&place).unwrap_err().contains("others can write"));
            set(0o755);
        }
        if rustix::process::geteuid().is_root() {
            chown(&cache, Some(65534), None).unwrap();
            assert!(of(&place).unwrap_err().contains("another user"));
        }
        fs::remove_dir(&cache).unwrap();
        symlink("/", &cache).unwrap();
        assert!(of(&place).unwrap_err().contains("a link"));
    }
}
