//! Small file systems for the tests: in memory (no O_DIRECT there) and in a file (with a given size).
//!
//! They need root; without it, the test is skipped.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use cloud_volume::{CloudVolume, Profile, Volume};

use crate::harness::skip;
use crate::place::Place;

/// An unlimited disk with faults on command, in a directory of the place.
pub fn disk_with_faults(place: &Place, name: &str) -> anyhow::Result<Volume> {
    let (backing, folder) = (
        place.root().join(format!("{name}-backing")),
        place.root().join(name),
    );
    std::fs::create_dir_all(&backing)?;
    std::fs::create_dir_all(&folder)?;
    CloudVolume::mount(&backing, &folder, Profile::unlimited())
        .map_err(|error| skip(format!("no FUSE file system: {error}")))
}

/// Mounts fusectl, where the kernel shows the request limit of FUSE file systems; usual systems have it mounted.
pub fn fuse_control() -> anyhow::Result<()> {
    const FOLDER: &str = "/sys/fs/fuse/connections";
    let mounted = std::fs::read_to_string("/proc/mounts")?.contains(FOLDER);
    if !mounted {
        mount(&["-t", "fusectl", "fusectl"], Path::new(FOLDER))?;
    }
    Ok(())
}

/// A mounted file system; unmounted and removed on drop.
pub struct Mount {
    folder: PathBuf,
    image: Option<Image>,
    /// Setting to restore: a loop device keeps it for later uses.
    requests: Option<(PathBuf, String)>,
}

/// A file attached to a loop device until drop. So a remount keeps the device number.
struct Image {
    path: PathBuf,
    device: PathBuf,
}

impl Image {
    fn attach(path: &Path) -> anyhow::Result<Image> {
        Ok(Image {
            path: path.to_path_buf(),
            device: attach(path)?,
        })
    }

    fn mount(&self, folder: &Path) -> anyhow::Result<()> {
        // Discards the device's cached blocks, because the file may have changed.
        run(Command::new("blockdev")
            .arg("--flushbufs")
            .arg(&self.device))?;
        mount(&[&self.device.display().to_string()], folder)
    }

    /// Waits until the unmounted file system is gone. A process with a copy of the mount namespace, such as a server started by
    /// `unshare --mount`, keeps it mounted until it ends. A mount before that would not be a new mount.
    fn wait_until_gone(&self) -> anyhow::Result<()> {
        let name = self.device.file_name().context("a device")?;
        let there = Path::new("/sys/fs/ext4").join(name);
        wait_until(LET_GO, || {
            ensure!(
                !there.exists(),
                "{}: another process has it mounted",
                there.display()
            );
            Ok(())
        })
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        // If it is still mounted elsewhere, the kernel detaches it later.
        let _ = detach(&self.device);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Time limit for other processes to release a file system.
const LET_GO: Duration = Duration::from_secs(600);

/// Retries until success or the time limit.
fn wait_until(limit: Duration, done: impl Fn() -> anyhow::Result<()>) -> anyhow::Result<()> {
    let end = Instant::now() + limit;
    loop {
        let result = done();
        if result.is_ok() || Instant::now() > end {
            return result;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Attaches the file to a loop device.
fn attach(image: &Path) -> anyhow::Result<PathBuf> {
    let mut command = Command::new("losetup");
    let text = output(command.args(["--find", "--show"]).arg(image))
        .map_err(|error| skip(format!("no block device of a file: {error:#}")))?;
    Ok(PathBuf::from(text.trim()))
}

fn detach(device: &Path) -> anyhow::Result<()> {
    run(Command::new("losetup").arg("--detach").arg(device))
}

/// A file system with blocked writes; unfrozen on drop.
pub struct Frozen(PathBuf);

impl Frozen {
    fn turn(&self, how: &str) -> anyhow::Result<()> {
        let output = Command::new("fsfreeze").arg(how).arg(&self.0).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "fsfreeze {how}: {said}");
        Ok(())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = self.turn("--unfreeze");
    }
}

impl Mount {
    /// A file system in memory.
    pub fn memory(folder: &Path, bytes: u64) -> anyhow::Result<Mount> {
        std::fs::create_dir_all(folder)?;
        mount(
            &[
                "-t",
                "tmpfs",
                "-o",
                &format!("size={bytes},mode=755"),
                "tmpfs",
            ],
            folder,
        )?;
        Ok(Mount {
            folder: folder.to_path_buf(),
            image: None,
            requests: None,
        })
    }

    /// An ext4 file system in a file of `bytes` beside the directory.
    pub fn image(folder: &Path, bytes: u64) -> anyhow::Result<Mount> {
        Mount::image_in(&folder.with_extension("image"), folder, bytes)
    }

    /// An ext4 file system in the new file `image`.
    pub fn image_in(image: &Path, folder: &Path, bytes: u64) -> anyhow::Result<Mount> {
        std::fs::create_dir_all(folder)?;
        std::fs::File::create(image)?.set_len(bytes)?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0", "-O", "^has_journal"])
            .arg(image))?;
        needs_root()?;
        let image = Image::attach(image)?;
        image.mount(folder)?;
        Ok(Mount {
            folder: folder.to_path_buf(),
            image: Some(image),
            requests: None,
        })
    }

    /// Limits the requests in flight of the disk below; a further submission blocks in the kernel.
    pub fn set_requests(&mut self, requests: u32) -> anyhow::Result<()> {
        let device = std::fs::metadata(&self.folder)?.dev();
        let queue = format!(
            "/sys/dev/block/{}:{}/queue",
            libc::major(device),
            libc::minor(device)
        );
        let number = Path::new(&queue).join("nr_requests");
        let set = std::fs::write(format!("{queue}/scheduler"), "none").and_then(|()| {
            let before = std::fs::read_to_string(&number)?;
            std::fs::write(&number, requests.to_string())?;
            Ok(before)
        });
        let before =
            set.map_err(|error| skip(format!("cannot set the requests of a disk: {error}")))?;
        self.requests = Some((number.canonicalize()?, before));
        Ok(())
    }

    /// Remounts it read-only or writable.
    pub fn set_read_only(&self, read_only: bool) -> anyhow::Result<()> {
        let options = if read_only {
            "remount,ro"
        } else {
            "remount,rw"
        };
        run(Command::new("mount")
            .args(["-o", options])
            .arg(&self.folder))
    }

    /// Unmounts the image and mounts it again.
    pub fn mount_anew(&mut self) -> anyhow::Result<()> {
        self.unmounted(|| Ok(()))
    }

    /// Remounts the image, with another device number.
    pub fn mount_elsewhere(&mut self) -> anyhow::Result<()> {
        self.unmount()?;
        let image = self.image.as_mut().context("no image")?;
        let device = attach(&image.path)?;
        detach(&image.device)?;
        image.device = device;
        image.mount(&self.folder)
    }

    /// Unmounts the image, runs `body`, and mounts the image again.
    pub fn unmounted(&mut self, body: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.unmount()?;
        let done = body();
        self.image
            .as_ref()
            .context("no image")?
            .mount(&self.folder)?;
        done
    }

    fn unmount(&self) -> anyhow::Result<()> {
        // A process that inspects the host's mounts may block it for a moment.
        wait_until(Duration::from_secs(60), || {
            run(Command::new("umount").arg(&self.folder))
        })?;
        self.image.as_ref().context("no image")?.wait_until_gone()
    }

    /// Freezes the file system until the guard is dropped.
    pub fn freeze(&self) -> anyhow::Result<Frozen> {
        let frozen = Frozen(self.folder.clone());
        frozen.turn("--freeze")?;
        Ok(frozen)
    }

    /// The mount point.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some((number, before)) = &self.requests {
            let _ = std::fs::write(number, before.trim());
        }
        // A server that is being killed may block it for a moment; then unmount lazily.
        if run(Command::new("umount").arg(&self.folder)).is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.folder));
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn needs_root() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(skip("mounting a file system for the test needs root"));
    }
    Ok(())
}

fn mount(arguments: &[&str], folder: &Path) -> anyhow::Result<()> {
    needs_root()?;
    run(Command::new("mount").args(arguments).arg(folder))
        .map_err(|error| skip(format!("cannot mount a file system: {error:#}")))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    output(command).map(drop)
}

/// Standard output of a command.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
