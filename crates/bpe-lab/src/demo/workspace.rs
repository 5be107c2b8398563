//! The demonstration's folder: the report stays, the servers' files go.
//!
//! ```text
//! demo-SERVER/        report.html, results.json, logs/; of restarts also restarts.svg
//!   work/             removed at the end
//!     lock            held while a demonstration runs here
//!     backing/        what is behind the volume, on the fast disk
//!     volume/         where the volume is mounted
//!     fast/           the extension's cache, on the fast disk
//!     run/            sockets, pid files
//!     node-0/ ...     of a cluster, each node with its own backing/, volume/, fast/ and run/
//!     shared          a link to a folder in /dev/shm, for what the extension keeps in memory between two starts of a server
//! ```
//!
//! The folder in /dev/shm goes at the end, too. One that a killed run has left goes with the next run in the same folder.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use bpe_command::size;
use private_server::ownership;
use rustix::fs::{FlockOperation, flock};
use tempfile::TempDir;

use super::cluster::name::NODES;
use super::interrupt;

/// Files in memory, which outlive a process.
const MEMORY: &str = "/dev/shm";
const SHARED_PREFIX: &str = "bpe-demo-";

/// The folder while it is used; dropping it removes `work`.
pub struct Workspace {
    work: PathBuf,
    logs: PathBuf,
    /// None where `MEMORY` is missing or nothing can be made there.
    shared: Option<TempDir>,
    _lock: File,
}

impl Workspace {
    /// Makes the folders and removes what a killed run left in them.
    ///
    /// # Errors
    /// When another demonstration runs there, or the file system refuses.
    pub fn create(folder: &Path) -> Result<Workspace> {
        let make = |path: &Path| {
            fs::create_dir_all(path).with_context(|| format!("cannot make {}", path.display()))
        };
        let folder = std::path::absolute(folder)?;
        let (work, logs) = (folder.join("work"), folder.join("logs"));
        // Files in there are removed, written and run.
        ownership::make(&work).map_err(|why| {
            anyhow!(
                "cannot work in {why}; give another --folder, in a directory of yours or root's"
            )
        })?;
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
            workspace.fast(),
            workspace.run(),
        ] {
            remove(&part)?;
        }
        for part in [
            workspace.backing(),
            workspace.mountpoint(),
            workspace.fast(),
            workspace.run(),
        ] {
            make(&part)?;
        }
        if workspace.logs.exists() {
            fs::remove_dir_all(&workspace.logs)
                .with_context(|| format!("cannot remove {}", workspace.logs.display()))?;
        }
        make(&workspace.logs)?;
        for mountpoint in workspace.mountpoints() {
            interrupt::will_mount(&mountpoint);
        }
        interrupt::will_fill(&workspace.work);
        Ok(workspace)
    }

    /// The folder of a cluster's node.
    pub fn node(&self, number: usize) -> PathBuf {
        self.work.join(format!("node-{number}"))
    }

    /// What the nodes of a cluster begin with.
    pub fn prepared_nodes(&self) -> PathBuf {
        self.work.join("prepared-nodes")
    }

    fn mountpoints(&self) -> Vec<PathBuf> {
        let nodes = (0..NODES).map(|number| self.node(number).join("volume"));
        nodes.chain([self.mountpoint()]).collect()
    }

    fn unmount_all(&self) {
        for mountpoint in self.mountpoints() {
            interrupt::unmount_if_mounted(&mountpoint);
        }
    }

    /// What is behind the volume.
    pub fn backing(&self) -> PathBuf {
        self.work.join("backing")
    }

    /// Loaded tables that are not kept.
    pub fn prepared(&self) -> PathBuf {
        self.work.join("prepared")
    }

    /// Where the volume is mounted.
    pub fn mountpoint(&self) -> PathBuf {
        self.work.join("volume")
    }

    /// The fast disk, for the cache.
    pub fn fast(&self) -> PathBuf {
        self.work.join("fast")
    }

    /// Sockets and pid files.
    pub fn run(&self) -> PathBuf {
        self.work.join("run")
    }

    /// A folder in memory, for what the extension keeps between two starts of a server.
    pub fn shared(&self) -> Option<&Path> {
        self.shared.as_ref().map(TempDir::path)
    }

    /// Server options by which the extension keeps there what it keeps, and nowhere else. An extension that keeps nothing
    /// does not know them, and the server warns.
    pub fn keeping(&self) -> Vec<String> {
        match self.shared() {
            Some(shared) => vec![format!("--loose-bpe-persist-path={}", shared.display())],
            None => vec!["--loose-bpe-persist-path=".into()],
        }
    }

    /// Logs of sysbench and the servers; they stay.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// # Errors
    /// When the disk has less than `bytes` free.
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

    /// An empty folder again.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn empty(&self, folder: &Path) -> Result<()> {
        remove(folder)?;
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
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

/// Removes a folder with all that is in it, if it is there.
fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// Removes the folder in memory that a killed run has left, and the link to it.
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

/// A path for people.
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

        // Somebody else's folder stays, whatever the link says.
        let other = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("work")).unwrap();
        symlink(other.path(), &link).unwrap();
        drop(create());
        assert!(other.path().is_dir());
    }

    #[test]
    fn folder_of_another_user_is_refused() {
        use std::os::unix::fs::{PermissionsExt, lchown};
        let place = tempfile::tempdir().unwrap();
        let victim = place.path().join("victim");
        fs::write(&victim, "text").unwrap();
        let refused = |folder: &Path| Workspace::create(folder).err().unwrap().to_string();
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
