//! Mounting and unmounting: directly if the process is permitted, otherwise through `fusermount3`.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::engine::REQUEST_THREADS;
use crate::file_system::FileSystem;

/// Maximum time for a killed process to release its mount.
const ENDING: Duration = Duration::from_secs(20);

/// A running session.
pub(crate) struct Mounted {
    session: Option<BackgroundSession>,
    through_helper: bool,
}

/// Mounts at `mountpoint` and starts answering the kernel.
pub(crate) fn mount(file_system: FileSystem, mountpoint: &Path) -> io::Result<Mounted> {
    let mut config = Config::default();
    config.n_threads = Some(REQUEST_THREADS);
    config.clone_fd = true;
    config.mount_options = vec![
        MountOption::FSName("cloud-volume".into()),
        MountOption::Subtype("cloud-volume".into()),
        MountOption::DefaultPermissions,
    ];
    let (session, through_helper) = match mount_directly(mountpoint) {
        Ok(device) => {
            config.acl = SessionACL::All;
            let session = Session::from_fd(file_system, device, SessionACL::All, config)
                .inspect_err(|_| {
                    let _ = rustix::mount::unmount(mountpoint, UnmountFlags::DETACH);
                })?;
            (session, false)
        }
        Err(Errno::PERM) => {
            // Then only this user may use the volume.
            config.acl = SessionACL::Owner;
            (Session::new(file_system, mountpoint, &config)?, true)
        }
        Err(error) => return Err(error.into()),
    };
    // Threads inherit the priority of their creator.
    let spawn = move || {
        crate::pacer::raise_priority();
        session.spawn()
    };
    let spawned = std::thread::Builder::new().spawn(spawn)?.join();
    let session = spawned.map_err(|_| io::Error::other("cannot start the FUSE session"))?;
    Ok(Mounted {
        session: Some(session?),
        through_helper,
    })
}

fn mount_directly(mountpoint: &Path) -> Result<OwnedFd, Errno> {
    let raw = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    if !rustix::process::geteuid().is_root() {
        return Err(Errno::PERM);
    }
    let device = OpenOptions::new().read(true).write(true).open("/dev/fuse");
    let device = device.map_err(raw)?;
    let mode = mountpoint.metadata().map_err(raw)?.mode();
    let options = format!(
        "fd={},rootmode={:o},user_id={},group_id={},default_permissions,allow_other",
        device.as_raw_fd(),
        mode,
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let options = CString::new(options).map_err(|_| Errno::INVAL)?;
    rustix::mount::mount(
        "cloud-volume",
        mountpoint,
        "fuse.cloud-volume",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(options.as_c_str()),
    )?;
    Ok(device.into())
}

impl Mounted {
    pub(crate) fn notifier(&self) -> Option<fuser::Notifier> {
        self.session.as_ref().map(BackgroundSession::notifier)
    }

    /// Unmounts the volume. Waits for open files to be closed until `patience` has passed. Then it cuts them off (EIO,
    /// ENOTCONN) and returns true.
    pub(crate) fn unmount(&self, mountpoint: &Path, patience: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + patience;
        loop {
            let unmounted = if self.through_helper {
                helper(mountpoint, "-u")
            } else {
                rustix::mount::unmount(mountpoint, UnmountFlags::NOFOLLOW).map_err(Into::into)
            };
            match unmounted {
                Ok(()) => return Ok(false),
                Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => {
                    // Another process has unmounted it.
                    return Ok(false);
                }
                Err(_) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(50));
                }
                Err(_) => break,
            }
        }
        if self.through_helper {
            helper(mountpoint, "-uz")?;
        } else {
            rustix::mount::unmount(mountpoint, UnmountFlags::FORCE | UnmountFlags::DETACH)?;
        }
        Ok(true)
    }

    /// Ends the session object. `joined`: the kernel has released the mount, so the threads end.
    pub(crate) fn finish(&mut self, joined: bool) {
        let Some(session) = self.session.take() else {
            return;
        };
        if self.through_helper || !joined {
            // Dropping it would unmount by path again, and that may be another mount by now.
            std::mem::forget(session);
        } else if let Err(error) = session.join() {
            log::warn!("the FUSE session ended with an error: {error}");
        }
    }
}

fn helper(mountpoint: &Path, option: &str) -> io::Result<()> {
    let output = Command::new("fusermount3")
        .args([option, "--"])
        .arg(mountpoint)
        .output()?;
    if output.status.success() {
        Ok(())
    } else {
        let said = String::from_utf8_lossy(&output.stderr);
        Err(io::Error::other(said.trim().to_string()))
    }
}

/// Detaches the mount at `mountpoint` if the process that served it is gone. Returns whether there was such a mount.
pub fn detach_if_dead(mountpoint: &Path) -> io::Result<bool> {
    match rustix::fs::stat(mountpoint) {
        // The latter occurs if the call coincides with the end of the process.
        Err(Errno::NOTCONN | Errno::CONNABORTED) => {
            match rustix::mount::unmount(mountpoint, UnmountFlags::DETACH) {
                Err(Errno::PERM) => helper(mountpoint, "-uz")?,
                result => result?,
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}

/// Body of a guard process. Waits until its standard input ends, which happens when the process at the other end is
/// gone for any reason. Then it detaches that process's mount if that is dead.
pub fn guard(mountpoint: &Path) -> io::Result<()> {
    // A new session, so that no signal interrupts it together with the watched process.
    let _ = rustix::process::setsid();
    let _ = io::stdin().read(&mut [0]);
    // An ending process closes its files one after the other, so the mount may still appear alive.
    let end = Instant::now() + ENDING;
    while !detach_if_dead(mountpoint)? && is_mounted(mountpoint) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Whether a responsive mount exists there.
fn is_mounted(mountpoint: &Path) -> bool {
    let device = |path: &Path| rustix::fs::stat(path).map(|stat| stat.st_dev);
    match (device(mountpoint), mountpoint.parent().map(device)) {
        (Ok(own), Some(Ok(above))) => own != above,
        _ => true,
    }
}
