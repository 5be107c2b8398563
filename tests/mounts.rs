//! Small file systems for the tests: in memory (no O_DIRECT there) and in a file (with a size of its own).
//!
//! They need root; without, the test is skipped.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};
use cloud_volume::{CloudVolume, Profile, Volume};

use crate::harness::skip;
use crate::place::Place;

/// An unlimited disk with faults on command, in a folder of the place.
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

/// Where the kernel tells how many requests a FUSE file system takes: mounted, as every usual system has it.
pub fn fuse_control() -> anyhow::Result<()> {
    const FOLDER: &str = "/sys/fs/fuse/connections";
    let mounted = std::fs::read_to_string("/proc/mounts")?.contains(FOLDER);
    if !mounted {
        mount(&["-t", "fusectl", "fusectl"], Path::new(FOLDER))?;
    }
    Ok(())
}

/// A mounted file system; unmounted and removed when dropped.
pub struct Mount {
    folder: PathBuf,
    image: Option<PathBuf>,
    /// What is to be put back: a loop device keeps it when it is used for something else.
    requests: Option<(PathBuf, String)>,
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

    /// An ext4 file system in a file of `bytes` beside the folder.
    pub fn image(folder: &Path, bytes: u64) -> anyhow::Result<Mount> {
        Mount::image_in(&folder.with_extension("image"), folder, bytes)
    }

    /// An ext4 file system in the file `image`, which is made.
    pub fn image_in(image: &Path, folder: &Path, bytes: u64) -> anyhow::Result<Mount> {
        std::fs::create_dir_all(folder)?;
        std::fs::File::create(image)?.set_len(bytes)?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0", "-O", "^has_journal"])
            .arg(image))?;
        let image_text = image.display().to_string();
        mount(&["-o", "loop", &image_text], folder)?;
        Ok(Mount {
            folder: folder.to_path_buf(),
            image: Some(image.to_path_buf()),
            requests: None,
        })
    }

    /// Lets the disk below have only so many requests under way: whoever submits one more waits in the kernel.
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

    /// The same, and does something meanwhile.
    pub fn unmounted(&mut self, body: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<()> {
        let image = self.image.as_ref().context("no image")?;
        run(Command::new("umount").arg(&self.folder))?;
        let done = body();
        mount(&["-o", "loop", &image.display().to_string()], &self.folder)?;
        done
    }

    /// The folder it is mounted on.
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Some((number, before)) = &self.requests {
            let _ = std::fs::write(number, before.trim());
        }
        // A server that is being killed may hold it for a moment; lazily then.
        if run(Command::new("umount").arg(&self.folder)).is_err() {
            let _ = run(Command::new("umount").arg("--lazy").arg(&self.folder));
        }
        if let Some(image) = &self.image {
            let _ = std::fs::remove_file(image);
        }
        let _ = std::fs::remove_dir(&self.folder);
    }
}

fn mount(arguments: &[&str], folder: &Path) -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(skip("mounting a file system for the test needs root"));
    }
    run(Command::new("mount").args(arguments).arg(folder))
        .map_err(|error| skip(format!("cannot mount a file system: {error:#}")))
}

fn run(command: &mut Command) -> anyhow::Result<()> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
