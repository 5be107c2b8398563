//! An ext4 file system in a file of the emulated volume.
//!
//! The volume itself is a FUSE file system, whose change stamps prove nothing after a restart (`docs/user/restarts.md`). A
//! cloud volume is a block device with ext4 or XFS on it. So the demonstration of restarts makes one: a loop device sends each
//! request of ext4 to the volume's file with O_DIRECT, where the volume limits it as any other.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::interrupt;

/// Inodes of the file system: a data directory has some hundred files.
const INODES: &str = "20000";

/// A mounted file system. Dropping it unmounts, and the kernel then detaches the loop device.
pub struct Disk {
    mountpoint: PathBuf,
}

impl Disk {
    /// Whether this process may attach loop devices and mount.
    pub fn is_possible() -> bool {
        rustix::process::geteuid().is_root() && Path::new("/dev/loop-control").exists()
    }

    /// Makes a sparse file with an empty ext4 file system of `bytes`.
    ///
    /// # Errors
    /// The file cannot be written, or mkfs.ext4 is missing or fails.
    pub fn format(image: &Path, bytes: u64) -> Result<()> {
        File::create(image)
            .and_then(|file| file.set_len(bytes))
            .with_context(|| format!("cannot make {}", image.display()))?;
        let mut mkfs = Command::new("mkfs.ext4");
        mkfs.args(["-q", "-F", "-m", "0", "-N", INODES]).arg(image);
        run(&mut mkfs).map(drop)
    }

    /// Mounts the file system in `image` at `mountpoint`.
    ///
    /// # Errors
    /// No loop device is free, or the mount fails.
    pub fn mount(image: &Path, mountpoint: &Path) -> Result<Disk> {
        let mut attach = Command::new("losetup");
        attach
            .args(["--find", "--show", "--direct-io=on"])
            .arg(image);
        let device = run(&mut attach)?;
        let device = device.trim();
        let mut mount = Command::new("mount");
        // The kernel would fill unused inode tables at the cost of the volume's I/O.
        mount.args(["-o", "noinit_itable", device]).arg(mountpoint);
        let mounted = run(&mut mount);
        // Marks the device: it is detached with its last user.
        run(Command::new("losetup").args(["--detach", device]))?;
        mounted?;
        Ok(Disk {
            mountpoint: mountpoint.to_owned(),
        })
    }

    /// Unmounts.
    ///
    /// # Errors
    /// It is still mounted after that.
    pub fn unmount(self) -> Result<()> {
        run(Command::new("umount").arg(&self.mountpoint)).map(drop)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        interrupt::unmount_if_mounted(&self.mountpoint);
    }
}

/// Returns the standard output of a command.
fn run(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        bail!(
            "{command:?} failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
