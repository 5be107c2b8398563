//! The emulated cloud volume, in a separate process. If this process is killed, the volume unmounts and ends.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use cloud_volume::Statistics;
use private_server::{SocketPath, process};

use super::interrupt;
use crate::volume::PROGRAM;

/// The volume's properties, for the report. They are the defaults of `bpe-lab volume mount`.
pub const DESCRIPTION: &str =
    "3,000 IOPS shared by reads and writes, 0.5 ms per I/O, 125 MB/s, no burst";

/// Timeout for mounting and unmounting.
const PATIENCE: Duration = Duration::from_secs(20);

/// A mounted volume. Dropping it unmounts.
pub struct Volume {
    child: Child,
    mountpoint: PathBuf,
    control: SocketPath,
}

impl Volume {
    /// Mounts `backing` at `mountpoint` with the default profile. Its control socket is in `run`, and its messages go to
    /// `log`.
    ///
    /// # Errors
    /// The mount fails; the error has the volume's message.
    pub fn mount(backing: &Path, mountpoint: &Path, run: &Path, log: &Path) -> Result<Volume> {
        let log_file =
            File::create(log).with_context(|| format!("cannot make {}", log.display()))?;
        let control = SocketPath::of(run, "volume-control").context("a place for a socket")?;
        let mut command = Command::new(PROGRAM);
        command
            .args(["volume", "mount"])
            .args([backing, mountpoint])
            .arg("--control")
            .arg(control.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log_file);
        let mut child =
            process::spawn(command, libc::SIGTERM).context("cannot start the emulated volume")?;
        let stdout = child.stdout.take();
        let volume = Volume {
            child,
            mountpoint: mountpoint.to_owned(),
            control,
        };
        // The volume prints one line once it is mounted. A thread reads it, so that the wait has a timeout.
        let (sender, line) = channel();
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(stdout) = stdout {
                let _ = BufReader::new(stdout).read_line(&mut text);
            }
            let _ = sender.send(text);
        });
        match line.recv_timeout(PATIENCE) {
            Ok(text) if text.contains("mounted") => Ok(volume),
            _ => {
                drop(volume);
                let said = std::fs::read_to_string(log).unwrap_or_default();
                bail!("the emulated volume was not mounted: {}", said.trim())
            }
        }
    }

    /// Counters since the mount.
    ///
    /// # Errors
    /// The volume does not answer.
    pub fn statistics(&self) -> Result<Statistics> {
        let text = self.send("statistics")?;
        serde_json::from_str(&text).context("the volume's statistics")
    }

    /// Removes all limits and latency.
    ///
    /// # Errors
    /// The volume does not answer.
    pub fn set_unlimited(&self) -> Result<()> {
        self.set_profile("unlimited")
    }

    /// Sets limits and latency, like `bpe-lab volume control`: `default iops=1500`.
    ///
    /// # Errors
    /// The volume does not answer.
    pub fn set_profile(&self, profile: &str) -> Result<()> {
        self.send(&format!("profile {profile}")).map(drop)
    }

    fn send(&self, command: &str) -> Result<String> {
        cloud_volume::send(self.control.path(), command)
            .with_context(|| format!("the emulated volume does not answer \"{command}\""))
    }

    /// Unmounts, and waits for the end of the process.
    ///
    /// # Errors
    /// It is still mounted after that.
    pub fn unmount(mut self) -> Result<()> {
        self.end();
        if interrupt::is_mounted(&self.mountpoint) {
            bail!("{} is still mounted", self.mountpoint.display());
        }
        Ok(())
    }

    fn end(&mut self) {
        process::end(&mut self.child, libc::SIGTERM, PATIENCE);
        interrupt::unmount_if_mounted(&self.mountpoint);
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.end();
    }
}
