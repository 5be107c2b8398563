//! Checks a cache path: existence, permissions of the server, free space, O_DIRECT, and whether it is on another disk than the data.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use interface::untrusted::one_line;

use super::finding::Finding;
use crate::connect::process::Process;
use crate::installation::disk;
use crate::support::quote::{shell, shell_path};
use crate::support::size::human;

pub struct PathCheck {
    pub findings: Vec<Finding>,
    /// The directory for the benchmark, as this command reaches it.
    pub usable: Option<PathBuf>,
}

/// Checks a cache path for a cache of `share` bytes. `data` is the data directory as this command reaches it.
pub fn check(path: &Path, share: u64, process: Option<&Process>, data: Option<&Path>) -> PathCheck {
    let mut findings = Vec::new();
    let seen = process.map_or_else(|| path.to_path_buf(), |process| process.seen(path));
    let shown = path.display();
    let stop = |findings: Vec<Finding>| PathCheck {
        findings,
        usable: None,
    };
    let folder = match fs::symlink_metadata(&seen) {
        Ok(meta) if meta.is_symlink() => {
            findings.push(
                Finding::fail(
                    "path",
                    format!("{shown} is a symbolic link, which the extension does not follow"),
                )
                .advise(format!(
                    "name its target{}",
                    fs::read_link(&seen)
                        .map(|target| format!(": {}", one_line(&target.to_string_lossy())))
                        .unwrap_or_default()
                )),
            );
            return stop(findings);
        }
        Ok(meta) if meta.is_dir() => seen.clone(),
        Ok(_) if disk::is_foreign_file(&seen) => {
            findings.push(
                Finding::fail("path", format!("{shown} {}", disk::FOREIGN))
                    .advise(disk::FOREIGN_ADVICE),
            );
            return stop(findings);
        }
        Ok(meta) if meta.is_file() => parent(&seen),
        Ok(_) => {
            findings.push(
                Finding::fail("path", format!("{shown} is neither a folder nor a file"))
                    .advise("put a file system on the disk, mount it and name a folder on it"),
            );
            return stop(findings);
        }
        Err(_) if parent(&seen).is_dir() => {
            let user = process.map_or("mysql".to_owned(), Process::user_name);
            findings.push(
                Finding::warn("path", format!("{shown} does not exist yet")).advise(format!(
                    "`sudo bpe enable` makes it, or: sudo install -d -m 700 -o {} {}",
                    shell(&user),
                    shell_path(path)
                )),
            );
            parent(&seen)
        }
        Err(error) => {
            findings.push(
                Finding::fail("path", format!("{shown}: {error}"))
                    .advise("name a folder on a fast local disk"),
            );
            return stop(findings);
        }
    };
    if let (Some(process), true) = (process, seen.exists()) {
        findings.push(match disk::may_write(process, path) {
            Ok(()) => Finding::ok(
                "permissions",
                format!("{} may write to {shown}", process.user_name()),
            ),
            Err(why) => match why.split_once(": ") {
                Some((what, command)) => {
                    Finding::fail("permissions", what).advise(command.to_owned())
                }
                None => Finding::fail("permissions", why),
            },
        });
    }
    if let Some(process) = process {
        findings.extend(exposed(&own_folder(path, &seen), process));
    }
    findings.push(room(path, &seen, &folder, share));
    let direct = disk::direct_io(&folder);
    let usable = direct.is_ok().then(|| folder.clone());
    findings.push(match direct {
        Ok(true) => Finding::ok("O_DIRECT", format!("works on {shown}")),
        Ok(false) => Finding::warn(
            "O_DIRECT",
            format!(
                "does not work on {shown}: cached pages would also take memory of the operating \
                 system"
            ),
        )
        .advise("ext4 and XFS support it; tmpfs and some network and overlay file systems do not"),
        Err(error) => Finding::warn("O_DIRECT", format!("cannot be tried on {shown}: {error}"))
            .advise("run `bpe doctor` with sudo"),
    });
    if let Some(data) = data {
        findings.extend(another_disk(&folder, data, path));
        findings.extend(data_direct(data));
    }
    PathCheck { findings, usable }
}

/// The directory that contains the cache file, as the server names it.
fn own_folder(path: &Path, seen: &Path) -> PathBuf {
    if seen.is_dir() {
        path.to_path_buf()
    } else {
        parent(path)
    }
}

/// Other users that may replace the cache file, as the extension reports them when it is switched on.
fn exposed(folder: &Path, process: &Process) -> Vec<Finding> {
    let group = process.groups.last().copied().unwrap_or(0); // that of the files it makes
    let look = |path: &Path| fs::metadata(process.seen(path));
    let Ok(exposures) = cache::exposures(folder, process.uid, group, look) else {
        return Vec::new();
    };
    exposures
        .into_iter()
        .map(|exposure| {
            let finding = if exposure.who == cache::Who::Everybody {
                Finding::fail(
                    "safety",
                    format!("{exposure}: the extension refuses a place that everybody can change"),
                )
            } else {
                Finding::warn(
                    "safety",
                    format!(
                        "{exposure}, so users other than root and the server's can replace the cache file or a \
                         directory above it"
                    ),
                )
            };
            finding.advise(exposure.advice().to_owned())
        })
        .collect()
}

fn parent(path: &Path) -> PathBuf {
    path.parent().unwrap_or(Path::new("/")).to_path_buf()
}

fn room(path: &Path, seen: &Path, folder: &Path, share: u64) -> Finding {
    let shown = path.display();
    let room = match disk::room(folder) {
        Ok(room) => room,
        Err(error) => return Finding::fail("room", format!("{shown}: {error}")),
    };
    if room.read_only {
        return Finding::fail("room", format!("{shown} is mounted read-only"));
    }
    let usable = room.usable(disk::taken(seen));
    let text = format!(
        "{} of {} free on {shown}, {} wanted",
        human(usable),
        human(room.total),
        human(share)
    );
    if share > usable {
        return Finding::fail("room", text).advise(format!(
            "free some, or give it at most {}",
            human(usable / 20 * 19)
        ));
    }
    Finding::ok("room", text)
}

fn another_disk(folder: &Path, data: &Path, path: &Path) -> Option<Finding> {
    if folder.starts_with(data) {
        return Some(
            Finding::warn(
                "disks",
                format!(
                    "{} lies in the data directory, where the server takes folders for databases",
                    path.display()
                ),
            )
            .advise("name a folder on another, faster disk"),
        );
    }
    let device = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let (cache, data) = (device(folder)?, device(data)?);
    Some(if cache == data {
        Finding::warn(
            "disks",
            format!(
                "{} is on the file system of the data directory, so the cache would be on the same \
                 disk as the data",
                path.display()
            ),
        )
        .advise("name a folder on another, faster disk")
    } else {
        Finding::ok(
            "disks",
            format!(
                "{} is on a different file system from the data",
                path.display()
            ),
        )
    })
}

/// Whether the data directory supports O_DIRECT. Its use there is the server's decision; the finding only helps to
/// interpret the benchmark.
fn data_direct(data: &Path) -> Option<Finding> {
    match disk::direct_io(data) {
        Ok(true) => Some(Finding::ok("O_DIRECT", "works on the data directory")),
        Ok(false) => Some(Finding::warn(
            "O_DIRECT",
            "does not work on the data directory: the operating system caches pages there already, \
             and the extension helps only beyond that",
        )),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Level;
    use super::*;

    fn level(checked: &PathCheck, topic: &str) -> Option<Level> {
        checked
            .findings
            .iter()
            .find(|finding| finding.topic == topic)
            .map(|finding| finding.level)
    }

    #[test]
    fn a_good_folder_passes() {
        let folder = tempfile::tempdir().unwrap();
        let checked = check(folder.path(), 1 << 20, None, Some(folder.path()));
        assert_eq!(level(&checked, "room"), Some(Level::Ok));
        // The data is on the same disk.
        assert_eq!(level(&checked, "disks"), Some(Level::Warn));
        if let (Ok(memory), Ok(disk)) = (fs::metadata("/dev/shm"), fs::metadata(folder.path())) {
            if memory.dev() != disk.dev() {
                let data = Path::new("/dev/shm");
                let elsewhere = super::check(folder.path(), 1 << 20, None, Some(data));
                assert_eq!(level(&elsewhere, "disks"), Some(Level::Ok));
            }
        }
        assert_eq!(checked.usable.as_deref(), Some(folder.path()));
    }

    #[test]
    fn bad_places_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert_eq!(
            level(&check(&link, 1, None, None), "path"),
            Some(Level::Fail)
        );
        let deep = folder.path().join("not/there");
        assert_eq!(
            level(&check(&deep, 1, None, None), "path"),
            Some(Level::Fail)
        );
        let new = folder.path().join("new");
        assert_eq!(
            level(&check(&new, 1, None, None), "path"),
            Some(Level::Warn)
        );
        let null = Path::new("/dev/null");
        assert_eq!(
            level(&check(null, 1, None, None), "path"),
            Some(Level::Fail)
        );
        let huge = check(folder.path(), i64::MAX as u64, None, None);
        assert_eq!(level(&huge, "room"), Some(Level::Fail));
    }
}
