//! Whether the cache survives a restart: the server's requirements on its host.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::connect::process::Process;
use crate::connect::server::Flavour;
use crate::installation::disk;
use crate::installation::server_options::ServerOptions;
use crate::support::quote::shell_path;
use crate::support::size::human;

/// `f_type` of file systems whose change stamps prove a file unchanged, as in the plugin's `mount`: ext2 to ext4, XFS, btrfs.
const PROVABLE: [u64; 3] = [0xef53, 0x5846_5342, 0x9123_683e];

/// Effect of an empty `bpe_persist_path`.
pub const EMPTY: &str = "bpe_persist_path is empty: the cache starts empty after each restart";
/// Default `bpe_persist_path` for a server without the plugin.
pub const DEFAULT_PATH: &str = "/dev/shm";
const TMPFS: i64 = 0x0102_1994;
/// Default size of `/dev/shm` in most containers.
const CONTAINER_SHM_BYTES: u64 = 64 << 20;

/// An obstacle and advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    pub what: String,
    pub advice: String,
}

fn obstacle(what: impl Into<String>, advice: impl Into<String>) -> Obstacle {
    Obstacle {
        what: what.into(),
        advice: advice.into(),
    }
}

/// Bytes of memory that a cache of `size` bytes persists for the next process: 12 per page, and the file records.
pub fn needed(size: u64) -> u64 {
    (size / (16 << 10) * 12).saturating_add(1 << 20)
}

/// Whether the server can keep `needed` bytes in this directory, as it sees it. Returns a description of size, place and duration.
///
/// # Errors
/// Why it cannot.
pub fn place(process: &Process, folder: &Path, needed: u64) -> Result<String, Obstacle> {
    let shown = folder.display();
    let elsewhere = "name another in bpe_persist_path, at the server's start: a folder on a tmpfs";
    let seen = process.seen(folder);
    let system = rustix::fs::statfs(&seen)
        .map_err(|error| obstacle(format!("{shown}: {error}"), elsewhere))?;
    #[allow(clippy::unnecessary_cast)] // its type differs between machines
    if system.f_type as i64 != TMPFS {
        let what = format!("{shown} is not on a file system in memory (tmpfs)");
        return Err(obstacle(what, elsewhere));
    }
    if let Err(why) = disk::may_write(process, folder) {
        let (what, advice) = why.split_once(": ").unwrap_or((&why, elsewhere));
        return Err(obstacle(what, advice));
    }
    let room =
        disk::room(&seen).map_err(|error| obstacle(format!("{shown}: {error}"), elsewhere))?;
    if room.read_only {
        return Err(obstacle(
            format!("{shown} is mounted read-only for the server"),
            elsewhere,
        ));
    }
    let free = room.free + taken(&seen);
    if free < needed {
        let what = format!(
            "{} of {} free on {shown}, {} needed",
            human(free),
            human(room.total),
            human(needed)
        );
        let advice = if room.total <= CONTAINER_SHM_BYTES {
            "a container has 64 MiB there: give it more (--shm-size, shm_size, or a volume of memory)".to_owned()
        } else {
            format!(
                "free some, raise its limit (mount -o remount,size=... {}), or {elsewhere}",
                shell_path(folder)
            )
        };
        return Err(obstacle(what, advice));
    }
    let own = |path: &Path| fs::metadata(path).map(|meta| meta.dev()).ok();
    let more = if own(&seen) == own(folder) {
        "until the machine restarts"
    } else {
        "as long as the server's container or private mount is there"
    };
    Ok(format!("about {} in {shown}, {more}", human(needed)))
}

/// Bytes that servers already use there for persisted caches.
fn taken(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let ours = entries.filter(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("bpe-") && (name.ends_with(".arena") || name.ends_with(".files"))
    });
    let sizes = ours.filter_map(|entry| entry.metadata().ok());
    sizes.map(|meta| meta.blocks() * 512).sum()
}

/// Whether files on the file system of `data` can be proven unchanged after a restart. `data` is a path of this
/// command's own mount namespace.
///
/// # Errors
/// Why they cannot.
pub fn data(data: &Path) -> Result<(), Obstacle> {
    let Ok(system) = rustix::fs::statfs(data) else {
        return Ok(());
    };
    #[allow(
        clippy::unnecessary_cast,
        reason = "of another type on other processors"
    )]
    let kind = system.f_type as u64 & 0xffff_ffff;
    if PROVABLE.contains(&kind) {
        return Ok(());
    }
    Err(obstacle(
        "the file system of the data directory has no change stamps by which files can be proven unchanged, so nothing cached of them is \
         served after a restart; pages are loaded anew",
        "ext4, XFS and btrfs have them; ZFS, bcachefs, overlay, network and FUSE file systems do not",
    ))
}

/// Whether the option files load the plugin before InnoDB.
///
/// # Errors
/// If they do not.
pub fn loaded_early(
    options: &ServerOptions,
    process: &Process,
    flavour: Flavour,
) -> Result<(), Obstacle> {
    let (names, line): (&[&str], _) = match flavour {
        Flavour::MariaDb => (&["plugin_load_add", "plugin_load"], "plugin_load_add = bpe"),
        Flavour::MySql => (&["early_plugin_load"], "early-plugin-load = bpe=bpe.so"),
    };
    let ours = |value: &str| {
        let mut parts = value.split([';', '=']);
        parts.any(|part| matches!(part.trim(), "bpe" | "bpe.so"))
    };
    let set =
        |name: &&str| process.option(name).is_some_and(ours) || options.values(name).any(ours);
    if names.iter().any(set) {
        return Ok(());
    }
    Err(obstacle(
        "nothing in the server's option files loads the plugin before InnoDB",
        format!("let `bpe enable` write it, or write into an option file: {line}"),
    ))
}

/// Value of `bpe_persist_path`, or its default.
pub fn folder(variable: Option<&str>) -> PathBuf {
    variable.unwrap_or(DEFAULT_PATH).into()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn process(uid: u32) -> Process {
        Process {
            pid: 1,
            start: 0,
            uid,
            groups: vec![],
            command_line: vec![],
            environment: BTreeMap::new(),
            root: "/".into(),
        }
    }

    #[test]
    fn a_directory_needs_little() {
        assert_eq!(needed(0), 1 << 20);
        let of_100_gib = needed(100 << 30) >> 20;
        assert!((70..80).contains(&of_100_gib), "{of_100_gib} MiB");
    }

    #[test]
    fn places_in_memory() {
        let memory = tempfile::Builder::new().tempdir_in(DEFAULT_PATH).unwrap();
        let root = process(0);
        assert!(place(&root, memory.path(), 4096).is_ok());
        let why = |process, folder, needed| place(process, folder, needed).unwrap_err().what;
        assert!(why(&root, memory.path(), 1 << 60).contains("needed"));
        let none = memory.path().join("none");
        assert!(why(&root, Path::new("/proc"), 1).contains("not on a file system in memory"));
        assert!(why(&root, &none, 1).contains("none: "));
        fs::set_permissions(memory.path(), fs::Permissions::from_mode(0o700)).unwrap();
        let owner = fs::metadata(memory.path()).unwrap().uid();
        let what = why(&process(owner + 12_345), memory.path(), 1);
        assert!(what.contains("may not"), "{what}");
    }

    #[test]
    fn data_whose_mount_cannot_be_told() {
        assert!(data(Path::new("/proc")).is_err());
        assert!(
            data(Path::new("/not/there")).is_ok(),
            "of that others speak"
        );
    }

    #[test]
    fn plugins_loaded_early() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("my.cnf");
        let early = |flavour, text: &str| {
            fs::write(&file, text).unwrap();
            let mut process = process(0);
            process.command_line = vec![format!("--defaults-file={}", file.display())];
            let version = crate::connect::server::Version {
                major: 10,
                minor: 11,
                patch: 0,
            };
            let options = ServerOptions::read(&process, flavour, version);
            loaded_early(&options, &process, flavour).is_ok()
        };
        let maria = Flavour::MariaDb;
        assert!(early(
            maria,
            "[mysqld]\nplugin_load_add = bpe\nplugin-load-add=other\n"
        ));
        assert!(early(
            maria,
            "[mysqld]\nloose-plugin-load=a=b.so;bpe=bpe.so\n"
        ));
        assert!(!early(maria, "[mysqld]\nplugin_load_add = other\n"));
        assert!(early(
            Flavour::MySql,
            "[mysqld]\nearly-plugin-load = \"keyring.so;bpe=bpe.so\"\n"
        ));
        // Loaded only after InnoDB.
        assert!(!early(
            Flavour::MySql,
            "[mysqld]\nplugin-load-add = bpe=bpe.so\n"
        ));
    }
}
