//! The library `bpe.so`: where it is found, and how it gets into the server's `plugin_dir`.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use object::Architecture;

use crate::elf::Symbols;
use crate::failure::Failure;
use crate::server::Flavour;

/// Its name in `plugin_dir`.
pub const FILE_NAME: &str = "bpe.so";

/// Where the library lies: as the user says, beside the command (a build leaves it there under
/// either name), or where a package puts it.
pub fn find(given: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = given {
        return fs::canonicalize(path).map_err(|error| {
            Failure::usage(format!("cannot read --library {}: {error}", path.display()))
        });
    }
    let mut candidates = Vec::new();
    if let Ok(command) = std::env::current_exe() {
        if let Some(folder) = command.parent() {
            candidates.push(folder.join(FILE_NAME));
            candidates.push(folder.join("libbpe.so"));
            if let Some(prefix) = folder.parent() {
                candidates.push(prefix.join("lib/innodb-bpe").join(FILE_NAME));
            }
        }
    }
    candidates.push(Path::new("/usr/lib/innodb-bpe").join(FILE_NAME));
    candidates
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| {
            let places: Vec<_> = candidates
                .iter()
                .map(|path| path.display().to_string())
                .collect();
            Failure::refused(format!("bpe.so was not found ({})", places.join(", ")))
                .advise("install the package innodb-bpe; if this server has another plugin_dir, name the package's library with --library")
        })
}

/// Whether this file is our plugin, for that server and this machine.
pub fn check(path: &Path, flavour: Flavour, server: Option<Architecture>) -> Result<(), String> {
    let symbols = Symbols::of(path)?;
    let declaration = match flavour {
        Flavour::MySql => "_mysql_plugin_declarations_",
        Flavour::MariaDb => "_maria_plugin_declarations_",
    };
    if !symbols.exports.contains(declaration) || !symbols.exports.contains("bpe_report") {
        return Err(format!(
            "{} is not the extension's plugin for {flavour}",
            path.display()
        ));
    }
    match server {
        Some(wanted) if wanted != symbols.architecture => Err(format!(
            "{} is built for {:?}, the server is {wanted:?}",
            path.display(),
            symbols.architecture
        )),
        _ => Ok(()),
    }
}

/// Whether two files have the same bytes.
pub fn same(a: &Path, b: &Path) -> bool {
    match (fs::read(a), fs::read(b)) {
        (Ok(a), Ok(b)) => a == b,
        _ => false,
    }
}

/// Copies `from` to `to` by way of a new file and a rename, so that a server which has the old file
/// mapped keeps it whole. Returns the path of the file replaced, kept beside it for undoing.
pub fn place(from: &Path, to: &Path) -> io::Result<Option<PathBuf>> {
    let beside =
        |what: &str| to.with_file_name(format!(".{FILE_NAME}.{what}-{}", std::process::id()));
    let new = beside("new");
    write_new(&new, &fs::read(from)?, 0o644).inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })?;
    let old = if to.exists() {
        let old = beside("old");
        fs::hard_link(to, &old).inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })?;
        Some(old)
    } else {
        None
    };
    fs::rename(&new, to)?;
    Ok(old)
}

/// Removes a file of a server, if it is there.
///
/// # Errors
/// Also when it is named by the server's process (`/proc/PID/root/...`), which has ended: then nobody knows.
pub fn remove(path: &Path) -> Result<(), String> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // Not its folder in /proc, which stays until its parent has noticed.
            let root: PathBuf = path.components().take(4).collect();
            if root.starts_with("/proc") && !root.exists() {
                return Err("the server has ended, and its view of files with it".to_owned());
            }
            Ok(())
        }
        Err(error) => Err(error.to_string()),
    }
}

/// Writes a file that must not exist yet, to the disk, with this mode whatever the umask.
pub fn write_new(path: &Path, contents: &[u8], mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(contents)?;
    file.sync_all()
}

/// Writes a whole new file and renames it over the old one.
pub fn replace(path: &Path, contents: &[u8]) -> io::Result<()> {
    let new = path.with_extension(format!("new-{}", std::process::id()));
    write_new(&new, contents, 0o644)
        .and_then(|()| fs::rename(&new, path))
        .inspect_err(|_| {
            let _ = fs::remove_file(&new);
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_out_of_reach_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert_eq!((remove(&file), remove(&file)), (Ok(()), Ok(())));
        assert!(!file.exists());
        assert_eq!(remove(&folder.path().join("no/such/folder")), Ok(()));
        // Numbers of processes are not that large.
        assert!(remove(Path::new("/proc/4294967295/root/usr/lib/bpe.so")).is_err());
        assert_eq!(
            remove(Path::new("/proc/self/root/usr/no-such-file")),
            Ok(())
        );
    }

    #[test]
    fn a_server_that_nobody_has_buried_shows_nothing() {
        use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = WaitId::Pid(Pid::from_child(&child));
        waitid(pid, WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).unwrap();
        let path = format!("/proc/{}/root/usr/no-such-file", child.id());
        assert!(remove(Path::new(&path)).is_err());
        child.wait().unwrap();
    }

    #[test]
    fn placing_keeps_the_old_file_whole() {
        let folder = tempfile::tempdir().unwrap();
        let (from, to) = (folder.path().join("from"), folder.path().join(FILE_NAME));
        fs::write(&from, "new").unwrap();
        fs::write(&to, "old").unwrap();
        let mapped = fs::File::open(&to).unwrap();
        let old = place(&from, &to).unwrap().unwrap();
        assert_eq!(fs::read_to_string(&to).unwrap(), "new");
        assert_eq!(fs::read_to_string(&old).unwrap(), "old");
        assert_eq!(io::read_to_string(mapped).unwrap(), "old");
        assert!(same(&from, &to));
        assert!(!same(&old, &to));
        assert_eq!(
            fs::metadata(&to).unwrap().permissions().mode() & 0o777,
            0o644
        );
    }

    #[test]
    fn a_failed_placing_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            place(
                &folder.path().join("missing"),
                &folder.path().join(FILE_NAME)
            )
            .is_err()
        );
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn other_libraries_are_refused() {
        let own = Path::new("/proc/self/exe");
        let error = check(own, Flavour::MariaDb, None).unwrap_err();
        assert!(error.contains("not the extension's plugin"), "{error}");
    }
}
