//! Disks on loop devices with the file systems that databases use, and throttles for them.
//!
//! They need root. Dropping a guard unmounts, detaches and removes its objects.

use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use crate::copies::run;
use crate::harness::{skip, skip_allowed};

/// Time limit for other processes to release a file system.
const UNMOUNT_LIMIT: Duration = Duration::from_secs(600);

/// How a volume is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileSystem {
    Ext4,
    /// ext4 with inodes of 128 bytes: its times are whole seconds.
    Ext4WholeSeconds,
    Xfs,
    /// The data directory is in the subvolume [`Volume::top`].
    Btrfs,
}

impl FileSystem {
    /// The name in tables.
    pub fn name(self) -> &'static str {
        match self {
            FileSystem::Ext4 => "ext4",
            FileSystem::Ext4WholeSeconds => "ext4 -I 128",
            FileSystem::Xfs => "xfs",
            FileSystem::Btrfs => "btrfs",
        }
    }

    fn format(self) -> &'static [&'static str] {
        match self {
            FileSystem::Ext4 => &["mkfs.ext4", "-q", "-F", "-m", "0"],
            FileSystem::Ext4WholeSeconds => &["mkfs.ext4", "-q", "-F", "-m", "0", "-I", "128"],
            FileSystem::Xfs => &["mkfs.xfs", "-q", "-f"],
            FileSystem::Btrfs => &["mkfs.btrfs", "-q", "-f"],
        }
    }
}

/// A private file system on a loop device.
pub struct Volume {
    image: PathBuf,
    device: PathBuf,
    folder: PathBuf,
}

impl Volume {
    /// Formats a sparse file of `bytes` in `root` and mounts it at `root/name`.
    pub fn create(
        root: &Path,
        name: &str,
        file_system: FileSystem,
        bytes: u64,
    ) -> anyhow::Result<Volume> {
        if !rustix::process::geteuid().is_root() {
            return Err(skip("mounting a file system needs root"));
        }
        let (image, folder) = (root.join(format!("{name}.image")), root.join(name));
        std::fs::create_dir_all(&folder)?;
        std::fs::File::create(&image)?.set_len(bytes)?;
        let (program, arguments) = file_system.format().split_first().context("a program")?;
        run(Command::new(program).args(arguments).arg(&image))
            .map_err(|error| skip_allowed(format!("no {}: {error:#}", file_system.name())))?;
        let mut volume = Volume {
            device: attach(&image)?,
            image,
            folder,
        };
        volume.mount()?;
        match file_system {
            FileSystem::Btrfs => volume.btrfs(&["subvolume", "create"], &[&volume.top()])?,
            _ => std::fs::create_dir(volume.top())?,
        }
        Ok(volume)
    }

    /// The mount point.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The directory that holds the data directory; on btrfs a subvolume.
    pub fn top(&self) -> PathBuf {
        self.folder.join("top")
    }

    /// The file that the loop device shows.
    pub fn image(&self) -> &Path {
        &self.image
    }

    /// The loop device.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// `major:minor` of the loop device.
    pub fn device_number(&self) -> anyhow::Result<String> {
        let number = std::fs::metadata(&self.device)?.rdev();
        Ok(format!("{}:{}", libc::major(number), libc::minor(number)))
    }

    /// Runs `btrfs COMMAND... PATHS...`.
    pub fn btrfs(&self, command: &[&str], paths: &[&Path]) -> anyhow::Result<()> {
        run(Command::new("btrfs").arg("-q").args(command).args(paths))
    }

    /// Snapshots the subvolume `from`.
    pub fn snapshot(&self, from: &Path, to: &Path) -> anyhow::Result<()> {
        self.btrfs(&["subvolume", "snapshot"], &[from, to])
    }

    /// Deletes the subvolume `old` and puts a snapshot of `new` in its place.
    pub fn put_back_subvolume(&self, new: &Path, old: &Path) -> anyhow::Result<()> {
        self.btrfs(&["subvolume", "delete"], &[old])?;
        self.snapshot(new, old)
    }

    /// Mounts it, with nothing cached from before.
    pub fn mount(&mut self) -> anyhow::Result<()> {
        run(Command::new("blockdev")
            .arg("--flushbufs")
            .arg(&self.device))?;
        run(Command::new("mount").arg(&self.device).arg(&self.folder))
            .map_err(|error| skip_allowed(format!("cannot mount: {error:#}")))
    }

    /// Unmounts it, and waits until no mount namespace has it.
    ///
    /// A server that was started by `unshare --mount` beside this test has copies of all mounts. While it runs, the file system
    /// stays alive, and mounting the device again shows the same one.
    pub fn unmount(&self) -> anyhow::Result<()> {
        let end = Instant::now() + UNMOUNT_LIMIT;
        wait_until(end, || run(Command::new("umount").arg(&self.folder)))?;
        wait_until(end, || {
            // The kernel refuses this for a device with a mounted file system.
            std::fs::File::options()
                .read(true)
                .custom_flags(libc::O_EXCL)
                .open(&self.device)
                .map(drop)
                .context("another namespace of mounts has the disk")
        })
    }

    /// Unmounts it and mounts it again; `body` runs in between.
    pub fn unmounted(
        &mut self,
        body: impl FnOnce(&Volume) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        self.unmount()?;
        let done = body(self);
        self.mount()?;
        done
    }

    /// Freezes the mounted file system and copies its image.
    pub fn copy_image(&self, to: &Path) -> anyhow::Result<()> {
        let _frozen = Frozen::of(&self.folder)?;
        copy_sparse(&self.image, to)
    }

    /// Overwrites the image with a copy of it.
    pub fn put_back_image(&self, from: &Path) -> anyhow::Result<()> {
        copy_sparse(from, &self.image)?;
        // Discards the device's cached blocks.
        run(Command::new("blockdev")
            .arg("--flushbufs")
            .arg(&self.device))
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Snapshots and overlays may be mounted below or above. The kernel frees a lazily unmounted one when it is idle.
        let unmount =
            |options: &[&str]| run(Command::new("umount").args(options).arg(&self.folder)).is_ok();
        if !unmount(&["--recursive"]) {
            unmount(&["--recursive", "--lazy"]);
        }
        let _ = run(Command::new("losetup").arg("--detach").arg(&self.device));
        let _ = std::fs::remove_file(&self.image);
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn wait_until(end: Instant, done: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    loop {
        let result = done();
        if result.is_ok() || Instant::now() > end {
            return result;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn attach(image: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(image)
        .stdin(Stdio::null())
        .output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(skip(format!("no loop device: {}", text.trim())));
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Copies a file with its holes, into the same inode where it exists.
fn copy_sparse(from: &Path, to: &Path) -> anyhow::Result<()> {
    run(Command::new("cp")
        .args(["--sparse=always", "--reflink=never"])
        .arg(from)
        .arg(to))
}

/// A file system that is frozen until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn of(folder: &Path) -> anyhow::Result<Frozen> {
        run(Command::new("fsfreeze").arg("--freeze").arg(folder))?;
        Ok(Frozen(folder.to_path_buf()))
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = run(Command::new("fsfreeze").arg("--unfreeze").arg(&self.0));
    }
}

/// A mount at a directory; unmounted on drop.
pub struct Mounted(PathBuf);

impl Mounted {
    /// `mount ARGUMENTS... FOLDER`.
    pub fn at(arguments: &[&str], folder: &Path) -> anyhow::Result<Mounted> {
        std::fs::create_dir_all(folder)?;
        run(Command::new("mount").args(arguments).arg(folder))
            .map_err(|error| skip_allowed(format!("cannot mount: {error:#}")))?;
        Ok(Mounted(folder.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        if run(Command::new("umount").arg(&self.0)).is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.0));
        }
    }
}

/// Limits the writes that processes make to a device: a blkio control group.
pub struct Throttle {
    group: PathBuf,
    device: String,
}

const GROUPS: &str = "/sys/fs/cgroup/blkio";

impl Throttle {
    /// A group without a limit yet.
    pub fn create(volume: &Volume) -> anyhow::Result<Throttle> {
        let unique = volume.device.file_name().context("a device")?;
        let name = format!("bpe-{}-{}", std::process::id(), unique.to_string_lossy());
        let group = Path::new(GROUPS).join(name);
        if !Path::new(GROUPS).join("cgroup.procs").exists() {
            return Err(skip_allowed("no blkio control groups (version 1)"));
        }
        std::fs::create_dir(&group)
            .map_err(|error| skip_allowed(format!("no control group: {error}")))?;
        Ok(Throttle {
            group,
            device: volume.device_number()?,
        })
    }

    /// Puts a process into the group.
    pub fn add(&self, pid: u32) -> anyhow::Result<()> {
        Ok(std::fs::write(
            self.group.join("cgroup.procs"),
            pid.to_string(),
        )?)
    }

    /// Writes a second that the device takes from the group; 0 is no limit.
    pub fn set(&self, iops: u32) -> anyhow::Result<()> {
        let limit = self.group.join("blkio.throttle.write_iops_device");
        std::fs::write(&limit, format!("{} {iops}", self.device))
            .map_err(|error| skip_allowed(format!("no throttle of writes: {error}")))
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        let _ = self.set(0);
        // A group with a process cannot be removed.
        let processes =
            std::fs::read_to_string(self.group.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines() {
            let _ = std::fs::write(Path::new(GROUPS).join("cgroup.procs"), pid);
        }
        let _ = std::fs::remove_dir(&self.group);
    }
}

/// Whether the kernel has device-mapper, which LVM and dm-snapshot need.
pub fn needs_device_mapper() -> anyhow::Result<()> {
    let known = std::fs::read_to_string("/proc/devices")?;
    if !known.contains("device-mapper") {
        return Err(skip_allowed("the kernel has no device-mapper"));
    }
    Ok(())
}
