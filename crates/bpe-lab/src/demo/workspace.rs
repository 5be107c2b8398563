//! The demonstration's directory: the report is kept, the servers' files are removed.
//!
//! ```text
//! demo-SERVER/        report.html, results.json, logs/; of restarts also restarts.svg
//!   work/             removed at the end
//!     lock            held while a demonstration runs here
//!     backing/        the volume's backing directory, on the fast disk
//!     volume/         the volume's mount point
//!     disk/           mount point of the file system in a file of the volume (restarts)
//!     fast/           the extension's cache, on the fast disk
//!     run/            sockets, pid files
//!     node-0/ ...     nodes of a cluster, each with separate backing/, volume/, fast/ and run/
//!     shared          a link to a directory in /dev/shm, for the state that the extension persists between two starts
//! ```
//!
//! No other user can enter `work`: the servers' root has no password.
//!
//! The directory in /dev/shm is removed at the end, too. After a kill, the next run in the same directory removes it.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use bpe::size;
use private_server::ownership;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::cluster::name::NODES;
use super::interrupt;

/// File system in memory, whose files outlive a process.
const MEMORY: &str = "/dev/shm";
const SHARED_PREFIX: &str = "bpe-demo-";

/// The directory in use. Dropping it removes `work`.
pub struct Workspace {
    work: PathBuf,
    logs: PathBuf,
    /// `None` if `MEMORY` is missing or not writable.
    shared: Option<TempDir>,
    _lock: File,
}

impl Workspace {
    /// Creates the directories, and removes leftovers of a killed run.
    ///
    /// # Errors
    /// Another demonstration runs there, or the file system refuses.
    pub fn create(folder: &Path) -> Result<Workspace> {
        let folder = std::path::absolute(folder)?;
        let (work, logs) = (folder.join("work"), folder.join("logs"));
        let refused = |why: String| {
            anyhow!(
                "cannot work in {why}; give another --folder, in a directory of yours or root's"
            )
        };
        // This program removes, writes and runs files in there.
        ownership::make(&folder).map_err(refused)?;
        make(&work)?;
        ownership::make(&work).map_err(refused)?;
        let lock_path = work.join("lock");
        let lock = ownership::open_lock(&lock_path)
            .with_context(|| format!("cannot open {}", lock_path.display()))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "another demonstration runs in {}; wait for it, or give another --folder",
                folder.display()
            );
        }
        let link = work.join("shared");
        remove_shared(&link)?;
        let shared = tempfile::Builder::new()
            .prefix(SHARED_PREFIX)
            .tempdir_in(MEMORY)
            .ok();
        if let Some(shared) = &shared {
            interrupt::will_fill(shared.path());
            symlink(shared.path(), &link)
                .with_context(|| format!("cannot make {}", link.display()))?;
        }
        let workspace = Workspace {
            work,
            logs,
            shared,
            _lock: lock,
        };
        workspace.unmount_all();
        for node in 0..NODES {
            remove(&workspace.node(node))?;
        }
        for part in [
            workspace.prepared_nodes(),
            workspace.prepared(),
            workspace.backing(),
            workspace.mountpoint(),
            workspace.disk(),
            workspace.fast(),
            workspace.run(),
        ] {
            remove(&part)?;
        }
        for part in [
            workspace.backing(),
            workspace.mountpoint(),
            workspace.disk(),
            workspace.fast(),
            workspace.run(),
        ] {
            make(&part)?;
        }
        if workspace.logs.exists() {
            fs::remove_dir_all(&workspace.logs)
                .with_context(|| format!("cannot remove {}", workspace.logs.display()))?;
        }
        ownership::make(&workspace.logs).map_err(refused)?;
        for mountpoint in workspace.mountpoints() {
            interrupt::will_mount(&mountpoint);
        }
        interrupt::will_fill(&workspace.work);
        Ok(workspace)
    }

    /// Directory of a cluster's node.
    pub fn node(&self, number: usize) -> PathBuf {
        self.work.join(format!("node-{number}"))
    }

    /// The prepared data directory of the cluster's nodes.
    pub fn prepared_nodes(&self) -> PathBuf {
        self.work.join("prepared-nodes")
    }

    fn mountpoints(&self) -> Vec<PathBuf> {
        let nodes = (0..NODES).map(|number| self.node(number).join("volume"));
        // The disk is in a file of the volume: unmounted first.
        nodes.chain([self.disk(), self.mountpoint()]).collect()
    }

    fn unmount_all(&self) {
        for mountpoint in self.mountpoints() {
            interrupt::unmount_if_mounted(&mountpoint);
        }
    }

    /// The volume's backing directory.
    pub fn backing(&self) -> PathBuf {
        self.work.join("backing")
    }

    /// Loaded tables that are not kept.
    pub fn prepared(&self) -> PathBuf {
        self.work.join("prepared")
    }

    /// The volume's mount point.
    pub fn mountpoint(&self) -> PathBuf {
        self.work.join("volume")
    }

    /// Mount point of the file system in a file of the volume.
    pub fn disk(&self) -> PathBuf {
        self.work.join("disk")
    }

    /// The fast disk, for the cache.
    pub fn fast(&self) -> PathBuf {
        self.work.join("fast")
    }

    /// Sockets and pid files.
    pub fn run(&self) -> PathBuf {
        self.work.join("run")
    }

    /// Directory in memory for the state that the extension persists between two starts.
    pub fn shared(&self) -> Option<&Path> {
        self.shared.as_ref().map(TempDir::path)
    }

    /// Server options that make the extension persist its state only there. An extension without persistence does not know
    /// them, and the server warns.
    pub fn keeping(&self) -> Vec<String> {
        match self.shared() {
            Some(shared) => vec![format!("--loose-bpe-persist-path={}", shared.display())],
            None => vec!["--loose-bpe-persist-path=".into()],
        }
    }

    /// Logs of sysbench and the servers. They are kept.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// # Errors
    /// The disk has less than `bytes` free.
    pub fn require_space(&self, bytes: u64) -> Result<()> {
        let space = rustix::fs::statvfs(&self.work).context("cannot see the free disk space")?;
        let free = space.f_bavail * space.f_frsize;
        if free < bytes {
            bail!(
                "{} has {} free, the demonstration needs {}: give another --folder, or a smaller \
                 --pool",
                self.work.display(),
                size::human(free),
                size::human(bytes)
            );
        }
        Ok(())
    }

    /// Empties a directory.
    ///
    /// # Errors
    /// A file system error.
    pub fn empty(&self, folder: &Path) -> Result<()> {
        remove(folder)?;
        make(folder)
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        self.unmount_all();
        // Before the link to it.
        drop(self.shared.take());
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// Creates a directory of the servers, which no other user can enter.
fn make(folder: &Path) -> Result<()> {
    ownership::make_private(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Removes a directory recursively, if it exists.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Removes a killed run's directory in memory, and the link to it.
fn remove_shared(link: &Path) -> Result<()> {
    let Ok(left) = fs::read_link(link) else {
        return Ok(());
    };
    let name = left.file_name().and_then(|name| name.to_str());
    let is_ours = left.parent() == Some(Path::new(MEMORY))
        && name.is_some_and(|name| name.starts_with(SHARED_PREFIX));
    if is_ours && left.exists() {
        fs::remove_dir_all(&left).with_context(|| format!("cannot remove {}", left.display()))?;
    }
    fs::remove_file(link).with_context(|| format!("cannot remove {}", link.display()))
}

/// Formats a path for messages.
pub fn shown(path: &std::path::Path) -> String {
    path.canonicalize()
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_stays_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let create = || Workspace::create(folder.path()).unwrap();
        let workspace = create();
        let Some(shared) = workspace.shared().map(Path::to_owned) else {
            return;
        };
        assert!(shared.is_dir() && shared.starts_with(MEMORY));
        assert_eq!(workspace.keeping().len(), 1);
        fs::write(shared.join("arena"), b"x").unwrap();
        drop(workspace);
        assert!(!shared.exists() && !folder.path().join("work").exists());

        // A killed run removes nothing; the next one does.
        let killed = create();
        let left = killed.shared().unwrap().to_owned();
        fs::write(left.join("arena"), b"x").unwrap();
        let link = folder.path().join("work/shared");
        assert_eq!(fs::read_link(&link).unwrap(), left);
        flock(&killed._lock, FlockOperation::Unlock).unwrap();
        let next = create();
        assert!(!left.exists() && next.shared().unwrap().is_dir());
        drop(next);
        drop(killed);

        // A foreign directory stays, even if the link points to it.
        let other = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("work")).unwrap();
        symlink(other.path(), &link).unwrap();
        drop(create());
        assert!(other.path().is_dir());
    }

    #[test]
    fn servers_directories_exclude_other_users() {
        use std::os::unix::fs::MetadataExt;
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("demo");
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        let before = rustix::process::umask(rustix::fs::Mode::empty());
        let workspace = Workspace::create(&folder);
        rustix::process::umask(before);
        let workspace = workspace.unwrap();
        let work = folder.join("work");
        let part = |name: &str| work.join(name);
        for private in [&work, &part("run"), &part("fast"), &part("backing")] {
            assert_eq!(mode(private), 0o700, "{}", private.display());
        }
        assert_eq!((mode(&folder), mode(workspace.logs())), (0o755, 0o755));
    }

    #[test]
    fn folder_of_another_user_is_refused() {
        use std::os::unix::fs::{PermissionsExt, lchown};
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "text").unwrap();
        let refused = |folder: &Path| Workspace::create(folder).err().unwrap().to_string();
        let shared = place.path().join("shared");
        fs::create_dir(&shared).unwrap();
        fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
        assert!(refused(&shared).contains("others can write to it"));
        assert!(fs::read_dir(&shared).unwrap().next().is_none());
        let folder = place.path().join("demo");
        fs::create_dir_all(folder.join("work")).unwrap();
        symlink(&victim, folder.join("work/lock")).unwrap();
        assert!(refused(&folder).contains("cannot open"));
        fs::remove_file(folder.join("work/lock")).unwrap();
        let open = fs::Permissions::from_mode(0o777);
        fs::set_permissions(&folder, open).unwrap();
        assert!(refused(&folder).contains("--folder"));
        let closed = fs::Permissions::from_mode(0o755);
        fs::set_permissions(&folder, closed).unwrap();
        if rustix::process::geteuid().is_root() {
            lchown(&folder, Some(65534), None).unwrap();
            assert!(refused(&folder).contains("another user"));
        }
        assert_eq!(fs::read(&victim).unwrap(), b"text");
    }
}
