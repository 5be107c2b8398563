//! The demonstration's folder: the report stays, the servers' files go.
//!
//! ```text
//! demo-SERVER/        report.html, results.json, logs/
//!   work/             removed at the end
//!     lock            held while a demonstration runs here
//!     backing/        what is behind the volume, on the fast disk
//!     volume/         where the volume is mounted
//!     fast/           the extension's cache, on the fast disk
//!     run/            sockets, pid files
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use bpe_command::size;
use rustix::fs::{FlockOperation, flock};

use super::interrupt;

/// The folder while it is used; dropping it removes `work`.
pub struct Workspace {
    work: PathBuf,
    logs: PathBuf,
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
        make(&work)?;
        let lock_path = work.join("lock");
        let lock = File::create(&lock_path)
            .with_context(|| format!("cannot make {}", lock_path.display()))?;
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            bail!(
                "another demonstration runs in {}; wait for it, or give another --folder",
                folder.display()
            );
        }
        let workspace = Workspace {
            work,
            logs,
            _lock: lock,
        };
        interrupt::unmount_if_mounted(&workspace.mountpoint());
        for part in [
            workspace.prepared(),
            workspace.backing(),
            workspace.mountpoint(),
            workspace.fast(),
            workspace.run(),
        ] {
            if part.exists() {
                fs::remove_dir_all(&part)
                    .with_context(|| format!("cannot remove {}", part.display()))?;
            }
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
        interrupt::will_mount(&workspace.mountpoint());
        interrupt::will_fill(&workspace.work);
        Ok(workspace)
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
        if folder.exists() {
            fs::remove_dir_all(folder)
                .with_context(|| format!("cannot remove {}", folder.display()))?;
        }
        fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        interrupt::unmount_if_mounted(&self.mountpoint());
        let _ = fs::remove_dir_all(&self.work);
    }
}

/// A path for people.
pub fn shown(path: &std::path::Path) -> String {
    path.canonicalize()
        .unwrap_or_else(|_| path.to_owned())
        .display()
        .to_string()
}
